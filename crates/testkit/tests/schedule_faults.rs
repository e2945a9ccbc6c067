//! Schedules when processes are killed, connections are cut and a pooler stands before the database: D1, D8, C26, Z9, Z10.
#![expect(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use postrider::{Bus, Kind, Overlap, Pooler, Running, Schedule, Settings, Verdict, WakeUps, handler};
use postrider_testkit::proxy::{At, Cut, Fault, Proxy, Script};
use postrider_testkit::{Fixture, PgBouncer, TestDb, fixture, until};
use rand::{RngExt, SeedableRng, rngs::StdRng};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{AssertSqlSafe, PgPool};
use tokio::time::{Instant, sleep};

const SOON: Duration = Duration::from_mins(1);
const DAY: Duration = Duration::from_hours(24);
/// How the library names the connection that fires.
const FIRES: &str = "postrider schedules";

async fn number(pool: &PgPool, text: &str) -> i64 {
    sqlx::query_scalar(AssertSqlSafe(text.to_owned())).fetch_one(pool).await.unwrap()
}

async fn sql(pool: &PgPool, text: &str) {
    sqlx::raw_sql(AssertSqlSafe(text.to_owned())).execute(pool).await.unwrap();
}

async fn is(pool: &PgPool, what: &str, text: &str, expected: i64) {
    until(what, SOON, async || (number(pool, text).await == expected).then_some(())).await;
}

const JOBS: &str = "select count(*) from postrider.job";
const RAN: &str = "select coalesce(max(runs), 0) from postrider.schedule where next_at > clock_timestamp()";
const PLACED: &str = "select count(next_at) from postrider.schedule";

/// Makes the next due time come now.
async fn due(pool: &PgPool) {
    sql(pool, "update postrider.schedule set next_at = clock_timestamp()").await;
}

fn pool(url: &str) -> PgPool {
    PgPoolOptions::new().max_connections(3).connect_lazy_with(PgConnectOptions::from_str(url).unwrap())
}

/// A process that fires `s.a` once a day and runs its jobs.
async fn process(pool: PgPool, settings: Settings) -> (Bus, Running) {
    let kind = Kind::new("t.tick").handler(handler(|_, _| async { Ok(Verdict::Complete) }));
    let schedule = Schedule { overlap: Overlap::Queue, ..Schedule::every("s.a", DAY).kind("t.tick") };
    let bus = Bus::builder(pool).kinds([kind]).schedules([schedule]).settings(settings).build().await.unwrap();
    let running = bus.start().unwrap();
    (bus, running)
}

