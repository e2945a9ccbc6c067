use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use postrider::port::{Inspector as _, Plan, Step, incapable};
use postrider::{
    Act, Arg, Capabilities, Code, Effect, Enqueued, Error, Filter, Fut, JobId, Jobs, NewJob, OnDuplicate, Refused,
    State, Statement, Tx, Waited, statement,
};
use postrider_contract::KindSpec;
use riverqueue::serde_json::{Map, Value};
use riverqueue::{Client, InsertBatch, InsertOpts, jiff};
use sqlx::{Connection, PgPool, Postgres, Transaction};
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep, timeout_at};

use crate::envelope::Envelope;
use crate::error::told;
use crate::view::{OWNER, queue_in_river, state};
use crate::{CAPABILITIES, RiverInspector};

const XID: Statement = statement!("sql/xid.sql");
const QUEUE: Statement = statement!("sql/queue.sql");

/// Jobs in one statement.
const INSERT_MOST: usize = 1_000;
/// Waits at a time in a process.
const WAITS_MOST: usize = 64;
/// The first look comes after this long, later ones after twice as long, up to the last.
const FIRST: Duration = Duration::from_millis(10);
/// One look may take this long, also when the patience is over: what has ended is answered at once.
const LOOK: Duration = Duration::from_secs(1);
const LAST: Duration = Duration::from_millis(250);

/// Jobs in River's tables.
pub struct RiverJobs {
    client: Client,
    pool: PgPool,
    kinds: Arc<BTreeMap<String, KindSpec>>,
    waiters: Semaphore,
}

impl fmt::Debug for RiverJobs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RiverJobs").field("client", &self.client).finish_non_exhaustive()
    }
}

impl RiverJobs {
    pub(crate) fn new(client: Client, pool: PgPool, kinds: Arc<BTreeMap<String, KindSpec>>) -> Self {
        Self { client, pool, kinds, waiters: Semaphore::new(WAITS_MOST) }
    }

    /// Refuses what can be refused before any statement, and what River's client cannot do.
    fn check(&self, job: &NewJob) -> Result<(), Error> {
        job.check()?;
        if !self.kinds.contains_key(&job.kind) {
            return Err(undeclared(&job.kind, &self.kinds));
        }
        if job.unique.is_some() || job.unique_key.is_some() {
            return Err(incapable("unique", "River forgets a job when it has ended, and its windows stand still"));
        }
        if job.on_duplicate == OnDuplicate::Replace {
            return Err(incapable("on_duplicate", "River changes no job that waits"));
        }
        if job.idempotency_key.is_some() {
            return Err(incapable("idempotency_key", "River keeps no keys"));
        }
        Self::check_order(job)?;
        if job.limit_key.is_some() {
            return Err(incapable("limit_key", "River has no limits over processes"));
        }
        if !job.tags.is_empty() {
            return Err(incapable("tags", "River's client lists no jobs by their tags"));
        }
        if job.source.is_some() {
            return Err(incapable("source", "only a relay makes jobs of events"));
        }
        Ok(())
    }

    fn check_order(job: &NewJob) -> Result<(), Error> {
        if job.order_key.is_some() || job.order.is_some() {
            return Err(incapable("order_key", "River has no order among jobs"));
        }
        Ok(())
    }

    async fn insert(&self, tx: &mut Transaction<'_, Postgres>, jobs: &[NewJob]) -> Result<Vec<Enqueued>, Error> {
        let mut rows = Vec::with_capacity(jobs.len());
        for chunk in jobs.chunks(INSERT_MOST) {
            let mut batch = InsertBatch::new();
            for job in chunk {
                batch.push_with(Envelope::of(job), self.options(job));
            }
            rows.extend(self.client.insert_batch(batch).tx(&mut *tx).await.map_err(|e| told("insert_batch", e))?);
        }
        let answer = (&mut **tx as &mut dyn Tx).run(&XID, &[]).await?;
        let wrong = Error::Row { statement: XID.name, column: 0, expected: "a transaction id" };
        let xid = answer.first().and_then(|row| row.opt(0)?.parse().ok()).ok_or(wrong)?;
        let enqueued = rows.into_iter().map(|row| Enqueued {
            id: JobId::new(row.id().to_string()),
            fresh: true,
            replaced: false,
            xid,
            told_at: None,
            until: None,
        });
        Ok(enqueued.collect())
    }

