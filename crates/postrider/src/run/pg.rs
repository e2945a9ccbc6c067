use serde::{Deserialize, Serialize};
use sqlx::{PgConnection, Row as _};
use uuid::Uuid;

use crate::error::Error;
use crate::pg::Statement;

pub(super) const TICK: Statement = crate::statement!("sql/tick.sql");
pub(super) const LEAVE: Statement = crate::statement!("sql/leave.sql");
pub(super) const HOUSEKEEP: Statement = crate::statement!("sql/housekeep.sql");

pub(super) const STATEMENTS: &[&Statement] = &[&TICK, &LEAVE, &HOUSEKEEP];

/// What a beat tells.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Report {
    pub(super) app: String,
    pub(super) version: &'static str,
    pub(super) host: String,
    pub(super) pid: u32,
    pub(super) queues: Vec<String>,
    pub(super) kinds: Vec<String>,
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
}

pub(super) async fn tick(connection: &mut PgConnection, worker: Uuid, report: &Report) -> Result<Answer, Error> {
    let wrong = Error::Row { statement: TICK.name, column: 0, expected: "the answer to a beat" };
    let Ok(report) = serde_json::to_string(report) else { return Err(wrong) };
    let row = TICK.query().bind(worker).bind(report).fetch_one(connection).await;
    let text: String = row.and_then(|row| row.try_get(0)).map_err(|e| Error::from_sqlx(TICK.name, e))?;
    serde_json::from_str(&text).map_err(|_| wrong)
}

pub(super) async fn leave(connection: &mut PgConnection, worker: Uuid) -> Result<(), Error> {
    LEAVE.query().bind(worker).execute(connection).await.map_err(|e| Error::from_sqlx(LEAVE.name, e))?;
    Ok(())
}

pub(super) async fn housekeep(connection: &mut PgConnection) -> Result<String, Error> {
    let row = HOUSEKEEP.query().fetch_one(connection).await;
    row.and_then(|row| row.try_get(0)).map_err(|e| Error::from_sqlx(HOUSEKEEP.name, e))
}
