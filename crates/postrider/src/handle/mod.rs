//! A handler runs under a lease and gives a verdict. In: a leased job. Out: an outcome, told to completion, exactly one.
//!
//! No transaction and no connection of ours is held while a handler runs. A handler only classifies; when to try again is the
//! job layer's decision.

mod attempt;
mod observe;
mod registry;
mod running;
mod task;

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use postrider_contract::{Event, Payload, Verdict};
use tokio_util::sync::CancellationToken;

use crate::clock::Clock;
use crate::error::{BoxError, Error, Fut};
use crate::pg::{Statement, Tx};
use crate::port::{Attempt, Cause, Completion, Job};

pub(crate) const STATEMENTS: &[&Statement] = &[&attempt::PART];

pub(crate) use attempt::{Handled, Told};
pub(crate) use observe::{Attempts, Fault};
pub(crate) use registry::{QueueHook, Registered, Registry};
pub(crate) use running::{Fresh, Running};
pub use task::answer;
pub(crate) use task::{Dispatcher, Spawn};

/// The future of a handler.
pub type Answer<'a> = Pin<Box<dyn Future<Output = Result<Verdict, BoxError>> + Send + 'a>>;

/// What an attempt may ask about itself, and tell.
#[derive(Debug, Clone)]
pub struct Context {
    stop: CancellationToken,
    deadline: Duration,
    clock: Clock,
    attempt: Arc<dyn Attempt>,
    cause: Option<Cause>,
}

impl Context {
    /// For an engine: an attempt that ends when `stop` is cancelled, at `deadline` of `clock` at the latest.
    pub fn new(stop: CancellationToken, deadline: Duration, clock: Clock, attempt: Arc<dyn Attempt>) -> Self {
        Self { stop, deadline, clock, attempt, cause: None }
    }

    /// For an engine: the same attempt, of a job that this event made. What its handler records has the event as its cause and goes on its
    /// trace, unless it says otherwise.
    #[must_use]
    pub fn caused_by(mut self, event: Option<&Event>) -> Self {
        self.cause = event.map(Cause::of);
        self
    }

    /// The trace that the job belongs to, as the W3C's `traceparent`; that of the event that made it.
    pub fn traceparent(&self) -> Option<&str> {
        self.cause.as_ref().and_then(|cause| cause.traceparent.as_deref())
    }

    /// Cancelled when the attempt is to end: its time is over, its job is cancelled, its lease is lost, or the process stops and the grace has
    /// passed. A handler that has not ended a second later is dropped where it waits.
    pub fn stop(&self) -> &CancellationToken {
        &self.stop
    }

    /// How much time the attempt has left.
    pub fn left(&self) -> Duration {
        self.deadline.saturating_sub(self.clock.monotonic())
    }

    /// Begins a transaction in which effects, follow-ups and the end of the attempt commit together. After [`Completion::commit`] what the
    /// handler answers does not count any more. What is recorded in it, also by triggers, has the job's event as its cause.
    pub async fn begin(&self) -> Result<Completion, Error> {
        Completion::begin(Arc::clone(&self.attempt), self.cause.as_ref()).await
    }

    /// Tells how far the attempt has come, in percent and words: readable within a beat, while it runs. The last word counts.
    pub fn progress(&self, percent: u8, note: &str) {
        self.attempt.progress(percent.min(100), note);
    }

    /// Leaves an output, which is kept if the attempt completes; the last one counts. Refused above 64 KiB.
    pub fn output(&self, output: Payload) -> Result<(), Error> {
        self.attempt.output(output)
    }
}

/// Runs the jobs of a kind. It may be run more than once for one job, so it is idempotent.
///
/// `Ok` is a [`Verdict`]; `Err` means: try again on the kind's schedule. A panic is an `Err`.
pub trait Handler: Send + Sync + 'static {
    /// Runs one attempt.
    fn handle<'a>(&'a self, job: &'a Job, cx: &'a Context) -> Answer<'a>;

    /// True if [`Handler::claimed`] is to be called in the transaction of each claim. All handlers of one queue are then claimed in
    /// an explicit transaction.
    fn watches_claims(&self) -> bool {
        false
    }

    /// How many jobs of its queue a process runs at a time if neither [`Builder::concurrency`](crate::Builder::concurrency) nor a handler that
    /// says more says otherwise. None: as many as the settings say.
    fn concurrency(&self) -> Option<usize> {
        None
    }

    /// Writes what must be durable before the attempt begins, in the transaction that claims the jobs.
    fn claimed<'a>(&'a self, tx: &'a mut dyn Tx, jobs: &'a [&'a Job]) -> Fut<'a, ()> {
        let _ = (tx, jobs);
        Box::pin(async { Ok(()) })
    }
}

struct FromFn<F>(F);

impl<F, Fut> Handler for FromFn<F>
where
    F: Fn(Arc<Job>, Context) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Verdict, BoxError>> + Send + 'static,
{
    fn handle<'a>(&'a self, job: &'a Job, cx: &'a Context) -> Answer<'a> {
        Box::pin((self.0)(Arc::new(job.clone()), cx.clone()))
    }
}

/// A handler from a closure: `handler(|job, cx| async move { Ok(Verdict::Complete) })`.
pub fn handler<F, Fut>(f: F) -> Arc<dyn Handler>
where
    F: Fn(Arc<Job>, Context) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Verdict, BoxError>> + Send + 'static,
{
    Arc::new(FromFn(f))
}
