//! Declarations in every order: routes are what the declarations say, whoever changes them at the same time.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a failed helper is a failed test, and the figures are told"
)]

use postrider_testkit::TestDb;
use postrider_testkit::interleave::{
    self, Spec, Step, begin, commit, declare, drop_subscription, put_subscription, record, relay, rollback,
};

async fn run(specs: &[Spec]) {
    let report = interleave::run(&TestDb::fresh().await, specs).await.unwrap();
    println!("{report}");
    report.assert_clean();
}

fn new_type() -> Step {
    declare(r#"{"app":"next","types":[{"name":"order.paid"}]}"#)
}

fn new_queue() -> Step {
    declare(r#"{"app":"next","generation":2,"kinds":[{"name":"t.k","queue":"far","max_attempts":9}]}"#)
}

fn kind(generation: u32, priority: u32) -> Step {
    declare(&format!(
        r#"{{"app":"next","generation":{generation},"kinds":[{{"name":"t.k","queue":"q","priority":{priority},"max_attempts":3}}]}}"#
    ))
}

fn two() -> Step {
    put_subscription("s.two", "order.*", "t.k")
}

#[tokio::test]
async fn l3_applications_that_declare_at_once_come_one_after_the_other() {
    run(&[
        Spec::new("the same by two processes of one application")
            .session("a", [begin(new_type()).gives("").waits("b1", "b2"), commit()])
            .session("b", [begin(new_type()).gives("").waits("a1", "a2"), commit()]),
        Spec::new("the same generation in two ways: the second one is refused")
            .session("a", [begin(kind(2, 3)).fails_after("b2", "PR006").gives("").waits("b1", "b2"), commit()])
            .session("b", [begin(kind(2, 4)).fails_after("a2", "PR006").gives("").waits("a1", "a2"), commit()]),
        Spec::new("the same generation in two ways, and the first one gives up")
            .session("a", [begin(kind(2, 3)).fails_after("b1", "PR006").gives(""), rollback()])
            .session("b", [kind(2, 4).gives("").waits("a1", "a2")]),
        Spec::new("the higher generation wins in both orders")
            .session("a", [begin(kind(2, 3)).gives("").waits("b1", "b2"), commit()])
            .session("b", [begin(kind(3, 4)).gives("").waits("a1", "a2"), commit()])
            .session(
                "c",
                [interleave::sql("select priority::text from postrider.kind where name = 't.k'")
                    .gives_after("b2", "4")
                    .gives_after("a2", "3")
                    .gives("2")],
            ),
    ])
    .await;
}

#[tokio::test]
async fn y4_no_route_is_lost_or_old_when_declarations_change_at_once() {
    run(&[
        Spec::new("a subscription beside a new type that it matches")
            .session("a", [begin(two()).gives("").waits("b1", "b2"), commit()])
            .session("b", [begin(new_type()).gives("").waits("a1", "a2"), commit()])
            .session("r", [relay(10).gives("0/0 idle")]),
        Spec::new("a subscription beside a change of its kind")
            .session("a", [begin(two()).gives("").waits("b1", "b2"), commit()])
            .session("b", [begin(new_queue()).gives("").waits("a1", "a2"), commit()]),
        Spec::new("a subscription that is undone beside a new type")
            .session("a", [begin(two()).gives(""), rollback()])
            .session("b", [new_type().gives("").waits("a1", "a2")]),
        Spec::new("a subscription that is dropped beside a new type that it matches")
            .stage([two()])
            .session("a", [begin(drop_subscription("s.two")).gives("true").waits("b1", "b2"), commit()])
            .session("b", [begin(new_type()).gives("").waits("a1", "a2"), commit()]),
        Spec::new("a subscription that is dropped beside a change of its kind")
            .stage([two()])
            .session("a", [begin(drop_subscription("s.two")).gives("true").waits("b1", "b2"), commit()])
            .session("b", [begin(new_queue()).gives("").waits("a1", "a2"), commit()]),
        Spec::new("a subscription that is put twice is there once")
            .session("a", [begin(two()).gives("").waits("b1", "b2"), commit()])
            .session("b", [begin(put_subscription("s.two", "**", "t.other")).gives("").waits("a1", "a2"), commit()])
            .session("r", [record("e1"), relay(10)]),
        Spec::new("a subscription that is put again beside its drop")
            .stage([two()])
            .session("a", [begin(drop_subscription("s.two")).waits("b1", "b2"), commit()])
            .session("b", [begin(put_subscription("s.two", "**", "t.other")).gives("").waits("a1", "a2"), commit()])
            .session("r", [record("e1"), relay(10)]),
        Spec::new("subscriptions that different transactions put in opposite orders")
            .session("a", [begin(two()).waits("b1", "b3"), put_subscription("s.three", "**", "t.k"), commit()])
            .session("b", [begin(put_subscription("s.three", "**", "t.k")).waits("a1", "a3"), two(), commit()]),
    ])
    .await;
}
