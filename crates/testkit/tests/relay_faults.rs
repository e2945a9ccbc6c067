//! C45, Y1, Y2, Y3, Y6: the relay loses nothing and doubles nothing, in whatever order writers commit and whatever kills it.
#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::indexing_slicing,
    reason = "a test asks the database itself, and a failed helper is a failed test"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use postrider_testkit::{Fixture, Process, TestDb, fixture, until};
use rand::{RngExt, SeedableRng, rngs::StdRng};
use sha2::{Digest, Sha256};
use sqlx::{PgPool, Row};
use tokio::task::JoinSet;
use tokio::time::sleep;

const WRITERS: u64 = 8;
const ROUNDS: u64 = 60;
const SUBSCRIPTIONS: [&str; 3] = ["all.of-it=**", "made.only=order.made", "made.too=order.*"];
const SEED: u64 = 45;
/// `postrider.cut_hash`, in words of its own: the hash of the row before and the columns, absent ones left out.
const CUTS: &str = "select no, concat_ws('|', no, from_no, epoch, hi::text, lo::text, more::text, n, jobs, aside, elsewhere::text,
    events_total, jobs_total, first_seq, last_seq, encode(digest, 'hex')) as text, hash, n::bigint as n, jobs::bigint as jobs,
    events_total, jobs_total, first_seq, last_seq, digest from postrider.cut order by no";
/// What the digest of a cut is over, event by event.
const EVENTS: &str = "select seq, id, (extract(epoch from occurred_at) * 1000000)::bigint - 946684800000000 as occurred,
    concat(type, E'\\n', owner, E'\\n', subject, E'\\n', cause::text || E'\\n') as words, data::text as data from postrider.event";

async fn number(pool: &PgPool, sql: &'static str) -> i64 {
    sqlx::query_scalar(sql).fetch_one(pool).await.unwrap()
}

/// Records `n` events about `subject/1` to `subject/n`.
fn record(subject: &str, n: u64) -> String {
    let one = "perform postrider.record('order.made', format('%s/%s', ";
    format!("do $$ begin for i in 1..{n} loop {one}'{subject}', i), to_json(i)); end loop; end $$")
}

/// One writer: plain commits, rollbacks, savepoints both ways, and prepared transactions, each held open for a while. Answers with how
/// many events it committed.
async fn write(pool: PgPool, writer: u64) -> u64 {
    let mut dice = StdRng::seed_from_u64(SEED * 1_000 + writer);
    let mut committed = 0;
    for round in 0..ROUNDS {
        let subject = format!("{writer}/{round}");
        let n = if dice.random_bool(0.03) { 900 } else { dice.random_range(0..5) };
        let (hold, commits) = (Duration::from_millis(dice.random_range(0..120)), dice.random_bool(0.75));
        let run = async |connection: &mut sqlx::PgConnection, sql: String| {
            sqlx::raw_sql(sqlx::AssertSqlSafe(sql)).execute(connection).await.unwrap();
        };
        let mut connection = pool.acquire().await.unwrap();
        run(&mut connection, format!("begin; {}", record(&format!("{subject}/plain"), n))).await;
        let mut there = n;
        match dice.random_range(0..4) {
            0 => {
                run(&mut connection, format!("savepoint a; {}", record(&format!("{subject}/undone"), 2))).await;
                run(&mut connection, "rollback to savepoint a".to_owned()).await;
            }
            1 => {
                run(&mut connection, format!("savepoint a; {}", record(&format!("{subject}/kept"), 2))).await;
                run(&mut connection, "release savepoint a".to_owned()).await;
                there += 2;
            }
            _ => {}
        }
        let end = if dice.random_bool(0.2) {
            // a wake-up makes PREPARE fail, so this transaction says that it wants none: it is a new one
            let silent = record(&format!("{subject}/prepared"), 3);
            there = 3;
            let name = format!("{writer}-{round}");
            run(&mut connection, format!("rollback; begin; set local postrider.wake = 'off'; {silent}")).await;
            run(&mut connection, format!("prepare transaction '{name}'")).await;
            if commits { format!("commit prepared '{name}'") } else { format!("rollback prepared '{name}'") }
        } else if commits {
            "commit".to_owned()
        } else {
            "rollback".to_owned()
        };
        sleep(hold).await;
        run(&mut connection, end).await;
        committed += if commits { there } else { 0 };
    }
    committed
}

