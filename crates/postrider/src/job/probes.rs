use std::collections::BTreeMap;
use std::time::Duration;

const PRIORITIES: [i16; 4] = [1, 2, 3, 4];
/// Owners are spread over so many shares.
const SHARES: i16 = 64;
/// Every so many claims the lowest priority goes first, so that it is not starved for ever.
const AGING: u32 = 16;
/// A place that has brought work is looked at by each of so many claims after that; of the others, each claim looks at one in `TURN`.
const WARM: u32 = 64;
const TURN: i64 = 8;
const FULL_SCAN_PAUSE: Duration = Duration::from_millis(20);
/// A full scan may take this share of the time.
const FULL_SCAN_SHARE: u32 = 20;

/// A job's priority and share, and its position there.
pub(super) type Place = ((i16, i16), i64);

/// Low-water positions.
type Low = BTreeMap<(i16, i16), i64>;

/// Where a claim looks: one probe for each priority, in a fair queue for each priority and share, from its low-water position on.
///
/// Positions grow, so what was claimed lies below what waits; starting there spares the walk over dead rows, which a long
/// transaction elsewhere keeps. Rows that come back or commit late lie below too: a full scan now and then finds them. The
/// positions are only an optimisation: wrong ones cost time, never a job.
///
/// In a fair queue the shares of a priority are a ring, and each claim begins behind the share that was served first by the last one: so
/// those that hold work are served in turn, whoever has how much. Most shares hold nothing: between two full scans a claim looks at those that
/// brought work of late, and at the others by turns.
#[derive(Debug, Default)]
pub(super) struct Probes {
    fair: bool,
    low: Low,
    /// Of those that were given the turn of their key by others: they wait apart, at positions of their own.
    low_turned: Low,
    /// Of each priority, the share that was served first by the last claim.
    served: BTreeMap<i16, i16>,
    /// In a fair queue, which claim last brought work from there.
    warm: BTreeMap<(i16, i16), u32>,
    claims: u32,
    full_due: bool,
    next_full: Duration,
}

/// One claim's probes.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Probe {
    pub(super) priorities: Vec<i16>,
    pub(super) shares: Vec<i16>,
    pub(super) positions: Vec<i64>,
    pub(super) turned: Vec<i64>,
    pub(super) full: bool,
}

/// What a claim brought, and when.
#[derive(Debug, Clone, Copy)]
pub(super) struct Look<'a> {
    /// It brought all that it saw, and had asked for more.
    pub(super) short: bool,
    pub(super) got: &'a [Place],
    /// Those that were given the turn of their key by others: they say nothing of where others wait.
    pub(super) turned: &'a [Place],
    pub(super) started: Duration,
    pub(super) ended: Duration,
}

impl Probes {
    /// Those of a queue; a fair one is looked through owner by owner.
    pub(super) fn new(fair: bool) -> Self {
        Self { fair, ..Self::default() }
    }

    /// The probes of the next claim, at `now` of a monotonic clock.
    pub(super) fn next(&mut self, now: Duration) -> Probe {
        self.claims = self.claims.wrapping_add(1);
        let full = self.full_due || now >= self.next_full;
        let mut order = PRIORITIES;
        if self.claims.is_multiple_of(AGING) {
            order.rotate_right(1);
        }
        let mut places: Vec<(i16, i16)> =
            order.iter().flat_map(|&priority| self.ring(priority).map(move |share| (priority, share))).collect();
        if self.fair && !full {
            let (now, turn) = (self.claims, i64::from(self.claims) % TURN);
            self.warm.retain(|_, claim| now.wrapping_sub(*claim) <= WARM);
            places.retain(|place| i64::from(place.1) % TURN == turn || self.warm.contains_key(place));
        }
        let positions = |low: &Low| {
            places.iter().map(|place| if full { 0 } else { low.get(place).copied().unwrap_or(0) }).collect()
        };
        Probe {
            positions: positions(&self.low),
            turned: positions(&self.low_turned),
            priorities: places.iter().map(|(priority, _)| *priority).collect(),
            shares: places.iter().map(|(_, share)| *share).collect(),
            full,
        }
    }

    /// The shares of a priority, in turn.
    fn ring(&self, priority: i16) -> impl Iterator<Item = i16> + use<> {
        let first = self.served.get(&priority).map_or(0, |share| share + 1);
        let shares = if self.fair { SHARES } else { 1 };
        (0..shares).map(move |n| (first + n) % shares)
    }

    /// Learns from what a claim brought. True if nothing more can be waiting.
    pub(super) fn learn(&mut self, probe: &Probe, look: Look<'_>) -> bool {
        let Look { short, got, turned, started, ended } = look;
        if probe.full {
            self.full_due = false;
            let took = ended.saturating_sub(started);
            self.next_full = ended + FULL_SCAN_PAUSE.max(took.saturating_mul(FULL_SCAN_SHARE));
        } else if short && got.is_empty() && turned.is_empty() {
            self.full_due = true;
        }
        // if all was brought that there is, nothing waits below those either
        raise(&mut self.low, if short { turned } else { &[] });
        raise(&mut self.low, got);
        raise(&mut self.low_turned, turned);
        if self.fair {
            self.warm.extend(got.iter().chain(turned).map(|(place, _)| (*place, self.claims)));
            let brought = |place: &(i16, i16)| got.iter().chain(turned).any(|(at, _)| at == place);
            let places: Vec<(i16, i16)> = probe.priorities.iter().copied().zip(probe.shares.iter().copied()).collect();
            for (priority, share) in places.into_iter().rev().filter(brought) {
                self.served.insert(priority, share);
            }
        }
        short && probe.full
    }
}

