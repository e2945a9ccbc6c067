//! The workloads. Each runs every system in turn, in each round anew, on a database of its own.

mod drain; // a full queue, and one that stays full
mod idle; // nothing to do
mod insert; // one at a time and in bulk
mod latency; // from the commit to the start of the handler
mod record; // an event beside a bare INSERT

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::ValueEnum;
use sqlx::Executor as _;
use sqlx::PgConnection;

use crate::cluster::{Cluster, Database};
use crate::meter::{self, Others};
use crate::results::Results;
use crate::system::{Fut, Name, Producer};
use crate::worker::float;

/// Every workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Load {
    /// `record` beside the bare INSERT of the same row.
    Record,
    /// One job in a transaction, on 1 and on 16 connections.
    Enqueue,
    /// 1 000 jobs in a transaction, on one connection.
    Bulk,
    /// A full queue is emptied.
    Drain,
    /// A queue is filled and emptied at the same time.
    Steady,
    /// The same while an old snapshot is held.
    Held,
    /// Commit to start of a job's handler, on an idle machine and at 500 a second.
    Latency,
    /// The same for an event and its subscription.
    EventLatency,
    /// What a worker costs that has nothing to do.
    Idle,
}

/// How long and how often.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Effort {
    pub(crate) rounds: usize,
    pub(crate) quick: bool,
}

impl Effort {
    /// A length for a full run, or the shorter one of a quick run.
    fn of<T>(self, full: T, quick: T) -> T {
        if self.quick { quick } else { full }
    }
}

/// Everything that a workload needs.
pub(crate) struct Bench {
    pub(crate) cluster: Cluster,
    pub(crate) effort: Effort,
    pub(crate) systems: Vec<Name>,
    pub(crate) results: Results,
    templates: BTreeMap<Name, String>,
}

impl Bench {
    pub(crate) async fn new(effort: Effort, systems: Vec<Name>) -> Result<Self> {
        let cluster = Cluster::start().await?;
        let mut templates = BTreeMap::new();
        for name in systems {
            let template = cluster.database(None).await?;
            if cluster.counts_statements {
                template.connect().await?.execute("create extension pg_stat_statements").await?;
            }
            match name.system().install(&template.url).await {
                Ok(()) => drop(templates.insert(name, template.name)),
                Err(failure) => eprintln!("{} is left out: {failure:#}", name.text()),
            }
        }
        let systems = templates.keys().copied().collect();
        Ok(Self { cluster, effort, systems, results: Results::default(), templates })
    }

    pub(crate) async fn run(&mut self, load: Load) -> Result<()> {
        let share = meter::quiet(Duration::from_secs(self.effort.of(60, 1))).await;
        eprintln!("{load:?}: load {}, others took {:.0} % in the last second", meter::load(), share * 100.0);
        match load {
            Load::Record => record::run(self).await,
            Load::Enqueue => insert::enqueue(self).await,
            Load::Bulk => insert::bulk(self).await,
            Load::Drain => drain::drain(self).await,
            Load::Steady => drain::steady(self).await,
            Load::Held => drain::held(self).await,
            Load::Latency => latency::jobs(self).await,
            Load::EventLatency => latency::events(self).await,
            Load::Idle => idle::run(self).await,
        }
    }

    /// A fresh database of a system.
    async fn database(&self, name: Name) -> Result<Database> {
        self.cluster.database(self.templates.get(&name).map(String::as_str)).await
    }

    fn others(&self) -> Others {
        Others::start(self.cluster.pid())
    }

    fn server_cpu(&self) -> Duration {
        meter::server_cpu(self.cluster.pid())
    }

    /// Systems and rounds in the order in which they are measured: every system once, then again.
    fn turns(&self, fits: impl Fn(Name) -> bool) -> Vec<Name> {
        let once: Vec<Name> = self.systems.iter().copied().filter(|name| fits(*name)).collect();
        (0..self.effort.rounds).flat_map(|_| once.clone()).collect()
    }
}

/// Puts jobs in, 1 000 in a transaction, over two connections.
async fn fill(name: Name, database: &Database, from: u64, count: u64) -> Result<()> {
    let system = name.system();
    let half = |start: u64, end: u64| {
        let system = &system;
        async move {
            let mut producer = system.producer(&database.url).await?;
            let mut at = start;
            while at < end {
                let n = (end - at).min(1000);
                producer.bulk(at, n).await?;
                at += n;
            }
            anyhow::Ok(())
        }
    };
    let middle = from + count / 2 / 1000 * 1000;
    tokio::try_join!(half(from, middle), half(middle, from + count))?;
    Ok(())
}

/// One act of a producer.
type Act = for<'a> fn(&'a mut dyn Producer, u64) -> Fut<'a, ()>;

/// Calls an act on every producer, one after the other on each, for so long; answers with how often it was done a second, and
/// with the producers.
async fn hammer(
    producers: Vec<Box<dyn Producer>>,
    length: Duration,
    act: Act,
) -> Result<(f64, Vec<Box<dyn Producer>>)> {
    let numbers = Arc::new(AtomicU64::new(1));
    let started = Instant::now();
    let tasks: Vec<_> = producers
        .into_iter()
        .map(|mut producer| {
            let numbers = Arc::clone(&numbers);
            tokio::spawn(async move {
                let mut done = 0_u64;
                while started.elapsed() < length {
                    act(producer.as_mut(), numbers.fetch_add(1, Ordering::Relaxed)).await?;
                    done += 1;
                }
                anyhow::Ok((done, producer))
            })
        })
        .collect();
    let (mut all, mut producers) = (0, Vec::new());
    for task in tasks {
        let (done, producer) = task.await??;
        all += done;
        producers.push(producer);
    }
    Ok((float(all) / started.elapsed().as_secs_f64(), producers))
}

/// A snapshot that stays open until the connection is dropped: nothing that dies after it can be cleaned away.
async fn hold_a_snapshot(database: &Database) -> Result<PgConnection> {
    let mut connection = database.connect().await?;
    connection.execute("begin isolation level repeatable read; select count(*) from pg_class").await?;
    Ok(connection)
}

fn us(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}
