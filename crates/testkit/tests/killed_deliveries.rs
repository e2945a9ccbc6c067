//! A process that delivers is killed at each point of a delivery: C51, C54, F64.
//!
//! What held it there is a lock of the test's own, or the receiver; its connections are ended before that is let go, as a dead machine's would be.
#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test asks the database itself, and a failed helper is a failed test"
)]

use std::collections::BTreeSet;
use std::time::Duration;

use postrider::Timestamp;
use postrider_testkit::{Fixture, Process, Reply, Sink, TestDb, until};
use postrider_webhook::{EndpointId, Endpoints, Guard, NewEndpoint, NewReplay, Seal};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, PgPool};

const SOON: Duration = Duration::from_mins(1);
/// What the fixture seals with.
const SEAL_KEY: &str = "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=";
const DONE: &str = "select count(*) from postrider.done d join postrider.job j on j.class = d.class and j.id = d.id
    where j.kind = 'webhook.deliver' and d.state = 2";
/// How the statements begin that stop at a lock here.
const OPENS: &str = "-- An attempt without an outcome";
const LOADS: &str = "-- The endpoints that the deliveries";
const FINISHES: &str = "-- Finishes the attempts";
const ENDS: &str = "-- Ends attempts of worker";
/// Whether a connection waits for a lock in `$1`. A finish gives up waiting after a moment and is asked again: if it has, that counts.
const STOPPED: &str =
    "select exists (select from pg_stat_activity where datname = current_database() and starts_with(query, $1)
    and (wait_event_type = 'Lock' or $2 and state = 'idle'))";
/// The connections of the processes that deliver.
const CUT: &str = "select count(pg_terminate_backend(pid)) from pg_stat_activity where datname = current_database()
    and (application_name like 'postrider %' or application_name = 'deliverer')";
const CONNECTED: &str = "select count(*) from pg_stat_activity where datname = current_database()
    and (application_name like 'postrider %' or application_name = 'deliverer')";

/// A point of a delivery.
struct Point {
    name: &'static str,
    /// What is locked before the event is recorded, if that is what holds the process.
    lock: Option<&'static str>,
    /// What is locked while the receiver thinks.
    lock_then: Option<&'static str>,
    /// How long the receiver thinks about the first request.
    thinks: Duration,
    /// When to kill: once this is so.
    when: When,
    /// How many requests the receiver sees in all.
    requests: usize,
    /// The outcomes of the attempts in their order; `?` is unknown.
    rows: &'static [&'static str],
}

#[derive(Clone, Copy)]
enum When {
    /// A statement that begins so stops at the lock.
    Stopped(&'static str),
    Requested,
    Done,
}

const POINTS: [Point; 6] = [
    Point {
        name: "while it claims: there is no row and no request",
        lock: Some("lock table postrider.delivery_attempt in share mode"),
        lock_then: None,
        thinks: Duration::ZERO,
        when: When::Stopped(OPENS),
        requests: 1,
        rows: &["delivered"],
    },
    Point {
        name: "before the request: the row is there",
        lock: Some("lock table postrider.endpoint_secret in access exclusive mode"),
        lock_then: None,
        thinks: Duration::ZERO,
        when: When::Stopped(LOADS),
        requests: 1,
        rows: &["?", "delivered"],
    },
    Point {
        name: "while the receiver thinks: it is not known whether it takes it",
        lock: None,
        lock_then: None,
        thinks: Duration::from_hours(1),
        when: When::Requested,
        requests: 2,
        rows: &["?", "delivered"],
    },
    Point {
        name: "after the answer, before it is noted",
        lock: Some("lock table postrider.endpoint_window in share mode"),
        lock_then: None,
        thinks: Duration::ZERO,
        when: When::Stopped(FINISHES),
        requests: 2,
        rows: &["?", "delivered"],
    },
    Point {
        name: "after the answer is noted, before the delivery ends: it is known, and not sent again",
        lock: None,
        lock_then: Some("select from postrider.lease where queue = 'webhook' for update"),
        thinks: Duration::from_secs(2),
        when: When::Stopped(ENDS),
        requests: 1,
        rows: &["delivered", "skipped"],
    },
    Point {
        name: "after the end",
        lock: None,
        lock_then: None,
        thinks: Duration::ZERO,
        when: When::Done,
        requests: 1,
        rows: &["delivered"],
    },
];

struct Stage {
    db: TestDb,
    fixture: Fixture,
    sink: Sink,
}

impl Stage {
    async fn set() -> Self {
        let db = TestDb::fresh().await;
        let url = format!("{}{}application_name=deliverer", db.url(), if db.url().contains('?') { '&' } else { '?' });
        let fixture = Fixture::new(env!("CARGO_BIN_EXE_postrider-fixture"), &url);
        Self { db, fixture, sink: Sink::start().await.unwrap() }
    }

