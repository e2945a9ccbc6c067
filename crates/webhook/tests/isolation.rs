//! What one endpoint does to others, and many to all: C47, C52, C65, F61, F62.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a failed helper is a failed test, and a test asks the database itself"
)]

mod stage;
#[path = "stage/time.rs"]
mod time;

use std::collections::BTreeMap;
use std::time::Duration;

use postrider_testkit::{Reply, Sink, until};
use postrider_webhook::{EndpointChange, NewEndpoint, Retries};
use stage::Stage;
use time::SOON;

const FOR_EVER: Duration = Duration::from_hours(1);

#[tokio::test]
async fn f61_an_endpoint_that_hangs_takes_its_own_slots_and_nobody_elses() {
    let (stage, hanging, healthy) = (Stage::set().await, Sink::start().await.unwrap(), Sink::start().await.unwrap());
    let acme = NewEndpoint {
        owner: "acme".into(),
        max_in_flight: 3,
        timeout: Duration::from_mins(1),
        ..NewEndpoint::new("acme", hanging.url("/in"), ["order.paid"])
    };
    let (id, _) = stage.create(acme).await;
    // one of the instance, which gets none of these
    let (instance, _) = stage.endpoint("instance", &healthy.url("/instance")).await;
    stage.endpoints.delete(instance).await.unwrap();
    stage
        .create(NewEndpoint {
            owner: "globex".into(),
            ..NewEndpoint::new("globex", healthy.url("/in"), ["order.paid"])
        })
        .await;
    hanging.script(vec![Reply::After(FOR_EVER, Box::new(Reply::Status(204))); 100]);
    for _ in 0..60 {
        stage.record("order.paid", "acme", "{}").await;
    }
    hanging.wait_for(3, SOON).await;
    for n in 1..=30 {
        stage.record("order.paid", "globex", "{}").await;
        if n % 10 == 0 {
            healthy.wait_for(n, SOON).await;
        }
    }
    stage.until_number("select count(*) from postrider.done where state = 2", 30).await;
    assert_eq!(hanging.requests().len(), 3, "as many as it may have, and they still hang");
    assert_eq!(stage.number("select count(*) from postrider.parked").await, 57);
    assert_eq!(
        stage.number("select count(*) from postrider.delivery_attempt where endpoint = 1").await,
        3,
        "waiting costs nothing"
    );
    assert_eq!(stage.endpoints.get(id).await.unwrap().unwrap().health.failed, 0);
    // they are cut off when the test ends, not waited for
    stage.running.stop(Duration::ZERO).await;
}

#[tokio::test]
async fn an_endpoint_that_failed_five_times_since_its_last_success_gets_one_at_a_time_until_it_takes_one() {
    let each = Duration::from_millis(400);
    let (stage, sink) = (Stage::set().await, Sink::start().await.unwrap());
    let new = NewEndpoint { max_attempts: 1, ..NewEndpoint::new("billing", sink.url("/in"), ["order.*"]) };
    stage.create(new).await;
    sink.script(vec![Reply::Status(500); 5]);
    let slow = |status| Reply::After(each, Box::new(Reply::Status(status)));
    sink.script([slow(500), slow(204)].into_iter().chain(vec![slow(204); 8]));
    for _ in 0..5 {
        stage.record("order.paid", "", "{}").await;
    }
    stage.until_number("select count(*) from postrider.done", 5).await;
    for _ in 0..10 {
        stage.record("order.paid", "", "{}").await;
    }
    stage.until_number("select count(*) from postrider.done", 15).await;
    let requests = sink.requests();
    let at = |n: usize| requests[n].at;
    assert!(at(6) >= at(5) + each && at(7) >= at(6) + each, "the sixth and the seventh ran alone");
    assert!(at(9) < at(7) + each, "and then more at a time");
    stage.strike().await;
}

#[tokio::test]
async fn many_endpoints_that_hang_leave_slots_for_the_others_without_anything_being_set() {
    const HANGING: usize = 20;
    let (stage, hanging, healthy) =
        (Stage::with_slots(None).await, Sink::start().await.unwrap(), Sink::start().await.unwrap());
    for n in 0..HANGING {
        let hangs = NewEndpoint::new(format!("hanging {n}"), hanging.url("/in"), ["order.shipped"]);
        stage.create(NewEndpoint { timeout: Duration::from_mins(1), ..hangs }).await;
    }
    stage.create(NewEndpoint::new("healthy", healthy.url("/in"), ["order.paid"])).await;
    hanging.script((0..5 * HANGING).map(|_| Reply::Stall(Vec::new())));
    for _ in 0..10 {
        stage.record("order.shipped", "", "{}").await;
    }
    hanging.wait_for(5 * HANGING, SOON).await;
    stage.record("order.paid", "", "{}").await;
    healthy.wait_for(1, SOON).await;
    assert_eq!(hanging.requests().len(), 5 * HANGING, "all of them hang still");
    stage.strike().await;
}

