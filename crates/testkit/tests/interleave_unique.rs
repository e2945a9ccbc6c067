//! Jobs that are one with jobs like them, in every order: producers wait for each other and for nobody else, and nobody waits for them.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a failed helper is a failed test, and the figures are told"
)]

use postrider_testkit::TestDb;
use postrider_testkit::interleave::{
    self, Outcome, Spec, Step, begin, cancel, claim, commit, delete, end, enqueue_unique, enqueue_unique_many, finish,
    rescue, retry, rollback, sql, tick, tick_with,
};

use Outcome::{Completed, Exhausted, Failed, Refused, Released, Snoozed};

const MODES: [&str; 5] = ["while_waiting", "until_done", "within", "for_ever", "one_running_one_waiting"];

async fn run(specs: &[Spec]) {
    let report = interleave::run(&TestDb::fresh().await, specs).await.unwrap();
    println!("{report}");
    report.assert_clean();
}

/// A job of a group that a worker holds.
fn holding(mode: &str) -> Vec<Step> {
    vec![tick_with("w1", &[], 0, &[]), enqueue_unique("x", mode, "k"), claim("w1", 1)]
}

/// Whether a second one is let in while the first one runs.
fn lets_in(mode: &str) -> bool {
    matches!(mode, "while_waiting" | "one_running_one_waiting")
}

