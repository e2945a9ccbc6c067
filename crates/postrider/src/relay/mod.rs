//! Each committed event becomes one job for each matching subscription. In: the log. Out: jobs and a cut row, in one transaction.
//!
//! The log is read by the difference of two snapshots, so that an event that commits late is never passed over and a long
//! transaction elsewhere delays nothing. One relay works at a time; the others find it busy and wait for the next hint.
//!
//! A pass that fails is made again with care: what cannot be turned into a job is set aside, pair by pair of an event and a subscription, and the
//! rest goes on.

mod decide;
mod elsewhere;
mod pg;
mod task;

use std::time::Duration;

use crate::pg::Statement;

pub(crate) use task::{Relay, run};

pub(crate) const STATEMENTS: &[&Statement] = pg::STATEMENTS;

/// What one pass did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pass {
    pub(crate) events: u64,
    pub(crate) jobs: u64,
    /// There is more to take at once.
    pub(crate) more: bool,
    /// Transactions were open that may still bring events.
    pub(crate) open_writers: bool,
    /// Another relay was at it.
    pub(crate) busy: bool,
    /// Pairs of an event and a subscription that were set aside.
    pub(crate) aside: u64,
    /// When the next pair that was set aside is due again.
    pub(crate) retry_in: Option<Duration>,
}
