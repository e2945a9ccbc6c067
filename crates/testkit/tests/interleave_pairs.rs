//! Every verb beside every verb, each in a transaction that commits or rolls back: nobody waits who need not, nothing fails, the
//! schema holds together, and everything can still run to its end.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a failed helper is a failed test, and the figures are told"
)]

use postrider_testkit::TestDb;
use postrider_testkit::interleave::{self, Outcome, Spec, Step, begin, end};

const VERBS: [&str; 14] = [
    "claim",
    "finish",
    "tick",
    "rescue",
    "promote",
    "leave",
    "relay",
    "record",
    "enqueue",
    "declare",
    "put_subscription",
    "drop_subscription",
    "unpark",
    "advance_epoch",
];

/// Who waits for whose transaction; each for a row that only one of them may have.
const WAITS: &[(&str, &[&str])] = &[
    // the same lease
    ("finish", &["finish", "tick", "leave"]),
    // the same worker's row
    ("tick", &["tick", "leave"]),
    ("leave", &["finish", "tick", "leave"]),
    // routes are compiled from all declarations
    ("declare", &["declare", "put_subscription", "drop_subscription"]),
    ("put_subscription", &["declare", "put_subscription", "drop_subscription"]),
    ("drop_subscription", &["declare", "put_subscription", "drop_subscription"]),
];

/// Something to do for every verb.
fn stage() -> Vec<Step> {
    use interleave::{advance, claim, enqueue, finish, put_subscription, record, sql, tick_with};
    let watched = |worker| tick_with(worker, &[], 0, &[]);
    let mut steps = vec![watched("w1"), enqueue("t.k", "held1"), enqueue("t.k", "held2"), claim("w1", 2)];
    steps.extend([watched("w3"), enqueue("t.k", "orphan"), claim("w3", 1)]);
    steps.extend([enqueue("t.other", "unknown"), claim("w2", 1)]);
    steps.extend([enqueue("t.k", "due"), claim("w2", 1), finish("w2", Outcome::Failed)]);
    steps.extend([enqueue("t.k", "ready1"), enqueue("t.once", "ready2"), record("e1")]);
    steps.push(put_subscription("s.old", "order.*", "t.k"));
    // an epoch moves on only if the next one's partitions were there before
    steps.extend([
        advance("event"),
        sql("update postrider.epoch set started_at = started_at - interval '8 days' where unit = 'event'"),
    ]);
    steps
}

fn verb(name: &str, side: char) -> Step {
    use interleave::{
        advance, claim, declare, drop_subscription, enqueue, finish, finish_of, leave, promote, put_subscription,
        record, relay, rescue, tick, unpark,
    };
    match name {
        "claim" => claim(if side == 'a' { "w4" } else { "w5" }, 10),
        "finish" if side == 'a' => finish("w1", Outcome::Completed),
        "finish" => finish_of(&["w1"], &[("held2", Outcome::Snoozed), ("held1", Outcome::Failed)]),
        "tick" => tick("w1"),
        "rescue" => rescue("w3", 1),
        "promote" => promote(),
        "leave" => leave("w1"),
        "relay" => relay(10),
        "record" => record(if side == 'a' { "e2" } else { "e3" }),
        "enqueue" => enqueue("t.k", if side == 'a' { "new1" } else { "new2" }),
        "declare" => declare(
            r#"{"app":"next","generation":2,"types":[{"name":"order.paid"}],
                "kinds":[{"name":"t.k","queue":"q","priority":3,"max_attempts":4}],
                "subscriptions":[{"name":"s.three","types":["order.*"],"kind":"t.k"}]}"#,
        ),
        "put_subscription" => put_subscription("s.two", "order.*", "t.k"),
        "drop_subscription" => drop_subscription("s.old"),
        "unpark" => unpark("q", "t.other,t.k"),
        "advance_epoch" => advance("event"),
        _ => unreachable!("{name} is no verb"),
    }
}

fn pair(one: &str, other: &str) -> Spec {
    let step = |name: &str, side, beside: &str, (from, until)| {
        let waits = WAITS.iter().any(|(waiter, holders)| *waiter == name && holders.contains(&beside));
        let step = begin(verb(name, side));
        if waits { step.waits(from, until) } else { step }
    };
    Spec::new(format!("{one} beside {other}"))
        .stage(stage())
        .session("a", [step(one, 'a', other, ("b1", "b2")), end()])
        .session("b", [step(other, 'b', one, ("a1", "a2")), end()])
}

/// The pairs are dealt to a few tests, which run at once.
async fn pairs(part: usize) {
    let all = VERBS.iter().enumerate().flat_map(|(n, one)| VERBS.iter().skip(n).map(move |other| pair(one, other)));
    let specs: Vec<Spec> = all.enumerate().filter(|(n, _)| n % 3 == part).map(|(_, spec)| spec).collect();
    let report = interleave::run(&TestDb::fresh().await, &specs).await.unwrap();
    println!("{report}");
    report.assert_clean();
}

#[tokio::test]
async fn l3_every_verb_beside_every_verb_first_third() {
    pairs(0).await;
}

#[tokio::test]
async fn l3_every_verb_beside_every_verb_second_third() {
    pairs(1).await;
}

#[tokio::test]
async fn l3_every_verb_beside_every_verb_last_third() {
    pairs(2).await;
}