#[tokio::test]
async fn u5_u6_of_two_that_are_alike_one_wins_and_the_other_one_is_told_unless_it_is_rolled_back() {
    let mut specs = Vec::new();
    for mode in MODES {
        specs.push(
            Spec::new(format!("two that are alike, {mode}"))
                .session("a", [begin(enqueue_unique("x", mode, "k")).gives_after("b1", "again").gives("x"), commit()])
                .session("b", [enqueue_unique("y", mode, "k").gives_after("a1", "again").gives("y").waits("a1", "a2")])
                .ends("x=ready/0")
                .ends("y=ready/0"),
        );
        specs.push(
            Spec::new(format!("one that is rolled back beside one like it, {mode}"))
                .session("a", [begin(enqueue_unique("x", mode, "k")), rollback()])
                .session("b", [enqueue_unique("y", mode, "k").gives("y").waits("a1", "a2")])
                .ends("y=ready/0"),
        );
        // one call takes an idempotency key beside one of the two groups, whichever it is
        for (own, other) in [("k", "l"), ("l", "k")] {
            let item = |name: &str, key: &str, more: &str| {
                let window = if mode == "within" { r#","unique_for":"1 hour""# } else { "" };
                format!(
                    r#"{{"kind":"t.k","args":{{"n":"{name}"}},"unique_mode":"{mode}","unique_key":"{key}"{window}{more}}}"#
                )
            };
            let keyed = format!("{},{}", item("x", own, r#","idempotency_key":"i""#), item("y", other, ""));
            let plain = format!("{},{}", item("v", own, ""), item("w", other, ""));
            let call = |items: &str| sql(format!("select count(*)::text from postrider.enqueue_many('[{items}]')"));
            specs.push(
                Spec::new(format!("batches of which one has an idempotency key, beside {own}, {mode}"))
                    .session("a", [begin(call(&keyed)).waits("b1", "b2"), end()])
                    .session("b", [begin(call(&plain)).waits("a1", "a2"), commit()])
                    .ends("x=ready/0 y=ready/0")
                    .ends("v=ready/0 w=ready/0"),
            );
        }
        let crossed =
            |names: [&str; 2], keys: [&str; 2]| enqueue_unique_many(mode, &[(names[0], keys[0]), (names[1], keys[1])]);
        specs.push(
            Spec::new(format!("batches that cross wait for each other and never for ever, {mode}"))
                .session("a", [begin(crossed(["x", "y"], ["k", "l"])).waits("b1", "b2"), end()])
                .session("b", [begin(crossed(["v", "w"], ["l", "k"])).waits("a1", "a2"), commit()])
                .ends("x=ready/0 y=ready/0")
                .ends("v=ready/0 w=ready/0"),
        );
    }
    run(&specs).await;
}

#[tokio::test]
async fn u9_a_claim_beside_a_producer_neither_waits_nor_loses_what_was_enqueued() {
    let mut specs = Vec::new();
    for mode in MODES {
        let mut spec = Spec::new(format!("a claim beside one like it, {mode}"))
            .stage([enqueue_unique("x", mode, "k")])
            .session("a", [begin(enqueue_unique("y", mode, "k")), end()])
            .session("b", [claim("w1", 9)])
            .ends("x=leased/1");
        if lets_in(mode) {
            // while the duplicate is on its way, the one that it was told of may not start
            spec = spec.ends("x=ready/0").ends("x=leased/1 y=ready/0");
        }
        specs.push(spec);
        specs.push(
            Spec::new(format!("a claim that has not committed beside one like it, {mode}"))
                .stage([enqueue_unique("x", mode, "k")])
                .session("a", [begin(claim("w1", 9)).may_wait(), end()])
                .session("b", [enqueue_unique("y", mode, "k").may_wait()])
                .ends("x=leased/1")
                .ends("x=ready/0"),
        );
        if lets_in(mode) {
            let spec = specs.pop().unwrap().ends("x=leased/1 y=ready/0");
            specs.push(spec);
        }
    }
    run(&specs).await;
}

/// Both wait for what changes the group, and then one of them has to make the next one.
#[tokio::test]
async fn u5_two_producers_that_waited_for_the_same_change_do_not_wait_for_each_other() {
    let mut specs = Vec::new();
    for mode in MODES {
        let waits = || vec![enqueue_unique("x", mode, "k")];
        let runs = || holding(mode);
        for (name, stage, change) in [
            ("a claim", waits(), claim("w1", 9)),
            ("a cancellation", waits(), cancel(&["x"])),
            ("a deletion", waits(), delete(&["x"])),
            ("a completion", runs(), finish("w1", Completed)),
            ("a failure", runs(), finish("w1", Failed)),
        ] {
            specs.push(
                Spec::new(format!("{name} beside two producers of one like it, {mode}"))
                    .stage(stage)
                    .session("a", [begin(change).may_wait(), commit()])
                    .session("b", [begin(enqueue_unique("y", mode, "k")).may_wait(), commit()])
                    .session("c", [enqueue_unique("z", mode, "k").may_wait()]),
            );
        }
    }
    run(&specs).await;
}

#[tokio::test]
async fn u7_every_end_of_an_attempt_beside_a_producer_of_one_like_it() {
    let mut specs = Vec::new();
    for mode in MODES {
        for outcome in [Completed, Failed, Snoozed, Refused, Exhausted, Released] {
            specs.push(
                Spec::new(format!("{outcome:?} beside one like it, {mode}"))
                    .stage(holding(mode))
                    .session("a", [begin(enqueue_unique("y", mode, "k")).may_wait(), end()])
                    .session("b", [finish("w1", outcome).gives("x")]),
            );
            specs.push(
                Spec::new(format!("one like it beside {outcome:?} that has not committed, {mode}"))
                    .stage(holding(mode))
                    .session("a", [begin(finish("w1", outcome)).gives("x"), end()])
                    .session("b", [enqueue_unique("y", mode, "k").may_wait()]),
            );
        }
    }
    run(&specs).await;
}

#[tokio::test]
async fn u7_rescues_and_acts_beside_a_producer_of_one_like_it() {
    let mut specs = Vec::new();
    for mode in MODES {
        let waiting = || vec![enqueue_unique("x", mode, "k")];
        let over = || vec![enqueue_unique("x", mode, "k"), claim("w9", 1), finish("w9", Refused)];
        let never_waits = [
            ("rescue", holding(mode), rescue("w1", 1)),
            ("hand-back", holding(mode), tick("w1")),
            ("cancellation of one that waits", waiting(), cancel(&["x"])),
            ("cancellation of one that runs", holding(mode), cancel(&["x"])),
        ];
        for (name, stage, step) in never_waits {
            specs.push(
                Spec::new(format!("{name} beside one like it, {mode}"))
                    .stage(stage)
                    .session("a", [begin(enqueue_unique("y", mode, "k")), end()])
                    .session("b", [step]),
            );
        }
        for (name, stage, step) in [
            ("retry", over(), retry(&["x"])),
            ("deletion", waiting(), delete(&["x"])),
            ("deletion of one that is over", over(), delete(&["x"])),
        ] {
            specs.push(
                Spec::new(format!("{name} beside one like it, {mode}"))
                    .stage(stage)
                    .session("a", [begin(enqueue_unique("y", mode, "k")).may_wait(), end()])
                    .session("b", [step.may_wait()]),
            );
        }
    }
    run(&specs).await;
}

#[tokio::test]
async fn u5_acts_on_many_and_producers_of_many_never_wait_in_a_circle() {
    let mut specs = Vec::new();
    for mode in ["while_waiting", "until_done", "one_running_one_waiting"] {
        let both = |names: [&str; 2]| enqueue_unique_many(mode, &[(names[0], "k"), (names[1], "l")]);
        let stage = || vec![both(["x", "y"]), claim("w9", 9), finish("w9", Refused)];
        let acts = [("retry", retry as fn(&[&str]) -> Step), ("deletion", delete), ("cancellation", cancel)];
        for (name, act) in acts {
            specs.push(
                Spec::new(format!("{name} of two beside producers of both, {mode}"))
                    .stage(stage())
                    .session("a", [begin(both(["v", "w"])).may_wait(), end()])
                    .session("b", [begin(act(&["x", "y"])).may_wait(), end()]),
            );
            specs.push(
                Spec::new(format!("{name} of two beside a retry of both, {mode}"))
                    .stage(stage())
                    .session("a", [begin(retry(&["x", "y"])).may_wait(), end()])
                    .session("b", [begin(act(&["x", "y"])).may_wait(), end()]),
            );
        }
    }
    run(&specs).await;
}

#[tokio::test]
async fn u9_one_runs_and_one_waits_behind_it() {
    const MODE: &str = "one_running_one_waiting";
    let behind = || {
        let mut steps = holding(MODE);
        // the second one has been looked at, and waits behind the first one
        steps.extend([enqueue_unique("y", MODE, "k"), claim("w2", 9)]);
        steps
    };
    let mut specs = Vec::new();
    for (outcome, ends) in [
        // a beat that comes while the producer is still open leaves it to the next one
        (Completed, ["x=completed/1 y=ready/0", "x=completed/1 y=parked(unique)/0"].as_slice()),
        (Refused, &["x=refused/1 y=ready/0", "x=refused/1 y=parked(unique)/0"]),
        (Failed, &["x=ready/1 y=parked(unique)/0"]),
    ] {
        let spec = Spec::new(format!("{outcome:?} beside another producer while one waits behind"))
            .stage(behind())
            .session("a", [begin(enqueue_unique("z", MODE, "k")).may_wait(), commit()])
            .session("b", [finish("w1", outcome).gives("x"), tick_with("w2", &[], 0, &[])]);
        specs.push(ends.iter().fold(spec, |spec, picture| spec.ends(picture)));
    }
    specs.push(
        Spec::new("a deletion of the one that is over frees the one that waits behind it")
            .stage(behind())
            .session("a", [begin(enqueue_unique("z", MODE, "k")).may_wait(), commit()])
            .session("b", [finish("w1", Completed), delete(&["x"]).may_wait()])
            .ends("y=ready/0"),
    );
    specs.push(
        Spec::new("a deletion beside a beat that has taken the note of its end and could not settle it")
            .stage(behind())
            .session("a", [begin(enqueue_unique("z", MODE, "k")).may_wait(), delete(&["x"]).may_wait(), commit()])
            .session("b", [finish("w1", Completed)])
            .session("c", [begin(sql("select left(postrider.settle_left_over()::text, 0)")), commit()]),
    );
    specs.push(
        Spec::new("a deletion of the one that backs off frees the one that waits behind it")
            .stage(behind().into_iter().chain([finish("w1", Failed)]))
            .session("a", [begin(delete(&["x"])), end()])
            .session("b", [claim("w3", 1)]),
    );
    specs.push(
        Spec::new("a cancellation of the one that waits behind")
            .stage(behind())
            .session("a", [begin(cancel(&["y"])), end()])
            .session("b", [finish("w1", Completed)])
            .ends("x=completed/1 y=cancelled/0")
            .ends("x=completed/1 y=parked(unique)/0")
            .ends("x=completed/1 y=ready/0"),
    );
    run(&specs).await;
}

/// The deletion has locked the groups that there were when it began; then a retry makes another one. The producer of both takes them in the
/// order of their hashes, as one call would.
#[tokio::test]
async fn x8_a_deletion_waits_for_no_group_that_a_retry_has_made_meanwhile() {
    let mode = "while_waiting";
    let second = r#"select fresh::text from postrider.enqueue('t.k', '{"n":"z"}', unique_mode => 'while_waiting', unique_key => 'k');
                    commit"#;
    let spec = Spec::new("a retry while a deletion waits for a producer, and a producer of both groups")
        .stage([
            enqueue_unique("x", mode, "l"),
            claim("w1", 1),
            finish("w1", Completed),
            enqueue_unique("y", mode, "k"),
        ])
        .session("a", [begin(enqueue_unique("v", mode, "k")).may_wait(), commit()])
        .session("b", [delete(&["x", "y"]).may_wait()])
        .session("c", [retry(&["x"]).may_wait()])
        // a transaction of two calls
        .session("d", [begin(enqueue_unique("w", mode, "l")).may_wait(), sql(second).may_wait()]);
    run(&[spec]).await;
}

#[tokio::test]
async fn u7_the_one_that_ran_and_the_one_behind_it_end_while_a_producer_holds_their_group() {
    let specs = [Spec::new("both ends are left to one beat")
        .stage([
            enqueue_unique("x", "one_running_one_waiting", "k"),
            claim("w1", 9),
            enqueue_unique("y", "one_running_one_waiting", "k"),
        ])
        .session("a", [begin(sql("select left(hash::text, 0) from postrider.uniq for update")), commit()])
        .session("b", [finish("w1", Completed), cancel(&["y"]).may_wait(), tick("w2")])];
    run(&specs).await;
}
