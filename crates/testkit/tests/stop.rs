//! P11: a worker that is told to end claims nothing more, ends what runs or gives it back with its attempt, and leaves nothing leased.
#![expect(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::time::Duration;

use postrider_testkit::{Fixture, Process, Signal, TestDb, fixture, until};
use sqlx::PgPool;
use tokio::time::sleep;

/// How long a busy machine may take for what needs no waiting.
const SOON: Duration = Duration::from_mins(1);

async fn stage() -> (TestDb, Fixture) {
    let db = TestDb::fresh().await;
    fixture::declare(db.pool(), &[]).await.unwrap();
    let fixture = Fixture::new(env!("CARGO_BIN_EXE_postrider-fixture"), db.url());
    (db, fixture)
}

async fn number(pool: &PgPool, sql: &'static str) -> i64 {
    sqlx::query_scalar(sql).fetch_one(pool).await.unwrap()
}

async fn enqueue(pool: &PgPool, n: i32, kind: &str, args: &str) {
    let sql = "select (postrider.enqueue($2, $3::json)).id from generate_series(1, $1)";
    sqlx::query_scalar::<_, i64>(sql).bind(n).bind(kind).bind(args).fetch_all(pool).await.unwrap();
}

async fn begun(worker: &Process, n: usize, kind: &str) {
    until(&format!("{n} × {kind}"), SOON, async || (worker.count("begin", kind) >= n).then_some(())).await;
}

/// Tells a worker to end; it must end by itself and well. Answers with what it says of its stop.
async fn terminate(worker: &mut Process) -> String {
    worker.signal(Signal::TERM);
    assert_eq!(worker.exit(SOON).await, Some(0), "{}", worker.log());
    worker.lines().iter().find_map(|line| line.strip_prefix("stopped ").map(str::to_owned)).unwrap()
}

/// Nothing is leased, no worker is there, and no attempt was spent on what did not end.
async fn nothing_is_left(pool: &PgPool) {
    assert_eq!(number(pool, "select count(*) from postrider.lease").await, 0, "leased");
    assert_eq!(number(pool, "select count(*) from postrider.worker").await, 0, "workers");
    assert_eq!(number(pool, "select count(*) from postrider.attempt").await, 0, "attempts");
    assert_eq!(number(pool, "select count(*) from postrider.later").await, 0, "later");
    assert_eq!(
        number(pool, "select count(*) from postrider.ready where (attempt, losses, flags) <> (0, 0, 0)").await,
        0
    );
}

const DONE: &str = "select count(*) from postrider.done where state = 2 and attempt = 1";
const READY: &str = "select count(*) from postrider.ready";

#[tokio::test]
async fn z2_a_stop_lets_what_runs_end_and_claims_nothing_more() {
    let (db, fixture) = stage().await;
    enqueue(db.pool(), 14, "t.sleep", r#"{"ms": 1500}"#).await;
    let mut worker = fixture.start(&["worker", "--concurrency", "4", "--grace-ms", "15000"]);
    begun(&worker, 4, "sleep").await;
    assert_eq!(terminate(&mut worker).await, "drained");
    assert_eq!((worker.count("begin", "sleep"), worker.count("end", "sleep")), (4, 4));
    assert_eq!((number(db.pool(), DONE).await, number(db.pool(), READY).await), (4, 10));
    nothing_is_left(db.pool()).await;
}

#[tokio::test]
async fn z1_what_does_not_end_within_the_grace_is_cancelled_and_given_back_with_its_attempt() {
    let (db, fixture) = stage().await;
    enqueue(db.pool(), 3, "t.wait", "{}").await;
    let mut worker = fixture.start(&["worker", "--grace-ms", "200"]);
    begun(&worker, 3, "wait").await;
    assert_eq!(terminate(&mut worker).await, "abandoned:3");
    assert_eq!(worker.count("cancelled", "wait"), 3, "each was told");
    assert_eq!(number(db.pool(), READY).await, 3);
    nothing_is_left(db.pool()).await;
    let mut next = fixture.start(&["worker", "--patience-ms", "0"]);
    until("they run again", SOON, async || (number(db.pool(), DONE).await == 3).then_some(())).await;
    terminate(&mut next).await;
}

#[tokio::test]
async fn z1_a_handler_that_ignores_its_cancellation_is_abandoned_and_its_job_given_back() {
    let (db, fixture) = stage().await;
    enqueue(db.pool(), 1, "t.block", r#"{"ms": 60000}"#).await;
    let mut worker = fixture.start(&["worker", "--grace-ms", "200"]);
    begun(&worker, 1, "block").await;
    assert_eq!(terminate(&mut worker).await, "abandoned:1");
    assert_eq!(worker.count("end", "block"), 0);
    assert_eq!((number(db.pool(), READY).await, worker.figure("released")), (1, 1));
    nothing_is_left(db.pool()).await;
}

#[tokio::test]
async fn z2_a_stop_without_grace_in_the_middle_of_work_leaves_nothing_leased() {
    let (db, fixture) = stage().await;
    enqueue(db.pool(), 1_500, "t.sleep", r#"{"ms": 3}"#).await;
    for round in 0..8 {
        let mut worker = fixture.start(&["worker", "--concurrency", "20", "--grace-ms", "0"]);
        begun(&worker, 20 + round * 7, "sleep").await;
        terminate(&mut worker).await;
        let (done, ready) = (number(db.pool(), DONE).await, number(db.pool(), READY).await);
        assert_eq!(done + ready, 1_500, "round {round}: {}", worker.log());
        assert!(ready > 0, "there was nothing left to interrupt");
        nothing_is_left(db.pool()).await;
    }
    let mut last = fixture.start(&["worker", "--concurrency", "50"]);
    until("all are done", SOON, async || (number(db.pool(), DONE).await == 1_500).then_some(())).await;
    assert_eq!(terminate(&mut last).await, "drained");
    nothing_is_left(db.pool()).await;
}

#[tokio::test]
async fn z2_a_claim_that_is_on_its_way_when_a_stop_begins_is_waited_for_and_given_back() {
    let (db, fixture) = stage().await;
    let mut worker = fixture.start(&["worker", "--grace-ms", "0"]);
    until("it beats", SOON, async || {
        (number(db.pool(), "select count(*) from postrider.worker").await == 1).then_some(())
    })
    .await;
    // claims cannot grant a lease while this is held
    let mut gate = db.pool().begin().await.unwrap();
    sqlx::raw_sql("lock table postrider.lease in share row exclusive mode").execute(&mut *gate).await.unwrap();
    enqueue(db.pool(), 4, "t.sleep", r#"{"ms": 60000}"#).await;
    until("a claim is held up", SOON, async || {
        let claims = "select count(*) from pg_stat_activity where datname = current_database()
                       and application_name = 'postrider claim' and wait_event_type = 'Lock'";
        (number(db.pool(), claims).await == 1).then_some(())
    })
    .await;
    worker.signal(Signal::TERM);
    sleep(Duration::from_millis(400)).await;
    gate.rollback().await.unwrap();
    assert_eq!(worker.exit(SOON).await, Some(0), "{}", worker.log());
    until("the claim has ended", SOON, async || {
        let claims = "select count(*) from pg_stat_activity where datname = current_database()
                       and application_name = 'postrider claim'";
        (number(db.pool(), claims).await == 0).then_some(())
    })
    .await;
    assert_eq!(number(db.pool(), READY).await, 4);
    nothing_is_left(db.pool()).await;
}
