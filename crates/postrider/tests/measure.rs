//! What a process measures of itself is what it did, on a real Postgres.
#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test looks at a clock of its own")]
#![expect(clippy::float_cmp, reason = "whole numbers are told as they are")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use postrider::{
    Bus, Histogram, Kind, KindSpec, Measured, NewEvent, NewJob, Payload, Retry, Settings, Subscription, Verdict,
    handler,
};
use postrider_testkit::{TestDb, until};
use tokio::sync::Semaphore;

const MS: fn(u64) -> Duration = Duration::from_millis;
const GRACE: Duration = Duration::from_secs(10);
const SOON: Duration = Duration::from_mins(1);

const CALLS: &str = "messaging.client.operation.duration";
const PROCESS: &str = "messaging.process.duration";
const WAIT: &str = "postrider.job.wait.duration";

fn fast() -> Settings {
    Settings { beat: MS(100), dead_after: Duration::from_secs(2), ..Settings::default() }
}

fn quick(name: &str) -> KindSpec {
    KindSpec { retry: Retry::Steps(vec![MS(10)]), max_attempts: 1, ..KindSpec::new(name) }
}

fn empty() -> Payload {
    Payload::parse("{}").unwrap()
}

async fn enqueue(bus: &Bus, kind: &str, jobs: usize) {
    let jobs: Vec<NewJob> = (0..jobs).map(|_| NewJob::new(kind, empty())).collect();
    bus.jobs().enqueue(None, &jobs).await.unwrap();
}

/// The one series of this name with these attributes.
fn value(bus: &Bus, name: &str, attributes: &[(&str, &str)]) -> Measured {
    let mut found = bus.metrics().into_iter().filter(|metric| metric.name == name && metric.attributes == attributes);
    let (first, second) = (found.next(), found.next());
    assert_eq!(second, None, "{name} {attributes:?}");
    first.unwrap_or_else(|| panic!("no {name} {attributes:?}")).value
}

fn histogram(bus: &Bus, name: &str, attributes: &[(&str, &str)]) -> Histogram {
    let Measured::Histogram(histogram) = value(bus, name, attributes) else { panic!("{name} is no histogram") };
    histogram
}

fn gauge(bus: &Bus, name: &str) -> f64 {
    let Measured::Gauge(gauge) = value(bus, name, &[]) else { panic!("{name} is no gauge") };
    gauge
}

fn counter(bus: &Bus, name: &str, attributes: &[(&str, &str)]) -> u64 {
    let Measured::Counter(n) = value(bus, name, attributes) else { panic!("{name} is no counter") };
    n
}

fn processed(bus: &Bus, error: Option<&str>) -> Histogram {
    let attributes = [Some(("messaging.operation.name", "process")), error.map(|error| ("error.type", error))];
    histogram(bus, PROCESS, &attributes.into_iter().flatten().collect::<Vec<_>>())
}

fn calls(bus: &Bus, operation: &str) -> (Histogram, Histogram) {
    let name = ("messaging.operation.name", operation);
    (histogram(bus, CALLS, &[name]), histogram(bus, CALLS, &[name, ("error.type", "_OTHER")]))
}

/// How many are in buckets whose upper bound is not above this one.
fn up_to(histogram: &Histogram, bound: f64) -> u64 {
    histogram.bounds.iter().zip(&histogram.counts).filter(|(upper, _)| **upper <= bound).map(|(_, n)| n).sum()
}

