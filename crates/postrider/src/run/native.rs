use std::sync::Arc;
use std::time::Duration;

use postrider_contract::{JobId, Limit};
use sqlx::PgPool;

use super::wait::Waiters;
use crate::error::Fut;
use crate::job::Known;
use crate::pg::{Pooler, Tx, borrow, keeps};
use crate::port::{
    Act, Capabilities, Count, Effect, Enqueued, Filter, Hold, Inspector, JobView, Jobs, Keys, LaneAct, LaneEffect,
    LaneKey, LaneView, Look, NewJob, Page, Plan, QueueView, Step, Waited, incapable,
};
use crate::{inspect, job};

/// Jobs of one page of a list, at most.
const PAGE_MOST: usize = 200;

pub(super) const CAPABILITIES: Capabilities = Capabilities {
    engine: "native",
    unique: &["while_waiting", "until_done", "within", "for_ever", "one_running_one_waiting"],
    replace: true,
    idempotency: true,
    owners: true,
    retry_per_job: true,
    cancel_running: true,
    filters: true,
    delete: true,
    pause: true,
    output: true,
    progress: true,
    transactional_completion: true,
    leases: true,
    unknown_kinds_wait: true,
    no_worker_shown: true,
    aging: true,
    stuck_told: true,
    max_age: true,
    tells_gone: true,
    explains: true,
    counts: true,
    schedules: true,
    order_keys: true,
    limits: true,
    fair_share: true,
    tags: true,
};

/// Jobs of the native engine: in the Postgres of the application.
#[derive(Debug, Clone)]
pub struct PgJobs {
    pool: PgPool,
    pooler: Pooler,
    waiters: Arc<Waiters>,
    known: Option<Arc<Known>>,
}

impl PgJobs {
    /// Over a pool, for calls without a transaction. It enqueues jobs of every kind that is declared in the database; the jobs of a
    /// [`Bus`](crate::Bus) are of the kinds that its application declares, which are told from others before any statement.
    pub fn new(pool: PgPool) -> Self {
        let pooler = if keeps(&pool.connect_options()) { Pooler::None } else { Pooler::Transaction };
        Self { pool, pooler, waiters: Arc::default(), known: None }
    }

    /// The same through a pooler. A pool whose connections keep no prepared statements is taken to have one before it, and
    /// [`Bus::jobs`](crate::Bus::jobs) knows it from the settings.
    #[must_use]
    pub fn behind(self, pooler: Pooler) -> Self {
        if pooler == Pooler::None { self } else { Self { pooler, ..self } }
    }

    /// The same for these kinds alone.
    pub(super) fn knowing(self, known: Known) -> Self {
        Self { known: Some(Arc::new(known)), ..self }
    }

    /// The same, with another number of waits at a time in this process. Default: 64.
    #[must_use]
    pub fn waits_most(self, most: usize) -> Self {
        Self { waiters: Arc::new(Waiters::new(most)), ..self }
    }
}

impl Jobs for PgJobs {
    fn capabilities(&self) -> Capabilities {
        CAPABILITIES
    }

    fn enqueue<'a>(&'a self, tx: Option<&'a mut dyn Tx>, jobs: &'a [NewJob]) -> Fut<'a, Vec<Enqueued>> {
        Box::pin(async move {
            for job in jobs {
                job.check()?;
                if let Some(known) = &self.known {
                    known.check(&job.kind)?;
                }
                if job.source.is_some() {
                    return Err(incapable("source", "its relay makes the jobs of events itself"));
                }
            }
            match tx {
                _ if jobs.is_empty() => Ok(Vec::new()),
                Some(tx) => job::enqueue(tx, self.pooler, jobs).await,
                None => job::enqueue_alone(&self.pool, self.pooler, jobs).await,
            }
        })
    }

    fn act<'a>(&'a self, tx: Option<&'a mut dyn Tx>, act: Act, ids: &'a [JobId]) -> Fut<'a, Vec<Effect>> {
        Box::pin(async move {
            if let Some(tx) = tx {
                return job::act(tx, act, ids).await;
            }
            job::act(&mut borrow(&self.pool).await?, act, ids).await
        })
    }

    fn plan<'a>(&'a self, act: Act, filter: &'a Filter) -> Fut<'a, Plan> {
        Box::pin(async move { job::plan(&mut borrow(&self.pool).await?, act, filter).await })
    }

    fn step<'a>(&'a self, plan: &'a Plan, after: Option<&'a JobId>) -> Fut<'a, Step> {
        Box::pin(job::step(&self.pool, plan, after))
    }

    fn pause<'a>(&'a self, queue: &'a str, paused: bool) -> Fut<'a, ()> {
        Box::pin(async move { job::pause(&mut borrow(&self.pool).await?, queue, paused).await })
    }

    fn wait<'a>(&'a self, id: &'a JobId, timeout: Duration) -> Fut<'a, Waited> {
        Box::pin(self.waiters.wait(&self.pool, id, timeout))
    }
}

