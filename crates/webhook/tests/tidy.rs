//! What housekeeping does about endpoints, and what an operator is told.
#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a failed helper is a failed test, and a test asks the database itself"
)]

mod stage;
#[path = "stage/time.rs"]
mod time;

use std::collections::BTreeMap;
use std::time::Duration;

use postrider::inspect::{self, Severity};
use postrider_testkit::{Reply, Sink, until};
use postrider_webhook::{NewEndpoint, NewReplay, Rotation};
use stage::Stage;
use time::SOON;

const DAY: Duration = Duration::from_hours(24);

impl Stage {
    async fn housekeep(&self) {
        sqlx::raw_sql("select postrider.housekeep('usual')").execute(self.pool()).await.unwrap();
    }

    /// A day goes by, and housekeeping comes; what is old enough goes.
    async fn day(&self) {
        self.pass(DAY).await;
        let older = "update postrider.epoch set started_at = started_at - interval '1 day';
             update postrider.done set finished_at = finished_at - interval '1 day';
             update postrider.pinned set since = since - interval '1 day', look_at = look_at - interval '1 day'";
        sqlx::raw_sql(older).execute(self.pool()).await.unwrap();
        self.housekeep().await;
        let retire = "select coalesce((postrider.housekeep('retire') ->> 'again')::boolean, false)";
        while sqlx::query_scalar::<_, bool>(retire).fetch_one(self.pool()).await.unwrap() {}
    }

    /// Name, severity and subject of what endpoints are about.
    async fn alerts(&self) -> Vec<(String, Severity, String)> {
        let alerts = inspect::alerts(self.pool()).await.unwrap();
        let of = alerts.into_iter().filter(|alert| alert.name.starts_with("endpoint_"));
        of.map(|alert| {
            assert!(!alert.remedy.is_empty() && !alert.says.is_empty());
            (alert.name, alert.severity, alert.subject)
        })
        .collect()
    }

    async fn figures(&self) -> BTreeMap<String, i64> {
        let figures = self.endpoints.figures().await.unwrap();
        figures.into_iter().map(|figure| (format!("{} {}", figure.name, figure.attribute), figure.value)).collect()
    }
}

#[tokio::test]
async fn secrets_that_ended_and_attempts_that_no_rule_counts_are_forgotten() {
    let (stage, sink) = (Stage::set().await, Sink::start().await.unwrap());
    let (id, _) = stage.endpoint("billing", &sink.url("/in")).await;
    stage.endpoints.rotate_secret(id, Rotation::default()).await.unwrap().unwrap();
    stage.record("order.paid", "", "{}").await;
    stage.until("delivered").await;
    stage.housekeep().await;
    let left = "select (select count(*) from postrider.endpoint_secret) * 10 + (select count(*) from postrider.endpoint_window)";
    assert_eq!(stage.number(left).await, 21);
    stage.pass(DAY + Duration::from_secs(1)).await;
    stage.housekeep().await;
    stage.until_number(left, 10).await;
    stage.strike().await;
}

#[tokio::test]
async fn attempts_are_kept_as_long_as_their_deliveries_and_those_of_what_lives_stay() {
    let (stage, sink) = (Stage::set().await, Sink::start().await.unwrap());
    let (id, _) = stage.endpoint("billing", &sink.url("/in")).await;
    sink.script([Reply::Status(204), Reply::with_header(429, "retry-after", "36000")]);
    stage.record("order.paid", "", "{}").await;
    stage.until("delivered").await;
    stage.record("order.paid", "", "{}").await;
    stage.until_number("select count(*) from postrider.delivery_attempt where outcome = 'postponed'", 1).await;
    stage.until_number("select count(*) from postrider.lease", 0).await;
    stage.endpoints.disable(id, "moving house").await.unwrap();
    for _ in 0..6 {
        stage.day().await;
    }
    let delivered = "select count(*) from postrider.delivery_attempt where outcome = 'delivered'";
    assert_eq!(stage.number(delivered).await, 1, "the class standard is kept for seven days");
    for _ in 0..4 {
        stage.day().await;
    }
    stage.until_number(delivered, 0).await;
    assert_eq!(stage.until("held").await.attempts, 1, "it lives, and so does what is known of it");
    stage.strike().await;
}

