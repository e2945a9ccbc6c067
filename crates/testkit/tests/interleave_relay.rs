//! The outbox in every order: events of transactions that commit in any order, or not at all, become one job for each subscription
//! (P1, P2), beside relays that are undone, declarations that change, and epochs that move on.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a failed helper is a failed test, and the figures are told"
)]

use postrider_testkit::TestDb;
use postrider_testkit::interleave::{
    self, Spec, Step, advance, begin, claim, commit, declare, drop_subscription, enqueue, housekeep, put_subscription,
    record, record_once, relay, rollback, sql,
};

async fn run(specs: &[Spec]) {
    let report = interleave::run(&TestDb::fresh().await, specs).await.unwrap();
    println!("{report}");
    report.assert_clean();
}

#[tokio::test]
async fn y1_events_are_relayed_once_in_whatever_order_their_transactions_commit() {
    run(&[
        Spec::new("an event is relayed once its transaction has committed")
            .session("a", [begin(record("e1")), commit()])
            .session("b", [relay(10).gives_after("a2", "1/1 done").gives("0/0 idle")])
            .ends("e1@s.one=ready/0")
            .ends(""),
        Spec::new("an event that is rolled back is none")
            .session("a", [begin(record("e1")), rollback()])
            .session("b", [relay(10).gives("0/0 idle"), relay(10).gives("0/0 idle")])
            .ends(""),
        Spec::new("two writers that commit in either order, and two passes anywhere")
            .session("a", [begin(record("e1")), commit()])
            .session("b", [begin(record("e2")), commit()])
            .session("r", [relay(10), relay(10)])
            .ends("")
            .ends("e1@s.one=ready/0")
            .ends("e2@s.one=ready/0")
            .ends("e1@s.one=ready/0 e2@s.one=ready/0"),
        Spec::new("a writer of two events that is slow, beside a quick one")
            .session("a", [begin(record("e1")), record("e3"), commit()])
            .session("b", [record("e2")])
            .session("r", [relay(10), relay(10)])
            .ends("")
            .ends("e2@s.one=ready/0")
            .ends("e1@s.one=ready/0 e3@s.one=ready/0")
            .ends("e1@s.one=ready/0 e2@s.one=ready/0 e3@s.one=ready/0"),
        Spec::new("a writer whose savepoint is undone")
            .session(
                "a",
                [begin(record("e1")), sql("savepoint s"), record("e2"), sql("rollback to savepoint s"), commit()],
            )
            .session("r", [relay(10).gives_after("a5", "1/1 done").gives("0/0 idle")])
            .ends("")
            .ends("e1@s.one=ready/0"),
        Spec::new("a writer whose savepoint is kept")
            .session("a", [begin(sql("savepoint s")), record("e1"), sql("release savepoint s"), record("e2"), commit()])
            .session("r", [relay(10).gives_after("a5", "2/2 done").gives("0/0 idle")])
            .ends("")
            .ends("e1@s.one=ready/0 e2@s.one=ready/0"),
        Spec::new("a prepared transaction")
            .session(
                "a",
                [
                    begin(sql("set local postrider.wake = 'off'")),
                    record("e1"),
                    sql("prepare transaction 'relay'"),
                    sql("commit prepared 'relay'"),
                ],
            )
            .session("r", [relay(10).gives_after("a4", "1/1 done").gives("0/0 idle"), relay(10)])
            .ends("")
            .ends("e1@s.one=ready/0"),
    ])
    .await;
}

