//! D: jobs that come by the clock. Time passes by moving back what is there, so that a day takes no longer than a look.

use std::time::Duration;

use postrider::{Code, Error, Job, Kind, KindSpec, Missed, Overlap, Schedule, ScheduleView, Schedules, State};

use super::{App, Engine, Gate, Heard, Scene, gated, json, telling};
use crate::until;

const SOON: Duration = Duration::from_mins(1);
const GRACE: Duration = Duration::from_secs(10);
const DAY: Duration = Duration::from_hours(24);

/// This family's cases as tests.
#[macro_export]
macro_rules! conformance_schedule {
    (@list) => {
        $crate::conformance_schedule!(@with (@list))
    };
    (@with ($($to:tt)*)) => {
        $crate::conformance_family! {
            $($to)*,
            schedule,
            [
                d1_however_many_processes_there_are_each_due_time_is_run_once,
                d2_what_nobody_declares_any_more_is_shown_and_stops,
                d3_it_runs_at_the_start_of_a_process_when_asked,
                d4_a_restart_keeps_when_it_comes_next_and_what_it_ran,
                d5_run_now_makes_a_job_and_an_unknown_name_is_refused,
                d7_what_nobody_was_there_for_is_run_as_its_policy_says,
                d9_every_fault_of_every_schedule_is_told_when_it_is_built,
                d10_a_changed_schedule_keeps_what_it_ran,
                d11_one_is_paused_over_a_restart_while_others_run,
                d12_a_due_time_while_the_last_run_goes_on_is_skipped_or_queued,
            ]
        }
    };
    ($engine:expr) => {
        $crate::conformance_schedule!(@with ($engine));
    };
}

/// One that is due each day, also while a job of it is about to end.
fn daily(name: &str) -> Schedule {
    Schedule { overlap: Overlap::Queue, ..Schedule::every(name, DAY).kind("t.tick") }
}

/// A process at work, and the engine's schedules. An engine that has none refuses to build one that declares them, typed.
async fn clock(engine: &dyn Engine, app: App) -> Option<(Scene, Schedules)> {
    let scene = Scene::set(engine, App::new([Kind::new("t.a")])).await;
    if !scene.jobs().capabilities().schedules {
        let built = scene.stage().process(app).await;
        assert!(matches!(built, Err(Error::Declarations(all)) if all[0].code == Code::Capability));
        assert!(scene.stage().schedules().is_none());
        return None;
    }
    let scene = Scene::at_work(engine, app).await;
    let schedules = scene.stage().schedules().unwrap();
    Some((scene, schedules))
}

async fn view(schedules: &Schedules, name: &str) -> ScheduleView {
    let all = schedules.list().await.unwrap();
    all.into_iter().find(|view| view.name == name).unwrap_or_else(|| panic!("no schedule {name}"))
}

/// A schedule as soon as it is like this.
async fn view_when(
    schedules: &Schedules,
    name: &str,
    what: &str,
    fits: impl Fn(&ScheduleView) -> bool + Send + Sync,
) -> ScheduleView {
    until(&format!("{name}: {what}"), SOON, async || Some(view(schedules, name).await).filter(|view| fits(view))).await
}

/// A schedule as soon as somebody is there who fires it.
async fn attended(schedules: &Schedules, name: &str) -> ScheduleView {
    view_when(schedules, name, "somebody declares it", |view| !view.orphaned && !view.next.is_empty()).await
}

/// Three processes that declare the same one, for six days; a job is told its due time.
pub async fn d1_however_many_processes_there_are_each_due_time_is_run_once(engine: &dyn Engine) {
    let (mouth, mut heard) = Heard::new();
    let app = || App::new([telling("t.tick", mouth.clone())]).schedules([daily("s.a")]);
    let Some((scene, schedules)) = clock(engine, app()).await else { return };
    let mut others = Vec::new();
    for _ in 0..2 {
        let other = scene.stage().process(app()).await.unwrap();
        other.start().await.unwrap();
        others.push(other);
    }
    for n in 1..=6 {
        let due = attended(&schedules, "s.a").await.next[0];
        scene.stage().elapse(DAY).await;
        assert_eq!(heard.next().await.due_at.after(DAY), due, "day {n}");
        view_when(&schedules, "s.a", "it has run", |view| view.runs >= n).await;
    }
    scene.stop().await;
    for other in others {
        other.stop(GRACE).await.unwrap();
    }
    assert_eq!(heard.rest().len(), 0);
    let view = view(&schedules, "s.a").await;
    assert_eq!((view.runs, view.missed_runs, view.overlapped_runs), (6, 0, 0));
}

