use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use postrider::{Code, JobId, Kind, KindSpec, NewJob, Payload, Retry, State, Unique};

use super::super::{App, Counting, Engine, Heard, Scene, doors, json, minute_later, refused, telling};

/// Answers stand where their items stood, whatever the items are; no item, no statement.
pub async fn e8_a_bulk_keeps_its_order_and_answers_for_each_item(engine: &dyn Engine) {
    let scene = Scene::set(engine, App::new([Kind::new("t.a"), Kind::new("t.b")])).await;
    let later = minute_later(scene.pool()).await;
    let jobs: Vec<NewJob> = (0..40)
        .map(|n| NewJob {
            run_at: (n % 3 == 0).then_some(later),
            priority: (n % 5 == 0).then_some(1),
            ..NewJob::new(if n % 2 == 0 { "t.a" } else { "t.b" }, json(&n.to_string()))
        })
        .collect();
    let made = scene.jobs().enqueue(None, &jobs).await.unwrap();
    assert_eq!(made.len(), jobs.len());
    for (made, job) in made.iter().zip(&jobs) {
        let view = scene.job(&made.id).await;
        assert!(made.fresh && !made.replaced);
        assert_eq!((&view.kind, view.args.as_str()), (&job.kind, job.args.as_str()));
    }
    let mut tx = scene.pool().begin().await.unwrap();
    let mut counting = Counting::new(&mut tx);
    assert_eq!(scene.jobs().enqueue(Some(&mut counting), &[]).await.unwrap(), []);
    assert_eq!(counting.statements, 0);
    assert_eq!(scene.jobs().enqueue(None, &[]).await.unwrap(), []);
}

