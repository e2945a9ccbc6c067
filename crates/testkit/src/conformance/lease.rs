//! L: a lease is one worker's; it ends with the worker, and with nothing else.

use std::collections::BTreeSet;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use postrider::{Clock, JobId, Kind, KindSpec, NewJob, State, Stopped, Verdict, handler};
use tokio::sync::Semaphore;
use tokio::sync::mpsc::UnboundedSender;
use tokio::time::Instant;

use super::crew::{DEAD_AFTER, Lined, Said, hire, hire_lined, mortal, quick, staying, until_some};
use super::{App, Engine, Heard, Scene, json};
use crate::until;

/// This family's cases as tests.
#[macro_export]
macro_rules! conformance_lease {
    ($engine:expr) => {
        $crate::conformance_family!(
            $engine,
            lease,
            [
                l1_a_dead_workers_job_restarts_within_its_lease_and_a_sweep,
                l2_a_live_worker_keeps_a_job_of_any_length,
                l3_a_stale_worker_cannot_end_a_newer_attempt,
                l4_losing_the_lease_cancels_the_handler,
                l5_what_has_completed_is_not_rescued,
                l6_two_processes_of_one_name_share_no_lease,
                l7_handlers_that_block_their_runtime_keep_their_leases,
                l8_a_job_that_cannot_be_put_back_does_not_keep_the_others,
                l9_a_job_that_is_lost_at_its_last_attempt_is_discarded_as_lost,
                l10_leases_survive_the_end_of_every_connection,
                l11_the_clock_of_a_worker_changes_nothing,
            ]
        );
    };
}

const KIND: &str = "t.stay";

fn job() -> NewJob {
    NewJob::new(KIND, json("{}"))
}

/// A scene whose process is not at work, one that is and will die, and what their handlers need.
struct Deathbed {
    scene: Scene,
    dying: Lined,
    gate: Arc<Semaphore>,
    mouth: UnboundedSender<Said>,
    heard: Heard<Said>,
}

impl Deathbed {
    async fn set(engine: &dyn Engine, spec: KindSpec) -> Self {
        let (mouth, heard) = Heard::new();
        let gate = Arc::new(Semaphore::new(0));
        let closed = Arc::new(Semaphore::new(0));
        let scene = Scene::set(engine, mortal(staying(spec.clone(), "heir", &mouth, &closed))).await;
        let dying = hire_lined(&scene, mortal(staying(spec, "dying", &mouth, &gate))).await;
        Self { scene, dying, gate, mouth, heard }
    }

    /// Enqueues jobs with these args; they have begun at the one that will die.
    async fn begun(&mut self, args: &[&str]) -> Vec<JobId> {
        let jobs: Vec<NewJob> = args.iter().map(|args| NewJob::new(KIND, json(args))).collect();
        let made = self.scene.jobs().enqueue(None, &jobs).await.unwrap();
        for _ in args {
            assert_eq!(self.heard.next().await.word(), ("dying", true));
        }
        made.into_iter().map(|made| made.id).collect()
    }
}

/// Well before the end of the attempt's own time.
pub async fn l1_a_dead_workers_job_restarts_within_its_lease_and_a_sweep(engine: &dyn Engine) {
    let mut bed = Deathbed::set(engine, quick(KIND)).await;
    let ids = bed.begun(&["{}"]).await;
    bed.scene.start().await;
    bed.dying.line.cut();
    let cut = Instant::now();
    assert_eq!(bed.heard.next().await.word(), ("heir", true));
    // the lease and a sweep, and what a machine that does other things may take for the rest
    assert!(cut.elapsed() < DEAD_AFTER + Duration::from_secs(15), "it took {:?}", cut.elapsed());
    for id in &ids {
        assert_eq!(bed.scene.job(id).await.state, State::Running);
    }
}

/// It is still in its first run when a dead worker's job, begun later, runs again.
pub async fn l2_a_live_worker_keeps_a_job_of_any_length(engine: &dyn Engine) {
    let (mouth, mut heard) = Heard::new();
    let (gate, closed) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let app = |by, gate| App::new([staying(quick(KIND), by, &mouth, gate)]).concurrency("default", 1);
    let scene = Scene::at_work(engine, app("living", &gate)).await;
    let long = scene.enqueue(job()).await;
    assert_eq!(heard.next().await.word(), ("living", true));
    let dying = hire_lined(&scene, app("dying", &closed)).await;
    let lost = scene.enqueue(job()).await;
    assert_eq!(heard.next().await.word(), ("dying", true));
    dying.line.cut();
    let heir = hire(&scene, app("heir", &closed)).await;
    let again = heard.next().await;
    assert_eq!((again.word(), again.job.id), (("heir", true), lost));
    assert_eq!(heard.rest().len(), 0, "a live worker's job was touched");
    gate.add_permits(1);
    let view = scene.until(&long, State::Completed).await;
    assert_eq!((view.attempt, view.attempts), (1, vec![]));
    drop(heir);
}

