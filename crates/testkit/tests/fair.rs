//! O12, measured: what the many jobs of one owner do to when those of another one start. Not a test of every run, since it takes minutes:
//! `cargo nextest run -p postrider-testkit --test fair --run-ignored only --no-capture`.
#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a failed helper is a failed test, and a run tells what it measured"
)]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use postrider::{Bus, Context, Job, Jobs as _, Kind, KindSpec, NewJob, Payload, PgJobs, Running, Verdict, handler};
use postrider_testkit::TestDb;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, PgPool};
use tokio::time::{interval, sleep};

/// How long a job of the owner with many takes: so its jobs keep every slot of both workers busy.
const TAKES: Duration = Duration::from_millis(40);
/// The other owner enqueues a job so often.
const EACH: Duration = Duration::from_millis(20);
/// What is promised.
const P99_MOST: Duration = Duration::from_secs(1);

/// When jobs of the other owner started, by their number.
type Starts = Arc<Mutex<BTreeMap<usize, Instant>>>;

async fn worker(pool: &PgPool, starts: &Starts) -> (Bus, Running) {
    let starts = Arc::clone(starts);
    let spec = KindSpec { fair: true, ..KindSpec::new("t.a") };
    let kind = Kind::spec(spec).handler(handler(move |job: Arc<Job>, _: Context| {
        let starts = Arc::clone(&starts);
        async move {
            if job.owner == "few" {
                starts.lock().unwrap().insert(job.args.as_str().parse()?, Instant::now());
            } else {
                sleep(TAKES).await;
            }
            Ok(Verdict::Complete)
        }
    }));
    let bus = Bus::builder(pool.clone()).kinds([kind]).concurrency("default", 64).build().await.unwrap();
    let running = bus.start().unwrap();
    (bus, running)
}

/// The many jobs of one owner, with what they have beside.
async fn fill(pool: &PgPool, jobs: u32, with: &str) {
    let sql = format!(
        "select postrider.enqueue_many(json_agg(json_build_object('kind', 't.a', 'owner', 'many'{with})))
           from generate_series(0, {jobs} - 1) g group by g / 1000"
    );
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(pool).await.unwrap();
}

/// From the call that enqueues a job of the other owner to its start, sorted.
async fn waits(pool: &PgPool, starts: &Starts, seconds: u64) -> Vec<Duration> {
    let jobs = PgJobs::new(pool.clone());
    let mut asked = Vec::new();
    let mut ticks = interval(EACH);
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(seconds) {
        ticks.tick().await;
        let args = Payload::parse(asked.len().to_string()).unwrap();
        asked.push(Instant::now());
        let new = NewJob { owner: "few".to_owned(), ..NewJob::new("t.a", args) };
        jobs.enqueue(None, &[new]).await.unwrap();
    }
    while starts.lock().unwrap().len() < asked.len() {
        sleep(Duration::from_millis(10)).await;
        assert!(began.elapsed() < Duration::from_secs(seconds + 60), "a job has not started");
    }
    let starts = starts.lock().unwrap();
    let mut waits: Vec<Duration> = asked.iter().zip(starts.values()).map(|(asked, start)| *start - *asked).collect();
    waits.sort();
    waits
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "it measures time"]
async fn o12_what_the_many_jobs_of_one_owner_cost_another() {
    let told = |name: &str, otherwise| std::env::var(name).ok().and_then(|n| n.parse().ok()).unwrap_or(otherwise);
    let jobs: u32 = told("POSTRIDER_FAIR", 200_000);
    let seconds = u64::from(told("POSTRIDER_FAIR_SECONDS", 60));
    let mut wrong = Vec::new();
    for (name, with) in [
        ("without keys", ""),
        ("of ten order keys", ", 'order_key', 'k' || g % 10"),
        ("of one limit key, four at a time", ", 'limit_key', 'l'"),
    ] {
        for held in [false, true] {
            let db = TestDb::fresh().await;
            let pool = db.pool();
            let starts = Starts::default();
            let spec = KindSpec { fair: true, ..KindSpec::new("t.a") };
            Bus::builder(pool.clone()).kinds([Kind::spec(spec)]).build().await.unwrap();
            let limit = "select postrider.set_limit('default', 'l', most => 4)";
            sqlx::raw_sql(limit).execute(pool).await.unwrap();
            fill(pool, jobs, with).await;
            let mut other = PgConnection::connect(db.url()).await.unwrap();
            if held {
                sqlx::raw_sql("begin isolation level repeatable read; select 1").execute(&mut other).await.unwrap();
            }
            let workers = [worker(pool, &starts).await, worker(pool, &starts).await];
            let waits = waits(pool, &starts, seconds).await;
            let left: i64 = sqlx::query_scalar(
                "select (select count(*) from postrider.ready) + (select count(*) from postrider.parked)",
            )
            .fetch_one(pool)
            .await
            .unwrap();
            let at = |share: usize| waits[(waits.len() - 1) * share / 100];
            let says = format!(
                "{jobs} jobs {name}, {}: {} jobs of another owner start after {:.1} ms (p50), {:.1} ms (p99), {:.1} ms (most); {left} left",
                if held { "an old snapshot held" } else { "no old snapshot" },
                waits.len(),
                at(50).as_secs_f64() * 1000.0,
                at(99).as_secs_f64() * 1000.0,
                at(100).as_secs_f64() * 1000.0,
            );
            println!("{says}");
            if at(99) > P99_MOST {
                wrong.push(says);
            }
            for (_, running) in workers {
                running.stop(Duration::from_millis(100)).await;
            }
            drop(other);
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