/// The next claims begin at the lowest one of these.
fn raise(low: &mut Low, places: &[Place]) {
    let mut lowest = Low::new();
    for (place, position) in places {
        if *position >= low.get(place).copied().unwrap_or(0) {
            let known = lowest.entry(*place).or_insert(*position);
            *known = (*known).min(*position);
        }
    }
    low.extend(lowest);
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    fn look(asked: usize, got: &[Place], started: u64, ended: u64) -> Look<'_> {
        Look { short: got.len() < asked, got, turned: &[], started: MS(started), ended: MS(ended) }
    }

    #[test]
    fn a_claim_starts_where_the_last_one_was_given_work() {
        let mut probes = Probes::default();
        let first = probes.next(MS(0));
        assert!(first.full);
        assert!(!probes.learn(&first, look(2, &[((2, 0), 50), ((2, 0), 54)], 0, 1)));
        let second = probes.next(MS(2));
        assert_eq!((second.full, second.positions), (false, vec![0, 50, 0, 0]));
    }

    #[test]
    fn a_short_answer_is_believed_only_from_a_full_scan() {
        let mut probes = Probes::default();
        let full = probes.next(MS(0));
        probes.learn(&full, look(1, &[((1, 0), 9)], 0, 1));
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
        probes.learn(&full, look(1, &[((2, 0), 900)], 0, 1));
        let full = probes.next(MS(500));
        assert!(full.full);
        probes.learn(&full, look(2, &[((2, 0), 10), ((2, 0), 950)], 500, 501));
        assert_eq!(probes.next(MS(502)).positions, vec![0, 950, 0, 0]);
    }

    #[test]
    fn those_that_were_given_the_turn_say_what_lies_below_them_only_if_nothing_else_is_there() {
        let mut probes = Probes::default();
        let full = probes.next(MS(0));
        let turned = [((2, 0), 900)];
        probes.learn(&full, Look { short: false, got: &[], turned: &turned, started: MS(0), ended: MS(1) });
        let hinted = probes.next(MS(2));
        assert_eq!(hinted.positions, vec![0, 0, 0, 0], "others may wait");
        assert_eq!(hinted.turned, vec![0, 900, 0, 0], "and they themselves have positions of their own");
        probes
            .learn(&hinted, Look { short: true, got: &[((2, 0), 40)], turned: &turned, started: MS(2), ended: MS(3) });
        let hinted = probes.next(MS(4));
        assert_eq!((hinted.full, hinted.positions.clone()), (false, vec![0, 900, 0, 0]), "that was all");
        assert!(!probes.learn(&hinted, look(3, &[], 4, 5)));
        assert!(probes.next(MS(6)).full, "and what came late is looked for before it rests");
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

    #[test]
    fn the_shares_of_a_fair_queue_are_served_in_turn_whoever_has_how_much() {
        let mut probes = Probes::new(true);
        let waiting = [5_i16, 40];
        let mut served = Vec::new();
        for n in 0..6 {
            let probe = probes.next(MS(1_000 * n));
            // one slot: the first share that has work
            let places = probe.priorities.iter().zip(&probe.shares);
            let first = places.into_iter().find(|(_, share)| waiting.contains(share)).unwrap();
            served.push(*first.1);
            let position = i64::try_from(n).unwrap() * 4;
            probes.learn(&probe, look(1, &[((*first.0, *first.1), position)], 1_000 * n, 1_000 * n));
        }
        assert_eq!(served, vec![5, 40, 5, 40, 5, 40]);
    }

    #[test]
    fn a_claim_of_a_fair_queue_looks_where_work_was_and_everywhere_within_eight_claims() {
        let mut probes = Probes::new(true);
        let full = probes.next(MS(0));
        assert_eq!((full.full, full.priorities.len()), (true, 256));
        probes.learn(&full, look(1, &[((2, 5), 10)], 0, 1));
        let mut seen = std::collections::BTreeSet::new();
        for n in 2..10 {
            let probe = probes.next(MS(n));
            let places: Vec<(i16, i16)> = probe.priorities.into_iter().zip(probe.shares).collect();
            assert!(!probe.full && places.contains(&(2, 5)) && places.len() <= 33, "{}", places.len());
            seen.extend(places);
        }
        assert_eq!(seen.len(), 256);
        // so many claims later it is one of many
        let looks = (0..100).filter(|_| {
            let probe = probes.next(MS(10));
            probe.priorities.iter().zip(&probe.shares).any(|place| place == (&2, &5))
        });
        assert_eq!(looks.count(), 57 + 5);
    }
}
