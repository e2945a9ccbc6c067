use std::time::Duration;

use rand::seq::IndexedRandom as _;
use rand::{RngExt as _, rngs::StdRng};
use rustix::process::{Pid, Signal, kill_process};
use sqlx::PgPool;
use tokio::time::{Instant, sleep, timeout};

use super::crew::Member;
use super::fault::{Deck, Kind};
use super::stage::Stage;
use crate::cluster::TestServer;
use crate::process::until;
use crate::proxy::{At, Connection, Cut, Fault, Hello, Script};

const EVERYBODY: &str = "postgres";
/// How long Postgres may take to come back on a busy machine.
const RECOVERY: Duration = Duration::from_secs(90);
/// After so many processes that ended by themselves there is nothing more to learn.
const DIED_MAX: usize = 50;
/// Our own connections: of the library and of the producers.
const OURS: &str = "select pid from pg_stat_activity where datname = current_database()
    and (application_name like 'postrider %' or application_name = 'fixture producer')";

/// What ends a fault that lasts.
#[derive(Debug)]
enum End {
    Continue { at: usize, name: String },
    Resume { at: usize },
    CutOff(Vec<Connection>),
    Unscript { at: usize, fired_before: u64 },
}

#[derive(Debug)]
struct Lasting {
    no: u64,
    until: Instant,
    end: End,
}

/// Strikes a stage, one fault after another; those that last go on beside the next ones.
pub(super) struct Nemesis<'a> {
    pub(super) stage: &'a mut Stage,
    pub(super) server: &'a TestServer,
    pub(super) dice: StdRng,
    deck: Deck,
    lasting: Vec<Lasting>,
}

impl<'a> Nemesis<'a> {
    pub(super) fn new(stage: &'a mut Stage, server: &'a TestServer, dice: StdRng) -> Self {
        Self { stage, server, dice, deck: Deck::default(), lasting: Vec::new() }
    }

    /// Strikes for at least as long and at least as often; then ends what lasts.
    pub(super) async fn rage(&mut self, lasts: Duration, fired_least: u64, gap: (u64, u64)) -> anyhow::Result<()> {
        let start = Instant::now();
        let mut died = 0;
        while start.elapsed() < lasts || self.stage.faults.fired() < fired_least {
            let next = Instant::now() + Duration::from_millis(self.dice.random_range(gap.0..=gap.1));
            while Instant::now() < next {
                self.end_lasting(false).await?;
                sleep(Duration::from_millis(20)).await;
            }
            for process in self.stage.crew.dead().await? {
                died += 1;
                self.stage.faults.died(&process).await?;
                anyhow::ensure!(died < DIED_MAX, "processes end by themselves: see {}", self.stage.folder().display());
            }
            let kind = self.deck.deal(&mut self.dice);
            self.strike(kind).await?;
        }
        self.end_lasting(true).await
    }

    async fn strike(&mut self, kind: Kind) -> anyhow::Result<()> {
        match kind {
            Kind::KillWorker => self.kill(kind, "worker").await,
            Kind::KillRelay => self.kill(kind, "relay").await,
            Kind::KillProducer => self.kill(kind, "producer").await,
            Kind::Pause => self.pause().await,
            Kind::Terminate => self.terminate().await,
            Kind::CrashBackend | Kind::KillPostgres | Kind::RestartPostgres => self.fell(kind).await,
            Kind::Cut | Kind::Stall | Kind::BlackHole | Kind::LostReply => self.disturb(kind).await,
        }
    }

    fn pick(&mut self, which: impl Fn(&Member) -> bool) -> anyhow::Result<usize> {
        let those = self.stage.crew.those(which);
        those.choose(&mut self.dice).copied().ok_or_else(|| anyhow::anyhow!("there is nobody to strike"))
    }

    async fn kill(&mut self, kind: Kind, role: &str) -> anyhow::Result<()> {
        let at = self.pick(|member| member.role() == role)?;
        let name = self.stage.crew.member(at).full_name();
        let no = self.stage.faults.begin(kind, &name).await?;
        let fired = self.stage.crew.replace(at).await?;
        Ok(self.stage.faults.end(no, fired).await?)
    }

    async fn pause(&mut self) -> anyhow::Result<()> {
        let at = self.pick(|member| matches!(member.role(), "worker" | "relay"))?;
        let dead_after = self.stage.staging().beats.1;
        let until = Instant::now() + dead_after + Duration::from_millis(self.dice.random_range(500..2_500));
        let name = self.stage.crew.member(at).full_name();
        let no = self.stage.faults.begin(Kind::Pause, &name).await?;
        if !self.stage.crew.member(at).process().is_alive() {
            return Ok(self.stage.faults.end(no, false).await?);
        }
        self.stage.crew.member(at).process().signal(Signal::STOP);
        self.lasting.push(Lasting { no, until, end: End::Continue { at, name } });
        Ok(())
    }

