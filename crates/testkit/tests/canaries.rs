//! Bugs that are planted on purpose: each must turn its number red, and no other. A checker that stays green here proves nothing
//! elsewhere.
#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "a test asks the database itself, tells its table, and a failed helper is a failed test"
)]

use std::time::Duration;

use postrider_testkit::checker::{Number, Table};
use postrider_testkit::nemesis::{Kind, Stage, Staging};
use postrider_testkit::{Ledger, Signal, TestDb};
use uuid::Uuid;

/// How often a planted bug may hide.
const RUNS: u64 = 3;
const SOON: Duration = Duration::from_mins(1);

struct Scene {
    stage: Stage,
    worker: Vec<String>,
    _db: TestDb,
}

impl Scene {
    async fn set(seed: u64, retry: Duration, receiver_fails: u32) -> Self {
        let db = TestDb::fresh().await;
        let staging = Staging {
            program: env!("CARGO_BIN_EXE_postrider-fixture").into(),
            seed,
            beats: (Duration::from_millis(100), Duration::from_millis(1_200)),
            retry,
            receiver_fails,
        };
        let stage = Stage::set(staging, db.pool().clone(), db.url()).await.unwrap();
        let worker = stage.worker();
        Self { stage, worker, _db: db }
    }

    fn enlist(&mut self, name: &str, more: &[&str]) -> usize {
        let worker: Vec<&str> = self.worker.iter().map(String::as_str).chain(more.iter().copied()).collect();
        self.stage.crew.enlist(name, &worker, None).unwrap()
    }

    fn produce(&mut self, name: &str, seed: u64, more: &[&str]) -> usize {
        let seed = seed.to_string();
        let arguments = [&["producer", "--seed", &seed], more].concat();
        self.stage.crew.enlist(name, &arguments, None).unwrap()
    }

    async fn have_ended(&mut self, producers: &[usize]) {
        for &producer in producers {
            let process = self.stage.crew.member(producer).process();
            assert_eq!(process.exit(SOON).await, Some(0), "{}", process.log());
        }
    }

    /// Replaces a function of the schema by another text, in this database only.
    async fn plant(&self, sql: &'static str) {
        sqlx::raw_sql(sql).execute(self.stage.pool()).await.unwrap();
    }

    async fn judge(mut self) -> Table {
        self.stage.settle(Duration::from_secs(25), Duration::from_secs(3)).await.unwrap();
        let table = self.stage.judge().unwrap();
        let _ = std::fs::remove_dir_all(self.stage.folder());
        table
    }
}

/// The number must become red in one of a few runs, and no other one with it.
async fn turns_red(number: Number, run: impl AsyncFn(u64) -> Table) {
    for seed in 1..=RUNS {
        let table = run(seed).await;
        println!("{table}");
        if table.number(number) > 0 {
            assert_eq!(table.red(), [number], "{table}");
            return;
        }
    }
    panic!("{number:?} stayed 0 in {RUNS} runs, with the bug in place");
}

/// Enqueues one task in a transaction of its own, as a producer would.
async fn book(stage: &Stage, ms: u64) {
    let ledger = Ledger::append(&stage.folder().join("producer-9.1.ledger")).unwrap();
    let id = Uuid::new_v4();
    ledger.write(format!("intent {id} 1j,")).await.unwrap();
    let mut tx = stage.pool().begin().await.unwrap();
    let rows = "insert into public.booking (id, n) values ($1, 0), ($1, 1)";
    sqlx::query(rows).bind(id).execute(&mut *tx).await.unwrap();
    let task = format!(r#"{{"subject": "booking/{id}/1", "ms": {ms}}}"#);
    sqlx::query("select postrider.enqueue('note.task', $1::json)").bind(task).execute(&mut *tx).await.unwrap();
    tx.commit().await.unwrap();
    ledger.write(format!("acked {id}")).await.unwrap();
}

/// `postrider.finish` as a table with a state column would tempt one to write it: whoever says that a job is complete, it is.
const FINISH_WITHOUT_A_FENCE: &str = "alter function postrider.finish set schema ledger;
create function postrider.finish(
    worker uuid, leases bigint[], ids bigint[], outcomes smallint[], delays_ms bigint[], reasons text[], outputs text[] default null
) returns table (lease bigint, id bigint) language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
begin
    delete from postrider.done d using unnest(finish.ids, finish.outcomes) t (id, outcome)
     where t.outcome = 1 and d.class = (t.id & 3)::smallint and d.id = t.id;
    return query select f.lease, f.id from ledger.finish(worker, leases, ids, outcomes, delays_ms, reasons, outputs) f;
    return query insert into postrider.done as made (class, id, lease, state, ended_as, attempt)
        select (t.id & 3)::smallint, t.id, t.lease, 2, 1, 1 from unnest(finish.leases, finish.ids, finish.outcomes) t (lease, id, outcome)
         where t.outcome = 1 and not exists (select from postrider.done d where d.class = (t.id & 3)::smallint and d.id = t.id)
        returning made.lease, made.id;
end $$";

/// A worker stands still until another one has begun its job; then its own outcome comes, from a lease that is gone.
async fn rob(scene: &mut Scene) {
    let robbed = scene.enlist("worker-1", &["--relay"]);
    scene.stage.crew.says(robbed, "started ").await;
    // short enough that its handler ends before it is dropped for having lost its lease, also if it stands still before it has slept
    book(&scene.stage, 700).await;
    scene.stage.crew.says(robbed, "begun ").await;
    let name = scene.stage.crew.member(robbed).full_name();
    let no = scene.stage.faults.begin(Kind::Pause, &name).await.unwrap();
    scene.stage.crew.member(robbed).process().signal(Signal::STOP);
    let other = scene.enlist("worker-2", &["--relay"]);
    scene.stage.crew.says(other, "begun ").await;
    scene.stage.crew.member(robbed).process().signal(Signal::CONT);
    scene.stage.faults.end(no, true).await.unwrap();
    scene.stage.crew.says(robbed, "effect ").await;
    scene.stage.crew.says(other, "effect ").await;
}

#[tokio::test]
async fn l3_an_outcome_without_its_fence_is_found_as_a_stale_write() {
    turns_red(Number::StaleWrite, async |seed| {
        let mut scene = Scene::set(seed, Duration::from_millis(300), 0).await;
        scene.plant(FINISH_WITHOUT_A_FENCE).await;
        rob(&mut scene).await;
        scene.judge().await
    })
    .await;
}

/// `postrider.relay` as an outbox with a cursor would have it: what has a lower number than the last one seen was seen.
const RELAY_BY_NUMBER: &str =
    "create or replace function postrider.relay(most int, elsewhere boolean default false, careful boolean default false,
    refused json default null) returns postrider.relayed
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    last postrider.cut;
    new postrider.cut;
    seqs bigint[];
    types text[];
    owners text[];
    answer postrider.relayed;
