//! Y5, Y9, Y12: what cannot become a job is set aside and nothing else waits; what the relay did can be computed anew; what leaves can be held.
#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test asks the database itself, and a failed helper is a failed test"
)]

use std::sync::Arc;
use std::time::Duration;

use postrider::inspect::{self, Severity};
use postrider::port::{Plan, Step};
use postrider::proof::{self, Verified};
use postrider::{
    Act, Bus, Capabilities, Code, Effect, Enqueued, Error, EventId, Filter, Fut, JobId, Jobs, Kind, KindSpec, NewJob,
    PgJobs, Running, Settings, Subscription, Tx, Verdict, Waited, handler,
};
use postrider_testkit::{TestDb, until};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, PgPool};

const SOON: Duration = Duration::from_mins(1);

async fn run(pool: &PgPool, sql: impl Into<String>) {
    sqlx::raw_sql(AssertSqlSafe(sql.into())).execute(pool).await.unwrap();
}

async fn number(pool: &PgPool, sql: &str) -> i64 {
    sqlx::query_scalar(AssertSqlSafe(sql.to_owned())).fetch_one(pool).await.unwrap()
}

async fn text(pool: &PgPool, sql: &str) -> String {
    sqlx::query_scalar(AssertSqlSafe(sql.to_owned())).fetch_one(pool).await.unwrap()
}

/// Three subscriptions to `t.made`, none to `t.alone`.
async fn declared() -> TestDb {
    let db = TestDb::fresh().await;
    let subscriptions = ["s.one", "s.two", "s.three"].map(|name| Subscription::new(name, ["t.made"]));
    Bus::builder(db.pool().clone()).types(["t.made", "t.alone"]).subscriptions(subscriptions).build().await.unwrap();
    db
}

/// Records events about `o/1` to `o/n`.
async fn record(pool: &PgPool, n: u32) -> Vec<EventId> {
    let sql = "select postrider.record('t.made', 'o/' || i, to_json(i)) from generate_series(1, $1) i";
    let ids: Vec<uuid::Uuid> = sqlx::query_scalar(sql).bind(i32::try_from(n).unwrap()).fetch_all(pool).await.unwrap();
    ids.into_iter().map(EventId::from_uuid).collect()
}

/// Passes until nothing is left. A pass that failed may hold the others up until its connection has heard of it.
async fn relay(pool: &PgPool, careful: bool) {
    loop {
        let sql = "select more or why = 'busy' from postrider.relay(100, false, $1)";
        if !sqlx::query_scalar::<_, bool>(sql).bind(careful).fetch_one(pool).await.unwrap() {
            break;
        }
    }
}

/// Makes each job of `which` impossible: an error of the table itself, as a trigger or a constraint of the application would raise it.
async fn poison(pool: &PgPool, which: &str, code: &str) {
    run(
        pool,
        format!(
            "create function public.poison() returns trigger language plpgsql as $$ begin
                 if {which} then raise exception 'this one cannot be' using errcode = '{code}'; end if; return new; end $$;
             create trigger poison before insert on postrider.job for each row execute function public.poison()"
        ),
    )
    .await;
}

async fn mend(pool: &PgPool) {
    run(pool, "drop trigger poison on postrider.job; drop function public.poison()").await;
}

/// Subscription `s.two`, each seventh event.
const BAD: &str =
    "new.event_seq % 7 = 0 and new.subscription = (select id from postrider.subscription where name = 's.two')";

/// Pairs of an event and a subscription that have not exactly so many jobs.
async fn pairs_without(pool: &PgPool, jobs: i64) -> i64 {
    let sql = "select count(*) from (select e.seq, s.id from postrider.event e cross join postrider.subscription s) want
                 left join (select event_seq as seq, subscription as id, count(*) as n from postrider.job group by 1, 2) got using (seq, id)
                where coalesce(got.n, 0) <> ";
    number(pool, &format!("{sql} {jobs}")).await
}

async fn verified(pool: &PgPool) -> Verified {
    proof::verify(pool, None, None).await.unwrap()
}

async fn only_relays(db: &TestDb) -> Running {
    let settings = Settings { work: false, housekeeping: false, ..Settings::default() };
    Bus::builder(db.pool().clone()).settings(settings).build().await.unwrap().start().unwrap()
}

