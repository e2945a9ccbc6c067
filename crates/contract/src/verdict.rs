use std::time::Duration;

/// What a handler answers when it does not fail. An `Err` instead means: try again on the kind's schedule.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// Done.
    Complete,
    /// Not now: run again after this long, without spending an attempt.
    Snooze(Duration),
    /// It failed: the attempt is spent, and the next one comes on the kind's schedule, but not before `after`.
    Retry {
        /// What went wrong.
        reason: String,
        /// The shortest wait, for example what the other side asked for.
        after: Duration,
    },
    /// It failed: the attempt is spent, and the next one comes after this long instead of on the kind's schedule.
    RetryIn {
        /// What went wrong.
        reason: String,
        /// How long to wait; up to a tenth longer.
        wait: Duration,
    },
    /// Never: the reason is kept and the job ends as discarded.
    Discard(String),
}
