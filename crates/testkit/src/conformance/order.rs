//! O: jobs of one order key come one after the other; of one limit key so many at a time; and owners in turn.

mod act;
mod limit;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use postrider::{
    BoxError, Code, Context, Job, JobId, Kind, KindSpec, LaneAct, LaneKey, LaneView, NewJob, Order, Retry, State,
    Verdict, Waits, handler,
};
use tokio::sync::mpsc::UnboundedSender;

use super::{App, Engine, Gate, Heard, Scene, answering, gated, json, quick, refused};
use crate::until;

pub use act::*;
pub use limit::*;

/// This family's cases as tests.
#[macro_export]
macro_rules! conformance_order {
    (@list) => {
        $crate::conformance_order!(@with (@list))
    };
    (@with ($($to:tt)*)) => {
        $crate::conformance_family! {
            $($to)*,
            order,
            [
                o1_of_one_key_one_runs_at_a_time_in_the_order_of_enqueueing,
                o1_a_key_is_refused_by_every_door_in_the_same_way,
                o2_a_head_that_fails_blocks_its_lane_through_its_retries,
                o3_with_skip_the_next_one_runs_while_the_head_backs_off,
                o4_with_park_a_lane_stops_says_why_and_goes_on_in_order,
                o4_an_operator_retries_or_skips_what_is_in_the_way,
                o5_different_keys_run_in_parallel,
                o6_a_hot_key_does_not_keep_other_keys_waiting,
                o7_a_bulk_retry_comes_back_in_the_order_of_enqueueing,
                o8_a_lane_is_not_blocked_by_a_worker_that_is_gone,
                o8_cancelling_what_has_the_turn_lets_the_next_one_run,
                o9_a_limit_is_never_exceeded_and_a_slot_is_free_while_its_job_waits,
                o9_a_limit_is_changed_live_and_a_kind_may_declare_one,
                o9_a_held_key_gives_nothing_and_says_why,
                o10_a_rate_lets_so_many_start_in_a_period,
                o11_limits_hold_over_processes_and_are_freed_when_one_is_gone,
                o11_a_process_that_is_cut_off_frees_its_slots_and_its_turns,
                o12_the_many_jobs_of_one_owner_do_not_keep_another_owner_waiting,
            ]
        }
    };
    ($engine:expr) => {
        $crate::conformance_order!(@with ($engine));
    };
}

/// A job with an order key.
fn keyed(kind: &str, key: &str, n: usize) -> NewJob {
    NewJob { order_key: Some(key.to_owned()), ..NewJob::new(kind, json(&n.to_string())) }
}

/// Whether the engine has order keys; if not, it refuses them, typed.
async fn has_order(scene: &Scene) -> bool {
    if scene.jobs().capabilities().order_keys {
        return true;
    }
    let enqueued = scene.jobs().enqueue(None, &[keyed("t.a", "k", 1)]).await;
    assert_eq!(refused(enqueued).0, Code::Capability);
    let keys = scene.process().keys();
    assert_eq!(refused(keys.lane("default", &LaneKey::Order("k".into())).await).0, Code::Capability);
    assert_eq!(refused(keys.lanes("default", None, 1).await).0, Code::Capability);
    assert_eq!(refused(keys.act_on_lane("default", "k", LaneAct::Release).await).0, Code::Capability);
    let ordered = KindSpec { order: Order::Skip, ..KindSpec::new("t.ordered") };
    let built = scene.stage().process(App::new([Kind::spec(ordered)])).await;
    assert!(matches!(built, Err(postrider::Error::Declarations(all)) if all[0].code == Code::Capability));
    false
}

/// What runs at once, by key: how many at most.
#[derive(Debug, Clone, Default)]
pub(super) struct Crowd(Arc<Mutex<BTreeMap<String, (usize, usize)>>>);

impl Crowd {
    fn enter(&self, key: &str) {
        let mut all = self.0.lock().unwrap();
        let (now, most) = all.entry(key.to_owned()).or_default();
        *now += 1;
        *most = (*most).max(*now);
    }

    fn leave(&self, key: &str) {
        self.0.lock().unwrap().get_mut(key).unwrap().0 -= 1;
    }

    /// How many ran at once at most.
    pub(super) fn most(&self, key: &str) -> usize {
        self.0.lock().unwrap().get(key).map_or(0, |(_, most)| *most)
    }

    /// A kind whose handler tells its job, stays for a moment and is counted meanwhile, by the key that it is given.
    pub(super) fn kind(&self, spec: KindSpec, mouth: UnboundedSender<Job>, key: fn(&Job) -> Option<&str>) -> Kind {
        let crowd = self.clone();
        Kind::spec(spec).handler(handler(move |job: Arc<Job>, _: Context| {
            let (crowd, told) = (crowd.clone(), mouth.send((*job).clone()));
            async move {
                let key = key(&job).unwrap_or_default().to_owned();
                crowd.enter(&key);
                told.map_err(|_| BoxError::from("the case is over"))?;
                tokio::time::sleep(Duration::from_millis(5)).await;
                crowd.leave(&key);
                Ok(Verdict::Complete)
            }
        }))
    }
}