#[tokio::test]
async fn what_was_held_for_as_long_as_events_are_kept_ends_as_cancelled_and_says_so() {
    let (stage, sink) = (Stage::set().await, Sink::start().await.unwrap());
    let (id, _) = stage.endpoint("billing", &sink.url("/in")).await;
    stage.endpoints.disable(id, "moving house").await.unwrap();
    for _ in 0..3 {
        stage.record("order.paid", "", "{}").await;
    }
    stage.until_number("select count(*) from postrider.parked", 3).await;
    stage.pass(DAY * 29).await;
    stage.record("order.paid", "", "{}").await;
    stage.until_number("select count(*) from postrider.parked", 4).await;
    stage.housekeep().await;
    assert_eq!(stage.number("select count(*) from postrider.parked").await, 4);
    stage.pass(DAY * 2).await;
    stage.housekeep().await;
    stage.until_number("select count(*) from postrider.done where state = 4", 3).await;
    let deliveries = stage.endpoints.deliveries(9).await.unwrap();
    let states: Vec<&str> = deliveries.iter().map(|delivery| delivery.state.as_str()).collect();
    assert_eq!(states, ["held", "cancelled", "cancelled", "cancelled"]);
    assert_eq!(deliveries[3].reason.as_deref(), Some("its endpoint was disabled for as long as events are kept"));
    stage.endpoints.enable(id).await.unwrap();
    stage.until("delivered").await;
    assert_eq!(sink.requests().len(), 1);
    stage.strike().await;
}

#[tokio::test]
async fn a_replay_that_nobody_drives_goes_on() {
    let (stage, sink) = (Stage::set().await, Sink::start().await.unwrap());
    let new = NewEndpoint { max_attempts: 1, ..NewEndpoint::new("billing", sink.url("/in"), ["order.*"]) };
    let (id, _) = stage.create(new).await;
    sink.script([Reply::Status(500)]);
    stage.record("order.paid", "", "{}").await;
    stage.until("discarded").await;
    let now = stage.number("select (extract(epoch from clock_timestamp()) * 1000000)::bigint").await;
    let at = postrider::Timestamp::from_micros;
    let plan =
        stage.endpoints.plan_replay(id, &NewReplay::new(at(now - 3_600_000_000), at(now))).await.unwrap().unwrap();
    // as if whoever drove it had been discarded
    sqlx::query("update postrider.delivery_replay set state = 'running', created_at = created_at - interval '6 minutes' where id = $1")
        .bind(plan.id.0).execute(stage.pool()).await.unwrap();
    stage.housekeep().await;
    stage.until_number("select count(*) from postrider.delivery_replay where state = 'done'", 1).await;
    stage.until("delivered").await;
    stage.strike().await;
}

#[tokio::test]
async fn an_operator_is_told_of_endpoints_and_numbers_are_gathered() {
    let (stage, sink) = (Stage::set().await, Sink::start().await.unwrap());
    let one =
        |name: &str, r#type: &str| NewEndpoint { max_attempts: 1, ..NewEndpoint::new(name, sink.url("/in"), [r#type]) };
    let (failing, _) = stage.create(one("billing", "order.paid")).await;
    let (disabled, _) = stage.create(one("stock", "order.shipped")).await;
    stage.endpoint("all", &sink.url("/in")).await;
    stage.endpoints.delete(postrider_webhook::EndpointId(3)).await.unwrap();
    assert_eq!(stage.alerts().await, []);
    sink.script(vec![Reply::Status(500); 20]);
    for _ in 0..20 {
        stage.record("order.paid", "", "{}").await;
    }
    until("it is failing", SOON, async || stage.endpoints.get(failing).await.unwrap().unwrap().health.failing_since)
        .await;
    stage.endpoints.disable(disabled, "moving house").await.unwrap();
    for _ in 0..2 {
        stage.record("order.shipped", "", "{}").await;
    }
    stage.until_number("select count(*) from postrider.parked where key = 'limit:endpoint:2'", 2).await;
    stage.until_number("select count(*) from postrider.lease", 0).await;
    let expected = [
        ("endpoint_disabled".to_owned(), Severity::Critical, "endpoint 2".to_owned()),
        ("endpoint_failing".to_owned(), Severity::Warning, "endpoint 1".to_owned()),
    ];
    assert_eq!(stage.alerts().await, expected);
    let expected = [
        ("postrider.webhook.attempts delivered", 0),
        ("postrider.webhook.attempts failed", 20),
        ("postrider.webhook.endpoints disabled", 1),
        ("postrider.webhook.endpoints enabled", 0),
        ("postrider.webhook.endpoints failing", 1),
        ("postrider.webhook.held ", 2),
    ];
    assert_eq!(stage.figures().await, expected.map(|(name, n)| (name.to_owned(), n)).into());
    sqlx::raw_sql("update postrider.endpoint_health set warned = 50 where endpoint = 1")
        .execute(stage.pool())
        .await
        .unwrap();
    assert!(stage.alerts().await.iter().any(|(name, ..)| name == "endpoint_silent"));
    assert_eq!(stage.until("held").await.endpoint, disabled);
    stage.strike().await;
}