#[tokio::test]
async fn y5_a_bad_pair_is_set_aside_and_all_others_flow_until_it_is_requeued() {
    let db = declared().await;
    let pool = db.pool();
    poison(pool, BAD, "22012").await;
    record(pool, 700).await;
    let running = only_relays(&db).await;
    until("everything else is there", SOON, async || {
        (number(pool, "select events_total from postrider.cut order by no desc limit 1").await == 700).then_some(())
    })
    .await;
    let bad = number(pool, "select count(*) from postrider.event where seq % 7 = 0").await;
    assert_eq!(bad, 100);
    assert_eq!(pairs_without(pool, 1).await, bad, "a pair that can be made is missing or doubled");
    assert_eq!(text(pool, "select format('%s %s', sum(jobs), sum(aside)) from postrider.cut").await, "2000 100");
    let aside = proof::poison(pool, 1000).await.unwrap();
    assert_eq!(aside.len(), 100);
    assert!(aside.iter().all(|pair| pair.name.as_deref() == Some("s.two") && pair.tries == 1));
    assert!(aside[0].error.contains("this one cannot be"), "{}", aside[0].error);
    let alert = inspect::alerts(pool).await.unwrap().into_iter().find(|alert| alert.name == "poison").unwrap();
    assert_eq!((alert.severity, alert.subject.as_str()), (Severity::Warning, "subscription s.two"));
    let whole = verified(pool).await;
    assert!(whole.is_whole(), "{whole:?}");

    mend(pool).await;
    let refused = proof::requeue(pool, None, Some("s.nobody")).await.unwrap_err();
    assert_eq!(refused.code(), Some(Code::Undeclared));
    assert_eq!(proof::requeue(pool, Some(aside[0].event), None).await.unwrap(), 1);
    assert!(proof::requeue(pool, None, Some("s.two")).await.unwrap() >= 99);
    until("each pair has its job", SOON, async || (pairs_without(pool, 1).await == 0).then_some(())).await;
    until("nothing is aside", SOON, async || proof::poison(pool, 1).await.unwrap().is_empty().then_some(())).await;
    assert_eq!(proof::requeue(pool, None, None).await.unwrap(), 0);
    running.stop(SOON).await;
    assert_eq!(number(pool, "select count(*) from postrider.job").await, 2100);
    let whole = verified(pool).await;
    assert!(whole.is_whole(), "{whole:?}");
}

#[tokio::test]
async fn y5_after_five_tries_it_stays_aside_and_the_alarm_is_critical() {
    let db = declared().await;
    let pool = db.pool();
    poison(pool, "new.subscription = (select min(id) from postrider.subscription)", "23514").await;
    record(pool, 1).await;
    relay(pool, true).await;
    // ten seconds, a minute, ten minutes, an hour
    for (tries, seconds) in [(1, 10), (2, 60), (3, 600), (4, 3600)] {
        let sql = "select format('%s %s', tries, round(extract(epoch from retry_at - tried_at))) from postrider.poison";
        assert_eq!(text(pool, sql).await, format!("{tries} {seconds}"));
        let pass: Option<i64> =
            sqlx::query_scalar("select retry_in_ms from postrider.relay(10)").fetch_one(pool).await.unwrap();
        assert!(pass.unwrap() > seconds * 1000 - 60_000, "not before its time");
        run(pool, "update postrider.poison set retry_at = clock_timestamp()").await;
        relay(pool, false).await;
    }
    assert_eq!(text(pool, "select format('%s %s', tries, retry_at is null) from postrider.poison").await, "5 t");
    let alert = inspect::alerts(pool).await.unwrap().into_iter().find(|alert| alert.name == "poison").unwrap();
    assert_eq!(alert.severity, Severity::Critical);
    assert!(alert.remedy.contains("requeue"), "{}", alert.remedy);

    let refused = proof::drop_poison(pool, " ", None, None).await.unwrap_err();
    assert_eq!(refused.code(), Some(Code::Option));
    assert_eq!(proof::drop_poison(pool, "nobody needs it", None, None).await.unwrap(), 1);
    relay(pool, true).await;
    assert_eq!(number(pool, "select count(*) from postrider.job").await, 2);
    assert_eq!(
        text(pool, "select format('%s: %s', ended_as, reason) from postrider.poison").await,
        "dropped: nobody needs it"
    );
}

