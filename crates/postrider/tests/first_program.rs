//! The program that the README opens with does what it says, on an empty database.
#![expect(clippy::disallowed_methods, reason = "a test asks the database itself")]

use std::process::Command;

use postrider_testkit::TestServer;

#[tokio::test]
async fn the_first_program_makes_its_schema_records_an_event_and_sees_it_handled() {
    let server = TestServer::start().await;
    sqlx::query("create database first").execute(server.pool()).await.unwrap();
    let url = server.url().replacen("/postrider?", "/first?", 1);
    assert_ne!(url, server.url());
    let deps = std::env::current_exe().unwrap();
    let program = deps.ancestors().nth(2).unwrap().join("examples/01_record_and_handle");
    assert!(program.is_file(), "build it first: cargo build --examples");
    let run = move || Command::new(program).env("DATABASE_URL", url).output().unwrap();
    let output = tokio::task::spawn_blocking(run).await.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let first = sqlx::PgPool::connect_with((*server.pool().connect_options()).clone().database("first")).await.unwrap();
    let (events, completed, leases, workers): (i64, i64, i64, i64) = sqlx::query_as(
        "select (select count(*) from postrider.event), (select count(*) from postrider.done where state = 2),
                (select count(*) from postrider.lease), (select count(*) from postrider.worker)",
    )
    .fetch_one(&first)
    .await
    .unwrap();
    assert_eq!((events, completed, leases, workers), (1, 1, 0, 0));
}
