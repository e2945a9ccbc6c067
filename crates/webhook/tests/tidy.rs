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
use serde_json::{Value, json};
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

    /// Waits for the request with this number and has the engine take the worker that sent it for lost, at the last attempt of its delivery, which
    /// it answers with.
    async fn lose(&self, sink: &Sink, request: usize) -> String {
        sink.wait_for(request, SOON).await;
        let (delivery, lease): (i64, i64) =
            sqlx::query_as("select open[1], id from postrider.lease").fetch_one(self.pool()).await.unwrap();
        sqlx::query("update postrider.job set max_attempts = 1 where id = $1")
            .bind(delivery)
            .execute(self.pool())
            .await
            .unwrap();
        sqlx::query("select postrider.put_back($1, true, true)").bind(lease).execute(self.pool()).await.unwrap();
        delivery.to_string()
    }

    /// What was told of deliveries that were given up.
    async fn exhausted(&self) -> Vec<Value> {
        let sql = "select data::text from postrider.event where type = 'postrider.delivery.exhausted' order by seq";
        let told: Vec<String> = sqlx::query_scalar(sql).fetch_all(self.pool()).await.unwrap();
        told.iter().map(|data| serde_json::from_str(data).unwrap()).collect()
    }

    async fn figures(&self) -> BTreeMap<String, i64> {
        let figures = self.endpoints.figures().await.unwrap();
        figures.into_iter().map(|figure| (format!("{} {}", figure.name, figure.attribute), figure.value)).collect()
    }
}

