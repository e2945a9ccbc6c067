use std::time::Duration;

const PRIORITIES: [i16; 4] = [1, 2, 3, 4];
/// Every so many claims the lowest priority goes first, so that it is not starved for ever.
const AGING: u32 = 16;
const FULL_SCAN_PAUSE: Duration = Duration::from_millis(20);
/// A full scan may take this share of the time.
const FULL_SCAN_SHARE: u32 = 20;

/// Where a claim looks: one probe for each priority, from its low-water position on.
///
/// Positions grow, so what was claimed lies below what waits; starting there spares the walk over dead rows, which a long
/// transaction elsewhere keeps. Rows that come back or commit late lie below too: a full scan now and then finds them. The
/// positions are only an optimisation: wrong ones cost time, never a job.
#[derive(Debug, Default)]
pub(super) struct Probes {
    low: [i64; 4],
    claims: u32,
    full_due: bool,
    next_full: Duration,
}

/// One claim's probes.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Probe {
    pub(super) priorities: Vec<i16>,
    pub(super) positions: Vec<i64>,
    pub(super) full: bool,
}

/// What a claim asked for, and what it brought and when: `(priority, position)` of each job.
#[derive(Debug, Clone, Copy)]
pub(super) struct Look<'a> {
    pub(super) asked: usize,
    pub(super) got: &'a [(i16, i64)],
    pub(super) started: Duration,
    pub(super) ended: Duration,
}

impl Probes {
    /// The probes of the next claim, at `now` of a monotonic clock.
    pub(super) fn next(&mut self, now: Duration) -> Probe {
        self.claims = self.claims.wrapping_add(1);
        let full = self.full_due || now >= self.next_full;
        let mut order: Vec<usize> = (0..PRIORITIES.len()).collect();
        if self.claims.is_multiple_of(AGING) {
            order.rotate_right(1);
        }
        let position = |&i: &usize| if full { 0 } else { self.low.get(i).copied().unwrap_or(0) };
        Probe {
            positions: order.iter().map(position).collect(),
            priorities: order.iter().filter_map(|&i| PRIORITIES.get(i).copied()).collect(),
            full,
        }
    }

    /// Learns from what a claim brought. True if nothing more can be waiting.
    pub(super) fn learn(&mut self, probe: &Probe, look: Look<'_>) -> bool {
        let Look { asked, got, started, ended } = look;
        let short = got.len() < asked;
        if probe.full {
            self.full_due = false;
            let took = ended.saturating_sub(started);
            self.next_full = ended + FULL_SCAN_PAUSE.max(took.saturating_mul(FULL_SCAN_SHARE));
        } else if short {
            self.full_due = true;
        }
        for (low, priority) in self.low.iter_mut().zip(PRIORITIES) {
            let fresh =
                got.iter().filter(|(p, position)| *p == priority && position >= low).map(|(_, position)| *position);
            *low = fresh.min().unwrap_or(*low);
        }
        short && probe.full
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    fn look(asked: usize, got: &[(i16, i64)], started: u64, ended: u64) -> Look<'_> {
        Look { asked, got, started: MS(started), ended: MS(ended) }
    }

    #[test]
    fn a_claim_starts_where_the_last_one_was_given_work() {
        let mut probes = Probes::default();
        let first = probes.next(MS(0));
        assert!(first.full);
        assert!(!probes.learn(&first, look(2, &[(2, 50), (2, 54)], 0, 1)));
        let second = probes.next(MS(2));
        assert_eq!((second.full, second.positions), (false, vec![0, 50, 0, 0]));
    }

    #[test]
    fn a_short_answer_is_believed_only_from_a_full_scan() {
        let mut probes = Probes::default();
        let full = probes.next(MS(0));
        probes.learn(&full, look(1, &[(1, 9)], 0, 1));
        let hinted = probes.next(MS(2));
        assert!(!probes.learn(&hinted, look(8, &[], 2, 3)), "the low-water position may have hidden something");
        let again = probes.next(MS(4));
        assert!(again.full);
        assert!(probes.learn(&again, look(8, &[], 4, 5)));
    }

    #[test]
    fn what_comes_back_below_does_not_pull_the_position_down() {
        let mut probes = Probes::default();
        let full = probes.next(MS(0));
        probes.learn(&full, look(1, &[(2, 900)], 0, 1));
        let full = probes.next(MS(500));
        assert!(full.full);
        probes.learn(&full, look(2, &[(2, 10), (2, 950)], 500, 501));
        assert_eq!(probes.next(MS(502)).positions, vec![0, 950, 0, 0]);
    }

    #[test]
    fn a_slow_full_scan_is_repeated_rarely() {
        let mut probes = Probes::default();
        let full = probes.next(MS(0));
        probes.learn(&full, look(0, &[], 0, 100));
        assert!(!probes.next(MS(2_099)).full);
        assert!(probes.next(MS(2_100)).full);
    }

    #[test]
    fn every_sixteenth_claim_looks_at_the_lowest_priority_first() {
        let mut probes = Probes::default();
        let firsts: Vec<i16> = (0..32).map(|_| probes.next(MS(0)).priorities[0]).collect();
        assert_eq!(firsts.iter().filter(|p| **p == 4).count(), 2);
        assert_eq!(probes.next(MS(0)).priorities, vec![1, 2, 3, 4]);
    }
}
