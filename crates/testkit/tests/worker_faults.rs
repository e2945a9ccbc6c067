//! What becomes of jobs when workers die, stand still, block, or lose their replies: L1–L9, K10, C02, C03, C09, C14.
#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::indexing_slicing,
    reason = "a test asks the database itself, and a failed helper is a failed test"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use postrider_testkit::{Effect, Fixture, Process, Signal, TestDb, fixture, until};
use rand::{RngExt, SeedableRng, rngs::StdRng};
use sqlx::{Connection, PgConnection, PgPool};
use tokio::time::{Instant, sleep};
use uuid::Uuid;

/// How long a busy machine may take for what needs no waiting.
const SOON: Duration = Duration::from_mins(1);
/// What the fixture's workers are started with, unless they say otherwise.
const DEAD_AFTER: Duration = Duration::from_millis(1_500);

struct Stage {
    db: TestDb,
    fixture: Fixture,
}

impl Stage {
    async fn set() -> Self {
        let db = TestDb::fresh().await;
        fixture::declare(db.pool(), &[]).await.unwrap();
        let fixture = Fixture::new(env!("CARGO_BIN_EXE_postrider-fixture"), db.url());
        Self { db, fixture }
    }

    fn pool(&self) -> &PgPool {
        self.db.pool()
    }

    fn worker(&self, arguments: &[&str]) -> Process {
        self.fixture.start(&[&["worker"], arguments].concat())
    }

    async fn number(&self, sql: &'static str) -> i64 {
        sqlx::query_scalar(sql).fetch_one(self.pool()).await.unwrap()
    }

    async fn enqueue(&self, n: i32, kind: &str, args: &str, max_attempts: Option<i32>) -> Vec<i64> {
        // in the list, not in from: there it would be called once for all rows
        let sql = "select (postrider.enqueue($2, $3::json, max_attempts => $4)).id from generate_series(1, $1)";
        let call = sqlx::query_scalar(sql).bind(n).bind(kind).bind(args).bind(max_attempts);
        call.fetch_all(self.pool()).await.unwrap()
    }

    /// Waits until the number is this one.
    async fn until(&self, sql: &'static str, expected: i64, within: Duration) {
        until(&format!("{expected} = {sql}"), within, async || (self.number(sql).await == expected).then_some(()))
            .await;
    }

    /// Every row that says where a job is, and what became of its attempts.
    async fn state(&self) -> Vec<String> {
        let sql = "select 'done ' || x::text from postrider.done x union all select 'later ' || x::text from postrider.later x
             union all select 'ready ' || x::text from postrider.ready x
             union all select 'parked ' || x::text from postrider.parked x
             union all select 'lease ' || x::text from postrider.lease x
             union all select 'attempt ' || x::text from postrider.attempt x order by 1";
        sqlx::query_scalar(sql).fetch_all(self.pool()).await.unwrap()
    }
}

async fn did(process: &Process, n: usize, word: &str, kind: &str, within: Duration) {
    until(&format!("{n} × {word} {kind}"), within, async || (process.count(word, kind) >= n).then_some(())).await;
    assert_eq!(process.count(word, kind), n, "{word} {kind}");
}

async fn stop(mut process: Process) -> Process {
    process.signal(Signal::TERM);
    assert_eq!(process.exit(SOON).await, Some(0), "{}", process.log());
    process
}

const DONE: &str = "select count(*) from postrider.done where state = 2";
const LOST: &str = "select count(*) from postrider.attempt where outcome = 3";
const LEASES: &str = "select count(*) from postrider.lease";