#[tokio::test]
async fn the_attempts_of_a_run_are_counted_and_timed_by_how_they_ended() {
    let db = TestDb::fresh().await;
    let ends = |name: &str, verdict: fn() -> Verdict| {
        Kind::spec(quick(name)).handler(handler(move |_, _| async move { Ok(verdict()) }))
    };
    let slow = handler(|_, _| async {
        tokio::time::sleep(MS(60)).await;
        Ok(Verdict::Complete)
    });
    let fails_once = handler(|job, _| async move {
        if job.attempt == 1 { Err("the first one fails".into()) } else { Ok(Verdict::Complete) }
    });
    let endless = handler(|_, _| std::future::pending());
    let kinds = [
        Kind::spec(quick("t.slow")).handler(slow),
        Kind::spec(KindSpec { max_attempts: 3, ..quick("t.fails") }).handler(fails_once),
        Kind::spec(quick("t.panics")).handler(handler(|_, _| async { panic!("as told") })),
        Kind::spec(KindSpec { timeout: MS(300), ..quick("t.endless") }).handler(endless),
        ends("t.asks", || Verdict::Retry { reason: "as told".into(), after: Duration::ZERO }),
        ends("t.gives_up", || Verdict::Discard("as told".into())),
        Kind::spec(KindSpec { max_age: Duration::from_secs(1), ..quick("t.old") })
            .handler(handler(|_, _| async { Ok(Verdict::Snooze(Duration::from_hours(1))) })),
    ];
    let bus = Bus::builder(db.pool().clone()).kinds(kinds).settings(fast()).build().await.unwrap();
    let counts = [
        ("t.slow", 4),
        ("t.fails", 3),
        ("t.panics", 2),
        ("t.endless", 1),
        ("t.asks", 5),
        ("t.gives_up", 6),
        ("t.old", 7),
    ];
    for (kind, jobs) in counts {
        enqueue(&bus, kind, jobs).await;
    }
    let began = Instant::now();
    let running = bus.start().unwrap();
    // 4 slow ones and 3 that succeed at the second time; 2 + 1 + 5 + 6 + 7 that are over at once
    until("all have ended", SOON, async || {
        let figures = bus.figures();
        (figures.completed == 7 && figures.discarded == 21).then_some(())
    })
    .await;
    running.stop(GRACE).await;
    let all = began.elapsed().as_secs_f64();

    let well = processed(&bus, None);
    assert_eq!(well.count(), 7);
    // the slow ones take longer than the bound of 50 ms; the others hardly all of them
    assert!(well.count() - up_to(&well, 0.05) >= 4, "{well:?}");
    assert!((0.24..7.0 * all).contains(&well.sum), "{well:?}");
    let failed = ["error", "panic", "timeout", "stopped", "retry", "discard", "max_age"];
    let failed = failed.map(|error| processed(&bus, Some(error)));
    assert_eq!(failed.each_ref().map(Histogram::count), [3, 2, 1, 0, 5, 6, 7]);
    let late = &failed[2];
    assert!((0.3..all).contains(&late.sum) && up_to(late, 0.25) == 0, "{late:?}");
    // each job once, though three of them had two attempts
    assert_eq!(histogram(&bus, WAIT, &[]).count(), 28);
    assert_eq!(counter(&bus, "postrider.attempt.outcomes", &[("outcome", "completed")]), 7);
    assert_eq!(counter(&bus, "postrider.attempt.outcomes", &[("outcome", "retried")]), 3);
    assert_eq!(counter(&bus, "postrider.attempt.outcomes", &[("outcome", "discarded")]), 21);
}

#[tokio::test]
async fn a_wait_lasts_from_when_a_job_is_due_until_its_handler_begins() {
    let db = TestDb::fresh().await;
    let started = Arc::new(Semaphore::new(0));
    let kind = Kind::spec(quick("t.waits")).handler(handler({
        let started = Arc::clone(&started);
        move |_, _| {
            started.add_permits(1);
            async { Ok(Verdict::Complete) }
        }
    }));
    let bus = Bus::builder(db.pool().clone()).kinds([kind]).settings(fast()).build().await.unwrap();
    let before = Instant::now();
    enqueue(&bus, "t.waits", 3).await;
    let enqueued = Instant::now();
    tokio::time::sleep(MS(800)).await;
    let least = enqueued.elapsed();
    let running = bus.start().unwrap();
    let _all = started.acquire_many(3).await.unwrap();
    let most = before.elapsed();
    running.stop(GRACE).await;
    let waits = histogram(&bus, WAIT, &[]);
    assert_eq!((waits.count(), up_to(&waits, 0.75)), (3, 0), "{waits:?}");
    // two clocks: that of the machine may be set while the other one goes on
    let slack = 0.02;
    let sane = 3.0 * least.as_secs_f64() - slack..3.0 * most.as_secs_f64() + slack;
    assert!(sane.contains(&waits.sum), "{} is not in {sane:?}", waits.sum);
}