#[tokio::test]
async fn y2_relays_exclude_each_other_and_lose_nothing_when_they_are_undone() {
    run(&[
        Spec::new("two relays: one is busy")
            .stage([record("e1")])
            .session(
                "a",
                [
                    begin(relay(10)).gives_after("b2", "0/0 idle").gives_after("b1", "0/0 busy").gives("1/1 done"),
                    commit(),
                ],
            )
            .session(
                "b",
                [
                    begin(relay(10)).gives_after("a2", "0/0 idle").gives_after("a1", "0/0 busy").gives("1/1 done"),
                    commit(),
                ],
            )
            .ends("e1@s.one=ready/0"),
        Spec::new("a pass that is undone is made by the next relay")
            .stage([record("e1")])
            .session("a", [begin(relay(10)).gives_after("b1", "0/0 idle").gives("1/1 done"), rollback()])
            .session("b", [relay(10).gives_after("a2", "1/1 done").gives_after("a1", "0/0 busy").gives("1/1 done")])
            .ends("")
            .ends("e1@s.one=ready/0"),
        Spec::new("passes of one event each, beside writers")
            .stage([record("e1"), record("e2")])
            .session("a", [begin(record("e3")), commit()])
            .session("r", [relay(1), relay(1), relay(1)])
            .ends("e1@s.one=ready/0 e2@s.one=ready/0")
            .ends("e1@s.one=ready/0 e2@s.one=ready/0 e3@s.one=ready/0"),
        Spec::new("passes of one event each, one of which is undone")
            .stage([record("e1"), record("e2"), record("e3")])
            .session("a", [begin(relay(1)).gives("1/1 done"), rollback()])
            .session("r", [relay(1), relay(1)])
            .ends("")
            .ends("e1@s.one=ready/0")
            .ends("e1@s.one=ready/0 e2@s.one=ready/0"),
        Spec::new("a pass that stops in the middle: what commits meanwhile is for the next one")
            .stage([record("e1")])
            .session("g", [begin(cut_in_the_way()), rollback()])
            .session("a", [relay(10).may_wait(), relay(10)])
            .session("b", [record("e2")])
            .ends("e1@s.one=ready/0")
            .ends("e1@s.one=ready/0 e2@s.one=ready/0"),
        Spec::new("a second relay whose cut is there first makes the pass fail as a whole")
            .stage([record("e1")])
            .session("g", [begin(cut_in_the_way()), commit()])
            .session("a", [relay(10).gives("1/1 done").may_wait().may_fail("23505")])
            .ends("")
            .ends("e1@s.one=ready/0"),
        Spec::new("the relay refuses a transaction that has written")
            .session("a", [begin(record("e1")), relay(10).fails("PR010"), rollback()])
            .session("b", [relay(10).gives("0/0 idle")])
            .ends(""),
        Spec::new("claims see jobs of a pass once it has committed")
            .stage([record("e1")])
            .session("a", [begin(relay(10)).gives("1/1 done"), commit()])
            .session("b", [claim("w1", 9).gives_after("a2", "e1@s.one/1").gives("")])
            .ends("e1@s.one=ready/0")
            .ends("e1@s.one=leased/1"),
    ])
    .await;
}