/// An endpoint whose deliveries the engine tries once.
fn one(sink: &Sink) -> NewEndpoint {
    NewEndpoint {
        max_attempts: 1,
        timeout: Duration::from_mins(1),
        ..NewEndpoint::new("billing", sink.url("/in"), ["order.*"])
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

#[tokio::test]
async fn a_delivery_that_is_lost_with_its_worker_at_its_last_attempt_is_told_as_exhausted_once() {
    let (stage, sink) = (Stage::set().await, Sink::start().await.unwrap());
    let (id, _) = stage.create(NewEndpoint { owner: "acme".into(), ..one(&sink) }).await;
    sink.script(vec![Reply::Stall(Vec::new()); 5]);
    let event = stage.record("order.paid", "acme", "{}").await;
    let delivery = stage.lose(&sink, 1).await;
    assert_eq!(stage.until("discarded").await.reason.as_deref(), Some("worker lost"));
    assert_eq!(stage.exhausted().await, Vec::<Value>::new());
    for _ in 0..3 {
        stage.housekeep().await;
    }
    let told = stage.exhausted().await;
    let expected = json!({"endpoint": id, "delivery": delivery, "event": event, "type": "order.paid", "attempts": 1, "reason": "worker lost"});
    assert_eq!(told, [expected]);
    assert_eq!(stage.number("select count(*) from postrider.event where owner = 'acme'").await, 2, "it is its owner's");
    let attempt = stage.endpoints.attempts(1).await.unwrap().remove(0);
    assert_eq!(attempt.outcome, None);
    assert_eq!(attempt.reason.as_deref(), Some("worker lost: whether the request was taken is not known"));

    // sent once more and lost once more it is given up once more
    stage.endpoints.redeliver(&delivery).await.unwrap();
    stage.lose(&sink, 2).await;
    for _ in 0..3 {
        stage.housekeep().await;
    }
    assert_eq!(stage.exhausted().await.len(), 2);
    stage.strike().await;
}

#[tokio::test]
async fn a_lost_delivery_is_not_told_as_exhausted_if_it_was_taken_or_told_before_or_is_a_test() {
    let (stage, sink) = (Stage::set().await, Sink::start().await.unwrap());
    let (id, _) = stage.create(one(&sink)).await;
    sink.script([Reply::Stall(Vec::new())]);
    let ended = "select count(*) from postrider.done where ended_as = 4";
    // the handler wrote how it ended, and its worker was lost before the engine knew
    for (n, outcome) in ["delivered", "discarded", "failed"].into_iter().enumerate() {
        sink.script([Reply::Stall(Vec::new())]);
        stage.record("order.paid", "", "{}").await;
        sink.wait_for(n + 1, SOON).await;
        sqlx::query(
            "update postrider.delivery_attempt set outcome = $1, ended_at = clock_timestamp() where outcome is null",
        )
        .bind(outcome)
        .execute(stage.pool())
        .await
        .unwrap();
        stage.lose(&sink, n + 1).await;
        stage.until_number(ended, i64::try_from(n).unwrap() + 1).await;
    }
    stage.endpoints.send_test(id).await.unwrap();
    stage.lose(&sink, 4).await;
    stage.until_number(ended, 4).await;
    stage.housekeep().await;
    assert_eq!(stage.exhausted().await, Vec::<Value>::new());
    stage.strike().await;
}

#[tokio::test]
async fn a_delivery_that_was_put_off_until_it_was_too_old_is_told_as_exhausted_once() {
    let (stage, sink) = (Stage::set().await, Sink::start().await.unwrap());
    let (id, _) = stage.create(one(&sink)).await;
    stage.endpoints.disable(id, "moving house").await.unwrap();
    stage.record("order.paid", "", "{}").await;
    stage.until("held").await;
    stage.pass(DAY * 91).await;
    sink.script([Reply::with_header(429, "retry-after", "60")]);
    stage.endpoints.enable(id).await.unwrap();
    let reason = "put off until it was too old: the kind's max_age is 7776000 s";
    assert_eq!(stage.until("discarded").await.reason.as_deref(), Some(reason));
    for _ in 0..3 {
        stage.housekeep().await;
    }
    let told = stage.exhausted().await;
    assert_eq!((told.len(), &told[0]["reason"], &told[0]["endpoint"]), (1, &json!(reason), &json!(id)));
    stage.strike().await;
}

#[tokio::test]
async fn a_delivery_that_was_given_up_in_an_attempt_that_could_not_be_written_is_told_as_exhausted_once() {
    let (stage, sink) = (Stage::set().await, Sink::start().await.unwrap());
    stage.create(one(&sink)).await;
    sqlx::raw_sql(
        "create function public.refuse() returns trigger language plpgsql as $$ begin raise exception 'no'; end $$;
         create trigger refuse before update on postrider.delivery_attempt for each row execute function public.refuse()",
    )
    .execute(stage.pool())
    .await
    .unwrap();
    sink.script([Reply::Status(500)]);
    stage.record("order.paid", "", "{}").await;
    let reason = stage.until("discarded").await.reason.unwrap();
    assert_eq!(stage.number("select count(*) from postrider.delivery_attempt where outcome is null").await, 1);
    sqlx::raw_sql("drop trigger refuse on postrider.delivery_attempt").execute(stage.pool()).await.unwrap();
    // and one that could tell, beside it
    sink.script([Reply::Status(500)]);
    stage.record("order.paid", "", "{}").await;
    stage.until_number("select count(*) from postrider.done where state = 3", 2).await;
    assert_eq!(stage.exhausted().await.len(), 1);
    for _ in 0..3 {
        stage.housekeep().await;
    }
    let told = stage.exhausted().await;
    assert_eq!((told.len(), &told[1]["reason"]), (2, &json!(reason)));
    stage.strike().await;
}

#[tokio::test]
async fn those_that_were_given_up_while_many_of_other_kinds_were_are_told_one_after_the_other() {
    let (stage, sink) = (Stage::set().await, Sink::start().await.unwrap());
    stage.create(one(&sink)).await;
    sink.script([Reply::Stall(Vec::new())]);
    stage.record("order.paid", "", "{}").await;
    let delivery = stage.lose(&sink, 1).await;
    // others of the same class at the same moment and after it, more than are looked at together
    sqlx::raw_sql(
        "insert into postrider.done (class, id, finished_at, state, ended_as, attempt, reason)
         select 2, 1000000 + 4 * n + 2, d.finished_at + (n % 3) * interval '1 second', 3, 3, 1, 'x'
           from generate_series(1, 2500) n, postrider.done d where d.ended_as = 4",
    )
    .execute(stage.pool())
    .await
    .unwrap();
    for _ in 0..3 {
        stage.housekeep().await;
    }
    assert_eq!(stage.exhausted().await.iter().map(|told| &told["delivery"]).collect::<Vec<_>>(), [&json!(delivery)]);
    assert_eq!(stage.number("select count(*) from postrider.end_seen").await, 2_501);
    // what is long over is not kept in mind
    sqlx::raw_sql(
        "insert into postrider.done (class, id, finished_at, state, ended_as, attempt, reason)
                   select 2, 2000002, clock_timestamp() + interval '1 hour', 3, 3, 1, 'x'",
    )
    .execute(stage.pool())
    .await
    .unwrap();
    for _ in 0..2 {
        stage.housekeep().await;
    }
    assert_eq!((stage.number("select count(*) from postrider.end_seen").await, stage.exhausted().await.len()), (1, 1));
    stage.strike().await;
}
