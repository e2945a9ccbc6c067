//! R1 to R3, C18: what has ended goes after the time of its class, and nothing that lives or still counts goes with it.
//!
//! Time is moved, not waited for: everything that is there becomes older.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a failed helper is a failed test, and a test asks the database itself"
)]

use std::collections::BTreeSet;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use postrider::inspect::{self, Severity};
use postrider::port::Look;
use postrider::{
    Act, Bus, Class, Code, Effect, Enqueued, Error, Filter, Inspector, JobId, Jobs, Kind, KindSpec, NewJob, Payload,
    PgInspector, PgJobs, State, Timestamp, Unique, Waited,
};
use postrider_testkit::{TestDb, until};
use serde_json::Value;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, PgPool};

const WORKER: &str = "0b0b0b0b-0000-4000-8000-000000000001";
const DAY: Duration = Duration::from_hours(24);

struct House {
    db: TestDb,
    jobs: PgJobs,
    inspector: PgInspector,
}

impl House {
    /// With a kind of each class, all in one queue.
    async fn built() -> Self {
        let db = TestDb::fresh().await;
        let kinds = [("k.short", Class::Short), ("k.standard", Class::Standard), ("k.long", Class::Long)];
        let kinds = kinds.map(|(name, class)| Kind::spec(KindSpec { class, ..KindSpec::new(name) }));
        Bus::builder(db.pool().clone()).types(["a.b"]).kinds(kinds).build().await.unwrap();
        let (jobs, inspector) = (PgJobs::new(db.pool().clone()), PgInspector::new(db.pool().clone()));
        Self { db, jobs, inspector }
    }

    fn pool(&self) -> &PgPool {
        self.db.pool()
    }

    async fn run(&self, sql: impl Into<String>) {
        sqlx::raw_sql(AssertSqlSafe(sql.into())).execute(self.pool()).await.unwrap();
    }

    async fn text(&self, sql: impl Into<String>) -> String {
        sqlx::query_scalar(AssertSqlSafe(sql.into())).fetch_one(self.pool()).await.unwrap()
    }

    async fn enqueue(&self, job: NewJob) -> JobId {
        self.jobs.enqueue(None, &[job]).await.unwrap().remove(0).id
    }

    /// Lets everything that is there become older.
    async fn pass(&self, time: Duration) {
        let by = format!("interval '{} seconds'", time.as_secs());
        self.run(format!(
            "update postrider.epoch set started_at = started_at - {by};
             update postrider.job set created_at = created_at - {by}, run_at = run_at - {by};
             update postrider.later set run_at = run_at - {by};
             update postrider.done set finished_at = finished_at - {by};
             update postrider.uniq set until = until - {by} where until is not null;
             update postrider.pinned set since = since - {by}, look_at = look_at - {by}"
        ))
        .await;
    }

    /// A step of a duty.
    async fn step(&self, duty: &str) -> Value {
        serde_json::from_str(&self.text(format!("select postrider.housekeep('{duty}')::text")).await).unwrap()
    }

    /// All that housekeeping does in one pass.
    async fn housekeep(&self) {
        self.step("usual").await;
        while self.step("retire").await.get("again") == Some(&Value::Bool(true)) {}
    }

    /// A day goes by, and housekeeping comes.
    async fn day(&self) {
        self.pass(DAY).await;
        self.housekeep().await;
    }

    async fn days(&self, n: usize) {
        for _ in 0..n {
            self.day().await;
        }
    }

