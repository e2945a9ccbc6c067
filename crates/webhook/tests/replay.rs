//! What is delivered once more: one, all that were given up, a part of the log; and tests. C54, C61, C62, F65–F67.
#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a failed helper is a failed test, and a test asks the database itself"
)]

mod stage;
#[path = "stage/time.rs"]
mod time;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use postrider::Timestamp;
use postrider::inspect;
use postrider_testkit::{Reply, Sink, until};
use postrider_webhook::{EndpointChange, EndpointId, NewEndpoint, NewReplay, Replay, Seal};
use stage::{GRACE, SEAL_KEY, SLOTS, Stage, deliver};
use time::SOON;

const DELIVERED: &str = "select count(*) from postrider.done where state = 2 and id in
    (select id from postrider.job where kind = 'webhook.deliver')";
const GIVEN_UP: &str = "select count(*) from postrider.done where state = 3";

impl Stage {
    /// A time that begins before everything here and ends now.
    async fn until_now(&self) -> NewReplay {
        let now = self.number("select (extract(epoch from clock_timestamp()) * 1000000)::bigint").await;
        let from = now - 3_600_000_000;
        NewReplay::new(Timestamp::from_micros(from), Timestamp::from_micros(now))
    }

    async fn plan(&self, id: EndpointId, new: &NewReplay) -> Replay {
        self.endpoints.plan_replay(id, new).await.unwrap().unwrap()
    }

    /// How often each event was sent, by the id of its request.
    fn sent(sink: &Sink) -> BTreeMap<String, usize> {
        let mut sent = BTreeMap::new();
        for request in sink.requests() {
            *sent.entry(request.header("webhook-id").unwrap()).or_default() += 1;
        }
        sent
    }
}

#[tokio::test]
async fn c54_a_delivery_is_sent_once_more_under_its_id_or_as_a_new_one_under_another() {
    let (stage, sink) = (Stage::set().await, Sink::start().await.unwrap());
    let new = NewEndpoint { max_attempts: 1, ..NewEndpoint::new("billing", sink.url("/in"), ["order.*"]) };
    let (id, secret) = stage.create(new).await;
    sink.script([Reply::Status(500)]);
    let event = stage.record("order.paid", "", "{}").await;
    let given_up = stage.until("discarded").await.id;
    let again = stage.endpoints.redeliver(&given_up).await.unwrap();
    assert_eq!((again.effect.as_str(), again.delivery.as_deref()), ("done", Some(given_up.as_str())));
    stage.until("delivered").await;
    // also what was taken: the receiver knows the id
    assert_eq!(stage.endpoints.redeliver(&given_up).await.unwrap().effect, "done");
    stage.until_number("select count(*) from postrider.delivery_attempt where outcome = 'delivered'", 2).await;
    let as_new = stage.endpoints.redeliver_as_new(&given_up).await.unwrap();
    assert!(as_new.delivery.is_some_and(|delivery| delivery != given_up));
    stage.until_number(DELIVERED, 2).await;

    let requests = sink.requests();
    let ids: Vec<String> = requests.iter().map(|request| request.header("webhook-id").unwrap()).collect();
    assert_eq!(&ids[..3], [&event[..]; 3]);
    assert_ne!(ids[3], event);
    for request in &requests {
        request.verify(&secret).unwrap();
        assert_eq!(request.body, requests[0].body, "the same bytes, with the event's id");
    }
    let attempts = stage.endpoints.attempts_of(id, 9).await.unwrap();
    let triggers: Vec<&str> = attempts.iter().rev().map(|attempt| attempt.trigger.as_str()).collect();
    assert_eq!(triggers, ["auto", "manual", "manual", "manual"]);
    assert_eq!((attempts[0].sent_as.as_ref(), attempts[0].event.as_ref()), (Some(&ids[3]), Some(&event)));
    for (unknown, expected) in [("123456", "unknown"), ("70368744177666", "unknown")] {
        assert_eq!(stage.endpoints.redeliver(unknown).await.unwrap().effect, expected);
    }
    let refused = stage.endpoints.redeliver("no number").await.unwrap_err();
    assert!(refused.to_string().contains(" delivery: "), "{refused}");
    // another kind may say what it likes in its args
    sqlx::raw_sql("insert into postrider.job (class, id, kind, queue, priority, max_attempts, args) values (2, 999998, 'k.a', 'default', 2, 1, '{\"endpoint\": \"x\"}')")
        .execute(stage.pool())
        .await
        .unwrap();
    assert_eq!(stage.endpoints.deliveries(9).await.unwrap().len(), 2);
    // what is sent once more is no job that the relay made
    let found: (i64, i64, i64) = sqlx::query_as("select missing, twice, broken + altered from postrider.verify()")
        .fetch_one(stage.pool())
        .await
        .unwrap();
    assert_eq!(found, (0, 0, 0));
    stage.strike().await;
}