/// Outcomes of attempts of an endpoint, with `?` for none.
async fn outcomes(stage: &Stage, endpoint: &str) -> Vec<String> {
    let sql = "select coalesce(a.outcome, '?') from postrider.delivery_attempt a join postrider.endpoint e on e.id = a.endpoint
                where e.name = $1 order by a.id, a.lease";
    sqlx::query_scalar(sql).bind(endpoint).fetch_all(stage.pool()).await.unwrap()
}

#[tokio::test]
async fn an_endpoint_that_is_in_somebodys_hands_for_long_keeps_no_other_waiting_and_loses_no_outcome() {
    let (stage, sink) = (Stage::set().await, Sink::start().await.unwrap());
    for name in ["held", "free"] {
        stage.create(NewEndpoint::new(name, sink.url("/in"), ["order.*"])).await;
    }
    let mut hands = stage.pool().begin().await.unwrap();
    let of_held = "select from postrider.endpoint_health h join postrider.endpoint e on e.id = h.endpoint where e.name = 'held' for update of h";
    sqlx::query(of_held).execute(&mut *hands).await.unwrap();
    for _ in 0..20 {
        stage.record("order.paid", "", "{}").await;
    }
    let free = "select count(*) from postrider.done d join postrider.job j on j.class = d.class and j.id = d.id
         join postrider.endpoint e on e.subscription = j.subscription where e.name = 'free'";
    stage.until_number(free, 20).await;
    assert_eq!(outcomes(&stage, "free").await, ["delivered"; 20]);
    assert!(outcomes(&stage, "held").await.iter().all(|outcome| outcome == "?"), "they are not told yet");
    hands.commit().await.unwrap();
    stage.until_number("select count(*) from postrider.done", 40).await;
    assert_eq!(outcomes(&stage, "held").await, ["delivered"; 20]);
    assert_eq!(sink.requests().len(), 40, "and none was sent twice for it");
    stage.strike().await;
}

/// Whether the end of an attempt waits for a lock.
const WAITS: &str = "select least(1, count(*)) from pg_stat_activity where datname = current_database()
    and starts_with(query, '-- Finishes the attempts') and wait_event_type = 'Lock'";
/// Whether it has waited for too long, and waits to ask again.
const REFUSED: &str = "select least(1, count(*)) from pg_stat_activity where datname = current_database()
    and starts_with(query, '-- Finishes the attempts') and state = 'idle'";
/// Ends its connection while it waits.
const CUT: &str =
    "select least(1, count(pg_terminate_backend(pid))) from pg_stat_activity where datname = current_database()
    and starts_with(query, '-- Finishes the attempts') and wait_event_type = 'Lock'";

#[tokio::test]
async fn an_outcome_that_meets_a_locked_table_or_whose_connection_ends_is_told_again_and_nothing_is_sent_again() {
    let (stage, sink) = (Stage::set().await, Sink::start().await.unwrap());
    stage.create(NewEndpoint::new("in", sink.url("/in"), ["order.*"])).await;
    for lock in
        ["lock table postrider.endpoint_window in share mode", "lock table postrider.endpoint_health in exclusive mode"]
    {
        let before = stage.number("select count(*) from postrider.done").await;
        let mut other = stage.pool().begin().await.unwrap();
        sqlx::query(lock).execute(&mut *other).await.unwrap();
        stage.record("order.paid", "", "{}").await;
        for step in [WAITS, REFUSED, CUT] {
            stage.until_number(step, 1).await;
        }
        other.commit().await.unwrap();
        stage.until_number("select count(*) from postrider.done", before + 1).await;
    }
    assert_eq!(outcomes(&stage, "in").await, ["delivered"; 2]);
    assert_eq!(sink.requests().len(), 2);
    stage.strike().await;
}

