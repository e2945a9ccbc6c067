//! Jobs with keys, in every order: of one order key one has the turn, whoever comes, ends, fails, acts or dies; nobody waits for a lane, and
//! no lane is left that nobody will wake.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a failed helper is a failed test, and the figures are told"
)]

use postrider_testkit::TestDb;
use postrider_testkit::interleave::{
    self, Outcome, Spec, Step, act_on_lane, begin, cancel, claim, claim_lines, delete, end, enqueue_limited,
    enqueue_ordered, finish, finish_of, part, promote, rescue, retry, set_limit, sql, tick, tick_with,
};

use Outcome::{Completed, Exhausted, Failed, Refused, Released, Snoozed};

async fn run(specs: &[Spec]) {
    let report = interleave::run(&TestDb::fresh().await, specs).await.unwrap();
    println!("{report}");
    report.assert_clean();
}

/// `x` runs, `y` waits behind it where it can be seen.
fn one_key(policy: &str) -> Vec<Step> {
    vec![
        tick_with("w1", &[], 0, &[]),
        enqueue_ordered("x", "k", policy),
        claim("w1", 1),
        enqueue_ordered("y", "k", policy),
    ]
}

/// The same, and `y` has been looked at by a claim.
fn parked(policy: &str) -> Vec<Step> {
    one_key(policy).into_iter().chain([claim("w2", 9)]).collect()
}

/// A lane that gives its turn twice, and an end that hands nothing on: both are found.
#[tokio::test]
async fn o1_a_lane_that_is_wrong_is_found() {
    for (function, from, to) in [
        ("next_turn", "if l.holder is not null or l.stopped_at is not null then", "if l.stopped_at is not null then"),
        ("settle_lanes", "if l.holder is not null then", "if false then"),
        ("rooms_of", "case when t.most is not null", "case when false"),
        // the turn does not go on to the line; an heir has no mark; one goes before another that asks
        (
            "judge_holder",
            "members bigint[] := array[l.holder] || coalesce(l.line, '{}')",
            "members bigint[] := array[l.holder]",
        ),
        ("judge_turn", "if keeps and h.unmarked is not true then", "if keeps then"),
        ("line_up", "if asks is not null then", "if false then"),
        ("call_limits", "where call_limits.key <> ''", "where false"),
    ] {
        let db = TestDb::fresh().await;
        interleave::rewrite(&db, function, from, to).await.unwrap();
        let specs = [
            Spec::new("the end of the head beside a claim")
                .stage(one_key("block"))
                .session("a", [claim("w2", 9), tick("w2")])
                .session("b", [finish("w1", Completed)]),
            Spec::new("a claim while the head runs").stage(one_key("block")).session("a", [claim("w2", 9)]),
            Spec::new("two claims of one limit")
                .stage([set_limit("k", 1), enqueue_limited("x", "k"), enqueue_limited("y", "k")])
                .session("a", [claim("w1", 1)])
                .session("b", [claim("w2", 1)]),
            Spec::new("the end of the head of a line")
                .stage(line("block"))
                .session("a", [finish_of(&["w1"], &[("x", Completed)])])
                .session("b", [claim("w2", 9)]),
            Spec::new("a failure in a line")
                .stage(line("block"))
                .session("a", [finish_of(&["w1"], &[("x", Completed), ("y", Failed), ("z", Released)])]),
            one_asks_late(),
            raised_while_it_is_claimed(set_limit("k", 1)),
        ];
        let report = interleave::run(&db, &specs).await.unwrap();
        assert!(!report.wrong.is_empty(), "{function} may be wrong: {report}");
    }
}

const HOLD: &str = "select left(postrider.hold('q', 'k', '9999-01-01Z', 'for good')::text, 0)";
const POLICIES: [&str; 3] = ["block", "skip", "park:1"];

