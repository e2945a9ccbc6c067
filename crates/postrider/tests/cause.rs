//! What an event was caused by, the trace that it belongs to, and how long such a chain may become.
#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test asks the database itself")]

use std::sync::Arc;
use std::time::Duration;

use postrider::{
    Bus, Code, Context, Error, EventId, Handler, Job, KindSpec, NewEvent, Payload, Recorder, Retry, Running,
    Subscription, TypedEvent, Verdict, handler,
};
use postrider_testkit::{TestDb, until};
use serde::{Deserialize, Serialize};
use sqlx::PgPool;

const SOON: Duration = Duration::from_mins(1);
const GRACE: Duration = Duration::from_secs(10);
const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Paid {
    order: u64,
    total: u64,
}

impl TypedEvent for Paid {
    const TYPE: &'static str = "order.paid";

    fn subject(&self) -> String {
        format!("order/{}", self.order)
    }
}

/// What stands in the log: type, subject, cause, trace, depth.
type Row = (String, String, Option<uuid::Uuid>, Option<String>, i16);

async fn log(pool: &PgPool) -> Vec<Row> {
    let sql = "select type::text, subject, cause, traceparent, depth from postrider.event order by seq";
    sqlx::query_as(sql).fetch_all(pool).await.unwrap()
}

fn event(kind: &str, subject: &str) -> NewEvent {
    NewEvent::new(kind, subject, Payload::parse("{}").unwrap())
}

async fn at_work(pool: &PgPool, handler: Arc<dyn Handler>) -> (Bus, Running) {
    let kind = KindSpec { max_attempts: 2, retry: Retry::Steps(vec![Duration::ZERO]), ..KindSpec::new("t.paid") };
    let paid = Subscription::new("t.paid", ["order.paid"]).kind(kind).handler(handler);
    let bus = Bus::builder(pool.clone()).types(["order.paid", "order.sent", "row.made"]).subscriptions([paid]);
    let bus = bus.build().await.unwrap();
    let running = bus.start().unwrap();
    (bus, running)
}

async fn effects(pool: PgPool, job: Arc<Job>, cx: Context) -> Result<Verdict, Error> {
    assert_eq!(cx.traceparent(), Some(TRACE));
    assert_eq!(job.event.as_ref().unwrap().decode::<Paid>().unwrap(), Paid { order: 42, total: 10 });
    // in a transaction of its own, with nothing said
    let mut tx = pool.begin().await.unwrap();
    Recorder::new().record(&mut *tx, &event("order.sent", "own")).await?;
    // who names another cause, or another trace, is believed
    let other = NewEvent { cause: Some(EventId::from_uuid(uuid::Uuid::nil())), ..event("order.sent", "other") };
    Recorder::new().record(&mut *tx, &other).await?;
    tx.commit().await.unwrap();
    // in the transaction of the attempt: also plain SQL and triggers
    let mut tx = cx.begin().await?;
    Recorder::new().record(&mut *tx, &event("order.sent", "attempt")).await?;
    sqlx::query("insert into shop values (1)").execute(&mut *tx).await.unwrap();
    tx.commit(None).await?;
    Ok(Verdict::Complete)
}

#[tokio::test]
async fn what_a_handler_records_has_the_event_of_its_job_as_its_cause_and_goes_on_its_trace() {
    let db = TestDb::fresh().await;
    let pool = db.pool().clone();
    for statement in [
        "create table shop (id int)",
        "create function made() returns trigger language plpgsql as
            $$ begin perform postrider.record('row.made', 'shop/' || new.id); return null; end $$",
        "create trigger made after insert on shop for each row execute function made()",
    ] {
        sqlx::query(statement).execute(&pool).await.unwrap();
    }
    let (bus, running) = {
        let pool = pool.clone();
        at_work(
            &pool.clone(),
            handler(move |job, cx| {
                let pool = pool.clone();
                async move { Ok(effects(pool, job, cx).await?) }
            }),
        )
        .await
    };
    let mut tx = pool.begin().await.unwrap();
    let first =
        NewEvent { traceparent: Some(TRACE.to_owned()), ..NewEvent::of(&Paid { order: 42, total: 10 }).unwrap() };
    let first = bus.recorder().record(&mut *tx, &first).await.unwrap().id;
    tx.commit().await.unwrap();
    until("all is recorded", SOON, async || (log(&pool).await.len() == 5).then_some(())).await;
    running.stop(GRACE).await;

    let (first, nil) = (Some(first.as_uuid()), Some(uuid::Uuid::nil()));
    let trace = Some(TRACE.to_owned());
    let row = |kind: &str, subject: &str, cause, trace: &Option<String>, depth| {
        (kind.to_owned(), subject.to_owned(), cause, trace.clone(), depth)
    };
    let expected = [
        row("order.paid", "order/42", None, &trace, 0),
        row("order.sent", "own", first, &trace, 1),
        row("order.sent", "other", nil, &None, 1),
        row("order.sent", "attempt", first, &trace, 1),
        row("row.made", "shop/1", first, &trace, 1),
    ];
    assert_eq!(log(&pool).await, expected);
    // the settings end with their transaction: what the pool's connection does next has no cause
    let mut tx = pool.begin().await.unwrap();
    bus.record(&mut *tx, &Paid { order: 1, total: 1 }).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(log(&pool).await.last().unwrap().2, None);
}