#[tokio::test]
async fn a_delivery_whose_outcome_can_not_be_told_for_long_ends_all_the_same_and_is_not_sent_again() {
    let (stage, sink) = (Stage::set().await, Sink::start().await.unwrap());
    stage.create(NewEndpoint::new("in", sink.url("/in"), ["order.*"])).await;
    let mut hands = stage.pool().begin().await.unwrap();
    sqlx::query("select from postrider.endpoint_health for update").execute(&mut *hands).await.unwrap();
    stage.record("order.paid", "", "{}").await;
    stage.until_number("select count(*) from postrider.done", 1).await;
    hands.commit().await.unwrap();
    assert_eq!(
        (outcomes(&stage, "in").await, sink.requests().len()),
        (vec!["?".to_owned()], 1),
        "what became of it is not known"
    );
    stage.strike().await;
}

#[tokio::test]
async fn a_limit_that_is_in_somebodys_hands_for_long_keeps_no_other_endpoint_waiting_and_is_heeded_after_it() {
    let (stage, asks, fine) = (Stage::set().await, Sink::start().await.unwrap(), Sink::start().await.unwrap());
    for (name, sink) in [("asks", &asks), ("fine", &fine)] {
        stage.create(NewEndpoint::new(name, sink.url("/in"), ["order.*"])).await;
    }
    // what asks to be left alone is held, by the row of its limit
    asks.script(vec![Reply::with_header(429, "retry-after", "3600"); 5]);
    let mut hands = stage.pool().begin().await.unwrap();
    let of_asks = "select from postrider.key_limit l join postrider.endpoint e on l.key = postrider.endpoint_key(e.id) where e.name = 'asks' for update of l";
    assert_eq!(sqlx::query(of_asks).execute(&mut *hands).await.unwrap().rows_affected(), 1);
    for _ in 0..20 {
        stage.record("order.paid", "", "{}").await;
    }
    stage.until_number("select count(*) from postrider.done", 20).await;
    assert_eq!(outcomes(&stage, "fine").await, ["delivered"; 20]);
    asks.wait_for(5, SOON).await;
    assert_eq!(outcomes(&stage, "asks").await, ["?"; 5]);
    hands.commit().await.unwrap();
    stage.until_number("select count(*) from postrider.delivery_attempt where outcome = 'postponed'", 5).await;
    let held = "select count(*) from postrider.key_limit where held_until > now() + interval '50 minutes'";
    stage.until_number(held, 1).await;
    assert_eq!((asks.requests().len(), fine.requests().len()), (5, 20), "and nothing was sent twice for it");
    stage.strike().await;
}

#[tokio::test]
async fn an_outcome_that_cannot_be_written_keeps_no_other_from_being_written() {
    let (stage, odd, fine) = (Stage::set().await, Sink::start().await.unwrap(), Sink::start().await.unwrap());
    sqlx::raw_sql(
        "create function refuse() returns trigger language plpgsql as $$ begin raise exception 'not this one'; end $$;
         create trigger refuse before update on postrider.delivery_attempt for each row when (new.status = 299) execute function refuse()",
    )
    .execute(stage.pool())
    .await
    .unwrap();
    for (name, sink) in [("odd", &odd), ("fine", &fine)] {
        stage.create(NewEndpoint::new(name, sink.url("/in"), ["order.*"])).await;
        let status = if name == "odd" { 299 } else { 204 };
        // all of them answer at about the same time
        let each = Reply::After(Duration::from_millis(300), Box::new(Reply::Status(status)));
        sink.script(vec![each; 5]);
    }
    for _ in 0..5 {
        stage.record("order.paid", "", "{}").await;
    }
    stage.until_number("select count(*) from postrider.done where state = 2", 10).await;
    assert_eq!(outcomes(&stage, "fine").await, ["delivered"; 5]);
    assert_eq!(outcomes(&stage, "odd").await, ["?"; 5], "what was sent was sent");
    assert_eq!(odd.requests().len() + fine.requests().len(), 10);
    stage.strike().await;
}

