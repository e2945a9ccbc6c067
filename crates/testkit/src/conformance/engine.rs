use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use postrider::{Bus, Clock, Dice, Error, Kind, Runtime, Settings};
use sqlx::PgPool;

use super::crew::Perils;
use crate::TestDb;

/// Makes fresh engines.
pub trait Engine: Send + Sync {
    /// An engine with nothing in it, on a database with nothing in it.
    fn fresh(&self) -> BoxFuture<'_, Box<dyn Stage>>;
}

/// A fresh engine. Dropped, it is gone.
pub trait Stage: Send + Sync {
    /// The database of the application.
    fn pool(&self) -> &PgPool;

    /// One process of an application on this engine.
    fn process(&self, app: App) -> BoxFuture<'_, Result<Arc<dyn Runtime>, Error>>;

    /// What may befall its processes.
    fn perils(&self) -> &dyn Perils;
}

/// What a process declares and handles.
#[derive(Debug)]
pub struct App {
    /// Its kinds.
    pub kinds: Vec<Kind>,
    /// How it takes part.
    pub settings: Settings,
    /// Jobs at a time, by queue.
    pub concurrency: Vec<(String, usize)>,
    /// The dice of its retries.
    pub dice: Dice,
    /// Its clock.
    pub clock: Clock,
}

impl App {
    /// One with these kinds that beats ten times as often as usual, so that cases are quick, and whose retries come when their schedule
    /// says.
    pub fn new(kinds: impl IntoIterator<Item = Kind>) -> Self {
        let settings =
            Settings { beat: Duration::from_millis(100), dead_after: Duration::from_secs(2), ..Settings::default() };
        Self {
            kinds: kinds.into_iter().collect(),
            settings,
            concurrency: Vec::new(),
            dice: Dice::loaded(|| 0.0),
            clock: Clock::system(),
        }
    }

    /// The same, with so many jobs of a queue at a time.
    #[must_use]
    pub fn concurrency(mut self, queue: &str, jobs: usize) -> Self {
        self.concurrency.push((queue.to_owned(), jobs));
        self
    }
}

/// The native engine; `tune` is applied to the settings of each process.
pub struct Native {
    tune: fn(&mut Settings),
}

impl fmt::Debug for Native {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Native").finish_non_exhaustive()
    }
}

impl Default for Native {
    fn default() -> Self {
        Self { tune: |_| {} }
    }
}

impl Native {
    /// With other settings than the cases ask for.
    pub fn tuned(tune: fn(&mut Settings)) -> Self {
        Self { tune }
    }
}

impl Engine for Native {
    fn fresh(&self) -> BoxFuture<'_, Box<dyn Stage>> {
        Box::pin(async {
            let db = TestDb::fresh().await;
            Box::new(NativeStage { db, tune: self.tune }) as Box<dyn Stage>
        })
    }
}

pub(super) struct NativeStage {
    pub(super) db: TestDb,
    pub(super) tune: fn(&mut Settings),
}

impl Stage for NativeStage {
    fn pool(&self) -> &PgPool {
        self.db.pool()
    }

    fn process(&self, app: App) -> BoxFuture<'_, Result<Arc<dyn Runtime>, Error>> {
        Box::pin(built(self.db.pool().clone(), app, self.tune))
    }

    fn perils(&self) -> &dyn Perils {
        self
    }
}

/// A process of the native engine over a pool.
pub(super) async fn built(pool: PgPool, mut app: App, tune: fn(&mut Settings)) -> Result<Arc<dyn Runtime>, Error> {
    tune(&mut app.settings);
    let mut builder = Bus::builder(pool).kinds(app.kinds).settings(app.settings).dice(app.dice).clock(app.clock);
    for (queue, jobs) in app.concurrency {
        builder = builder.concurrency(queue, jobs);
    }
    Ok(Arc::new(builder.build().await?) as Arc<dyn Runtime>)
}
