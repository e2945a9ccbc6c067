//! Y4, Y10, Y11: which events a subscription gets, in which order its jobs run, how many of a subject make one job, where it begins, and what
//! is left of it when it is removed.
#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test asks the database itself, and a failed helper is a failed test"
)]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use postrider::inspect::{SubscriptionRow, SubscriptionState, subscriptions};
use postrider::{
    Act, Bus, Filter, Kind, KindSpec, NewEvent, Order, OrderBy, Payload, Recorder, Running, Settings, Start, State,
    Subscription, Verdict, handler,
};
use postrider_testkit::{Fixture, TestDb, fixture, until};
use rand::{RngExt, SeedableRng, rngs::StdRng};
use sqlx::{AssertSqlSafe, PgPool, Row};
use tokio::task::JoinSet;
use tokio::time::sleep;

const SOON: Duration = Duration::from_mins(2);
const GRACE: Duration = Duration::from_secs(10);

fn settings() -> Settings {
    Settings { beat: Duration::from_millis(100), ..Settings::default() }
}

async fn number(pool: &PgPool, sql: &str) -> i64 {
    sqlx::query_scalar(AssertSqlSafe(sql)).fetch_one(pool).await.unwrap()
}

async fn run(pool: &PgPool, sql: &str) {
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(pool).await.unwrap();
}

/// A database in which types and a kind are declared, and nobody is at work.
async fn stage() -> TestDb {
    let db = TestDb::fresh().await;
    Bus::builder(db.pool().clone())
        .types(["order.made", "order.paid", "user.left"])
        .kinds([Kind::new("t.k")])
        .build()
        .await
        .unwrap();
    db
}

async fn put(pool: &PgPool, options: &str) -> Result<i64, String> {
    let sql = format!("select postrider.put_subscription({options})");
    let refused = |e: sqlx::Error| {
        let sqlx::Error::Database(e) = e else { panic!("{e:?}") };
        let field = e.downcast_ref::<sqlx::postgres::PgDatabaseError>().column().unwrap_or_default().to_owned();
        format!("{} {field}", e.code().unwrap_or_default())
    };
    sqlx::query_scalar(AssertSqlSafe(sql)).fetch_one(pool).await.map_err(refused)
}

/// Relays until nothing is left, in slices of so many events.
async fn relay(pool: &PgPool, most: i32) {
    loop {
        let row =
            sqlx::query("select more, starting from postrider.relay($1)").bind(most).fetch_one(pool).await.unwrap();
        let (more, starting): (bool, bool) = (row.get(0), row.get(1));
        if starting {
            sqlx::query("select postrider.hand_over($1)::text").bind(most).execute(pool).await.unwrap();
        } else if !more {
            return;
        }
    }
}

/// The events that jobs of a subscription were made of, in the order of the jobs.
async fn got(pool: &PgPool, subscription: &str) -> Vec<String> {
    let sql = "select e.data::text from postrider.job j join postrider.event e on e.seq = j.event_seq
                 join postrider.subscription s on s.id = j.subscription where s.name = $1 order by j.id";
    sqlx::query_scalar(sql).bind(subscription).fetch_all(pool).await.unwrap()
}

async fn got_any_order(pool: &PgPool, subscription: &str) -> Vec<String> {
    let mut found = got(pool, subscription).await;
    found.sort();
    found
}

