//! Z7, Z10, C37: what a process costs that has nothing to do, what it costs one that hears no notifications, and what it costs its host
//! while Postgres is away.
#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "a failed helper is a failed test, and a run tells what it counted"
)]

use std::collections::BTreeMap;
use std::io::Write;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::Router;
use axum::routing::get;
use postrider::{
    Builder, Bus, Jobs, Kind, NewEvent, NewJob, Payload, PgJobs, Settings, Stopped, Subscription, Verdict, Waited,
    WakeUps, handler,
};
use postrider_testkit::proxy::{At, Cut, Fault, Hello, Proxy, Script};
use postrider_testkit::{TestDb, TestServer, until};
use sqlx::PgPool;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::sleep;

const SOON: Duration = Duration::from_mins(1);
const HOUR: Duration = Duration::from_hours(1);

fn pool(url: &str) -> PgPool {
    PgPoolOptions::new().max_connections(2).connect_lazy_with(PgConnectOptions::from_str(url).unwrap())
}

/// A bus that counts its runs.
fn declared(url: &str, settings: Settings) -> (Builder, Arc<AtomicU64>) {
    let runs = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&runs);
    let handle = handler(move |_, _| {
        counted.fetch_add(1, Ordering::Relaxed);
        async { Ok(Verdict::Complete) }
    });
    let builder = Bus::builder(pool(url))
        .app("idle")
        .types(["order.made"])
        .kinds([Kind::new("t.note").handler(Arc::clone(&handle))])
        .subscriptions([Subscription::new("note.order", ["order.*"]).handler(handle)])
        .settings(settings);
    (builder, runs)
}

fn note() -> [NewJob; 1] {
    [NewJob::new("t.note", Payload::of(&1).unwrap())]
}

/// What each purpose has sent so far: all messages, and statements among them.
fn sent(proxy: &Proxy) -> BTreeMap<String, (u64, u64)> {
    let mut sent = BTreeMap::<String, (u64, u64)>::new();
    for connection in proxy.connections() {
        let (purpose, counts) = (connection.hello().application, connection.counts());
        let (messages, statements) = sent.entry(purpose).or_default();
        *messages += counts.frontends();
        *statements += counts.frontend(b'Q') + counts.frontend(b'E');
    }
    sent
}

/// Waits until the claim and the relay ask nothing more by themselves.
async fn quiet(proxy: &Proxy) {
    let asked = || ["claim", "relay"].map(|purpose| sent(proxy).get(&format!("postrider {purpose}")).copied());
    until("it is quiet", SOON, async || {
        let before = asked();
        sleep(Duration::from_millis(1_500)).await;
        (before.iter().all(Option::is_some) && asked() == before).then_some(())
    })
    .await;
}

/// What is sent from now on for a time, by purpose, without those that sent nothing.
async fn over(proxy: &Proxy, time: Duration) -> BTreeMap<String, (u64, u64)> {
    let (before, accepted) = (sent(proxy), proxy.accepted());
    sleep(time).await;
    let mut after = sent(proxy);
    for (purpose, count) in &mut after {
        let then = before.get(purpose).copied().unwrap_or_default();
        *count = (count.0 - then.0, count.1 - then.1);
    }
    after.retain(|_, (messages, _)| *messages > 0);
    assert_eq!(proxy.accepted(), accepted, "a connection was made anew");
    println!("sent in {time:?}: {after:?}");
    after
}

#[tokio::test(flavor = "multi_thread")]
async fn z10_an_idle_process_that_listens_sends_one_beat_a_second_and_nothing_else() {
    let db = TestDb::fresh().await;
    let proxy = Proxy::before(db.url()).await;
    let (builder, _) = declared(&proxy.url(), Settings::default());
    let bus = builder.build().await.unwrap();
    let running = bus.start().unwrap();
    quiet(&proxy).await;
    let heard = |proxy: &Proxy| -> u64 {
        let listens = proxy.connections().into_iter().filter(|c| c.hello().application == "postrider listen");
        listens.map(|c| c.counts().backend(b'A')).sum()
    };
    let before = heard(&proxy);
    // longer than nothing may be heard, twice
    let seconds = 24;
    let found = over(&proxy, Duration::from_secs(seconds)).await;
    let (messages, statements) = found.get("postrider beat").copied().unwrap();
    assert_eq!(found.len(), 1, "more than beats: {found:?}");
    assert!((seconds - 4..=seconds + 1).contains(&statements), "{statements} in {seconds} s");
    assert_eq!(messages, statements * 4, "bind, execute, close, sync: what is prepared stays so");
    assert!(heard(&proxy) > before, "nobody looked whether the listener still hears");
    assert_eq!(running.stop(SOON).await, Stopped::Drained);
}