/// Two processes with one each; one of them stops.
pub async fn d2_what_nobody_declares_any_more_is_shown_and_stops(engine: &dyn Engine) {
    let (mouth, mut heard) = Heard::new();
    let app = |name: &str| App::new([telling("t.tick", mouth.clone())]).schedules([daily(name)]);
    let Some((scene, schedules)) = clock(engine, app("s.stays")).await else { return };
    let other = scene.stage().process(app("s.goes")).await.unwrap();
    other.start().await.unwrap();
    attended(&schedules, "s.goes").await;
    attended(&schedules, "s.stays").await;
    other.stop(GRACE).await.unwrap();
    let orphan = view(&schedules, "s.goes").await;
    assert!(orphan.orphaned && orphan.next.is_empty(), "{orphan:?}");
    // that the one that stays has run each time shows that somebody looked
    for n in 1..=3 {
        scene.stage().elapse(DAY).await;
        heard.next().await;
        view_when(&schedules, "s.stays", "it has run", |view| view.runs == n).await;
    }
    assert_eq!(view(&schedules, "s.goes").await.runs, 0);
    scene.stop().await;
}

/// Of two schedules the one that asks for it, at each start that is not within a minute of the last one.
pub async fn d3_it_runs_at_the_start_of_a_process_when_asked(engine: &dyn Engine) {
    let (mouth, mut heard) = Heard::new();
    let app = || {
        let at_start = Schedule { run_at_start: true, ..daily("s.at-start") };
        App::new([telling("t.tick", mouth.clone())]).schedules([at_start, daily("s.not")])
    };
    let Some((scene, schedules)) = clock(engine, app()).await else { return };
    let first = heard.next().await.id;
    scene.until(&first, State::Completed).await;
    scene.stage().elapse(Duration::from_mins(2)).await;
    let next = scene.stage().process(app()).await.unwrap();
    next.start().await.unwrap();
    heard.next().await;
    next.stop(GRACE).await.unwrap();
    scene.stop().await;
    assert_eq!((view(&schedules, "s.at-start").await.runs, view(&schedules, "s.not").await.runs), (2, 0));
}

/// After one run, and an hour before the next.
pub async fn d4_a_restart_keeps_when_it_comes_next_and_what_it_ran(engine: &dyn Engine) {
    let (mouth, mut heard) = Heard::new();
    let app = || App::new([telling("t.tick", mouth.clone())]).schedules([daily("s.a")]);
    let Some((scene, schedules)) = clock(engine, app()).await else { return };
    attended(&schedules, "s.a").await;
    scene.stage().elapse(DAY).await;
    let job = heard.next().await;
    view_when(&schedules, "s.a", "it has run", |view| view.runs == 1).await;
    scene.stop().await;
    scene.stage().elapse(Duration::from_hours(23)).await;
    let before = view(&schedules, "s.a").await;
    let next = scene.stage().process(app()).await.unwrap();
    next.start().await.unwrap();
    let after = attended(&schedules, "s.a").await;
    assert_eq!((after.due_at, after.ran_at, &after.last_job), (before.due_at, before.ran_at, &Some(job.id)));
    assert_eq!((after.runs, after.next[0]), (1, after.due_at.unwrap().after(DAY)), "{after:?}");
    next.stop(GRACE).await.unwrap();
    assert_eq!(heard.rest().len(), 0);
}

