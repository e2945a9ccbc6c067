//! Schedules: D1–D12, C22, C23, C28, C29, L11. Time passes by moving rows back, as the database's clock is the one that counts.
#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test asks the database itself, and a failed helper is a failed test"
)]

use std::time::Duration;

use postrider::{
    Builder, Bus, Clock, Code, Error, Job, Kind, KindSpec, Missed, Overlap, Running, Schedule, ScheduleView, Schedules,
    Settings, Timestamp, Unique, Verdict, When, handler, next_runs,
};
use postrider_testkit::conformance::{Heard, telling};
use postrider_testkit::{TestDb, until};
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng, rngs::StdRng};
use sqlx::{AssertSqlSafe, PgPool};
use tokio::sync::mpsc::UnboundedSender;

const SOON: Duration = Duration::from_mins(1);
const MINUTE: Duration = Duration::from_mins(1);
const DAY: Duration = Duration::from_hours(24);

fn settings() -> Settings {
    Settings { beat: Duration::from_millis(100), dead_after: Duration::from_secs(2), ..Settings::default() }
}

/// A process whose kind `t.tick` tells its jobs.
fn process(pool: &PgPool, mouth: &UnboundedSender<Job>, schedules: impl IntoIterator<Item = Schedule>) -> Builder {
    Bus::builder(pool.clone())
        .app("clock")
        .kinds([telling("t.tick", mouth.clone())])
        .schedules(schedules)
        .settings(settings())
}

async fn start(builder: Builder) -> (Bus, Running) {
    let bus = builder.build().await.unwrap();
    let running = bus.start().unwrap();
    (bus, running)
}

async fn stop((_bus, running): (Bus, Running)) {
    running.stop(SOON).await;
}

/// One that is due also while a job of it is about to end.
fn tick(name: &str, every: Duration) -> Schedule {
    Schedule { overlap: Overlap::Queue, ..Schedule::every(name, every).kind("t.tick") }
}

async fn sql(pool: &PgPool, text: &str) {
    sqlx::raw_sql(AssertSqlSafe(text.to_owned())).execute(pool).await.unwrap();
}

async fn number(pool: &PgPool, text: &str) -> i64 {
    sqlx::query_scalar(AssertSqlSafe(text.to_owned())).fetch_one(pool).await.unwrap()
}

async fn view(pool: &PgPool, name: &str) -> ScheduleView {
    let all = Schedules::new(pool.clone()).list().await.unwrap();
    all.into_iter().find(|view| view.name == name).unwrap_or_else(|| panic!("no schedule {name}"))
}

/// A schedule as soon as it is like this.
async fn view_when(
    pool: &PgPool,
    name: &str,
    what: &str,
    fits: impl Fn(&ScheduleView) -> bool + Send + Sync,
) -> ScheduleView {
    until(&format!("{name}: {what}"), SOON, async || Some(view(pool, name).await).filter(|view| fits(view))).await
}

/// A schedule as soon as it is known when it comes next, in the database.
async fn placed(pool: &PgPool, name: &str) {
    let text = format!("select count(next_at) from postrider.schedule where name = '{name}'");
    until("it is known when it comes next", SOON, async || (number(pool, &text).await == 1).then_some(())).await;
}

/// Lets so much time pass for schedules.
async fn elapse(pool: &PgPool, time: Duration) {
    let us = time.as_micros();
    let by = format!("interval '1 microsecond' * {us}");
    sql(
        pool,
        &format!(
            "update postrider.schedule set next_at = next_at - {by}, counted_from = counted_from - {by}, due_at = due_at - {by},
                ran_at = ran_at - {by}, started_at = started_at - {by}"
        ),
    )
    .await;
}

async fn next_at(pool: &PgPool, name: &str) -> i64 {
    number(
        pool,
        &format!(
            "select (extract(epoch from next_at) * 1000000)::bigint from postrider.schedule where name = '{name}'"
        ),
    )
    .await
}

const JOBS: &str = "select count(*) from postrider.job";

