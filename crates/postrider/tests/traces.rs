//! What a subscriber hears of a bus at work: the spans of `docs/metrics.md`, with what handlers log inside of them.
#![expect(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use postrider::{Bus, Kind, KindSpec, NewEvent, NewJob, Payload, Retry, Settings, Subscription, Verdict, handler};
use postrider_testkit::{TestDb, until};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Instrument as _, Level, Subscriber, info, info_span};
use tracing_subscriber::layer::{Context, SubscriberExt as _};
use tracing_subscriber::registry::{LookupSpan, SpanRef};
use tracing_subscriber::{Layer, Registry, filter::LevelFilter};

const GRACE: Duration = Duration::from_secs(10);
const SOON: Duration = Duration::from_mins(1);

/// Fields by name, as text.
#[derive(Debug, Clone, Default, PartialEq)]
struct Fields(BTreeMap<&'static str, String>);

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name(), value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.insert(field.name(), format!("{value:?}"));
    }
}

impl Fields {
    fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }
}

/// What was heard: spans of the library that have closed, by name; each shape of a span; each message with the names of the spans that it was
/// in and the fields of the outermost one.
#[derive(Debug, Default)]
struct Heard {
    closed: Vec<(&'static str, Fields)>,
    shapes: BTreeSet<(&'static str, &'static str, Vec<&'static str>)>,
    messages: Vec<(String, Vec<&'static str>, Fields)>,
}

#[derive(Debug, Clone, Default)]
struct Ear(Arc<Mutex<Heard>>);

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Ear {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        context.span(id).unwrap().extensions_mut().insert(fields);
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        values.record(context.span(id).unwrap().extensions_mut().get_mut::<Fields>().unwrap());
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let spans: Vec<_> = context.event_scope(event).into_iter().flatten().collect();
        let names = spans.iter().map(SpanRef::name).collect();
        let outermost = spans.last().and_then(|span| span.extensions().get::<Fields>().cloned()).unwrap_or_default();
        let message = fields.get("message").unwrap_or_default().to_owned();
        self.0.lock().unwrap().messages.push((message, names, outermost));
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        let span = context.span(&id).unwrap();
        let metadata = span.metadata();
        if !metadata.target().starts_with("postrider") {
            return;
        }
        let mut heard = self.0.lock().unwrap();
        let level = if *metadata.level() == Level::INFO { "info" } else { "debug" };
        heard.shapes.insert((metadata.name(), level, metadata.fields().iter().map(|field| field.name()).collect()));
        heard.closed.push((metadata.name(), span.extensions().get::<Fields>().unwrap().clone()));
    }
}

impl Ear {
    fn closed(&self, name: &str) -> Vec<Fields> {
        let heard = self.0.lock().unwrap();
        heard.closed.iter().filter(|(known, _)| *known == name).map(|(_, fields)| fields.clone()).collect()
    }

    /// The span of the one attempt of a kind.
    fn attempt(&self, kind: &str) -> Fields {
        let mut found: Vec<Fields> = self.closed("process");
        found.retain(|fields| fields.get("postrider.job.kind") == Some(kind));
        assert_eq!(found.len(), 1, "{kind}: {found:?}");
        found.remove(0)
    }
}

/// Hears what happens on this thread until the guard is dropped: the runtime of a test has no other one.
fn listen(level: LevelFilter) -> (Ear, tracing::subscriber::DefaultGuard) {
    let ear = Ear::default();
    let guard = tracing::subscriber::set_default(Registry::default().with(ear.clone().with_filter(level)));
    (ear, guard)
}

fn fast() -> Settings {
    Settings { beat: Duration::from_millis(100), dead_after: Duration::from_secs(2), ..Settings::default() }
}

fn quick(name: &str) -> KindSpec {
    KindSpec { retry: Retry::Steps(vec![Duration::from_millis(10)]), max_attempts: 1, ..KindSpec::new(name) }
}

fn empty() -> Payload {
    Payload::parse("{}").unwrap()
}

#[tokio::test]
async fn what_a_handler_logs_is_inside_of_the_span_of_its_attempt() {
    let (ear, _guard) = listen(LevelFilter::INFO);
    let db = TestDb::fresh().await;
    let logs = handler(|_, _| async {
        info!("a letter is written");
        async { info!("a letter is folded") }.instrument(info_span!("fold")).await;
        Ok(Verdict::Complete)
    });
    let letter = Subscription::new("letter.write", ["order.*"])
        .kind(KindSpec { queue: "mail".to_owned(), ..quick("letter.write") })
        .handler(logs);
    let bus = Bus::builder(db.pool().clone())
        .types(["order.paid"])
        .subscriptions([letter])
        .settings(fast())
        .build()
        .await
        .unwrap();
    let mut tx = db.pool().begin().await.unwrap();
    let event = bus.recorder().record(&mut *tx, &NewEvent::new("order.paid", "order/42", empty())).await.unwrap().id;
    tx.commit().await.unwrap();
    let running = bus.start().unwrap();
    until("it is done", SOON, async || (bus.figures().completed == 1).then_some(())).await;
    running.stop(GRACE).await;

    let job: i64 = sqlx::query_scalar("select id from postrider.done").fetch_one(db.pool()).await.unwrap();
    let (job, event) = (job.to_string(), event.to_string());
    let expected = Fields(BTreeMap::from([
        ("otel.name", "process letter.write".to_owned()),
        ("otel.kind", "consumer".to_owned()),
        ("messaging.system", "postrider".to_owned()),
        ("messaging.operation.name", "process".to_owned()),
        ("messaging.operation.type", "process".to_owned()),
        ("messaging.destination.name", "mail".to_owned()),
        ("messaging.message.id", job),
        ("postrider.job.kind", "letter.write".to_owned()),
        ("postrider.job.attempt", "1".to_owned()),
        ("postrider.event.id", event),
        ("postrider.event.type", "order.paid".to_owned()),
    ]));
    assert_eq!(ear.attempt("letter.write"), expected, "no status: it did not fail");
    let heard = ear.0.lock().unwrap();
    let letters: Vec<_> = heard.messages.iter().filter(|(message, ..)| message.starts_with("a letter")).collect();
    let written = ("a letter is written".to_owned(), vec!["process"], expected.clone());
    let folded = ("a letter is folded".to_owned(), vec!["fold", "process"], expected);
    assert_eq!(letters, [&written, &folded]);
}

#[tokio::test]
async fn the_span_of_an_attempt_that_failed_says_so_and_how() {
    let (ear, _guard) = listen(LevelFilter::INFO);
    let db = TestDb::fresh().await;
    let kinds = [
        Kind::spec(quick("t.fails")).handler(handler(|_, _| async { Err("as told".into()) })),
        Kind::spec(quick("t.panics")).handler(handler(|_, _| async { panic!("as told") })),
        Kind::spec(KindSpec { timeout: Duration::from_millis(50), ..quick("t.endless") })
            .handler(handler(|_, _| std::future::pending())),
        Kind::spec(quick("t.gives_up")).handler(handler(|_, _| async { Ok(Verdict::Discard("as told".into())) })),
    ];
    let bus = Bus::builder(db.pool().clone()).kinds(kinds).settings(fast()).build().await.unwrap();
    let names = ["t.fails", "t.panics", "t.endless", "t.gives_up"];
    bus.jobs().enqueue(None, &names.map(|kind| NewJob::new(kind, empty()))).await.unwrap();
    let running = bus.start().unwrap();
    until("all are over", SOON, async || (bus.figures().discarded == 4).then_some(())).await;
    running.stop(GRACE).await;
    let told = names.map(|kind| {
        let fields = ear.attempt(kind);
        assert_eq!(fields.get("otel.status_code"), Some("ERROR"), "{kind}");
        assert_eq!(fields.get("postrider.event.id"), None, "{kind}: no event made it");
        fields.get("error.type").map(str::to_owned)
    });
    assert_eq!(told.each_ref().map(|told| told.as_deref().unwrap()), ["error", "panic", "timeout", "discard"]);
    let heard = ear.0.lock().unwrap();
    assert!(heard.closed.iter().all(|(name, _)| *name == "process"), "the calls are heard at debug only");
}

/// Runs three jobs of one event, with everything heard at debug; then a claim is refused.
async fn three_jobs_of_an_event() -> Ear {
    let (ear, _guard) = listen(LevelFilter::DEBUG);
    let db = TestDb::fresh().await;
    let done = |name: &str| Subscription::new(name, ["a.b"]).handler(handler(|_, _| async { Ok(Verdict::Complete) }));
    let subscriptions = ["s.one", "s.two", "s.three"].map(done);
    let bus = Bus::builder(db.pool().clone())
        .types(["a.b"])
        .subscriptions(subscriptions)
        .settings(fast())
        .build()
        .await
        .unwrap();
    let mut tx = db.pool().begin().await.unwrap();
    bus.recorder().record(&mut *tx, &NewEvent::new("a.b", "s", empty())).await.unwrap();
    tx.commit().await.unwrap();
    let running = bus.start().unwrap();
    until("they are done", SOON, async || (bus.figures().completed == 3).then_some(())).await;
    sqlx::raw_sql("alter function postrider.claim rename to no_claim").execute(db.pool()).await.unwrap();
    let failed = |fields: &Fields| fields.get("otel.status_code").is_some();
    // a new job wakes the claim
    until("a claim fails", SOON, async || {
        bus.jobs().enqueue(None, &[NewJob::new("s.one", empty())]).await.unwrap();
        ear.closed("claim").iter().any(failed).then_some(())
    })
    .await;
    running.stop(GRACE).await;
    ear
}

#[tokio::test]
async fn the_calls_that_bring_and_end_jobs_have_spans() {
    let ear = three_jobs_of_an_event().await;
    let text = |fields: &Fields, name| fields.get(name).map(str::to_owned);
    let jobs = |name: &str| -> u64 {
        let counts = ear.closed(name).into_iter().filter_map(|fields| text(&fields, "messaging.batch.message_count"));
        counts.map(|count| count.parse::<u64>().unwrap()).sum()
    };
    assert_eq!(["relay", "claim", "finish"].map(jobs), [3, 3, 3]);
    for (name, kind) in [("relay", "send"), ("claim", "receive"), ("finish", "settle")] {
        let fields = ear.closed(name).remove(0);
        let expected = ["client", "postrider", name, kind].map(|value| Some(value.to_owned()));
        let told = ["otel.kind", "messaging.system", "messaging.operation.name", "messaging.operation.type"];
        assert_eq!(told.map(|field| text(&fields, field)), expected);
        assert_eq!(text(&fields, "otel.status_code"), None, "{name}");
    }
    let claims = ear.closed("claim");
    assert!(claims.iter().all(|fields| fields.get("otel.name") == Some("claim default")), "{claims:?}");
    assert!(claims.iter().all(|fields| fields.get("messaging.destination.name") == Some("default")), "{claims:?}");
    let failed = claims.iter().find(|fields| fields.get("otel.status_code") == Some("ERROR")).unwrap();
    assert_eq!((failed.get("error.type"), failed.get("messaging.batch.message_count")), (Some("_OTHER"), None));
}

#[tokio::test]
async fn the_page_of_spans_and_the_code_say_the_same() {
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/metrics.md")).unwrap();
    let table =
        |head| page.lines().skip_while(move |line| !line.starts_with(head)).skip(2).take_while(|l| l.starts_with('|'));
    let rows: BTreeSet<String> =
        table("| Span |").map(|row| row.rsplitn(3, '|').last().unwrap().trim_end().to_owned()).collect();
    let ear = three_jobs_of_an_event().await;
    let heard = ear.0.lock().unwrap();
    let told = heard.shapes.iter().map(|(name, level, fields)| {
        let fields: Vec<String> = fields.iter().map(|field| format!("`{field}`")).collect();
        format!("| `{name}` | {level} | {}", fields.join(", "))
    });
    assert_eq!(rows, told.collect());

    let fields: BTreeSet<&str> = heard.shapes.iter().flat_map(|(.., fields)| fields.iter().copied()).collect();
    let said = table("| Field |").flat_map(|row| row.split('|').nth(1).unwrap().split(','));
    let said: BTreeSet<&str> = said.map(|name| name.trim().trim_matches('`')).collect();
    assert_eq!(said, fields);
}
