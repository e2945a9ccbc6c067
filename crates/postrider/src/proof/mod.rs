//! What can be proven, and what is held. In: a pool. Out: whether the log, the cuts and the jobs say the same, what an event became, what was set
//! aside; and the switches for it.

mod pg;

use std::time::Duration;

use postrider_contract::{EventId, JobId, Timestamp};
use serde::Serialize;
use sqlx::PgPool;
use tokio::time::{Instant, sleep};

use crate::error::Error;
use crate::pg::Statement;

pub(crate) const STATEMENTS: &[&Statement] = pg::STATEMENTS;

/// A pair of an event and a subscription whose job could not be made, and was set aside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Poison {
    /// The event.
    pub event: EventId,
    /// The subscription's number.
    pub subscription: i64,
    /// The subscription's name, unless it was dropped.
    pub name: Option<String>,
    /// What the last try failed with.
    pub error: String,
    /// When it was set aside.
    pub since: Timestamp,
    /// How often its job was tried.
    pub tries: u64,
    /// When it is tried again; absent after the last try: it stays aside until it is requeued.
    pub retry_at: Option<Timestamp>,
}

/// What the log, the cuts and the jobs say when they are compared.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Verified {
    /// The first and the last pass that was looked at, if there was one.
    pub passes: Option<(u64, u64)>,
    /// Rows of cut that were looked at; those of long ago stand for several passes.
    pub cuts: u64,
    /// Events that are there.
    pub committed: u64,
    /// Events that the relay says it took.
    pub fanned_out: u64,
    /// Their jobs that are there.
    pub jobs: u64,
    /// Events or jobs that are not there.
    pub missing: u64,
    /// Pairs of an event and a subscription with more than one job.
    pub twice: u64,
    /// Rows of cut that do not follow from the one before, or are gone.
    pub broken: u64,
    /// Rows of cut whose events or jobs are not what they were.
    pub altered: u64,
    /// Events that could not be looked at, since retention took them.
    pub unchecked_events: u64,
    /// Jobs that could not be looked at: retention or an operator took them, or another engine has them.
    pub unchecked_jobs: u64,
    /// What was found, in words: the first hundred.
    pub findings: Vec<String>,
}

impl Verified {
    /// Whether nothing is missing, twice, broken or altered.
    pub fn is_whole(&self) -> bool {
        self.missing + self.twice + self.broken + self.altered == 0
    }
}

/// What an event became.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fanout {
    /// Its jobs, in the order in which they were made; none if no subscription asked for it.
    pub jobs: Vec<JobId>,
    /// Subscriptions for which it was set aside.
    pub aside: Vec<String>,
    /// Another engine has its jobs, which are not told here.
    pub elsewhere: bool,
    /// It was cancelled before it was delivered.
    pub cancelled: bool,
}

/// What is set aside now, the oldest first; at most `most` pairs.
pub async fn poison(pool: &PgPool, most: u32) -> Result<Vec<Poison>, Error> {
    pg::poison(pool, most).await
}

/// Makes what was set aside due again, with a fresh allowance of tries: of one event, of one subscription, or all. The relay makes each job once. Answers with
/// how many pairs. Refuses a subscription that was never declared (PR004).
pub async fn requeue(pool: &PgPool, event: Option<EventId>, subscription: Option<&str>) -> Result<u64, Error> {
    pg::requeue(pool, event, subscription).await
}

/// Lets go of what was set aside, in the same choice: no job is made of it, and the reason stays. Refuses an empty reason (PR005).
pub async fn drop_poison(
    pool: &PgPool,
    reason: &str,
    event: Option<EventId>,
    subscription: Option<&str>,
) -> Result<u64, Error> {
    pg::drop_poison(pool, reason, event, subscription).await
}

/// Computes anew from the log and the jobs what the relay says it did, from one moment on and before another; without them, all of it. One statement; it
/// holds nobody up.
pub async fn verify(pool: &PgPool, from: Option<Timestamp>, to: Option<Timestamp>) -> Result<Verified, Error> {
    pg::verify(pool, from, to).await
}

/// Waits until the relay is done with an event, and a delayed one was delivered, and tells what it became; `None` if that took longer than `limit`, or if no such event commits in that time. To be
/// called after the commit, outside of the transaction. Jobs of subscriptions that began later are not told, and of those that coalesce only the job that the
/// event made and is the latest for.
pub async fn await_fanout(pool: &PgPool, event: EventId, limit: Duration) -> Result<Option<Fanout>, Error> {
    let end = Instant::now() + limit;
    let mut pause = Duration::from_millis(2);
    loop {
        if let Some(fanout) = pg::await_fanout(pool, event).await? {
            return Ok(Some(fanout));
        }
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(None);
        }
        sleep(pause.min(left)).await;
        pause = (pause * 2).min(Duration::from_millis(250));
    }
}

/// Erases the data of an event for good; what it hashed to stays, so that [`verify`] still can tell. False if it was erased already. Refuses an event that is
/// not there (PR004), and one that the relay has not come to (PR005).
pub async fn erase(pool: &PgPool, event: EventId, reason: &str) -> Result<bool, Error> {
    pg::erase(pool, event, reason).await
}

/// Holds everything that leaves the database, in all processes and at once: what runs ends, nothing of it is claimed, and nothing of it fails.
pub async fn pause_outbound(pool: &PgPool, reason: &str) -> Result<(), Error> {
    pg::pause_outbound(pool, reason).await
}

/// Lets what leaves go on. False if it was not paused.
pub async fn resume_outbound(pool: &PgPool) -> Result<bool, Error> {
    pg::resume_outbound(pool).await
}

/// Names the instance that this database is: for a copy that is to be one of its own. Processes that hold what leaves go on when they start again.
pub async fn name_instance(pool: &PgPool, name: &str) -> Result<(), Error> {
    pg::name_instance(pool, name).await
}