    /// Claims what is due; answers with leases and ids.
    async fn claim(&self) -> Vec<(i64, i64)> {
        let sql = format!(
            "select lease, id from postrider.claim('{WORKER}', 1, 'default', array['k.short', 'k.standard', 'k.long'], 100,
                array[2]::smallint[], array[0]::smallint[], array[0]::bigint[]) where lease is not null"
        );
        sqlx::query_as(AssertSqlSafe(sql)).fetch_all(self.pool()).await.unwrap()
    }

    /// Ends what is claimed: 1 completed, 2 failed and again in an hour, 4 refused.
    async fn finish(&self, claimed: &[(i64, i64)], outcome: u8) {
        let (leases, ids): (Vec<i64>, Vec<i64>) = claimed.iter().copied().unzip();
        let sql = format!(
            "select count(*) from postrider.finish('{WORKER}', $1, $2, array_fill({outcome}::smallint, array[cardinality($1)]),
                array_fill(3600000::bigint, array[cardinality($1)]), array_fill(case {outcome} when 1 then null else 'broke' end, array[cardinality($1)]))"
        );
        let ended: i64 =
            sqlx::query_scalar(AssertSqlSafe(sql)).bind(leases).bind(ids).fetch_one(self.pool()).await.unwrap();
        assert_eq!(ended, i64::try_from(claimed.len()).unwrap());
    }

    async fn look(&self, id: &JobId) -> Look {
        self.inspector.look(id).await.unwrap()
    }

    async fn is_here(&self, id: &JobId) -> bool {
        matches!(self.look(id).await, Look::Here(_))
    }

    /// The spans that have partitions, table by table.
    async fn spans(&self, table: &str) -> Vec<String> {
        let sql = format!(
            "select substr(inhrelid::regclass::text, {}) from pg_inherits where inhparent = 'postrider.{table}'::regclass order by 1",
            "postrider.".len() + table.len() + 1
        );
        sqlx::query_scalar(AssertSqlSafe(sql)).fetch_all(self.pool()).await.unwrap()
    }

    async fn disk(&self) -> i64 {
        let sql = "select sum(pg_total_relation_size(oid))::bigint from pg_class
                    where relnamespace = 'postrider'::regnamespace and relkind = 'r'";
        sqlx::query_scalar(sql).fetch_one(self.pool()).await.unwrap()
    }

    /// So many jobs of the class standard that ended just now.
    async fn fill(&self, n: u32) {
        self.run(format!(
            "begin;
             create temp table made on commit drop as select (nextval('postrider.job_number') << 2) | 2 as id from generate_series(1, {n});
             insert into postrider.job (class, id, kind, queue, priority, max_attempts, args)
             select 2, id, 'k.standard', 'default', 2, 10, json_build_object('text', repeat('x', 300)) from made;
             insert into postrider.done (class, id, state, ended_as, attempt) select 2, id, 2, 1, 1 from made;
             commit"
        ))
        .await;
    }
}

fn job(kind: &str) -> NewJob {
    NewJob::new(kind, Payload::parse("{}").unwrap())
}

fn in_days(n: u64) -> NewJob {
    NewJob { run_at: Some(now().after(DAY * u32::try_from(n).unwrap())), ..job("k.standard") }
}

fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    Timestamp::from_micros(i64::try_from(since.as_micros()).unwrap())
}

fn key(id: &JobId) -> i64 {
    id.as_str().parse().unwrap()
}

#[tokio::test]
async fn r1_what_has_ended_goes_after_the_time_of_its_class_and_not_before() {
    let house = House::built().await;
    let mut kept = Vec::new();
    // ids of a day share a partition; one of the class long is for a week
    for (kind, least, most) in [("k.short", 1, 2), ("k.standard", 7, 8), ("k.long", 90, 97)] {
        kept.push((house.enqueue(job(kind)).await, least, most));
    }
    let claimed = house.claim().await;
    house.finish(&claimed, 1).await;
    for day in 1..=98 {
        house.day().await;
        for (id, least, most) in &kept {
            let here = house.is_here(id).await;
            assert!(here || day >= *least, "{id} went on day {day}");
            assert!(!here || day < *most, "{id} was still there on day {day}");
        }
    }
    for table in ["job", "done", "attempt", "delivery_attempt"] {
        let spans = house.spans(table).await;
        assert_eq!(spans.iter().filter(|span| span.starts_with("_c1_")).count(), 4, "{table}: {spans:?}");
        assert_eq!(spans, house.spans("job").await);
    }
}

