//! Y: each committed event becomes one job for each subscription, whichever engine makes the job.
//!
//! What the bus shows without an engine, or with the native one alone, has tests of its own: a dump that is restored into another cluster
//! (`y9_a_dump_restored_into_another_cluster_is_rebased_without_loss`), a standby that is promoted
//! (`y9_a_promoted_standby_goes_on_in_the_middle_of_a_window_and_of_a_huge_transaction_without_a_rebase`), and outbound work on a database of
//! another name (`y9_under_another_instance_name_outbound_work_is_held_and_the_rest_goes_on`): jobs are held where they are claimed, and no
//! port says which instance a process is meant for.

mod trouble;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use postrider::port::{Plan, Step};
use postrider::{
    Act, Builder, Bus, Capabilities, Effect, Enqueued, Error, EventId, Filter, Fut, Job, JobId, Jobs, NewEvent, NewJob,
    Recorder, Running, Settings, Subscription, Tx, Waited, proof,
};
use sqlx::PgPool;

use super::{App, Engine, Heard, Scene, json, telling};
use crate::until;

pub use trouble::*;

/// This family's cases as tests.
#[macro_export]
macro_rules! conformance_relay {
    ($engine:expr) => {
        $crate::conformance_family!(
            $engine,
            relay,
            [
                y1_interleaved_commits_lose_nothing_and_keep_every_byte,
                y2_concurrent_relays_never_fan_out_twice,
                y3_a_relay_that_is_cut_anywhere_makes_each_job_once,
                y3_what_an_engine_made_before_its_relay_failed_is_not_there,
                y4_an_order_and_coalescing_are_kept_or_refused,
                y4_an_order_that_was_asked_for_in_sql_is_kept_or_its_events_wait,
                y5_a_pair_that_cannot_be_is_set_aside_and_told_until_it_is_requeued,
                y6_a_long_transaction_elsewhere_delays_nothing,
                y8_a_huge_transaction_is_taken_in_bounded_passes,
                y9_in_another_cluster_nothing_is_lost_and_nothing_is_made_again,
                y12_an_event_is_known_to_be_fanned_out,
            ]
        );
    };
}

const SOON: Duration = Duration::from_mins(1);
const DATA: &str = r#"{"b" : 1.0, "a":12345678901234567890123, "text":"\u00e9 <&> \\ é"}"#;

/// Who has the relay's lock, but for the one that asks, is cut off.
const CUT_OFF: postrider::Statement = postrider::statement!("sql/cut_off.sql");

/// A process that handles and one that hands the events over; they share nothing but the database.
async fn scene(engine: &dyn Engine) -> (Scene, Heard<Job>) {
    let (mouth, heard) = Heard::new();
    let mut app = App::new([telling("t.copy", mouth)]);
    app.settings.relay = false;
    (Scene::at_work(engine, app).await, heard)
}

async fn relay(scene: &Scene, jobs: Option<Arc<dyn Jobs>>) -> Running {
    bus(scene, jobs, [Subscription::new("t.copy", ["t.made"])]).build().await.unwrap().start().unwrap()
}

/// A process that does nothing but hand events over.
fn bus<const N: usize>(scene: &Scene, jobs: Option<Arc<dyn Jobs>>, subscriptions: [Subscription; N]) -> Builder {
    let settings =
        Settings { work: false, housekeeping: false, beat: Duration::from_millis(100), ..Settings::default() };
    let builder = Bus::builder(scene.pool().clone()).types(["t.made"]).subscriptions(subscriptions).settings(settings);
    match jobs {
        Some(jobs) => builder.engine(jobs),
        None => builder,
    }
}

fn engine_of(scene: &Scene) -> Option<Arc<dyn Jobs>> {
    scene.stage().fan_out(scene.process())
}

async fn record(tx: &mut sqlx::PgConnection) -> EventId {
    record_about(tx, "thing/1").await
}

async fn record_about(tx: &mut sqlx::PgConnection, subject: &str) -> EventId {
    Recorder::new().record(tx, &NewEvent::new("t.made", subject, json(DATA))).await.unwrap().id
}

async fn records(pool: &PgPool, n: usize) -> Vec<EventId> {
    let one = || async {
        let mut tx = pool.begin().await.unwrap();
        let id = record(&mut tx).await;
        tx.commit().await.unwrap();
        id
    };
    let mut ids = Vec::new();
    for _ in 0..n.div_ceil(8) {
        ids.extend(join_all((0..8).map(|_| one())).await);
    }
    ids
}

