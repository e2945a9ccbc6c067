//! Z: a process starts once, works, and stops in order.

use std::sync::Arc;
use std::time::Duration;

use postrider::{BoxError, Error, Kind, KindSpec, NewJob, State, Stopped, Verdict, handler};
use tokio::sync::Semaphore;

use super::crew::{hire, quick, staying};
use super::{App, Engine, Heard, Scene, json};
use crate::until;

/// This family's cases as tests.
#[macro_export]
macro_rules! conformance_lifecycle {
    ($engine:expr) => {
        $crate::conformance_family!(
            $engine,
            lifecycle,
            [
                z1_a_stop_claims_nothing_more_and_waits_up_to_the_grace,
                z1_what_a_stop_cuts_is_given_back_with_its_attempt,
                z2_a_stop_within_the_grace_leaves_nothing_leased,
                z3_a_second_start_and_a_second_stop_are_answered,
                z4_a_process_that_is_dropped_leaks_no_task,
                z6_every_fault_of_a_declaration_is_told_at_once,
                z8_no_transaction_is_open_while_a_handler_runs,
            ]
        );
    };
}

const KIND: &str = "t.stay";

fn job() -> NewJob {
    NewJob::new(KIND, json("{}"))
}

/// What runs is not told to stop while the grace lasts.
pub async fn z1_a_stop_claims_nothing_more_and_waits_up_to_the_grace(engine: &dyn Engine) {
    let (mouth, mut heard) = Heard::new();
    let gate = Arc::new(Semaphore::new(0));
    let app = App::new([staying(quick(KIND), "one", &mouth, &gate)]).concurrency("default", 1);
    let scene = Scene::at_work(engine, app).await;
    let first = scene.enqueue(job()).await;
    let second = scene.enqueue(job()).await;
    assert!(heard.next().await.begins);
    let stop = scene.process().stop(Duration::from_secs(20));
    let (stopped, ()) = tokio::join!(stop, async {
        // a slot becomes free after the stop began, and nobody takes it
        tokio::task::yield_now().await;
        gate.add_permits(2);
    });
    assert_eq!(stopped.unwrap(), Stopped::Drained);
    assert_eq!(scene.job(&first).await.state, State::Completed);
    let view = scene.job(&second).await;
    assert_eq!((view.state, view.attempt), (State::Pending, 0));
    assert!(heard.rest().is_empty());
}

/// It runs again elsewhere, for the first time.
pub async fn z1_what_a_stop_cuts_is_given_back_with_its_attempt(engine: &dyn Engine) {
    let (mouth, mut heard) = Heard::new();
    let (closed, open) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(9)));
    let scene = Scene::at_work(engine, App::new([staying(quick(KIND), "one", &mouth, &closed)])).await;
    let made = scene.jobs().enqueue(None, &[job(), job(), job()]).await.unwrap();
    for _ in &made {
        assert!(heard.next().await.begins);
    }
    assert_eq!(scene.process().stop(Duration::from_millis(10)).await.unwrap(), Stopped::Abandoned(3));
    assert_eq!(heard.rest().iter().filter(|said| !said.begins).count(), 3, "each was told");
    for made in &made {
        let view = scene.job(&made.id).await;
        assert_eq!((view.state, view.attempt, view.attempts), (State::Pending, 0, vec![]));
    }
    let next = hire(&scene, App::new([staying(quick(KIND), "next", &mouth, &open)])).await;
    for made in &made {
        assert_eq!(scene.until(&made.id, State::Completed).await.attempt, 1);
    }
    next.stop(Duration::from_secs(10)).await.unwrap();
}

/// In the middle of much work.
pub async fn z2_a_stop_within_the_grace_leaves_nothing_leased(engine: &dyn Engine) {
    let (mouth, mut heard) = Heard::new();
    let kind = Kind::spec(quick("t.work")).handler(handler(move |_, _| {
        let told = mouth.send(());
        async move {
            told?;
            tokio::task::yield_now().await;
            Ok(Verdict::Complete)
        }
    }));
    let scene = Scene::at_work(engine, App::new([kind]).concurrency("default", 4)).await;
    let jobs: Vec<NewJob> = (0..300).map(|n: i32| NewJob::new("t.work", json(&n.to_string()))).collect();
    let made = scene.jobs().enqueue(None, &jobs).await.unwrap();
    for _ in 0..40 {
        heard.next().await;
    }
    assert_eq!(scene.stop().await, Stopped::Drained);
    let began = 40 + heard.rest().len();
    let mut completed = 0;
    for made in &made {
        let view = scene.job(&made.id).await;
        completed += usize::from(view.state == State::Completed);
        let attempt = i16::from(view.state == State::Completed);
        assert!(matches!(view.state, State::Completed | State::Pending), "{view:?}");
        assert_eq!((view.attempt, view.lease, view.attempts), (attempt, None, vec![]));
    }
    assert_eq!(completed, began);
}