#[tokio::test]
async fn o1_two_claims_of_one_key_give_one_of_them_the_turn() {
    let two = || [enqueue_ordered("x", "k", "block"), enqueue_ordered("y", "k", "block")];
    let specs = [
        Spec::new("two claims of one key, the first one not committed")
            .stage(two())
            .session("a", [begin(claim("w1", 1)).may_wait(), end()])
            .session("b", [claim("w2", 9).may_wait()]),
        Spec::new("two claims of one key that have not committed")
            .stage(two())
            .session("a", [begin(claim("w1", 1)).may_wait(), end()])
            .session("b", [begin(claim("w2", 1)).may_wait(), end()]),
        Spec::new("two claims of two keys")
            .stage([
                enqueue_ordered("x", "k", "block"),
                enqueue_ordered("y", "l", "block"),
                enqueue_ordered("z", "k", "block"),
                enqueue_ordered("v", "l", "block"),
            ])
            .session("a", [begin(claim("w1", 2)).may_wait(), end()])
            .session("b", [begin(claim("w2", 2)).may_wait(), end()]),
        Spec::new("a claim beside an enqueue of the same key")
            .stage([enqueue_ordered("x", "k", "block")])
            .session("a", [begin(enqueue_ordered("y", "k", "block")), end()])
            .session("b", [claim("w1", 9)]),
    ];
    run(&specs).await;
}

#[tokio::test]
async fn c19_every_end_of_an_attempt_beside_a_claim_and_an_enqueue_of_its_key() {
    let mut specs = Vec::new();
    for policy in POLICIES {
        for outcome in [Completed, Failed, Snoozed, Refused, Exhausted, Released] {
            specs.push(
                Spec::new(format!("{outcome:?} beside an enqueue, {policy}"))
                    .stage(one_key(policy))
                    .session("a", [begin(enqueue_ordered("z", "k", policy)), end()])
                    .session("b", [finish("w1", outcome).gives("x"), claim("w2", 9)]),
            );
            specs.push(
                Spec::new(format!("{outcome:?} that has not committed beside a claim, {policy}"))
                    .stage(one_key(policy))
                    .session("a", [begin(finish("w1", outcome)).gives("x").may_wait(), end()])
                    .session("b", [claim("w2", 9).may_wait()]),
            );
            specs.push(
                Spec::new(format!("a claim that has not committed beside {outcome:?}, {policy}"))
                    .stage(one_key(policy))
                    .session("a", [begin(claim("w2", 9)).may_wait(), end()])
                    .session("b", [finish("w1", outcome).gives("x").may_wait()]),
            );
        }
    }
    run(&specs).await;
}

#[tokio::test]
async fn o8_rescues_and_beats_beside_claims_and_ends() {
    let mut specs = Vec::new();
    for policy in POLICIES {
        specs.push(
            Spec::new(format!("a rescue of the head beside a claim, {policy}"))
                .stage(parked(policy))
                .session("a", [begin(rescue("w1", 1)).may_wait(), end()])
                .session("b", [claim("w2", 9).may_wait(), claim("w3", 9).may_wait()]),
        );
        specs.push(
            Spec::new(format!("a rescue of the head beside its end, {policy}"))
                .stage(parked(policy))
                .session("a", [begin(rescue("w1", 1)).may_wait(), end()])
                .session("b", [finish("w1", Completed).may_wait(), tick("w2").may_wait()]),
        );
        specs.push(
            Spec::new(format!("the end of the head beside a beat and a claim, {policy}"))
                .stage(parked(policy))
                .session("a", [begin(finish("w1", Failed)).may_wait(), end()])
                .session("b", [tick("w2").may_wait(), claim("w3", 9).may_wait()]),
        );
    }
    run(&specs).await;
}

#[tokio::test]
async fn o4_acts_on_heads_and_on_those_behind_them_beside_everything() {
    let mut specs = Vec::new();
    for policy in POLICIES {
        let backing_off = || parked(policy).into_iter().chain([finish("w1", Failed)]).collect::<Vec<_>>();
        let acts: [(&str, Step); 8] = [
            ("a cancellation of the head", cancel(&["x"])),
            ("a cancellation of the one behind", cancel(&["y"])),
            ("a retry of the head", retry(&["x"])),
            ("a deletion of the head", delete(&["x"])),
            ("a deletion of the one behind", delete(&["y"])),
            ("a release", act_on_lane("k", "release")),
            ("a skip", act_on_lane("k", "skip")),
            ("a retry of the lane", act_on_lane("k", "retry")),
        ];
        for (name, act) in acts {
            specs.push(
                Spec::new(format!("{name} beside a claim, {policy}"))
                    .stage(backing_off())
                    .session("a", [begin(act.clone()).may_wait(), end()])
                    .session("b", [promote().may_wait(), claim("w3", 9).may_wait()]),
            );
            specs.push(
                Spec::new(format!("{name} beside the end of the head, {policy}"))
                    .stage(parked(policy))
                    .session("a", [begin(act).may_wait(), end()])
                    .session("b", [finish("w1", Completed).may_wait(), claim("w3", 9).may_wait()]),
            );
        }
    }
    run(&specs).await;
}

