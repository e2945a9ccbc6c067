//! What becomes of endpoints that fail: they cool down, are probed, warned, disabled, enabled; C61, C65, F66.
#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a failed helper is a failed test, and a test asks the database itself"
)]

mod stage;
#[path = "stage/time.rs"]
mod time;

use std::time::Duration;

use postrider_testkit::{Reply, Sink, until};
use postrider_webhook::{Endpoint, EndpointChange, EndpointId, Health, NewEndpoint};
use stage::Stage;
use time::SOON;

const HOUR: Duration = Duration::from_hours(1);
const DONE: &str = "select count(*) from postrider.done";
const WAITING: &str = "select count(*) from postrider.parked";

impl Stage {
    async fn look(&self, id: EndpointId) -> Endpoint {
        self.endpoints.get(id).await.unwrap().unwrap()
    }

    async fn events(&self, n: usize) {
        for _ in 0..n {
            self.record("order.paid", "", "{}").await;
        }
    }

    /// What Postrider told of endpoints: types, and how far a warning was.
    async fn told(&self) -> Vec<String> {
        let sql = "select substr(type, 11) || coalesce(' ' || (data ->> 'percent'), '') from postrider.event
                    where type like 'postrider.%' order by seq";
        sqlx::query_scalar(sql).fetch_all(self.pool()).await.unwrap()
    }

    async fn triggers(&self) -> Vec<String> {
        let mut attempts = self.endpoints.attempts(200).await.unwrap();
        attempts.reverse();
        attempts.into_iter().map(|attempt| attempt.trigger).collect()
    }

    /// An endpoint that gets one attempt for each event, one at a time.
    async fn frail(&self, sink: &Sink) -> EndpointId {
        let new = NewEndpoint {
            max_attempts: 1,
            max_in_flight: 1,
            ..NewEndpoint::new("billing", sink.url("/in"), ["order.*"])
        };
        self.create(new).await.0
    }
}

#[tokio::test]
async fn c61_four_failures_to_one_success_are_found_at_the_twentieth_attempt_and_told_once() {
    let (stage, sink) = (Stage::set().await, Sink::start().await.unwrap());
    let id = stage.frail(&sink).await;
    let pattern = [500, 500, 500, 500, 204].map(Reply::Status);
    sink.script(pattern.iter().cloned().cycle().take(19));
    stage.events(19).await;
    stage.until_number(DONE, 19).await;
    assert_eq!(stage.look(id).await.health.failing_since, None, "19 attempts are too few to tell");
    sink.script([Reply::Status(500)]);
    stage.events(5).await;
    until("it is failing", SOON, async || stage.look(id).await.health.failing_since).await;
    stage.until_number(WAITING, 4).await;
    let health = stage.look(id).await.health;
    assert_eq!((health.in_flight, health.held_reason.as_deref()), (Some(1), Some("most attempts fail: it cools down")));
    let held = stage
        .number("select (extract(epoch from max(held_until) - clock_timestamp()))::bigint from postrider.key_limit")
        .await;
    assert!((290..=330).contains(&held), "five minutes, up to a tenth later: {held}");
    assert_eq!(sink.requests().len(), 20);
    let failing = stage.told().await.into_iter().filter(|said| said == "endpoint.failing").count();
    assert_eq!(failing, 1);
    assert_eq!(stage.until("waiting").await.attempts, 0);
    let evidence: String =
        sqlx::query_scalar("select data::text from postrider.event where type = 'postrider.endpoint.failing'")
            .fetch_one(stage.pool())
            .await
            .unwrap();
    let evidence: serde_json::Value = serde_json::from_str(&evidence).unwrap();
    assert_eq!(
        (&evidence["failed"], &evidence["of"], &evidence["attempts"][0]["status"]),
        (&17.into(), &20.into(), &500.into())
    );
    stage.strike().await;
}