#[tokio::test]
async fn y5_a_server_that_cannot_write_sets_nothing_aside() {
    let db = declared().await;
    let pool = db.pool();
    // no room, a lock that was not there in time, a deadlock
    for code in ["53100", "55P03", "40P01"] {
        poison(pool, "true", code).await;
        record(pool, 3).await;
        let failed = sqlx::query("select postrider.relay(100, false, true)").execute(pool).await.unwrap_err();
        assert_eq!(failed.as_database_error().unwrap().code().unwrap(), code);
        mend(pool).await;
    }
    relay(pool, false).await;
    assert_eq!(number(pool, "select count(*) from postrider.poison").await, 0);
    assert_eq!(pairs_without(pool, 1).await, 0);
}

#[tokio::test]
async fn y5_requeue_beside_the_relay_makes_one_job() {
    let db = declared().await;
    let pool = db.pool();
    poison(pool, BAD, "22012").await;
    record(pool, 14).await;
    relay(pool, true).await;
    mend(pool).await;
    let mut other = PgConnection::connect(db.url()).await.unwrap();

    // the requeue is open while the relay looks: its pairs are passed by
    run(pool, "update postrider.poison set retry_at = clock_timestamp()").await;
    let mut tx = pool.begin().await.unwrap();
    let n: i64 = sqlx::query_scalar("select postrider.requeue()").fetch_one(&mut *tx).await.unwrap();
    assert_eq!(n, 2);
    let jobs: i32 = sqlx::query_scalar("select jobs from postrider.relay(100)").fetch_one(&mut other).await.unwrap();
    assert_eq!(jobs, 0);
    tx.commit().await.unwrap();

    // the relay is open while it is requeued: that waits, and finds nothing left
    let mut tx = other.begin().await.unwrap();
    let jobs: i32 = sqlx::query_scalar("select jobs from postrider.relay(100)").fetch_one(&mut *tx).await.unwrap();
    assert_eq!(jobs, 2);
    let again = tokio::spawn({
        let pool = pool.clone();
        async move { proof::requeue(&pool, None, None).await.unwrap() }
    });
    until("the requeue waits", SOON, async || {
        let sql =
            "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'";
        (number(pool, sql).await == 1).then_some(())
    })
    .await;
    tx.commit().await.unwrap();
    assert_eq!(again.await.unwrap(), 0);
    relay(pool, true).await;
    assert_eq!(pairs_without(pool, 1).await, 0);
}

#[tokio::test]
async fn y5_events_that_were_set_aside_pin_their_partition_by_name() {
    let db = declared().await;
    let pool = db.pool();
    poison(pool, BAD, "22012").await;
    record(pool, 14).await;
    relay(pool, true).await;
    let pin = "select postrider.event_pinned_by(0)";
    assert_eq!(text(pool, pin).await, "events that were set aside for subscription s.two");
    proof::drop_poison(pool, "nobody needs them", None, None).await.unwrap();
    run(pool, "insert into postrider.event_done (epoch, job_epoch) values (0, -1)").await;
    assert_eq!(text(pool, "select coalesce(postrider.event_pinned_by(0), 'nothing')").await, "nothing");
}

