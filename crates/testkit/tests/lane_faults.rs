//! O8, O9: order keys and limits while workers stand still, are killed and lose their connections. What counts is what is leased: a handler
//! that stood still and goes on has lost its lease, and its outcome is dropped.
#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a failed helper is a failed test, and a test asks the database itself"
)]

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use postrider_testkit::proxy::{Cut, Fault, Proxy};
use postrider_testkit::{Fixture, Signal, TestDb, fixture, until};
use rand::{RngExt, SeedableRng, rngs::StdRng};
use sqlx::PgPool;
use tokio::time::{Instant, sleep};

const SOON: Duration = Duration::from_mins(2);
const LIMIT: i64 = 3;
const ORDER_KEYS: i64 = 4;
const JOBS: i64 = 800;
const LENGTH: Duration = Duration::from_secs(15);

/// Jobs of the limit key, and workers that hold jobs of one order key, in one snapshot.
const LEASED: &str = "with live as (
        select u.limit_key, u.order_key, l.worker
          from postrider.lease l cross join unnest(l.ids, l.limit_keys, l.order_keys) u (id, limit_key, order_key)
         where u.id = any (l.open))
    select (select count(*) from live where limit_key = 'tenant'),
           coalesce((select max(n) from (select count(distinct worker) n from live where order_key is not null group by order_key) x), 0)";

async fn prepare(pool: &PgPool) {
    fixture::declare(pool, &[]).await.unwrap();
    sqlx::query("select postrider.set_limit('default', 'tenant', $1)")
        .bind(i32::try_from(LIMIT).unwrap())
        .execute(pool)
        .await
        .unwrap();
    let sql = "select count(e.id) from generate_series(1, $1) n, lateral postrider.enqueue('t.sleep', '{\"ms\": 30}',
            limit_key => case when n % 2 = 0 then 'tenant' end,
            order_key => case when n % 2 = 1 then 'o' || n / 2 % $2 end) e";
    let made: i64 = sqlx::query_scalar(sql).bind(JOBS).bind(ORDER_KEYS).fetch_one(pool).await.unwrap();
    assert_eq!(made, JOBS);
}

/// Jobs that ended before one that comes before them in the order of their key.
const OVERTAKEN: &str = "select count(*) from (
        select d.finished_at < max(d.finished_at) over (partition by j.order_key order by j.id) as overtaken
          from postrider.done d join postrider.job j using (class, id) where j.order_key is not null) x where overtaken";

/// The most that was ever leased at a time, and how often that was looked at.
async fn watch(pool: &PgPool, over: &AtomicBool) -> (i64, i64, u32) {
    let (mut limited, mut ordered, mut looks) = (0, 0, 0);
    while !over.load(Ordering::Relaxed) {
        let (of_limit, of_order): (i64, i64) = sqlx::query_as(LEASED).fetch_one(pool).await.unwrap();
        (limited, ordered, looks) = (limited.max(of_limit), ordered.max(of_order), looks + 1);
        sleep(Duration::from_millis(1)).await;
    }
    (limited, ordered, looks)
}

#[tokio::test(flavor = "multi_thread")]
async fn o9_no_limit_and_no_order_is_broken_by_workers_that_stand_still_die_or_lose_their_connections() {
    let db = TestDb::fresh().await;
    prepare(db.pool()).await;
    let proxy = Proxy::before(db.url()).await;
    let fixture = Fixture::new(env!("CARGO_BIN_EXE_postrider-fixture"), &proxy.url());
    let start = || fixture.start(&["worker", "--concurrency", "10"]);
    let mut dice = StdRng::seed_from_u64(9);
    let over = AtomicBool::new(false);
    let strike = async {
        let mut workers = [start(), start(), start()];
        let began = Instant::now();
        let (mut stopped, mut killed, mut cut) = (0, 0, 0);
        while began.elapsed() < LENGTH || stopped < 3 || killed < 1 || cut < 3 {
            assert!(
                began.elapsed() < SOON,
                "the faults did not fire: {stopped} stood still, {killed} died, {cut} were cut"
            );
            sleep(Duration::from_millis(dice.random_range(50..400))).await;
            let n = dice.random_range(0..3);
            match dice.random_range(0..4) {
                0 | 1 => {
                    workers[n].signal(Signal::STOP);
                    // longer and shorter than it takes to be given up
                    sleep(Duration::from_millis(dice.random_range(100..3_000))).await;
                    workers[n].signal(Signal::CONT);
                    stopped += 1;
                }
                2 => {
                    workers[n].kill().await;
                    workers[n] = start();
                    killed += 1;
                }
                _ => {
                    let connections = proxy.connections();
                    for connection in connections.iter().filter(|_| dice.random_bool(0.3)) {
                        connection.act(Fault::Cut(Cut::Rst));
                        cut += 1;
                    }
                }
            }
        }
        println!("{stopped} stood still, {killed} died, {cut} connections were cut");
        until("every job has ended", SOON, async || {
            let ended = "select count(*) from postrider.done";
            (sqlx::query_scalar::<_, i64>(ended).fetch_one(db.pool()).await.unwrap() == JOBS).then_some(())
        })
        .await;
        over.store(true, Ordering::Relaxed);
    };
    let ((limited, ordered, looks), ()) = tokio::join!(watch(db.pool(), &over), strike);
    println!("{looks} looks: {limited} of a limit of {LIMIT}, {ordered} with jobs of one order key");
    assert!(looks > 500, "it was hardly looked at: {looks}");
    assert_eq!((limited, ordered), (LIMIT, 1), "leased at a time");
    let overtaken: i64 = sqlx::query_scalar(OVERTAKEN).fetch_one(db.pool()).await.unwrap();
    assert_eq!(overtaken, 0, "ended before one that comes before it");
}
