//! Y8: what a huge transaction recorded is turned into jobs slice by slice beside everything else, each once, in the order that a subscription asks for.
#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::indexing_slicing,
    reason = "a test asks the database itself, and a failed helper is a failed test"
)]

use std::time::Duration;

use postrider::{inspect, proof};
use postrider_testkit::{Fixture, TestDb, fixture, until};
use rand::{RngExt, SeedableRng, rngs::StdRng};
use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, Connection as _, PgPool};

const SOON: Duration = Duration::from_mins(2);
/// A pass of ten events; a transaction of more than fifty is huge then.
const MOST: i32 = 10;
const DISORDERED: &str = "select count(*) from (
    select (e.data::text)::int <= lag((e.data::text)::int) over (partition by j.subscription, e.subject order by j.id) as back
      from postrider.job j join postrider.event e on e.seq = j.event_seq
      join postrider.subscription s on s.id = j.subscription and s.order_by is not null) x where back";
/// Pairs of an event and a subscription that want a job and have none, or have two.
const NOT_ONCE: &str = "select count(*) from (
    select e.seq, s.id from postrider.event e join postrider.subscription s
        on exists (select from unnest(s.types) t where e.type ~ postrider.pattern_regex(t)) and not s.coalescing and s.name <> 's.now') want
    left join (select event_seq as seq, subscription as id, count(*) as n from postrider.job group by 1, 2) got using (seq, id)
    where got.n is distinct from 1";
/// Subjects of which the job of a coalescing subscription does not have the latest event.
const NOT_LATEST: &str = "select count(*) from (select subject, max(seq) as seq from postrider.event where type = 'a.x' group by 1) e
    left join (select v.subject, max(v.seq) as seq, count(*) as n from postrider.job j join postrider.event v on v.seq = j.event_seq
                 join postrider.subscription s on s.id = j.subscription and s.coalescing group by 1) j using (subject)
    where j.n is distinct from 1 or j.seq <> e.seq";

async fn number(pool: &PgPool, sql: &str) -> i64 {
    sqlx::query_scalar(AssertSqlSafe(sql.to_owned())).fetch_one(pool).await.unwrap()
}

async fn text(pool: &PgPool, sql: &str) -> String {
    sqlx::query_scalar(AssertSqlSafe(sql.to_owned())).fetch_one(pool).await.unwrap()
}

async fn run(connection: &mut PgConnection, sql: impl Into<String>) {
    sqlx::raw_sql(AssertSqlSafe(sql.into())).execute(connection).await.unwrap();
}

async fn run_on(pool: &PgPool, sql: impl Into<String>) {
    run(&mut pool.acquire().await.unwrap(), sql).await;
}

/// Types a.x and b.x; somebody who takes everything as it comes, somebody in the order of each type, and somebody who wants the latest of a.x.
async fn stage() -> TestDb {
    let db = TestDb::fresh().await;
    let declared = r#"{"app": "x", "types": [{"name": "a.x"}, {"name": "b.x"}], "kinds": [{"name": "t.k"}]}"#;
    run_on(
        db.pool(),
        format!(
            "select postrider.declare('{declared}'); select postrider.put_subscription('s.any', '{{**}}', 't.k');
             select postrider.put_subscription('s.a', '{{a.*}}', 't.k', order_by => 'subject');
             select postrider.put_subscription('s.b', '{{b.*}}', 't.k', order_by => 'subject');
             select postrider.put_subscription('s.latest', '{{a.*}}', 't.k', coalescing => true)"
        ),
    )
    .await;
    db
}

/// Events `first` to `last` of a type, about four subjects by turns, in one transaction.
fn events(kind: &str, first: u32, last: u32) -> String {
    format!(
        "select count(postrider.record('{kind}', '{kind}/' || i % 4, to_json(i))) from generate_series({first}, {last}) i"
    )
}

/// One pass, and one over what starts; with dice some of them are undone. True if there is more.
async fn pass(connection: &mut PgConnection, undone: bool) -> bool {
    let end = if undone { "rollback" } else { "commit" };
    run(connection, "begin").await;
    // a window that is over may have been followed by another one
    let sql = "select more or why <> 'idle', starting from postrider.relay($1)";
    let (more, starting): (bool, bool) = sqlx::query_as(sql).bind(MOST).fetch_one(&mut *connection).await.unwrap();
    run(connection, end).await;
    if starting {
        run(connection, format!("begin; select postrider.hand_over({MOST}); {end}")).await;
    }
    more || starting || undone
}

async fn drain(pool: &PgPool) {
    let mut connection = pool.acquire().await.unwrap();
    while pass(&mut connection, false).await {}
}

