//! Everything that touches the schema, at once and at random: producers, workers that die, relays, housekeeping, declarations. It
//! asserts the lock order, since whoever takes locks in another one than the others makes a deadlock sooner or later, and that the
//! schema holds together afterwards.

mod producer; // business transactions, some of which are rolled back
mod actor; // operators, in bulk
mod keeper; // relays, housekeeping, declarations
mod worker; // claims, ends of attempts, beats, deaths

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rand::{RngExt, SeedableRng, rngs::StdRng};
use sqlx::postgres::PgDatabaseError;
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection, Row};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::TestDb;
use crate::interleave::Judge;

const PRODUCERS: u64 = 16;
const WORKERS: u64 = 8;
const RELAYS: u64 = 2;
const DECLARERS: u64 = 2;
const SAND: u64 = 3;
const ACTORS: u64 = 4;
/// Whoever has not ended so long after the end waits for ever.
const STUCK: Duration = Duration::from_mins(1);

/// `s.one` takes every event and is never changed: each event must have one job for it. Only jobs of `t.act`, the only ones of their class,
/// are acted on from outside: they may end more than once, or be gone.
const DECLARED: &str = r#"select '' from postrider.declare('{"app":"stage","generation":1,
    "types":[{"name":"order.made"},{"name":"order.paid"}],
    "kinds":[{"name":"t.a","queue":"q0","max_attempts":3},{"name":"t.b","queue":"q1","max_attempts":2},
             {"name":"t.rare","queue":"q2","class":"short"},{"name":"s.one","queue":"q1","max_attempts":4},
             {"name":"t.act","queue":"q0","max_attempts":3,"class":"long"}],
    "subscriptions":[{"name":"s.one","types":["**"],"kind":"s.one"}]}');
    select '' from (select postrider.set_limit('q' || q, 'l' || l, l + 1) from generate_series(0, 2) q, generate_series(0, 2) l) limits"#;

/// How long, and which one.
#[derive(Debug, Clone, Copy)]
pub struct Storm {
    /// How long it lasts, without its end.
    pub length: Duration,
    /// Of all dice. The order of what runs at once is the machine's all the same.
    pub seed: u64,
}

/// What came of a storm.
#[derive(Debug, Default)]
pub struct StormReport {
    /// How often each thing happened.
    pub counts: BTreeMap<&'static str, u64>,
    /// What `pg_stat_database` counted.
    pub deadlocks: i64,
    /// What was wrong.
    pub wrong: Vec<String>,
}

impl StormReport {
    /// How often something happened.
    pub fn count(&self, what: &str) -> u64 {
        self.counts.get(what).copied().unwrap_or_default()
    }

    /// Whether there was no deadlock and nothing was wrong.
    pub fn is_clean(&self) -> bool {
        self.wrong.is_empty() && self.deadlocks == 0
    }

    /// There was no deadlock, nothing was wrong, and every kind of fault took place.
    ///
    /// # Panics
    /// If that is not so.
    pub fn assert_clean(&self) {
        assert!(self.is_clean(), "{self}\n{}", self.wrong.join("\n"));
        for what in [
            "events",
            "jobs",
            "rolled back",
            "claimed",
            "counted",
            "told twice",
            "handed back",
            "rescued",
            "promoted",
            "unparked",
            "killed",
            "left",
            "relayed",
            "epochs",
            "spans",
            "declared",
            "put",
            "dropped",
            "held up",
            "alike",
            "keyed",
            "lanes",
            "cancelled",
            "run again",
            "deleted",
            "paused",
        ] {
            assert!(self.count(what) > 0, "it did not happen: {what}\n{self}");
        }
    }
}

impl fmt::Display for StormReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (what, n) in &self.counts {
            write!(f, "{n} {what}, ")?;
        }
        write!(f, "{} deadlocks, {} wrong", self.deadlocks, self.wrong.len())
    }
}

