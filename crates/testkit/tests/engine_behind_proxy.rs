//! F18, F23, C32, C33, C35, C51: a bus whose connections to Postgres are cut, stalled and swallowed. It loses nothing, does nothing twice, and
//! is back at work within a bound.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a failed helper is a failed test")]

use std::collections::BTreeMap;
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use postrider::{
    Bus, EventTypeSpec, Handler, Kind, KindSpec, Retry, Running, Settings, Stopped, Subscription, Verdict, handler,
};
use postrider_testkit::proxy::{At, Connection, Cut, Fault, Proxy, Script, Side};
use postrider_testkit::{Reply, Sink, TestDb, TestServer, until};
use postrider_webhook::{Client, Deliverer, Endpoints, Guard, NewEndpoint, Seal, kind_spec};
use rand::{RngExt, SeedableRng, rngs::StdRng};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{AssertSqlSafe, Executor, PgPool};
use tokio::time::{Instant, sleep, timeout};

const SOON: Duration = Duration::from_mins(1);
/// What C32 and C33 allow from the moment on at which a connection can be had again.
const BACK: Duration = Duration::from_secs(2);
const CUT: Fault = Fault::Cut(Cut::Rst);
/// The base64 of 32 bytes of 1.
const SEAL_KEY: &str = "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=";
const HOUR: Duration = Duration::from_hours(1);

/// When each job began to run, by `n` of its arguments or data.
#[derive(Debug, Clone, Default)]
struct Runs(Arc<Mutex<BTreeMap<i64, Vec<Instant>>>>);

impl Runs {
    fn note(&self, n: i64) {
        self.0.lock().unwrap().entry(n).or_default().push(Instant::now());
    }

    fn of(&self, n: i64) -> Vec<Instant> {
        self.0.lock().unwrap().get(&n).cloned().unwrap_or_default()
    }

    async fn first(&self, n: i64, within: Duration) -> Instant {
        until(&format!("job {n} starts"), within, async || self.of(n).first().copied()).await
    }
}

/// A handler that notes its start and takes its time.
fn noting(runs: &Runs, takes: Duration) -> Arc<dyn Handler> {
    let runs = runs.clone();
    handler(move |job, _| {
        let runs = runs.clone();
        async move {
            let n = job.event.as_ref().map_or(&job.args, |event| &event.data).decode()?;
            runs.note(n);
            sleep(takes).await;
            Ok(Verdict::Complete)
        }
    })
}

/// A bus through the proxy; the pool is used for its options only.
async fn start(url: &str, settings: Settings, handler: Arc<dyn Handler>) -> (Bus, Running) {
    let pool = PgPoolOptions::new().max_connections(1).connect_lazy_with(PgConnectOptions::from_str(url).unwrap());
    let bus = Bus::builder(pool)
        .app("behind")
        .types(["order.made"])
        .kinds([Kind::new("t.note").handler(Arc::clone(&handler))])
        .subscriptions([Subscription::new("note.order", ["order.*"]).handler(handler)])
        .settings(settings);
    let bus = bus.build().await.unwrap();
    let running = bus.start().unwrap();
    (bus, running)
}

async fn enqueue(pool: &PgPool, n: i64) {
    let sql = format!("select count(*) from postrider.enqueue('t.note', '{n}')");
    pool.execute(sqlx::raw_sql(AssertSqlSafe(sql))).await.unwrap();
}

async fn record(pool: &PgPool, n: i64) {
    let sql = format!("select postrider.record('order.made', 'order/{n}', '{n}')");
    pool.execute(sqlx::raw_sql(AssertSqlSafe(sql))).await.unwrap();
}

async fn number(pool: &PgPool, sql: &'static str) -> i64 {
    sqlx::query_scalar(sql).fetch_one(pool).await.unwrap()
}

fn named(proxy: &Proxy, purpose: &str) -> Vec<Connection> {
    let name = format!("postrider {purpose}");
    proxy.connections().into_iter().filter(|connection| connection.hello().application == name).collect()
}

/// Does this to the connections of one purpose.
fn act(proxy: &Proxy, purpose: &str, fault: Fault) {
    for connection in named(proxy, purpose) {
        connection.act(fault);
    }
}

