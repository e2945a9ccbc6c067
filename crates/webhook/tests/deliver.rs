//! Deliveries on a real Postgres to a real receiver.
#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test asks the database itself")]

mod stage;

use std::collections::HashSet;
use std::time::{Duration, UNIX_EPOCH};

use postrider::contract::signature::{Received, Secret, Trust, verify};
use postrider_testkit::{Reply, Sink};
use postrider_webhook::{Attempt, BLOCKED, Format, NewEndpoint, Seal};
use sqlx::Row as _;
use stage::{GRACE, SEAL_KEY, Stage, deliver};

const LONG: Duration = Duration::from_secs(30);

/// The attempts in the order in which they were made.
async fn attempts(stage: &Stage) -> Vec<Attempt> {
    let mut attempts = stage.endpoints.attempts(200).await.unwrap();
    attempts.reverse();
    attempts
}

fn words(attempts: &[Attempt]) -> Vec<(i64, &str, Option<i64>, Option<&str>)> {
    attempts.iter().map(|a| (a.attempt, a.outcome.as_deref().unwrap_or("?"), a.status, a.failure.as_deref())).collect()
}

#[tokio::test]
async fn c54_every_attempt_has_the_same_id_and_body_and_a_new_time_and_signature() {
    let (stage, sink) = (Stage::set().await, Sink::start().await.unwrap());
    let (_, secret) = stage.endpoint("billing", &sink.url("/in")).await;
    sink.script([
        Reply::with_body(500, "down"),
        Reply::Reset(Vec::new()),
        Reply::with_header(302, "location", "http://127.0.0.1:9/"),
        Reply::Raw(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\ntorn".to_vec()),
        Reply::Status(403),
        Reply::Status(204),
    ]);
    let data = "{ \"total\":1.50, \"big\":12345678901234567890123,\"a\":1E2,\"a\":2,\"u\":\"\\u00fc\" }";
    let event = stage.record("order.paid", "", data).await;
    let delivery = stage.until("delivered").await;
    assert_eq!((delivery.attempts, delivery.status), (6, Some(204)));

    let requests = sink.requests();
    assert_eq!(requests.len(), 6);
    let occurred_at: String = sqlx::query_scalar(
        "select to_char(occurred_at at time zone 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"') from postrider.event",
    )
    .fetch_one(stage.pool())
    .await
    .unwrap();
    let body = format!(
        "{{\"id\":\"{event}\",\"type\":\"order.paid\",\"subject\":\"order/42\",\"occurred_at\":\"{occurred_at}\",\"data\":{data}}}"
    );
    let (mut times, mut signatures) = (HashSet::new(), HashSet::new());
    for (n, request) in requests.iter().enumerate() {
        request.verify(&secret).unwrap();
        assert_eq!(String::from_utf8_lossy(&request.body), body);
        assert_eq!(request.header("webhook-id").as_ref(), Some(&event));
        assert_eq!(request.header("webhook-attempt"), Some((n + 1).to_string()));
        times.insert(request.header("webhook-timestamp").unwrap());
        signatures.insert(request.header("webhook-signature").unwrap());
    }
    assert_eq!((times.len(), signatures.len()), (6, 6));

    let attempts = attempts(&stage).await;
    let expected = [
        (1, "failed", Some(500), None),
        (2, "failed", None, Some("reset")),
        (3, "failed", Some(302), None),
        (4, "failed", Some(200), Some("protocol")),
        (5, "failed", Some(403), None),
        (6, "delivered", Some(204), None),
    ];
    assert_eq!(words(&attempts), expected);
    assert_eq!(attempts[0].excerpt.as_deref(), Some("down"));
    assert_eq!(attempts[5].peer, Some(sink.address().to_string()));
    assert!(attempts.iter().all(|a| a.event.as_ref() == Some(&event) && a.total_us.is_some()));
    let digests: Vec<String> =
        sqlx::query_scalar("select distinct encode(request_sha256, 'hex') from postrider.delivery_attempt")
            .fetch_all(stage.pool())
            .await
            .unwrap();
    let of_body: String = sqlx::query_scalar("select encode(sha256(convert_to($1, 'UTF8')), 'hex')")
        .bind(&body)
        .fetch_one(stage.pool())
        .await
        .unwrap();
    assert_eq!(digests, [of_body]);
    stage.strike().await;
}

#[tokio::test]
async fn c53_the_headers_are_exactly_those_of_standard_webhooks_in_lower_case() {
    let (stage, sink) = (Stage::set().await, Sink::start().await.unwrap());
    stage.endpoint("billing", &sink.url("/in")).await;
    stage.record("order.paid", "", "{}").await;
    stage.until("delivered").await;
    let headers = sink.requests()[0].headers();
    let names: Vec<&str> = headers.iter().map(|(name, _)| name.as_str()).filter(|name| !name.is_empty()).collect();
    let expected = [
        "host",
        "content-type",
        "user-agent",
        "webhook-attempt",
        "webhook-id",
        "webhook-timestamp",
        "webhook-signature",
        "content-length",
    ];
    assert_eq!(names, expected);
    let value = |name: &str| sink.requests()[0].header(name).unwrap();
    assert_eq!(value("content-type"), "application/json");
    assert_eq!(value("user-agent"), concat!("Postrider/", env!("CARGO_PKG_VERSION")));
    stage.strike().await;
}

#[tokio::test]
async fn c51_the_row_of_an_attempt_is_there_before_its_post_and_nothing_is_open_while_it_runs() {
    let (stage, sink) = (Stage::set().await, Sink::start().await.unwrap());
    stage.endpoint("billing", &sink.url("/in")).await;
    sink.script([Reply::After(Duration::from_millis(1_500), Box::new(Reply::Status(200)))]);
    stage.record("order.paid", "", "{}").await;
    assert_eq!(sink.wait_for(1, LONG).await.len(), 1);
    let [open] = attempts(&stage).await.try_into().unwrap();
    assert_eq!((open.outcome, open.ended_at, open.attempt), (None, None, 1));
    assert_eq!(stage.until("sending").await.attempts, 1);
    let in_transaction: i64 = sqlx::query_scalar(
        "select count(*) from pg_stat_activity
          where datname = current_database() and xact_start < clock_timestamp() - interval '500 ms'",
    )
    .fetch_one(stage.pool())
    .await
    .unwrap();
    assert_eq!(in_transaction, 0);
    stage.until("delivered").await;
    assert_eq!(words(&attempts(&stage).await), [(1, "delivered", Some(200), None)]);
    stage.strike().await;
}

#[tokio::test]
async fn a_410_disables_the_endpoint_and_what_follows_is_held_until_it_is_enabled() {
    let (stage, sink) = (Stage::set().await, Sink::start().await.unwrap());
    let (id, _) = stage.endpoint("billing", &sink.url("/in")).await;
    sink.script([Reply::Status(410)]);
    stage.record("order.paid", "", "{}").await;
    let gone = "the endpoint answered 410: it is gone";
    assert_eq!(stage.until("discarded").await.reason.as_deref(), Some(gone));
    let disabled = stage.endpoints.get(id).await.unwrap().unwrap().disabled.unwrap();
    assert_eq!(disabled.reason, gone);
    assert_eq!((&disabled.evidence[0]["status"], &disabled.evidence[0]["reason"]), (&410.into(), &gone.into()));

    let held = stage.record("order.paid", "", "{}").await;
    assert_eq!(stage.until("held").await.attempts, 0);
    assert_eq!(sink.requests().len(), 1);

    assert!(stage.endpoints.enable(id).await.unwrap());
    assert!(!stage.endpoints.enable(id).await.unwrap(), "there is nothing to enable any more");
    stage.until("delivered").await;
    assert_eq!(sink.requests()[1].header("webhook-id"), Some(held));
    assert!(stage.endpoints.disable(id, "by\0hand").await.unwrap());
    assert!(!stage.endpoints.disable(id, "again").await.unwrap());
    assert_eq!(stage.endpoints.list().await.unwrap()[0].disabled.as_ref().unwrap().reason, "by\u{2400}hand");
    let refused = stage.endpoints.disable(id, "").await.unwrap_err();
    assert!(refused.to_string().contains("reason: "), "{refused}");
    stage.strike().await;
}

#[tokio::test]
async fn a_deleted_endpoint_gets_nothing_its_secrets_are_gone_and_its_attempts_stay() {
    let (stage, sink) = (Stage::set().await, Sink::start().await.unwrap());
    let (id, _) = stage.endpoint("billing", &sink.url("/in")).await;
    // The second attempt is far enough away to delete the endpoint in between.
    sink.script([Reply::with_header(429, "retry-after", "1")]);
    stage.record("order.paid", "", "{}").await;
    stage.until("retrying").await;
    assert!(stage.endpoints.delete(id).await.unwrap());
    assert!(!stage.endpoints.delete(id).await.unwrap());
    assert_eq!(stage.endpoints.get(id).await.unwrap(), None);
    assert_eq!(stage.until("cancelled").await.reason.as_deref(), Some("the endpoint was deleted"));
    stage.record("order.paid", "", "{}").await;
    let left: (i64, i64) = sqlx::query_as(
        "select (select count(*) from postrider.endpoint_secret), (select count(*) from postrider.subscription where removed_at is null)",
    )
    .fetch_one(stage.pool())
    .await
    .unwrap();
    assert_eq!(left, (0, 0));
    let attempts = attempts(&stage).await;
    assert_eq!(words(&attempts), [(1, "postponed", Some(429), None), (1, "skipped", None, None)]);
    assert_eq!((attempts[0].endpoint, sink.requests().len()), (Some(id), 1));
    // The name is free again.
    stage.endpoint("billing", &sink.url("/in")).await;
    stage.strike().await;
}

#[tokio::test]
async fn c59_retry_after_postpones_without_spending_the_attempt() {
    let (stage, sink) = (Stage::set().await, Sink::start().await.unwrap());
    stage.endpoint("billing", &sink.url("/in")).await;
    sink.script([Reply::with_header(503, "retry-after", "7200")]);
    stage.record("order.paid", "", "{}").await;
    stage.until("retrying").await;
    let deadline = tokio::time::Instant::now() + LONG;
    let (attempt, wait) = loop {
        let row: Option<(i16, f64)> = sqlx::query_as(
            "select attempt, extract(epoch from run_at - clock_timestamp())::float8 from postrider.later",
        )
        .fetch_optional(stage.pool())
        .await
        .unwrap();
        if let Some(row) = row {
            break row;
        }
        assert!(tokio::time::Instant::now() < deadline, "the delivery never waited");
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    assert_eq!(attempt, 0);
    assert!((7_190.0..7_201.0).contains(&wait), "{wait}");
    let attempts = attempts(&stage).await;
    assert_eq!(words(&attempts), [(1, "postponed", Some(503), None)]);
    assert_eq!(attempts[0].reason.as_deref(), Some("the endpoint asked to wait 7200 s"));
    stage.strike().await;
}

#[tokio::test]
async fn c48_an_answer_that_postgres_cannot_hold_is_stored_as_what_it_was() {
    let (stage, sink) = (Stage::set().await, Sink::start().await.unwrap());
    stage.endpoint("billing", &sink.url("/in")).await;
    sink.script([Reply::Raw(
        b"HTTP/1.1 500 X\r\nx-odd: \xff\xfe<b>\r\ncontent-length: 5\r\n\r\n\x00\xff\xc3(!".to_vec(),
    )]);
    stage.record("order.paid", "", "{}").await;
    stage.until("delivered").await;
    let attempts = attempts(&stage).await;
    assert_eq!(words(&attempts), [(1, "failed", Some(500), None), (2, "delivered", Some(204), None)]);
    assert_eq!(attempts[0].excerpt.as_deref(), Some("\u{2400}\u{fffd}\u{fffd}(!"));
    let headers: String = sqlx::query_scalar("select headers::text from postrider.delivery_attempt where attempt = 1")
        .fetch_one(stage.pool())
        .await
        .unwrap();
    assert!(headers.contains("[\"x-odd\",\"\u{fffd}\u{fffd}<b>\"]"), "{headers}");
    stage.strike().await;
}

#[tokio::test]
async fn an_endpoint_may_have_fewer_attempts_than_the_kind() {
    let (stage, sink) = (Stage::set().await, Sink::start().await.unwrap());
    let new = NewEndpoint { max_attempts: 2, ..NewEndpoint::new("billing", sink.url("/in"), ["order.paid"]) };
    stage.create(new).await;
    sink.script([Reply::Status(500), Reply::Status(404), Reply::Status(204)]);
    stage.record("order.paid", "", "{}").await;
    let delivery = stage.until("discarded").await;
    assert_eq!(delivery.reason.as_deref(), Some("gave up after 2 attempts: status 404"));
    assert_eq!(sink.requests().len(), 2);
    stage.strike().await;
}

#[tokio::test]
async fn only_public_types_of_the_endpoints_owner_and_patterns_are_sent() {
    let (stage, sink) = (Stage::set().await, Sink::start().await.unwrap());
    let of = |name: &str, owner: &str, types: &[&str]| NewEndpoint {
        owner: owner.to_owned(),
        ..NewEndpoint::new(name, sink.url(&format!("/{name}")), types.iter().copied())
    };
    stage.create(of("acme-paid", "acme", &["order.paid"])).await;
    stage.create(of("acme-all", "acme", &["**"])).await;
    stage.create(of("globex-all", "globex", &["**"])).await;
    for (r#type, owner) in [("order.audited", "acme"), ("order.paid", "acme"), ("order.shipped", "acme")] {
        stage.record(r#type, owner, "{}").await;
    }
    let requests = sink.wait_for(3, LONG).await;
    let mut lines: Vec<String> = requests
        .iter()
        .map(|request| {
            let body: serde_json::Value = serde_json::from_slice(&request.body).unwrap();
            format!("{} {}", request.line().split(' ').nth(1).unwrap(), body["type"].as_str().unwrap())
        })
        .collect();
    lines.sort();
    assert_eq!(lines, ["/acme-all order.paid", "/acme-all order.shipped", "/acme-paid order.paid"]);
    stage.strike().await;
    assert_eq!(sink.requests().len(), 3, "nothing else came until the end");
}

#[tokio::test]
async fn f58_an_endpoint_that_leads_somewhere_else_now_is_blocked_for_good() {
    let (stage, sink, canary) = (Stage::set().await, Sink::start().await.unwrap(), Sink::start().await.unwrap());
    let (id, _) = stage.endpoint("billing", &sink.url("/in")).await;
    for (url, reason) in [
        (format!("http://127.0.0.2:{}/", canary.address().port()), BLOCKED),
        (format!("https://[::ffff:127.0.0.1]:{}/", canary.address().port()), BLOCKED),
        ("http://169.254.169.254/latest/".to_owned(), BLOCKED),
        ("http://localhost/".to_owned(), "the endpoint's url is not allowed"),
    ] {
        sqlx::query("update postrider.endpoint set url = $2 where id = $1")
            .bind(id.0)
            .bind(&url)
            .execute(stage.pool())
            .await
            .unwrap();
        let event = stage.record("order.paid", "", "{}").await;
        let attempt = loop {
            let newest = attempts(&stage).await.pop();
            if let Some(attempt) = newest.filter(|a| a.event.as_ref() == Some(&event) && a.outcome.is_some()) {
                break attempt;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        };
        assert_eq!((attempt.outcome.as_deref(), attempt.reason.as_deref()), (Some("discarded"), Some(reason)), "{url}");
        assert_eq!(stage.until("discarded").await.reason.as_deref(), Some(reason));
    }
    assert_eq!((canary.connections(), sink.connections()), (0, 0));
    stage.strike().await;
}

/// What surrounds the data in the body of a format, as receivers are told it: every event of this test has parts of these lengths.
fn around(format: Format) -> (&'static str, &'static str) {
    match format {
        Format::Envelope => (
            r#"{"id":"0190b5f0-7e1a-7c3d-8f00-0123456789ab","type":"order.paid","subject":"order/42","occurred_at":"2023-11-14T22:13:20.000001Z","data":"#,
            "}",
        ),
        Format::CloudEvents => (
            r#"{"specversion":"1.0","id":"0190b5f0-7e1a-7c3d-8f00-0123456789ab","source":"/postrider","type":"order.paid","subject":"order/42","time":"2023-11-14T22:13:20.000001Z","datacontenttype":"application/json","data":"#,
            "}",
        ),
        Format::CloudEventsBinary | Format::Raw => ("", ""),
    }
}

/// A text in JSON that takes so many bytes.
fn text_of(bytes: usize) -> String {
    format!("\"{}\"", "a".repeat(bytes - 2))
}

#[tokio::test]
async fn a_body_of_256_kib_is_sent_and_of_one_byte_more_is_given_up_in_words_and_never_sent() {
    const LIMIT: usize = 262_144;
    let (stage, sink) = (Stage::set().await, Sink::start().await.unwrap());
    for format in Format::ALL {
        let new = NewEndpoint { format, ..NewEndpoint::new("billing", sink.url("/in"), ["order.paid"]) };
        let (id, secret) = stage.create(new).await;
        let before = sink.requests().len();
        let (head, tail) = around(format);
        let fits = LIMIT - head.len() - tail.len();
        stage.record("order.paid", "", &text_of(fits)).await;
        stage.until("delivered").await;
        let request = sink.requests().pop().unwrap();
        request.verify(&secret).unwrap();
        assert_eq!((request.body.len(), sink.requests().len()), (LIMIT, before + 1), "{format:?}");

        stage.endpoints.disable(id, "for a moment").await.unwrap();
        stage.record("order.paid", "", "{}").await;
        stage.until("held").await;
        // where the data are the body, the door takes none that are larger: they stand in the log from other times
        sqlx::query("update postrider.event set data = $1::json where seq = (select max(seq) from postrider.event where type = 'order.paid')")
            .bind(text_of(fits + 1))
            .execute(stage.pool())
            .await
            .unwrap();
        stage.endpoints.enable(id).await.unwrap();
        let reason = "the body is larger than 262144 bytes, the limit of a webhook";
        assert_eq!(stage.until("discarded").await.reason.as_deref(), Some(reason), "{format:?}");
        let attempt = stage.endpoints.attempts_of(id, 1).await.unwrap().remove(0);
        assert_eq!((attempt.outcome.as_deref(), attempt.reason.as_deref()), (Some("discarded"), Some(reason)));
        assert_eq!((attempt.status, attempt.peer, sink.requests().len()), (None, None, before + 1));
        let told: String = sqlx::query_scalar("select data::text from postrider.event where type = 'postrider.delivery.exhausted' order by seq desc limit 1")
            .fetch_one(stage.pool())
            .await
            .unwrap();
        assert!(told.contains(reason) && told.contains(&attempt.delivery), "{told}");
        stage.endpoints.delete(id).await.unwrap();
    }
    stage.strike().await;
}

#[tokio::test]
async fn f63_of_a_receiver_whose_clock_is_off_the_attempt_tells_by_how_much_and_that_it_refuses_signatures() {
    let (stage, sink) = (Stage::set().await, Sink::start().await.unwrap());
    let new = NewEndpoint { max_attempts: 1, ..NewEndpoint::new("billing", sink.url("/in"), ["order.*"]) };
    let (id, secret) = stage.create(new).await;
    let secret: Secret = secret.parse().unwrap();
    for (n, off) in [600_i64, -600, 200, -200, 0].into_iter().enumerate() {
        let now = i64::try_from(UNIX_EPOCH.elapsed().unwrap().as_secs()).unwrap() + off;
        let date = httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(now.unsigned_abs()));
        sink.script([Reply::with_header(if off.abs() > 300 { 401 } else { 200 }, "date", &date)]);
        stage.record("order.paid", "", "{}").await;
        sink.wait_for(n + 1, LONG).await;
        stage.until(if off.abs() > 300 { "discarded" } else { "delivered" }).await;
        let attempt = stage.endpoints.attempts_of(id, 1).await.unwrap().remove(0);
        let (skew, note) = (attempt.clock_skew_s.unwrap(), attempt.clock_note.unwrap_or_default());
        assert!((skew - off).abs() <= 5, "{off}: {skew}");
        // what a receiver with such a clock says of the request
        let request = &sink.requests()[n];
        let header = |name: &str| request.header(name).unwrap();
        let (msg_id, timestamp, signature) =
            (header("webhook-id"), header("webhook-timestamp"), header("webhook-signature"));
        let received = Received {
            id: msg_id.as_bytes(),
            timestamp: timestamp.as_bytes(),
            signature: signature.as_bytes(),
            body: &request.body,
        };
        let refused = verify(&received, &Trust::secrets(std::slice::from_ref(&secret)), now).is_err();
        let side = if off > 0 { "ahead of ours" } else { "behind ours" };
        assert_eq!(
            (refused, note.contains(&format!("{} s {side}", skew.abs()))),
            (off.abs() > 300, off.abs() > 300),
            "{off}: {note}"
        );
    }
    // and of one that dates nothing, nothing
    stage.record("order.paid", "", "{}").await;
    sink.wait_for(6, LONG).await;
    stage.until("delivered").await;
    let attempt = stage.endpoints.attempts_of(id, 1).await.unwrap().remove(0);
    assert_eq!((attempt.clock_skew_s, attempt.clock_note), (None, None));
    stage.strike().await;
}

#[tokio::test]
async fn s11_a_secret_in_another_row_or_under_a_lost_key_signs_nothing_and_the_delivery_waits() {
    let (stage, sink) = (Stage::set().await, Sink::start().await.unwrap());
    let (first, secret) = stage.endpoint("first", &sink.url("/1")).await;
    let second = stage.create(NewEndpoint::new("second", sink.url("/2"), ["order.shipped"])).await.0;
    let stored: Vec<Vec<u8>> =
        sqlx::query_scalar("select sealed from postrider.endpoint_secret").fetch_all(stage.pool()).await.unwrap();
    let plain = Secret::parse(&secret).unwrap();
    assert!(stored.iter().all(|sealed| sealed.len() == 12 + 32 + 16));
    assert!(!stored.iter().any(|sealed| sealed.windows(8).any(|w| plain.as_bytes().windows(8).any(|p| p == w))));

    // Whoever can write to the table gives the second endpoint's secret to the first one.
    sqlx::query("delete from postrider.endpoint_secret where endpoint = $1")
        .bind(first.0)
        .execute(stage.pool())
        .await
        .unwrap();
    sqlx::query("update postrider.endpoint_secret set endpoint = $1 where endpoint = $2")
        .bind(first.0)
        .bind(second.0)
        .execute(stage.pool())
        .await
        .unwrap();
    stage.record("order.paid", "", "{}").await;
    stage.until("retrying").await;
    let reason = "the sealed value does not belong to this row or was changed";
    assert_eq!(attempts(&stage).await[0].reason.as_deref(), Some(reason));
    // No secret at all: never unsigned.
    stage.record("order.shipped", "", "{}").await;
    let deadline = tokio::time::Instant::now() + LONG;
    let ended = loop {
        let ended = attempts(&stage).await;
        if ended.len() == 3 && ended.iter().all(|attempt| attempt.outcome.is_some()) {
            break ended;
        }
        assert!(tokio::time::Instant::now() < deadline, "{ended:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    assert!(ended.iter().all(|a| a.outcome.as_deref() == Some("postponed")), "{ended:?}");
    let bare = ended.iter().filter(|a| a.endpoint == Some(second)).map(|a| a.reason.as_deref());
    assert_eq!(bare.collect::<Vec<_>>(), [Some("the endpoint has no valid secret")]);
    assert_eq!(sink.connections(), 0);
    stage.strike().await;
}

#[tokio::test]
async fn s12_another_key_waits_and_both_keys_deliver() {
    let (stage, sink) = (Stage::set().await, Sink::start().await.unwrap());
    let (_, secret) = stage.endpoint("billing", &sink.url("/in")).await;
    let Stage { db, bus, running, endpoints } = stage;
    running.stop(GRACE).await;
    let other = "AgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgI=";
    let (lost_bus, lost) = deliver(db.pool(), Seal::parse([other]).unwrap(), stage::SLOTS).await;
    let stage = Stage { db, bus, running: lost, endpoints };
    stage.record("order.paid", "", "{}").await;
    stage.until("retrying").await;
    let attempt = attempts(&stage).await.remove(0);
    assert!(attempt.reason.unwrap().contains("no key with the id e1fd551104e693f9"));
    assert_eq!(sink.connections(), 0);
    drop(lost_bus);
    let Stage { db, bus, running, endpoints } = stage;
    running.stop(GRACE).await;
    let (_bus, running) = deliver(db.pool(), Seal::parse([other, SEAL_KEY]).unwrap(), stage::SLOTS).await;
    let stage = Stage { db, bus, running, endpoints };
    stage.record("order.shipped", "", "{}").await;
    stage.until("delivered").await;
    sink.requests()[0].verify(&secret).unwrap();
    stage.strike().await;
}

#[tokio::test]
async fn an_endpoint_is_refused_with_its_field_and_nothing_is_written() {
    let (stage, sink) = (Stage::set().await, Sink::start().await.unwrap());
    let fine = || NewEndpoint::new("billing", sink.url("/in"), ["order.*"]);
    stage.create(NewEndpoint { secret: Some(Secret::generate([7; 32])), ..fine() }).await;
    for (field, new) in [
        ("name", fine()),
        ("url", NewEndpoint { name: "b".into(), url: "http://10.0.0.1/".into(), ..fine() }),
        ("url", NewEndpoint { name: "b".into(), url: "https://localhost/".into(), ..fine() }),
        ("types", NewEndpoint { name: "b".into(), types: vec!["Order".into()], ..fine() }),
        ("max_attempts", NewEndpoint { name: "b".into(), max_attempts: 99, ..fine() }),
    ] {
        let error = stage.endpoints.create(new).await.unwrap_err();
        assert!(error.code().is_some() && error.to_string().contains(&format!(" {field}: ")), "{field}: {error}");
    }
    // Another owner may use the name.
    stage.create(NewEndpoint { owner: "acme".into(), ..fine() }).await;
    let names: Vec<(String, String)> =
        stage.endpoints.list().await.unwrap().into_iter().map(|e| (e.owner, e.name)).collect();
    assert_eq!(names, [(String::new(), "billing".into()), ("acme".into(), "billing".into())]);
    let subscriptions: i64 =
        sqlx::query_scalar("select count(*) from postrider.subscription").fetch_one(stage.pool()).await.unwrap();
    assert_eq!(subscriptions, 2);
    stage.record("order.paid", "", "{}").await;
    stage.until("delivered").await;
    let given = Secret::generate([7; 32]).reveal().to_string();
    sink.requests()[0].verify(&given).unwrap();
    stage.strike().await;
}

#[tokio::test]
async fn every_statement_is_valid_and_answers_in_text() {
    use sqlx::{Column as _, Executor as _, SqlSafeStr as _, Statement as _, TypeInfo as _};
    let db = postrider_testkit::TestDb::fresh().await;
    let mut connection = db.pool().acquire().await.unwrap();
    for statement in postrider_webhook::statements() {
        let prepared = connection.prepare(statement.sql.into_sql_str()).await;
        let prepared = prepared.unwrap_or_else(|e| panic!("{}: {e}", statement.name));
        for column in prepared.columns() {
            assert_eq!(column.type_info().name(), "TEXT", "{} of {}", column.name(), statement.name);
        }
    }
    let partitions: i64 =
        sqlx::query("select count(*) from pg_inherits where inhparent = 'postrider.delivery_attempt'::regclass")
            .fetch_one(&mut *connection)
            .await
            .unwrap()
            .get(0);
    assert!(partitions >= 3, "one for each class at least");
}

#[tokio::test]
async fn the_trace_of_an_event_goes_on_at_the_receiver() {
    const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let (stage, sink) = (Stage::set().await, Sink::start().await.unwrap());
    let (_, secret) = stage.endpoint("billing", &sink.url("/in")).await;
    sink.script([Reply::Status(500), Reply::Status(204)]);
    sqlx::query("select postrider.record('order.paid', 'order/42', traceparent => $1)")
        .bind(TRACE)
        .execute(stage.pool())
        .await
        .unwrap();
    stage.until("delivered").await;
    let requests = sink.requests();
    assert_eq!(requests.len(), 2);
    for request in requests {
        request.verify(&secret).unwrap();
        assert_eq!(request.header("traceparent").as_deref(), Some(TRACE));
    }
    stage.strike().await;
}
