//! What runs until it is told to stop, and is waited for.

use std::future::Future;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

/// The long-lived tasks of a process: told to stop together, waited for together. A task that ends before it was told
/// to, by an error or a panic, ends the process.
#[derive(Debug)]
pub struct Tasks {
    stop: CancellationToken,
    tasks: JoinSet<(&'static str, anyhow::Result<()>)>,
}

impl Tasks {
    /// No task yet; `stop` is what tells them.
    pub fn new(stop: CancellationToken) -> Self {
        Self { stop, tasks: JoinSet::new() }
    }

    /// Starts a task, which ends soon after its token is cancelled.
    pub fn start<F, T>(&mut self, name: &'static str, task: T)
    where
        T: FnOnce(CancellationToken) -> F,
        F: Future<Output = anyhow::Result<()>> + Send + 'static,
    {
        let task = task(self.stop.clone());
        self.tasks.spawn(async move { (name, task.await) });
    }

    /// Waits until a task fails, for ever if none does.
    pub async fn failed(&mut self) -> anyhow::Error {
        while let Some(ended) = self.tasks.join_next().await {
            if let Err(error) = outcome(ended) {
                return error;
            }
        }
        std::future::pending().await
    }

    /// Tells the tasks to stop, and cuts those that are still there after `grace`.
    pub async fn stop(&mut self, grace: Duration) -> anyhow::Result<()> {
        self.stop.cancel();
        let ended = tokio::time::timeout(grace, async {
            let mut first = Ok(());
            while let Some(ended) = self.tasks.join_next().await {
                first = first.and(outcome(ended));
            }
            first
        });
        if let Ok(outcome) = ended.await {
            return outcome;
        }
        self.tasks.shutdown().await;
        Err(anyhow!("a task did not stop within {} s and was cut", grace.as_secs()))
    }
}

fn outcome(ended: Result<(&'static str, anyhow::Result<()>), JoinError>) -> anyhow::Result<()> {
    let (name, outcome) = ended.context("a task panicked")?;
    outcome.with_context(|| format!("{name} failed"))
}
