//! How many deliveries a second, and how soon, measured beside a client that does nothing but the same POSTs. Not a test of every run, since it
//! measures time: `cargo nextest run --release -p postrider-webhook --test throughput --run-ignored only --no-capture`.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a failed helper is a failed measure, and a measure asks the database itself"
)]

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use postrider::{Bus, EventTypeSpec, Kind, Running, Settings};
use postrider_testkit::{TestDb, until};
use postrider_webhook::{Client, Deliverer, Endpoints, Guard, NewEndpoint, QUEUE, Seal, kind_spec};
use sqlx::PgPool;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// 1 KB, of which the data has about 900 bytes.
const DATA: &str = "json_build_object('n', n, 'text', repeat('x', 880))";
const ANSWER: &[u8] = b"HTTP/1.1 204 No Content\r\n\r\n";
const SOON: Duration = Duration::from_mins(3);

/// When each request came, by the id of its event.
type Came = Arc<Mutex<Vec<(String, Instant)>>>;

/// A receiver that answers 204 at once, or never where the path says so.
struct Receiver {
    address: SocketAddr,
    came: Came,
}

impl Receiver {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let receiver = Self { address: listener.local_addr().unwrap(), came: Came::default() };
        let came = Arc::clone(&receiver.came);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                stream.set_nodelay(true).unwrap();
                tokio::spawn(serve(stream, Arc::clone(&came)));
            }
        });
        receiver
    }

    fn len(&self) -> usize {
        self.came.lock().unwrap().len()
    }
}

async fn serve(mut stream: TcpStream, came: Came) {
    let (mut read, mut part) = (Vec::new(), [0; 8_192]);
    loop {
        while let Some((length, id, hangs)) = whole(&read) {
            read.drain(..length);
            if hangs {
                std::future::pending::<()>().await;
            }
            came.lock().unwrap().push((id, Instant::now()));
            if stream.write_all(ANSWER).await.is_err() {
                return;
            }
        }
        let Ok(n @ 1..) = stream.read(&mut part).await else { return };
        read.extend(&part[..n]);
    }
}

/// The length of the first request, the id of its event, and whether its path hangs; none if it is not there as a whole.
fn whole(read: &[u8]) -> Option<(usize, String, bool)> {
    let head = read.windows(4).position(|w| w == b"\r\n\r\n")? + 4;
    let text = std::str::from_utf8(&read[..head]).unwrap();
    let of = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let length: usize = of("content-length:").unwrap().parse().unwrap();
    (read.len() >= head + length)
        .then(|| (head + length, of("webhook-id:").unwrap_or_default().to_owned(), text.starts_with("POST /hangs ")))
}

struct Scene {
    db: TestDb,
    running: Running,
    receiver: Receiver,
}

impl Scene {
    /// So many endpoints that get every event, of which the last so many hang.
    async fn set(endpoints: usize, hanging: usize) -> Self {
        let (db, receiver) = (TestDb::fresh().await, Receiver::start().await);
        let seal = || Seal::parse(["AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE="]).unwrap();
        let guard = Guard::new(["127.0.0.1/32"]).unwrap();
        let deliverer = Deliverer::new(db.pool().clone(), seal(), Client::new(guard.clone(), []).unwrap());
        let bus = Bus::builder(db.pool().clone())
            .app("measure")
            .types([EventTypeSpec::new("order.paid").public()])
            .kinds([Kind::component(kind_spec()).handler(Arc::new(deliverer))])
            .concurrency(QUEUE, 256)
            .settings(Settings::default())
            .build()
            .await
            .unwrap();
        let running = bus.start().unwrap();
        let desk = Endpoints::new(db.pool().clone(), seal(), guard);
        for n in 0..endpoints {
            let path = if n + hanging >= endpoints { "hangs" } else { "in" };
            let url = format!("http://{}/{path}", receiver.address);
            let new = NewEndpoint { max_in_flight: 32, ..NewEndpoint::new(format!("e-{n}"), url, ["order.*"]) };
            desk.create(new).await.unwrap();
        }
        Self { db, running, receiver }
    }

    fn pool(&self) -> &PgPool {
        self.db.pool()
    }

    async fn came(&self, n: usize) {
        until(&format!("{n} requests"), SOON, async || (self.receiver.len() >= n).then_some(())).await;
    }

    /// So many events a second for so many seconds, each in a transaction of its own; from the call that records it to its request, sorted.
    async fn paced(&self, (rate, seconds): (u64, u64), fan_out: usize) -> Vec<Duration> {
        let mut beat = tokio::time::interval(Duration::from_micros(1_000_000 / rate));
        let mut published = JoinSet::new();
        for n in 0..rate * seconds {
            beat.tick().await;
            let pool = self.pool().clone();
            published.spawn(async move {
                let began = Instant::now();
                let id: String = sqlx::query_scalar(sqlx::AssertSqlSafe(format!(
                    "select postrider.record('order.paid', 'order/' || n, {DATA})::text from (values ({n})) v (n)"
                )))
                .fetch_one(&pool)
                .await
                .unwrap();
                (id, began)
            });
        }
        let began: std::collections::HashMap<String, Instant> = published.join_all().await.into_iter().collect();
        self.came(began.len() * fan_out).await;
        let came = self.receiver.came.lock().unwrap();
        let mut waits: Vec<Duration> =
            came.iter().filter_map(|(id, at)| Some(at.saturating_duration_since(*began.get(id)?))).collect();
        waits.sort_unstable();
        waits
    }

