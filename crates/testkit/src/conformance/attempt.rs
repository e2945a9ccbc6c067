//! A: what becomes of an attempt.

mod complete;
mod retry;

use std::sync::Arc;
use std::time::Duration;

use postrider::{BoxError, Context, Job, Kind, KindSpec, NewJob, Retry, State, Verdict, Waits, handler};
use tokio::sync::mpsc::UnboundedSender;

use super::{App, Engine, Heard, Scene, answering, json, quick, telling};

pub use complete::*;
pub use retry::*;

/// This family's cases as tests.
#[macro_export]
macro_rules! conformance_attempt {
    (@list) => {
        $crate::conformance_attempt!(@with (@list))
    };
    (@with ($($to:tt)*)) => {
        $crate::conformance_family! {
            $($to)*,
            attempt,
            [
                a1_an_error_is_recorded_and_tried_again,
                a2_an_exhausted_job_is_discarded_with_its_first_and_its_last_errors,
                a3_a_discard_is_final_at_once,
                a4_a_snooze_spends_no_attempt_and_waits_at_least_its_time,
                a5_snoozing_for_ever_is_bounded_by_the_age_of_the_job,
                a6_a_timeout_cancels_the_attempt_which_is_tried_again,
                a7_a_handler_that_ignores_its_cancellation_is_told_as_stuck_and_keeps_its_slot,
                a8_a_panic_is_a_failed_attempt_and_the_process_lives,
                a9_the_schedule_is_kept_exactly_and_the_dice_make_it_only_later,
                a10_a_jobs_own_schedule_beats_its_kinds,
                a11_whatever_a_handler_says_is_stored_and_the_batch_that_it_was_in_completes,
                a12_effects_and_the_end_of_the_attempt_commit_together_or_not_at_all,
                a12_a_completion_whose_lease_is_lost_writes_nothing,
                a13_follow_ups_and_events_commit_with_the_completion,
                a14_completing_a_job_that_was_deleted_meanwhile_changes_nothing,
                a15_an_output_is_kept_and_returned,
                a16_progress_is_readable_while_the_attempt_runs,
            ]
        }
    };
    ($engine:expr) => {
        $crate::conformance_attempt!(@with ($engine));
    };
}

/// With its number, its times, its class and its text with the causes; and the next one is the second.
pub async fn a1_an_error_is_recorded_and_tried_again(engine: &dyn Engine) {
    let (mouth, mut heard) = Heard::new();
    let slow = KindSpec { retry: Retry::Steps(vec![Duration::from_mins(10)]), ..quick("t.a") };
    let kind = answering(slow, move |job| {
        mouth.send(job.clone())?;
        if job.attempt == 1 {
            Err(Box::new(Wrapped(std::io::Error::other("disk full"))))
        } else {
            Ok(Verdict::Complete)
        }
    });
    let scene = Scene::at_work(engine, App::new([kind])).await;
    let id = scene.enqueue(NewJob::new("t.a", json("{}"))).await;
    let view = scene.until(&id, State::Retryable).await;
    assert_eq!((view.attempt, view.attempts.len(), view.finished_at), (1, 1, None));
    let attempt = &view.attempts[0];
    assert_eq!((attempt.attempt, attempt.outcome.as_str()), (1, "failed"));
    assert_eq!(attempt.error.as_deref(), Some("cannot write\ncaused by: disk full"));
    assert_eq!(heard.next().await.claimed_at.since(attempt.started_at), Duration::ZERO);
    assert!(attempt.ended_at >= attempt.started_at);
    assert!(matches!(view.waits, Some(Waits::Backoff(at)) if at > attempt.ended_at), "{:?}", view.waits);
    scene.stage().elapse(Duration::from_mins(11)).await;
    let view = scene.until(&id, State::Completed).await;
    assert_eq!((view.attempt, view.attempts.len(), view.ended_as.as_deref()), (2, 1, Some("completed")));
    assert_eq!(heard.next().await.attempt, 2);
    scene.stop().await;
}

#[derive(Debug)]
struct Wrapped(std::io::Error);

impl std::fmt::Display for Wrapped {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("cannot write")
    }
}

impl std::error::Error for Wrapped {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.0)
    }
}