/// The row that the next pass is about to write, in a transaction that nobody sees.
fn cut_in_the_way() -> Step {
    sql("insert into postrider.cut
         select (jsonb_populate_record(c, jsonb_build_object('no', c.no + 1))).* from postrider.cut c where c.no = 1
            on conflict do nothing")
}

#[tokio::test]
async fn e3_a_key_stands_for_one_event_whoever_comes_first_and_whoever_gives_up() {
    run(&[
        Spec::new("the second one waits, and gets the first one's event")
            .session(
                "a",
                [begin(record_once("e1", "k")).gives_after("b2", "e2").gives("e1").waits("b1", "b2"), commit()],
            )
            .session(
                "b",
                [begin(record_once("e2", "k")).gives_after("a2", "e1").gives("e2").waits("a1", "a2"), commit()],
            )
            .session("r", [relay(10)]),
        Spec::new("the first one gives up: the second one's event stands")
            .session("a", [begin(record_once("e1", "k")).gives_after("b1", "e2").gives("e1"), rollback()])
            .session("b", [record_once("e2", "k").gives("e2").waits("a1", "a2")])
            .session("r", [relay(10)]),
        Spec::new("a key that is over is forgotten once, by housekeeping or by the next one")
            .stage([record_once("old", "k"), sql("update postrider.idempotency set until = clock_timestamp()")])
            .session("a", [begin(record_once("e1", "k")).gives_after("b2", "e2").gives("e1").may_wait(), commit()])
            .session("b", [begin(record_once("e2", "k")).gives_after("a2", "e1").gives("e2").may_wait(), commit()])
            .session("c", [begin(housekeep()), commit()]),
        Spec::new("housekeeping passes by keys that are in use")
            .stage([record_once("old", "k"), sql("update postrider.idempotency set until = clock_timestamp()")])
            .session("a", [begin(record_once("e1", "k")).gives("e1"), commit()])
            .session("b", [housekeep().gives_after("a1", "[] 0").gives("[] 1")]),
        Spec::new("another owner's or another key does not wait")
            .session("a", [begin(record_once("e1", "k1")).gives("e1"), commit()])
            .session("b", [begin(record_once("e2", "k2")).gives("e2"), commit()]),
        Spec::new("keys that cross in two transactions: Postgres ends one of them, and its events are gone with it")
            .session(
                "a",
                [
                    begin(record_once("e1", "k1")).may_wait(),
                    record_once("e2", "k2").may_wait().may_fail("40P01"),
                    commit(),
                ],
            )
            .session(
                "b",
                [
                    begin(record_once("e3", "k2")).may_wait(),
                    record_once("e4", "k1").may_wait().may_fail("40P01"),
                    commit(),
                ],
            ),
    ])
    .await;
}

#[tokio::test]
async fn y4_declarations_that_change_beside_the_relay_take_effect_between_passes() {
    let slow = || declare(r#"{"app":"next","generation":2,"kinds":[{"name":"t.k","queue":"far","max_attempts":9}]}"#);
    run(&[
        Spec::new("a subscription that is put beside a pass")
            .stage([record("e1")])
            .session("a", [begin(put_subscription("s.two", "order.*", "t.k")), commit()])
            .session("r", [relay(10).gives_after("a2", "1/2 done").gives("1/1 done")])
            .ends("e1@s.one=ready/0")
            .ends("e1@s.one=ready/0 e1@s.two=ready/0"),
        Spec::new("a subscription that is dropped beside a pass")
            .stage([put_subscription("s.two", "order.*", "t.k"), record("e1")])
            .session("a", [begin(drop_subscription("s.two")).gives("true"), commit()])
            .session("r", [begin(relay(10)).gives_after("a2", "1/1 done").gives("1/2 done"), commit()])
            .ends("e1@s.one=ready/0")
            .ends("e1@s.one=ready/0 e1@s.two=ready/0"),
        Spec::new("a kind that changes beside a pass")
            .stage([put_subscription("s.two", "order.*", "t.k"), record("e1")])
            .session("a", [begin(slow()), commit()])
            .session("r", [relay(10).gives("1/2 done"), claim("w1", 9)])
            .ends("e1@s.one=leased/1 e1@s.two=leased/1")
            .ends("e1@s.one=leased/1 e1@s.two=ready/0"),
        Spec::new("a type that is declared beside its first event")
            .session("a", [begin(declare(r#"{"app":"new","types":[{"name":"order.paid"}]}"#)), commit()])
            .session(
                "b",
                [
                    sql("select left(postrider.record('order.paid', 'e1')::text, 0)")
                        .gives_after("a2", "")
                        .fails("PR004"),
                    relay(10),
                ],
            )
            .ends("")
            .ends("e1@s.one=ready/0"),
    ])
    .await;
}

#[tokio::test]
async fn l3_epochs_move_on_beside_writers_relays_and_each_other() {
    let due = |unit: &str| {
        let aged =
            format!("update postrider.epoch set started_at = started_at - interval '8 days' where unit = '{unit}'");
        [advance(unit).gives("false"), sql(aged)]
    };
    run(&[
        Spec::new("a writer never meets a missing partition of events")
            .stage(due("event"))
            .session("a", [begin(advance("event")).gives("true"), commit()])
            .session("b", [begin(record("e1")), record("e2"), commit()])
            .session("r", [relay(10)])
            .ends("")
            .ends("e1@s.one=ready/0 e2@s.one=ready/0"),
        Spec::new("an advance that is undone leaves the number moved on, and the partitions are there")
            .stage(due("event"))
            .session("a", [begin(advance("event")).gives("true"), rollback()])
            .session("b", [record("e1"), relay(10).gives("1/1 done")])
            .ends("e1@s.one=ready/0"),
        Spec::new("two at once: one moves")
            .stage(due("event"))
            .session("a", [begin(advance("event")).gives_after("b1", "false").gives("true"), commit()])
            .session("b", [begin(advance("event")).gives_after("a1", "false").gives("true"), commit()]),
        Spec::new("a producer and a worker beside the move of the jobs' epoch")
            .stage(due("job"))
            .stage([enqueue("t.k", "x")])
            .session("a", [begin(advance("job")).gives("true"), commit()])
            .session("b", [enqueue("t.k", "y"), claim("w1", 9).gives("x/1 y/1")])
            .ends("x=leased/1 y=leased/1"),
        Spec::new("housekeeping twice at once waits for nobody")
            .stage(due("job"))
            .session("a", [begin(housekeep()).gives_after("b1", "[] 0").gives("[\"job\"] 0"), commit()])
            .session("b", [begin(housekeep()).gives_after("a1", "[] 0").gives("[\"job\"] 0"), commit()]),
    ])
    .await;
}

/// Takes the job of the coalescing subscription: answers with the data of its event.
fn take() -> Step {
    sql("select coalesce(string_agg(c.data::text, ',' order by c.id) filter (where c.kind = 't.k'), '')
           from postrider.claim('00000000-0000-0000-0000-00000000000a', 1, 'q', '{t.k,s.one}', 9, array[2::smallint], array[0::smallint],
                                array[0::bigint]) c")
}

fn change(n: u32) -> Step {
    sql(format!("select left(postrider.record('order.made', 'e1', '{n}')::text, 0)"))
}

#[tokio::test]
async fn y4_a_job_that_stands_for_several_events_never_begins_with_one_that_is_not_the_latest() {
    let coalescing =
        || sql("select left(postrider.put_subscription('s.lat', '{order.*}', 't.k', coalescing => true)::text, 0)");
    run(&[
        Spec::new("the job is claimed before or after the pass that brings a later event")
            .stage([coalescing(), change(1), relay(10), change(2)])
            .session("r", [relay(10)])
            .session("w", [take().gives_after("r1", "2").gives("1")])
            .ends("e1@s.lat=leased/1 e1@s.lat=ready/0 e1@s.one=leased/1 e1@s.one=ready/0")
            .ends("e1@s.lat=leased/1 e1@s.one=leased/1 e1@s.one=leased/1"),
        Spec::new("the job is not claimed while a pass is about to give it a later event")
            .stage([coalescing(), change(1), relay(10), change(2)])
            .session("r", [begin(relay(10)), commit()])
            .session("w", [take().gives_after("r2", "2").gives_after("r1", "").gives("1")])
            .ends("e1@s.lat=leased/1 e1@s.lat=ready/0 e1@s.one=leased/1 e1@s.one=ready/0")
            .ends("e1@s.lat=leased/1 e1@s.one=leased/1 e1@s.one=leased/1")
            .ends("e1@s.lat=ready/0 e1@s.one=leased/1 e1@s.one=ready/0"),
        Spec::new("the pass is undone")
            .stage([coalescing(), change(1), relay(10), change(2)])
            .session("r", [begin(relay(10)), rollback()])
            .session("w", [take().gives_after("r2", "1").gives_after("r1", "").gives("1")])
            .ends("e1@s.lat=leased/1 e1@s.one=leased/1")
            .ends("e1@s.lat=ready/0 e1@s.one=leased/1"),
        Spec::new("a claim that is undone while a pass waits for it")
            .stage([coalescing(), change(1), relay(10), change(2)])
            .session("r", [relay(10).waits("w1", "w2")])
            .session("w", [begin(take().gives_after("r1", "2").gives("1")), rollback()])
            .ends("e1@s.lat=ready/0 e1@s.one=ready/0 e1@s.one=ready/0"),
        Spec::new("a claim that commits while a pass waits for it")
            .stage([coalescing(), change(1), relay(10), change(2)])
            .session("r", [relay(10).waits("w1", "w2")])
            .session("w", [begin(take().gives_after("r1", "2").gives("1")), commit()])
            .ends("e1@s.lat=leased/1 e1@s.lat=ready/0 e1@s.one=leased/1 e1@s.one=ready/0")
            .ends("e1@s.lat=leased/1 e1@s.one=leased/1 e1@s.one=leased/1"),
    ])
    .await;
}

#[tokio::test]
async fn y10_a_subscription_from_the_beginning_beside_writers_and_passes_in_every_order() {
    let whole =
        || sql("select left(postrider.put_subscription('s.all', '{order.*}', 't.k', start => 'beginning')::text, 0)");
    let over = || sql("select left(postrider.hand_over(10)::text, 0)");
    run(&[
        Spec::new("a writer that commits late")
            .stage([record("e1"), relay(10)])
            .session("a", [begin(record("e2")), commit()])
            .session("r", [whole(), over(), relay(10), relay(10)])
            .ends("e1@s.all=ready/0 e1@s.one=ready/0 e2@s.all=ready/0 e2@s.one=ready/0")
            .ends("e1@s.all=ready/0 e1@s.one=ready/0"),
        Spec::new("two relays, one of which is undone")
            .stage([record("e1"), relay(10), whole(), record("e2")])
            .session("a", [begin(over()), rollback()])
            .session("r", [over(), relay(10), over(), relay(10)])
            .ends("e1@s.all=ready/0 e1@s.one=ready/0 e2@s.all=ready/0 e2@s.one=ready/0")
            .ends("e1@s.one=ready/0 e2@s.one=ready/0")
            .ends("e1@s.all=ready/0 e1@s.one=ready/0")
            .ends("e1@s.one=ready/0"),
        Spec::new("a subscription that is dropped while it starts")
            .stage([record("e1"), relay(10), whole()])
            .session("a", [begin(drop_subscription("s.all")).may_wait(), commit()])
            .session("r", [over().may_wait(), relay(10)])
            .ends("e1@s.one=ready/0")
            .ends("e1@s.all=ready/0 e1@s.one=ready/0"),
    ])
    .await;
}