    /// Deliveries a second of so many events that are there at once; the processor's milliseconds of Postgres and of this process, and the
    /// KB of WAL, for a thousand deliveries each.
    async fn flat_out(&self, events: i32, fan_out: usize) -> (f64, f64, f64, f64) {
        let ask = "select (pg_current_wal_insert_lsn() - '0/0')::float8";
        let wal = async || -> f64 { sqlx::query_scalar(ask).fetch_one(self.pool()).await.unwrap() };
        let (wal_before, server, own) = (wal().await, self.server_ms().await, own_ms());
        let began = Instant::now();
        let sql = format!(
            "select count(postrider.record('order.paid', 'order/' || n, {DATA})) from generate_series(1, {events}) n"
        );
        sqlx::query(sqlx::AssertSqlSafe(sql)).execute(self.pool()).await.unwrap();
        let all = usize::try_from(events).unwrap() * fan_out;
        self.came(all).await;
        let took = began.elapsed().as_secs_f64();
        until("they have ended", SOON, async || {
            let left: i64 =
                sqlx::query_scalar("select count(*) from postrider.lease").fetch_one(self.pool()).await.unwrap();
            (left == 0).then_some(())
        })
        .await;
        let thousands = f64::from(u32::try_from(all).unwrap()) / 1000.0;
        let per = |before: f64, after: f64| (after - before) / thousands;
        let (server_after, own_after, wal_after) = (self.server_ms().await, own_ms(), wal().await);
        (thousands * 1000.0 / took, per(server, server_after), per(own, own_after), per(wal_before, wal_after) / 1024.0)
    }

    /// Milliseconds that the processes of this server have run, with those that have ended.
    async fn server_ms(&self) -> f64 {
        let text: String =
            sqlx::query_scalar("select pg_read_file('postmaster.pid')").fetch_one(self.pool()).await.unwrap();
        let postmaster = text.lines().next().unwrap().to_owned();
        let mut sum = 0.0;
        for entry in std::fs::read_dir("/proc").unwrap().flatten() {
            let Ok(stat) = std::fs::read_to_string(entry.path().join("stat")) else { continue };
            let Some((pid, rest)) = stat.split_once(' ') else { continue };
            let fields: Vec<&str> = rest.rsplit_once(") ").unwrap().1.split(' ').collect();
            let ms = |n: usize| fields[n].parse::<f64>().unwrap() * 10.0;
            if pid == postmaster {
                sum += ms(11) + ms(12) + ms(13) + ms(14);
            } else if fields[1] == postmaster {
                sum += ms(11) + ms(12);
            }
        }
        sum
    }

    /// What everybody does once: connections, plans, code.
    async fn warm_up(&self, fan_out: usize) {
        self.paced((20, 2), fan_out).await;
        self.receiver.came.lock().unwrap().clear();
    }

    async fn end(self) {
        self.running.stop(Duration::ZERO).await;
    }
}

/// Milliseconds that this process has run: sender, publisher and receiver.
fn own_ms() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
    (fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap()) * 10.0
}

/// The same POSTs by a client that does nothing else, over 32 connections that stay; requests a second.
async fn bare(requests: usize) -> f64 {
    let receiver = Receiver::start().await;
    let body = format!("{{\"n\":1,\"text\":\"{}\"}}", "x".repeat(1_000));
    let request = format!(
        "POST /in HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\nwebhook-id: evt\r\nwebhook-timestamp: 1700000000\r\n\
         webhook-signature: v1,{}\r\ncontent-length: {}\r\n\r\n{body}",
        receiver.address,
        "A".repeat(44),
        body.len()
    );
    let began = Instant::now();
    let mut all = JoinSet::new();
    for _ in 0..32 {
        let (request, address) = (request.clone(), receiver.address);
        all.spawn(async move {
            let mut stream = TcpStream::connect(address).await.unwrap();
            stream.set_nodelay(true).unwrap();
            let mut answer = [0; ANSWER.len()];
            for _ in 0..requests / 32 {
                stream.write_all(request.as_bytes()).await.unwrap();
                stream.read_exact(&mut answer).await.unwrap();
            }
        });
    }
    all.join_all().await;
    f64::from(u32::try_from(requests / 32 * 32).unwrap()) / began.elapsed().as_secs_f64()
}

fn told(waits: &[Duration]) -> String {
    let at = |share: usize| waits[(waits.len() - 1) * share / 100].as_secs_f64() * 1000.0;
    format!("p50 {:.1} ms, p99 {:.1} ms of {}", at(50), at(99), waits.len())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "it measures time"]
async fn how_soon_a_delivery_is_there() {
    for fan_out in [1, 5] {
        for rate in [50, 200, 1_000] {
            let scene = Scene::set(fan_out, 0).await;
            scene.warm_up(fan_out).await;
            println!("{rate} events a second to {fan_out}: {}", told(&scene.paced((rate, 10), fan_out).await));
            scene.end().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "it measures time"]
async fn how_many_deliveries_a_second() {
    for fan_out in [1, 5] {
        let scene = Scene::set(fan_out, 0).await;
        scene.warm_up(fan_out).await;
        let (rate, server, own, wal) = scene.flat_out(10_000, fan_out).await;
        println!(
            "flat out to {fan_out}: {rate:.0} deliveries a second; for each thousand {server:.0} ms of Postgres's processors, {own:.0} ms of the \
             process that sends, publishes and receives, {wal:.0} KB of WAL"
        );
        scene.end().await;
    }
    println!("a bare client, flat out: {:.0} requests a second", bare(100_000).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "it measures time"]
async fn how_soon_it_is_there_beside_one_that_hangs() {
    for hanging in [0, 1] {
        let scene = Scene::set(10, hanging).await;
        let fan_out = 10 - hanging;
        scene.warm_up(fan_out).await;
        println!("20 events a second to 10, of which {hanging} hang: {}", told(&scene.paced((20, 20), fan_out).await));
        scene.end().await;
    }
}
