//! O1 to O3 where a worker leases several jobs of one key at a time: it runs them one after the other, and what it does not get to goes back.
#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::indexing_slicing,
    reason = "a failed helper is a failed test, and a test asks the database itself"
)]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use postrider::{
    Act, Bus, JobId, Kind, KindSpec, NewJob, Order, Payload, Retry, Running, Settings, State, Stopped, Verdict, handler,
};
use postrider_testkit::{TestDb, until};
use sqlx::PgPool;
use tokio::sync::{Notify, Semaphore};

const SOON: Duration = Duration::from_mins(1);

/// What a handler saw: the key, the number of the job there, and whether it began or ended.
type Seen = Arc<Mutex<Vec<(String, i64, bool)>>>;

struct House {
    db: TestDb,
    bus: Bus,
    seen: Seen,
    /// A job whose number is negative waits until it is let go.
    gate: Arc<Semaphore>,
    at_gate: Arc<Notify>,
}

fn args(key: &str, n: i64, fails: bool) -> Payload {
    Payload::parse(serde_json::json!({ "key": key, "n": n, "fails": fails }).to_string()).unwrap()
}

fn job(key: &str, n: i64, fails: bool, order: Order) -> NewJob {
    NewJob { order_key: Some(key.to_owned()), order: Some(order), ..NewJob::new("t.k", args(key, n, fails)) }
}

async fn bus(db: &TestDb, settings: Settings, parts: (Seen, Arc<Semaphore>, Arc<Notify>)) -> Bus {
    let handle = handler(move |job, _| {
        let (seen, gate, at_gate) = parts.clone();
        async move {
            let args: serde_json::Value = serde_json::from_str(job.args.as_str())?;
            let key = args["key"].as_str().unwrap_or_default().to_owned();
            let n = args["n"].as_i64().unwrap_or_default();
            seen.lock().unwrap().push((key.clone(), n, true));
            if n < 0 {
                at_gate.notify_one();
                gate.acquire().await?.forget();
            }
            tokio::task::yield_now().await;
            seen.lock().unwrap().push((key, n, false));
            if args["fails"] == true && job.attempt == 1 {
                return Err("not yet".into());
            }
            Ok(Verdict::Complete)
        }
    });
    let retry = Retry::Steps(vec![Duration::from_millis(100)]);
    let kind = Kind::spec(KindSpec { retry, ..KindSpec::new("t.k") }).handler(handle);
    Bus::builder(db.pool().clone()).kinds([kind]).settings(settings).build().await.unwrap()
}

impl House {
    async fn built(settings: Settings) -> Self {
        let db = TestDb::fresh().await;
        let (seen, gate, at_gate) = (Seen::default(), Arc::new(Semaphore::new(0)), Arc::new(Notify::new()));
        let bus = bus(&db, settings, (Arc::clone(&seen), Arc::clone(&gate), Arc::clone(&at_gate))).await;
        Self { db, bus, seen, gate, at_gate }
    }

    /// Another one on the same database, whose handlers tell the same things.
    async fn again(&self, settings: Settings) -> Bus {
        bus(&self.db, settings, (Arc::clone(&self.seen), Arc::clone(&self.gate), Arc::clone(&self.at_gate))).await
    }

    async fn enqueue(&self, jobs: &[NewJob]) -> Vec<JobId> {
        self.bus.jobs().enqueue(None, jobs).await.unwrap().into_iter().map(|made| made.id).collect()
    }

    /// Lets a worker find out that the jobs of this queue take no time.
    async fn warm(&self) {
        let jobs: Vec<NewJob> = (0..300).map(|n| job("warm", n, false, Order::Block)).collect();
        self.enqueue(&jobs).await;
        done(self.db.pool(), 300).await;
    }

    fn seen_of(&self, key: &str) -> Vec<(i64, bool)> {
        let seen = self.seen.lock().unwrap();
        seen.iter().filter(|(of, _, _)| of == key).map(|(_, n, began)| (*n, *began)).collect()
    }

    async fn state(&self, id: &JobId) -> State {
        self.bus.inspector().job(id).await.unwrap().unwrap().state
    }
}

async fn number(pool: &PgPool, sql: &'static str) -> i64 {
    sqlx::query_scalar(sql).fetch_one(pool).await.unwrap()
}

async fn done(pool: &PgPool, n: i64) {
    until(&format!("{n} jobs have ended"), SOON, async || {
        (number(pool, "select count(*) from postrider.done").await == n).then_some(())
    })
    .await;
}

async fn stop(running: Running) {
    assert_eq!(running.stop(SOON).await, Stopped::Drained);
}

