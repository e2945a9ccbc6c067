use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use postrider::{
    BoxError, Context, Inspector, Job, JobId, JobView, Jobs, Kind, NewJob, Payload, Runtime, State, Stopped, Verdict,
    handler,
};
use sqlx::PgPool;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::timeout;

use super::{App, Engine, Stage};
use crate::until;

/// How long a busy machine may take for what needs no waiting.
const SOON: Duration = Duration::from_mins(1);

/// One process of an application on a fresh engine, with what a case says again and again. It stops when it is dropped.
pub struct Scene {
    stage: Box<dyn Stage>,
    process: Arc<dyn Runtime>,
}

impl fmt::Debug for Scene {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scene").finish_non_exhaustive()
    }
}

impl Scene {
    /// A fresh engine with one process, which is not at work yet.
    pub async fn set(engine: &dyn Engine, app: App) -> Self {
        let stage = engine.fresh().await;
        let process = stage.process(app).await.unwrap_or_else(|error| panic!("cannot build: {error}"));
        Self { stage, process }
    }

    /// The same, at work.
    pub async fn at_work(engine: &dyn Engine, app: App) -> Self {
        let scene = Self::set(engine, app).await;
        scene.start().await;
        scene
    }

    /// Puts the process to work.
    pub async fn start(&self) {
        self.process.start().await.unwrap_or_else(|error| panic!("cannot start: {error}"));
    }

    /// Stops the process.
    pub async fn stop(&self) -> Stopped {
        self.process.stop(SOON).await.unwrap_or_else(|error| panic!("cannot stop: {error}"))
    }

    /// The engine under it.
    pub fn stage(&self) -> &dyn Stage {
        &*self.stage
    }

    /// The database of the application.
    pub fn pool(&self) -> &PgPool {
        self.stage.pool()
    }

    /// The process.
    pub fn process(&self) -> &dyn Runtime {
        &*self.process
    }

    /// Its door for jobs.
    pub fn jobs(&self) -> Arc<dyn Jobs> {
        self.process.jobs()
    }

    /// Its view of jobs.
    pub fn inspector(&self) -> Arc<dyn Inspector> {
        self.process.inspector()
    }

    /// Enqueues one job outside of a transaction.
    pub async fn enqueue(&self, job: NewJob) -> JobId {
        let enqueued = self.jobs().enqueue(None, &[job]).await;
        let enqueued = enqueued.unwrap_or_else(|error| panic!("cannot enqueue: {error:?}"));
        enqueued.first().map_or_else(|| panic!("no answer for one job"), |made| made.id.clone())
    }

    /// A job as it is.
    pub async fn job(&self, id: &JobId) -> JobView {
        let view = self.inspector().job(id).await.unwrap_or_else(|error| panic!("cannot look at {id}: {error}"));
        view.unwrap_or_else(|| panic!("there is no job {id}"))
    }

    /// A job as soon as it has a state.
    pub async fn until(&self, id: &JobId, state: State) -> JobView {
        until(&format!("{id} is {}", state.name()), SOON, async || {
            let view = self.job(id).await;
            (view.state == state).then_some(view)
        })
        .await
    }
}

/// What handlers told a case.
#[derive(Debug)]
pub struct Heard<T>(UnboundedReceiver<T>);

impl<T: fmt::Debug> Heard<T> {
    /// A mouth for handlers and the ear of the case.
    pub fn new() -> (UnboundedSender<T>, Self) {
        let (mouth, ear) = unbounded_channel();
        (mouth, Self(ear))
    }

    /// The next word.
    pub async fn next(&mut self) -> T {
        match timeout(SOON, self.0.recv()).await {
            Ok(Some(word)) => word,
            Ok(None) => panic!("nobody is left who could say anything"),
            Err(elapsed) => panic!("nothing was heard: {elapsed}"),
        }
    }

    /// What was said and not heard yet.
    pub fn rest(&mut self) -> Vec<T> {
        std::iter::from_fn(|| self.0.try_recv().ok()).collect()
    }
}

/// A kind whose handler tells each job that it is given, and completes it.
pub fn telling(name: &str, mouth: UnboundedSender<Job>) -> Kind {
    Kind::new(name).handler(handler(move |job: Arc<Job>, _: Context| {
        let told = mouth.send((*job).clone());
        async move {
            told.map_err(|_| BoxError::from("the case is over"))?;
            Ok(Verdict::Complete)
        }
    }))
}

/// JSON of this text.
pub fn json(text: &str) -> Payload {
    Payload::parse(text).unwrap_or_else(|refused| panic!("{refused}"))
}
