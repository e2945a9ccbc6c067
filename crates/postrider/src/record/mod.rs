//! An event commits with its cause. In: a transaction and an event. Out: its id, and the transaction's, so that a commit whose
//! answer was lost can be asked about. The event exists if and only if the transaction commits.

mod catalogue; // the types that there are
mod pg;

use postrider_contract::{EventId, NewEvent, check_name, check_owner, check_subject};

use crate::error::Error;
use crate::pg::{Pooler, Statement, Tx, Witness, Wrote};

pub use catalogue::{Mismatch, TypeView, Types};

pub(crate) const STATEMENTS: &[&Statement] = pg::STATEMENTS;

/// Writes events into the caller's transaction.
///
/// # A commit that is not answered
///
/// The commit is the caller's own. If it fails, whatever the error is, ask on another connection what became of the transaction:
///
/// ```no_run
/// # use postrider::{BoxError, NewEvent, Recorder, Resolution};
/// # async fn pay(pool: sqlx::PgPool, event: NewEvent) -> Result<(), BoxError> {
/// let recorder = Recorder::new();
/// let mut tx = pool.begin().await?;
/// let recorded = recorder.record(&mut *tx, &event).await?;
/// if let Err(lost) = tx.commit().await {
///     let mut connection = pool.acquire().await?;
///     match recorder.resolve(&mut *connection, &recorded).await? {
///         Resolution::Committed => {} // it is there
///         Resolution::Aborted => return Err(lost.into()), // nothing is there: it may be done again
///         Resolution::InProgress | Resolution::Unknown => return Err(lost.into()), // not known yet, or not any more
///     }
/// }
/// # Ok(())
/// # }
/// ```
///
/// An error before the commit needs no question: a transaction whose commit was not sent is rolled back.
#[derive(Debug, Clone, Copy, Default)]
pub struct Recorder {
    pooler: Pooler,
}

/// What was recorded, provided that the transaction commits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Recorded {
    /// The event's id.
    pub id: EventId,
    /// The transaction's id: [`Recorder::resolve`] tells what became of it.
    pub xid: u64,
}

impl From<&Recorded> for Witness {
    fn from(recorded: &Recorded) -> Self {
        Self::new(recorded.xid, Wrote::Event(recorded.id))
    }
}

/// What came of cancelling an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CancelledEvent {
    /// Nothing of it runs, provided that the transaction commits. It stays in the log.
    Cancelled,
    /// It is too late: one of its jobs has begun or ended, or stands for later events too, or nobody asked for it. Nothing was changed.
    Delivered,
    /// There is no such event, or its transaction has not committed.
    Unknown,
}

/// What became of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resolution {
    /// It committed.
    Committed,
    /// It rolled back, or never came to its commit.
    Aborted,
    /// It is still open: the server has not noticed yet that its connection is gone. Ask again.
    InProgress,
    /// The server does not know any more, or never gave out this id, as after a failover that lost its last transactions.
    Unknown,
}

impl Recorder {
    /// A recorder. It holds nothing: whoever has a transaction may record.
    pub fn new() -> Self {
        Self::default()
    }

    /// The same for transactions that go through a pooler. [`Bus::recorder`](crate::Bus::recorder) knows it from the settings.
    #[must_use]
    pub fn behind(mut self, pooler: Pooler) -> Self {
        self.pooler = pooler;
        self
    }

    /// Records one event.
    ///
    /// What can be checked without the database is checked before any statement, so that a refusal leaves the transaction usable.
    /// What only the database knows it refuses, which aborts the transaction back to its last savepoint: an undeclared type, a subject or
    /// data that do not fit what the type declares, a key that was used for another event, a chain of causes that is too long.
    ///
    /// In a handler the event of its job is the cause, and its trace goes on, unless the event says otherwise.
    pub async fn record(&self, tx: &mut dyn Tx, event: &NewEvent) -> Result<Recorded, Error> {
        check_name("type", &event.r#type)?;
        check_subject(&event.subject)?;
        check_owner(&event.owner)?;
        pg::record(tx, self.pooler, event).await
    }

    /// Cancels an event that is not delivered yet, or of which no job has begun, in the caller's transaction. Refuses an event that the relay has not come to
    /// yet (PR005) unless it is delayed, or was recorded by this very transaction: ask again a moment later.
    pub async fn cancel_event(
        &self,
        tx: &mut dyn Tx,
        event: EventId,
        reason: Option<&str>,
    ) -> Result<CancelledEvent, Error> {
        pg::cancel_event(tx, self.pooler, event, reason).await
    }

    /// What became of a transaction whose commit was not answered, by a [`Recorded`] or an [`Enqueued`](crate::Enqueued) of it.
    /// `tx` is another connection, outside a transaction or in one of READ COMMITTED; behind a pooler, in one.
    ///
    /// Ask with something that did not stand in a savepoint that was rolled back: of that, nothing is there in any case.
    pub async fn resolve(&self, tx: &mut dyn Tx, witness: impl Into<Witness>) -> Result<Resolution, Error> {
        pg::resolve(tx, self.pooler, &witness.into()).await
    }
}
