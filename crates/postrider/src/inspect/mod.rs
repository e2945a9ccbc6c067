//! The operator's view: what waits, what runs, what happened last. In: a pool. Out: small, capped answers; no look scans a hot table.

mod capture;
mod pg;
mod subscription;
mod view;
mod watch;

use postrider_contract::Timestamp;
use serde::Serialize;
use sqlx::PgPool;

use crate::error::Error;
use crate::pg::Statement;

pub use crate::port::Count;
pub use capture::{Drift, DriftSeverity, WatchView, check_watches, watches};
pub use subscription::{SubscriptionRow, SubscriptionState, subscriptions};
pub(crate) use view::{explain, gone, list, queues, views};
pub use watch::{Alert, Duty, Failure, Severity, alerts, counts, duties, failures};

pub(crate) const STATEMENTS: &[&Statement] = pg::STATEMENTS;

/// Counts stop here: a number that reached it means "this many or more".
pub const COUNT_MOST: u64 = 10_000;

/// The whole bus at a glance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Overview {
    /// Events that were fanned out since the log began.
    pub relayed: u64,
    /// Jobs that were made of them.
    pub fanned_out: u64,
    /// Jobs that can be claimed now; at most [`COUNT_MOST`].
    pub ready: u64,
    /// Jobs that wait for their time: scheduled, retrying, snoozed; at most [`COUNT_MOST`].
    pub later: u64,
    /// Of those, jobs that failed before; at most [`COUNT_MOST`].
    pub retrying: u64,
    /// Jobs that wait for a worker that knows their kind; at most [`COUNT_MOST`].
    pub parked: u64,
    /// Jobs that run.
    pub running: u64,
    /// Live workers.
    pub workers: u64,
    /// How long the job that has waited longest to be claimed has been due, in microseconds.
    pub oldest_ready_micros: Option<u64>,
}

/// A recorded event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct EventRow {
    /// Its id.
    pub id: String,
    /// Its type.
    pub r#type: String,
    /// What it is about.
    pub subject: String,
    /// Whose it is.
    pub owner: String,
    /// When it was recorded.
    pub recorded_at: Timestamp,
    /// The size of its data.
    pub data_bytes: u64,
}

/// A process that works.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct WorkerRow {
    /// Its id, new for each start.
    pub id: String,
    /// Its application.
    pub app: String,
    /// Its process.
    pub pid: i64,
    /// The queues that it works on.
    pub queues: String,
    /// Jobs that it runs.
    pub running: u64,
    /// When it started.
    pub started_at: Timestamp,
    /// When it last beat.
    pub beat_at: Timestamp,
}

/// The whole bus at a glance.
pub async fn overview(pool: &PgPool) -> Result<Overview, Error> {
    pg::overview(pool).await
}

/// The last events, newest first; at most 200.
pub async fn events(pool: &PgPool, most: u32) -> Result<Vec<EventRow>, Error> {
    pg::events(pool, most).await
}

/// The workers, newest first; at most 200.
pub async fn workers(pool: &PgPool) -> Result<Vec<WorkerRow>, Error> {
    pg::workers(pool).await
}