fn quick() -> Settings {
    Settings { beat: Duration::from_millis(100), dead_after: Duration::from_secs(2), ..Settings::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn d1_processes_that_are_killed_all_the_time_run_each_due_time_once() {
    let db = TestDb::fresh().await;
    let pool = db.pool();
    fixture::declare(pool, &[]).await.unwrap();
    let fixture = Fixture::new(env!("CARGO_BIN_EXE_postrider-fixture"), db.url());
    let start = || fixture.start(&["worker", "--schedule", "t.effect=1000"]);
    let mut dice = StdRng::seed_from_u64(1);
    let mut processes = [start(), start(), start()];
    let (began, mut kills) = (Instant::now(), 0);
    while began.elapsed() < Duration::from_secs(15) {
        sleep(Duration::from_millis(dice.random_range(50..400))).await;
        let dying = &mut processes[dice.random_range(0..3)];
        dying.kill().await;
        *dying = start();
        kills += 1;
    }
    let enough = number(pool, "select runs from postrider.schedule").await + 2;
    until("those that live go on", SOON, async || {
        (number(pool, "select runs from postrider.schedule").await >= enough).then_some(())
    })
    .await;
    for mut process in processes {
        process.kill().await;
    }
    let seconds = "select (extract(epoch from max(run_at) - min(run_at)))::bigint + 1 from postrider.job";
    let (runs, seconds) = (number(pool, JOBS).await, number(pool, seconds).await);
    println!("{kills} kills, {runs} runs in {seconds} s");
    assert!(kills >= 20 && runs >= 10, "{kills} kills, {runs} runs: too little happened");
    assert_eq!(number(pool, "select count(distinct run_at) from postrider.job").await, runs, "a due time ran twice");
    assert_eq!(runs, seconds, "a due time was left out");
    let counted = "select runs - missed_runs * 1000000 - overlapped_runs * 1000000 from postrider.schedule";
    assert_eq!(number(pool, counted).await, runs);
}

/// Two that have seen the same due time, one after the other.
async fn taken_twice(pool: &PgPool) -> [String; 2] {
    sql(pool, "update postrider.schedule set next_at = '2026-01-01T00:00:00Z'").await;
    let take = "select postrider.fire_schedule('s.a', '2026-01-01T00:00:00Z', '2099-01-01T00:00:00Z', array['2026-01-01T00:00:00Z'::timestamptz],
        '2026-01-01T00:00:00Z', 0)";
    let first = sqlx::query_scalar(take).fetch_one(pool).await.unwrap();
    [first, sqlx::query_scalar(take).fetch_one(pool).await.unwrap()]
}

#[tokio::test]
async fn d1_who_comes_second_to_a_due_time_finds_nothing_to_do() {
    let db = TestDb::fresh().await;
    let pool = db.pool();
    let declared = r#"select postrider.declare('{"kinds": [{"name": "t.tick"}], "schedules": [{"name": "s.a", "kind": "t.tick",
        "every_ms": 1000, "overlap": "queue"}]}')"#;
    sql(pool, declared).await;
    assert_eq!(taken_twice(pool).await, ["fired", "gone"]);
    assert_eq!(number(pool, JOBS).await, 1);
    // and without the look at what was seen both would have fired
    let text: String = sqlx::query_scalar("select pg_get_functiondef('postrider.fire_schedule'::regproc)")
        .fetch_one(pool)
        .await
        .unwrap();
    let broken = text.replace("and e.next_at is not distinct from fire_schedule.seen", "");
    assert_ne!(broken, text);
    sql(pool, &broken).await;
    assert_eq!(taken_twice(pool).await, ["fired", "fired"]);
}