#[tokio::test]
async fn y12_an_event_tells_the_jobs_that_it_became_also_when_it_became_none() {
    let db = declared().await;
    let pool = db.pool();
    poison(pool, BAD, "22012").await;
    let ids = record(pool, 30).await;
    let alone: uuid::Uuid =
        sqlx::query_scalar("select postrider.record('t.alone', 'o/1')").fetch_one(pool).await.unwrap();
    let none = proof::await_fanout(pool, ids[0], Duration::from_millis(20)).await.unwrap();
    assert_eq!(none, None, "the relay has not come to it");
    let waits = tokio::spawn({
        let (pool, id) = (pool.clone(), ids[4]);
        async move { proof::await_fanout(&pool, id, SOON).await.unwrap().unwrap() }
    });
    // slices of eight events, so that the answer is looked for among several cuts
    for _ in 0..8 {
        run(pool, "select postrider.relay(8, false, true)").await;
    }
    assert_eq!(waits.await.unwrap().jobs.len(), 3);
    for id in &ids {
        let became = proof::await_fanout(pool, *id, SOON).await.unwrap().unwrap();
        let sql = format!(
            "select coalesce(string_agg(id::text, ',' order by id), '') from postrider.job where event_seq = postrider.event_seq('{id}')"
        );
        let jobs: Vec<String> = became.jobs.iter().map(ToString::to_string).collect();
        assert_eq!(jobs.join(","), text(pool, &sql).await);
        let bad = number(pool, &format!("select postrider.event_seq('{id}') % 7")).await == 0;
        assert_eq!(became.aside, if bad { vec!["s.two".to_owned()] } else { Vec::new() });
    }
    let became = proof::await_fanout(pool, EventId::from_uuid(alone), SOON).await.unwrap().unwrap();
    assert_eq!((became.jobs.len(), became.aside.len()), (0, 0));

    // a job that was made later is told too
    mend(pool).await;
    proof::requeue(pool, None, None).await.unwrap();
    relay(pool, false).await;
    let late = ids.iter().map(async |id| proof::await_fanout(pool, *id, SOON).await.unwrap().unwrap());
    for became in futures_util::future::join_all(late).await {
        assert_eq!((became.jobs.len(), became.aside.len()), (3, 0));
    }

    // what is not committed is not there
    let mut tx = pool.begin().await.unwrap();
    let open: uuid::Uuid =
        sqlx::query_scalar("select postrider.record('t.made', 'o/1')").fetch_one(&mut *tx).await.unwrap();
    relay(pool, false).await;
    assert_eq!(proof::await_fanout(pool, EventId::from_uuid(open), Duration::from_millis(20)).await.unwrap(), None);
    tx.commit().await.unwrap();
    relay(pool, false).await;
    assert_eq!(proof::await_fanout(pool, EventId::from_uuid(open), SOON).await.unwrap().unwrap().jobs.len(), 3);
}

/// A log of sixty events in six cuts, two of which are slices of one window.
async fn logged() -> TestDb {
    let db = declared().await;
    let pool = db.pool();
    for most in [100, 7, 100, 100] {
        record(pool, 15).await;
        loop {
            let sql = "select more from postrider.relay($1)";
            if !sqlx::query_scalar::<_, bool>(sql).bind(most).fetch_one(pool).await.unwrap() {
                break;
            }
        }
    }
    db
}

#[tokio::test]
async fn verify_counts_what_is_there_and_finds_each_damage() {
    let db = logged().await;
    let pool = db.pool();
    let whole = verified(pool).await;
    assert!(whole.is_whole() && whole.findings.is_empty(), "{whole:?}");
    assert_eq!((whole.committed, whole.fanned_out, whole.jobs, whole.cuts), (60, 60, 180, 7));
    assert_eq!((whole.unchecked_events, whole.unchecked_jobs, whole.passes), (0, 0, Some((1, 7))));

    // what was damaged, and what is found of it: missing, twice, broken, altered
    let any = "(select min(seq) from postrider.event where subject = 'o/9')";
    let damages = [
        (format!("delete from postrider.event where seq = {any}"), (1, 0, 0, 1)),
        (format!("update postrider.event set data = '0' where seq = {any}"), (0, 0, 0, 1)),
        (format!("update postrider.event set subject = 'o/8' where seq = {any}"), (0, 0, 0, 1)),
        (format!("update postrider.event set occurred_at = occurred_at + interval '1 us' where seq = {any}"), (0, 0, 0, 1)),
        // an event that each row rightly knows nothing of
        (
            format!(
                "insert into postrider.event select (jsonb_populate_record(e, jsonb_build_object('xid', '3', 'seq', e.seq + 1000))).*
                   from postrider.event e where e.seq = {any}"
            ),
            (1, 0, 0, 0),
        ),
        ("delete from postrider.cut where no = 4".to_owned(), (0, 0, 1, 0)),
        ("delete from postrider.cut where no = 7".to_owned(), (0, 0, 1, 0)),
        ("update postrider.cut set n = n + 1, events_total = events_total + 1 where no = 7".to_owned(), (0, 0, 1, 0)),
        (format!("delete from postrider.job where event_seq = {any}"), (3, 0, 0, 1)),
        (
            format!(
                "insert into postrider.job select (jsonb_populate_record(j, jsonb_build_object('id', j.id + 4))).* from postrider.job j
                  where event_seq = {any} and not exists (select from postrider.job k where k.id = j.id + 4)
                  union all select (jsonb_populate_record(j, jsonb_build_object('id', j.id + 400000))).* from postrider.job j
                  where event_seq = {any} limit 1"
            ),
            (0, 1, 1, 0),
        ),
    ];
    for (damage, (missing, twice, broken, altered)) in damages {
        let mut tx = pool.begin().await.unwrap();
        sqlx::raw_sql(AssertSqlSafe(damage.clone())).execute(&mut *tx).await.unwrap();
        let sql = "select format('%s %s %s %s', missing, twice, broken, altered) from postrider.verify()";
        let found: String = sqlx::query_scalar(sql).fetch_one(&mut *tx).await.unwrap();
        assert_eq!(found, format!("{missing} {twice} {broken} {altered}"), "{damage}");
        tx.rollback().await.unwrap();
    }
    assert!(verified(pool).await.is_whole());
}

