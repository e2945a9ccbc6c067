use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use postrider::port::incapable;
use postrider::{Capabilities, Clock, Dice, Error, Fut, Inspector, Jobs, Kind, Refused, Runtime, Stopped, refusals};
use postrider_contract::{KindSpec, Order, Schedule};
use riverqueue::{Client, MaintenanceConfig, QueueConfig, RunHandle, Workers};
use sqlx::PgPool;
use tokio::time::timeout;
use tracing::warn;

use crate::envelope::{Envelope, OwnKind, registering};
use crate::error::told;
use crate::view::queue_in_river;
use crate::work::{Handled, Work};
use crate::{CAPABILITIES, RiverInspector, RiverJobs, check};

/// How long River's own loops may take to be ready.
const READY: Duration = Duration::from_secs(10);
/// No queue is asked more often than this.
const FETCH_COOLDOWN: Duration = Duration::from_millis(10);
/// How long a handler that was told to stop may hold its thread before River gives it up.
const STUCK: Duration = Duration::from_secs(2);

/// Where an application on River begins.
#[derive(Debug)]
pub struct River;

impl River {
    /// Starts the declaration of an application over a pool. River's client uses the pool for everything.
    pub fn builder(pool: PgPool) -> Builder {
        Builder {
            pool,
            kinds: Vec::new(),
            concurrency: BTreeMap::new(),
            concurrency_otherwise: 64,
            beat: Duration::from_secs(1),
            work: true,
            dice: Dice::random(),
            schedules: Vec::new(),
        }
    }
}

/// Collects what an application declares; [`Builder::build`] checks all of it at once.
#[derive(Debug)]
pub struct Builder {
    pool: PgPool,
    kinds: Vec<Kind>,
    concurrency: BTreeMap<String, usize>,
    concurrency_otherwise: usize,
    beat: Duration,
    work: bool,
    dice: Dice,
    schedules: Vec<Schedule>,
}

impl Builder {
    /// Declares kinds of job, to this process only: River keeps no declarations.
    #[must_use]
    pub fn kinds(mut self, kinds: impl IntoIterator<Item = Kind>) -> Self {
        self.kinds.extend(kinds);
        self
    }

    /// Declares schedules, each of which is refused.
    #[must_use]
    pub fn schedules(mut self, schedules: impl IntoIterator<Item = Schedule>) -> Self {
        self.schedules.extend(schedules);
        self
    }

    /// How many jobs of a queue this process runs at a time.
    #[must_use]
    pub fn concurrency(mut self, queue: impl Into<String>, jobs: usize) -> Self {
        self.concurrency.insert(queue.into(), jobs);
        self
    }

    /// The same for a queue for which nothing else is said. Default: 64.
    #[must_use]
    pub fn concurrency_otherwise(mut self, jobs: usize) -> Self {
        self.concurrency_otherwise = jobs;
        self
    }

    /// How often River polls its queues and looks for what has become due. Default: 1 s.
    #[must_use]
    pub fn beat(mut self, beat: Duration) -> Self {
        self.beat = beat;
        self
    }

    /// Whether this process works on jobs. Default: yes.
    #[must_use]
    pub fn work(mut self, work: bool) -> Self {
        self.work = work;
        self
    }

    /// The dice that spread retries; for tests.
    #[must_use]
    pub fn dice(mut self, dice: Dice) -> Self {
        self.dice = dice;
        self
    }

    /// Checks everything. River's tables must be there: see [`migrate`](crate::migrate).
    pub async fn build(self) -> Result<RiverRuntime, Error> {
        let mut refused = refusals(&self.kinds, &self.concurrency);
        refused.extend(self.kinds.iter().filter(|kind| kind.specified().unique.is_some()).filter_map(|kind| {
            refusal(incapable("unique", &format!("kind {:?} declares a uniqueness", kind.specified().name)))
        }));
        refused.extend(self.kinds.iter().map(Kind::specified).flat_map(|spec| {
            let asked = [
                (spec.order != Order::Block).then_some(("order_policy", "an order")),
                spec.limit.is_some().then_some(("limit", "a limit")),
                spec.fair.then_some(("fair", "fair shares")),
            ];
            let said = |(field, what)| incapable(field, &format!("kind {:?} declares {what}", spec.name));
            asked.into_iter().flatten().filter_map(move |asked| refusal(said(asked))).collect::<Vec<_>>()
        }));
        refused.extend(self.schedules.iter().filter_map(|schedule| {
            refusal(incapable("schedule", &format!("schedule {:?} is declared", schedule.name)))
        }));
        if !refused.is_empty() {
            return Err(Error::Declarations(refused));
        }
        check(&self.pool).await?;
        let specs = self.kinds.iter().map(|kind| (kind.specified().name.clone(), kind.specified().clone()));
        let specs: Arc<BTreeMap<String, KindSpec>> = Arc::new(specs.collect());
        let given_back = Arc::new(AtomicUsize::new(0));
        let works = self.work && self.kinds.iter().any(|kind| kind.handled_by().is_some());
        let pool = self.pool.clone();
        let client = self.client(works, &given_back)?;
        Ok(RiverRuntime {
            jobs: Arc::new(RiverJobs::new(client.clone(), pool, specs)),
            client,
            works,
            given_back,
            started: AtomicBool::new(false),
            running: Mutex::default(),
        })
    }

