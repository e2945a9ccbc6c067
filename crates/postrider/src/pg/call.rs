use std::sync::Arc;

use tracing::{Instrument as _, Span, debug_span, field};

use crate::clock::Clock;
use crate::error::Error;
use crate::measure::{Durations, SHORT};

/// What a process that works asks of its database again and again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    Claim,
    Finish,
    Relay,
}

impl Operation {
    /// The value of `messaging.operation.name`.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Claim => "claim",
            Self::Finish => "finish",
            Self::Relay => "relay",
        }
    }

    fn span(self, queue: Option<&str>) -> Span {
        macro_rules! call {
            ($name:literal, $kind:literal, { $($about:tt)* }) => {
                debug_span!(
                    $name,
                    $($about)*
                    otel.kind = "client",
                    otel.status_code = field::Empty,
                    error.type = field::Empty,
                    messaging.system = "postrider",
                    messaging.operation.name = $name,
                    messaging.operation.type = $kind,
                    messaging.batch.message_count = field::Empty,
                )
            };
        }
        match self {
            Self::Claim => call!("claim", "receive", {
                otel.name = queue.map(|queue| field::display(format!("claim {queue}"))),
                messaging.destination.name = queue,
            }),
            Self::Finish => call!("finish", "settle", {}),
            Self::Relay => call!("relay", "send", {}),
        }
    }
}

/// How long calls took.
#[derive(Debug)]
pub(crate) struct Calls {
    pub(crate) answered: Durations,
    pub(crate) failed: Durations,
}

impl Default for Calls {
    fn default() -> Self {
        Self { answered: Durations::new(SHORT), failed: Durations::new(SHORT) }
    }
}

/// Measures the calls of one link.
#[derive(Debug, Clone)]
pub(crate) struct Meter {
    pub(crate) operation: Operation,
    /// The queue, for those that are about one.
    pub(crate) queue: Option<Arc<str>>,
    pub(crate) calls: Arc<Calls>,
    pub(crate) clock: Clock,
}

impl Meter {
    pub(super) async fn measure<T>(&self, call: impl Future<Output = Result<T, Error>> + Send) -> Result<T, Error> {
        let span = self.operation.span(self.queue.as_deref());
        let began = self.clock.monotonic();
        let result = call.instrument(span.clone()).await;
        let calls = if result.is_ok() { &self.calls.answered } else { &self.calls.failed };
        calls.note(self.clock.monotonic().saturating_sub(began));
        if result.is_err() {
            span.record("otel.status_code", "ERROR");
            span.record("error.type", "_OTHER");
        }
        result
    }
}

/// The call that runs now was about so many jobs.
pub(crate) fn tell_count(jobs: u64) {
    Span::current().record("messaging.batch.message_count", jobs);
}
