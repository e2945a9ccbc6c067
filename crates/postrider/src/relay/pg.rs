use sqlx::{PgConnection, Row as _};

use super::Pass;
use crate::error::Error;
use crate::pg::{Statement, fetch};

pub(super) const RELAY: Statement = crate::statement!("sql/relay.sql");

pub(super) const STATEMENTS: &[&Statement] = &[&RELAY];

pub(super) async fn relay(connection: &mut PgConnection, most: i32) -> Result<Pass, Error> {
    let failed = |e| Error::from_sqlx(RELAY.name, e);
    let query = RELAY.query_on(connection).bind(most);
    let rows = fetch(connection, &RELAY, query).await?;
    let row = rows.first().ok_or(Error::Row { statement: RELAY.name, column: 0, expected: "one row" })?;
    let count = |column: usize| row.try_get::<i32, _>(column).map(|n| u64::try_from(n).unwrap_or(0)).map_err(failed);
    Ok(Pass {
        events: count(0)?,
        jobs: count(1)?,
        more: row.try_get(2).map_err(failed)?,
        open_writers: row.try_get(3).map_err(failed)?,
        busy: row.try_get::<String, _>(4).map_err(failed)? == "busy",
    })
}
