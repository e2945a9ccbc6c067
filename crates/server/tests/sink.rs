//! The receiver of `dev`, judged by requests that an independent library signed.
#![expect(clippy::expect_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use axum::http::{HeaderMap, StatusCode};
use postrider_contract::signature::Secret;
use postrider_server::dev::figures::Figures;
use postrider_server::dev::sink::{Door, Sink};

const SECRET: &str = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
const NOW: i64 = 1_700_000_000;

fn sink() -> (Arc<Figures>, Sink) {
    let figures = Arc::new(Figures::default());
    let sink = Sink::new(Arc::clone(&figures));
    for door in [&sink.steady, &sink.shaky] {
        door.trust(Secret::parse(SECRET).expect("a secret"));
    }
    (figures, sink)
}

fn signed(id: &str, body: &[u8]) -> HeaderMap {
    let signer = standardwebhooks::Webhook::new(SECRET).expect("a secret");
    let signature = signer.sign(id, NOW, body).expect("a signature");
    let mut headers = HeaderMap::new();
    for (name, value) in
        [("webhook-id", id), ("webhook-timestamp", NOW.to_string().as_str()), ("webhook-signature", signature.as_str())]
    {
        headers.insert(
            axum::http::HeaderName::from_bytes(name.as_bytes()).expect("a name"),
            value.parse().expect("a value"),
        );
    }
    headers
}

fn judged(sink: &Sink, door: &Door, id: &str) -> StatusCode {
    sink.judge(door, &signed(id, b"{}"), b"{}", NOW)
}

#[test]
fn what_an_independent_library_signed_is_taken_once_and_recognised_when_it_comes_again() {
    let (figures, sink) = sink();
    assert_eq!(judged(&sink, &sink.steady, "evt_1"), StatusCode::NO_CONTENT);
    assert_eq!(judged(&sink, &sink.steady, "evt_1"), StatusCode::NO_CONTENT);
    assert_eq!(judged(&sink, &sink.steady, "evt_2"), StatusCode::NO_CONTENT);
    assert_eq!((figures.delivered.get(), figures.repeated.get(), figures.unsigned.get()), (2, 1, 0));
}

#[test]
fn a_request_that_is_not_signed_for_its_bytes_and_its_time_is_refused() {
    let (figures, sink) = sink();
    let headers = signed("evt_1", b"{}");
    assert_eq!(sink.judge(&sink.steady, &headers, b"{ }", NOW), StatusCode::UNAUTHORIZED);
    assert_eq!(sink.judge(&sink.steady, &headers, b"{}", NOW + 301), StatusCode::UNAUTHORIZED);
    assert_eq!(sink.judge(&sink.steady, &HeaderMap::new(), b"{}", NOW), StatusCode::UNAUTHORIZED);
    assert_eq!((figures.unsigned.get(), figures.delivered.get()), (3, 0));
}

#[test]
fn the_shaky_door_fails_at_times_and_takes_the_event_when_it_comes_again() {
    let (figures, sink) = sink();
    let mut taken = 0;
    for number in 0..1_000 {
        while judged(&sink, &sink.shaky, &format!("evt_{number}")) == StatusCode::SERVICE_UNAVAILABLE {}
        taken += 1;
    }
    assert_eq!((taken, figures.delivered.get(), figures.repeated.get()), (1_000, 1_000, 0));
    // 1 of 10 by bad luck and 10 of 200 in an outage: about 169 refusals for 1 000 events.
    assert!((100..250).contains(&figures.failed.get()), "{}", figures.failed.get());
}

#[test]
fn a_door_that_knows_no_secret_yet_asks_to_come_again() {
    let sink = Sink::new(Arc::new(Figures::default()));
    assert_eq!(judged(&sink, &sink.steady, "evt_1"), StatusCode::SERVICE_UNAVAILABLE);
}
