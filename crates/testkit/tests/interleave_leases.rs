//! Leases in every order: claims, ends of attempts, hand-backs, rescues, goodbyes. An outcome counts once and only under the lease
//! that holds the job open (L3, P5), and a job is never lost nor doubled by those who put it back.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a failed helper is a failed test, and the figures are told"
)]

use postrider_testkit::TestDb;
use postrider_testkit::interleave::{
    self, Outcome, Spec, Step, begin, claim, claim_as, commit, enqueue, finish, finish_of, leave, promote, rescue,
    rollback, sql, tick, tick_with, worker,
};

use Outcome::{Completed, Exhausted, Failed, Refused, Released, Snoozed};

async fn run(specs: &[Spec]) {
    let report = interleave::run(&TestDb::fresh().await, specs).await.unwrap();
    println!("{report}");
    report.assert_clean();
}

/// A worker that beat once and holds nothing: its beat is 1.
fn alive(name: &str) -> Step {
    tick_with(name, &[], 0, &[])
}

/// A worker that beat once and holds some jobs of a kind in one lease.
fn holding(name: &str, kind: &str, jobs: &[&str]) -> Vec<Step> {
    let mut steps = vec![alive(name)];
    steps.extend(jobs.iter().map(|job| enqueue(kind, job)));
    steps.push(claim(name, 9));
    steps
}

#[tokio::test]
async fn l3_claims_share_what_is_ready_and_never_wait() {
    run(&[
        Spec::new("two claims of one job each get another one")
            .stage([enqueue("t.k", "x"), enqueue("t.k", "y")])
            .session("a", [claim("w1", 1).gives_after("b1", "y/1").gives("x/1")])
            .session("b", [claim("w2", 1).gives_after("a1", "y/1").gives("x/1")])
            .ends("x=leased/1 y=leased/1"),
        Spec::new("a claim passes by what another one is about to take, and takes it if that is undone")
            .stage([enqueue("t.k", "x"), enqueue("t.k", "y")])
            .session("a", [begin(claim("w1", 1)).gives_after("b1", "y/1").gives("x/1"), rollback()])
            .session("b", [claim("w2", 1).gives_after("a2", "x/1").gives_after("a1", "y/1").gives("x/1")])
            .ends("x=leased/1 y=ready/0")
            .ends("x=ready/0 y=leased/1"),
        Spec::new("three claims of everything: one gets it")
            .stage([enqueue("t.k", "x"), enqueue("t.k", "y")])
            .session(
                "a",
                [begin(claim("w1", 9)).gives_after("b1", "").gives_after("c1", "").gives("x/1 y/1"), commit()],
            )
            .session(
                "b",
                [begin(claim("w2", 9)).gives_after("a1", "").gives_after("c1", "").gives("x/1 y/1"), commit()],
            )
            .session(
                "c",
                [begin(claim("w3", 9)).gives_after("a1", "").gives_after("b1", "").gives("x/1 y/1"), commit()],
            )
            .ends("x=leased/1 y=leased/1"),
        Spec::new("a job that is enqueued is claimed once its transaction has committed")
            .session("a", [begin(enqueue("t.k", "x")), commit()])
            .session("b", [claim("w1", 9).gives_after("a2", "x/1").gives("")])
            .ends("x=leased/1")
            .ends("x=ready/0"),
        Spec::new("a job that is enqueued and rolled back was never there")
            .session("a", [begin(enqueue("t.k", "x")), rollback()])
            .session("b", [claim("w1", 9).gives("")])
            .ends(""),
        Spec::new("a claim waits in the middle for a number that is taken: others pass it by")
            .stage([enqueue("t.k", "x"), enqueue("t.k", "y")])
            .session("g", [begin(take_the_next_lease_number()), rollback()])
            .session("a", [claim("w1", 1).may_wait()])
            .session("b", [claim("w2", 1).may_wait()])
            .ends("x=leased/1 y=leased/1"),
    ])
    .await;
}