#[tokio::test]
async fn o9_limits_beside_claims_ends_and_rescues() {
    let stage = || {
        vec![
            tick_with("w1", &[], 0, &[]),
            set_limit("k", 1),
            enqueue_limited("x", "k"),
            claim("w1", 1),
            enqueue_limited("y", "k"),
            enqueue_limited("z", "k"),
        ]
    };
    let looked_at = || stage().into_iter().chain([claim("w2", 9)]).collect::<Vec<_>>();
    let mut specs = vec![
        Spec::new("two claims of one limit")
            .stage(vec![set_limit("k", 1), enqueue_limited("x", "k"), enqueue_limited("y", "k")])
            .session("a", [begin(claim("w1", 1)).may_wait(), end()])
            .session("b", [begin(claim("w2", 1)).may_wait(), end()]),
        Spec::new("a rescue beside a claim of one limit")
            .stage(looked_at())
            .session("a", [begin(rescue("w1", 1)).may_wait(), end()])
            .session("b", [claim("w2", 9).may_wait()]),
        Spec::new("a raised limit beside a claim")
            .stage(looked_at())
            .session("a", [begin(set_limit("k", 2)), end()])
            .session("b", [tick("w2").may_wait(), claim("w3", 9).may_wait()]),
        raised_while_it_is_claimed(set_limit("k", 1)),
        Spec::new("a hold that ends while the first claim of its key has not committed")
            .stage([sql(HOLD), enqueue_limited("x", "k")])
            .session("a", [begin(claim("w1", 9)).may_wait(), end()])
            .session("b", [sql("select left(postrider.hold('q', 'k', null)::text, 0)")]),
        Spec::new("a cancellation of one that waits for room beside an end")
            .stage(looked_at())
            .session("a", [begin(cancel(&["y"])), end()])
            .session("b", [finish("w1", Completed).may_wait(), claim("w3", 9).may_wait()]),
    ];
    for outcome in Outcome::ALL {
        specs.push(
            Spec::new(format!("{outcome:?} beside a claim of one limit"))
                .stage(stage())
                .session("a", [begin(finish("w1", outcome)).may_wait(), end()])
                .session("b", [claim("w2", 9).may_wait()]),
        );
        specs.push(
            Spec::new(format!("a claim beside {outcome:?} of one limit"))
                .stage(looked_at())
                .session("a", [begin(claim("w2", 9)).may_wait(), end()])
                .session("b", [finish("w1", outcome).may_wait()]),
        );
    }
    run(&specs).await;
}

/// A limit lets nothing in, and the lane is made by a claim that has not committed: nobody else sees it, and it is to be looked at all the same.
fn raised_while_it_is_claimed(raise: Step) -> Spec {
    Spec::new("a limit that is raised while the first claim of its key has not committed")
        .stage([set_limit("k", 0), enqueue_limited("x", "k")])
        .session("a", [begin(claim("w1", 9)).may_wait(), end()])
        .session("b", [raise])
}

/// `y` waits for a slot of its limit before others, below the low-water mark: whoever parked it did not have the lane, and called it. There is
/// a slot.
fn parked_without_the_lane() -> Vec<Step> {
    let sql = |text: &str| sql(format!("with x as ({text} returning 1) select left(count(*)::text, 0) from x"));
    vec![
        set_limit("k", 1),
        enqueue_limited("x", "k"),
        claim("w1", 1),
        enqueue_limited("y", "k"),
        enqueue_limited("z", "k"),
        enqueue_limited("v", "k"),
        claim("w2", 9),
        sql("update postrider.lane set low_parked = (select min(pos) + 1 from postrider.parked)"),
        sql("update postrider.key_limit set most = 2"),
        sql("insert into postrider.lane_call (queue, key) values ('q', 'limit:k')"),
    ]
}