#[tokio::test]
async fn r1_times_are_declared_and_two_that_contradict_each_other_are_refused() {
    let house = House::built().await;
    let declare = |time, generation| {
        let builder = Bus::builder(house.pool().clone()).generation(generation);
        builder.keep(Class::Standard, time).keep_events(DAY * 60).build()
    };
    declare(DAY * 2, 1).await.unwrap();
    declare(DAY * 2, 1).await.unwrap();
    assert_eq!(declare(DAY * 3, 1).await.unwrap_err().code(), Some(Code::Conflict));
    declare(DAY * 9, 0).await.unwrap();
    let Err(Error::Declarations(refused)) = declare(Duration::ZERO, 2).await else { panic!("kept for no time") };
    assert_eq!(refused.iter().map(|r| r.field.as_str()).collect::<Vec<_>>(), ["keep"]);
    let kept = house
        .text("select string_agg(what || ' ' || justify_hours(keep), ', ' order by what) from postrider.retention")
        .await;
    assert_eq!(kept, "event 60 days, long 90 days, short 1 day, standard 2 days");
    let id = house.enqueue(job("k.standard")).await;
    let claimed = house.claim().await;
    house.finish(&claimed, 1).await;
    house.days(2).await;
    assert!(house.is_here(&id).await);
    house.day().await;
    assert!(!house.is_here(&id).await);
}

#[tokio::test]
async fn r1_what_lives_outlives_the_partition_that_it_was_born_in() {
    let house = House::built().await;
    let ready = house.enqueue(job("k.standard")).await;
    let fails = house.enqueue(job("k.standard")).await;
    let runs = house.enqueue(job("k.standard")).await;
    let later = house.enqueue(in_days(60)).await;
    let parked = house.enqueue(NewJob { queue: Some("other".to_owned()), ..job("k.standard") }).await;
    house.fill(50).await;
    let mut claimed = house.claim().await;
    let mut of = |id: &JobId| claimed.remove(claimed.iter().position(|(_, c)| *c == key(id)).unwrap());
    let (failing, mut running) = (of(&fails), of(&runs));
    house.finish(&[failing], 2).await;
    house.run(format!("select postrider.part('{WORKER}', {0}, {1}, 1)", running.0, running.1)).await;
    running.0 = house.text("select max(id)::text from postrider.lease").await.parse().unwrap();
    house.run(format!("select postrider.put_back({}, false, false)", claimed[0].0)).await;
    house
        .run(
            "with p as (delete from postrider.ready where queue = 'other' returning *)
             insert into postrider.parked select queue, 'kind:k.standard', pos, id, priority, share, attempt, losses, flags, order_key from p",
        )
        .await;
    // the last of them ends a day before the others are old enough
    let late = house.enqueue(job("k.standard")).await;
    house.run("update postrider.later set run_at = run_at + interval '40 days' where why = 1").await;
    house.days(7).await;
    house.run(format!("update postrider.ready set pos = 1 where id = {late}")).await;
    let last = house.claim().await;
    let ends: Vec<_> = last.iter().copied().filter(|(_, id)| *id == key(&late)).collect();
    house.finish(&ends, 4).await;
    for (lease, _) in last.iter().filter(|(lease, _)| ends.iter().all(|(ended, _)| ended != lease)) {
        house.run(format!("select postrider.put_back({lease}, false, false)")).await;
    }
    house.run("select postrider.put_back(id, false, false) from postrider.lease where cardinality(ids) > 1").await;
    house.day().await;
    let spans = house.spans("job").await;
    assert!(spans.contains(&"_c2_k0_1".to_owned()) && !spans.contains(&"_c2_e0".to_owned()), "{spans:?}");
    let left: Vec<i64> =
        sqlx::query_scalar("select id from postrider.job order by id").fetch_all(house.pool()).await.unwrap();
    let all = [&ready, &fails, &runs, &later, &parked, &late];
    let mut expected = all.map(key);
    expected.sort_unstable();
    assert_eq!(left, expected, "exactly what lives, and what has not been over for long enough");
    for (id, state) in [
        (&ready, State::Pending),
        (&fails, State::Retryable),
        (&runs, State::Running),
        (&later, State::Pending),
        (&parked, State::Pending),
        (&late, State::Discarded),
    ] {
        let Look::Here(view) = house.look(id).await else { panic!("{id} is gone") };
        assert_eq!(view.state, state, "{id}");
        let attempts = usize::from(*id == fails || *id == late);
        assert_eq!(view.attempts.len(), attempts, "{id} keeps its history");
    }
    // what runs ends, and writes where its history is now
    house.finish(&[running], 4).await;
    assert_eq!(house.jobs.act(None, Act::Retry, &[runs.clone(), later.clone()]).await.unwrap(), [Effect::Done; 2]);
    let claimed = house.claim().await;
    assert!(claimed.iter().any(|(_, id)| *id == key(&runs)) && claimed.iter().any(|(_, id)| *id == key(&later)));
    house.finish(&claimed, 1).await;
    let rest = [fails.clone(), parked.clone()];
    assert_eq!(house.jobs.act(None, Act::Cancel, &rest).await.unwrap(), [Effect::Done; 2]);
    // and each goes when its own time is over
    house.days(7).await;
    for id in all {
        assert!(matches!(house.look(id).await, Look::Gone { .. }), "{id}");
    }
    assert!(!house.spans("job").await.iter().any(|span| span.contains("_k")));
}

