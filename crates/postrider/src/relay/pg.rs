use sqlx::postgres::PgRow;
use sqlx::{PgConnection, Row as _};

use super::Pass;
use crate::error::Error;
use crate::pg::{Statement, fetch};

pub(super) const RELAY: Statement = crate::statement!("sql/relay.sql");

pub(super) const STATEMENTS: &[&Statement] = &[&RELAY, &super::elsewhere::RELAY_ELSEWHERE];

pub(super) async fn relay(connection: &mut PgConnection, most: i32) -> Result<Pass, Error> {
    let failed = |e| Error::from_sqlx(RELAY.name, e);
    let query = RELAY.query_on(connection).bind(most);
    let rows = fetch(connection, &RELAY, query).await?;
    let row = rows.first().ok_or(Error::Row { statement: RELAY.name, column: 0, expected: "one row" })?;
    pass(row).map_err(failed)
}

pub(super) fn pass(row: &PgRow) -> Result<Pass, sqlx::Error> {
    let count = |column: usize| row.try_get::<i32, _>(column).map(|n| u64::try_from(n).unwrap_or(0));
    Ok(Pass {
        events: count(0)?,
        jobs: count(1)?,
        more: row.try_get(2)?,
        open_writers: row.try_get(3)?,
        busy: row.try_get::<String, _>(4)? == "busy",
    })
}