/// Whatever the first one answers, the newer attempt is not touched.
pub async fn l3_a_stale_worker_cannot_end_a_newer_attempt(engine: &dyn Engine) {
    let mut bed = Deathbed::set(engine, quick(KIND)).await;
    let ids = bed.begun(&[r#""complete""#, r#""fail""#, r#""snooze""#, r#""discard""#]).await;
    bed.dying.line.cut();
    bed.scene.start().await;
    let mut newer = Vec::new();
    for _ in &ids {
        let said = bed.heard.next().await;
        assert_eq!(said.word(), ("heir", true));
        newer.push((said.job.id, Some(said.job.lease)));
    }
    // all four have answered before anything can reach the engine
    bed.gate.add_permits(ids.len());
    bed.dying.line.mend();
    // a stop writes what was answered
    bed.dying.process.stop(Duration::from_secs(10)).await.unwrap();
    for (id, lease) in newer {
        let view = bed.scene.job(&id).await;
        assert_eq!((view.state, view.lease), (State::Running, lease), "{id}");
    }
}

/// As soon as it can be told.
pub async fn l4_losing_the_lease_cancels_the_handler(engine: &dyn Engine) {
    let mut bed = Deathbed::set(engine, quick(KIND)).await;
    bed.begun(&["{}"]).await;
    bed.dying.line.cut();
    bed.scene.start().await;
    assert_eq!(bed.heard.next().await.word(), ("heir", true));
    bed.dying.line.mend();
    assert_eq!(bed.heard.next().await.word(), ("dying", false));
    assert!(bed.heard.rest().is_empty(), "the newer attempt goes on");
}

/// Of one batch, one has completed when its worker dies.
pub async fn l5_what_has_completed_is_not_rescued(engine: &dyn Engine) {
    let mut bed = Deathbed::set(engine, quick(KIND)).await;
    bed.begun(&["1", "2", "3"]).await;
    bed.gate.add_permits(1);
    let completed = until_some(&bed.scene, State::Completed).await;
    bed.dying.line.cut();
    bed.scene.start().await;
    let again: BTreeSet<JobId> = [bed.heard.next().await.job.id, bed.heard.next().await.job.id].into();
    assert!(!again.contains(&completed.id) && again.len() == 2, "{again:?}");
    let view = bed.scene.job(&completed.id).await;
    assert_eq!((view.state, view.attempt, view.finished_at), (State::Completed, 1, completed.finished_at));
}

/// One that stops leaves the other one's alone.
pub async fn l6_two_processes_of_one_name_share_no_lease(engine: &dyn Engine) {
    let (mouth, mut heard) = Heard::new();
    let gate = Arc::new(Semaphore::new(0));
    let app = |by| App::new([staying(quick(KIND), by, &mouth, &gate)]).concurrency("default", 2);
    let scene = Scene::at_work(engine, app("one")).await;
    let twin = hire(&scene, app("twin")).await;
    scene.jobs().enqueue(None, &[job(), job(), job(), job()]).await.unwrap();
    let mut leases: [BTreeSet<i64>; 2] = Default::default();
    let mut kept = Vec::new();
    for _ in 0..4 {
        let said = heard.next().await;
        let [one, other] = &mut leases;
        if said.by == "one" { one } else { other }.insert(said.job.lease);
        kept.extend((said.by == "one").then_some((said.job.id, said.job.lease)));
    }
    let [one, other] = &leases;
    assert!(!one.is_empty() && !other.is_empty() && one.is_disjoint(other), "{leases:?}");
    assert_eq!(twin.stop(Duration::ZERO).await.unwrap(), Stopped::Abandoned(2));
    for (id, lease) in &kept {
        let view = scene.job(id).await;
        assert_eq!((view.state, view.lease), (State::Running, Some(*lease)));
    }
}

/// Blocked until a dead worker's job, lost at the same time, has been rescued.
pub async fn l7_handlers_that_block_their_runtime_keep_their_leases(engine: &dyn Engine) {
    let (mouth, mut heard) = Heard::new();
    let closed = Arc::new(Semaphore::new(0));
    let (free, wait) = mpsc::channel::<()>();
    let (wait, said) = (std::sync::Mutex::new(wait), mouth.clone());
    let blocking = Kind::spec(quick("t.block")).handler(handler(move |job, _| {
        let _ = said.send(Said { by: "blocked", begins: true, job: (*job).clone() });
        let freed = wait.lock().is_ok_and(|wait| wait.recv_timeout(Duration::from_mins(1)).is_ok());
        async move { if freed { Ok(Verdict::Complete) } else { Err("nobody freed it".into()) } }
    }));
    let scene = Scene::set(engine, App::new([staying(quick(KIND), "heir", &mouth, &closed)])).await;
    let blocked = scene.stage().process(App::new([blocking])).await.unwrap();
    let made = blocked.jobs().enqueue(None, &[NewJob::new("t.block", json("{}"))]).await.unwrap();
    let id = made.first().unwrap().id.clone();
    let (over, ended) = tokio::sync::oneshot::channel::<()>();
    // one thread, which the handler holds
    let thread = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            blocked.start().await.unwrap();
            let _ = ended.await;
            blocked.stop(Duration::from_secs(10)).await.unwrap();
        });
    });
    assert_eq!(heard.next().await.word(), ("blocked", true));
    let dying = hire_lined(&scene, App::new([staying(quick(KIND), "dying", &mouth, &closed)])).await;
    scene.enqueue(job()).await;
    assert_eq!(heard.next().await.word(), ("dying", true));
    scene.start().await;
    dying.line.cut();
    assert_eq!(heard.next().await.word(), ("heir", true));
    free.send(()).unwrap();
    let view = scene.until(&id, State::Completed).await;
    assert_eq!((view.attempt, view.attempts), (1, vec![]));
    over.send(()).unwrap();
    tokio::task::spawn_blocking(move || thread.join()).await.unwrap().unwrap();
}