#[tokio::test]
async fn a_loop_of_events_ends_after_32_with_an_error_that_says_so() {
    let db = TestDb::fresh().await;
    let pool = db.pool().clone();
    let (bus, running) = {
        let pool = pool.clone();
        at_work(
            &pool.clone(),
            handler(move |_, _| {
                let pool = pool.clone();
                async move {
                    let mut tx = pool.begin().await?;
                    Recorder::new().record(&mut *tx, &event("order.paid", "again")).await?;
                    tx.commit().await?;
                    Ok(Verdict::Complete)
                }
            }),
        )
        .await
    };
    let mut tx = pool.begin().await.unwrap();
    bus.record(&mut *tx, &Paid { order: 42, total: 10 }).await.unwrap();
    tx.commit().await.unwrap();
    let errors = "select coalesce(array_agg(a.error), '{}')
          from postrider.done d join postrider.attempt a on a.class = d.class and a.id = d.id where d.state <> 1";
    let errors = async || sqlx::query_scalar::<_, Vec<String>>(errors).fetch_one(&pool).await.unwrap();
    until("the last job is given up", SOON, async || (!errors().await.is_empty()).then_some(())).await;
    running.stop(GRACE).await;
    let depths: Vec<i16> = log(&pool).await.iter().map(|row| row.4).collect();
    assert_eq!(depths, (0..=32).collect::<Vec<i16>>());
    for error in errors().await {
        assert!(error.contains("PR009") && error.contains("33 long"), "{error}");
    }
}

#[tokio::test]
async fn the_longest_chain_is_a_setting_and_a_setting_that_is_no_number_is_none() {
    let db = TestDb::fresh().await;
    Bus::builder(db.pool().clone()).types(["order.paid"]).build().await.unwrap();
    for (most, longest) in [("2", 2), ("40", 40), ("0", 32), ("many", 32), ("", 32)] {
        let mut tx = db.pool().begin().await.unwrap();
        sqlx::query("select set_config('postrider.depth_max', $1, true)").bind(most).execute(&mut *tx).await.unwrap();
        let mut last = None;
        for depth in 0..=longest + 1 {
            let new = NewEvent { cause: last, ..event("order.paid", "s") };
            let recorded = Recorder::new().record(&mut *tx, &new).await;
            match recorded {
                Ok(recorded) if depth <= longest => last = Some(recorded.id),
                Err(error) if depth > longest => assert_eq!(error.code(), Some(Code::Depth)),
                other => panic!("{most}, depth {depth}: {other:?}"),
            }
        }
    }
}

#[tokio::test]
async fn a_trace_context_that_is_none_is_dropped_and_counted_and_fails_nobody() {
    let db = TestDb::fresh().await;
    let pool = db.pool();
    Bus::builder(pool.clone()).types(["order.paid"]).build().await.unwrap();
    let upper = TRACE.to_uppercase();
    let long = format!("{TRACE}-what-comes-after");
    let huge = "0".repeat(100_000);
    let bad = [
        "x",
        &upper,
        &long,
        &huge,
        "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0",
        " 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\r\nx: y",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\n",
    ];
    for text in bad {
        let new = NewEvent { traceparent: Some(text.to_owned()), ..event("order.paid", "s") };
        Recorder::new().record(&mut *pool.acquire().await.unwrap(), &new).await.unwrap();
    }
    assert!(log(pool).await.iter().all(|row| row.3.is_none()));
    let dropped: i64 = sqlx::query_scalar("select postrider.dropped_traceparents()").fetch_one(pool).await.unwrap();
    assert_eq!(dropped, i64::try_from(bad.len()).unwrap());
    // a later version of the same form is kept as it came
    let later = TRACE.replacen("00", "cc", 1);
    let new = NewEvent { traceparent: Some(later.clone()), ..event("order.paid", "s") };
    Recorder::new().record(&mut *pool.acquire().await.unwrap(), &new).await.unwrap();
    assert_eq!(log(pool).await.last().unwrap().3.as_deref(), Some(later.as_str()));
}

#[tokio::test]
async fn a_transaction_says_its_cause_and_trace_once_and_both_ways_of_recording_inherit_them() {
    let db = TestDb::fresh().await;
    let pool = db.pool();
    Bus::builder(pool.clone()).types(["order.paid"]).build().await.unwrap();
    let first =
        Recorder::new().record(&mut *pool.acquire().await.unwrap(), &event("order.paid", "first")).await.unwrap().id;
    let mut tx = pool.begin().await.unwrap();
    let say = "select set_config('postrider.cause', $1, true), set_config('postrider.traceparent', $2, true)";
    sqlx::query(say).bind(first.to_string()).bind(TRACE).execute(&mut *tx).await.unwrap();
    for sql in [
        "select postrider.record('order.paid', 'a')",
        r#"select postrider.record_many('[{"type": "order.paid", "subject": "b"}]')"#,
    ] {
        sqlx::query(sql).execute(&mut *tx).await.unwrap();
    }
    Recorder::new().record(&mut *tx, &event("order.paid", "c")).await.unwrap();
    tx.commit().await.unwrap();
    for row in &log(pool).await[1..] {
        assert_eq!((row.2, row.3.as_deref(), row.4), (Some(first.as_uuid()), Some(TRACE), 1), "{row:?}");
    }
    let mut tx = pool.begin().await.unwrap();
    sqlx::query(say).bind("not an id").bind("").execute(&mut *tx).await.unwrap();
    let refused = Recorder::new().record(&mut *tx, &event("order.paid", "d")).await.unwrap_err();
    assert_eq!(refused.code(), Some(Code::Option));
    assert!(refused.to_string().contains("cause"), "{refused}");
}