async fn add(scene: &Scene, jobs: &[NewJob]) -> Vec<JobId> {
    scene.jobs().enqueue(None, jobs).await.unwrap().into_iter().map(|made| made.id).collect()
}

async fn lane(scene: &Scene, key: &str) -> Option<LaneView> {
    scene.process().keys().lane("default", &LaneKey::Order(key.to_owned())).await.unwrap()
}

/// Three keys, two processes with slots for more than one of each.
pub async fn o1_of_one_key_one_runs_at_a_time_in_the_order_of_enqueueing(engine: &dyn Engine) {
    let (mouth, mut heard) = Heard::new();
    let crowd = Crowd::default();
    let app = || {
        let kind = crowd.kind(KindSpec::new("t.a"), mouth.clone(), |job| job.order_key.as_deref());
        App::new([kind]).concurrency("default", 6)
    };
    let scene = Scene::set(engine, app()).await;
    if !has_order(&scene).await {
        return;
    }
    let other = scene.stage().process(app()).await.unwrap();
    let keys = ["a", "b", "c"];
    let jobs: Vec<NewJob> = (0..60)
        .map(|n| NewJob { priority: Some(if n % 7 == 0 { 1 } else { 3 }), ..keyed("t.a", keys[n % 3], n) })
        .collect();
    let mut ids = add(&scene, &jobs[..30]).await;
    scene.start().await;
    other.start().await.unwrap();
    ids.extend(add(&scene, &jobs[30..]).await);
    for id in &ids {
        scene.until(id, State::Completed).await;
    }
    scene.stop().await;
    other.stop(Duration::from_secs(10)).await.unwrap();
    let mut orders = BTreeMap::<String, Vec<usize>>::new();
    for job in heard.rest() {
        orders.entry(job.order_key.unwrap()).or_default().push(job.args.as_str().parse().unwrap());
    }
    for (start, key) in keys.into_iter().enumerate() {
        assert_eq!(orders[key], (start..60).step_by(3).collect::<Vec<_>>(), "{key}");
        assert_eq!(crowd.most(key), 1, "{key}");
    }
}

/// Too long, empty, with a policy that there is not, with a policy and no key.
pub async fn o1_a_key_is_refused_by_every_door_in_the_same_way(engine: &dyn Engine) {
    let scene = Scene::set(engine, App::new([Kind::new("t.a")])).await;
    if !has_order(&scene).await {
        return;
    }
    let new = || NewJob::new("t.a", json("{}"));
    let wrong = [
        (keyed("t.a", "", 1), "order_key"),
        (keyed("t.a", &"k".repeat(201), 1), "order_key"),
        (NewJob { limit_key: Some(String::new()), ..new() }, "limit_key"),
        (NewJob { order: Some(Order::Skip), ..new() }, "order_policy"),
        (NewJob { order: Some(Order::Park(0)), ..keyed("t.a", "k", 1) }, "order_policy"),
        (NewJob { order: Some(Order::Park(1000)), ..keyed("t.a", "k", 1) }, "order_policy"),
    ];
    for (door, put) in super::doors(&scene) {
        for (job, field) in &wrong {
            assert_eq!(put(job.clone()).await, Err(("PR005".to_owned(), (*field).to_owned())), "{door}");
        }
        let fine = NewJob { order: Some(Order::Park(999)), limit_key: Some("l".repeat(200)), ..keyed("t.a", "k", 1) };
        assert!(put(fine).await.unwrap().1, "{door}");
    }
}

/// Fails until its third attempt.
fn failing_first(mouth: UnboundedSender<Job>, spec: KindSpec) -> Kind {
    answering(spec, move |job| {
        mouth.send(job.clone()).map_err(|_| BoxError::from("the case is over"))?;
        if job.args == json("0") && job.attempt < 3 { Err("not yet".into()) } else { Ok(Verdict::Complete) }
    })
}

async fn runs_of(heard: &mut Heard<Job>, n: usize) -> Vec<(String, i16)> {
    let mut runs = Vec::new();
    for _ in 0..n {
        let job = heard.next().await;
        runs.push((job.args.as_str().to_owned(), job.attempt));
    }
    runs
}

fn run(name: &str, attempt: i16) -> (String, i16) {
    (name.to_owned(), attempt)
}

