//! K: who is given which job, and when.

mod share;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use postrider::{Context, Job, Kind, KindSpec, NewJob, State, Verdict, Waits, handler};
use tokio::sync::mpsc::UnboundedSender;

use super::{App, Engine, Gate, Heard, Scene, gated, json, minute_later, quick, telling};
use crate::until;

pub use share::*;

/// This family's cases as tests.
#[macro_export]
macro_rules! conformance_claim {
    (@list) => {
        $crate::conformance_claim!(@with (@list))
    };
    (@with ($($to:tt)*)) => {
        $crate::conformance_family! {
            $($to)*,
            claim,
            [
                k1_a_job_never_starts_before_its_time_by_the_databases_clock,
                k2_jobs_start_by_priority_then_in_the_order_of_becoming_due,
                k3_only_jobs_of_asked_queues_and_known_kinds_are_claimed,
                k4_never_more_run_than_there_are_slots,
                k5_two_workers_never_hold_the_same_attempt,
                k6_a_queue_that_is_stuck_does_not_starve_another_one,
                k7_a_low_priority_is_not_starved_for_ever,
                k8_a_paused_queue_hands_out_nothing_until_it_is_resumed,
                k9_a_backlog_of_future_jobs_is_not_looked_at,
                k10_a_kind_that_no_worker_knows_waits_and_is_visible_as_such,
            ]
        }
    };
    ($engine:expr) => {
        $crate::conformance_claim!(@with ($engine));
    };
}

/// Alone and among others, by what the database says of its claim.
pub async fn k1_a_job_never_starts_before_its_time_by_the_databases_clock(engine: &dyn Engine) {
    let (mouth, mut heard) = Heard::new();
    let scene = Scene::at_work(engine, App::new([telling("t.a", mouth)])).await;
    let later = minute_later(scene.pool()).await;
    let soon = |ms: i64| postrider::Timestamp::from_micros(later.as_micros() - 60_000_000 + ms * 1_000);
    let new = |run_at| NewJob { run_at: Some(run_at), ..NewJob::new("t.a", json("{}")) };
    let far = scene.enqueue(new(later.after(Duration::from_hours(1)))).await;
    let mut times = std::collections::BTreeMap::new();
    for ms in [150, 300, 301, 450] {
        times.insert(scene.enqueue(new(soon(ms))).await.to_string(), soon(ms));
    }
    for _ in 0..times.len() {
        let job = heard.next().await;
        let due = times[job.id.as_str()];
        assert!(job.claimed_at >= due, "{} before {due}", job.claimed_at);
        // enqueued when its time was over already, it was due from then on
        assert!(job.due_at >= due);
    }
    let view = scene.job(&far).await;
    assert_eq!(view.waits, Some(Waits::Scheduled(later.after(Duration::from_hours(1)))));
    assert_eq!((view.state, view.attempt), (State::Pending, 0));
    scene.stage().elapse(Duration::from_hours(2)).await;
    assert_eq!(heard.next().await.id, far);
    scene.until(&far, State::Completed).await;
    scene.stop().await;
}

/// One slot; those that are ready, and those that wait for their time.
pub async fn k2_jobs_start_by_priority_then_in_the_order_of_becoming_due(engine: &dyn Engine) {
    let (mouth, mut heard) = Heard::new();
    let scene = Scene::set(engine, App::new([telling("t.a", mouth)]).concurrency("default", 1)).await;
    let later = minute_later(scene.pool()).await;
    let new = |n: i32, priority, minutes: Option<u64>| NewJob {
        priority: Some(priority),
        run_at: minutes.map(|minutes| later.after(Duration::from_mins(minutes))),
        ..NewJob::new("t.a", json(&n.to_string()))
    };
    let scheduled =
        [new(5, 2, Some(30)), new(4, 2, Some(20)), new(1, 1, Some(40)), new(6, 3, Some(1)), new(0, 1, Some(10))];
    for job in scheduled {
        scene.enqueue(job).await;
    }
    scene.stage().elapse(Duration::from_hours(1)).await;
    scene.start().await;
    for n in [0, 1, 4, 5, 6] {
        assert_eq!(heard.next().await.args, json(&n.to_string()), "of those that waited for their time");
    }
    scene.stop().await;

    let (mouth, mut heard) = Heard::new();
    let next = scene.stage().process(App::new([telling("t.a", mouth)]).concurrency("default", 1)).await.unwrap();
    let ready = [new(10, 3, None), new(11, 3, None), new(12, 1, None), new(13, 2, None), new(14, 1, None)];
    scene.jobs().enqueue(None, &ready).await.unwrap();
    scene.enqueue(new(15, 2, None)).await;
    next.start().await.unwrap();
    for n in [12, 14, 13, 15, 10, 11] {
        assert_eq!(heard.next().await.args, json(&n.to_string()), "of those that were ready");
    }
    next.stop(Duration::from_secs(10)).await.unwrap();
}

