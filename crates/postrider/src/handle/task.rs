use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use postrider_contract::Verdict;
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::mpsc::UnboundedSender;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{error, warn};

use super::attempt::Native;
use super::running::{End, Stuck};
use super::{Context, Handled, Registered, Registry, Running};
use crate::clock::{Clock, Dice};
use crate::complete::{Ended, Outcome};
use crate::error::BoxError;
use crate::job::{Claims, Next, after_failure};
use crate::port::{Attempt, Job};

/// How far past its timeout an attempt may be before it is told as stuck: a dropped future ends at once, a blocked thread does not.
const STUCK_PATIENCE: Duration = Duration::from_secs(1);

/// How long a handler that was told to stop may take to end by itself; then it is dropped where it waits.
const STOP_PATIENCE: Duration = Duration::from_secs(1);

/// Starts a task under the supervisor.
pub(crate) type Spawn = Arc<dyn Fn(Pin<Box<dyn Future<Output = ()> + Send>>) + Send + Sync>;

/// Takes claimed jobs and runs each in a task of its own.
pub(crate) struct Dispatcher {
    pub(crate) registry: Arc<Registry>,
    pub(crate) running: Arc<Running>,
    pub(crate) handled: Arc<Handled>,
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
            let _ = self.outcomes.send(Outcome { lease: job.lease, id: job.key, ended: Ended::Released });
            return;
        };
        let stop = CancellationToken::new();
        let began = self.clock.monotonic();
        let deadline = began + registered.timeout;
        self.running.begin(&job, stop.clone(), deadline);
        let running = Arc::clone(&self.running);
        let native = Arc::new(Native::new(Arc::clone(&self.handled), Arc::clone(&running), &job));
        let cx = Context::new(stop, deadline, self.clock.clone(), Arc::clone(&native) as Arc<dyn Attempt>);
        let (outcomes, dice, clock) = (self.outcomes.clone(), self.dice.clone(), self.clock.clone());
        (self.spawn)(Box::pin(async move {
            let ended = attempt(&job, &registered, &cx, &dice).await;
            let ended = match ended {
                _ if native.is_committed() => Ended::Committed,
                Ended::Completed(_) => Ended::Completed(native.take_output()),
                Ended::Snoozed(wait) => snoozed(&job, &registered, wait, clock.monotonic().saturating_sub(began)),
                ended => ended,
            };
            let lease = native.lease();
            if let Some(ended) = counted(&running, (lease, job.key), ended) {
                let _ = outcomes.send(Outcome { lease, id: job.key, ended });
            }
            drop(slot);
        }));
    }
}

/// An attempt that was told as stuck or given back has no say any more; one that failed because the process stops is given back.
fn counted(running: &Running, (lease, id): (i64, i64), ended: Ended) -> Option<Ended> {
    match (running.end(lease, id), ended) {
        // what has committed has committed
        (_, Ended::Committed) => Some(Ended::Committed),
        (End::Told, _) => None,
        (End::Interrupted, Ended::Failed { .. } | Ended::Exhausted { .. }) => {
            running.give_back();
            Some(Ended::Released)
        }
        (_, ended) => Some(ended),
    }
}

/// A handler that puts its job off for ever must not keep it alive for ever. The age is counted by the database's clock up to the claim.
fn snoozed(job: &Job, registered: &Registered, wait: Duration, ran: Duration) -> Ended {
    let waited = job.claimed_at.as_micros().saturating_sub(job.due_at.as_micros());
    let age = Duration::from_micros(u64::try_from(waited).unwrap_or(0)) + ran;
    if age + wait <= registered.max_age {
        return Ended::Snoozed(wait);
    }
    warn!(job.id = %job.id, job.kind, "job {} is discarded: it was put off for longer than its kind allows", job.id);
    Ended::Aged {
        error: format!("put off until it was too old: the kind's max_age is {} s", registered.max_age.as_secs()),
    }
}

async fn attempt(job: &Job, registered: &Registered, cx: &Context, dice: &Dice) -> Ended {
    // called inside: it may panic before there is a future
    let handled = AssertUnwindSafe(async { registered.handler.handle(job, cx).await }).catch_unwind();
    let told = async {
        cx.stop().cancelled().await;
        sleep(STOP_PATIENCE).await;
    };
    let handled = async {
        tokio::select! {
            biased;
            handled = handled => Some(handled),
            () = told => None,
        }
    };
    let failure: BoxError = match timeout(registered.timeout, handled).await {
        Ok(Some(Ok(Ok(Verdict::Complete)))) => return Ended::Completed(None),
        Ok(Some(Ok(Ok(Verdict::Snooze(wait))))) => return Ended::Snoozed(wait),
        Ok(Some(Ok(Ok(Verdict::Discard(reason))))) => return Ended::Refused(reason),
        Ok(Some(Ok(Ok(Verdict::Retry { reason, after })))) => return failed(job, registered, (reason, after), dice),
        Ok(Some(Ok(Ok(unknown)))) => {
            format!("answered with a verdict that this version does not know: {unknown:?}").into()
        }
        Ok(Some(Ok(Err(error)))) => error,
        Ok(Some(Err(panic))) => format!("panicked: {}", panic_text(panic.as_ref())).into(),
        Ok(None) => "was told to stop and did not end by itself".into(),
        Err(_) => {
            cx.stop().cancel();
            format!("timed out after {} ms", registered.timeout.as_millis()).into()
        }
    };
    failed(job, registered, (chain(failure.as_ref()), Duration::ZERO), dice)
}

/// What a failed attempt becomes; the next one does not come before `after`.
fn failed(job: &Job, registered: &Registered, (error, after): (String, Duration), dice: &Dice) -> Ended {
    let retry = job.retry.as_ref().unwrap_or(&registered.retry);
    match after_failure(retry, job.attempt, job.max_attempts, dice.roll()) {
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
            let Stuck { lease, id, kind, attempt, max_attempts, retry } = stuck;
            error!(
                job.id = id,
                job.kind = kind,
                "job {id} is past its timeout and ignores its cancellation: its slot is lost until it returns"
            );
            let Some(registered) = self.registry.get(&kind) else { continue };
            let error = "timed out and ignores its cancellation".to_owned();
            let ended = match after_failure(
                retry.as_ref().unwrap_or(&registered.retry),
                attempt,
                max_attempts,
                self.dice.roll(),
            ) {
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
