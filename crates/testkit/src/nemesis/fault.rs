use std::io;
use std::path::Path;

use rand::rngs::StdRng;
use rand::seq::SliceRandom as _;

use crate::checker::now_us;
use crate::ledger::Ledger;

/// What may befall a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A worker is killed with SIGKILL and started again.
    KillWorker,
    /// The same of a relay.
    KillRelay,
    /// The same of a producer.
    KillProducer,
    /// A worker or a relay is stopped with SIGSTOP until it has been taken for dead, and goes on.
    Pause,
    /// Some connections of ours are ended by the server.
    Terminate,
    /// A server process is killed with SIGKILL, so that Postgres ends all connections and recovers.
    CrashBackend,
    /// Postgres is killed with SIGKILL and started again.
    KillPostgres,
    /// Postgres is told to stop at once and started again.
    RestartPostgres,
    /// All connections of a process are reset.
    Cut,
    /// Nothing passes on the connections of a process for a while.
    Stall,
    /// What passes on the connections of a process is swallowed for a while, and then they are reset.
    BlackHole,
    /// The answers to commits of a process are lost with their connections, or the commits themselves.
    LostReply,
}

/// How often each kind is in a deck.
const DECK: [(Kind, usize); 12] = [
    (Kind::KillWorker, 6),
    (Kind::KillRelay, 2),
    (Kind::KillProducer, 2),
    (Kind::Pause, 4),
    (Kind::Terminate, 5),
    (Kind::CrashBackend, 1),
    (Kind::KillPostgres, 1),
    (Kind::RestartPostgres, 1),
    (Kind::Cut, 3),
    (Kind::Stall, 2),
    (Kind::BlackHole, 2),
    (Kind::LostReply, 4),
];

impl Kind {
    /// Its name in the fault log.
    pub fn name(self) -> &'static str {
        match self {
            Self::KillWorker => "kill-worker",
            Self::KillRelay => "kill-relay",
            Self::KillProducer => "kill-producer",
            Self::Pause => "pause",
            Self::Terminate => "terminate",
            Self::CrashBackend => "crash-backend",
            Self::KillPostgres => "kill-postgres",
            Self::RestartPostgres => "restart-postgres",
            Self::Cut => "cut",
            Self::Stall => "stall",
            Self::BlackHole => "black-hole",
            Self::LostReply => "lost-reply",
        }
    }
}

/// Deals kinds of fault: shuffled, and each as often as the others allow.
#[derive(Debug, Default)]
pub(super) struct Deck(Vec<Kind>);

impl Deck {
    pub(super) fn deal(&mut self, dice: &mut StdRng) -> Kind {
        if self.0.is_empty() {
            self.0 = DECK.iter().flat_map(|&(kind, times)| std::iter::repeat_n(kind, times)).collect();
            self.0.shuffle(dice);
        }
        self.0.pop().unwrap_or(Kind::Terminate)
    }
}

/// What the nemesis does, written down before and after.
#[derive(Debug)]
pub struct FaultLog {
    ledger: Ledger,
    begun: u64,
    fired: u64,
}

impl FaultLog {
    pub(super) fn create(folder: &Path) -> io::Result<Self> {
        Ok(Self { ledger: Ledger::append(&folder.join("faults.ledger"))?, begun: 0, fired: 0 })
    }

    /// A fault begins; answers with its number.
    ///
    /// # Errors
    /// If it cannot be written.
    pub async fn begin(&mut self, kind: Kind, target: &str) -> io::Result<u64> {
        let no = self.begun;
        self.begun += 1;
        self.ledger.write(format!("begin {no} {} {target} {}", kind.name(), now_us())).await?;
        Ok(no)
    }

    /// A fault has ended; whether it befell anybody.
    ///
    /// # Errors
    /// If it cannot be written.
    pub async fn end(&mut self, no: u64, fired: bool) -> io::Result<()> {
        self.fired += u64::from(fired);
        self.ledger.write(format!("end {no} {fired} {}", now_us())).await
    }

    /// How many befell anybody so far.
    pub fn fired(&self) -> u64 {
        self.fired
    }

    pub(super) async fn died(&mut self, process: &str) -> io::Result<()> {
        self.ledger.write(format!("died {process}")).await
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng as _;

    use super::*;

    #[test]
    fn a_deck_has_every_kind_and_the_same_seed_deals_the_same() {
        let deal = |seed| {
            let (mut deck, mut dice) = (Deck::default(), StdRng::seed_from_u64(seed));
            (0..66).map(|_| deck.deal(&mut dice)).collect::<Vec<_>>()
        };
        assert_eq!(deal(1), deal(1));
        assert_ne!(deal(1), deal(2));
        let dealt = deal(3);
        for (kind, times) in DECK {
            assert_eq!(dealt.iter().filter(|dealt| **dealt == kind).count(), 2 * times, "{kind:?}");
        }
    }
}