/// A queue that nobody asks keeps its jobs; one that is asked gives those of other queues' kinds as well.
pub async fn k3_only_jobs_of_asked_queues_and_known_kinds_are_claimed(engine: &dyn Engine) {
    let (mouth, mut heard) = Heard::new();
    let spec = |kind: &str, queue: &str| KindSpec { queue: queue.into(), ..KindSpec::new(kind) };
    let gate = Gate::default();
    gate.open(100);
    let kinds = [gated(spec("t.a", "a"), mouth.clone(), &gate), gated(spec("t.b", "b"), mouth, &gate)];
    let scene = Scene::at_work(engine, App::new(kinds)).await;
    let into = |kind: &str, queue: &str| NewJob { queue: Some(queue.into()), ..NewJob::new(kind, json("{}")) };
    let kept = scene.enqueue(into("t.a", "nobody")).await;
    for (kind, queue) in [("t.a", "a"), ("t.b", "b"), ("t.a", "b"), ("t.b", "a")] {
        let id = scene.enqueue(into(kind, queue)).await;
        scene.until(&id, State::Completed).await;
        let job = heard.next().await;
        assert_eq!((job.id, job.kind.as_str(), job.queue.as_str()), (id, kind, queue));
    }
    let view = scene.job(&kept).await;
    assert_eq!((view.state, view.attempt), (State::Pending, 0));
    scene.stop().await;
    assert!(heard.rest().is_empty());
}

/// How many run, and how many have run at most.
#[derive(Debug, Default)]
struct Peak {
    now: AtomicUsize,
    most: AtomicUsize,
}

