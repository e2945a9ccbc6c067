//! The tester finds a wrong engine, and a spec that says something wrong: each mistake is made in the database of its test, and
//! must turn it red.
#![expect(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use postrider_testkit::TestDb;
use postrider_testkit::interleave::{
    self, Outcome, Report, Spec, Step, begin, claim, commit, declare, enqueue, finish, put_subscription, record, relay,
    rescue, rewrite, rollback, sql, tick, tick_with, unpark,
};

use Outcome::{Completed, Failed};

/// A mistake: the function, what stands there and what is put in its place; the spec; and what is to be said about it.
struct Mistake {
    function: &'static str,
    from: &'static str,
    to: &'static str,
    spec: fn() -> Spec,
    finding: &'static str,
}

const MISTAKES: &[Mistake] = &[
    Mistake {
        function: "finish",
        from: "order by l.id for no key update",
        to: "order by l.id",
        spec: || told_twice(Failed, "x=later/1"),
        finding: "23505",
    },
    Mistake {
        function: "claim",
        from: "for update skip locked) x",
        to: "for update) x",
        spec: || {
            Spec::new("two claims")
                .stage([enqueue("t.k", "x")])
                .session("a", [begin(claim("w1", 9)), commit()])
                .session("b", [claim("w2", 9)])
        },
        finding: "b1 waits",
    },
    Mistake {
        function: "rescue",
        from: "and v.beat = seen_beat",
        to: "",
        spec: || {
            Spec::new("a worker that beat meanwhile")
                .stage(holding("x"))
                .session("a", [tick_with("w1", &["w1"], 9, &[])])
                .session("b", [rescue("w1", 1).gives_after("a1", "0").gives("1")])
        },
        finding: r#"b1 answers Value("1") , not Value("0")"#,
    },
    Mistake {
        function: "tick",
        from: "l.call <= settled and ",
        to: "",
        spec: || {
            Spec::new("a claim on its way")
                .stage([enqueue("t.k", "x")])
                .session("a", [claim("w1", 9)])
                .session("b", [tick_with("w1", &[], 0, &[])])
                .ends("x=leased/1")
        },
        finding: "it ends with x=ready/0",
    },
    Mistake {
        function: "tick",
        from: "postrider.put_back_each(x.id, false, false)",
        to: "postrider.put_back_each(x.id, true, false)",
        spec: || {
            Spec::new("a hand-back is no loss")
                .stage(holding("x"))
                .session("a", [tick("w1")])
                .session("b", [enqueue("t.k", "y")])
                .ends("x=ready/0 y=ready/0")
        },
        finding: "it ends with x=ready/0+1 y=ready/0",
    },
    Mistake {
        function: "relay",
        from: "if not pg_try_advisory_xact_lock(7305, 1)",
        to: "if false",
        spec: || {
            Spec::new("two relays")
                .stage([record("e1")])
                .session("a", [begin(relay(9)), commit()])
                .session("b", [begin(relay(9)), commit()])
        },
        finding: "23505",
    },
    Mistake {
        function: "unpark",
        from: "for update skip locked",
        to: "",
        spec: || {
            Spec::new("two beats that release the same")
                .stage([enqueue("t.other", "x"), claim("w1", 9)])
                .session("a", [begin(unpark("q", "t.other")), commit()])
                .session("b", [unpark("q", "t.other")])
        },
        finding: "b1 waits",
    },
    Mistake {
        function: "put_subscription",
        from: "perform postrider.lock_declarations();",
        to: "",
        spec: || {
            Spec::new("a subscription and a type")
                .session("a", [begin(put_subscription("s.two", "**", "t.k")).waits("b1", "b2"), commit()])
                .session(
                    "b",
                    [begin(declare(r#"{"app":"next","types":[{"name":"order.paid"}]}"#)).waits("a1", "a2"), commit()],
                )
        },
        finding: "is missing",
    },
];

fn holding(job: &str) -> Vec<Step> {
    vec![tick_with("w1", &[], 0, &[]), enqueue("t.k", job), claim("w1", 9)]
}

fn told_twice(outcome: Outcome, end: &str) -> Spec {
    Spec::new("an outcome is told twice")
        .stage(holding("x"))
        .session("a", [begin(finish("w1", outcome)).gives_after("b1", "").gives("x"), commit()])
        .session("b", [finish("w1", outcome).gives_after("a1", "").gives("x").waits("a1", "a2")])
        .ends(end)
}

async fn run(db: &TestDb, spec: Spec) -> Report {
    interleave::run(db, &[spec]).await.unwrap()
}

fn assert_found(report: &Report, finding: &str) {
    assert!(report.wrong.iter().any(|wrong| wrong.contains(finding)), "not found: {finding}\n{report:#?}");
}

#[tokio::test]
async fn a_mistake_in_a_function_is_found() {
    for mistake in MISTAKES {
        let db = TestDb::fresh().await;
        run(&db, (mistake.spec)()).await.assert_clean();
        rewrite(&db, mistake.function, mistake.from, mistake.to).await.unwrap();
        assert_found(&run(&db, (mistake.spec)()).await, mistake.finding);
    }
}

/// As `postrider.finish`, but whoever names the lease may end its jobs, whether it holds them open or not.
const FINISH_WITHOUT_FENCE: &str = "
create or replace function postrider.finish(
    worker uuid, leases bigint[], ids bigint[], outcomes smallint[], delays_ms bigint[], reasons text[], outputs text[] default null
) returns table (lease bigint, id bigint) language plpgsql as $$
#variable_conflict use_column
begin
    perform 1 from postrider.lease l where l.id = any (finish.leases) order by l.id for no key update;
    return query
    with told as (
        select * from unnest(finish.leases, finish.ids, finish.outcomes) as u (lease, id, outcome)
    ), waits as (
        insert into postrider.later (run_at, id, queue, priority, share, attempt, why)
        select clock_timestamp(), t.id, l.queue, 2, 0, 1, 1 from told t join postrider.lease l on l.id = t.lease where t.outcome = 2
    ), kept as (
        insert into postrider.attempt (class, id, lease, attempt, outcome, started_at)
        select (t.id & 3)::smallint, t.id, t.lease, 1, 2, now() from told t where t.outcome = 2 on conflict do nothing
    ), ended as (
        insert into postrider.done (class, id, lease, state, ended_as, attempt)
        select (t.id & 3)::smallint, t.id, t.lease, 2, 1, 1 from told t where t.outcome = 1
    ), shrunk as (
        update postrider.lease l set open = array(select o from unnest(l.open) o where o <> all (finish.ids))
         where l.id = any (finish.leases)
    )
    select t.lease, t.id from told t;
end $$";

#[tokio::test]
async fn a_finish_without_its_fence_is_found() {
    let db = TestDb::fresh().await;
    run(&db, told_twice(Failed, "x=later/1")).await.assert_clean();
    sqlx::raw_sql(FINISH_WITHOUT_FENCE).execute(db.pool()).await.unwrap();
    let report = run(&db, told_twice(Failed, "x=later/1")).await;
    assert_found(&report, "is in 2 places: later, later");
    assert_found(&report, r#"b1 answers Value("x") , not Value("")"#);
    assert_found(&run(&db, told_twice(Completed, "x=completed/1")).await, "duplicate key");
}

/// As `postrider.relay`, but it remembers the last number that it saw, as many an outbox does.
const RELAY_BY_NUMBER: &str = "
create or replace function postrider.relay(most int, elsewhere boolean default false, careful boolean default false,
    refused json default null) returns postrider.relayed language plpgsql as $$
declare
    last postrider.cut;
    seqs bigint[];
    types text[];
    owners text[];
    jobs int;
    answer postrider.relayed;
begin
    select * into last from postrider.cut order by no desc limit 1;
    select array_agg(e.seq order by e.seq), array_agg(e.type order by e.seq), array_agg(e.owner order by e.seq)
      into seqs, types, owners from postrider.event e where e.seq > coalesce(last.last_seq, 0);
    if seqs is null then
        answer := row (null, 0, 0, false, false, 'idle', null, 0, null);
        return answer;
    end if;
    jobs := postrider.fan_out(clock_timestamp(), seqs, types, owners);
    last.no := last.no + 1;
    last.n := cardinality(seqs);
    last.jobs := jobs;
    last.events_total := last.events_total + last.n;
    last.jobs_total := last.jobs_total + jobs;
    last.last_seq := seqs[last.n];
    insert into postrider.cut select last.*;
    answer := row (last.no, last.n, jobs, false, false, 'done', null, 0, null);
    return answer;
end $$";

#[tokio::test]
async fn a_relay_that_reads_by_number_is_found() {
    let two_writers = || {
        Spec::new("two writers that commit in either order")
            .session("a", [begin(record("e1")), commit()])
            .session("b", [begin(record("e2")), commit()])
            .session("r", [relay(9)])
    };
    let db = TestDb::fresh().await;
    run(&db, two_writers()).await.assert_clean();
    sqlx::raw_sql(RELAY_BY_NUMBER).execute(db.pool()).await.unwrap();
    assert_found(&run(&db, two_writers()).await, "(e1) has no job for s.one");
}

#[tokio::test]
async fn a_spec_that_says_something_wrong_is_found() {
    let db = TestDb::fresh().await;
    let base = || Spec::new("wrong").stage([enqueue("t.k", "x")]);
    for (spec, finding) in [
        (base().session("a", [claim("w1", 9).gives("y/1")]), r#"a1 answers Value("x/1") , not Value("y/1")"#),
        (base().session("a", [sql("select 1 / 0")]), "a1 fails: Error(\"22012\") division by zero"),
        (base().session("a", [claim("w1", 9).fails("22012")]), r#"not Error("22012")"#),
        (base().session("a", [claim("w1", 9)]).ends("x=ready/0"), "it ends with x=leased/1"),
        (base().session("a", [claim("w1", 9)]).ends("x=leased/1").ends("x=ready/0"), "it never ends with x=ready/0"),
        (base().session("a", [claim("w1", 9).gives_after("a1", "").gives("x/1")]), "rule 0 of a1 never holds"),
        (
            base().session("a", [begin(claim("w1", 9)), commit()]).session("b", [claim("w2", 9).waits("a1", "a2")]),
            "b1 does not wait",
        ),
        (
            Spec::new("crossed")
                .session("a", [begin(lock(1)).may_wait(), lock(2).may_wait(), commit()])
                .session("b", [begin(lock(2)).may_wait(), lock(1).may_wait(), commit()]),
            "40P01",
        ),
        (
            Spec::new("nobody releases").session("a", [begin(lock(1))]).session("b", [lock(1), rollback()]),
            "1 steps wait for each other or for nobody",
        ),
    ] {
        assert_found(&run(&db, spec).await, finding);
    }
}

fn lock(n: u32) -> Step {
    sql(format!("select pg_advisory_xact_lock({n})::text"))
}
