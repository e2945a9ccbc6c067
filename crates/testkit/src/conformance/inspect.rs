//! I: what an operator is shown of jobs.

use std::time::Duration;

use postrider::port::Look;
use postrider::{Code, Count, Filter, JobId, Kind, KindSpec, NewJob, Retry, State, Waits};

use super::{App, Engine, Heard, Scene, answering, json, refused, telling};

/// This family's cases as tests.
#[macro_export]
macro_rules! conformance_inspect {
    (@list) => {
        $crate::conformance_inspect!(@with (@list))
    };
    (@with ($($to:tt)*)) => {
        $crate::conformance_family! {
            $($to)*,
            inspect,
            [
                i1_every_kind_is_counted_by_state_before_it_ever_ran,
                i3_counts_stop_at_a_bound_and_say_so,
                i2_a_list_is_newest_first_and_of_what_was_asked_for,
                i2_pages_neither_skip_nor_repeat_while_jobs_come_and_end,
                i2_args_are_searched_or_the_search_is_refused,
                i2_keys_and_tags_are_searched_or_refused,
                i4_a_job_that_failed_shows_its_attempt_and_when_the_next_one_comes,
                i4_why_a_job_has_not_run_is_said_in_words_or_refused,
                i5_an_id_that_nobody_was_given_is_unknown,
            ]
        }
    };
    ($engine:expr) => {
        $crate::conformance_inspect!(@with ($engine));
    };
}

fn job(kind: &str) -> NewJob {
    NewJob::new(kind, json("{}"))
}

async fn listed(scene: &Scene, filter: &Filter) -> Vec<JobId> {
    let page = scene.inspector().jobs(filter, None, 100).await.unwrap();
    page.jobs.into_iter().map(|job| job.id).collect()
}

/// How many jobs are where, by kind and queue; an engine that does not count refuses it.
async fn counted(scene: &Scene) -> Option<Vec<Count>> {
    let counts = scene.inspector().counts().await;
    if scene.jobs().capabilities().counts {
        return Some(counts.unwrap());
    }
    assert_eq!(refused(counts).0, Code::Capability);
    None
}

/// Of two that have ended, one that waits, and a kind of which there is nothing.
pub async fn i1_every_kind_is_counted_by_state_before_it_ever_ran(engine: &dyn Engine) {
    let (mouth, mut heard) = Heard::new();
    let never = Kind::spec(KindSpec { queue: "other".to_owned(), ..KindSpec::new("t.never") });
    let scene = Scene::at_work(engine, App::new([telling("t.a", mouth), never])).await;
    for _ in 0..2 {
        let id = scene.enqueue(job("t.a")).await;
        heard.next().await;
        scene.until(&id, State::Completed).await;
    }
    scene.stop().await;
    scene.enqueue(job("t.a")).await;
    let Some(counts) = counted(&scene).await else { return };
    let told: Vec<_> = counts.iter().map(|c| (c.kind.as_str(), c.queue.as_str(), c.state, c.jobs, c.more)).collect();
    let expected = [
        ("t.a", "default", State::Completed, 2, false),
        ("t.a", "default", State::Pending, 1, false),
        ("t.never", "other", State::Pending, 0, false),
    ];
    assert_eq!(told, expected);
}

/// Twelve thousand wait in one queue, one in another.
pub async fn i3_counts_stop_at_a_bound_and_say_so(engine: &dyn Engine) {
    let other = Kind::spec(KindSpec { queue: "other".to_owned(), ..KindSpec::new("t.b") });
    let scene = Scene::set(engine, App::new([Kind::new("t.a"), other])).await;
    let many: Vec<NewJob> = (0..1000).map(|_| job("t.a")).collect();
    for _ in 0..12 {
        scene.jobs().enqueue(None, &many).await.unwrap();
    }
    scene.enqueue(job("t.b")).await;
    let Some(counts) = counted(&scene).await else { return };
    let of = |kind: &str| counts.iter().find(|count| count.kind == kind && count.state == State::Pending).unwrap();
    assert!(of("t.a").more && (1000..12_000).contains(&of("t.a").jobs), "{counts:?}");
    assert_eq!((of("t.b").jobs, of("t.b").more), (1, false));
}