/// When it comes next stays.
pub async fn d5_run_now_makes_a_job_and_an_unknown_name_is_refused(engine: &dyn Engine) {
    let (mouth, mut heard) = Heard::new();
    let app = App::new([telling("t.tick", mouth)]).schedules([daily("s.a")]);
    let Some((scene, schedules)) = clock(engine, app).await else { return };
    let before = attended(&schedules, "s.a").await;
    let job = schedules.run("s.a").await.unwrap();
    assert_eq!(heard.next().await.id, job);
    let after = view(&schedules, "s.a").await;
    assert_eq!((after.runs, &after.last_job, &after.next), (1, &Some(job), &before.next));
    for refused in [
        schedules.run("s.b").await.err(),
        schedules.pause("s.b", true).await.err(),
        schedules.forget("s.b").await.err(),
    ] {
        assert!(
            matches!(&refused, Some(Error::Refused(why)) if why.code == Code::Undeclared && why.field == "schedule"),
            "{refused:?}"
        );
    }
    scene.stop().await;
}

/// Nobody there for five due times: none, one or three of them are run, the last ones, each with its due time.
pub async fn d7_what_nobody_was_there_for_is_run_as_its_policy_says(engine: &dyn Engine) {
    let policies = [("s.skip", Missed::Skip, 0), ("s.once", Missed::Once, 1), ("s.all", Missed::All(3), 3)];
    let (mouth, mut heard) = Heard::new();
    let app = || {
        let with_args = |name: &str, missed| Schedule { missed, ..daily(name) }.args(json(&format!("{name:?}")));
        App::new([telling("t.tick", mouth.clone())])
            .schedules(policies.map(|(name, missed, _)| with_args(name, missed)))
    };
    let Some((scene, schedules)) = clock(engine, app()).await else { return };
    let mut first = Vec::new();
    for (name, ..) in policies {
        first.push(attended(&schedules, name).await.next[0]);
    }
    scene.stop().await;
    let away = 5 * DAY + DAY / 2;
    scene.stage().elapse(away).await;
    let next = scene.stage().process(app()).await.unwrap();
    next.start().await.unwrap();
    let mut jobs: Vec<Job> = Vec::new();
    for _ in 0..policies.iter().map(|policy| policy.2).sum::<u32>() {
        jobs.push(heard.next().await);
    }
    for ((name, _, runs), first) in policies.into_iter().zip(first) {
        let view = view_when(&schedules, name, "it has been looked at", |view| view.due_at.is_some()).await;
        assert_eq!((view.runs, view.missed_runs), (u64::from(runs), u64::from(5 - runs)), "{name}");
        let mut told: Vec<_> = jobs
            .iter()
            .filter(|job| job.args == json(&format!("{name:?}")))
            .map(|job| job.due_at.after(away))
            .collect();
        told.sort();
        let last = (5 - runs..5).map(|n| first.after(n * DAY)).collect::<Vec<_>>();
        assert_eq!(told, last, "{name}");
    }
    next.stop(GRACE).await.unwrap();
    assert_eq!(heard.rest().len(), 0);
}

/// All at once, each with its field; nothing is declared then.
pub async fn d9_every_fault_of_every_schedule_is_told_when_it_is_built(engine: &dyn Engine) {
    let (mouth, _heard) = Heard::new();
    let Some((scene, schedules)) =
        clock(engine, App::new([telling("t.tick", mouth)]).schedules([daily("s.good")])).await
    else {
        return;
    };
    let cron = |name: &str, text: &str| Schedule::cron(name, text).kind("t.a");
    let bad = [
        cron("s.a", "0 25 * * *"),
        cron("s.b", "0 0 * * *").zone("Mars/Olympus"),
        Schedule::every("s.c", Duration::ZERO).kind("t.a"),
        cron("s.d", "@daily").kind("t.none"),
        Schedule { missed: Missed::All(0), ..cron("s.e", "@daily") },
    ];
    let built = scene.stage().process(App::new([Kind::new("t.a")]).schedules(bad)).await;
    let Err(Error::Declarations(all)) = built else { panic!("it was built") };
    let fields: Vec<&str> = all.iter().map(|refused| refused.field.as_str()).collect();
    assert_eq!(fields, ["cron", "zone", "every", "kind", "missed"], "{all:?}");
    assert!(all[0].message.contains("column 3"), "{}", all[0]);
    let names: Vec<String> = schedules.list().await.unwrap().into_iter().map(|view| view.name).collect();
    assert_eq!(names, ["s.good"]);
    scene.stop().await;
}

