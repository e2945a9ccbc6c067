//! Secrets that rotate: what signs when, what is shown, what ends.
#![expect(clippy::unwrap_used, reason = "a failed helper is a failed test")]

mod stage;
#[path = "stage/time.rs"]
mod time;

use std::time::Duration;

use postrider::contract::signature::{PublicKey, Received, Secret, Trust, verify};
use postrider_testkit::{Reply, Request, Sink};
use postrider_webhook::{EndpointId, KeyKind, NewEndpoint, Rotated, Rotation};
use stage::Stage;
use time::SOON;

const HOUR: Duration = Duration::from_hours(1);

impl Stage {
    async fn rotate(&self, id: EndpointId, overlap: Duration) -> String {
        let rotation = Rotation { overlap, ..Rotation::default() };
        match self.endpoints.rotate_secret(id, rotation).await.unwrap().unwrap() {
            Rotated::Secret(secret) => secret.reveal().to_string(),
            Rotated::PublicKey(key) => panic!("a key: {key}"),
        }
    }

    /// The request of one more event.
    async fn one_more(&self, sink: &Sink) -> Request {
        let n = sink.requests().len();
        self.record("order.paid", "", "{}").await;
        let request = sink.wait_for(n + 1, SOON).await.pop().unwrap();
        self.until("delivered").await;
        request
    }
}

/// By which of these secrets it verifies, asked one by one of the independent library.
fn verifies(request: &Request, secrets: &[&String]) -> Vec<bool> {
    secrets.iter().map(|secret| request.verify(secret).is_ok()).collect()
}

#[tokio::test]
async fn f64_s13_old_and_new_secrets_sign_during_the_overlap_and_only_the_new_one_after_it() {
    let (stage, sink) = (Stage::set().await, Sink::start().await.unwrap());
    let (id, first) = stage.endpoint("billing", &sink.url("/in")).await;
    let second = stage.rotate(id, 24 * HOUR).await;
    assert!(second.starts_with("whsec_") && second != first);
    assert_eq!(verifies(&stage.one_more(&sink).await, &[&first, &second]), [true, true]);

    stage.pass(23 * HOUR).await;
    let third = stage.rotate(id, 7 * 24 * HOUR).await;
    assert_eq!(verifies(&stage.one_more(&sink).await, &[&first, &second, &third]), [true, true, true]);
    assert_eq!(stage.number("select count(*) from postrider.endpoint_secret").await, 3);
    // a longer overlap of a later rotation does not let an older secret live longer
    stage.pass(2 * HOUR).await;
    assert_eq!(verifies(&stage.one_more(&sink).await, &[&first, &second, &third]), [false, true, true]);
    stage.pass(7 * 24 * HOUR).await;
    assert_eq!(verifies(&stage.one_more(&sink).await, &[&first, &second, &third]), [false, false, true]);

    let fourth = stage.rotate(id, Duration::ZERO).await;
    assert_eq!(verifies(&stage.one_more(&sink).await, &[&third, &fourth]), [false, true]);
    let told = format!("{:?}", stage.endpoints.secrets(id).await.unwrap());
    assert!(!told.contains("whsec_") && told.matches("valid_until: None").count() == 1, "{told}");
    stage.strike().await;
}

#[tokio::test]
async fn f64_every_request_verifies_while_secrets_rotate_and_deliveries_are_queued_and_in_flight() {
    let (stage, sink) = (Stage::set().await, Sink::start().await.unwrap());
    let (id, first) = stage.endpoint("billing", &sink.url("/in")).await;
    sink.script(vec![Reply::After(Duration::from_millis(30), Box::new(Reply::Status(204))); 60]);
    let mut newest = first.clone();
    for n in 0..60 {
        stage.record("order.paid", "", "{}").await;
        if n % 15 == 7 {
            newest = stage.rotate(id, HOUR).await;
        }
    }
    stage.until_number("select count(*) from postrider.done where state = 2", 60).await;
    let requests = sink.requests();
    assert_eq!(requests.len(), 60);
    // whoever has not heard of any rotation yet can go on
    assert!(requests.iter().all(|request| request.verify(&first).is_ok()));
    assert_eq!(verifies(&stage.one_more(&sink).await, &[&first, &newest]), [true, true]);
    stage.strike().await;
}