/// Every attempt began after the one before had ended.
fn one_after_the_other(seen: &[(i64, bool)]) {
    for pair in seen.chunks(2) {
        assert!(matches!(pair, [(began, true), (ended, false)] if began == ended), "two ran at once: {pair:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn o1_o2_o3_jobs_of_a_key_run_in_their_order_however_many_of_them_are_leased_at_a_time() {
    const JOBS: i64 = 600;
    let house = House::built(Settings::default()).await;
    let policies = [("block", Order::Block), ("skip", Order::Skip)];
    for (key, order) in policies {
        let jobs: Vec<NewJob> = (0..JOBS).map(|n| job(key, n, n % 100 == 50, order)).collect();
        house.enqueue(&jobs).await;
    }
    // two workers in turn: what one has leased is not the other's
    let (one, other) = (house.bus.start().unwrap(), house.again(Settings::default()).await.start().unwrap());
    done(house.db.pool(), 2 * JOBS).await;
    let again = |n: i64| if n % 100 == 50 { 2 } else { 1 };
    let blocked = house.seen_of("block");
    one_after_the_other(&blocked);
    let expected: Vec<i64> = (0..JOBS).flat_map(|n| vec![n; 2 * again(n)]).collect();
    assert_eq!(blocked.iter().map(|(n, _)| *n).collect::<Vec<_>>(), expected, "under block a failure is waited for");
    let skipped = house.seen_of("skip");
    one_after_the_other(&skipped);
    let (mut first, mut times) = (Vec::new(), BTreeMap::<i64, usize>::new());
    for (n, _) in skipped.iter().filter(|(_, began)| *began) {
        let ran = times.entry(*n).or_default();
        *ran += 1;
        if *ran == 1 {
            first.push(*n);
        }
    }
    assert_eq!(first, (0..JOBS).collect::<Vec<_>>(), "under skip whoever comes after a failure goes on");
    assert!(times.iter().all(|(n, ran)| *ran == again(*n)), "{times:?}");
    let leases = number(house.db.pool(), "select count(distinct lease) from postrider.done").await;
    assert!(leases < JOBS / 4, "{leases} leases: they were leased one by one");
    stop(one).await;
    stop(other).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn z2_a_worker_that_stops_gives_back_at_once_what_has_not_begun() {
    let house = House::built(Settings::default()).await;
    let running = house.bus.start().unwrap();
    house.warm().await;
    let jobs: Vec<NewJob> = (-1..5).map(|n| job("k", n, false, Order::Block)).collect();
    let ids = house.enqueue(&jobs).await;
    house.at_gate.notified().await;
    assert_eq!(number(house.db.pool(), "select sum(cardinality(open)) from postrider.lease").await, 6, "a line");
    let stopping = tokio::spawn(running.stop(SOON));
    until("those in line are given back", SOON, async || {
        (number(house.db.pool(), "select sum(cardinality(open)) from postrider.lease").await == 1).then_some(())
    })
    .await;
    assert_eq!(house.state(ids.first().unwrap()).await, State::Running);
    for id in ids.iter().skip(1) {
        assert_eq!(house.state(id).await, State::Pending);
    }
    house.gate.add_permits(1);
    assert_eq!(stopping.await.unwrap(), Stopped::Drained);
    assert_eq!(house.seen_of("k").len(), 2, "nothing began meanwhile");
    let next = house.again(Settings::default()).await.start().unwrap();
    done(house.db.pool(), 306).await;
    assert_eq!(number(house.db.pool(), "select count(*) from postrider.done where attempt > 1").await, 0);
    stop(next).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn x2_one_that_waits_in_a_line_and_is_cancelled_never_runs() {
    let house = House::built(Settings { beat: Duration::from_millis(100), ..Settings::default() }).await;
    let running = house.bus.start().unwrap();
    house.warm().await;
    let jobs: Vec<NewJob> = (-1..3).map(|n| job("k", n, false, Order::Block)).collect();
    let ids = house.enqueue(&jobs).await;
    house.at_gate.notified().await;
    let why = house.bus.inspector().explain(ids.get(2).unwrap()).await.unwrap().unwrap();
    let head = format!("It comes after job {}, which has the turn of its order key 'k'", ids.first().unwrap());
    assert!(why.contains(&head), "{why}");
    house.bus.jobs().act(None, Act::Cancel, &ids[2..3]).await.unwrap();
    // with a beat that begins after that the worker is told
    let beat = "select sum(beat)::bigint from postrider.worker";
    let before = number(house.db.pool(), beat).await;
    until("the worker has beaten twice", SOON, async || {
        (number(house.db.pool(), beat).await >= before + 2).then_some(())
    })
    .await;
    house.gate.add_permits(1);
    done(house.db.pool(), 304).await;
    assert_eq!(house.state(ids.get(2).unwrap()).await, State::Cancelled);
    assert_eq!(house.seen_of("k").iter().map(|(n, _)| *n).collect::<Vec<_>>(), [-1, -1, 0, 0, 2, 2]);
    stop(running).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn o6_a_slow_job_holds_no_line_behind_it_for_long() {
    let house = House::built(Settings::default()).await;
    let running = house.bus.start().unwrap();
    house.warm().await;
    let jobs: Vec<NewJob> = (-1..5).map(|n| job("k", n, false, Order::Block)).collect();
    house.enqueue(&jobs).await;
    house.at_gate.notified().await;
    // longer than a line may take
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    house.gate.add_permits(1);
    done(house.db.pool(), 306).await;
    assert_eq!(running.stop(SOON).await, Stopped::Drained);
    assert!(house.bus.figures().released >= 5, "what was left went back: {:?}", house.bus.figures());
}