#[tokio::test]
async fn what_ends_together_is_counted_to_the_last_one() {
    let (stage, sink) = (Stage::set().await, Sink::start().await.unwrap());
    let new =
        NewEndpoint { max_in_flight: 32, max_attempts: 1, ..NewEndpoint::new("in", sink.url("/in"), ["order.*"]) };
    let (id, _) = stage.create(new).await;
    // 40 of 160 fail, by turns: it never fails most of the time, and never five times in a row since its last success for long
    sink.script((0..160).map(|n| Reply::Status(if n % 4 == 3 { 500 } else { 204 })));
    sqlx::query("select count(postrider.record('order.paid', 'order/' || n)) from generate_series(1, 160) n")
        .execute(stage.pool())
        .await
        .unwrap();
    stage.until_number("select count(*) from postrider.done", 160).await;
    let counted = "select sum(delivered) * 1000 + sum(failed) from postrider.endpoint_window";
    assert_eq!(stage.number(counted).await, 120_040);
    let told =
        "select count(distinct data->>'delivery') from postrider.event where type = 'postrider.delivery.exhausted'";
    assert_eq!(stage.number(told).await, 40, "each that was given up is told of");
    assert!(stage.endpoints.get(id).await.unwrap().unwrap().health.failing_since.is_none());
    stage.strike().await;
}

#[tokio::test]
async fn c52_the_few_events_of_one_owner_do_not_wait_for_the_many_of_another() {
    let (stage, sink) = (Stage::set().await, Sink::start().await.unwrap());
    let of = |owner: &str, name: &str| NewEndpoint {
        owner: owner.into(),
        max_in_flight: 32,
        ..NewEndpoint::new(name, sink.url(&format!("/{owner}")), ["order.*"])
    };
    for n in 0..4 {
        stage.create(of("acme", &format!("acme-{n}"))).await;
    }
    stage.create(of("globex", "globex")).await;
    sink.script(vec![Reply::After(Duration::from_millis(20), Box::new(Reply::Status(204))); 1_000]);
    sqlx::query(
        "select count(postrider.record('order.paid', 'order/' || n, owner => 'acme')) from generate_series(1, 200) n",
    )
    .execute(stage.pool())
    .await
    .unwrap();
    sink.wait_for(20, SOON).await;
    let event = stage.record("order.paid", "globex", "{}").await;
    until("globex is served", SOON, async || {
        sink.requests().iter().any(|request| request.header("webhook-id").as_ref() == Some(&event)).then_some(())
    })
    .await;
    let left = stage.number("select 800 - count(*) from postrider.done where state = 2").await;
    assert!(left > 200, "hundreds of the other's still wait: {left}");
    assert_eq!(stage.until("delivered").await.state, "delivered");
    stage.strike().await;
}

