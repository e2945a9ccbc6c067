//! Keeps the loops alive and stops them in order. In: declarations and handlers. Out: a running worker, relay and housekeeper, and an
//! honest answer when they stop.

mod beat;
mod bus;
mod figures;
mod housekeep;
mod native;
mod pg;
mod running;
mod wait;
mod watch;

use std::time::Duration;

use crate::pg::Statement;

pub use bus::Bus;
pub(crate) use bus::Parts;
pub use figures::Figures;
pub use native::{PgInspector, PgJobs};
pub use running::Running;

pub(crate) const STATEMENTS: &[&Statement] = pg::STATEMENTS;

/// How this process takes part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// How often the worker beats. Default: 1 s.
    pub beat: Duration,
    /// How long a worker may be watched without a new beat before its jobs run again elsewhere. At least three beats. Default: 10 s.
    pub dead_after: Duration,
    /// Jobs at a time of a queue for which [`Builder::concurrency`](crate::Builder::concurrency) says nothing. Default: 64.
    pub concurrency: usize,
    /// Whether this process relays events. Default: yes.
    pub relay: bool,
    /// Whether this process works on jobs. Default: yes.
    pub work: bool,
    /// Whether this process makes partitions and forgets what is over. Default: yes.
    pub housekeeping: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            beat: Duration::from_secs(1),
            dead_after: Duration::from_secs(10),
            concurrency: 64,
            relay: true,
            work: true,
            housekeeping: true,
        }
    }
}
