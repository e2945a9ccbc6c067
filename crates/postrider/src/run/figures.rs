use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::complete::{Ended, Outcome};
use crate::relay::Relay;

/// What this process has done since it started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Figures {
    /// Events that its relay fanned out.
    pub relayed: u64,
    /// Jobs that its relay made of them.
    pub fanned_out: u64,
    /// Jobs that it leased.
    pub claimed: u64,
    /// Attempts that completed their job.
    pub completed: u64,
    /// Attempts that failed and will be tried again.
    pub retried: u64,
    /// Attempts that put their job off.
    pub snoozed: u64,
    /// Attempts that discarded their job: refused by the handler, or the last one failed.
    pub discarded: u64,
    /// Attempts that were given back.
    pub released: u64,
    /// Outcomes that came too late: another worker had the job.
    pub stale: u64,
    /// Jobs of dead workers that it put back.
    pub rescued: u64,
    /// Calls that wrote outcomes.
    pub flushes: u64,
}

#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) relay: Arc<Relay>,
    pub(super) claimed: Arc<AtomicU64>,
    pub(super) flushes: Arc<AtomicU64>,
    pub(super) rescued: AtomicU64,
    completed: AtomicU64,
    retried: AtomicU64,
    snoozed: AtomicU64,
    discarded: AtomicU64,
    released: AtomicU64,
    stale: AtomicU64,
}

impl Counters {
    pub(super) fn told(&self, outcome: &Outcome, fresh: bool) {
        let counter = match outcome.ended {
            _ if !fresh => &self.stale,
            Ended::Completed(_) | Ended::Committed => &self.completed,
            Ended::Failed { .. } => &self.retried,
            Ended::Snoozed(_) => &self.snoozed,
            Ended::Refused(_) | Ended::Exhausted { .. } | Ended::Aged { .. } => &self.discarded,
            Ended::Released => &self.released,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn read(&self) -> Figures {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Figures {
            relayed: of(&self.relay.events),
            fanned_out: of(&self.relay.jobs),
            claimed: of(&self.claimed),
            completed: of(&self.completed),
            retried: of(&self.retried),
            snoozed: of(&self.snoozed),
            discarded: of(&self.discarded),
            released: of(&self.released),
            stale: of(&self.stale),
            rescued: of(&self.rescued),
            flushes: of(&self.flushes),
        }
    }
}
