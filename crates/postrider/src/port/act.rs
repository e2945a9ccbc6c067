use postrider_contract::{JobId, Payload, Timestamp};

use super::State;

/// What may be done to a job from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Act {
    /// A job that waits never runs; the handler of one that runs is told, and it ends as cancelled unless it completes first.
    Cancel,
    /// A job that has ended runs again with all its attempts; one that waits for its time runs now.
    Retry,
    /// The job and its history are removed; refused while it runs.
    Delete,
}

impl Act {
    /// Its name, as SQL and the wire spell it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cancel => "cancel",
            Self::Retry => "retry",
            Self::Delete => "delete",
        }
    }
}

/// What an act on one job came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Effect {
    /// It is done.
    Done,
    /// The job runs: its handler is told, and it ends as cancelled unless it completes first.
    Requested,
    /// Refused: the job runs.
    Running,
    /// Nothing to do: the job waits already, or has ended already.
    Already(State),
    /// The job had ended, and the time that it is kept for is over.
    Gone,
    /// There is no such job, or not any more.
    Unknown,
}

/// Which jobs. What is not said matches all.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Filter {
    /// Of this kind.
    pub kind: Option<String>,
    /// In this queue.
    pub queue: Option<String>,
    /// Of this owner.
    pub owner: Option<String>,
    /// Made by the subscription of this name, also if that was removed.
    pub subscription: Option<String>,
    /// With this order key.
    pub order_key: Option<String>,
    /// With this limit key, its own or its kind's.
    pub limit_key: Option<String>,
    /// With all of these tags. Of a list, the first one has an index: name the rarest first.
    pub tags: Vec<String>,
    /// In one of these states; empty for every state.
    pub states: Vec<State>,
    /// Enqueued at this moment or later.
    pub from: Option<Timestamp>,
    /// Enqueued before this moment.
    pub to: Option<Timestamp>,
    /// With args that contain this JSON. It has no index: it is looked at in what the rest of the filter leaves of one bounded look.
    pub args: Option<Payload>,
}

/// An act by filter, counted before anything is done.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// What is to be done.
    pub act: Act,
    /// To which jobs.
    pub filter: Filter,
    /// How many they are.
    pub count: u64,
    /// False if counting stopped at `count`: there are more.
    pub exact: bool,
    /// The last job that is in the plan; none if it is empty.
    pub last: Option<JobId>,
}

/// One batch of a plan.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Step {
    /// On how many jobs it was done or requested.
    pub done: u64,
    /// How many had changed meanwhile, so that it could not be done.
    pub skipped: u64,
    /// The last job that was looked at: go on after it. None when the plan is carried out.
    pub next: Option<JobId>,
}