#[tokio::test]
async fn r1_what_was_kept_is_in_one_partition_that_grows() {
    let house = House::built().await;
    let mut waiting = Vec::new();
    for _ in 0..12 {
        waiting.push(house.enqueue(in_days(100)).await);
        house.fill(3).await;
        house.day().await;
    }
    house.days(10).await;
    let spans = house.spans("job").await;
    assert!(spans.contains(&"_c2_k0_12".to_owned()), "{spans:?}");
    assert_eq!(spans.iter().filter(|span| span.contains("_c2_k")).count(), 1, "{spans:?}");
    for id in &waiting {
        assert!(house.is_here(id).await);
    }
    let n = house.text("select count(*)::text from postrider.job").await;
    assert_eq!(n, "12");
}

#[tokio::test]
async fn r1_many_live_jobs_pin_their_partition_and_an_alert_names_their_kind() {
    let house = House::built().await;
    let jobs: Vec<NewJob> = (0..2_100).map(|_| in_days(90)).collect();
    let made = house.jobs.enqueue(None, &jobs).await.unwrap();
    house.fill(10).await;
    house.days(10).await;
    let spans = house.spans("job").await;
    assert!(spans.contains(&"_c2_e0".to_owned()), "{spans:?}");
    let pinned = async || {
        let alerts = inspect::alerts(house.pool()).await.unwrap();
        alerts.into_iter().filter(|alert| alert.name == "pinned").collect::<Vec<_>>()
    };
    let alerts = pinned().await;
    assert_eq!(alerts.len(), 1, "{alerts:?}");
    assert_eq!((alerts[0].severity, alerts[0].subject.as_str()), (Severity::Warning, "standard jobs of epoch 0"));
    assert!(alerts[0].says.contains("live jobs") && alerts[0].says.contains("k.standard"), "{alerts:?}");
    let ids: Vec<JobId> = made.into_iter().skip(10).map(|made: Enqueued| made.id).collect();
    house.jobs.act(None, Act::Delete, &ids).await.unwrap();
    house.day().await;
    assert!(house.spans("job").await.contains(&"_c2_k0_1".to_owned()));
    assert_eq!(pinned().await, []);
    let left = house.inspector.jobs(&Filter::default(), None, 100).await.unwrap();
    assert_eq!(left.jobs.len(), 10, "the ten that were not deleted");
}

#[tokio::test]
async fn r1_neither_a_late_commit_nor_a_retry_under_way_is_dropped() {
    let house = House::built().await;
    let ended = house.enqueue(job("k.standard")).await;
    let claimed = house.claim().await;
    house.finish(&claimed, 4).await;
    // whoever enqueued weeks ago and has not committed
    let mut producer = house.pool().begin().await.unwrap();
    let late = house.jobs.enqueue(Some(&mut *producer), &[job("k.standard")]).await.unwrap().remove(0).id;
    for _ in 0..10 {
        house.run("update postrider.epoch set started_at = started_at - interval '1 day'").await;
        house.run("update postrider.done set finished_at = finished_at - interval '1 day'").await;
        house.step("usual").await;
    }
    let held = house.step("retire").await;
    while house.step("retire").await.get("again") == Some(&Value::Bool(true)) {}
    assert!(house.spans("job").await.contains(&"_c2_e0".to_owned()), "{held}");
    producer.commit().await.unwrap();
    // an operator brings the other one back, and has not committed
    let mut operator = house.pool().begin().await.unwrap();
    let retried = house.jobs.act(Some(&mut *operator), Act::Retry, std::slice::from_ref(&ended)).await.unwrap();
    assert_eq!(retried, [Effect::Done]);
    house.run("update postrider.pinned set look_at = look_at - interval '1 day'").await;
    while house.step("retire").await.get("again") == Some(&Value::Bool(true)) {}
    assert!(house.spans("job").await.contains(&"_c2_e0".to_owned()));
    operator.commit().await.unwrap();
    house.run("update postrider.pinned set look_at = look_at - interval '1 day'").await;
    house.housekeep().await;
    assert!(house.spans("job").await.contains(&"_c2_k0_1".to_owned()));
    let ran: BTreeSet<i64> = house.claim().await.into_iter().map(|(_, id)| id).collect();
    assert_eq!(ran, BTreeSet::from([key(&ended), key(&late)]), "both run");
}