begin
    answer := row (null, 0, 0, false, false, 'busy', null, 0, null);
    if not pg_try_advisory_xact_lock(7305, 1) then
        return answer;
    end if;
    select * into last from postrider.cut order by no desc limit 1;
    answer.why := 'idle';
    select array_agg(e.seq order by e.seq), array_agg(e.type order by e.seq), array_agg(e.owner order by e.seq)
      into seqs, types, owners
      from (select * from postrider.event where seq > coalesce(last.last_seq, 0) order by seq limit most) e;
    answer.n := coalesce(cardinality(seqs), 0);
    if answer.n = 0 then
        return answer;
    end if;
    new := last;
    new.no := last.no + 1;
    new.n := answer.n;
    new.last_seq := seqs[answer.n];
    new.hi := pg_current_snapshot();
    new.jobs := postrider.fan_out(clock_timestamp(), seqs, types, owners);
    new.events_total := last.events_total + answer.n;
    insert into postrider.cut select new.*;
    perform postrider.wake('postrider_job');
    answer.jobs := new.jobs;
    answer.why := 'done';
    return answer;
end $$";

#[tokio::test]
async fn y1_a_relay_with_a_cursor_loses_what_commits_late() {
    turns_red(Number::Lost, async |seed| {
        let mut scene = Scene::set(seed, Duration::from_millis(300), 0).await;
        scene.plant(RELAY_BY_NUMBER).await;
        let worker = scene.enlist("worker-1", &["--relay"]);
        scene.stage.crew.says(worker, "started ").await;
        // every event of this one is open while the other one's pass it by
        let patient = ["--tasks", "3", "--transactions", "4", "--hold-ms", "900", "--hold-least-ms", "900"];
        let late = scene.produce("producer-1", 10 * seed + 1, &patient);
        let quick = ["--tasks", "2", "--transactions", "60", "--hold-ms", "20", "--pause-ms", "60"];
        let early = scene.produce("producer-2", 10 * seed + 2, &quick);
        scene.have_ended(&[late, early]).await;
        scene.judge().await
    })
    .await;
}

#[tokio::test]
async fn c54_a_delivery_that_is_signed_with_the_time_of_its_first_attempt_is_not_believed() {
    turns_red(Number::BadSignature, async |seed| {
        let mut scene = Scene::set(seed, Duration::from_millis(1_200), 40).await;
        let worker = scene.enlist("worker-1", &["--relay", "--holds-clock"]);
        scene.stage.crew.says(worker, "started ").await;
        let producer = scene.produce("producer-1", seed, &["--tasks", "2", "--transactions", "12"]);
        scene.have_ended(&[producer]).await;
        scene.judge().await
    })
    .await;
}

#[tokio::test]
async fn without_a_planted_bug_the_same_scenes_are_green() {
    let mut scene = Scene::set(1, Duration::from_millis(1_200), 40).await;
    rob(&mut scene).await;
    let patient = ["--tasks", "2", "--transactions", "3", "--hold-ms", "600", "--hold-least-ms", "600"];
    let (late, early) =
        (scene.produce("producer-1", 5, &patient), scene.produce("producer-2", 6, &["--transactions", "10"]));
    scene.have_ended(&[late, early]).await;
    let table = scene.judge().await;
    assert_eq!(table.red(), [], "{table}");
    assert!(table.extra > 0 && table.losses == 1, "the scene did not play: {table}");
}
