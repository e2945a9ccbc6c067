use postrider_contract::{JobId, Timestamp};
use sqlx::PgPool;

use super::pg;
use crate::error::Error;
use crate::port::Count;

/// Failures of a kind that say the same but for numbers and names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The kind.
    pub kind: String,
    /// What tells this group from the others of its kind.
    pub fingerprint: String,
    /// What they say, without what differs.
    pub says: String,
    /// The last one of them, as it was told.
    pub sample: String,
    /// Attempts that failed so.
    pub attempts: u64,
    /// Jobs that were discarded after such an attempt.
    pub discarded: u64,
    /// The first one.
    pub first_at: Timestamp,
    /// The last one.
    pub last_at: Timestamp,
    /// The job of the last one.
    pub last_job: JobId,
}

/// How grave an alert is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// It needs somebody now.
    Critical,
    /// It needs somebody before it becomes critical.
    Warning,
}

/// Something that needs somebody.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Alert {
    /// What sort of thing, such as `oldest_due`; `docs/guides/why-has-it-not-run.md` lists them.
    pub name: String,
    /// How grave it is.
    pub severity: Severity,
    /// What it is about.
    pub subject: String,
    /// Since when, where that is known.
    pub since: Option<Timestamp>,
    /// What is the matter.
    pub says: String,
    /// What to do.
    pub remedy: String,
}

/// A duty of housekeeping.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Duty {
    /// `usual`, `retire` or `failures`.
    pub name: String,
    /// When it was last done.
    pub done_at: Option<Timestamp>,
    /// How long that took, in milliseconds.
    pub took_ms: Option<u64>,
    /// What came of it, as JSON.
    pub told: Option<String>,
    /// Since when it fails, if it does.
    pub failing_since: Option<Timestamp>,
    /// What it fails with.
    pub error: Option<String>,
}

/// How many jobs are where, by kind, queue and state, as of ten seconds ago at most. Every declared kind is there. Counting stops at 10 000
/// in each place where jobs wait, and of those that have ended at the newest 10 000 of each class.
pub async fn counts(pool: &PgPool) -> Result<Vec<Count>, Error> {
    pg::counts(pool).await
}

/// The groups of failures of a kind, or of all kinds, the last seen first; at most 1 000.
pub async fn failures(pool: &PgPool, kind: Option<&str>, most: u32) -> Result<Vec<Failure>, Error> {
    pg::failures(pool, kind, most).await
}

/// What needs somebody, the gravest first.
pub async fn alerts(pool: &PgPool) -> Result<Vec<Alert>, Error> {
    pg::alerts(pool).await
}

/// When the duties of housekeeping were last done, and what went wrong.
pub async fn duties(pool: &PgPool) -> Result<Vec<Duty>, Error> {
    pg::duties(pool).await
}