/// Waits until the bus listens, and until it asks the database nothing more by itself.
async fn idle(proxy: &Proxy) {
    until("it listens", SOON, async || {
        // the answer to LISTEN
        named(proxy, "listen").iter().any(|listen| listen.counts().backend(b'C') >= 2).then_some(())
    })
    .await;
    let asked = || -> u64 {
        ["claim", "relay"].iter().flat_map(|purpose| named(proxy, purpose)).map(|c| c.counts().frontends()).sum()
    };
    until("it is quiet", SOON, async || {
        let before = asked();
        sleep(Duration::from_millis(1_200)).await;
        (before > 0 && asked() == before).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn c32_what_is_enqueued_while_the_listener_is_down_or_comes_back_starts_when_it_is_back() {
    let db = TestDb::fresh().await;
    let proxy = Proxy::before(db.url()).await;
    let runs = Runs::default();
    // no poll but for hints
    let settings = Settings { beat: HOUR, dead_after: 3 * HOUR, housekeeping: false, ..Settings::default() };
    let (_bus, running) = start(&proxy.url(), settings, noting(&runs, Duration::ZERO)).await;
    for (round, cut) in [(0, Cut::Fin), (10, Cut::Rst)] {
        idle(&proxy).await;
        let listens = |hello: &postrider_testkit::proxy::Hello| hello.application == "postrider listen";
        proxy.script(move |hello| {
            let refused = Script::new().at(At::Frontend(1), Fault::Cut(Cut::Fin));
            if listens(hello) { refused } else { Script::new() }
        });
        let fired = proxy.fired();
        act(&proxy, "listen", Fault::Cut(cut));
        until("it has tried to listen again", SOON, async || (proxy.fired() > fired).then_some(())).await;
        enqueue(db.pool(), round + 1).await;
        record(db.pool(), round + 2).await;

        proxy.script(move |hello| {
            let stalled = Script::new().at(At::Saying("LISTEN".to_owned()), Fault::Stall);
            if listens(hello) { stalled } else { Script::new() }
        });
        until("LISTEN is under way", SOON, async || {
            named(&proxy, "listen").iter().any(|c| c.counts().frontend(b'Q') > 0).then_some(())
        })
        .await;
        enqueue(db.pool(), round + 3).await;
        record(db.pool(), round + 4).await;
        sleep(Duration::from_millis(500)).await;
        proxy.script(|_| Script::new());
        proxy.resume();
        let back = Instant::now();
        for n in round + 1..=round + 4 {
            let started = runs.first(n, SOON).await;
            assert!(started.saturating_duration_since(back) <= BACK, "{n}: {:?}", started - back);
        }
    }
    assert_eq!(running.stop(SOON).await, Stopped::Drained);
}

#[tokio::test(flavor = "multi_thread")]
async fn c33_after_each_restart_of_postgres_and_each_end_of_the_listener_work_starts_at_once() {
    let server = TestServer::start().await;
    let proxy = Proxy::before(server.url()).await;
    let runs = Runs::default();
    let settings = Settings { housekeeping: false, ..Settings::default() };
    let (_bus, running) = start(&proxy.url(), settings, noting(&runs, Duration::ZERO)).await;
    let faults = ["restart", "kill", "restart", "kill", "long halt", "terminate", "fin", "half close"];
    for (n, fault) in (1..).zip(faults) {
        idle(&proxy).await;
        match fault {
            "restart" => server.restart().await,
            "kill" => {
                server.kill().await;
                server.restart().await;
            }
            "long halt" => {
                server.halt().await;
                sleep(Duration::from_secs(7)).await;
                server.restart().await;
            }
            "terminate" => {
                let sql = "select count(pg_terminate_backend(pid)) from pg_stat_activity where application_name = 'postrider listen'";
                assert_eq!(number(server.pool(), sql).await, 1);
            }
            "fin" => act(&proxy, "listen", Fault::Cut(Cut::Fin)),
            _ => act(&proxy, "listen", Fault::HalfClose(Side::Client)),
        }
        until("it is up", SOON, async || server.pool().execute("select 1").await.is_ok().then_some(())).await;
        let up = Instant::now();
        enqueue(server.pool(), n).await;
        record(server.pool(), 100 + n).await;
        let mut started = Vec::new();
        for n in [n, 100 + n] {
            started.push(runs.first(n, SOON).await.saturating_duration_since(up));
        }
        println!("{fault}: a job started after {:?}, an event's job after {:?}", started[0], started[1]);
        assert!(started.iter().all(|after| *after <= BACK), "{fault}: {started:?}");
    }
    assert_eq!(running.stop(SOON).await, Stopped::Drained);
}

#[tokio::test(flavor = "multi_thread")]
async fn c35_a_listener_that_a_network_forgot_is_found_within_twenty_seconds_and_costs_a_beat_meanwhile() {
    let db = TestDb::fresh().await;
    let proxy = Proxy::before(db.url()).await;
    let runs = Runs::default();
    let settings = Settings { housekeeping: false, ..Settings::default() };
    let (_bus, running) = start(&proxy.url(), settings, noting(&runs, Duration::ZERO)).await;
    idle(&proxy).await;
    act(&proxy, "listen", Fault::BlackHole);
    let forgotten = Instant::now();
    let known = proxy.accepted();
    let again = || named(&proxy, "listen").iter().any(|c| c.hello().number > known && c.counts().backend(b'C') >= 2);
    let mut n = 0;
    while !again() {
        assert!(forgotten.elapsed() <= SOON, "no new LISTEN");
        n += 1;
        let enqueued = Instant::now();
        enqueue(db.pool(), n).await;
        let after = runs.first(n, SOON).await - enqueued;
        assert!(after <= BACK, "{n}: {after:?}, a beat is 1 s");
        sleep(Duration::from_millis(1_700)).await;
    }
    println!("{n} jobs while nothing was heard; LISTEN again after {:?}", forgotten.elapsed());
    assert!(n >= 3);
    assert_eq!(running.stop(SOON).await, Stopped::Drained);
}

#[tokio::test(flavor = "multi_thread")]
async fn f18_connections_that_a_network_forgot_are_given_up_within_twenty_seconds() {
    let db = TestDb::fresh().await;
    let proxy = Proxy::before(db.url()).await;
    let runs = Runs::default();
    let (bus, running) = start(&proxy.url(), Settings::default(), noting(&runs, Duration::ZERO)).await;
    idle(&proxy).await;
    proxy.act(Fault::BlackHole);
    let forgotten = Instant::now();
    enqueue(db.pool(), 1).await;
    record(db.pool(), 2).await;
    // the first limit is that of the beat; what is idle by then is not tried first
    for (n, limit) in [(1, Duration::from_secs(15)), (2, Duration::from_secs(20))] {
        let started = runs.first(n, 2 * SOON).await;
        println!("job {n} started {:?} after every connection was forgotten", started - forgotten);
        assert!(started - forgotten <= limit);
    }
    until("the outcomes are written", SOON, async || (bus.figures().completed == 2).then_some(())).await;
    assert!(forgotten.elapsed() <= SOON, "{:?}", forgotten.elapsed());
    assert_eq!(running.stop(SOON).await, Stopped::Drained);
}

/// A handler that watches its claims, so that they have a transaction of several statements.
struct Watching(Arc<dyn Handler>);

impl Handler for Watching {
    fn handle<'a>(&'a self, job: &'a postrider::Job, cx: &'a postrider::Context) -> postrider::Answer<'a> {
        self.0.handle(job, cx)
    }

    fn watches_claims(&self) -> bool {
        true
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn f18_a_claim_that_a_network_forgot_before_its_commit_does_not_keep_its_jobs() {
    let db = TestDb::fresh().await;
    let proxy = Proxy::before(db.url()).await;
    let runs = Runs::default();
    let watching = Arc::new(Watching(noting(&runs, Duration::ZERO)));
    let settings = Settings { housekeeping: false, ..Settings::default() };
    let (_bus, running) = start(&proxy.url(), settings, watching).await;
    idle(&proxy).await;
    // its next connection sets the isolation level, and claims the job
    proxy.script(|hello| match hello.application.as_str() {
        "postrider claim" => Script::new().at(At::Commit(2), Fault::BlackHole),
        _ => Script::new(),
    });
    act(&proxy, "claim", Fault::Cut(Cut::Fin));
    enqueue(db.pool(), 1).await;
    let forgotten = until("a commit is swallowed", SOON, async || (proxy.fired() > 0).then(Instant::now)).await;
    proxy.script(|_| Script::new());
    let held = "select count(*) from pg_stat_activity where application_name = 'postrider claim' and state = 'idle in transaction'";
    assert_eq!(number(db.pool(), held).await, 1);
    let started = runs.first(1, 3 * SOON).await;
    println!("the job started {:?} after its claim was forgotten", started - forgotten);
    assert!(started - forgotten <= SOON);
    assert_eq!(running.stop(SOON).await, Stopped::Drained);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_whose_beat_a_network_forgot_beats_again_before_anybody_takes_its_leases() {
    let db = TestDb::fresh().await;
    let proxy = Proxy::before(db.url()).await;
    let runs = Runs::default();
    let settings = Settings {
        beat: Duration::from_millis(500),
        dead_after: Duration::from_secs(6),
        housekeeping: false,
        ..Settings::default()
    };
    let (bus, running) = start(&proxy.url(), settings.clone(), noting(&runs, Duration::from_secs(12))).await;
    enqueue(db.pool(), 1).await;
    runs.first(1, SOON).await;
    // the other one comes directly, and watches
    let (other, watching) = start(db.url(), settings, noting(&runs, Duration::from_secs(12))).await;
    act(&proxy, "beat", Fault::BlackHole);
    until("the job is done", SOON, async || (bus.figures().completed == 1).then_some(())).await;
    assert_eq!(other.figures().rescued, 0, "a live worker was robbed");
    assert_eq!(runs.of(1).len(), 1);
    for running in [running, watching] {
        assert_eq!(running.stop(SOON).await, Stopped::Drained);
    }
}

/// What the nemesis did.
#[derive(Debug, Default)]
struct Faults {
    cut: usize,
    cut_all: usize,
    stalled: usize,
    swallowed: usize,
    half_closed: usize,
}

/// Does things to connections for a time; then lets them be.
async fn torment(proxy: &Proxy, seed: u64, time: Duration) -> Faults {
    let mut dice = StdRng::seed_from_u64(seed);
    let mut faults = Faults::default();
    let mut swallowed: Vec<(Instant, Connection)> = Vec::new();
    let start = Instant::now();
    while start.elapsed() < time {
        // a network that forgot a connection is noticed by the server in the end
        for (_, connection) in swallowed.extract_if(.., |(since, _)| since.elapsed() > Duration::from_secs(3)) {
            connection.act(Fault::Cut(Cut::Rst));
        }
        sleep(Duration::from_millis(dice.random_range(30..250))).await;
        let connections = proxy.connections();
        if connections.is_empty() {
            continue;
        }
        let one = &connections[dice.random_range(0..connections.len())];
        let cut = if dice.random_bool(0.5) { Cut::Fin } else { Cut::Rst };
        match dice.random_range(0..20) {
            0..9 => {
                one.act(Fault::Cut(cut));
                faults.cut += 1;
            }
            9 => {
                proxy.act(Fault::Cut(cut));
                faults.cut_all += 1;
            }
            10..15 => {
                one.act(Fault::Stall);
                sleep(Duration::from_millis(dice.random_range(50..800))).await;
                one.resume();
                faults.stalled += 1;
            }
            15..17 => {
                one.act(Fault::HalfClose(if dice.random_bool(0.5) { Side::Client } else { Side::Server }));
                faults.half_closed += 1;
            }
            _ => {
                one.act(Fault::BlackHole);
                swallowed.push((Instant::now(), one.clone()));
                faults.swallowed += 1;
            }
        }
    }
    for (_, connection) in swallowed {
        connection.act(Fault::Cut(Cut::Rst));
    }
    proxy.resume();
    faults
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_lost_done_twice_or_robbed_while_connections_fail_at_random() {
    const SEED: u64 = 7;
    const EACH: i64 = 250;
    let db = TestDb::fresh().await;
    let proxy = Proxy::before(db.url()).await;
    let runs = Runs::default();
    let takes = Duration::from_millis(30);
    let settings = Settings { concurrency: 8, ..Settings::default() };
    let (one, one_running) = start(&proxy.url(), settings.clone(), noting(&runs, takes)).await;
    let (two, two_running) = start(&proxy.url(), settings, noting(&runs, takes)).await;
    let feed = async {
        for n in 0..EACH {
            enqueue(db.pool(), n).await;
            record(db.pool(), 1_000 + n).await;
            sleep(Duration::from_millis(50)).await;
        }
    };
    let (faults, ()) = tokio::join!(torment(&proxy, SEED, Duration::from_secs(15)), feed);
    let still = Instant::now();
    let drained = timeout(
        2 * SOON,
        until("everything is done", 3 * SOON, async || {
            let left = "select 500 - (select count(*) from postrider.done) + (select count(*) from postrider.lease)";
            (number(db.pool(), left).await == 0).then_some(())
        }),
    );
    let drained = drained.await.is_ok();
    println!(
        "seed {SEED}: {faults:?}; drained {drained} after {:?}; {:?} {:?}",
        still.elapsed(),
        one.figures(),
        two.figures()
    );
    assert!(drained);
    let runs = runs.0.lock().unwrap().iter().map(|(n, runs)| (*n, runs.len())).collect::<BTreeMap<_, _>>();
    let expected: BTreeMap<i64, usize> = (0..EACH).chain(1_000..1_000 + EACH).map(|n| (n, 1)).collect();
    assert_eq!(runs, expected, "a job ran twice or never");
    assert_eq!(number(db.pool(), "select count(*) from postrider.done where state <> 2 or attempt <> 1").await, 0);
    assert_eq!(number(db.pool(), "select count(*) from postrider.attempt").await, 0);
    assert_eq!(one.figures().rescued + two.figures().rescued, 0, "a live worker was robbed");
    for running in [one_running, two_running] {
        assert_eq!(running.stop(SOON).await, Stopped::Drained);
    }
    assert!(faults.cut > 5 && faults.stalled > 1 && faults.swallowed > 0, "{faults:?}: too few faults");
}

#[tokio::test(flavor = "multi_thread")]
async fn c51_a_receiver_gets_no_more_requests_than_attempts_although_their_rows_cannot_be_written() {
    let (db, sink) = (TestDb::fresh().await, Sink::start().await.unwrap());
    sink.script(vec![Reply::Status(403); 20]);
    let proxy = Proxy::before(db.url()).await;
    let (claims, pools) = (AtomicU64::new(0), AtomicU64::new(0));
    proxy.script(move |hello| match hello.application.as_str() {
        // three times the row of the attempt cannot be written; then the reply to a claim is lost
        "postrider claim" => match claims.fetch_add(1, Ordering::SeqCst) {
            0..3 => Script::new().at(At::Saying("insert into postrider.delivery_attempt".to_owned()), CUT),
            3 => Script::new().at(At::Committed(2), CUT),
            _ => Script::new(),
        },
        // and once its outcome cannot be told
        "" if pools.fetch_add(1, Ordering::SeqCst) == 0 => {
            Script::new().at(At::Saying("postrider.finish_attempts".to_owned()), CUT)
        }
        _ => Script::new(),
    });
    let (seal, guard) = (|| Seal::parse([SEAL_KEY]).unwrap(), || Guard::new(["127.0.0.1/32"]).unwrap());
    let pool = PgPoolOptions::new().max_connections(1).connect_with(PgConnectOptions::from_str(&proxy.url()).unwrap());
    let deliverer = Deliverer::new(pool.await.unwrap(), seal(), Client::new(guard(), []).unwrap());
    let spec = KindSpec { retry: Retry::Steps(vec![Duration::from_millis(10)]), ..kind_spec() };
    let through = PgPoolOptions::new().connect_lazy_with(PgConnectOptions::from_str(&proxy.url()).unwrap());
    let bus = Bus::builder(through)
        .app("behind")
        .types([EventTypeSpec::new("order.made").public()])
        .kinds([Kind::component(spec).handler(Arc::new(deliverer))])
        .settings(Settings { beat: Duration::from_millis(200), housekeeping: false, ..Settings::default() });
    let bus = bus.build().await.unwrap();
    let running = bus.start().unwrap();
    let endpoints = Endpoints::new(db.pool().clone(), seal(), guard());
    let endpoint = NewEndpoint { max_attempts: 3, ..NewEndpoint::new("in", sink.url("/in"), ["order.*"]) };
    endpoints.create(endpoint).await.unwrap();
    record(db.pool(), 1).await;
    until("the delivery is dead", 2 * SOON, async || {
        (number(db.pool(), "select count(*) from postrider.done where state = 3").await == 1).then_some(())
    })
    .await;
    let numbers: Vec<_> = sink.requests().iter().map(|request| request.header("webhook-attempt").unwrap()).collect();
    assert_eq!(numbers, ["1", "2", "3"], "each attempt is one request");
    let rows: Vec<(i64, Option<String>)> =
        endpoints.attempts(50).await.unwrap().into_iter().rev().map(|row| (row.attempt, row.outcome)).collect();
    // the claim whose reply was lost had its row, and gave its attempt back; the first outcome was cut, and told again
    let failed = || Some("failed".to_owned());
    assert_eq!(rows, [(1, None), (1, failed()), (2, failed()), (3, failed())]);
    assert_eq!(proxy.fired(), 5);
    assert_eq!(running.stop(SOON).await, Stopped::Drained);
}
