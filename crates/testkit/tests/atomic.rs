//! P1: a business row and its event commit together or not at all, whatever kills the process that writes them.
#![expect(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use postrider_testkit::{Fixture, Process, TestDb, fixture, until};
use rand::{RngExt, SeedableRng, rngs::StdRng};
use sqlx::PgPool;
use tokio::time::sleep;

const TRANSACTIONS: usize = 10_000;
const SEED: u64 = 20_260_101;

/// What the ledgers of the producers say of one transaction.
#[derive(Debug, Default)]
struct Told {
    kept: BTreeSet<i32>,
    ended: Option<String>,
}

fn told(ledgers: &[Vec<String>]) -> BTreeMap<String, Told> {
    let mut all = BTreeMap::<String, Told>::new();
    for line in ledgers.iter().flatten() {
        let words: Vec<&str> = line.split(' ').collect();
        let of = all.entry((*words.get(1).unwrap()).to_owned()).or_default();
        match words.as_slice() {
            ["intent", _, kept] => of.kept = kept.split_terminator(',').map(|n| n.parse().unwrap()).collect(),
            ["resolved", _, how] => of.ended = Some(format!("resolved {how}")),
            [how, _] => of.ended = Some((*how).to_owned()),
            other => panic!("{other:?}"),
        }
    }
    all
}

async fn number(pool: &PgPool, sql: &'static str) -> i64 {
    sqlx::query_scalar(sql).fetch_one(pool).await.unwrap()
}

/// The committed rows: transaction to its numbers; 0 is the row without an event.
async fn rows(pool: &PgPool) -> BTreeMap<String, BTreeSet<i32>> {
    let sql = "select string_agg(id || ' ' || n, ',') from public.booking";
    let text: String = sqlx::query_scalar(sql).fetch_one(pool).await.unwrap();
    let mut all = BTreeMap::<String, BTreeSet<i32>>::new();
    for (id, n) in text.split(',').map(|pair| pair.split_once(' ').unwrap()) {
        all.entry(id.to_owned()).or_default().insert(n.parse().unwrap());
    }
    all
}

fn start(fixture: &Fixture, seed: u64) -> Process {
    fixture.start(&["producer", "--tasks", "10", "--seed", &seed.to_string()])
}

/// Three producers, one of which is killed and started again at each random moment, until enough was begun.
async fn produce(fixture: &Fixture) -> (Vec<Vec<String>>, usize) {
    let mut dice = StdRng::seed_from_u64(SEED);
    let mut seeds = 1_u64..;
    let mut producers: Vec<Process> = seeds.by_ref().take(3).map(|seed| start(fixture, seed)).collect();
    let mut ended = Vec::new();
    let mut kills = 0;
    loop {
        sleep(Duration::from_millis(dice.random_range(200..1_200))).await;
        let victim = producers.get_mut(dice.random_range(0..3)).unwrap();
        victim.kill().await;
        kills += 1;
        ended.push(victim.lines());
        let running: Vec<Vec<String>> = producers.iter().filter(|p| p.pid().is_some()).map(Process::lines).collect();
        let intents = ended.iter().chain(&running).flatten().filter(|line| line.starts_with("intent ")).count();
        if intents >= TRANSACTIONS {
            break;
        }
        let victim = producers.iter_mut().find(|p| p.pid().is_none()).unwrap();
        *victim = start(fixture, seeds.next().unwrap());
    }
    for producer in producers.iter_mut().filter(|p| p.pid().is_some()) {
        producer.kill().await;
        kills += 1;
        ended.push(producer.lines());
    }
    (ended, kills)
}

#[tokio::test(flavor = "multi_thread")]
async fn p1_a_business_row_and_its_event_are_never_one_without_the_other() {
    let db = TestDb::fresh().await;
    let pool = db.pool();
    sqlx::raw_sql("create table public.booking (id uuid, n int, primary key (id, n))").execute(pool).await.unwrap();
    fixture::declare(pool, &[]).await.unwrap();
    let fixture = Fixture::new(env!("CARGO_BIN_EXE_postrider-fixture"), db.url());
    let (ledgers, kills) = produce(&fixture).await;
    until("the connections of killed producers end", Duration::from_secs(20), async || {
        let open = "select count(*) from pg_stat_activity
                     where datname = current_database() and application_name = 'fixture producer'";
        (number(pool, open).await == 0).then_some(())
    })
    .await;

    let torn = "select count(*) from (select 'booking/' || id || '/' || n as subject from public.booking where n > 0) b
                  full join postrider.event e using (subject) where b.subject is null or e.subject is null";
    assert_eq!(number(pool, torn).await, 0, "a row without its event, or an event without its row");
    let doubled = "select count(*) - count(distinct subject) from postrider.event";
    assert_eq!(number(pool, doubled).await, 0);

    let (told, rows) = (told(&ledgers), rows(pool).await);
    assert!(rows.keys().all(|id| told.contains_key(id)), "a transaction that nobody meant");
    let (mut committed, mut undone, mut cut) = (0, 0, 0);
    for (id, told) in &told {
        let whole: BTreeSet<i32> = told.kept.iter().copied().chain([0]).collect();
        let found = rows.get(id);
        assert!(found.is_none_or(|found| *found == whole), "half of {id}: {found:?} of {whole:?}");
        match told.ended.as_deref() {
            Some("acked" | "resolved committed") => {
                assert!(found.is_some(), "{id} was acknowledged and is not there");
                committed += 1;
            }
            Some("rolled-back" | "resolved aborted") => {
                assert!(found.is_none(), "{id} was rolled back and is there");
                undone += 1;
            }
            Some("unknown") => {}
            None => cut += 1,
            Some(other) => panic!("{id}: {other}"),
        }
    }
    println!("{} transactions: {committed} committed, {undone} rolled back, {cut} cut by {kills} kills", told.len());
    assert!(told.len() >= TRANSACTIONS);
    assert!(committed > TRANSACTIONS / 2 && undone > TRANSACTIONS / 10, "the dice are loaded");
    assert!(cut > 0, "no kill hit an open transaction");
}
