//! What an operator does to jobs, beside everything that moves them: in every order a job is in one place, nobody waits who need not, and
//! what was asked for is done, refused, or left to a beat.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a failed helper is a failed test, and the figures are told"
)]

use postrider_testkit::TestDb;
use postrider_testkit::interleave::{
    self, Outcome, Spec, Step, begin, cancel, claim, commit, delete, end, enqueue, enqueue_later, finish, finish_of,
    leave, part, pause_queue, promote, rescue, retry, sql, tick, tick_with,
};

use Outcome::{Completed, Exhausted, Failed, Refused, Released, Snoozed};

async fn run(specs: &[Spec]) {
    let report = interleave::run(&TestDb::fresh().await, specs).await.unwrap();
    println!("{report}");
    report.assert_clean();
}

/// A worker that beat once and holds some jobs in one lease.
fn holding(jobs: &[&str]) -> Vec<Step> {
    let mut steps = vec![tick_with("w1", &[], 0, &[])];
    steps.extend(jobs.iter().map(|job| enqueue("t.k", job)));
    steps.push(claim("w1", 9));
    steps
}

/// A job that has ended.
fn ended(outcome: Outcome) -> Vec<Step> {
    vec![enqueue("t.k", "x"), claim("w9", 1), finish("w9", outcome)]
}

/// Two seconds later, as far as cancellations are concerned, a beat comes.
fn later_beat() -> [Step; 2] {
    let age = "update postrider.cancellation set requested_at = requested_at - interval '2 seconds'
                where ctid = any (array(select ctid from postrider.cancellation for update skip locked))";
    [sql(age), tick_with("w8", &[], 0, &[])]
}

/// A spec of one verb in a transaction, which commits or not, beside another verb.
fn beside(name: &str, stage: Vec<Step>, one: Step, other: Step, ends: &[&str]) -> Spec {
    let spec = Spec::new(name).stage(stage).session("a", [begin(one), end()]).session("b", [other]);
    ends.iter().fold(spec, |spec, picture| spec.ends(picture))
}

#[tokio::test]
async fn x1_a_cancellation_beside_what_moves_a_waiting_job() {
    let ready = || vec![enqueue("t.k", "x")];
    let due = || vec![enqueue("t.k", "x"), claim("w9", 1), finish("w9", Failed)];
    run(&[
        beside(
            "a claim beside a cancellation: it never runs, or is told to stop",
            ready(),
            claim("w1", 9).gives_after("b1", "").gives("x/1"),
            cancel(&["x"]),
            &["x=cancelled/0", "x=leased/1", "x=ready/0"],
        ),
        beside(
            "a cancellation that has not committed beside a claim",
            ready(),
            cancel(&["x"]).gives_after("b1", "x:requested").gives("x:done"),
            claim("w1", 9),
            &["x=cancelled/0", "x=leased/1", "x=ready/0"],
        ),
        beside(
            "two cancellations of one that waits",
            ready(),
            cancel(&["x"]),
            cancel(&["x"]),
            &["x=cancelled/0", "x=ready/0"],
        ),
        beside(
            "a promotion beside a cancellation",
            due(),
            promote(),
            cancel(&["x"]),
            &["x=cancelled/1", "x=ready/1", "x=later/1"],
        ),
        beside(
            "a cancellation beside one that is enqueued",
            vec![],
            enqueue("t.k", "x"),
            cancel(&["x"]),
            &["x=ready/0", "x=cancelled/0", ""],
        ),
        Spec::new("a cancellation of what somebody else takes for long is done by a later beat")
            .stage(ready())
            .session("a", [begin(claim("w1", 9)), sql("rollback")])
            .session("b", std::iter::once(cancel(&["x"])).chain(later_beat()))
            .ends("x=cancelled/0")
            .ends("x=ready/0"),
    ])
    .await;
}