#[tokio::test]
async fn half_of_the_attempts_are_most_and_fewer_are_not() {
    for (failures, failing) in [(9, false), (10, true)] {
        let (stage, sink) = (Stage::set().await, Sink::start().await.unwrap());
        let id = stage.frail(&sink).await;
        sink.script(vec![Reply::Status(204); 20 - failures]);
        sink.script(vec![Reply::Status(500); failures]);
        stage.events(20).await;
        stage.until_number(DONE, 20).await;
        assert_eq!(stage.look(id).await.health.failing_since.is_some(), failing, "{failures} of 20");
        stage.strike().await;
    }
}

#[tokio::test]
async fn c65_behind_a_failing_endpoint_one_probe_at_a_time_is_sent_and_all_arrive_when_it_heals() {
    let (stage, sink) = (Stage::set().await, Sink::start().await.unwrap());
    let id = stage.endpoint("billing", &sink.url("/in")).await.0;
    sink.script(vec![Reply::Status(500); 100]);
    stage.events(8).await;
    until("it is failing", SOON, async || stage.look(id).await.health.failing_since).await;
    stage.until_number(WAITING, 8).await;
    let sent = sink.requests().len();
    assert!((20..=24).contains(&sent), "at most those that were in flight when it was found: {sent}");
    // each cool-down ends with one probe, and its failure begins the next
    for n in 1..=3 {
        stage.pass(Duration::from_secs(331)).await;
        sink.wait_for(sent + n, SOON).await;
        stage.until_number(WAITING, 8).await;
        assert_eq!(sink.requests().len(), sent + n);
        assert_eq!(stage.triggers().await.last().map(String::as_str), Some("probe"));
    }
    assert_eq!(stage.told().await, ["endpoint.failing"], "told once");

    // it heals: what failed is an hour ago, and the first success is a good sign
    let healed = Sink::start().await.unwrap();
    let change = EndpointChange { url: Some(healed.url("/in")), ..EndpointChange::default() };
    stage.endpoints.update(id, change).await.unwrap();
    assert_eq!(stage.number("select most::bigint from postrider.key_limit").await, 1, "a change lets no more in");
    stage.pass(HOUR).await;
    stage.until_number("select count(*) from postrider.done where state = 2", 8).await;
    assert_eq!((sink.requests().len(), healed.requests().len()), (sent + 3, 8));
    stage.events(1).await;
    stage.until_number("select count(*) from postrider.done where state = 2", 9).await;
    until("it is as before", SOON, async || {
        let health = stage.look(id).await.health;
        (health.failing_since.is_none() && health.in_flight.is_none()).then_some(())
    })
    .await;
    assert_eq!(stage.look(id).await.health.silent_since, None);
    let limit: (Option<i32>, Option<i32>) =
        sqlx::query_as("select most, starts from postrider.key_limit").fetch_one(stage.pool()).await.unwrap();
    assert_eq!(limit, (Some(5), None), "as many as it may, and as fast");
    stage.strike().await;
}

#[tokio::test]
async fn retry_after_slows_the_whole_endpoint_and_no_other() {
    let (stage, sink) = (Stage::set().await, Sink::start().await.unwrap());
    let id = stage.endpoint("billing", &sink.url("/in")).await.0;
    stage.create(NewEndpoint::new("other", sink.url("/other"), ["order.shipped"])).await;
    sink.script([Reply::with_header(429, "retry-after", "60")]);
    stage.events(1).await;
    stage.until_number("select count(*) from postrider.delivery_attempt where outcome = 'postponed'", 1).await;
    let health = stage.look(id).await.health;
    assert_eq!(health.held_reason.as_deref(), Some("the endpoint asked to wait"));
    stage.events(3).await;
    stage.record("order.shipped", "", "{}").await;
    // the event for both goes to the other alone
    sink.wait_for(2, SOON).await;
    stage.until_number(WAITING, 4).await;
    assert_eq!(sink.requests().len(), 2);
    stage.pass(Duration::from_secs(70)).await;
    stage.until_number("select count(*) from postrider.done where state = 2", 6).await;
    stage.strike().await;
}

