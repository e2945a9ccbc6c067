use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::complete::{Ended, Outcome};
use crate::handle::Attempts;
use crate::measure::Level;
use crate::pg::{Calls, Operation};
use crate::relay::Relay;

/// What this process has done since it started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Figures {
    /// Events that its relay fanned out.
    pub relayed: u64,
    /// Jobs that its relay made of them.
    pub fanned_out: u64,
    /// Jobs that it leased.
    pub claimed: u64,
    /// Attempts that completed their job.
    pub completed: u64,
    /// Attempts that failed and will be tried again.
    pub retried: u64,
    /// Attempts that put their job off.
    pub snoozed: u64,
    /// Attempts that discarded their job: refused by the handler, or the last one failed.
    pub discarded: u64,
    /// Attempts that were given back.
    pub released: u64,
    /// Outcomes that came too late: another worker had the job.
    pub stale: u64,
    /// Jobs of dead workers that it put back.
    pub rescued: u64,
    /// Calls that wrote outcomes.
    pub flushes: u64,
}

#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) relay: Arc<Relay>,
    pub(super) claimed: Arc<AtomicU64>,
    pub(super) flushes: Arc<AtomicU64>,
    pub(super) rescued: AtomicU64,
    completed: AtomicU64,
    retried: AtomicU64,
    snoozed: AtomicU64,
    discarded: AtomicU64,
    released: AtomicU64,
    stale: AtomicU64,
    pub(super) attempts: Arc<Attempts>,
    claims: Arc<Calls>,
    finishes: Arc<Calls>,
    relays: Arc<Calls>,
    pub(super) slots: Arc<Level>,
    pub(super) beats: Beats,
}

/// When the last beat was sent that was answered, on the monotonic clock.
#[derive(Debug, Default)]
pub(super) struct Beats(AtomicU64);

impl Beats {
    /// No beat is to come.
    const NONE: u64 = 0;

    pub(super) fn answered(&self, sent: Duration) {
        self.0.store(u64::try_from(sent.as_nanos()).unwrap_or(u64::MAX).max(1), Ordering::Relaxed);
    }

    pub(super) fn over(&self) {
        self.0.store(Self::NONE, Ordering::Relaxed);
    }

    /// How long ago; nothing while no beat is to come.
    pub(super) fn age(&self, now: Duration) -> Duration {
        match self.0.load(Ordering::Relaxed) {
            Self::NONE => Duration::ZERO,
            sent => now.saturating_sub(Duration::from_nanos(sent)),
        }
    }
}

impl Counters {
    pub(super) fn calls(&self, operation: Operation) -> &Arc<Calls> {
        match operation {
            Operation::Claim => &self.claims,
            Operation::Finish => &self.finishes,
            Operation::Relay => &self.relays,
        }
    }

    pub(super) fn told(&self, outcome: &Outcome, fresh: bool) {
        let counter = match outcome.ended {
            _ if !fresh => &self.stale,
            Ended::Completed(_) | Ended::Committed => &self.completed,
            Ended::Failed { .. } => &self.retried,
            Ended::Snoozed(_) => &self.snoozed,
            Ended::Refused(_) | Ended::Exhausted { .. } | Ended::Aged { .. } => &self.discarded,
            Ended::Released => &self.released,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn read(&self) -> Figures {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Figures {
            relayed: of(&self.relay.events),
            fanned_out: of(&self.relay.jobs),
            claimed: of(&self.claimed),
            completed: of(&self.completed),
            retried: of(&self.retried),
            snoozed: of(&self.snoozed),
            discarded: of(&self.discarded),
            released: of(&self.released),
            stale: of(&self.stale),
            rescued: of(&self.rescued),
            flushes: of(&self.flushes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_age_of_the_last_beat_is_counted_from_when_it_was_sent_and_only_while_beats_are_to_come() {
        let (beats, s) = (Beats::default(), Duration::from_secs);
        assert_eq!(beats.age(s(100)), Duration::ZERO, "none is to come");
        beats.answered(s(100));
        assert_eq!(beats.age(s(103)), s(3));
        beats.answered(s(102));
        assert_eq!(beats.age(s(103)), s(1));
        beats.over();
        assert_eq!(beats.age(s(103)), Duration::ZERO);
    }
}
