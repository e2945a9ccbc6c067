//! Events that are delivered later than they are recorded, and events that are cancelled: B1 and Y4 for them.
#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test asks the database itself, and a failed helper is a failed test"
)]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use postrider::{
    Bus, CancelledEvent, EventId, NewEvent, Payload, Recorder, Settings, Subscription, Timestamp, Verdict, handler,
    proof,
};
use postrider_testkit::{TestDb, until};
use rand::{RngExt, SeedableRng, rngs::StdRng};
use sqlx::{AssertSqlSafe, PgPool};

const SOON: Duration = Duration::from_mins(1);

async fn run(pool: &PgPool, sql: impl Into<String>) {
    sqlx::raw_sql(AssertSqlSafe(sql.into())).execute(pool).await.unwrap();
}

async fn number(pool: &PgPool, sql: &str) -> i64 {
    sqlx::query_scalar(AssertSqlSafe(sql.to_owned())).fetch_one(pool).await.unwrap()
}

async fn text(pool: &PgPool, sql: &str) -> String {
    sqlx::query_scalar(AssertSqlSafe(sql.to_owned())).fetch_one(pool).await.unwrap()
}

async fn stage() -> TestDb {
    let db = TestDb::fresh().await;
    let declared = r#"{"app": "x", "types": [{"name": "a.x"}, {"name": "a.alone"}], "kinds": [{"name": "t.k"}]}"#;
    run(
        db.pool(),
        format!(
            "select postrider.declare('{declared}'); select postrider.put_subscription('s.any', '{{a.x}}', 't.k');
             select postrider.put_subscription('s.order', '{{a.x}}', 't.k', order_by => 'all')"
        ),
    )
    .await;
    db
}

/// Records an event that is due in so many hours; 0 is not delayed.
async fn record(pool: &PgPool, data: u32, hours: u32) -> EventId {
    let sql =
        "select postrider.record('a.x', 's', to_json($1), deliver_at => clock_timestamp() + $2 * interval '1 hour')";
    let query = sqlx::query_scalar(sql).bind(i32::try_from(data).unwrap()).bind(f64::from(hours));
    EventId::from_uuid(query.fetch_one(pool).await.unwrap())
}

/// Lets hours go by.
async fn pass_hours(pool: &PgPool, hours: u32) {
    run(pool, format!("update postrider.event_delay set deliver_at = deliver_at - {hours} * interval '1 hour' where ended_at is null"))
        .await;
}

async fn relay(pool: &PgPool) {
    loop {
        let sql = "select more or why <> 'idle', starting from postrider.relay(10)";
        let (more, starting): (bool, bool) = sqlx::query_as(sql).fetch_one(pool).await.unwrap();
        if starting {
            run(pool, "select postrider.hand_over(10)").await;
        } else if !more {
            return;
        }
    }
}

/// What the jobs of a subscription were made of, in the order of the jobs.
async fn got(pool: &PgPool, subscription: &str) -> String {
    let sql = "select coalesce(string_agg(e.data::text, ' ' order by j.id), '') from postrider.job j
                 join postrider.event e on e.seq = j.event_seq join postrider.subscription s on s.id = j.subscription where s.name = ";
    text(pool, &format!("{sql} '{subscription}'")).await
}

async fn cancel(pool: &PgPool, event: EventId) -> CancelledEvent {
    let mut tx = pool.begin().await.unwrap();
    let answer = Recorder::new().cancel_event(&mut *tx, event, Some("not wanted any more")).await.unwrap();
    tx.commit().await.unwrap();
    answer
}

async fn is_whole(pool: &PgPool) {
    assert_eq!(proof::verify(pool, None, None).await.unwrap().findings, Vec::<String>::new());
}

