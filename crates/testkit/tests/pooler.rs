//! Z5, Z9, C38: through `PgBouncer` in transaction mode the whole engine works, without the setting a process refuses to start, and so it does
//! where the connections that it opens are not there.
#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "a failed helper is a failed test")]

use std::collections::BTreeMap;
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use postrider::{
    Act, Builder, Bus, Effect, Error, JobId, Jobs as _, Kind, KindSpec, NewEvent, NewJob, Payload, PgJobs, Pooler,
    Recorder, Resolution, Retry, Running, Settings, Stopped, Subscription, Verdict, Waited, WakeUps, handler, inspect,
    migrate,
};
use postrider_testkit::{PgBouncer, TestDb, TestServer, until};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{AssertSqlSafe, Connection, Executor, PgPool, Row as _};
use tokio::task::JoinSet;

const SOON: Duration = Duration::from_mins(1);
const PRODUCERS: i64 = 12;
const ROUNDS: i64 = 10;

/// What the page about poolers asks of the caller's own pool.
fn pool_behind(url: &str) -> PgPool {
    let options = PgConnectOptions::from_str(url).unwrap().statement_cache_capacity(0).extra_float_digits(None);
    PgPoolOptions::new().max_connections(12).connect_lazy_with(options)
}

fn settings() -> Settings {
    Settings {
        beat: Duration::from_millis(200),
        dead_after: Duration::from_millis(1_500),
        pooler: Pooler::Transaction,
        wake_ups: WakeUps::Poll,
        poll_interval: Duration::from_millis(200),
        ..Settings::default()
    }
}

/// How often each kind ran.
#[derive(Debug, Clone, Default)]
struct Runs(Arc<Mutex<BTreeMap<String, u64>>>);

impl Runs {
    fn of(&self, kind: &str) -> u64 {
        self.0.lock().unwrap().get(kind).copied().unwrap_or_default()
    }

    fn note(&self, kind: &str) -> u64 {
        let mut runs = self.0.lock().unwrap();
        let count = runs.entry(kind.to_owned()).or_default();
        *count += 1;
        *count
    }
}

fn declared(pool: PgPool, runs: &Runs) -> Builder {
    let runs = runs.clone();
    let handle = handler(move |job, cx| {
        let runs = runs.clone();
        async move {
            match (job.kind.as_str(), runs.note(&job.kind)) {
                ("t.retry", 1) => Err("not yet".into()),
                ("t.snooze", 1) => Ok(Verdict::Snooze(Duration::from_millis(50))),
                ("t.own", _) => {
                    cx.begin().await?.commit(Some(&job.args)).await?;
                    Ok(Verdict::Complete)
                }
                ("t.refuse", _) => Ok(Verdict::Discard("never".to_owned())),
                _ => Ok(Verdict::Complete),
            }
        }
    });
    let retry = Retry::Backoff { first: Duration::from_millis(50), most: Duration::from_millis(200) };
    let kind = |name: &str, queue: &str| {
        let spec = KindSpec { queue: queue.to_owned(), retry: retry.clone(), ..KindSpec::new(name) };
        Kind::spec(spec).handler(Arc::clone(&handle))
    };
    Bus::builder(pool)
        .app("behind")
        .types(["order.made"])
        .kinds([kind("t.retry", "default"), kind("t.snooze", "default"), kind("t.refuse", "default")])
        .kinds([kind("t.lost", "lost"), kind("t.plain", "default"), kind("t.own", "default")])
        .subscriptions([Subscription::new("note.order", ["order.*"]).handler(Arc::clone(&handle))])
}

fn job(kind: &str) -> NewJob {
    NewJob::new(kind, Payload::of(&1).unwrap())
}

/// In one message: behind a pooler a statement may not be prepared in one session and run in the next.
async fn number(pool: &PgPool, sql: &'static str) -> i64 {
    sqlx::raw_sql(sql).fetch_one(pool).await.unwrap().get(0)
}