/// Lets a storm go over a new database.
///
/// # Errors
/// If the database cannot be asked. What the storm found wrong is in the report.
pub async fn storm(db: &TestDb, storm: Storm) -> anyhow::Result<StormReport> {
    let sky = Arc::new(Sky::new(db.url(), storm.seed));
    sky.open().await?.ask(DECLARED).await?;
    // it notes from now on which jobs run again
    drop(Judge::open(db.url()).await?);
    let mut all: JoinSet<anyhow::Result<()>> = JoinSet::new();
    for n in 0..PRODUCERS {
        all.spawn(producer::run(Arc::clone(&sky), n));
    }
    for n in 0..WORKERS {
        all.spawn(worker::run(Arc::clone(&sky), n));
    }
    for n in 0..RELAYS {
        all.spawn(keeper::relay(Arc::clone(&sky), n));
    }
    for n in 0..DECLARERS {
        all.spawn(keeper::declare(Arc::clone(&sky), n));
    }
    for n in 0..SAND {
        all.spawn(keeper::sand(Arc::clone(&sky), n));
    }
    for n in 0..ACTORS {
        all.spawn(actor::run(Arc::clone(&sky), n));
    }
    all.spawn(keeper::keep(Arc::clone(&sky)));
    sleep(storm.length).await;
    sky.over.store(true, Ordering::Relaxed);
    let ended = timeout(STUCK, async {
        while let Some(ended) = all.join_next().await {
            if let Err(error) = ended.map_err(anyhow::Error::from).flatten() {
                sky.wrong(format!("somebody gave up: {error:#}"));
            }
        }
    });
    if ended.await.is_err() {
        sky.wrong(format!("{} did not end within {STUCK:?}", all.len()));
        all.shutdown().await;
    }
    calm(db, &sky).await
}

/// Looks at what is left.
async fn calm(db: &TestDb, sky: &Sky) -> anyhow::Result<StormReport> {
    let mut judge = Judge::open(db.url()).await?;
    let mut wrong = judge.broken().await?;
    let ended: Vec<i64> = lock(&sky.ended).iter().copied().collect();
    let sql = "select format('%s events of %s, %s jobs of %s, %s ends of %s',
            (select count(*) from postrider.event), $1::bigint, (select count(*) from postrider.job where subscription is null and class <> 3),
            $2::bigint, (select count(distinct id) from postrider.done where id = any ($3)), cardinality($3::bigint[]))";
    let (events, jobs) = (sky.events.load(Ordering::SeqCst), sky.jobs.load(Ordering::SeqCst));
    let there: String = sqlx::query_scalar(sql).bind(events).bind(jobs).bind(&ended).fetch_one(db.pool()).await?;
    let told = format!("{events} events of {events}, {jobs} jobs of {jobs}, {0} ends of {0}", ended.len());
    if there != told {
        wrong.push(format!("what was answered is not what is there: {there}"));
    }
    wrong.extend(judge.drain().await?.into_iter().map(|what| format!("after a drain: {what}")));
    wrong.extend(judge.broken().await?.into_iter().map(|what| format!("after a drain: {what}")));
    // those who gave up were counted when their connection ended
    let sql = "select deadlocks from pg_stat_database where datname = current_database()";
    let deadlocks = sqlx::query_scalar(sql).fetch_one(db.pool()).await?;
    wrong.truncate(40);
    if deadlocks > 0 {
        wrong.push(who_waited(db).await);
    }
    let mut told = std::mem::take(&mut *lock(&sky.wrong));
    told.extend(wrong);
    let mut counts = std::mem::take(&mut *lock(&sky.counts));
    counts.insert("events", events.unsigned_abs());
    counts.insert("jobs", jobs.unsigned_abs());
    Ok(StormReport { counts, deadlocks, wrong: told })
}

