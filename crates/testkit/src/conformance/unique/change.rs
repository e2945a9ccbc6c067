use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use postrider::{BoxError, Context, Job, JobId, Kind, NewJob, State, Unique, Verdict, Waits, handler};

use super::super::{App, Engine, Gate, Heard, Scene, gated, json, quick};
use super::modes;

/// What a handler of [`swaying`] is to answer.
fn verdict(said: &str) -> Result<Verdict, BoxError> {
    match said {
        "fail" => Err("on purpose".into()),
        "snooze" => Ok(Verdict::Snooze(Duration::from_mins(1))),
        "discard" => Ok(Verdict::Discard("on purpose".into())),
        _ => Ok(Verdict::Complete),
    }
}

/// A kind that fails, snoozes or discards the first attempt of a job as its args say, once the gate lets it.
fn swaying(mouth: tokio::sync::mpsc::UnboundedSender<Job>, gate: &Gate) -> Kind {
    let gate = gate.clone();
    let slow = postrider::Retry::Steps(vec![Duration::from_mins(1)]);
    let spec = postrider::KindSpec { retry: slow, ..quick("t.a") };
    Kind::spec(spec).handler(handler(move |job: Arc<Job>, cx: Context| {
        let (told, gate) = (mouth.send((*job).clone()), gate.clone());
        async move {
            told.map_err(|_| BoxError::from("the case is over"))?;
            tokio::select! {
                () = gate.pass() => {}
                () = cx.stop().cancelled() => return Err("was told to stop".into()),
            }
            verdict(&job.args.decode::<String>()?)
        }
    }))
}

/// A producer idles with a duplicate in its transaction, and the job that is there fails, snoozes, is discarded, completes, is rescued: at
/// once, not after the producer.
pub async fn u7_uniqueness_never_blocks_a_change_of_a_job_that_is_there(engine: &dyn Engine) {
    let (mouth, mut heard) = Heard::new();
    let gate = Gate::default();
    let scene = Scene::at_work(engine, App::new([swaying(mouth, &gate), Kind::new("t.other")])).await;
    let ends = [
        ("fail", State::Retryable),
        ("snooze", State::Pending),
        ("discard", State::Discarded),
        ("complete", State::Completed),
    ];
    for mode in modes(&scene).await {
        for (args, state) in ends {
            let what = format!("{mode:?} {args}");
            let job = NewJob::new("t.a", json(&format!("{args:?}"))).unique(mode);
            let first = scene.enqueue(job.clone()).await;
            assert_eq!(heard.next().await.id, first, "{what}");
            let mut tx = scene.pool().begin().await.unwrap();
            scene.jobs().enqueue(Some(&mut *tx), &[job]).await.unwrap();
            gate.open(1);
            scene.until(&first, state).await;
            tx.rollback().await.unwrap();
        }
        if scene.jobs().capabilities().leases {
            rescued(&scene, mode, &mut heard, &gate).await;
        }
    }
    scene.stop().await;
}

