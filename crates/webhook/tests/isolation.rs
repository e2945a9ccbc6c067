//! What one endpoint does to others, and many to all: C52, C65, F61, F62.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a failed helper is a failed test, and a test asks the database itself"
)]

mod stage;
#[path = "stage/time.rs"]
mod time;

use std::collections::BTreeMap;
use std::time::Duration;

use postrider_testkit::{Reply, Sink, until};
use postrider_webhook::{EndpointChange, NewEndpoint, Retries};
use stage::Stage;
use time::SOON;

const FOR_EVER: Duration = Duration::from_hours(1);

#[tokio::test]
async fn f61_an_endpoint_that_hangs_takes_its_own_slots_and_nobody_elses() {
    let (stage, hanging, healthy) = (Stage::set().await, Sink::start().await.unwrap(), Sink::start().await.unwrap());
    let acme = NewEndpoint {
        owner: "acme".into(),
        max_in_flight: 3,
        timeout: Duration::from_secs(60),
        ..NewEndpoint::new("acme", hanging.url("/in"), ["order.paid"])
    };
    let (id, _) = stage.create(acme).await;
    stage.create(NewEndpoint { owner: "globex".into(), ..NewEndpoint::new("globex", healthy.url("/in"), ["order.paid"]) }).await;
    hanging.script(vec![Reply::After(FOR_EVER, Box::new(Reply::Status(204))); 100]);
    for _ in 0..60 {
        stage.record("order.paid", "acme", "{}").await;
    }
    hanging.wait_for(3, SOON).await;
    for n in 1..=30 {
        stage.record("order.paid", "globex", "{}").await;
        if n % 10 == 0 {
            healthy.wait_for(n, SOON).await;
        }
    }
    stage.until_number("select count(*) from postrider.done where state = 2", 30).await;
    assert_eq!(hanging.requests().len(), 3, "as many as it may have, and they still hang");
    assert_eq!(stage.number("select count(*) from postrider.parked").await, 57);
    assert_eq!(stage.number("select count(*) from postrider.delivery_attempt where endpoint = 1").await, 3, "waiting costs nothing");
    assert_eq!(stage.endpoints.get(id).await.unwrap().unwrap().health.failed, 0);
    // they are cut off when the test ends, not waited for
    stage.running.stop(Duration::ZERO).await;
}

#[tokio::test]
async fn c52_the_few_events_of_one_owner_do_not_wait_for_the_many_of_another() {
    let (stage, sink) = (Stage::set().await, Sink::start().await.unwrap());
    let of = |owner: &str, name: &str| NewEndpoint {
        owner: owner.into(),
        max_in_flight: 32,
        ..NewEndpoint::new(name, sink.url(&format!("/{owner}")), ["order.*"])
    };
    for n in 0..4 {
        stage.create(of("acme", &format!("acme-{n}"))).await;
    }
    stage.create(of("globex", "globex")).await;
    sink.script(vec![Reply::After(Duration::from_millis(20), Box::new(Reply::Status(204))); 1_000]);
    sqlx::query("select count(postrider.record('order.paid', 'order/' || n, owner => 'acme')) from generate_series(1, 200) n")
        .execute(stage.pool())
        .await
        .unwrap();
    sink.wait_for(20, SOON).await;
    let event = stage.record("order.paid", "globex", "{}").await;
    until("globex is served", SOON, async || {
        sink.requests().iter().any(|request| request.header("webhook-id").as_ref() == Some(&event)).then_some(())
    })
    .await;
    let left = stage.number("select 800 - count(*) from postrider.done where state = 2").await;
    assert!(left > 200, "hundreds of the other's still wait: {left}");
    assert_eq!(stage.until("delivered").await.state, "delivered");
    stage.strike().await;
}

#[tokio::test]
async fn f62_what_an_outage_left_is_made_up_for_at_twice_the_usual_rate_and_nothing_is_lost() {
    let (stage, down) = (Stage::set().await, Sink::start().await.unwrap());
    // what failed waits for an hour
    let retries = Retries::Steps(vec![Duration::from_hours(1)]);
    let new = NewEndpoint { retries, ..NewEndpoint::new("billing", down.url("/in"), ["order.*"]) };
    let (id, _) = stage.create(new).await;
    // the hour before: 180 deliveries, one in twenty seconds, and an outage that has begun
    sqlx::query("insert into postrider.endpoint_window (endpoint, slot, delivered, failed) select $1, clock_timestamp() - n * interval '5 minutes', 15, 14 from generate_series(0, 11) n")
        .bind(id.0)
        .execute(stage.pool())
        .await
        .unwrap();
    down.script(vec![Reply::Status(500); 1_000]);
    let recorded = 25;
    for _ in 0..recorded {
        stage.record("order.paid", "", "{}").await;
    }
    until("it is failing", SOON, async || stage.endpoints.get(id).await.unwrap().unwrap().health.failing_since).await;
    let pace = stage.number("select pace_ms from postrider.endpoint_health").await;
    assert_eq!(pace, 10_000, "one in ten seconds");
    stage.until_number("select count(*) from postrider.lease", 0).await;

    let up = Sink::start().await.unwrap();
    let change = EndpointChange { url: Some(up.url("/in")), ..EndpointChange::default() };
    stage.endpoints.update(id, change).await.unwrap();
    let (mut steps, mut before) = (BTreeMap::<usize, usize>::new(), 0);
    stage.pass(Duration::from_mins(70)).await;
    // ten seconds at a time: what is due within them has been sent when nothing is under way
    while stage.number("select count(*) from postrider.done where state <> 1").await < recorded {
        stage.pass(Duration::from_secs(10)).await;
        tokio::time::sleep(Duration::from_millis(250)).await;
        stage.until_number("select (select count(*) from postrider.lease) + (select count(*) from postrider.ready)", 0).await;
        let now = up.requests().len();
        *steps.entry(now - before).or_default() += 1;
        before = now;
        assert!(steps.values().sum::<usize>() < 300, "{steps:?}");
    }
    println!("requests in ten seconds: {steps:?}");
    // one is twice the usual; two, when a step's beginning and its end are both in it
    assert!(steps.keys().all(|n| *n <= 2), "{steps:?}");
    assert!(steps.get(&2).copied().unwrap_or_default() <= 2, "{steps:?}");
    stage.strike().await;
}
