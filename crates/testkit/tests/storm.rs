//! Everything at once, at random, for a while: the lock order holds, and the schema holds together.

use std::time::Duration;

use postrider_testkit::{Storm, TestDb, storm};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_storm_of_everything_at_once_makes_no_deadlock_and_loses_nothing() {
    let report = storm(&TestDb::fresh().await, Storm { length: Duration::from_secs(20), seed: 1 }).await.unwrap();
    println!("{report}");
    report.assert_clean();
}
