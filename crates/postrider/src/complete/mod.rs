//! The verdict is written once, in batches, fenced. In: outcomes, each under its lease. Out: rows where they belong, and the word that
//! the lease is over. What the lease does not hold open any more is dropped and counted: its owner was stale.

mod pg;
mod task;

use std::time::Duration;

use postrider_contract::Payload;

use crate::pg::Statement;

pub(crate) use pg::finish;
pub use pg::storable;
pub(crate) use task::{Flush, run};

pub(crate) const STATEMENTS: &[&Statement] = pg::STATEMENTS;

/// How an attempt ended.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Ended {
    Completed(Option<Payload>),
    /// In a transaction of the application: there is nothing left to write.
    Committed,
    Failed {
        wait: Duration,
        error: String,
    },
    Snoozed(Duration),
    Refused(String),
    Exhausted {
        error: String,
    },
    /// Put off until it was too old.
    Aged {
        error: String,
    },
    /// Given back, with its attempt.
    Released,
}

/// An ended attempt under its lease.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Outcome {
    pub(crate) lease: i64,
    pub(crate) id: i64,
    pub(crate) ended: Ended,
}
