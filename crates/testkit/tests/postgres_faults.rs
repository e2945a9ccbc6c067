//! F05, F08, L10: Postgres is killed or restarted under load. Nothing is lost, and no live worker loses what it holds.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a failed helper is a failed test, and a run tells how long recovery took"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use postrider::{Jobs, NewEvent, NewJob, Payload, PgJobs, Recorder, Resolution, Witness};
use postrider_testkit::{Fixture, Process, Signal, TestServer, fixture, until};
use rustix::process::{Pid, kill_process};
use sqlx::PgPool;
use tokio::time::{Instant, sleep};

/// How long a busy machine may take for what needs no waiting.
const SOON: Duration = Duration::from_mins(1);
const BOOKINGS: &str = "create table public.booking (id uuid, n int, primary key (id, n))";
const BEATS: [&str; 4] = ["--beat-ms", "200", "--dead-after-ms", "3000"];

struct Load {
    workers: Vec<Process>,
    relay: Process,
    producers: Vec<Process>,
}

impl Load {
    fn begin(fixture: &Fixture) -> Self {
        let worker = || fixture.start(&[&["worker", "--subscribe", "note.booking=order.*"], BEATS.as_slice()].concat());
        let producer = |seed| {
            let dice = ["producer", "--seed", seed, "--tasks", "4", "--transactions", "120", "--hold-ms", "40"];
            fixture.start(&dice)
        };
        let relay = fixture.start(&[&["relay"], BEATS.as_slice()].concat());
        Self { workers: vec![worker(), worker()], relay, producers: vec![producer("1"), producer("2")] }
    }

    fn effects(&self) -> usize {
        self.workers.iter().map(|worker| worker.count("end", "note.booking")).sum()
    }

    /// Waits until there are this many more effects: the load goes on.
    async fn works(&self, more: usize) {
        let enough = self.effects() + more;
        until("the load goes on", SOON, async || (self.effects() >= enough).then_some(())).await;
    }

    /// Lets the producers finish and everything drain; each process must still be there and end well.
    async fn drain(&mut self, pool: &PgPool) {
        for producer in &mut self.producers {
            assert_eq!(producer.exit(Duration::from_secs(40)).await, Some(0), "{}", producer.log());
        }
        until("everything drains", SOON, async || {
            let left = "select (select count(*) from postrider.event)
                             - (select events_total from postrider.cut order by no desc limit 1)
                             + (select count(*) from postrider.job) - (select count(*) from postrider.done where state = 2)
                             + (select count(*) from postrider.lease)";
            sqlx::query_scalar::<_, i64>(left).fetch_one(pool).await.is_ok_and(|left| left == 0).then_some(())
        })
        .await;
        for process in self.workers.iter_mut().chain([&mut self.relay]) {
            process.signal(Signal::TERM);
            assert_eq!(process.exit(SOON).await, Some(0), "{}", process.log());
            assert_eq!(process.figure("rescued"), 0, "{}", process.log());
        }
    }
}