#[tokio::test]
async fn verify_still_tells_when_cuts_were_joined_data_was_erased_and_history_is_gone() {
    let db = logged().await;
    let pool = db.pool();
    let first: uuid::Uuid =
        sqlx::query_scalar("select id from postrider.event order by seq limit 1").fetch_one(pool).await.unwrap();
    let first = EventId::from_uuid(first);
    assert_eq!(proof::erase(pool, first, "").await.unwrap_err().code(), Some(Code::Option));
    assert!(proof::erase(pool, first, "the customer asked for it").await.unwrap());
    assert!(!proof::erase(pool, first, "again").await.unwrap());
    assert_eq!(text(pool, "select data::text from postrider.event order by seq limit 1").await, "{}");
    let unrelayed = record(pool, 1).await[0];
    assert_eq!(proof::erase(pool, unrelayed, "too early").await.unwrap_err().code(), Some(Code::Option));
    relay(pool, false).await;
    assert!(verified(pool).await.is_whole());

    // three minutes of long ago become one row each
    run(pool, "update postrider.cut set at = date_trunc('minute', at) - interval '3 hours' + no / 3 * interval '1 minute' where no > 1").await;
    assert_eq!(number(pool, "select count(*) from postrider.cut").await, 8);
    run(pool, "select postrider.housekeep()").await;
    let rows = "select string_agg(format('%s-%s:%s', from_no, no, n), ' ' order by no) from postrider.cut";
    assert_eq!(text(pool, rows).await, "1-1:0 2-2:15 3-5:15 6-8:31");
    let whole = verified(pool).await;
    assert!(whole.is_whole(), "{whole:?}");
    assert_eq!((whole.committed, whole.jobs, whole.cuts), (61, 183, 4));
    record(pool, 2).await;
    relay(pool, false).await;
    assert!(verified(pool).await.is_whole(), "the next row follows from a joined one");
    let mut tx = pool.begin().await.unwrap();
    sqlx::raw_sql("update postrider.event set data = '0' where seq = (select max(seq) - 20 from postrider.event)")
        .execute(&mut *tx)
        .await
        .unwrap();
    let altered: i64 = sqlx::query_scalar("select altered from postrider.verify()").fetch_one(&mut *tx).await.unwrap();
    assert_eq!(altered, 1, "an event of a joined row");
    tx.rollback().await.unwrap();

    // what retention took is said to be unchecked, and is not missing
    run(pool, "insert into postrider.retired (class, first, until, ended_by) values (2, 0, 1, clock_timestamp())")
        .await;
    run(pool, "delete from postrider.job").await;
    let whole = verified(pool).await;
    assert!(whole.is_whole(), "{whole:?}");
    assert_eq!((whole.jobs, whole.unchecked_jobs), (0, 189));
    run(pool, "alter table postrider.event detach partition postrider.event_e0; drop table postrider.event_e0").await;
    let whole = verified(pool).await;
    assert!(whole.is_whole(), "{whole:?}");
    assert_eq!((whole.committed, whole.unchecked_events), (0, 63));
}

#[tokio::test]
async fn verify_knows_the_jobs_that_a_later_subscription_was_handed() {
    let db = logged().await;
    let pool = db.pool();
    run(pool, "select postrider.put_subscription('s.later', array['t.made'], 's.one', start => 'beginning')").await;
    for _ in 0..10 {
        run(pool, "select postrider.relay(100)").await;
        run(pool, "select postrider.hand_over(10)").await;
    }
    let whole = verified(pool).await;
    assert!(whole.is_whole(), "{whole:?}");
    assert_eq!((whole.committed, whole.jobs), (60, 240));
    run(pool, "delete from postrider.job where id = (select max(id) from postrider.job)").await;
    assert_eq!(verified(pool).await.missing, 1);
}