#[tokio::test]
async fn f67_a_redelivery_during_an_attempt_is_refused_and_a_double_click_sends_once() {
    let (stage, sink) = (Stage::set().await, Sink::start().await.unwrap());
    stage.endpoint("billing", &sink.url("/in")).await;
    sink.script([Reply::After(Duration::from_millis(700), Box::new(Reply::Status(204)))]);
    stage.record("order.paid", "", "{}").await;
    sink.wait_for(1, SOON).await;
    let delivery = stage.until("sending").await.id;
    assert_eq!(stage.endpoints.redeliver(&delivery).await.unwrap().effect, "running");
    stage.until("delivered").await;
    sink.script([Reply::After(Duration::from_millis(700), Box::new(Reply::Status(204)))]);
    let both = tokio::join!(stage.endpoints.redeliver(&delivery), stage.endpoints.redeliver(&delivery));
    let mut effects = [both.0.unwrap().effect, both.1.unwrap().effect];
    effects.sort();
    assert!(effects[0] == "done" && ["running", "waits"].contains(&effects[1].as_str()), "{effects:?}");
    stage.until_number("select count(*) from postrider.delivery_attempt where outcome = 'delivered'", 2).await;
    assert_eq!(sink.requests().len(), 2);
    stage.strike().await;
}

#[tokio::test]
async fn everything_that_was_given_up_is_sent_once_more_and_nothing_else() {
    let (stage, sink) = (Stage::set().await, Sink::start().await.unwrap());
    let one = |name: &str| NewEndpoint {
        max_attempts: 1,
        max_in_flight: 1,
        ..NewEndpoint::new(name, sink.url("/in"), ["order.*"])
    };
    let (id, _) = stage.create(one("billing")).await;
    sink.script([500, 204, 500, 500, 204, 500].map(Reply::Status));
    for _ in 0..6 {
        stage.record("order.paid", "", "{}").await;
    }
    stage.until_number(GIVEN_UP, 4).await;
    assert_eq!(stage.endpoints.redeliver_discarded(id).await.unwrap(), 4);
    stage.until_number(DELIVERED, 6).await;
    assert_eq!(stage.endpoints.redeliver_discarded(id).await.unwrap(), 0);
    assert_eq!(sink.requests().len(), 10);
    let twice = Stage::sent(&sink).into_values().filter(|n| *n == 2).count();
    assert_eq!(twice, 4);
    assert_eq!(stage.endpoints.redeliver_discarded(EndpointId(99)).await.unwrap(), 0);
    stage.strike().await;
}

