use sqlx::PgPool;

use super::{EventRow, Overview, WorkerRow, view};
use crate::contract::Timestamp;
use crate::error::Error;
use crate::pg::{Arg, Row, Statement, Tx as _, borrow};

const OVERVIEW: Statement = crate::statement!("sql/overview.sql");
const EVENTS: Statement = crate::statement!("sql/events.sql");
const WORKERS: Statement = crate::statement!("sql/workers.sql");

pub(super) const STATEMENTS: &[&Statement] = &[&OVERVIEW, &EVENTS, &WORKERS, &view::VIEW, &view::LIST, &view::QUEUES];

const ROWS_MOST: i64 = 200;

async fn rows(pool: &PgPool, statement: &'static Statement, args: &[Arg<'_>]) -> Result<Vec<Row>, Error> {
    borrow(pool).await?.run(statement, args).await
}

fn count(row: &Row, column: usize) -> Result<u64, Error> {
    Ok(u64::try_from(row.int(column)?).unwrap_or(0))
}

fn micros(row: &Row, column: usize) -> Result<Timestamp, Error> {
    row.int(column).map(Timestamp::from_micros)
}

pub(super) async fn overview(pool: &PgPool) -> Result<Overview, Error> {
    let rows = rows(pool, &OVERVIEW, &[]).await?;
    let row = rows.first().ok_or(Error::Row { statement: OVERVIEW.name, column: 0, expected: "one row" })?;
    Ok(Overview {
        relayed: count(row, 0)?,
        fanned_out: count(row, 1)?,
        ready: count(row, 2)?,
        later: count(row, 3)?,
        retrying: count(row, 4)?,
        parked: count(row, 5)?,
        running: count(row, 6)?,
        workers: count(row, 7)?,
        oldest_ready_micros: row.opt(8).and_then(|text| text.parse().ok()),
    })
}

pub(super) async fn events(pool: &PgPool, most: u32) -> Result<Vec<EventRow>, Error> {
    let found = rows(pool, &EVENTS, &[Arg::Int(i64::from(most).min(ROWS_MOST))]).await?;
    found
        .iter()
        .map(|row| {
            Ok(EventRow {
                id: row.text(0)?.to_owned(),
                r#type: row.text(1)?.to_owned(),
                subject: row.text(2)?.to_owned(),
                owner: row.text(3)?.to_owned(),
                recorded_at: micros(row, 4)?,
                data_bytes: count(row, 5)?,
            })
        })
        .collect()
}

pub(super) async fn workers(pool: &PgPool) -> Result<Vec<WorkerRow>, Error> {
    let found = rows(pool, &WORKERS, &[]).await?;
    found
        .iter()
        .map(|row| {
            Ok(WorkerRow {
                id: row.text(0)?.to_owned(),
                app: row.text(1)?.to_owned(),
                pid: row.int(2)?,
                queues: row.text(3)?.to_owned(),
                running: count(row, 4)?,
                started_at: micros(row, 5)?,
                beat_at: micros(row, 6)?,
            })
        })
        .collect()
}