/// What the server wrote about deadlocks. Who meets one may have died before he told.
async fn who_waited(db: &TestDb) -> String {
    let sql = "select pg_read_file(current_setting('data_directory') || '/../server.log')";
    let log: String = match sqlx::query_scalar(sql).fetch_one(db.pool()).await {
        Ok(log) => log,
        Err(error) => return format!("a deadlock; the server's log cannot be read: {error}"),
    };
    let lines: Vec<&str> = log.lines().collect();
    let first = lines.iter().position(|line| line.contains("deadlock detected")).unwrap_or(lines.len());
    lines.iter().skip(first).take(40).copied().collect::<Vec<_>>().join("\n")
}

/// What all of them share.
struct Sky {
    url: String,
    seed: u64,
    over: AtomicBool,
    /// Jobs that wait: who makes more of them holds back.
    waiting: AtomicI64,
    generation: AtomicU64,
    events: AtomicI64,
    jobs: AtomicI64,
    /// Jobs that were answered to have ended.
    ended: Mutex<BTreeSet<i64>>,
    counts: Mutex<BTreeMap<&'static str, u64>>,
    wrong: Mutex<Vec<String>>,
}

impl Sky {
    fn new(url: &str, seed: u64) -> Self {
        Self {
            url: url.to_owned(),
            seed,
            over: AtomicBool::new(false),
            waiting: AtomicI64::new(0),
            generation: AtomicU64::new(2),
            events: AtomicI64::new(0),
            jobs: AtomicI64::new(0),
            ended: Mutex::default(),
            counts: Mutex::default(),
            wrong: Mutex::default(),
        }
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    fn count(&self, what: &'static str, n: u64) {
        *lock(&self.counts).entry(what).or_default() += n;
    }

    fn counted(&self, what: &str) -> u64 {
        lock(&self.counts).get(what).copied().unwrap_or_default()
    }

    fn wrong(&self, what: String) {
        lock(&self.wrong).push(what);
    }

    fn dice(&self, role: u64, n: u64) -> StdRng {
        StdRng::seed_from_u64(self.seed * 10_000 + role * 100 + n)
    }

    async fn open(&self) -> anyhow::Result<Link> {
        let mut connection = PgConnection::connect(&self.url).await?;
        // what is lost with the server is not looked for here, and more happens in the same time
        connection.execute(sqlx::raw_sql("set synchronous_commit = off; set client_min_messages = error")).await?;
        Ok(Link(connection))
    }
}

/// A connection that is asked by text and answers with text.
struct Link(PgConnection);

impl Link {
    async fn ask(&mut self, statements: &str) -> anyhow::Result<Vec<Vec<String>>> {
        let rows: Pin<Box<dyn Future<Output = _> + Send>> =
            Box::pin(self.0.fetch_all(sqlx::raw_sql(AssertSqlSafe(statements.to_owned()))));
        let rows: Vec<sqlx::postgres::PgRow> = match rows.await {
            Ok(rows) => rows,
            Err(error) => anyhow::bail!("{}: {}", told(&error), statements.chars().take(400).collect::<String>()),
        };
        let column =
            |row: &sqlx::postgres::PgRow, n| row.try_get::<Option<String>, _>(n).map(Option::unwrap_or_default);
        Ok(rows.iter().map(|row| (0..row.len()).map(|n| column(row, n)).collect()).collect::<Result<_, _>>()?)
    }

    /// The first column of the first row.
    async fn one(&mut self, statements: &str) -> anyhow::Result<String> {
        Ok(self.ask(statements).await?.into_iter().flatten().next().unwrap_or_default())
    }
}

/// What an error says, with the detail that Postgres keeps apart.
fn told(error: &sqlx::Error) -> String {
    let detail = error.as_database_error().and_then(|error| error.try_downcast_ref::<PgDatabaseError>()?.detail());
    format!("{error} {}", detail.unwrap_or_default())
}

/// Rests for a while that the dice say.
async fn rest(dice: &mut StdRng, most_ms: u64) {
    sleep(Duration::from_millis(dice.random_range(0..=most_ms))).await;
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
