use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use postrider::{
    Act, BoxError, Filter, JobId, KindSpec, LaneAct, LaneEffect, LaneKey, NewJob, Order, Retry, State, Verdict, Waits,
};

use super::super::{App, Engine, Gate, Heard, Scene, answering, gated, quick};
use super::{add, failing_first, has_order, keyed, lane, run, runs_of};
use crate::until;

/// The failure is told with the lane and with each job that waits in it; other lanes go on.
pub async fn o4_with_park_a_lane_stops_says_why_and_goes_on_in_order(engine: &dyn Engine) {
    let (mouth, mut heard) = Heard::new();
    let scene = Scene::at_work(engine, App::new([failing_first(mouth, quick("t.a"))]).concurrency("default", 4)).await;
    if !has_order(&scene).await {
        return;
    }
    let parks = |n| NewJob { order: Some(Order::Park(2)), ..keyed("t.a", "k", n) };
    let ids = add(&scene, &[parks(0), parks(1), parks(2)]).await;
    assert_eq!(runs_of(&mut heard, 2).await, [run("0", 1), run("0", 2)]);
    let stopped = until("the lane is stopped", Duration::from_secs(30), async || {
        lane(&scene, "k").await.filter(|lane| lane.stopped_at.is_some())
    })
    .await;
    assert_eq!((stopped.head.as_ref(), stopped.depth), (Some(&ids[0]), 3));
    assert!(stopped.reason.as_deref().unwrap().contains("not yet"), "{stopped:?}");
    let listed = scene.process().keys().stopped_lanes("default", None, 10).await.unwrap();
    assert_eq!(listed.iter().map(|lane| &lane.key).collect::<Vec<_>>(), [&LaneKey::Order("k".into())]);
    let Some(Waits::Stopped(why)) = scene.job(&ids[1]).await.waits else { panic!("{:?}", scene.job(&ids[1]).await) };
    assert!(why.contains("not yet"), "{why}");
    let other = add(&scene, &[keyed("t.a", "other", 7)]).await;
    scene.until(&other[0], State::Completed).await;
    assert_eq!(runs_of(&mut heard, 1).await, [run("7", 1)]);
    let keys = scene.process().keys();
    assert_eq!(keys.act_on_lane("default", "k", LaneAct::Release).await.unwrap(), LaneEffect::Done);
    assert_eq!(runs_of(&mut heard, 3).await, [run("0", 3), run("1", 1), run("2", 1)]);
    scene.until(&ids[2], State::Completed).await;
    assert_eq!(keys.act_on_lane("default", "k", LaneAct::Release).await.unwrap(), LaneEffect::Unknown);
    scene.stop().await;
}

/// A retry comes before all others, a skip ends the head; neither is done to one that runs.
pub async fn o4_an_operator_retries_or_skips_what_is_in_the_way(engine: &dyn Engine) {
    let gate = Gate::default();
    let (mouth, mut heard) = Heard::new();
    let retry = Retry::Steps(vec![Duration::from_mins(10)]);
    let fails = KindSpec { retry, max_attempts: 9, ..KindSpec::new("t.a") };
    let words = mouth.clone();
    let failing = answering(fails, move |job| {
        words.send(job.clone()).map_err(|_| BoxError::from("the case is over"))?;
        Err("never".into())
    });
    let waits = gated(KindSpec::new("t.b"), mouth, &gate);
    let scene = Scene::at_work(engine, App::new([failing, waits]).concurrency("default", 4)).await;
    if !has_order(&scene).await {
        return;
    }
    let ids = add(&scene, &[keyed("t.a", "k", 0), keyed("t.b", "k", 1), keyed("t.b", "k", 2)]).await;
    let keys = scene.process().keys();
    let act = |act| keys.act_on_lane("default", "k", act);
    assert_eq!(runs_of(&mut heard, 1).await, [run("0", 1)]);
    scene.until(&ids[0], State::Retryable).await;
    assert_eq!(act(LaneAct::Release).await.unwrap(), LaneEffect::Unknown, "it is not stopped");
    assert_eq!(act(LaneAct::Retry).await.unwrap(), LaneEffect::Done);
    assert_eq!(runs_of(&mut heard, 1).await, [run("0", 2)]);
    scene.until(&ids[0], State::Retryable).await;
    assert_eq!(act(LaneAct::Skip).await.unwrap(), LaneEffect::Done);
    assert_eq!(runs_of(&mut heard, 1).await, [run("1", 1)]);
    assert_eq!(scene.job(&ids[0]).await.state, State::Cancelled);
    assert_eq!(act(LaneAct::Skip).await.unwrap(), LaneEffect::Running);
    gate.open(2);
    scene.until(&ids[2], State::Completed).await;
    scene.stop().await;
}