/// Retires while a transaction that holds jobs does `then` to an old one: whoever waits for the old partition may not wait for retention,
/// which waits for the partitioned tables. Answers with the job.
async fn retire_beside(house: &House, then: Act) -> JobId {
    let old = house.enqueue(job("k.standard")).await;
    let claimed = house.claim().await;
    house.finish(&claimed, 4).await;
    house.pass(DAY * 9).await;
    house.step("usual").await;
    house.pass(DAY * 9).await;
    let mut told = house.step("retire").await;
    while (&told["span"], &told["watched"]) != (&Value::from("_c2_e0"), &Value::from(true)) {
        assert_eq!(told["again"], true, "{told}");
        told = house.step("retire").await;
    }
    // somebody has written there before, which the look that follows will see; the operator's own write is another one
    house.run("update postrider.job set run_at = run_at where class = 2").await;
    let mut operator = house.pool().begin().await.unwrap();
    // it falls into the second time that retention waits, as it gives way for 200 ms after 50
    let looks = "set local deadlock_timeout = '275ms'; select from postrider.attempt; select from postrider.done";
    sqlx::raw_sql(looks).execute(&mut *operator).await.unwrap();
    house.jobs.enqueue(Some(&mut *operator), &[job("k.short")]).await.unwrap();
    let act = async {
        let waits = "select count(*)::text from pg_locks where not granted and mode = 'AccessExclusiveLock'
                        and database = (select oid from pg_database where datname = current_database())";
        while house.text(waits).await == "0" {}
        let acted = house.jobs.act(Some(&mut *operator), then, std::slice::from_ref(&old)).await;
        assert_eq!(acted.unwrap(), [Effect::Done]);
        operator.commit().await.unwrap();
    };
    let keep = async {
        while house.spans("job").await.contains(&"_c2_e0".to_owned()) {
            house.run("update postrider.pinned set look_at = look_at - interval '1 day'").await;
            house.housekeep().await;
        }
    };
    tokio::join!(keep, act);
    old
}

#[tokio::test]
async fn r1_who_holds_jobs_and_wants_one_of_an_old_partition_makes_no_circle_with_retention() {
    let house = House::built().await;
    let deleted = retire_beside(&house, Act::Delete).await;
    assert!(!house.is_here(&deleted).await);
}

#[tokio::test]
async fn r1_what_is_run_again_between_the_look_and_the_exchange_is_not_dropped() {
    let house = House::built().await;
    let retried = retire_beside(&house, Act::Retry).await;
    assert!(house.is_here(&retried).await);
    assert!(house.claim().await.iter().any(|(_, id)| *id == key(&retried)), "it runs");
}

