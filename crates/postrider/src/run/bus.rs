use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use postrider_contract::{NewEvent, Schedule, TypedEvent};
use sqlx::PgPool;
use sqlx::postgres::PgConnectOptions;

use super::figures::{Counters, Figures};
use super::metric;
use super::native::CAPABILITIES;
use super::{Metric, PgInspector, PgJobs, PgKeys, Running, Settings};
use crate::clock::{Clock, Dice};
use crate::declare::Builder;
use crate::error::{Error, Fut};
use crate::handle::Registry;
use crate::job::Known;
use crate::pg::{Pooler, Tx, keeps};
use crate::port::{Capabilities, Inspector, Jobs, Keys, Runtime, Stopped};
use crate::record::{Recorded, Recorder, Types};
use crate::schedule::Schedules;

/// Everything of one application, wired: what it declares, what it handles, and the pool that it uses.
pub struct Bus {
    pub(super) pool: PgPool,
    pub(super) app: String,
    pub(super) registry: Arc<Registry>,
    pub(super) schedules: Vec<Schedule>,
    pub(super) concurrency: BTreeMap<String, usize>,
    pub(super) settings: Settings,
    pub(super) direct: Option<PgConnectOptions>,
    pub(super) clock: Clock,
    pub(super) dice: Dice,
    pub(super) counters: Arc<Counters>,
    /// Makes the jobs of events, if that is not the native engine.
    pub(super) engine: Option<Arc<dyn Jobs>>,
    jobs: Arc<PgJobs>,
    started: AtomicBool,
    running: Mutex<Option<Running>>,
}

impl fmt::Debug for Bus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bus").field("app", &self.app).field("settings", &self.settings).finish_non_exhaustive()
    }
}

/// What the builder hands over.
pub(crate) struct Parts {
    pub(crate) pool: PgPool,
    pub(crate) app: String,
    pub(crate) registry: Registry,
    pub(crate) kinds: Known,
    pub(crate) schedules: Vec<Schedule>,
    pub(crate) concurrency: BTreeMap<String, usize>,
    pub(crate) settings: Settings,
    pub(crate) direct: Option<PgConnectOptions>,
    pub(crate) clock: Clock,
    pub(crate) dice: Dice,
    pub(crate) engine: Option<Arc<dyn Jobs>>,
}

impl Bus {
    /// Starts the declaration of an application over its pool. The pool is used for its options: the bus opens a few connections of its
    /// own, so that handlers that use up the pool cost it no lease.
    pub fn builder(pool: PgPool) -> Builder {
        Builder::new(pool)
    }

    pub(crate) fn new(parts: Parts) -> Self {
        Self {
            jobs: Arc::new(PgJobs::new(parts.pool.clone()).behind(parts.settings.pooler).knowing(parts.kinds)),
            running: Mutex::default(),
            pool: parts.pool,
            app: parts.app,
            registry: Arc::new(parts.registry),
            schedules: parts.schedules,
            concurrency: parts.concurrency,
            settings: parts.settings,
            direct: parts.direct,
            clock: parts.clock,
            dice: parts.dice,
            engine: parts.engine,
            counters: Arc::default(),
            started: AtomicBool::new(false),
        }
    }

    /// Writes events into the caller's transaction.
    pub fn recorder(&self) -> Recorder {
        let keeps = self.settings.pooler == Pooler::None && keeps(&self.pool.connect_options());
        Recorder::new().behind(if keeps { Pooler::None } else { Pooler::Transaction })
    }

    /// Records a typed event in the caller's transaction; see [`Recorder::record`] for what it may refuse.
    pub async fn record<E: TypedEvent + Sync>(&self, tx: &mut dyn Tx, event: &E) -> Result<Recorded, Error> {
        self.recorder().record(tx, &NewEvent::of(event)?).await
    }

    /// Enqueues jobs, in the caller's transaction or in one of its own.
    pub fn jobs(&self) -> Arc<dyn Jobs> {
        Arc::clone(&self.jobs) as Arc<dyn Jobs>
    }

    /// Looks at jobs.
    pub fn inspector(&self) -> Arc<dyn Inspector> {
        Arc::new(PgInspector::new(self.pool.clone()))
    }

    /// Looks at schedules, runs and pauses them.
    pub fn schedules(&self) -> Schedules {
        Schedules::new(self.pool.clone())
    }

    /// Looks at event types.
    pub fn types(&self) -> Types {
        Types::new(self.pool.clone())
    }

    /// Changes limits, holds keys and works on lanes.
    pub fn keys(&self) -> Arc<dyn Keys> {
        Arc::new(PgKeys::new(self.pool.clone()))
    }

    /// What this process has done so far.
    pub fn figures(&self) -> Figures {
        self.counters.read()
    }

    /// The same as counters, with histograms and gauges: what an application hands to whatever it exports metrics with. `docs/metrics.md` lists
    /// them, always all of them and in this order.
    pub fn metrics(&self) -> Vec<Metric> {
        metric::read(&self.counters, self.clock.monotonic())
    }

    /// Starts to work, once. Everything runs on the current tokio runtime, but for the beat, which has a thread of its own.
    pub fn start(&self) -> Result<Running, Error> {
        if self.started.swap(true, Ordering::SeqCst) {
            return Err(Error::AlreadyStarted);
        }
        Running::start(self)
    }
}

impl Runtime for Bus {
    fn capabilities(&self) -> Capabilities {
        CAPABILITIES
    }

    fn jobs(&self) -> Arc<dyn Jobs> {
        Self::jobs(self)
    }

    fn inspector(&self) -> Arc<dyn Inspector> {
        Self::inspector(self)
    }

    fn keys(&self) -> Arc<dyn Keys> {
        Self::keys(self)
    }

    fn start(&self) -> Fut<'_, ()> {
        Box::pin(async move {
            let running = Self::start(self)?;
            *self.running.lock().unwrap_or_else(PoisonError::into_inner) = Some(running);
            Ok(())
        })
    }

    fn stop(&self, grace: Duration) -> Fut<'_, Stopped> {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner).take();
        Box::pin(async move {
            match running {
                Some(running) => Ok(running.stop(grace).await),
                None => Err(Error::NotRunning),
            }
        })
    }
}
