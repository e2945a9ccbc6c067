use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use postrider::{
    Bus, Clock, Dice, Error, EventTypeSpec, JobId, Jobs, Kind, Pooler, Runtime, Schedule, Schedules, Settings, WakeUps,
};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{AssertSqlSafe, PgPool};

use super::crew::Perils;
use crate::{PgBouncer, TestDb};

/// Of a pooler: some cases have four handlers that hold a transaction each, and one that blocks its runtime in the middle of a statement.
const SESSIONS: u16 = 8;

/// Makes fresh engines.
pub trait Engine: Send + Sync {
    /// An engine with nothing in it, on a database with nothing in it.
    fn fresh(&self) -> BoxFuture<'_, Box<dyn Stage>>;
}

/// A fresh engine. Dropped, it is gone.
pub trait Stage: Send + Sync {
    /// The database of the application.
    fn pool(&self) -> &PgPool;

    /// One process of an application on this engine.
    fn process(&self, app: App) -> BoxFuture<'_, Result<Arc<dyn Runtime>, Error>>;

    /// What the relay hands the jobs of events to, if the engine is not the one that the relay is part of.
    fn fan_out(&self, process: &dyn Runtime) -> Option<Arc<dyn Jobs>> {
        let _ = process;
        None
    }

    /// Where `postrider.enqueue` and the other functions can be called, if this engine has doors in SQL.
    fn sql(&self) -> Option<&PgPool>;

    /// What an operator does with schedules, if this engine has them.
    fn schedules(&self) -> Option<Schedules> {
        None
    }

    /// Lets so much time pass for everything that is there, without waiting for it.
    fn elapse(&self, time: Duration) -> BoxFuture<'_, ()>;

    /// Forgets a job that has ended, and its history, as retention does.
    fn forget<'a>(&'a self, id: &'a JobId) -> BoxFuture<'a, ()>;

    /// Takes a job that runs from its worker, as happens to one that is taken for dead and lives.
    fn rob<'a>(&'a self, id: &'a JobId) -> BoxFuture<'a, ()>;

    /// How many waiting jobs that are not due the engine has looked at so far.
    fn looked_ahead(&self) -> BoxFuture<'_, u64>;

    /// What may befall its processes.
    fn perils(&self) -> &dyn Perils;
}

/// What a process declares and handles.
#[derive(Debug)]
pub struct App {
    /// Its kinds.
    pub kinds: Vec<Kind>,
    /// Its schedules.
    pub schedules: Vec<Schedule>,
    /// Which of two processes that declare one schedule in two ways wins.
    pub generation: i64,
    /// Its event types.
    pub types: Vec<EventTypeSpec>,
    /// How it takes part.
    pub settings: Settings,
    /// Jobs at a time, by queue.
    pub concurrency: Vec<(String, usize)>,
    /// The dice of its retries.
    pub dice: Dice,
    /// Its clock.
    pub clock: Clock,
}

impl App {
    /// One with these kinds that beats ten times as often as usual, so that cases are quick, and whose retries come when their schedule
    /// says.
    pub fn new(kinds: impl IntoIterator<Item = Kind>) -> Self {
        let settings =
            Settings { beat: Duration::from_millis(100), dead_after: Duration::from_secs(2), ..Settings::default() };
        Self {
            kinds: kinds.into_iter().collect(),
            schedules: Vec::new(),
            generation: 0,
            types: Vec::new(),
            settings,
            concurrency: Vec::new(),
            dice: Dice::loaded(|| 0.0),
            clock: Clock::system(),
        }
    }

    /// The same, with so many jobs of a queue at a time.
    #[must_use]
    pub fn concurrency(mut self, queue: &str, jobs: usize) -> Self {
        self.concurrency.push((queue.to_owned(), jobs));
        self
    }

    /// The same, with these schedules.
    #[must_use]
    pub fn schedules(mut self, schedules: impl IntoIterator<Item = Schedule>) -> Self {
        self.schedules.extend(schedules);
        self
    }

    /// The same, with retries that are later by this share of a tenth.
    #[must_use]
    pub fn dice(mut self, roll: f64) -> Self {
        self.dice = Dice::loaded(move || roll);
        self
    }
}

/// The native engine; `tune` is applied to the settings of each process, and `sql` to each fresh database.
pub struct Native {
    tune: fn(&mut Settings),
    sql: Option<String>,
    pooled: bool,
}

impl fmt::Debug for Native {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Native").finish_non_exhaustive()
    }
}

impl Default for Native {
    fn default() -> Self {
        Self::tuned(|_| {})
    }
}

impl Native {
    /// With other settings than the cases ask for.
    pub fn tuned(tune: fn(&mut Settings)) -> Self {
        Self { tune, sql: None, pooled: false }
    }

    /// Without LISTEN: every process polls.
    pub fn polling() -> Self {
        Self::tuned(|settings| {
            settings.wake_ups = WakeUps::Poll;
            settings.poll_interval = Duration::from_millis(100);
        })
    }

    /// Through `PgBouncer` in transaction mode, and polling.
    pub fn pooled() -> Self {
        Self { pooled: true, ..Self::polling() }
    }

