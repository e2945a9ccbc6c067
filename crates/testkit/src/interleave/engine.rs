use anyhow::{Context as _, ensure};
use sqlx::AssertSqlSafe;

use crate::TestDb;

/// The advisory lock at which [`pause`] waits.
const PAUSE: i64 = 0x5041_5553;

/// Replaces a piece of text in one of the functions of a test's database.
///
/// # Errors
/// If there is no such function, or it does not have the text once.
pub async fn rewrite(db: &TestDb, function: &str, from: &str, to: &str) -> anyhow::Result<()> {
    let sql = "select pg_get_functiondef(p.oid) from pg_catalog.pg_proc p
                where p.pronamespace = 'postrider'::regnamespace and p.proname = $1";
    let text: String = sqlx::query_scalar(sql).bind(function).fetch_one(db.pool()).await.context("no such function")?;
    ensure!(text.matches(from).count() == 1, "{function} does not have this once: {from}");
    sqlx::raw_sql(AssertSqlSafe(text.replace(from, to))).execute(db.pool()).await?;
    Ok(())
}

/// Lets a function stop at a piece of its text, which is true or false, for as long as the advisory lock is held whose statement
/// this answers with: it is to be a step of another session.
pub async fn pause(db: &TestDb, function: &str, at: &str) -> anyhow::Result<String> {
    let waits = format!("(pg_catalog.pg_advisory_xact_lock_shared({PAUSE}) is not null and {at})");
    rewrite(db, function, at, &waits).await?;
    Ok(format!("select pg_advisory_xact_lock({PAUSE})::text"))
}
