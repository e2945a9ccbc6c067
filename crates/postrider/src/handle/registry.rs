use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use postrider_contract::Retry;

use super::Handler;
use crate::error::Fut;
use crate::job::ClaimHook;
use crate::pg::Tx;
use crate::port::Job;

/// A handler with what its kind says of it.
#[derive(Clone)]
pub(crate) struct Registered {
    pub(crate) handler: Arc<dyn Handler>,
    pub(crate) queue: String,
    pub(crate) timeout: Duration,
    pub(crate) retry: Retry,
    pub(crate) max_age: Duration,
    pub(crate) fair: bool,
}

/// The handlers of this process by kind.
#[derive(Clone, Default)]
pub(crate) struct Registry(BTreeMap<String, Registered>);

impl Registry {
    pub(crate) fn insert(&mut self, kind: String, registered: Registered) {
        self.0.insert(kind, registered);
    }

    pub(crate) fn get(&self, kind: &str) -> Option<&Registered> {
        self.0.get(kind)
    }

    /// Each queue with the kinds that this process runs in it: its own, and those of other queues, whose jobs may have been enqueued
    /// into it. A handler that watches its claims does so in its own queue alone.
    pub(crate) fn queues(&self) -> BTreeMap<String, Vec<String>> {
        let names: BTreeSet<&str> = self.0.values().map(|registered| registered.queue.as_str()).collect();
        let runs = |queue: &str, r: &Registered| r.queue == queue || !r.handler.watches_claims();
        let kinds = |queue| self.0.iter().filter(|(_, r)| runs(queue, r)).map(|(kind, _)| kind.clone()).collect();
        names.into_iter().map(|queue| (queue.to_owned(), kinds(queue))).collect()
    }

    /// Whether jobs of the queue are claimed owner by owner in turn.
    pub(crate) fn is_fair(&self, queue: &str) -> bool {
        self.0.values().any(|r| r.queue == queue && r.fair)
    }

    /// How many jobs of the queue its own handlers want to run at a time.
    pub(crate) fn concurrency(&self, queue: &str) -> Option<usize> {
        self.0.values().filter(|r| r.queue == queue).filter_map(|r| r.handler.concurrency()).max()
    }

    /// Whether a handler of the queue watches its claims.
    pub(crate) fn watches(&self, queue: &str) -> bool {
        self.0.values().any(|r| r.queue == queue && r.handler.watches_claims())
    }
}

/// Calls the handlers that watch the claims of a queue.
pub(crate) struct QueueHook(pub(crate) Arc<Registry>);

impl ClaimHook for QueueHook {
    fn claimed<'a>(&'a self, tx: &'a mut dyn Tx, jobs: &'a [Job]) -> Fut<'a, ()> {
        Box::pin(async move {
            let mut by_kind = BTreeMap::<&str, Vec<&Job>>::new();
            for job in jobs {
                by_kind.entry(&job.kind).or_default().push(job);
            }
            for (kind, jobs) in by_kind {
                if let Some(registered) = self.0.get(kind).filter(|r| r.handler.watches_claims()) {
                    registered.handler.claimed(tx, &jobs).await?;
                }
            }
            Ok(())
        })
    }
}