#[tokio::test]
async fn y4_a_delayed_event_becomes_jobs_when_it_is_due_in_the_order_of_the_times() {
    let db = stage().await;
    let pool = db.pool();
    for (data, hours) in [(1, 3), (2, 0), (3, 1), (4, 2), (5, 0)] {
        record(pool, data, hours).await;
    }
    relay(pool).await;
    assert_eq!(got(pool, "s.order").await, "2 5");
    let sleeps: i64 = sqlx::query_scalar("select retry_in_ms from postrider.relay(10)").fetch_one(pool).await.unwrap();
    assert!((3_500_000..=3_600_001).contains(&sleeps), "{sleeps}");
    pass_hours(pool, 1).await;
    relay(pool).await;
    assert_eq!(got(pool, "s.order").await, "2 5 3");
    let late = record(pool, 6, 0).await;
    pass_hours(pool, 2).await;
    relay(pool).await;
    assert_eq!(got(pool, "s.order").await.split(' ').collect::<Vec<_>>().len(), 6);
    let order = got(pool, "s.order").await;
    assert!(order.find('4').unwrap() < order.find('1').unwrap(), "{order}");
    assert_eq!(got(pool, "s.any").await, order);
    assert_eq!(proof::await_fanout(pool, late, SOON).await.unwrap().unwrap().jobs.len(), 2);
    is_whole(pool).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn y4_a_handler_gets_a_delayed_event_at_its_time_although_nobody_wakes_the_relay() {
    let db = TestDb::fresh().await;
    let pool = db.pool().clone();
    let heard: Arc<Mutex<Vec<u32>>> = Arc::default();
    let hearing = {
        let heard = Arc::clone(&heard);
        handler(move |job, _| {
            let heard = Arc::clone(&heard);
            async move {
                heard.lock().unwrap().push(job.event.as_ref().unwrap().data.decode()?);
                Ok(Verdict::Complete)
            }
        })
    };
    let bus = Bus::builder(pool.clone())
        .types(["a.x"])
        .subscriptions([Subscription::new("s.ear", ["a.x"]).handler(hearing)])
        .settings(Settings::default())
        .build()
        .await
        .unwrap();
    let running = bus.start().unwrap();
    let now: i64 = number(&pool, "select (extract(epoch from clock_timestamp()) * 1000000)::bigint").await;
    let mut event = NewEvent::new("a.x", "s", Payload::parse("1").unwrap());
    event.deliver_at = Some(Timestamp::from_micros(now + 1_500_000));
    let mut tx = pool.begin().await.unwrap();
    let delayed = Recorder::new().record(&mut *tx, &event).await.unwrap().id;
    event.deliver_at = Some(Timestamp::from_micros(now - 1_500_000));
    event.data = Payload::parse("2").unwrap();
    Recorder::new().record(&mut *tx, &event).await.unwrap();
    tx.commit().await.unwrap();
    until("both are heard", SOON, async || (heard.lock().unwrap().len() == 2).then_some(())).await;
    assert_eq!(*heard.lock().unwrap(), [2, 1], "a time that is over means now");
    let waited = "select (extract(epoch from min(j.created_at)) * 1000000)::bigint from postrider.job j join postrider.event e on e.seq = j.event_seq
                   where e.data::text = '1'";
    let late = number(&pool, waited).await - now - 1_500_000;
    assert!((0..5_000_000).contains(&late), "{late} µs after its time");
    assert_eq!(proof::await_fanout(&pool, delayed, SOON).await.unwrap().unwrap().jobs.len(), 1);
    running.stop(SOON).await;
}

#[tokio::test]
async fn b1_an_event_is_cancelled_before_it_is_delivered_or_its_jobs_begin_and_not_after() {
    use CancelledEvent::{Cancelled, Delivered, Unknown};
    let db = stage().await;
    let pool = db.pool();
    // by the transaction that recorded it; and what is undone is not cancelled
    let mut tx = pool.begin().await.unwrap();
    let event = NewEvent::new("a.x", "s", Payload::parse("1").unwrap());
    let own = Recorder::new().record(&mut *tx, &event).await.unwrap().id;
    assert_eq!(Recorder::new().cancel_event(&mut *tx, own, None).await.unwrap(), Cancelled);
    assert_eq!(cancel(pool, own).await, Unknown);
    tx.commit().await.unwrap();
    let (delayed, kept, plain, begun) =
        (record(pool, 2, 1).await, record(pool, 3, 1).await, record(pool, 4, 0).await, record(pool, 5, 0).await);
    let mut tx = pool.begin().await.unwrap();
    assert_eq!(Recorder::new().cancel_event(&mut *tx, kept, None).await.unwrap(), Cancelled);
    tx.rollback().await.unwrap();
    assert_eq!(cancel(pool, delayed).await, Cancelled);
    let mut tx = pool.begin().await.unwrap();
    let early = Recorder::new().cancel_event(&mut *tx, plain, None).await.unwrap_err();
    assert!(early.to_string().contains("the relay has not come to it yet"), "{early}");
    tx.rollback().await.unwrap();
    relay(pool).await;
    assert_eq!(cancel(pool, plain).await, Cancelled);
    assert_eq!(cancel(pool, plain).await, Delivered, "its jobs have ended");
    run(
        pool,
        "select postrider.claim(gen_random_uuid(), 1, 'default', '{t.k}', 1, '{1,2,3,4}', '{0,0,0,0}', '{0,0,0,0}')",
    )
    .await;
    assert_eq!(cancel(pool, begun).await, Delivered);
    let state = "select string_agg(s.name || case when exists (select from postrider.done d where d.id = j.id) then ' ended' else '' end, ', '
                 order by s.name) from postrider.job j join postrider.event e on e.seq = j.event_seq join postrider.subscription s on s.id = j.subscription
                 where e.data::text = '5'";
    assert_eq!(text(pool, state).await, "s.any, s.order", "none of its jobs was touched");
    pass_hours(pool, 2).await;
    relay(pool).await;
    assert_eq!(got(pool, "s.any").await, "4 5 3");
    assert_eq!(cancel(pool, kept).await, Cancelled, "delivered, but nobody has begun");
    assert_eq!(cancel(pool, EventId::from_uuid(uuid::Uuid::now_v7())).await, Unknown);
    let alone = text(pool, "select postrider.record('a.alone', 's')::text").await.parse().unwrap();
    relay(pool).await;
    assert_eq!(cancel(pool, alone).await, Delivered, "nobody asked for it");
    for event in [own, delayed] {
        let became = proof::await_fanout(pool, event, SOON).await.unwrap().unwrap();
        assert!(became.cancelled && became.jobs.is_empty(), "{became:?}");
    }
    is_whole(pool).await;
}

