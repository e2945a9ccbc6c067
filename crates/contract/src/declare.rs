use std::time::Duration;

use serde::Serialize;

use crate::key::{Limit, Order};
use crate::unique::Unique;

/// How long finished work is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Class {
    /// A day.
    Short,
    /// A week.
    #[default]
    Standard,
    /// Ninety days.
    Long,
}

/// When a failed attempt is tried again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Retry {
    /// `first`, doubled after each failure, never more than `most`; up to 10 % later by the dice.
    Backoff {
        /// The wait after the first failure.
        first: Duration,
        /// The longest wait.
        most: Duration,
    },
    /// The waits one after another, the last one for all that follow; up to 10 % later by the dice.
    Steps(Vec<Duration>),
}

impl Default for Retry {
    fn default() -> Self {
        Self::Backoff { first: Duration::from_secs(1), most: Duration::from_hours(1) }
    }
}

/// A kind of job: what it is called and how it is run when the call does not say otherwise.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct KindSpec {
    /// Its name, such as `mail.send`.
    pub name: String,
    /// The queue that its jobs wait in. Default: `default`.
    pub queue: String,
    /// 1 (first) to 4 (last). Default: 2.
    pub priority: i16,
    /// Attempts before a job is discarded, 1 to 1 000. Default: 10.
    pub max_attempts: i16,
    /// How long one attempt may take. Default: 60 s.
    pub timeout: Duration,
    /// When a failed attempt is tried again.
    pub retry: Retry,
    /// How long finished jobs are kept.
    pub class: Class,
    /// When its jobs are one with a job like it, where the call does not say. Default: never. It says nothing of jobs that events make: each
    /// event has its own, unless the subscription is coalescing.
    #[serde(skip)]
    pub unique: Option<Unique>,
    /// How old a job may become by snoozing before it is discarded. Default: 7 days.
    pub max_age: Duration,
    /// What becomes of the jobs behind one of their order key that fails, where the call does not say. Default: they wait.
    #[serde(skip)]
    pub order: Order,
    /// How many of its jobs run at a time, or start in a period, in its queue and over all processes: of those that name no limit key of
    /// their own. Default: as many as there are slots.
    #[serde(skip)]
    pub limit: Option<Limit>,
    /// Its jobs are claimed owner by owner in turn, so that the many of one do not keep the few of another waiting. All kinds of a queue in
    /// which it matters should say the same. Default: no.
    #[serde(skip)]
    pub fair: bool,
}

impl KindSpec {
    /// A kind with the defaults.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            queue: "default".to_owned(),
            priority: 2,
            max_attempts: 10,
            timeout: Duration::from_mins(1),
            retry: Retry::default(),
            class: Class::Standard,
            unique: None,
            max_age: Duration::from_hours(7 * 24),
            order: Order::Block,
            limit: None,
            fair: false,
        }
    }
}