    fn client(self, works: bool, given_back: &Arc<AtomicUsize>) -> Result<Client, Error> {
        let mut client = Client::builder(self.pool.clone())
            .hook(OwnKind)
            .allow_legacy_job_kinds()
            .allow_unregistered_job_kinds()
            .fetch_only_known_kinds(true)
            .fetch_cooldown(FETCH_COOLDOWN)
            .job_stuck_threshold(STUCK)
            .maintenance(MaintenanceConfig::default().with_scheduler_interval(self.beat));
        if works {
            let handled = self.kinds.iter().filter_map(|kind| {
                let (spec, handler) = (kind.specified().clone(), Arc::clone(kind.handled_by()?));
                Some((spec.name.clone(), Handled { spec, handler }))
            });
            let kinds: Arc<BTreeMap<String, Handled>> = Arc::new(handled.collect());
            for queue in kinds.values().map(|handled| &handled.spec.queue) {
                let most = self.concurrency.get(queue).copied().unwrap_or(self.concurrency_otherwise);
                let config = QueueConfig::new(most).with_fetch_poll_interval(self.beat.max(FETCH_COOLDOWN));
                client = client.queue(queue_in_river(queue), config);
            }
            let work = Work {
                kinds: Arc::clone(&kinds),
                pool: self.pool,
                clock: Clock::system(),
                dice: self.dice,
                given_back: Arc::clone(given_back),
            };
            let mut workers = Workers::new();
            registering(kinds.keys().cloned(), || workers.add::<Envelope, _>(work).map(drop))
                .map_err(|error| told("workers", error))?;
            client = client.workers(workers);
        }
        client.build().map_err(|error| told("build", error))
    }
}

fn refusal(error: Error) -> Option<Refused> {
    match error {
        Error::Refused(refused) => Some(refused),
        _ => None,
    }
}

/// One process of an application on River.
pub struct RiverRuntime {
    client: Client,
    jobs: Arc<RiverJobs>,
    works: bool,
    given_back: Arc<AtomicUsize>,
    started: AtomicBool,
    running: Mutex<Option<Running>>,
}

/// What a stop takes back; without a handle if this process only enqueues.
struct Running(Option<RunHandle>);

impl fmt::Debug for RiverRuntime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RiverRuntime").field("client", &self.client).field("works", &self.works).finish_non_exhaustive()
    }
}

impl Runtime for RiverRuntime {
    fn capabilities(&self) -> Capabilities {
        CAPABILITIES
    }

    fn jobs(&self) -> Arc<dyn Jobs> {
        Arc::clone(&self.jobs) as Arc<dyn Jobs>
    }

    fn inspector(&self) -> Arc<dyn Inspector> {
        Arc::new(RiverInspector::new(self.client.clone()))
    }

    fn start(&self) -> Fut<'_, ()> {
        Box::pin(async move {
            if self.started.swap(true, Ordering::SeqCst) {
                return Err(Error::AlreadyStarted);
            }
            let mut handle = None;
            if self.works {
                let mut started = self.client.start().map_err(|error| told("start", error))?;
                if let Ok(ready) = timeout(READY, started.wait_ready()).await {
                    ready.map_err(|error| told("start", error))?;
                } else {
                    // its loops try again by themselves
                    warn!("River is not ready after {} s", READY.as_secs());
                }
                handle = Some(started);
            }
            *self.running.lock().unwrap_or_else(PoisonError::into_inner) = Some(Running(handle));
            Ok(())
        })
    }

    fn stop(&self, grace: Duration) -> Fut<'_, Stopped> {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner).take();
        Box::pin(async move {
            let Some(Running(handle)) = running else { return Err(Error::NotRunning) };
            let Some(mut handle) = handle else { return Ok(Stopped::Drained) };
            let in_time = timeout(grace, handle.stop()).await;
            // what was given up before was cancelled by an operator
            self.given_back.store(0, Ordering::SeqCst);
            let ended = match in_time {
                Ok(ended) => ended,
                Err(_) => handle.stop_and_cancel().await,
            };
            if let Err(error) = ended {
                warn!(error = %error, "River did not stop as it should: {error}");
            }
            match self.given_back.load(Ordering::SeqCst) {
                0 => Ok(Stopped::Drained),
                n => Ok(Stopped::Abandoned(n)),
            }
        })
    }
}
