use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::job::Job;

/// The attempts that run in this process.
#[derive(Debug, Default)]
pub(crate) struct Running(Mutex<BTreeMap<(i64, i64), Attempt>>);

#[derive(Debug)]
struct Attempt {
    stop: CancellationToken,
    kind: String,
    number: i16,
    max: i16,
    deadline: Duration,
    told_stuck: bool,
}

/// An attempt whose time is over and that has not ended all the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stuck {
    pub(crate) lease: i64,
    pub(crate) id: i64,
    pub(crate) kind: String,
    pub(crate) attempt: i16,
    pub(crate) max_attempts: i16,
}

impl Running {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<(i64, i64), Attempt>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An attempt begins; `deadline` is on the monotonic clock.
    pub(crate) fn begin(&self, job: &Job, stop: CancellationToken, deadline: Duration) {
        let attempt = Attempt {
            stop,
            kind: job.kind.clone(),
            number: job.attempt,
            max: job.max_attempts,
            deadline,
            told_stuck: false,
        };
        self.lock().insert((job.lease, job.key), attempt);
    }

    /// An attempt ended. False if its end was told already: as stuck, or as lost.
    pub(crate) fn end(&self, lease: i64, id: i64) -> bool {
        self.lock().remove(&(lease, id)).is_some_and(|attempt| !attempt.told_stuck)
    }

    /// Cancels the attempts of a lease that is gone; answers how many there were.
    pub(crate) fn lose(&self, lease: i64) -> usize {
        let running = self.lock();
        let lost = running.range((lease, i64::MIN)..=(lease, i64::MAX));
        lost.inspect(|(_, attempt)| attempt.stop.cancel()).count()
    }

    /// Cancels every attempt.
    pub(crate) fn cancel_all(&self) {
        self.lock().values().for_each(|attempt| attempt.stop.cancel());
    }

    /// Attempts that are past their deadline by more than `patience`, each told once: they hold their thread and cannot end
    /// themselves.
    pub(crate) fn stuck(&self, now: Duration, patience: Duration) -> Vec<Stuck> {
        let mut running = self.lock();
        let late = running.iter_mut().filter(|(_, a)| !a.told_stuck && now > a.deadline + patience);
        late.map(|(&(lease, id), attempt)| {
            attempt.told_stuck = true;
            attempt.stop.cancel();
            Stuck { lease, id, kind: attempt.kind.clone(), attempt: attempt.number, max_attempts: attempt.max }
        })
        .collect()
    }

    /// What has not ended, to be given back when the process stops: each is told from now on.
    pub(crate) fn abandon(&self) -> Vec<(i64, i64)> {
        let mut running = self.lock();
        let open = running.iter_mut().filter(|(_, attempt)| !attempt.told_stuck);
        open.map(|(&key, attempt)| {
            attempt.told_stuck = true;
            attempt.stop.cancel();
            key
        })
        .collect()
    }

    /// How many run.
    pub(crate) fn count(&self) -> usize {
        self.lock().len()
    }
}
