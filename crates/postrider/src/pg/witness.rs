use postrider_contract::{EventId, JobId, Timestamp};

/// What can tell whether a transaction committed: its id, and something that it wrote. Made of a [`Recorded`](crate::Recorded) or
/// an [`Enqueued`](crate::Enqueued).
///
/// The id alone is not enough. A server that crashes gives the ids of transactions of which nothing had reached the disk to others.
#[derive(Debug, Clone)]
pub struct Witness {
    pub(crate) xid: u64,
    pub(crate) wrote: Wrote,
}

#[derive(Debug, Clone)]
pub(crate) enum Wrote {
    Event(EventId),
    /// A job that was there at this moment of the database's clock: one of its id that was made later is another.
    Job(JobId, Timestamp),
    Nothing,
}

impl Witness {
    pub(crate) fn new(xid: u64, wrote: Wrote) -> Self {
        Self { xid, wrote }
    }
}