/// Ends relays until told to stop: by turns the process, or its connection in the middle of a pass. Answers with the kills of processes and the passes cut.
async fn nemesis(
    fixture: &Fixture,
    pool: &PgPool,
    mut relays: Vec<Process>,
    over: &AtomicBool,
) -> (Vec<Process>, usize, usize) {
    let mut dice = StdRng::seed_from_u64(SEED);
    let (mut kills, mut cuts) = (0, 0);
    while !over.load(Ordering::Relaxed) {
        sleep(Duration::from_millis(dice.random_range(100..500))).await;
        if dice.random_bool(0.5) {
            let victim = dice.random_range(0..relays.len());
            relays[victim].kill().await;
            relays[victim] = fixture.start(&["relay"]);
            kills += 1;
        } else {
            cuts += usize::from(cut_a_pass(pool).await);
        }
    }
    (relays, kills, cuts)
}

/// Holds a relay up in the middle of its pass and ends its connection there. False if no pass came.
async fn cut_a_pass(pool: &PgPool) -> bool {
    let mut gate = pool.begin().await.unwrap();
    sqlx::raw_sql("lock table postrider.ready in share row exclusive mode").execute(&mut *gate).await.unwrap();
    let sql = "select l.pid from pg_locks l join pg_stat_activity a using (pid)
                where l.locktype = 'advisory' and (l.classid, l.objid) = (7305, 1) and l.granted
                  and a.datname = current_database() and a.wait_event_type = 'Lock'";
    for _ in 0..100 {
        let held_up: Option<i32> = sqlx::query_scalar(sql).fetch_optional(pool).await.unwrap();
        if let Some(pid) = held_up {
            // the gate is held until the connection is gone, so that its pass cannot commit
            until("the cut pass ends", Duration::from_mins(1), async || {
                let end = "select pg_terminate_backend(pid) from pg_stat_activity where pid = $1";
                let there: Option<bool> = sqlx::query_scalar(end).bind(pid).fetch_optional(pool).await.unwrap();
                there.is_none().then_some(())
            })
            .await;
            return true;
        }
        sleep(Duration::from_millis(10)).await;
    }
    false
}

#[tokio::test(flavor = "multi_thread")]
async fn c45_events_that_commit_in_any_order_are_relayed_once_each_although_relays_are_killed() {
    let db = TestDb::fresh().await;
    let pool = db.pool().clone();
    fixture::declare(&pool, &SUBSCRIPTIONS).await.unwrap();
    let fixture = Fixture::new(env!("CARGO_BIN_EXE_postrider-fixture"), db.url());
    let relays = vec![fixture.start(&["relay"]), fixture.start(&["relay"])];

    // a writer that is open for the whole run: its first events have the lowest numbers and commit last
    let mut patient = pool.begin().await.unwrap();
    sqlx::raw_sql(sqlx::AssertSqlSafe(record("patient", 3))).execute(&mut *patient).await.unwrap();
    let over = Arc::new(AtomicBool::new(false));
    let mut writers = JoinSet::new();
    for writer in 0..WRITERS {
        writers.spawn(write(pool.clone(), writer));
    }
    let (written, (mut relays, kills, cuts)) = tokio::join!(
        async {
            let written: u64 = writers.join_all().await.iter().sum();
            over.store(true, Ordering::Relaxed);
            written
        },
        nemesis(&fixture, &pool, relays, &over)
    );
    for relay in &mut relays {
        relay.kill().await;
        *relay = fixture.start(&["relay"]);
    }
    until("what was committed is relayed while a writer is open", Duration::from_mins(1), async || {
        let relayed = number(&pool, "select events_total from postrider.cut order by no desc limit 1").await;
        (relayed == i64::try_from(written).unwrap()).then_some(())
    })
    .await;
    sqlx::raw_sql(sqlx::AssertSqlSafe(record("patient/late", 1))).execute(&mut *patient).await.unwrap();
    patient.commit().await.unwrap();
    let all = i64::try_from(written).unwrap() + 4;
    until("the writer that was open all the time is relayed", Duration::from_mins(1), async || {
        let relayed = number(&pool, "select events_total from postrider.cut order by no desc limit 1").await;
        (relayed == all).then_some(())
    })
    .await;

    println!("{all} events, {kills} relays killed, {cuts} passes cut");
    assert!(kills >= 3 && cuts >= 2, "{kills} kills and {cuts} cuts: the faults did not fire");
    assert_eq!(number(&pool, "select count(*) from postrider.event").await, all);
    each_event_has_one_job_for_each_subscription(&pool).await;
    the_cuts_are_a_chain_over_all_events(&pool).await;
}

