//! Jobs that wait, in every order: promotions, parking and its end, suspects that run alone, enqueues while kinds change.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a failed helper is a failed test, and the figures are told"
)]

use postrider_testkit::TestDb;
use postrider_testkit::interleave::{
    self, Outcome, Spec, Step, begin, claim, commit, declare, enqueue, enqueue_later, finish, finish_of, pause,
    promote, rescue, rollback, sql, tick_with, unpark,
};

use Outcome::{Completed, Failed};

async fn run(specs: &[Spec]) {
    let report = interleave::run(&TestDb::fresh().await, specs).await.unwrap();
    println!("{report}");
    report.assert_clean();
}

/// Jobs that failed once and are due.
fn due(jobs: &[&str]) -> Vec<Step> {
    let mut steps: Vec<Step> = jobs.iter().map(|job| enqueue("t.k", job)).collect();
    steps.extend([claim("w9", 9), finish("w9", Failed)]);
    steps
}

/// Two jobs that were lost together twice: both wait for their turn to run alone.
fn suspects() -> Vec<Step> {
    let beat = |worker| tick_with(worker, &[], 0, &[]);
    vec![
        beat("w7"),
        enqueue("t.k", "x"),
        enqueue("t.k", "y"),
        claim("w7", 9),
        rescue("w7", 1),
        beat("w8"),
        claim("w8", 9),
        rescue("w8", 1),
    ]
}

#[tokio::test]
async fn l3_due_jobs_are_promoted_once() {
    run(&[
        Spec::new("two promotions share what is due")
            .stage(due(&["x", "y"]))
            .session("a", [begin(promote()).gives_after("b1", "0").gives("2"), commit()])
            .session("b", [begin(promote()).gives_after("a1", "0").gives("2"), commit()])
            .ends("x=ready/1 y=ready/1"),
        Spec::new("a promotion that is undone is done by the next one")
            .stage(due(&["x"]))
            .session("a", [begin(promote()).gives_after("b1", "0").gives("1"), rollback()])
            .session("b", [promote().gives_after("a2", "1").gives_after("a1", "0").gives("1")])
            .ends("x=later/1")
            .ends("x=ready/1"),
        Spec::new("a claim sees what was promoted, once that has committed")
            .stage(due(&["x"]))
            .session("a", [begin(promote()).gives("1"), commit()])
            .session("b", [claim("w1", 9).gives_after("a2", "x/2").gives("")])
            .ends("x=leased/2")
            .ends("x=ready/1"),
        Spec::new("a failure is promoted once it has committed")
            .stage([enqueue("t.k", "x"), claim("w1", 9)])
            .session("a", [begin(finish("w1", Failed)).gives("x"), commit()])
            .session("b", [promote().gives_after("a2", "1").gives("0"), claim("w2", 9)])
            .ends("x=later/1")
            .ends("x=leased/2"),
        Spec::new("what is not due stays")
            .session("a", [begin(enqueue_later("t.k", "x")), commit()])
            .session("b", [promote().gives("0"), claim("w1", 9).gives("")])
            .ends("x=later/0"),
        Spec::new("two beats promote what is due once")
            .stage(due(&["x", "y"]))
            .session("a", [begin(tick_with("w1", &[], 0, &[])), commit()])
            .session("b", [begin(tick_with("w2", &[], 0, &[])), commit()])
            .ends("x=ready/1 y=ready/1"),
    ])
    .await;
}

