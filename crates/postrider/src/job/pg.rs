use std::time::Duration;

use postrider_contract::{Event, EventId, JobId, Order, Payload, Timestamp, Unique};
use serde::Serialize;
use sqlx::postgres::PgRow;
use sqlx::{PgConnection, PgPool, Row as _};
use uuid::Uuid;

use super::probes::Probe;
use super::{Claimant, Hook, retry};
use crate::error::Error;
use crate::pg::{Arg, Pooler, Row, Statement, Tx, begin, has_session, run, tell_count};
use crate::port::{Enqueued, Job, NewJob, OnDuplicate};

pub(super) const CLAIM: Statement = crate::statement!("sql/claim.sql");
pub(super) const SETTLE_CALLED: Statement = crate::statement!("sql/settle_called.sql");
pub(super) const ENQUEUE: Statement = crate::statement!("sql/enqueue.sql");
pub(super) const ENQUEUE_MANY: Statement = crate::statement!("sql/enqueue_many.sql");

/// A job as the element of an array; what is not said stays out, so that most are short.
#[derive(Serialize)]
struct Item<'a> {
    kind: &'a str,
    args: &'a Payload,
    #[serde(skip_serializing_if = "Option::is_none")]
    queue: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    priority: Option<i16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_attempts: Option<i16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    run_at: Option<Timestamp>,
    owner: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    unique_mode: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    unique_key: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    unique_for: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    on_duplicate: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    idempotency_key: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry: Option<serde_json::Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    order_key: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    order_policy: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    limit_key: Option<&'a str>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    tags: &'a [String],
}

impl<'a> Item<'a> {
    fn of(job: &'a NewJob) -> Self {
        Self {
            kind: &job.kind,
            args: &job.args,
            queue: job.queue.as_deref(),
            priority: job.priority,
            max_attempts: job.max_attempts,
            run_at: job.run_at,
            owner: &job.owner,
            unique_mode: job.unique.map(Unique::name),
            unique_key: job.unique_key.as_deref(),
            unique_for: job.unique.and_then(Unique::window_ms).map(interval),
            on_duplicate: (job.on_duplicate == OnDuplicate::Replace).then_some("replace"),
            idempotency_key: job.idempotency_key.as_deref(),
            retry: job.retry.as_ref().map(retry::write),
            order_key: job.order_key.as_deref(),
            order_policy: job.order.map(Order::policy),
            limit_key: job.limit_key.as_deref(),
            tags: &job.tags,
        }
    }

    /// Whether it says more than the plain statement for one job takes.
    fn is_plain(&self) -> bool {
        self.unique_mode.is_none()
            && self.unique_key.is_none()
            && self.on_duplicate.is_none()
            && self.idempotency_key.is_none()
            && self.retry.is_none()
            && self.order_key.is_none()
            && self.limit_key.is_none()
            && self.tags.is_empty()
    }
}

/// Milliseconds as Postgres reads an interval.
fn interval(ms: u64) -> String {
    format!("{ms} milliseconds")
}

/// Jobs in one call: bounds the memory of the statement.
const ENQUEUE_MOST: usize = 1_000;

pub(crate) async fn enqueue(tx: &mut dyn Tx, pooler: Pooler, jobs: &[NewJob]) -> Result<Vec<Enqueued>, Error> {
    if let [job] = jobs
        && Item::of(job).is_plain()
    {
        return enqueue_one(tx, pooler, job).await;
    }
    let mut answers = Vec::with_capacity(jobs.len());
    for chunk in jobs.chunks(ENQUEUE_MOST) {
        let items: Vec<Item<'_>> = chunk.iter().map(Item::of).collect();
        let text = Payload::of_trusted(&items)?;
        for row in run(tx, pooler, &ENQUEUE_MANY, &[Arg::Text(text.as_str())]).await? {
            answers.push(enqueued(&ENQUEUE_MANY, &row)?);
        }
    }
    Ok(answers)
}

/// One job without an array around it, which halves what it costs the server.
async fn enqueue_one(tx: &mut dyn Tx, pooler: Pooler, job: &NewJob) -> Result<Vec<Enqueued>, Error> {
    let priority = job.priority.map(|priority| priority.to_string());
    let max_attempts = job.max_attempts.map(|most| most.to_string());
    let run_at = job.run_at.map(|at| at.to_string());
    let args = [
        Arg::Text(&job.kind),
        Arg::Text(job.args.as_str()),
        job.queue.as_deref().map_or(Arg::Null, Arg::Text),
        priority.as_deref().map_or(Arg::Null, Arg::Text),
        max_attempts.as_deref().map_or(Arg::Null, Arg::Text),
        run_at.as_deref().map_or(Arg::Null, Arg::Text),
        Arg::Text(&job.owner),
    ];
    run(tx, pooler, &ENQUEUE, &args).await?.iter().map(|row| enqueued(&ENQUEUE, row)).collect()
}

fn enqueued(statement: &'static Statement, row: &Row) -> Result<Enqueued, Error> {
    let wrong = |column, expected| Error::Row { statement: statement.name, column, expected };
    let xid = row.text(3)?.parse().map_err(|_| wrong(3, "a transaction id"))?;
    let told_at = Timestamp::from_micros(row.int(4)?);
    Ok(Enqueued {
        id: JobId::new(row.text(0)?),
        fresh: row.text(1)? == "true",
        replaced: row.text(2)? == "true",
        xid,
        told_at: Some(told_at),
        until: row.opt(5).map(|_| row.int(5).map(Timestamp::from_micros)).transpose()?,
    })
}

