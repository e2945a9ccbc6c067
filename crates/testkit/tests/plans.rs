//! C44: what the hot statements read does not depend on how much lies in the tables, nor on what the planner knows of it.
#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a failed helper is a failed test, and a run tells what it measured"
)]

use std::collections::BTreeMap;

use postrider_testkit::{DRAIN, TestDb};
use serde_json::Value;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, PgPool, Row as _};

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
    ("look at lanes", "select * from postrider.lanes('q', '', 50)"),
    ("relay", "select * from postrider.relay(100)"),
];

/// What an operator looks at, which reads up to a bound: so many blocks at most, whatever lies there. Ten thousand jobs of each place are
/// a few blocks each.
const BOUNDED: &[(&str, &str, i64)] = &[
    ("count everything", "select * from postrider.count_jobs(10000)", 200_000),
    ("overview", "select * from postrider.glance()", 10_000),
    ("alerts", "select * from postrider.alerts()", 10_000),
    (
        "list by a tag that no job has",
        r#"select * from postrider.list_jobs('{"tags": ["none"]}', 9223372036854775807, 20, 10000)"#,
        200,
    ),
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

/// Who knows what the background would find out.
const QUIET: &str = "do $$ declare t text; begin
    for t in select c.oid::regclass from pg_class c where c.relnamespace = 'postrider'::regnamespace and c.relkind = 'r' loop
        execute format('alter table %s set (autovacuum_enabled = off)', t);
    end loop; end $$";

/// Tables that this transaction has read from end to end.
const SCANNED: &str = "select relname::text from pg_stat_xact_user_tables
    where schemaname = 'postrider' and seq_scan > 0 and relname ~ '^(job|ready|later|done|attempt|event)(_c|_e|$)'";

/// What a statement cost.
struct Cost {
    blocks: i64,
    ms: f64,
    /// Tables that it read from end to end.
    scanned: Vec<String>,
}

async fn measure(db: &TestDb, statement: &str) -> Cost {
    // a connection of its own: nothing is planned yet
    let pool = PgPool::connect(db.url()).await.unwrap();
    let mut connection = pool.acquire().await.unwrap();
    // planning reads the catalogue, once for each connection: what counts is the second time
    sqlx::raw_sql(AssertSqlSafe(format!("begin; {statement}; rollback"))).execute(&mut *connection).await.unwrap();
    let mut least: Option<Cost> = None;
    // what tidies the catalogue up may come between, and then plans are made once more
    for _ in 0..3 {
        let mut tx = connection.begin().await.unwrap();
        let explained = format!("explain (analyze, buffers, timing off, format json) {statement}");
        let plan = sqlx::query(AssertSqlSafe(explained)).fetch_one(&mut *tx).await.unwrap();
        let plan: Value = serde_json::from_str(&plan.try_get_unchecked::<String, _>(0).unwrap()).unwrap();
        let number = |what: &str| plan.pointer(&format!("/0/{what}")).unwrap();
        let blocks = |what| number(&format!("Plan/{what}")).as_i64().unwrap();
        let read = blocks("Shared Hit Blocks") + blocks("Shared Read Blocks");
        let ms = number("Execution Time").as_f64().unwrap();
        let scanned = sqlx::query_scalar(SCANNED).fetch_all(&mut *tx).await.unwrap();
        tx.rollback().await.unwrap();
        if least.as_ref().is_none_or(|known| read < known.blocks) {
            least = Some(Cost { blocks: read, ms, scanned });
        }
    }
    drop(connection);
    pool.close().await;
    least.unwrap()
}

/// All of them, on jobs of this database.
async fn measured(db: &TestDb) -> BTreeMap<&'static str, Cost> {
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
    run(pool, QUIET.to_owned()).await;
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
        for (name, Cost { blocks: read, scanned, .. }) in measured(&db).await {
            let least = small.get(name).unwrap().blocks;
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
            let Cost { blocks: read, scanned, .. } = measure(&db, statement).await;
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

/// Queues by what their jobs have: nothing, a key each, one key together, a key for two of them, a limit.
const QUEUES: [(&str, &str); 5] = [
    ("plain", ""),
    ("keys", ", 'order_key', 'k' || g"),
    ("hot", ", 'order_key', 'h'"),
    ("pairs", ", 'order_key', 'p' || g / 2"),
    ("limited", ", 'limit_key', 'l'"),
];
/// So many jobs of each queue come and go while the snapshot is held.
const GONE: u32 = 3000;
/// So many are claimed at a time.
const BATCH: usize = 10;

async fn come(pool: &PgPool, queue: &str, with: &str, n: u32) {
    let one = format!("json_build_object('kind', 't.a', 'queue', '{queue}'{with})");
    run(
        pool,
        format!(
            "select postrider.enqueue_many(json_agg({one} order by g)) from generate_series(1, {n}) g group by g / 1000"
        ),
    )
    .await;
}

async fn go(pool: &PgPool, queue: &str) {
    run(pool, format!("call public.drain('{queue}', 1000000, 0)")).await;
}

/// Entries of indexes that were walked, by index.
type Walk = BTreeMap<String, i64>;

/// What a statement walks, on a connection that has planned it anew.
async fn walked(db: &TestDb, statement: &str) -> Walk {
    const WALKED: &str = "select c.relname::text, pg_stat_get_xact_tuples_returned(c.oid) from pg_class c
        where c.relkind = 'i' and c.relnamespace = 'postrider'::regnamespace";
    let mut connection = PgConnection::connect(db.url()).await.unwrap();
    let mut tx = connection.begin().await.unwrap();
    let before: Vec<(String, i64)> = sqlx::query_as(WALKED).fetch_all(&mut *tx).await.unwrap();
    sqlx::raw_sql(AssertSqlSafe(statement.to_owned())).execute(&mut *tx).await.unwrap();
    let after: Vec<(String, i64)> = sqlx::query_as(WALKED).fetch_all(&mut *tx).await.unwrap();
    tx.rollback().await.unwrap();
    connection.close().await.unwrap();
    let mut walk: Walk = after.into_iter().collect();
    for (index, n) in before {
        *walk.entry(index).or_default() -= n;
    }
    walk.retain(|_, n| *n > 0);
    walk
}

/// What a claim, and an end of what it brought, walk in each queue, where a hundred jobs wait and ten run.
async fn walks(db: &TestDb) -> BTreeMap<String, Walk> {
    let pool = db.pool();
    let mut found = BTreeMap::new();
    for (queue, with) in QUEUES {
        let turned = "select coalesce((pg_sequence_last_value('postrider.job_epoch') << 46) | (pg_sequence_last_value('postrider.job_number') << 2), 0)";
        let turned: i64 = sqlx::query_scalar(turned).fetch_one(pool).await.unwrap();
        come(pool, queue, with, 100).await;
        let low = format!("select coalesce(min(pos), 0) from postrider.ready where queue = '{queue}'");
        let low: i64 = sqlx::query_scalar(AssertSqlSafe(low)).fetch_one(pool).await.unwrap();
        // as a worker learns them: those of the other priorities, of which there is none, stay 0
        let claim = format!(
            "postrider.claim('{WORKER}', 1, '{queue}', '{{t.a}}', {BATCH}, '{{1, 2, 3, 4}}', '{{0, 0, 0, 0}}', '{{0, {low}, 0, 0}}', 9, '{{0, {turned}, 0, 0}}')"
        );
        let of_claim = format!("select lease, id from {claim} where lease is not null");
        let held: Vec<(i64, i64)> = sqlx::query_as(AssertSqlSafe(of_claim)).fetch_all(pool).await.unwrap();
        assert_eq!(held.len(), BATCH, "{queue}");
        let (leases, ids): (Vec<i64>, Vec<i64>) = held.into_iter().unzip();
        let finish = |outcome: u8| {
            format!(
                "select count(*) from postrider.finish('{WORKER}', array{leases:?}, array{ids:?}, array_fill({outcome}::smallint, array[{BATCH}]),
                     array_fill(0::bigint, array[{BATCH}]), array_fill(null::text, array[{BATCH}]))"
            )
        };
        found.insert(format!("{queue}: a claim beside what runs"), walked(db, &format!("select * from {claim}")).await);
        for (what, outcome) in [("complete", 1), ("fail", 2), ("give back", 6)] {
            found.insert(format!("{queue}: {what}"), walked(db, &finish(outcome)).await);
        }
        run(pool, finish(1)).await;
        found.insert(format!("{queue}: a claim"), walked(db, &format!("select * from {claim}")).await);
        go(pool, queue).await;
    }
    found
}

#[tokio::test]
async fn c44_what_claims_and_ends_walk_does_not_grow_with_what_an_old_snapshot_keeps() {
    let db = TestDb::fresh().await;
    let pool = db.pool();
    run(pool, r#"select postrider.declare('{"kinds": [{"name": "t.a", "queue": "q"}]}')"#.to_owned()).await;
    run(pool, format!("select postrider.set_limit('limited', 'l', most => 1000); {QUIET}")).await;
    run(pool, DRAIN.to_owned()).await;
    run(pool, "analyze".to_owned()).await;
    let few = walks(&db).await;
    let mut other = PgConnection::connect(db.url()).await.unwrap();
    sqlx::raw_sql("begin isolation level repeatable read; select 1").execute(&mut other).await.unwrap();
    for (queue, with) in QUEUES {
        come(pool, queue, with, GONE).await;
        go(pool, queue).await;
    }
    let mut wrong = Vec::new();
    for statistics in ["stale", "none", "fresh"] {
        match statistics {
            "none" => run(pool, FORGET.to_owned()).await,
            "fresh" => run(pool, "analyze".to_owned()).await,
            _ => {}
        }
        for (what, walk) in walks(&db).await {
            let (walked, least): (i64, i64) = (walk.values().sum(), few.get(&what).unwrap().values().sum());
            println!("{what}, {statistics} statistics: {walked} entries, with nothing gone {least}");
            // leases and turns that are gone, one for each hundred jobs, may be walked once or twice
            if walked > 2 * least + i64::from(GONE) / 10 {
                wrong.push(format!("{what}, {statistics} statistics: {walked} entries instead of {least}: {walk:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// What an operator looks at: `$old` is a job that ended long ago, `$new` one that ended just now, `$last` the last one that waits.
const LOOKS: &[(&str, &str)] = &[
    ("overview", "select * from postrider.glance()"),
    ("counts", "select * from postrider.count_jobs(10000)"),
    ("alerts", "select * from postrider.alerts()"),
    ("failures", "select * from postrider.failures()"),
    ("get one that ended long ago", "select * from postrider.job_views(array[$old], true)"),
    ("get one that ended just now", "select * from postrider.job_views(array[$new], true)"),
    ("get one that waits", "select * from postrider.job_views(array[$last], true)"),
    ("get one that never was", "select * from postrider.job_views(array[4611686018427387902], true)"),
    ("explain one that has ended", "select postrider.explain($old)"),
    ("explain the last that waits", "select postrider.explain($last)"),
    ("list", "$list{}"),
    ("list from the middle", "$middle{}"),
    ("list a kind that most are", r#"$list{"kind": "t.a"}"#),
    ("list a kind that few are", r#"$list{"kind": "t.few"}"#),
    ("list a kind that none is", r#"$list{"kind": "t.none"}"#),
    ("list a queue", r#"$list{"queue": "none"}"#),
    ("list an owner", r#"$list{"owner": "few"}"#),
    ("list pending", r#"$list{"states": ["pending"]}"#),
    ("list running", r#"$list{"states": ["running"]}"#),
    ("list retryable", r#"$list{"states": ["retryable"]}"#),
    ("list completed", r#"$list{"states": ["completed"]}"#),
    ("list discarded", r#"$list{"states": ["discarded"]}"#),
    ("list cancelled", r#"$list{"states": ["cancelled"]}"#),
    ("list from a time", r#"$list{"from": "2100-01-01T00:00:00Z"}"#),
    ("list up to a time", r#"$list{"to": "2001-01-01T00:00:00Z"}"#),
    ("list by args", r#"$list{"args": {"order": {"id": -1}}}"#),
    (
        "list the last two of everything",
        r#"$list{"kind": "t.few", "owner": "few", "states": ["discarded"], "args": {"order": {}}}"#,
    ),
];

/// A million jobs that have ended: most completed, each hundredth discarded after an attempt, each thousandth of another kind and owner.
const ENDED: &str = "begin; set local synchronous_commit = off;
    create temp table made on commit drop as select (nextval('postrider.job_number') << 2) | 2 as id, g from generate_series(1, 1000000) g;
    insert into postrider.job (class, id, kind, queue, priority, max_attempts, owner, args)
    select 2, id, case when g % 1000 = 0 then 't.few' else 't.a' end, 'q', 2, 5, case when g % 1000 = 0 then 'few' else '' end,
           json_build_object('order', json_build_object('id', g)) from made;
    insert into postrider.done (class, id, state, ended_as, attempt, reason)
    select 2, id, case when g % 100 = 0 then 3 else 2 end, case when g % 100 = 0 then 3 else 1 end, 1, case when g % 100 = 0 then 'broke' end from made;
    insert into postrider.attempt (class, id, lease, attempt, outcome, started_at, error)
    select 2, id, g, 1, 2, now(), 'no route to host ' || g from made where g % 100 = 0;
    commit";

#[tokio::test]
#[ignore = "it fills ten million rows"]
async fn i3_what_an_operators_looks_cost_beside_ten_million_jobs_that_have_ended() {
    let millions: u32 = std::env::var("POSTRIDER_MILLIONS").ok().and_then(|n| n.parse().ok()).unwrap_or(10);
    let db = TestDb::fresh().await;
    let pool = db.pool();
    run(
        pool,
        r#"select postrider.declare('{"kinds": [{"name": "t.a", "queue": "q"}, {"name": "t.few", "queue": "q"}]}')"#
            .to_owned(),
    )
    .await;
    run(pool, QUIET.to_owned()).await;
    for _ in 0..millions {
        run(pool, ENDED.to_owned()).await;
    }
    run(pool, "begin; set local synchronous_commit = off;
        create temp table made on commit drop as select (nextval('postrider.job_number') << 2) | 2 as id from generate_series(1, 1000000);
        insert into postrider.job (class, id, kind, queue, priority, max_attempts) select 2, id, 't.a', 'q', 2, 5 from made;
        insert into postrider.ready (queue, priority, share, pos, id) select 'q', 2, 0, id, id from made; commit".to_owned()).await;
    let one = async |sql: &'static str| -> i64 { sqlx::query_scalar(sql).fetch_one(pool).await.unwrap() };
    let old = one("select id from postrider.done order by class, id limit 1").await;
    let new = one("select id from postrider.done where class = 2 order by id desc limit 1").await;
    let last =
        one("select id from postrider.ready order by queue desc, priority desc, share desc, pos desc limit 1").await;
    let middle = old + (new - old) / 2;
    let listing =
        |before: &str, filter: &str| format!("select * from postrider.list_jobs('{filter}', {before}, 50, 10000)");
    let mut wrong = Vec::new();
    for statistics in ["none", "fresh"] {
        run(pool, if statistics == "none" { FORGET } else { "analyze" }.to_owned()).await;
        for (name, statement) in LOOKS {
            let statement = match (statement.strip_prefix("$list"), statement.strip_prefix("$middle")) {
                (Some(filter), _) => listing("9223372036854775807", filter),
                (_, Some(filter)) => listing(&middle.to_string(), filter),
                _ => (*statement).to_owned(),
            };
            let (old, new, last) = (old.to_string(), new.to_string(), last.to_string());
            let cost =
                measure(&db, &statement.replace("$old", &old).replace("$new", &new).replace("$last", &last)).await;
            let says = format!("{name}, {statistics} statistics: {} blocks, {:.1} ms", cost.blocks, cost.ms);
            println!("{says}");
            // ten thousand jobs are looked at, and for each of them where it is
            if cost.blocks > 300_000 || cost.ms > 2000.0 || !cost.scanned.is_empty() {
                wrong.push(format!("{says}, reads {:?} from end to end", cost.scanned));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