#[tokio::test]
async fn r2_an_event_that_is_written_late_is_neither_dropped_nor_waited_for_in_a_circle() {
    let house = House::built().await;
    house.run("select postrider.record('a.b', 'thing/1')").await;
    assert_eq!(house.text("select n::text from postrider.relay(100)").await, "1");
    house.pass(DAY * 9).await;
    house.step("usual").await;
    house.pass(DAY * 9).await;
    house.housekeep().await;
    assert_eq!(house.text("select count(*)::text from postrider.event_done where epoch = 0").await, "1");
    // a number that was drawn in the first epoch, by one whose process stood still since
    let late = "insert into postrider.event select (jsonb_populate_record(e, jsonb_build_object('seq', e.seq + 4, 'id', gen_random_uuid(),
        'xid', pg_current_xact_id(), 'subject', 'thing/2'))).* from postrider.event e where e.seq < 1::bigint << 46 limit 1";
    let mut producer = house.pool().begin().await.unwrap();
    sqlx::raw_sql("set local deadlock_timeout = '275ms'; select postrider.record('a.b', 'thing/3')")
        .execute(&mut *producer)
        .await
        .unwrap();
    house.pass(DAY * 40).await;
    let act = async {
        let waits = "select count(*)::text from pg_locks where not granted and mode = 'AccessExclusiveLock'
                        and database = (select oid from pg_database where datname = current_database())";
        while house.text(waits).await == "0" {}
        sqlx::raw_sql(late).execute(&mut *producer).await.unwrap();
        producer.commit().await.unwrap();
    };
    tokio::join!(house.housekeep(), act);
    for _ in 0..3 {
        house.housekeep().await;
    }
    let subjects = "select string_agg(subject, ' ' order by subject) from postrider.event";
    assert_eq!(house.text(subjects).await, "thing/1 thing/2 thing/3");
    let pins = "select string_agg(by, ', ') from postrider.pinned where class = 0 and first = 0";
    assert_eq!(house.text(pins).await, "events that the relay has not come to");
    house.text("select n::text from postrider.relay(100)").await;
    house.pass(DAY).await;
    house.housekeep().await;
    assert_eq!(house.text(subjects).await, "thing/3", "once it is relayed it goes");
}

#[tokio::test]
async fn r2_dropping_history_frees_the_disk_and_holds_nobody_up_while_a_reader_does() {
    let house = House::built().await;
    let before = house.disk().await;
    house.fill(20_000).await;
    let full = house.disk().await;
    assert!(full > before + 8_000_000, "{before} {full}");
    house.pass(DAY * 9).await;
    house.step("usual").await;
    house.pass(DAY * 9).await;
    let mut reader = house.pool().begin().await.unwrap();
    sqlx::query("select from postrider.job limit 1").execute(&mut *reader).await.unwrap();
    let producing = async {
        let mut slowest = Duration::ZERO;
        for _ in 0..100 {
            let started = Instant::now();
            house.enqueue(job("k.short")).await;
            slowest = slowest.max(started.elapsed());
        }
        slowest
    };
    let keeping = async {
        let started = Instant::now();
        let mut held = false;
        while let Value::Object(told) = house.step("retire").await {
            held |= told.get("held").is_some();
            if told.get("again") != Some(&Value::Bool(true)) {
                break;
            }
        }
        (held, started.elapsed())
    };
    let (slowest, (held, took)) = tokio::join!(producing, keeping);
    assert!(held, "a reader was there");
    assert!(slowest < Duration::from_secs(1), "a producer waited for {slowest:?}");
    assert!(took < Duration::from_secs(20), "retention waited for {took:?}");
    assert!(house.disk().await > full - 1_000_000);
    reader.commit().await.unwrap();
    // autovacuum may be in its way for a moment
    until("the disk is free again", Duration::from_mins(1), async || {
        house.run("update postrider.pinned set look_at = look_at - interval '1 day'").await;
        house.housekeep().await;
        (house.disk().await < before + 2_000_000).then_some(())
    })
    .await;
    // and again: nothing is left to do
    house.housekeep().await;
}

#[tokio::test]
async fn r2_a_kill_anywhere_leaves_nothing_half_done() {
    let house = House::built().await;
    let waiting = house.enqueue(in_days(90)).await;
    house.fill(5_000).await;
    house.pass(DAY * 9).await;
    house.step("usual").await;
    house.pass(DAY * 9).await;
    let mut killed = 0;
    for after in (0..).map(|n| Duration::from_millis(2 * n)) {
        let mut keeper = PgConnection::connect(house.db.url()).await.unwrap();
        let pid: i32 = sqlx::query_scalar("select pg_backend_pid()").fetch_one(&mut keeper).await.unwrap();
        let kill = async {
            tokio::time::sleep(after).await;
            let sql = "select pg_terminate_backend($1)";
            sqlx::query(sql).bind(pid).execute(house.pool()).await.unwrap();
        };
        let keep = async {
            for _ in 0..10 {
                sqlx::query("select postrider.housekeep('retire')").execute(&mut keeper).await?;
            }
            Ok::<_, sqlx::Error>(())
        };
        let (kept, ()) = tokio::join!(keep, kill);
        let spans = house.spans("job").await;
        for table in ["done", "attempt", "delivery_attempt"] {
            assert_eq!(house.spans(table).await, spans, "{table}, killed after {after:?}");
        }
        let loose =
            "select count(*)::text from pg_class c where c.relnamespace = 'postrider'::regnamespace and c.relkind = 'r'
                       and c.relname ~ '^(job|done|attempt|delivery_attempt)_c' and not c.relispartition";
        assert_eq!(house.text(loose).await, "0", "killed after {after:?}");
        assert!(house.is_here(&waiting).await, "killed after {after:?}");
        killed += u32::from(kept.is_err());
        if kept.is_ok() {
            break;
        }
    }
    assert!(killed > 3, "killed {killed} times");
    house.housekeep().await;
    assert!(house.spans("job").await.contains(&"_c2_k0_1".to_owned()));
    assert_eq!(house.text("select count(*)::text from postrider.job").await, "1");
}

