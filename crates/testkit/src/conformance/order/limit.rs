use std::collections::BTreeSet;
use std::time::Duration;

use postrider::{Code, Hold, Job, JobId, Kind, KindSpec, Limit, NewJob, Retry, State, Timestamp, Verdict, Waits};

use super::super::crew::{hire_lined, mortal};
use super::super::{App, Engine, Gate, Heard, Scene, answering, gated, json, minute_later, quick, refused, telling};
use super::{Crowd, add};
use crate::until;

/// A job with a limit key.
fn limited(kind: &str, key: &str, n: usize) -> NewJob {
    NewJob { limit_key: Some(key.to_owned()), ..NewJob::new(kind, json(&n.to_string())) }
}

/// Whether the engine has limits; if not, it refuses them, typed.
async fn has_limits(scene: &Scene) -> bool {
    if scene.jobs().capabilities().limits {
        return true;
    }
    let keys = scene.process().keys();
    assert_eq!(refused(scene.jobs().enqueue(None, &[limited("t.a", "k", 1)]).await).0, Code::Capability);
    assert_eq!(refused(keys.set_limit("default", "k", Limit::most(1)).await).0, Code::Capability);
    let hold = Hold { queue: "default", key: "k", until: None, reason: "" };
    assert_eq!(refused(keys.hold(None, hold).await).0, Code::Capability);
    let spec = KindSpec { limit: Some(Limit::most(1)), ..KindSpec::new("t.limited") };
    let built = scene.stage().process(App::new([Kind::spec(spec)])).await;
    assert!(matches!(built, Err(postrider::Error::Declarations(all)) if all[0].code == Code::Capability));
    false
}

async fn set(scene: &Scene, key: &str, limit: Limit) {
    scene.process().keys().set_limit("default", key, limit).await.unwrap();
}

async fn until_waits(scene: &Scene, id: &JobId, waits: fn(&Waits) -> bool) -> Waits {
    until(&format!("{id} waits"), Duration::from_secs(30), async || scene.job(id).await.waits.filter(waits)).await
}

/// Two at a time of twenty on ten slots; then one that backs off and one that is put off leave their slots to others.
pub async fn o9_a_limit_is_never_exceeded_and_a_slot_is_free_while_its_job_waits(engine: &dyn Engine) {
    let (mouth, mut heard) = Heard::new();
    let crowd = Crowd::default();
    let retry = Retry::Steps(vec![Duration::from_mins(10)]);
    let away = answering(KindSpec { retry, ..quick("t.away") }, |job| match job.args.as_str() {
        "0" => Err("no".into()),
        _ => Ok(Verdict::Snooze(Duration::from_mins(10))),
    });
    let kind = crowd.kind(KindSpec::new("t.a"), mouth, |job| job.limit_key.as_deref());
    let scene = Scene::set(engine, App::new([kind, away]).concurrency("default", 10)).await;
    if !has_limits(&scene).await {
        return;
    }
    set(&scene, "k", Limit::most(2)).await;
    scene.start().await;
    let jobs: Vec<NewJob> = (0..20).map(|n| limited("t.a", "k", n)).collect();
    for id in add(&scene, &jobs).await {
        scene.until(&id, State::Completed).await;
    }
    assert_eq!((heard.rest().len(), crowd.most("k")), (20, 2));
    let away = add(&scene, &[limited("t.away", "k", 0), limited("t.away", "k", 1)]).await;
    scene.until(&away[0], State::Retryable).await;
    until_waits(&scene, &away[1], |waits| matches!(waits, Waits::Snoozed(_))).await;
    for id in add(&scene, &[limited("t.a", "k", 2), limited("t.a", "k", 3)]).await {
        scene.until(&id, State::Completed).await;
    }
    scene.stop().await;
}

