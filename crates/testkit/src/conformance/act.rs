//! X: cancel, retry, delete.

use std::sync::Arc;
use std::time::Duration;

use postrider::{
    Act, BoxError, Code, Effect, Error, Filter, JobId, Kind, KindSpec, NewJob, State, Unique, Verdict, Waits, handler,
};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::crew::{Said, hire, hire_lined, mortal, quick, staying, until_some, until_waits};
use super::{App, Engine, Heard, Scene, json, telling};

/// This family's cases as tests.
#[macro_export]
macro_rules! conformance_act {
    ($engine:expr) => {
        $crate::conformance_family!(
            $engine,
            act,
            [
                x1_a_cancelled_job_that_waits_never_runs,
                x2_a_cancellation_reaches_a_running_job_without_a_wake_up,
                x3_cancelled_beats_rescue_retry_and_snooze_in_every_order,
                x4_the_answer_tells_cancelled_from_already_finished,
                x5_a_retry_runs_again_with_all_attempts_and_keeps_the_history,
                x5_a_retry_begins_a_new_life_that_may_be_put_off_again,
                x6_a_retry_of_a_running_job_is_refused,
                x7_an_act_by_filter_is_counted_first_and_carried_out_in_batches,
                x8_a_running_job_is_not_deleted,
            ]
        );
    };
}

const KIND: &str = "t.stay";

/// One act on one job.
async fn act(scene: &Scene, act: Act, id: &JobId) -> Effect {
    let effects = scene.jobs().act(None, act, std::slice::from_ref(id)).await;
    let mut effects = effects.unwrap_or_else(|error| panic!("cannot {}: {error}", act.name()));
    effects.pop().unwrap_or_else(|| panic!("no answer for one job"))
}

/// Whether an engine that cannot do it said so.
fn refuses<T: std::fmt::Debug>(answer: Result<T, Error>) {
    assert_eq!(answer.unwrap_err().code(), Some(Code::Capability));
}

/// A kind that fails once and is then tried again in an hour.
fn slow() -> KindSpec {
    KindSpec { retry: postrider::Retry::Steps(vec![Duration::from_hours(1)]), ..KindSpec::new(KIND) }
}