/// The limits, holds and lanes of the native engine.
#[derive(Debug, Clone)]
pub struct PgKeys {
    pool: PgPool,
}

impl PgKeys {
    /// Over a pool.
    pub fn new(pool: PgPool) -> Self {
        Self { pool }
    }
}

impl Keys for PgKeys {
    fn set_limit<'a>(&'a self, queue: &'a str, key: &'a str, limit: Limit) -> Fut<'a, ()> {
        Box::pin(async move { job::set_limit(&mut borrow(&self.pool).await?, queue, key, limit).await })
    }

    fn hold<'a>(&'a self, tx: Option<&'a mut dyn Tx>, hold: Hold<'a>) -> Fut<'a, ()> {
        Box::pin(async move {
            match tx {
                Some(tx) => job::hold(tx, hold).await,
                None => job::hold(&mut borrow(&self.pool).await?, hold).await,
            }
        })
    }

    fn lanes<'a>(&'a self, queue: &'a str, after: Option<&'a LaneKey>, most: usize) -> Fut<'a, Vec<LaneView>> {
        Box::pin(async move {
            let look = job::LaneLook::Page { after, most: most.clamp(1, PAGE_MOST), stopped: false };
            job::lanes(&mut borrow(&self.pool).await?, queue, look).await
        })
    }

    fn stopped_lanes<'a>(&'a self, queue: &'a str, after: Option<&'a LaneKey>, most: usize) -> Fut<'a, Vec<LaneView>> {
        Box::pin(async move {
            let look = job::LaneLook::Page { after, most: most.clamp(1, PAGE_MOST), stopped: true };
            job::lanes(&mut borrow(&self.pool).await?, queue, look).await
        })
    }

    fn lane<'a>(&'a self, queue: &'a str, key: &'a LaneKey) -> Fut<'a, Option<LaneView>> {
        Box::pin(
            async move { Ok(job::lanes(&mut borrow(&self.pool).await?, queue, job::LaneLook::One(key)).await?.pop()) },
        )
    }

    fn act_on_lane<'a>(&'a self, queue: &'a str, order_key: &'a str, act: LaneAct) -> Fut<'a, LaneEffect> {
        Box::pin(async move { job::act_on_lane(&mut borrow(&self.pool).await?, queue, order_key, act).await })
    }
}

/// The operator's view of jobs of the native engine.
#[derive(Debug, Clone)]
pub struct PgInspector {
    pool: PgPool,
}

impl PgInspector {
    /// Over a pool.
    pub fn new(pool: PgPool) -> Self {
        Self { pool }
    }
}

impl Inspector for PgInspector {
    fn job<'a>(&'a self, id: &'a JobId) -> Fut<'a, Option<JobView>> {
        Box::pin(async move {
            // an id that is not one of this engine's is simply not found
            let Ok(key) = id.as_str().parse::<i64>() else { return Ok(None) };
            let mut connection = borrow(&self.pool).await?;
            Ok(inspect::views(&mut connection, &[key], true).await?.pop())
        })
    }

    fn look<'a>(&'a self, id: &'a JobId) -> Fut<'a, Look> {
        Box::pin(async move {
            let Ok(key) = id.as_str().parse::<i64>() else { return Ok(Look::Unknown) };
            let mut connection = borrow(&self.pool).await?;
            if let Some(view) = inspect::views(&mut connection, &[key], true).await?.pop() {
                return Ok(Look::Here(Box::new(view)));
            }
            let ended_by = inspect::gone(&mut connection, key).await?;
            Ok(ended_by.map_or(Look::Unknown, |ended_by| Look::Gone { id: id.clone(), ended_by }))
        })
    }

    fn explain<'a>(&'a self, id: &'a JobId) -> Fut<'a, Option<String>> {
        Box::pin(async move {
            let Ok(key) = id.as_str().parse::<i64>() else { return Ok(None) };
            inspect::explain(&mut borrow(&self.pool).await?, key).await
        })
    }

    fn jobs<'a>(&'a self, filter: &'a Filter, after: Option<&'a JobId>, most: usize) -> Fut<'a, Page> {
        Box::pin(async move {
            let most = most.clamp(1, PAGE_MOST);
            let before = after.map_or(i64::MAX, |id| id.as_str().parse().unwrap_or(0));
            let filter = job::filter_json(filter)?;
            let mut connection = borrow(&self.pool).await?;
            let (ids, next) = inspect::list(&mut connection, &filter, before, i64::try_from(most).unwrap_or(1)).await?;
            Ok(Page { jobs: inspect::views(&mut connection, &ids, false).await?, next })
        })
    }

    fn counts(&self) -> Fut<'_, Vec<Count>> {
        Box::pin(inspect::counts(&self.pool))
    }

    fn queues(&self) -> Fut<'_, Vec<QueueView>> {
        Box::pin(async move { inspect::queues(&mut borrow(&self.pool).await?).await })
    }
}