#[tokio::test]
async fn x3_a_cancellation_beside_every_end_of_an_attempt() {
    let mut specs = Vec::new();
    for (outcome, end) in [
        (Completed, "x=completed/1"),
        (Failed, "x=later/1"),
        (Snoozed, "x=later/0"),
        (Refused, "x=refused/1"),
        (Exhausted, "x=exhausted/1"),
        (Released, "x=ready/0"),
    ] {
        let mut ends = vec![end, "x=leased/1"];
        if outcome != Completed {
            ends.push("x=cancelled/1");
        }
        if matches!(outcome, Snoozed | Released) {
            ends.push("x=cancelled/0");
        }
        specs.push(beside(
            &format!("{outcome:?} beside a cancellation"),
            holding(&["x"]),
            finish("w1", outcome),
            cancel(&["x"]),
            &ends,
        ));
        let mut ends = vec![end];
        if outcome != Completed {
            ends.push("x=cancelled/1");
        }
        if matches!(outcome, Snoozed | Released) {
            ends.push("x=cancelled/0");
        }
        specs.push(beside(
            &format!("a cancellation that has not committed beside {outcome:?}"),
            holding(&["x"]),
            cancel(&["x"]),
            finish("w1", outcome).waits("a1", "a2"),
            &ends,
        ));
    }
    run(&specs).await;
}

#[tokio::test]
async fn x3_a_cancellation_beside_a_rescue_a_hand_back_a_goodbye_and_another_one() {
    let held = || holding(&["x", "y"]);
    run(&[
        beside(
            "a rescue beside a cancellation",
            held(),
            rescue("w1", 1),
            cancel(&["x"]),
            &[
                "x=cancelled/1 y=ready/0+1",
                "x=cancelled/0 y=ready/0+1",
                "x=ready/0+1 y=ready/0+1",
                "x=leased/1 y=leased/1",
            ],
        ),
        beside(
            "a cancellation that has not committed beside a rescue",
            held(),
            cancel(&["x"]),
            rescue("w1", 1),
            &[
                "x=leased/1 y=leased/1",
                "x=cancelled/1 y=ready/0+1",
                "x=cancelled/0 y=ready/0+1",
                "x=ready/0+1 y=ready/0+1",
            ],
        ),
        beside(
            "a hand-back beside a cancellation",
            held(),
            tick("w1"),
            cancel(&["x"]),
            &["x=cancelled/1 y=ready/0", "x=cancelled/0 y=ready/0", "x=ready/0 y=ready/0", "x=leased/1 y=leased/1"],
        ),
        beside(
            "a goodbye beside a cancellation",
            held(),
            leave("w1"),
            cancel(&["x"]),
            &["x=cancelled/1 y=ready/0", "x=cancelled/0 y=ready/0", "x=ready/0 y=ready/0", "x=leased/1 y=leased/1"],
        ),
        beside(
            "two cancellations of one that runs do not wait for each other",
            held(),
            cancel(&["x"]).gives("x:requested"),
            cancel(&["x"]).gives("x:requested"),
            &["x=leased/1 y=leased/1"],
        ),
        Spec::new("two cancellations of the same two leases")
            .stage([enqueue("t.k", "x"), claim("w1", 1), enqueue("t.k", "y"), claim("w1", 1)])
            .session("a", [begin(cancel(&["x"])), cancel(&["y"]), commit()])
            .session("b", [begin(cancel(&["y"])), cancel(&["x"]), commit()])
            .ends("x=leased/1 y=leased/1"),
        Spec::new("what met the end of an attempt is done by a later beat")
            .stage(holding(&["x"]))
            .session("a", [begin(finish("w1", Failed)), commit()])
            .session("b", std::iter::once(cancel(&["x"])).chain(later_beat()))
            .ends("x=cancelled/1")
            .ends("x=later/1"),
    ])
    .await;
}