/// What each limit refuses: a job, the code, the field.
fn beyond() -> Vec<(NewJob, Code, &'static str)> {
    let plain = || NewJob::new("t.a", json("{}"));
    let unique = || plain().unique(Unique::UntilDone);
    let within = |window| plain().unique(Unique::Within(window));
    let long = "x".repeat(201);
    let kind = |name: &str| NewJob::new(name, json("{}"));
    vec![
        (kind(""), Code::Name, "kind"),
        (kind("Mail Send"), Code::Name, "kind"),
        (kind("mail..send"), Code::Name, "kind"),
        (kind(&long), Code::Name, "kind"),
        (NewJob { queue: Some("A B".into()), ..plain() }, Code::Name, "queue"),
        (NewJob { queue: Some(String::new()), ..plain() }, Code::Name, "queue"),
        (NewJob { queue: Some(long.clone()), ..plain() }, Code::Name, "queue"),
        (NewJob { owner: "a\nb".into(), ..plain() }, Code::Name, "owner"),
        (NewJob { owner: long.clone(), ..plain() }, Code::Name, "owner"),
        (NewJob { priority: Some(0), ..plain() }, Code::Option, "priority"),
        (NewJob { priority: Some(5), ..plain() }, Code::Option, "priority"),
        (NewJob { max_attempts: Some(0), ..plain() }, Code::Option, "max_attempts"),
        (NewJob { max_attempts: Some(1_001), ..plain() }, Code::Option, "max_attempts"),
        (NewJob { unique_key: Some(String::new()), ..unique() }, Code::Option, "unique_key"),
        (NewJob { unique_key: Some(long.clone()), ..unique() }, Code::Option, "unique_key"),
        (NewJob { idempotency_key: Some(String::new()), ..plain() }, Code::Option, "idempotency_key"),
        (NewJob { idempotency_key: Some(long), ..plain() }, Code::Option, "idempotency_key"),
        (within(Duration::ZERO), Code::Option, "unique_for"),
        (within(Duration::from_hours(24 * 3_661)), Code::Option, "unique_for"),
        (NewJob { retry: Some(Retry::Steps(vec![])), ..plain() }, Code::Option, "retry"),
        (NewJob { args: Payload::trusted("[".repeat(129) + &"]".repeat(129)), ..plain() }, Code::Json, "args"),
        (NewJob { args: Payload::trusted(r#"{"x":"\u0000"}"#), ..plain() }, Code::Json, "args"),
        (NewJob { args: Payload::trusted(r#"{"x":"\u0000"}"#), ..unique() }, Code::Json, "args"),
        (NewJob { args: Payload::trusted(r#""\ud800""#), ..unique() }, Code::Json, "args"),
        (NewJob { args: Payload::trusted(format!("\"{}\"", "x".repeat(262_143))), ..plain() }, Code::Size, "args"),
        (NewJob { args: Payload::trusted("1e99999"), ..unique() }, Code::Json, "args"),
    ]
}

/// Each limit, at every door: the same code and field. In a transaction it is refused before any statement.
pub async fn e9_what_is_over_a_limit_is_refused_typed_and_the_transaction_goes_on(engine: &dyn Engine) {
    let scene = Scene::set(engine, App::new([Kind::new("t.a")])).await;
    let can = scene.jobs().capabilities();
    let mut tx = scene.pool().begin().await.unwrap();
    for (job, code, field) in beyond() {
        let what = format!("{job:?}");
        let lacks = job.unique.is_some_and(|unique| !can.has_unique(unique))
            || job.idempotency_key.is_some() && !can.idempotency
            || job.retry.is_some() && !can.retry_per_job
            || !job.owner.is_empty() && !can.owners;
        let mut counting = Counting::new(&mut tx);
        let (told, at) = refused(scene.jobs().enqueue(Some(&mut counting), std::slice::from_ref(&job)).await);
        assert_eq!(counting.statements, 0, "{what}");
        if lacks {
            assert!([code, Code::Capability].contains(&told), "{what}: {told}");
            continue;
        }
        assert_eq!((told, at.as_str()), (code, field), "{what}");
        for (name, door) in doors(&scene) {
            // Rust knows what was declared before it looks at the grammar of a name; the functions know no other kinds
            let expected = (code.to_string(), field.to_owned());
            assert_eq!(door(job.clone()).await.unwrap_err(), expected, "{name}: {what}");
        }
    }
    let made = scene.jobs().enqueue(Some(&mut *tx), &[NewJob::new("t.a", json("{}"))]).await.unwrap();
    tx.commit().await.unwrap();
    let all = scene.inspector().jobs(&postrider::Filter::default(), None, 10).await.unwrap();
    let ids: Vec<_> = all.jobs.into_iter().map(|job| job.id).collect();
    assert_eq!(ids, [made[0].id.clone()], "nothing of what was refused is there");
}

/// Counted at the transaction.
pub async fn e10_ten_thousand_jobs_are_a_round_trip_for_each_thousand(engine: &dyn Engine) {
    let scene = Scene::set(engine, App::new([Kind::new("t.a")])).await;
    let jobs: Vec<NewJob> = (0..10_000).map(|n| NewJob::new("t.a", json(&n.to_string()))).collect();
    let mut tx = scene.pool().begin().await.unwrap();
    let mut counting = Counting::new(&mut tx);
    let made = scene.jobs().enqueue(Some(&mut counting), &jobs).await.unwrap();
    let statements = counting.statements;
    assert!((1..=10).contains(&statements), "{statements}");
    let ids: BTreeSet<&str> = made.iter().map(|made| made.id.as_str()).collect();
    assert_eq!(ids.len(), 10_000);
    tx.rollback().await.unwrap();
}

/// Whatever else is said with it, whether the first one has ended or not, and only for its owner.
pub async fn e11_an_idempotency_key_answers_with_the_first_id(engine: &dyn Engine) {
    let (mouth, _heard) = Heard::new();
    let scene = Scene::at_work(engine, App::new([telling("t.a", mouth), Kind::new("t.b")])).await;
    let keyed =
        |kind: &str, args: &str| NewJob { idempotency_key: Some("order-42".into()), ..NewJob::new(kind, json(args)) };
    if !scene.jobs().capabilities().idempotency {
        let (code, field) = refused(scene.jobs().enqueue(None, &[keyed("t.a", "1")]).await);
        assert_eq!((code, field.as_str()), (Code::Capability, "idempotency_key"));
        return;
    }
    let jobs = scene.jobs();
    let all: Vec<_> = (0..6).map(|_| (Arc::clone(&jobs), keyed("t.a", "1"))).collect();
    let all = all.into_iter().map(async |(jobs, job)| jobs.enqueue(None, &[job]).await.unwrap().remove(0));
    let made = futures_util::future::join_all(all).await;
    let first = made[0].id.clone();
    assert!(made.iter().all(|made| made.id == first), "{made:?}");
    assert_eq!(made.iter().filter(|made| made.fresh).count(), 1);
    scene.until(&first, State::Completed).await;
    for (name, door) in doors(&scene) {
        let same = (first.to_string(), false);
        assert_eq!(door(keyed("t.a", "1")).await.unwrap(), same, "{name}");
        assert_eq!(door(keyed("t.b", r#"{"other": 1}"#)).await.unwrap(), same, "{name}: another kind");
    }
    if jobs.capabilities().owners {
        let theirs = NewJob { owner: "acme".into(), ..keyed("t.a", "1") };
        let theirs = jobs.enqueue(None, &[theirs]).await.unwrap().remove(0);
        assert!(theirs.fresh && theirs.id != first);
    }
    // a key of a transaction that rolled back is nobody's
    let rolled = NewJob { idempotency_key: Some("gone".into()), ..keyed("t.a", "1") };
    let mut tx = scene.pool().begin().await.unwrap();
    let gone = jobs.enqueue(Some(&mut *tx), std::slice::from_ref(&rolled)).await.unwrap().remove(0);
    tx.rollback().await.unwrap();
    let again = jobs.enqueue(None, &[rolled]).await.unwrap().remove(0);
    assert!(gone.fresh && again.fresh);
    scene.stop().await;
}

/// The same row, and the same run, whichever door it came through.
pub async fn e12_every_door_makes_the_same_job(engine: &dyn Engine) {
    let (mouth, mut heard) = Heard::new();
    let spec = KindSpec { queue: "slow".into(), priority: 3, ..KindSpec::new("t.tell") };
    let tells = telling("t.tell", mouth);
    let tells = Kind::spec(spec).handler(Arc::clone(tells.handled_by().unwrap()));
    let scene = Scene::set(engine, App::new([tells])).await;
    let later = minute_later(scene.pool()).await;
    let owner = if scene.jobs().capabilities().owners { "acme" } else { "" };
    let new = |run_at| NewJob {
        run_at,
        owner: owner.into(),
        max_attempts: Some(4),
        ..NewJob::new("t.tell", json(r#"{"b": 1, "a": [1.0]}"#))
    };
    let mut views = Vec::new();
    let mut ids = Vec::new();
    for (name, door) in doors(&scene) {
        for run_at in [None, Some(later)] {
            let (id, fresh) = door(new(run_at)).await.unwrap();
            assert!(fresh);
            let view = scene.job(&JobId::new(&*id)).await;
            let same = (view.kind, view.queue, view.priority, view.max_attempts, view.args, view.state, view.owner);
            views.push((name, run_at, same, view.waits));
            if run_at.is_none() {
                ids.push(JobId::new(id));
            }
        }
    }
    for view in &views {
        let first = views.iter().find(|first| first.1 == view.1).unwrap();
        assert_eq!((&view.2, &view.3), (&first.2, &first.3), "{}", view.0);
        assert_eq!(view.2, {
            let args = json(r#"{"b": 1, "a": [1.0]}"#);
            ("t.tell".into(), "slow".into(), 3, 4, args, State::Pending, owner.into())
        });
    }
    scene.start().await;
    for id in &ids {
        scene.until(id, State::Completed).await;
    }
    scene.stop().await;
    let heard: Vec<_> = heard.rest().into_iter().filter(|job| ids.contains(&job.id)).collect();
    assert_eq!(heard.len(), ids.len());
    for job in heard {
        let same = (job.queue.as_str(), job.owner.as_str(), job.attempt, job.max_attempts, job.args.as_str());
        assert_eq!(same, ("slow", owner, 1, 4, r#"{"b": 1, "a": [1.0]}"#));
    }
}
