//! A test's database is migrated, its own, and gone afterwards; a test's server can be killed.
#![expect(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::str::FromStr;

use postrider_testkit::{TestDb, TestServer};
use sqlx::postgres::PgConnectOptions;
use sqlx::{Connection, PgConnection, PgPool};

async fn number(pool: &PgPool, sql: &'static str) -> i64 {
    sqlx::query_scalar(sql).fetch_one(pool).await.unwrap()
}

async fn exists(beside: &TestDb, name: &str) -> bool {
    let sql = "select exists (select from pg_catalog.pg_database where datname = $1)";
    sqlx::query_scalar(sql).bind(name).fetch_one(beside.pool()).await.unwrap()
}

#[tokio::test]
async fn a_fresh_database_is_migrated() {
    let db = TestDb::fresh().await;
    let migrations = "select count(*) from postrider.migration";
    assert_eq!(number(db.pool(), migrations).await, i64::try_from(postrider::migrate::MIGRATIONS.len()).unwrap());
    let pending = postrider::migrate::plan(db.pool(), postrider::migrate::Component::ALL).await.unwrap();
    assert!(pending.is_empty(), "{pending:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn tests_that_start_together_get_databases_of_their_own() {
    let (one, two, three) = tokio::join!(TestDb::fresh(), TestDb::fresh(), TestDb::fresh());
    sqlx::raw_sql("create table public.mine ()").execute(one.pool()).await.unwrap();
    for other in [&two, &three] {
        let seen = "select count(*) from pg_catalog.pg_class where relname = 'mine'";
        assert_eq!(number(other.pool(), seen).await, 0);
    }
    let templates = "select count(*) from pg_catalog.pg_database where datname like 'postrider_template_%'";
    assert_eq!(number(one.pool(), templates).await, 1, "the template is made once");
}

#[tokio::test]
async fn the_database_of_a_finished_test_is_dropped_although_connections_are_open() {
    let (watching, finished) = (TestDb::fresh().await, TestDb::fresh().await);
    let name = finished.name().to_owned();
    let open = PgConnection::connect_with(&PgConnectOptions::from_str(finished.url()).unwrap()).await.unwrap();
    assert!(exists(&watching, &name).await);
    drop(finished);
    assert!(!exists(&watching, &name).await);
    drop(open);
}

#[tokio::test]
async fn the_server_of_a_test_that_was_killed_comes_back_with_what_was_committed() {
    let server = TestServer::start().await;
    sqlx::raw_sql("create table public.kept as select 42::bigint as answer").execute(server.pool()).await.unwrap();
    let killed = server.pid();
    server.kill().await;
    assert_eq!(server.pid(), None);
    assert!(PgConnection::connect(server.url()).await.is_err());
    server.restart().await;
    assert_ne!(server.pid(), killed);
    let mut again = PgConnection::connect(server.url()).await.unwrap();
    let answer: i64 = sqlx::query_scalar("select answer from public.kept").fetch_one(&mut again).await.unwrap();
    assert_eq!(answer, 42);
}
