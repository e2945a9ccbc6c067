//! A key makes one event of many calls: also of concurrent ones, after a rollback, until it expires; and it tells who uses it for something else.
#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test asks the database itself")]

use std::time::Duration;

use postrider::{Bus, Code, Error, EventId, NewEvent, Payload, Recorder};
use postrider_testkit::{TestDb, until};
use sqlx::PgPool;

const SOON: Duration = Duration::from_mins(1);

async fn declared() -> TestDb {
    let db = TestDb::fresh().await;
    Bus::builder(db.pool().clone()).types(["order.paid", "order.sent"]).build().await.unwrap();
    db
}

fn keyed(data: &str) -> NewEvent {
    let event = NewEvent::new("order.paid", "order/42", Payload::parse(data).unwrap());
    NewEvent { idempotency_key: Some("k".to_owned()), ..event }
}

async fn record(pool: &PgPool, event: &NewEvent) -> Result<EventId, Error> {
    let mut connection = pool.acquire().await.unwrap();
    Recorder::new().record(&mut *connection, event).await.map(|recorded| recorded.id)
}

async fn count(pool: &PgPool) -> (i64, i64) {
    let sql = "select (select count(*) from postrider.event), (select count(*) from postrider.idempotency)";
    sqlx::query_as(sql).fetch_one(pool).await.unwrap()
}

#[tokio::test]
async fn e11_a_key_that_was_used_for_another_event_is_refused_and_the_first_one_stays() {
    let db = declared().await;
    let first = record(db.pool(), &keyed("1")).await.unwrap();
    let others = [
        keyed("2"),
        keyed(" 1"),
        NewEvent { subject: "order/43".to_owned(), ..keyed("1") },
        NewEvent { r#type: "order.sent".to_owned(), ..keyed("1") },
    ];
    for other in others {
        let Err(Error::Refused(refused)) = record(db.pool(), &other).await else { panic!("{other:?} was taken") };
        assert_eq!((refused.code, refused.field.as_str()), (Code::Conflict, "idempotency_key"));
        assert!(refused.message.contains(&first.to_string()), "{refused}");
    }
    let sql = "select postrider.record('order.paid', 'order/42', '2', idempotency_key => 'k')";
    let told = sqlx::query(sql).execute(db.pool()).await.unwrap_err();
    assert_eq!(told.as_database_error().unwrap().code().as_deref(), Some("PR006"));
    assert_eq!(record(db.pool(), &keyed("1")).await.unwrap(), first);
    assert_eq!(count(db.pool()).await, (1, 1));
}

#[tokio::test]
async fn e11_a_key_that_has_expired_makes_a_new_event_once_also_for_two_at_the_same_time() {
    let db = declared().await;
    let first = record(db.pool(), &keyed("1")).await.unwrap();
    let expire = "update postrider.idempotency set until = clock_timestamp() - interval '1 second'";
    sqlx::query(expire).execute(db.pool()).await.unwrap();
    let mut open = db.pool().begin().await.unwrap();
    let second = Recorder::new().record(&mut *open, &keyed("2")).await.unwrap().id;
    assert_ne!(second, first);
    let waits = {
        let pool = db.pool().clone();
        tokio::spawn(async move { record(&pool, &keyed("2")).await.unwrap() })
    };
    let waiting =
        "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()";
    let waiting = async || sqlx::query_scalar::<_, i64>(waiting).fetch_one(db.pool()).await.unwrap();
    until("the second one waits for the first", SOON, async || (waiting().await == 1).then_some(())).await;
    open.commit().await.unwrap();
    assert_eq!(waits.await.unwrap(), second);
    assert_eq!(count(db.pool()).await, (2, 1));
}

#[tokio::test]
async fn e11_a_key_of_a_savepoint_that_was_rolled_back_is_free_again() {
    let db = declared().await;
    let mut tx = db.pool().begin().await.unwrap();
    let mut savepoint = sqlx::Acquire::begin(&mut tx).await.unwrap();
    let gone = Recorder::new().record(&mut *savepoint, &keyed("1")).await.unwrap().id;
    savepoint.rollback().await.unwrap();
    let kept = Recorder::new().record(&mut *tx, &keyed("2")).await.unwrap().id;
    assert_eq!(Recorder::new().record(&mut *tx, &keyed("2")).await.unwrap().id, kept);
    tx.commit().await.unwrap();
    assert_ne!(gone, kept);
    assert_eq!(record(db.pool(), &keyed("2")).await.unwrap(), kept);
    assert_eq!(count(db.pool()).await, (1, 1));
}

#[tokio::test]
async fn e11_a_key_that_a_snapshot_cannot_see_is_an_error_to_try_again_and_never_a_second_event() {
    let db = declared().await;
    let mut old = db.pool().begin().await.unwrap();
    sqlx::query("set transaction isolation level repeatable read").execute(&mut *old).await.unwrap();
    sqlx::query("select count(*) from postrider.event").execute(&mut *old).await.unwrap();
    let first = record(db.pool(), &keyed("1")).await.unwrap();
    let told = Recorder::new().record(&mut *old, &keyed("1")).await.unwrap_err();
    assert!(told.is_transient(), "{told:?}");
    old.rollback().await.unwrap();
    assert_eq!(record(db.pool(), &keyed("1")).await.unwrap(), first);
    assert_eq!(count(db.pool()).await, (1, 1));
}

#[tokio::test]
async fn e11_housekeeping_forgets_a_key_that_has_expired_and_no_other() {
    let db = declared().await;
    record(db.pool(), &keyed("1")).await.unwrap();
    record(db.pool(), &NewEvent { idempotency_key: Some("k2".to_owned()), ..keyed("2") }).await.unwrap();
    let expire = "update postrider.idempotency set until = clock_timestamp() - interval '1 second' where key = 'k'";
    sqlx::query(expire).execute(db.pool()).await.unwrap();
    sqlx::query("select postrider.housekeep('usual')").execute(db.pool()).await.unwrap();
    let keys: Vec<String> =
        sqlx::query_scalar("select key from postrider.idempotency").fetch_all(db.pool()).await.unwrap();
    assert_eq!(keys, ["k2"]);
}
