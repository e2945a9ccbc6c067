//! U: jobs that are alike are one job, for as long as their mode says.

mod change;

use std::time::Duration;

use postrider::{Code, Enqueued, Kind, NewJob, OnDuplicate, State, Unique, Waits};

use super::{App, Engine, Heard, Scene, json, minute_later, refused, telling};
use crate::until;

pub use change::*;

/// This family's cases as tests.
#[macro_export]
macro_rules! conformance_unique {
    (@list) => {
        $crate::conformance_unique!(@with (@list))
    };
    (@with ($($to:tt)*)) => {
        $crate::conformance_family! {
            $($to)*,
            unique,
            [
                u1_the_same_args_give_the_same_job_flagged_as_a_duplicate,
                u2_the_order_of_json_keys_does_not_matter,
                u3_what_differs_is_another_job,
                u4_once_for_ever_still_answers_the_first_when_it_has_ended_and_is_forgotten,
                u4_a_window_ends_and_not_before_although_its_job_is_forgotten,
                u5_of_concurrent_inserts_exactly_one_wins_and_none_fails,
                u6_when_the_other_transaction_rolls_back_the_one_that_waited_gets_its_job,
                u7_uniqueness_never_blocks_a_change_of_a_job_that_is_there,
                u8_a_conflict_in_a_batch_is_about_that_item_alone,
                u9_one_runs_and_one_waits_behind_it,
                u9_the_last_of_one_running_one_waiting_is_followed_by_a_run_that_starts_after_it,
                u9_a_run_that_a_producer_counts_on_does_not_start_before_its_commit,
                u10_a_duplicate_replaces_what_waits_and_says_so,
            ]
        }
    };
    ($engine:expr) => {
        $crate::conformance_unique!(@with ($engine));
    };
}

/// Every mode, with a window where one is needed.
const MODES: [Unique; 5] = [
    Unique::WhileWaiting,
    Unique::UntilDone,
    Unique::Within(Duration::from_hours(1)),
    Unique::ForEver,
    Unique::OneRunningOneWaiting,
];

/// The modes that the engine has; the others it refuses, typed.
async fn modes(scene: &Scene) -> Vec<Unique> {
    let mut had = Vec::new();
    for mode in MODES {
        if scene.jobs().capabilities().has_unique(mode) {
            had.push(mode);
        } else {
            let job = NewJob::new("t.a", json("{}")).unique(mode);
            let (code, _) = refused(scene.jobs().enqueue(None, &[job]).await);
            assert_eq!(code, Code::Capability, "{mode:?}");
        }
    }
    had
}

async fn add(scene: &Scene, job: NewJob) -> Enqueued {
    scene.jobs().enqueue(None, &[job]).await.unwrap().remove(0)
}