#[tokio::test(flavor = "multi_thread")]
async fn d1_many_processes_run_each_due_time_once() {
    let db = TestDb::fresh().await;
    let pool = db.pool();
    let (mouth, mut ear) = Heard::new();
    let schedule = tick("s.a", DAY);
    let mut processes = Vec::new();
    for _ in 0..4 {
        processes.push(start(process(pool, &mouth, [schedule.clone()])).await);
    }
    placed(pool, "s.a").await;
    let mut due = Vec::new();
    for _ in 0..15 {
        let expected = next_at(pool, "s.a").await;
        elapse(pool, DAY).await;
        let job = ear.next().await;
        due.push((job.due_at.as_micros(), expected - i64::try_from(DAY.as_micros()).unwrap()));
    }
    for (told, expected) in due {
        assert_eq!(told, expected, "a job is told its due time");
    }
    for process in processes {
        stop(process).await;
    }
    assert_eq!(number(pool, JOBS).await, 15);
    assert_eq!(ear.rest().len(), 0);
    let view = view(pool, "s.a").await;
    assert_eq!((view.runs, view.missed_runs, view.overlapped_runs), (15, 0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn d2_the_table_holds_the_schedules_of_all_and_one_that_nobody_declares_any_more_is_shown_and_stops() {
    let db = TestDb::fresh().await;
    let pool = db.pool();
    let (mouth, mut ear) = Heard::new();
    let ours = start(process(pool, &mouth, [tick("s.ours", DAY)]).app("ours")).await;
    let theirs = start(process(pool, &mouth, [tick("s.theirs", DAY)]).app("theirs")).await;
    for name in ["s.ours", "s.theirs"] {
        let view = view_when(pool, name, "somebody declares it", |view| !view.orphaned).await;
        assert_eq!(view.next.len(), 5);
    }
    placed(pool, "s.ours").await;
    placed(pool, "s.theirs").await;
    stop(theirs).await;
    let orphan = view(pool, "s.theirs").await;
    assert!(orphan.orphaned && orphan.next.is_empty() && orphan.declared_by == "theirs", "{orphan:?}");
    // three times due, and once each time the other one, which shows that somebody looked
    for _ in 0..3 {
        elapse(pool, DAY).await;
        ear.next().await;
    }
    assert_eq!((view(pool, "s.ours").await.runs, view(pool, "s.theirs").await.runs), (3, 0));
    // who declares it again has it run: what it missed as its policy says
    let theirs = start(process(pool, &mouth, [tick("s.theirs", DAY)]).app("theirs")).await;
    ear.next().await;
    let back = view_when(pool, "s.theirs", "it has run", |view| view.runs == 1).await;
    assert!(!back.orphaned && back.missed_runs == 2, "{back:?}");
    stop(ours).await;
    stop(theirs).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn d3_it_runs_at_the_start_of_a_process_when_asked_and_once_within_a_minute() {
    let db = TestDb::fresh().await;
    let pool = db.pool();
    let (mouth, mut ear) = Heard::new();
    let at_start = |name| Schedule { run_at_start: true, ..tick(name, DAY) };
    let first = start(process(pool, &mouth, [at_start("s.a"), tick("s.not", DAY)])).await;
    ear.next().await;
    // that the other one of the second process has run shows that it has looked
    let second = start(process(pool, &mouth, [at_start("s.a"), at_start("s.b")])).await;
    ear.next().await;
    let runs = async || [view(pool, "s.a").await.runs, view(pool, "s.b").await.runs, view(pool, "s.not").await.runs];
    assert_eq!(runs().await, [1, 1, 0]);
    until("its run has ended", SOON, async || {
        (number(pool, "select count(*) from postrider.done").await == 2).then_some(())
    })
    .await;
    stop(first).await;
    elapse(pool, MINUTE + MINUTE).await;
    let third = start(process(pool, &mouth, [at_start("s.a")])).await;
    ear.next().await;
    assert_eq!(runs().await, [2, 1, 0]);
    stop(second).await;
    stop(third).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn d4_a_restart_keeps_when_it_comes_next_and_what_it_ran() {
    let db = TestDb::fresh().await;
    let pool = db.pool();
    let (mouth, mut ear) = Heard::new();
    let declared = || process(pool, &mouth, [Schedule::cron("s.a", "30 2 * * *").zone("Europe/Berlin").kind("t.tick")]);
    let first = start(declared()).await;
    placed(pool, "s.a").await;
    elapse(pool, Duration::from_hours(26)).await;
    ear.next().await;
    let before = view_when(pool, "s.a", "it has run", |view| view.runs == 1).await;
    stop(first).await;
    let second = start(declared()).await;
    view_when(pool, "s.a", "it is declared again", |view| !view.orphaned).await;
    assert_eq!(view(pool, "s.a").await, before);
    assert!(before.ran_at.is_some() && before.last_job.is_some() && before.next.len() == 5);
    stop(second).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn d5_run_now_makes_a_job_and_is_remembered_and_an_unknown_name_is_an_error() {
    let db = TestDb::fresh().await;
    let pool = db.pool();
    let (mouth, mut ear) = Heard::new();
    let (bus, running) = start(process(pool, &mouth, [tick("s.a", DAY)])).await;
    placed(pool, "s.a").await;
    let next = next_at(pool, "s.a").await;
    let job = bus.schedules().run("s.a").await.unwrap();
    assert_eq!(ear.next().await.id, job);
    let after = view(pool, "s.a").await;
    assert_eq!((after.runs, after.last_job.as_ref()), (1, Some(&job)));
    assert!(after.ran_at.is_some());
    assert_eq!(next_at(pool, "s.a").await, next, "when it comes next stays");
    // the same in SQL
    let id = number(pool, "select postrider.run_schedule('s.a')").await;
    assert_eq!(ear.next().await.id.as_str(), id.to_string());
    let calls = [
        bus.schedules().run("s.b").await.err(),
        bus.schedules().pause("s.b", true).await.err(),
        bus.schedules().forget("s.b").await.err(),
    ];
    for refused in calls {
        let Some(Error::Refused(refused)) = refused else { panic!("{refused:?}") };
        assert_eq!((refused.code, refused.field.as_str()), (Code::Undeclared, "schedule"));
        assert!(refused.remedy.contains("'s.a'"), "{refused}");
    }
    stop((bus, running)).await;
}

/// One schedule for each policy, every minute; nobody there for five minutes.
async fn five_minutes_away() -> (TestDb, Vec<(String, Vec<i64>)>) {
    let db = TestDb::fresh().await;
    let pool = db.pool();
    let (mouth, _ear) = Heard::new();
    let policies = [("s.skip", Missed::Skip), ("s.once", Missed::Once), ("s.all", Missed::All(3))];
    let declared = || {
        let schedules = policies.map(|(name, missed)| Schedule { missed, ..tick(name, MINUTE) });
        process(pool, &mouth, schedules)
    };
    let before = start(declared()).await;
    for (name, _) in policies {
        placed(pool, name).await;
    }
    stop(before).await;
    // the last of five due times is half a minute ago
    sql(pool, "update postrider.schedule set next_at = clock_timestamp() - interval '270 s'").await;
    let mut expected = Vec::new();
    for (name, _) in policies {
        let first = next_at(pool, name).await;
        expected.push((name.to_owned(), (0..5).map(|n| first + n * 60_000_000).collect()));
    }
    let after = start(declared()).await;
    for (name, _) in policies {
        view_when(pool, name, "it has been looked at", |view| view.due_at.is_some()).await;
    }
    stop(after).await;
    (db, expected)
}

/// The due times of a schedule's jobs.
async fn due_times(pool: &PgPool, name: &str) -> Vec<i64> {
    let text = "select (extract(epoch from j.run_at) * 1000000)::bigint from postrider.schedule s
                  join postrider.job j on j.id = any (s.last_jobs) where s.name = $1 order by j.id";
    sqlx::query_scalar(text).bind(name).fetch_all(pool).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn c28_what_was_due_while_nobody_was_there_is_run_as_its_policy_says_with_its_due_time() {
    let (db, expected) = five_minutes_away().await;
    let pool = db.pool();
    for ((name, due), (runs, missed)) in expected.iter().zip([(0, 5), (1, 4), (3, 2)]) {
        let view = view(pool, name).await;
        assert_eq!((view.runs, view.missed_runs), (runs, missed), "{name}");
        let last = usize::try_from(runs).unwrap();
        assert_eq!(due_times(pool, name).await, due[5 - last..], "{name}");
        assert_eq!(view.due_at, Some(Timestamp::from_micros(due[4])), "{name}");
        assert_eq!(view.next.len(), 0, "nobody is there");
        assert_eq!(next_at(pool, name).await, due[4] + 60_000_000, "{name}");
    }
}

/// What a deploy each third of a period does to a schedule, for four periods.
async fn deploys(pool: &PgPool) -> (usize, Vec<i64>) {
    let (mouth, mut ear) = Heard::new();
    let mut phases = Vec::new();
    let mut runs = 0;
    for _ in 0..12 {
        let running = start(process(pool, &mouth, [tick("s.a", MINUTE)])).await;
        placed(pool, "s.a").await;
        let due = number(pool, "select count(*) from postrider.schedule where next_at <= clock_timestamp()").await == 1;
        if due {
            ear.next().await;
        }
        stop(running).await;
        runs += ear.rest().len() + usize::from(due);
        phases.push(number(pool, "select (extract(epoch from coalesce(due_at, counted_from)) * 1000000)::bigint % 60000000 from postrider.schedule").await);
        elapse(pool, MINUTE / 3).await;
    }
    (runs, phases)
}

#[tokio::test(flavor = "multi_thread")]
async fn c23_a_deploy_more_often_than_the_period_does_not_put_it_off() {
    let db = TestDb::fresh().await;
    let (runs, phases) = deploys(db.pool()).await;
    assert!((3..=5).contains(&runs), "{runs} runs in four minutes of one each");
    assert_eq!(phases.len(), 12);
}

#[tokio::test(flavor = "multi_thread")]
async fn d8_a_start_does_not_move_when_it_comes_next() {
    let db = TestDb::fresh().await;
    let pool = db.pool();
    let (mouth, _ear) = Heard::new();
    let mut known = None;
    for _ in 0..3 {
        let running = start(process(pool, &mouth, [tick("s.a", DAY)])).await;
        placed(pool, "s.a").await;
        let next = next_at(pool, "s.a").await;
        assert_eq!(*known.get_or_insert(next), next);
        stop(running).await;
    }
}

#[tokio::test]
async fn d9_every_fault_of_every_schedule_is_told_when_it_is_built_with_its_column() {
    let db = TestDb::fresh().await;
    let (mouth, _ear) = Heard::new();
    let cron = |name: &str, text: &str| Schedule::cron(name, text).kind("t.tick");
    let bad = [
        cron("s.a", "0 25 * * *"),
        cron("s.b", "0 0 31 2 *").zone("Mars/Olympus"),
        tick("s.c", Duration::ZERO),
        cron("s.d", "@daily").kind("t.tack"),
        cron("s.e", "@daily"),
        cron("s.e", "@daily"),
        cron("S.f", "@daily"),
        Schedule { missed: Missed::All(0), ..cron("s.g", "@daily") },
        Schedule { priority: Some(5), ..cron("s.h", "@daily") },
        Schedule { max_attempts: Some(0), ..cron("s.i", "@daily") },
    ];
    let Err(Error::Declarations(refused)) = process(db.pool(), &mouth, bad).build().await else {
        panic!("it was built")
    };
    let told: Vec<(&str, &str)> =
        refused.iter().map(|refused| (refused.code.as_str(), refused.field.as_str())).collect();
    let expected = [
        ("PR005", "cron"),
        ("PR005", "cron"),
        ("PR005", "zone"),
        ("PR005", "every"),
        ("PR004", "kind"),
        ("PR006", "schedule"),
        ("PR001", "schedule"),
        ("PR005", "missed"),
        ("PR005", "priority"),
        ("PR005", "max_attempts"),
    ];
    assert_eq!(told, expected, "{refused:?}");
    assert_eq!(refused[0].message, "schedule \"s.a\", column 3: \"25\" is not in 0 to 23 (hour)");
    assert_eq!(refused[1].message, "schedule \"s.b\", column 5: no such day ever comes");
    assert!(refused[4].remedy.contains("'t.tick'"), "{}", refused[4]);
    assert_eq!(number(db.pool(), "select count(*) from postrider.schedule").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn d10_a_changed_schedule_keeps_its_last_run() {
    let db = TestDb::fresh().await;
    let pool = db.pool();
    let (mouth, mut ear) = Heard::new();
    let first = start(process(pool, &mouth, [tick("s.a", DAY)])).await;
    placed(pool, "s.a").await;
    elapse(pool, DAY).await;
    ear.next().await;
    let before = view_when(pool, "s.a", "it has run", |view| view.runs == 1).await;
    stop(first).await;
    // other arguments: when it comes next stays
    let args = || postrider_testkit::conformance::json("{\"n\": 2}");
    let second = start(process(pool, &mouth, [tick("s.a", DAY).args(args())]).generation(1)).await;
    let kept = next_at(pool, "s.a").await;
    assert_eq!(kept, before.next[0].as_micros());
    stop(second).await;
    // another period: it is counted from the last due time
    let third = start(process(pool, &mouth, [tick("s.a", 2 * DAY).args(args())]).generation(2)).await;
    placed(pool, "s.a").await;
    let after = view_when(pool, "s.a", "it is declared again", |view| !view.orphaned).await;
    assert_eq!(
        (after.ran_at, after.due_at, after.runs, &after.last_job),
        (before.ran_at, before.due_at, 1, &before.last_job)
    );
    assert_eq!(after.next[0].since(before.due_at.unwrap()), 2 * DAY);
    elapse(pool, 2 * DAY).await;
    assert_eq!(ear.next().await.args, args());
    // of equal generations with other content one is refused
    let Err(Error::Refused(refused)) = process(pool, &mouth, [tick("s.a", DAY)]).generation(2).build().await else {
        panic!("it was built")
    };
    assert_eq!((refused.code, refused.field.as_str()), (Code::Conflict, "schedule"));
    stop(third).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn d11_one_schedule_is_paused_and_goes_on_while_others_run() {
    let db = TestDb::fresh().await;
    let pool = db.pool();
    let (mouth, mut ear) = Heard::new();
    let declared = || process(pool, &mouth, [tick("s.paused", DAY), tick("s.runs", DAY)]);
    let (bus, running) = start(declared()).await;
    placed(pool, "s.paused").await;
    placed(pool, "s.runs").await;
    bus.schedules().pause("s.paused", true).await.unwrap();
    for _ in 0..2 {
        elapse(pool, DAY).await;
        ear.next().await;
    }
    stop((bus, running)).await;
    // it stays paused over a restart
    let (bus, running) = start(declared()).await;
    elapse(pool, DAY).await;
    ear.next().await;
    let paused = view(pool, "s.paused").await;
    assert!(paused.paused && paused.next.is_empty(), "{paused:?}");
    assert_eq!((paused.runs, view(pool, "s.runs").await.runs), (0, 3));
    sql(pool, "select postrider.pause_schedule('s.paused', false)").await;
    placed(pool, "s.paused").await;
    let resumed = view(pool, "s.paused").await;
    assert_eq!((resumed.paused, resumed.missed_runs, resumed.runs), (false, 0, 0), "what was due meanwhile is none");
    assert!(
        next_at(pool, "s.paused").await
            > number(pool, "select (extract(epoch from clock_timestamp()) * 1000000)::bigint").await
    );
    elapse(pool, DAY).await;
    view_when(pool, "s.paused", "it has run", |view| view.runs == 1).await;
    stop((bus, running)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn d12_a_due_time_while_the_last_run_goes_on_is_skipped_or_queued_as_it_says() {
    let db = TestDb::fresh().await;
    let pool = db.pool();
    let gate = std::sync::Arc::new(tokio::sync::Semaphore::new(0));
    let waits = std::sync::Arc::clone(&gate);
    let kind = Kind::new("t.long").handler(handler(move |_, _| {
        let gate = std::sync::Arc::clone(&waits);
        async move {
            gate.acquire().await?.forget();
            Ok(Verdict::Complete)
        }
    }));
    let long = |name, overlap| Schedule { overlap, ..Schedule::every(name, DAY).kind("t.long") };
    let schedules = [long("s.skip", Overlap::Skip), long("s.queue", Overlap::Queue)];
    let running = start(Bus::builder(pool.clone()).kinds([kind]).schedules(schedules).settings(settings())).await;
    placed(pool, "s.skip").await;
    placed(pool, "s.queue").await;
    for n in 1..=3 {
        elapse(pool, DAY).await;
        view_when(pool, "s.queue", "it has run again", |view| view.runs == n).await;
        view_when(pool, "s.skip", "it has been looked at", |view| view.runs + view.overlapped_runs == n).await;
    }
    let skipped = view(pool, "s.skip").await;
    assert_eq!((skipped.runs, skipped.overlapped_runs, skipped.missed_runs), (1, 2, 0));
    gate.add_permits(4);
    until("all have ended", SOON, async || {
        (number(pool, "select count(*) from postrider.done").await == 4).then_some(())
    })
    .await;
    elapse(pool, DAY).await;
    view_when(pool, "s.skip", "it runs again", |view| view.runs == 2).await;
    gate.add_permits(10);
    stop(running).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn c22_a_schedule_enqueues_as_everybody_does_and_what_is_unique_stays_one() {
    let db = TestDb::fresh().await;
    let pool = db.pool();
    let unique = KindSpec { unique: Some(Unique::UntilDone), ..KindSpec::new("t.one") };
    let schedule = Schedule { overlap: Overlap::Queue, ..Schedule::every("s.a", DAY).kind("t.one") };
    // declared and never handled: the job waits
    let running =
        start(Bus::builder(pool.clone()).kinds([Kind::spec(unique)]).schedules([schedule]).settings(settings())).await;
    placed(pool, "s.a").await;
    let first = number(pool, "select id from postrider.enqueue('t.one')").await;
    for n in 1..=2 {
        elapse(pool, DAY).await;
        let view = view_when(pool, "s.a", "it has run", |view| view.runs == n).await;
        assert_eq!(view.last_job.unwrap().as_str(), first.to_string());
    }
    assert_eq!(number(pool, JOBS).await, 1);
    stop(running).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn l11_the_clock_of_a_process_changes_nothing() {
    let db = TestDb::fresh().await;
    let pool = db.pool();
    let (mouth, mut ear) = Heard::new();
    let ahead = Clock::system().ahead(Duration::from_hours(2));
    let running = start(process(pool, &mouth, [tick("s.a", Duration::from_hours(1))]).clock(ahead)).await;
    placed(pool, "s.a").await;
    let left = next_at(pool, "s.a").await
        - number(pool, "select (extract(epoch from clock_timestamp()) * 1000000)::bigint").await;
    assert!((3_500_000_000..=3_600_000_000).contains(&left), "{left} µs to the next one");
    assert_eq!(ear.rest().len(), 0);
    elapse(pool, Duration::from_hours(1)).await;
    ear.next().await;
    stop(running).await;
    // what is ahead of the database's clock is not fired, whoever says so
    let early = "select postrider.fire_schedule('s.a', (select next_at from postrider.schedule), clock_timestamp() + interval '2 hours',
        array[clock_timestamp() + interval '1 hour'], null, 0)";
    assert!(sqlx::raw_sql(early).execute(pool).await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_schedule_declared_in_sql_is_fired_by_every_process_until_it_is_dropped() {
    let db = TestDb::fresh().await;
    let pool = db.pool();
    let (mouth, mut ear) = Heard::new();
    let running = start(process(pool, &mouth, [])).await;
    let declared = r#"select postrider.declare('{"app": "dba", "schedules": [{"name": "s.sql", "cron": "0 3 * * *", "zone": "Europe/Berlin",
        "kind": "t.tick", "args": {"n": 1}, "overlap": "queue"}]}')"#;
    sql(pool, declared).await;
    placed(pool, "s.sql").await;
    let shown = view(pool, "s.sql").await;
    assert!(shown.standing && !shown.orphaned && shown.next.len() == 5, "{shown:?}");
    elapse(pool, Duration::from_hours(25)).await;
    assert_eq!(ear.next().await.args.as_str(), r#"{"n": 1}"#);
    sql(pool, "select postrider.drop_schedule('s.sql')").await;
    assert_eq!(Schedules::new(pool.clone()).list().await.unwrap(), []);
    // one that SQL takes for a zone and the library does not is shown with its problem, and holds up no other
    sql(pool, &declared.replace("s.sql", "s.odd")).await;
    placed(pool, "s.odd").await;
    sql(pool, "update postrider.schedule set zone = 'Mars/Olympus', next_at = null").await;
    let odd = view_when(pool, "s.odd", "it has a problem", |view| view.problem.is_some()).await;
    assert!(odd.problem.unwrap().contains("zone") && odd.next.is_empty());
    stop(running).await;
}

#[tokio::test]
async fn c29_a_schedule_that_never_comes_is_refused_at_the_door_of_sql_with_its_column() {
    let db = TestDb::fresh().await;
    let pool = db.pool();
    sql(pool, r#"select postrider.declare('{"kinds": [{"name": "t.tick"}]}')"#).await;
    let cron = |text: &str| format!(r#""cron": "{text}""#);
    let commas = ",".repeat(10_000);
    for (part, field, says) in [
        (cron("*0 2 * * *"), "cron", "column 1:"),
        (cron("60 * * * *"), "cron", "column 1:"),
        (cron("0 0 31 2 *"), "cron", "column 5:"),
        (cron("* * * *"), "cron", "column 8:"),
        (cron(""), "cron", "column 1:"),
        (cron(&commas), "cron", "column 201:"),
        (r#""cron": "@daily", "zone": "Mars/Olympus""#.to_owned(), "zone", "Mars/Olympus"),
        (r#""cron": "@daily", "every_ms": 1000"#.to_owned(), "cron", "period"),
        (r#""zone": "UTC""#.to_owned(), "cron", "period"),
        (r#""every_ms": 0"#.to_owned(), "every", "0 ms"),
        (r#""every_ms": 1000, "missed": "all""#.to_owned(), "missed", "missed"),
        (r#""every_ms": 1000, "overlap": "wait""#.to_owned(), "overlap", "wait"),
        (r#""every_ms": 1000, "kind": "t.none""#.to_owned(), "kind", "t.none"),
    ] {
        let text = format!(r#"{{"schedules": [{{"name": "s.a", "kind": "t.tick", {part}}}]}}"#);
        // the last of two keys counts in json, the first in some readers: the kind is given once
        let text = if part.contains("\"kind\"") { text.replacen(r#""kind": "t.tick", "#, "", 1) } else { text };
        let error = sqlx::query("select postrider.declare($1::json)").bind(text).execute(pool).await.unwrap_err();
        let error = error.as_database_error().unwrap();
        let pg = error.downcast_ref::<sqlx::postgres::PgDatabaseError>();
        assert!(pg.code().starts_with("PR00") && pg.column() == Some(field), "{part:.80}: {error}");
        assert!(pg.message().contains(says), "{part:.80}: {error}");
    }
    assert_eq!(number(pool, "select count(*) from postrider.schedule").await, 0);
}

/// A word that may stand in an expression, and one that may not.
fn word(dice: &mut StdRng) -> String {
    let words = [
        "*", "*/2", "1", "5-9", "0", "31", "JAN", "fri", "L", "1-5/2", "7", "59", "5L", "2#3", "60", "9-5", "x", "1,2",
        "*,1", "/3", "1/2", "MON-SUN", "2,", "24", "0-0", "*/0",
    ];
    if dice.random_bool(0.5) { "*".to_owned() } else { (*words.choose(dice).unwrap()).to_owned() }
}

#[tokio::test]
async fn the_library_and_sql_take_and_refuse_the_same_expressions_in_the_same_column() {
    let db = TestDb::fresh().await;
    let mut dice = StdRng::seed_from_u64(9);
    let mut texts: Vec<String> = (0..3_000)
        .map(|_| {
            let fields = if dice.random_bool(0.9) { 5 } else { dice.random_range(0..8) };
            (0..fields).map(|_| word(&mut dice)).collect::<Vec<_>>().join(if dice.random_bool(0.9) {
                " "
            } else {
                "  "
            })
        })
        .collect();
    texts.extend(
        [
            "@daily",
            "@Hourly ",
            "@",
            " * * * * *",
            "0 0 30 2 *",
            "0 0 30 2 1",
            "0 0 31 2,4 *",
            "0 0 L 2 *",
            "* * * *\t*",
        ]
        .map(str::to_owned),
    );
    sql(
        db.pool(),
        "create function public.told(text text) returns text language plpgsql as $$ begin
            perform postrider.check_cron(text); return '';
            exception when sqlstate 'PR005' then return substring(sqlerrm from 'column [0-9]+'); end $$",
    )
    .await;
    let by_sql: Vec<String> =
        sqlx::query_scalar("select public.told(t) from unnest($1::text[]) with ordinality u (t, o) order by o")
            .bind(texts.clone())
            .fetch_all(db.pool())
            .await
            .unwrap();
    let by_library =
        texts.iter().map(|text| match next_runs(&When::Cron(text.clone()), "UTC", Timestamp::from_micros(0), 1) {
            Ok(_) => String::new(),
            Err(refused) => {
                let rest = refused.message.split_once("column ").unwrap().1;
                format!("column {}", rest.split_once(':').unwrap().0)
            }
        });
    let mut taken = 0;
    for ((text, sql), library) in texts.iter().zip(by_sql).zip(by_library) {
        assert_eq!(sql, library, "{text:?}");
        taken += usize::from(sql.is_empty());
    }
    assert!(taken > 100, "{taken} of them are expressions");
}
