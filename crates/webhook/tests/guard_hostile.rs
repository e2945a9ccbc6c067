//! Every known spelling of a place that is not public, at the door, at a test and at a delivery, on a network where each address there is
//! answers: nothing arrives anywhere but at public ones.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::disallowed_methods,
    reason = "a failed helper is a failed test"
)]

mod namespace;
mod spellings;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use postrider::{Bus, EventTypeSpec, Kind, NewEvent, Payload, Running, Settings};
use postrider_testkit::{NameServer, Said, Sink, TestDb, until};
use postrider_webhook::{BLOCKED, Client, Deliverer, EndpointId, Endpoints, Guard, NewEndpoint, Post, Seal, kind_spec};
use spellings::{LEADING_INSIDE, PUBLIC, REFUSED};
use sqlx::PgPool;
use tokio::time::Instant;

const URL_REFUSED: &str = "the endpoint's url is not allowed";
const LONG: Duration = Duration::from_mins(2);
/// Where canaries listen, on every address: the ports that a url may have here, and that of a proxy.
const PORTS: [u16; 5] = [443, 80, 8443, 3000, 3128];
/// Names whose first answer is public, and what follows it.
const REBINDING: [(&str, &[&str]); 4] = [
    ("rebind-4.example.com", &["127.0.0.1"]),
    ("rebind-6.example.com", &["::1"]),
    ("rebind-mixed.example.com", &["9.9.9.9", "10.9.9.9"]),
    ("rebind-metadata.example.com", &["169.254.169.254"]),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c63_no_spelling_reaches_a_canary_at_the_door_at_a_test_or_at_a_delivery() {
    if let Some(url) = namespace::database() {
        return on_a_network_of_its_own(&url).await;
    }
    let db = TestDb::fresh().await;
    let name = "c63_no_spelling_reaches_a_canary_at_the_door_at_a_test_or_at_a_delivery";
    let url = db.url().to_owned();
    tokio::task::spawn_blocking(move || namespace::run_again(name, &url)).await.unwrap();
}

struct Stage {
    pool: PgPool,
    canaries: Vec<Sink>,
    guard: Guard,
    client: Client,
    endpoints: Endpoints,
    bus: Bus,
    running: Running,
}

impl Stage {
    async fn set(url: &str, names: &NameServer) -> Self {
        let hosts: BTreeSet<String> =
            PUBLIC.iter().map(|(url, address)| host(url).unwrap_or((*address).to_owned())).collect();
        let hosts: Vec<&str> = hosts.iter().map(String::as_str).collect();
        let mut canaries = Vec::new();
        for port in PORTS {
            canaries.push(Sink::start_tls_at(&format!("[::]:{port}"), &hosts).await.unwrap());
        }
        let roots: Vec<_> = canaries.iter().filter_map(|canary| canary.certificate().cloned()).collect();
        let guard = Guard::new::<&str>([]).unwrap().asking(&[names.address()]).unwrap();
        let client = Client::new(guard.clone(), roots).unwrap();
        let pool = PgPool::connect(url).await.unwrap();
        let seal = || Seal::parse(["AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE="]).unwrap();
        let deliverer = Deliverer::new(pool.clone(), seal(), client.clone());
        let bus = Bus::builder(pool.clone())
            .app("test")
            .types([EventTypeSpec::new("order.paid").public()])
            .kinds([Kind::component(kind_spec()).handler(Arc::new(deliverer))])
            .settings(Settings { beat: Duration::from_millis(100), ..Settings::default() })
            .build()
            .await
            .unwrap();
        let running = bus.start().unwrap();
        let endpoints = Endpoints::new(pool.clone(), seal(), guard.clone());
        Self { pool, canaries, guard, client, endpoints, bus, running }
    }

    async fn endpoint(&self, name: &str, url: &str) -> EndpointId {
        let created = self.endpoints.create(NewEndpoint::new(name, url, ["order.*"])).await;
        created.unwrap_or_else(|e| panic!("{url}: {e}")).id
    }

    /// Whoever can write to the table, or wrote to it when the rules were others.
    async fn endpoint_behind_the_door(&self, name: &str, url: &str) -> EndpointId {
        let id = self.endpoint(name, "https://hooks.example.com/in").await;
        let update = "update postrider.endpoint set url = $2 where id = $1";
        sqlx::query(update).bind(id.0).bind(url).execute(&self.pool).await.unwrap();
        id
    }

    async fn record(&self) {
        let event = NewEvent::new("order.paid", "order/42", Payload::parse("{}").unwrap());
        let mut connection = self.pool.acquire().await.unwrap();
        self.bus.recorder().record(&mut *connection, &event).await.unwrap();
    }

    /// What became of the first attempt for each endpoint: outcome, reason, peer.
    async fn outcomes(&self, count: usize) -> Vec<(EndpointId, String, String, Option<String>)> {
        let deadline = Instant::now() + LONG;
        loop {
            let sql = "select distinct on (endpoint) endpoint, outcome, coalesce(reason, ''), peer from postrider.delivery_attempt
                        where outcome is not null order by endpoint, started_at";
            let rows: Vec<(i64, String, String, Option<String>)> =
                sqlx::query_as(sql).fetch_all(&self.pool).await.unwrap();
            if rows.len() == count {
                return rows
                    .into_iter()
                    .map(|(id, outcome, reason, peer)| (EndpointId(id), outcome, reason, peer))
                    .collect();
            }
            assert!(Instant::now() < deadline, "{} of {count} attempts ended", rows.len());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Tests of endpoints, all of which are refused.
    async fn ask_for_tests(&self, ids: impl Iterator<Item = EndpointId>) {
        let mut asked = 0;
        for id in ids {
            self.endpoints.send_test(id).await.unwrap().unwrap();
            asked += 1;
        }
        let sql =
            "select count(*), count(*) filter (where outcome = 'discarded' and peer is null and reason = any ($1))
                     from postrider.delivery_attempt where trigger = 'test' and outcome is not null";
        let refused = until("the tests have ended", LONG, async || {
            let refusals: [&str; 2] = [BLOCKED, URL_REFUSED];
            let (ended, refused): (i64, i64) = sqlx::query_as(sql).bind(refusals).fetch_one(&self.pool).await.unwrap();
            (ended == asked).then_some(refused)
        })
        .await;
        assert_eq!(refused, asked);
    }

    fn dialled(&self) -> BTreeSet<IpAddr> {
        self.canaries.iter().flat_map(Sink::dialled).map(|address| address.ip()).collect()
    }
}

async fn on_a_network_of_its_own(url: &str) {
    let names = zone().await;
    let stage = Stage::set(url, &names).await;
    // 1. At the door.
    for url in REFUSED {
        let refused = stage.endpoints.create(NewEndpoint::new("a", *url, ["order.*"])).await.expect_err(url);
        assert!(refused.to_string().contains(" url: "), "{url}: {refused}");
    }
    for (name, _) in LEADING_INSIDE {
        let url = format!("https://{name}/in");
        let refused = stage.endpoints.create(NewEndpoint::new("a", &url, ["order.*"])).await.expect_err(&url);
        assert!(refused.to_string().contains(BLOCKED), "{url}: {refused}");
    }
    // 2. At a test: the same client, without a delivery.
    for url in
        REFUSED.iter().map(|url| (*url).to_owned()).chain(LEADING_INSIDE.iter().map(|(n, _)| format!("https://{n}/")))
    {
        let Ok(target) = stage.guard.parse(&url) else { continue };
        let seen = stage.client.post(Post::new(&target, b"{}", Duration::from_secs(5))).await;
        assert_eq!(seen.failure.unwrap().to_string(), format!("guard: {BLOCKED}"), "{url}");
        assert_eq!(seen.peer, None);
    }
    assert_eq!(stage.dialled(), BTreeSet::new(), "somebody called");
    // 3. At a delivery, of urls that stand in the table, of names that moved, and of public places.
    let mut expected = Vec::new();
    let inside = LEADING_INSIDE.iter().map(|(name, _)| format!("https://{name}/in"));
    for (n, url) in REFUSED.iter().map(|url| (*url).to_owned()).chain(inside).enumerate() {
        expected.push((stage.endpoint_behind_the_door(&format!("bad-{n}"), &url).await, url, None));
    }
    for (name, answers) in REBINDING {
        names.say(name, [Said::addresses(&["9.9.9.9"]), Said::addresses(answers)]);
        let url = format!("https://{name}/in");
        expected.push((stage.endpoint(name, &url).await, url, None));
    }
    for (n, (url, address)) in PUBLIC.iter().enumerate() {
        let address: IpAddr = address.parse().unwrap();
        expected.push((stage.endpoint(&format!("good-{n}"), url).await, (*url).to_owned(), Some(address)));
    }
    let bad = expected.iter().filter(|(.., address)| address.is_none()).count();
    assert!(bad >= 250 && expected.len() - bad >= 30, "{bad} bad ones and {} good ones", expected.len() - bad);
    stage.record().await;
    let outcomes = stage.outcomes(expected.len()).await;
    for (id, url, address) in &expected {
        let (_, outcome, reason, peer) = outcomes.iter().find(|(found, ..)| found == id).unwrap();
        if let Some(address) = address {
            assert_eq!(outcome, "delivered", "{url}: {reason}");
            let peer: std::net::SocketAddr = peer.as_deref().unwrap().parse().unwrap();
            assert_eq!(peer.ip(), *address, "{url}");
        } else {
            assert_eq!((outcome.as_str(), peer), ("discarded", &None), "{url}: {reason}");
            assert!([BLOCKED, URL_REFUSED].contains(&reason.as_str()), "{url}: {reason}");
        }
    }
    let public: BTreeSet<IpAddr> = PUBLIC.iter().map(|(_, address)| address.parse().unwrap()).collect();
    assert_eq!(stage.dialled(), public, "exactly the public places were called");
    // 4. And at a test that an owner asks for.
    stage.ask_for_tests(expected.iter().filter(|(.., address)| address.is_none()).map(|(id, ..)| *id)).await;
    assert_eq!(stage.dialled(), public, "a test called somebody");
    // 5. The canaries do sing: without the guard's ranges the same client reaches them.
    canaries_sing(&stage, &names).await;
    stage.running.stop(Duration::from_secs(10)).await;
}

/// A zone in which every name of this test leads where its table says.
async fn zone() -> NameServer {
    let names = NameServer::start().await.unwrap();
    for (name, answers) in LEADING_INSIDE {
        names.set(name, answers);
    }
    for (url, address) in PUBLIC {
        if let Some(name) = host(url).filter(|host| host.ends_with(".example.com")) {
            names.set(&name, &[address]);
        }
    }
    names.say("chained.example.com", [Said::Cname("hooks.example.com".to_owned())]);
    names
}

/// The host of a url as an independent parser of this test's own tables: names in small ASCII letters.
fn host(url: &str) -> Option<String> {
    let host = url::Url::parse(url).ok()?.host()?.to_owned();
    Some(match host {
        url::Host::Domain(name) => name.trim_end_matches('.').to_owned(),
        url::Host::Ipv4(address) => address.to_string(),
        url::Host::Ipv6(address) => address.to_string(),
    })
}

async fn canaries_sing(stage: &Stage, names: &NameServer) {
    let open = Guard::new(["0.0.0.0/0", "::/0"]).unwrap().asking(&[names.address()]).unwrap();
    let client = Client::new(open.clone(), []).unwrap();
    for (url, address) in [
        ("https://127.1/", "127.0.0.1"),
        ("https://10.9.9.9/", "10.9.9.9"),
        ("https://169.254.169.254:8443/", "169.254.169.254"),
        ("https://[fd00::1]/", "fd00::1"),
        ("https://[::1]:3000/", "::1"),
        ("https://0x7f.2/", "127.0.0.2"),
        ("https://private.example.com/", "10.9.9.9"),
    ] {
        let target = open.parse(url).unwrap();
        client.post(Post::new(&target, b"{}", Duration::from_secs(5))).await;
        let address: IpAddr = address.parse().unwrap();
        until("the canary sings", LONG, async || stage.dialled().contains(&address).then_some(())).await;
    }
    let proxy = stage.canaries.last().unwrap();
    assert_eq!(proxy.connections(), 0, "a proxy of the environment was asked");
}
