//! The verdict is written once, in batches, fenced. In: outcomes, each under its lease. Out: rows where they belong, and the word that
//! the lease is over. What the lease does not hold open any more is dropped and counted: its owner was stale.

mod pg;
mod task;

use std::time::Duration;

use crate::job::Job;
use crate::pg::Statement;

pub(crate) use task::{Flush, run};

pub(crate) const STATEMENTS: &[&Statement] = pg::STATEMENTS;

/// How an attempt ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Ended {
    Completed,
    Failed {
        wait: Duration,
        error: String,
    },
    Snoozed(Duration),
    Refused(String),
    Exhausted {
        error: String,
    },
    /// Given back, with its attempt.
    Released,
}

/// An ended attempt under its lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) lease: i64,
    pub(crate) id: i64,
    pub(crate) ended: Ended,
}

impl Outcome {
    pub(crate) fn of(job: &Job, ended: Ended) -> Self {
        Self { lease: job.lease, id: job.key, ended }
    }
}