/// Twelve that were discarded, in one act on all of them, given in another order.
pub async fn o7_a_bulk_retry_comes_back_in_the_order_of_enqueueing(engine: &dyn Engine) {
    let (mouth, mut heard) = Heard::new();
    let fine = Arc::new(AtomicBool::new(false));
    let works = Arc::clone(&fine);
    let kind = answering(KindSpec::new("t.a"), move |job| {
        mouth.send(job.clone()).map_err(|_| BoxError::from("the case is over"))?;
        let works = works.load(Ordering::SeqCst);
        Ok(if works { Verdict::Complete } else { Verdict::Discard("no".into()) })
    });
    let scene = Scene::at_work(engine, App::new([kind]).concurrency("default", 5)).await;
    if !has_order(&scene).await {
        return;
    }
    let jobs: Vec<NewJob> = (0..12).map(|n| keyed("t.a", "k", n)).collect();
    let ids = add(&scene, &jobs).await;
    for id in &ids {
        scene.until(id, State::Discarded).await;
    }
    let in_order: Vec<(String, i16)> = (0..12).map(|n| run(&n.to_string(), 1)).collect();
    assert_eq!(runs_of(&mut heard, 12).await, in_order);
    fine.store(true, Ordering::SeqCst);
    let backwards: Vec<JobId> = ids.iter().rev().cloned().collect();
    scene.jobs().act(None, Act::Retry, &backwards).await.unwrap();
    assert_eq!(runs_of(&mut heard, 12).await, in_order);
    for id in &ids {
        scene.until(id, State::Completed).await;
    }
    let left = scene.process().keys().lanes("default", None, 10).await.unwrap();
    let filter = Filter { states: vec![State::Pending], ..Filter::default() };
    assert!(scene.inspector().jobs(&filter, None, 1).await.unwrap().jobs.is_empty(), "{left:?}");
    scene.stop().await;
}

/// The job is taken from its worker, runs again before those behind it, and what the old attempt answers does not count.
pub async fn o8_a_lane_is_not_blocked_by_a_worker_that_is_gone(engine: &dyn Engine) {
    let gate = Gate::default();
    let (mouth, mut heard) = Heard::new();
    let app = App::new([gated(KindSpec::new("t.a"), mouth, &gate)]).concurrency("default", 4);
    let scene = Scene::at_work(engine, app).await;
    if !has_order(&scene).await {
        return;
    }
    let ids = add(&scene, &[keyed("t.a", "k", 0), keyed("t.a", "k", 1)]).await;
    assert_eq!(heard.next().await.id, ids[0]);
    scene.stage().rob(&ids[0]).await;
    assert_eq!(heard.next().await.id, ids[0]);
    gate.open(10);
    scene.until(&ids[1], State::Completed).await;
    assert_eq!(heard.next().await.id, ids[1]);
    scene.stop().await;
}

/// One that backs off, and one that waits to be claimed.
pub async fn o8_cancelling_what_has_the_turn_lets_the_next_one_run(engine: &dyn Engine) {
    let (mouth, mut heard) = Heard::new();
    let slow = KindSpec { retry: Retry::Steps(vec![Duration::from_mins(10)]), ..quick("t.a") };
    let scene = Scene::at_work(engine, App::new([failing_first(mouth, slow)])).await;
    if !has_order(&scene).await {
        return;
    }
    let ids = add(&scene, &[keyed("t.a", "k", 0), keyed("t.a", "k", 1), keyed("t.a", "k", 2)]).await;
    assert_eq!(runs_of(&mut heard, 1).await, [run("0", 1)]);
    scene.until(&ids[0], State::Retryable).await;
    let both = [ids[0].clone(), ids[1].clone()];
    scene.jobs().act(None, Act::Cancel, &both).await.unwrap();
    scene.until(&ids[2], State::Completed).await;
    assert_eq!(runs_of(&mut heard, 1).await, [run("2", 1)]);
    scene.stop().await;
}
