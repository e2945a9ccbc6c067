//! Partitions never run out: ids carry an epoch, which moves on only when its partitions exist.
#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test asks the database itself")]

use postrider::{Bus, Class, Inspector as _, Kind, KindSpec, NewEvent, NewJob, Payload, PgInspector, Recorder};
use postrider_testkit::TestDb;
use sqlx::PgPool;

async fn age(pool: &PgPool, unit: &str, days: i32) {
    let sql = "update postrider.epoch set started_at = started_at - make_interval(days => $2) where unit = $1";
    sqlx::query(sql).bind(unit).bind(days).execute(pool).await.unwrap();
}

async fn housekeep(pool: &PgPool) -> String {
    sqlx::query_scalar("select postrider.housekeep()::text").fetch_one(pool).await.unwrap()
}

async fn partitions(pool: &PgPool, table: &str) -> Vec<String> {
    let sql =
        "select inhrelid::regclass::text from pg_inherits where inhparent = ('postrider.' || $1)::regclass order by 1";
    sqlx::query_scalar(sql).bind(table).fetch_all(pool).await.unwrap()
}

#[tokio::test]
async fn an_epoch_moves_on_when_it_is_old_and_its_successors_partitions_exist() {
    let db = TestDb::fresh().await;
    let bus = Bus::builder(db.pool().clone())
        .types(["a.b"])
        .kinds(
            [Class::Short, Class::Standard, Class::Long]
                .map(|class| Kind::spec(KindSpec { class, ..KindSpec::new(format!("k.{class:?}").to_lowercase()) })),
        )
        .build()
        .await
        .unwrap();
    assert!(!housekeep(db.pool()).await.contains("job"), "a young epoch stays");

    let mut ids = Vec::new();
    for epoch in 0..9_i64 {
        for kind in ["k.short", "k.standard", "k.long"] {
            let job =
                bus.jobs().enqueue(None, &[NewJob::new(kind, Payload::parse("{}").unwrap())]).await.unwrap().remove(0);
            let number: i64 = job.id.as_str().parse().unwrap();
            assert_eq!(number >> 46, epoch);
            ids.push(job.id);
        }
        let mut connection = db.pool().acquire().await.unwrap();
        let event = NewEvent::new("a.b", "s", Payload::parse("{}").unwrap());
        Recorder::new().record(&mut *connection, &event).await.unwrap();
        age(db.pool(), "job", 1).await;
        age(db.pool(), "event", 7).await;
        let done = housekeep(db.pool()).await;
        assert!(done.contains("job") && done.contains("event"), "epoch {epoch}: {done}");
    }
    // each id is found where it is, and each partition is named by the epoch that it begins with
    for id in &ids {
        assert!(PgInspector::new(db.pool().clone()).job(id).await.unwrap().is_some());
    }
    let numbers: Vec<i64> = ids.iter().map(|id| id.as_str().parse().unwrap()).collect();
    assert!(numbers.is_sorted(), "ids grow from epoch to epoch");
    let jobs = partitions(db.pool(), "job").await;
    assert!(jobs.contains(&"postrider.job_c1_e11".to_owned()) && !jobs.contains(&"postrider.job_c1_e12".to_owned()));
    assert_eq!(
        jobs.iter().filter(|name| name.contains("_c3_")).count(),
        2,
        "the long class has a partition for seven epochs"
    );
    assert_eq!(partitions(db.pool(), "done").await.len(), jobs.len());
    let seqs: Vec<i64> =
        sqlx::query_scalar("select seq >> 46 from postrider.event order by seq").fetch_all(db.pool()).await.unwrap();
    assert_eq!(seqs, (0..9).collect::<Vec<i64>>());
}

#[tokio::test]
async fn an_epoch_waits_while_its_successors_partitions_are_missing() {
    // a connection that first reads the partitions while one is attached may miss it until the next one is: so there are two
    for missing in ["drop table postrider.job_c2_e1", "drop table postrider.job_c2_e2"] {
        let db = TestDb::fresh().await;
        sqlx::raw_sql(missing).execute(db.pool()).await.unwrap();
        age(db.pool(), "job", 1).await;
        assert!(!housekeep(db.pool()).await.contains("job"), "what is made now must be committed before ids go there");
        assert!(housekeep(db.pool()).await.contains("job"));
    }
}

#[tokio::test]
async fn attaching_a_partition_holds_up_no_producer() {
    let db = TestDb::fresh().await;
    Bus::builder(db.pool().clone()).types(["a.b"]).kinds([Kind::new("k.one")]).build().await.unwrap();
    let mut writer = db.pool().begin().await.unwrap();
    let event = NewEvent::new("a.b", "s", Payload::parse("{}").unwrap());
    Recorder::new().record(&mut *writer, &event).await.unwrap();
    sqlx::query("select postrider.enqueue('k.one')").execute(&mut *writer).await.unwrap();
    age(db.pool(), "job", 1).await;
    age(db.pool(), "event", 7).await;
    let done = housekeep(db.pool()).await;
    assert!(done.contains("job") && done.contains("event"), "{done}");
    writer.commit().await.unwrap();
}
