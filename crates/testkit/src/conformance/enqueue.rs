//! E: a job is enqueued in the caller's transaction, or refused before anything is written.

mod many;

use std::time::Duration;

use postrider::{Code, JobId, Kind, KindSpec, NewJob, State};

use super::{App, Counting, Engine, Heard, Scene, doors, json, minute_later, refused, telling};

pub use many::*;

/// This family's cases as tests.
#[macro_export]
macro_rules! conformance_enqueue {
    (@list) => {
        $crate::conformance_enqueue!(@with (@list))
    };
    (@with ($($to:tt)*)) => {
        $crate::conformance_family! {
            $($to)*,
            enqueue,
            [
                e1_a_job_exists_if_and_only_if_its_transaction_commits,
                e2_a_job_is_not_seen_and_not_run_before_its_commit,
                e3_binding_to_a_transaction_does_not_alter_the_original_handle,
                e4_a_handler_receives_the_bytes_that_were_enqueued,
                e5_an_undeclared_kind_is_refused_before_any_statement_with_a_near_one,
                e6_options_of_the_call_beat_the_kinds_which_beat_the_defaults,
                e7_a_time_in_the_past_means_now,
                e8_a_bulk_keeps_its_order_and_answers_for_each_item,
                e9_what_is_over_a_limit_is_refused_typed_and_the_transaction_goes_on,
                e10_ten_thousand_jobs_are_a_round_trip_for_each_thousand,
                e11_an_idempotency_key_answers_with_the_first_id,
                e12_every_door_makes_the_same_job,
            ]
        }
    };
    ($engine:expr) => {
        $crate::conformance_enqueue!(@with ($engine));
    };
}

/// Half of the transactions commit; exactly their jobs run.
pub async fn e1_a_job_exists_if_and_only_if_its_transaction_commits(engine: &dyn Engine) {
    let (mouth, mut heard) = Heard::new();
    let scene = Scene::at_work(engine, App::new([telling("t.tell", mouth)])).await;
    let mut ids = Vec::new();
    for n in 0..4 {
        let mut tx = scene.pool().begin().await.unwrap();
        let job = NewJob::new("t.tell", json(&n.to_string()));
        let made = scene.jobs().enqueue(Some(&mut *tx), &[job]).await.unwrap();
        let end = if n % 2 == 0 { tx.commit().await } else { tx.rollback().await };
        end.unwrap();
        ids.extend(made.into_iter().map(|made| made.id));
    }
    for id in ids.iter().step_by(2) {
        scene.until(id, State::Completed).await;
    }
    for id in ids.iter().skip(1).step_by(2) {
        assert_eq!(scene.inspector().job(id).await.unwrap(), None);
    }
    let mut told = vec![heard.next().await.args, heard.next().await.args];
    told.sort_by(|a, b| a.as_str().cmp(b.as_str()));
    assert_eq!(told, [json("0"), json("2")]);
    scene.stop().await;
    assert!(heard.rest().is_empty());
}

/// Another one that was enqueued later has run while it was not there.
pub async fn e2_a_job_is_not_seen_and_not_run_before_its_commit(engine: &dyn Engine) {
    let (mouth, mut heard) = Heard::new();
    let scene = Scene::at_work(engine, App::new([telling("t.tell", mouth)])).await;
    let mut tx = scene.pool().begin().await.unwrap();
    let first = NewJob::new("t.tell", json("1"));
    let first = scene.jobs().enqueue(Some(&mut *tx), &[first]).await.unwrap().remove(0);
    assert_eq!(scene.inspector().job(&first.id).await.unwrap(), None);
    let second = scene.enqueue(NewJob::new("t.tell", json("2"))).await;
    scene.until(&second, State::Completed).await;
    assert_eq!(scene.inspector().job(&first.id).await.unwrap(), None);
    assert_eq!(heard.next().await.args, json("2"));
    assert!(heard.rest().is_empty());
    tx.commit().await.unwrap();
    assert_eq!(heard.next().await.id, first.id);
    scene.until(&first.id, State::Completed).await;
    scene.stop().await;
}

/// The same handle enqueues inside of a transaction and outside of it; only what was inside goes with it.
pub async fn e3_binding_to_a_transaction_does_not_alter_the_original_handle(engine: &dyn Engine) {
    let (mouth, mut heard) = Heard::new();
    let scene = Scene::at_work(engine, App::new([telling("t.tell", mouth)])).await;
    let jobs = scene.jobs();
    let new = |n: u8| [NewJob::new("t.tell", json(&n.to_string()))];
    let mut tx = scene.pool().begin().await.unwrap();
    let bound = jobs.enqueue(Some(&mut *tx), &new(1)).await.unwrap().remove(0).id;
    let unbound = jobs.enqueue(None, &new(2)).await.unwrap().remove(0).id;
    scene.until(&unbound, State::Completed).await;
    tx.rollback().await.unwrap();
    let after = jobs.enqueue(None, &new(3)).await.unwrap().remove(0).id;
    scene.until(&after, State::Completed).await;
    assert_eq!(scene.inspector().job(&bound).await.unwrap(), None);
    scene.stop().await;
    let told: Vec<_> = heard.rest().into_iter().map(|job| job.args).collect();
    assert_eq!(told, [json("2"), json("3")]);
}

