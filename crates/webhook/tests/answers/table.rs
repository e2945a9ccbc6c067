use std::collections::HashMap;
use std::net::TcpListener;
use std::time::Duration;

use crate::stage::{Stage, guard};
use postrider_testkit::{NameServer, Reply, Said, Sink, TlsFault, until};
use postrider_webhook::{BLOCKED, Client, Guard, NewEndpoint};

const LONG: Duration = Duration::from_mins(1);

/// What one attempt is to come to: outcome, class of the failure, status, and how the reason begins.
type Row = (&'static str, Option<&'static str>, Option<i16>, &'static str);

type Columns = (i64, String, Option<String>, Option<i16>, String, Option<i16>, Option<f64>);

/// The first attempt of an endpoint and what followed.
#[derive(Debug, Clone)]
struct First {
    outcome: String,
    failure: Option<String>,
    status: Option<i16>,
    reason: String,
    /// How many attempts its job has spent; none if it has ended.
    spent: Option<i16>,
    /// Seconds until the next one.
    wait: Option<f64>,
}

/// The first attempts of so many endpoints. Each is looked at before its next one: retries come after five seconds.
async fn firsts(stage: &Stage, count: usize) -> HashMap<i64, First> {
    let sql = "select a.endpoint, a.outcome, a.failure, a.status, coalesce(a.reason, ''), l.attempt as spent,
                      extract(epoch from l.run_at - a.ended_at)::float8 as wait
                 from postrider.delivery_attempt a
                 left join postrider.done d on d.class = a.class and d.id = a.id
                 left join postrider.later l on l.id = a.id
                where a.outcome is not null and (d.id is not null or l.id is not null)
                order by a.started_at desc";
    let mut seen: HashMap<i64, First> = HashMap::new();
    until("every first attempt has ended", LONG, async || {
        let rows: Vec<Columns> = sqlx::query_as(sql).fetch_all(stage.pool()).await.unwrap();
        for (endpoint, outcome, failure, status, reason, spent, wait) in rows {
            seen.entry(endpoint).or_insert(First { outcome, failure, status, reason, spent, wait });
        }
        (seen.len() == count).then(|| seen.clone())
    })
    .await
}

fn check(told: &str, first: &First, expected: Row) {
    let seen = (first.outcome.as_str(), first.failure.as_deref(), first.status);
    assert_eq!(seen, (expected.0, expected.1, expected.2), "{told}: {}", first.reason);
    assert!(first.reason.starts_with(expected.3), "{told}: {}", first.reason);
    let cost = match expected.0 {
        "failed" => Some(1),
        "postponed" => Some(0),
        _ => None,
    };
    assert_eq!(first.spent, cost, "{told}: what the attempt cost");
}

#[tokio::test]
async fn every_row_of_the_table_of_answers_is_judged_as_it_says() {
    let stage = Stage::set(Client::new(guard(), []).unwrap()).await;
    let full = |status, name: &str, value: &str| Reply::with_header(status, name, value);
    let ok = b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n12345".to_vec();
    let moved = "status 301: a redirect, which is never followed; if the endpoint has moved, use this url: https://new.example.com/in";
    let mut rows: Vec<(Reply, Row)> = vec![
        (full(301, "location", "https://new.example.com/in"), ("failed", None, Some(301), moved)),
        (full(302, "location", "file:///etc/passwd"), ("failed", None, Some(302), "status 302: a redirect")),
        (full(307, "location", "http://169.254.169.254/"), ("failed", None, Some(307), "status 307: a redirect")),
        (Reply::Status(304), ("failed", None, Some(304), "status 304: a redirect")),
        (Reply::Status(410), ("discarded", None, Some(410), "the endpoint answered 410")),
        (full(429, "retry-after", "7200"), ("postponed", None, Some(429), "the endpoint asked to wait 7200 s")),
        (full(503, "retry-after", "7200"), ("postponed", None, Some(503), "the endpoint asked to wait 7200 s")),
        (full(429, "retry-after", "-5"), ("failed", None, Some(429), "status 429")),
        (full(500, "retry-after", "7200"), ("failed", None, Some(500), "status 500")),
        (full(404, "retry-after", "7200"), ("failed", None, Some(404), "status 404")),
        (Reply::Reset(Vec::new()), ("failed", Some("reset"), None, "reset: the connection was reset")),
        (Reply::HalfClose, ("failed", Some("reset"), None, "reset: the connection was closed before any answer")),
        (Reply::Raw(Vec::new()), ("failed", Some("reset"), None, "reset: ")),
        (Reply::Raw(ok), ("failed", Some("protocol"), Some(200), "protocol: the answer ended before it was complete")),
        (
            Reply::Raw(b"SSH-2.0-x\r\n\r\n".to_vec()),
            ("failed", Some("protocol"), None, "protocol: the answer is not HTTP"),
        ),
        (Reply::Stall(b"HTTP/1.1 200 OK\r\n".to_vec()), ("failed", Some("timeout"), None, "timeout: 1 s were over")),
        (Reply::endless(), ("delivered", None, Some(200), "")),
        (Reply::gzip_bomb(64), ("delivered", None, Some(200), "")),
    ];
    for status in [200_i16, 201, 202, 204, 206, 299] {
        rows.push((Reply::Status(status.unsigned_abs()), ("delivered", None, Some(status), "")));
    }
    for status in [400_i16, 401, 403, 404, 405, 408, 413, 415, 422, 425, 429, 451, 500, 502, 503, 504, 599] {
        rows.push((Reply::Status(status.unsigned_abs()), ("failed", None, Some(status), "status ")));
    }
    let mut sinks = Vec::new();
    for (n, (reply, expected)) in rows.into_iter().enumerate() {
        let sink = Sink::start().await.unwrap();
        let told = format!("{reply:?}").chars().take(80).collect::<String>();
        sink.script([reply]);
        let timeout = Duration::from_secs(if expected.1 == Some("timeout") { 1 } else { 20 });
        let new = NewEndpoint { timeout, ..NewEndpoint::new(format!("e{n}"), sink.url("/in"), ["order.*"]) };
        sinks.push((stage.create(new).await.0, sink, told, expected));
    }
    stage.record("{}").await;
    let firsts = firsts(&stage, sinks.len()).await;
    for (endpoint, _sink, told, expected) in &sinks {
        check(told, &firsts[&endpoint.0], *expected);
        let disabled = stage.endpoints.get(*endpoint).await.unwrap().unwrap().disabled;
        assert_eq!(disabled.is_some(), expected.2 == Some(410), "{told}");
    }
    stage.strike().await;
}

#[tokio::test]
async fn every_class_of_failure_before_a_request_is_told_and_what_is_ours_costs_no_attempt() {
    let names = NameServer::start().await.unwrap();
    let mut sinks = Vec::new();
    let mut roots = Vec::new();
    let mut rows: Vec<(String, Row)> = Vec::new();
    for (fault, reason) in [
        (TlsFault::Expired, "tls: invalid peer certificate: certificate expired"),
        (TlsFault::NotYetValid, "tls: invalid peer certificate: certificate not valid yet"),
        (TlsFault::WrongName, "tls: invalid peer certificate: certificate not valid for name"),
        (TlsFault::NotTls, "tls: "),
        (TlsFault::Cut, "reset: the connection was reset during the handshake"),
        (TlsFault::Silent, "timeout: 1 s were over while agreeing on TLS"),
    ] {
        let sink = Sink::start_tls_fault(fault).await.unwrap();
        roots.push(sink.certificate().unwrap().clone());
        let class = reason.split(':').next().unwrap();
        rows.push((sink.url("/in"), ("failed", Some(class), None, reason)));
        sinks.push(sink);
    }
    let stranger = Sink::start_tls(&[]).await.unwrap();
    rows.push((stranger.url("/"), ("failed", Some("tls"), None, "tls: invalid peer certificate: UnknownIssuer")));
    let freed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    rows.push((format!("http://{freed}/"), ("failed", Some("refused"), None, "refused: nobody listens there")));
    for (name, said, row) in [
        ("gone", Said::NoSuchName, ("failed", Some("dns"), None, "dns: the name does not exist")),
        ("empty", Said::NoAddress, ("failed", Some("dns"), None, "dns: the name has no address")),
        ("broken", Said::ServFail, ("failed", Some("dns"), None, "dns: the name cannot be looked up")),
        ("moved", Said::addresses(&["10.9.9.9"]), ("discarded", Some("guard"), None, BLOCKED)),
    ] {
        names.say(&format!("{name}.example.com"), [said]);
        rows.push((format!("http://{name}.example.com:{}/", freed.port()), row));
    }
    let asking = Guard::new(["127.0.0.1/32"]).unwrap().asking(&[names.address()]).unwrap();
    let stage = Stage::set(Client::new(asking, roots).unwrap()).await;
    let mut endpoints = Vec::new();
    for (n, (url, expected)) in rows.into_iter().enumerate() {
        let timeout = Duration::from_secs(if expected.1 == Some("timeout") { 1 } else { 20 });
        let new =
            NewEndpoint { timeout, ..NewEndpoint::new(format!("e{n}"), "http://127.0.0.1:8080/", ["order.paid"]) };
        let id = stage.create(new).await.0;
        let update = "update postrider.endpoint set url = $2 where id = $1";
        sqlx::query(update).bind(id.0).bind(&url).execute(stage.pool()).await.unwrap();
        endpoints.push((id, url, expected));
    }
    stage.record("{}").await;
    let firsts = firsts(&stage, endpoints.len()).await;
    for (id, url, expected) in &endpoints {
        check(url, &firsts[&id.0], *expected);
    }
    assert!(sinks.iter().all(|sink| sink.requests().is_empty()) && stranger.requests().is_empty());
    stage.strike().await;
}

#[tokio::test]
async fn name_servers_that_answer_nobody_are_not_the_endpoints_failure() {
    let silent = tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let asking = Guard::new(["127.0.0.1/32"]).unwrap().asking(&[silent.local_addr().unwrap()]).unwrap();
    let stage = Stage::set(Client::new(asking, []).unwrap()).await;
    let (id, _) = stage.endpoint("billing", "https://hooks.example.com/in").await;
    stage.record("{}").await;
    let firsts = firsts(&stage, 1).await;
    check("silence", &firsts[&id.0], ("postponed", Some("local"), None, "local: our name servers do not answer"));
    stage.strike().await;
}

#[tokio::test]
async fn c59_no_retry_comes_before_the_time_that_an_answer_asks_for() {
    let stage = Stage::set(Client::new(guard(), []).unwrap()).await;
    // Dates count from the moment at which they are written here; a second is lost to whole seconds.
    let at = |seconds: u64| httpdate::fmt_http_date(std::time::SystemTime::now() + Duration::from_secs(seconds));
    let (soon, past) = (at(1_000), httpdate::fmt_http_date(std::time::UNIX_EPOCH));
    // What is asked for, and the bounds of the wait in seconds: never earlier, later by a tenth of the schedule's first wait at most.
    let rows: Vec<(u16, String, (f64, f64))> = vec![
        (429, "700".to_owned(), (700.0, 701.0)),
        (503, "700".to_owned(), (700.0, 701.0)),
        (500, "700".to_owned(), (700.0, 771.0)),
        (302, "700".to_owned(), (700.0, 771.0)),
        (404, "700".to_owned(), (700.0, 771.0)),
        (429, soon.clone(), (980.0, 1_001.0)),
        (500, soon, (980.0, 1_101.0)),
        (429, "99999999999999999999".to_owned(), (36_000.0, 36_001.0)),
        (429, "Fri, 31 Dec 9999 23:59:59 GMT".to_owned(), (36_000.0, 36_001.0)),
        (429, past, (5.0, 5.6)),
        (429, "0".to_owned(), (5.0, 5.6)),
        (429, "7, 9".to_owned(), (5.0, 5.6)),
        (429, String::new(), (5.0, 5.6)),
        (503, "1e300".to_owned(), (5.0, 5.6)),
        (503, "NaN".to_owned(), (5.0, 5.6)),
        (500, "-5".to_owned(), (5.0, 5.6)),
    ];
    let mut sinks = Vec::new();
    for (n, (status, value, bounds)) in rows.into_iter().enumerate() {
        let sink = Sink::start().await.unwrap();
        sink.script([Reply::retry_after(status, &value)]);
        sinks.push((
            stage.endpoint(&format!("e{n}"), &sink.url("/")).await.0,
            sink,
            format!("{status} {value}"),
            bounds,
        ));
    }
    stage.record("{}").await;
    let firsts = firsts(&stage, sinks.len()).await;
    for (id, _sink, told, (least, most)) in &sinks {
        let wait = firsts[&id.0].wait.unwrap();
        // The row of the attempt is finished before the job is: the wait from there is a little longer.
        assert!((*least..*most + 3.0).contains(&wait), "{told}: {wait} s");
    }
    stage.strike().await;
}