/// Three attempts are all there; of thirty, some of the middle may be missing.
pub async fn a2_an_exhausted_job_is_discarded_with_its_first_and_its_last_errors(engine: &dyn Engine) {
    let spec = KindSpec { retry: Retry::Steps(vec![Duration::ZERO]), ..quick("t.a") };
    let kind = answering(spec, |job| Err(format!("attempt {}", job.attempt).into()));
    let scene = Scene::at_work(engine, App::new([kind])).await;
    for most in [1, 3, 30] {
        let job = NewJob { max_attempts: Some(most), ..NewJob::new("t.a", json("{}")) };
        let id = scene.enqueue(job).await;
        let view = scene.until(&id, State::Discarded).await;
        assert_eq!((view.attempt, view.ended_as.as_deref()), (most, Some("exhausted")));
        assert_eq!(view.reason.as_deref(), Some(format!("attempt {most}").as_str()));
        assert!(view.finished_at.is_some() && view.waits.is_none());
        let numbers: Vec<i16> = view.attempts.iter().map(|attempt| attempt.attempt).collect();
        if most < 10 {
            assert_eq!(numbers, (1..=most).collect::<Vec<_>>());
        } else {
            assert!(numbers.is_sorted() && numbers.len() < 30, "{numbers:?}");
            assert_eq!((numbers.first(), numbers.last()), (Some(&1), Some(&most)));
        }
        for attempt in &view.attempts {
            assert_eq!(attempt.error.as_deref(), Some(format!("attempt {}", attempt.attempt).as_str()));
        }
    }
    scene.stop().await;
}

/// At the first of three attempts, with its reason.
pub async fn a3_a_discard_is_final_at_once(engine: &dyn Engine) {
    let (mouth, mut heard) = Heard::new();
    let kind = answering(quick("t.a"), move |job| {
        mouth.send(job.clone())?;
        Ok(Verdict::Discard("nobody wants it".into()))
    });
    let scene = Scene::at_work(engine, App::new([kind])).await;
    let id = scene.enqueue(NewJob::new("t.a", json("{}"))).await;
    let view = scene.until(&id, State::Discarded).await;
    assert_eq!((view.attempt, view.ended_as.as_deref()), (1, Some("refused")));
    assert_eq!(view.reason.as_deref(), Some("nobody wants it"));
    let attempts: Vec<_> = view.attempts.iter().map(|a| (a.attempt, a.outcome.as_str())).collect();
    assert_eq!(attempts, [(1, "refused")]);
    scene.stage().elapse(Duration::from_hours(1)).await;
    scene.stop().await;
    assert_eq!(heard.rest().len(), 1);
}

/// Short ones are really waited for, a long one is shown.
pub async fn a4_a_snooze_spends_no_attempt_and_waits_at_least_its_time(engine: &dyn Engine) {
    let (mouth, mut heard) = Heard::new();
    let runs = Arc::new(std::sync::atomic::AtomicU32::new(0));
    let kind = answering(quick("t.a"), move |job| {
        mouth.send(job.clone())?;
        Ok(match runs.fetch_add(1, std::sync::atomic::Ordering::SeqCst) {
            0..4 => Verdict::Snooze(Duration::from_millis(120)),
            4 => Verdict::Snooze(Duration::from_hours(1)),
            _ => Verdict::Complete,
        })
    });
    let scene = Scene::at_work(engine, App::new([kind])).await;
    let id = scene.enqueue(NewJob { max_attempts: Some(1), ..NewJob::new("t.a", json("{}")) }).await;
    let mut last = heard.next().await;
    for _ in 0..4 {
        let next = heard.next().await;
        assert_eq!(next.attempt, 1);
        let waited = next.claimed_at.since(last.claimed_at);
        assert!(waited >= Duration::from_millis(120), "{waited:?}");
        last = next;
    }
    let hour = Duration::from_hours(1);
    let view = crate::until("it is put off", Duration::from_secs(30), async || {
        let view = scene.job(&id).await;
        matches!(view.waits, Some(Waits::Snoozed(at)) if at.since(last.claimed_at) >= hour).then_some(view)
    })
    .await;
    assert_eq!((view.state, view.attempt, view.attempts.len()), (State::Pending, 0, 0));
    scene.stage().elapse(Duration::from_mins(61)).await;
    let view = scene.until(&id, State::Completed).await;
    assert_eq!((view.attempt, view.attempts.len()), (1, 0));
    scene.stop().await;
}

