use std::collections::BTreeMap;
use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use postrider::port::Attempt;
use postrider::{
    BoxError, Clock, Context, Dice, Handler, Job, JobId, Next, Payload, Timestamp, Verdict, after_failure, answer,
    storable,
};
use postrider_contract::KindSpec;
use riverqueue::serde_json::{Map, json};
use riverqueue::{
    JobRow, JobUpdateParams, WorkCancelled, WorkContext, WorkError, WorkOutcome, Worker, WorkerTimeout, jiff,
};
use sqlx::PgPool;
use tracing::warn;

use crate::attempt::{InRiver, Told};
use crate::envelope::Envelope;
use crate::view::{ATTEMPTS_MOST, ENDED, PROGRESS, REFUSED, Refusal, Word, lease, micros, queue_here, small};

/// A kind that this process runs.
pub(crate) struct Handled {
    pub(crate) spec: KindSpec,
    pub(crate) handler: Arc<dyn Handler>,
}

/// River's worker for every kind of this process.
pub(crate) struct Work {
    pub(crate) kinds: Arc<BTreeMap<String, Handled>>,
    pub(crate) pool: PgPool,
    pub(crate) clock: Clock,
    pub(crate) dice: Dice,
    /// Attempts that this stop has given back.
    pub(crate) given_back: Arc<AtomicUsize>,
}

/// A failed attempt; the next one does not come before `after`.
#[derive(Debug)]
struct Failed {
    error: String,
    after: Duration,
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.error)
    }
}

impl StdError for Failed {}

impl Worker<Envelope> for Work {
    type Error = BoxError;

    fn next_retry(&self, job: &riverqueue::Job<Envelope>, error: &WorkError, _: jiff::Timestamp) -> Option<Duration> {
        let own = job.args.retry();
        let retry = own.as_ref().or_else(|| self.kinds.get(&job.row.kind).map(|handled| &handled.spec.retry))?;
        let after = error.downcast_ref::<Failed>().map_or(Duration::ZERO, |failed| failed.after);
        match after_failure(retry, small(job.row.attempt), small(job.row.max_attempts), self.dice.roll()) {
            Next::Retry(wait) => Some(wait.max(after)),
            Next::Exhausted => None,
        }
    }

    /// The handler's own limit is kept here, so that it is told in the same words on every engine.
    fn timeout(&self, _: &riverqueue::Job<Envelope>) -> WorkerTimeout {
        WorkerTimeout::Disabled
    }

    async fn work(&self, context: WorkContext, job: riverqueue::Job<Envelope>) -> Result<WorkOutcome, BoxError> {
        let Some(Handled { spec, handler }) = self.kinds.get(&job.row.kind) else {
            return Err(format!("no handler runs kind {}", job.row.kind).into());
        };
        let began = self.clock.monotonic();
        let attempt = Arc::new(InRiver::new(context.clone(), self.pool.clone()));
        let stop = context.cancellation_token().child_token();
        let handed = handed(&job.args, &job.row);
        let cx = Context::new(stop, began + spec.timeout, self.clock.clone(), Arc::clone(&attempt) as Arc<dyn Attempt>)
            .caused_by(handed.event.as_ref());
        // before the handler can tell anything: who listens later has missed what was told
        let told = attempt.told();
        let verdict = tokio::select! {
            verdict = answer(handler.as_ref(), &handed, &cx, spec.timeout) => verdict,
            never = tell_progress(&context, told, job.row.id) => match never {},
        };
        if attempt.is_committed() {
            return Ok(WorkOutcome::Complete);
        }
        context.metadata_set(ENDED, ended(&job.row))?;
        let ran = self.clock.monotonic().saturating_sub(began);
        let refuse = |reason: String| {
            let refusal = Refusal { attempt: job.row.attempt, reason: storable(&reason) };
            context.metadata_set(REFUSED, refusal).map(|()| WorkOutcome::Discard).map_err(BoxError::from)
        };
        let failed = |error: &str, after| {
            // a stop that has passed its grace: River gives the job back with its attempt
            if context.cancellation_token().is_cancelled() {
                self.given_back.fetch_add(1, Ordering::Relaxed);
                return Err(BoxError::from(WorkCancelled));
            }
            Err(BoxError::from(Failed { error: storable(error), after }))
        };
        match verdict {
            Ok(Verdict::Complete) => {
                attempt.keep_output()?;
                Ok(WorkOutcome::Complete)
            }
            Ok(Verdict::Snooze(wait)) if age(&handed) + ran + wait > spec.max_age => {
                warn!(job.id = %handed.id, job.kind = handed.kind, "job {} is discarded: it was put off for too long", handed.id);
                refuse(format!("put off until it was too old: the kind's max_age is {} s", spec.max_age.as_secs()))
            }
            Ok(Verdict::Snooze(wait)) => Ok(WorkOutcome::Snooze(wait)),
            Ok(Verdict::Discard(reason)) => refuse(reason),
            Ok(Verdict::Retry { reason, after }) => failed(&reason, after),
            Ok(unknown) => {
                failed(&format!("answered with a verdict that this version does not know: {unknown:?}"), Duration::ZERO)
            }
            Err(error) => failed(&error, Duration::ZERO),
        }
    }
}

/// When the attempts of the job ended, up to this one; not of all of them, if there are many.
fn ended(row: &JobRow) -> BTreeMap<i32, i64> {
    let mut ended: BTreeMap<i32, i64> = row.metadata.get(ENDED).unwrap_or_default().unwrap_or_default();
    ended.insert(row.attempt, jiff::Timestamp::now().as_microsecond());
    while ended.len() > ATTEMPTS_MOST {
        ended.pop_first();
    }
    ended
}

fn age(job: &Job) -> Duration {
    job.claimed_at.since(job.due_at)
}

/// The job as its handler sees it.
fn handed(envelope: &Envelope, row: &JobRow) -> Job {
    let id = JobId::new(row.id.to_string());
    let created_at = micros(row.created_at);
    let event = envelope.event();
    let args = if event.is_some() { Payload::trusted("{}") } else { envelope.payload() };
    let mut job = Job::outside(id, row.kind.clone(), lease(row), args);
    job.queue = queue_here(&row.queue);
    job.owner.clone_from(&envelope.owner);
    job.attempt = small(row.attempt);
    job.max_attempts = small(row.max_attempts);
    job.event = event;
    job.subscription = envelope.subscription;
    job.created_at = created_at;
    job.claimed_at = row.attempted_at.map_or(created_at, micros);
    job.due_at = envelope.due_at.map_or(created_at, |at| Timestamp::from_micros(at).max(created_at));
    job.retry = envelope.retry();
    job
}

/// Writes what the handler tells of its progress, as long as the attempt runs. River has no place for it but the job's metadata.
async fn tell_progress(context: &WorkContext, mut told: Told, id: i64) -> std::convert::Infallible {
    loop {
        if told.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
        let Some((percent, note)) = told.borrow_and_update().clone() else { continue };
        let word = Word { percent, note, at: jiff::Timestamp::now().as_microsecond() };
        let metadata = Map::from_iter([(PROGRESS.to_owned(), json!(word))]);
        let Some(client) = context.client() else { continue };
        if let Err(error) = client.jobs().update(id, JobUpdateParams::default().metadata(metadata)).await {
            warn!(job.id = id, error = %error, "the progress of job {id} was not written");
        }
    }
}
