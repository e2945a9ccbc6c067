//! Endpoints that are changed, disabled, enabled and deleted while their deliveries wait and run; F65.
#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a failed helper is a failed test, and a test asks the database itself"
)]

mod stage;
#[path = "stage/time.rs"]
mod time;

use std::time::Duration;

use postrider::Order;
use postrider_testkit::{Reply, Sink};
use postrider_webhook::{EndpointChange, EndpointId, NewEndpoint, Retries};
use stage::Stage;
use time::SOON;

const DONE: &str = "select count(*) from postrider.done";
const PARKED: &str = "select count(*) from postrider.parked";
/// Deliveries that have not ended, and whatever may be left of some: where jobs wait, what is said of endpoints, attempts whose outcome is open.
const LEFT: &str = "select (select count(*) from postrider.job j where not exists (
                              select from postrider.done d where d.class = j.class and d.id = j.id))
                         + (select count(*) from postrider.ready) + (select count(*) from postrider.later)
                         + (select count(*) from postrider.parked) + (select count(*) from postrider.lease)
                         + (select count(*) from postrider.lane) + (select count(*) from postrider.lane_call)
                         + (select count(*) from postrider.key_limit) + (select count(*) from postrider.cancellation)
                         + (select count(*) from postrider.delivery_attempt where outcome is null)";

impl Stage {
    async fn events(&self, n: usize) {
        for _ in 0..n {
            self.record("order.paid", "", "{}").await;
        }
    }
}

#[tokio::test]
async fn f65_what_waits_for_a_deleted_endpoint_ends_as_cancelled_and_what_is_in_flight_is_recorded_once() {
    let (stage, sink) = (Stage::set().await, Sink::start().await.unwrap());
    let new = NewEndpoint {
        max_in_flight: 1,
        retries: Retries::Steps(vec![Duration::from_hours(1)]),
        ..NewEndpoint::new("billing", sink.url("/in"), ["order.*"])
    };
    let (id, _) = stage.create(new).await;
    // the first one is to be tried again in an hour, the second one is under way
    sink.script([Reply::Status(500), Reply::After(Duration::from_millis(700), Box::new(Reply::Status(204)))]);
    stage.events(1).await;
    stage.until_number("select count(*) from postrider.later", 1).await;
    stage.events(60).await;
    sink.wait_for(2, SOON).await;
    stage.until_number(PARKED, 59).await;
    assert!(stage.endpoints.delete(id).await.unwrap());
    stage.until_number(DONE, 60).await;
    // nobody waits for an hour to hear that
    sqlx::raw_sql("select postrider.housekeep('usual')").execute(stage.pool()).await.unwrap();
    stage.until_number(DONE, 61).await;
    stage.until_number(LEFT, 0).await;
    let ended: Vec<(i16, Option<String>, i64)> =
        sqlx::query_as("select state, reason, count(*) from postrider.done group by 1, 2 order by 1")
            .fetch_all(stage.pool())
            .await
            .unwrap();
    assert_eq!(ended, [(2, None, 1), (4, Some("the endpoint was deleted".to_owned()), 60)]);
    let attempts = stage.endpoints.attempts_of(id, 200).await.unwrap();
    let of = |outcome: &str| attempts.iter().filter(|a| a.outcome.as_deref() == Some(outcome)).count();
    assert_eq!((of("delivered"), of("failed"), of("skipped"), sink.requests().len()), (1, 1, 59, 2));
    let deliveries = stage.endpoints.deliveries(200).await.unwrap();
    assert_eq!(deliveries.iter().filter(|delivery| delivery.state == "cancelled").count(), 60);
    // and once nothing can wait any more it is not looked for any more
    for cleared in [0, 1] {
        sqlx::raw_sql("select postrider.housekeep('usual')").execute(stage.pool()).await.unwrap();
        assert_eq!(stage.number("select count(cleared_at) from postrider.endpoint").await, cleared);
        stage.pass(Duration::from_mins(6)).await;
    }
    stage.strike().await;
}