    fn pool(&self) -> &PgPool {
        self.db.pool()
    }

    async fn number(&self, sql: &'static str) -> i64 {
        sqlx::query_scalar(sql).fetch_one(self.pool()).await.unwrap()
    }

    async fn worker(&self) -> Process {
        let worker = self.fixture.start(&[
            "ledger-worker",
            "--relay",
            "--beat-ms",
            "50",
            "--dead-after-ms",
            "600",
            "--retry-ms",
            "10",
        ]);
        until("it has started", SOON, async || {
            worker.lines().iter().any(|line| line.starts_with("started ")).then_some(())
        })
        .await;
        worker
    }

    /// An endpoint for everything, with so many attempts.
    async fn endpoint(&self, max_attempts: i16) -> (Endpoints, EndpointId) {
        let (seal, guard) = (Seal::parse([SEAL_KEY]).unwrap(), Guard::new(["127.0.0.1/32"]).unwrap());
        let new = NewEndpoint { max_attempts, ..NewEndpoint::new("receiver", self.sink.url("/in"), ["order.made"]) };
        let endpoints = Endpoints::new(self.pool().clone(), seal, guard);
        let created = endpoints.create(new).await.unwrap();
        (endpoints, created.id)
    }

    /// A transaction that holds a lock until it is dropped.
    async fn lock(&self, sql: &'static str) -> PgConnection {
        let mut connection = PgConnection::connect(self.db.url()).await.unwrap();
        sqlx::raw_sql(AssertSqlSafe(format!("begin; {sql}"))).execute(&mut connection).await.unwrap();
        connection
    }