    fn options(&self, job: &NewJob) -> InsertOpts {
        let spec = self.kinds.get(&job.kind);
        let mut options = InsertOpts::default();
        if let Some(queue) = job.queue.as_deref().or(spec.map(|spec| spec.queue.as_str())) {
            options = options.with_queue(queue_in_river(queue));
        }
        if let Some(priority) = job.priority.or(spec.map(|spec| spec.priority)) {
            options = options.with_priority(priority);
        }
        if let Some(most) = job.max_attempts.or(spec.map(|spec| spec.max_attempts)) {
            options = options.with_max_attempts(most.into());
        }
        let later = job.run_at.and_then(|at| jiff::Timestamp::from_microsecond(at.as_micros()).ok());
        if let Some(at) = later.filter(|at| *at > jiff::Timestamp::now()) {
            options = options.with_scheduled_at(at);
        }
        if !job.owner.is_empty() {
            options = options.with_metadata(Map::from_iter([(OWNER.to_owned(), Value::from(job.owner.as_str()))]));
        }
        options
    }

    async fn effects(&self, tx: &mut Transaction<'_, Postgres>, act: Act, ids: &[JobId]) -> Result<Vec<Effect>, Error> {
        let mut effects = Vec::with_capacity(ids.len());
        for id in ids {
            effects.push(match id.as_str().parse() {
                Ok(id) => self.effect(tx, act, id).await?,
                Err(_) => Effect::Unknown,
            });
        }
        Ok(effects)
    }

    async fn effect(&self, tx: &mut Transaction<'_, Postgres>, act: Act, id: i64) -> Result<Effect, Error> {
        let jobs = self.client.jobs();
        let row = match jobs.get(id).tx(&mut *tx).await {
            Ok(row) => row,
            Err(riverqueue::Error::NotFound(_)) => return Ok(Effect::Unknown),
            Err(error) => return Err(told("get", error)),
        };
        let before = state(&row);
        let due = row.scheduled_at <= jiff::Timestamp::now();
        let after = match act {
            Act::Cancel if before.is_terminal() => return Ok(Effect::Already(before)),
            Act::Cancel => jobs.cancel(id).tx(tx).await.map(|row| match state(&row) {
                State::Running => Effect::Requested,
                State::Cancelled => Effect::Done,
                ended => Effect::Already(ended),
            }),
            Act::Retry if before == State::Running => return Ok(Effect::Running),
            Act::Retry if !before.is_terminal() && due => return Ok(Effect::Already(before)),
            Act::Retry => jobs.retry(id).tx(tx).await.map(|_| Effect::Done),
            Act::Delete => jobs.delete(id).tx(tx).await.map(|_| Effect::Done),
        };
        match after {
            Err(riverqueue::Error::JobRunning) => Ok(Effect::Running),
            Err(riverqueue::Error::NotFound(_)) => Ok(Effect::Unknown),
            after => after.map_err(|error| told(act.name(), error)),
        }
    }
}

/// River's client takes a transaction of sqlx and no connection, and makes it from ours as a savepoint. Only inside of one: else it would be
/// a transaction of its own, and commit what is the caller's.
async fn savepoint(tx: &mut dyn Tx) -> Result<Transaction<'_, Postgres>, Error> {
    let connection = tx.as_sqlx().ok_or_else(|| incapable("transaction", "River's client knows none but sqlx's"))?;
    if !connection.is_in_transaction() {
        return Err(incapable("transaction", "River's client joins only what sqlx has begun"));
    }
    connection.begin().await.map_err(|source| Error::Broken { statement: "savepoint", source })
}

async fn commit(tx: Transaction<'_, Postgres>) -> Result<(), Error> {
    tx.commit().await.map_err(|source| match source {
        sqlx::Error::Database(_) => Error::Database { statement: "commit", source },
        source => Error::Broken { statement: "commit", source },
    })
}