#[tokio::test]
async fn b1_a_job_that_stands_for_later_events_too_is_not_cancelled_with_one_of_them() {
    let db = stage().await;
    let pool = db.pool();
    run(pool, "select postrider.put_subscription('s.latest', '{a.x}', 't.k', coalescing => true)").await;
    let one = record(pool, 1, 0).await;
    relay(pool).await;
    assert_eq!(cancel(pool, one).await, CancelledEvent::Delivered);
    let delayed = record(pool, 2, 1).await;
    assert_eq!(cancel(pool, delayed).await, CancelledEvent::Cancelled);
    let later = record(pool, 3, 1).await;
    relay(pool).await;
    assert_eq!(got(pool, "s.latest").await, "1");
    pass_hours(pool, 1).await;
    relay(pool).await;
    assert_eq!(got(pool, "s.latest").await, "3");
    assert_eq!(cancel(pool, later).await, CancelledEvent::Delivered);
    is_whole(pool).await;
}

#[tokio::test]
async fn b1_whoever_cancels_for_long_holds_up_no_relay_and_nothing_runs_of_what_was_cancelled() {
    for commits in [true, false] {
        let db = stage().await;
        let pool = db.pool();
        let (first, _second) = (record(pool, 1, 1).await, record(pool, 2, 1).await);
        pass_hours(pool, 1).await;
        let mut tx = pool.begin().await.unwrap();
        let answer = Recorder::new().cancel_event(&mut *tx, first, None).await.unwrap();
        assert_eq!(answer, CancelledEvent::Cancelled);
        relay(pool).await;
        assert_eq!(got(pool, "s.any").await, "2");
        if commits {
            tx.commit().await.unwrap();
        } else {
            tx.rollback().await.unwrap();
        }
        relay(pool).await;
        assert_eq!(got(pool, "s.any").await, if commits { "2" } else { "2 1" });
        is_whole(pool).await;
    }
    // and the other way round: who cancels waits for the pass, and is told the truth
    let db = stage().await;
    let pool = db.pool();
    let event = record(pool, 1, 1).await;
    pass_hours(pool, 1).await;
    let mut pass = pool.begin().await.unwrap();
    sqlx::raw_sql("select postrider.relay(10)").execute(&mut *pass).await.unwrap();
    let other = pool.clone();
    let cancelling = tokio::spawn(async move { cancel(&other, event).await });
    until("it waits", SOON, async || {
        (number(
            pool,
            "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'",
        )
        .await
            > 0)
        .then_some(())
    })
    .await;
    pass.commit().await.unwrap();
    let answer = cancelling.await.unwrap();
    let open = number(pool, "select count(*) from postrider.ready").await;
    assert!(answer == CancelledEvent::Cancelled && open == 0, "{answer:?}, {open} jobs wait");
}