async fn wrong(pool: &PgPool) -> Vec<String> {
    let mut wrong = Vec::new();
    for (what, sql) in [("not once", NOT_ONCE), ("disordered", DISORDERED), ("not the latest", NOT_LATEST)] {
        let n = number(pool, sql).await;
        if n > 0 {
            wrong.push(format!("{n} {what}"));
        }
    }
    wrong.extend(proof::verify(pool, None, None).await.unwrap().findings);
    wrong
}

#[tokio::test]
async fn y8_an_event_beside_a_huge_transaction_waits_for_two_passes_at_most_however_large_it_is() {
    for size in [51, 500, 5_000] {
        let db = stage().await;
        let pool = db.pool();
        let mut connection = pool.acquire().await.unwrap();
        // in its window, and after it
        run(&mut connection, events("b.x", 1, 1)).await;
        run(&mut connection, events("a.x", 1, size)).await;
        run(&mut connection, events("b.x", 2, 2)).await;
        let of_b =
            "select count(*) from postrider.job j join postrider.event e on e.seq = j.event_seq where e.type = 'b.x'";
        assert!(pass(&mut connection, false).await);
        assert_eq!(number(pool, of_b).await, 4, "{size}");
        for n in 3..8 {
            run(&mut connection, events("b.x", n, n)).await;
            pass(&mut connection, false).await;
            pass(&mut connection, false).await;
            assert_eq!(number(pool, of_b).await, 2 * i64::from(n), "{size}");
        }
        // of the others nobody is held up, and who keeps an order is told to wait
        let waits = "select coalesce(string_agg(s.name, ' ' order by s.name), '') from postrider.held h
            join postrider.subscription s on s.id = h.subscription join postrider.subscription_start b on b.id = h.start and b.over_at is null";
        if size == 5_000 {
            assert_eq!(text(pool, waits).await, "s.a s.latest");
        }
        let late = postrider::EventId::from_uuid(
            sqlx::query_scalar("select postrider.record('a.x', 'a.x/1', to_json(1000000))")
                .fetch_one(pool)
                .await
                .unwrap(),
        );
        drain(pool).await;
        assert_eq!(text(pool, waits).await, "");
        assert_eq!(wrong(pool).await, Vec::<String>::new(), "{size}");
        // its jobs are told, also that of whoever came behind the huge transaction; the job of the latest was made of an event before it
        let became = proof::await_fanout(pool, late, SOON).await.unwrap().unwrap();
        assert_eq!(became.jobs.len(), 2, "{became:?}");
        assert!(number(pool, "select max(n)::bigint from postrider.cut").await <= i64::from(MOST));
    }
}

#[tokio::test]
async fn y8_a_transaction_that_is_not_huge_is_taken_as_it_comes() {
    let db = stage().await;
    run_on(db.pool(), events("a.x", 1, 50)).await;
    drain(db.pool()).await;
    assert_eq!(number(db.pool(), "select count(*) from postrider.backlog").await, 0);
    run_on(db.pool(), events("a.x", 51, 101)).await;
    drain(db.pool()).await;
    assert_eq!(number(db.pool(), "select count(*) from postrider.backlog").await, 1);
    assert_eq!(wrong(db.pool()).await, Vec::<String>::new());
}

