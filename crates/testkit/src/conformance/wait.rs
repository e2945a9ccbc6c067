//! W: waiting for the end of a job.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use postrider::{Act, BoxError, Context, Kind, NewJob, State, Verdict, Waited, handler};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::crew::{quick, staying};
use super::{App, Engine, Heard, Scene, json};

/// This family's cases as tests.
#[macro_export]
macro_rules! conformance_wait {
    ($engine:expr) => {
        $crate::conformance_family!(
            $engine,
            wait,
            [
                w1_a_wait_returns_the_terminal_state_and_the_output,
                w2_a_wait_too_many_is_answered_at_once,
                w3_a_wait_ends_in_time_without_the_state,
                w4_what_has_ended_is_answered_at_once,
                w5_a_lost_wake_up_costs_at_most_the_poll,
            ]
        );
    };
}

const KIND: &str = "t.stay";
const LONG: Duration = Duration::from_secs(25);
/// Waits of a process at a time.
const WAITS_MOST: usize = 64;

fn job() -> NewJob {
    NewJob::new(KIND, json("{}"))
}

fn ended(waited: Waited) -> postrider::JobView {
    match waited {
        Waited::Ended(view) => *view,
        other => panic!("{other:?}"),
    }
}

/// Each of the three.
pub async fn w1_a_wait_returns_the_terminal_state_and_the_output(engine: &dyn Engine) {
    let kind = Kind::spec(quick("t.answer")).handler(handler(|job, cx: Context| async move {
        if job.args.as_str() == "0" {
            return Ok(Verdict::Discard("no".to_owned()));
        }
        cx.output(job.args.clone()).map_err(BoxError::from)?;
        Ok(Verdict::Complete)
    }));
    let scene = Scene::set(engine, App::new([kind])).await;
    let jobs = ["0", r#"{"b":1.0,"a":2}"#, "1"].map(|args| NewJob::new("t.answer", json(args)));
    let made = scene.jobs().enqueue(None, &jobs).await.unwrap();
    let [no, yes, never] = made.as_slice() else { panic!("{made:?}") };
    let door = scene.jobs();
    let (refused, answered, cancelled) = tokio::join!(door.wait(&no.id, LONG), door.wait(&yes.id, LONG), async {
        door.act(None, Act::Cancel, std::slice::from_ref(&never.id)).await.unwrap();
        scene.start().await;
        door.wait(&never.id, LONG).await
    });
    let (refused, answered, cancelled) = (ended(refused.unwrap()), ended(answered.unwrap()), ended(cancelled.unwrap()));
    assert_eq!((refused.state, refused.output), (State::Discarded, None));
    if scene.jobs().capabilities().output {
        assert_eq!((answered.state, answered.output), (State::Completed, Some(json(r#"{"b":1.0,"a":2}"#))));
    } else {
        assert_eq!(answered.output, None);
    }
    assert_eq!((cancelled.state, cancelled.output), (State::Cancelled, None));
}

/// Those that were let in are answered all the same.
pub async fn w2_a_wait_too_many_is_answered_at_once(engine: &dyn Engine) {
    let (mouth, mut heard) = Heard::new();
    let gate = Arc::new(Semaphore::new(0));
    let scene = Scene::at_work(engine, App::new([staying(quick(KIND), "one", &mouth, &gate)])).await;
    let id = scene.enqueue(job()).await;
    heard.next().await;
    let (door, started) = (scene.jobs(), Instant::now());
    let waits = (0..WAITS_MOST + 2).map(|_| async {
        let waited = door.wait(&id, LONG).await.unwrap();
        if waited == Waited::Full(id.clone()) {
            assert!(started.elapsed() < Duration::from_secs(10), "full after {:?}", started.elapsed());
            gate.add_permits(1);
        }
        waited
    });
    let waited = join_all(waits).await;
    let full = waited.iter().filter(|waited| matches!(waited, Waited::Full(receipt) if *receipt == id)).count();
    assert_eq!(full, 2);
    assert_eq!(waited.into_iter().filter(|waited| matches!(waited, Waited::Ended(_))).count(), WAITS_MOST);
    ended(door.wait(&id, LONG).await.unwrap());
}

/// Also while the connections of the application are used up.
pub async fn w3_a_wait_ends_in_time_without_the_state(engine: &dyn Engine) {
    let (mouth, mut heard) = Heard::new();
    let gate = Arc::new(Semaphore::new(0));
    let scene = Scene::at_work(engine, App::new([staying(quick(KIND), "one", &mouth, &gate)])).await;
    let id = scene.enqueue(job()).await;
    heard.next().await;
    let limit = Duration::from_millis(200);
    let started = Instant::now();
    assert_eq!(scene.jobs().wait(&id, limit).await.unwrap(), Waited::TimedOut(id.clone()));
    assert!(started.elapsed() >= limit);
    let most = scene.pool().options().get_max_connections();
    let mut held = Vec::new();
    for _ in 0..most {
        held.push(scene.pool().acquire().await.unwrap());
    }
    let started = Instant::now();
    assert_eq!(scene.jobs().wait(&id, limit).await.unwrap(), Waited::TimedOut(id.clone()));
    assert!(started.elapsed() < Duration::from_secs(5), "it took {:?}", started.elapsed());
    drop(held);
    gate.add_permits(1);
    assert_eq!(ended(scene.jobs().wait(&id, LONG).await.unwrap()).state, State::Completed);
}

/// Whatever the limit is.
pub async fn w4_what_has_ended_is_answered_at_once(engine: &dyn Engine) {
    let (mouth, _heard) = Heard::new();
    let gate = Arc::new(Semaphore::new(1));
    let scene = Scene::at_work(engine, App::new([staying(quick(KIND), "one", &mouth, &gate)])).await;
    let id = scene.enqueue(job()).await;
    scene.until(&id, State::Completed).await;
    for limit in [Duration::ZERO, Duration::from_millis(1), LONG] {
        let started = Instant::now();
        assert_eq!(ended(scene.jobs().wait(&id, limit).await.unwrap()).state, State::Completed, "{limit:?}");
        assert!(started.elapsed() < Duration::from_secs(5), "{limit:?}");
    }
}

/// The one who waits hears nothing, and so does the one who works.
pub async fn w5_a_lost_wake_up_costs_at_most_the_poll(engine: &dyn Engine) {
    let (mouth, mut heard) = Heard::new();
    let gate = Arc::new(Semaphore::new(0));
    let app = || App::new([staying(quick(KIND), "deaf", &mouth, &gate)]);
    let scene = Scene::set(engine, app()).await;
    let perils = scene.stage().perils();
    let worker = perils.deaf(app()).await.unwrap().start().await;
    let other = perils.deaf(app()).await.unwrap();
    let id = scene.enqueue(job()).await;
    heard.next().await;
    let door = other.process.jobs();
    let (answer, freed) = tokio::join!(door.wait(&id, LONG), async {
        gate.add_permits(1);
        scene.until(&id, State::Completed).await;
        Instant::now()
    });
    assert_eq!(ended(answer.unwrap()).state, State::Completed);
    assert!(freed.elapsed() < Duration::from_secs(3), "it took {:?}", freed.elapsed());
    drop(worker);
}