#[tokio::test]
async fn x5_a_retry_beside_a_retry_a_cancellation_and_a_claim() {
    run(&[
        beside(
            "two retries of one that has ended run it once",
            ended(Completed),
            retry(&["x"]).gives_after("b1", "x:already").gives("x:done"),
            retry(&["x"]).waits("a1", "a2"),
            &["x=ready/0"],
        ),
        beside(
            "a retry beside a retry of one that backs off",
            ended(Failed),
            retry(&["x"]),
            retry(&["x"]),
            &["x=ready/1", "x=later/1"],
        ),
        beside(
            "a retry beside a cancellation",
            ended(Exhausted),
            retry(&["x"]).gives("x:done"),
            cancel(&["x"]),
            &["x=ready/0", "x=cancelled/0", "x=exhausted/1"],
        ),
        beside(
            "a cancellation beside a retry of one that backs off",
            ended(Failed),
            cancel(&["x"]),
            retry(&["x"]),
            &["x=cancelled/1", "x=ready/1", "x=ready/0", "x=later/1"],
        ),
        beside(
            "a retry beside a claim",
            ended(Refused),
            retry(&["x"]).gives("x:done"),
            claim("w1", 9),
            &["x=leased/1", "x=ready/0", "x=refused/1"],
        ),
        beside("a retry beside a promotion", ended(Failed), retry(&["x"]), promote(), &["x=ready/1", "x=later/1"]),
        beside(
            "a retry of one that runs beside its end",
            holding(&["x"]),
            finish("w1", Completed),
            retry(&["x"]),
            &["x=ready/0", "x=completed/1", "x=leased/1"],
        ),
        beside(
            "a retry of one whose worker is dead beside its rescue",
            holding(&["x", "y"]),
            rescue("w1", 1),
            retry(&["x"]),
            &["x=ready/0+1 y=ready/0+1", "x=leased/1 y=leased/1"],
        ),
    ])
    .await;
}

#[tokio::test]
async fn x8_a_deletion_beside_everything_that_moves_a_job() {
    let ready = || vec![enqueue("t.k", "x")];
    run(&[
        beside("a claim beside a deletion", ready(), claim("w1", 9), delete(&["x"]), &["", "x=leased/1", "x=ready/0"]),
        beside("a deletion beside a claim", ready(), delete(&["x"]), claim("w1", 9), &["", "x=leased/1", "x=ready/0"]),
        beside("two deletions", ready(), delete(&["x"]), delete(&["x"]), &["", "x=ready/0"]),
        beside(
            "a deletion beside a cancellation",
            ready(),
            delete(&["x"]),
            cancel(&["x"]),
            &["", "x=cancelled/0", "x=ready/0"],
        ),
        beside(
            "a cancellation beside a deletion",
            ready(),
            cancel(&["x"]),
            delete(&["x"]),
            &["", "x=cancelled/0", "x=ready/0"],
        ),
        beside(
            "an end beside a deletion",
            holding(&["x"]),
            finish("w1", Completed),
            delete(&["x"]),
            &["", "x=completed/1", "x=leased/1"],
        ),
        beside(
            "a deletion of one that has ended beside its retry",
            ended(Completed),
            delete(&["x"]),
            retry(&["x"]).waits("a1", "a2"),
            &["", "x=ready/0"],
        ),
        beside(
            "a retry beside a deletion",
            ended(Completed),
            retry(&["x"]),
            delete(&["x"]),
            &["", "x=ready/0", "x=completed/1"],
        ),
        beside(
            "a rescue beside a deletion",
            holding(&["x", "y"]),
            rescue("w1", 1),
            delete(&["x"]),
            &["y=ready/0+1", "x=ready/0+1 y=ready/0+1", "x=leased/1 y=leased/1"],
        ),
        beside(
            "a promotion beside a deletion",
            ended(Failed),
            promote(),
            delete(&["x"]),
            &["", "x=ready/1", "x=later/1"],
        ),
    ])
    .await;
}

#[tokio::test]
async fn k8_a_pause_beside_a_claim_and_what_comes_to_its_queue() {
    let two = || vec![enqueue("t.k", "x"), enqueue_later("t.k", "y")];
    run(&[
        beside(
            "a pause beside a claim",
            two(),
            pause_queue(true),
            claim("w1", 9),
            &["x=leased/1 y=later/0", "x=ready/0 y=later/0"],
        ),
        beside(
            "a claim beside a pause",
            two(),
            claim("w1", 9),
            pause_queue(true),
            &["x=leased/1 y=later/0", "x=ready/0 y=later/0"],
        ),
        beside(
            "the end of a pause beside a claim",
            two().into_iter().chain([pause_queue(true)]).collect(),
            pause_queue(false),
            claim("w1", 9),
            &["x=leased/1 y=later/0", "x=ready/0 y=later/0"],
        ),
        beside(
            "a pause beside what is enqueued, cancelled and run now",
            two(),
            pause_queue(true),
            retry(&["x", "y"]).gives("x:already y:done"),
            &["x=ready/0 y=ready/0"],
        ),
        beside("two pauses", two(), pause_queue(true), pause_queue(true).waits("a1", "a2"), &["x=ready/0 y=later/0"]),
        beside("a pause beside a beat", holding(&["x"]), pause_queue(true), tick("w1"), &["x=ready/0"]),
    ])
    .await;
}