#[tokio::test]
async fn f65_a_deletion_waits_for_none_of_the_deliveries() {
    let (stage, sink) = (Stage::set().await, Sink::start().await.unwrap());
    let (id, _) = stage.endpoint("billing", &sink.url("/in")).await;
    stage.endpoints.disable(id, "moving house").await.unwrap();
    stage.events(20).await;
    stage.until_number(PARKED, 20).await;
    let mut held = stage.pool().begin().await.unwrap();
    sqlx::raw_sql("select from postrider.parked for update; select from postrider.lane for update; select from postrider.job for update")
        .execute(&mut *held)
        .await
        .unwrap();
    assert!(tokio::time::timeout(SOON, stage.endpoints.delete(id)).await.unwrap().unwrap());
    held.rollback().await.unwrap();
    stage.until_number(LEFT, 0).await;
    assert_eq!(stage.until("cancelled").await.attempts, 1);
    assert_eq!(sink.requests().len(), 0);
    stage.strike().await;
}

#[tokio::test]
async fn f65_a_lane_that_stopped_for_an_endpoint_goes_on_when_it_is_deleted() {
    let (stage, sink) = (Stage::set().await, Sink::start().await.unwrap());
    // behind one that was given up, and behind one that failed and waits for an operator
    for (name, max_attempts, order) in [("given-up", 1, Order::Park(3)), ("failed", 5, Order::Park(1))] {
        let new = NewEndpoint {
            max_attempts,
            order: Some(order),
            retries: Retries::Steps(vec![Duration::from_hours(1)]),
            ..NewEndpoint::new(name, sink.url("/in"), ["order.*"])
        };
        let (id, _) = stage.create(new).await;
        sink.script([Reply::Status(500)]);
        stage.events(4).await;
        stage.until_number("select count(*) from postrider.lane where stopped_at is not null", 1).await;
        let sent = sink.requests().len();
        stage.endpoints.delete(id).await.unwrap();
        sqlx::raw_sql("select postrider.housekeep('usual')").execute(stage.pool()).await.unwrap();
        stage.until_number(LEFT, 0).await;
        assert_eq!(sink.requests().len(), sent, "{name}");
    }
    stage.strike().await;
}

#[tokio::test]
async fn f65_an_endpoint_that_is_changed_disabled_and_enabled_all_the_time_and_then_deleted_leaves_nothing_behind() {
    let (stage, sink) = (Stage::set().await, Sink::start().await.unwrap());
    let mut ids: Vec<EndpointId> = Vec::new();
    for (name, order) in [("any", None), ("skip", Some(Order::Skip)), ("park", Some(Order::Park(2)))] {
        let new = NewEndpoint { max_in_flight: 2, order, ..NewEndpoint::new(name, sink.url("/in"), ["order.*"]) };
        ids.push(stage.create(new).await.0);
    }
    let replies =
        [204, 500, 204, 204].map(|status| Reply::After(Duration::from_millis(20), Box::new(Reply::Status(status))));
    sink.script(replies.iter().cloned().cycle().take(2_000));
    for round in 0..12 {
        stage.events(10).await;
        for id in &ids {
            let change = EndpointChange {
                max_in_flight: Some(1 + round % 4),
                url: Some(sink.url(&format!("/{round}"))),
                ..EndpointChange::default()
            };
            match round % 3 {
                0 => assert!(stage.endpoints.disable(*id, "for a moment").await.unwrap()),
                1 => assert!(stage.endpoints.enable(*id).await.unwrap()),
                _ => drop(stage.endpoints.update(*id, change).await.unwrap().unwrap()),
            }
        }
    }
    for id in &ids {
        assert!(stage.endpoints.delete(*id).await.unwrap());
        stage.events(3).await;
    }
    sqlx::raw_sql("select postrider.housekeep('usual')").execute(stage.pool()).await.unwrap();
    stage.until_number(LEFT, 0).await;
    let other = "select count(*) from postrider.done where not (state = 2 or state = 4 and reason = 'the endpoint was deleted')";
    assert_eq!(stage.number(other).await, 0);
    // an event that an endpoint took, it took once
    let twice = "select count(*) from (
        select from postrider.delivery_attempt where outcome = 'delivered' group by endpoint, event having count(*) > 1) x";
    assert_eq!(stage.number(twice).await, 0);
    let taken = stage.number("select count(*) from postrider.delivery_attempt where outcome = 'delivered'").await;
    assert_eq!(stage.number("select count(*) from postrider.done where state = 2").await, taken);
    stage.strike().await;
}