/// Whether it is due, scheduled, backing off or snoozed.
pub async fn x1_a_cancelled_job_that_waits_never_runs(engine: &dyn Engine) {
    let (mouth, mut heard) = Heard::new();
    let gate = Arc::new(Semaphore::new(2));
    let (told, mut marks) = Heard::new();
    let app = || App::new([staying(slow(), "one", &mouth, &gate), telling("t.tell", told.clone())]);
    let scene = Scene::at_work(engine, app()).await;
    let failed = scene.enqueue(NewJob::new(KIND, json(r#""fail""#))).await;
    let snoozed = scene.enqueue(NewJob::new(KIND, json(r#""snooze""#))).await;
    scene.until(&failed, State::Retryable).await;
    until_waits(&scene, &snoozed).await;
    scene.stop().await;
    let due = scene.enqueue(NewJob::new(KIND, json("{}"))).await;
    let later = postrider::Timestamp::from_micros(4_000_000_000_000_000);
    let scheduled = scene.enqueue(NewJob { run_at: Some(later), ..NewJob::new(KIND, json("{}")) }).await;
    let ids = [due, scheduled, failed, snoozed];
    assert_eq!(scene.jobs().act(None, Act::Cancel, &ids).await.unwrap(), [Effect::Done; 4]);
    assert_eq!(heard.rest().len(), 2);
    // all of them run now if they ever do
    let retried = scene.jobs().act(None, Act::Cancel, &ids).await.unwrap();
    assert_eq!(retried, [Effect::Already(State::Cancelled); 4]);
    gate.add_permits(9);
    let next = hire(&scene, app()).await;
    scene.enqueue(NewJob::new("t.tell", json("1"))).await;
    marks.next().await;
    next.stop(Duration::from_secs(10)).await.unwrap();
    assert!(heard.rest().is_empty());
    for id in &ids {
        let view = scene.job(id).await;
        assert_eq!((view.state, view.ended_as.as_deref()), (State::Cancelled, Some("cancelled")));
    }
}

/// Within a heartbeat, on another process than the one that asks.
pub async fn x2_a_cancellation_reaches_a_running_job_without_a_wake_up(engine: &dyn Engine) {
    let (mouth, mut heard) = Heard::new();
    let gate = Arc::new(Semaphore::new(0));
    let app = || App::new([staying(quick(KIND), "deaf", &mouth, &gate)]);
    let scene = Scene::set(engine, app()).await;
    let deaf = scene.stage().perils().deaf(app()).await.unwrap().start().await;
    let id = scene.enqueue(NewJob::new(KIND, json("{}"))).await;
    assert_eq!(heard.next().await.word(), ("deaf", true));
    if !scene.jobs().capabilities().cancel_running {
        refuses(scene.jobs().act(None, Act::Cancel, &[id]).await);
        return;
    }
    let asked = Instant::now();
    assert_eq!(act(&scene, Act::Cancel, &id).await, Effect::Requested);
    let again = act(&scene, Act::Cancel, &id).await;
    assert!(matches!(again, Effect::Requested | Effect::Already(State::Cancelled)), "asked again: {again:?}");
    assert_eq!(heard.next().await.word(), ("deaf", false));
    assert!(asked.elapsed() < Duration::from_secs(10), "it took {:?}", asked.elapsed());
    let view = scene.until(&id, State::Cancelled).await;
    assert_eq!((view.attempt, view.attempts.len()), (1, 1), "{view:?}");
    drop(deaf);
}

/// What was asked for while it ran wins over what its handler answers then, but for completion; and over what becomes of it without one.
pub async fn x3_cancelled_beats_rescue_retry_and_snooze_in_every_order(engine: &dyn Engine) {
    let (mouth, mut heard) = Heard::new();
    let closed = Arc::new(Semaphore::new(0));
    let app = |by| mortal(staying(quick(KIND), by, &mouth, &closed));
    let scene = Scene::set(engine, app("heir")).await;
    if !scene.jobs().capabilities().cancel_running {
        return; // x2 says what it answers then
    }
    let dying = hire_lined(&scene, app("dying")).await;
    let answers = [r#""fail""#, r#""snooze""#, r#""discard""#, r#""complete""#];
    let jobs: Vec<NewJob> = answers.iter().map(|args| NewJob::new(KIND, json(args))).collect();
    let made = scene.jobs().enqueue(None, &jobs).await.unwrap();
    for _ in &jobs {
        assert!(heard.next().await.begins);
    }
    for made in &made {
        // nobody hears of it before the retry was refused
        let (mut tx, id) = (scene.pool().begin().await.unwrap(), std::slice::from_ref(&made.id));
        assert_eq!(scene.jobs().act(Some(&mut *tx), Act::Cancel, id).await.unwrap(), [Effect::Requested]);
        assert_eq!(scene.jobs().act(Some(&mut *tx), Act::Retry, id).await.unwrap(), [Effect::Running]);
        tx.commit().await.unwrap();
    }
    for (made, answer) in made.iter().zip(answers) {
        let ended = if answer.contains("complete") { State::Completed } else { State::Cancelled };
        scene.until(&made.id, ended).await;
    }
    heard.rest();

    // asked for before its worker is found dead, and after
    let ids = [r#""lost""#, r#""lost""#].map(|args| NewJob::new(KIND, json(args)));
    let made = scene.jobs().enqueue(None, &ids).await.unwrap();
    let [before, after] = made.as_slice() else { panic!("{made:?}") };
    let (before, after) = (&before.id, &after.id);
    for _ in &made {
        assert_eq!(heard.next().await.word(), ("dying", true));
    }
    dying.line.cut();
    assert_eq!(act(&scene, Act::Cancel, before).await, Effect::Requested);
    scene.start().await;
    let said: Said = heard.next().await;
    assert_eq!((said.by, said.begins, &said.job.id), ("heir", true, after), "the cancelled one runs again");
    scene.until(before, State::Cancelled).await;
    assert_eq!(act(&scene, Act::Cancel, after).await, Effect::Requested);
    assert_eq!(heard.next().await.word(), ("heir", false));
    scene.until(after, State::Cancelled).await;
}

/// For each job, in the order in which they were named.
pub async fn x4_the_answer_tells_cancelled_from_already_finished(engine: &dyn Engine) {
    let (mouth, mut heard) = Heard::new();
    let gate = Arc::new(Semaphore::new(9));
    let scene = Scene::at_work(engine, App::new([staying(quick(KIND), "one", &mouth, &gate)])).await;
    let completed = scene.enqueue(NewJob::new(KIND, json("{}"))).await;
    let discarded = scene.enqueue(NewJob::new(KIND, json(r#""discard""#))).await;
    scene.until(&completed, State::Completed).await;
    scene.until(&discarded, State::Discarded).await;
    scene.stop().await;
    let waiting = scene.enqueue(NewJob::new(KIND, json("{}"))).await;
    let (never, no) = (JobId::new("4611686018427387904"), JobId::new("no-such-job"));
    let asked = [discarded.clone(), never, waiting.clone(), completed.clone(), no];
    let told = scene.jobs().act(None, Act::Cancel, &asked).await.unwrap();
    let already = Effect::Already;
    let expected =
        [already(State::Discarded), Effect::Unknown, Effect::Done, already(State::Completed), Effect::Unknown];
    assert_eq!(told, expected);
    assert_eq!(act(&scene, Act::Cancel, &waiting).await, already(State::Cancelled));
    assert_eq!(scene.jobs().act(None, Act::Cancel, &[]).await.unwrap(), []);
    assert_eq!(heard.rest().len(), 2);
}

/// Put off until it was too old, and then by an operator's word not too old any more.
pub async fn x5_a_retry_begins_a_new_life_that_may_be_put_off_again(engine: &dyn Engine) {
    let hour = Duration::from_hours(1);
    let spec = KindSpec { max_age: hour * 3 / 2, ..quick(KIND) };
    let kind = Kind::spec(spec).handler(handler(move |_, _| async move { Ok(Verdict::Snooze(hour)) }));
    let scene = Scene::at_work(engine, App::new([kind])).await;
    let id = scene.enqueue(NewJob::new(KIND, json("{}"))).await;
    until_waits(&scene, &id).await;
    scene.stage().elapse(hour).await;
    scene.until(&id, State::Discarded).await;
    assert_eq!(act(&scene, Act::Retry, &id).await, Effect::Done);
    let view = until_waits(&scene, &id).await;
    assert!(matches!(view.waits, Some(Waits::Snoozed(_))), "{view:?}");
    scene.stop().await;
}

/// Whichever way it had ended.
pub async fn x5_a_retry_runs_again_with_all_attempts_and_keeps_the_history(engine: &dyn Engine) {
    let (mouth, mut heard) = Heard::new();
    let mends = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let mended = Arc::clone(&mends);
    let kind = Kind::spec(KindSpec { max_attempts: 2, ..quick(KIND) }).handler(handler(move |job, _| {
        let told = mouth.send(job.attempt);
        let mended = mended.load(std::sync::atomic::Ordering::SeqCst);
        async move {
            told?;
            if mended { Ok(Verdict::Complete) } else { Err::<_, BoxError>(format!("not at {}", job.attempt).into()) }
        }
    }));
    let scene = Scene::at_work(engine, App::new([kind])).await;
    let id = scene.enqueue(NewJob::new(KIND, json("{}"))).await;
    scene.until(&id, State::Discarded).await;
    assert_eq!(act(&scene, Act::Retry, &id).await, Effect::Done);
    let attempts = [heard.next().await, heard.next().await, heard.next().await, heard.next().await];
    assert_eq!(attempts, [1, 2, 1, 2]);
    let view = scene.until(&id, State::Discarded).await;
    let errors = |view: &postrider::JobView| view.attempts.iter().filter_map(|a| a.error.clone()).collect::<Vec<_>>();
    assert_eq!(errors(&view), ["not at 1", "not at 2", "not at 1", "not at 2"]);

    mends.store(true, std::sync::atomic::Ordering::SeqCst);
    assert_eq!(act(&scene, Act::Retry, &id).await, Effect::Done);
    scene.until(&id, State::Completed).await;
    assert_eq!(act(&scene, Act::Retry, &id).await, Effect::Done, "although it had completed");
    assert_eq!([heard.next().await, heard.next().await], [1, 1]);
    let view = scene.until(&id, State::Completed).await;
    assert_eq!((view.attempt, view.reason.as_deref()), (1, None));
    let outcomes: Vec<&str> = view.attempts.iter().map(|a| a.outcome.as_str()).collect();
    assert_eq!(outcomes, ["failed", "failed", "failed", "failed", "completed"]);

    scene.stop().await;
    let cancelled = scene.enqueue(NewJob::new(KIND, json("{}"))).await;
    assert_eq!(act(&scene, Act::Cancel, &cancelled).await, Effect::Done);
    assert_eq!(act(&scene, Act::Retry, &cancelled).await, Effect::Done);
    assert_eq!(scene.job(&cancelled).await.state, State::Pending);
    assert_eq!(act(&scene, Act::Retry, &cancelled).await, Effect::Already(State::Pending));
}

/// One that waits for its time runs now.
pub async fn x6_a_retry_of_a_running_job_is_refused(engine: &dyn Engine) {
    let (mouth, mut heard) = Heard::new();
    let gate = Arc::new(Semaphore::new(0));
    let scene = Scene::at_work(engine, App::new([staying(slow(), "one", &mouth, &gate)])).await;
    let id = scene.enqueue(NewJob::new(KIND, json(r#""fail""#))).await;
    let begun = heard.next().await;
    assert_eq!(act(&scene, Act::Retry, &id).await, Effect::Running);
    assert_eq!(scene.job(&id).await.lease, Some(begun.job.lease));
    gate.add_permits(1);
    scene.until(&id, State::Retryable).await;
    assert_eq!(act(&scene, Act::Retry, &id).await, Effect::Done);
    let again = heard.next().await;
    assert_eq!((again.begins, again.job.attempt), (true, 2), "an hour early, and its attempts go on");
}

/// Jobs that come later are not in the plan; a batch that is done again does no harm.
pub async fn x7_an_act_by_filter_is_counted_first_and_carried_out_in_batches(engine: &dyn Engine) {
    let (mouth, _heard) = Heard::new();
    let scene = Scene::set(engine, App::new([telling("t.a", mouth.clone()), telling("t.b", mouth)])).await;
    let jobs: Vec<NewJob> =
        (0..1_205).map(|n| NewJob::new(if n % 241 == 7 { "t.b" } else { "t.a" }, json(&n.to_string()))).collect();
    let made = scene.jobs().enqueue(None, &jobs).await.unwrap();
    let all = Filter { kind: Some("t.a".to_owned()), ..Filter::default() };
    if !scene.jobs().capabilities().filters {
        refuses(scene.jobs().plan(Act::Cancel, &all).await);
        return;
    }
    let jobs = scene.jobs();
    let plan = jobs.plan(Act::Cancel, &all).await.unwrap();
    assert_eq!((plan.count, plan.exact), (1_200, true));
    let late = scene.enqueue(NewJob::new("t.a", json("{}"))).await;
    let (mut done, mut after, mut steps) = (0, None, 0);
    loop {
        let step = jobs.step(&plan, after.as_ref()).await.unwrap();
        let again = jobs.step(&plan, after.as_ref()).await.unwrap();
        assert_eq!((again.done, &again.next), (0, &step.next), "the answer to the first was lost");
        done += step.done;
        steps += 1;
        after = step.next;
        if after.is_none() {
            break;
        }
    }
    assert!(done == 1_200 && steps > 1, "{done} in {steps}");
    assert_eq!(scene.job(&late).await.state, State::Pending);
    for (n, made) in made.iter().enumerate().step_by(241).chain(made.iter().enumerate().skip(7).step_by(241)) {
        let expected = if n % 241 == 7 { State::Pending } else { State::Cancelled };
        assert_eq!(scene.job(&made.id).await.state, expected, "{n}");
    }
    let ended = Filter { states: vec![State::Cancelled], ..Filter::default() };
    let plan = jobs.plan(Act::Retry, &ended).await.unwrap();
    assert_eq!((plan.count, plan.exact), (1_200, true));
    assert_eq!(jobs.step(&plan, None).await.unwrap().skipped, 0);
    let none = Filter { kind: Some("t.none".to_owned()), ..Filter::default() };
    let plan = jobs.plan(Act::Delete, &none).await.unwrap();
    assert_eq!((plan.count, jobs.step(&plan, None).await.unwrap().done), (0, 0));
}

/// One that waits or has ended is gone with its history, and what was one with it is free again.
pub async fn x8_a_running_job_is_not_deleted(engine: &dyn Engine) {
    let (mouth, mut heard) = Heard::new();
    let gate = Arc::new(Semaphore::new(0));
    let scene =
        Scene::at_work(engine, App::new([staying(slow(), "one", &mouth, &gate)]).concurrency("default", 1)).await;
    let running = scene.enqueue(NewJob::new(KIND, json(r#""fail""#))).await;
    heard.next().await;
    let caps = scene.jobs().capabilities();
    if !caps.delete {
        refuses(scene.jobs().act(None, Act::Delete, &[running]).await);
        return;
    }
    assert_eq!(act(&scene, Act::Delete, &running).await, Effect::Running);
    let until_done = || NewJob::new(KIND, json("7")).unique(Unique::UntilDone);
    let waiting = if caps.has_unique(Unique::UntilDone) { until_done() } else { NewJob::new(KIND, json("7")) };
    let waiting = scene.enqueue(waiting).await;
    assert_eq!(act(&scene, Act::Delete, &waiting).await, Effect::Done);
    assert_eq!(scene.inspector().job(&waiting).await.unwrap(), None);
    assert_eq!(act(&scene, Act::Delete, &waiting).await, Effect::Unknown);
    if caps.has_unique(Unique::UntilDone) {
        let again = scene.jobs().enqueue(None, &[until_done()]).await.unwrap();
        assert!(again.iter().all(|made| made.fresh && made.id != waiting));
        for made in again {
            assert_eq!(act(&scene, Act::Delete, &made.id).await, Effect::Done);
        }
    }
    gate.add_permits(1);
    scene.until(&running, State::Retryable).await;
    assert_eq!(act(&scene, Act::Delete, &running).await, Effect::Done);
    gate.add_permits(1);
    let completed = scene.enqueue(NewJob::new(KIND, json("{}"))).await;
    assert_eq!(until_some(&scene, State::Completed).await.id, completed);
    assert_eq!(act(&scene, Act::Delete, &completed).await, Effect::Done);
    for id in [&running, &completed] {
        assert_eq!(scene.inspector().job(id).await.unwrap(), None);
    }
}
