use std::time::Duration;

/// When jobs that are alike are one job. Jobs are alike if their kind, owner, mode and arguments are the same; the order of JSON keys
/// does not matter. A key given with the job stands in for its arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Unique {
    /// While one waits to run. One that has started is not met any more: what changed meanwhile gets a run of its own.
    WhileWaiting,
    /// Until one has ended.
    UntilDone,
    /// For this long after the first one was enqueued, also when it has ended and is forgotten.
    Within(Duration),
    /// Once and never again, also when the first one has ended and is forgotten.
    ForEver,
    /// At most one runs and at most one waits behind it. The last one that is enqueued is always followed by a run that starts after it.
    OneRunningOneWaiting,
}

impl Unique {
    /// The name of the mode, as SQL and the wire spell it.
    pub fn name(self) -> &'static str {
        match self {
            Self::WhileWaiting => "while_waiting",
            Self::UntilDone => "until_done",
            Self::Within(_) => "within",
            Self::ForEver => "for_ever",
            Self::OneRunningOneWaiting => "one_running_one_waiting",
        }
    }

    /// The window of [`Unique::Within`], in whole milliseconds.
    pub fn window_ms(self) -> Option<u64> {
        match self {
            Self::Within(window) => Some(u64::try_from(window.as_millis()).unwrap_or(u64::MAX)),
            _ => None,
        }
    }
}
