use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use postrider_contract::Retry;
use tokio_util::sync::CancellationToken;

use crate::port::Job;

/// The attempts that run in this process.
#[derive(Debug, Default)]
pub(crate) struct Running {
    attempts: Mutex<BTreeMap<(i64, i64), Attempt>>,
    given_back: AtomicUsize,
}

#[derive(Debug)]
struct Attempt {
    stop: CancellationToken,
    kind: String,
    number: i16,
    max: i16,
    retry: Option<Retry>,
    deadline: Duration,
    told_stuck: bool,
    interrupted: bool,
    parting: bool,
}

/// What the end of an attempt is worth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// It counts.
    Counts,
    /// The process stops and cancelled it: if it failed, that was not its own doing.
    Interrupted,
    /// Its end was told already: as stuck, or as given back.
    Told,
}

/// An attempt whose time is over and that has not ended all the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stuck {
    pub(crate) lease: i64,
    pub(crate) id: i64,
    pub(crate) kind: String,
    pub(crate) attempt: i16,
    pub(crate) max_attempts: i16,
    pub(crate) retry: Option<Retry>,
}

impl Running {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<(i64, i64), Attempt>> {
        self.attempts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An attempt begins; `deadline` is on the monotonic clock.
    pub(crate) fn begin(&self, job: &Job, stop: CancellationToken, deadline: Duration) {
        let attempt = Attempt {
            stop,
            kind: job.kind.clone(),
            number: job.attempt,
            max: job.max_attempts,
            retry: job.retry.clone(),
            deadline,
            told_stuck: false,
            interrupted: false,
            parting: false,
        };
        self.lock().insert((job.lease, job.key), attempt);
    }

    /// An attempt ended.
    pub(crate) fn end(&self, lease: i64, id: i64) -> End {
        match self.lock().remove(&(lease, id)) {
            Some(attempt) if attempt.told_stuck => End::Told,
            Some(attempt) if attempt.interrupted => End::Interrupted,
            Some(_) => End::Counts,
            None => End::Told,
        }
    }

    /// One more attempt was given back because the process stops.
    pub(crate) fn give_back(&self) {
        self.given_back.fetch_add(1, Ordering::Relaxed);
    }

    /// How many attempts were given back because the process stops.
    pub(crate) fn given_back(&self) -> usize {
        self.given_back.load(Ordering::Relaxed)
    }

    /// An attempt is about to move to another lease, or has not moved after all. Meanwhile nobody knows which lease it has, and none of the
    /// two is told as lost.
    pub(crate) fn parting(&self, lease: i64, id: i64, parting: bool) {
        if let Some(attempt) = self.lock().get_mut(&(lease, id)) {
            attempt.parting = parting;
        }
    }

    /// An attempt goes on under another lease.
    pub(crate) fn moved(&self, from: (i64, i64), to: (i64, i64)) {
        let mut running = self.lock();
        if let Some(attempt) = running.remove(&from) {
            running.insert(to, Attempt { parting: false, ..attempt });
        }
    }

    /// Cancels one attempt, because its job is to be cancelled. True if it was there and had not been told.
    pub(crate) fn cancel(&self, lease: i64, id: i64) -> bool {
        let running = self.lock();
        let attempt = running.get(&(lease, id)).filter(|attempt| !attempt.stop.is_cancelled());
        attempt.inspect(|attempt| attempt.stop.cancel()).is_some()
    }

    /// Cancels the attempts of a lease that is gone; answers how many there were.
    pub(crate) fn lose(&self, lease: i64) -> usize {
        let running = self.lock();
        let lost = running.range((lease, i64::MIN)..=(lease, i64::MAX));
        lost.filter(|(_, attempt)| !attempt.parting).inspect(|(_, attempt)| attempt.stop.cancel()).count()
    }

    /// Cancels every attempt: the process stops.
    pub(crate) fn cancel_all(&self) {
        for attempt in self.lock().values_mut() {
            attempt.interrupted = true;
            attempt.stop.cancel();
        }
    }

    /// Attempts that are past their deadline by more than `patience`, each told once: they hold their thread and cannot end
    /// themselves.
    pub(crate) fn stuck(&self, now: Duration, patience: Duration) -> Vec<Stuck> {
        let mut running = self.lock();
        let late = running.iter_mut().filter(|(_, a)| !a.told_stuck && now > a.deadline + patience);
        late.map(|(&(lease, id), attempt)| {
            attempt.told_stuck = true;
            attempt.stop.cancel();
            let Attempt { kind, number, max, retry, .. } = attempt;
            Stuck { lease, id, kind: kind.clone(), attempt: *number, max_attempts: *max, retry: retry.clone() }
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