/// By kind, queue and state.
pub async fn i2_a_list_is_newest_first_and_of_what_was_asked_for(engine: &dyn Engine) {
    let (mouth, mut heard) = Heard::new();
    let other = Kind::spec(KindSpec { queue: "other".to_owned(), ..KindSpec::new("t.b") });
    let scene = Scene::set(engine, App::new([telling("t.a", mouth), other])).await;
    let first = scene.enqueue(job("t.a")).await;
    scene.start().await;
    heard.next().await;
    scene.until(&first, State::Completed).await;
    scene.stop().await;
    let second = scene.enqueue(job("t.b")).await;
    let third = scene.enqueue(job("t.a")).await;
    let named = |name: &str| Some(name.to_owned());
    let all = Filter::default();
    for (filter, expected) in [
        (all.clone(), vec![&third, &second, &first]),
        (Filter { kind: named("t.a"), ..all.clone() }, vec![&third, &first]),
        (Filter { queue: named("other"), ..all.clone() }, vec![&second]),
        (Filter { states: vec![State::Completed], ..all.clone() }, vec![&first]),
        (Filter { states: vec![State::Pending], kind: named("t.a"), ..all.clone() }, vec![&third]),
        (Filter { states: vec![State::Discarded], ..all.clone() }, vec![]),
    ] {
        assert_eq!(listed(&scene, &filter).await.iter().collect::<Vec<_>>(), expected, "{filter:?}");
    }
}

/// The place where a page ends is that of a job, and jobs keep their places.
pub async fn i2_pages_neither_skip_nor_repeat_while_jobs_come_and_end(engine: &dyn Engine) {
    let (mouth, mut heard) = Heard::new();
    let scene = Scene::set(engine, App::new([telling("t.a", mouth)])).await;
    let mut made = Vec::new();
    for _ in 0..10 {
        made.push(scene.enqueue(job("t.a")).await);
    }
    let all = Filter::default();
    let first = scene.inspector().jobs(&all, None, 4).await.unwrap();
    scene.start().await;
    for _ in 0..10 {
        heard.next().await;
    }
    scene.stop().await;
    scene.enqueue(job("t.a")).await;
    let (mut seen, mut next) = (first.jobs, first.next);
    while let Some(after) = next {
        let page = scene.inspector().jobs(&all, Some(&after), 4).await.unwrap();
        seen.extend(page.jobs);
        next = page.next;
    }
    made.reverse();
    assert_eq!(seen.into_iter().map(|job| job.id).collect::<Vec<_>>(), made);
}

