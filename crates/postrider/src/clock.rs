use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rand::{RngExt, SeedableRng, rngs::StdRng};

/// Time that only grows, for watching and for deadlines. Leases and due times are the database's, never this one's.
#[derive(Debug, Clone)]
pub struct Clock {
    start: Instant,
}

impl Clock {
    /// The system's monotonic clock.
    #[expect(clippy::disallowed_methods, reason = "this is the clock that the others ask")]
    pub fn system() -> Self {
        Self { start: Instant::now() }
    }

    /// The same, by so much ahead of it: for tests, since no two machines count from the same moment.
    #[must_use]
    pub fn ahead(self, by: Duration) -> Self {
        Self { start: self.start.checked_sub(by).unwrap_or(self.start) }
    }

    /// The time since some moment in the past.
    pub fn monotonic(&self) -> Duration {
        self.start.elapsed()
    }
}

/// Dice: numbers in [0, 1).
#[derive(Clone)]
pub struct Dice(Arc<dyn Fn() -> f64 + Send + Sync>);

impl Dice {
    /// Random ones.
    pub fn random() -> Self {
        let rng = Mutex::new(StdRng::from_rng(&mut rand::rng()));
        Self(Arc::new(move || rng.lock().unwrap_or_else(PoisonError::into_inner).random()))
    }

    /// Dice that a test loads.
    pub fn loaded(roll: impl Fn() -> f64 + Send + Sync + 'static) -> Self {
        Self(Arc::new(roll))
    }

    /// The next number.
    pub fn roll(&self) -> f64 {
        (self.0)()
    }
}

impl fmt::Debug for Dice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Dice")
    }
}
