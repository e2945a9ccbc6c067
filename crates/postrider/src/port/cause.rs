use postrider_contract::{Event, EventId};

use crate::error::Error;
use crate::pg::{Arg, Statement, Tx};

pub(super) const SAY_CAUSE: Statement = crate::statement!("sql/say_cause.sql");

tokio::task_local! {
    static CURRENT: Cause;
}

/// The event that a handler works for. What it records names that event as its cause and goes on its trace, unless it says otherwise.
#[derive(Debug, Clone)]
pub(crate) struct Cause {
    pub(crate) event: EventId,
    pub(crate) traceparent: Option<String>,
}

impl Cause {
    pub(crate) fn of(event: &Event) -> Self {
        Self { event: event.id, traceparent: event.traceparent.clone() }
    }

    /// That of the handler which runs in this task.
    pub(crate) fn current() -> Option<Self> {
        CURRENT.try_with(Self::clone).ok()
    }

    /// Says it for a transaction, so that triggers and plain SQL inherit it.
    pub(crate) async fn say(&self, tx: &mut dyn Tx) -> Result<(), Error> {
        let event = self.event.to_string();
        let args = [Arg::Text(&event), Arg::Text(self.traceparent.as_deref().unwrap_or_default())];
        tx.run(&SAY_CAUSE, &args).await.map(drop)
    }
}

/// Runs a handler with its cause, if it has one.
pub(crate) async fn working_for<F: Future>(cause: Option<Cause>, handler: F) -> F::Output {
    match cause {
        Some(cause) => CURRENT.scope(cause, handler).await,
        None => handler.await,
    }
}