    /// As `POSTRIDER_CONFORMANCE` says: `polling`, `pooled`, or as usual.
    pub fn as_told() -> Self {
        match std::env::var("POSTRIDER_CONFORMANCE").as_deref() {
            Ok("polling") => Self::polling(),
            Ok("pooled") => Self::pooled(),
            _ => Self::default(),
        }
    }

    /// With another database than was installed: the statements run on each fresh one.
    pub fn altered(sql: impl Into<String>) -> Self {
        Self { sql: Some(sql.into()), ..Self::default() }
    }
}

impl Engine for Native {
    fn fresh(&self) -> BoxFuture<'_, Box<dyn Stage>> {
        Box::pin(async {
            let db = TestDb::fresh().await;
            if let Some(sql) = &self.sql {
                run(db.pool(), sql.clone()).await;
            }
            let pooler = if self.pooled { Some(PgBouncer::with_sessions(db.url(), SESSIONS).await) } else { None };
            Box::new(NativeStage { db, tune: self.tune, pooler }) as Box<dyn Stage>
        })
    }
}

pub(super) struct NativeStage {
    pub(super) db: TestDb,
    pub(super) tune: fn(&mut Settings),
    pooler: Option<PgBouncer>,
}

impl Stage for NativeStage {
    fn pool(&self) -> &PgPool {
        self.db.pool()
    }

    fn process(&self, mut app: App) -> BoxFuture<'_, Result<Arc<dyn Runtime>, Error>> {
        let Some(pooler) = &self.pooler else {
            return Box::pin(built(self.db.pool().clone(), app, self.tune));
        };
        app.settings.pooler = Pooler::Transaction;
        let options: PgConnectOptions = pooler.url().parse().unwrap();
        let pool = PgPoolOptions::new().connect_lazy_with(options.statement_cache_capacity(0).extra_float_digits(None));
        Box::pin(built(pool, app, self.tune))
    }

    fn perils(&self) -> &dyn Perils {
        self
    }

    fn sql(&self) -> Option<&PgPool> {
        Some(self.db.pool())
    }

    fn schedules(&self) -> Option<Schedules> {
        Some(Schedules::new(self.db.pool().clone()))
    }

    fn elapse(&self, time: Duration) -> BoxFuture<'_, ()> {
        let by = format!("interval '{} microseconds'", time.as_micros());
        Box::pin(run(
            self.pool(),
            format!(
                // who is about to work out when a schedule comes next would write down a time of before
                "do $$ begin for look in 1..500 loop
                     exit when not exists (
                        select from postrider.schedule s join postrider.worker w on s.name = any (w.schedules)
                         where s.next_at is null and s.paused_at is null and s.problem is null);
                     perform pg_sleep(0.01);
                 end loop; end $$;
                 begin;
                 lock table postrider.later in share row exclusive mode;
                 update postrider.job set created_at = created_at - {by}, run_at = run_at - {by};
                 update postrider.later set run_at = run_at - {by};
                 update postrider.uniq set until = until - {by} where until is not null;
                 update postrider.idempotency set until = until - {by};
                 update postrider.lane set window_at = window_at - {by}, due_at = due_at - {by} where coalesce(window_at, due_at) is not null;
                 update postrider.schedule set next_at = next_at - {by}, counted_from = counted_from - {by}, due_at = due_at - {by},
                     ran_at = ran_at - {by}, started_at = started_at - {by};
                 update postrider.key_limit set held_until = held_until - {by} where held_until is not null;
                 commit"
            ),
        ))
    }

    fn forget<'a>(&'a self, id: &'a JobId) -> BoxFuture<'a, ()> {
        let tables = ["job", "done", "attempt"];
        let deletes = tables.map(|table| format!("delete from postrider.{table} where id = {id};"));
        Box::pin(run(self.pool(), deletes.concat()))
    }

    fn rob<'a>(&'a self, id: &'a JobId) -> BoxFuture<'a, ()> {
        let sql =
            format!("select postrider.put_back(l.id, true, false) from postrider.lease l where {id} = any (l.open)");
        Box::pin(run(self.pool(), sql))
    }

    fn looked_ahead(&self) -> BoxFuture<'_, u64> {
        let sql = "select coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0) from pg_stat_all_tables
                    where schemaname = 'postrider' and relname = 'later'";
        Box::pin(async move {
            let n: i64 = sqlx::query_scalar(sql).fetch_one(self.pool()).await.unwrap();
            u64::try_from(n).unwrap()
        })
    }
}

async fn run(pool: &PgPool, sql: String) {
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(pool).await.unwrap_or_else(|error| panic!("{error}"));
}

/// A process of the native engine over a pool.
pub(super) async fn built(pool: PgPool, mut app: App, tune: fn(&mut Settings)) -> Result<Arc<dyn Runtime>, Error> {
    tune(&mut app.settings);
    let mut builder = Bus::builder(pool)
        .kinds(app.kinds)
        .types(app.types)
        .schedules(app.schedules)
        .generation(app.generation)
        .settings(app.settings)
        .dice(app.dice)
        .clock(app.clock);
    for (queue, jobs) in app.concurrency {
        builder = builder.concurrency(queue, jobs);
    }
    Ok(Arc::new(builder.build().await?) as Arc<dyn Runtime>)
}
