//! C44: what the hot statements read does not depend on how much lies in the tables, nor on what the planner knows of it.
#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a failed helper is a failed test, and a run tells what it measured"
)]

use std::collections::BTreeMap;

use postrider_testkit::TestDb;
use serde_json::Value;
use sqlx::{AssertSqlSafe, Connection as _, PgPool, Row as _};

const WORKER: &str = "0b0b0b0b-0000-4000-8000-000000000001";
const MILLION: i64 = 1_000_000;

/// The statements, each with how to come by a job for it: `$id` is a job that waits, `$done` one that has ended, `$lease` and `$run` one
/// that runs, with its lease.
const HOT: &[(&str, &str)] = &[
    ("enqueue", "select * from postrider.enqueue('t.a', '{}')"),
    ("enqueue a unique one", "select * from postrider.enqueue('t.a', '{}', unique_mode => 'until_done')"),
    (
        "claim of 10",
        "select * from postrider.claim('$worker', 1, 'q', array['t.a'], 10, array[1,2,3,4]::smallint[],
            array[0,0,0,0]::smallint[], array[0,0,0,0]::bigint[])",
    ),
    (
        "finish",
        "select * from postrider.finish('$worker', array[$lease], array[$run], array[1]::smallint[], array[0]::bigint[], array[null])",
    ),
    (
        "fail",
        "select * from postrider.finish('$worker', array[$lease], array[$run], array[2]::smallint[], array[0]::bigint[], array['x'])",
    ),
    ("part", "select postrider.part('$worker', $lease, $run, 7)"),
    (
        "beat",
        r#"select postrider.tick('$worker', '{"queues": ["q"], "kinds": ["t.a"], "held": [$lease], "settled": 1}')"#,
    ),
    ("cancel a waiting one", "select * from postrider.cancel(array[$id])"),
    ("cancel a running one", "select * from postrider.cancel(array[$run])"),
    ("cancel an ended one", "select * from postrider.cancel(array[$done])"),
    ("retry", "select * from postrider.retry(array[$done])"),
    ("delete", "select * from postrider.delete(array[$done])"),
    ("look at a waiting one", "$view[$id]"),
    ("look at an ended one", "$view[$done]"),
    ("list the last ones", "select * from postrider.list_jobs('{}', 9223372036854775807, 20, 10000)"),
    ("explain a waiting one", "select postrider.explain($id)"),
    ("explain an ended one", "select postrider.explain($done)"),
    ("explain a running one", "select postrider.explain($run)"),
    ("look for one that is gone", "select postrider.gone_since(4611686018427387902)"),
    ("failures", "select * from postrider.failures()"),
    ("relay", "select * from postrider.relay(100)"),
];

/// What an operator looks at, which reads up to a bound: so many blocks at most, whatever lies there. Ten thousand jobs of each place are
/// a few blocks each.
const BOUNDED: &[(&str, &str, i64)] = &[
    ("count everything", "select * from postrider.count_jobs(10000)", 200_000),
    ("alerts", "select * from postrider.alerts()", 10_000),
    (
        "list what no job is",
        r#"select * from postrider.list_jobs('{"kind": "t.none"}', 9223372036854775807, 20, 10000)"#,
        20_000,
    ),
    (
        "list the last that failed",
        r#"select * from postrider.list_jobs('{"states": ["retryable"]}', 9223372036854775807, 20, 10000)"#,
        300_000,
    ),
    (
        "list by args that no job has",
        r#"select * from postrider.list_jobs('{"args": {"a": 1}}', 9223372036854775807, 20, 10000)"#,
        20_000,
    ),
];

/// As after a crash or an upgrade: nothing is known of any table.
const FORGET: &str = "delete from pg_statistic; update pg_class set reltuples = -1, relpages = 0
    where relnamespace = 'postrider'::regnamespace and relkind in ('r', 'i')";

/// Tables that this transaction has read from end to end.
const SCANNED: &str = "select relname::text from pg_stat_xact_user_tables
    where schemaname = 'postrider' and seq_scan > 0 and relname ~ '^(job|ready|later|done|attempt|event)(_c|_e|$)'";

/// A statement's blocks, and which of the tables were read from end to end.
async fn measure(db: &TestDb, statement: &str) -> (i64, Vec<String>) {
    // a connection of its own: nothing is planned yet
    let pool = PgPool::connect(db.url()).await.unwrap();
    let mut connection = pool.acquire().await.unwrap();
    // planning reads the catalogue, once for each connection: what counts is the second time
    sqlx::raw_sql(AssertSqlSafe(format!("begin; {statement}; rollback"))).execute(&mut *connection).await.unwrap();
    let mut least: Option<(i64, Vec<String>)> = None;
    // what tidies the catalogue up may come between, and then plans are made once more
    for _ in 0..3 {
        let mut tx = connection.begin().await.unwrap();
        let explained = format!("explain (analyze, buffers, timing off, format json) {statement}");
        let plan = sqlx::query(AssertSqlSafe(explained)).fetch_one(&mut *tx).await.unwrap();
        let plan: Value = serde_json::from_str(&plan.try_get_unchecked::<String, _>(0).unwrap()).unwrap();
        let blocks = |what| plan.pointer(&format!("/0/Plan/{what}")).and_then(Value::as_i64).unwrap();
        let read = blocks("Shared Hit Blocks") + blocks("Shared Read Blocks");
        let scanned = sqlx::query_scalar(SCANNED).fetch_all(&mut *tx).await.unwrap();
        tx.rollback().await.unwrap();
        if least.as_ref().is_none_or(|(known, _)| read < *known) {
            least = Some((read, scanned));
        }
    }
    drop(connection);
    pool.close().await;
    least.unwrap()
}

