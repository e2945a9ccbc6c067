//! Z3: a bus that is dropped instead of stopped says goodbye all the same, however late its claims and its goodbye are answered: its jobs go
//! back without a lost worker, and nothing stays leased.
#![expect(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::future::pending;
use std::str::FromStr as _;
use std::time::Duration;

use postrider::{Bus, Kind, Running, Settings, handler};
use postrider_testkit::proxy::{Cut, Fault, Proxy};
use postrider_testkit::{TestDb, until};
use sqlx::PgPool;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use tokio::sync::mpsc;
use tokio::time::sleep;

const SOON: Duration = Duration::from_mins(1);
/// Longer than a beat of these settings may take to be answered.
const HELD_UP: Duration = Duration::from_millis(1_500);
const READY: &str = "select count(*) from postrider.ready where attempt = 0 and losses = 0";
const CLAIMS_HELD_UP: &str = "select count(*) from pg_stat_activity where datname = current_database()
                               and application_name = 'postrider claim' and wait_event_type = 'Lock'";

async fn start(pool: &PgPool, begun: mpsc::UnboundedSender<()>) -> (Bus, Running) {
    let hangs = Kind::new("t.work").handler(handler(move |_, _| {
        begun.send(()).unwrap();
        async { pending().await }
    }));
    let settings =
        Settings { beat: Duration::from_millis(100), dead_after: Duration::from_secs(2), ..Settings::default() };
    let bus = Bus::builder(pool.clone()).kinds([hangs]).settings(settings).build().await.unwrap();
    let running = bus.start().unwrap();
    until("it beats", SOON, async || (number(pool, "select count(*) from postrider.worker").await == 1).then_some(()))
        .await;
    (bus, running)
}

async fn number(pool: &PgPool, sql: &'static str) -> i64 {
    sqlx::query_scalar(sql).fetch_one(pool).await.unwrap()
}

async fn enqueue(pool: &PgPool, n: i64) {
    for _ in 0..n {
        number(pool, "select count(*) from postrider.enqueue('t.work')").await;
    }
}

/// Nobody else is at work: what is left here is left for ever.
async fn all_are_back(pool: &PgPool, jobs: i64) {
    until("all jobs are back as if nobody had claimed them, and nothing is leased", SOON, async || {
        let left = "select (select count(*) from postrider.lease) + (select count(*) from postrider.worker)";
        (number(pool, READY).await == jobs && number(pool, left).await == 0).then_some(())
    })
    .await;
}

#[tokio::test]
async fn z3_a_claim_that_is_on_its_way_when_its_bus_is_dropped_is_waited_for() {
    let db = TestDb::fresh().await;
    let (begun, _began) = mpsc::unbounded_channel();
    let (_bus, running) = start(db.pool(), begun).await;
    let mut gate = db.pool().begin().await.unwrap();
    // claims cannot grant a lease while this is held; a goodbye passes
    sqlx::raw_sql("lock table postrider.lease in share row exclusive mode").execute(&mut *gate).await.unwrap();
    enqueue(db.pool(), 4).await;
    until("a claim is held up", SOON, async || (number(db.pool(), CLAIMS_HELD_UP).await == 1).then_some(())).await;
    drop(running);
    sleep(HELD_UP).await;
    gate.rollback().await.unwrap();
    all_are_back(db.pool(), 4).await;
}

#[tokio::test]
async fn z3_a_goodbye_that_is_not_heard_is_said_again() {
    let db = TestDb::fresh().await;
    let proxy = Proxy::before(db.url()).await;
    let (begun, mut starts) = mpsc::unbounded_channel();
    let behind = PgPoolOptions::new().connect_lazy_with(PgConnectOptions::from_str(&proxy.url()).unwrap());
    let (_bus, running) = start(&behind, begun).await;
    enqueue(db.pool(), 1).await;
    starts.recv().await.unwrap();
    proxy.refuse(true);
    proxy.act(Fault::Cut(Cut::Rst));
    drop(running);
    sleep(HELD_UP).await;
    proxy.refuse(false);
    all_are_back(db.pool(), 1).await;
}