#[tokio::test]
async fn l1_a_dead_workers_jobs_run_again_at_once_and_l2_a_live_worker_keeps_its_long_one() {
    let stage = Stage::set().await;
    let mut dying = stage.worker(&["--concurrency", "5"]);
    stage.enqueue(5, "t.wait", "{}", None).await;
    did(&dying, 5, "begin", "wait", SOON).await;
    let living = stage.worker(&["--patience-ms", "0"]);
    // four times as long as it takes to be dead
    stage.enqueue(1, "t.sleep", r#"{"ms": 6000}"#, None).await;
    did(&living, 1, "begin", "sleep", SOON).await;

    dying.kill().await;
    let killed = Instant::now();
    did(&living, 5, "end", "wait", DEAD_AFTER + Duration::from_secs(5)).await;
    println!("run again {:?} after the kill", killed.elapsed());
    did(&living, 1, "end", "sleep", SOON).await;
    stage.until(DONE, 6, SOON).await;

    let effects = living.effects();
    let again: BTreeSet<i64> = effects.iter().filter(|e| e.kind == "wait").map(|e| e.lease).collect();
    assert_eq!(again.len(), 5, "each runs in a lease of its own the second time");
    assert!(effects.iter().all(|e| e.attempt == 1), "a process that dies with several jobs costs none an attempt");
    assert_eq!(living.count("begin", "sleep"), 1);
    assert_eq!(stage.number(LOST).await, 5);
    assert_eq!(stop(living).await.figure("rescued"), 5);
}

#[tokio::test]
async fn c14_a_job_that_kills_its_worker_is_discarded_after_three_and_its_neighbours_are_done() {
    let stage = Stage::set().await;
    let poison = stage.enqueue(1, "t.abort", "{}", Some(3)).await[0];
    stage.enqueue(100, "t.effect", "{}", None).await;
    let arguments = ["--concurrency", "4", "--beat-ms", "50", "--dead-after-ms", "500"];
    let mut worker = stage.worker(&arguments);
    let mut crashes = 0;
    let all = "select count(*) from postrider.done";
    until("every job has ended", Duration::from_mins(2), async || {
        if !worker.is_alive() {
            crashes += 1;
            worker = stage.worker(&arguments);
        }
        (stage.number(all).await == 101).then_some(())
    })
    .await;
    assert_eq!(crashes, 3);
    assert_eq!(stage.number(DONE).await, 100);
    let sql = "select state, ended_as, fault_side, attempt, reason from postrider.done where id = $1";
    let end: (i16, i16, i16, i16, String) = sqlx::query_as(sql).bind(poison).fetch_one(stage.pool()).await.unwrap();
    assert_eq!((end.0, end.1, end.2, end.4.as_str()), (3, 4, 3, "worker lost ×3"), "attempt {}", end.3);
    stop(worker).await;
}

/// Runs while one of four workers after another is killed at random moments; answers with all that they did.
async fn kill_workers(stage: &Stage, kills: usize, enough: &'static str, all: i64) -> Vec<Effect> {
    let mut dice = StdRng::seed_from_u64(1);
    let start = || stage.worker(&["--concurrency", "5", "--dead-after-ms", "1000"]);
    let mut workers: Vec<Process> = (0..4).map(|_| start()).collect();
    let mut effects = Vec::new();
    for _ in 0..kills {
        sleep(Duration::from_millis(dice.random_range(150..700))).await;
        let victim = &mut workers[dice.random_range(0..4)];
        victim.kill().await;
        effects.extend(victim.effects());
        *victim = start();
    }
    stage.until(enough, all, Duration::from_mins(2)).await;
    for worker in workers {
        effects.extend(stop(worker).await.effects());
    }
    effects
}

#[tokio::test]
async fn f01_p3_workers_killed_at_random_lose_no_job_and_each_second_run_is_explained_by_a_loss() {
    let stage = Stage::set().await;
    let mut jobs = stage.enqueue(700, "t.sleep", r#"{"ms": 60}"#, None).await;
    jobs.extend(stage.enqueue(300, "t.fail", r#"{"k": 1}"#, None).await);
    let effects = kill_workers(&stage, 14, DONE, 1_000).await;

    let ended = effects.iter().filter(|effect| effect.word == "end");
    let mut runs = BTreeMap::<i64, BTreeSet<i64>>::new();
    for effect in ended {
        assert!(runs.entry(effect.job).or_default().insert(effect.lease), "twice under one lease: {effect:?}");
    }
    assert!(jobs.iter().all(|job| runs.contains_key(job)), "lost");
    let sql = "select id, lease from postrider.attempt where outcome = 3";
    let losses: BTreeSet<(i64, i64)> = sqlx::query_as(sql).fetch_all(stage.pool()).await.unwrap().into_iter().collect();
    let sql = "select id, lease from postrider.done";
    let ends: BTreeSet<(i64, i64)> = sqlx::query_as(sql).fetch_all(stage.pool()).await.unwrap().into_iter().collect();
    let under = |job: i64| runs[&job].iter().map(move |&lease| (job, lease));
    let extra: Vec<(i64, i64)> = jobs.iter().flat_map(|&job| under(job)).filter(|run| !ends.contains(run)).collect();
    println!("{} losses, {} second runs", losses.len(), extra.len());
    assert!(extra.iter().all(|run| losses.contains(run)), "not explained: {extra:?}");
    assert!(jobs.iter().all(|&job| under(job).any(|run| ends.contains(&run))), "done without its effect");
    assert!(!losses.is_empty(), "no kill hit a running job");
    assert_eq!(stage.number(LEASES).await, 0);
}

/// Where each job is: place, attempts spent, losses, flags (4 = runs in a lease of its own).
async fn places(stage: &Stage) -> BTreeMap<i64, (String, i16, i16, i16)> {
    let sql = "select id, 'ready', attempt, losses, flags from postrider.ready
        union all select id, key, attempt, losses, flags from postrider.parked
        union all select id, reason, attempt, 0::smallint, 0::smallint from postrider.done";
    let rows: Vec<(i64, String, i16, i16, i16)> = sqlx::query_as(sql).fetch_all(stage.pool()).await.unwrap();
    rows.into_iter().map(|(id, place, attempt, losses, flags)| (id, (place, attempt, losses, flags))).collect()
}

#[tokio::test]
async fn a_loss_in_company_is_free_one_alone_spends_an_attempt_and_l9_the_last_one_discards() {
    let stage = Stage::set().await;
    let jobs = stage.enqueue(3, "t.wait", "{}", None).await;
    let last = stage.enqueue(1, "t.wait", "{}", Some(1)).await[0];
    // puts jobs back and runs none
    let sweeper = stage.fixture.start(&["relay", "--dead-after-ms", "600"]);
    let lose = async |n: usize, lost: i64| {
        let mut worker = stage.worker(&["--concurrency", &n.to_string(), "--dead-after-ms", "600"]);
        did(&worker, n, "begin", "wait", SOON).await;
        worker.kill().await;
        stage.until(LOST, lost, SOON).await;
        stage.until(LEASES, 0, SOON).await;
        let places = places(&stage).await;
        let of = |id: i64| places[&id].clone();
        (jobs.iter().map(|&id| of(id)).collect::<Vec<_>>(), of(last))
    };
    let at = |place: &str, attempt, losses, flags| (place.to_owned(), attempt, losses, flags);

    let (others, discarded) = lose(4, 4).await;
    assert_eq!(others, vec![at("ready", 0, 1, 4); 3], "four at a time: nobody's attempt");
    assert_eq!(discarded, at("worker lost", 1, 0, 0), "its only attempt");
    let (others, _) = lose(1, 5).await;
    assert_eq!(others, [at("ready", 1, 2, 4), at("ready", 0, 1, 4), at("ready", 0, 1, 4)], "alone: it did it");
    let (others, _) = lose(3, 8).await;
    let strict = [at("strict:", 1, 3, 4), at("strict:", 0, 2, 4), at("strict:", 0, 2, 4)];
    assert_eq!(others, strict, "lost again in company: from now on one at a time");
    stop(sweeper).await;
}

#[tokio::test]
async fn p5_a_worker_that_stood_still_for_too_long_changes_nothing_and_l4_its_handlers_are_cancelled() {
    let stage = Stage::set().await;
    let paused = stage.worker(&["--concurrency", "2"]);
    stage.enqueue(1, "t.sleep", r#"{"ms": 2000}"#, None).await;
    stage.enqueue(1, "t.wait", "{}", None).await;
    did(&paused, 1, "begin", "sleep", SOON).await;
    did(&paused, 1, "begin", "wait", SOON).await;
    paused.signal(Signal::STOP);
    assert_eq!(paused.count("end", "sleep"), 0, "it was stopped too late");
    let other = stage.worker(&["--patience-ms", "0"]);
    did(&other, 1, "end", "sleep", SOON).await;
    did(&other, 1, "end", "wait", SOON).await;
    stage.until(DONE, 2, SOON).await;
    let before = stage.state().await;

    paused.signal(Signal::CONT);
    did(&paused, 1, "cancelled", "wait", SOON).await;
    did(&paused, 1, "end", "sleep", SOON).await;
    let paused = stop(paused).await;
    assert_eq!(paused.figure("stale"), 2, "{}", paused.log());
    assert_eq!(paused.figure("completed"), 0);
    assert!(paused.log().contains("came too late: its lease was lost"), "{}", paused.log());
    assert_eq!(stage.state().await, before);
    let leases: Vec<i64> =
        sqlx::query_scalar("select lease from postrider.done order by 1").fetch_all(stage.pool()).await.unwrap();
    let ends: BTreeSet<i64> = other.effects().iter().map(|effect| effect.lease).collect();
    assert_eq!(leases, ends.into_iter().collect::<Vec<_>>(), "the other one's outcomes stand");
}

/// Claims up to ten jobs in SQL; answers with (lease, job).
async fn claim(connection: &mut PgConnection, worker: Uuid, call: i64) -> Vec<(i64, i64)> {
    let sql = "select lease, id from postrider.claim($1, $2, 'default', array['t.effect'], 10, array[2::smallint],
                array[0::smallint], array[0::bigint]) order by id";
    sqlx::query_as(sql).bind(worker).bind(call).fetch_all(connection).await.unwrap()
}

async fn finish(stage: &Stage, worker: Uuid, held: &[(i64, i64)], outcomes: &[i16]) -> usize {
    let sql = "select lease, id from postrider.finish($1, $2, $3, $4, $5, $6)";
    let call = sqlx::query_as::<_, (i64, i64)>(sql)
        .bind(worker)
        .bind(held.iter().map(|h| h.0).collect::<Vec<_>>())
        .bind(held.iter().map(|h| h.1).collect::<Vec<_>>())
        .bind(outcomes.to_vec())
        .bind(vec![60_000_i64; held.len()])
        .bind(vec!["because"; held.len()]);
    call.fetch_all(stage.pool()).await.unwrap().len()
}

#[tokio::test]
async fn l3_an_outcome_counts_once_and_only_from_the_worker_and_the_lease_that_hold_the_job() {
    let stage = Stage::set().await;
    let mut connection = stage.pool().acquire().await.unwrap();
    let (mine, theirs) = (Uuid::from_u128(1), Uuid::from_u128(2));
    stage.enqueue(7, "t.effect", "{}", None).await;
    let held = claim(&mut connection, mine, 1).await;
    assert_eq!(held.len(), 7);
    let all: Vec<i16> = (1..=6).collect();
    let before = stage.state().await;
    assert_eq!(finish(&stage, theirs, &held[..6], &all).await, 0, "another worker's");
    assert_eq!(stage.state().await, before);
    assert_eq!(finish(&stage, mine, &held[..6], &all).await, 6);
    let after = stage.state().await;
    for outcome in 1..=6 {
        assert_eq!(finish(&stage, mine, &held[..6], &[outcome; 6]).await, 0, "again, as {outcome}");
        assert_eq!(stage.state().await, after, "again, as {outcome}");
    }
    assert_eq!(finish(&stage, mine, &[held[6], held[6]], &[1, 1]).await, 1, "twice in one call");
    assert_eq!(stage.number(LEASES).await, 0);

    // the one that was released is claimed again: the lease of its older claim is worth nothing
    let again = claim(&mut connection, mine, 2).await;
    assert_eq!(again.iter().map(|h| h.1).collect::<Vec<_>>(), [held[5].1]);
    let before = stage.state().await;
    for outcome in 1..=6 {
        assert_eq!(finish(&stage, mine, &[held[5]], &[outcome]).await, 0, "as {outcome}");
        assert_eq!(finish(&stage, theirs, &again, &[outcome]).await, 0, "as {outcome}");
        assert_eq!(stage.state().await, before, "as {outcome}");
    }
    assert_eq!(finish(&stage, mine, &again, &[1]).await, 1);
}

#[tokio::test]
async fn a_claim_whose_reply_was_lost_is_handed_back_by_the_next_beat_with_its_attempt() {
    let stage = Stage::set().await;
    let me = Uuid::from_u128(7);
    let jobs = stage.enqueue(3, "t.effect", "{}", None).await;
    let mut connection = PgConnection::connect(stage.db.url()).await.unwrap();
    let lease = claim(&mut connection, me, 4).await[0].0;
    connection.close_hard().await.unwrap();
    let tick = async |settled: i64, held: &[i64]| -> i64 {
        let report = format!(
            r#"{{"app": "a", "version": "1", "host": "h", "pid": 1, "queues": ["default"],
            "kinds": ["t.effect"], "held": {held:?}, "settled": {settled}, "dead": []}}"#
        );
        let sql = "select (postrider.tick($1, $2::json) ->> 'handed_back')::bigint";
        sqlx::query_scalar(sql).bind(me).bind(report).fetch_one(stage.pool()).await.unwrap()
    };
    assert_eq!(tick(3, &[]).await, 0, "its reply may still be on its way");
    assert_eq!(tick(4, &[lease]).await, 0, "it has arrived");
    assert_eq!(stage.number(LEASES).await, 1);
    assert_eq!(tick(4, &[]).await, 3);
    assert_eq!(tick(4, &[]).await, 0);
    let back: BTreeMap<_, _> = jobs.iter().map(|&id| (id, ("ready".to_owned(), 0, 0, 0))).collect();
    assert_eq!(places(&stage).await, back, "as if nothing had happened");
    assert_eq!(stage.number("select count(*) from postrider.attempt").await, 0);
}

#[tokio::test]
async fn l7_handlers_that_block_their_runtime_keep_their_leases() {
    let stage = Stage::set().await;
    let blocked = stage.worker(&["--threads", "1", "--concurrency", "2"]);
    stage.enqueue(2, "t.block", r#"{"ms": 5000}"#, None).await;
    until("one blocks", SOON, async || (blocked.count("begin", "block") >= 1).then_some(())).await;
    let watching = stage.worker(&["--concurrency", "4"]);
    did(&blocked, 2, "end", "block", SOON).await;
    stage.until(DONE, 2, SOON).await;
    assert_eq!(stage.number("select count(*) from postrider.attempt").await, 0);
    assert_eq!((watching.effects(), blocked.count("begin", "block")), (vec![], 2));
    assert_eq!(stop(watching).await.figure("rescued"), 0);
    assert_eq!(stop(blocked).await.figure("completed"), 2);
}

#[tokio::test]
async fn l6_two_processes_of_one_name_share_no_lease() {
    let stage = Stage::set().await;
    let twins = [stage.worker(&["--app", "twin"]), stage.worker(&["--app", "twin"])];
    until("both beat", SOON, async || {
        (stage.number("select count(*) from postrider.worker where app = 'twin'").await == 2).then_some(())
    })
    .await;
    stage.enqueue(300, "t.sleep", r#"{"ms": 10}"#, None).await;
    stage.until(DONE, 300, SOON).await;
    let leases = |twin: &Process| twin.effects().iter().map(|effect| effect.lease).collect::<BTreeSet<i64>>();
    let [one, other] = [leases(&twins[0]), leases(&twins[1])];
    assert!(!one.is_empty() && !other.is_empty(), "one of them did everything");
    assert!(one.is_disjoint(&other));
    assert_eq!(twins.iter().map(|twin| twin.count("begin", "sleep")).sum::<usize>(), 300);
    assert_eq!(stage.number("select count(*) from postrider.attempt").await, 0);
    for twin in twins {
        stop(twin).await;
    }
}

#[tokio::test]
async fn c09_the_jobs_of_a_dead_worker_run_again_under_a_new_start_of_the_same_name() {
    let stage = Stage::set().await;
    let mut first = stage.worker(&["--app", "pod"]);
    stage.enqueue(10, "t.wait", "{}", None).await;
    did(&first, 10, "begin", "wait", SOON).await;
    first.kill().await;
    let second = stage.worker(&["--app", "pod", "--patience-ms", "0"]);
    did(&second, 10, "end", "wait", SOON).await;
    stage.until(DONE, 10, SOON).await;
    stop(second).await;
}

#[tokio::test]
async fn c09_the_jobs_of_a_dead_worker_run_again_although_its_registration_was_deleted() {
    let stage = Stage::set().await;
    let mut dying = stage.worker(&["--concurrency", "10"]);
    stage.enqueue(10, "t.wait", "{}", None).await;
    did(&dying, 10, "begin", "wait", SOON).await;
    let living = stage.worker(&["--patience-ms", "0"]);
    stage.enqueue(1, "t.sleep", r#"{"ms": 4000}"#, None).await;
    did(&living, 1, "begin", "sleep", SOON).await;
    dying.signal(Signal::STOP);
    sqlx::raw_sql("delete from postrider.worker").execute(stage.pool()).await.unwrap();
    dying.kill().await;
    did(&living, 10, "end", "wait", SOON).await;
    did(&living, 1, "end", "sleep", SOON).await;
    stage.until(DONE, 11, SOON).await;
    assert_eq!(living.count("begin", "sleep"), 1, "the live one's row was deleted as well, and it kept its job");
    assert_eq!(stop(living).await.figure("stale"), 0);
}

/// Moves what is ready into leases of a worker that never was, a batch of them or one at a time.
const ORPHAN: &str = "with r as (delete from postrider.ready returning *),
    b as (select nextval('postrider.lease_id') as lease, array_agg(id) as ids from (
        select id, case when n <= 2500 then n / 50 else n end as batch
          from (select id, row_number() over (order by id) as n from r) numbered) x group by batch)
    insert into postrider.lease (id, worker, call, claimed_at, queue, ids, positions, attempts, losses, flags, priorities, shares, open)
    select lease, '00000000-0000-0000-0000-00000000dead', 1, clock_timestamp() - interval '90 days', 'default', ids, ids,
           array_fill(1::smallint, array[cardinality(ids)]), array_fill(0::smallint, array[cardinality(ids)]),
           array_fill(0::smallint, array[cardinality(ids)]), array_fill(2::smallint, array[cardinality(ids)]),
           array_fill(0::smallint, array[cardinality(ids)]), ids from b";

#[tokio::test]
async fn c02_five_thousand_jobs_leased_by_nobody_for_ninety_days_are_released_within_half_a_minute() {
    let stage = Stage::set().await;
    let kinds: Vec<String> = (1..40).map(|k| format!(r#"{{"name": "old.k{k}"}}"#)).collect();
    let declared = format!(r#"{{"app": "old", "kinds": [{}]}}"#, kinds.join(","));
    sqlx::query("select postrider.declare($1::json)").bind(declared).execute(stage.pool()).await.unwrap();
    let sql = "select count(e.id) from generate_series(1, 5000) n,
        lateral postrider.enqueue(case when n % 10 = 0 then 't.effect' else 'old.k' || (n % 39 + 1) end) e";
    assert_eq!(sqlx::query_scalar::<_, i64>(sql).fetch_one(stage.pool()).await.unwrap(), 5_000);
    sqlx::raw_sql(ORPHAN).execute(stage.pool()).await.unwrap();
    assert_eq!(stage.number("select sum(cardinality(open)) from postrider.lease").await, 5_000);

    let worker = stage.worker(&["--concurrency", "50"]);
    until("it beats", SOON, async || (!worker.lines().is_empty()).then_some(())).await;
    let started = Instant::now();
    stage.until(LOST, 5_000, Duration::from_secs(30)).await;
    println!("released {:?} after the start", started.elapsed());
    stage.until(DONE, 500, SOON).await;
    let parked = "select count(*) from postrider.parked where key like 'kind:old.k%' and attempt = 0";
    stage.until(parked, 4_500, SOON).await;
    stage.until(LEASES, 0, SOON).await;
    assert_eq!(stop(worker).await.figure("rescued"), 5_000);
    // statistics are written when the worker's connections have ended
    stage.until("select count(*) from pg_stat_activity where application_name like 'postrider %' and datname = current_database()", 0, SOON).await;
    let read = "select sum(seq_tup_read)::bigint from pg_stat_all_tables where schemaname = 'postrider' and relname like 'job\\_c%'";
    assert_eq!(stage.number(read).await, 0, "each release reads its own jobs, not the table");
}

#[tokio::test]
async fn k10_a_kind_that_no_worker_knows_waits_without_an_attempt_until_one_comes() {
    let stage = Stage::set().await;
    let old = stage.worker(&["--kinds", "effect"]);
    stage.enqueue(5, "t.sleep", "{}", None).await;
    stage.enqueue(5, "t.effect", "{}", None).await;
    stage.until("select count(*) from postrider.parked where key = 'kind:t.sleep' and attempt = 0", 5, SOON).await;
    stage.until(DONE, 5, SOON).await;
    let new = stage.worker(&[]);
    did(&new, 5, "end", "sleep", SOON).await;
    stage.until(DONE, 10, SOON).await;
    let untouched = "select count(*) from postrider.done where attempt = 1";
    assert_eq!((stage.number(untouched).await, stage.number("select count(*) from postrider.attempt").await), (10, 0));
    stop(new).await;
    stop(old).await;
}

#[tokio::test]
async fn f29_an_old_and_a_new_worker_share_a_queue_and_nothing_is_discarded_or_run_twice() {
    let stage = Stage::set().await;
    // the new one is slow to take: most jobs of its kind meet the old one first
    let (old, new) = (stage.worker(&["--kinds", "effect"]), stage.worker(&["--concurrency", "2"]));
    for _ in 0..10 {
        stage.enqueue(15, "t.sleep", r#"{"ms": 2}"#, None).await;
        stage.enqueue(15, "t.effect", "{}", None).await;
    }
    stage.until(DONE, 300, Duration::from_mins(2)).await;
    assert!(old.effects().iter().all(|effect| effect.kind == "effect"));
    let mut ends = BTreeMap::<i64, usize>::new();
    let effects: Vec<Effect> = old.effects().into_iter().chain(new.effects()).filter(|e| e.word == "end").collect();
    for effect in &effects {
        *ends.entry(effect.job).or_default() += 1;
    }
    assert_eq!((ends.len(), ends.values().max()), (300, Some(&1)));
    assert!(effects.iter().all(|effect| effect.attempt == 1));
    stop(old).await;
    stop(new).await;
}