#[tokio::test]
async fn k10_jobs_of_an_unknown_kind_are_parked_and_released_once() {
    let parked = || [enqueue("t.other", "x"), enqueue("t.other", "y"), claim("w9", 9)];
    run(&[
        Spec::new("two workers that know the kind do not wait for each other")
            .stage(parked())
            .session("a", [begin(unpark("q", "t.other")).gives_after("b1", "0").gives("2"), commit()])
            .session("b", [begin(unpark("q", "t.other")).gives_after("a1", "0").gives("2"), commit()])
            .ends("x=ready/0 y=ready/0"),
        Spec::new("a release that is undone is done by the next one")
            .stage(parked())
            .session("a", [begin(unpark("q", "t.other")).gives_after("b1", "0").gives("2"), rollback()])
            .session("b", [unpark("q", "t.other").gives_after("a2", "2").gives_after("a1", "0").gives("2")])
            .ends("x=parked(kind:t.other)/0 y=parked(kind:t.other)/0")
            .ends("x=ready/0 y=ready/0"),
        Spec::new("a job that is being parked is released by the next beat")
            .stage([enqueue("t.other", "x")])
            .session("a", [begin(claim("w1", 9)).gives("again"), commit()])
            .session("b", [unpark("q", "t.other").gives_after("a2", "1").gives("0")])
            .ends("x=parked(kind:t.other)/0")
            .ends("x=ready/0"),
        Spec::new("a release and a worker that does not know the kind")
            .stage(parked())
            .session("a", [begin(unpark("q", "t.other")).gives("2"), commit()])
            .session("b", [claim("w1", 9).gives_after("a2", "again").gives("")])
            .ends("x=parked(kind:t.other)/0 y=parked(kind:t.other)/0")
            .ends("x=ready/0 y=ready/0"),
        Spec::new("queues in opposite orders, and a row in the way: no beat waits for another one")
            .stage(in_queues(&["qa", "qb", "qc"]))
            .session("g", [begin(sql("select '' from postrider.parked where queue = 'qb' for update")), rollback()])
            .session("a", [unpark("qa,qb,qc", "t.other")])
            .session("b", [unpark("qc,qb,qa", "t.other")])
            .ends("qa=ready/0 qb=parked(kind:t.other)/0 qc=ready/0")
            .ends("qa=ready/0 qb=ready/0 qc=ready/0"),
    ])
    .await;
}

/// One parked job of an unknown kind in each queue, called as its queue.
fn in_queues(queues: &[&str]) -> Vec<Step> {
    let job = |queue: &&str| {
        [
            sql(format!(
                r#"select left(id::text, 0) from postrider.enqueue('t.other', '{{"n":"{queue}"}}', queue => '{queue}')"#
            )),
            sql(format!(
                "select id::text from postrider.claim('00000000-0000-0000-0000-000000000009', 1, '{queue}', '{{t.k}}', 9, '{{2}}', '{{0}}', '{{0}}')"
            )),
        ]
    };
    queues.iter().flat_map(job).collect()
}

/// A claim of a worker that knows one kind only.
const CLAIM_OTHER: &str = "select left(count(*)::text, 0)
    from postrider.claim('00000000-0000-0000-0000-000000000009', 1, 'q', '{t.other}', 9, '{2}', '{0}', '{0}')";