/// A worker that holds two jobs in one lease.
fn held_both() -> Vec<Step> {
    holding(&["x", "y"])
}

/// The same, after one of them was taken out.
fn parted() -> Vec<Step> {
    held_both().into_iter().chain([part("w1", "x").gives("parted")]).collect()
}

#[tokio::test]
async fn a12_an_end_in_a_transaction_of_its_own_keeps_nobody_of_its_batch() {
    let own = || finish_of(&["w1"], &[("x", Completed)]);
    run(&[
        beside(
            "the end of the rest does not wait",
            parted(),
            own().gives("x"),
            finish_of(&["w1"], &[("y", Completed)]).gives("y"),
            &["x=completed/1 y=completed/1", "x=leased/1 y=completed/1"],
        ),
        beside(
            "a job that is being taken out beside the end of the rest",
            held_both(),
            part("w1", "x").gives("parted"),
            finish_of(&["w1"], &[("y", Completed)]).gives("y").waits("a1", "a2"),
            &["x=leased/1 y=completed/1"],
        ),
        beside(
            "the end of a job beside taking it out",
            held_both(),
            finish_of(&["w1"], &[("x", Completed)]),
            part("w1", "x").waits("a1", "a2"),
            &["x=completed/1 y=leased/1", "x=leased/1 y=leased/1"],
        ),
        beside(
            "a rescue beside taking out: the rescued one is lost",
            held_both(),
            rescue("w1", 1),
            part("w1", "x").waits("a1", "a2"),
            &["x=ready/0+1 y=ready/0+1", "x=leased/1 y=leased/1"],
        ),
        beside(
            "taking out beside a rescue: what is held is next time's",
            held_both(),
            part("w1", "x"),
            rescue("w1", 1),
            &["x=ready/0+1 y=ready/0+1", "x=leased/1 y=leased/1"],
        ),
    ])
    .await;
}

#[tokio::test]
async fn a12_a_rescue_or_a_cancellation_beside_an_end_in_a_transaction_of_its_own() {
    let own = || finish_of(&["w1"], &[("x", Completed)]);
    run(&[
        beside(
            "a rescue beside an end in a transaction of its own",
            parted(),
            own(),
            rescue("w1", 1),
            // whoever was alone when its worker died has spent its attempt
            &[
                "x=completed/1 y=ready/1+1",
                "x=completed/1 y=ready/0+1",
                "x=leased/1 y=ready/0+1",
                "x=ready/0+1 y=ready/0+1",
            ],
        ),
        beside(
            "a cancellation beside an end in a transaction of its own: what completes has completed",
            parted(),
            own().gives("x"),
            cancel(&["x"]),
            &["x=completed/1 y=leased/1", "x=leased/1 y=leased/1"],
        ),
        beside(
            "an end in a transaction of its own beside a cancellation that has not committed",
            parted(),
            cancel(&["x"]),
            own().gives("x").waits("a1", "a2"),
            &["x=completed/1 y=leased/1"],
        ),
        beside(
            "taking out beside a cancellation",
            held_both(),
            part("w1", "x").gives("parted"),
            cancel(&["x"]).gives("x:requested"),
            &["x=leased/1 y=leased/1"],
        ),
        beside(
            "a beat that knows nothing of it beside taking out",
            held_both(),
            part("w1", "x"),
            tick_with("w1", &["w1"], 0, &[]),
            &["x=leased/1 y=leased/1"],
        ),
    ])
    .await;
}