/// Writers that hold their subjects until they end, huge ones among them, and a relay of which passes are undone, all in an order of the dice. Changes of the
/// subscriptions come between.
async fn at_random(pool: &PgPool, seed: u64) -> Vec<String> {
    let mut dice = StdRng::seed_from_u64(seed);
    let mut writers = Vec::new();
    for _ in 0..4 {
        writers.push((pool.acquire().await.unwrap().detach(), Vec::<(usize, u32)>::new(), false));
    }
    let mut relay = pool.acquire().await.unwrap().detach();
    // of each subject the number of its last committed event, and whether somebody holds it
    let mut subjects = [(0_u32, false); 6];
    let mut huge = 0;
    for step in 0..160 {
        let n = dice.random_range(0..writers.len());
        let (writer, holds, open) = &mut writers[n];
        match dice.random_range(0..10) {
            0..4 => {
                let Some(subject) =
                    (0..6).map(|s| (s + step) % 6).find(|s| !subjects[*s].1 || holds.iter().any(|(h, _)| h == s))
                else {
                    continue;
                };
                if !std::mem::replace(open, true) {
                    run(writer, "begin").await;
                }
                if !subjects[subject].1 {
                    subjects[subject].1 = true;
                    holds.push((subject, subjects[subject].0));
                }
                let last = holds.iter_mut().find(|(h, _)| *h == subject).unwrap();
                let many = if huge < 4 && dice.random_bool(0.15) { 70 } else { dice.random_range(1..9) };
                huge += u32::from(many == 70);
                let kind = if subject < 4 { "a.x" } else { "b.x" };
                let (from, to) = (last.1 + 1, last.1 + many);
                last.1 = to;
                run(
                    writer,
                    format!("select count(postrider.record('{kind}', 's/{subject}', to_json(i))) from generate_series({from}, {to}) i"),
                )
                .await;
            }
            4 | 5 => {
                let commits = dice.random_bool(0.8);
                if std::mem::replace(open, false) {
                    run(writer, if commits { "commit" } else { "rollback" }).await;
                }
                for (subject, last) in holds.drain(..) {
                    subjects[subject].1 = false;
                    if commits {
                        subjects[subject].0 = last;
                    }
                }
            }
            6 if step == 80 || dice.random_bool(0.03) => {
                run(&mut relay, "select postrider.put_subscription('s.whole', '{**}', 't.k', order_by => 'subject', start => 'beginning')").await;
            }
            _ => {
                pass(&mut relay, dice.random_bool(0.1)).await;
            }
        }
    }
    for (mut writer, ..) in writers {
        run(&mut writer, "commit").await;
        writer.close().await.unwrap();
    }
    while pass(&mut relay, dice.random_bool(0.1)).await {}
    relay.close().await.unwrap();
    wrong(pool).await
}

#[tokio::test]
async fn y8_in_whatever_order_huge_and_small_transactions_commit_each_job_is_made_once_and_in_its_order() {
    let mut backlogs = 0;
    for seed in 1..=12 {
        let db = stage().await;
        assert_eq!(at_random(db.pool(), seed).await, Vec::<String>::new(), "seed {seed}");
        backlogs += number(db.pool(), "select count(*) from postrider.backlog").await;
    }
    assert!(backlogs > 12, "{backlogs} huge transactions");
}

/// Makes a function of the schema another one.
async fn plant(pool: &PgPool, function: &str, from: &str, to: &str) {
    let sql = format!("select pg_get_functiondef('postrider.{function}'::regproc)");
    let body = text(pool, &sql).await;
    assert!(body.contains(from), "{body}");
    run_on(pool, body.replace(from, to)).await;
}

#[tokio::test]
async fn the_random_orders_find_each_planted_mistake() {
    for (function, from, to, finding) in [
        // whoever keeps an order is not held back
        ("open_backlog", "if concerned <> '{}' then", "if false then", "disordered"),
        // what is new is walked from behind the window on
        (
            "open_backlog",
            "row (last.epoch, last.lo, last.hi, last.more, last.last_seq)",
            "row (last.epoch, null, new.hi, false, null)",
            "not once",
        ),
        // who was walked is taken over while the backlog still brings it everything
        ("hand_over", "not exists (select from postrider.backlog x where x.over_at is null)", "true", "not once"),
        // the window has the huge one as well
        ("next_slice", "w.apart is null", "true", "not once"),
        // a slice begins where the one before did not end
        ("relay_backlog", "seq > b.after", "seq > b.after + 1", "not once"),
    ] {
        let mut found = Vec::new();
        for seed in 1..=12 {
            let db = stage().await;
            plant(db.pool(), function, from, to).await;
            found = at_random(db.pool(), seed).await;
            if found.iter().any(|f| f.contains(finding)) {
                break;
            }
        }
        assert!(found.iter().any(|f| f.contains(finding)), "{function}: {found:?}");
    }
}

#[tokio::test]
async fn y8_a_subscription_that_changes_or_goes_while_it_waits_behind_a_huge_transaction_gets_what_it_asks_for() {
    let db = stage().await;
    let pool = db.pool();
    let mut connection = pool.acquire().await.unwrap();
    run(&mut connection, events("a.x", 1, 400)).await;
    for _ in 0..6 {
        pass(&mut connection, false).await;
    }
    // no order any more: it stays where it is, and gets the rest once
    run(&mut connection, "select postrider.put_subscription('s.a', '{a.*}', 't.k')").await;
    // gone, it gets no more; put again, it gets what comes
    let of = "select count(*) from postrider.job j join postrider.subscription s on s.id = j.subscription where s.name = 's.latest'";
    let id = number(pool, "select id from postrider.subscription where name = 's.latest'").await;
    run(&mut connection, format!("select postrider.drop_subscription({id})")).await;
    let before = number(pool, of).await;
    run(&mut connection, events("a.x", 401, 420)).await;
    for _ in 0..20 {
        pass(&mut connection, false).await;
    }
    assert_eq!(number(pool, of).await, before);
    run(&mut connection, "select postrider.put_subscription('s.latest', '{a.*}', 't.k', coalescing => true)").await;
    run(
        &mut connection,
        "select postrider.put_subscription('s.new', '{a.*}', 't.k', order_by => 'subject', start => 'beginning')",
    )
    .await;
    run(&mut connection, events("a.x", 421, 440)).await;
    drain(pool).await;
    assert_eq!(wrong(pool).await, Vec::<String>::new());
}

