mod check;
mod event_type;
mod handled; // kinds and subscriptions, with who handles them here
mod instance; // which database is meant
mod keep;
mod schedule;
mod watch;
mod write; // as postrider.declare reads it

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use postrider_contract::{
    EventTypeSpec, KindSpec, Pattern, Payload, Refused, Schedule, SubscriptionSpec, Watch, check_owner,
    check_public_name,
};
use serde_json::json;
use sqlx::postgres::PgConnectOptions;
use sqlx::{Connection as _, PgConnection, PgPool};
use tokio::time::sleep;
use tracing::{info, warn};

use check::{check_subscription, once, option};
use write::{Declared, kind_json, subscription_json};

use crate::clock::{Clock, Dice};
use crate::error::Error;
use crate::handle::{Registered, Registry};
use crate::job::Known;
use crate::pg::{Arg, Statement, Tx, begin};
use crate::port::Jobs;
use crate::run::{Bus, Parts, Settings, admit};

pub use check::refusals;
pub use handled::{Kind, Subscription};

const DECLARE: Statement = crate::statement!("sql/declare.sql");

pub(crate) const STATEMENTS: &[&Statement] = &[&DECLARE, &keep::KEEP_FOR, &instance::CHECK_INSTANCE, &watch::WATCH];

/// Collects what an application declares; [`Builder::build`] checks all of it at once.
#[derive(Debug, Clone)]
pub struct Builder {
    pool: PgPool,
    app: String,
    generation: i64,
    types: Vec<EventTypeSpec>,
    kinds: Vec<Kind>,
    subscriptions: Vec<SubscriptionSpec>,
    kept: keep::Kept,
    schedules: Vec<Schedule>,
    watches: Vec<Watch>,
    concurrency: BTreeMap<String, usize>,
    settings: Settings,
    direct: Option<PgConnectOptions>,
    clock: Clock,
    dice: Dice,
    engine: Option<Arc<dyn Jobs>>,
    instance: Option<String>,
}

impl Builder {
    pub(crate) fn new(pool: PgPool) -> Self {
        Self {
            pool,
            app: String::new(),
            generation: 0,
            types: Vec::new(),
            kinds: Vec::new(),
            subscriptions: Vec::new(),
            kept: keep::Kept::default(),
            schedules: Vec::new(),
            watches: Vec::new(),
            concurrency: BTreeMap::new(),
            settings: Settings::default(),
            direct: None,
            clock: Clock::system(),
            dice: Dice::random(),
            engine: None,
            instance: None,
        }
    }

    /// The application's name, shown with what it declares.
    #[must_use]
    pub fn app(mut self, name: impl Into<String>) -> Self {
        self.app = name.into();
        self
    }

    /// The generation of its declarations: where two processes declare one name in two ways, the higher one wins, and equal ones
    /// refuse to start. Default: 0.
    #[must_use]
    pub fn generation(mut self, generation: i64) -> Self {
        self.generation = generation;
        self
    }

    /// Declares event types.
    #[must_use]
    pub fn types<T: Into<EventTypeSpec>>(mut self, types: impl IntoIterator<Item = T>) -> Self {
        self.types.extend(types.into_iter().map(Into::into));
        self
    }

    /// Declares kinds of job.
    #[must_use]
    pub fn kinds(mut self, kinds: impl IntoIterator<Item = Kind>) -> Self {
        self.kinds.extend(kinds);
        self
    }

    /// Declares subscriptions.
    #[must_use]
    pub fn subscriptions(mut self, subscriptions: impl IntoIterator<Item = Subscription>) -> Self {
        for subscription in subscriptions {
            self.kinds.extend(subscription.kind);
            self.subscriptions.push(subscription.spec);
        }
        self
    }

    /// Declares schedules, whose kinds are among those that are declared here. Processes that declare a schedule fire it.
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

    /// How this process takes part.
    #[must_use]
    pub fn settings(mut self, settings: Settings) -> Self {
        self.settings = settings;
        self
    }

    /// Where to listen: a direct connection to the same database, past a pooler in transaction mode, through which nothing is heard.
    #[must_use]
    pub fn listen_on(mut self, direct: PgConnectOptions) -> Self {
        self.direct = Some(direct);
        self
    }

    /// The dice that spread retries; for tests.
    #[must_use]
    pub fn dice(mut self, dice: Dice) -> Self {
        self.dice = dice;
        self
    }

    /// Has the jobs of events made by another engine, in the transaction of the relay. Handlers that are given here run jobs of the native
    /// engine only: those of another one are given to it.
    #[must_use]
    pub fn engine(mut self, jobs: Arc<dyn Jobs>) -> Self {
        self.engine = Some(jobs);
        self
    }