#[tokio::test]
async fn the_wait_of_a_job_goes_on_while_it_stands_in_a_line_behind_another_one() {
    let db = TestDb::fresh().await;
    let gate = Arc::new(Semaphore::new(0));
    let kind = Kind::spec(quick("t.line")).handler(handler({
        let gate = Arc::clone(&gate);
        move |job, _| {
            let (gate, stands) = (Arc::clone(&gate), job.args.as_str() == "[]");
            async move {
                if stands {
                    let _ = gate.acquire().await?;
                }
                Ok(Verdict::Complete)
            }
        }
    }));
    let bus = Bus::builder(db.pool().clone()).kinds([kind]).settings(fast()).build().await.unwrap();
    let job = |args| NewJob { order_key: Some("one".into()), ..NewJob::new("t.line", Payload::parse(args).unwrap()) };
    // one after the other goes so quickly that more and more are taken at once
    bus.jobs().enqueue(None, &vec![job("{}"); 40]).await.unwrap();
    let running = bus.start().unwrap();
    until("all are done", SOON, async || (bus.figures().completed == 40).then_some(())).await;
    let before = histogram(&bus, WAIT, &[]);
    bus.jobs().enqueue(None, &[job("[]"), job("{}")]).await.unwrap();
    until("both are here", SOON, async || (bus.figures().claimed >= 42).then_some(())).await;
    tokio::time::sleep(MS(600)).await;
    gate.add_permits(1);
    until("both are done", SOON, async || (bus.figures().completed == 42).then_some(())).await;
    running.stop(GRACE).await;
    let waits = histogram(&bus, WAIT, &[]);
    assert_eq!((before.count(), waits.count()), (40, 42));
    assert!(waits.sum - before.sum >= 0.6, "{waits:?}");
}

#[tokio::test]
async fn the_calls_that_bring_and_end_jobs_are_counted_and_timed() {
    let db = TestDb::fresh().await;
    let done = Subscription::new("s.done", ["a.**"]).handler(handler(|_, _| async { Ok(Verdict::Complete) }));
    let bus =
        Bus::builder(db.pool().clone()).types(["a.b"]).subscriptions([done]).settings(fast()).build().await.unwrap();
    let mut tx = db.pool().begin().await.unwrap();
    bus.recorder().record(&mut *tx, &NewEvent::new("a.b", "s", empty())).await.unwrap();
    tx.commit().await.unwrap();
    let began = Instant::now();
    let running = bus.start().unwrap();
    until("it is done", SOON, async || (bus.figures().completed == 1).then_some(())).await;
    running.stop(GRACE).await;
    let all = began.elapsed().as_secs_f64();
    for operation in ["claim", "finish", "relay"] {
        let (answered, failed) = calls(&bus, operation);
        assert!(answered.count() >= 1 && answered.sum > 0.0 && answered.sum < all, "{operation}: {answered:?}");
        assert_eq!((failed.count(), failed.sum), (0, 0.0), "{operation}");
    }
    assert_eq!(calls(&bus, "finish").0.count(), 1, "there was one outcome");
    assert_eq!(counter(&bus, "postrider.flushes", &[]), 1);
    assert_eq!(counter(&bus, "postrider.relay.events", &[]), 1);
    assert_eq!(counter(&bus, "messaging.client.sent.messages", &[("messaging.operation.name", "relay")]), 1);
    assert_eq!(counter(&bus, "messaging.client.consumed.messages", &[("messaging.operation.name", "claim")]), 1);
}

#[tokio::test]
async fn a_call_that_fails_is_counted_apart() {
    let db = TestDb::fresh().await;
    let kind = Kind::spec(quick("t.none")).handler(handler(|_, _| async { Ok(Verdict::Complete) }));
    let bus = Bus::builder(db.pool().clone()).kinds([kind]).settings(fast()).build().await.unwrap();
    sqlx::raw_sql("alter function postrider.claim rename to no_claim").execute(db.pool()).await.unwrap();
    let running = bus.start().unwrap();
    until("claims fail", SOON, async || (calls(&bus, "claim").1.count() >= 2).then_some(())).await;
    assert_eq!(calls(&bus, "claim").0.count(), 0);
    running.stop(GRACE).await;
}