#[tokio::test]
async fn r2_events_go_when_the_relay_and_the_jobs_that_were_made_of_them_are_done() {
    let house = House::built().await;
    let subscribe = r#"select postrider.declare('{"app": "s", "subscriptions": [{"name": "s.b", "types": ["a.b"], "kind": "k.standard"}]}')"#;
    house.run(subscribe).await;
    house.run("select postrider.record('a.b', 'thing/1')").await;
    let older = async || {
        // two weeks, so that the events are old and their epoch is over
        for _ in 0..14 {
            house.pass(DAY * 4).await;
            house.housekeep().await;
        }
        house.spans("event").await
    };
    assert!(older().await.contains(&"_e0".to_owned()), "the relay has not come to it");
    let pins = "select string_agg(by, ', ') from postrider.pinned where class = 0 and first = 0";
    assert_eq!(house.text(pins).await, "events that the relay has not come to");
    assert_eq!(house.text("select jobs::text from postrider.relay(100)").await, "1");
    house.run("update postrider.job set run_at = null").await;
    assert!(older().await.contains(&"_e0".to_owned()), "its job lives");
    assert!(house.text(pins).await.starts_with("jobs that were made of its events"));
    let sql = format!(
        "select subject from postrider.job j join postrider.event e on e.seq = j.event_seq where j.subscription is not null and '{WORKER}' <> ''"
    );
    assert_eq!(house.text(sql).await, "thing/1", "what a handler would be given");
    let claimed = house.claim().await;
    house.finish(&claimed, 1).await;
    assert!(!older().await.contains(&"_e0".to_owned()), "nobody needs it");
    assert_eq!(house.text("select count(*)::text from postrider.event").await, "0");
}

#[tokio::test]
async fn r3_c18_a_window_of_uniqueness_outlives_the_row_that_it_came_from() {
    let house = House::built().await;
    house.run("select postrider.keep_for('short', interval '5 seconds')").await;
    let within = || job("k.short").unique(Unique::Within(DAY * 30));
    let for_ever = || NewJob { unique_key: Some("once".to_owned()), ..job("k.short").unique(Unique::ForEver) };
    let first = house.jobs.enqueue(None, &[within(), for_ever()]).await.unwrap();
    assert!(first.iter().all(|made| made.fresh));
    let claimed = house.claim().await;
    house.finish(&claimed, 1).await;
    house.days(3).await;
    for made in &first {
        assert!(matches!(house.look(&made.id).await, Look::Gone { .. }));
    }
    let again = house.jobs.enqueue(None, &[within(), for_ever()]).await.unwrap();
    for (first, again) in first.iter().zip(&again) {
        assert_eq!((&again.id, again.fresh), (&first.id, false), "the first one still stands for it");
    }
    house.days(31).await;
    let after = house.jobs.enqueue(None, &[within(), for_ever()]).await.unwrap();
    assert!(after[0].fresh, "the window is over");
    assert_eq!((&after[1].id, after[1].fresh), (&first[1].id, false), "for ever");
}