/// All of them, on jobs of this database.
async fn measured(db: &TestDb) -> BTreeMap<&'static str, (i64, Vec<String>)> {
    let one = async |sql: &'static str| -> i64 { sqlx::query_scalar(sql).fetch_one(db.pool()).await.unwrap() };
    let waiting = one("select id from postrider.ready order by pos limit 1 offset 30").await;
    let done = one("select id from postrider.done order by class, id limit 1").await;
    let lease = one("select id from postrider.lease order by id limit 1").await;
    let run = one("select open[1] from postrider.lease order by id limit 1").await;
    let view = postrider::statements().into_iter().find(|s| s.name == "sql/view.sql").unwrap().sql;
    let mut found = BTreeMap::new();
    for &(name, statement) in HOT {
        let statement = match statement.strip_prefix("$view") {
            Some(ids) => view.replace("$1", &format!("array{ids}")).replace("$2", "'true'"),
            None => statement.to_owned(),
        };
        let statement = statement
            .replace("$worker", WORKER)
            .replace("$lease", &lease.to_string())
            .replace("$run", &run.to_string())
            .replace("$done", &done.to_string())
            .replace("$id", &waiting.to_string());
        found.insert(name, measure(db, &statement).await);
    }
    found
}

async fn run(pool: &PgPool, sql: String) {
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(pool).await.unwrap();
}

/// So many jobs more of each sort: ready, for later, ended.
async fn fill(pool: &PgPool, n: i64) {
    // what the functions write, in one go; ids of the class standard
    let made = format!(
        "create temp table made on commit drop as
           select (nextval('postrider.job_number') << 2) | 2 as id, g from generate_series(1, 3 * {n}) g;
         insert into postrider.job (class, id, kind, queue, priority, max_attempts, run_at)
         select 2, id, 't.a', 'q', 2, 5, case when g % 3 = 1 then now() + interval '1 day' + g * interval '1 ms' end from made;
         insert into postrider.ready (queue, priority, share, pos, id) select 'q', 2, 0, id, id from made where g % 3 = 0;
         insert into postrider.later (run_at, id, queue, priority, share)
         select now() + interval '1 day' + g * interval '1 ms', id, 'q', 2, 0 from made where g % 3 = 1;
         insert into postrider.done (class, id, state, ended_as, attempt) select 2, id, 2, 1, 1 from made where g % 3 = 2;"
    );
    run(pool, format!("begin; set local synchronous_commit = off; {made} commit")).await;
}

#[tokio::test]
async fn c44_what_hot_statements_read_does_not_grow_with_a_million_ready_future_and_finished_jobs() {
    let db = TestDb::fresh().await;
    let pool = db.pool();
    run(
        pool,
        r#"select postrider.declare('{"kinds": [{"name": "t.a", "queue": "q"}], "types": [{"name": "o.m"}]}')"#
            .to_owned(),
    )
    .await;
    // who knows what the background would find out
    let quiet = "do $$ declare t text; begin
        for t in select c.oid::regclass from pg_class c where c.relnamespace = 'postrider'::regnamespace and c.relkind = 'r' loop
            execute format('alter table %s set (autovacuum_enabled = off)', t);
        end loop; end $$";
    run(pool, quiet.to_owned()).await;
    fill(pool, 100).await;
    run(pool, format!("select * from postrider.claim('{WORKER}', 1, 'q', array['t.a'], 1, array[2]::smallint[], array[0]::smallint[], array[0]::bigint[])")).await;
    let small = measured(&db).await;
    run(pool, "analyze".to_owned()).await;
    fill(pool, MILLION).await;
    let mut wrong = Vec::new();
    for statistics in ["stale", "none", "fresh"] {
        match statistics {
            "none" => run(pool, FORGET.to_owned()).await,
            "fresh" => run(pool, "analyze".to_owned()).await,
            _ => {}
        }
        for (name, (read, scanned)) in measured(&db).await {
            let least = small.get(name).unwrap().0;
            println!("{name}, {statistics} statistics: {read} blocks, of a small database {least}");
            // an index of a million is two or three levels higher than one of a hundred
            if read > 2 * least + 10 {
                wrong.push(format!("{name}, {statistics} statistics: {read} blocks instead of {least}"));
            }
            if !scanned.is_empty() {
                wrong.push(format!("{name}, {statistics} statistics: reads {} from end to end", scanned.join(", ")));
            }
        }
        for (name, statement, most) in BOUNDED {
            let (read, scanned) = measure(&db, statement).await;
            println!("{name}, {statistics} statistics: {read} blocks of {most} at most");
            if read > *most {
                wrong.push(format!("i3: {name}, {statistics} statistics: {read} blocks"));
            }
            if !scanned.is_empty() {
                wrong
                    .push(format!("i3: {name}, {statistics} statistics: reads {} from end to end", scanned.join(", ")));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