/// Every event is heard of once, and nothing else is.
async fn heard_once(scene: &Scene, heard: &mut Heard<Job>, events: &[EventId]) -> Vec<Job> {
    let mut jobs = Vec::new();
    for _ in events {
        jobs.push(heard.next().await);
    }
    scene.stop().await;
    jobs.extend(heard.rest());
    let mut times: BTreeMap<EventId, usize> = events.iter().map(|id| (*id, 0)).collect();
    for job in &jobs {
        *times.entry(job.event.as_ref().unwrap().id).or_default() += 1;
    }
    let wrong: Vec<_> = times.iter().filter(|(_, times)| **times != 1).collect();
    assert!(wrong.is_empty(), "not heard of once: {wrong:?}");
    jobs
}

/// Transactions commit in another order than that of their events, with the relay at work between them.
pub async fn y1_interleaved_commits_lose_nothing_and_keep_every_byte(engine: &dyn Engine) {
    let (scene, mut heard) = scene(engine).await;
    let running = relay(&scene, engine_of(&scene)).await;
    let mut open = Vec::new();
    for _ in 0..6 {
        let mut tx = scene.pool().begin().await.unwrap();
        open.push((record(&mut tx).await, tx));
    }
    let mut events = Vec::new();
    for n in [3, 4, 0, 1, 1, 0] {
        let (id, tx) = open.remove(n);
        if events.len() == 2 {
            tx.rollback().await.unwrap();
            events.extend(records(scene.pool(), 8).await);
            continue;
        }
        tx.commit().await.unwrap();
        events.push(id);
    }
    for job in heard_once(&scene, &mut heard, &events).await {
        let event = job.event.unwrap();
        assert_eq!(event.data.as_str(), DATA);
        assert_eq!((event.r#type.as_str(), event.subject.as_str()), ("t.made", "thing/1"));
        assert_eq!((job.kind.as_str(), job.args.as_str()), ("t.copy", "{}"));
        assert!(job.subscription.is_some());
    }
    running.stop(SOON).await;
}

/// Three relays and many writers.
pub async fn y2_concurrent_relays_never_fan_out_twice(engine: &dyn Engine) {
    let (scene, mut heard) = scene(engine).await;
    let engine = engine_of(&scene);
    let relays = join_all((0..3).map(|_| relay(&scene, engine.clone()))).await;
    let events = records(scene.pool(), 160).await;
    heard_once(&scene, &mut heard, &events).await;
    join_all(relays.into_iter().map(|relay| relay.stop(SOON))).await;
}

/// The connection of whoever relays is cut again and again.
pub async fn y3_a_relay_that_is_cut_anywhere_makes_each_job_once(engine: &dyn Engine) {
    let (scene, mut heard) = scene(engine).await;
    // some events wait when the relays begin, so that a pass is long enough to be met
    relay(&scene, engine_of(&scene)).await.stop(SOON).await;
    let mut events = records(scene.pool(), 400).await;
    let relays = [relay(&scene, engine_of(&scene)).await, relay(&scene, engine_of(&scene)).await];
    let mut nemesis = scene.pool().acquire().await.unwrap();
    let tx: &mut dyn Tx = &mut *nemesis;
    let mut cuts = 0;
    for _ in 0..20 {
        for _ in 0..25 {
            cuts += tx.run(&CUT_OFF, &[]).await.unwrap().len();
        }
        events.extend(records(scene.pool(), 8).await);
        if cuts > 3 {
            break;
        }
    }
    assert!(cuts > 0, "no relay was met at work");
    heard_once(&scene, &mut heard, &events).await;
    for relay in relays {
        relay.stop(SOON).await;
    }
}

/// An engine that made the jobs and then fails: the cut does not commit, nor do the jobs, and the next pass makes them again.
pub async fn y3_what_an_engine_made_before_its_relay_failed_is_not_there(engine: &dyn Engine) {
    let (scene, mut heard) = scene(engine).await;
    let failing = engine_of(&scene).map(|jobs| Arc::new(Failing { jobs, left: AtomicUsize::new(2) }));
    let running = relay(&scene, failing.clone().map(|failing| failing as Arc<dyn Jobs>)).await;
    let events = records(scene.pool(), 24).await;
    if let Some(failing) = failing {
        until("the engine has failed as often as it should", SOON, async || {
            (failing.left.load(Ordering::SeqCst) == 0).then_some(())
        })
        .await;
    }
    heard_once(&scene, &mut heard, &events).await;
    running.stop(SOON).await;
}

/// A transaction that has recorded, and one that only has a number and a snapshot, are open while others come and go; what the first one recorded comes when it
/// commits.
pub async fn y6_a_long_transaction_elsewhere_delays_nothing(engine: &dyn Engine) {
    let (scene, mut heard) = scene(engine).await;
    let running = relay(&scene, engine_of(&scene)).await;
    let mut long = scene.pool().begin().await.unwrap();
    let late = record(&mut long).await;
    let mut reader = scene.pool().begin().await.unwrap();
    sqlx::raw_sql("set transaction isolation level repeatable read; select pg_current_xact_id()")
        .execute(&mut *reader)
        .await
        .unwrap();
    let mut events = records(scene.pool(), 16).await;
    let mut early = Vec::new();
    for _ in &events {
        early.push(heard.next().await);
    }
    assert!(early.iter().all(|job| job.event.as_ref().unwrap().id != late), "it has not committed");
    long.commit().await.unwrap();
    assert_eq!(heard.next().await.event.unwrap().id, late);
    reader.rollback().await.unwrap();
    events = records(scene.pool(), 8).await;
    heard_once(&scene, &mut heard, &events).await;
    running.stop(SOON).await;
}

/// More events in one transaction than a pass of any engine takes.
pub async fn y8_a_huge_transaction_is_taken_in_bounded_passes(engine: &dyn Engine) {
    let (scene, mut heard) = scene(engine).await;
    relay(&scene, engine_of(&scene)).await.stop(SOON).await;
    let mut events = Vec::new();
    let mut tx = scene.pool().begin().await.unwrap();
    for _ in 0..2_500 {
        events.push(record(&mut tx).await);
    }
    tx.commit().await.unwrap();
    let running = relay(&scene, engine_of(&scene)).await;
    heard_once(&scene, &mut heard, &events).await;
    running.stop(SOON).await;
    let sql = "select format('%s %s', max(n) <= 2000, count(*) filter (where n > 0) > 1) from postrider.cut";
    let bounded: String = sqlx::query_scalar(sql).fetch_one(scene.pool()).await.unwrap();
    assert_eq!(bounded, "t t");
}

/// Whoever recorded it can wait until its jobs are made; what was rolled back is waited for in vain.
pub async fn y12_an_event_is_known_to_be_fanned_out(engine: &dyn Engine) {
    let (scene, mut heard) = scene(engine).await;
    let running = relay(&scene, engine_of(&scene)).await;
    let events = records(scene.pool(), 8).await;
    for event in &events {
        let became = proof::await_fanout(scene.pool(), *event, SOON).await.unwrap().unwrap();
        assert!(became.aside.is_empty());
        assert!(if engine_of(&scene).is_some() { became.elsewhere } else { became.jobs.len() == 1 });
    }
    let mut tx = scene.pool().begin().await.unwrap();
    let undone = record(&mut tx).await;
    tx.rollback().await.unwrap();
    assert_eq!(proof::await_fanout(scene.pool(), undone, Duration::from_millis(50)).await.unwrap(), None);
    heard_once(&scene, &mut heard, &events).await;
    running.stop(SOON).await;
}

/// Makes the jobs, and fails so many times after that.
#[derive(Debug)]
struct Failing {
    jobs: Arc<dyn Jobs>,
    left: AtomicUsize,
}

impl Jobs for Failing {
    fn capabilities(&self) -> Capabilities {
        self.jobs.capabilities()
    }

    fn enqueue<'a>(&'a self, tx: Option<&'a mut dyn Tx>, jobs: &'a [NewJob]) -> Fut<'a, Vec<Enqueued>> {
        self.jobs.enqueue(tx, jobs)
    }

    fn fan_out<'a>(&'a self, tx: &'a mut dyn Tx, jobs: &'a [NewJob]) -> Fut<'a, Vec<Enqueued>> {
        Box::pin(async move {
            let made = self.jobs.fan_out(tx, jobs).await?;
            let fails = self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok();
            if fails { Err(Error::LeaseLost) } else { Ok(made) }
        })
    }

    fn act<'a>(&'a self, tx: Option<&'a mut dyn Tx>, act: Act, ids: &'a [JobId]) -> Fut<'a, Vec<Effect>> {
        self.jobs.act(tx, act, ids)
    }

    fn plan<'a>(&'a self, act: Act, filter: &'a Filter) -> Fut<'a, Plan> {
        self.jobs.plan(act, filter)
    }

    fn step<'a>(&'a self, plan: &'a Plan, after: Option<&'a JobId>) -> Fut<'a, Step> {
        self.jobs.step(plan, after)
    }

    fn pause<'a>(&'a self, queue: &'a str, paused: bool) -> Fut<'a, ()> {
        self.jobs.pause(queue, paused)
    }

    fn wait<'a>(&'a self, id: &'a JobId, timeout: Duration) -> Fut<'a, Waited> {
        self.jobs.wait(id, timeout)
    }
}