/// Typed, and without harm.
pub async fn z3_a_second_start_and_a_second_stop_are_answered(engine: &dyn Engine) {
    let (mouth, mut heard) = Heard::new();
    let gate = Arc::new(Semaphore::new(9));
    let app = || App::new([staying(quick(KIND), "one", &mouth, &gate)]);
    let scene = Scene::set(engine, app()).await;
    let early = scene.process().stop(Duration::ZERO).await;
    assert!(matches!(early, Err(Error::NotRunning)), "{early:?}");
    scene.start().await;
    let twice = scene.process().start().await;
    assert!(matches!(twice, Err(Error::AlreadyStarted)), "{twice:?}");
    let id = scene.enqueue(job()).await;
    scene.until(&id, State::Completed).await;
    assert_eq!(scene.stop().await, Stopped::Drained);
    let late = scene.process().stop(Duration::ZERO).await;
    assert!(matches!(late, Err(Error::NotRunning)), "{late:?}");
    let again = scene.process().start().await;
    assert!(matches!(again, Err(Error::AlreadyStarted)), "{again:?}");
    assert_eq!(heard.rest().len(), 1);
}

/// Nothing of it holds its handlers any more, and its jobs run elsewhere.
pub async fn z4_a_process_that_is_dropped_leaks_no_task(engine: &dyn Engine) {
    let (mouth, mut heard) = Heard::new();
    let held = Arc::new(());
    let (watched, said) = (Arc::downgrade(&held), mouth.clone());
    let hanging = Kind::spec(quick(KIND)).handler(handler(move |_, _| {
        let (held, told) = (Arc::clone(&held), said.send("dropped"));
        async move {
            told?;
            std::future::pending::<()>().await;
            drop(held);
            Err::<Verdict, BoxError>("it does not end".into())
        }
    }));
    let works = Kind::spec(quick(KIND)).handler(handler(move |_, _| {
        let told = mouth.send("next");
        async move {
            told?;
            Ok(Verdict::Complete)
        }
    }));
    let scene = Scene::set(engine, App::new([works])).await;
    let dropped = hire(&scene, App::new([hanging])).await;
    let id = scene.enqueue(job()).await;
    assert_eq!(heard.next().await, "dropped");
    drop(dropped);
    until("its handlers are gone", Duration::from_secs(20), async || (watched.strong_count() == 0).then_some(())).await;
    scene.start().await;
    assert_eq!(heard.next().await, "next");
    assert_eq!(scene.until(&id, State::Completed).await.attempt, 1);
}

/// Before anything is declared.
pub async fn z6_every_fault_of_a_declaration_is_told_at_once(engine: &dyn Engine) {
    let stage = engine.fresh().await;
    let kind = |spec| Kind::spec(spec).handler(handler(|_, _| async { Ok(Verdict::Complete) }));
    let mut app = App::new([
        kind(KindSpec::new("")),
        kind(KindSpec { max_attempts: 0, ..KindSpec::new("t.zero") }),
        kind(KindSpec { priority: 9, ..KindSpec::new("t.nine") }),
        kind(KindSpec { timeout: Duration::ZERO, ..KindSpec::new("t.brief") }),
        kind(KindSpec { queue: "Not A Queue".to_owned(), ..KindSpec::new("t.queue") }),
        kind(KindSpec::new("postrider.mine")),
        kind(KindSpec::new("t.twice")),
        kind(KindSpec::new("t.twice")),
    ]);
    app.concurrency = vec![("nowhere".to_owned(), 3), ("default".to_owned(), 0)];
    app.settings.dead_after = app.settings.beat;
    let Err(Error::Declarations(refused)) = stage.process(app).await else { panic!("it was not refused") };
    let fields: Vec<&str> = refused.iter().map(|refused| refused.field.as_str()).collect();
    for (field, n) in [("max_attempts", 1), ("priority", 1), ("timeout", 1), ("queue", 1), ("kind", 3)] {
        assert_eq!(fields.iter().filter(|told| **told == field).count(), n, "{field}: {refused:?}");
    }
    for (field, n) in [("concurrency", 2), ("dead_after", 1)] {
        assert_eq!(fields.iter().filter(|told| **told == field).count(), n, "{field}: {refused:?}");
    }
}

/// Nor waits one for the end of it.
pub async fn z8_no_transaction_is_open_while_a_handler_runs(engine: &dyn Engine) {
    let (mouth, mut heard) = Heard::new();
    let gate = Arc::new(Semaphore::new(0));
    let scene = Scene::at_work(engine, App::new([staying(quick(KIND), "one", &mouth, &gate)])).await;
    let id = scene.enqueue(job()).await;
    heard.next().await;
    // the statement that claimed it may still say so for a moment
    until("nothing is open", Duration::from_secs(5), async || {
        let open: i64 = sqlx::query_scalar(
            "select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()
               and xact_start < clock_timestamp() - interval '1 second' and backend_type = 'client backend'",
        )
        .fetch_one(scene.pool())
        .await
        .unwrap();
        let idle: i64 = sqlx::query_scalar(
            "select count(*) from pg_stat_activity where datname = current_database() and state like 'idle in transaction%'",
        )
        .fetch_one(scene.pool())
        .await
        .unwrap();
        (open == 0 && idle == 0).then_some(())
    })
    .await;
    gate.add_permits(1);
    scene.until(&id, State::Completed).await;
}