/// From each day to each second day: counted from the last due time.
pub async fn d10_a_changed_schedule_keeps_what_it_ran(engine: &dyn Engine) {
    let (mouth, mut heard) = Heard::new();
    let app = |schedule| App::new([telling("t.tick", mouth.clone())]).schedules([schedule]);
    let Some((scene, schedules)) = clock(engine, app(daily("s.a"))).await else { return };
    attended(&schedules, "s.a").await;
    scene.stage().elapse(DAY).await;
    heard.next().await;
    let before = view_when(&schedules, "s.a", "it has run", |view| view.runs == 1).await;
    scene.stop().await;
    schedules.forget("s.none").await.unwrap_err();
    let mut changed = app(Schedule { overlap: Overlap::Queue, ..Schedule::every("s.a", 2 * DAY).kind("t.tick") });
    changed.generation = 1;
    let next = scene.stage().process(changed).await.unwrap();
    next.start().await.unwrap();
    let after = attended(&schedules, "s.a").await;
    assert_eq!((after.runs, after.due_at, &after.last_job), (1, before.due_at, &before.last_job));
    assert_eq!(after.next[0], before.due_at.unwrap().after(2 * DAY));
    scene.stage().elapse(2 * DAY).await;
    heard.next().await;
    next.stop(GRACE).await.unwrap();
}

/// What is due while it is paused is none.
pub async fn d11_one_is_paused_over_a_restart_while_others_run(engine: &dyn Engine) {
    let (mouth, mut heard) = Heard::new();
    let app = || App::new([telling("t.tick", mouth.clone())]).schedules([daily("s.paused"), daily("s.runs")]);
    let Some((scene, schedules)) = clock(engine, app()).await else { return };
    attended(&schedules, "s.paused").await;
    attended(&schedules, "s.runs").await;
    schedules.pause("s.paused", true).await.unwrap();
    scene.stage().elapse(DAY).await;
    heard.next().await;
    view_when(&schedules, "s.runs", "it has run", |view| view.runs == 1).await;
    scene.stop().await;
    let next = scene.stage().process(app()).await.unwrap();
    next.start().await.unwrap();
    scene.stage().elapse(DAY).await;
    heard.next().await;
    view_when(&schedules, "s.runs", "it has run", |view| view.runs == 2).await;
    let paused = view(&schedules, "s.paused").await;
    assert!(paused.paused && paused.next.is_empty() && paused.runs == 0, "{paused:?}");
    schedules.pause("s.paused", false).await.unwrap();
    let resumed = attended(&schedules, "s.paused").await;
    assert_eq!((resumed.paused, resumed.runs, resumed.missed_runs), (false, 0, 0));
    scene.stage().elapse(DAY).await;
    view_when(&schedules, "s.paused", "it has run", |view| view.runs == 1).await;
    next.stop(GRACE).await.unwrap();
}

/// Three days, while the run of the first one goes on.
pub async fn d12_a_due_time_while_the_last_run_goes_on_is_skipped_or_queued(engine: &dyn Engine) {
    let gate = Gate::default();
    let (mouth, mut heard) = Heard::new();
    let app = {
        let skipping = Schedule { overlap: Overlap::Skip, ..daily("s.skip") };
        App::new([gated(KindSpec::new("t.tick"), mouth, &gate)]).schedules([skipping, daily("s.queue")])
    };
    let Some((scene, schedules)) = clock(engine, app).await else { return };
    attended(&schedules, "s.skip").await;
    attended(&schedules, "s.queue").await;
    for n in 1..=3 {
        scene.stage().elapse(DAY).await;
        view_when(&schedules, "s.queue", "it has run again", |view| view.runs == n).await;
        view_when(&schedules, "s.skip", "it has been looked at", |view| view.runs + view.overlapped_runs == n).await;
    }
    let skipped = view(&schedules, "s.skip").await;
    assert_eq!((skipped.runs, skipped.overlapped_runs, skipped.missed_runs), (1, 2, 0));
    gate.open(100);
    for _ in 0..4 {
        let id = heard.next().await.id;
        scene.until(&id, State::Completed).await;
    }
    scene.stage().elapse(DAY).await;
    view_when(&schedules, "s.skip", "it runs again", |view| view.runs == 2).await;
    scene.stop().await;
}