/// All that waits behind it is shown as waiting behind it.
pub async fn o2_a_head_that_fails_blocks_its_lane_through_its_retries(engine: &dyn Engine) {
    let (mouth, mut heard) = Heard::new();
    let slow = KindSpec { retry: Retry::Steps(vec![Duration::from_mins(10)]), ..quick("t.a") };
    let scene = Scene::at_work(engine, App::new([failing_first(mouth, slow)]).concurrency("default", 4)).await;
    if !has_order(&scene).await {
        return;
    }
    let ids = add(&scene, &[keyed("t.a", "k", 0), keyed("t.a", "k", 1), keyed("t.a", "k", 2)]).await;
    assert_eq!(runs_of(&mut heard, 1).await, [run("0", 1)]);
    for attempt in 2..=3 {
        scene.until(&ids[0], State::Retryable).await;
        let behind = until("the next one waits behind the head", Duration::from_secs(30), async || {
            let view = scene.job(&ids[1]).await;
            (view.waits == Some(Waits::Behind(ids[0].clone()))).then_some(view)
        });
        assert_eq!(behind.await.state, State::Pending);
        let lane = lane(&scene, "k").await.unwrap();
        assert_eq!((lane.depth, lane.head, lane.stopped_at), (2, Some(ids[0].clone()), None));
        scene.stage().elapse(Duration::from_mins(12)).await;
        assert_eq!(runs_of(&mut heard, 1).await, [run("0", attempt)]);
    }
    assert_eq!(runs_of(&mut heard, 2).await, [run("1", 1), run("2", 1)]);
    scene.until(&ids[2], State::Completed).await;
    scene.stop().await;
}

/// Due again, the head is the next one.
pub async fn o3_with_skip_the_next_one_runs_while_the_head_backs_off(engine: &dyn Engine) {
    let (mouth, mut heard) = Heard::new();
    let slow = KindSpec { retry: Retry::Steps(vec![Duration::from_mins(10)]), order: Order::Skip, ..quick("t.a") };
    let declared = failing_first(mouth, slow);
    let scene = Scene::set(engine, App::new([Kind::new("t.a")])).await;
    if !has_order(&scene).await {
        return;
    }
    let scene = Scene::at_work(engine, App::new([declared]).concurrency("default", 4)).await;
    let ids = add(&scene, &[keyed("t.a", "k", 0), keyed("t.a", "k", 1), keyed("t.a", "k", 2)]).await;
    assert_eq!(runs_of(&mut heard, 3).await, [run("0", 1), run("1", 1), run("2", 1)]);
    scene.until(&ids[2], State::Completed).await;
    assert_eq!(scene.job(&ids[0]).await.state, State::Retryable);
    for attempt in 2..=3 {
        scene.stage().elapse(Duration::from_mins(12)).await;
        assert_eq!(runs_of(&mut heard, 1).await, [run("0", attempt)]);
        scene.until(&ids[0], if attempt == 2 { State::Retryable } else { State::Completed }).await;
    }
    scene.stop().await;
}

/// Each of five keys has one that stands at the gate.
pub async fn o5_different_keys_run_in_parallel(engine: &dyn Engine) {
    let gate = Gate::default();
    let (mouth, mut heard) = Heard::new();
    let app = App::new([gated(KindSpec::new("t.a"), mouth, &gate)]).concurrency("default", 10);
    let scene = Scene::at_work(engine, app).await;
    if !has_order(&scene).await {
        return;
    }
    let jobs: Vec<NewJob> = (0..15).map(|n| keyed("t.a", &format!("k{}", n % 5), n)).collect();
    let ids = add(&scene, &jobs).await;
    let mut first: Vec<String> = runs_of(&mut heard, 5).await.into_iter().map(|(name, _)| name).collect();
    first.sort();
    assert_eq!(first, ["0", "1", "2", "3", "4"]);
    gate.open(15);
    for id in &ids {
        scene.until(id, State::Completed).await;
    }
    scene.stop().await;
}

/// The head stands at the gate, a thousand wait behind it, and others come after them.
pub async fn o6_a_hot_key_does_not_keep_other_keys_waiting(engine: &dyn Engine) {
    let gate = Gate::default();
    let (mouth, mut heard) = Heard::new();
    let app = App::new([gated(KindSpec::new("t.a"), mouth.clone(), &gate), super::telling("t.b", mouth)]);
    let scene = Scene::at_work(engine, app.concurrency("default", 4)).await;
    if !has_order(&scene).await {
        return;
    }
    let hot: Vec<NewJob> = (0..1_000).map(|n| keyed("t.a", "hot", n)).collect();
    add(&scene, &hot).await;
    assert_eq!(runs_of(&mut heard, 1).await, [run("0", 1)]);
    let others =
        add(&scene, &[keyed("t.b", "x", 2_000), keyed("t.b", "y", 2_001), NewJob::new("t.b", json("2002"))]).await;
    for id in &others {
        scene.until(id, State::Completed).await;
    }
    let lane = lane(&scene, "hot").await.unwrap();
    assert_eq!(lane.head_state, Some(State::Running));
    assert!(heard.rest().iter().all(|job| job.kind == "t.b"));
    gate.open(1);
    assert_eq!(runs_of(&mut heard, 1).await, [run("1", 1)]);
    gate.open(10);
    assert_eq!(runs_of(&mut heard, 2).await, [run("2", 1), run("3", 1)]);
}
