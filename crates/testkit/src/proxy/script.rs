use std::collections::BTreeMap;
use std::time::Duration;

use super::frame::STARTUP;

/// What a client says of itself when it connects.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Hello {
    /// Which connection of the proxy this is, from 1.
    pub number: u64,
    /// Its `application_name`; the library names its connections `postrider claim`, `finish`, `beat`, `relay`, `listen`,
    /// `housekeeping`.
    pub application: String,
    /// Its user.
    pub user: String,
    /// Its database.
    pub database: String,
}

/// How a connection ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// Closed in order: the other side reads the end of the stream.
    Fin,
    /// Reset: what is under way may be lost. A server behind a Unix socket sees an end of the stream, since such a socket knows no
    /// reset.
    Rst,
}

/// One end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// Who connected.
    Client,
    /// Postgres.
    Server,
}

/// What befalls a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Ends, for both sides.
    Cut(Cut),
    /// Nothing is forwarded, until it is resumed; nobody notices but by waiting.
    Stall,
    /// Everything is swallowed in both directions and no end is told, as by a network that forgot the connection. It ends by a cut.
    BlackHole,
    /// One side reads the end of the stream; what it sends is still forwarded.
    HalfClose(Side),
}

/// When a scripted fault befalls its connection: instead of forwarding a message. A stall keeps the message for later.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum At {
    /// At the n-th message of the client, from 1; the first is its startup message.
    Frontend(u64),
    /// At the n-th message of the server, from 1.
    Backend(u64),
    /// At the first query, or statement to be prepared, that contains this text.
    Saying(String),
    /// Before the n-th commit, from 1, reaches the server: a `COMMIT`, or what commits a statement of its own, which is its query or
    /// its `Sync`. A statement that only reads counts as well.
    Commit(u64),
    /// After the server has committed for the n-th time, before anything of the reply is forwarded. If that
    /// commit fails, nothing happens.
    Committed(u64),
}

/// What happens to one connection.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Script {
    pub(super) delay: Duration,
    pub(super) byte_at_a_time: bool,
    pub(super) faults: Vec<(At, Fault)>,
}

impl Script {
    /// Everything is forwarded as it comes.
    pub fn new() -> Self {
        Self::default()
    }

    /// Each message waits this long before it is forwarded.
    #[must_use]
    pub fn delay(mut self, each: Duration) -> Self {
        self.delay = each;
        self
    }

    /// Each byte is sent in a write of its own.
    #[must_use]
    pub fn byte_at_a_time(mut self) -> Self {
        self.byte_at_a_time = true;
        self
    }

    /// A fault, once.
    #[must_use]
    pub fn at(mut self, at: At, fault: Fault) -> Self {
        self.faults.push((at, fault));
        self
    }
}

/// How many messages came, by direction and type.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counts {
    pub(super) frontend: BTreeMap<u8, u64>,
    pub(super) backend: BTreeMap<u8, u64>,
}

impl Counts {
    /// The type of the startup message, which has no type byte.
    pub const STARTUP: u8 = STARTUP;

    /// Messages of clients.
    pub fn frontends(&self) -> u64 {
        self.frontend.values().sum()
    }

    /// Messages of servers.
    pub fn backends(&self) -> u64 {
        self.backend.values().sum()
    }

    /// Messages of clients of a type, such as `b'Q'`.
    pub fn frontend(&self, kind: u8) -> u64 {
        self.frontend.get(&kind).copied().unwrap_or_default()
    }

    /// Messages of servers of a type, such as `b'Z'`.
    pub fn backend(&self, kind: u8) -> u64 {
        self.backend.get(&kind).copied().unwrap_or_default()
    }

    pub(super) fn add(&mut self, other: &Self) {
        for (kind, n) in &other.frontend {
            *self.frontend.entry(*kind).or_default() += n;
        }
        for (kind, n) in &other.backend {
            *self.backend.entry(*kind).or_default() += n;
        }
    }
}
