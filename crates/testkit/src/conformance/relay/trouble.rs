//! Y4, Y5, Y9: what an engine cannot keep, cannot take, and what of its jobs a log still knows in another cluster.

use std::collections::{BTreeMap, BTreeSet};

use postrider::inspect::{self, Alert, Severity};
use postrider::proof::{self, Poison};
use postrider::{Code, Error, EventId, Job, OrderBy, Subscription};
use sqlx::PgPool;

use super::super::crew::FORBIDDEN;
use super::{
    App, Engine, Heard, SOON, Scene, bus, engine_of, heard_once, record_about, records, relay, scene, telling,
};
use crate::until;

const BAD: &str = "thing/bad";

async fn run(pool: &PgPool, sql: &'static str) {
    sqlx::raw_sql(sql).execute(pool).await.unwrap();
}

async fn alert(pool: &PgPool, name: &str) -> Option<Alert> {
    inspect::alerts(pool).await.unwrap().into_iter().find(|alert| alert.name == name)
}

/// What is set aside as soon as that is one pair which was tried more often than so many times.
async fn aside(pool: &PgPool, tries: u64) -> Poison {
    until("a pair is set aside and was tried", SOON, async || {
        let mut aside = proof::poison(pool, 10).await.unwrap();
        assert!(aside.len() < 2, "more than the one that cannot be: {aside:?}");
        aside.pop().filter(|pair| pair.tries > tries)
    })
    .await
}

/// Each event with each subscription, once.
fn each_once(jobs: Vec<Job>, pairs: BTreeSet<(EventId, &str)>) {
    let mut times: BTreeMap<(EventId, String), usize> = BTreeMap::new();
    for job in jobs {
        *times.entry((job.event.unwrap().id, job.kind)).or_default() += 1;
    }
    let wanted = pairs.into_iter().map(|(event, kind)| ((event, kind.to_owned()), 1)).collect();
    assert_eq!(times, wanted);
}

/// A subscription with an order and one that coalesces, to a relay for an engine: what it has not is refused with the field, and nothing is
/// declared.
pub async fn y4_an_order_and_coalescing_are_kept_or_refused(engine: &dyn Engine) {
    let (scene, _) = scene(engine).await;
    let jobs = engine_of(&scene);
    let has_order = jobs.as_ref().is_none_or(|jobs| jobs.capabilities().order_keys);
    // the latest event takes the place of another one in the relay's own tables
    let has_coalescing = jobs.is_none();
    let (ordered, latest) = ["t.ordered", "t.latest"].map(|name| Subscription::new(name, ["t.made"])).into();
    for (has, field, name, subscription) in [
        (has_order, "order_by", "t.ordered", ordered.order_by(OrderBy::Subject)),
        (has_coalescing, "coalescing", "t.latest", latest.coalescing()),
    ] {
        let built = bus(&scene, jobs.clone(), [subscription]).build().await;
        if has {
            built.unwrap();
            continue;
        }
        let Err(Error::Declarations(refused)) = built else { panic!("{field} is not refused: {built:?}") };
        assert_eq!(refused.len(), 1, "{refused:?}");
        assert_eq!((refused[0].code, refused[0].field.as_str()), (Code::Capability, field));
        assert!(refused[0].message.contains(name), "{}", refused[0].message);
        let sql = "select count(*) from postrider.subscription";
        let declared: i64 = sqlx::query_scalar(sql).fetch_one(scene.pool()).await.unwrap();
        assert_eq!(declared, 0);
    }
    scene.stop().await;
}

/// An order that a subscription got in SQL, where nobody knows for which engine the relay works: what has no order is given no job that needs
/// one, and each is told and waits.
pub async fn y4_an_order_that_was_asked_for_in_sql_is_kept_or_its_events_wait(engine: &dyn Engine) {
    let (scene, mut heard) = scene(engine).await;
    let pool = scene.pool();
    let jobs = engine_of(&scene);
    let has_order = jobs.as_ref().is_none_or(|jobs| jobs.capabilities().order_keys);
    relay(&scene, jobs.clone()).await.stop(SOON).await;
    run(pool, "select postrider.put_subscription('t.copy', '{t.made}', 't.copy', order_by => 'subject')").await;
    let running = bus(&scene, jobs, []).build().await.unwrap().start().unwrap();
    let event = record_about(&mut pool.acquire().await.unwrap(), "thing/1").await;
    if !has_order {
        let pair = aside(pool, 0).await;
        assert_eq!((pair.event, pair.name.as_deref()), (event, Some("t.copy")));
        assert!(pair.error.contains("order_key"), "{}", pair.error);
        run(pool, "select postrider.put_subscription('t.copy', '{t.made}', 't.copy')").await;
        proof::requeue(pool, Some(event), None).await.unwrap();
    }
    heard_once(&scene, &mut heard, &[event]).await;
    running.stop(SOON).await;
}