/// A kind that leaves the database and one that does not, one subscription each.
async fn outbound(db: &TestDb, instance: Option<&str>) -> Running {
    let done = || handler(|_, _| std::future::ready(Ok(Verdict::Complete)));
    let kinds = [
        Kind::component(KindSpec::new("webhook.probe")).handler(done()),
        Kind::spec(KindSpec::new("k.inside")).handler(done()),
    ];
    let settings = Settings { beat: Duration::from_millis(100), ..Settings::default() };
    let mut builder = Bus::builder(db.pool().clone()).app("shop").types(["t.made"]).kinds(kinds).settings(settings);
    if let Some(instance) = instance {
        builder = builder.instance(instance);
    }
    let bus = builder.build().await.unwrap();
    for (name, kind) in [("s.out", "webhook.probe"), ("s.in", "k.inside")] {
        run(db.pool(), format!("select postrider.put_subscription('{name}', array['t.made'], '{kind}')")).await;
    }
    bus.start().unwrap()
}

async fn ended(pool: &PgPool, kind: &str) -> i64 {
    let sql = format!(
        "select count(*) from postrider.done d join postrider.job j on j.class = d.class and j.id = d.id
          where j.kind = '{kind}' and d.state = 2 and d.attempt = 1"
    );
    number(pool, &sql).await
}

async fn until_ended(pool: &PgPool, kind: &str, n: i64) {
    until("these jobs have ended", SOON, async || (ended(pool, kind).await == n).then_some(())).await;
}

#[tokio::test]
async fn y9_paused_outbound_work_waits_visibly_and_goes_on_without_an_attempt_lost() {
    let db = TestDb::fresh().await;
    let pool = db.pool();
    let running = outbound(&db, None).await;
    proof::pause_outbound(pool, "a drill").await.unwrap();
    record(pool, 20).await;
    until_ended(pool, "k.inside", 20).await;
    let held = "select count(*) from postrider.job j where kind = 'webhook.probe'
                   and not exists (select from postrider.done d where d.class = j.class and d.id = j.id)";
    until("the jobs are there", SOON, async || (number(pool, held).await == 20).then_some(())).await;
    until("the worker has met them", SOON, async || {
        (number(pool, "select count(*) from postrider.parked where key = 'kind:webhook.probe'").await == 20)
            .then_some(())
    })
    .await;
    let alert = inspect::alerts(pool).await.unwrap().into_iter().find(|alert| alert.name == "outbound_held").unwrap();
    assert_eq!(alert.severity, Severity::Critical);
    assert!(alert.says.contains("a drill"), "{}", alert.says);
    let why = text(pool, "select postrider.explain(id) from postrider.job where kind = 'webhook.probe' limit 1").await;
    assert!(why.starts_with("Outbound work is paused since"), "{why}");
    assert_eq!(ended(pool, "webhook.probe").await, 0);

    assert!(proof::resume_outbound(pool).await.unwrap());
    until_ended(pool, "webhook.probe", 20).await;
    assert!(!proof::resume_outbound(pool).await.unwrap());
    running.stop(SOON).await;
}

#[tokio::test]
async fn y9_under_another_instance_name_outbound_work_is_held_and_the_rest_goes_on() {
    let db = TestDb::fresh().await;
    let pool = db.pool();
    // the first name becomes the database's own
    outbound(&db, Some("production")).await.stop(SOON).await;
    let running = outbound(&db, Some("staging")).await;
    record(pool, 10).await;
    until_ended(pool, "k.inside", 10).await;
    let alert = inspect::alerts(pool).await.unwrap().into_iter().find(|alert| alert.name == "outbound_held").unwrap();
    assert_eq!((alert.severity, alert.subject.as_str()), (Severity::Critical, "instance staging"));
    assert!(alert.says.contains("shop") && alert.says.contains("production"), "{}", alert.says);
    assert_eq!(ended(pool, "webhook.probe").await, 0);
    running.stop(SOON).await;

    let refused = proof::name_instance(pool, "Not A Name").await.unwrap_err();
    assert!(matches!(&refused, Error::Refused(refused) if refused.field == "instance"), "{refused:?}");
    proof::name_instance(pool, "staging").await.unwrap();
    let running = outbound(&db, Some("staging")).await;
    until_ended(pool, "webhook.probe", 10).await;
    running.stop(SOON).await;
    assert!(inspect::alerts(pool).await.unwrap().iter().all(|alert| alert.name != "outbound_held"));
}

