use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE};
use postrider::contract::signature::Secret;
use postrider::inspect;
use postrider_testkit::{NameServer, Reply, Said, Sink, TlsFault, until};
use postrider_webhook::{Client, Endpoints, Exchange, Guard, Headers, NewEndpoint, Post, Rotated, Rotation, Seal};
use tracing_subscriber::filter::LevelFilter;

use crate::stage::{SEAL_KEY, Stage, guard};

const LONG: Duration = Duration::from_mins(1);
const BEARER: &str = "canary-7f3a9c-of-the-authorization";
const API_KEY: &str = "canary-51d0e2-of-a-header";
/// Not a secret of ours, so what we use may log it; we do not.
const TOKEN: &str = "canary-2c6b18-of-a-redirect";
const PASSWORD: &str = "canary-90b4aa-of-a-url";
/// An endpoint's url is for its owner to see, and for no metric and no log.
const IN_URL: &str = "canary-c4e871-of-a-query";

/// Everything that is logged, at every level, by us and by what we use.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn listen() -> Self {
        let log = Self::default();
        let writer = log.clone();
        let lines = tracing_subscriber::fmt().with_ansi(false).with_max_level(LevelFilter::TRACE);
        lines.with_writer(move || writer.clone()).init();
        log
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().unwrap()).into_owned()
    }
}

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Bytes in the forms in which a program may show them.
fn forms(bytes: &[u8]) -> Vec<String> {
    let hex = bytes.iter().fold(String::new(), |hex, byte| format!("{hex}{byte:02x}"));
    let list = format!("{bytes:?}");
    vec![
        STANDARD.encode(bytes),
        STANDARD_NO_PAD.encode(bytes),
        URL_SAFE.encode(bytes),
        hex.to_uppercase(),
        hex,
        list.trim_matches(['[', ']']).to_owned(),
    ]
}

fn look(place: &str, text: &str, canaries: &[String]) {
    for canary in canaries {
        if let Some(at) = text.find(canary.as_str()) {
            let from = text[..at].char_indices().rev().nth(200).map_or(0, |(from, _)| from);
            panic!("{place} shows {canary}: …{}", &text[from..at]);
        }
    }
}

