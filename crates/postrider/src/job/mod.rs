//! A job waits, is leased, fails, waits again. In: jobs from callers and from the relay. Out: leased jobs, a batch at a time.
//!
//! A job's state is where its id is: ready, later, parked, in a lease's open set, or done.

mod decide;
mod act;
mod holdings;
mod known;
mod lane;
mod line;
mod pg;
mod probes;
pub(crate) mod retry;
mod task;

use std::sync::Arc;

use uuid::Uuid;

use crate::error::Fut;
use crate::pg::{Statement, Tx};
use crate::port::Job;

pub(crate) use act::{act, ended, filter_json, pause, plan, step};
pub(crate) use decide::pause as idle_pause;
pub use decide::{Next, after_failure};
pub(crate) use holdings::Holdings;
pub(crate) use known::Known;
pub(crate) use lane::{LaneLook, act_on_lane, hold, lanes, set_limit};
pub(crate) use line::{Line, Pace};
pub(crate) use pg::{enqueue, enqueue_alone};
pub(crate) use task::{Claimer, Claims, run};

pub(crate) const STATEMENTS: &[&Statement] = &[
    &pg::CLAIM,
    &pg::SETTLE_CALLED,
    &pg::ENQUEUE,
    &pg::ENQUEUE_MANY,
    &act::CANCEL,
    &act::RETRY,
    &act::DELETE,
    &act::PAUSE,
    &act::PLAN,
    &act::LAST,
    &act::STEP,
    &act::ENDED,
    &lane::SET_LIMIT,
    &lane::HOLD,
    &lane::LANES,
    &lane::ACT_ON_LANE,
];

/// Who claims, and what it knows how to run.
#[derive(Debug, Clone)]
pub(crate) struct Claimant {
    pub(crate) worker: Uuid,
    pub(crate) queue: String,
    pub(crate) kinds: Vec<String>,
    /// Whether it looks into every share of the queue in turn.
    pub(crate) fair: bool,
}

/// Called in the transaction of each claim of a queue, with what was claimed.
pub(crate) trait ClaimHook: Send + Sync {
    fn claimed<'a>(&'a self, tx: &'a mut dyn Tx, jobs: &'a [Job]) -> Fut<'a, ()>;
}

pub(crate) type Hook = Option<Arc<dyn ClaimHook>>;
