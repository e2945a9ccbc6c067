use std::time::Duration;

use crate::json::Payload;

/// When a schedule is due.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum When {
    /// By the wall clock of the schedule's zone: minute, hour, day of the month, month, day of the week.
    Cron(String),
    /// Again and again after so much real time, in whole milliseconds; a second at least, ten years at most.
    Every(Duration),
}

/// What becomes of due times that passed more than ten seconds ago, because nobody was there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Missed {
    /// They are counted, and not run.
    Skip,
    /// One run for all of them, if none is due on time.
    #[default]
    Once,
    /// A run for each of the last ones, so many at most (1 to 100).
    All(u16),
}

impl Missed {
    /// Its name, as SQL and the wire spell it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Skip => "skip",
            Self::Once => "once",
            Self::All(_) => "all",
        }
    }

    /// The most runs of [`Missed::All`].
    pub fn most(self) -> Option<u16> {
        match self {
            Self::All(most) => Some(most),
            _ => None,
        }
    }
}

/// What becomes of a due time while a job of the schedule has not ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Overlap {
    /// It is counted, and not run.
    #[default]
    Skip,
    /// Its job is enqueued all the same.
    Queue,
}

impl Overlap {
    /// Its name, as SQL and the wire spell it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Skip => "skip",
            Self::Queue => "queue",
        }
    }
}

/// A schedule: jobs of one kind that come by the clock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schedule {
    /// Its name, such as `report.nightly`.
    pub name: String,
    /// When it is due.
    pub when: When,
    /// The IANA name of the zone whose wall clock a cron expression means. Default: `UTC`.
    pub zone: String,
    /// The kind of its jobs, declared with it.
    pub kind: String,
    /// What its jobs are enqueued with. Default: `{}`.
    pub args: Payload,
    /// Whose its jobs are; empty for the instance itself.
    pub owner: String,
    /// Instead of the kind's queue.
    pub queue: Option<String>,
    /// Instead of the kind's priority, 1 (first) to 4 (last).
    pub priority: Option<i16>,
    /// Instead of the kind's number of attempts, 1 to 1 000.
    pub max_attempts: Option<i16>,
    /// What becomes of due times that nobody was there for. Default: one run for all of them.
    pub missed: Missed,
    /// What becomes of a due time while the run before it has not ended. Default: it is not run.
    pub overlap: Overlap,
    /// Whether it also runs when a process that declares it starts; of processes that start within a minute, once. Default: no.
    pub run_at_start: bool,
}

impl Schedule {
    /// Jobs by a cron expression, in UTC, of a kind with the same name.
    pub fn cron(name: impl Into<String>, expression: impl Into<String>) -> Self {
        Self::new(name.into(), When::Cron(expression.into()))
    }

    /// Jobs again and again after so much time, of a kind with the same name.
    pub fn every(name: impl Into<String>, period: Duration) -> Self {
        Self::new(name.into(), When::Every(period))
    }

    fn new(name: String, when: When) -> Self {
        Self {
            kind: name.clone(),
            name,
            when,
            zone: "UTC".to_owned(),
            args: Payload::trusted("{}"),
            owner: String::new(),
            queue: None,
            priority: None,
            max_attempts: None,
            missed: Missed::default(),
            overlap: Overlap::default(),
            run_at_start: false,
        }
    }

    /// The same by the wall clock of another zone.
    #[must_use]
    pub fn zone(mut self, zone: impl Into<String>) -> Self {
        self.zone = zone.into();
        self
    }

    /// The same with jobs of another kind.
    #[must_use]
    pub fn kind(mut self, kind: impl Into<String>) -> Self {
        self.kind = kind.into();
        self
    }

    /// The same with these arguments for its jobs.
    #[must_use]
    pub fn args(mut self, args: Payload) -> Self {
        self.args = args;
        self
    }
}
