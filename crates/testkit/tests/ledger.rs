//! P1–P5, F01–F08: a run of all processes under faults of many kinds, judged by what they wrote down outside of the database. The longer
//! one is `cargo run -p xtask -- faults`.

use std::time::Duration;

use postrider_testkit::nemesis::{Plan, run};

#[tokio::test(flavor = "multi_thread")]
async fn p1_to_p5_nothing_is_lost_torn_stale_or_doubled_without_a_fault_that_explains_it() {
    let program = env!("CARGO_BIN_EXE_postrider-fixture");
    let plan = Plan { fired_least: 16, gap_ms: (200, 700), ..Plan::new(program, 1, Duration::from_secs(14)) };
    let outcome = run(&plan).await.unwrap();
    println!("{outcome}");
    assert_eq!(outcome.table.red(), [], "{outcome}");
    let fired = outcome.table.faults.values().filter(|fired| fired.fired > 0).count();
    assert!(outcome.table.fired() >= 15 && fired >= 5, "too few faults fired: {outcome}");
    assert!(outcome.table.effects > 500, "too little was done: {outcome}");
}