    async fn outcomes(&self) -> Vec<String> {
        let sql = "select coalesce(outcome, '?') from postrider.delivery_attempt order by lease";
        sqlx::query_scalar(sql).fetch_all(self.pool()).await.unwrap()
    }
}

async fn killed_at(point: &Point) {
    let stage = Stage::set().await;
    let mut dying = stage.worker().await;
    stage.endpoint(18).await;
    let mut locks = Vec::new();
    if let Some(lock) = point.lock {
        locks.push(stage.lock(lock).await);
    }
    if point.thinks > Duration::ZERO {
        stage.sink.script([Reply::After(point.thinks, Box::new(Reply::Status(204)))]);
    }
    sqlx::query("select postrider.record('order.made', 'order/1')").execute(stage.pool()).await.unwrap();
    if point.lock_then.is_some() || matches!(point.when, When::Requested) {
        assert_eq!(stage.sink.wait_for(1, SOON).await.len(), 1, "{}", point.name);
    }
    if let Some(lock) = point.lock_then {
        locks.push(stage.lock(lock).await);
    }
    match point.when {
        When::Stopped(at) => {
            let stopped = || sqlx::query_scalar::<_, bool>(STOPPED).bind(at).bind(at == FINISHES);
            until(point.name, SOON, async || stopped().fetch_one(stage.pool()).await.unwrap().then_some(())).await;
        }
        When::Done => until(point.name, SOON, async || (stage.number(DONE).await == 1).then_some(())).await,
        When::Requested => {}
    }
    dying.kill().await;
    // a machine that is gone commits nothing any more
    stage.number(CUT).await;
    until("nobody is connected", SOON, async || (stage.number(CONNECTED).await == 0).then_some(())).await;
    for lock in locks {
        lock.close().await.unwrap();
    }
    let _living = stage.worker().await;
    until("it is delivered", SOON, async || (stage.number(DONE).await == 1).then_some(())).await;

    let requests = stage.sink.requests();
    assert_eq!(requests.len(), point.requests, "{}", point.name);
    let ids: BTreeSet<Option<String>> = requests.iter().map(|request| request.header("webhook-id")).collect();
    assert_eq!(ids.len(), 1, "{}", point.name);
    let rows = stage.outcomes().await;
    assert_eq!(rows, point.rows, "{}", point.name);
    assert!(rows.iter().filter(|row| *row != "skipped").count() >= requests.len(), "each request has a row");
}

#[tokio::test]
async fn c51_wherever_a_process_is_killed_each_request_has_a_row_and_only_what_is_unknown_is_sent_twice() {
    for point in &POINTS {
        killed_at(point).await;
    }
}

#[tokio::test]
async fn f66_a_replay_whose_process_is_killed_all_the_time_makes_each_delivery_once() {
    const EVENTS: usize = 12;
    let stage = Stage::set().await;
    let mut worker = stage.worker().await;
    let (endpoints, id) = stage.endpoint(1).await;
    stage.sink.script(vec![Reply::Status(500); EVENTS]);
    for n in 0..EVENTS {
        let sql = "select postrider.record('order.made', 'order/' || $1)";
        sqlx::query(sql).bind(i64::try_from(n).unwrap()).execute(stage.pool()).await.unwrap();
    }
    let given_up = "select count(*) from postrider.done d join postrider.job j on j.class = d.class and j.id = d.id
        where j.kind = 'webhook.deliver' and d.state = 3";
    until("all are given up", SOON, async || (stage.number(given_up).await == 12).then_some(())).await;
    let now = stage.number("select (extract(epoch from clock_timestamp()) * 1000000)::bigint").await;
    let (from, to) = (Timestamp::from_micros(now - 3_600_000_000), Timestamp::from_micros(now));
    let new = NewReplay { per_second: 3, ..NewReplay::new(from, to) };
    let plan = endpoints.plan_replay(id, &new).await.unwrap().unwrap();
    assert_eq!(plan.planned, 12);
    assert!(endpoints.start_replay(plan.id).await.unwrap());
    let mut kills = 0;
    let done = "select count(*) from postrider.delivery_replay where state = 'done'";
    while stage.number(done).await == 0 {
        let made = stage.number("select made from postrider.delivery_replay").await;
        until("it goes on", SOON, async || {
            (stage.number("select made from postrider.delivery_replay").await > made || stage.number(done).await == 1)
                .then_some(())
        })
        .await;
        worker.kill().await;
        kills += 1;
        worker = stage.worker().await;
    }
    until("all are delivered", SOON, async || (stage.number(DONE).await == 12).then_some(())).await;
    println!("{kills} kills, {} requests", stage.sink.requests().len());
    assert!(kills >= 3, "{kills}");
    let made = "select count(*) from postrider.job where args ->> 'trigger' = 'replay'";
    assert_eq!((stage.number(made).await, stage.number("select made from postrider.delivery_replay").await), (12, 12));
    let delivered = "select count(distinct event) from postrider.delivery_attempt where outcome = 'delivered'";
    assert_eq!(stage.number(delivered).await, 12);
    let unknown = stage.number("select count(*) from postrider.delivery_attempt where outcome is null").await;
    let requests = i64::try_from(stage.sink.requests().len()).unwrap();
    assert!((24..=24 + unknown).contains(&requests), "{requests} requests, {unknown} unknown");
}
