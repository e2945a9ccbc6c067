use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use postrider_contract::Verdict;
use tokio::sync::mpsc::UnboundedSender;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument as _, error, warn};

use super::attempt::Native;
use super::observe::{Attempts, Fault};
use super::running::{End, Fresh, Stuck};
use super::{Context, Handled, Handler, Registered, Registry, Running};
use crate::clock::{Clock, Dice};
use crate::complete::{Ended, Outcome};
use crate::job::{Claims, Line, Next, Pace, after_failure};
use crate::port::{Attempt, Job, working_for};

/// How far past its timeout an attempt may be before it is told as stuck: a dropped future ends at once, a blocked thread does not.
const STUCK_PATIENCE: Duration = Duration::from_secs(1);

/// How long a handler that was told to stop may take to end by itself; then it is dropped where it waits.
const STOP_PATIENCE: Duration = Duration::from_secs(1);

/// Starts a task under the supervisor.
pub(crate) type Spawn = Arc<dyn Fn(Pin<Box<dyn Future<Output = ()> + Send>>) + Send + Sync>;

/// Takes claimed jobs and runs each line of them in a task of its own.
pub(crate) struct Dispatcher {
    pub(crate) registry: Arc<Registry>,
    pub(crate) running: Arc<Running>,
    pub(crate) handled: Arc<Handled>,
    /// Bounded by the slots: a job holds one until its outcome is here.
    pub(crate) outcomes: UnboundedSender<Outcome>,
    pub(crate) fresh: Fresh,
    pub(crate) measured: Arc<Attempts>,
    pub(crate) clock: Clock,
    pub(crate) dice: Dice,
    pub(crate) spawn: Spawn,
}

impl Claims for Dispatcher {
    fn dispatch(self: Arc<Self>, line: Line) {
        let here = |job: Job| {
            let stop = CancellationToken::new();
            self.running.begin(&job, stop.clone());
            (job, stop)
        };
        let Line { jobs, slot, pace } = line;
        let jobs: Vec<(Job, CancellationToken)> = jobs.into_iter().map(here).collect();
        let (me, came) = (Arc::clone(&self), self.clock.monotonic());
        (self.spawn)(Box::pin(async move {
            me.run(jobs, &pace, came).await;
            drop(slot);
        }));
    }
}

impl Dispatcher {
    /// Runs jobs one after the other, as long as each of them completes; what is left is given back.
    async fn run(&self, line: Vec<(Job, CancellationToken)>, pace: &Pace, came: Duration) {
        let (began, keyed, all) =
            (self.clock.monotonic(), line.iter().any(|(job, _)| job.order_key.is_some()), line.len());
        let mut ran = 0;
        let mut jobs = line.into_iter();
        for (job, stop) in jobs.by_ref() {
            if !self.running.goes_on() {
                // the reply to a claim that was on its way when the process began to stop
                self.release(&job);
                break;
            }
            let completed = self.run_one(job, stop, came).await;
            ran += 1;
            let now = self.clock.monotonic();
            let in_time = Pace::goes_on(now.saturating_sub(began));
            if !in_time && ran < all {
                pace.cut(ran);
            }
            if !completed || !in_time || !self.fresh.is(now) {
                break;
            }
        }
        jobs.for_each(|(job, _)| self.release(&job));
        if keyed && ran == all {
            pace.ended(all, self.clock.monotonic().saturating_sub(began));
        }
    }

    /// Gives back a job whose attempt has not begun.
    fn release(&self, job: &Job) {
        if self.running.end(job.lease, job.key) != End::Told {
            let _ = self.outcomes.send(Outcome { lease: job.lease, id: job.key, ended: Ended::Released });
        }
    }