#[tokio::test]
async fn a_rotation_is_refused_with_its_field_and_changes_nothing() {
    let (stage, sink) = (Stage::set().await, Sink::start().await.unwrap());
    let (id, first) = stage.endpoint("billing", &sink.url("/in")).await;
    let too_long = Rotation { overlap: 7 * 24 * HOUR + Duration::from_millis(1), ..Rotation::default() };
    let refused = stage.endpoints.rotate_secret(id, too_long).await.unwrap_err();
    assert!(refused.to_string().contains(" overlap: "), "{refused}");
    for _ in 0..4 {
        stage.rotate(id, HOUR).await;
    }
    let refused = stage.endpoints.rotate_secret(id, Rotation::default()).await.unwrap_err();
    assert!(refused.to_string().contains("five older secrets"), "{refused}");
    assert_eq!(stage.endpoints.secrets(id).await.unwrap().len(), 5);
    stage.one_more(&sink).await.verify(&first).unwrap();
    stage.until_number("select count(*) from postrider.done where state = 2", 1).await;
    assert!(stage.endpoints.rotate_secret(EndpointId(99), Rotation::default()).await.unwrap().is_none());
    // at once is always possible
    let newest = stage.rotate(id, Duration::ZERO).await;
    assert_eq!(verifies(&stage.one_more(&sink).await, &[&first, &newest]), [false, true]);
    stage.strike().await;
}

#[tokio::test]
async fn a_key_of_v1a_signs_beside_the_secret_and_its_public_half_is_told() {
    let (stage, sink) = (Stage::set().await, Sink::start().await.unwrap());
    let (id, secret) = stage.create(NewEndpoint::new("billing", sink.url("/in"), ["order.*"])).await;
    let rotation = || Rotation { kind: KeyKind::V1a, ..Rotation::default() };
    let Some(Rotated::PublicKey(first)) = stage.endpoints.rotate_secret(id, rotation()).await.unwrap() else {
        panic!()
    };
    let Some(Rotated::PublicKey(second)) = stage.endpoints.rotate_secret(id, rotation()).await.unwrap() else {
        panic!()
    };
    let request = stage.one_more(&sink).await;
    request.verify(&secret).unwrap();
    let header = |name: &str| request.header(name).unwrap();
    let signature = header("webhook-signature");
    let schemes: Vec<&str> = signature.split(' ').map(|one| one.split(',').next().unwrap()).collect();
    assert_eq!(schemes, ["v1", "v1a", "v1a"]);
    let (id_sent, timestamp) = (header("webhook-id"), header("webhook-timestamp"));
    let received = Received {
        id: id_sent.as_bytes(),
        timestamp: timestamp.as_bytes(),
        signature: signature.as_bytes(),
        body: &request.body,
    };
    let by = |keys: &[PublicKey], secrets: &[Secret]| {
        let trust = Trust { secrets, public_keys: keys, tolerance: Duration::from_mins(5) };
        verify(&received, &trust, timestamp.parse().unwrap()).is_ok()
    };
    let stranger = postrider::contract::signature::SigningKey::from_seed(&[9; 32]).public();
    assert_eq!([by(&[first], &[]), by(&[second], &[]), by(&[stranger], &[])], [true, true, false]);
    let told: Vec<Option<String>> =
        stage.endpoints.secrets(id).await.unwrap().into_iter().map(|secret| secret.public_key).collect();
    assert_eq!(told, [Some(second.to_string()), Some(first.to_string()), None]);
    stage.strike().await;
}