/// A producer that stays open holds their group; what waits behind one that is gone would wait for ever.
#[tokio::test]
async fn r3_who_is_over_stays_until_whoever_waits_behind_it_knows() {
    let house = House::built().await;
    house.run("select postrider.keep_for('short', interval '5 seconds')").await;
    let one = || job("k.short").unique(Unique::OneRunningOneWaiting);
    let ahead = house.enqueue(one()).await;
    let claimed = house.claim().await;
    let behind = house.enqueue(one()).await;
    assert_eq!(house.claim().await.len(), 0, "it waits behind the one that runs");
    let mut producer = house.pool().begin().await.unwrap();
    let held = "select id from postrider.enqueue('k.short', unique_mode => 'one_running_one_waiting')";
    let again: i64 = sqlx::query_scalar(held).fetch_one(&mut *producer).await.unwrap();
    assert_eq!(again, key(&behind));
    house.finish(&claimed, 1).await;
    // once in the partition that it was born in, once in the one of what was kept
    for _ in 0..2 {
        house.days(3).await;
        assert!(house.is_here(&ahead).await);
    }
    producer.rollback().await.unwrap();
    house.run("select postrider.settle_left_over()").await;
    assert_eq!(house.claim().await.iter().map(|(_, id)| *id).collect::<Vec<_>>(), [key(&behind)]);
    house.days(3).await;
    assert!(!house.is_here(&ahead).await);
}

#[tokio::test]
async fn r3_a_job_that_is_gone_is_told_from_one_that_never_was() {
    let house = House::built().await;
    let gone = house.enqueue(job("k.short")).await;
    let claimed = house.claim().await;
    house.finish(&claimed, 1).await;
    let deleted = house.enqueue(job("k.short")).await;
    assert_eq!(house.jobs.act(None, Act::Delete, std::slice::from_ref(&deleted)).await.unwrap(), [Effect::Done]);
    assert_eq!(house.look(&deleted).await, Look::Unknown);
    house.days(3).await;
    let Look::Gone { id, ended_by } = house.look(&gone).await else { panic!("it is not gone") };
    assert_eq!(id, gone);
    assert!(ended_by < now());
    let never = JobId::new((key(&gone) + (1 << 30)).to_string());
    let foreign = JobId::new("no-such-job");
    for unknown in [&never, &foreign] {
        assert_eq!(house.look(unknown).await, Look::Unknown);
        assert_eq!(house.inspector.explain(unknown).await.unwrap(), None);
    }
    assert_eq!(house.inspector.job(&gone).await.unwrap(), None);
    let ids = [gone.clone(), never.clone()];
    for act in [Act::Cancel, Act::Retry, Act::Delete] {
        let told = house.jobs.act(None, act, &ids).await.unwrap();
        assert_eq!(told, [Effect::Gone, Effect::Unknown], "{act:?}");
    }
    let limit = Duration::from_millis(50);
    assert_eq!(house.jobs.wait(&gone, limit).await.unwrap(), Waited::Gone(gone.clone()));
    assert_eq!(house.jobs.wait(&never, limit).await.unwrap(), Waited::TimedOut(never));
    let says = house.inspector.explain(&gone).await.unwrap().unwrap();
    assert!(says.starts_with("It had ended by ") && says.ends_with("and is not kept any longer."), "{says}");
    // the stone of the deleted one is of no use any more
    assert_eq!(house.text("select count(*)::text from postrider.deleted").await, "0");
}

#[tokio::test]
async fn r2_what_speaks_of_things_that_are_over_is_cleared_away() {
    let house = House::built().await;
    house.run("insert into postrider.progress (id, lease, percent, note) values (4, 1, 50, 'x')").await;
    house
        .run(
            "insert into postrider.idempotency (owner, key, event_id, until) values ('', 'k', gen_random_uuid(), now() - interval '1 day');
             insert into postrider.uniq (hash, mode, job, until) values ('\\x00', 4, 4, now() - interval '1 day')",
        )
        .await;
    house.housekeep().await;
    let left = "select ((select count(*) from postrider.progress) + (select count(*) from postrider.idempotency)
                        + (select count(*) from postrider.uniq))::text";
    assert_eq!(house.text(left).await, "0");
    let duties = inspect::duties(house.pool()).await.unwrap();
    let names: Vec<&str> = duties.iter().map(|duty| duty.name.as_str()).collect();
    assert_eq!(names, ["retire", "usual"]);
    assert!(duties.iter().all(|duty| duty.done_at.is_some() && duty.took_ms.is_some() && duty.error.is_none()));
}
