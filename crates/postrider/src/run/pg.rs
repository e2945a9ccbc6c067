use serde::{Deserialize, Serialize};
use sqlx::postgres::{PgArguments, PgRow};
use sqlx::query::Query;
use sqlx::{PgConnection, Postgres, Row as _};
use uuid::Uuid;

use super::admit::Limit;
use crate::error::Error;
use crate::pg::{Statement, Tx as _, fetch};

pub(super) const TICK: Statement = crate::statement!("sql/tick.sql");
pub(super) const LEAVE: Statement = crate::statement!("sql/leave.sql");
pub(super) const HOUSEKEEP: Statement = crate::statement!("sql/housekeep.sql");
pub(super) const DUTY_FAILED: Statement = crate::statement!("sql/duty_failed.sql");

const FREE: Statement = crate::statement!("sql/free.sql");

pub(super) const STATEMENTS: &[&Statement] = &[&TICK, &LEAVE, &HOUSEKEEP, &DUTY_FAILED, &FREE];

/// What a beat tells.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Report {
    pub(super) app: String,
    pub(super) version: &'static str,
    pub(super) host: String,
    pub(super) pid: u32,
    pub(super) queues: Vec<String>,
    pub(super) kinds: Vec<String>,
    pub(super) schedules: Vec<String>,
    pub(super) held: Vec<i64>,
    pub(super) settled: i64,
    pub(super) dead: Vec<Beat>,
    pub(super) progress: Vec<Progress>,
}

/// What a handler told.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Progress {
    pub(super) id: i64,
    pub(super) lease: i64,
    pub(super) percent: u8,
    pub(super) note: String,
}

/// An attempt whose job is to be cancelled.
#[derive(Debug, Clone, Copy, Deserialize)]
pub(super) struct Cancel {
    pub(super) lease: i64,
    pub(super) id: i64,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct Beat {
    pub(super) worker: Uuid,
    pub(super) beat: i64,
}

/// What a beat is answered.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Answer {
    pub(super) lost: Vec<i64>,
    pub(super) cancel: Option<Vec<Cancel>>,
    pub(super) handed_back: u64,
    pub(super) rescued: u64,
    pub(super) others: Vec<Beat>,
    pub(super) ready: Vec<String>,
    pub(super) event_number: i64,
    pub(super) due_in_ms: Option<u64>,
    pub(super) schedule_due_in_ms: Option<u64>,
}

/// One beat. `ask`: a channel on which this process wants to hear itself, with the commit of this beat.
pub(super) async fn tick(
    connection: &mut PgConnection,
    worker: Uuid,
    report: &Report,
    ask: Option<String>,
) -> Result<(Answer, bool), Error> {
    let wrong = Error::Row { statement: TICK.name, column: 0, expected: "the answer to a beat" };
    let Ok(report) = serde_json::to_string(report) else { return Err(wrong) };
    let failed = |e| Error::from_sqlx(TICK.name, e);
    let query = TICK.query_on(connection).bind(worker).bind(report).bind(ask);
    let row = one(connection, &TICK, query).await?;
    let (text, said): (String, Option<String>) = (row.try_get(0).map_err(failed)?, row.try_get(1).map_err(failed)?);
    Ok((serde_json::from_str(&text).map_err(|_| wrong)?, said.is_some()))
}

pub(super) async fn leave(connection: &mut PgConnection, worker: Uuid) -> Result<(), Error> {
    let query = LEAVE.query_on(connection).bind(worker);
    one(connection, &LEAVE, query).await.map(drop)
}

/// What a duty of housekeeping told.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Told {
    /// There is more of it to do now.
    #[serde(default)]
    pub(super) again: bool,
    /// Somebody held what it needs.
    #[serde(default)]
    pub(super) held: bool,
}

pub(super) async fn housekeep(connection: &mut PgConnection, duty: &'static str) -> Result<(Told, String), Error> {
    let query = HOUSEKEEP.query_on(connection).bind(duty);
    let row = one(connection, &HOUSEKEEP, query).await?;
    let text: String = row.try_get(0).map_err(|e| Error::from_sqlx(HOUSEKEEP.name, e))?;
    let wrong = Error::Row { statement: HOUSEKEEP.name, column: 0, expected: "what a duty tells" };
    Ok((serde_json::from_str(&text).map_err(|_| wrong)?, text))
}

pub(super) async fn duty_failed(connection: &mut PgConnection, duty: &str, error: &str) -> Result<(), Error> {
    let query = DUTY_FAILED.query_on(connection).bind(duty.to_owned()).bind(error.to_owned());
    one(connection, &DUTY_FAILED, query).await.map(drop)
}

async fn one(
    connection: &mut PgConnection,
    statement: &'static Statement,
    query: Query<'static, Postgres, PgArguments>,
) -> Result<PgRow, Error> {
    let rows = fetch(connection, statement, query).await?;
    rows.into_iter().next().ok_or(Error::Row { statement: statement.name, column: 0, expected: "one row" })
}

/// The limits of connections, and how many others are open.
pub(super) async fn limits(connection: &mut PgConnection) -> Result<Vec<Limit>, Error> {
    let rows = connection.run(&FREE, &[]).await?;
    let row = rows.first().ok_or(Error::Row { statement: FREE.name, column: 0, expected: "one row" })?;
    let limit = |of, most, reserved, in_use| {
        Ok::<_, Error>(Limit { of, most: row.int(most)?, reserved, in_use: row.int(in_use)? })
    };
    Ok(vec![limit("server", 0, row.int(1)?, 2)?, limit("role", 3, 0, 4)?, limit("database", 5, 0, 6)?])
}
