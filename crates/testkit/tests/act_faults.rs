//! C05, C10, C40: a cancellation that nobody is woken for, sweepers that die in the middle of their sweep, and a handler that fails while
//! others like its job come in.
#![expect(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use postrider::{
    Act, BoxError, Bus, Context, Effect, Inspector, Jobs, Kind, KindSpec, NewJob, Payload, PgInspector, PgJobs, Retry,
    Settings, State, Stopped, Unique, Verdict, handler,
};
use postrider_testkit::proxy::{At, Cut, Fault, Proxy, Script};
use postrider_testkit::{Fixture, TestDb, fixture, interleave, until};
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};

const SOON: Duration = Duration::from_mins(1);
const BEAT: Duration = Duration::from_millis(200);

fn empty() -> Payload {
    Payload::parse("{}").unwrap()
}

async fn number(pool: &PgPool, sql: &'static str) -> i64 {
    sqlx::query_scalar(sql).fetch_one(pool).await.unwrap()
}

/// A job runs in a process whose LISTEN connection suffers a fault; it is cancelled from elsewhere.
async fn cancelled_while_the_listener_is_down(fault: Fault) {
    let db = TestDb::fresh().await;
    let proxy = Proxy::before(db.url()).await;
    proxy.script(move |hello| match hello.application.as_str() {
        "postrider listen" => Script::new().at(At::Saying("LISTEN".to_owned()), fault),
        _ => Script::new(),
    });
    let (mouth, mut heard) = mpsc::unbounded_channel();
    let kind = Kind::new("t.sleep").handler(handler(move |_, cx: Context| {
        let mouth = mouth.clone();
        async move {
            mouth.send("begins")?;
            cx.stop().cancelled().await;
            mouth.send("stopped")?;
            Err::<Verdict, _>(BoxError::from("it was told to stop"))
        }
    }));
    let pool = PgPoolOptions::new().max_connections(4).connect_lazy(&proxy.url()).unwrap();
    let settings = Settings { beat: BEAT, dead_after: Duration::from_secs(5), ..Settings::default() };
    let bus = Bus::builder(pool).kinds([kind]).settings(settings).build().await.unwrap();
    let running = bus.start().unwrap();
    let door = PgJobs::new(db.pool().clone());
    let id = door.enqueue(None, &[NewJob::new("t.sleep", empty())]).await.unwrap().remove(0).id;
    assert_eq!(heard.recv().await, Some("begins"));
    until("the listener's fault befell it", SOON, async || (proxy.fired() > 0).then_some(())).await;

    let asked = Instant::now();
    let effects = door.act(None, Act::Cancel, std::slice::from_ref(&id)).await.unwrap();
    assert_eq!(effects, [Effect::Requested]);
    assert_eq!(heard.recv().await, Some("stopped"));
    assert!(asked.elapsed() < BEAT + Duration::from_secs(1), "told after {:?}", asked.elapsed());
    let inspector = PgInspector::new(db.pool().clone());
    let view = until("it is cancelled", SOON, async || {
        inspector.job(&id).await.unwrap().filter(|view| view.state == State::Cancelled)
    })
    .await;
    assert_eq!(view.attempt, 1);
    assert_eq!(running.stop(SOON).await, Stopped::Drained);
    assert_eq!(inspector.job(&id).await.unwrap().map(|view| view.state), Some(State::Cancelled));
}

#[tokio::test]
async fn c05_a_cancellation_reaches_its_handler_although_a_network_forgot_the_listener() {
    cancelled_while_the_listener_is_down(Fault::BlackHole).await;
}

#[tokio::test]
async fn c05_a_cancellation_reaches_its_handler_without_a_listener() {
    cancelled_while_the_listener_is_down(Fault::Cut(Cut::Rst)).await;
}

/// Sweeps that are held up in their middle, after a lease was taken apart and before its jobs are somewhere else.
const HELD_UP: &str = "select count(*) from pg_stat_activity
    where datname = current_database() and application_name = 'postrider beat' and wait_event = 'advisory'";

