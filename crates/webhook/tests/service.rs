//! A service of our own as the target of a subscription: signed calls over real HTTP, and what its answers mean.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a test asks the database itself, and a failed helper is a failed test"
)]

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hyper::header::{HeaderMap, HeaderName};
use postrider::{
    Bus, Kind, NewEvent, Payload, Retry, Running, Settings, Subscription, contract::signature::Secret, proof,
};
use postrider_testkit::{TestDb, until};
use postrider_webhook::Service;
use sqlx::{AssertSqlSafe, PgPool};
use standardwebhooks::Webhook;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

const SOON: Duration = Duration::from_mins(1);
const SECRET: &str = "whsec_AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=";

/// What a service was asked.
#[derive(Debug, Clone)]
struct Asked {
    head: String,
    body: String,
}

/// A service that answers what it is told to, one answer for each request, as soon as it may.
struct Receiver {
    url: String,
    asked: Arc<Mutex<Vec<Asked>>>,
    gate: Arc<Semaphore>,
}

impl Receiver {
    async fn answering(answers: &[&str]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/call?x=1", listener.local_addr().unwrap());
        let asked: Arc<Mutex<Vec<Asked>>> = Arc::default();
        let gate = Arc::new(Semaphore::new(0));
        let mut answers: VecDeque<String> = answers.iter().map(|&answer| answer.to_owned()).collect();
        let (seen, opens) = (Arc::clone(&asked), Arc::clone(&gate));
        tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut text = Vec::new();
                let (head, body) = loop {
                    let mut part = [0; 4096];
                    let n = stream.read(&mut part).await.unwrap();
                    assert!(n > 0, "the request ended early");
                    text.extend_from_slice(&part[..n]);
                    let all = String::from_utf8_lossy(&text).into_owned();
                    let Some((head, body)) = all.split_once("\r\n\r\n") else { continue };
                    let length = head
                        .lines()
                        .find_map(|line| line.to_lowercase().strip_prefix("content-length: ").map(str::to_owned));
                    if body.len() == length.unwrap().parse::<usize>().unwrap() {
                        break (head.to_owned(), body.to_owned());
                    }
                };
                seen.lock().unwrap().push(Asked { head, body });
                opens.acquire().await.unwrap().forget();
                let answer = answers.pop_front().unwrap_or_else(|| "204 No Content|".to_owned());
                let (status, body) = answer.split_once('|').unwrap();
                let text =
                    format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}", body.len());
                stream.write_all(text.as_bytes()).await.unwrap();
            }
        });
        Self { url, asked, gate }
    }

    fn open(self) -> Self {
        self.gate.add_permits(1_000);
        self
    }

    fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }
}

async fn text(pool: &PgPool, sql: &str) -> String {
    sqlx::query_scalar(AssertSqlSafe(sql.to_owned())).fetch_one(pool).await.unwrap()
}

/// A bus whose subscription calls the service, with retries after a tenth of a second.
async fn at_work(pool: &PgPool, service: Service) -> (Bus, Running) {
    let mut kind = service.kind("billing");
    kind.retry = Retry::Steps(vec![Duration::from_millis(100)]);
    let subscription = Subscription::new("billing.on-paid", ["order.paid"]).kind(kind).handler(Arc::new(service));
    let settings = Settings { beat: Duration::from_millis(100), ..Settings::default() };
    let bus = Bus::builder(pool.clone())
        .types(["order.paid"])
        .kinds([Kind::new("t.k")])
        .subscriptions([subscription])
        .settings(settings)
        .build()
        .await
        .unwrap();
    let running = bus.start().unwrap();
    (bus, running)
}

