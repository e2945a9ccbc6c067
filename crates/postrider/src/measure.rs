use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Bounds of what takes milliseconds, in seconds: those that the messaging conventions of OpenTelemetry recommend.
pub(crate) const SHORT: &[f64] = &[0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0];
/// Bounds of what may take a day, in seconds: the same, and on to where a backlog is.
pub(crate) const LONG: &[f64] = &[
    0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0,
    21600.0, 86400.0,
];

/// Buckets of the longest list of bounds.
const BUCKETS_MOST: usize = LONG.len() + 1;

/// How often something took how long, in buckets.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Histogram {
    /// The upper bounds of the buckets in seconds, rising; a bound belongs to its bucket.
    pub bounds: &'static [f64],
    /// How many fell into each bucket; one more than there are bounds, for what is above the last one. Not summed up.
    pub counts: Vec<u64>,
    /// The sum of all of them, in seconds.
    pub sum: f64,
}

impl Histogram {
    /// How many there were.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }
}

/// A histogram that grows. Many write at once and nobody waits: whoever reads may miss half of what is just being noted.
#[derive(Debug)]
pub(crate) struct Durations {
    bounds: &'static [f64],
    counts: [AtomicU64; BUCKETS_MOST],
    sum_ns: AtomicU64,
}

impl Durations {
    pub(crate) fn new(bounds: &'static [f64]) -> Self {
        Self { bounds, counts: Default::default(), sum_ns: AtomicU64::new(0) }
    }

    pub(crate) fn note(&self, took: Duration) {
        let seconds = took.as_secs_f64();
        let bucket = self.bounds.partition_point(|bound| *bound < seconds);
        if let Some(count) = self.counts.get(bucket) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        self.sum_ns.fetch_add(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    pub(crate) fn read(&self) -> Histogram {
        let counts = self.counts.iter().take(self.bounds.len() + 1).map(|count| count.load(Ordering::Relaxed));
        let sum = Duration::from_nanos(self.sum_ns.load(Ordering::Relaxed)).as_secs_f64();
        Histogram { bounds: self.bounds, counts: counts.collect(), sum }
    }
}

/// How many there are of something right now.
#[derive(Debug, Default)]
pub(crate) struct Level(AtomicU64);

impl Level {
    /// So many more, until what is answered is dropped.
    pub(crate) fn hold(self: &Arc<Self>, n: u64) -> Held {
        self.0.fetch_add(n, Ordering::Relaxed);
        Held(Arc::clone(self), n)
    }

    pub(crate) fn read(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A part of a [`Level`].
#[derive(Debug)]
pub(crate) struct Held(Arc<Level>, u64);

impl Drop for Held {
    fn drop(&mut self) {
        self.0.0.fetch_sub(self.1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    #[test]
    fn a_duration_falls_into_the_bucket_whose_bound_it_does_not_pass() {
        let durations = Durations::new(SHORT);
        for took in [Duration::ZERO, MS(5), Duration::from_nanos(5_000_001), MS(7_500), MS(10_000), MS(10_001)] {
            durations.note(took);
        }
        let histogram = durations.read();
        assert_eq!(histogram.counts, [2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1]);
        assert_eq!((histogram.count(), histogram.sum), (6, 27.511_000_001));
    }

    #[test]
    fn each_bound_that_there_is_belongs_to_its_bucket() {
        for bounds in [SHORT, LONG] {
            let durations = Durations::new(bounds);
            for bound in bounds {
                durations.note(Duration::from_secs_f64(*bound));
            }
            durations.note(MS(86_400_001));
            assert_eq!(durations.read().counts, vec![1; bounds.len() + 1], "{bounds:?}");
        }
    }

    #[test]
    fn a_level_falls_by_what_was_held_of_it() {
        let level = Arc::new(Level::default());
        let (two, three) = (level.hold(2), level.hold(3));
        assert_eq!(level.read(), 5);
        drop(two);
        assert_eq!(level.read(), 3);
        drop(three);
        assert_eq!(level.read(), 0);
    }
}
