//! Faults that befell others, in enqueuing, uniqueness and claiming: C13, C16, C18, C19, C22, C25, C48, C50. C14 is with the faults of workers.
#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test asks the database itself, and a failed helper is a failed test"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use postrider::{Enqueued, Kind, NewEvent, NewJob, Payload, Recorder, Timestamp, Unique};
use postrider_testkit::TestDb;
use postrider_testkit::conformance::{self, App, Native, Scene, doors, json};
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng, rngs::StdRng};
use sqlx::{AssertSqlSafe, PgPool};
use uuid::Uuid;

async fn declared() -> TestDb {
    let db = TestDb::fresh().await;
    let kinds = r#"{"app": "a", "types": [{"name": "a.b"}], "kinds": [{"name": "t.a", "max_attempts": 1000},
        {"name": "t.sync", "unique_mode": "one_running_one_waiting"}]}"#;
    sqlx::query("select postrider.declare($1::json)").bind(kinds).execute(db.pool()).await.unwrap();
    db
}

async fn number(pool: &PgPool, sql: &'static str) -> i64 {
    sqlx::query_scalar(sql).fetch_one(pool).await.unwrap()
}

/// (lease, job) of each job that is claimed.
async fn claim(pool: &PgPool, worker: Uuid, most: i32) -> Vec<(i64, i64)> {
    let sql = "select lease, id from postrider.claim($1, 1, 'default', array['t.a', 't.sync'], $2, array[2::smallint],
                array[0::smallint], array[0::bigint]) where lease is not null order by id";
    sqlx::query_as(sql).bind(worker).bind(most).fetch_all(pool).await.unwrap()
}

/// Ends attempts, all in one way; answers how many counted.
async fn finish(pool: &PgPool, worker: Uuid, held: &[(i64, i64)], outcome: i16) -> usize {
    let sql = "select lease, id from postrider.finish($1, $2, $3, $4, $5, $6)";
    let call = sqlx::query_as::<_, (i64, i64)>(sql)
        .bind(worker)
        .bind(held.iter().map(|h| h.0).collect::<Vec<_>>())
        .bind(held.iter().map(|h| h.1).collect::<Vec<_>>())
        .bind(vec![outcome; held.len()])
        .bind(vec![0_i64; held.len()])
        .bind(vec![(outcome != 1).then_some("because"); held.len()]);
    call.fetch_all(pool).await.unwrap().len()
}

async fn promote(pool: &PgPool) {
    sqlx::query("select postrider.promote(1000)").execute(pool).await.unwrap();
}

async fn beat(pool: &PgPool, worker: Uuid) {
    let report = r#"{"app": "a", "version": "1", "host": "h", "pid": 1, "queues": ["default"], "kinds": ["t.a", "t.sync"],
        "held": [], "settled": 0, "dead": []}"#;
    sqlx::query("select postrider.tick($1, $2::json)").bind(worker).bind(report).execute(pool).await.unwrap();
}

async fn enqueue(pool: &PgPool, kind: &str, args: &str) -> (i64, bool) {
    let sql = "select id, fresh from postrider.enqueue($1, $2::json)";
    sqlx::query_as(sql).bind(kind).bind(args).fetch_one(pool).await.unwrap()
}