    /// The clock of its deadlines and of its watch over the others; for tests.
    #[must_use]
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Checks everything and declares it, all or nothing. The schema must be up to date: see [`crate::migrate`].
    ///
    /// A process that is to work is refused if the server has too few free connections for it ([`Error::Connections`]), and any
    /// process if a pooler in transaction mode stands before the database and the settings do not say so ([`Error::Pooler`]). A
    /// database that does not answer is a transient error after 10 s at most; [`Builder::build_when_reachable`] tries again.
    pub async fn build(self) -> Result<Bus, Error> {
        let refused = self.refusals();
        if !refused.is_empty() {
            return Err(Error::Declarations(refused));
        }
        let works = self.settings.work;
        let queues: BTreeSet<&str> = self.queues().filter(|_| works).collect();
        let queues: Vec<&str> = queues.into_iter().collect();
        let mut connection = admit(&self.pool, &self.settings, &queues).await?;
        self.declare(&mut connection).await?;
        let held = self.holds_outbound(&mut connection).await?;
        let _ = connection.close().await;
        let kinds = self.known();
        let mut registry = Registry::default();
        for kind in self.kinds.into_iter().filter(|kind| !(held && instance::is_outbound(&kind.spec.name))) {
            if let Some(handler) = kind.handler {
                let KindSpec { name, queue, timeout, retry, max_age, fair, .. } = kind.spec;
                registry.insert(name, Registered { handler, queue, timeout, retry, max_age, fair });
            }
        }
        Ok(Bus::new(Parts {
            pool: self.pool,
            app: self.app,
            registry,
            kinds,
            schedules: self.schedules,
            concurrency: self.concurrency,
            settings: self.settings,
            direct: self.direct,
            clock: self.clock,
            dice: self.dice,
            engine: self.engine,
        }))
    }

    /// The same as soon as the database is there: while it does not answer this tries again, at growing distances up to 5 s. For an
    /// application that has other things to do meanwhile: await it beside them.
    pub async fn build_when_reachable(self) -> Result<Bus, Error> {
        let mut tries = 0;
        loop {
            match self.clone().build().await {
                Err(error) if error.is_transient() => {
                    if tries == 0 {
                        warn!(error = ?error, "the database cannot be reached, trying again");
                    }
                    tries += 1;
                    sleep(pause(tries, self.dice.roll())).await;
                }
                built => {
                    if tries > 0 && built.is_ok() {
                        info!("the database is there after {tries} tries");
                    }
                    return built;
                }
            }
        }
    }

    /// The queues of the kinds that this process handles.
    fn queues(&self) -> impl Iterator<Item = &str> {
        self.kinds.iter().filter(|kind| kind.handler.is_some()).map(|kind| kind.spec.queue.as_str())
    }

    /// The kinds that this application declares.
    fn known(&self) -> Known {
        Known::new(self.kinds.iter().map(|kind| kind.spec.name.clone()))
    }

    fn refusals(&self) -> Vec<Refused> {
        let mut refused = Vec::new();
        let mut note = |result: Result<(), Refused>| refused.extend(result.err());
        let mut names = BTreeSet::new();
        for spec in &self.subscriptions {
            note(check_public_name("subscription", &spec.name));
            note(once(&mut names, "subscription", &spec.name));
            note(check_owner(&spec.owner));
            if spec.types.is_empty() {
                note(Err(option(
                    "types",
                    format!("subscription {:?} names no event type", spec.name),
                    "give at least one",
                )));
            }
            spec.types.iter().for_each(|pattern| note(Pattern::parse(pattern).map(drop)));
            note(check_subscription(spec, self.engine.as_deref().map(Jobs::capabilities)));
        }
        refused.extend(event_type::refusals(&self.types));
        refused.extend(self.kept.refusals());
        refused.extend(refusals(&self.kinds, &self.concurrency));
        refused.extend(schedule::refusals(&self.schedules, &self.known()));
        refused.extend(watch::refusals(&self.watches));
        refused.extend(self.settings.check(self.direct.is_some()).err());
        refused
    }

    async fn declare(&self, connection: &mut PgConnection) -> Result<(), Error> {
        let failed = |e| Error::from_sqlx(DECLARE.name, e);
        let kinds = |component: bool| -> Vec<_> {
            let those = self.kinds.iter().filter(|kind| kind.component == component);
            those.map(|kind| kind_json(&kind.spec)).collect()
        };
        let own = json!({ "app": self.app, "own": true, "kinds": kinds(true) });
        let public = Declared {
            app: &self.app,
            generation: self.generation,
            types: &self.types,
            kinds: kinds(false),
            subscriptions: self.subscriptions.iter().map(subscription_json).collect(),
            schedules: self.schedules.iter().map(schedule::schedule_json).collect(),
            attended: true,
        };
        let mut tx = begin(connection).await.map_err(failed)?;
        for text in [Payload::of_trusted(&own)?, Payload::of_trusted(&public)?] {
            tx.run(&DECLARE, &[Arg::Text(text.as_str())]).await?;
        }
        self.kept.declare(&mut *tx, &self.app, self.generation).await?;
        watch::declare(&self.watches, &mut *tx, &self.app, self.generation).await?;
        tx.commit().await.map_err(failed)
    }
}

/// Between two tries to reach the database, with dice in [0, 1): all processes of a fleet start at the same time.
fn pause(tries: u32, dice: f64) -> Duration {
    let longest = Duration::from_millis(100).saturating_mul(2_u32.saturating_pow(tries.min(16)));
    longest.min(Duration::from_secs(5)).mul_f64(0.5 + dice.clamp(0.0, 1.0) / 2.0)
}