/// So many receivers that answer after ten seconds, and one that answers at once, with a hundred events for each, by turns. How long the slowest
/// but one of the hundred took to come to the one that answers at once.
async fn beside_slow_ones(slow_ones: usize) -> Duration {
    let answer = Duration::from_secs(10);
    // with as many slots as there are by default
    let stage = Stage::with_slots(None).await;
    let (slow, quick) = (Sink::start().await.unwrap(), Sink::start().await.unwrap());
    slow.script(vec![Reply::After(answer, Box::new(Reply::Status(204))); slow_ones * 100]);
    for n in 0..slow_ones {
        stage.create(NewEndpoint::new(format!("slow-{n}"), slow.url(&format!("/{n}")), ["order.paid"])).await;
    }
    stage.create(NewEndpoint::new("quick", quick.url("/in"), ["order.shipped"])).await;
    let mut recorded = BTreeMap::new();
    // slower than a busy machine delivers: who waits, waits for the slow ones
    let mut beat = tokio::time::interval(Duration::from_millis(100));
    for _ in 0..100 {
        beat.tick().await;
        stage.record("order.paid", "", "{}").await;
        let event = stage.record("order.shipped", "", "{}").await;
        recorded.insert(event, tokio::time::Instant::now());
    }
    let came = quick.wait_for(100, SOON).await;
    assert_eq!(came.len(), 100, "some wait until the slow ones have answered");
    let mut waits: Vec<Duration> =
        came.iter().map(|r| r.at.saturating_duration_since(recorded[&r.header("webhook-id").unwrap()])).collect();
    waits.sort_unstable();

    // five of each are under way, the next one comes when one of them is answered
    slow.wait_for(slow_ones * 6, SOON).await;
    let mut at: BTreeMap<String, Vec<tokio::time::Instant>> = BTreeMap::new();
    for request in slow.requests() {
        at.entry(request.line()).or_default().push(request.at);
    }
    assert_eq!(at.len(), slow_ones, "each of them is served");
    for times in at.values() {
        assert!(times.windows(6).all(|w| w[5] >= w[0] + answer), "more than five at a time");
    }
    stage.running.stop(Duration::ZERO).await;
    waits[98]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c47_receivers_that_answer_after_ten_seconds_hold_up_nobody_else() {
    let (one, thirty) = (beside_slow_ones(1).await, beside_slow_ones(30).await);
    println!("p99 beside one: {} ms, beside thirty: {} ms", one.as_millis(), thirty.as_millis());
    assert!(one < Duration::from_secs(1), "{one:?}");
    assert!(thirty < Duration::from_secs(3), "{thirty:?}");
}

#[tokio::test]
async fn f62_what_an_outage_left_is_made_up_for_at_twice_the_usual_rate_and_nothing_is_lost() {
    let steps = requests_after_an_outage(1).await;
    // one is twice the usual; two, when a step's beginning and its end are both in it
    assert!(steps.keys().all(|n| *n <= 2), "{steps:?}");
    assert!(steps.get(&2).copied().unwrap_or_default() <= 2, "{steps:?}");
}

#[tokio::test]
async fn f62_after_an_hour_in_which_no_endpoint_answered_the_peak_is_at_most_three_times_the_usual() {
    let steps = requests_after_an_outage(8).await;
    // eight endpoints, each of which took one in twenty seconds
    let usual = 4;
    assert!(steps.keys().all(|n| *n <= 3 * usual), "{steps:?}");
    // no waves: between the first and the last of them there is none in which nobody gets anything
    assert!(steps.get(&0).copied().unwrap_or_default() <= 2, "{steps:?}");
}

/// An hour in which no endpoint answers, and 25 events for each; how many requests came in each ten seconds after it, until everything is
/// delivered.
async fn requests_after_an_outage(endpoints: i64) -> BTreeMap<usize, usize> {
    let (stage, down) = (Stage::set().await, Sink::start().await.unwrap());
    let mut ids = Vec::new();
    for n in 0..endpoints {
        // what failed waits for an hour
        let retries = Retries::Steps(vec![Duration::from_hours(1)]);
        let new = NewEndpoint { retries, ..NewEndpoint::new(format!("e-{n}"), down.url("/in"), ["order.*"]) };
        ids.push(stage.create(new).await.0);
    }
    // the hour before: 180 deliveries, one in twenty seconds, and an outage that has begun
    sqlx::query("insert into postrider.endpoint_window (endpoint, slot, delivered, failed) select e.id, clock_timestamp() - n * interval '5 minutes', 15, 14
                   from postrider.endpoint e cross join generate_series(0, 11) n")
        .execute(stage.pool())
        .await
        .unwrap();
    down.script(vec![Reply::Status(500); 1_000]);
    let recorded = 25;
    for _ in 0..recorded {
        stage.record("order.paid", "", "{}").await;
    }
    let failing = "select count(*) from postrider.endpoint_health where failing_since is not null and pace_ms = 10000";
    // and each is to make up for it by one in ten seconds
    stage.until_number(failing, endpoints).await;
    stage.until_number("select count(*) from postrider.lease", 0).await;

    let up = Sink::start().await.unwrap();
    for id in ids {
        let change = EndpointChange { url: Some(up.url("/in")), ..EndpointChange::default() };
        stage.endpoints.update(id, change).await.unwrap();
    }
    let (mut steps, mut before) = (BTreeMap::<usize, usize>::new(), 0);
    stage.pass(Duration::from_mins(70)).await;
    // ten seconds at a time: what is due within them has been sent when nothing is under way
    while stage.number("select count(*) from postrider.done where state <> 1").await < recorded * endpoints {
        stage.pass(Duration::from_secs(10)).await;
        tokio::time::sleep(Duration::from_millis(250)).await;
        stage
            .until_number("select (select count(*) from postrider.lease) + (select count(*) from postrider.ready)", 0)
            .await;
        let now = up.requests().len();
        *steps.entry(now - before).or_default() += 1;
        before = now;
        assert!(steps.values().sum::<usize>() < 300, "{steps:?}");
    }
    assert_eq!(stage.number("select count(*) from postrider.done where state = 2").await, recorded * endpoints);
    stage.strike().await;
    steps
}

/// A receiver that answers at once, or after half a minute where the path says so; and when each event came. For thousands of requests, of which
/// nothing else is kept.
struct Crowd {
    address: std::net::SocketAddr,
    came: std::sync::Arc<std::sync::Mutex<Vec<(String, tokio::time::Instant)>>>,
    task: tokio::task::JoinHandle<()>,
}

impl Crowd {
    async fn gather() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, came) = (listener.local_addr().unwrap(), std::sync::Arc::<std::sync::Mutex<Vec<_>>>::default());
        let into = std::sync::Arc::clone(&came);
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(answer(stream, std::sync::Arc::clone(&into)));
            }
        });
        Self { address, came, task }
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }
}