#[tokio::test]
async fn the_gauges_tell_what_runs_and_how_much_may() {
    let db = TestDb::fresh().await;
    let gate = Arc::new(Semaphore::new(0));
    let waiting = |name: &str, queue: &str| {
        let gate = Arc::clone(&gate);
        let spec = KindSpec { queue: queue.to_owned(), ..quick(name) };
        Kind::spec(spec).handler(handler(move |_, _| {
            let gate = Arc::clone(&gate);
            async move {
                gate.acquire().await?.forget();
                Ok(Verdict::Complete)
            }
        }))
    };
    let kinds = [waiting("t.one", "default"), waiting("t.other", "mail")];
    let bus = Bus::builder(db.pool().clone())
        .kinds(kinds)
        .settings(Settings { concurrency: 5, ..fast() })
        .concurrency("mail", 3)
        .build()
        .await
        .unwrap();
    enqueue(&bus, "t.one", 7).await;
    enqueue(&bus, "t.other", 2).await;
    let now = || ["postrider.slots", "postrider.attempt.running"].map(|name| gauge(&bus, name));
    assert_eq!(now(), [0.0, 0.0]);
    let running = bus.start().unwrap();
    // seven wait for five slots; two have three
    until("what may runs", SOON, async || (now() == [8.0, 7.0]).then_some(())).await;
    gate.add_permits(5);
    until("the rest runs", SOON, async || (now() == [8.0, 4.0]).then_some(())).await;
    gate.add_permits(4);
    until("nothing runs", SOON, async || (now() == [8.0, 0.0]).then_some(())).await;
    running.stop(GRACE).await;
    assert_eq!(now(), [0.0, 0.0]);
}

#[tokio::test]
async fn an_attempt_that_is_cut_runs_no_more() {
    let db = TestDb::fresh().await;
    let kind = Kind::spec(quick("t.stays")).handler(handler(|_, _| std::future::pending()));
    let bus = Bus::builder(db.pool().clone()).kinds([kind]).settings(fast()).build().await.unwrap();
    enqueue(&bus, "t.stays", 1).await;
    let running = bus.start().unwrap();
    let runs = || gauge(&bus, "postrider.attempt.running");
    until("it runs", SOON, async || (runs() == 1.0).then_some(())).await;
    drop(running);
    until("it was cut", SOON, async || (runs() == 0.0).then_some(())).await;
    assert_eq!(gauge(&bus, "postrider.slots"), 0.0);
}

#[tokio::test]
async fn the_age_of_the_last_beat_grows_while_none_is_answered() {
    let db = TestDb::fresh().await;
    let bus = Bus::builder(db.pool().clone()).settings(Settings { beat: MS(50), ..fast() }).build().await.unwrap();
    let age = || gauge(&bus, "postrider.beat.age");
    assert_eq!(age(), 0.0);
    let running = bus.start().unwrap();
    let workers = "select count(*) from postrider.worker";
    until("it beats", SOON, async || {
        let here: i64 = sqlx::query_scalar(workers).fetch_one(db.pool()).await.unwrap();
        (here == 1).then_some(())
    })
    .await;
    let mut held = db.pool().begin().await.unwrap();
    sqlx::raw_sql("lock table postrider.worker in access exclusive mode").execute(&mut *held).await.unwrap();
    let locked = Instant::now();
    until("no beat is answered", SOON, async || (age() > 0.4).then_some(())).await;
    // the last one that was answered had been sent before the lock was there
    assert!(age() >= locked.elapsed().as_secs_f64() - 0.01, "{}", age());
    held.rollback().await.unwrap();
    until("a beat is answered", SOON, async || (age() < 0.2).then_some(())).await;
    running.stop(GRACE).await;
    assert_eq!(age(), 0.0, "no more are to come");
}
