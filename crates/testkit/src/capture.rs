//! What the tests of row capture share: statements, and what they recorded.

use crate::TestDb;
use sqlx::{AssertSqlSafe, Connection, PgConnection};

/// A recorded event: type, subject, data.
pub type Told = (String, String, String);

/// A connection of its own.
///
/// # Panics
/// If there is none.
pub async fn connect(db: &TestDb) -> PgConnection {
    PgConnection::connect(db.url()).await.unwrap_or_else(|error| panic!("no connection: {error}"))
}

/// Runs statements; what they are refused with, if they are: SQLSTATE and message.
///
/// # Panics
/// If the connection breaks.
pub async fn attempt(connection: &mut PgConnection, text: &str) -> Result<(), (String, String)> {
    let result = sqlx::raw_sql(AssertSqlSafe(text.to_owned())).execute(connection).await;
    result.map(drop).map_err(|error| match error.as_database_error() {
        Some(db) => (db.code().unwrap_or_default().into_owned(), db.message().to_owned()),
        None => panic!("{text}: {error}"),
    })
}

/// Runs statements.
///
/// # Panics
/// If they are refused.
pub async fn sql(connection: &mut PgConnection, text: &str) {
    attempt(connection, text).await.unwrap_or_else(|error| panic!("{text}: {error:?}"));
}

/// The only value of a query, as text.
///
/// # Panics
/// If there is none.
pub async fn value(connection: &mut PgConnection, text: &str) -> String {
    let query = format!("select ({text})::text");
    sqlx::query_scalar(AssertSqlSafe(query)).fetch_one(connection).await.unwrap_or_else(|e| panic!("{text}: {e}"))
}

/// What was recorded since it was last asked, in its order.
///
/// # Panics
/// If the log cannot be read.
pub async fn told(connection: &mut PgConnection) -> Vec<Told> {
    let text = "with gone as (delete from postrider.event returning seq, type, subject, data)
        select coalesce(json_agg(array[type, subject, data::jsonb::text] order by seq), '[]')::text from gone";
    let rows: String = sqlx::query_scalar(text).fetch_one(connection).await.unwrap_or_else(|error| panic!("{error}"));
    serde_json::from_str(&rows).unwrap_or_else(|error| panic!("{rows}: {error}"))
}

/// The same in short: `created order/1`.
pub async fn short(connection: &mut PgConnection) -> Vec<String> {
    let of = |(r#type, subject, _): Told| format!("{} {subject}", r#type.rsplit('.').next().unwrap_or_default());
    told(connection).await.into_iter().map(of).collect()
}