/// A worker that claims the jobs of a queue and never beats again.
async fn a_worker_dies_with(pool: &PgPool, queue: &str) {
    let report =
        r#"{"app": "", "version": "", "host": "", "pid": 1, "queues": [], "kinds": [], "held": [], "settled": 0}"#;
    let me = "11111111-1111-4111-8111-111111111111";
    let claim = format!(
        "select count(*) from postrider.claim('{me}', 1, '{queue}', '{{t.lost}}', 10, '{{2}}', '{{0}}', '{{0}}')"
    );
    let beat = format!("select postrider.tick('{me}', '{report}')");
    for sql in [beat, claim] {
        pool.execute(sqlx::raw_sql(AssertSqlSafe(sql))).await.unwrap();
    }
    assert_eq!(number(pool, "select count(*) from postrider.lease").await, 1, "nothing was claimed");
}

/// Business transactions with an event and a job, many at a time on few sessions.
async fn produce(bus: &Arc<Bus>, pool: &PgPool) {
    let mut producers = JoinSet::new();
    for producer in 0..PRODUCERS {
        let (bus, pool) = (Arc::clone(bus), pool.clone());
        producers.spawn(async move {
            for round in 0..ROUNDS {
                let mut tx = pool.begin().await.unwrap();
                let event = NewEvent::new("order.made", format!("order/{producer}/{round}"), Payload::of(&1).unwrap());
                let recorded = bus.recorder().record(&mut *tx, &event).await.unwrap();
                bus.jobs().enqueue(Some(&mut *tx), &[job("t.plain")]).await.unwrap();
                bus.jobs().enqueue(Some(&mut *tx), &[job("t.plain"), job("t.plain")]).await.unwrap();
                tx.commit().await.unwrap();
                let mut asking = pool.begin().await.unwrap();
                let resolved = bus.recorder().resolve(&mut *asking, &recorded).await.unwrap();
                assert_eq!(resolved, Resolution::Committed);
            }
        });
    }
    producers.join_all().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn z9_a_whole_life_goes_through_a_pooler_in_transaction_mode() {
    let db = TestDb::fresh().await;
    let pooler = PgBouncer::before(db.url()).await;
    let (pool, runs) = (pool_behind(pooler.url()), Runs::default());
    let bus = Arc::new(declared(pool.clone(), &runs).settings(settings()).build().await.unwrap());
    let alone = [job("t.retry"), job("t.snooze"), job("t.refuse"), job("t.lost"), job("t.own")];
    let enqueued = bus.jobs().enqueue(None, &alone).await.unwrap();
    a_worker_dies_with(db.pool(), "lost").await;

    let running = bus.start().unwrap();
    produce(&bus, &pool).await;
    let all = u64::try_from(PRODUCERS * ROUNDS * 4).unwrap() + 4;
    until("everything is done", SOON, async || (bus.figures().completed == all).then_some(())).await;
    let figures = bus.figures();
    assert_eq!((figures.retried, figures.snoozed, figures.discarded), (1, 1, 1), "{figures:?}");
    assert_eq!((figures.rescued, figures.stale), (1, 0), "the dead one's job ran again");
    assert_eq!(runs.of("note.order"), u64::try_from(PRODUCERS * ROUNDS).unwrap());
    let overview = inspect::overview(&pool).await.unwrap();
    assert_eq!((overview.ready, overview.running, overview.relayed), (0, 0, runs.of("note.order")), "{overview:?}");
    let waited = bus.jobs().wait(&enqueued[4].id, SOON).await.unwrap();
    assert!(matches!(&waited, Waited::Ended(view) if view.output.is_some()), "{waited:?}");
    let ids: Vec<JobId> = enqueued.iter().map(|one| one.id.clone()).collect();
    let effects = bus.jobs().act(None, Act::Cancel, &ids).await.unwrap();
    assert!(effects.iter().all(|effect| matches!(effect, Effect::Already(_))), "{effects:?}");
    assert_eq!(running.stop(SOON).await, Stopped::Drained);
    assert_eq!(number(db.pool(), "select count(*) from postrider.worker").await, 0, "it said goodbye");

    let sessions =
        "select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()
                       and application_name <> ''";
    let found = number(db.pool(), sessions).await;
    assert!(found <= 2, "{found} sessions: something went past the pooler");
    let named = "select count(*) from pg_stat_activity, pg_settings where name = 'default_transaction_isolation' and source = 'session'";
    assert_eq!(number(&pool, named).await, 0, "a setting was left behind in a session that others use");
}

#[tokio::test(flavor = "multi_thread")]
async fn z9_wake_ups_are_heard_past_the_pooler() {
    let db = TestDb::fresh().await;
    let pooler = PgBouncer::before(db.url()).await;
    let runs = Runs::default();
    // nothing but a notification wakes it
    let hour = Duration::from_hours(1);
    let settings =
        Settings { wake_ups: WakeUps::Listen, poll_interval: hour, beat: hour, dead_after: 3 * hour, ..settings() };
    let deaf = declared(pool_behind(pooler.url()), &runs).settings(settings.clone()).build().await.unwrap_err();
    assert!(deaf.to_string().contains("listen_on"), "{deaf}");
    let direct = PgConnectOptions::from_str(db.url()).unwrap();
    let builder = declared(pool_behind(pooler.url()), &runs).settings(settings).listen_on(direct);
    let bus = builder.build().await.unwrap();
    let running = bus.start().unwrap();
    let listens = "select count(*) from pg_stat_activity where datname = current_database() and query like 'LISTEN%'";
    until("it listens", SOON, async || (number(db.pool(), listens).await == 1).then_some(())).await;
    // until its claims have looked at growing distances, and wait
    let quiet = "select count(*) from pg_stat_activity where datname = current_database()
                    and application_name = 'postrider claim' and state_change > clock_timestamp() - interval '1.5 s'";
    until("it is quiet", SOON, async || (number(db.pool(), quiet).await == 0).then_some(())).await;
    let enqueued = Instant::now();
    bus.jobs().enqueue(None, &[job("t.plain")]).await.unwrap();
    until("it runs", SOON, async || (runs.of("t.plain") == 1).then_some(())).await;
    assert!(enqueued.elapsed() < Duration::from_secs(2), "{:?}", enqueued.elapsed());
    assert_eq!(running.stop(SOON).await, Stopped::Drained);
}

#[tokio::test(flavor = "multi_thread")]
async fn z9_the_schema_is_brought_up_to_date_through_a_pooler() {
    let server = TestServer::start().await;
    let plain = "create database plain";
    server.pool().execute(plain).await.unwrap();
    let pooler = PgBouncer::before(&server.url().replace("/postrider?", "/plain?")).await;
    // as `postrider migrate` does, which knows nothing of a pooler
    let options = PgConnectOptions::from_str(pooler.url()).unwrap();
    let pool = PgPoolOptions::new().max_connections(2).connect_lazy_with(options);
    let applied = migrate::run(&pool, migrate::Component::ALL).await.unwrap();
    assert_eq!(applied.len(), migrate::MIGRATIONS.len());
    assert_eq!(migrate::plan(&pool, migrate::Component::ALL).await.unwrap().len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn c38_a_pooler_that_nobody_told_of_is_refused_at_the_start_by_name_with_the_setting() {
    let db = TestDb::fresh().await;
    let pooler = PgBouncer::before(db.url()).await;
    let plain = PgConnectOptions::from_str(pooler.url()).unwrap();
    // others are at work on the same sessions
    let (over, asked) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let mut others = JoinSet::new();
    for _ in 0..3 {
        let (pool, over, asked) = (pool_behind(pooler.url()), Arc::clone(&over), Arc::clone(&asked));
        others.spawn(async move {
            while over.load(Ordering::Relaxed) == 0 {
                pool.execute("select pg_sleep(0.001)").await.unwrap();
                asked.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
    for options in [plain.clone(), plain.clone().extra_float_digits(None), plain.clone().statement_cache_capacity(0)] {
        let pool = PgPoolOptions::new().max_connections(4).connect_lazy_with(options);
        let refused = declared(pool, &Runs::default()).build().await.unwrap_err();
        let told = refused.to_string();
        assert!(matches!(refused, Error::Pooler { .. }) && !refused.is_transient(), "{refused:?}");
        assert!(told.contains("PgBouncer") && told.contains("`pooler` to `transaction`"), "{told}");
    }
    over.store(1, Ordering::Relaxed);
    others.join_all().await;
    assert!(asked.load(Ordering::Relaxed) > 0);
    // and so is what the caller's own pool meets
    declared(db.pool().clone(), &Runs::default()).build().await.unwrap();
    let pool = PgPoolOptions::new().max_connections(4).connect_lazy_with(plain.clone());
    let refused = PgJobs::new(pool).enqueue(None, &[job("t.plain")]).await.unwrap_err();
    assert!(matches!(refused, Error::Pooler { .. }), "{refused:?}");
    let pool = PgPoolOptions::new().max_connections(8).connect_lazy_with(plain.extra_float_digits(None));
    let event = NewEvent::new("order.made", "order/1", Payload::of(&1).unwrap());
    let (mut held, mut met) = (Vec::new(), None);
    // three of them on two sessions: two take the same name for a statement
    for _ in 0..3 {
        let mut connection = pool.acquire().await.unwrap();
        let mut tx = connection.begin().await.unwrap();
        met = met.or(Recorder::new().record(&mut *tx, &event).await.err());
        drop(tx.commit().await);
        held.push(connection);
    }
    assert!(matches!(met, Some(Error::Pooler { .. })), "{met:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn c38_a_direct_connection_is_not_taken_for_a_pooler() {
    let db = TestDb::fresh().await;
    for _ in 0..5 {
        declared(db.pool().clone(), &Runs::default()).build().await.unwrap();
    }
}

async fn started(builder: Builder) -> Result<(Bus, Running), Error> {
    let bus = builder.build().await?;
    let running = bus.start()?;
    Ok((bus, running))
}

#[tokio::test(flavor = "multi_thread")]
async fn z5_a_process_that_opens_more_connections_than_are_free_refuses_to_start_with_the_sum() {
    // 3 are reserved, so 27 may be had
    let server = TestServer::start_with(&[("max_connections", "30")]).await;
    let pool =
        || PgPoolOptions::new().max_connections(8).connect_lazy_with(PgConnectOptions::from_str(server.url()).unwrap());
    let held: Vec<_> = {
        let holder = PgPoolOptions::new().max_connections(14).connect(server.url()).await.unwrap();
        let mut held = Vec::new();
        for _ in 0..14 {
            held.push(holder.acquire().await.unwrap());
        }
        held
    };
    let Err(Error::Connections(told)) = started(declared(pool(), &Runs::default())).await else {
        panic!("it started, or failed for another reason")
    };
    // beat, listen, finish, relay, housekeeping, schedules, two queues and the pool
    assert_eq!(told.needs.iter().map(|(_, count)| count).sum::<u32>(), 16, "{told}");
    assert!(told.free < 16 && told.limit.contains("server allows 30, 3 are reserved"), "{told}");
    for part in ["opens 16", "beat 1", "listen 1", "claim of queue lost 1", "pool 8", "are free"] {
        assert!(told.to_string().contains(part), "{part}: {told}");
    }
    // one that only records is not refused
    Bus::builder(pool()).types(["order.made"]).build().await.unwrap();
    drop(held);
    let (_bus, running) =
        until("it starts when they are free", SOON, async || started(declared(pool(), &Runs::default())).await.ok())
            .await;
    assert_eq!(running.stop(SOON).await, Stopped::Drained);
}

#[tokio::test(flavor = "multi_thread")]
async fn z5_the_limit_of_the_role_counts_as_well() {
    let db = TestDb::fresh().await;
    let role = format!("tight_{}", db.name());
    let make = format!(
        "create role {role} login connection limit 10 in role pg_read_all_data, pg_write_all_data;
         grant usage on schema postrider to {role}; grant execute on all functions in schema postrider to {role}"
    );
    db.pool().execute(sqlx::raw_sql(AssertSqlSafe(make))).await.unwrap();
    let options = PgConnectOptions::from_str(db.url()).unwrap().username(&role);
    let pool = |most| PgPoolOptions::new().max_connections(most).connect_lazy_with(options.clone());
    let Err(Error::Connections(told)) = started(declared(pool(8), &Runs::default())).await else {
        panic!("it started, or failed for another reason")
    };
    assert!(told.limit.contains("role allows 10"), "{told}");
    // the server may still be ending the session of the refused one
    let (_bus, running) =
        until("it starts with fewer", SOON, async || started(declared(pool(2), &Runs::default())).await.ok()).await;
    assert_eq!(running.stop(SOON).await, Stopped::Drained);
    let drop_role = format!("drop owned by {role}; drop role {role}");
    db.pool().execute(sqlx::raw_sql(AssertSqlSafe(drop_role))).await.unwrap();
}