#[tokio::test]
async fn o8_a_call_is_not_used_up_by_a_beat_that_gets_the_lane_late() {
    let db = TestDb::fresh().await;
    let hold = interleave::pause(&db, "lock_lanes", "x.queue = lock_lanes.queue").await.unwrap();
    let look = || sql("select left(postrider.settle_lanes_called()::text, 0)");
    let specs = [Spec::new("the lane is somebody else's when the call is taken, and free when it is locked")
        .stage(parked_without_the_lane())
        .session("g", [begin(sql(hold)), end()])
        .session("a", [begin(sql("select left(key, 0) from postrider.lane for update")).may_wait(), end()])
        .session("b", [look().may_wait()])];
    let report = interleave::run(&db, &specs).await.unwrap();
    println!("{report}");
    report.assert_clean();
}

/// `x` has the turn, and `y` and `z` are leased along with it.
fn line(policy: &str) -> Vec<Step> {
    vec![
        tick_with("w1", &[], 0, &[]),
        enqueue_ordered("x", "k", policy),
        enqueue_ordered("y", "k", policy),
        enqueue_ordered("z", "k", policy),
        claim_lines("w1", 2),
    ]
}

/// `x` waits with the turn, `y` committed late and asks for it, `z` has been looked at before.
fn one_asks_late() -> Spec {
    let parks = "with z as (delete from postrider.ready where id = (select max(id) from postrider.ready) returning *),
             p as (insert into postrider.parked (queue, key, pos, id, priority, share, attempt, losses, flags, order_key)
                   select queue, 'order:k', id, id, priority, share, attempt, losses, flags, order_key from z returning 1)
        select left(count(*)::text, 0) from p";
    Spec::new("nobody goes before one that asks late")
        .stage([
            enqueue_ordered("x", "k", "block"),
            claim("w1", 1),
            finish("w1", Failed),
            promote(),
            enqueue_ordered("y", "k", "block"),
            enqueue_ordered("z", "k", "block"),
            sql(parks),
        ])
        .session("a", [claim_lines("w2", 1).gives("x/2")])
}

#[tokio::test]
async fn o1_a_claim_of_lines_takes_those_that_come_next_and_none_that_somebody_else_may_go_before() {
    let queued = |names: &[&str]| names.iter().map(|name| enqueue_ordered(name, "k", "block")).collect::<Vec<_>>();
    let parked = || {
        let mut steps = queued(&["x", "y", "z"]);
        steps.extend([claim("w9", 1), finish("w9", Completed)]);
        steps
    };
    let specs = [
        Spec::new("one claim takes the line").stage(queued(&["x", "y", "z"])).session("a", [claim_lines("w1", 2).gives("x/1 y/1 z/1")]),
        Spec::new("of two claims one takes the line")
            .stage(queued(&["x", "y", "z"]))
            .session("a", [begin(claim_lines("w1", 2)).may_wait(), end()])
            .session("b", [claim_lines("w2", 9).may_wait()]),
        Spec::new("nobody goes before one that is being cancelled, and may be left")
            .stage(parked())
            .session("a", [begin(cancel(&["z"])), end()])
            .session("b", [enqueue_ordered("v", "k", "block"), claim_lines("w2", 2)]),
        Spec::new("nobody goes before one of a kind that the worker does not know")
            .stage([
                enqueue_ordered("x", "k", "block"),
                sql("select left(id::text, 0) || 'u' from postrider.enqueue('t.other', '{\"n\":\"u\"}', queue => 'q', order_key => 'k')"),
                enqueue_ordered("y", "k", "block"),
            ])
            .session("a", [claim_lines("w1", 2).gives("x/1")]),
        Spec::new("whoever has a limit comes alone")
            .stage([
                set_limit("l", 1),
                enqueue_ordered("x", "k", "block"),
                sql("select left(id::text, 0) || 'y' from postrider.enqueue('t.k', '{\"n\":\"y\"}', order_key => 'k', limit_key => 'l')"),
            ])
            .session("a", [claim_lines("w1", 2).gives("x/1")]),
        one_asks_late(),
        Spec::new("one that was given back comes along again")
            .stage([
                enqueue_ordered("x", "k", "block"),
                enqueue_ordered("y", "k", "block"),
                claim_lines("w1", 2),
                enqueue_ordered("z", "k", "block"),
                claim("w2", 9),
                finish_of(&["w1"], &[("x", Failed), ("y", Released)]),
                promote(),
            ])
            .session("a", [claim_lines("w2", 1).gives("x/2 y/1 z/1")]),
        Spec::new("a claim of lines beside an enqueue of the same key")
            .stage(queued(&["x", "y"]))
            .session("a", [begin(enqueue_ordered("v", "k", "block")), end()])
            .session("b", [claim_lines("w1", 9), finish("w1", Completed)]),
    ];
    run(&specs).await;
}

