use std::time::Duration;

/// What a handler answers when it does not fail. An `Err` instead means: try again on the kind's schedule.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// Done.
    Complete,
    /// Not now: run again after this long, without spending an attempt.
    Snooze(Duration),
    /// Never: the reason is kept and the job ends as discarded.
    Discard(String),
}