/// A process is killed at this point of its firing, another one is there.
async fn killed_at(at: At, ran: i64) {
    let db = TestDb::fresh().await;
    let pool = db.pool();
    fixture::declare(pool, &[]).await.unwrap();
    let proxy = Proxy::before(db.url()).await;
    let dying = Fixture::new(env!("CARGO_BIN_EXE_postrider-fixture"), &proxy.url());
    let schedule = ["worker", "--schedule", "t.effect=86400000"];
    let mut first = dying.start(&schedule);
    is(pool, "it is known when it comes next", PLACED, 1).await;
    // its connection was given back, since nothing is due for a long time
    let fires = || proxy.connections().iter().filter(|c| c.hello().application == FIRES).count();
    until("the connection that fires is closed", SOON, async || (fires() == 0).then_some(())).await;
    let script = at.clone();
    proxy.script(move |hello| match hello.application.as_str() {
        FIRES => Script::new().at(script.clone(), Fault::Stall),
        _ => Script::new(),
    });
    due(pool).await;
    until("it has computed and is about to fire", SOON, async || (proxy.fired() > 0).then_some(())).await;
    assert_eq!(number(pool, JOBS).await, ran, "{at:?}");
    first.kill().await;
    proxy.act(Fault::Cut(Cut::Rst));
    let living = Fixture::new(env!("CARGO_BIN_EXE_postrider-fixture"), db.url());
    let _second = living.start(&schedule);
    is(pool, "the due time has run", "select count(*) from postrider.done", 1).await;
    assert_eq!(number(pool, "select runs from postrider.schedule where next_at > clock_timestamp()").await, 1);
    assert_eq!(number(pool, JOBS).await, 1, "{at:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn d1_a_process_that_is_killed_between_computing_and_firing_leaves_the_due_time_to_another() {
    killed_at(At::Saying("postrider.fire_schedule".to_owned()), 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn d1_a_process_that_is_killed_after_firing_has_fired() {
    // its own look, what is due, what it takes
    killed_at(At::Committed(3), 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn c26_a_due_time_has_one_job_wherever_the_connection_is_cut_and_whatever_becomes_of_the_job() {
    let db = TestDb::fresh().await;
    let store = db.pool();
    let proxy = Proxy::before(db.url()).await;
    let cuts = Arc::new(AtomicU64::new(0));
    let next = Arc::clone(&cuts);
    // each connection that fires lives for one message more than the one before, in turn of its own and of the server's
    proxy.script(move |hello| {
        if hello.application != FIRES {
            return Script::new();
        }
        let n = next.fetch_add(1, Ordering::SeqCst);
        let message = n / 2 % 45 + 1;
        let at = if n.is_multiple_of(2) { At::Frontend(message) } else { At::Backend(message) };
        Script::new().at(at, Fault::Cut(Cut::Rst))
    });
    let running = process(pool(&proxy.url()), quick()).await;
    is(store, "it is known when it comes next", PLACED, 1).await;
    let (began, mut runs) = (Instant::now(), 0);
    while cuts.load(Ordering::SeqCst) < 90 && runs < 200 {
        runs += 1;
        due(store).await;
        is(store, "it has run", RAN, runs).await;
        let made = "select (select count(*) from postrider.job) + (select count(*) from postrider.deleted)";
        assert_eq!(number(store, made).await, runs, "a due time has two jobs, or none");
        if runs % 5 == 0 {
            // as retention and operators do: it neither fires again what is forgotten nor keeps the next one from it
            sql(store, "select postrider.delete(array(select id from postrider.done))").await;
        }
    }
    println!("{} connections, {} of them cut, {:?}", cuts.load(Ordering::SeqCst), proxy.fired(), began.elapsed());
    assert!(proxy.fired() >= 40, "{} cuts", proxy.fired());
    proxy.script(|_| Script::new());
    running.1.stop(SOON).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn z9_schedules_are_fired_through_a_pooler_in_transaction_mode() {
    let db = TestDb::fresh().await;
    let bouncer = PgBouncer::before(db.url()).await;
    let settings = Settings { pooler: Pooler::Transaction, wake_ups: WakeUps::Poll, ..quick() };
    let options =
        PgConnectOptions::from_str(bouncer.url()).unwrap().extra_float_digits(None).statement_cache_capacity(0);
    let (bus, running) = process(PgPoolOptions::new().max_connections(3).connect_lazy_with(options), settings).await;
    is(db.pool(), "it is known when it comes next", PLACED, 1).await;
    for n in 1..=3 {
        due(db.pool()).await;
        is(db.pool(), "it has run", "select count(*) from postrider.done", n).await;
    }
    bus.schedules().run("s.a").await.unwrap();
    bus.schedules().pause("s.a", true).await.unwrap();
    let all = bus.schedules().list().await.unwrap();
    assert!(all.first().is_some_and(|view| view.runs == 4 && view.paused), "{all:?}");
    running.stop(SOON).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn z10_a_process_with_a_schedule_that_is_not_due_sends_one_beat_a_second_and_nothing_else() {
    let db = TestDb::fresh().await;
    let proxy = Proxy::before(db.url()).await;
    // a relay looks on while anybody writes to the server
    let (_bus, running) = process(pool(&proxy.url()), Settings { relay: false, ..Settings::default() }).await;
    is(db.pool(), "it is known when it comes next", PLACED, 1).await;
    let others = || -> u64 {
        let others = proxy.connections().into_iter().filter(|c| c.hello().application != "postrider beat");
        others.map(|c| c.counts().frontends()).sum()
    };
    let mut before = others();
    until("it is quiet", SOON, async || {
        sleep(Duration::from_millis(1_500)).await;
        std::mem::replace(&mut before, others()).eq(&others()).then_some(())
    })
    .await;
    let beats = "select beat from postrider.worker";
    let (accepted, beat) = (proxy.accepted(), number(db.pool(), beats).await);
    sleep(Duration::from_secs(8)).await;
    let beaten = number(db.pool(), beats).await - beat;
    assert_eq!((others(), proxy.accepted()), (before, accepted), "something else was asked");
    assert!((6..=9).contains(&beaten), "{beaten} beats in 8 s");
    running.stop(SOON).await;
}
