//! Keeps the loops alive and stops them in order. In: declarations and handlers. Out: a running worker, relay and housekeeper, and an
//! honest answer when they stop.

mod admit;
mod beat;
mod bus;
mod figures;
mod housekeep;
mod metric;
mod native;
mod pg;
mod running;
mod wait;
mod watch;

use std::time::Duration;

use postrider_contract::{Code, Refused};

use crate::pg::{Pooler, Statement};

pub(crate) use admit::admit;
pub use bus::Bus;
pub(crate) use bus::Parts;
pub use figures::Figures;
pub use metric::{Measured, Metric};
pub use native::{PgInspector, PgJobs, PgKeys};
pub use running::Running;

pub(crate) const STATEMENTS: &[&Statement] = pg::STATEMENTS;

/// How a process learns that there is work. It looks by itself all the same: a hint may be lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum WakeUps {
    /// By notifications, on a connection that listens.
    #[default]
    Listen,
    /// By looking every [`Settings::poll_interval`], without a connection that listens.
    Poll,
}

/// How this process takes part.
#[expect(clippy::struct_excessive_bools, reason = "each is a part that a process takes or leaves")]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// How often the worker beats. Default: 1 s.
    pub beat: Duration,
    /// How long a worker may be watched without a new beat before its jobs run again elsewhere. At least three beats. Default: 10 s.
    pub dead_after: Duration,
    /// Jobs at a time of a queue for which neither [`Builder::concurrency`](crate::Builder::concurrency) nor
    /// [`Handler::concurrency`](crate::Handler::concurrency) says anything. Default: 64.
    pub concurrency: usize,
    /// Whether this process relays events. Default: yes.
    pub relay: bool,
    /// Whether this process works on jobs. Default: yes.
    pub work: bool,
    /// Whether this process makes partitions and forgets what is over. Default: yes.
    pub housekeeping: bool,
    /// Whether this process fires the schedules that it declares, and those that were declared in SQL. Default: yes.
    pub schedules: bool,
    /// How this process learns that there is work. Default: by LISTEN.
    pub wake_ups: WakeUps,
    /// How often an idle claim and the relay look while no notification is heard. Default: 1 s.
    pub poll_interval: Duration,
    /// What stands between this process and its database. Default: nothing.
    pub pooler: Pooler,
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
            schedules: true,
            wake_ups: WakeUps::Listen,
            poll_interval: Duration::from_secs(1),
            pooler: Pooler::None,
        }
    }
}

impl Settings {
    /// What is wrong with them; `direct`: there is a connection past a pooler.
    pub(crate) fn check(&self, direct: bool) -> Result<(), Refused> {
        let wrong = |field, message, remedy| Err(Refused::new(Code::Option, field, message, remedy));
        if self.dead_after < self.beat * 3 {
            return wrong("dead_after", "it is shorter than three beats", "use at least three times `beat`");
        }
        if self.poll_interval < Duration::from_millis(10) {
            return wrong("poll_interval", "it is shorter than 10 ms", "use 10 ms or more");
        }
        if self.pooler == Pooler::Transaction && self.wake_ups == WakeUps::Listen && !direct {
            let remedy = "use WakeUps::Poll, or give a direct connection with listen_on";
            return wrong("wake_ups", "nothing is heard through a pooler in transaction mode", remedy);
        }
        Ok(())
    }
}
