//! A job waits, runs, fails, waits again and ends: through the public face, on a real Postgres.
#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test asks the database itself")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use postrider::inspect;
use postrider::{
    Answer, Bus, Context, Error, Filter, Fut, Handler, Inspector as _, Job, JobId, JobView, Kind, KindSpec, NewEvent,
    NewJob, Payload, PgInspector, Recorder, Retry, Running, Settings, Stopped, Subscription, Tx, Unique, Verdict,
    handler,
};
use postrider_testkit::TestDb;
use sqlx::PgPool;
use tokio::sync::{Semaphore, mpsc};

const GRACE: Duration = Duration::from_secs(10);

fn fast() -> Settings {
    Settings { beat: Duration::from_millis(100), dead_after: Duration::from_secs(2), ..Settings::default() }
}

fn quick(name: &str) -> KindSpec {
    let retry = Retry::Steps(vec![Duration::from_millis(10)]);
    KindSpec { retry, max_attempts: 3, ..KindSpec::new(name) }
}

fn empty() -> Payload {
    Payload::parse("{}").unwrap()
}

async fn start(pool: &PgPool, kinds: impl IntoIterator<Item = Kind>) -> (Bus, Running) {
    let bus = Bus::builder(pool.clone()).kinds(kinds).settings(fast()).build().await.unwrap();
    let running = bus.start().unwrap();
    (bus, running)
}

async fn enqueue(bus: &Bus, job: NewJob) -> JobId {
    bus.jobs().enqueue(None, &[job]).await.unwrap().remove(0).id
}

