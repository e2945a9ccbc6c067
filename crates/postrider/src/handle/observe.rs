use std::sync::Arc;
use std::time::Duration;

use tracing::{Span, field, info_span};

use crate::measure::{Durations, Held, LONG, Level, SHORT};
use crate::port::Job;

/// Why an attempt failed, as metrics and spans tell them apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    Error,
    Panic,
    Timeout,
    Stopped,
    Retry,
    Discard,
    MaxAge,
}

impl Fault {
    pub(crate) const ALL: [Self; 7] =
        [Self::Error, Self::Panic, Self::Timeout, Self::Stopped, Self::Retry, Self::Discard, Self::MaxAge];

    /// The value of `error.type`.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Panic => "panic",
            Self::Timeout => "timeout",
            Self::Stopped => "stopped",
            Self::Retry => "retry",
            Self::Discard => "discard",
            Self::MaxAge => "max_age",
        }
    }
}

/// What the attempts of this process are measured by.
#[derive(Debug)]
pub(crate) struct Attempts {
    pub(crate) running: Arc<Level>,
    /// From when a job became due until its first attempt.
    pub(crate) waits: Durations,
    well: Durations,
    failed: [Durations; Fault::ALL.len()],
}

impl Default for Attempts {
    fn default() -> Self {
        let short = |_| Durations::new(SHORT);
        Self {
            running: Arc::default(),
            waits: Durations::new(LONG),
            well: Durations::new(SHORT),
            failed: Fault::ALL.map(short),
        }
    }
}

/// One attempt that runs, or is dropped where it waits.
pub(super) struct Observed {
    pub(super) span: Span,
    _running: Held,
}

impl Attempts {
    /// How long attempts took: those that did not fail, or those that failed in this way.
    pub(crate) fn took(&self, fault: Option<Fault>) -> &Durations {
        fault.and_then(|fault| self.failed.get(fault as usize)).unwrap_or(&self.well)
    }

    /// An attempt begins, so long after its job came from the database.
    pub(super) fn begin(&self, job: &Job, since: Duration) -> Observed {
        // a later attempt waits for its retry, which is no delay
        if job.attempt == 1 {
            self.waits.note(job.age_when_claimed() + since);
        }
        Observed { span: span(job), _running: self.running.hold(1) }
    }

    /// It ended after so long.
    pub(super) fn end(&self, observed: &Observed, ran: Duration, fault: Option<Fault>) {
        self.took(fault).note(ran);
        if let Some(fault) = fault {
            observed.span.record("otel.status_code", "ERROR");
            observed.span.record("error.type", fault.name());
        }
    }
}

/// What is in here costs nothing while nobody listens: the fields are not looked at then.
fn span(job: &Job) -> Span {
    let event = job.event.as_ref();
    info_span!(
        "process",
        otel.name = %format_args!("process {}", job.kind),
        otel.kind = "consumer",
        otel.status_code = field::Empty,
        error.type = field::Empty,
        messaging.system = "postrider",
        messaging.operation.name = "process",
        messaging.operation.type = "process",
        messaging.destination.name = job.queue,
        messaging.message.id = %job.id,
        postrider.job.kind = job.kind,
        postrider.job.attempt = job.attempt,
        postrider.event.id = event.map(|event| field::display(event.id)),
        postrider.event.type = event.map(|event| event.r#type.as_str()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_fault_has_a_histogram_and_a_name_of_its_own() {
        let attempts = Attempts::default();
        for (n, fault) in Fault::ALL.into_iter().enumerate() {
            assert_eq!(attempts.took(Some(fault)).read().count(), 0);
            attempts.took(Some(fault)).note(Duration::ZERO);
            assert_eq!((fault as usize, attempts.took(Some(fault)).read().count()), (n, 1));
        }
        assert_eq!(attempts.took(None).read().count(), 0);
        let mut names = Fault::ALL.map(Fault::name);
        names.sort_unstable();
        assert_eq!(names, ["discard", "error", "max_age", "panic", "retry", "stopped", "timeout"]);
    }
}