#[tokio::test(flavor = "multi_thread")]
async fn z10_a_process_that_polls_opens_nothing_that_listens_and_looks_once_an_interval() {
    let db = TestDb::fresh().await;
    let proxy = Proxy::before(db.url()).await;
    let settings = Settings { wake_ups: WakeUps::Poll, housekeeping: false, ..Settings::default() };
    let (builder, runs) = declared(&proxy.url(), settings);
    let bus = builder.build().await.unwrap();
    let running = bus.start().unwrap();
    sleep(Duration::from_secs(3)).await;
    let seconds = 10;
    let found = over(&proxy, Duration::from_secs(seconds)).await;
    let purposes: Vec<&str> = found.keys().map(String::as_str).collect();
    assert_eq!(purposes, ["postrider beat", "postrider claim", "postrider relay"]);
    for (purpose, (_, statements)) in &found {
        assert!((seconds - 4..=seconds + 1).contains(statements), "{purpose}: {statements} in {seconds} s");
    }
    let enqueued = Instant::now();
    bus.jobs().enqueue(None, &note()).await.unwrap();
    until("it runs", SOON, async || (runs.load(Ordering::Relaxed) == 1).then_some(())).await;
    assert!(enqueued.elapsed() <= Duration::from_secs(2), "{:?}", enqueued.elapsed());
    assert_eq!(running.stop(SOON).await, Stopped::Drained);
}

#[tokio::test(flavor = "multi_thread")]
async fn z7_without_notifications_work_starts_within_a_poll() {
    let db = TestDb::fresh().await;
    let proxy = Proxy::before(db.url()).await;
    let deaf = |hello: &Hello| match hello.application.as_str() {
        "postrider listen" => Script::new().at(At::Frontend(1), Fault::Cut(Cut::Fin)),
        _ => Script::new(),
    };
    proxy.script(deaf);
    // no beat helps: only the poll does
    let poll_interval = Duration::from_millis(400);
    let settings =
        Settings { beat: HOUR, dead_after: 3 * HOUR, housekeeping: false, poll_interval, ..Settings::default() };
    let (builder, runs) = declared(&proxy.url(), settings);
    let bus = builder.build().await.unwrap();
    let running = bus.start().unwrap();
    sleep(Duration::from_secs(2)).await;
    for n in 1..=4 {
        let begun = Instant::now();
        if n % 2 == 0 {
            bus.jobs().enqueue(None, &note()).await.unwrap();
        } else {
            let event = NewEvent::new("order.made", "order/1", Payload::of(&1).unwrap());
            let mut connection = db.pool().acquire().await.unwrap();
            bus.recorder().record(&mut *connection, &event).await.unwrap();
        }
        until("it runs", SOON, async || (runs.load(Ordering::Relaxed) == n).then_some(())).await;
        // an event waits for two polls, the relay's and the claim's; the second is a busy machine's
        assert!(begun.elapsed() <= 2 * poll_interval + Duration::from_secs(1), "{n}: {:?}", begun.elapsed());
        sleep(Duration::from_secs(1)).await;
    }
    assert_eq!(running.stop(SOON).await, Stopped::Drained);
}

/// What was logged, and when.
#[derive(Debug, Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().push(String::from_utf8_lossy(bytes).trim_end().to_owned());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Log {
    /// Takes what there is, by component: the purpose of a connection, else the module.
    fn take(&self) -> BTreeMap<String, Vec<String>> {
        let mut lines = BTreeMap::<String, Vec<String>>::new();
        for line in std::mem::take(&mut *self.0.lock().unwrap()) {
            let purpose = line.split_once("purpose=\"").and_then(|(_, rest)| rest.split_once('"'));
            let module = line.split_once("postrider").and_then(|(_, rest)| rest.split_once(' '));
            let component = purpose.or(module).map_or("", |(component, _)| component);
            lines.entry(component.to_owned()).or_default().push(line.clone());
        }
        lines
    }
}

/// The host's own work: a route that is asked again and again.
async fn ping(address: std::net::SocketAddr) -> Duration {
    let begun = Instant::now();
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(b"GET /ping HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.ends_with("pong"), "{answer}");
    begun.elapsed()
}

/// What this process has used of the processors.
fn cpu() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
    let ticks: u64 = fields.iter().skip(11).take(2).map(|ticks| ticks.parse::<u64>().unwrap()).sum();
    Duration::from_millis(ticks * 10)
}

/// How long an outage lasts if `POSTRIDER_OUTAGE_SECONDS` does not say that it lasts longer.
const OUTAGE: Duration = Duration::from_secs(12);

