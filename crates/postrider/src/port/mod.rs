//! What an engine promises: the ports. The native engine stands behind them, and so may others.
//!
//! Every port is dyn-safe by hand; no type of an engine leaks through one. A transaction is an argument, not a handle that is bound.
//! What an engine cannot do it says in [`Capabilities`], and refuses with [`Code::Capability`](crate::Code::Capability) when it is asked all the same.

mod act;
mod attempt;
mod capability;
mod cause;
mod job;
mod key;
mod view;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use postrider_contract::JobId;

use crate::error::{Error, Fut};
use crate::pg::{Statement, Tx};

pub use act::{Act, Effect, Filter, Plan, Step};
pub(crate) const STATEMENTS: &[&Statement] = &[&cause::SAY_CAUSE];

pub use attempt::{Attempt, Completion};
pub use capability::Capabilities;
pub(crate) use cause::{Cause, working_for};
pub(crate) use job::check_order;
pub use job::{Enqueued, Job, NewJob, OnDuplicate, Source};
pub use key::{Hold, Keyless, Keys, LaneAct, LaneEffect, LaneKey, LaneView};
pub use view::{AttemptView, Count, JobView, Look, Page, Progress, QueueView, State, Waits};

/// Enqueues jobs and acts on them.
///
/// With a transaction everything happens in it; without one, in one of the engine's own.
pub trait Jobs: Send + Sync + fmt::Debug {
    /// What this engine can do.
    fn capabilities(&self) -> Capabilities;

    /// Enqueues all or none; answers in the order of the jobs.
    ///
    /// Names, sizes and payloads are checked before any statement, so that a refusal leaves the transaction usable. Without a
    /// transaction an error of which [`Error::is_unknown`] is true leaves it open whether the jobs are there, and enqueuing them again may
    /// double them, unless they carry an idempotency key. Who must know enqueues them in a transaction and asks
    /// [`Recorder::resolve`](crate::Recorder::resolve).
    fn enqueue<'a>(&'a self, tx: Option<&'a mut dyn Tx>, jobs: &'a [NewJob]) -> Fut<'a, Vec<Enqueued>>;

    /// Enqueues what the relay made of one cut, in the relay's transaction; each job carries its [`Source`]. The native engine does this
    /// inside of its relay, without the jobs passing through here.
    fn fan_out<'a>(&'a self, tx: &'a mut dyn Tx, jobs: &'a [NewJob]) -> Fut<'a, Vec<Enqueued>> {
        self.enqueue(Some(tx), jobs)
    }

    /// Acts on jobs; answers in the order of the ids.
    fn act<'a>(&'a self, tx: Option<&'a mut dyn Tx>, act: Act, ids: &'a [JobId]) -> Fut<'a, Vec<Effect>>;

    /// How many jobs an act by filter would reach. The plan is what [`Jobs::step`] carries out: jobs that come later are not in it.
    fn plan<'a>(&'a self, act: Act, filter: &'a Filter) -> Fut<'a, Plan>;

    /// Carries out the next batch of a plan, after a job; each batch is a transaction of its own. Taken again from the same place after a lost
    /// answer, it does no harm.
    fn step<'a>(&'a self, plan: &'a Plan, after: Option<&'a JobId>) -> Fut<'a, Step>;

    /// Pauses a queue or lets it go on. A paused queue hands out nothing until it is resumed, whatever is restarted meanwhile.
    fn pause<'a>(&'a self, queue: &'a str, paused: bool) -> Fut<'a, ()>;

    /// Waits until a job has ended, at most this long.
    fn wait<'a>(&'a self, id: &'a JobId, timeout: Duration) -> Fut<'a, Waited>;
}

/// What a wait came to.
#[derive(Debug, Clone, PartialEq)]
pub enum Waited {
    /// The job has ended, and how.
    Ended(Box<JobView>),
    /// It has not ended in time. The id is the receipt: wait again, or look.
    TimedOut(JobId),
    /// It had ended, and the time that it is kept for is over: how it ended is not known any more.
    Gone(JobId),
    /// So many wait in this process already that this one was not let in. The id is the receipt: look later.
    Full(JobId),
}

/// The operator's view of jobs. Small, capped answers; no look scans a hot table.
pub trait Inspector: Send + Sync + fmt::Debug {
    /// One job with its attempts; `None` if there is none with this id.
    fn job<'a>(&'a self, id: &'a JobId) -> Fut<'a, Option<JobView>>;

    /// The same, and whether one that is not there was there once.
    fn look<'a>(&'a self, id: &'a JobId) -> Fut<'a, Look> {
        Box::pin(async move { Ok(self.job(id).await?.map_or(Look::Unknown, |job| Look::Here(Box::new(job)))) })
    }

    /// Why a job has not run, in a sentence or two of English; `None` if there is none with this id. Refused by an engine that does not
    /// [explain](Capabilities::explains).
    fn explain<'a>(&'a self, id: &'a JobId) -> Fut<'a, Option<String>> {
        let _ = id;
        Box::pin(async { Err(incapable("explain", "it tells where a job is, and not why")) })
    }

    /// Jobs that match, newest first, from where the page before says that the next one begins. Each page looks at a bounded number of jobs:
    /// one may be empty and still say where to go on.
    fn jobs<'a>(&'a self, filter: &'a Filter, after: Option<&'a JobId>, most: usize) -> Fut<'a, Page>;

    /// How many jobs are where, by kind, queue and state; every declared kind is there before it ever ran. Counting stops at a bound, and says so.
    /// It may be some seconds old. Refused by an engine that does not [count](Capabilities::counts).
    fn counts(&self) -> Fut<'_, Vec<Count>> {
        Box::pin(async { Err(incapable("counts", "it does not count jobs")) })
    }

    /// The queues that are known, by name.
    fn queues(&self) -> Fut<'_, Vec<QueueView>>;
}

/// One process of an application on an engine: declared, not yet at work.
pub trait Runtime: Send + Sync {
    /// What its engine can do.
    fn capabilities(&self) -> Capabilities;

    /// Enqueues jobs and acts on them.
    fn jobs(&self) -> Arc<dyn Jobs>;

    /// Looks at them.
    fn inspector(&self) -> Arc<dyn Inspector>;

    /// Changes limits, holds keys and works on lanes. An engine that has none of this refuses all of it.
    fn keys(&self) -> Arc<dyn Keys> {
        Arc::new(Keyless)
    }

    /// Starts to work, once: a second start is [`Error::AlreadyStarted`].
    fn start(&self) -> Fut<'_, ()>;

    /// Stops: claims nothing more, waits up to `grace` for what runs, cancels the rest and gives it back with its attempt. Before a start and
    /// after a stop it is [`Error::NotRunning`].
    fn stop(&self, grace: Duration) -> Fut<'_, Stopped>;
}

/// How a stop went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stopped {
    /// Every attempt ended within the grace.
    Drained,
    /// So many attempts did not; their jobs were given back with their attempts.
    Abandoned(usize),
}

/// Refuses what an engine cannot do.
pub fn incapable(field: &str, what: &str) -> Error {
    Error::Refused(postrider_contract::Refused::new(
        postrider_contract::Code::Capability,
        field,
        format!("this engine cannot do it: {what}"),
        "ask capabilities() first, or use an engine that can",
    ))
}