async fn answer(
    mut stream: tokio::net::TcpStream,
    came: std::sync::Arc<std::sync::Mutex<Vec<(String, tokio::time::Instant)>>>,
) {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let (mut read, mut part) = (Vec::new(), [0; 4_096]);
    let head = loop {
        let Ok(n @ 1..) = stream.read(&mut part).await else { return };
        read.extend(&part[..n]);
        let text = String::from_utf8_lossy(&read).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse::<usize>().ok());
            if body.len() >= length.unwrap_or_default() {
                break head.to_owned();
            }
        }
    };
    if head.contains(" /hangs ") {
        tokio::time::sleep(Duration::from_secs(30)).await;
    } else if let Some(id) = head.lines().find_map(|line| line.strip_prefix("webhook-id: ")) {
        came.lock().unwrap().push((id.to_owned(), tokio::time::Instant::now()));
    }
    let _ = stream.write_all(b"HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n").await;
}

/// Records this many events a second for so many seconds, each for one of the endpoints in turn; the 50th and 99th of a hundred waits of those
/// that answer, in milliseconds, and how many came.
async fn waits(
    stage: &Stage,
    crowd: &Crowd,
    (per_second, seconds): (u64, u64),
    sick: impl Fn(u64) -> bool,
) -> (u128, u128, usize) {
    crowd.came.lock().unwrap().clear();
    let mut recorded = BTreeMap::new();
    let mut beat = tokio::time::interval(Duration::from_micros(1_000_000 / per_second));
    for n in 0..per_second * seconds {
        beat.tick().await;
        // a prime step: neighbours are not served together
        let owner = n * 7 % ENDPOINTS;
        let event = stage.record("order.paid", &format!("o{owner}"), "{}").await;
        if !sick(owner) {
            recorded.insert(event, tokio::time::Instant::now());
        }
    }
    until("those that answer have theirs", SOON * 3, async || {
        (crowd.came.lock().unwrap().len() >= recorded.len()).then_some(())
    })
    .await;
    let came = crowd.came.lock().unwrap();
    let mut waits: Vec<u128> =
        came.iter().filter_map(|(id, at)| Some(at.saturating_duration_since(*recorded.get(id)?).as_millis())).collect();
    waits.sort_unstable();
    (waits[waits.len() / 2], waits[waits.len() * 99 / 100], waits.len())
}

const ENDPOINTS: u64 = 2_000;

fn resident_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() / 1_024
}

/// 2 000 endpoints, of which one in a hundred is dead and one in a hundred hangs for half a minute: the others are served as before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measure of minutes: run it by hand on a quiet machine, with --nocapture"]
async fn f61_what_the_dead_and_the_hanging_cost_the_others() {
    // with as many slots as there are by default
    let (stage, crowd) = (Stage::with_slots(None).await, Crowd::gather().await);
    let mut ids = Vec::new();
    for n in 0..ENDPOINTS {
        let of = NewEndpoint { owner: format!("o{n}"), ..NewEndpoint::new("e", crowd.url("/fine"), ["order.paid"]) };
        ids.push(stage.create(of).await.0);
    }
    let load = (100, 40);
    let fine = waits(&stage, &crowd, load, |_| false).await;
    println!("all fine: p50 {} ms, p99 {} ms of {}; {} MiB", fine.0, fine.1, fine.2, resident_mib());
    // nobody listens there any more
    let dead = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let sick = |n: u64| n.is_multiple_of(50);
    for n in (0..ENDPOINTS).filter(|n| sick(*n)) {
        let url = if n.is_multiple_of(100) { crowd.url("/hangs") } else { format!("http://{dead}/") };
        let change =
            EndpointChange { url: Some(url), timeout: Some(Duration::from_secs(30)), ..EndpointChange::default() };
        stage.endpoints.update(ids[usize::try_from(n).unwrap()], change).await.unwrap();
    }
    let ill = waits(&stage, &crowd, load, sick).await;
    println!("1 % dead, 1 % hanging: p50 {} ms, p99 {} ms of {}; {} MiB", ill.0, ill.1, ill.2, resident_mib());
    crowd.task.abort();
    assert!(ill.1 <= fine.1 * 2, "{} ms is more than twice {} ms", ill.1, fine.1);
    stage.running.stop(Duration::ZERO).await;
}
