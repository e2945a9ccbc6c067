//! Y9: a log that wakes up in another cluster goes on without loss, whatever its positions mean there.
#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test asks the database itself, and a failed helper is a failed test"
)]

use std::process::Command;
use std::str::FromStr;
use std::time::Duration;

use postrider::inspect;
use postrider::{Bus, Code, Settings, Subscription, proof};
use postrider_testkit::{TestServer, psql, shared_options, until};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
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

/// Events about `key/1` to `key/n`, in one transaction.
fn events(key: &str, n: u32) -> String {
    format!(
        "do $$ begin for i in 1..{n} loop perform postrider.record('t.made', format('{key}/%s', i)); end loop; end $$"
    )
}

/// Transactions that do nothing, so that the numbers of others come to mean something else.
async fn burn(pool: &PgPool, n: u32) {
    run(pool, format!("do $$ begin for i in 1..{n} loop perform pg_current_xact_id(); commit; end loop; end $$")).await;
}

/// A log with everything in it: jobs that are over and gone, a window that is cut in its middle, events that nobody has looked at.
async fn source() -> TestServer {
    let server = TestServer::with(shared_options()).await;
    let pool = server.pool();
    let two = ["s.one", "s.two"].map(|name| Subscription::new(name, ["t.made"]));
    Bus::builder(pool.clone()).types(["t.made"]).subscriptions(two).build().await.unwrap();
    burn(pool, 4_000).await;
    run(pool, events("gone", 100)).await;
    run(pool, "select postrider.relay(1000)").await;
    run(pool, "delete from postrider.ready; delete from postrider.job").await;
    // it is open while the next window is taken, and so of another one than its number says
    let mut late = pool.begin().await.unwrap();
    sqlx::raw_sql(AssertSqlSafe(events("straggler", 5))).execute(&mut *late).await.unwrap();
    run(pool, events("window", 1000)).await;
    run(pool, "select postrider.relay(400)").await;
    late.commit().await.unwrap();
    run(pool, events("fresh", 50)).await;
    server
}

/// Dumps a database and restores it in another cluster.
async fn copy(from: String) -> (TestServer, PgPool) {
    let target = TestServer::with(shared_options()).await;
    run(target.pool(), "create database copy").await;
    let url = in_copy(&target);
    let to = url.clone();
    tokio::task::spawn_blocking(move || {
        let file = std::env::temp_dir().join(format!("postrider-dump-{}", uuid::Uuid::new_v4()));
        let tool = |name| Command::new(psql().with_file_name(name));
        assert!(tool("pg_dump").args(["-Fc", "-f"]).arg(&file).arg(from).status().unwrap().success());
        assert!(tool("pg_restore").args(["--exit-on-error", "-d", &to]).arg(&file).status().unwrap().success());
        std::fs::remove_file(&file).unwrap();
    })
    .await
    .unwrap();
    (target, PgPoolOptions::new().max_connections(10).connect_lazy_with(PgConnectOptions::from_str(&url).unwrap()))
}

fn in_copy(server: &TestServer) -> String {
    server.url().replace("/postrider?", "/copy?")
}

async fn copy_of(source: &TestServer) -> (TestServer, PgPool) {
    copy(source.url().to_owned()).await
}

async fn relay_all(pool: &PgPool, most: i32) {
    loop {
        let sql = "select more from postrider.relay($1)";
        if !sqlx::query_scalar::<_, bool>(sql).bind(most).fetch_one(pool).await.unwrap() {
            break;
        }
    }
}

/// Each event has one job for each subscription, but for those whose jobs were over and gone, which have none.
async fn each_once(pool: &PgPool, all: i64) {
    let sql = "select coalesce(string_agg(format('%s: %s events, %s jobs, %s pairs', key, events, jobs, pairs), '; '), '') from (
        select split_part(e.subject, '/', 1) as key, count(distinct e.seq) as events, count(j.id) as jobs,
               count(distinct (j.event_seq, j.subscription)) filter (where j.id is not null) as pairs
          from postrider.event e left join postrider.job j on j.event_seq = e.seq group by 1) k
      where jobs <> pairs or jobs <> case key when 'gone' then 0 else 2 * events end";
    assert_eq!(text(pool, sql).await, "", "lost or doubled");
    assert_eq!(number(pool, "select count(*) from postrider.event").await, all);
}