#[tokio::test]
async fn c10_five_sweepers_die_in_the_middle_of_their_sweep_and_the_next_one_finishes_it() {
    let db = TestDb::fresh().await;
    fixture::declare(db.pool(), &[]).await.unwrap();
    let fixture = Fixture::new(env!("CARGO_BIN_EXE_postrider-fixture"), db.url());
    let beats = ["--beat-ms", "100", "--dead-after-ms", "500"];
    let mut dying = fixture.start(&[["worker"].as_slice(), &beats].concat());
    let sql = "select count(x.id) from (select (postrider.enqueue('t.wait')).id from generate_series(1, 10)) x";
    assert_eq!(number(db.pool(), sql).await, 10);
    until("ten begin", SOON, async || (dying.count("begin", "wait") == 10).then_some(())).await;
    let hold = interleave::pause(&db, "put_back", "put_back.isolated").await.unwrap();
    let mut gate = db.pool().begin().await.unwrap();
    sqlx::raw_sql(sqlx::AssertSqlSafe(hold)).execute(&mut *gate).await.unwrap();
    dying.kill().await;

    for round in 0..5 {
        let mut sweeper = fixture.start(&[["relay"].as_slice(), &beats].concat());
        until(&format!("sweep {round} is in its middle"), SOON, async || {
            (number(db.pool(), HELD_UP).await >= 1).then_some(())
        })
        .await;
        sweeper.kill().await;
        // the server finds out as well
        let end = "select count(pg_terminate_backend(pid, 5000)) from pg_stat_activity
                    where datname = current_database() and application_name = 'postrider beat'";
        number(db.pool(), end).await;
        assert_eq!(number(db.pool(), "select sum(cardinality(open)) from postrider.lease").await, 10, "round {round}");
    }
    gate.rollback().await.unwrap();
    let heir = fixture.start(&[["worker", "--patience-ms", "0"].as_slice(), &beats].concat());
    let freed = Instant::now();
    until("all are run again", SOON, async || (heir.count("end", "wait") == 10).then_some(())).await;
    println!("run again {:?} after the last sweeper", freed.elapsed());
    until("all are done", SOON, async || {
        (number(db.pool(), "select count(*) from postrider.done where state = 2").await == 10).then_some(())
    })
    .await;
}

#[tokio::test]
async fn c40_a_failing_job_that_is_unique_while_it_waits_is_merged_with_the_one_that_came_meanwhile() {
    let db = TestDb::fresh().await;
    let runs = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&runs);
    let retry = Retry::Steps(vec![Duration::from_millis(50)]);
    let sync =
        KindSpec { retry, unique: Some(Unique::WhileWaiting), queue: "sync".to_owned(), ..KindSpec::new("t.sync") };
    let sync = Kind::spec(sync).handler(handler(move |_, _| {
        let n = counted.fetch_add(1, Ordering::SeqCst);
        async move {
            sleep(Duration::from_millis(120)).await;
            if n.is_multiple_of(2) { Err(BoxError::from("every second time")) } else { Ok(Verdict::Complete) }
        }
    }));
    let other = Kind::new("t.other").handler(handler(|_, _| async { Ok(Verdict::Complete) }));
    let settings = Settings { beat: Duration::from_millis(100), ..Settings::default() };
    let builder = Bus::builder(db.pool().clone()).kinds([sync, other]).settings(settings).concurrency("sync", 1);
    let bus = builder.build().await.unwrap();
    let running = bus.start().unwrap();
    let door = bus.jobs();
    let (mut fresh, mut others, began) = (0, Vec::new(), Instant::now());
    while began.elapsed() < Duration::from_secs(5) {
        // a duplicate is an answer, never an error
        fresh += usize::from(door.enqueue(None, &[NewJob::new("t.sync", empty())]).await.unwrap().remove(0).fresh);
        others.push(door.enqueue(None, &[NewJob::new("t.other", empty())]).await.unwrap().remove(0).id);
        let waiting = "select (select count(*) from postrider.ready where queue = 'sync')
            + (select count(*) from postrider.later where queue = 'sync') + (select count(*) from postrider.parked where queue = 'sync')";
        // one that fails while a producer has not committed yet stands beside that producer's until the next of them starts
        assert!(number(db.pool(), waiting).await <= 2);
        sleep(Duration::from_millis(20)).await;
    }
    let inspector = bus.inspector();
    for id in &others {
        until("others are not affected", SOON, async || {
            inspector.job(id).await.unwrap().filter(|view| view.state == State::Completed)
        })
        .await;
    }
    until("nothing is left of it", SOON, async || {
        (number(db.pool(), "select count(*) - (select count(*) from postrider.done) from postrider.job").await == 0)
            .then_some(())
    })
    .await;
    assert!(fresh > 10 && runs.load(Ordering::SeqCst) > 10, "{fresh} fresh, {runs:?} runs");
    let ended = "select count(*) from postrider.done d join postrider.job j on j.class = d.class and j.id = d.id
        where j.kind = 't.sync' and d.state <> 2 and not (d.state = 4 and d.reason like 'overtaken%')";
    assert_eq!(number(db.pool(), ended).await, 0, "each completed, or was overtaken by the one that came meanwhile");
    assert!(number(db.pool(), "select count(*) from postrider.done where reason like 'overtaken%'").await > 0);
    assert_eq!(running.stop(SOON).await, Stopped::Drained);
}
