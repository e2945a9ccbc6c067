//! Wrong engines: the cases turn red on them, exactly those that should.
#![expect(
    clippy::indexing_slicing,
    clippy::future_not_send,
    reason = "a failed helper is a failed test, and cases run on the thread of their test"
)]

use std::collections::BTreeSet;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures_util::{FutureExt, StreamExt, stream};
use postrider_testkit::conformance::wrong::WRONG;
use postrider_testkit::conformance::{Case, Engine};
use postrider_testkit::{
    conformance_attempt, conformance_claim, conformance_enqueue, conformance_inspect, conformance_order,
    conformance_schedule, conformance_unique,
};
use tokio::time::timeout;

/// A case that hangs is red after this long.
const QUICK: Duration = Duration::from_secs(12);
/// One that is not in the list is given this long, since the machine may be busy.
const PATIENT: Duration = Duration::from_secs(45);
/// Cases at a time.
const AT_A_TIME: usize = 3;

fn cases() -> Vec<Case> {
    let families: [Vec<Case>; 7] = [
        conformance_enqueue!(@list),
        conformance_unique!(@list),
        conformance_claim!(@list),
        conformance_attempt!(@list),
        conformance_order!(@list),
        conformance_inspect!(@list),
        conformance_schedule!(@list),
    ];
    families.concat()
}

async fn is_red(case: Case, engine: &dyn Engine, within: Duration) -> bool {
    let run = AssertUnwindSafe((case.run)(engine)).catch_unwind();
    !matches!(timeout(within, run).await, Ok(Ok(())))
}

fn begins(case: Case, with: &[&str]) -> bool {
    with.iter().any(|start| case.name.starts_with(start))
}

async fn turns_red(n: usize) {
    let wrong = &WRONG[n];
    let engine = wrong.engine();
    let engine = &*engine;
    let mut among = cases();
    among.retain(|case| case.name.starts_with(wrong.among) && !begins(*case, wrong.maybe));
    let listed: BTreeSet<&str> = among.iter().filter(|case| begins(**case, wrong.red)).map(|case| case.name).collect();
    assert_eq!(listed.len(), wrong.red.len(), "{}: no such case", wrong.says);
    let looks = among.into_iter().map(async |case| {
        let mut red = is_red(case, engine, QUICK).await;
        if red && !listed.contains(case.name) {
            red = is_red(case, engine, PATIENT).await;
        }
        red.then_some(case.name)
    });
    let red: BTreeSet<&str> =
        stream::iter(looks).buffer_unordered(AT_A_TIME).filter_map(async |name| name).collect().await;
    assert_eq!(red, listed, "{}", wrong.says);
}

macro_rules! each {
    ($($name:ident $n:literal)*) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
            async fn $name() {
                turns_red($n).await;
            }
        )*

        #[test]
        fn every_wrong_engine_has_a_test() {
            assert_eq!([$($n),*].as_slice(), (0..WRONG.len()).collect::<Vec<_>>());
        }
    };
}

each! {
    an_engine_that_enqueues_beside_the_transaction_is_red 0
    an_engine_that_has_a_slot_more_is_red 1
    an_engine_that_tells_no_args_apart_is_red 2
    an_engine_that_starts_what_a_transaction_counts_on_is_red 3
    an_engine_whose_groups_end_with_the_row_is_red 4
    an_engine_that_runs_two_of_one_running_is_red 5
    an_engine_that_looks_at_no_time_is_red 6
    an_engine_that_looks_at_no_priority_is_red 7
    an_engine_that_hands_out_what_is_paused_is_red 8
    an_engine_without_back_off_is_red 9
    an_engine_that_loses_errors_is_red 10
    an_engine_that_retries_what_was_discarded_is_red 11
    an_engine_that_spends_attempts_on_snoozing_is_red 12
    an_engine_that_serves_no_owner_in_turn_is_red 13
    an_engine_that_pauses_no_schedule_is_red 14
    an_engine_that_runs_a_schedule_whatever_goes_on_is_red 15
    an_engine_that_counts_schedules_anew_is_red 16
    an_engine_that_tells_no_due_time_is_red 17
    an_engine_that_lists_all_queues_is_red 18
    an_engine_that_repeats_the_last_one_of_a_page_is_red 19
    an_engine_that_finds_jobs_whatever_their_args_is_red 20
    an_engine_that_finds_jobs_whatever_their_tags_is_red 21
    an_engine_that_tells_no_bound_is_red 22
    an_engine_that_knows_no_kind_before_its_jobs_is_red 23
    an_engine_that_shows_no_attempts_is_red 24
    an_engine_that_takes_what_has_ended_for_waiting_is_red 25
    an_engine_that_takes_what_never_was_for_gone_is_red 26
}