/// In each mode, said with the job and said with its kind.
pub async fn u1_the_same_args_give_the_same_job_flagged_as_a_duplicate(engine: &dyn Engine) {
    let scene = Scene::set(engine, App::new([Kind::new("t.a")])).await;
    for mode in modes(&scene).await {
        let job = NewJob::new("t.a", json(r#"{"n": 1}"#)).unique(mode);
        let first = add(&scene, job.clone()).await;
        let second = add(&scene, job.clone()).await;
        let mut tx = scene.pool().begin().await.unwrap();
        let third = scene.jobs().enqueue(Some(&mut *tx), &[job]).await.unwrap().remove(0);
        tx.commit().await.unwrap();
        assert!(first.fresh, "{mode:?}");
        for duplicate in [second, third] {
            let same = (&duplicate.id, duplicate.fresh, duplicate.replaced);
            assert_eq!(same, (&first.id, false, false), "{mode:?}");
        }
        let kind = postrider::KindSpec { unique: Some(mode), ..postrider::KindSpec::new(format!("t.{}", mode.name())) };
        let process = scene.stage().process(App::new([Kind::spec(kind)])).await.unwrap();
        let job = NewJob::new(format!("t.{}", mode.name()), json("{}"));
        let first = process.jobs().enqueue(None, std::slice::from_ref(&job)).await.unwrap().remove(0);
        let second = process.jobs().enqueue(None, &[job]).await.unwrap().remove(0);
        assert_eq!((first.fresh, second.fresh, &second.id), (true, false, &first.id), "{mode:?} of the kind");
    }
}

/// Neither do white space, and how a number and a letter are spelt.
pub async fn u2_the_order_of_json_keys_does_not_matter(engine: &dyn Engine) {
    let scene = Scene::set(engine, App::new([Kind::new("t.a")])).await;
    for mode in modes(&scene).await {
        let add = async |text| add(&scene, NewJob::new("t.a", json(text)).unique(mode)).await;
        let first = add(r#"{"a": 1, "b": {"c": [1, 2], "d": "A"}}"#).await;
        let second = add(r#"{"b":{"d":"\u0041","c":[1,2]},"a":1}"#).await;
        assert_eq!((second.id, second.fresh), (first.id, false), "{mode:?}");
    }
}

/// Args, kind, owner, mode and key tell jobs apart; a key stands in for the args.
pub async fn u3_what_differs_is_another_job(engine: &dyn Engine) {
    let scene = Scene::set(engine, App::new(["t.a", "t.b"].map(Kind::new))).await;
    let owners = scene.jobs().capabilities().owners;
    let modes = modes(&scene).await;
    let mut ids = std::collections::BTreeSet::new();
    let mut expected = 0;
    for &mode in &modes {
        let job = NewJob::new("t.a", json(r#"{"a": [1, 2]}"#)).unique(mode);
        let keyed = |key: &str, args: &str| NewJob { unique_key: Some(key.into()), args: json(args), ..job.clone() };
        let mut others = vec![
            job.clone(),
            NewJob { args: json(r#"{"a": [2, 1]}"#), ..job.clone() },
            NewJob { args: json(r#"{"a": ["1", 2]}"#), ..job.clone() },
            NewJob { args: json("{}"), ..job.clone() },
            NewJob { kind: "t.b".into(), ..job.clone() },
            keyed("k", "1"),
            keyed("K", "1"),
            keyed(r#"{"a": [1, 2]}"#, "1"),
        ];
        if owners {
            others.push(NewJob { owner: "acme".into(), ..job.clone() });
        }
        for other in others {
            let made = add(&scene, other).await;
            assert!(made.fresh, "{mode:?}");
            ids.insert(made.id.to_string());
            expected += 1;
        }
        let again = add(&scene, keyed("k", "2")).await;
        assert!(!again.fresh && ids.contains(again.id.as_str()), "{mode:?}: the key stands in for the args");
    }
    assert_eq!(ids.len(), expected);
}

/// For ever, with the first one waiting, completed, and gone.
pub async fn u4_once_for_ever_still_answers_the_first_when_it_has_ended_and_is_forgotten(engine: &dyn Engine) {
    let (mouth, mut heard) = Heard::new();
    let scene = Scene::set(engine, App::new([telling("t.a", mouth)])).await;
    if !modes(&scene).await.contains(&Unique::ForEver) {
        return;
    }
    let job = NewJob::new("t.a", json(r#"{"n": 1}"#)).unique(Unique::ForEver);
    let first = add(&scene, job.clone()).await;
    scene.start().await;
    scene.until(&first.id, State::Completed).await;
    let done = add(&scene, job.clone()).await;
    scene.stage().elapse(Duration::from_hours(24 * 400)).await;
    scene.stage().forget(&first.id).await;
    assert_eq!(scene.inspector().job(&first.id).await.unwrap(), None);
    let gone = add(&scene, NewJob { on_duplicate: OnDuplicate::Keep, ..job }).await;
    for duplicate in [done, gone] {
        assert_eq!((duplicate.id, duplicate.fresh), (first.id.clone(), false));
    }
    scene.stop().await;
    assert_eq!(heard.rest().len(), 1);
}

/// A window of an hour, whose job ended and is gone long before.
pub async fn u4_a_window_ends_and_not_before_although_its_job_is_forgotten(engine: &dyn Engine) {
    let (mouth, _heard) = Heard::new();
    let scene = Scene::at_work(engine, App::new([telling("t.a", mouth)])).await;
    let window = Unique::Within(Duration::from_hours(1));
    if !modes(&scene).await.contains(&window) {
        return;
    }
    let job = NewJob::new("t.a", json("{}")).unique(window);
    let first = add(&scene, job.clone()).await;
    scene.until(&first.id, State::Completed).await;
    scene.stage().forget(&first.id).await;
    scene.stage().elapse(Duration::from_mins(58)).await;
    let inside = add(&scene, job.clone()).await;
    assert_eq!((inside.id, inside.fresh), (first.id.clone(), false));
    scene.stage().elapse(Duration::from_mins(3)).await;
    let after = add(&scene, job.clone()).await;
    assert!(after.fresh && after.id != first.id, "the window began with the first one, not with the duplicate");
    let again = add(&scene, job).await;
    assert_eq!((again.id, again.fresh), (after.id, false), "a window of its own");
    scene.stop().await;
}

/// Ten at a time, in each mode, alone and in batches that cross.
pub async fn u5_of_concurrent_inserts_exactly_one_wins_and_none_fails(engine: &dyn Engine) {
    let scene = Scene::set(engine, App::new([Kind::new("t.a")])).await;
    for mode in modes(&scene).await {
        let new = |n: i32| NewJob::new("t.a", json(&n.to_string())).unique(mode);
        let jobs = scene.jobs();
        let one = (0..10).map(async |_| jobs.enqueue(None, &[new(0)]).await.unwrap().remove(0));
        let made = futures_util::future::join_all(one).await;
        assert_eq!(made.iter().filter(|made| made.fresh).count(), 1, "{mode:?}");
        assert!(made.iter().all(|other| other.id == made[0].id), "{mode:?}");
        let many = (0..10).map(async |turn| {
            let mut batch: Vec<NewJob> = (1..=8).map(new).collect();
            batch.rotate_left(turn % 8);
            if turn % 2 == 0 {
                batch.reverse();
            }
            let made = jobs.enqueue(None, &batch).await.unwrap();
            let made = made.into_iter().zip(batch).map(|(made, job)| (job.args.as_str().to_owned(), made));
            made.collect::<Vec<_>>()
        });
        let made: Vec<(String, Enqueued)> = futures_util::future::join_all(many).await.concat();
        for n in 1..=8 {
            let alike: Vec<&Enqueued> = made.iter().filter(|(args, _)| *args == n.to_string()).map(|m| &m.1).collect();
            assert_eq!(alike.iter().filter(|made| made.fresh).count(), 1, "{mode:?}");
            assert!(alike.len() == 10 && alike.iter().all(|other| other.id == alike[0].id), "{mode:?}");
        }
    }
}

/// And when it commits, its duplicate.
pub async fn u6_when_the_other_transaction_rolls_back_the_one_that_waited_gets_its_job(engine: &dyn Engine) {
    let scene = Scene::set(engine, App::new([Kind::new("t.a")])).await;
    for mode in modes(&scene).await {
        for commits in [false, true] {
            let job = NewJob::new("t.a", json(&commits.to_string())).unique(mode);
            let mut tx = scene.pool().begin().await.unwrap();
            let first = scene.jobs().enqueue(Some(&mut *tx), std::slice::from_ref(&job)).await.unwrap().remove(0);
            let second = add(&scene, job);
            let end = async {
                blocked(&scene).await;
                if commits { tx.commit().await } else { tx.rollback().await }.unwrap();
            };
            let (second, ()) = futures_util::join!(second, end);
            assert_eq!((first.fresh, second.fresh), (true, !commits), "{mode:?}");
            assert_eq!(second.id == first.id, commits, "{mode:?}");
            let found = scene.inspector().job(&first.id).await.unwrap();
            assert_eq!(found.is_some(), commits, "{mode:?}");
            assert_eq!(scene.job(&second.id).await.state, State::Pending);
        }
    }
}

/// Until somebody waits for a lock in the database of the application.
async fn blocked(scene: &Scene) {
    let sql = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'";
    until("somebody waits", Duration::from_secs(30), async || {
        let n: i64 = sqlx::query_scalar(sql).fetch_one(scene.pool()).await.unwrap();
        (n > 0).then_some(())
    })
    .await;
}

/// Duplicates of what is there, duplicates of each other, and jobs that are like none.
pub async fn u8_a_conflict_in_a_batch_is_about_that_item_alone(engine: &dyn Engine) {
    let scene = Scene::set(engine, App::new(["t.a", "t.b"].map(Kind::new))).await;
    for mode in modes(&scene).await {
        let new = |n: i32| NewJob::new("t.a", json(&n.to_string())).unique(mode);
        let there = add(&scene, new(1)).await;
        let batch = [new(2), new(1), NewJob::new("t.b", json("1")), new(2), new(3), NewJob::new("t.b", json("1"))];
        let made = scene.jobs().enqueue(None, &batch).await.unwrap();
        let fresh: Vec<bool> = made.iter().map(|made| made.fresh).collect();
        assert_eq!(fresh, [true, false, true, false, true, true], "{mode:?}");
        assert_eq!((&made[1].id, &made[3].id), (&there.id, &made[0].id), "{mode:?}");
        for (made, job) in made.iter().zip(&batch) {
            let view = scene.job(&made.id).await;
            assert_eq!((&view.kind, &view.args), (&job.kind, &job.args), "{mode:?}");
        }
    }
}

/// Args and time of the one that waits become the duplicate's, as long as it waits for its first attempt.
pub async fn u10_a_duplicate_replaces_what_waits_and_says_so(engine: &dyn Engine) {
    let (mouth, mut heard) = Heard::new();
    let gate = super::Gate::default();
    let scene = Scene::set(engine, App::new([super::gated(super::quick("t.a"), mouth, &gate)])).await;
    let replacing = |mode, args: &str, run_at| NewJob {
        unique_key: Some("k".into()),
        on_duplicate: OnDuplicate::Replace,
        run_at,
        ..NewJob::new("t.a", json(args)).unique(mode)
    };
    let modes = modes(&scene).await;
    if !scene.jobs().capabilities().replace {
        let job = replacing(modes.first().copied().unwrap_or(Unique::UntilDone), "1", None);
        assert_eq!(refused(scene.jobs().enqueue(None, &[job]).await).0, Code::Capability);
        return;
    }
    let later = minute_later(scene.pool()).await;
    for &mode in &modes {
        let first = add(&scene, replacing(mode, "1", Some(later))).await;
        assert!(first.fresh && !first.replaced);
        let due = later.after(Duration::from_secs(1));
        for (args, run_at, waits) in [
            ("2", Some(due), Waits::Scheduled(due)),
            ("3", None, Waits::NoWorker),
            ("4", Some(later), Waits::Scheduled(later)),
        ] {
            let made = add(&scene, replacing(mode, args, run_at)).await;
            assert_eq!((&made.id, made.fresh, made.replaced), (&first.id, false, true), "{mode:?}");
            let view = scene.job(&first.id).await;
            assert_eq!((view.args, view.waits), (json(args), Some(waits)), "{mode:?}");
        }
        let kept = NewJob { on_duplicate: OnDuplicate::Keep, ..replacing(mode, "5", None) };
        assert!(!add(&scene, kept).await.replaced);
        assert_eq!(scene.job(&first.id).await.args, json("4"));
        add(&scene, replacing(mode, "6", None)).await;
    }
    scene.start().await;
    for _ in &modes {
        assert_eq!(heard.next().await.args, json("6"), "it runs with what it was last given");
    }
    // one that has started keeps what it was given
    if modes.contains(&Unique::UntilDone) {
        let made = add(&scene, replacing(Unique::UntilDone, "7", None)).await;
        assert!(!made.fresh && !made.replaced);
        assert_eq!(scene.job(&made.id).await.args, json("6"));
    }
    gate.open(modes.len());
    scene.stop().await;
    assert!(heard.rest().is_empty());
}
