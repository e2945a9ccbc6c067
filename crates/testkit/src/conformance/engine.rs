use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use postrider::{Bus, Dice, Error, Jobs, Kind, Runtime, Settings};
use sqlx::PgPool;

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

    /// What the relay hands the jobs of events to, if the engine is not the one that the relay is part of.
    fn fan_out(&self, process: &dyn Runtime) -> Option<Arc<dyn Jobs>> {
        let _ = process;
        None
    }
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
}

impl App {
    /// One with these kinds that beats ten times as often as usual, so that cases are quick, and whose retries come when their schedule
    /// says.
    pub fn new(kinds: impl IntoIterator<Item = Kind>) -> Self {
        let settings =
            Settings { beat: Duration::from_millis(100), dead_after: Duration::from_secs(2), ..Settings::default() };
        Self { kinds: kinds.into_iter().collect(), settings, concurrency: Vec::new(), dice: Dice::loaded(|| 0.0) }
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

struct NativeStage {
    db: TestDb,
    tune: fn(&mut Settings),
}

impl Stage for NativeStage {
    fn pool(&self) -> &PgPool {
        self.db.pool()
    }

    fn process(&self, mut app: App) -> BoxFuture<'_, Result<Arc<dyn Runtime>, Error>> {
        Box::pin(async move {
            (self.tune)(&mut app.settings);
            let mut builder =
                Bus::builder(self.db.pool().clone()).kinds(app.kinds).settings(app.settings).dice(app.dice);
            for (queue, jobs) in app.concurrency {
                builder = builder.concurrency(queue, jobs);
            }
            Ok(Arc::new(builder.build().await?) as Arc<dyn Runtime>)
        })
    }
}