/// Raised while two run, taken away, set for every key of the queue; and one that a kind declares for all its jobs.
pub async fn o9_a_limit_is_changed_live_and_a_kind_may_declare_one(engine: &dyn Engine) {
    let gate = Gate::default();
    let (mouth, mut heard) = Heard::new();
    let scene = Scene::set(engine, App::new([Kind::new("t.a")])).await;
    if !has_limits(&scene).await {
        return;
    }
    let declared = KindSpec { limit: Some(Limit::most(1)), ..KindSpec::new("t.one") };
    let kinds = [gated(KindSpec::new("t.a"), mouth.clone(), &gate), gated(declared, mouth, &gate)];
    let scene = Scene::at_work(engine, App::new(kinds).concurrency("default", 20)).await;
    set(&scene, "", Limit::most(1)).await;
    set(&scene, "k", Limit::most(2)).await;
    let jobs: Vec<NewJob> = (0..8).map(|n| limited("t.a", "k", n)).collect();
    let ids = add(&scene, &jobs).await;
    heard.next().await;
    heard.next().await;
    until_waits(&scene, &ids[7], |waits| *waits == Waits::Limited).await;
    set(&scene, "k", Limit::most(4)).await;
    heard.next().await;
    heard.next().await;
    let other = add(&scene, &[limited("t.a", "other", 8), limited("t.a", "other", 9)]).await;
    assert_eq!(heard.next().await.id, other[0]);
    until_waits(&scene, &other[1], |waits| *waits == Waits::Limited).await;
    let ones = [NewJob::new("t.one", json("10")), NewJob::new("t.one", json("11"))];
    let ones = add(&scene, &ones).await;
    assert_eq!(heard.next().await.id, ones[0]);
    until_waits(&scene, &ones[1], |waits| *waits == Waits::Limited).await;
    assert!(heard.rest().is_empty());
    set(&scene, "", Limit::default()).await;
    set(&scene, "k", Limit::default()).await;
    gate.open(100);
    for id in ids.iter().chain(&other).chain(&ones) {
        scene.until(id, State::Completed).await;
    }
    scene.stop().await;
}

/// Until its time, and until it is lifted before; other keys go on.
pub async fn o9_a_held_key_gives_nothing_and_says_why(engine: &dyn Engine) {
    let (mouth, mut heard) = Heard::new();
    let scene = Scene::at_work(engine, App::new([telling("t.a", mouth)])).await;
    if !has_limits(&scene).await {
        return;
    }
    let keys = scene.process().keys();
    let until_when = minute_later(scene.pool()).await.after(Duration::from_hours(1));
    let hold = Hold { queue: "default", key: "k", until: Some(until_when), reason: "it said 429" };
    for lifted in [true, false] {
        // in a transaction as well: what is rolled back holds nothing
        let mut tx = scene.pool().begin().await.unwrap();
        keys.hold(Some(&mut *tx), Hold { key: "free", ..hold }).await.unwrap();
        tx.rollback().await.unwrap();
        keys.hold(None, hold).await.unwrap();
        let waiting = add(&scene, &[limited("t.a", "k", 1)]).await;
        let free = add(&scene, &[limited("t.a", "free", 2)]).await;
        scene.until(&free[0], State::Completed).await;
        let waits = until_waits(&scene, &waiting[0], |waits| matches!(waits, Waits::Held(..))).await;
        assert_eq!(waits, Waits::Held(until_when, "it said 429".into()));
        if lifted {
            keys.hold(None, Hold { until: None, ..hold }).await.unwrap();
        } else {
            scene.stage().elapse(Duration::from_hours(2)).await;
        }
        scene.until(&waiting[0], State::Completed).await;
        assert_eq!(heard.rest().len(), 2);
    }
    scene.stop().await;
}

/// The period of a rate.
const PER: Duration = Duration::from_millis(700);

/// Three in a period, of ten: by the clock of the database no window that begins with a start holds more than three.
pub async fn o10_a_rate_lets_so_many_start_in_a_period(engine: &dyn Engine) {
    let (mouth, mut heard) = Heard::new();
    let scene = Scene::set(engine, App::new([telling("t.a", mouth)]).concurrency("default", 10)).await;
    if !has_limits(&scene).await {
        return;
    }
    set(&scene, "k", Limit::rate(3, PER)).await;
    let jobs: Vec<NewJob> = (0..10).map(|n| limited("t.a", "k", n)).collect();
    let ids = add(&scene, &jobs).await;
    scene.start().await;
    for id in &ids {
        scene.until(id, State::Completed).await;
    }
    let mut starts: Vec<Timestamp> = heard.rest().iter().map(|job| job.claimed_at).collect();
    starts.sort();
    assert_eq!(starts.len(), 10);
    // four windows of at least this length
    for (n, later) in starts.iter().enumerate().skip(6) {
        let since = later.since(starts[n - 6]);
        assert!(since > PER, "{since:?} for seven starts");
    }
    scene.stop().await;
}