#[tokio::test]
async fn c61_five_days_without_a_success_warn_three_times_and_disable_with_the_evidence() {
    let (stage, sink) = (Stage::set().await, Sink::start().await.unwrap());
    let new = NewEndpoint { max_attempts: 4, ..NewEndpoint::new("billing", sink.url("/in"), ["order.*"]) };
    let id = stage.create(new).await.0;
    sink.script(vec![Reply::with_body(503, "down"); 100]);
    let (mut at, mut done) = (0, 0);
    // hours since the first failure, and what is told then; each delivery fails four times
    for (hours, expected) in [
        (0, vec![]),
        (1, vec![]),
        (2, vec![]),
        (59, vec![]),
        (61, vec!["endpoint.warned 50"]),
        (91, vec!["endpoint.warned 75"]),
        (109, vec!["endpoint.warned 90"]),
        (119, vec![]),
        (121, vec!["endpoint.disabled"]),
    ] {
        stage.pass(HOUR * (hours - at)).await;
        at = hours;
        let before = stage.told().await.len();
        stage.events(1).await;
        let last = expected == ["endpoint.disabled"];
        if last {
            until("it is disabled", SOON, async || stage.look(id).await.disabled).await;
        } else {
            done += 1;
            stage.until_number(DONE, done).await;
        }
        let told = stage.told().await.split_off(before);
        let told: Vec<&str> = told.iter().map(String::as_str).filter(|said| *said != "delivery.exhausted").collect();
        assert_eq!(told, expected, "after {hours} h");
    }
    let disabled = stage.look(id).await.disabled.unwrap();
    assert!(
        disabled.reason.starts_with("nothing was delivered for five days, and 33 attempts failed"),
        "{}",
        disabled.reason
    );
    assert_eq!(disabled.evidence.as_array().unwrap().len(), 5);
    assert_eq!(disabled.evidence[0]["status"], 503);
    let exhausted = stage.told().await.into_iter().filter(|said| said == "delivery.exhausted").count();
    assert_eq!(exhausted, 8, "each delivery that was given up was told");
    stage.strike().await;
}

#[tokio::test]
async fn neither_few_failures_in_six_days_nor_many_with_one_success_disable() {
    let (stage, sink) = (Stage::set().await, Sink::start().await.unwrap());
    let id = stage.frail(&sink).await;
    for n in 1..=11 {
        sink.script([Reply::Status(500)]);
        stage.events(1).await;
        stage.until_number(DONE, n).await;
        stage.pass(HOUR * 14).await;
    }
    let now = stage.look(id).await;
    assert_eq!((now.disabled, now.health.failed), (None, 11), "six days, but eleven failures");
    stage.events(1).await;
    stage.until_number(DONE, 12).await;
    assert_eq!(stage.look(id).await.health.silent_since, None);
    sink.script([Reply::Status(500)]);
    stage.events(1).await;
    stage.until_number(DONE, 13).await;
    let now = stage.look(id).await;
    assert_eq!((now.disabled, now.health.failed), (None, 1), "a success begins it anew");
    stage.strike().await;
}

