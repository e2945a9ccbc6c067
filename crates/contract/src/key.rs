use std::time::Duration;

/// What becomes of the jobs behind one of their order key that fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Order {
    /// They wait until it has ended, through all its attempts.
    #[default]
    Block,
    /// They go on while it waits for its next attempt; due again, it is the next one.
    Skip,
    /// After so many failures of it, 1 to 999, or if it is discarded, the lane stops until an operator lets it go on.
    Park(u16),
}

impl Order {
    /// The policy as SQL and the wire spell it: `block`, `skip`, `park:3`.
    pub fn policy(self) -> String {
        match self {
            Self::Block => "block".to_owned(),
            Self::Skip => "skip".to_owned(),
            Self::Park(failures) => format!("park:{failures}"),
        }
    }
}

/// How many jobs of one limit key run at a time, and how many start in a period, over all processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Limit {
    /// At most so many run at a time.
    pub most: Option<u32>,
    /// At most so many start in each period.
    pub rate: Option<Rate>,
}

impl Limit {
    /// So many at a time.
    pub fn most(most: u32) -> Self {
        Self { most: Some(most), rate: None }
    }

    /// So many starts in each period of this length, which begins with a start: 10 ms to a year.
    pub fn rate(starts: u32, per: Duration) -> Self {
        Self { most: None, rate: Some(Rate { starts, per }) }
    }
}

/// So many starts in each period.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Rate {
    /// So many.
    pub starts: u32,
    /// How long a period is.
    pub per: Duration,
}
