use std::time::Duration;

use sqlx::postgres::PgRow;
use sqlx::{PgConnection, Row as _};

use super::Pass;
use crate::error::Error;
use crate::pg::{Statement, fetch};

pub(super) const RELAY: Statement = crate::statement!("sql/relay.sql");

pub(super) const HAND_OVER: Statement = crate::statement!("sql/hand_over.sql");

pub(super) const STATEMENTS: &[&Statement] = &[
    &RELAY,
    &HAND_OVER,
    &super::elsewhere::RELAY_ELSEWHERE,
    &super::elsewhere::HAND_OVER_ELSEWHERE,
    &super::elsewhere::DUE_ELSEWHERE,
    &super::elsewhere::RETRIED_ELSEWHERE,
];

/// One pass of a statement: over what is new, or over what a subscription that starts asked for. True if one starts.
pub(super) async fn relay(
    connection: &mut PgConnection,
    statement: &'static Statement,
    most: i32,
    careful: bool,
) -> Result<(Pass, bool), Error> {
    let query = statement.query_on(connection).bind(most).bind(careful);
    let rows = fetch(connection, statement, query).await?;
    let row = rows.first().ok_or(Error::Row { statement: statement.name, column: 0, expected: "one row" })?;
    pass(row).map_err(|e| Error::from_sqlx(statement.name, e))
}

pub(super) fn pass(row: &PgRow) -> Result<(Pass, bool), sqlx::Error> {
    let count = |column: usize| row.try_get::<i32, _>(column).map(|n| u64::try_from(n).unwrap_or(0));
    let pass = Pass {
        events: count(0)?,
        jobs: count(1)?,
        more: row.try_get(2)?,
        open_writers: row.try_get(3)?,
        busy: row.try_get::<String, _>(4)? == "busy",
        aside: count(6)?,
        retry_in: row.try_get::<Option<i64>, _>(7)?.map(|ms| Duration::from_millis(u64::try_from(ms).unwrap_or(0))),
    };
    Ok((pass, row.try_get(5)?))
}