pub(crate) async fn enqueue_alone(pool: &PgPool, pooler: Pooler, jobs: &[NewJob]) -> Result<Vec<Enqueued>, Error> {
    if jobs.len() <= ENQUEUE_MOST && pooler == Pooler::None {
        let mut connection = pool.acquire().await.map_err(Error::connecting)?;
        return enqueue(&mut *connection, pooler, jobs).await;
    }
    // several statements are one only in a transaction, and so are the two halves of one through a pooler
    let mut tx = pool.begin().await.map_err(Error::connecting)?;
    let answers = enqueue(&mut *tx, pooler, jobs).await?;
    tx.commit().await.map_err(|e| Error::from_sqlx(ENQUEUE.name, e))?;
    Ok(answers)
}

/// What a claim brought. `more`: something was moved out of the way, and there may be more than was looked at.
#[derive(Debug, Default)]
pub(super) struct Claimed {
    pub(super) jobs: Vec<Job>,
    pub(super) more: bool,
}

/// What a claim asks for: up to `most` jobs that may run at once, and `in_line` that come after one of them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ask {
    pub(super) call: i64,
    pub(super) most: usize,
    pub(super) in_line: usize,
}

pub(super) async fn claim(
    connection: &mut PgConnection,
    claimant: &Claimant,
    ask: Ask,
    probe: &Probe,
    hook: &Hook,
) -> Result<Claimed, Error> {
    let failed = |e| Error::from_sqlx(CLAIM.name, e);
    if hook.is_none() && has_session(connection) {
        return claim_alone(connection, claimant, ask, probe).await;
    }
    let mut tx = begin(connection).await.map_err(failed)?;
    let claimed = claim_alone(&mut tx, claimant, ask, probe).await?;
    if let Some(hook) = hook
        && !claimed.jobs.is_empty()
    {
        hook.claimed(&mut *tx, &claimed.jobs).await?;
    }
    tx.commit().await.map_err(failed)?;
    Ok(claimed)
}

async fn claim_alone(
    connection: &mut PgConnection,
    claimant: &Claimant,
    ask: Ask,
    probe: &Probe,
) -> Result<Claimed, Error> {
    let failed = |e| Error::from_sqlx(CLAIM.name, e);
    let rows = CLAIM
        .query_on(connection)
        .bind(claimant.worker)
        .bind(ask.call)
        .bind(claimant.queue.clone())
        .bind(claimant.kinds.clone())
        .bind(i32::try_from(ask.most).unwrap_or(i32::MAX))
        .bind(probe.priorities.clone())
        .bind(probe.shares.clone())
        .bind(probe.positions.clone())
        .bind(i32::try_from(ask.in_line).unwrap_or(0))
        .bind(probe.turned.clone())
        .fetch_all(connection)
        .await
        .map_err(failed)?;
    let mut claimed = Claimed::default();
    for row in &rows {
        if let Some(lease) = row.try_get::<Option<i64>, _>(0).map_err(failed)? {
            claimed.jobs.push(job(row, lease, &claimant.queue).map_err(failed)?);
        }
        claimed.more |= row.try_get::<bool, _>("more").map_err(failed)?;
    }
    tell_count(claimed.jobs.len() as u64);
    Ok(claimed)
}

fn job(row: &PgRow, lease: i64, queue: &str) -> Result<Job, sqlx::Error> {
    let key: i64 = row.try_get(1)?;
    let event = match row.try_get::<Option<Uuid>, _>(11)? {
        None => None,
        Some(id) => Some(Event {
            id: EventId::from_uuid(id),
            r#type: row.try_get(12)?,
            owner: row.try_get(13)?,
            subject: row.try_get(14)?,
            cause: row.try_get::<Option<Uuid>, _>(15)?.map(EventId::from_uuid),
            occurred_at: Timestamp::from_micros(row.try_get(16)?),
            recorded_at: Timestamp::from_micros(row.try_get(17)?),
            version: row.try_get(26)?,
            traceparent: row.try_get(27)?,
            data: Payload::trusted(row.try_get::<String, _>(18)?),
        }),
    };
    Ok(Job {
        id: JobId::new(key.to_string()),
        key,
        lease,
        attempt: row.try_get(2)?,
        kind: row.try_get(3)?,
        priority: row.try_get(4)?,
        pos: row.try_get(5)?,
        max_attempts: row.try_get(6)?,
        owner: row.try_get(7)?,
        created_at: Timestamp::from_micros(row.try_get(8)?),
        args: Payload::trusted(row.try_get::<String, _>(9)?),
        claimed_at: Timestamp::from_micros(row.try_get(19)?),
        due_at: Timestamp::from_micros(row.try_get(20)?),
        retry: row.try_get::<Option<String>, _>(21)?.as_deref().and_then(retry::read),
        share: row.try_get(22)?,
        order_key: row.try_get(23)?,
        limit_key: row.try_get(24)?,
        subscription: row.try_get(10)?,
        queue: queue.to_owned(),
        event,
    })
}

/// Looks at the lanes that were called. True if some of them are still somebody's.
pub(super) async fn settle_called(connection: &mut PgConnection) -> Result<bool, Error> {
    let rows = connection.run(&SETTLE_CALLED, &[]).await?;
    rows.first().map_or(Ok(false), |row| row.text(0).map(|called| called == "true"))
}

/// How long a claim that failed for a passing reason waits for its next try.
pub(super) fn pause_after_error(errors: u32) -> Duration {
    Duration::from_millis(100).saturating_mul(2_u32.saturating_pow(errors.min(10))).min(Duration::from_secs(5))
}