/// A kind in a queue of its name that counts how many of it run; each waits at the gate.
fn counted(name: &str, mouth: UnboundedSender<Job>, gate: &Gate, peak: &Arc<Peak>) -> Kind {
    let (gate, peak) = (gate.clone(), Arc::clone(peak));
    let spec = KindSpec { queue: name.into(), ..KindSpec::new(name) };
    Kind::spec(spec).handler(handler(move |job: Arc<Job>, _: Context| {
        let (mouth, gate, peak) = (mouth.clone(), gate.clone(), Arc::clone(&peak));
        async move {
            // counted before it is told: the gate opens on the word of the last one
            peak.most.fetch_max(peak.now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            mouth.send((*job).clone())?;
            gate.pass().await;
            peak.now.fetch_sub(1, Ordering::SeqCst);
            Ok(Verdict::Complete)
        }
    }))
}

/// As many as there are slots, in each queue, and never more.
pub async fn k4_never_more_run_than_there_are_slots(engine: &dyn Engine) {
    let gate = Gate::default();
    let (mouth, mut heard) = Heard::new();
    let slots = [("one", 1), ("three", 3)];
    let peaks = slots.map(|_| Arc::new(Peak::default()));
    let kinds = std::iter::zip(slots, &peaks).map(|((name, _), peak)| counted(name, mouth.clone(), &gate, peak));
    let app = slots.into_iter().fold(App::new(kinds), |app, (name, jobs)| app.concurrency(name, jobs));
    let scene = Scene::set(engine, app).await;
    let new = |n: usize| NewJob::new(slots[n % 2].0, json("{}"));
    let made = scene.jobs().enqueue(None, &(0..16).map(new).collect::<Vec<_>>()).await.unwrap();
    scene.start().await;
    for _ in 0..4 {
        heard.next().await;
    }
    gate.open(16);
    for made in &made {
        scene.until(&made.id, State::Completed).await;
    }
    scene.stop().await;
    for ((name, jobs), peak) in slots.into_iter().zip(peaks) {
        assert_eq!(peak.most.load(Ordering::SeqCst), jobs, "{name}");
    }
}

/// What was read of a backlog of twenty thousand while jobs that are due ran: less than one row for each of the backlog.
pub async fn k9_a_backlog_of_future_jobs_is_not_looked_at(engine: &dyn Engine) {
    let (mouth, mut heard) = Heard::new();
    let scene = Scene::set(engine, App::new([telling("t.a", mouth)])).await;
    let later = minute_later(scene.pool()).await;
    let future = NewJob { run_at: Some(later.after(Duration::from_hours(1))), ..NewJob::new("t.a", json("{}")) };
    scene.jobs().enqueue(None, &vec![future; 20_000]).await.unwrap();
    let before = scene.stage().looked_ahead().await;
    scene.start().await;
    for n in 0..20 {
        let id = scene.enqueue(NewJob::new("t.a", json(&n.to_string()))).await;
        assert_eq!(heard.next().await.id, id);
        scene.until(&id, State::Completed).await;
    }
    scene.stop().await;
    let sql = "select count(*) from pg_stat_activity where datname = current_database() and application_name like 'postrider %'";
    until("the process is gone, and what it read is counted", Duration::from_secs(30), async || {
        let n: i64 = sqlx::query_scalar(sql).fetch_one(scene.pool()).await.unwrap();
        (n == 0).then_some(())
    })
    .await;
    let read = scene.stage().looked_ahead().await - before;
    assert!(read < 5_000, "{read} rows of the backlog were read");
    assert!(heard.rest().is_empty());
}

/// Neither claimed nor failed nor discarded; a worker that comes later runs it, as the first attempt.
pub async fn k10_a_kind_that_no_worker_knows_waits_and_is_visible_as_such(engine: &dyn Engine) {
    let (mouth, mut heard) = Heard::new();
    let app = || App::new([telling("t.known", mouth.clone()), postrider::Kind::spec(quick("t.new"))]);
    let stage = engine.fresh().await;
    let old = match stage.process(app()).await {
        Ok(old) => old,
        Err(error) => {
            assert_eq!(error.code(), Some(postrider::Code::Capability));
            return;
        }
    };
    assert!(old.capabilities().unknown_kinds_wait, "what an engine cannot do it refuses");
    let jobs: Vec<NewJob> =
        (0..10).map(|n| NewJob::new(if n % 2 == 0 { "t.new" } else { "t.known" }, json(&n.to_string()))).collect();
    let made = old.jobs().enqueue(None, &jobs).await.unwrap();
    old.start().await.unwrap();
    for _ in 0..5 {
        assert_eq!(heard.next().await.kind, "t.known");
    }
    for made in made.iter().step_by(2) {
        let view = old.inspector().job(&made.id).await.unwrap().unwrap();
        let waits = if old.capabilities().no_worker_shown { Waits::NoWorker } else { Waits::Due };
        assert_eq!((view.state, view.waits), (State::Pending, Some(waits)));
        assert_eq!((view.attempt, view.attempts.len()), (0, 0));
    }
    let (mouth, mut heard_new) = Heard::new();
    let new = stage.process(App::new([gated(quick("t.new"), mouth, &opened())])).await.unwrap();
    new.start().await.unwrap();
    for _ in 0..5 {
        let job = heard_new.next().await;
        assert_eq!((job.kind.as_str(), job.attempt), ("t.new", 1));
    }
    for process in [old, new] {
        process.stop(Duration::from_secs(10)).await.unwrap();
    }
    assert!(heard.rest().is_empty() && heard_new.rest().is_empty());
}

fn opened() -> Gate {
    let gate = Gate::default();
    gate.open(1_000);
    gate
}