/// The number that the next lease is to have is taken by a row that nobody sees: a claim then waits with its jobs in hand.
fn take_the_next_lease_number() -> Step {
    sql("insert into postrider.lease select last_value + 1, gen_random_uuid(), 1, now(), 'q', '{}', '{}', '{}', '{}', '{}', '{}',
                '{}', null, false, '{}' from postrider.lease_id")
}

#[tokio::test]
async fn l3_an_outcome_that_is_sent_twice_counts_once() {
    let mut specs = Vec::new();
    for (outcome, end) in [
        (Completed, "x=completed/1"),
        (Failed, "x=later/1"),
        (Snoozed, "x=later/0"),
        (Refused, "x=refused/1"),
        (Exhausted, "x=exhausted/1"),
        (Released, "x=ready/0"),
    ] {
        specs.push(
            Spec::new(format!("{outcome:?} is sent again while the first one has not committed"))
                .stage(holding("w1", "t.k", &["x"]))
                .session("a", [begin(finish("w1", outcome)).gives_after("b1", "").gives("x"), commit()])
                .session("b", [finish("w1", outcome).gives_after("a1", "").gives("x").waits("a1", "a2")])
                .ends(end),
        );
        specs.push(
            Spec::new(format!("{outcome:?} is sent again after the first one was undone"))
                .stage(holding("w1", "t.k", &["x"]))
                .session("a", [begin(finish("w1", outcome)).gives_after("b1", "").gives("x"), rollback()])
                .session("b", [finish("w1", outcome).gives("x").waits("a1", "a2")])
                .ends(end),
        );
    }
    run(&specs).await;
}

#[tokio::test]
async fn l3_batches_of_outcomes_that_cross_wait_for_each_other_and_never_for_ever() {
    let two_leases = || [alive("w1"), enqueue("t.k", "x"), claim("w1", 1), enqueue("t.k", "y"), claim("w1", 1)];
    run(&[
        Spec::new("the same two leases in opposite orders")
            .stage(two_leases())
            .session(
                "a",
                [
                    begin(finish_of(&["w1"], &[("x", Completed), ("y", Completed)]))
                        .gives_after("b2", "")
                        .gives("x y")
                        .waits("b1", "b2"),
                    commit(),
                ],
            )
            .session(
                "b",
                [
                    begin(finish_of(&["w1"], &[("y", Completed), ("x", Completed)]))
                        .gives_after("a2", "")
                        .gives("x y")
                        .waits("a1", "a2"),
                    commit(),
                ],
            )
            .ends("x=completed/1 y=completed/1"),
        Spec::new("two outcomes of one job: the first one holds")
            .stage(holding("w1", "t.k", &["x"]))
            .session("a", [begin(finish("w1", Completed)).gives_after("b2", "").gives("x").waits("b1", "b2"), commit()])
            .session("b", [begin(finish("w1", Refused)).gives_after("a2", "").gives("x").waits("a1", "a2"), commit()])
            .ends("x=completed/1")
            .ends("x=refused/1"),
        Spec::new("the jobs of one lease end one by one")
            .stage(holding("w1", "t.k", &["x", "y"]))
            .session("a", [begin(finish_of(&["w1"], &[("x", Completed)])).gives("x").waits("b1", "b2"), commit()])
            .session("b", [begin(finish_of(&["w1"], &[("y", Failed)])).gives("y").waits("a1", "a2"), commit()])
            .ends("x=completed/1 y=later/1"),
    ])
    .await;
}

#[tokio::test]
async fn l3_batches_of_outcomes_that_overlap_in_one_lease_count_each_job_once() {
    run(&[
        Spec::new("batches that overlap in one lease")
            .stage(holding("w1", "t.k", &["x", "y", "z"]))
            .session(
                "a",
                [
                    begin(finish_of(&["w1"], &[("x", Completed), ("y", Completed)]))
                        .gives_after("b2", "x")
                        .gives("x y")
                        .waits("b1", "b2"),
                    commit(),
                ],
            )
            .session(
                "b",
                [
                    begin(finish_of(&["w1"], &[("z", Completed), ("y", Snoozed)]))
                        .gives_after("a2", "z")
                        .gives("y z")
                        .waits("a1", "a2"),
                    commit(),
                ],
            )
            .ends("x=completed/1 y=completed/1 z=completed/1")
            .ends("x=completed/1 y=later/0 z=completed/1"),
        Spec::new("an overlap of which one side is undone")
            .stage(holding("w1", "t.k", &["x", "y"]))
            .session(
                "a",
                [
                    begin(finish_of(&["w1"], &[("x", Completed), ("y", Completed)]))
                        .gives_after("b1", "x")
                        .gives("x y"),
                    rollback(),
                ],
            )
            .session("b", [finish_of(&["w1"], &[("y", Released)]).gives("y").waits("a1", "a2")])
            .ends("x=leased/1 y=ready/0"),
        Spec::new("three connections end the jobs of one lease")
            .stage(holding("w1", "t.k", &["x", "y", "z"]))
            .session("a", [begin(finish_of(&["w1"], &[("x", Completed)])).gives("x").may_wait(), commit()])
            .session("b", [begin(finish_of(&["w1"], &[("y", Failed)])).gives("y").may_wait(), commit()])
            .session("c", [begin(finish_of(&["w1"], &[("z", Released)])).gives("z").may_wait(), commit()])
            .ends("x=completed/1 y=later/1 z=ready/0"),
    ])
    .await;
}

#[tokio::test]
async fn l3_a_stale_worker_changes_nothing() {
    let mut specs = vec![
        Spec::new("a worker that was rescued from, and its job runs elsewhere")
            .stage(holding("w1", "t.k", &["x"]))
            .session("a", [finish("w1", Completed).gives_after("b1", "").gives("x")])
            .session("b", [rescue("w1", 1).gives_after("a1", "0").gives("1"), claim("w2", 9)])
            .ends("x=completed/1")
            .ends("x=leased/2+1"),
        Spec::new("a worker that got its own job again under a new lease")
            .stage(holding("w1", "t.k", &["x"]))
            .session("a", [finish("w1", Failed).gives_after("b1", "").gives("x")])
            .session(
                "b",
                [
                    tick("w1")
                        .gives_after("a1", "back 0 rescued 0 promoted 1 unparked 0 lost 0")
                        .gives("back 1 rescued 0 promoted 0 unparked 0 lost 0"),
                    claim_as("w1", "again", 9),
                ],
            )
            .ends("x=leased/1")
            .ends("x=leased/2"),
        Spec::new("an outcome under the old and the new lease at once: the new one counts")
            .stage(holding("w1", "t.k", &["x"]))
            .stage([tick("w1"), claim_as("w1", "again", 9)])
            .session("a", [begin(finish_of(&["w1"], &[("x", Refused)])).gives(""), commit()])
            .session("b", [begin(finish_of(&["w1", "again"], &[("x", Refused)])).gives(""), commit()])
            .ends("x=leased/1"),
        Spec::new("somebody else's lease")
            .stage(holding("w1", "t.k", &["x"]))
            .session("a", [finish_of(&["w2", "w1"], &[("x", Refused)]).gives("")])
            .session("b", [finish("w1", Completed).gives("x")])
            .ends("x=completed/1"),
    ];
    for (outcome, before, end) in [
        (Completed, "x", "x=completed/1"),
        (Failed, "x", "x=later/1"),
        (Snoozed, "x", "x=later/0"),
        (Refused, "x", "x=refused/1"),
        (Exhausted, "x", "x=exhausted/1"),
        (Released, "x", "x=ready/0"),
    ] {
        specs.push(
            Spec::new(format!("{outcome:?} beside a rescue of its worker"))
                .stage(holding("w1", "t.k", &["x"]))
                .session(
                    "a",
                    [begin(finish("w1", outcome)).gives_after("b2", "").gives(before).waits("b1", "b2"), commit()],
                )
                .session("b", [begin(rescue("w1", 1)).gives_after("a1", "0").gives("1"), commit()])
                .ends(end)
                .ends("x=ready/1+1"),
        );
        specs.push(
            Spec::new(format!("{outcome:?} beside its worker's goodbye"))
                .stage(holding("w1", "t.k", &["x"]))
                .session(
                    "a",
                    [begin(finish("w1", outcome)).gives_after("b2", "").gives(before).waits("b1", "b2"), commit()],
                )
                .session("b", [begin(leave("w1")).gives_after("a2", "0").gives("1").waits("a1", "a2"), commit()])
                .ends(end)
                .ends("x=ready/0"),
        );
    }
    run(&specs).await;
}

#[tokio::test]
async fn l3_a_claim_whose_reply_was_lost_is_handed_back_and_one_that_is_on_its_way_is_not() {
    run(&[
        Spec::new("a beat hands back what its worker does not hold, once")
            .stage(holding("w1", "t.k", &["x"]))
            .session("a", [begin(tick("w1")).may_wait(), commit()])
            .session("b", [begin(tick("w1")).may_wait(), commit()])
            .ends("x=ready/0"),
        Spec::new("a beat beside an outcome of the same lease")
            .stage(holding("w1", "t.k", &["x", "y"]))
            .session(
                "a",
                [
                    begin(finish_of(&["w1"], &[("x", Completed)])).gives_after("b2", "").gives("x").waits("b1", "b2"),
                    commit(),
                ],
            )
            .session(
                "b",
                [
                    begin(tick("w1"))
                        .gives_after("a2", "back 1 rescued 0 promoted 0 unparked 0 lost 0")
                        .gives_after("a1", "back 0 rescued 0 promoted 0 unparked 0 lost 0")
                        .gives("back 2 rescued 0 promoted 0 unparked 0 lost 0"),
                    commit(),
                ],
            )
            .ends("x=completed/1 y=ready/0")
            .ends("x=completed/1 y=leased/1")
            .ends("x=ready/0 y=ready/0"),
        Spec::new("a claim that has no reply yet is not handed back by a beat that waits for it")
            .stage([alive("w1"), enqueue("t.k", "x")])
            .session("a", [begin(claim("w1", 9)).gives("x/1"), commit()])
            .session("b", [tick_with("w1", &[], 0, &[]).gives("back 0 rescued 0 promoted 0 unparked 0 lost 0")])
            .ends("x=leased/1"),
        Spec::new("a claim that commits after it was given up is handed back by the beat after that")
            .stage([alive("w1"), enqueue("t.k", "x")])
            .session("a", [begin(claim("w1", 9)).gives("x/1"), commit()])
            .session(
                "b",
                [
                    tick("w1")
                        .gives_after("a2", "back 1 rescued 0 promoted 0 unparked 0 lost 0")
                        .gives("back 0 rescued 0 promoted 0 unparked 0 lost 0"),
                    tick("w1"),
                ],
            )
            .ends("x=leased/1")
            .ends("x=ready/0"),
        Spec::new("what is held is not handed back")
            .stage(holding("w1", "t.k", &["x"]))
            .session("a", [tick_with("w1", &["w1"], 9, &[]).gives("back 0 rescued 0 promoted 0 unparked 0 lost 0")])
            .session("b", [claim("w2", 9).gives("")])
            .ends("x=leased/1"),
        Spec::new("a first beat that is sent twice is one worker")
            .session("a", [begin(alive("w1")).waits("b1", "b2"), commit()])
            .session("b", [begin(alive("w1")).waits("a1", "a2"), commit()])
            .session("c", [sql(format!("select count(*)::text from postrider.worker where id = '{}'", worker("w1")))]),
    ])
    .await;
}

#[tokio::test]
async fn l3_a_rescue_takes_from_the_dead_only() {
    run(&[
        Spec::new("two rescuers: one moves the jobs, the other one does not wait")
            .stage(holding("w1", "t.k", &["x", "y"]))
            .session("a", [begin(rescue("w1", 1)).gives_after("b1", "0").gives("2"), commit()])
            .session("b", [begin(rescue("w1", 1)).gives_after("a1", "0").gives("2"), commit()])
            .ends("x=ready/0+1 y=ready/0+1"),
        Spec::new("a rescuer that is undone")
            .stage(holding("w1", "t.k", &["x"]))
            .session("a", [begin(rescue("w1", 1)).gives_after("b1", "0").gives("1"), rollback()])
            .session("b", [rescue("w1", 1).gives_after("a2", "1").gives_after("a1", "0").gives("1")])
            .ends("x=leased/1")
            .ends("x=ready/1+1"),
        Spec::new("a worker that beat meanwhile is left alone")
            .stage(holding("w1", "t.k", &["x"]))
            .session("a", [begin(tick_with("w1", &["w1"], 9, &[])), commit()])
            .session("b", [rescue("w1", 1).gives_after("a1", "0").gives("1")])
            .ends("x=leased/1")
            .ends("x=ready/1+1"),
        Spec::new("a worker that beats while it is taken for dead is told what it lost")
            .stage(holding("w1", "t.k", &["x"]))
            .session("a", [begin(rescue("w1", 1)).gives_after("b1", "0").gives("1"), commit()])
            .session(
                "b",
                [tick_with("w1", &["w1"], 9, &[])
                    .gives_after("a2", "back 0 rescued 0 promoted 0 unparked 0 lost 1")
                    .gives("back 0 rescued 0 promoted 0 unparked 0 lost 0")
                    .waits("a1", "a2")],
            )
            .ends("x=leased/1")
            .ends("x=ready/1+1"),
        Spec::new("two workers that take each other for dead")
            .stage(holding("w1", "t.k", &["x"]))
            .stage(holding("w2", "t.k", &["y"]))
            .session("a", [begin(tick_with("w1", &["w1"], 9, &[("w2", 1)])).may_wait(), commit()])
            .session("b", [begin(tick_with("w2", &["w2"], 9, &[("w1", 1)])).may_wait(), commit()]),
    ])
    .await;
}

#[tokio::test]
async fn l3_leases_and_workers_that_come_and_go_at_once_leave_no_job_behind() {
    run(&[
        Spec::new("a claim of the dead that commits after its rescue is found without a worker")
            .stage([alive("w1"), enqueue("t.k", "x")])
            .session("a", [begin(claim("w1", 9)).gives("x/1"), commit()])
            .session("b", [rescue("w1", 1).gives_after("a2", "1").gives("0"), rescue("w1", -1)])
            .ends("x=leased/1")
            .ends("x=ready/1+1"),
        Spec::new("leases without a worker are rescued unless it comes back first")
            .stage(holding("w1", "t.k", &["x"]))
            .stage([sql(format!("delete from postrider.worker where id = '{}'", worker("w1")))])
            .session("a", [begin(rescue("w1", -1)).gives_after("b1", "0").gives("1"), commit()])
            .session(
                "b",
                [tick_with("w1", &["w1"], 9, &[])
                    .gives_after("a2", "back 0 rescued 0 promoted 0 unparked 0 lost 1")
                    .gives("back 0 rescued 0 promoted 0 unparked 0 lost 0")],
            )
            .ends("x=leased/1")
            .ends("x=ready/1+1"),
        Spec::new("a rescue, an outcome and a claim at once")
            .stage(holding("w1", "t.k", &["x"]))
            .session("a", [begin(finish("w1", Completed)).gives_after("b2", "").gives("x").waits("b1", "b2"), commit()])
            .session("b", [begin(rescue("w1", 1)).gives_after("a1", "0").gives("1"), commit()])
            .session("c", [begin(claim("w2", 9)), commit()])
            .ends("x=completed/1")
            .ends("x=ready/1+1")
            .ends("x=leased/2+1"),
        Spec::new("a goodbye beside a rescue")
            .stage(holding("w1", "t.k", &["x"]))
            .session("a", [begin(leave("w1")).gives_after("b2", "0").gives("1").waits("b1", "b2"), commit()])
            .session("b", [begin(rescue("w1", 1)).may_wait(), commit()])
            .ends("x=ready/0")
            .ends("x=ready/1+1"),
        Spec::new("a goodbye beside a claim of the same worker")
            .stage([alive("w1"), enqueue("t.k", "x")])
            .session("a", [begin(claim("w1", 9)).gives("x/1"), commit()])
            .session("b", [leave("w1").gives_after("a2", "1").gives("0")])
            .ends("x=leased/1")
            .ends("x=ready/0"),
    ])
    .await;
}

#[tokio::test]
async fn l3_losses_are_counted_apart_and_end_a_job_only_when_nothing_else_can_have_been_it() {
    let lost_once = || {
        let mut steps = holding("w1", "t.k", &["x", "y"]);
        steps.extend([rescue("w1", 1), alive("w2"), claim("w2", 9)]);
        steps
    };
    run(&[
        Spec::new("a job at its last attempt is lost or completed, not both")
            .stage(holding("w1", "t.once", &["x"]))
            .session("a", [begin(finish("w1", Completed)).gives_after("b2", "").gives("x").waits("b1", "b2"), commit()])
            .session("b", [begin(rescue("w1", 1)).gives_after("a1", "0").gives("1"), commit()])
            .ends("x=completed/1")
            .ends("x=lost/1"),
        Spec::new(
            "two that were lost together run in leases of their own, and are parked when they are lost together again",
        )
        .stage(lost_once())
        .session(
            "a",
            [
                begin(finish_of(&["w2"], &[("x", Completed)])).gives_after("b2", "").gives("x").waits("b1", "b2"),
                commit(),
            ],
        )
        .session("b", [begin(rescue("w2", 1)).gives_after("a1", "1").gives("2"), commit()])
        // while x is about to end it still counts: whoever is lost beside it is not alone
        .ends("x=completed/1 y=parked(strict:)/0+2")
        .ends("x=parked(strict:)/0+2 y=parked(strict:)/0+2")
        .ends("x=completed/1 y=ready/1+2"),
        Spec::new("a rescue of two leases beside another rescuer of the same")
            .stage(lost_once())
            .session("a", [begin(rescue("w2", 1)).gives_after("b1", "0").gives("2"), commit()])
            .session("b", [rescue("w2", 1).gives_after("a1", "0").gives("2")])
            .ends("x=parked(strict:)/0+2 y=parked(strict:)/0+2"),
    ])
    .await;
}

#[tokio::test]
async fn l3_an_outcome_that_stops_in_the_middle_holds_its_lease() {
    // the row that the outcome is about to write is there already, in a transaction that will be undone: it waits for that
    let in_the_way = || {
        begin(sql("insert into postrider.done (class, id, state, ended_as, attempt)
             select class, id, 3, 2, 9 from postrider.job where args ->> 'n' = 'x' on conflict do nothing"))
    };
    run(&[
        Spec::new("a rescue passes it by")
            .stage(holding("w1", "t.k", &["x"]))
            .session("g", [in_the_way(), rollback()])
            .session("a", [finish("w1", Completed).may_wait()])
            .session("b", [rescue("w1", 1)])
            .ends("x=completed/1")
            .ends("x=ready/1+1"),
        Spec::new("a beat passes it by")
            .stage(holding("w1", "t.k", &["x"]))
            .session("g", [in_the_way(), rollback()])
            .session("a", [finish("w1", Completed).may_wait()])
            .session("b", [tick("w1")])
            .ends("x=completed/1")
            .ends("x=ready/0"),
        Spec::new("a goodbye waits for it")
            .stage(holding("w1", "t.k", &["x"]))
            .session("g", [in_the_way(), rollback()])
            .session("a", [finish("w1", Completed).may_wait()])
            .session("b", [leave("w1").may_wait()])
            .ends("x=completed/1")
            .ends("x=ready/0"),
        Spec::new("the same outcome waits for it")
            .stage(holding("w1", "t.k", &["x"]))
            .session("g", [in_the_way(), rollback()])
            .session("a", [finish("w1", Completed).may_wait()])
            .session("b", [finish("w1", Completed).may_wait()])
            .ends("x=completed/1"),
        Spec::new("promotions and claims go on beside it")
            .stage(holding("w1", "t.k", &["x", "y"]))
            .stage([finish_of(&["w1"], &[("y", Failed)])])
            .session("g", [in_the_way(), rollback()])
            .session("a", [finish_of(&["w1"], &[("x", Completed)]).gives("x").may_wait()])
            .session("b", [promote().gives("1"), claim("w2", 9).gives("y/2")])
            .ends("x=completed/1 y=leased/2"),
    ])
    .await;
}