#[tokio::test(flavor = "multi_thread")]
async fn y9_a_dump_restored_into_another_cluster_is_rebased_without_loss() {
    let source = source().await;
    let (target, pool) = copy_of(&source).await;
    assert!(
        number(&pool, "select pg_snapshot_xmax(pg_current_snapshot())::text::bigint").await + 2_000
            < number(source.pool(), "select pg_snapshot_xmax(pg_current_snapshot())::text::bigint").await,
        "the numbers of the copy are to come to those of the source later"
    );
    // recorded before anybody notices, one of them by a transaction that goes on for long
    run(&pool, events("unnoticed", 20)).await;
    let mut late = pool.begin().await.unwrap();
    sqlx::raw_sql(AssertSqlSafe(events("late", 3))).execute(&mut *late).await.unwrap();
    let writer = tokio::spawn({
        let pool = pool.clone();
        async move {
            for n in 0..40 {
                run(&pool, events(&format!("beside{n}"), 1)).await;
            }
        }
    });
    let settings = Settings { work: false, housekeeping: false, ..Settings::default() };
    let running = Bus::builder(pool.clone()).settings(settings).build().await.unwrap().start().unwrap();
    writer.await.unwrap();
    until("the open transaction delays nobody else", SOON, async || {
        let without = "select count(*) from postrider.event e where subject not like 'gone/%'
                         and (select count(*) from postrider.job j where j.event_seq = e.seq) <> 2";
        (number(&pool, without).await == 0).then_some(())
    })
    .await;
    sqlx::raw_sql(AssertSqlSafe(events("late-too", 2))).execute(&mut *late).await.unwrap();
    late.commit().await.unwrap();
    until("the late one is relayed", SOON, async || {
        (number(&pool, "select count(*) from postrider.job").await == 2 * 1120).then_some(())
    })
    .await;
    each_once(&pool, 1220).await;
    running.stop(SOON).await;

    // the copy's numbers come to where the source's were: nothing that has them is taken again
    burn(&pool, 6_000).await;
    run(&pool, events("after", 10)).await;
    relay_all(&pool, 100).await;
    each_once(&pool, 1230).await;
    let whole = proof::verify(&pool, None, None).await.unwrap();
    // the jobs of a hundred events were deleted behind the library's back
    assert_eq!((whole.missing, whole.twice, whole.broken, whole.altered), (200, 0, 0, 1), "{whole:?}");
    assert_eq!((whole.committed, whole.fanned_out), (1230, 1230));
    let alerts = inspect::alerts(&pool).await.unwrap();
    assert!(alerts.iter().any(|alert| alert.name == "rebased" && alert.says.contains("another cluster")), "{alerts:?}");
    let order =
        "select count(*) from (select event_seq, lag(event_seq) over (order by id) as before from postrider.job) j
                   join postrider.event e on e.seq = j.event_seq
                  where before > event_seq and e.subject not similar to '(late|straggler)%'";
    assert_eq!(number(&pool, order).await, 0, "the jobs are in the order of the events");
    drop(target);
}