/// Polls until a job has a state; the deadline is generous and its end is a failure.
async fn until(pool: &PgPool, id: &JobId, state: &str) -> JobView {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
    loop {
        let row = PgInspector::new(pool.clone()).job(id).await.unwrap().unwrap();
        if row.state.name() == state {
            return row;
        }
        assert!(tokio::time::Instant::now() < deadline, "{row:?} never became {state}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn a_failed_attempt_may_ask_for_a_longer_wait_than_the_schedules_and_spends_its_attempt() {
    let db = TestDb::fresh().await;
    let kind = Kind::spec(quick("t.wait")).handler(handler(|job, _| async move {
        let after = Duration::from_secs(if job.attempt == 1 { 3_600 } else { 0 });
        Ok(Verdict::Retry { reason: "asked to wait".into(), after })
    }));
    let (bus, running) = start(db.pool(), [kind]).await;
    let id = enqueue(&bus, NewJob::new("t.wait", empty())).await;
    let row = until(db.pool(), &id, "retryable").await;
    assert_eq!((row.attempt, row.reason.as_deref()), (1, Some("asked to wait")));
    let wait: f64 =
        sqlx::query_scalar("select extract(epoch from run_at - clock_timestamp())::float8 from postrider.later")
            .fetch_one(db.pool())
            .await
            .unwrap();
    assert!((3_500.0..3_600.0).contains(&wait), "{wait}");
    // an hour later
    sqlx::query("update postrider.later set run_at = clock_timestamp()").execute(db.pool()).await.unwrap();
    assert_eq!(until(db.pool(), &id, "discarded").await.attempt, 3);
    running.stop(GRACE).await;
}

#[tokio::test]
async fn a11_whatever_a_handler_says_the_batch_that_it_was_in_completes() {
    let db = TestDb::fresh().await;
    let bad = KindSpec { max_attempts: 1, ..quick("t.bad") };
    let bad = Kind::spec(bad).handler(handler(|_, _| async { Err("\0\u{fffe} ".repeat(3_000_000).into()) }));
    let fine = Kind::new("t.fine").handler(handler(|_, _| async { Ok(Verdict::Complete) }));
    let (bus, running) = start(db.pool(), [bad, fine]).await;
    let jobs: Vec<NewJob> = (0..20).map(|n| NewJob::new(if n == 10 { "t.bad" } else { "t.fine" }, empty())).collect();
    let ids = bus.jobs().enqueue(None, &jobs).await.unwrap();
    for (n, enqueued) in ids.iter().enumerate() {
        let row = until(db.pool(), &enqueued.id, if n == 10 { "discarded" } else { "completed" }).await;
        if n == 10 {
            assert!(row.reason.unwrap().ends_with("… (cut)"));
        }
    }
    running.stop(GRACE).await;
}

#[tokio::test]
async fn y4_every_matching_subscription_gets_every_event_of_its_owner_or_of_all() {
    let db = TestDb::fresh().await;
    let (sender, mut seen) = mpsc::unbounded_channel();
    let on = |name: &'static str| {
        let sender = sender.clone();
        handler(move |job, _| {
            let event = job.event.clone().unwrap();
            sender.send((name, event.r#type, event.subject, event.data.as_str().to_owned())).unwrap();
            async { Ok(Verdict::Complete) }
        })
    };
    let mut acme = postrider::SubscriptionSpec::new("s.acme", ["order.*"]);
    acme.owner = "acme".into();
    acme.kind = "s.exact".into();
    let bus = Bus::builder(db.pool().clone())
        .types(["order.paid", "order.paid.twice", "user.born"])
        .subscriptions([
            Subscription::new("s.exact", ["order.paid"]).handler(on("exact")),
            Subscription::new("s.deep", ["order.**", "nothing.*"]).handler(on("deep")),
            Subscription::spec(acme),
        ])
        .settings(fast())
        .build()
        .await
        .unwrap();
    let running = bus.start().unwrap();
    let mut tx = db.pool().begin().await.unwrap();
    for (kind, subject, owner) in
        [("order.paid", "1", ""), ("order.paid", "2", "acme"), ("order.paid.twice", "3", ""), ("user.born", "4", "")]
    {
        let event =
            NewEvent { owner: owner.into(), ..NewEvent::new(kind, subject, Payload::parse("[ 1.0 ]").unwrap()) };
        bus.recorder().record(&mut *tx, &event).await.unwrap();
    }
    tx.commit().await.unwrap();
    let mut got = Vec::new();
    for _ in 0..6 {
        let (name, kind, subject, data) = seen.recv().await.unwrap();
        assert_eq!(data, "[ 1.0 ]");
        got.push((name, kind, subject));
    }
    got.sort();
    let expected: Vec<(&str, String, String)> = [
        ("deep", "order.paid", "1"),
        ("deep", "order.paid", "2"),
        ("deep", "order.paid.twice", "3"),
        ("exact", "order.paid", "1"),
        ("exact", "order.paid", "2"),
        ("exact", "order.paid", "2"), // once for itself, once for the owner's subscription of the same kind
    ]
    .map(|(name, kind, subject)| (name, kind.to_owned(), subject.to_owned()))
    .into();
    assert_eq!(got, expected);
    assert_eq!(running.stop(GRACE).await, Stopped::Drained);
    assert!(seen.try_recv().is_err());
    let overview = inspect::overview(db.pool()).await.unwrap();
    assert_eq!((overview.relayed, overview.fanned_out, overview.ready, overview.running), (4, 6, 0, 0));
}

struct Watching {
    fail_claims: AtomicUsize,
}

const NOTE: postrider::Statement = postrider::Statement {
    name: "note",
    sql: "insert into public.note (id, lease) values ($1::text::bigint, $2::bigint)",
};

impl Handler for Watching {
    fn handle<'a>(&'a self, job: &'a Job, _: &'a Context) -> Answer<'a> {
        Box::pin(async move {
            assert!(job.lease > 0);
            Ok(Verdict::Complete)
        })
    }
    fn watches_claims(&self) -> bool {
        true
    }
    fn claimed<'a>(&'a self, tx: &'a mut dyn Tx, jobs: &'a [&'a Job]) -> Fut<'a, ()> {
        Box::pin(async move {
            for job in jobs {
                tx.run(&NOTE, &[postrider::Arg::Text(job.id.as_str()), postrider::Arg::Int(job.lease)]).await?;
            }
            if self.fail_claims.fetch_sub(1, Ordering::SeqCst) > 0 {
                return Err(Error::Schema("not this time".into()));
            }
            self.fail_claims.store(0, Ordering::SeqCst);
            Ok(())
        })
    }
}

#[tokio::test]
async fn what_a_handler_writes_at_its_claim_commits_with_the_claim_or_not_at_all() {
    let db = TestDb::fresh().await;
    sqlx::query("create table public.note (id bigint not null, lease bigint not null)")
        .execute(db.pool())
        .await
        .unwrap();
    let kind = Kind::new("t.watch").handler(Arc::new(Watching { fail_claims: AtomicUsize::new(2) }));
    let (bus, running) = start(db.pool(), [kind]).await;
    let id = enqueue(&bus, NewJob::new("t.watch", empty())).await;
    assert_eq!(until(db.pool(), &id, "completed").await.attempt, 1, "a claim that failed spent nothing");
    let notes: i64 = sqlx::query_scalar(
        "select count(*) from public.note n join postrider.done d on d.id = n.id and d.lease = n.lease",
    )
    .fetch_one(db.pool())
    .await
    .unwrap();
    assert_eq!(notes, 1);
    running.stop(GRACE).await;
}

#[tokio::test]
async fn z3_starting_twice_is_refused_and_a_dropped_worker_leaves_its_work_to_others() {
    let db = TestDb::fresh().await;
    let (sender, mut started) = mpsc::unbounded_channel();
    let hangs = Kind::new("t.work").handler(handler(move |_, _| {
        sender.send(()).unwrap();
        async { std::future::pending().await }
    }));
    let (bus, running) = start(db.pool(), [hangs]).await;
    bus.start().unwrap_err();
    let id = enqueue(&bus, NewJob::new("t.work", empty())).await;
    started.recv().await.unwrap();
    drop(running);
    let works = Kind::new("t.work").handler(handler(|_, _| async { Ok(Verdict::Complete) }));
    let (_bus, running) = start(db.pool(), [works]).await;
    assert_eq!(until(db.pool(), &id, "completed").await.attempt, 1);
    running.stop(GRACE).await;
}

#[tokio::test]
async fn z6_every_fault_of_a_declaration_is_told_at_once() {
    let db = TestDb::fresh().await;
    let none = || handler(|_, _| async { Ok(Verdict::Complete) });
    let error = Bus::builder(db.pool().clone())
        .types(["Bad Type", "order.paid", "order.paid", "postrider.mine"])
        .kinds([
            Kind::new("").handler(none()),
            Kind::spec(KindSpec { max_attempts: 0, ..KindSpec::new("k.zero") }),
            Kind::spec(KindSpec { priority: 9, ..KindSpec::new("k.nine") }),
            Kind::new("webhook.deliver"),
        ])
        .subscriptions([Subscription::new("s.none", Vec::<String>::new()), Subscription::new("s.bad", ["a*"])])
        .concurrency("nowhere", 3)
        .settings(Settings { dead_after: Duration::from_secs(1), ..Settings::default() })
        .build()
        .await
        .unwrap_err();
    let Error::Declarations(refused) = error else { panic!("{error:?}") };
    let fields: Vec<&str> = refused.iter().map(|r| r.field.as_str()).collect();
    assert_eq!(
        fields,
        [
            "types",
            "types",
            "type",
            "type",
            "type",
            "kind",
            "max_attempts",
            "priority",
            "kind",
            "concurrency",
            "dead_after"
        ]
    );
    let declared: i64 =
        sqlx::query_scalar("select count(*) from postrider.event_type").fetch_one(db.pool()).await.unwrap();
    assert_eq!(declared, 0);
}

#[tokio::test]
async fn e9_a_bad_option_of_enqueue_names_its_field_and_writes_nothing() {
    let db = TestDb::fresh().await;
    Bus::builder(db.pool().clone()).kinds([Kind::new("mail.send")]).build().await.unwrap();
    for (call, code, field) in [
        ("postrider.enqueue('mail.sent')", "PR004", "kind"),
        ("postrider.enqueue('webhook.deliver')", "PR004", "kind"),
        ("postrider.enqueue('mail.send', priority => 0)", "PR005", "priority"),
        ("postrider.enqueue('mail.send', max_attempts => 1001)", "PR005", "max_attempts"),
        ("postrider.enqueue('mail.send', queue => 'A B')", "PR001", "queue"),
        ("postrider.enqueue('mail.send', owner => E'a\\nb')", "PR001", "owner"),
        ("postrider.enqueue('mail.send', '\"\\u0000\"')", "PR003", "args"),
        ("postrider.enqueue('mail.send', null)", "PR003", "args"),
        ("postrider.enqueue_many('[{\"kind\":\"mail.send\",\"delay\":1}]')", "PR005", "delay"),
        ("postrider.enqueue_many('{}')", "PR003", "jobs"),
    ] {
        let error =
            sqlx::query(sqlx::AssertSqlSafe(format!("select * from {call}"))).execute(db.pool()).await.unwrap_err();
        let error = error.as_database_error().unwrap();
        let pg = error.downcast_ref::<sqlx::postgres::PgDatabaseError>();
        assert_eq!((pg.code(), pg.column(), pg.hint().is_some()), (code, Some(field), true), "{call}");
    }
    let jobs: i64 = sqlx::query_scalar("select count(*) from postrider.job").fetch_one(db.pool()).await.unwrap();
    assert_eq!(jobs, 0);
}

#[tokio::test]
async fn z8_no_transaction_of_ours_is_open_while_a_handler_runs() {
    let db = TestDb::fresh().await;
    let (sender, mut started) = mpsc::unbounded_channel();
    let gate = Arc::new(Semaphore::new(0));
    let wait = Arc::clone(&gate);
    let kind = Kind::new("t.gate").handler(handler(move |_, _| {
        sender.send(()).unwrap();
        let wait = Arc::clone(&wait);
        async move {
            wait.acquire().await.unwrap().forget();
            Ok(Verdict::Complete)
        }
    }));
    let (bus, running) = start(db.pool(), [kind]).await;
    let id = enqueue(&bus, NewJob::new("t.gate", empty())).await;
    started.recv().await.unwrap();
    let open: i64 = sqlx::query_scalar(
        "select count(*) from pg_stat_activity where datname = current_database() and state like 'idle in transaction%'",
    )
    .fetch_one(db.pool())
    .await
    .unwrap();
    assert_eq!(open, 0);
    gate.add_permits(1);
    until(db.pool(), &id, "completed").await;
    running.stop(GRACE).await;
}

#[tokio::test]
async fn pr010_our_statements_refuse_another_isolation_level() {
    let db = TestDb::fresh().await;
    for call in [
        "postrider.relay(10)",
        "postrider.claim(gen_random_uuid(), 1, 'default', '{}', 1, '{2}', '{0}', '{0}')",
        "postrider.finish(gen_random_uuid(), '{}', '{}', '{}', '{}', '{}')",
        "postrider.tick(gen_random_uuid(), '{}')",
    ] {
        let mut tx = db.pool().begin().await.unwrap();
        sqlx::query("set transaction isolation level repeatable read").execute(&mut *tx).await.unwrap();
        let error =
            sqlx::query(sqlx::AssertSqlSafe(format!("select * from {call}"))).execute(&mut *tx).await.unwrap_err();
        assert_eq!(error.as_database_error().unwrap().code().unwrap(), "PR010", "{call}");
    }
    // a role whose default is another one does not trouble a worker
    sqlx::query(sqlx::AssertSqlSafe(format!(
        "alter database {} set default_transaction_isolation = 'serializable'",
        db.name()
    )))
    .execute(db.pool())
    .await
    .unwrap();
    let fresh = PgPool::connect(db.url()).await.unwrap();
    let kind = Kind::new("t.fine").handler(handler(|_, _| async { Ok(Verdict::Complete) }));
    let (bus, running) = start(&fresh, [kind]).await;
    let id = enqueue(&bus, NewJob::new("t.fine", empty())).await;
    until(db.pool(), &id, "completed").await;
    running.stop(GRACE).await;
    let mut tx = db.pool().begin().await.unwrap();
    sqlx::query("insert into postrider.event_type (name, declared_by) values ('a.b', '')")
        .execute(&mut *tx)
        .await
        .unwrap();
    tx.commit().await.unwrap();
    let mut tx = fresh.begin().await.unwrap();
    Recorder::new().record(&mut *tx, &NewEvent::new("a.b", "s", empty())).await.unwrap();
    tx.commit().await.unwrap();
}

#[tokio::test]
async fn u1_each_event_has_a_job_of_its_own_although_its_kind_is_unique() {
    let db = TestDb::fresh().await;
    let spec = KindSpec { unique: Some(Unique::UntilDone), ..KindSpec::new("t.once") };
    let subscription = Subscription::new("t.once", ["order.*"]).kind(spec);
    let bus =
        Bus::builder(db.pool().clone()).types(["order.paid"]).subscriptions([subscription]).build().await.unwrap();
    let mut connection = db.pool().acquire().await.unwrap();
    for _ in 0..2 {
        let event = NewEvent::new("order.paid", "order/42", empty());
        bus.recorder().record(&mut *connection, &event).await.unwrap();
    }
    sqlx::query("select postrider.relay(10)").execute(&mut *connection).await.unwrap();
    let page = PgInspector::new(db.pool().clone()).jobs(&Filter::default(), None, 10).await.unwrap();
    assert_eq!(page.jobs.len(), 2);
}

/// Whatever the first one of the call with that key is answered with.
#[tokio::test]
async fn e11_a_key_that_comes_twice_in_one_call_is_answered_with_one_id() {
    let db = TestDb::fresh().await;
    let bus = Bus::builder(db.pool().clone()).kinds([Kind::new("t.a")]).build().await.unwrap();
    let alike = NewJob { unique: Some(Unique::UntilDone), ..NewJob::new("t.a", empty()) };
    let there = bus.jobs().enqueue(None, std::slice::from_ref(&alike)).await.unwrap().remove(0);
    let keyed = |job: NewJob, key: &str| NewJob { idempotency_key: Some(key.to_owned()), ..job };
    let plain = || NewJob::new("t.a", empty());
    let asked = [keyed(alike, "a"), keyed(plain(), "a"), keyed(plain(), "b"), plain(), keyed(plain(), "b")];
    let made = bus.jobs().enqueue(None, &asked).await.unwrap();
    assert_eq!((&made[0].id, &made[1].id, &made[4].id), (&there.id, &there.id, &made[2].id));
    assert_eq!(made.iter().map(|one| one.fresh).collect::<Vec<_>>(), [false, false, true, true, false]);
    let again = bus.jobs().enqueue(None, &asked[..3]).await.unwrap();
    let ids = |made: &[postrider::Enqueued]| made.iter().map(|one| one.id.to_string()).collect::<Vec<_>>();
    assert_eq!(ids(&again), ids(&made[..3]));
    assert!(again.iter().all(|one| !one.fresh));
    let page = PgInspector::new(db.pool().clone()).jobs(&Filter::default(), None, 10).await.unwrap();
    assert_eq!(page.jobs.len(), 3);
}

#[tokio::test]
async fn o9_a_limit_that_was_in_somebodys_hands_when_its_job_ended_lets_the_next_one_go_without_a_beat() {
    let db = TestDb::fresh().await;
    let (sender, mut started) = mpsc::unbounded_channel();
    let gate = Arc::new(Semaphore::new(0));
    let wait = Arc::clone(&gate);
    let kind = Kind::new("t.gate").handler(handler(move |_, _| {
        sender.send(()).unwrap();
        let wait = Arc::clone(&wait);
        async move {
            wait.acquire().await.unwrap().forget();
            Ok(Verdict::Complete)
        }
    }));
    // no beat comes after the first one
    let beat = Duration::from_mins(10);
    let settings = Settings { beat, dead_after: beat * 3, housekeeping: false, ..Settings::default() };
    let bus = Bus::builder(db.pool().clone()).kinds([kind]).settings(settings).build().await.unwrap();
    sqlx::query("select postrider.set_limit('default', 'k', 1)").execute(db.pool()).await.unwrap();
    let running = bus.start().unwrap();
    let one = || NewJob { limit_key: Some("k".to_owned()), ..NewJob::new("t.gate", empty()) };
    let ids = [enqueue(&bus, one()).await, enqueue(&bus, one()).await];
    started.recv().await.unwrap();
    number_is(db.pool(), "select count(*) from postrider.parked", 1).await;
    let mut hands = db.pool().begin().await.unwrap();
    sqlx::query("select from postrider.lane where key = 'limit:k' for update").execute(&mut *hands).await.unwrap();
    gate.add_permits(2);
    number_is(db.pool(), "select count(*) from postrider.done", 1).await;
    hands.commit().await.unwrap();
    tokio::time::timeout(Duration::from_secs(30), started.recv()).await.expect("the next one goes");
    until(db.pool(), &ids[1], "completed").await;
    running.stop(GRACE).await;
}

#[tokio::test]
async fn o9_a_job_that_completes_in_its_own_transaction_lets_the_next_of_its_limit_go_although_nothing_is_said() {
    let db = TestDb::fresh().await;
    let (sender, mut started) = mpsc::unbounded_channel();
    let gate = Arc::new(Semaphore::new(0));
    let wait = Arc::clone(&gate);
    let kind = Kind::new("t.gate").handler(handler(move |_, cx: Context| {
        sender.send(()).unwrap();
        let wait = Arc::clone(&wait);
        async move {
            wait.acquire().await.unwrap().forget();
            cx.begin().await?.commit(None).await?;
            Ok(Verdict::Complete)
        }
    }));
    // no notification is sent, and no beat comes after the first one
    let mute = "do $$ begin execute format('alter database %I set postrider.wake = off', current_database()); end $$";
    sqlx::query(mute).execute(db.pool()).await.unwrap();
    let beat = Duration::from_mins(10);
    let settings = Settings { beat, dead_after: beat * 3, housekeeping: false, ..Settings::default() };
    let bus = Bus::builder(db.pool().clone()).kinds([kind]).settings(settings).build().await.unwrap();
    sqlx::query("select postrider.set_limit('default', 'k', 1)").execute(db.pool()).await.unwrap();
    let one = || NewJob { limit_key: Some("k".to_owned()), ..NewJob::new("t.gate", empty()) };
    let ids = [enqueue(&bus, one()).await, enqueue(&bus, one()).await];
    let running = bus.start().unwrap();
    started.recv().await.unwrap();
    number_is(db.pool(), "select count(*) from postrider.parked", 1).await;
    // longer than an idle claimer looks by itself: what lets the next one go is the end of this one
    tokio::time::sleep(Duration::from_secs(2)).await;
    gate.add_permits(2);
    tokio::time::timeout(Duration::from_secs(30), started.recv()).await.expect("the next one goes");
    until(db.pool(), &ids[1], "completed").await;
    running.stop(GRACE).await;
}

/// Polls until a number is there.
async fn number_is(pool: &PgPool, sql: &'static str, n: i64) {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
    loop {
        let now: i64 = sqlx::query_scalar(sql).fetch_one(pool).await.unwrap();
        if now == n {
            return;
        }
        assert!(tokio::time::Instant::now() < deadline, "{sql}: {now}, not {n}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}