/// A receiver for each way in which a request may end, and the url of each that is not there.
async fn receivers(names: &NameServer) -> (Vec<Sink>, Vec<String>) {
    let mut sinks = Vec::new();
    for reply in [
        Reply::Echo,
        Reply::Status(204),
        Reply::with_body(500, "down"),
        Reply::redirect(302, &format!("https://hooks.example.com/{TOKEN}")),
        Reply::retry_after(429, "7200"),
        Reply::Status(410),
        Reply::Reset(Vec::new()),
        Reply::HalfClose,
        Reply::Raw(b"garbage\r\n\r\n".to_vec()),
        Reply::Raw(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nto".to_vec()),
        Reply::Stall(Vec::new()),
        Reply::endless(),
    ] {
        for sink in
            [Sink::start().await.unwrap(), Sink::start_tls(&[]).await.unwrap(), Sink::start_h2(&[]).await.unwrap()]
        {
            sink.script(vec![reply.clone(); 2]);
            sinks.push(sink);
        }
    }
    for fault in [TlsFault::Expired, TlsFault::WrongName, TlsFault::Cut, TlsFault::NotTls, TlsFault::Silent] {
        sinks.push(Sink::start_tls_fault(fault).await.unwrap());
    }
    names.say("broken.example.com", [Said::ServFail]);
    names.set("inside.example.com", &["10.9.9.9"]);
    let freed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut urls: Vec<String> = sinks.iter().map(|sink| sink.url("/in")).collect();
    urls.extend([
        format!("http://{freed}/"),
        "https://gone.example.com/".to_owned(),
        "https://broken.example.com/".to_owned(),
        "https://inside.example.com/".to_owned(),
    ]);
    (sinks, urls)
}

fn shown(exchange: &Exchange) -> String {
    let headers = exchange.headers.iter().map(|(name, value)| format!("{name}: {}\n", String::from_utf8_lossy(value)));
    let failure = exchange.failure.as_ref().map(|failure| format!("{failure} {failure:?}")).unwrap_or_default();
    format!("{exchange:?}\n{failure}\n{}{}", headers.collect::<String>(), String::from_utf8_lossy(&exchange.body))
}

#[tokio::test]
async fn no_secret_is_seen_in_a_log_an_error_a_debug_output_or_a_row_however_a_delivery_ends() {
    let log = Log::listen();
    let names = NameServer::start().await.unwrap();
    let (sinks, urls) = receivers(&names).await;
    let asking = guard().asking(&[names.address()]).unwrap();
    let roots = sinks.iter().filter_map(|sink| sink.certificate().cloned());
    let client = Client::new(asking.clone(), roots).unwrap();
    let secret = Secret::from_bytes(&[0xa7; 32]).unwrap();
    let mut canaries = [BEARER, API_KEY, PASSWORD, SEAL_KEY, secret.reveal().as_str()].map(str::to_owned).to_vec();
    canaries.extend([&[0xa7; 32], &[1; 32]].into_iter().flat_map(|bytes| forms(bytes)));

    // 1. One request each, with headers that nobody may see, to receivers of which some send back what they get.
    let extra =
        Headers::new([("Authorization", format!("Bearer {BEARER}")), ("X-Api-Key", API_KEY.to_owned())]).unwrap();
    for url in &urls {
        let target = asking.parse(url).unwrap();
        let post = Post { extra: &extra, reuse: Some(1), ..Post::new(&target, b"{}", Duration::from_secs(1)) };
        let exchange = client.post(post).await;
        look(url, &shown(&exchange), &canaries);
        look(url, &format!("{post:?} {client:?}"), &canaries);
    }
    let arrived = sinks.iter().flat_map(Sink::requests).filter(|request| {
        let arrives = |name: &str, value: &str| request.header(name).is_some_and(|found| found.contains(value));
        arrives("authorization", BEARER) && arrives("x-api-key", API_KEY)
    });
    assert!(arrived.count() >= 36, "they did arrive");

    // 2. A delivery each, and whatever is written of it.
    let stage = Stage::set(client.clone()).await;
    let rotated = deliver_to_all(&stage, &urls, &secret, &canaries).await;
    canaries.extend(rotated);
    look_at_metrics(&stage, &canaries).await;

    // 3. Refusals.
    let with_password = format!("https://user:{PASSWORD}@hooks.example.com/");
    let refused = stage.endpoints.create(NewEndpoint::new("a", with_password, ["order.paid"])).await.unwrap_err();
    look("a refusal of a url", &format!("{refused} {refused:?}"), &canaries);
    for text in [format!("{}x", secret.reveal().as_str()), secret.reveal().trim_start_matches("whsec_").to_owned()] {
        let refused = Secret::parse(&text).unwrap_err();
        look("a refusal of a secret", &format!("{refused} {refused:?}"), &canaries);
    }
    let refused = Headers::new([("x-api-key", format!("{API_KEY}\n"))]).unwrap_err();
    look("a refusal of a header", &format!("{refused} {refused:?}"), &canaries);
    let refused = Seal::parse([format!("{SEAL_KEY}=")]).unwrap_err();
    look("a refusal of a key", &format!("{refused} {refused:?}"), &canaries);
    let lost =
        Endpoints::new(stage.pool().clone(), Seal::parse([SEAL_KEY]).unwrap(), Guard::new(["127.0.0.1/32"]).unwrap());
    look("the door", &format!("{lost:?}"), &canaries);
    stage.strike().await;

    // 4. What was logged of all that, at every level.
    let text = log.text();
    assert!(text.contains(" is failed: ") && text.contains("TRACE"), "nothing was logged");
    look("the log", &text, &canaries);
    let ours: String = text.lines().filter(|line| line.contains(" postrider")).collect();
    look("our log", &ours, &[TOKEN.to_owned(), IN_URL.to_owned()]);
}

/// A delivery to each url, with headers of the endpoint's own; answers with the secrets that sign beside the first one.
async fn deliver_to_all(stage: &Stage, urls: &[String], secret: &Secret, canaries: &[String]) -> Vec<String> {
    let mut rotated = Vec::new();
    let headers =
        Headers::new([("Authorization", format!("Bearer {BEARER}")), ("X-Api-Key", API_KEY.to_owned())]).unwrap();
    for (n, url) in urls.iter().enumerate() {
        let new = NewEndpoint {
            // those that answer do so in time on a busy machine too
            timeout: Duration::from_secs(10),
            secret: Some(secret.clone()),
            headers: headers.clone(),
            ..NewEndpoint::new(format!("e{n}"), "http://127.0.0.1:8080/", ["order.paid"])
        };
        look("a new endpoint", &format!("{new:?}"), canaries);
        let created = stage.endpoints.create(new).await.unwrap();
        look("what was created", &format!("{created:?}"), canaries);
        let update = "update postrider.endpoint set url = $2 where id = $1";
        let url = format!("{url}?{IN_URL}");
        sqlx::query(update).bind(created.id.0).bind(url).execute(stage.pool()).await.unwrap();
        let rotation = stage.endpoints.rotate_secret(created.id, Rotation::default()).await.unwrap().unwrap();
        look("a rotation", &format!("{rotation:?}"), canaries);
        let Rotated::Secret(second) = rotation else { panic!("{rotation:?}") };
        rotated.push(second.reveal().to_string());
        rotated.extend(forms(second.as_bytes()));
    }
    stage.record("{}").await;
    until("every first attempt has ended", LONG, async || {
        let sql = "select count(distinct endpoint) from postrider.delivery_attempt where outcome is not null";
        let ended: i64 = sqlx::query_scalar(sql).fetch_one(stage.pool()).await.unwrap();
        (usize::try_from(ended).unwrap() == urls.len()).then_some(())
    })
    .await;
    let canaries = &[canaries, &rotated].concat();
    let tables: Vec<String> = sqlx::query_scalar(
        "select c.oid::regclass::text from pg_class c where c.relnamespace = 'postrider'::regnamespace and c.relkind in ('r', 'p')",
    )
    .fetch_all(stage.pool())
    .await
    .unwrap();
    for table in tables {
        let sql = sqlx::AssertSqlSafe(format!("select coalesce(string_agg(t::text, E'\\n'), '') from {table} t"));
        let rows: String = sqlx::query_scalar(sql).fetch_one(stage.pool()).await.unwrap();
        look(&table, &rows, canaries);
    }
    look(
        "the lists",
        &format!("{:?} {:?}", stage.endpoints.list().await, stage.endpoints.attempts(200).await),
        canaries,
    );
    rotated
}

/// Whatever somebody may gather: the numbers of the process, of the database and of endpoints, with all that tells them apart, and alerts.
async fn look_at_metrics(stage: &Stage, canaries: &[String]) {
    let canaries = &[canaries, &[IN_URL.to_owned(), TOKEN.to_owned()]].concat();
    let pool = stage.pool();
    let metrics = format!("{:?} {:?}", stage.bus.metrics(), stage.bus.figures());
    let figures = stage.endpoints.figures().await.unwrap();
    let counts = format!("{:?} {:?}", inspect::counts(pool).await.unwrap(), inspect::overview(pool).await.unwrap());
    let alerts = inspect::alerts(pool).await.unwrap();
    let of = |outcome: &str| figures.iter().find(|f| f.name == "postrider.webhook.attempts" && f.attribute == outcome);
    assert!(
        of("delivered").is_some_and(|f| f.value >= 6) && of("failed").is_some_and(|f| f.value >= 20),
        "{figures:?}"
    );
    assert!(alerts.iter().any(|alert| alert.name == "endpoint_disabled"), "{alerts:?}");
    look("a metric of the process", &metrics, canaries);
    look("a number of endpoints", &format!("{figures:?}"), canaries);
    look("a number of the database", &counts, canaries);
    look("an alert", &format!("{alerts:?}"), canaries);
    look("a number as JSON", &serde_json::to_string(&figures).unwrap(), canaries);
}