/// One event of many cannot become a job of one of two subscriptions.
pub async fn y5_a_pair_that_cannot_be_is_set_aside_and_told_until_it_is_requeued(engine: &dyn Engine) {
    let (mouth, mut heard) = Heard::new();
    let mut app = App::new([telling("t.copy", mouth.clone()), telling("t.picky", mouth)]);
    app.settings.relay = false;
    let scene = Scene::at_work(engine, app).await;
    let pool = scene.pool();
    let subscriptions = ["t.copy", "t.picky"].map(|name| Subscription::new(name, ["t.made"]));
    let running = bus(&scene, engine_of(&scene), subscriptions).build().await.unwrap().start().unwrap();
    scene.stage().perils().forbid("t.picky", BAD).await;
    let mut events = records(pool, 16).await;
    let bad = record_about(&mut pool.acquire().await.unwrap(), BAD).await;
    events.extend(records(pool, 16).await);

    // until it was tried as often as it is tried by itself; others flow meanwhile
    let mut pair = aside(pool, 0).await;
    while pair.retry_at.is_some() {
        run(pool, "update postrider.poison set retry_at = clock_timestamp() where retry_at is not null").await;
        events.extend(records(pool, 8).await);
        pair = aside(pool, pair.tries).await;
    }
    assert_eq!((pair.event, pair.name.as_deref(), pair.tries), (bad, Some("t.picky"), 5));
    assert!(pair.error.contains(FORBIDDEN), "{}", pair.error);
    let alarm = alert(pool, "poison").await.unwrap();
    assert_eq!((alarm.severity, alarm.subject.as_str()), (Severity::Critical, "subscription t.picky"));
    assert!(alarm.remedy.contains("requeue"), "{}", alarm.remedy);

    // it stays where it is although it could be made now
    scene.stage().perils().allow().await;
    events.extend(records(pool, 8).await);
    let mut pairs: BTreeSet<_> = events.iter().flat_map(|event| [(*event, "t.copy"), (*event, "t.picky")]).collect();
    pairs.insert((bad, "t.copy"));
    let mut jobs = Vec::new();
    while jobs.len() < pairs.len() {
        jobs.push(heard.next().await);
    }
    each_once(jobs.clone(), pairs.clone());
    assert_eq!(aside(pool, 0).await.tries, 5);

    assert_eq!(proof::requeue(pool, Some(bad), Some("t.picky")).await.unwrap(), 1);
    jobs.push(heard.next().await);
    until("nothing is aside", SOON, async || proof::poison(pool, 1).await.unwrap().is_empty().then_some(())).await;
    assert_eq!(proof::requeue(pool, None, None).await.unwrap(), 0);
    assert_eq!(alert(pool, "poison").await, None);
    running.stop(SOON).await;
    scene.stop().await;
    jobs.extend(heard.rest());
    pairs.insert((bad, "t.picky"));
    each_once(jobs, pairs);
    let whole = proof::verify(pool, None, None).await.unwrap();
    assert!(whole.is_whole(), "{whole:?}");
}

/// The database is one of a cluster with another identifier and has lost how far its sequences were. Some of its events have jobs, some have
/// not, and more come.
pub async fn y9_in_another_cluster_nothing_is_lost_and_nothing_is_made_again(engine: &dyn Engine) {
    let (scene, mut heard) = scene(engine).await;
    let pool = scene.pool();
    let before = relay(&scene, engine_of(&scene)).await;
    let mut events = records(pool, 24).await;
    for event in &events {
        proof::await_fanout(pool, *event, SOON).await.unwrap().unwrap();
    }
    before.stop(SOON).await;
    events.extend(records(pool, 24).await);
    run(
        pool,
        "select setval('postrider.event_number', 1, false), setval('postrider.job_number', 1, false);
         update postrider.log_epoch set system_identifier = system_identifier + 1",
    )
    .await;
    let after = relay(&scene, engine_of(&scene)).await;
    until("it is rebased", SOON, async || {
        let sql = "select count(*) from postrider.log_epoch";
        (sqlx::query_scalar::<_, i64>(sql).fetch_one(pool).await.unwrap() == 2).then_some(())
    })
    .await;
    events.extend(records(pool, 24).await);
    heard_once(&scene, &mut heard, &events).await;
    after.stop(SOON).await;
    assert!(alert(pool, "rebased").await.is_some(), "nobody is told");
    let whole = proof::verify(pool, None, None).await.unwrap();
    assert!(whole.is_whole(), "{whole:?}");
    assert_eq!(whole.fanned_out, 72);
}
