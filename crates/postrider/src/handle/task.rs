use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use postrider_contract::Verdict;
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::mpsc::UnboundedSender;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::{error, warn};

use super::running::{End, Stuck};
use super::{Context, Registered, Registry, Running};
use crate::clock::{Clock, Dice};
use crate::complete::{Ended, Outcome};
use crate::error::BoxError;
use crate::job::{Claims, Job, Next, after_failure};

/// How far past its timeout an attempt may be before it is told as stuck: a dropped future ends at once, a blocked thread does not.
const STUCK_PATIENCE: Duration = Duration::from_secs(1);

/// Starts a task under the supervisor.
pub(crate) type Spawn = Arc<dyn Fn(Pin<Box<dyn Future<Output = ()> + Send>>) + Send + Sync>;

/// Takes claimed jobs and runs each in a task of its own.
pub(crate) struct Dispatcher {
    pub(crate) registry: Arc<Registry>,
    pub(crate) running: Arc<Running>,
    /// Bounded by the slots: a job holds one until its outcome is here.
    pub(crate) outcomes: UnboundedSender<Outcome>,
    pub(crate) clock: Clock,
    pub(crate) dice: Dice,
    pub(crate) spawn: Spawn,
}

impl Claims for Dispatcher {
    fn dispatch(&self, job: Job, slot: OwnedSemaphorePermit) {
        let Some(registered) = self.registry.get(&job.kind).cloned() else {
            // cannot be: a claim names the kinds of this registry
            let _ = self.outcomes.send(Outcome::of(&job, Ended::Released));
            return;
        };
        let stop = CancellationToken::new();
        self.running.begin(&job, stop.clone(), self.clock.monotonic() + registered.timeout);
        let (running, outcomes, dice) = (Arc::clone(&self.running), self.outcomes.clone(), self.dice.clone());
        (self.spawn)(Box::pin(async move {
            let ended = attempt(&job, &registered, stop, &dice).await;
            if let Some(ended) = counted(&running, &job, ended) {
                let _ = outcomes.send(Outcome::of(&job, ended));
            }
            drop(slot);
        }));
    }
}

/// An attempt that was told as stuck or given back has no say any more; one that failed because the process stops is given back.
fn counted(running: &Running, job: &Job, ended: Ended) -> Option<Ended> {
    match (running.end(job.lease, job.key), ended) {
        (End::Told, _) => None,
        (End::Interrupted, Ended::Failed { .. } | Ended::Exhausted { .. }) => {
            running.give_back();
            Some(Ended::Released)
        }
        (_, ended) => Some(ended),
    }
}

async fn attempt(job: &Job, registered: &Registered, stop: CancellationToken, dice: &Dice) -> Ended {
    let cx = Context::new(stop.clone());
    let handled = AssertUnwindSafe(registered.handler.handle(job, &cx)).catch_unwind();
    let failure: BoxError = match timeout(registered.timeout, handled).await {
        Ok(Ok(Ok(Verdict::Complete))) => return Ended::Completed,
        Ok(Ok(Ok(Verdict::Snooze(wait)))) => return Ended::Snoozed(wait),
        Ok(Ok(Ok(Verdict::Discard(reason)))) => return Ended::Refused(reason),
        Ok(Ok(Ok(Verdict::Retry { reason, after }))) => return failed(job, registered, (reason, after), dice),
        Ok(Ok(Ok(unknown))) => format!("answered with a verdict that this version does not know: {unknown:?}").into(),
        Ok(Ok(Err(error))) => error,
        Ok(Err(panic)) => format!("panicked: {}", panic_text(panic.as_ref())).into(),
        Err(_) => {
            stop.cancel();
            format!("timed out after {} ms", registered.timeout.as_millis()).into()
        }
    };
    failed(job, registered, (chain(failure.as_ref()), Duration::ZERO), dice)
}

/// What a failed attempt becomes; the next one does not come before `after`.
fn failed(job: &Job, registered: &Registered, (error, after): (String, Duration), dice: &Dice) -> Ended {
    match after_failure(&registered.retry, job.attempt, job.max_attempts, dice.roll()) {
        Next::Retry(wait) => Ended::Failed { wait: wait.max(after), error },
        Next::Exhausted => {
            warn!(job.id = %job.id, job.kind, attempt = job.attempt, error, "job {} is discarded: its attempts are used up", job.id);
            Ended::Exhausted { error }
        }
    }
}

impl Dispatcher {
    /// Ends attempts that are past their deadline and hold their thread: a handler that blocks cannot be cancelled. Its slot stays
    /// taken until it returns.
    pub(crate) fn tell_stuck(&self) {
        for stuck in self.running.stuck(self.clock.monotonic(), STUCK_PATIENCE) {
            let Stuck { lease, id, kind, attempt, max_attempts } = stuck;
            error!(
                job.id = id,
                job.kind = kind,
                "job {id} is past its timeout and ignores its cancellation: its slot is lost until it returns"
            );
            let Some(registered) = self.registry.get(&kind) else { continue };
            let error = "timed out and ignores its cancellation".to_owned();
            let ended = match after_failure(&registered.retry, attempt, max_attempts, self.dice.roll()) {
                Next::Retry(wait) => Ended::Failed { wait, error },
                Next::Exhausted => Ended::Exhausted { error },
            };
            let _ = self.outcomes.send(Outcome { lease, id, ended });
        }
    }

    /// Gives back what has not ended; answers how many attempts this stop has given back in all.
    pub(crate) fn abandon(&self) -> usize {
        for (lease, id) in self.running.abandon() {
            self.running.give_back();
            let _ = self.outcomes.send(Outcome { lease, id, ended: Ended::Released });
        }
        self.running.given_back()
    }
}

/// An error with its causes, in one line each.
fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str("\ncaused by: ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}