#[tokio::test]
async fn l3_suspects_run_one_at_a_time() {
    let first_runs = || {
        let mut steps = suspects();
        steps.extend([unpark("q", "t.k"), tick_with("w1", &[], 0, &[]), claim("w1", 9)]);
        steps
    };
    run(&[
        Spec::new("two beats let one of them go")
            .stage(suspects())
            .session("a", [begin(unpark("q", "t.k")).gives_after("b1", "0").gives("1"), commit()])
            .session("b", [begin(unpark("q", "t.k")).gives_after("a1", "0").gives("1"), commit()])
            .ends("x=ready/0+2 y=parked(strict:)/0+2"),
        Spec::new("the next one goes when the first one has ended")
            .stage(first_runs())
            .session("a", [begin(finish("w1", Completed)).gives("x"), commit()])
            .session("b", [unpark("q", "t.k").gives_after("a2", "1").gives("0")])
            .ends("x=completed/1 y=parked(strict:)/0+2")
            .ends("x=completed/1 y=ready/0+2"),
        Spec::new("a claim of the one that may go does not let the next one go")
            .stage(suspects())
            .stage([unpark("q", "t.k")])
            .session("a", [begin(claim("w1", 9)).gives("x/1"), commit()])
            .session("b", [unpark("q", "t.k").gives("0"), unpark("q", "t.k").gives("0")])
            .ends("x=leased/1+2 y=parked(strict:)/0+2"),
        Spec::new("the one that ran alone and was lost spends an attempt and waits again")
            .stage(first_runs())
            .session("a", [begin(rescue("w1", 1)).gives("1"), commit()])
            .session("b", [unpark("q", "t.k").gives_after("a2", "1").gives("0")])
            .ends("x=lost/1 y=parked(strict:)/0+2")
            .ends("x=lost/1 y=ready/0+2"),
        Spec::new("the one that may go meets a worker that does not know it: the next one goes, and it waits for its turn once more")
            .stage(suspects())
            .stage([unpark("q", "t.k"), sql(CLAIM_OTHER)])
            .session("a", [unpark("q", "t.other").gives("1"), unpark("q", "t.k").gives("1")])
            .session("b", [claim("w1", 9).gives_after("a2", "y/1").gives_after("a1", "y/1").gives(""), claim("w1", 9)])
            .ends("x=parked(strict:)/0+2 y=leased/1+2")
            .ends("x=ready/0+2 y=leased/1+2")
            .ends("x=ready/0+2 y=ready/0+2"),
    ])
    .await;
}

#[tokio::test]
async fn l3_a_beat_that_is_slow_between_its_look_and_its_lock_does_not_let_a_second_suspect_go() {
    let db = TestDb::fresh().await;
    let hold = pause(&db, "unpark", "pg_try_advisory_xact_lock(7305, 4)").await.unwrap();
    let specs = [Spec::new("two beats, each of which may stop before it tries the lock")
        .stage(suspects())
        .session("g", [begin(sql(hold)), commit()])
        .session("a", [unpark("q", "t.k").may_wait()])
        .session("b", [unpark("q", "t.k").may_wait()])
        .ends("x=ready/0+2 y=parked(strict:)/0+2")];
    let report = interleave::run(&db, &specs).await.unwrap();
    println!("{report}");
    report.assert_clean();
}

#[tokio::test]
async fn l3_a_job_is_made_as_its_kind_is_at_that_moment() {
    let elsewhere =
        || declare(r#"{"app":"next","generation":2,"kinds":[{"name":"t.k","queue":"far","max_attempts":3}]}"#);
    run(&[
        Spec::new("an enqueue beside a change of its kind")
            .session("a", [begin(elsewhere()), commit()])
            .session("b", [enqueue("t.k", "x").gives("x"), claim("w1", 9)])
            .ends("x=leased/1")
            .ends("x=ready/0"),
        Spec::new("an enqueue of a kind that is being declared")
            .session("a", [begin(declare(r#"{"app":"new","kinds":[{"name":"t.new","queue":"q"}]}"#)), commit()])
            .session("b", [enqueue("t.new", "x").gives_after("a2", "x").fails("PR004")])
            .ends("")
            .ends("x=ready/0"),
        Spec::new("two transactions that enqueue and claim each other's jobs")
            .session("a", [begin(enqueue("t.k", "x")), claim("w1", 9), commit()])
            .session("b", [begin(enqueue("t.k", "y")), claim("w2", 9), commit()])
            .ends("x=leased/1 y=leased/1"),
        Spec::new("a handler's follow-up exists exactly if its end does")
            .stage([enqueue("t.k", "x"), claim("w1", 9)])
            .session(
                "a",
                [begin(enqueue("t.k", "next")), finish("w1", Completed).gives_after("b1", "").gives("x"), commit()],
            )
            .session("b", [finish_of(&["w1"], &[("x", Failed)]).gives_after("a2", "").gives("x").waits("a2", "a3")])
            .ends("next=ready/0 x=completed/1")
            .ends("next=ready/0 x=later/1"),
    ])
    .await;
}