#[tokio::test]
async fn o1_whatever_becomes_of_a_head_its_line_goes_on_or_waits() {
    let mut specs = Vec::new();
    for policy in POLICIES {
        for outcome in [Completed, Failed, Snoozed, Refused, Exhausted, Released] {
            // what a worker tells that keeps to the contract: whoever comes after one that did not complete goes back
            let ends: &[(&str, Outcome)] = match outcome {
                Completed => &[("x", Completed)],
                _ => &[("x", outcome), ("y", Released), ("z", Released)],
            };
            specs.push(
                Spec::new(format!("{outcome:?} of a head beside a claim, {policy}"))
                    .stage(line(policy))
                    .session("a", [begin(finish_of(&["w1"], ends)).may_wait(), end()])
                    .session("b", [claim_lines("w2", 9).may_wait()]),
            );
            specs.push(
                Spec::new(format!("a claim that has not committed beside {outcome:?} of a head, {policy}"))
                    .stage(line(policy))
                    .session("a", [begin(claim_lines("w2", 9)).may_wait(), end()])
                    .session("b", [finish_of(&["w1"], ends).may_wait(), tick("w3")]),
            );
            specs.push(
                Spec::new(format!("{outcome:?} of one that got the turn in its line, {policy}"))
                    .stage(line(policy).into_iter().chain([finish_of(&["w1"], &[("x", Completed)])]))
                    .session("a", [finish_of(&["w1"], &[("y", outcome), ("z", Released)]).may_wait()])
                    .session("b", [claim("w2", 9), tick("w2"), claim("w2", 9)]),
            );
        }
        specs.push(
            Spec::new(format!("one in line ends in a transaction of the application, {policy}"))
                .stage(line(policy).into_iter().chain([finish_of(&["w1"], &[("x", Completed)]), part("w1", "y")]))
                .session("a", [begin(finish_of(&["w1"], &[("y", Completed)])).may_wait(), end()])
                .session("b", [finish_of(&["w1"], &[("z", Released)]).may_wait(), claim("w2", 9).may_wait()]),
        );
    }
    for (name, step) in [
        ("a rescue", rescue("w1", 1)),
        ("a hand-back", tick("w1")),
        ("a cancellation of the head", cancel(&["x"])),
        ("a cancellation of one in line", cancel(&["y"])),
        ("a deletion of one in line", delete(&["y"])),
        ("an act of an operator", act_on_lane("k", "skip")),
    ] {
        specs.push(
            Spec::new(format!("{name} beside an end and a claim"))
                .stage(line("block"))
                .session("a", [step.may_wait()])
                .session("b", [finish_of(&["w1"], &[("x", Completed)]).may_wait()])
                .session("c", [begin(claim_lines("w2", 9)).may_wait(), end()]),
        );
    }
    run(&specs).await;
}

/// The heir of a turn had no mark when it was leased.
#[tokio::test]
async fn o2_one_that_got_the_turn_in_its_line_keeps_it_through_its_retries() {
    let mut specs = Vec::new();
    for (policy, next) in [("block", ""), ("skip", "z/1"), ("park:2", "")] {
        let ends: &[(&str, Outcome)] = &[("x", Completed), ("y", Failed), ("z", Released)];
        specs.push(
            Spec::new(format!("who comes after a failure, {policy}"))
                .stage(line(policy).into_iter().chain([finish_of(&["w1"], ends)]))
                .session("a", [claim("w2", 1).gives(next)]),
        );
    }
    run(&specs).await;
}