    async fn terminate(&mut self) -> anyhow::Result<()> {
        let no = self.stage.faults.begin(Kind::Terminate, EVERYBODY).await?;
        let most = self.dice.random_range(1..=3);
        let sql = format!("select count(pg_terminate_backend(pid)) from ({OURS} order by random() limit {most}) ours");
        let ended: sqlx::Result<i64> = sqlx::query_scalar(sqlx::AssertSqlSafe(sql)).fetch_one(self.stage.pool()).await;
        Ok(self.stage.faults.end(no, ended.is_ok_and(|n| n > 0)).await?)
    }

    /// Postgres goes down and comes back.
    async fn fell(&mut self, kind: Kind) -> anyhow::Result<()> {
        let no = self.stage.faults.begin(kind, EVERYBODY).await?;
        let fired = match kind {
            Kind::KillPostgres => {
                self.server.kill().await;
                self.server.restart().await;
                true
            }
            Kind::RestartPostgres => {
                let stopped = signal(self.server.pid(), Signal::QUIT);
                self.server.restart().await;
                stopped
            }
            _ => {
                let sql = format!("{OURS} order by random() limit 1");
                let victim: sqlx::Result<Option<i32>> =
                    sqlx::query_scalar(sqlx::AssertSqlSafe(sql)).fetch_optional(self.stage.pool()).await;
                signal(victim.ok().flatten().and_then(|pid| u32::try_from(pid).ok()), Signal::KILL)
            }
        };
        // a killed server process is noticed by its parent a moment later
        sleep(Duration::from_millis(200)).await;
        until("Postgres is back", RECOVERY, async || is_up(self.stage.pool()).await.then_some(())).await;
        Ok(self.stage.faults.end(no, fired).await?)
    }

    /// Something befalls the connections of one process.
    async fn disturb(&mut self, kind: Kind) -> anyhow::Result<()> {
        let at = self.pick(|member| member.proxy.is_some())?;
        let name = self.stage.crew.member(at).full_name();
        let no = self.stage.faults.begin(kind, &name).await?;
        let dead_after = u64::try_from(self.stage.staging().beats.1.as_millis())?;
        let lasts = Duration::from_millis(self.dice.random_range(dead_after / 2..dead_after * 2));
        // some get through first, so also a beat now and then: that costs no lease
        let commit = self.dice.random_range(4..=9);
        let Some(proxy) = &self.stage.crew.member(at).proxy else { return Ok(()) };
        let connections = proxy.connections();
        if connections.is_empty() {
            return Ok(self.stage.faults.end(no, false).await?);
        }
        let until = Instant::now() + lasts;
        let end = match kind {
            Kind::Stall => {
                proxy.act(Fault::Stall);
                End::Resume { at }
            }
            Kind::BlackHole => {
                proxy.act(Fault::BlackHole);
                End::CutOff(connections)
            }
            Kind::LostReply => {
                let fired_before = proxy.fired();
                proxy.script(move |hello| loses(hello, commit));
                proxy.act(Fault::Cut(Cut::Fin));
                End::Unscript { at, fired_before }
            }
            _ => {
                proxy.act(Fault::Cut(Cut::Rst));
                return Ok(self.stage.faults.end(no, true).await?);
            }
        };
        self.lasting.push(Lasting { no, until, end });
        Ok(())
    }

    async fn end_lasting(&mut self, all: bool) -> anyhow::Result<()> {
        while let Some(at) = self.lasting.iter().position(|lasting| all || lasting.until <= Instant::now()) {
            let lasting = self.lasting.swap_remove(at);
            self.end(lasting.no, lasting.end).await?;
        }
        Ok(())
    }

    async fn end(&mut self, no: u64, end: End) -> anyhow::Result<()> {
        let fired = match end {
            End::Continue { at, name } => {
                let member = self.stage.crew.member(at);
                // it may have been killed meanwhile
                if member.full_name() == name {
                    member.process().signal(Signal::CONT);
                }
                true
            }
            End::Resume { at } => {
                if let Some(proxy) = self.stage.crew.member(at).proxy.as_ref() {
                    proxy.resume();
                }
                true
            }
            End::CutOff(connections) => {
                for connection in &connections {
                    connection.act(Fault::Cut(Cut::Rst));
                }
                true
            }
            End::Unscript { at, fired_before } => self.stage.crew.member(at).proxy.as_ref().is_some_and(|proxy| {
                proxy.script(|_| Script::new());
                proxy.fired() > fired_before
            }),
        };
        Ok(self.stage.faults.end(no, fired).await?)
    }
}

/// The n-th commit of a connection, or the answer to it, is lost with the connection; by turns.
fn loses(hello: &Hello, n: u64) -> Script {
    let at = if hello.number.is_multiple_of(2) { At::Commit(n) } else { At::Committed(n) };
    Script::new().at(at, Fault::Cut(Cut::Rst))
}

fn signal(pid: Option<u32>, signal: Signal) -> bool {
    let pid = pid.and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw);
    pid.is_some_and(|pid| kill_process(pid, signal).is_ok())
}

async fn is_up(pool: &PgPool) -> bool {
    let asked = sqlx::query_scalar::<_, i32>("select 1").fetch_one(pool);
    matches!(timeout(Duration::from_secs(2), asked).await, Ok(Ok(1)))
}
