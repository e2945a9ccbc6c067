//! Y1, Y2, Y3, Y6, C45: sixteen writers in every kind of transaction, three relays that are cut: each event once, in the order of its key.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a failed helper is a failed test, and the figures are told"
)]

use std::time::Duration;

use postrider_testkit::outbox::{self, Outbox, OutboxReport};
use postrider_testkit::{TestDb, TestServer, test_options};
use sqlx::{AssertSqlSafe, PgPool};

fn plan(seconds: u64, seed: u64) -> Outbox {
    Outbox { length: Duration::from_secs(seconds), writers: 16, relays: 3, seed }
}

async fn run(pool: &PgPool, sql: impl Into<String>) {
    sqlx::raw_sql(AssertSqlSafe(sql.into())).execute(pool).await.unwrap();
}

async fn judged(pool: &PgPool) -> OutboxReport {
    let report = outbox::judge(pool).await.unwrap();
    println!("{report}");
    report
}

#[tokio::test(flavor = "multi_thread")]
async fn y1_c45_sixteen_writers_and_three_relays_that_are_cut_make_each_job_once_and_in_order_also_in_a_copy() {
    let source = TestServer::with(test_options().setting("fsync", "off")).await;
    outbox::prepare(source.pool()).await.unwrap();
    println!("{}", outbox::run(source.pool(), plan(8, 1), false).await.unwrap());
    let (_target, copy) = outbox::copy(&source).await.unwrap();
    println!("{}", outbox::run(&copy, plan(4, 2), true).await.unwrap());
    let report = judged(&copy).await;
    assert!(report.is_clean() && report.events > 1_000, "{report}");
    // the one that was copied goes on as well
    println!("{}", outbox::run(source.pool(), plan(1, 3), true).await.unwrap());
    let report = judged(source.pool()).await;
    assert!(report.is_clean(), "{report}");
}

/// An outbox that reads on behind the highest number that it saw.
const BY_NUMBER: &str =
    "create or replace function postrider.next_slice(w postrider.cut, after bigint, most int, inside boolean)
returns postrider.slice language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    s postrider.slice;
begin
    select array_agg(e.seq), array_agg(e.type), array_agg(e.owner), array_agg('\\x00'::bytea) into s.seqs, s.types, s.owners, s.digests
      from (select * from postrider.event v where v.seq > (select coalesce(max(c.last_seq), 0) from postrider.cut c) order by v.seq limit most + 1) e;
    return s;
end $$";

#[tokio::test(flavor = "multi_thread")]
async fn the_judge_of_the_outbox_is_red_for_each_planted_mistake() {
    let db = TestDb::fresh().await;
    let pool = db.pool();
    outbox::prepare(pool).await.unwrap();
    outbox::run(pool, plan(1, 4), true).await.unwrap();
    assert!(judged(pool).await.is_clean());
    let one = "(select min(event_seq) from postrider.job)";
    run(
        pool,
        format!("delete from postrider.job where id = (select min(id) from postrider.job where event_seq = {one})"),
    )
    .await;
    let report = judged(pool).await;
    assert!(report.lost == 1 && report.findings.len() == 1, "{report}");
    run(
        pool,
        "insert into postrider.job select (jsonb_populate_record(j, jsonb_build_object('id', j.id + 40000000))).*
           from postrider.job j order by id desc limit 1",
    )
    .await;
    assert_eq!(judged(pool).await.doubled, 1);
    let swap = "update postrider.job j set event_seq = case j.event_seq when a then b else a end
                  from (select min(seq) as a, max(seq) as b from postrider.event where subject = 'key/00') x where j.event_seq in (a, b)";
    run(pool, swap).await;
    assert!(judged(pool).await.out_of_order > 0);
    run(pool, "update public.account set n = n + 3 where key = 'key/07'").await;
    assert_eq!(judged(pool).await.torn, 3);
    run(pool, "insert into public.told values (5)").await;
    assert_eq!(judged(pool).await.untold, 5);
    run(pool, "delete from postrider.event where seq = (select max(seq) from postrider.event)").await;
    assert!(judged(pool).await.ghosts > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_judge_of_the_outbox_finds_a_relay_that_reads_by_number() {
    let db = TestDb::fresh().await;
    let pool = db.pool();
    outbox::prepare(pool).await.unwrap();
    run(pool, BY_NUMBER).await;
    outbox::run(pool, plan(2, 5), true).await.unwrap();
    let report = judged(pool).await;
    assert!(report.lost > 0 && !report.findings.is_empty(), "{report}");
}
