//! What this process saw: counts, and the time from commit to delivered.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use postrider_contract::EventId;

/// How many of the newest latencies the percentiles are made of.
const LATENCIES_MAX: usize = 10_000;
/// How many events may be waited for at a time; the oldest is given up.
const WAITING_MAX: usize = 100_000;

/// A count that only grows.
#[derive(Debug, Default)]
pub struct Count(AtomicU64);

impl Count {
    /// One more.
    pub fn add_one(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// How many so far.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What this process itself saw: no figure of it needs the database.
#[derive(Debug, Default)]
pub struct Figures {
    /// Events whose transaction committed.
    pub recorded: Count,
    /// Jobs of the two handlers that were done.
    pub done: Count,
    /// Webhooks that the receiver took: each event once an endpoint.
    pub delivered: Count,
    /// Webhooks that it took again.
    pub repeated: Count,
    /// Webhooks that it refused for the moment, since it plays a receiver that fails at times.
    pub failed: Count,
    /// Webhooks whose signature was not right.
    pub unsigned: Count,
    waiting: Mutex<Waiting>,
    latencies: Mutex<VecDeque<Duration>>,
}

/// One end of an event's way: the commit's answer and the delivery come in either order.
#[derive(Debug, Clone, Copy)]
enum Seen {
    Committed(Instant),
    Delivered,
}

#[derive(Debug, Default)]
struct Waiting {
    seen: HashMap<EventId, Seen>,
    order: VecDeque<EventId>,
}

impl Waiting {
    fn put(&mut self, id: EventId, seen: Seen) {
        self.seen.insert(id, seen);
        self.order.push_back(id);
        if self.order.len() > WAITING_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.seen.remove(&oldest);
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Figures {
    /// The transaction of an event answered that it is committed.
    pub fn committed(&self, id: EventId, at: Instant) {
        self.recorded.add_one();
        let mut waiting = locked(&self.waiting);
        match waiting.seen.remove(&id) {
            // The receiver was faster than the commit's answer.
            Some(Seen::Delivered) => self.measured(Duration::ZERO),
            _ => waiting.put(id, Seen::Committed(at)),
        }
    }

    /// The endpoint that never fails took an event for the first time.
    pub fn arrived(&self, id: EventId, at: Instant) {
        let mut waiting = locked(&self.waiting);
        match waiting.seen.remove(&id) {
            Some(Seen::Committed(committed)) => self.measured(at.saturating_duration_since(committed)),
            _ => waiting.put(id, Seen::Delivered),
        }
    }

    fn measured(&self, latency: Duration) {
        let mut latencies = locked(&self.latencies);
        if latencies.len() >= LATENCIES_MAX {
            latencies.pop_front();
        }
        latencies.push_back(latency);
    }

    /// The median and the 99th percentile from commit to delivered, of the newest 10 000; none before the first.
    pub fn latency(&self) -> Option<(Duration, Duration)> {
        let mut sorted: Vec<Duration> = locked(&self.latencies).iter().copied().collect();
        sorted.sort_unstable();
        Some((percentile(&sorted, 50)?, percentile(&sorted, 99)?))
    }
}

/// The nearest rank: the smallest value that at least `percent` of the values do not exceed.
fn percentile(sorted: &[Duration], percent: usize) -> Option<Duration> {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system;

    fn id(number: u128) -> EventId {
        EventId::from_uuid(uuid::Uuid::from_u128(number))
    }

    #[test]
    fn a_percentile_is_the_nearest_rank() {
        let ms = |n| Duration::from_millis(n);
        let hundred: Vec<Duration> = (1..=100).map(ms).collect();
        assert_eq!(percentile(&hundred, 50), Some(ms(50)));
        assert_eq!(percentile(&hundred, 99), Some(ms(99)));
        assert_eq!(percentile(&[ms(1), ms(2), ms(3)], 50), Some(ms(2)));
        assert_eq!(percentile(&[ms(1), ms(2), ms(3)], 99), Some(ms(3)));
        assert_eq!(percentile(&[], 50), None);
    }

    #[test]
    fn a_latency_is_measured_whichever_end_is_seen_first() {
        let (figures, start) = (Figures::default(), system::now());
        figures.committed(id(1), start);
        figures.arrived(id(1), start + Duration::from_millis(3));
        figures.arrived(id(2), start);
        figures.committed(id(2), start + Duration::from_millis(1));
        assert_eq!(figures.latency(), Some((Duration::ZERO, Duration::from_millis(3))));
        assert_eq!(figures.recorded.get(), 2);
    }

    #[test]
    fn what_never_arrives_is_given_up_and_not_kept_for_ever() {
        let (figures, start) = (Figures::default(), system::now());
        for number in 0..WAITING_MAX as u128 + 10 {
            figures.committed(id(number), start);
        }
        let waiting = locked(&figures.waiting);
        assert_eq!((waiting.seen.len(), waiting.order.len()), (WAITING_MAX, WAITING_MAX));
        assert!(!waiting.seen.contains_key(&id(9)));
        assert!(waiting.seen.contains_key(&id(10)));
    }
}