#[tokio::test]
async fn e9_a_time_that_is_too_far_ahead_is_refused_with_its_field() {
    let db = stage().await;
    for at in ["clock_timestamp() + interval '367 days'", "'infinity'"] {
        let sql = format!("select postrider.record('a.x', 's', deliver_at => {at})");
        let Err(sqlx::Error::Database(refused)) = sqlx::query(AssertSqlSafe(sql)).execute(db.pool()).await else {
            panic!("it was taken")
        };
        let field = refused.downcast_ref::<sqlx::postgres::PgDatabaseError>().column();
        assert_eq!((refused.code().as_deref(), field), (Some("PR005"), Some("deliver_at")));
    }
    // a time may be given for each of many; what is not over pins its partition
    run(
        db.pool(),
        r#"select postrider.record_many('[{"type": "a.x", "subject": "s", "deliver_at": "2999-01-01T00:00:00Z"}]') limit 0"#,
    )
    .await;
    record(db.pool(), 1, 1).await;
    assert_eq!(text(db.pool(), "select postrider.event_pinned_by(0)").await, "events that are to be delivered later");
}

/// Events that are delayed or not, cancelled or not, beside a subscription that starts, a rebase, and passes that are undone.
async fn at_random(pool: &PgPool, seed: u64) {
    let mut dice = StdRng::seed_from_u64(seed);
    let mut open = Vec::new();
    let mut relay_link = pool.acquire().await.unwrap().detach();
    for step in 0..120_u32 {
        match dice.random_range(0..9) {
            0..3 => open.push(record(pool, step, dice.random_range(0..4)).await),
            3 if !open.is_empty() => {
                let event = open.swap_remove(dice.random_range(0..open.len()));
                let mut tx = pool.begin().await.unwrap();
                let _refused_or_told = Recorder::new().cancel_event(&mut *tx, event, None).await;
                if dice.random_bool(0.8) {
                    // what was refused rolls back
                    let _ended = tx.commit().await;
                }
            }
            4 => pass_hours(pool, 1).await,
            5 if step > 40 => {
                run(pool, "select postrider.put_subscription('s.whole', '{a.x}', 't.k', order_by => 'all', start => 'beginning')").await;
            }
            6 if step > 80 && dice.random_bool(0.2) => {
                run(pool, "update postrider.log_epoch set system_identifier = 7").await;
            }
            _ => {
                let end = if dice.random_bool(0.15) { "rollback" } else { "commit" };
                for what in ["relay", "hand_over"] {
                    let sql = format!("begin; select postrider.{what}(4); {end}");
                    sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut relay_link).await.unwrap();
                }
            }
        }
    }
    pass_hours(pool, 9).await;
    until("all is relayed", SOON, async || {
        relay(pool).await;
        (number(pool, "select count(*) from postrider.event_delay where ended_at is null").await == 0).then_some(())
    })
    .await;
    let wrong = "select count(*) from (
        select e.seq, s.id, case when d.ended_as = 'cancelled' then 0 else 1 end as wanted from postrider.event e cross join postrider.subscription s
          left join postrider.event_delay d using (seq)) want
        left join (select event_seq as seq, subscription as id, count(*) as n from postrider.job group by 1, 2) got using (seq, id)
        where coalesce(got.n, 0) <> wanted";
    assert_eq!(number(pool, wrong).await, 0, "seed {seed}");
    is_whole(pool).await;
}

#[tokio::test]
async fn y4_y10_delayed_and_cancelled_events_come_once_or_not_at_all_beside_everything_else() {
    for seed in 1..=12 {
        at_random(stage().await.pool(), seed).await;
    }
}