/// Random claims, expiries, outcomes under tokens of now and of before, and retries of what has ended.
async fn tokens(pool: &PgPool, seed: u64) {
    let mut dice = StdRng::seed_from_u64(seed);
    let workers = [Uuid::new_v4(), Uuid::new_v4()];
    for n in 0..4 {
        enqueue(pool, "t.a", &n.to_string()).await;
    }
    let mut granted = BTreeSet::new();
    let mut current = BTreeMap::<i64, (Uuid, i64)>::new();
    let mut old = Vec::<(Uuid, i64, i64)>::new();
    for _ in 0..150 {
        let open: Vec<(i64, (Uuid, i64))> = current.iter().map(|(job, token)| (*job, *token)).collect();
        match dice.random_range(0..6) {
            0 | 1 => {
                let worker = *workers.choose(&mut dice).unwrap();
                for (lease, job) in claim(pool, worker, 2).await {
                    assert!(granted.insert((job, lease)), "seed {seed}: {lease} was granted twice for {job}");
                    assert_eq!(current.insert(job, (worker, lease)), None, "seed {seed}: {job} is held twice");
                }
            }
            2 => {
                let Some((_, (worker, lease))) = open.choose(&mut dice).copied() else { continue };
                sqlx::query("select postrider.put_back($1, false, false)").bind(lease).execute(pool).await.unwrap();
                old.extend(open.iter().filter(|o| o.1.1 == lease).map(|&(job, _)| (worker, lease, job)));
                current.retain(|_, token| token.1 != lease);
            }
            3 => {
                let Some((job, (worker, lease))) = open.choose(&mut dice).copied() else { continue };
                let outcome = dice.random_range(1..=6);
                assert_eq!(finish(pool, worker, &[(lease, job)], outcome).await, 1, "seed {seed}");
                current.remove(&job);
                old.push((worker, lease, job));
            }
            4 => {
                let Some(&(worker, lease, job)) = old.choose(&mut dice) else { continue };
                let outcome = dice.random_range(1..=6);
                let counted = finish(pool, worker, &[(lease, job)], outcome).await;
                assert_eq!(counted, 0, "seed {seed}: {lease} of {job} is over");
            }
            _ => {
                let sql = "select count(*) from postrider.done d, lateral postrider.retry(array[d.id]) r";
                number(pool, sql).await;
                promote(pool).await;
            }
        }
    }
    assert!(granted.len() > 20 && old.len() > 20, "seed {seed} did too little");
    for (job, (worker, lease)) in current {
        assert_eq!(finish(pool, worker, &[(lease, job)], 1).await, 1, "seed {seed}: the live one's counts");
    }
}

#[tokio::test]
async fn c13_each_token_is_granted_once_and_an_old_one_is_worth_nothing() {
    let db = declared().await;
    for seed in 0..6 {
        tokens(db.pool(), seed).await;
        sqlx::raw_sql("delete from postrider.ready; delete from postrider.later").execute(db.pool()).await.unwrap();
    }
}