    /// Runs one attempt of a job that came at this moment, and tells its end. True if it completed its job.
    async fn run_one(&self, job: Job, stop: CancellationToken, came: Duration) -> bool {
        let Some(registered) = self.registry.get(&job.kind).cloned() else {
            // cannot be: a claim names the kinds of this registry
            self.release(&job);
            return false;
        };
        let began = self.clock.monotonic();
        let deadline = began + registered.timeout;
        if !self.running.start(job.lease, job.key, deadline) {
            self.release(&job);
            return false;
        }
        let observed = self.measured.begin(&job, began.saturating_sub(came));
        let native = Arc::new(Native::new(Arc::clone(&self.handled), Arc::clone(&self.running), &job));
        let cx = Context::new(stop, deadline, self.clock.clone(), Arc::clone(&native) as Arc<dyn Attempt>)
            .caused_by(job.event.as_ref());
        let (ended, fault) = attempt(&job, &registered, &cx, &self.dice).instrument(observed.span.clone()).await;
        let ran = self.clock.monotonic().saturating_sub(began);
        let (ended, fault) = match ended {
            _ if native.is_committed() => (Ended::Committed, None),
            Ended::Completed(_) => (Ended::Completed(native.take_output()), None),
            Ended::Snoozed(wait) => snoozed(&job, &registered, wait, ran),
            ended => (ended, fault),
        };
        self.measured.end(&observed, ran, fault);
        let completed = matches!(ended, Ended::Committed | Ended::Completed(_));
        let lease = native.lease();
        let counted = counted(&self.running, (lease, job.key), ended);
        let told = counted.is_some();
        if let Some(ended) = counted {
            let _ = self.outcomes.send(Outcome { lease, id: job.key, ended });
        }
        completed && told
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
fn snoozed(job: &Job, registered: &Registered, wait: Duration, ran: Duration) -> (Ended, Option<Fault>) {
    if job.age_when_claimed() + ran + wait <= registered.max_age {
        return (Ended::Snoozed(wait), None);
    }
    warn!(job.id = %job.id, job.kind, "job {} is discarded: it was put off for longer than its kind allows", job.id);
    let error = format!("put off until it was too old: the kind's max_age is {} s", registered.max_age.as_secs());
    (Ended::Aged { error }, Some(Fault::MaxAge))
}

async fn attempt(job: &Job, registered: &Registered, cx: &Context, dice: &Dice) -> (Ended, Option<Fault>) {
    let again = |fault, error, after| (failed(job, registered, (error, after), dice), Some(fault));
    match verdict(registered.handler.as_ref(), job, cx, registered.timeout).await {
        Ok(Verdict::Complete) => (Ended::Completed(None), None),
        Ok(Verdict::Snooze(wait)) => (Ended::Snoozed(wait), None),
        Ok(Verdict::Discard(reason)) => (Ended::Refused(reason), Some(Fault::Discard)),
        Ok(Verdict::Retry { reason, after }) => again(Fault::Retry, reason, after),
        Ok(unknown) => {
            let error = format!("answered with a verdict that this version does not know: {unknown:?}");
            again(Fault::Error, error, Duration::ZERO)
        }
        Err((fault, error)) => again(fault, error, Duration::ZERO),
    }
}

/// Runs one attempt of a job, for an engine: a panic, a time that is over, and a handler that was told to stop and did not end are errors like
/// any other, told as text. A handler that was told to stop is dropped a second later, where it waits.
pub async fn answer(handler: &dyn Handler, job: &Job, cx: &Context, limit: Duration) -> Result<Verdict, String> {
    verdict(handler, job, cx, limit).await.map_err(|(_, error)| error)
}

async fn verdict(handler: &dyn Handler, job: &Job, cx: &Context, limit: Duration) -> Result<Verdict, (Fault, String)> {
    // called inside: it may panic before there is a future
    let answered = working_for(cx.cause.clone(), async { handler.handle(job, cx).await });
    let answered = AssertUnwindSafe(answered).catch_unwind();
    let told = async {
        cx.stop().cancelled().await;
        sleep(STOP_PATIENCE).await;
    };
    let answered = async {
        tokio::select! {
            biased;
            answered = answered => Some(answered),
            () = told => None,
        }
    };
    match timeout(limit, answered).await {
        Ok(Some(Ok(Ok(verdict)))) => Ok(verdict),
        Ok(Some(Ok(Err(error)))) => Err((Fault::Error, chain(error.as_ref()))),
        Ok(Some(Err(panic))) => Err((Fault::Panic, format!("panicked: {}", panic_text(panic.as_ref())))),
        Ok(None) => Err((Fault::Stopped, "was told to stop and did not end by itself".to_owned())),
        Err(_) => {
            cx.stop().cancel();
            Err((Fault::Timeout, format!("timed out after {} ms", limit.as_millis())))
        }
    }
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

    /// The process stops: what waits in a line goes back at once.
    pub(crate) fn give_back_lines(&self) {
        for (lease, id) in self.running.end_lines() {
            let _ = self.outcomes.send(Outcome { lease, id, ended: Ended::Released });
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