async fn rescued(scene: &Scene, mode: Unique, heard: &mut Heard<Job>, gate: &Gate) {
    let job = NewJob::new("t.a", json(r#""rescue""#)).unique(mode);
    let first = scene.enqueue(job.clone()).await;
    assert_eq!(heard.next().await.id, first);
    let mut tx = scene.pool().begin().await.unwrap();
    let duplicate = scene.jobs().enqueue(Some(&mut *tx), &[job]).await.unwrap().remove(0);
    scene.stage().rob(&first).await;
    tx.commit().await.unwrap();
    // for the run that was robbed, should it not have been told yet, the second one, and the one that it is a duplicate of
    gate.open(3);
    scene.until(&first, State::Completed).await;
    scene.until(&duplicate.id, State::Completed).await;
    gate.shut();
    let runs = heard.rest();
    assert_eq!(runs.iter().filter(|job| job.id == first).count(), 1, "{mode:?}: it runs again, once");
    assert_eq!(runs.len(), if duplicate.fresh { 2 } else { 1 }, "{mode:?}");
}

/// A third one is a duplicate of the one that waits; that one starts when the first has ended, retries included.
pub async fn u9_one_runs_and_one_waits_behind_it(engine: &dyn Engine) {
    let (mouth, mut heard) = Heard::new();
    let gate = Gate::default();
    let opened = Gate::default();
    opened.open(10);
    let app = App::new([gated(quick("t.a"), mouth.clone(), &gate), gated(quick("t.b"), mouth, &opened)]);
    let scene = Scene::at_work(engine, app).await;
    let mode = Unique::OneRunningOneWaiting;
    if !modes(&scene).await.contains(&mode) {
        return;
    }
    let job = NewJob::new("t.a", json("{}")).unique(mode);
    let first = scene.enqueue(job.clone()).await;
    assert_eq!(heard.next().await.id, first);
    let second = scene.jobs().enqueue(None, std::slice::from_ref(&job)).await.unwrap().remove(0);
    let third = scene.jobs().enqueue(None, &[job]).await.unwrap().remove(0);
    assert!(second.fresh && second.id != first);
    assert_eq!((&third.id, third.fresh), (&second.id, false));
    let other = scene.enqueue(NewJob::new("t.b", json("{}"))).await;
    scene.until(&other, State::Completed).await;
    assert_eq!(heard.next().await.id, other);
    let view = scene.job(&second.id).await;
    assert_eq!((view.state, view.waits), (State::Pending, Some(Waits::Behind(first.clone()))));
    gate.open(1);
    scene.until(&first, State::Completed).await;
    assert_eq!(heard.next().await.id, second.id);
    gate.open(1);
    scene.until(&second.id, State::Completed).await;
    scene.stop().await;
}

/// What the runs of one group saw: how many at a time, and how far the producers were when each began.
#[derive(Debug, Default)]
struct Seen {
    runs: AtomicUsize,
    most: AtomicUsize,
    now: AtomicUsize,
    last: AtomicUsize,
}

/// Producers change something and ask for a run, again and again: at most one runs, and the last change is seen by a run.
pub async fn u9_the_last_of_one_running_one_waiting_is_followed_by_a_run_that_starts_after_it(engine: &dyn Engine) {
    let (changes, seen) = (Arc::new(AtomicUsize::new(0)), Arc::new(Seen::default()));
    let (change, saw) = (Arc::clone(&changes), Arc::clone(&seen));
    let kind = Kind::new("t.a").handler(handler(move |_: Arc<Job>, _: Context| {
        saw.most.fetch_max(saw.now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        saw.last.fetch_max(change.load(Ordering::SeqCst), Ordering::SeqCst);
        saw.runs.fetch_add(1, Ordering::SeqCst);
        let saw = Arc::clone(&saw);
        async move {
            tokio::task::yield_now().await;
            saw.now.fetch_sub(1, Ordering::SeqCst);
            Ok(Verdict::Complete)
        }
    }));
    let scene = Scene::at_work(engine, App::new([kind])).await;
    let mode = Unique::OneRunningOneWaiting;
    if !modes(&scene).await.contains(&mode) {
        return;
    }
    let jobs = scene.jobs();
    let producers = (0..4).map(async |_| {
        let mut ids = Vec::new();
        for _ in 0..25 {
            changes.fetch_add(1, Ordering::SeqCst);
            let job = NewJob::new("t.a", json("{}")).unique(mode);
            ids.push(jobs.enqueue(None, &[job]).await.unwrap().remove(0).id);
        }
        ids
    });
    let ids: Vec<JobId> = futures_util::future::join_all(producers).await.concat();
    for id in &ids {
        scene.until(id, State::Completed).await;
    }
    assert_eq!(seen.last.load(Ordering::SeqCst), 100, "the last change was seen by no run");
    assert_eq!(seen.most.load(Ordering::SeqCst), 1, "two ran at a time");
    assert!(seen.runs.load(Ordering::SeqCst) <= 100);
    scene.stop().await;
}

/// A duplicate in an open transaction holds back the run of the job that it counts on, and nothing else.
pub async fn u9_a_run_that_a_producer_counts_on_does_not_start_before_its_commit(engine: &dyn Engine) {
    let (mouth, mut heard) = Heard::new();
    let gate = Gate::default();
    gate.open(100);
    let app = App::new([gated(quick("t.a"), mouth.clone(), &gate), gated(quick("t.b"), mouth, &gate)]);
    let scene = Scene::set(engine, app.concurrency("default", 1)).await;
    let modes = modes(&scene).await;
    let waiting = [Unique::WhileWaiting, Unique::OneRunningOneWaiting];
    let waiting: Vec<Unique> = waiting.into_iter().filter(|mode| modes.contains(mode)).collect();
    let new = |mode: Unique| NewJob::new("t.a", json(&format!("{:?}", mode.name()))).unique(mode);
    let mut there = Vec::new();
    for &mode in &waiting {
        there.push(scene.enqueue(new(mode)).await);
    }
    let mut tx = scene.pool().begin().await.unwrap();
    for (&mode, id) in waiting.iter().zip(&there) {
        let duplicate = scene.jobs().enqueue(Some(&mut *tx), &[new(mode)]).await.unwrap().remove(0);
        assert_eq!((&duplicate.id, duplicate.fresh), (id, false), "{mode:?}");
    }
    scene.start().await;
    // behind those that are held, on the only slot
    for n in 0..3 {
        let other = scene.enqueue(NewJob::new("t.b", json(&n.to_string()))).await;
        scene.until(&other, State::Completed).await;
        assert_eq!(heard.next().await.id, other, "what is held holds up nothing else");
    }
    for id in &there {
        assert_eq!(scene.job(id).await.state, State::Pending);
    }
    tx.commit().await.unwrap();
    for id in &there {
        scene.until(id, State::Completed).await;
    }
    scene.stop().await;
    assert_eq!(heard.rest().len(), there.len());
}