#[tokio::test]
async fn what_is_told_of_endpoints_goes_to_who_names_it_and_never_round_in_a_circle() {
    let (stage, sink, watch) = (Stage::set().await, Sink::start().await.unwrap(), Sink::start().await.unwrap());
    let everything = Sink::start().await.unwrap();
    let all = NewEndpoint { max_attempts: 1, ..NewEndpoint::new("all", sink.url("/all"), ["**"]) };
    stage.create(all).await;
    stage.create(NewEndpoint::new("everything", everything.url("/in"), ["**"])).await;
    let watcher = NewEndpoint { max_attempts: 1, ..NewEndpoint::new("watcher", watch.url("/watch"), ["postrider.**"]) };
    let (_, secret) = stage.create(watcher).await;
    // the watcher fails itself: that is told of nobody
    watch.script(vec![Reply::Status(500); 9]);
    sink.script([Reply::Status(410)]);
    stage.events(1).await;
    let requests = watch.wait_for(1, SOON).await;
    stage.until_number("select count(*) from postrider.done where state = 3", 2).await;
    requests[0].verify(&secret).unwrap();
    let body: serde_json::Value = serde_json::from_slice(&requests[0].body).unwrap();
    assert_eq!((&body["type"], &body["subject"]), (&"postrider.endpoint.disabled".into(), &"endpoint/1".into()));
    assert_eq!(body["data"]["reason"], "the endpoint answered 410: it is gone");
    assert_eq!(stage.told().await, ["endpoint.disabled"]);
    stage.until_number("select count(*) from postrider.done", 3).await;
    // who wants everything does not get it
    assert_eq!((sink.requests().len(), everything.requests().len()), (1, 1));
    assert_eq!(stage.number("select count(*) from postrider.job").await, 3);
    // Nobody else may say it.
    let refused =
        sqlx::query("select postrider.record('postrider.endpoint.disabled', 'endpoint/1')").execute(stage.pool()).await;
    assert_eq!(refused.unwrap_err().into_database_error().unwrap().code().as_deref(), Some("PR007"));
    stage.strike().await;
}

#[tokio::test]
async fn f66_an_enabled_endpoint_is_probed_first_and_then_gets_all_that_was_held() {
    let (stage, sink) = (Stage::set().await, Sink::start().await.unwrap());
    let id = stage.endpoint("billing", &sink.url("/in")).await.0;
    stage.endpoints.disable(id, "moving house").await.unwrap();
    stage.events(6).await;
    stage.until_number(WAITING, 6).await;
    // longer than a delivery may be put off, and shorter than events are kept
    stage.pass(HOUR * 24 * 12).await;
    assert_eq!((stage.number(WAITING).await, sink.requests().len()), (6, 0));
    sink.script([Reply::Status(500)]);
    assert!(stage.endpoints.enable(id).await.unwrap());
    sink.wait_for(1, SOON).await;
    stage.until_number(WAITING, 6).await;
    assert_eq!(sink.requests().len(), 1, "the probe failed: it cools down");
    assert_eq!(stage.triggers().await, ["probe"]);
    // being put off does not end what was held for longer than deliveries may be put off
    sink.script([Reply::Status(204), Reply::with_header(429, "retry-after", "1")]);
    stage.pass(Duration::from_secs(331)).await;
    stage.until_number("select count(*) from postrider.done where state = 2", 6).await;
    assert_eq!(stage.told().await, ["endpoint.disabled", "endpoint.enabled"]);
    stage.strike().await;
}

#[tokio::test]
async fn an_operator_who_knows_that_an_endpoint_is_well_lets_it_go_on_at_once() {
    let (stage, sink) = (Stage::set().await, Sink::start().await.unwrap());
    let id = stage.frail(&sink).await;
    sink.script(vec![Reply::Status(500); 20]);
    stage.events(30).await;
    until("it is failing", SOON, async || stage.look(id).await.health.failing_since).await;
    stage.until_number(WAITING, 10).await;
    assert!(stage.endpoints.resume(id).await.unwrap());
    stage.until_number("select count(*) from postrider.done where state = 2", 10).await;
    assert_eq!(stage.look(id).await.health, Health::default());
    sink.script([Reply::with_header(429, "retry-after", "36000")]);
    stage.events(2).await;
    stage.until_number("select count(*) from postrider.delivery_attempt where outcome = 'postponed'", 1).await;
    assert!(stage.look(id).await.health.held_until.is_some());
    assert!(stage.endpoints.resume(id).await.unwrap());
    stage.until_number("select count(*) from postrider.done where state = 2", 11).await;
    stage.endpoints.disable(id, "moving house").await.unwrap();
    assert!(!stage.endpoints.resume(id).await.unwrap(), "that is for enable");
    assert!(!stage.endpoints.resume(EndpointId(99)).await.unwrap());
    stage.strike().await;
}