fn outage_length() -> Duration {
    let told = std::env::var("POSTRIDER_OUTAGE_SECONDS").ok().and_then(|seconds| seconds.parse().ok());
    told.map_or(OUTAGE, Duration::from_secs)
}

/// Lives through an outage of this length: asked all the time, it answers, and uses and says little.
async fn outage(address: std::net::SocketAddr, log: &Log, length: Duration) {
    let (begun, used) = (Instant::now(), cpu());
    let mut took = Vec::new();
    while begun.elapsed() < length {
        took.push(ping(address).await);
        sleep(Duration::from_millis(50)).await;
    }
    let used = cpu().saturating_sub(used);
    took.sort_unstable();
    let late = took.iter().filter(|took| **took >= Duration::from_millis(50)).count();
    println!("{} pings, {late} late, {used:?} of the processors in {length:?}", took.len());
    // what the machine does beside a short test makes one late now and then
    let (late_most, share) = if length > OUTAGE { (took.len() / 100, 20) } else { (took.len() / 20, 10) };
    assert!(late <= late_most, "{late} of {} pings are late: {:?}", took.len(), took.last());
    assert!(used <= length / share, "{used:?} in {length:?}");
    for (component, lines) in log.take() {
        let most = 1 + length.as_secs() / 10;
        assert!(lines.len() as u64 <= most, "{component} said {}: {lines:#?}", lines.len());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn c37_a_host_lives_while_postgres_is_away_at_its_start_and_later() {
    let log = Log::default();
    let writer = log.clone();
    tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).init();
    let server = TestServer::start().await;
    server.halt().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, Router::new().route("/ping", get(async || "pong"))).await });

    let (builder, runs) = declared(server.url(), Settings::default());
    let at_once = Instant::now();
    let away = builder.clone().build().await.unwrap_err();
    assert!(away.is_transient() && at_once.elapsed() < Duration::from_secs(11), "{away:?}");
    let built = Arc::new(AtomicBool::new(false));
    let building = tokio::spawn({
        let built = Arc::clone(&built);
        async move {
            let bus = builder.build_when_reachable().await.unwrap();
            built.store(true, Ordering::Relaxed);
            bus
        }
    });
    outage(address, &log, outage_length()).await;
    assert!(!built.load(Ordering::Relaxed));
    server.restart().await;
    let bus = building.await.unwrap();
    let running = bus.start().unwrap();
    let works = async |n: u64| {
        until("it can be written", SOON, async || bus.jobs().enqueue(None, &note()).await.ok()).await;
        until("work goes on", SOON, async || (runs.load(Ordering::Relaxed) >= n).then_some(())).await;
    };
    works(1).await;
    drop(log.take());
    server.halt().await;
    outage(address, &log, outage_length()).await;
    server.restart().await;
    works(2).await;
    for (component, lines) in log.take() {
        assert!(lines.len() <= 1, "{component} said {}: {lines:#?}", lines.len());
    }
    assert_eq!(running.stop(SOON).await, Stopped::Drained);
}

/// Waits for so many jobs that never end; answers with the statements that the database got for them.
async fn asked_by(db: &TestDb, bus: &Bus, n: usize) -> u64 {
    let jobs: Vec<NewJob> = (0..n).map(|n| NewJob::new("t.note", Payload::of(&n).unwrap())).collect();
    let made = bus.jobs().enqueue(None, &jobs).await.unwrap();
    let proxy = Proxy::before(db.url()).await;
    let waiting = Arc::new(PgJobs::new(pool(&proxy.url())));
    let waits = made.into_iter().zip(0..).map(|(made, n)| {
        let waiting = Arc::clone(&waiting);
        tokio::spawn(async move {
            // they come one after the other, so that their looks do not fall together by themselves
            sleep(Duration::from_millis(13) * n).await;
            waiting.wait(&made.id, Duration::from_secs(3)).await.unwrap()
        })
    });
    for wait in waits.collect::<Vec<_>>() {
        assert!(matches!(wait.await.unwrap(), Waited::TimedOut(_)));
    }
    // one `Bind` for each statement that is run
    proxy.counts().frontend(b'B')
}

#[tokio::test]
async fn sixty_who_wait_cost_one_look_each_and_then_hardly_more_than_one_who_waits() {
    let db = TestDb::fresh().await;
    let (builder, _) = declared(db.url(), Settings::default());
    let bus = builder.build().await.unwrap();
    let one = asked_by(&db, &bus, 1).await;
    let sixty = asked_by(&db, &bus, 60).await;
    println!("in three seconds: {one} statements for one, {sixty} for sixty");
    // the first look of each is two statements: whether it has ended, and whether it is there
    assert!(one > 5 && sixty <= 2 * 60 + 8 * one, "{one} statements for one, {sixty} for sixty");
}