#[tokio::test]
async fn c16_a_retry_and_a_ready_job_of_one_group_in_one_batch_hold_up_nobody() {
    let db = declared().await;
    let (pool, me) = (db.pool(), Uuid::new_v4());
    let (first, _) = enqueue(pool, "t.sync", "7").await;
    let held = claim(pool, me, 1).await;
    let (second, fresh) = enqueue(pool, "t.sync", "7").await;
    assert!(fresh, "one runs, one may wait");
    assert_eq!(finish(pool, me, &held, 2).await, 1);
    for n in 0..8 {
        enqueue(pool, "t.a", &n.to_string()).await;
    }
    promote(pool).await;
    let held = claim(pool, me, 10).await;
    let jobs: BTreeSet<i64> = held.iter().map(|h| h.1).collect();
    assert_eq!(held.len(), 9, "all but the one that is to come after");
    assert!(jobs.contains(&first) && !jobs.contains(&second));
    assert_eq!(claim(pool, me, 10).await, []);
    assert_eq!(finish(pool, me, &held, 1).await, 9);
    let held = claim(pool, me, 10).await;
    assert_eq!(held.iter().map(|h| h.1).collect::<Vec<_>>(), [second]);
    assert_eq!(finish(pool, me, &held, 1).await, 1);
    assert_eq!(number(pool, "select count(*) from postrider.uniq").await, 0, "nothing is left of the group");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c18_a_window_outlives_the_row_it_came_from() {
    conformance::unique::u4_a_window_ends_and_not_before_although_its_job_is_forgotten(&Native::default()).await;
}

/// The running one ends while a producer that saw it running has not committed, in each order; the next one is claimable one beat later.
#[tokio::test]
async fn c19_what_waits_behind_a_job_that_ends_just_now_is_let_go() {
    for order in ["end, commit, claim", "commit, end, claim", "commit, claim, end", "end, claim, commit"] {
        let db = declared().await;
        let (pool, me) = (db.pool(), Uuid::new_v4());
        enqueue(pool, "t.sync", "7").await;
        let running = claim(pool, me, 1).await;
        let mut producer = Some(pool.begin().await.unwrap());
        let sql = "select id from postrider.enqueue('t.sync', '7')";
        let next: i64 = sqlx::query_scalar(sql).fetch_one(&mut **producer.as_mut().unwrap()).await.unwrap();
        let mut claimed = Vec::new();
        for step in order.split(", ") {
            match step {
                "end" => assert_eq!(finish(pool, me, &running, 1).await, 1, "{order}"),
                "commit" => producer.take().unwrap().commit().await.unwrap(),
                _ => claimed = claim(pool, me, 10).await,
            }
        }
        if claimed.is_empty() {
            beat(pool, me).await;
            claimed = claim(pool, me, 10).await;
        }
        assert_eq!(claimed.iter().map(|c| c.1).collect::<Vec<_>>(), [next], "{order}");
    }
}

#[tokio::test]
async fn c22_every_door_answers_a_duplicate_with_the_id_of_the_first() {
    let unique = [Unique::UntilDone, Unique::ForEver, Unique::WhileWaiting];
    let scene = Scene::set(&Native::default(), App::new([Kind::new("t.a")])).await;
    for (n, (name, first_door)) in doors(&scene).into_iter().enumerate() {
        for mode in unique {
            let job = NewJob::new("t.a", json(&format!(r#"{{"n": {n}}}"#))).unique(mode);
            let (first, fresh) = first_door(job.clone()).await.unwrap();
            assert!(fresh, "{name}");
            for (other, door) in doors(&scene) {
                assert_eq!(door(job.clone()).await.unwrap(), (first.clone(), false), "{name}, then {other}");
            }
            let twice = scene.jobs().enqueue(None, &[job.clone(), job]).await.unwrap();
            assert!(twice.iter().all(|made| made.id.as_str() == first && !made.fresh), "{name}");
        }
    }
    let job = NewJob::new("t.a", json("2")).unique(Unique::UntilDone);
    let twice = scene.jobs().enqueue(None, &[job.clone(), job]).await.unwrap();
    assert_eq!((twice[0].fresh, twice[1].fresh, &twice[0].id), (true, false, &twice[1].id));
    let sql = "select count(*) from postrider.job where unique_hash is not null";
    assert_eq!(number(scene.pool(), sql).await, 4 * 3 + 1);
    assert_eq!(number(scene.pool(), "select count(*) from postrider.uniq").await, 4 * 3 + 1);
}

/// One second before and one second after a full hour: the window rolls on from the first job; one that is to be aligned is named by its key.
#[tokio::test]
async fn c25_a_window_rolls_and_tells_its_end_and_an_aligned_one_is_a_key() {
    const HOUR: Duration = Duration::from_hours(1);
    let scene = Scene::set(&Native::default(), App::new([Kind::new("t.a")])).await;
    let add = async |job: &NewJob| -> Enqueued {
        scene.jobs().enqueue(None, std::slice::from_ref(job)).await.unwrap().remove(0)
    };
    let rolling = NewJob::new("t.a", json("1")).unique(Unique::Within(HOUR));
    let before = add(&rolling).await;
    let end = before.until.unwrap();
    let length = end.since(before.told_at.unwrap());
    assert!(before.fresh && length <= HOUR && length + Duration::from_mins(1) > HOUR, "{length:?}");
    scene.stage().elapse(Duration::from_secs(2)).await;
    let after = add(&rolling).await;
    assert_eq!((&after.id, after.fresh), (&before.id, false));
    assert_eq!(end.since(after.until.unwrap()), Duration::from_secs(2), "the same end, two seconds nearer");
    // every door tells it
    let sql = "select (extract(epoch from until) * 1000000)::bigint from postrider.";
    for call in [
        "enqueue('t.a', '1', unique_mode => 'within', unique_for => '1 hour')",
        r#"enqueue_many('[{"kind": "t.a", "args": 1, "unique_mode": "within", "unique_for": "1 hour"}]')"#,
    ] {
        let told: i64 =
            sqlx::query_scalar(AssertSqlSafe(format!("{sql}{call}"))).fetch_one(scene.pool()).await.unwrap();
        assert_eq!(Some(Timestamp::from_micros(told)), after.until, "{call}");
    }
    scene.stage().elapse(HOUR).await;
    let next = add(&rolling).await;
    assert!(next.fresh && next.id != before.id && next.until > after.until);

    let aligned = |hour: &str| {
        let job = NewJob::new("t.a", json("2")).unique(Unique::Within(2 * HOUR));
        NewJob { unique_key: Some(hour.to_owned()), ..job }
    };
    let of_ten = add(&aligned("2026-03-01T10")).await;
    assert_eq!(add(&aligned("2026-03-01T10")).await.id, of_ten.id);
    let of_eleven = add(&aligned("2026-03-01T11")).await;
    assert!(of_ten.fresh && of_eleven.fresh && of_ten.id != of_eleven.id);
    assert_eq!(add(&NewJob::new("t.a", json("3")).unique(Unique::UntilDone)).await.until, None, "no window");
}

#[tokio::test]
async fn c48_what_postgres_cannot_hold_is_refused_by_name_at_every_door() {
    let db = declared().await;
    for bad in [r#"{"x":"\u0000"}"#, r#"["\ud800"]"#, r#"{"\u0000":1}"#] {
        for (call, field) in [
            (format!("postrider.record('a.b', 's', '{bad}')"), "data"),
            (format!(r#"postrider.record_many('[{{"type":"a.b","subject":"s","data":{bad}}}]')"#), "data"),
            (format!("postrider.enqueue('t.a', '{bad}')"), "args"),
            (format!("postrider.enqueue('t.sync', '{bad}')"), "args"),
            (format!(r#"postrider.enqueue_many('[{{"kind":"t.a","args":{bad}}}]')"#), "args"),
            (format!(r#"postrider.enqueue_many('[{{"kind":"t.sync","args":{bad}}}]')"#), "args"),
        ] {
            let sql = AssertSqlSafe(format!("select * from {call}"));
            let error = sqlx::query(sql).execute(db.pool()).await.unwrap_err();
            let error = error.as_database_error().unwrap();
            let pg = error.downcast_ref::<sqlx::postgres::PgDatabaseError>();
            assert_eq!((pg.code(), pg.column()), ("PR003", Some(field)), "{call}: {error}");
        }
        assert_eq!(Payload::parse(bad).unwrap_err().code.as_str(), "PR003");
    }
    assert_eq!(number(db.pool(), "select count(*) from postrider.job").await, 0);
}

#[tokio::test]
async fn c50_a_refused_or_a_doubled_job_leaves_the_callers_transaction_as_it_was() {
    let scene = Scene::set(&Native::default(), App::new([Kind::new("t.a")])).await;
    let pool = scene.pool();
    sqlx::raw_sql(
        "create table public.business (n int); insert into postrider.event_type (name, declared_by) values ('a.b', '')",
    )
    .execute(pool)
    .await
    .unwrap();
    let unique = NewJob::new("t.a", json("1")).unique(Unique::UntilDone);
    scene.enqueue(unique.clone()).await;
    let mut tx = pool.begin().await.unwrap();
    sqlx::query("insert into public.business values (1)").execute(&mut *tx).await.unwrap();
    let large = Payload::trusted(format!("\"{}\"", "x".repeat(300_000)));
    for bad in
        [NewJob::new("t.b", json("1")), NewJob::new("t.a", large), NewJob { priority: Some(9), ..unique.clone() }]
    {
        scene.jobs().enqueue(Some(&mut *tx), &[bad]).await.unwrap_err();
        sqlx::query("insert into public.business values (2)").execute(&mut *tx).await.unwrap();
    }
    assert!(!scene.jobs().enqueue(Some(&mut *tx), &[unique]).await.unwrap()[0].fresh);
    tx.commit().await.unwrap();
    assert_eq!(number(pool, "select count(*) from public.business").await, 4);

    // in a block of its own, as PL/pgSQL makes one, and with a savepoint
    let block = "do $$ begin
        insert into public.business values (3);
        begin perform postrider.enqueue('t.none'); exception when sqlstate 'PR004' then null; end;
        begin perform postrider.record('a.b', 'gone', '1'), 1 / 0; exception when division_by_zero then null; end;
        perform postrider.enqueue('t.a', '2');
    end $$";
    sqlx::raw_sql(block).execute(pool).await.unwrap();
    let mut tx = pool.begin().await.unwrap();
    for (save, end) in [("savepoint a", "rollback to savepoint a"), ("savepoint b", "release savepoint b")] {
        sqlx::raw_sql(save).execute(&mut *tx).await.unwrap();
        let subject = if end.starts_with("rollback") { "gone" } else { "kept" };
        let event = NewEvent::new("a.b", subject, json("1"));
        Recorder::new().record(&mut *tx, &event).await.unwrap();
        sqlx::raw_sql(end).execute(&mut *tx).await.unwrap();
    }
    tx.commit().await.unwrap();
    let subjects: Vec<String> =
        sqlx::query_scalar("select subject from postrider.event").fetch_all(pool).await.unwrap();
    assert_eq!(subjects, ["kept"]);
    assert_eq!(number(pool, "select count(*) from public.business where n = 3").await, 1);
    assert_eq!(number(pool, "select count(*) from postrider.job").await, 2);
}
