//! The outbox under everything at once: writers that do what a client may do with a transaction, relays that are undone and cut, and afterwards a count of what was
//! lost, doubled or out of order. The same on a copy in another cluster.

mod judge; // what came of it
mod relay; // who takes the events, and who ends them
mod write; // who records

use std::fmt;
use std::process::Command;
use std::str::FromStr as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use postrider::{Bus, OrderBy, Subscription};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{AssertSqlSafe, PgConnection, PgPool};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::cluster::{TestServer, psql, test_options};

pub use judge::{OutboxReport, judge};

/// How long, how many, and with what dice.
#[derive(Debug, Clone, Copy)]
pub struct Outbox {
    /// How long writers write.
    pub length: Duration,
    /// Writers.
    pub writers: u64,
    /// Relays.
    pub relays: u64,
    /// Of the dice.
    pub seed: u64,
}

/// Keys of which each has a row that its writers lock.
const KEYS: usize = 40;
const TABLES: &str = "create table if not exists public.account (key text primary key, n bigint not null default 0);
    create table if not exists public.told (committed bigint not null);";

/// What all of them share.
struct Ground {
    pool: PgPool,
    plan: Outbox,
    over: AtomicBool,
    written: AtomicBool,
    committed: AtomicU64,
    kinds: [AtomicU64; 8],
}

/// What is counted beside the events.
#[derive(Debug, Clone, Copy)]
enum Count {
    Aborted,
    Savepoints,
    Prepared,
    Passes,
    Slices,
    Undone,
    Cut,
    Busy,
}

impl Ground {
    fn count(&self, what: Count) {
        if let Some(counter) = self.kinds.get(what as usize) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn counted(&self, what: Count) -> u64 {
        self.kinds.get(what as usize).map_or(0, |counter| counter.load(Ordering::Relaxed))
    }

    fn dice(&self, role: u64, n: u64) -> StdRng {
        StdRng::seed_from_u64(self.plan.seed * 10_007 + role * 101 + n)
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }
}

impl fmt::Display for Ground {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} events committed; {} transactions aborted, {} savepoints undone, {} prepared; {} passes, {} of them slices, {} undone, {} cut, {} busy",
            self.committed.load(Ordering::Relaxed),
            self.counted(Count::Aborted),
            self.counted(Count::Savepoints),
            self.counted(Count::Prepared),
            self.counted(Count::Passes),
            self.counted(Count::Slices),
            self.counted(Count::Undone),
            self.counted(Count::Cut),
            self.counted(Count::Busy),
        )
    }
}

async fn ask(connection: &mut PgConnection, sql: impl Into<String>) -> sqlx::Result<()> {
    sqlx::raw_sql(AssertSqlSafe(sql.into())).execute(connection).await.map(drop)
}

async fn rest(dice: &mut StdRng, most_ms: u64) {
    sleep(Duration::from_millis(dice.random_range(0..=most_ms))).await;
}

/// Declares what the events are for, and makes the tables of the business.
pub async fn prepare(pool: &PgPool) -> anyhow::Result<()> {
    let mut subscriptions = ["s.one", "s.two", "s.three"].map(|name| Subscription::new(name, ["k.*"]));
    // of the others, the events of a huge transaction may come behind later ones
    let [_, two, three] = &mut subscriptions;
    *two = two.clone().order_by(OrderBy::Subject);
    *three = three.clone().order_by(OrderBy::All);
    Bus::builder(pool.clone()).types(["k.put"]).subscriptions(subscriptions).build().await?;
    sqlx::raw_sql(TABLES).execute(pool).await?;
    Ok(())
}

/// Lets writers and relays loose, and waits until what was committed is relayed. `drained`: false leaves what the relays have not come to, for a copy.
pub async fn run(pool: &PgPool, plan: Outbox, drained: bool) -> anyhow::Result<String> {
    let ground = Arc::new(Ground {
        pool: pool.clone(),
        plan,
        over: AtomicBool::new(false),
        written: AtomicBool::new(false),
        committed: AtomicU64::new(0),
        kinds: Default::default(),
    });
    let mut relays = JoinSet::new();
    for n in 0..plan.relays {
        relays.spawn(relay::run(Arc::clone(&ground), n));
    }
    relays.spawn(relay::cut(Arc::clone(&ground)));
    let mut writers = JoinSet::new();
    for n in 0..plan.writers {
        writers.spawn(write::run(Arc::clone(&ground), n));
    }
    sleep(plan.length).await;
    if !drained {
        // what comes now waits for the copy
        ground.written.store(true, Ordering::Relaxed);
        while let Some(ended) = relays.join_next().await {
            ended??;
        }
        sleep(Duration::from_secs(1)).await;
    }
    ground.over.store(true, Ordering::Relaxed);
    while let Some(ended) = writers.join_next().await {
        ended??;
    }
    ground.written.store(true, Ordering::Relaxed);
    while let Some(ended) = relays.join_next().await {
        ended??;
    }
    let committed = i64::try_from(ground.committed.load(Ordering::Relaxed))?;
    let note = "insert into public.told values ($1) returning committed";
    let _told: i64 = sqlx::query_scalar(note).bind(committed).fetch_one(pool).await?;
    if drained {
        relay::drain(pool).await?;
    }
    Ok(ground.to_string())
}

/// Dumps the database of a server and restores it in a cluster of its own.
pub async fn copy(from: &TestServer) -> anyhow::Result<(TestServer, PgPool)> {
    let target = TestServer::with(test_options().setting("fsync", "off")).await;
    sqlx::raw_sql("create database copy").execute(target.pool()).await?;
    let (from, to) = (from.url().to_owned(), target.url().replace("/postrider?", "/copy?"));
    let options = PgConnectOptions::from_str(&to)?;
    tokio::task::spawn_blocking(move || {
        let file = std::env::temp_dir().join(format!("postrider-dump-{}", uuid::Uuid::new_v4()));
        let tool = |name| Command::new(psql().with_file_name(name));
        let dumped = tool("pg_dump").args(["-Fc", "-f"]).arg(&file).arg(from).status()?;
        let restored = tool("pg_restore").args(["--exit-on-error", "-d", &to]).arg(&file).status()?;
        std::fs::remove_file(&file)?;
        anyhow::ensure!(dumped.success() && restored.success(), "the copy was not made");
        Ok(())
    })
    .await??;
    Ok((target, PgPoolOptions::new().max_connections(40).connect_lazy_with(options)))
}
