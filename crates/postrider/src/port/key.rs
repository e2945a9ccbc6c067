use std::fmt;

use postrider_contract::{JobId, Limit, Timestamp};

use super::{State, incapable};
use crate::error::Fut;
use crate::pg::Tx;

/// Limits, holds and lanes: what is changed live about jobs with keys. What an engine does not have it refuses with
/// [`Code::Capability`](crate::Code::Capability).
pub trait Keys: Send + Sync + fmt::Debug {
    /// How many jobs of a limit key run at a time, and how many start in a period, in a queue and over all processes. The empty key is
    /// every limit key of the queue that has no limit of its own; a limit that says nothing takes it away. It holds for the next claims:
    /// what runs goes on.
    fn set_limit<'a>(&'a self, queue: &'a str, key: &'a str, limit: Limit) -> Fut<'a, ()> {
        let _ = (queue, key, limit);
        Box::pin(async { Err(incapable("limit", "it has no limits")) })
    }

    /// Gives nothing of a limit key until a moment; see [`Hold`].
    fn hold<'a>(&'a self, tx: Option<&'a mut dyn Tx>, hold: Hold<'a>) -> Fut<'a, ()> {
        let _ = (tx, hold);
        Box::pin(async { Err(incapable("hold", "it has no limits")) })
    }

    /// The lanes of a queue, by their keys, after one of them; 200 at most. A lane is there while a job has its turn or waits in it.
    fn lanes<'a>(&'a self, queue: &'a str, after: Option<&'a LaneKey>, most: usize) -> Fut<'a, Vec<LaneView>> {
        let _ = (queue, after, most);
        Box::pin(async { Err(incapable("lane", "it has no lanes")) })
    }

    /// The same, those alone that are stopped.
    fn stopped_lanes<'a>(&'a self, queue: &'a str, after: Option<&'a LaneKey>, most: usize) -> Fut<'a, Vec<LaneView>> {
        self.lanes(queue, after, most)
    }

    /// One lane; `None` if there is none just now.
    fn lane<'a>(&'a self, queue: &'a str, key: &'a LaneKey) -> Fut<'a, Option<LaneView>> {
        let _ = (queue, key);
        Box::pin(async { Err(incapable("lane", "it has no lanes")) })
    }

    /// Acts on the lane of an order key whose head is in the way.
    fn act_on_lane<'a>(&'a self, queue: &'a str, order_key: &'a str, act: LaneAct) -> Fut<'a, LaneEffect> {
        let _ = (queue, order_key, act);
        Box::pin(async { Err(incapable("lane", "it has no lanes")) })
    }
}

/// Nothing of all this.
#[derive(Debug, Clone, Copy)]
pub struct Keyless;

impl Keys for Keyless {}

/// A limit key that gives nothing for a while.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hold<'a> {
    /// In this queue.
    pub queue: &'a str,
    /// The limit key; empty for every one of the queue.
    pub key: &'a str,
    /// Until this moment of the database's clock; none, or one that is over, lets it go on.
    pub until: Option<Timestamp>,
    /// Why; shown with what waits.
    pub reason: &'a str,
}

/// Which lane of a queue.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LaneKey {
    /// The jobs of one limit key.
    Limit(String),
    /// The jobs of one order key.
    Order(String),
}

/// A lane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaneView {
    /// Which one.
    pub key: LaneKey,
    /// How many jobs wait in it, up to 1 000: of an order key also those that no claim has looked at yet, of a limit key those that were
    /// found to have no room. What waits for a time is not among them.
    pub depth: u64,
    /// The job that has the turn, or for which the lane stopped.
    pub head: Option<JobId>,
    /// Where that one is.
    pub head_state: Option<State>,
    /// Since when it has the turn.
    pub since: Timestamp,
    /// Since when the lane is stopped, if it is.
    pub stopped_at: Option<Timestamp>,
    /// Why it is stopped, or held.
    pub reason: Option<String>,
    /// Until when it is held, if it is.
    pub held_until: Option<Timestamp>,
}

/// What may be done to a lane whose head is in the way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LaneAct {
    /// A stopped lane goes on, in its order.
    Release,
    /// Its head runs again at once, before all others, and the lane goes on.
    Retry,
    /// Its head ends as cancelled, and the lane goes on behind it.
    Skip,
}

impl LaneAct {
    /// Its name, as SQL and the wire spell it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Release => "release",
            Self::Retry => "retry",
            Self::Skip => "skip",
        }
    }
}

/// What an act on a lane came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LaneEffect {
    /// It is done.
    Done,
    /// Nothing was done: its head runs.
    Running,
    /// Nothing was done: somebody works on the lane just now. Try again.
    Busy,
    /// Nothing was done: nobody is in the way there.
    Unknown,
}
