use std::collections::HashMap;
use std::time::Duration;

use uuid::Uuid;

/// Told for a worker that has leases and no row: it was rescued in part, or its row was deleted by hand.
const NO_ROW: i64 = -1;

/// Watches the beats of the other workers.
///
/// A worker is dead when the same beat was seen for `dead_after` on this process's own monotonic clock, and nothing interrupted the
/// watching. No wall clock is compared: after an outage of the database every beat is old, and the first one back must not take
/// everybody's leases.
#[derive(Debug)]
pub(super) struct Watch {
    dead_after: Duration,
    longest_gap: Duration,
    seen: HashMap<Uuid, (i64, Duration)>,
    last: Option<Duration>,
}

impl Watch {
    pub(super) fn new(dead_after: Duration) -> Self {
        Self { dead_after, longest_gap: dead_after / 2, seen: HashMap::new(), last: None }
    }

    /// Own beat failed: what was seen before is worth nothing.
    pub(super) fn blind(&mut self) {
        self.seen.clear();
        self.last = None;
    }

    /// The beats that were read at `now`; answers with the dead and the beat that they stopped at.
    pub(super) fn observe(&mut self, beats: &[(Uuid, i64)], now: Duration) -> Vec<(Uuid, i64)> {
        if self.last.is_some_and(|last| now.saturating_sub(last) > self.longest_gap) {
            self.seen.clear();
        }
        self.last = Some(now);
        self.seen.retain(|worker, _| beats.iter().any(|(other, _)| other == worker));
        let mut dead = Vec::new();
        for &(worker, beat) in beats {
            let entry = self.seen.entry(worker).or_insert((beat, now));
            if beat == NO_ROW {
                // without a row nobody beats: the time goes on, so that a rescue that was not finished is taken up at once
                entry.0 = beat;
            }
            if entry.0 != beat {
                *entry = (beat, now);
            } else if now.saturating_sub(entry.1) >= self.dead_after {
                dead.push((worker, beat));
            }
        }
        dead
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Uuid = Uuid::from_u128(1);
    const S: fn(u64) -> Duration = Duration::from_secs;

    #[test]
    fn a_worker_is_dead_when_its_beat_stands_still_for_long_enough() {
        let mut watch = Watch::new(S(10));
        for second in 0..10 {
            assert_eq!(watch.observe(&[(A, 7)], S(second)), vec![], "after {second} s");
        }
        assert_eq!(watch.observe(&[(A, 7)], S(10)), vec![(A, 7)]);
    }

    #[test]
    fn a_beat_starts_the_watch_anew() {
        let mut watch = Watch::new(S(10));
        for second in 0..9 {
            watch.observe(&[(A, 7)], S(second));
        }
        watch.observe(&[(A, 8)], S(9));
        for second in 10..19 {
            assert_eq!(watch.observe(&[(A, 8)], S(second)), vec![]);
        }
        assert_eq!(watch.observe(&[(A, 8)], S(19)), vec![(A, 8)]);
    }

    #[test]
    fn the_first_one_back_after_an_outage_takes_nobody_for_dead() {
        let mut watch = Watch::new(S(10));
        for second in 0..9 {
            watch.observe(&[(A, 7)], S(second));
        }
        watch.blind();
        assert_eq!(watch.observe(&[(A, 7)], S(60)), vec![]);
        assert_eq!(watch.observe(&[(A, 7)], S(64)), vec![]);
        assert_eq!(watch.observe(&[(A, 7)], S(69)), vec![]);
        assert_eq!(watch.observe(&[(A, 7)], S(70)), vec![(A, 7)]);
    }

    #[test]
    fn a_worker_whose_row_is_gone_stays_as_dead_as_it_was() {
        let mut watch = Watch::new(S(4));
        for second in 0..4 {
            assert_eq!(watch.observe(&[(A, 7)], S(second)), vec![]);
        }
        assert_eq!(watch.observe(&[(A, 7)], S(4)), vec![(A, 7)]);
        assert_eq!(watch.observe(&[(A, NO_ROW)], S(5)), vec![(A, NO_ROW)], "half of it was rescued");
        assert_eq!(watch.observe(&[(A, 8)], S(6)), vec![], "it lives after all");
        assert_eq!(watch.observe(&[(A, NO_ROW)], S(7)), vec![], "its row was deleted, it will beat again");
    }

    #[test]
    fn a_watcher_that_was_stopped_itself_starts_anew() {
        let mut watch = Watch::new(S(10));
        watch.observe(&[(A, 7)], S(0));
        assert_eq!(watch.observe(&[(A, 7)], S(600)), vec![], "it did not look for ten minutes");
    }

    #[test]
    fn a_worker_that_left_and_came_back_is_new() {
        let mut watch = Watch::new(S(4));
        watch.observe(&[(A, 7)], S(0));
        watch.observe(&[], S(1));
        watch.observe(&[(A, 7)], S(2));
        assert_eq!(watch.observe(&[(A, 7)], S(4)), vec![]);
    }
}
