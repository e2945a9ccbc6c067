use std::time::Duration;

use postrider::{Code, JobId, KindSpec, NewJob, Retry, State, Verdict, Waits};

use super::super::{App, Engine, Heard, Scene, answering, doors, json, quick, refused, telling};

const S: fn(u64) -> Duration = Duration::from_secs;

/// How long after the end of its last attempt the next one comes.
async fn wait(scene: &Scene, id: &JobId, attempt: i16) -> Duration {
    let view = crate::until("it has failed", S(30), async || {
        let view = scene.job(id).await;
        (view.state == State::Retryable && view.attempts.len() == usize::try_from(attempt).unwrap()).then_some(view)
    })
    .await;
    let Some(Waits::Backoff(at)) = view.waits else { panic!("{:?}", view.waits) };
    at.since(view.attempts.last().unwrap().ended_at)
}

/// What it is, but for the time that the database takes for its statement.
fn is(wait: Duration, expected: Duration) -> bool {
    wait + Duration::from_millis(50) >= expected && wait < expected + S(1)
}

/// Doubling and in steps; dice of nothing and of all.
pub async fn a9_the_schedule_is_kept_exactly_and_the_dice_make_it_only_later(engine: &dyn Engine) {
    let spec = |name: &str, retry| KindSpec { retry, max_attempts: 5, ..quick(name) };
    let doubling = spec("t.doubling", Retry::Backoff { first: S(100), most: S(300) });
    let steps = spec("t.steps", Retry::Steps(vec![S(300), S(50)]));
    let waits = [[100, 300], [200, 50], [300, 50], [300, 50]];
    for (roll, share) in [(0.0, 1.0), (1.0, 1.1)] {
        let kinds = [&doubling, &steps].map(|spec| answering(spec.clone(), |_| Err("on purpose".into())));
        let scene = Scene::at_work(engine, App::new(kinds).dice(roll)).await;
        let jobs = [&doubling, &steps].map(|spec| NewJob::new(&*spec.name, json("{}")));
        let made = scene.jobs().enqueue(None, &jobs).await.unwrap();
        for (n, waits) in (1..).zip(waits) {
            for (made, seconds) in made.iter().zip(waits) {
                let expected = S(seconds).mul_f64(share);
                let wait = wait(&scene, &made.id, n).await;
                assert!(is(wait, expected), "{wait:?} after failure {n}, not {expected:?}");
            }
            scene.stage().elapse(S(400)).await;
        }
        for made in &made {
            scene.until(&made.id, State::Discarded).await;
        }
        scene.stop().await;
    }
}

/// Each kind has its own, a job may bring one, through every door, and a handler may say how long it is this time, sooner or later.
pub async fn a10_a_jobs_own_schedule_beats_its_kinds(engine: &dyn Engine) {
    let spec = |name: &str, wait| KindSpec { retry: Retry::Steps(vec![wait]), ..quick(name) };
    let fails = |spec| answering(spec, |_| Err("on purpose".into()));
    let says = |spec, wait| answering(spec, move |_| Ok(Verdict::RetryIn { reason: "on purpose".into(), wait }));
    let kinds = [
        fails(spec("t.a", S(60))),
        fails(spec("t.b", S(3_600))),
        says(spec("t.sooner", S(3_600)), S(40)),
        says(spec("t.later", S(60)), S(4_000)),
    ];
    let scene = Scene::at_work(engine, App::new(kinds)).await;
    for (kind, expected) in [("t.a", S(60)), ("t.b", S(3_600)), ("t.sooner", S(40)), ("t.later", S(4_000))] {
        let id = scene.enqueue(NewJob::new(kind, json("{}"))).await;
        let wait = wait(&scene, &id, 1).await;
        assert!(is(wait, expected), "{kind}: {wait:?}");
    }
    let own =
        [(Retry::Steps(vec![S(500), S(600)]), S(500)), (Retry::Backoff { first: S(7_000), most: S(8_000) }, S(7_000))];
    for (retry, expected) in own {
        let job = NewJob { retry: Some(retry), ..NewJob::new("t.a", json("{}")) };
        if !scene.jobs().capabilities().retry_per_job {
            let (code, field) = refused(scene.jobs().enqueue(None, &[job]).await);
            assert_eq!((code, field.as_str()), (Code::Capability, "retry"));
            continue;
        }
        for (name, door) in doors(&scene) {
            let id = JobId::new(door(job.clone()).await.unwrap().0);
            let wait = wait(&scene, &id, 1).await;
            assert!(is(wait, expected), "{name}: {wait:?}");
        }
    }
    scene.stop().await;
}

/// Texts that no database holds, and ten megabytes of them.
pub async fn a11_whatever_a_handler_says_is_stored_and_the_batch_that_it_was_in_completes(engine: &dyn Engine) {
    let bad = "bad \0 \u{fffe}\u{feff} byte";
    let once = |name: &str| KindSpec { max_attempts: 1, ..quick(name) };
    let kinds = [
        answering(once("t.error"), move |_| Err(bad.into())),
        answering(once("t.long"), move |_| Err("\0\u{fffe}ä".repeat(2_000_000).into())),
        answering(once("t.refuses"), move |_| Ok(Verdict::Discard(bad.into()))),
        answering(once("t.waits"), move |_| Ok(Verdict::Retry { reason: bad.into(), after: S(0) })),
        answering(once("t.panics"), move |_| panic!("{bad}")),
    ];
    let names: Vec<String> = kinds.iter().map(|kind| kind.specified().name.clone()).collect();
    let (mouth, _heard) = Heard::new();
    let all = kinds.into_iter().chain([telling("t.fine", mouth)]);
    let scene = Scene::set(engine, App::new(all)).await;
    let name = |n: usize| names.get(n / 4).filter(|_| n % 4 == 2).map_or("t.fine", String::as_str);
    let jobs: Vec<NewJob> = (0..20).map(|n| NewJob::new(name(n), json("{}"))).collect();
    let made = scene.jobs().enqueue(None, &jobs).await.unwrap();
    scene.start().await;
    for (made, job) in made.iter().zip(&jobs) {
        if job.kind == "t.fine" {
            scene.until(&made.id, State::Completed).await;
            continue;
        }
        let view = scene.until(&made.id, State::Discarded).await;
        for text in [view.reason.unwrap(), view.attempts[0].error.clone().unwrap()] {
            assert!(text.contains("\\0") && text.contains('\u{fffe}') && !text.contains('\0'), "{}", job.kind);
            assert!(text.len() < 20_000, "{} bytes", text.len());
            assert!(job.kind == "t.long" || text.ends_with("byte"), "{}: {text}", job.kind);
        }
    }
    scene.stop().await;
}