async fn each_event_has_one_job_for_each_subscription(pool: &PgPool) {
    let wrong = "select count(*) from (select e.seq, s.id from postrider.event e cross join postrider.subscription s) want
                   full join (select event_seq as seq, subscription as id, count(*) as n from postrider.job group by 1, 2) got
                  using (seq, id) where got.n is distinct from 1 or want.seq is null";
    assert_eq!(number(pool, wrong).await, 0, "lost or doubled");
    let waiting = "select count(*) from postrider.job j join postrider.ready r on r.id = j.id and r.pos = j.id";
    assert_eq!(number(pool, waiting).await, number(pool, "select count(*) from postrider.job").await);
}

/// The relay is the only one that makes jobs here, so the order of their ids is the order of cuts: which events each cut took is
/// computed from the jobs, and compared with what the cut says.
async fn the_cuts_are_a_chain_over_all_events(pool: &PgPool) {
    let sql = "select event_seq, subscription from postrider.job order by id";
    let jobs: Vec<(i64, i64)> = sqlx::query_as(sql).fetch_all(pool).await.unwrap();
    let said = said(pool).await;
    let mut jobs = jobs.as_slice();
    let mut previous: Option<Vec<u8>> = None;
    let (mut events_total, mut jobs_total) = (0, 0);
    for cut in sqlx::query(CUTS).fetch_all(pool).await.unwrap() {
        let column = |name| cut.get::<Option<i64>, _>(name);
        let number = column("no").unwrap();
        let mut sha = Sha256::new();
        sha.update(previous.as_deref().map_or_else(String::new, hex) + "|" + cut.get::<&str, _>("text"));
        let hash: Vec<u8> = cut.get("hash");
        assert_eq!(hex(&sha.finalize()), hex(&hash), "the chain breaks at cut {number}");
        previous = Some(hash);

        let (taken, rest) = jobs.split_at(usize::try_from(column("jobs").unwrap()).unwrap());
        jobs = rest;
        assert!(taken.is_sorted(), "cut {number} is not in the order of seq");
        let events: BTreeSet<i64> = taken.iter().map(|job| job.0).collect();
        assert_eq!(column("n").unwrap(), i64::try_from(events.len()).unwrap(), "cut {number}");
        if !events.is_empty() {
            let digest: Vec<u8> = cut.get("digest");
            let mut sha = Sha256::new();
            for seq in &events {
                sha.update(&said[seq]);
            }
            assert_eq!(hex(&digest), hex(&sha.finalize()), "cut {number}");
            assert_eq!(column("first_seq"), events.first().copied(), "cut {number}");
            assert_eq!(column("last_seq"), events.last().copied(), "cut {number}");
        }
        events_total += column("n").unwrap();
        jobs_total += column("jobs").unwrap();
        assert_eq!(
            (column("events_total"), column("jobs_total")),
            (Some(events_total), Some(jobs_total)),
            "cut {number}"
        );
    }
    assert!(jobs.is_empty(), "{} jobs of no cut", jobs.len());
}

/// What each event says, as the digest of its cut has it: the hash of its data, its id, its time and its words.
async fn said(pool: &PgPool) -> BTreeMap<i64, Vec<u8>> {
    let rows = sqlx::query(EVENTS).fetch_all(pool).await.unwrap();
    let one = |row: &sqlx::postgres::PgRow| {
        let mut bytes = Sha256::digest(row.get::<&str, _>("data").as_bytes()).to_vec();
        bytes.extend_from_slice(row.get::<uuid::Uuid, _>("id").as_bytes());
        bytes.extend_from_slice(&row.get::<i64, _>("occurred").to_be_bytes());
        bytes.extend_from_slice(row.get::<&str, _>("words").as_bytes());
        (row.get("seq"), bytes)
    };
    rows.iter().map(one).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}
