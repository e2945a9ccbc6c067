//! A job waits, is leased, fails, waits again. In: jobs from callers and from the relay. Out: leased jobs, a batch at a time.
//!
//! A job's state is where its id is: ready, later, parked, in a lease's open set, or done.

mod decide;
mod holdings;
mod pg;
mod probes;
mod task;

use std::sync::Arc;

use postrider_contract::{Event, JobId, Payload, Timestamp, check_json, check_name, check_owner, check_public_name};

use uuid::Uuid;

use crate::error::{Error, Fut};
use crate::pg::{Statement, Tx, Witness, Wrote};

pub(crate) use decide::{Next, after_failure, pause};
pub(crate) use holdings::Holdings;
pub(crate) use task::{Claimer, Claims, run};

pub(crate) const STATEMENTS: &[&Statement] = pg::STATEMENTS;

/// A leased job, as its handler sees it.
#[derive(Debug, Clone)]
pub struct Job {
    /// Its id.
    pub id: JobId,
    /// Its kind.
    pub kind: String,
    /// The queue it waited in.
    pub queue: String,
    /// Whose it is; empty for the instance itself.
    pub owner: String,
    /// Which attempt this is, from 1.
    pub attempt: i16,
    /// How many attempts it has.
    pub max_attempts: i16,
    /// The lease that this attempt runs under: the fence of everything it writes.
    pub lease: i64,
    /// What it was enqueued with; `{}` if an event made it.
    pub args: Payload,
    /// The event that made it.
    pub event: Option<Event>,
    /// The subscription through which the event made it.
    pub subscription: Option<i64>,
    /// When it was enqueued.
    pub created_at: Timestamp,
    /// The id inside of this engine.
    pub(crate) key: i64,
    pub(crate) priority: i16,
    pub(crate) pos: i64,
}

/// A job to be enqueued.
#[derive(Debug, Clone)]
pub struct NewJob {
    /// A declared kind.
    pub kind: String,
    /// JSON for its handler; its bytes are kept.
    pub args: Payload,
    /// Instead of the kind's queue.
    pub queue: Option<String>,
    /// Instead of the kind's priority, 1 (first) to 4 (last).
    pub priority: Option<i16>,
    /// Instead of the kind's number of attempts, 1 to 1 000.
    pub max_attempts: Option<i16>,
    /// Not before this moment of the database's clock; a moment in the past means now.
    pub run_at: Option<Timestamp>,
    /// Whose it is; empty for the instance itself.
    pub owner: String,
}

impl NewJob {
    /// A job that is due at once, with what its kind says.
    pub fn new(kind: impl Into<String>, args: Payload) -> Self {
        Self {
            kind: kind.into(),
            args,
            queue: None,
            priority: None,
            max_attempts: None,
            run_at: None,
            owner: String::new(),
        }
    }

    fn check(&self) -> Result<(), Error> {
        check_public_name("kind", &self.kind)?;
        if let Some(queue) = &self.queue {
            check_name("queue", queue)?;
        }
        check_owner(&self.owner)?;
        check_json("args", self.args.as_str())?;
        Ok(())
    }
}

/// The answer to one enqueued job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Enqueued {
    /// Its id.
    pub id: JobId,
    /// False if there was such a job already, whose id this is.
    pub fresh: bool,
    /// The transaction's id: [`Recorder::resolve`](crate::Recorder::resolve) tells what became of it.
    pub xid: u64,
    /// When the database told the id, by its clock: a job of this id that was made later is another one's.
    pub told_at: Timestamp,
}

impl From<&Enqueued> for Witness {
    /// A job that was there already is no evidence: then the transaction's id has to be enough.
    fn from(enqueued: &Enqueued) -> Self {
        let job = || Wrote::Job(enqueued.id.clone(), enqueued.told_at);
        Self::new(enqueued.xid, if enqueued.fresh { job() } else { Wrote::Nothing })
    }
}

/// Enqueues jobs, in the caller's transaction or in one of its own.
#[derive(Debug, Clone)]
pub struct Jobs {
    pool: sqlx::PgPool,
}

impl Jobs {
    /// Over a pool, for calls without a transaction.
    pub fn new(pool: sqlx::PgPool) -> Self {
        Self { pool }
    }

    /// Enqueues all or none; answers in the order of the jobs.
    ///
    /// Without a transaction an error of which [`Error::is_unknown`] is true leaves it open whether the jobs are there, and enqueuing
    /// them again may double them. Who must know enqueues them in a transaction and asks [`Recorder::resolve`](crate::Recorder::resolve).
    ///
    /// Names, sizes and payloads are checked before any statement, so that a refusal leaves the transaction usable.
    pub fn enqueue<'a>(&'a self, tx: Option<&'a mut dyn Tx>, jobs: &'a [NewJob]) -> Fut<'a, Vec<Enqueued>> {
        Box::pin(async move {
            jobs.iter().try_for_each(NewJob::check)?;
            if jobs.is_empty() {
                return Ok(Vec::new());
            }
            if let Some(tx) = tx {
                return pg::enqueue(tx, jobs).await;
            }
            pg::enqueue_alone(&self.pool, jobs).await
        })
    }
}

/// Who claims, and what it knows how to run.
#[derive(Debug, Clone)]
pub(crate) struct Claimant {
    pub(crate) worker: Uuid,
    pub(crate) queue: String,
    pub(crate) kinds: Vec<String>,
}

/// Called in the transaction of each claim of a queue, with what was claimed.
pub(crate) trait ClaimHook: Send + Sync {
    fn claimed<'a>(&'a self, tx: &'a mut dyn Tx, jobs: &'a [Job]) -> Fut<'a, ()>;
}

pub(crate) type Hook = Option<Arc<dyn ClaimHook>>;