#[tokio::test(flavor = "multi_thread")]
async fn y9_y8_a_copy_that_was_made_in_the_middle_of_a_huge_transaction_gets_the_rest_of_it_once_and_in_order() {
    let source = source().await;
    run(source.pool(), "select postrider.put_subscription('s.order', '{t.made}', 's.one', order_by => 'all')").await;
    relay_all(source.pool(), 400).await;
    run(source.pool(), events("huge", 3_000)).await;
    run(source.pool(), events("beside", 10)).await;
    let pass = async |pool: &PgPool| {
        run(pool, "select postrider.relay(400)").await;
        run(pool, "select postrider.hand_over(100)").await;
    };
    for _ in 0..6 {
        pass(source.pool()).await;
    }
    // and one that has only begun with what was there
    run(
        source.pool(),
        "select postrider.put_subscription('s.start', '{t.made}', 's.one', order_by => 'all', start => 'beginning')",
    )
    .await;
    pass(source.pool()).await;
    let (_target, pool) = copy_of(&source).await;
    for pool in [&pool, source.pool()] {
        run(pool, events("later", 10)).await;
        until("all is walked", SOON, async || {
            pass(pool).await;
            let sql = "select count(*) from postrider.subscription_start where over_at is null";
            (number(pool, sql).await == 0
                && number(pool, "select count(*) from postrider.rebased where cut is null").await == 0)
                .then_some(())
        })
        .await;
        relay_all(pool, 400).await;
        let wrong = "select count(*) from (
            select e.seq, s.id from postrider.event e join postrider.subscription s on s.name <> 's.order' or e.subject ~ '^(huge|beside|later)'
             where e.subject not like 'gone%' or s.name = 's.start') want
            left join (select event_seq as seq, subscription as id, count(*) as n from postrider.job group by 1, 2) got using (seq, id)
            where got.n is distinct from 1";
        assert_eq!(number(pool, wrong).await, 0, "lost or doubled");
        let disordered =
            "select count(*) from (select j.event_seq < lag(j.event_seq) over (partition by s.id order by j.id) as back
            from postrider.job j join postrider.event e on e.seq = j.event_seq and e.subject ~ '^(huge|beside|later)'
            join postrider.subscription s on s.id = j.subscription and s.name in ('s.order', 's.start')) x where back";
        assert_eq!(number(pool, disordered).await, 0);
        // what the source removed by hand is what it finds, and nothing else
        assert_eq!(
            proof::verify(pool, None, None).await.unwrap().findings,
            ["row 2 of cut made 200 jobs, 0 are there"]
        );
    }
    // below the floor no window tells of an event: it is counted
    run(
        &pool,
        "insert into postrider.event select (jsonb_populate_record(e, jsonb_build_object('seq', 0))).* from postrider.event e order by seq limit 1",
    )
    .await;
    let found = proof::verify(&pool, None, None).await.unwrap().findings;
    assert_eq!(found.last().unwrap(), "1 events of the log are behind the position, and no row of cut took them");
}

#[tokio::test(flavor = "multi_thread")]
async fn y9_a_rebase_that_is_killed_at_every_step_or_meets_a_copy_again_loses_and_doubles_nothing() {
    let source = source().await;
    let (target, pool) = copy_of(&source).await;
    for _ in 0..6 {
        // each pass is undone once and made once, in slices of a hundred
        let mut tx = pool.begin().await.unwrap();
        sqlx::raw_sql("select postrider.relay(100)").execute(&mut *tx).await.unwrap();
        tx.rollback().await.unwrap();
        run(&pool, "select postrider.relay(100)").await;
    }
    assert!(number(&pool, "select count(*) from postrider.rebased where cut is null").await > 0, "it is not over");
    // a copy of the copy, made in the middle of its rebase
    let (again, second) = copy(in_copy(&target)).await;
    run(&second, events("unnoticed", 7)).await;
    relay_all(&second, 100).await;
    each_once(&second, 1162).await;
    assert_eq!(number(&second, "select max(no)::bigint from postrider.log_epoch").await, 3);
    relay_all(&pool, 100).await;
    each_once(&pool, 1155).await;
    drop(again);
}

#[tokio::test(flavor = "multi_thread")]
async fn y9_what_was_drawn_is_not_drawn_again_where_sequences_were_left_behind() {
    let source = source().await;
    let pool = source.pool();
    relay_all(pool, 1000).await;
    let highest = number(pool, "select max(seq) from postrider.event").await;
    let job = number(pool, "select max(id) from postrider.job").await;
    // as a copy without the state of its sequences has them, in a cluster of another name
    run(
        pool,
        "select setval('postrider.event_number', 1, false), setval('postrider.job_number', 1, false);
         update postrider.log_epoch set system_identifier = system_identifier + 1",
    )
    .await;
    relay_all(pool, 1000).await;
    run(pool, events("after", 10)).await;
    relay_all(pool, 1000).await;
    each_once(pool, 1165).await;
    assert!(number(pool, "select min(seq) from postrider.event where subject like 'after/%'").await > highest);
    assert!(number(pool, "select min(j.id) from postrider.job j join postrider.event e on e.seq = j.event_seq where e.subject like 'after/%'").await > job);
}