/// Two processes of five slots each; one of them goes dark with what it holds.
pub async fn o11_limits_hold_over_processes_and_are_freed_when_one_is_gone(engine: &dyn Engine) {
    let (mouth, mut heard) = Heard::new();
    let crowd = Crowd::default();
    let gate = Gate::default();
    let app = || {
        let kind = crowd.kind(KindSpec::new("t.a"), mouth.clone(), |job| job.limit_key.as_deref());
        App::new([kind, gated(KindSpec::new("t.gate"), mouth.clone(), &gate)]).concurrency("default", 5)
    };
    let scene = Scene::set(engine, app()).await;
    if !has_limits(&scene).await {
        return;
    }
    set(&scene, "k", Limit::most(3)).await;
    let other = scene.stage().process(app()).await.unwrap();
    scene.start().await;
    other.start().await.unwrap();
    let jobs: Vec<NewJob> = (0..40).map(|n| limited("t.a", "k", n)).collect();
    for id in add(&scene, &jobs).await {
        scene.until(&id, State::Completed).await;
    }
    assert_eq!((heard.rest().len(), crowd.most("k")), (40, 3));
    set(&scene, "g", Limit::most(1)).await;
    let gates = add(&scene, &[limited("t.gate", "g", 0), limited("t.gate", "g", 1)]).await;
    assert_eq!(heard.next().await.id, gates[0]);
    until_waits(&scene, &gates[1], |waits| *waits == Waits::Limited).await;
    scene.stage().rob(&gates[0]).await;
    // whoever goes first: its slot was free
    let next = heard.next().await.id;
    assert!(gates.contains(&next));
    gate.open(10);
    for id in &gates {
        scene.until(id, State::Completed).await;
    }
    scene.stop().await;
    other.stop(Duration::from_secs(10)).await.unwrap();
}

/// It holds the one slot and the turn of a key, and goes dark; it may go on by itself, but not under its lease.
pub async fn o11_a_process_that_is_cut_off_frees_its_slots_and_its_turns(engine: &dyn Engine) {
    let gate = Gate::default();
    let (mouth, mut heard) = Heard::new();
    let app = || mortal(gated(KindSpec::new("t.a"), mouth.clone(), &gate)).concurrency("default", 5);
    let scene = Scene::set(engine, app()).await;
    if !has_limits(&scene).await {
        return;
    }
    set(&scene, "k", Limit::most(1)).await;
    let lined = hire_lined(&scene, app()).await;
    let both = |n| NewJob { order_key: Some("o".into()), ..limited("t.a", "k", n) };
    let ids = add(&scene, &[both(0), both(1), limited("t.a", "k", 2)]).await;
    assert_eq!(heard.next().await.id, ids[0]);
    lined.line.cut();
    scene.start().await;
    for _ in 0..3 {
        gate.open(2);
        heard.next().await;
    }
    for id in &ids {
        scene.until(id, State::Completed).await;
    }
    lined.line.mend();
    scene.stop().await;
}

/// Five hundred of one owner on two slots, then a few of another.
pub async fn o12_the_many_jobs_of_one_owner_do_not_keep_another_owner_waiting(engine: &dyn Engine) {
    let (mouth, mut heard) = Heard::new();
    let spec = KindSpec { fair: true, ..KindSpec::new("t.a") };
    let scene = Scene::set(engine, App::new([Kind::new("t.a")])).await;
    if !scene.jobs().capabilities().fair_share {
        let built = scene.stage().process(App::new([Kind::spec(spec)])).await;
        assert!(matches!(built, Err(postrider::Error::Declarations(all)) if all[0].code == Code::Capability));
        return;
    }
    let crowd = Crowd::default();
    let kind = crowd.kind(spec, mouth, |_: &Job| None);
    let scene = Scene::set(engine, App::new([kind]).concurrency("default", 2)).await;
    let of = |owner: &str, n: usize| NewJob { owner: owner.into(), ..NewJob::new("t.a", json(&n.to_string())) };
    let many: Vec<NewJob> = (0..500).map(|n| of("acme", n)).collect();
    add(&scene, &many).await;
    let few = add(&scene, &(0..10).map(|n| of("bolt", n)).collect::<Vec<_>>()).await;
    scene.start().await;
    for id in &few {
        scene.until(id, State::Completed).await;
    }
    scene.stop().await;
    let order: Vec<String> = heard.rest().into_iter().map(|job| job.owner).collect();
    let last = order.iter().rposition(|owner| owner == "bolt").unwrap();
    // in turn: each of the few has one or two of the many before it, but for what was claimed in one batch
    assert!(last < 60, "the last of the few was the {last}th");
    let owners: BTreeSet<&String> = order.iter().take(20).collect();
    assert_eq!(owners.len(), 2);
}