/// Two hours and a half, an hour each time: the third one is its last.
pub async fn a5_snoozing_for_ever_is_bounded_by_the_age_of_the_job(engine: &dyn Engine) {
    let (mouth, mut heard) = Heard::new();
    let spec = KindSpec { max_age: Duration::from_mins(150), ..quick("t.a") };
    let kind = answering(spec, move |job| {
        mouth.send(job.clone())?;
        Ok(Verdict::Snooze(Duration::from_hours(1)))
    });
    let stage = engine.fresh().await;
    let process = match stage.process(App::new([kind])).await {
        Ok(process) => process,
        Err(error) => return assert_eq!(error.code(), Some(postrider::Code::Capability)),
    };
    assert!(process.capabilities().max_age, "what an engine cannot do it refuses");
    process.start().await.unwrap();
    let job = NewJob::new("t.a", json("{}"));
    let id = process.jobs().enqueue(None, &[job]).await.unwrap().remove(0).id;
    let view = async || process.inspector().job(&id).await.unwrap().unwrap();
    for _ in 0..2 {
        heard.next().await;
        crate::until("it is put off", Duration::from_secs(30), async || {
            matches!(view().await.waits, Some(Waits::Snoozed(_))).then_some(())
        })
        .await;
        stage.elapse(Duration::from_hours(1)).await;
    }
    assert_eq!(heard.next().await.attempt, 1);
    let end = crate::until("it is discarded", Duration::from_secs(30), async || {
        Some(view().await).filter(|view| view.state == State::Discarded)
    })
    .await;
    assert!(end.reason.as_deref().is_some_and(|reason| reason.contains("9000 s")), "{:?}", end.reason);
    process.stop(Duration::from_secs(10)).await.unwrap();
    assert!(heard.rest().is_empty());
}