#[tokio::test(flavor = "multi_thread")]
async fn y9_retention_waits_for_a_rebase_and_then_reads_only_what_is_above_the_floor() {
    let source = source().await;
    let (target, pool) = copy_of(&source).await;
    // two weeks later: the epoch of these events is over, and they may go
    run(
        &pool,
        "update postrider.retention set keep = '1 second';
         update postrider.epoch set started_at = started_at - interval '30 days';
         select postrider.advance_epoch('event'); select postrider.advance_epoch('event')",
    )
    .await;
    run(&pool, "update postrider.epoch set started_at = started_at - interval '20 days'").await;
    let reason = async || {
        for _ in 0..20 {
            run(&pool, "delete from postrider.pinned").await;
            run(&pool, "select postrider.retire_events()").await;
        }
        let sql = "select coalesce((select by from postrider.pinned where class = 0 and first = 0), 'nothing')";
        text(&pool, sql).await
    };
    assert_eq!(reason().await, "a log that was restored and not rebased");
    run(&pool, "select postrider.relay(100)").await;
    run(&pool, "select postrider.relay(100)").await;
    assert_eq!(reason().await, "a rebase that is not over");
    relay_all(&pool, 1000).await;
    let why = reason().await;
    assert!(why.starts_with("jobs that were made of its events"), "{why}");
    drop(target);
}

#[tokio::test(flavor = "multi_thread")]
async fn y9_where_the_position_is_behind_the_jobs_only_the_pairs_that_have_none_are_made() {
    let source = source().await;
    let pool = source.pool();
    relay_all(pool, 1000).await;
    relay_all(pool, 1000).await;
    each_once(pool, 1155).await;
    // the rows of the last passes are not there, and neither is one of the two jobs of an event
    run(
        pool,
        "delete from postrider.cut where no > 2;
         delete from postrider.job j using postrider.event e, postrider.subscription s
          where e.seq = j.event_seq and e.subject = 'fresh/1' and s.id = j.subscription and s.name = 's.two';
         update postrider.log_epoch set system_identifier = system_identifier + 1",
    )
    .await;
    relay_all(pool, 100).await;
    each_once(pool, 1155).await;
    assert_eq!(number(pool, "select sum(jobs)::bigint from postrider.cut where no > 2").await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn y9_only_a_position_that_contradicts_itself_is_refused() {
    let source = source().await;
    let pool = source.pool();
    run(
        pool,
        "update postrider.log_epoch set system_identifier = system_identifier + 1;
         update postrider.cut set last_seq = last_seq + 10 where no = (select max(no) from postrider.cut)",
    )
    .await;
    let failed = sqlx::query("select postrider.relay(100)").execute(pool).await.unwrap_err();
    let failed = failed.as_database_error().unwrap();
    assert_eq!((failed.code().unwrap().as_ref(), Code::Position), ("PR012", Code::from_sqlstate("PR012").unwrap()));
    assert!(failed.message().contains("contradicts itself"), "{}", failed.message());
    let whole = proof::verify(pool, None, None).await.unwrap();
    assert_eq!(whole.broken, 1, "{whole:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn y9_a_position_that_is_ahead_of_its_own_cluster_is_rebased_too() {
    let source = source().await;
    let pool = source.pool();
    relay_all(pool, 1000).await;
    relay_all(pool, 1000).await;
    run(pool, events("more", 10)).await;
    // as a cluster that was set back would have it: the last position is of numbers that are still to come, and its row is whole
    run(
        pool,
        "do $$ declare c postrider.cut; b bytea; begin
             select * into c from postrider.cut order by no desc limit 1;
             select hash into b from postrider.cut where no = c.no - 1;
             c.hi := format('%s:%s:', n, n)::pg_snapshot from (select pg_snapshot_xmax(pg_current_snapshot())::text::bigint + 1000000 as n) x;
             c.hash := postrider.cut_hash(b, c);
             update postrider.cut set hi = c.hi, hash = c.hash where no = c.no;
         end $$",
    )
    .await;
    relay_all(pool, 1000).await;
    each_once(pool, 1165).await;
    assert_eq!(
        text(pool, "select note from postrider.log_epoch order by no desc limit 1").await,
        "this cluster went back"
    );
}
