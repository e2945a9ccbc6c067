//! An event commits with its cause. In: a transaction and an event. Out: its id, and the transaction's, so that a commit whose
//! answer was lost can be asked about. The event exists if and only if the transaction commits.

mod pg;

use postrider_contract::{EventId, NewEvent, check_name, check_owner, check_subject};

use crate::error::Error;
use crate::pg::{Statement, Tx};

pub(crate) const STATEMENTS: &[&Statement] = pg::STATEMENTS;

/// Writes events into the caller's transaction.
#[derive(Debug, Clone, Copy, Default)]
pub struct Recorder(());

/// What was recorded, provided that the transaction commits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Recorded {
    /// The event's id.
    pub id: EventId,
    /// The transaction's id: [`Recorder::resolve`] tells what became of it.
    pub xid: u64,
}

/// What became of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resolution {
    /// It committed.
    Committed,
    /// It rolled back, or never came to its commit.
    Aborted,
    /// It is still open.
    InProgress,
    /// The server does not know any more, or never gave out this id.
    Unknown,
}

impl Recorder {
    /// A recorder. It holds nothing: whoever has a transaction may record.
    pub fn new() -> Self {
        Self(())
    }

    /// Records one event.
    ///
    /// What can be checked without the database is checked before any statement, so that a refusal leaves the transaction usable.
    /// An undeclared type is refused by the database, which aborts the transaction back to its last savepoint.
    pub async fn record(&self, tx: &mut dyn Tx, event: &NewEvent) -> Result<Recorded, Error> {
        check_name("type", &event.r#type)?;
        check_subject(&event.subject)?;
        check_owner(&event.owner)?;
        pg::record(tx, event).await
    }

    /// What became of the transaction of a [`Recorded`] whose commit was not answered.
    pub async fn resolve(&self, tx: &mut dyn Tx, xid: u64) -> Result<Resolution, Error> {
        pg::resolve(tx, xid).await
    }
}