/// An engine whose jobs are rows of a table of the application: what the table refuses, the engine refuses.
#[derive(Debug)]
struct Table(PgJobs);

impl Jobs for Table {
    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }

    fn enqueue<'a>(&'a self, tx: Option<&'a mut dyn Tx>, jobs: &'a [NewJob]) -> Fut<'a, Vec<Enqueued>> {
        self.0.enqueue(tx, jobs)
    }

    fn fan_out<'a>(&'a self, tx: &'a mut dyn Tx, jobs: &'a [NewJob]) -> Fut<'a, Vec<Enqueued>> {
        Box::pin(async move {
            let sources = || jobs.iter().filter_map(|job| job.source.as_ref());
            let subjects: Vec<String> = sources().map(|source| source.event.subject.clone()).collect();
            let subscriptions: Vec<i64> = sources().map(|source| source.subscription).collect();
            sqlx::query("insert into public.elsewhere select * from unnest($1::text[], $2::bigint[])")
                .bind(subjects)
                .bind(subscriptions)
                .execute(tx.as_sqlx().unwrap())
                .await
                .map_err(|source| Error::Database { statement: "elsewhere", source })?;
            Ok(Vec::new())
        })
    }

    fn act<'a>(&'a self, tx: Option<&'a mut dyn Tx>, act: Act, ids: &'a [JobId]) -> Fut<'a, Vec<Effect>> {
        self.0.act(tx, act, ids)
    }

    fn plan<'a>(&'a self, act: Act, filter: &'a Filter) -> Fut<'a, Plan> {
        self.0.plan(act, filter)
    }

    fn step<'a>(&'a self, plan: &'a Plan, after: Option<&'a JobId>) -> Fut<'a, Step> {
        self.0.step(plan, after)
    }

    fn pause<'a>(&'a self, queue: &'a str, paused: bool) -> Fut<'a, ()> {
        self.0.pause(queue, paused)
    }

    fn wait<'a>(&'a self, id: &'a JobId, timeout: Duration) -> Fut<'a, Waited> {
        self.0.wait(id, timeout)
    }
}

#[tokio::test]
async fn y5_what_another_engine_refuses_is_set_aside_and_the_rest_flows_until_it_is_requeued() {
    let db = declared().await;
    let pool = db.pool();
    let two = number(pool, "select id from postrider.subscription where name = 's.two'").await;
    run(
        pool,
        format!(
            "create table public.elsewhere (subject text not null, subscription bigint not null,
                 constraint picky check (not (subject like '%7' and subscription = {two})))"
        ),
    )
    .await;
    record(pool, 300).await;
    let settings = Settings { work: false, housekeeping: false, ..Settings::default() };
    let engine = Arc::new(Table(PgJobs::new(pool.clone())));
    let builder = Bus::builder(pool.clone()).engine(engine).settings(settings);
    let running = builder.build().await.unwrap().start().unwrap();
    // 7, 17, … 297
    until("everything else is there", SOON, async || {
        (number(pool, "select count(*) from public.elsewhere").await == 900 - 30).then_some(())
    })
    .await;
    assert_eq!(
        text(pool, "select format('%s %s %s', sum(n), sum(jobs), sum(aside)) from postrider.cut").await,
        "300 870 30"
    );
    let aside = proof::poison(pool, 100).await.unwrap();
    assert_eq!(aside.len(), 30);
    assert!(aside[0].error.contains("picky"), "{}", aside[0].error);
    run(pool, "alter table public.elsewhere drop constraint picky").await;
    assert_eq!(proof::requeue(pool, None, None).await.unwrap(), 30);
    until("nothing is aside", SOON, async || proof::poison(pool, 1).await.unwrap().is_empty().then_some(())).await;
    running.stop(SOON).await;
    let each =
        "select count(*) from (select from public.elsewhere group by subject, subscription having count(*) = 1) x";
    assert_eq!((number(pool, each).await, number(pool, "select count(*) from public.elsewhere").await), (900, 900));
    let whole = verified(pool).await;
    assert!(whole.is_whole(), "{whole:?}");
    assert_eq!((whole.committed, whole.jobs, whole.unchecked_jobs), (300, 0, 870));
}