#[tokio::test]
async fn y4_a_predicate_lets_through_the_events_of_which_it_is_true() {
    let db = stage().await;
    // judged by hand, after the SQL/JSON path language as PostgreSQL documents it, in its lax mode
    let cases = [
        ("$.total > 100", vec![r#"{"total": 101}"#, r#"{"total": 1e3}"#, r#"{"total": [5, 200]}"#]),
        (r#"$.state == "open""#, vec![r#"{"state":"open"}"#]),
        ("exists($.items[*] ? (@.price > 5))", vec![r#"{"items": [{"price": 1}, {"price": 9}]}"#]),
        (r#"$.mail like_regex "@acme\\.com$" flag "i""#, vec![r#"{"mail": "A@ACME.com"}"#]),
        (r#"$subject starts with "order/7" && $type == "order.made""#, vec!["77"]),
        (r#"$owner == "acme""#, vec![r#""of acme""#]),
        ("!exists($.total)", vec!["77", r#""of acme""#, r#"{"state":"open"}"#, r#"{"mail": "A@ACME.com"}"#]),
        ("$ == 77", vec!["77"]),
        (r#"$."a b"."c\"d" == null"#, vec![r#"{"a b": {"c\"d": null}}"#]),
        ("strict $.total.deep > 1", vec![]),
    ];
    for (n, (predicate, _)) in cases.iter().enumerate() {
        let quoted = predicate.replace('\'', "''");
        put(db.pool(), &format!("'s.p{n}', '{{order.*}}', 't.k', predicate => '{quoted}'")).await.unwrap();
    }
    let none = [
        r#"{"total": 100}"#,
        r#"{"total": "101"}"#,
        r#"{"total": null}"#,
        r#"{"state": ["OPEN"]}"#,
        r#"{"items": []}"#,
    ];
    let all: Vec<&str> = cases.iter().flat_map(|(_, theirs)| theirs.iter().copied()).chain(none).collect();
    let mut recorded: Vec<&str> = Vec::new();
    for data in all {
        if !recorded.contains(&data) {
            let owner = if data.contains("acme\"") { "acme" } else { "" };
            let subject = if data == "77" { "order/77" } else { "order/1" };
            let mut event = NewEvent::new("order.made", subject, Payload::parse(data).unwrap());
            event.owner = owner.to_owned();
            let mut tx = db.pool().begin().await.unwrap();
            Recorder::new().record(&mut *tx, &event).await.unwrap();
            tx.commit().await.unwrap();
            recorded.push(data);
        }
    }
    relay(db.pool(), 4).await;
    for (n, (predicate, theirs)) in cases.iter().enumerate() {
        let mut found = got(db.pool(), &format!("s.p{n}")).await;
        // whoever has no total, or no member at all, is told by all that are recorded
        let mut expected: Vec<String> = theirs.iter().map(|data| (*data).to_owned()).collect();
        if predicate.starts_with("!exists") {
            expected = recorded.iter().filter(|data| !data.contains("total")).map(|data| (*data).to_owned()).collect();
        }
        found.sort();
        expected.sort();
        assert_eq!(found, expected, "{predicate}");
    }
}

#[tokio::test]
async fn y4_what_is_wrong_with_a_subscription_is_told_by_its_field_and_nothing_is_written() {
    let db = stage().await;
    for (options, refused) in [
        ("predicate => '$.total >'", "PR005 predicate"),
        ("predicate => '$.total'", "PR005 predicate"),
        ("predicate => '$.items[*] ? (@.price > 5)'", "PR005 predicate"),
        ("predicate => '$.a == $price'", "PR005 predicate"),
        ("predicate => '$.a == $\"typ\"'", "PR005 predicate"),
        ("predicate => '$.a == \"' || repeat('x', 4000) || '\"'", "PR005 predicate"),
        ("predicate => ''", "PR005 predicate"),
        ("order_by => 'key'", "PR005 order_by"),
        ("order_policy => 'skip'", "PR005 order_policy"),
        ("order_by => 'subject', order_policy => 'park'", "PR005 order_policy"),
        ("delay_ms => -1", "PR005 delay_ms"),
        ("start => 'yesterday'", "PR005 start"),
        ("start => '2026-13-01T00:00:00Z'", "PR005 start"),
        ("start => '2999-01-01T00:00:00Z'", "PR005 start"),
        ("owner => E'a\\nb'", "PR001 owner"),
    ] {
        let told = put(db.pool(), &format!("'s.wrong', '{{order.*}}', 't.k', {options}")).await.unwrap_err();
        assert_eq!(told, refused, "{options}");
    }
    assert_eq!(number(db.pool(), "select count(*) from postrider.subscription").await, 0);
    // a text that looks like a variable is none
    put(
        db.pool(),
        r#"'s.right', '{order.*}', 't.k', predicate => '$.a == "$price" || $."$x" == "y$" || $type == "z"'"#,
    )
    .await
    .unwrap();
}

#[tokio::test]
async fn y4_jobs_of_a_subject_run_in_the_order_of_its_events_and_a_failing_one_keeps_only_its_own_subject_waiting() {
    let db = TestDb::fresh().await;
    let ran: Arc<Mutex<Vec<(String, i64)>>> = Arc::default();
    let running = |ran: Arc<Mutex<Vec<(String, i64)>>>| {
        handler(move |job, _| {
            let ran = Arc::clone(&ran);
            async move {
                let event = job.event.as_ref().unwrap();
                let n: i64 = event.data.decode()?;
                if event.subject == "thing/bad" && job.attempt < 3 {
                    return Err("not yet".into());
                }
                ran.lock().unwrap().push((event.subject.clone(), n));
                Ok(Verdict::Complete)
            }
        })
    };
    let spec = |name: &str| KindSpec {
        queue: "same".to_owned(),
        retry: postrider::Retry::Steps(vec![Duration::from_millis(50)]),
        ..KindSpec::new(name)
    };
    let other: Arc<Mutex<Vec<(String, i64)>>> = Arc::default();
    let bus = Bus::builder(db.pool().clone())
        .types(["thing.made"])
        .subscriptions([
            Subscription::new("s.ordered", ["thing.*"])
                .kind(spec("t.ordered"))
                .order_by(OrderBy::Subject)
                .handler(running(Arc::clone(&ran))),
            Subscription::new("s.other", ["thing.*"])
                .kind(spec("t.other"))
                .order_by(OrderBy::Subject)
                .handler(running(Arc::clone(&other))),
        ])
        .settings(settings())
        .build()
        .await
        .unwrap();
    let long = format!("thing/{}", "x".repeat(500));
    let subjects = ["thing/bad", "thing/good", long.as_str()];
    for n in 0..30 {
        let data = Payload::parse(n.to_string()).unwrap();
        let event = NewEvent::new("thing.made", subjects[n % 3], data);
        let mut tx = db.pool().begin().await.unwrap();
        Recorder::new().record(&mut *tx, &event).await.unwrap();
        tx.commit().await.unwrap();
    }
    let at_work = bus.start().unwrap();
    until("all have run", SOON, async || {
        (ran.lock().unwrap().len() == 30 && other.lock().unwrap().len() == 30).then_some(())
    })
    .await;
    at_work.stop(GRACE).await;
    for ran in [ran, other] {
        let ran = ran.lock().unwrap().clone();
        for (n, subject) in subjects.iter().enumerate() {
            let theirs: Vec<i64> = ran.iter().filter(|(s, _)| s == subject).map(|(_, n)| *n).collect();
            let expected: Vec<i64> = (0..10).map(|i| i * 3 + i64::try_from(n).unwrap()).collect();
            assert_eq!(theirs, expected, "{subject}");
        }
        // each failed twice before it ran, and nobody waited for that but those behind it
        let first_bad = ran.iter().position(|(s, _)| s == "thing/bad").unwrap();
        assert!(ran.iter().take(first_bad).filter(|(s, _)| s == "thing/good").count() > 1, "{ran:?}");
    }
    let keys = number(db.pool(), "select max(octet_length(order_key))::bigint from postrider.job").await;
    assert!(keys <= 200, "a key of {keys} bytes");
}

#[tokio::test]
async fn y4_events_of_a_subject_whose_job_waits_make_no_other_one_and_the_latest_takes_its_place() {
    let db = stage().await;
    put(db.pool(), "'s.latest', '{order.*}', 't.k', coalescing => true").await.unwrap();
    put(db.pool(), "'s.late', '{order.*}', 't.k', coalescing => true, delay_ms => 3600000").await.unwrap();
    put(db.pool(), "'s.each', '{order.*}', 't.k'").await.unwrap();
    let record = async |subject: &str, n: u32| {
        run(db.pool(), &format!("select postrider.record('order.made', '{subject}', '{n}')")).await;
    };
    for (subject, n) in [("a", 1), ("b", 2), ("a", 3)] {
        record(subject, n).await;
    }
    relay(db.pool(), 100).await;
    assert_eq!(got_any_order(db.pool(), "s.latest").await, ["2", "3"]);
    for n in [4, 5] {
        record("a", n).await;
        relay(db.pool(), 100).await;
    }
    assert_eq!(got_any_order(db.pool(), "s.latest").await, ["2", "5"]);
    assert_eq!(got_any_order(db.pool(), "s.late").await, ["2", "5"]);
    assert_eq!(got(db.pool(), "s.each").await, ["1", "2", "3", "4", "5"]);
    // of another owner: another subject
    run(db.pool(), "select postrider.record('order.made', 'a', '6', owner => 'acme')").await;
    relay(db.pool(), 100).await;
    assert_eq!(got_any_order(db.pool(), "s.latest").await, ["2", "5", "6"]);
    // once it runs, the next event is another job
    let claimed =
        "select count(*) from postrider.claim('00000000-0000-0000-0000-000000000001', 1, 'default', '{t.k}', 100,
                     array[2::smallint], array[0::smallint], array[0::bigint])";
    assert_eq!(number(db.pool(), claimed).await, 3 + 6);
    record("a", 7).await;
    record("a", 8).await;
    relay(db.pool(), 100).await;
    assert_eq!(got_any_order(db.pool(), "s.latest").await, ["2", "5", "6", "8"]);
}

/// Writers count up their subjects; whoever copies them may pass over a number, never over the last one.
#[tokio::test]
async fn y4_a_subscription_that_coalesces_always_comes_to_the_last_event_of_each_subject() {
    let db = TestDb::fresh().await;
    let seen: Arc<Mutex<BTreeMap<String, i64>>> = Arc::default();
    let runs: Arc<Mutex<usize>> = Arc::default();
    let copying = {
        let (seen, runs) = (Arc::clone(&seen), Arc::clone(&runs));
        handler(move |job, _| {
            let (seen, runs) = (Arc::clone(&seen), Arc::clone(&runs));
            async move {
                let event = job.event.as_ref().unwrap();
                let n: i64 = event.data.decode()?;
                // slower than the writers, so that jobs wait
                sleep(Duration::from_millis(20)).await;
                *runs.lock().unwrap() += 1;
                let mut seen = seen.lock().unwrap();
                let known = seen.entry(event.subject.clone()).or_default();
                *known = n.max(*known);
                Ok(Verdict::Complete)
            }
        })
    };
    let slow = || KindSpec { queue: "s.copies".to_owned(), ..KindSpec::new("s.copy") };
    let bus = || async {
        let copies = Subscription::new("s.copy", ["thing.*"]).kind(slow()).coalescing().handler(Arc::clone(&copying));
        Bus::builder(db.pool().clone())
            .types(["thing.made"])
            .subscriptions([copies])
            .concurrency("s.copies", 1)
            .settings(settings())
            .build()
            .await
            .unwrap()
    };
    let at_work: Vec<Running> = vec![bus().await.start().unwrap(), bus().await.start().unwrap()];
    let mut writers = JoinSet::new();
    for writer in 0..4 {
        let pool = db.pool().clone();
        writers.spawn(async move {
            let mut dice = StdRng::seed_from_u64(writer);
            for n in 1..=150_i64 {
                let mut tx = pool.begin().await.unwrap();
                let event =
                    NewEvent::new("thing.made", format!("{writer}/{}", n % 3), Payload::parse(n.to_string()).unwrap());
                Recorder::new().record(&mut *tx, &event).await.unwrap();
                if dice.random_bool(0.2) {
                    sleep(Duration::from_millis(dice.random_range(0..20))).await;
                }
                tx.commit().await.unwrap();
            }
        });
    }
    writers.join_all().await;
    let expected: BTreeMap<String, i64> =
        (0..4).flat_map(|w| [150, 148, 149].map(|n: i64| (format!("{w}/{}", n % 3), n))).collect();
    until("the last of each subject has been seen", SOON, async || (*seen.lock().unwrap() == expected).then_some(()))
        .await;
    for running in at_work {
        running.stop(GRACE).await;
    }
    let runs = *runs.lock().unwrap();
    assert!(runs < 600, "nothing was coalesced: {runs} runs of 600 events");
}

/// Nobody works on the jobs, so that each subject has one, which is to end with the last event of it.
#[tokio::test(flavor = "multi_thread")]
async fn y4_y3_relays_that_are_killed_while_they_coalesce_lose_no_latest_event() {
    let db = TestDb::fresh().await;
    let pool = db.pool().clone();
    fixture::declare(&pool, &["all.of-it=order.made"]).await.unwrap();
    let kind = "(select kind from postrider.subscription limit 1)";
    put(&pool, &format!("'s.latest', '{{order.made}}', {kind}, coalescing => true")).await.unwrap();
    let fixture = Fixture::new(env!("CARGO_BIN_EXE_postrider-fixture"), db.url());
    let over = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let writing = {
        let (pool, over) = (pool.clone(), Arc::clone(&over));
        tokio::spawn(async move {
            while !over.load(std::sync::atomic::Ordering::Relaxed) {
                run(
                    &pool,
                    "select postrider.record('order.made', 's/' || i % 40, to_json(i)) from generate_series(1, 200) i",
                )
                .await;
            }
        })
    };
    let relayed = async || number(&pool, "select events_total from postrider.cut order by no desc limit 1").await;
    for _ in 0..6 {
        let before = relayed().await;
        let mut relay = fixture.start(&["relay"]);
        until("it relays", SOON, async || (relayed().await > before).then_some(())).await;
        relay.kill().await;
    }
    over.store(true, std::sync::atomic::Ordering::Relaxed);
    writing.await.unwrap();
    let mut last = fixture.start(&["relay"]);
    until("all are relayed", SOON, async || {
        (relayed().await == number(&pool, "select count(*) from postrider.event").await).then_some(())
    })
    .await;
    last.kill().await;
    let wrong = "select count(*) from (select subject, max(seq) as seq from postrider.event group by 1) e
        left join (select v.subject, max(v.seq) as seq, count(*) as n from postrider.job j join postrider.event v on v.seq = j.event_seq
                     join postrider.subscription s on s.id = j.subscription and s.coalescing group by 1) j using (subject)
        where j.n is distinct from 1 or j.seq <> e.seq";
    assert_eq!(number(&pool, wrong).await, 0);
    assert_eq!(postrider::proof::verify(&pool, None, None).await.unwrap().findings, Vec::<String>::new());
}

/// Writers that commit late, roll back, and write much at once, while a subscription from the beginning is put.
#[tokio::test]
async fn y10_a_subscription_from_the_beginning_gets_every_event_once_and_each_subjects_in_order() {
    for seed in 0..3 {
        let db = stage().await;
        put(db.pool(), "'s.live', '{order.*}', 't.k'").await.unwrap();
        let mut writers = JoinSet::new();
        for writer in 0..6_u64 {
            let pool = db.pool().clone();
            writers.spawn(async move {
                let mut dice = StdRng::seed_from_u64(seed * 100 + writer);
                for round in 0..40 {
                    let n = if dice.random_bool(0.05) { 300 } else { dice.random_range(1..4) };
                    let mut tx = pool.begin().await.unwrap();
                    let sql = format!(
                        "select postrider.record('order.made', '{writer}', to_json({round} * 1000 + i)) from generate_series(1, {n}) i"
                    );
                    sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut *tx).await.unwrap();
                    sleep(Duration::from_millis(dice.random_range(0..15))).await;
                    if dice.random_bool(0.2) { tx.rollback().await.unwrap() } else { tx.commit().await.unwrap() }
                }
            });
        }
        let relays: Vec<_> = (0..2)
            .map(|_| {
                let pool = db.pool().clone();
                tokio::task::spawn(async move {
                    loop {
                        let sql = "select starting from postrider.relay(60)";
                        if sqlx::query_scalar::<_, bool>(sql).fetch_one(&pool).await.unwrap() {
                            sqlx::query("select postrider.hand_over(60)::text").execute(&pool).await.unwrap();
                        }
                        sleep(Duration::from_millis(2)).await;
                    }
                })
            })
            .collect();
        until("something was relayed", SOON, async || {
            (number(db.pool(), "select count(*) from postrider.job").await > 200).then_some(())
        })
        .await;
        put(db.pool(), "'s.whole', '{order.*}', 't.k', start => 'beginning'").await.unwrap();
        put(db.pool(), "'s.too', '{**}', 't.k', start => 'beginning', predicate => '$ > 20000'").await.unwrap();
        writers.join_all().await;
        until("nobody starts any more", SOON, async || {
            (number(db.pool(), "select count(*) from postrider.subscription_start where over_at is null").await == 0)
                .then_some(())
        })
        .await;
        relays.iter().for_each(tokio::task::JoinHandle::abort);
        for relay in relays {
            let _ = relay.await;
        }
        relay(db.pool(), 500).await;
        let wrong = |name: &str, which: &str| {
            format!(
                "select count(*) from (
                    select e.seq from postrider.event e left join (
                        select j.event_seq from postrider.job j join postrider.subscription s on s.id = j.subscription and s.name = '{name}') j
                      on j.event_seq = e.seq where {which} group by e.seq having count(j.event_seq) <> 1) x"
            )
        };
        assert_eq!(number(db.pool(), &wrong("s.live", "true")).await, 0, "seed {seed}");
        assert_eq!(number(db.pool(), &wrong("s.whole", "true")).await, 0, "seed {seed}");
        assert_eq!(number(db.pool(), &wrong("s.too", "e.data::text::int > 20000")).await, 0, "seed {seed}");
        let disordered = "select count(*) from (
            select e.seq < lag(e.seq) over (partition by j.subscription, e.subject order by j.id) as back
              from postrider.job j join postrider.event e on e.seq = j.event_seq) x where back";
        assert_eq!(number(db.pool(), disordered).await, 0, "seed {seed}");
        let jobs = number(db.pool(), "select count(*) from postrider.job").await;
        let events = number(db.pool(), "select count(*) from postrider.event").await;
        assert!(jobs > events * 2, "{jobs} jobs of {events} events");
    }
}

#[tokio::test]
async fn y10_a_subscription_that_begins_inside_a_window_that_is_being_relayed_gets_it_whole() {
    let db = stage().await;
    put(db.pool(), "'s.live', '{order.*}', 't.k'").await.unwrap();
    // none of them is huge
    for first in [1, 251] {
        let events = format!(
            "select postrider.record('order.made', 'a', to_json(i)) from generate_series({first}, {first} + 249) i"
        );
        run(db.pool(), &events).await;
    }
    for _ in 0..3 {
        run(db.pool(), "select postrider.relay(60)").await;
    }
    assert_eq!(got(db.pool(), "s.live").await.len(), 180);
    put(db.pool(), "'s.whole', '{order.*}', 't.k', start => 'beginning'").await.unwrap();
    put(db.pool(), "'s.now', '{order.*}', 't.k'").await.unwrap();
    relay(db.pool(), 60).await;
    let all: Vec<String> = (1..=500).map(|n| n.to_string()).collect();
    assert_eq!(got(db.pool(), "s.live").await, all);
    assert_eq!(got(db.pool(), "s.whole").await, all);
    assert_eq!(got(db.pool(), "s.now").await, all[180..]);
}

#[tokio::test]
async fn y10_a_subscription_begins_at_a_time_and_shows_that_it_is_starting() {
    let db = stage().await;
    run(db.pool(), "select postrider.record('order.made', 'a', to_json(i)) from generate_series(1, 20) i").await;
    relay(db.pool(), 100).await;
    let since: String =
        sqlx::query_scalar("select to_char(clock_timestamp() at time zone 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"')")
            .fetch_one(db.pool())
            .await
            .unwrap();
    run(db.pool(), "select postrider.record('order.made', 'a', to_json(i)) from generate_series(21, 300) i").await;
    relay(db.pool(), 100).await;
    put(db.pool(), &format!("'s.since', '{{order.*}}', 't.k', start => '{since}'")).await.unwrap();
    run(db.pool(), "select postrider.hand_over(50)").await;
    let rows = subscriptions(db.pool(), None).await.unwrap();
    assert_eq!((rows[0].state, rows[0].started_events), (SubscriptionState::Starting, Some(80)));
    // until then retention lets none of them go, and says for whom
    let pinned = async || -> String {
        let sql = "select coalesce(postrider.event_pinned_by(0), 'nobody')";
        sqlx::query_scalar(sql).fetch_one(db.pool()).await.unwrap()
    };
    assert_eq!(pinned().await, "events that are to be walked for the new subscription s.since");
    relay(db.pool(), 100).await;
    assert!(!pinned().await.contains("s.since"));
    assert_eq!(got(db.pool(), "s.since").await, (21..=300).map(|n| n.to_string()).collect::<Vec<_>>());
    assert_eq!(subscriptions(db.pool(), None).await.unwrap()[0].state, SubscriptionState::Active);
    // it is not new any more: declared again, it does not begin again
    put(db.pool(), "'s.since', '{order.*}', 't.k', start => 'beginning'").await.unwrap();
    relay(db.pool(), 100).await;
    assert_eq!(got(db.pool(), "s.since").await.len(), 280);
}

#[tokio::test]
async fn y10_a_bus_that_declares_a_subscription_from_the_beginning_works_off_what_was_there() {
    let db = TestDb::fresh().await;
    let bus = |subscription: Option<Subscription>| {
        Bus::builder(db.pool().clone()).types(["thing.made"]).subscriptions(subscription).settings(settings()).build()
    };
    let first = bus(None).await.unwrap().start().unwrap();
    run(db.pool(), "select postrider.record('thing.made', 'a', to_json(i)) from generate_series(1, 7000) i").await;
    until("all are relayed", SOON, async || {
        (number(db.pool(), "select events_total from postrider.cut order by no desc limit 1").await == 7_000)
            .then_some(())
    })
    .await;
    first.stop(GRACE).await;
    let sum: Arc<Mutex<(i64, i64)>> = Arc::default();
    let summing = {
        let sum = Arc::clone(&sum);
        handler(move |job, _| {
            let sum = Arc::clone(&sum);
            async move {
                let n: i64 = job.event.as_ref().unwrap().data.decode()?;
                let mut sum = sum.lock().unwrap();
                *sum = (sum.0 + 1, sum.1 + n);
                Ok(Verdict::Complete)
            }
        })
    };
    let all = Subscription::new("s.sum", ["thing.*"]).start(Start::Beginning).handler(summing);
    let second = bus(Some(all)).await.unwrap().start().unwrap();
    until("all were summed up", SOON, async || (sum.lock().unwrap().0 == 7_000).then_some(())).await;
    second.stop(GRACE).await;
    // Gauss
    assert_eq!(*sum.lock().unwrap(), (7_000, 24_503_500));
}

#[tokio::test]
async fn y11_what_waits_of_a_removed_subscription_is_shown_and_can_be_cancelled() {
    let db = stage().await;
    let bus = Bus::builder(db.pool().clone()).kinds([Kind::new("t.k")]).build().await.unwrap();
    let id = put(db.pool(), "'s.gone', '{order.*}', 't.k'").await.unwrap();
    put(db.pool(), "'s.here', '{order.*}', 't.k'").await.unwrap();
    run(db.pool(), "select postrider.record('order.made', 'a', to_json(i)) from generate_series(1, 5) i").await;
    relay(db.pool(), 100).await;
    assert_eq!(number(db.pool(), &format!("select postrider.drop_subscription({id})::int::bigint")).await, 1);
    assert_eq!(number(db.pool(), &format!("select postrider.drop_subscription({id})::int::bigint")).await, 0);
    run(db.pool(), "select postrider.record('order.made', 'a', '6')").await;
    relay(db.pool(), 100).await;
    let states: Vec<(String, SubscriptionState)> =
        subscriptions(db.pool(), None).await.unwrap().into_iter().map(|s| (s.name, s.state)).collect();
    assert_eq!(
        states,
        [("s.gone".to_owned(), SubscriptionState::Removed), ("s.here".to_owned(), SubscriptionState::Active)]
    );
    let of =
        |name: &str| Filter { subscription: Some(name.to_owned()), states: vec![State::Pending], ..Filter::default() };
    let count = async |name: &str| bus.jobs().plan(Act::Cancel, &of(name)).await.unwrap().count;
    assert_eq!((count("s.gone").await, count("s.here").await, count("s.never").await), (5, 6, 0));
    let plan = bus.jobs().plan(Act::Cancel, &of("s.gone")).await.unwrap();
    assert_eq!(bus.jobs().step(&plan, None).await.unwrap().done, 5);
    assert_eq!((count("s.gone").await, count("s.here").await), (0, 6));
    // put again, it is the same one, and gets what is recorded from then on
    assert_eq!(put(db.pool(), "'s.gone', '{order.*}', 't.k'").await.unwrap(), id);
    run(db.pool(), "select postrider.record('order.made', 'a', '7')").await;
    relay(db.pool(), 100).await;
    assert_eq!((count("s.gone").await, count("s.here").await), (1, 7));
}

#[tokio::test]
async fn y11_a_subscription_that_nobody_declares_for_a_week_is_shown_as_orphaned_while_no_worker_of_its_application_lives()
 {
    let db = TestDb::fresh().await;
    let bus = Bus::builder(db.pool().clone())
        .app("shop")
        .types(["thing.made"])
        .subscriptions([Subscription::new("s.ours", ["thing.*"]).order_by(OrderBy::All).predicate("$.a > 1")])
        .settings(settings())
        .build()
        .await
        .unwrap();
    put(db.pool(), "'s.hand', '{thing.*}', 's.ours'").await.unwrap();
    let state = async || subscriptions(db.pool(), None).await.unwrap().into_iter().map(|s| s.state).collect::<Vec<_>>();
    assert_eq!(state().await, [SubscriptionState::Active; 2]);
    run(db.pool(), "update postrider.subscription set seen_at = seen_at - interval '8 days'").await;
    assert_eq!(state().await, [SubscriptionState::Active, SubscriptionState::Orphaned]);
    let running = bus.start().unwrap();
    until("its worker is seen", SOON, async || (state().await == [SubscriptionState::Active; 2]).then_some(())).await;
    running.stop(GRACE).await;
    assert_eq!(state().await, [SubscriptionState::Active, SubscriptionState::Orphaned]);
    let rows: Vec<SubscriptionRow> = subscriptions(db.pool(), Some("s.hand")).await.unwrap();
    assert_eq!(rows.len(), 1);
    assert_eq!(
        (
            rows[0].name.as_str(),
            rows[0].order_by.as_deref(),
            rows[0].predicate.as_deref(),
            rows[0].declared_by.as_str()
        ),
        ("s.ours", Some("all"), Some(r#"($."a" > 1)"#), "shop")
    );
}

#[tokio::test]
async fn y4_two_processes_that_declare_a_subscription_in_two_ways_with_one_generation_are_told() {
    let db = TestDb::fresh().await;
    let build = |subscription: Subscription| {
        Bus::builder(db.pool().clone()).types(["thing.made"]).subscriptions([subscription]).build()
    };
    let plain = || Subscription::new("s.one", ["thing.*"]);
    build(plain().predicate("$.a>1")).await.unwrap();
    // the same, written in another way; where it begins matters only once
    build(plain().predicate("$.a  >  1").start(Start::Beginning)).await.unwrap();
    for other in [
        plain(),
        plain().predicate("$.a > 2"),
        plain().predicate("$.a > 1").coalescing(),
        plain().predicate("$.a > 1").order_by(OrderBy::All),
        plain().predicate("$.a > 1").delay(Duration::from_secs(1)),
    ] {
        let error = build(other.clone()).await.unwrap_err();
        assert!(error.to_string().contains("generation"), "{other:?}: {error}");
    }
    let mut spec = postrider::SubscriptionSpec::new("s.two", ["thing.*"]);
    spec.order = Some(Order::Skip);
    let error = build(Subscription::spec(spec)).await.unwrap_err();
    assert!(format!("{error:?}").contains("order_policy"), "{error:?}");
}

#[tokio::test]
async fn y4_an_event_finds_its_subscriptions_among_ten_thousand_without_looking_at_them() {
    let db = stage().await;
    put(db.pool(), "'s.all', '{**}', 't.k', order_by => 'subject', predicate => '$ > 0'").await.unwrap();
    run(
        db.pool(),
        "insert into postrider.subscription (name, owner, types, kind, declared_by)
         select 's.o' || i, 'owner-' || i, '{order.*}', 't.k', '' from generate_series(1, 10000) i;
         insert into postrider.subscription (name, types, kind, declared_by, predicate)
         select 's.u' || i, '{user.*}', 't.k', '', '$ > 0' from generate_series(1, 1000) i;
         select postrider.compile_routes(array(select id from postrider.subscription), '{}');
         select postrider.record('order.made', 'a', '7', owner => 'owner-77')",
    )
    .await;
    let mut connection = db.pool().acquire().await.unwrap();
    // as the functions that ask it pin it
    sqlx::raw_sql(
        "set enable_seqscan = off; set enable_bitmapscan = off; set enable_hashjoin = off; set enable_mergejoin = off;
         set plan_cache_mode = force_generic_plan;
         prepare m (bigint[], text[], text[]) as select * from postrider.matches(now(), $1, $2, $3, null)",
    )
    .execute(&mut *connection)
    .await
    .unwrap();
    let execute: String = sqlx::query_scalar(
        "select format('explain (analyze, buffers, timing off, format json) execute m (%L, %L, %L)', array[seq], array[type], array[owner])
           from postrider.event",
    )
    .fetch_one(&mut *connection)
    .await
    .unwrap();
    let row = sqlx::raw_sql(AssertSqlSafe(execute)).fetch_one(&mut *connection).await.unwrap();
    let plan: serde_json::Value = serde_json::from_str(row.try_get_raw(0).unwrap().as_str().unwrap()).unwrap();
    let plan = &plan[0]["Plan"];
    assert_eq!(plan["Actual Rows"].as_f64(), Some(2.0), "{plan:#}");
    let pages = plan["Shared Hit Blocks"].as_u64().unwrap() + plan["Shared Read Blocks"].as_u64().unwrap();
    assert!(pages < 60, "{pages} pages of 11 001 subscriptions: {plan:#}");
}
