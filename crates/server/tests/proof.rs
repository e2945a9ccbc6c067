//! `postrider verify` says whether the log, the cuts and the jobs say the same, and `postrider outbound` holds what leaves.
#![expect(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::process::{Command, Output};

use postrider_testkit::TestDb;

/// The database is named by the variable; nothing else of the environment configures it.
fn run(db: &TestDb, words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_postrider"));
    for (name, _) in std::env::vars_os() {
        if name == "DATABASE_URL" || name.to_str().is_some_and(|name| name.starts_with("POSTRIDER_")) {
            command.env_remove(&name);
        }
    }
    command.current_dir(std::env::temp_dir());
    command.env("POSTRIDER_DATABASE_URL", db.url()).args(words).output().unwrap()
}

fn told(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

#[tokio::test]
async fn verify_ends_well_on_a_whole_log_and_fails_with_what_it_found_on_a_damaged_one() {
    let db = TestDb::fresh().await;
    let run_sql = async |sql: &'static str| sqlx::raw_sql(sql).execute(db.pool()).await.unwrap();
    run_sql(
        r#"select postrider.declare('{"app": "t", "types": [{"name": "t.made"}], "kinds": [{"name": "k.a"}],
               "subscriptions": [{"name": "s.a", "types": ["t.made"], "kind": "k.a"}]}')"#,
    )
    .await;
    run_sql("select postrider.record('t.made', 'o/' || i) from generate_series(1, 5) i").await;
    run_sql("select postrider.relay(100)").await;
    let whole = run(&db, &["verify"]);
    assert!(whole.status.success(), "{}", told(&whole));
    assert!(
        told(&whole).starts_with("5 events committed, 5 fanned out, 5 jobs; 0 missing, 0 twice\n"),
        "{}",
        told(&whole)
    );
    run_sql("delete from postrider.event where subject = 'o/3'").await;
    let damaged = run(&db, &["verify"]);
    assert_eq!(damaged.status.code(), Some(1));
    assert!(told(&damaged).contains("took 5 events, 4 are there"), "{}", told(&damaged));
    let typed = run(&db, &["verify", "--from", "yesterday"]);
    assert_eq!(typed.status.code(), Some(2));
    assert!(told(&typed).contains("RFC 3339"), "{}", told(&typed));
}

#[tokio::test]
async fn outbound_is_paused_and_resumed_by_hand() {
    let db = TestDb::fresh().await;
    let reason = async || {
        let sql = "select coalesce(reason, 'goes on') from postrider.instance";
        sqlx::query_scalar::<_, String>(sql).fetch_one(db.pool()).await.unwrap()
    };
    assert!(run(&db, &["outbound", "pause", "--reason", "a drill"]).status.success());
    assert_eq!(reason().await, "a drill");
    assert!(told(&run(&db, &["outbound", "resume"])).contains("goes on"));
    assert_eq!(reason().await, "goes on");
    assert!(told(&run(&db, &["outbound", "resume"])).contains("was not paused"));
}
