use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::OwnedSemaphorePermit;

use crate::port::Job;

/// How long the jobs of a line may run on together. What is left then goes back: it was leased for too long by one who had no use for it.
const BUDGET: Duration = Duration::from_secs(1);
/// Jobs of one claim that come after others, at most.
const MOST: usize = 199;

/// Jobs of one order key that run one after the other, in one slot; mostly one alone.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) jobs: Vec<Job>,
    /// Occupied until it is dropped.
    pub(crate) slot: OwnedSemaphorePermit,
    pub(crate) pace: Arc<Pace>,
}

/// How many jobs of a line its queue is asked for: as many as run within the budget, found out from none on.
#[derive(Debug, Default)]
pub(crate) struct Pace(AtomicUsize);

impl Pace {
    /// Jobs after the first one, in all lines of a claim.
    pub(crate) fn in_line(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    /// Whether a line that began so long ago may go on.
    pub(crate) fn goes_on(ran: Duration) -> bool {
        ran < BUDGET
    }

    /// A line of so many jobs ran to its end.
    pub(crate) fn ended(&self, jobs: usize, ran: Duration) {
        let now = self.in_line();
        if jobs > now && ran < BUDGET / 4 {
            self.0.store((now * 2 + 1).min(MOST), Ordering::Relaxed);
        }
    }

    /// A line was cut after so many jobs, because its time was over.
    pub(crate) fn cut(&self, jobs: usize) {
        self.0.store(jobs.saturating_sub(1), Ordering::Relaxed);
    }
}

/// What a claim brought, by lines. Jobs of one key are in the order of their ids.
pub(crate) fn lines(jobs: Vec<Job>) -> Vec<Vec<Job>> {
    let mut lines: Vec<Vec<Job>> = Vec::with_capacity(jobs.len());
    let mut of_key = std::collections::HashMap::new();
    for job in jobs {
        let known = job.order_key.as_ref().and_then(|key| of_key.get(key).copied());
        if let Some(line) = known.and_then(|n: usize| lines.get_mut(n)) {
            line.push(job);
            continue;
        }
        if let Some(key) = &job.order_key {
            of_key.insert(key.clone(), lines.len());
        }
        lines.push(vec![job]);
    }
    for line in &mut lines {
        line.sort_by_key(|job| job.key);
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    #[test]
    fn a_queue_whose_lines_end_at_once_is_asked_for_longer_ones() {
        let pace = Pace::default();
        let asked = [0, 1, 3, 7, 15, 31, 63, 127, 199, 199];
        for most in asked {
            assert_eq!(pace.in_line(), most);
            pace.ended(most + 1, MS(249));
        }
    }

    #[test]
    fn a_line_that_was_shorter_than_asked_for_or_took_its_time_says_nothing() {
        let pace = Pace::default();
        pace.ended(1, MS(250));
        assert_eq!(pace.in_line(), 0);
        pace.ended(1, MS(1));
        pace.ended(1, MS(1));
        assert_eq!(pace.in_line(), 1);
    }

    #[test]
    fn a_line_that_was_cut_bounds_the_next_ones_by_what_fitted() {
        assert!(Pace::goes_on(MS(999)) && !Pace::goes_on(MS(1000)));
        let pace = Pace::default();
        (0..9).for_each(|_| pace.ended(200, MS(1)));
        pace.cut(12);
        assert_eq!(pace.in_line(), 11);
        pace.cut(1);
        assert_eq!(pace.in_line(), 0);
    }
}
