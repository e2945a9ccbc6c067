//! Migrations: numbered, forward, one at a time, resumable, and honest about a schema that is not theirs.
#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test asks the database itself")]

use postrider::migrate::{self, Component, MIGRATIONS};
use postrider_testkit::TestServer;
use sqlx::{AssertSqlSafe, PgPool};

async fn database(server: &TestServer, name: &str) -> PgPool {
    sqlx::query(AssertSqlSafe(format!("create database {name}"))).execute(server.pool()).await.unwrap();
    let options = (*server.pool().connect_options()).clone().database(name);
    PgPool::connect_with(options).await.unwrap()
}

async fn applied(pool: &PgPool) -> Vec<i32> {
    sqlx::query_scalar("select number from postrider.migration order by 1").fetch_all(pool).await.unwrap()
}

#[tokio::test]
async fn migrations_are_planned_applied_once_refused_when_foreign_and_resumed_after_a_kill() {
    let server = TestServer::start().await;

    // planned, then applied, then nothing more to do
    let pool = database(&server, "plain").await;
    let names: Vec<&str> = migrate::plan(&pool, Component::ALL).await.unwrap().iter().map(|m| m.name).collect();
    assert_eq!(names.len(), MIGRATIONS.len());
    assert!(migrate::check(&pool, Component::ALL).await.unwrap_err().to_string().contains("postrider migrate"));
    assert_eq!(migrate::run(&pool, Component::ALL).await.unwrap().len(), MIGRATIONS.len());
    assert_eq!(migrate::run(&pool, Component::ALL).await.unwrap().len(), 0);
    migrate::check(&pool, Component::ALL).await.unwrap();

    // a component that is left out comes later
    let pool = database(&server, "parts").await;
    migrate::run(&pool, &[Component::Core]).await.unwrap();
    assert!(!applied(&pool).await.contains(&10));
    let later: Vec<&str> = migrate::run(&pool, Component::ALL).await.unwrap().iter().map(|m| m.name).collect();
    let webhooks = ["0010_webhook", "0030_endpoint", "0031_health", "0032_redeliver", "0033_tidy_webhooks"];
    assert_eq!(later, webhooks);

    // a newer schema and an edited migration are refused
    sqlx::query("insert into postrider.migration (number, name, sha256) values (9999, '9999_later', '')")
        .execute(&pool)
        .await
        .unwrap();
    let error = migrate::run(&pool, Component::ALL).await.unwrap_err().to_string();
    assert!(error.contains("newer") && error.contains("9999_later"), "{error}");
    sqlx::query("delete from postrider.migration where number = 9999").execute(&pool).await.unwrap();
    sqlx::query("update postrider.migration set sha256 = 'x' where number = 3").execute(&pool).await.unwrap();
    let error = migrate::plan(&pool, Component::ALL).await.unwrap_err().to_string();
    assert!(error.contains("0003_event"), "{error}");

    // four processes at once: each migration is applied once
    let pool = database(&server, "together").await;
    let runs: Vec<_> = (0..4)
        .map(|_| {
            let pool = pool.clone();
            tokio::spawn(async move { migrate::run(&pool, Component::ALL).await.unwrap().len() })
        })
        .collect();
    let mut total = 0;
    for run in runs {
        total += run.await.unwrap();
    }
    assert_eq!(total, MIGRATIONS.len());

    // killed again and again in the middle, it goes on where it was
    let pool = database(&server, "killed").await;
    let mut kills = 0_i64;
    loop {
        let run = tokio::spawn({
            let pool = pool.clone();
            async move { migrate::run(&pool, Component::ALL).await }
        });
        let mut hit = 0_i64;
        while kills < 5 && hit == 0 && !run.is_finished() {
            hit = sqlx::query_scalar(
                "select count(pg_terminate_backend(pid)) from pg_stat_activity where datname = 'killed' and xact_start is not null",
            )
            .fetch_one(server.pool())
            .await
            .unwrap();
        }
        kills += hit;
        if run.await.unwrap().is_ok() {
            break;
        }
    }
    assert_eq!(applied(&pool).await.len(), MIGRATIONS.len());
    assert!(kills > 0, "no kill ever hit a migration");
}