/// What the producers' ledgers say against the table; answers with (acknowledged, unknown to their client, resolved).
async fn compare(load: &Load, pool: &PgPool) -> (usize, usize, usize) {
    let sql = "select string_agg(id || ' ' || n, ',') from public.booking";
    let text: String = sqlx::query_scalar(sql).fetch_one(pool).await.unwrap();
    let mut rows = BTreeMap::<&str, BTreeSet<&str>>::new();
    for (id, n) in text.split(',').map(|pair| pair.split_once(' ').unwrap()) {
        rows.entry(id).or_default().insert(n);
    }
    let ledger: Vec<String> = load.producers.iter().flat_map(Process::lines).collect();
    let words: Vec<Vec<&str>> = ledger.iter().map(|line| line.split(' ').collect()).collect();
    let mut kept = BTreeMap::<&str, BTreeSet<&str>>::new();
    let (mut acked, mut unknown, mut resolved) = (0, 0, 0);
    for line in &words {
        match line.as_slice() {
            ["intent", id, events] => drop(kept.insert(*id, events.split_terminator(',').chain(["0"]).collect())),
            ["acked", id] | ["resolved", id, "committed"] => {
                assert_eq!(rows.get(id), kept.get(id), "{id} is lost or torn");
                acked += usize::from(line.len() == 2);
                resolved += usize::from(line.len() == 3);
            }
            ["rolled-back", id] | ["resolved", id, "aborted"] => {
                assert_eq!(rows.get(id), None, "{id} is there");
                resolved += usize::from(line.len() == 3);
            }
            ["unknown", id] => {
                assert!(rows.get(id).is_none_or(|found| Some(found) == kept.get(id)), "{id} is torn");
                unknown += 1;
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(kept.len(), 2 * 4 * 120);
    (acked, unknown, resolved)
}

async fn number(pool: &PgPool, sql: &'static str) -> i64 {
    sqlx::query_scalar(sql).fetch_one(pool).await.unwrap()
}

/// Each event had its effect exactly once: what was claimed before the fault was durable, and what was durable was not claimed again.
async fn nothing_was_lost_or_taken(load: &Load, pool: &PgPool) {
    let subjects = load.workers.iter().flat_map(Process::effects).map(|effect| effect.subject);
    let mut effects: Vec<String> = subjects.collect();
    effects.sort_unstable();
    let sql = "select subject from postrider.event order by subject collate \"C\"";
    let events: Vec<String> = sqlx::query_scalar(sql).fetch_all(pool).await.unwrap();
    assert_eq!(effects, events);
    assert_eq!(number(pool, "select count(*) from postrider.attempt").await, 0, "an attempt was taken or failed");
    assert_eq!(number(pool, "select count(*) from postrider.done where attempt <> 1").await, 0);
    let torn = "select count(*) from (select 'booking/' || id || '/' || n as subject from public.booking where n > 0) b
                  full join postrider.event e using (subject) where b.subject is null or e.subject is null";
    assert_eq!(number(pool, torn).await, 0);
}

async fn under_load(name: &str, fault: impl AsyncFn(&TestServer)) {
    let server = TestServer::start().await;
    sqlx::raw_sql(BOOKINGS).execute(server.pool()).await.unwrap();
    fixture::declare(server.pool(), &["note.booking=order.*"]).await.unwrap();
    let fixture = Fixture::new(env!("CARGO_BIN_EXE_postrider-fixture"), server.url());
    let mut load = Load::begin(&fixture);
    let processes = load.workers.iter().chain([&load.relay]);
    for process in processes {
        until("it has started", SOON, async || (!process.lines().is_empty()).then_some(())).await;
    }
    load.works(50).await;
    for fault_no in 1..=2 {
        let before = Instant::now();
        fault(&server).await;
        let up = before.elapsed();
        load.works(20).await;
        println!("{name} {fault_no}: up after {up:?}, at work after {:?}", before.elapsed());
    }
    load.drain(server.pool()).await;
    let (acked, unknown, resolved) = compare(&load, server.pool()).await;
    println!(
        "{name}: {acked} acknowledged, {unknown} not answered, {resolved} of them resolved, {} effects",
        load.effects()
    );
    nothing_was_lost_or_taken(&load, server.pool()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn f05_postgres_is_killed_under_load_and_nothing_is_lost_and_no_worker_is_robbed() {
    under_load("kill", async |server| {
        server.kill().await;
        // longer than it takes to be dead: the first worker that is back finds every other one's beat old
        sleep(Duration::from_millis(3_500)).await;
        server.restart().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn l10_leases_survive_a_restart_of_postgres_and_their_owners_go_on() {
    under_load("restart", async |server| server.restart().await).await;
}

async fn resolved(server: &TestServer, witness: Witness) -> Resolution {
    let mut connection = server.pool().acquire().await.unwrap();
    Recorder::new().resolve(&mut *connection, witness).await.unwrap()
}

/// A transaction with an event and a job.
async fn record(pool: &PgPool) -> (sqlx::Transaction<'static, sqlx::Postgres>, [Witness; 2]) {
    let mut tx = pool.begin().await.unwrap();
    let event = NewEvent::new("order.made", "order/1", Payload::of(&1).unwrap());
    let recorded = Recorder::new().record(&mut *tx, &event).await.unwrap();
    let jobs = [NewJob::new("note.booking", Payload::of(&1).unwrap())];
    let made = PgJobs::new(pool.clone()).enqueue(Some(&mut *tx), &jobs).await.unwrap();
    (tx, [Witness::from(&recorded), made.first().unwrap().into()])
}

#[tokio::test(flavor = "multi_thread")]
async fn f08_a_transaction_that_a_crash_of_postgres_undid_is_not_taken_for_the_next_one_with_its_ids() {
    let server = TestServer::start().await;
    fixture::declare(server.pool(), &["note.booking=order.*"]).await.unwrap();
    // so that nothing of a transaction reaches the disk before its commit
    let walwriter = "select pid from pg_stat_activity where backend_type = 'walwriter'";
    let walwriter: i32 = sqlx::query_scalar(walwriter).fetch_one(server.pool()).await.unwrap();
    let walwriter = Pid::from_raw(walwriter).unwrap();
    kill_process(walwriter, Signal::STOP).unwrap();
    let (lost, [event, job]) = record(server.pool()).await;
    server.kill().await;
    kill_process(walwriter, Signal::KILL).unwrap();
    server.restart().await;
    drop(lost);
    for witness in [&event, &job] {
        assert_eq!(resolved(&server, witness.clone()).await, Resolution::Aborted, "before the next transaction");
    }
    let (next, witnesses) = record(server.pool()).await;
    next.commit().await.unwrap();
    // the same ids: without that, this test would show nothing
    let numbers = |witness: &Witness| format!("{witness:?}").split("Timestamp").next().unwrap().to_owned();
    assert_eq!(numbers(&job), numbers(&witnesses[1]));
    for (witness, truth) in [(event, false), (job, false)].into_iter().chain(witnesses.map(|witness| (witness, true))) {
        let truth = if truth { Resolution::Committed } else { Resolution::Aborted };
        assert_eq!(resolved(&server, witness).await, truth);
    }
}