fn undeclared(kind: &str, kinds: &BTreeMap<String, KindSpec>) -> Error {
    let first = kind.split('.').next();
    let mut near: Vec<&String> = kinds.keys().filter(|known| known.split('.').next() == first).collect();
    near.sort_by_key(|known| (known.len().abs_diff(kind.len()), *known));
    near.truncate(3);
    let remedy = if near.is_empty() {
        "declare it first: Builder::kinds".to_owned()
    } else {
        let near: Vec<String> = near.iter().map(|known| format!("'{known}'")).collect();
        format!("did you mean {}", near.join(", "))
    };
    Refused::new(Code::Undeclared, "kind", format!("{kind:?} was never declared"), remedy).into()
}

impl Jobs for RiverJobs {
    fn capabilities(&self) -> Capabilities {
        CAPABILITIES
    }

    fn enqueue<'a>(&'a self, tx: Option<&'a mut dyn Tx>, jobs: &'a [NewJob]) -> Fut<'a, Vec<Enqueued>> {
        Box::pin(async move {
            jobs.iter().try_for_each(|job| self.check(job))?;
            if jobs.is_empty() {
                return Ok(Vec::new());
            }
            let mut tx = match tx {
                Some(tx) => savepoint(tx).await?,
                None => self.pool.begin().await.map_err(Error::Connection)?,
            };
            let enqueued = self.insert(&mut tx, jobs).await?;
            commit(tx).await?;
            Ok(enqueued)
        })
    }

    fn fan_out<'a>(&'a self, tx: &'a mut dyn Tx, jobs: &'a [NewJob]) -> Fut<'a, Vec<Enqueued>> {
        // what the relay matched was declared to the bus, with its queue and its attempts; an order may have been asked for in SQL, which knows no
        // engine
        Box::pin(async move {
            jobs.iter().try_for_each(Self::check_order)?;
            let mut tx = savepoint(tx).await?;
            let enqueued = self.insert(&mut tx, jobs).await?;
            commit(tx).await?;
            Ok(enqueued)
        })
    }

    fn act<'a>(&'a self, tx: Option<&'a mut dyn Tx>, act: Act, ids: &'a [JobId]) -> Fut<'a, Vec<Effect>> {
        Box::pin(async move {
            let mut tx = match tx {
                Some(tx) => savepoint(tx).await?,
                None => self.pool.begin().await.map_err(Error::Connection)?,
            };
            let effects = self.effects(&mut tx, act, ids).await?;
            commit(tx).await?;
            Ok(effects)
        })
    }

    fn plan<'a>(&'a self, _: Act, _: &'a Filter) -> Fut<'a, Plan> {
        Box::pin(async { Err(incapable("filter", "River acts on one job at a time")) })
    }

    fn step<'a>(&'a self, _: &'a Plan, _: Option<&'a JobId>) -> Fut<'a, Step> {
        Box::pin(async { Err(incapable("filter", "River acts on one job at a time")) })
    }

    fn pause<'a>(&'a self, queue: &'a str, paused: bool) -> Fut<'a, ()> {
        Box::pin(async move {
            postrider_contract::check_name("queue", queue)?;
            let name = queue_in_river(queue);
            let mut connection = self.pool.acquire().await.map_err(Error::Connection)?;
            (&mut *connection as &mut dyn Tx).run(&QUEUE, &[Arg::Text(&name)]).await?;
            let queues = self.client.queues();
            let changed = if paused { queues.pause(name).await } else { queues.resume(name).await };
            changed.map(drop).map_err(|error| told("pause", error))
        })
    }

    fn wait<'a>(&'a self, id: &'a JobId, timeout: Duration) -> Fut<'a, Waited> {
        Box::pin(async move {
            let until = Instant::now() + timeout.min(Duration::from_hours(24));
            let Ok(_slot) = self.waiters.try_acquire() else { return Ok(Waited::Full(id.clone())) };
            let inspector = RiverInspector::new(self.client.clone());
            let mut pause = FIRST;
            loop {
                let look = timeout_at(until.max(Instant::now() + LOOK), inspector.job(id)).await;
                // no connection in time: the job has not been seen to end
                let Ok(view) = look else { return Ok(Waited::TimedOut(id.clone())) };
                if let Some(view) = view?.filter(|view| view.state.is_terminal()) {
                    return Ok(Waited::Ended(Box::new(view)));
                }
                let left = until.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return Ok(Waited::TimedOut(id.clone()));
                }
                sleep(pause.min(left)).await;
                pause = (pause * 2).min(LAST);
            }
        })
    }
}
