use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use postrider_contract::Payload;
use sqlx::{PgConnection, Postgres, Transaction};

use super::Cause;
use crate::error::{Error, Fut};

/// One attempt, as its engine lets the handler reach it; behind [`Context`](crate::Context).
pub trait Attempt: Send + Sync + fmt::Debug {
    /// Begins a transaction on the database of the application in which the attempt may end.
    fn begin(&self) -> Fut<'_, Transaction<'static, Postgres>>;

    /// Ends the attempt as completed inside of that transaction. False: the lease is lost, and the transaction must be rolled back.
    fn complete<'a>(&'a self, tx: &'a mut Transaction<'static, Postgres>, output: Option<&'a Payload>)
    -> Fut<'a, bool>;

    /// The transaction that ended the attempt has committed: what the handler still answers does not count.
    fn completed(&self);

    /// Tells how far the attempt has come; the last word counts, and is readable within a beat.
    fn progress(&self, percent: u8, note: &str);

    /// Leaves an output, kept if the attempt completes; the last one counts. Refused above 64 KiB.
    fn output(&self, output: Payload) -> Result<(), Error>;
}

/// Effects, follow-ups and the end of an attempt in one transaction. A connection in every other respect; dropped, it rolls back, and the
/// attempt goes on.
pub struct Completion {
    tx: Transaction<'static, Postgres>,
    attempt: Arc<dyn Attempt>,
}

impl fmt::Debug for Completion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Completion").field("attempt", &self.attempt).finish_non_exhaustive()
    }
}

impl Completion {
    /// Begins, for an event if there is one.
    pub(crate) async fn begin(attempt: Arc<dyn Attempt>, cause: Option<&Cause>) -> Result<Self, Error> {
        let mut tx = attempt.begin().await?;
        if let Some(cause) = cause {
            cause.say(&mut *tx).await?;
        }
        Ok(Self { tx, attempt })
    }

    /// Ends the attempt as completed, together with everything that was written here. [`Error::LeaseLost`]: another worker has the job,
    /// and nothing was written.
    pub async fn commit(mut self, output: Option<&Payload>) -> Result<(), Error> {
        if !self.attempt.complete(&mut self.tx, output).await? {
            self.tx.rollback().await.map_err(|e| Error::from_sqlx("rollback", e))?;
            return Err(Error::LeaseLost);
        }
        self.tx.commit().await.map_err(|e| Error::from_sqlx("commit", e))?;
        self.attempt.completed();
        Ok(())
    }
}

impl Deref for Completion {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        &self.tx
    }
}

impl DerefMut for Completion {
    fn deref_mut(&mut self) -> &mut PgConnection {
        &mut self.tx
    }
}