struct Tells(UnboundedSender<&'static str>);

impl Drop for Tells {
    fn drop(&mut self) {
        let _ = self.0.send("dropped");
    }
}

/// The handler is dropped where it waits, and whoever has its token is told.
pub async fn a6_a_timeout_cancels_the_attempt_which_is_tried_again(engine: &dyn Engine) {
    let (mouth, mut heard) = Heard::new();
    let timeout = Duration::from_millis(150);
    let spec = KindSpec { timeout, retry: Retry::Steps(vec![Duration::from_mins(1)]), ..quick("t.a") };
    let kind = Kind::spec(spec).handler(handler(move |_: Arc<Job>, cx: Context| {
        let (tells, told, stop) = (Tells(mouth.clone()), mouth.clone(), cx.stop().clone());
        assert!(cx.left() <= timeout);
        async move {
            let _tells = tells;
            tokio::task::spawn(async move {
                stop.cancelled().await;
                let _ = told.send("cancelled");
            });
            std::future::pending().await
        }
    }));
    let scene = Scene::at_work(engine, App::new([kind])).await;
    let id = scene.enqueue(NewJob::new("t.a", json("{}"))).await;
    let view = scene.until(&id, State::Retryable).await;
    assert!(view.attempts[0].error.as_deref().is_some_and(|e| e.contains("timed out after 150 ms")), "{view:?}");
    let ran = view.attempts[0].ended_at.since(view.attempts[0].started_at);
    assert!(ran >= timeout, "{ran:?}");
    let mut words = [heard.next().await, heard.next().await];
    words.sort_unstable();
    assert_eq!(words, ["cancelled", "dropped"]);
    scene.stop().await;
}

/// It blocks its thread: nothing can end it. Its job is tried again by its own schedule, and its slot is taken until it returns.
pub async fn a7_a_handler_that_ignores_its_cancellation_is_told_as_stuck_and_keeps_its_slot(engine: &dyn Engine) {
    let (mouth, mut heard) = Heard::new();
    let (release, released) = std::sync::mpsc::channel::<()>();
    let released = std::sync::Mutex::new(released);
    let spec = KindSpec { timeout: Duration::from_millis(50), ..quick("t.stuck") };
    let mouth_of_stuck = mouth.clone();
    let stuck = answering(spec, move |job| {
        mouth_of_stuck.send(job.clone())?;
        let _ = released.lock().map_err(|_| BoxError::from("poisoned"))?.recv_timeout(Duration::from_mins(1));
        Ok(Verdict::Complete)
    });
    let other = KindSpec { queue: "other".into(), ..KindSpec::new("t.other") };
    let fine = Kind::spec(other).handler(Arc::clone(telling("t.other", mouth.clone()).handled_by().unwrap()));
    let app = App::new([stuck, telling("t.next", mouth), fine]);
    let scene = Scene::at_work(engine, app.concurrency("default", 1)).await;
    let own = scene.jobs().capabilities().retry_per_job.then(|| Retry::Steps(vec![Duration::from_hours(2)]));
    let job = NewJob { retry: own.clone(), max_attempts: Some(2), ..NewJob::new("t.stuck", json("{}")) };
    let id = scene.enqueue(job).await;
    assert_eq!(heard.next().await.id, id);
    let next = scene.enqueue(NewJob::new("t.next", json("{}"))).await;
    if !scene.jobs().capabilities().stuck_told {
        let elsewhere = scene.enqueue(NewJob::new("t.other", json("{}"))).await;
        assert_eq!(heard.next().await.id, elsewhere, "the only slot is taken");
        assert_eq!((scene.job(&id).await.state, scene.job(&next).await.state), (State::Running, State::Pending));
        release.send(()).unwrap();
        assert_eq!(heard.next().await.id, next, "it has returned");
        release.send(()).unwrap();
        scene.stop().await;
        return;
    }
    let view = scene.until(&id, State::Retryable).await;
    let error = view.attempts[0].error.as_deref();
    assert!(error.is_some_and(|error| error.contains("ignores its cancellation")), "{error:?}");
    if own.is_some() {
        let Some(Waits::Backoff(at)) = view.waits else { panic!("it waits for {:?}", view.waits) };
        let wait = at.since(view.attempts[0].ended_at);
        assert!(wait >= Duration::from_hours(2), "the job's own schedule is two hours: {wait:?}");
    }
    let elsewhere = scene.enqueue(NewJob::new("t.other", json("{}"))).await;
    assert_eq!(heard.next().await.id, elsewhere, "the only slot is taken");
    assert_eq!(scene.job(&next).await.state, State::Pending);
    release.send(()).unwrap();
    assert_eq!(heard.next().await.id, next, "it has returned");
    scene.until(&next, State::Completed).await;
    let view = scene.job(&id).await;
    let wanted = if scene.jobs().capabilities().retry_per_job { State::Retryable } else { view.state };
    assert_eq!((view.state, view.attempts.len()), (wanted, 1), "what it says after that does not count");
    release.send(()).unwrap();
    scene.stop().await;
}

/// In its future and before there is one, with and without a message.
pub async fn a8_a_panic_is_a_failed_attempt_and_the_process_lives(engine: &dyn Engine) {
    let once = |name: &str| KindSpec { max_attempts: 1, ..quick(name) };
    let later = Kind::spec(once("t.later")).handler(handler(|_: Arc<Job>, _: Context| async { panic!("later") }));
    let sooner = answering(once("t.sooner"), |_| panic!("sooner"));
    let silent = answering(once("t.silent"), |_| std::panic::panic_any(7_u8));
    let (mouth, _heard) = Heard::new();
    let scene = Scene::at_work(engine, App::new([later, sooner, silent, telling("t.fine", mouth)])).await;
    let kinds = [("t.later", "later"), ("t.sooner", "sooner"), ("t.silent", "no message"), ("t.fine", "")];
    let jobs = kinds.map(|(kind, _)| NewJob::new(kind, json("{}")));
    let made = scene.jobs().enqueue(None, &jobs).await.unwrap();
    for (made, (kind, says)) in made.iter().zip(kinds) {
        if says.is_empty() {
            scene.until(&made.id, State::Completed).await;
            continue;
        }
        let view = scene.until(&made.id, State::Discarded).await;
        assert_eq!((view.attempts.len(), view.attempts[0].outcome.as_str()), (1, "failed"), "{kind}");
        let error = view.attempts[0].error.as_deref().unwrap_or_default();
        assert!(error.contains("panicked") && error.contains(says), "{kind}: {error}");
    }
    let after = scene.enqueue(NewJob::new("t.fine", json("{}"))).await;
    scene.until(&after, State::Completed).await;
    scene.stop().await;
}
