use std::collections::BTreeSet;
use std::time::Duration;

use postrider::{Code, JobId, KindSpec, NewJob, State, Waits};

use super::super::{App, Engine, Gate, Heard, Scene, gated, json, minute_later, refused, telling};

const GRACE: Duration = Duration::from_secs(10);

/// Two processes, many small claims: each attempt is run once.
pub async fn k5_two_workers_never_hold_the_same_attempt(engine: &dyn Engine) {
    let (mouth, mut heard) = Heard::new();
    let app = || App::new([telling("t.a", mouth.clone())]).concurrency("default", 3);
    let scene = Scene::at_work(engine, app()).await;
    let other = scene.stage().process(app()).await.unwrap();
    other.start().await.unwrap();
    let mut ids = Vec::new();
    for batch in 0..10 {
        let jobs: Vec<NewJob> = (0..30).map(|n| NewJob::new("t.a", json(&(batch * 30 + n).to_string()))).collect();
        let made = scene.jobs().enqueue(None, &jobs).await.unwrap();
        ids.extend(made.into_iter().map(|made| made.id));
    }
    for id in &ids {
        scene.until(id, State::Completed).await;
    }
    scene.stop().await;
    other.stop(GRACE).await.unwrap();
    let runs: Vec<(String, i16)> = heard.rest().into_iter().map(|job| (job.id.to_string(), job.attempt)).collect();
    let once: BTreeSet<&(String, i16)> = runs.iter().collect();
    assert_eq!((runs.len(), once.len()), (300, 300));
    assert!(runs.iter().all(|run| run.1 == 1));
}

/// All slots of one queue are taken for good, and more waits there; the other one goes on.
pub async fn k6_a_queue_that_is_stuck_does_not_starve_another_one(engine: &dyn Engine) {
    let gate = Gate::default();
    let (mouth, mut heard) = Heard::new();
    let stuck = KindSpec { queue: "stuck".into(), priority: 1, ..KindSpec::new("t.stuck") };
    let app = App::new([gated(stuck, mouth.clone(), &gate), telling("t.fine", mouth)]);
    let scene = Scene::set(engine, app.concurrency("stuck", 2).concurrency("default", 1)).await;
    let jobs: Vec<NewJob> = (0..100).map(|_| NewJob::new("t.stuck", json("{}"))).collect();
    let made = scene.jobs().enqueue(None, &jobs).await.unwrap();
    scene.start().await;
    for _ in 0..2 {
        assert_eq!(heard.next().await.kind, "t.stuck");
    }
    for n in 0..5 {
        let id = scene.enqueue(NewJob::new("t.fine", json(&n.to_string()))).await;
        scene.until(&id, State::Completed).await;
        assert_eq!(heard.next().await.id, id);
    }
    gate.open(100);
    scene.until(&made[99].id, State::Completed).await;
    scene.stop().await;
}

/// One of the last priority among sixty of the first, on one slot.
pub async fn k7_a_low_priority_is_not_starved_for_ever(engine: &dyn Engine) {
    let (mouth, mut heard) = Heard::new();
    let scene = Scene::set(engine, App::new([telling("t.a", mouth)]).concurrency("default", 1)).await;
    let new = |priority| NewJob { priority: Some(priority), ..NewJob::new("t.a", json(&priority.to_string())) };
    let mut jobs = vec![new(4)];
    jobs.extend((0..60).map(|_| new(1)));
    scene.jobs().enqueue(None, &jobs).await.unwrap();
    scene.start().await;
    let mut order = Vec::new();
    for _ in 0..61 {
        order.push(heard.next().await.args);
    }
    let low = order.iter().position(|args| *args == json("4")).unwrap();
    assert!(low > 0, "the first claim goes by priority");
    assert!(low < 40, "it was the {low}th");
    scene.stop().await;
}

/// What runs goes on, what waits is shown as paused; a process that is started meanwhile is given nothing either.
pub async fn k8_a_paused_queue_hands_out_nothing_until_it_is_resumed(engine: &dyn Engine) {
    let gate = Gate::default();
    let (mouth, mut heard) = Heard::new();
    let spec = KindSpec { queue: "held".into(), ..KindSpec::new("t.a") };
    let app = || App::new([gated(spec.clone(), mouth.clone(), &gate), telling("t.b", mouth.clone())]);
    let scene = Scene::at_work(engine, app()).await;
    if !scene.jobs().capabilities().pause {
        assert_eq!(refused(scene.jobs().pause("held", true).await).0, Code::Capability);
        assert_eq!(refused(scene.jobs().pause("held", false).await).0, Code::Capability);
        return;
    }
    let new = |kind: &str| NewJob::new(kind, json("{}"));
    let running = scene.enqueue(new("t.a")).await;
    assert_eq!(heard.next().await.id, running);
    scene.jobs().pause("held", true).await.unwrap();
    scene.jobs().pause("held", true).await.unwrap();
    gate.open(100);
    scene.until(&running, State::Completed).await;
    let waiting = [scene.enqueue(new("t.a")).await, scene.enqueue(new("t.a")).await];
    other_runs(&scene, &mut heard).await;
    scene.stop().await;
    let next = scene.stage().process(app()).await.unwrap();
    next.start().await.unwrap();
    other_runs(&scene, &mut heard).await;
    for id in &waiting {
        let view = scene.job(id).await;
        assert_eq!((view.state, view.waits, view.attempt), (State::Pending, Some(Waits::Paused), 0));
    }
    let queues = scene.inspector().queues().await.unwrap();
    let held = queues.iter().find(|queue| queue.name == "held").unwrap();
    assert!(held.paused_at.is_some());
    assert!(queues.iter().all(|queue| queue.name == "held" || queue.paused_at.is_none()));
    let resumed = minute_later(scene.pool()).await;
    next.jobs().pause("held", false).await.unwrap();
    for _ in 0..2 {
        let job = heard.next().await;
        assert!(waiting.contains(&job.id));
        let after = job.claimed_at.after(Duration::from_mins(1)).since(resumed);
        assert!(after < Duration::from_secs(5), "claimed {after:?} after it was resumed");
    }
    for id in &waiting {
        scene.until(id, State::Completed).await;
    }
    next.stop(GRACE).await.unwrap();
    assert!(heard.rest().is_empty());
}

/// A job of the other queue, enqueued after everything else, runs: whatever was to be claimed before it would have been.
async fn other_runs(scene: &Scene, heard: &mut Heard<postrider::Job>) {
    let id: JobId = scene.enqueue(NewJob::new("t.b", json("{}"))).await;
    scene.until(&id, State::Completed).await;
    assert_eq!(heard.next().await.id, id);
}