async fn record(bus: &Bus, pool: &PgPool) -> String {
    let event = NewEvent::new("order.paid", "order/42", Payload::parse(r#"{ "total" : 1.50 }"#).unwrap());
    bus.recorder().record(&mut *pool.acquire().await.unwrap(), &event).await.unwrap().id.to_string()
}

/// How the job ended, and how many attempts it spent.
async fn ended(pool: &PgPool) -> String {
    until("the job ends", SOON, async || {
        let sql = "select coalesce((select format('%s %s %s', postrider.end_name(d.state), d.attempt, d.reason) from postrider.done d), '')";
        let end = text(pool, sql).await;
        (!end.is_empty()).then_some(end)
    })
    .await
}

#[tokio::test]
async fn a_service_is_called_with_the_event_signed_by_its_secret_and_204_is_the_end() {
    let db = TestDb::fresh().await;
    let receiver = Receiver::answering(&["204 No Content|"]).await.open();
    let service = Service::new(&receiver.url, Secret::parse(SECRET).unwrap()).unwrap();
    let (bus, running) = at_work(db.pool(), service).await;
    let id = record(&bus, db.pool()).await;
    assert_eq!(ended(db.pool()).await, "completed 1 ");
    running.stop(SOON).await;
    let [asked] = &receiver.asked()[..] else { panic!("{:?}", receiver.asked()) };
    assert!(asked.head.starts_with("POST /call?x=1 HTTP/1.1\r\n"), "{}", asked.head);
    assert!(asked.body.starts_with(&format!(r#"{{"id":"{id}","type":"order.paid","subject":"order/42","#)));
    assert!(asked.body.ends_with(r#""data":{ "total" : 1.50 }}"#), "{}", asked.body);
    // an implementation that is not ours believes it
    let mut headers = HeaderMap::new();
    for (name, value) in asked.head.lines().skip(1).filter_map(|line| line.split_once(": ")) {
        headers.insert(HeaderName::try_from(name).unwrap(), value.parse().unwrap());
    }
    assert_eq!(headers["webhook-id"], id.as_str());
    Webhook::new(SECRET).unwrap().verify(asked.body.as_bytes(), &headers).unwrap();
    Webhook::new(SECRET).unwrap().verify(b"{}", &headers).unwrap_err();
}

#[tokio::test]
async fn a_service_puts_off_discards_and_fails_and_each_attempt_is_seen() {
    let db = TestDb::fresh().await;
    let receiver = Receiver::answering(&[
        r#"200 OK|{"verdict":"snooze","seconds":1}"#,
        "500 Internal Server Error|on fire",
        r#"422 Unprocessable Content|{"verdict":"discard","reason":"no such customer"}"#,
    ])
    .await
    .open();
    let service = Service::new(&receiver.url, Secret::parse(SECRET).unwrap()).unwrap();
    let (bus, running) = at_work(db.pool(), service).await;
    record(&bus, db.pool()).await;
    // putting it off spends no attempt
    assert_eq!(ended(db.pool()).await, "discarded 2 no such customer");
    running.stop(SOON).await;
    assert_eq!(receiver.asked().len(), 3);
    let errors = "select string_agg(error, '; ') from postrider.attempt";
    assert!(text(db.pool(), errors).await.contains("the service answered 500: on fire"));
    assert!(proof::verify(db.pool(), None, None).await.unwrap().is_whole());
}

#[tokio::test]
async fn nothing_is_open_on_the_database_while_a_service_thinks_and_a_call_has_one_deadline() {
    let db = TestDb::fresh().await;
    let receiver = Receiver::answering(&[]).await;
    let service = Service::new(&receiver.url, Secret::parse(SECRET).unwrap()).unwrap();
    let service = service.timeout(Duration::from_secs(2)).unwrap();
    let (bus, running) = at_work(db.pool(), service).await;
    record(&bus, db.pool()).await;
    until("it is asked", SOON, async || (!receiver.asked().is_empty()).then_some(())).await;
    let open =
        "select count(*)::text from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()
                 and state like 'idle in transaction%'";
    assert_eq!(text(db.pool(), open).await, "0");
    let errors = "select coalesce(string_agg(error, '; '), '') from postrider.attempt";
    let error = until("the first call is given up", SOON, async || {
        let error = text(db.pool(), errors).await;
        (!error.is_empty()).then_some(error)
    })
    .await;
    assert!(error.contains("2 s"), "{error}");
    receiver.gate.add_permits(100);
    assert!(ended(db.pool()).await.starts_with("completed"));
    running.stop(SOON).await;
}

#[tokio::test]
async fn what_is_held_calls_no_service_until_it_is_let_go() {
    let db = TestDb::fresh().await;
    let receiver = Receiver::answering(&[]).await.open();
    let service = Service::new(&receiver.url, Secret::parse(SECRET).unwrap()).unwrap();
    let (bus, running) = at_work(db.pool(), service).await;
    proof::pause_outbound(db.pool(), "a drill").await.unwrap();
    let id = record(&bus, db.pool()).await.parse().unwrap();
    let job = proof::await_fanout(db.pool(), id, SOON).await.unwrap().unwrap().jobs.remove(0);
    until("it is seen to wait", SOON, async || {
        let sql = format!("select coalesce((select 'parked' from postrider.parked where id = {job}), 'no')");
        (text(db.pool(), &sql).await == "parked").then_some(())
    })
    .await;
    assert_eq!(receiver.asked().len(), 0);
    proof::resume_outbound(db.pool()).await.unwrap();
    assert_eq!(ended(db.pool()).await, "completed 1 ");
    running.stop(SOON).await;
}

#[test]
fn a_service_may_be_anywhere_but_not_anything() {
    let secret = || Secret::parse(SECRET).unwrap();
    for url in [
        "http://localhost:5432/",
        "http://billing/",
        "https://billing.svc.cluster.local:81/x",
        "http://10.0.0.7",
        "http://[::1]:9/",
    ] {
        Service::new(url, secret()).unwrap();
    }
    for url in ["", "billing", "ftp://billing/", "http://u:p@billing/", "http://billing:0/", "http://billing\n/"] {
        assert_eq!(Service::new(url, secret()).unwrap_err().field, "url", "{url}");
    }
    let service = || Service::new("http://billing/", secret()).unwrap();
    for timeout in [Duration::ZERO, Duration::from_secs(301)] {
        assert_eq!(service().timeout(timeout).unwrap_err().field, "timeout");
    }
}