/// They were claimed together.
pub async fn l8_a_job_that_cannot_be_put_back_does_not_keep_the_others(engine: &dyn Engine) {
    let mut bed = Deathbed::set(engine, quick(KIND)).await;
    let ids = bed.begun(&["1", "2", "3", "4"]).await;
    let [first, bad, third, fourth] = ids.as_slice() else { panic!("{ids:?}") };
    bed.scene.stage().perils().spoil(bad).await;
    bed.dying.line.cut();
    bed.scene.start().await;
    let mut again = BTreeSet::new();
    for _ in 0..3 {
        again.insert(bed.heard.next().await.job.id);
    }
    assert_eq!(again, [first, third, fourth].into_iter().cloned().collect());
    assert_eq!(bed.scene.job(bad).await.state, State::Running);
}

/// With the reason.
pub async fn l9_a_job_that_is_lost_at_its_last_attempt_is_discarded_as_lost(engine: &dyn Engine) {
    let mut bed = Deathbed::set(engine, KindSpec { max_attempts: 1, ..quick(KIND) }).await;
    let ids = bed.begun(&["{}"]).await;
    bed.dying.line.cut();
    bed.scene.start().await;
    for id in &ids {
        let view = bed.scene.until(id, State::Discarded).await;
        assert!(view.reason.as_deref().is_some_and(|reason| reason.contains("worker lost")), "{view:?}");
        assert_eq!((view.attempt, view.ended_as.as_deref()), (1, Some("lost")));
    }
    assert!(bed.heard.rest().is_empty());
    drop(bed.mouth);
}

/// As a restart of its server ends them: the live owner goes on.
pub async fn l10_leases_survive_the_end_of_every_connection(engine: &dyn Engine) {
    let (mouth, mut heard) = Heard::new();
    let gate = Arc::new(Semaphore::new(0));
    let app = |by| App::new([staying(quick(KIND), by, &mouth, &gate)]);
    let scene = Scene::at_work(engine, app("owner")).await;
    let id = scene.enqueue(job()).await;
    let owned = heard.next().await;
    let other = hire(&scene, app("other")).await;
    for _ in 0..3 {
        scene.stage().perils().interrupt().await;
        // whoever asks may be the first one to meet a connection that has ended
        let look = async || scene.inspector().job(&id).await.ok().flatten();
        let seen = until("the job can be looked at", Duration::from_secs(20), look).await;
        assert_eq!(seen.lease, Some(owned.job.lease));
    }
    gate.add_permits(1);
    let view = scene.until(&id, State::Completed).await;
    assert_eq!((view.attempt, view.attempts), (1, vec![]));
    assert!(heard.rest().is_empty());
    drop(other);
}

/// One is two hours ahead of the others: it neither takes what they hold nor loses what it holds, and its jobs are not early.
pub async fn l11_the_clock_of_a_worker_changes_nothing(engine: &dyn Engine) {
    let (mouth, mut heard) = Heard::new();
    let (gate, closed) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let mut ahead = App::new([staying(quick(KIND), "ahead", &mouth, &gate)]).concurrency("default", 1);
    ahead.clock = Clock::system().ahead(Duration::from_hours(2));
    let app = |by, gate| App::new([staying(quick(KIND), by, &mouth, gate)]).concurrency("default", 1);
    let scene = Scene::at_work(engine, ahead).await;
    let held = scene.enqueue(job()).await;
    assert_eq!(heard.next().await.word(), ("ahead", true));
    let dying = hire_lined(&scene, app("dying", &closed)).await;
    let lost = scene.enqueue(job()).await;
    assert_eq!(heard.next().await.word(), ("dying", true));
    let cut = Instant::now();
    dying.line.cut();
    let heir = hire(&scene, app("heir", &closed)).await;
    let again = heard.next().await;
    assert_eq!((again.word(), &again.job.id), (("heir", true), &lost));
    assert!(cut.elapsed() > Duration::from_secs(1), "taken for dead after {:?}", cut.elapsed());
    gate.add_permits(1);
    assert_eq!(scene.until(&held, State::Completed).await.attempts, vec![]);
    let view = scene.job(&lost).await;
    assert!(view.started_at.is_some_and(|at| at >= view.created_at), "{view:?}");
    drop(heir);
}