/// What contains the JSON that was asked for.
pub async fn i2_args_are_searched_or_the_search_is_refused(engine: &dyn Engine) {
    let scene = Scene::set(engine, App::new([Kind::new("t.a")])).await;
    let seven = scene.enqueue(NewJob::new("t.a", json(r#"{"order": {"id": 7, "lines": [1, 2]}}"#))).await;
    scene.enqueue(NewJob::new("t.a", json(r#"{"order": {"id": 8}}"#))).await;
    let filter = Filter { args: Some(json(r#"{"order": {"id": 7, "lines": [2]}}"#)), ..Filter::default() };
    if scene.jobs().capabilities().explains {
        assert_eq!(listed(&scene, &filter).await, [seven]);
    } else {
        let refused = scene.inspector().jobs(&filter, None, 10).await.unwrap_err();
        assert_eq!(refused.code(), Some(Code::Capability));
    }
}

/// Of three, two with a tag, one of them with a second one and keys.
pub async fn i2_keys_and_tags_are_searched_or_refused(engine: &dyn Engine) {
    let scene = Scene::set(engine, App::new([Kind::new("t.a")])).await;
    let tags = |tags: &[&str]| tags.iter().map(|tag| (*tag).to_owned()).collect::<Vec<_>>();
    let able = scene.jobs().capabilities();
    let tagged = NewJob { tags: tags(&["eu", "import"]), ..job("t.a") };
    if !able.tags || !able.order_keys || !able.limits {
        let refused = scene.jobs().enqueue(None, &[tagged]).await.unwrap_err();
        assert_eq!(refused.code(), Some(Code::Capability));
        let filter = Filter { tags: tags(&["eu"]), ..Filter::default() };
        assert_eq!(scene.inspector().jobs(&filter, None, 10).await.unwrap_err().code(), Some(Code::Capability));
        return;
    }
    let keyed = NewJob { order_key: Some("k".to_owned()), limit_key: Some("l".to_owned()), ..tagged };
    let first = scene.enqueue(keyed).await;
    let second = scene.enqueue(NewJob { tags: tags(&["eu", "eu"]), ..job("t.a") }).await;
    scene.enqueue(job("t.a")).await;
    let named = |name: &str| Some(name.to_owned());
    let all = Filter::default();
    for (filter, expected) in [
        (Filter { tags: tags(&["eu"]), ..all.clone() }, vec![&second, &first]),
        (Filter { tags: tags(&["eu", "import"]), ..all.clone() }, vec![&first]),
        (Filter { tags: tags(&["import", "us"]), ..all.clone() }, vec![]),
        (Filter { tags: tags(&["Eu"]), ..all.clone() }, vec![]),
        (Filter { tags: tags(&["eu"]), kind: named("t.none"), ..all.clone() }, vec![]),
        (Filter { order_key: named("k"), ..all.clone() }, vec![&first]),
        (Filter { order_key: named("l"), ..all.clone() }, vec![]),
        (Filter { limit_key: named("l"), ..all.clone() }, vec![&first]),
        (Filter { limit_key: named("k"), ..all.clone() }, vec![]),
    ] {
        assert_eq!(listed(&scene, &filter).await.iter().collect::<Vec<_>>(), expected, "{filter:?}");
    }
    let view = scene.job(&first).await;
    assert_eq!((view.tags, view.order_key, view.limit_key), (tags(&["eu", "import"]), named("k"), named("l")));
}

/// With what it said.
pub async fn i4_a_job_that_failed_shows_its_attempt_and_when_the_next_one_comes(engine: &dyn Engine) {
    let spec = KindSpec { retry: Retry::Steps(vec![Duration::from_hours(1)]), ..KindSpec::new("t.a") };
    let scene = Scene::at_work(engine, App::new([answering(spec, |_| Err("no route".into()))])).await;
    let id = scene.enqueue(job("t.a")).await;
    let view = scene.until(&id, State::Retryable).await;
    assert_eq!((view.attempt, view.attempts.len()), (1, 1), "{view:?}");
    assert!(view.attempts[0].error.as_deref().is_some_and(|error| error.contains("no route")), "{view:?}");
    assert!(matches!(view.waits, Some(Waits::Backoff(at)) if at > view.attempts[0].ended_at), "{view:?}");
}

/// One that waits for its time, and one that has ended.
pub async fn i4_why_a_job_has_not_run_is_said_in_words_or_refused(engine: &dyn Engine) {
    let (mouth, mut heard) = Heard::new();
    let scene = Scene::at_work(engine, App::new([telling("t.a", mouth)])).await;
    let id = scene.enqueue(job("t.a")).await;
    heard.next().await;
    scene.until(&id, State::Completed).await;
    let told = scene.inspector().explain(&id).await;
    if scene.jobs().capabilities().explains {
        let told = told.unwrap().unwrap();
        assert!(told.starts_with("It completed at "), "{told}");
    } else {
        assert_eq!(told.unwrap_err().code(), Some(Code::Capability));
    }
}

/// Typed: not an error.
pub async fn i5_an_id_that_nobody_was_given_is_unknown(engine: &dyn Engine) {
    let scene = Scene::set(engine, App::new([Kind::new("t.a")])).await;
    for id in ["4611686018427387904", "0", "no-such-job", ""] {
        let id = JobId::new(id);
        assert_eq!(scene.inspector().job(&id).await.unwrap(), None);
        assert_eq!(scene.inspector().look(&id).await.unwrap(), Look::Unknown);
    }
}
