use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
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
    stopping: AtomicBool,
}

#[derive(Debug)]
struct Attempt {
    stop: CancellationToken,
    kind: String,
    number: i16,
    max: i16,
    retry: Option<Retry>,
    /// `None` while it waits in its line.
    deadline: Option<Duration>,
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

    /// A job is here: its attempt begins with [`Running::start`].
    pub(crate) fn begin(&self, job: &Job, stop: CancellationToken) {
        let attempt = Attempt {
            stop,
            kind: job.kind.clone(),
            number: job.attempt,
            max: job.max_attempts,
            retry: job.retry.clone(),
            deadline: None,
            told_stuck: false,
            interrupted: false,
            parting: false,
        };
        self.lock().insert((job.lease, job.key), attempt);
    }

    /// An attempt begins; `deadline` is on the monotonic clock. False if it is not to: it was told already, or is to be cancelled.
    pub(crate) fn start(&self, lease: i64, id: i64, deadline: Duration) -> bool {
        let mut running = self.lock();
        let attempt = running.get_mut(&(lease, id)).filter(|a| !a.told_stuck && !a.stop.is_cancelled());
        attempt.map(|attempt| attempt.deadline = Some(deadline)).is_some()
    }

    /// From now on no line goes on. Answers with those that wait in one, to be given back: each is told from now on.
    pub(crate) fn end_lines(&self) -> Vec<(i64, i64)> {
        let mut running = self.lock();
        self.stopping.store(true, Ordering::Relaxed);
        let waiting = running.iter_mut().filter(|(_, attempt)| attempt.deadline.is_none() && !attempt.told_stuck);
        waiting
            .map(|(&key, attempt)| {
                attempt.told_stuck = true;
                key
            })
            .collect()
    }

    /// Whether lines go on.
    pub(crate) fn goes_on(&self) -> bool {
        !self.stopping.load(Ordering::Relaxed)
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
        let late = running
            .iter_mut()
            .filter(|(_, a)| !a.told_stuck && a.deadline.is_some_and(|deadline| now > deadline + patience));
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

/// When this worker was last known to be alive: nobody takes its leases for `dead_after` from then on.
#[derive(Debug)]
pub(crate) struct Fresh {
    /// A part of it is left to the attempt that begins, and to clocks that run apart.
    within: Duration,
    beat_us: AtomicU64,
}

impl Fresh {
    pub(crate) fn new(dead_after: Duration, now: Duration) -> Self {
        let fresh = Self { within: dead_after * 3 / 4, beat_us: AtomicU64::new(0) };
        fresh.beat(now);
        fresh
    }

    /// A beat that was answered had been sent at this moment.
    pub(crate) fn beat(&self, sent: Duration) {
        self.beat_us.store(u64::try_from(sent.as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Whether its leases are its own for sure.
    pub(crate) fn is(&self, now: Duration) -> bool {
        now.saturating_sub(Duration::from_micros(self.beat_us.load(Ordering::Relaxed))) < self.within
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_is_sure_of_its_leases_until_its_beat_is_nearly_as_old_as_a_dead_ones() {
        let s = Duration::from_secs;
        let fresh = Fresh::new(s(20), s(100));
        assert!(fresh.is(s(100)) && fresh.is(s(114)) && !fresh.is(s(115)));
        fresh.beat(s(112));
        assert!(fresh.is(s(126)) && !fresh.is(s(127)), "what counts is when it was sent");
    }
}
