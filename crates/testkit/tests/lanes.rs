//! What lanes cost, measured: with a hot key, with as many keys as jobs, and while an old snapshot is held. Not a test of every run, since it
//! measures time: `cargo nextest run -p postrider-testkit --test lanes --run-ignored only --no-capture`.
#![expect(clippy::unwrap_used, reason = "a failed helper is a failed test, and a run tells what it measured")]

use postrider_testkit::{DRAIN, TestDb};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, PgPool};

const DECLARE: &str = r#"select postrider.declare('{"app":"lanes","kinds":[{"name":"t.a","queue":"q"}]}')::text"#;

/// Seconds that the process of this session has run; Linux counts them in hundredths.
const PROCESSOR: &str = "select (p[12]::float8 + p[13]::float8) / 100
    from regexp_split_to_array(regexp_replace(pg_read_file('/proc/' || pg_backend_pid() || '/stat'), '^.*\\) ', ''), ' ') p";

async fn run(pool: &PgPool, sql: String) {
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(pool).await.unwrap();
}

/// So many jobs in a queue, spread over keys; none for jobs without one.
async fn fill(pool: &PgPool, queue: &str, jobs: u32, keys: u32) {
    let key = if keys == 0 { String::new() } else { format!(", 'order_key', 'k' || (b * 1000 + g) % {keys}") };
    run(
        pool,
        format!(
            "select postrider.enqueue_many(json_agg(json_build_object('kind', 't.a', 'queue', '{queue}'{key})))
               from generate_series(0, {jobs} / 1000 - 1) b cross join generate_series(0, 999) g group by b"
        ),
    )
    .await;
}

/// Jobs of a queue for each second of the processor that the server's process had for them: what else runs beside it does not count.
async fn rate(pool: &PgPool, queue: &str, most: u32) -> f64 {
    let mut own = pool.acquire().await.unwrap();
    let before: f64 = sqlx::query_scalar(PROCESSOR).fetch_one(&mut *own).await.unwrap();
    let sql = format!("call public.drain('{queue}', {most}, 0)");
    let n: i32 = sqlx::query_scalar(AssertSqlSafe(sql)).fetch_one(&mut *own).await.unwrap();
    let after: f64 = sqlx::query_scalar(PROCESSOR).fetch_one(&mut *own).await.unwrap();
    f64::from(n) / (after - before)
}

/// Milliseconds from the first end of a job of the hot key to the first one of another key.
async fn first_of_others(pool: &PgPool, queue: &str) -> f64 {
    let sql = "select (extract(epoch from min(d.finished_at) filter (where j.order_key <> 'k0') - min(d.finished_at)) * 1000)::float8
                 from postrider.done d join postrider.job j using (class, id) where j.queue = $1";
    sqlx::query_scalar(sql).bind(queue).fetch_one(pool).await.unwrap()
}

#[tokio::test]
#[ignore = "it measures time"]
async fn o6_what_lanes_cost() {
    let jobs: u32 = std::env::var("POSTRIDER_LANES").ok().and_then(|n| n.parse().ok()).unwrap_or(100_000);
    let db = TestDb::fresh().await;
    let pool = db.pool();
    run(pool, DECLARE.to_owned()).await;
    run(pool, DRAIN.to_owned()).await;
    let sample = jobs / 20;
    for held in [false, true] {
        let mut other = PgConnection::connect(db.url()).await.unwrap();
        if held {
            sqlx::raw_sql("begin isolation level repeatable read; select 1").execute(&mut other).await.unwrap();
        }
        let says = if held { "an old snapshot held" } else { "no old snapshot" };
        let name = |what: &str| format!("{what}_{held}");
        fill(pool, &name("plain"), jobs, 0).await;
        println!("{says}: without keys {:.0} jobs/s", rate(pool, &name("plain"), jobs).await);
        fill(pool, &name("clean"), sample, sample).await;
        let clean = rate(pool, &name("clean"), sample).await;
        println!("{says}: {sample} keys of one job, nothing else there: {clean:.0} jobs/s");
        fill(pool, &name("keys"), jobs, jobs).await;
        println!("{says}: {jobs} keys of one job: {:.0} jobs/s", rate(pool, &name("keys"), jobs).await);
        // the hot key is there, and somebody has its turn
        fill(pool, &name("hot"), jobs, 1).await;
        let hot = rate(pool, &name("hot"), jobs / 2).await;
        println!("{says}: one key of {jobs} jobs: {hot:.0} jobs/s, {:.2} of as many keys", hot / clean);
        fill(pool, &name("new"), jobs, 1).await;
        fill(pool, &name("new"), sample, sample).await;
        let all = rate(pool, &name("new"), jobs).await;
        let waited = first_of_others(pool, &name("new")).await;
        println!(
            "{says}: {sample} other jobs behind {jobs} of a hot key that nobody has looked at: the first of them after {waited:.0} ms, \
             all together {all:.0} jobs/s, {:.2} of clean",
            all / clean
        );
        fill(pool, &name("hot"), sample, sample).await;
        let beside = rate(pool, &name("hot"), 2 * sample).await;
        println!(
            "{says}: {sample} others beside a hot key that is known, and as many of it: {beside:.0} jobs/s, {:.2} of clean",
            beside / clean
        );
        drop(other);
    }
}