/// Numbers, the order of keys, keys that come twice, escapes and white space arrive as they were, through every door.
pub async fn e4_a_handler_receives_the_bytes_that_were_enqueued(engine: &dyn Engine) {
    let texts = [
        r#"{"b":1.0, "a":12345678901234567890123,"a":1E2}"#,
        "[ 1 , 2.50,-0.0, 1e-7 ]",
        r#""\u0041\/ \ud83d\ude00 ä""#,
        "null",
        "{}",
    ];
    let (mouth, mut heard) = Heard::new();
    let scene = Scene::at_work(engine, App::new([telling("t.tell", mouth)])).await;
    for text in texts {
        for (name, door) in doors(&scene) {
            let (id, _) = door(NewJob::new("t.tell", json(text))).await.unwrap();
            let id = JobId::new(id);
            assert_eq!(scene.until(&id, State::Completed).await.args.as_str(), text, "{name}");
        }
    }
    scene.stop().await;
    let told: Vec<String> = heard.rest().into_iter().map(|job| job.args.as_str().to_owned()).collect();
    for text in texts {
        assert_eq!(told.iter().filter(|told| *told == text).count(), doors(&scene).len(), "{text}");
    }
}

/// The name is wrong by a letter; the transaction saw nothing of it and goes on.
pub async fn e5_an_undeclared_kind_is_refused_before_any_statement_with_a_near_one(engine: &dyn Engine) {
    let kinds = ["mail.send", "image.resize", "invoice.render"].map(Kind::new);
    let scene = Scene::set(engine, App::new(kinds)).await;
    let mut tx = scene.pool().begin().await.unwrap();
    let mut counting = Counting::new(&mut tx);
    for jobs in [vec!["mail.sent"], vec!["mail.send", "mail.sent"]] {
        let jobs: Vec<NewJob> = jobs.into_iter().map(|kind| NewJob::new(kind, json("{}"))).collect();
        let error = scene.jobs().enqueue(Some(&mut counting), &jobs).await.unwrap_err();
        assert_eq!(error.code(), Some(Code::Undeclared));
        let text = error.to_string();
        assert!(text.contains("mail.send") && !text.contains("image.resize"), "{text}");
        assert_eq!(refused::<()>(Err(error)).1, "kind");
    }
    assert_eq!(counting.statements, 0);
    let made = scene.jobs().enqueue(Some(&mut *tx), &[NewJob::new("mail.send", json("{}"))]).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(scene.job(&made[0].id).await.kind, "mail.send");
}

/// Queue, priority and attempts: of the call, else of the kind, else what is written in the documentation.
pub async fn e6_options_of_the_call_beat_the_kinds_which_beat_the_defaults(engine: &dyn Engine) {
    let spec = KindSpec { queue: "slow".into(), priority: 3, max_attempts: 5, ..KindSpec::new("t.spec") };
    let scene = Scene::set(engine, App::new([Kind::new("t.plain"), Kind::spec(spec)])).await;
    let said = |kind: &str| NewJob {
        queue: Some("vip".into()),
        priority: Some(1),
        max_attempts: Some(7),
        ..NewJob::new(kind, json("{}"))
    };
    let half = NewJob { priority: Some(4), ..NewJob::new("t.spec", json("{}")) };
    for (name, door) in doors(&scene) {
        for (job, expected) in [
            (NewJob::new("t.plain", json("{}")), ("default", 2, 10)),
            (NewJob::new("t.spec", json("{}")), ("slow", 3, 5)),
            (half.clone(), ("slow", 4, 5)),
            (said("t.spec"), ("vip", 1, 7)),
            (said("t.plain"), ("vip", 1, 7)),
        ] {
            let (id, _) = door(job).await.unwrap();
            let view = scene.job(&JobId::new(id)).await;
            assert_eq!((view.queue.as_str(), view.priority, view.max_attempts), expected, "{name}");
        }
    }
}

/// It runs, and neither before nor after those that were enqueued around it.
pub async fn e7_a_time_in_the_past_means_now(engine: &dyn Engine) {
    let (mouth, mut heard) = Heard::new();
    let scene = Scene::set(engine, App::new([telling("t.tell", mouth)]).concurrency("default", 1)).await;
    let later = minute_later(scene.pool()).await;
    let past = postrider::Timestamp::from_micros(later.as_micros() - 3_660_000_000);
    let new = |n: u8, run_at| NewJob { run_at, ..NewJob::new("t.tell", json(&n.to_string())) };
    for job in [new(1, None), new(2, Some(past)), new(3, None)] {
        scene.enqueue(job).await;
    }
    scene.jobs().enqueue(None, &[new(4, None), new(5, Some(past)), new(6, None)]).await.unwrap();
    scene.start().await;
    for n in 1..=6 {
        let job = heard.next().await;
        assert_eq!(job.args, json(&n.to_string()));
        let age = job.claimed_at.since(job.due_at);
        assert!(age < Duration::from_mins(10), "due now, and not an hour ago: {age:?}");
    }
    scene.stop().await;
}