#[tokio::test]
async fn c61_a_replay_sends_what_a_time_lost_counted_before_and_nothing_that_was_taken() {
    let (stage, sink) = (Stage::set().await, Sink::start().await.unwrap());
    let one =
        NewEndpoint { max_attempts: 1, max_in_flight: 1, ..NewEndpoint::new("billing", sink.url("/in"), ["order.*"]) };
    let (id, secret) = stage.create(one).await;
    // of twelve every third is taken; only some are of the type and fit
    sink.script([204, 500, 500].map(Reply::Status).into_iter().cycle().take(12));
    let mut lost = BTreeSet::new();
    for n in 0..12 {
        let r#type = if n % 2 == 0 { "order.paid" } else { "order.shipped" };
        let event = stage.record(r#type, "", &format!("{{\"n\":{n}}}")).await;
        if n % 3 != 0 && n % 2 == 0 && n > 3 {
            lost.insert(event);
        }
    }
    stage.until_number(GIVEN_UP, 8).await;
    let new = NewReplay {
        types: Some(vec!["order.paid".into()]),
        predicate: Some("$.n > 3".into()),
        ..stage.until_now().await
    };
    let plan = stage.plan(id, &new).await;
    assert_eq!((plan.planned, plan.made, plan.state.as_str()), (3, 0, "planned"));
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(sink.requests().len(), 12, "a plan sends nothing");
    assert!(stage.endpoints.start_replay(plan.id).await.unwrap());
    assert!(!stage.endpoints.start_replay(plan.id).await.unwrap(), "it runs already");
    stage.until_number("select count(*) from postrider.delivery_replay where state = 'done'", 1).await;
    stage.until_number(DELIVERED, 7).await;
    let replayed: BTreeSet<String> = sink.requests()[12..].iter().map(|r| r.header("webhook-id").unwrap()).collect();
    assert_eq!(replayed, lost);
    for request in &sink.requests()[12..] {
        request.verify(&secret).unwrap();
    }
    let attempts = stage.endpoints.attempts_of(id, 3).await.unwrap();
    assert!(attempts.iter().all(|attempt| attempt.trigger == "replay"));
    assert_eq!(stage.plan(id, &new).await.planned, 0, "there is nothing left");
    let seen = stage.endpoints.replays(id).await.unwrap();
    assert_eq!((seen.len(), seen[1].made, seen[1].state.as_str()), (2, 3, "done"));
    assert_eq!(stage.until("delivered").await.endpoint, id);
    stage.strike().await;
}

#[tokio::test]
async fn f66_an_endpoint_stays_disabled_although_the_notice_fails_as_well_and_enable_and_a_replay_undo_it() {
    let (stage, sink, notices) = (Stage::set().await, Sink::start().await.unwrap(), Sink::start().await.unwrap());
    let one = |name: &str, url: String, r#type: &str| NewEndpoint {
        max_attempts: 2,
        ..NewEndpoint::new(name, url, [r#type])
    };
    let (id, _) = stage.create(one("billing", sink.url("/in"), "order.*")).await;
    stage.create(one("operators", notices.url("/in"), "postrider.**")).await;
    notices.script(vec![Reply::Status(500); 9]);
    sink.script([Reply::Status(410)]);
    let mut events = BTreeSet::from([stage.record("order.paid", "", "{}").await]);
    stage.until_number(GIVEN_UP, 2).await;
    assert_eq!((sink.requests().len(), notices.requests().len()), (1, 2), "the notice was tried, and given up");
    for _ in 0..3 {
        events.insert(stage.record("order.paid", "", "{}").await);
    }
    stage.until_number("select count(*) from postrider.parked", 3).await;

    // it is written down, whoever delivers next; and an operator who looks is told
    let Stage { db, running, endpoints, .. } = stage;
    running.stop(GRACE).await;
    let (bus, running) = deliver(db.pool(), Seal::parse([SEAL_KEY]).unwrap(), SLOTS).await;
    let stage = Stage { db, bus, running, endpoints };
    events.insert(stage.record("order.paid", "", "{}").await);
    stage.until_number("select count(*) from postrider.parked", 4).await;
    let disabled = stage.endpoints.get(id).await.unwrap().unwrap().disabled.unwrap();
    assert_eq!(disabled.reason, "the endpoint answered 410: it is gone");
    let alerts = inspect::alerts(stage.pool()).await.unwrap();
    assert!(
        alerts.iter().any(|alert| alert.name == "endpoint_disabled" && alert.subject == "endpoint 1"),
        "{alerts:?}"
    );

    // its owner gives it a place: what was held is sent, and what was given up is replayed
    let moved = Sink::start().await.unwrap();
    let change = EndpointChange { url: Some(moved.url("/in")), ..EndpointChange::default() };
    stage.endpoints.update(id, change).await.unwrap().unwrap();
    assert!(stage.endpoints.enable(id).await.unwrap());
    stage.until_number(DELIVERED, 4).await;
    let plan = stage.plan(id, &stage.until_now().await).await;
    assert_eq!(plan.planned, 1);
    assert!(stage.endpoints.start_replay(plan.id).await.unwrap());
    stage.until_number(DELIVERED, 5).await;
    let sent = Stage::sent(&moved);
    assert_eq!(
        (sent.keys().cloned().collect::<BTreeSet<_>>(), sent.values().sum::<usize>()),
        (events, 5),
        "each event once"
    );
    stage.strike().await;
}

#[tokio::test]
async fn a_replay_is_paced_paused_and_goes_on_where_it_was() {
    let (stage, sink) = (Stage::set().await, Sink::start().await.unwrap());
    // of two deliveries of one event that are in flight at the same moment neither would know of the other
    let new = NewEndpoint { max_in_flight: 1, ..NewEndpoint::new("billing", sink.url("/in"), ["order.*"]) };
    let (id, _) = stage.create(new).await;
    stage.endpoints.disable(id, "moving house").await.unwrap();
    for _ in 0..9 {
        stage.record("order.paid", "", "{}").await;
    }
    // what is held is replayed all the same, and sent once
    stage.until_number("select count(*) from postrider.parked", 9).await;
    let new = NewReplay { per_second: 2, ..stage.until_now().await };
    let plan = stage.plan(id, &new).await;
    assert_eq!(plan.planned, 9);
    stage.endpoints.start_replay(plan.id).await.unwrap();
    let made = "select made from postrider.delivery_replay";
    until("it has begun", SOON, async || (stage.number(made).await >= 2).then_some(())).await;
    assert!(stage.endpoints.pause_replay(plan.id).await.unwrap());
    assert!(!stage.endpoints.pause_replay(plan.id).await.unwrap());
    let paused = stage.number(made).await;
    assert!(paused < 9 && paused % 2 == 0, "two a second: {paused}");
    stage.until_number("select count(*) from postrider.job where kind = 'webhook.replay' and id not in (select id from postrider.done)", 0).await;
    assert_eq!(stage.number(made).await, paused);
    assert!(stage.endpoints.start_replay(plan.id).await.unwrap());
    stage.until_number(made, 9).await;
    stage.endpoints.enable(id).await.unwrap();
    stage.until_number(DELIVERED, 18).await;
    let sent = Stage::sent(&sink);
    assert_eq!((sent.len(), sent.values().sum::<usize>()), (9, 9), "each event once: {sent:?}");
    assert_eq!(stage.number("select count(*) from postrider.delivery_attempt where outcome = 'skipped'").await, 9);
    stage.strike().await;
}

#[tokio::test]
async fn a_replay_is_refused_with_its_field() {
    let (stage, sink) = (Stage::set().await, Sink::start().await.unwrap());
    let (id, _) = stage.endpoint("billing", &sink.url("/in")).await;
    let now = stage.until_now().await;
    let long_ago = Timestamp::from_micros(now.from.as_micros() - 8 * 86_400_000_000);
    for (field, new) in [
        ("to", NewReplay { to: now.from, ..now.clone() }),
        ("from", NewReplay { from: long_ago, ..now.clone() }),
        ("per_second", NewReplay { per_second: 0, ..now.clone() }),
        ("per_second", NewReplay { per_second: u32::MAX, ..now.clone() }),
        ("types", NewReplay { types: Some(vec!["Order".into()]), ..now.clone() }),
        ("predicate", NewReplay { predicate: Some("$.a".into()), ..now.clone() }),
        ("predicate", NewReplay { predicate: Some("\0".into()), ..now.clone() }),
    ] {
        let refused = stage.endpoints.plan_replay(id, &new).await.unwrap_err();
        assert!(refused.to_string().contains(&format!(" {field}: ")), "{field}: {refused}");
    }
    assert_eq!(stage.number("select count(*) from postrider.delivery_replay").await, 0);
    assert_eq!(stage.endpoints.plan_replay(EndpointId(99), &now).await.unwrap(), None);
    stage.strike().await;
}

#[tokio::test]
async fn c54_a_test_is_signed_like_any_other_goes_to_a_disabled_endpoint_and_counts_for_nothing() {
    let (stage, sink) = (Stage::set().await, Sink::start().await.unwrap());
    let (id, secret) = stage.endpoint("billing", &sink.url("/in")).await;
    stage.endpoints.disable(id, "not yet").await.unwrap();
    sink.script([Reply::Status(500), Reply::Status(204)]);
    for (n, outcome) in ["failed", "delivered"].iter().enumerate() {
        let delivery = stage.endpoints.send_test(id).await.unwrap().unwrap();
        let request = sink.wait_for(n + 1, SOON).await.pop().unwrap();
        request.verify(&secret).unwrap();
        let body: serde_json::Value = serde_json::from_slice(&request.body).unwrap();
        assert_eq!((&body["type"], &body["data"]["test"]), (&"postrider.endpoint.test".into(), &true.into()));
        stage.until_number("select count(*) from postrider.delivery_attempt where outcome is null", 0).await;
        let attempt = stage.endpoints.attempts(1).await.unwrap().remove(0);
        assert_eq!((attempt.delivery, attempt.trigger.as_str()), (delivery, "test"));
        assert_eq!(attempt.outcome.as_deref(), Some(*outcome));
    }
    let health = stage.endpoints.get(id).await.unwrap().unwrap().health;
    assert_eq!((health.failed, health.silent_since), (0, None));
    assert_eq!(sink.requests().len(), 2, "a test is tried once");
    assert_eq!(stage.endpoints.send_test(EndpointId(99)).await.unwrap(), None);
    stage.strike().await;
}

#[tokio::test]
async fn c62_what_only_waits_in_a_long_backlog_is_never_sent_twice() {
    let (stage, sink) = (Stage::set().await, Sink::start().await.unwrap());
    let (id, _) = stage.endpoint("billing", &sink.url("/in")).await;
    stage.endpoints.disable(id, "for the weekend").await.unwrap();
    for _ in 0..50 {
        stage.record("order.paid", "", "{}").await;
    }
    stage.until_number("select count(*) from postrider.parked", 50).await;
    for _ in 0..5 {
        stage.pass(Duration::from_hours(12)).await;
        sqlx::raw_sql("select postrider.housekeep('usual')").execute(stage.pool()).await.unwrap();
    }
    stage.endpoints.enable(id).await.unwrap();
    // what is made up for is paced: time is moved for it
    until("all are there", SOON, async || {
        sqlx::raw_sql("update postrider.lane set window_at = window_at - interval '1 second', due_at = due_at - interval '1 second'")
            .execute(stage.pool()).await.unwrap();
        (stage.number(DELIVERED).await == 50).then_some(())
    })
    .await;
    let sent = Stage::sent(&sink);
    assert_eq!((sent.len(), sent.values().sum::<usize>()), (50, 50));
    stage.strike().await;
}