#[tokio::test]
async fn y8_a_huge_transaction_is_shown_pins_its_partition_and_a_lost_event_of_it_is_found() {
    let db = stage().await;
    let pool = db.pool();
    let mut connection = pool.acquire().await.unwrap();
    run(&mut connection, events("a.x", 1, 400)).await;
    for _ in 0..6 {
        pass(&mut connection, false).await;
    }
    run_on(pool, "update postrider.backlog set opened_at = opened_at - interval '2 minutes'").await;
    let alert =
        inspect::alerts(pool).await.unwrap().into_iter().find(|alert| alert.name == "huge_transaction").unwrap();
    assert!(alert.says.contains("s.a, s.latest"), "{}", alert.says);
    let first = "select id from postrider.event order by seq limit 1";
    let last = "select id from postrider.event order by seq desc limit 1";
    let state = async |which: &str| text(pool, &format!("select (postrider.await_fanout(({which}))).state")).await;
    // the first one was taken for everybody, the last one for nobody
    assert_eq!((state(first).await.as_str(), state(last).await.as_str()), ("done", "waiting"));
    let refused =
        sqlx::query(AssertSqlSafe(format!("select postrider.erase(({last}), 'too early')"))).execute(pool).await;
    assert!(refused.unwrap_err().to_string().contains("the relay has not come to it yet"));
    drain(pool).await;
    assert_eq!((state(first).await.as_str(), state(last).await.as_str()), ("done", "done"));
    assert_eq!(wrong(pool).await, Vec::<String>::new());
    run_on(pool, format!("select postrider.erase(({first}), 'asked for')")).await;
    assert!(proof::verify(pool, None, None).await.unwrap().is_whole());
    run_on(pool, "delete from postrider.event where seq = (select min(seq) + 200 from postrider.event)").await;
    let found = proof::verify(pool, None, None).await.unwrap();
    assert!(!found.is_whole() && found.missing == 1, "{found:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn y8_y3_relays_that_are_killed_all_the_time_go_on_with_a_huge_transaction_where_they_were() {
    let db = TestDb::fresh().await;
    let pool = db.pool().clone();
    fixture::declare(&pool, &["all.of-it=**", "made.only=order.made"]).await.unwrap();
    run_on(
        &pool,
        "select postrider.put_subscription('in.order', '{order.made}', (select kind from postrider.subscription limit 1), order_by => 'subject')",
    )
    .await;
    run_on(
        &pool,
        "select count(postrider.record('order.made', 's/' || i % 7, to_json(i))) from generate_series(1, 30000) i",
    )
    .await;
    let fixture = Fixture::new(env!("CARGO_BIN_EXE_postrider-fixture"), db.url());
    let mut seen = 0;
    for _ in 0..5 {
        let mut relay = fixture.start(&["relay"]);
        let taken = until("it goes on", SOON, async || {
            let events = number(&pool, "select coalesce(max(events), 0) from postrider.backlog").await;
            (events > seen).then_some(events)
        })
        .await;
        relay.kill().await;
        seen = taken;
    }
    assert!(seen < 30_000, "it was over before it was killed");
    run_on(
        &pool,
        "select count(postrider.record('order.made', 's/' || i % 7, to_json(i))) from generate_series(30001, 30010) i",
    )
    .await;
    let mut relay = fixture.start(&["relay"]);
    until("everything is there", SOON, async || {
        (number(&pool, "select count(*) from postrider.subscription_start where over_at is null").await == 0
            && number(&pool, "select count(*) from postrider.backlog where over_at is null").await == 0
            && number(&pool, "select events_total from postrider.cut order by no desc limit 1").await == 30_010)
            .then_some(())
    })
    .await;
    relay.kill().await;
    let wrong = [NOT_ONCE, DISORDERED].map(str::to_owned);
    for sql in wrong {
        assert_eq!(number(&pool, &sql).await, 0, "{sql}");
    }
    assert_eq!(proof::verify(&pool, None, None).await.unwrap().findings, Vec::<String>::new());
}
