use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions, Connection, PgConnection};
use tokio::time::timeout;
use tracing::{info, warn};

use super::call::Meter;
use super::{Pooler, Statement};
use crate::error::Error;

/// How long one of our own statements, or a connect, may take before its connection is given up: a network that forgot it tells nobody.
const LIMIT: Duration = Duration::from_secs(10);

pub(super) const SESSION: Statement = crate::statement!("sql/session.sql");

/// What the connections of a process know of each other: when one of them gets no answer, those that are idle are not trusted either.
#[derive(Debug, Clone, Default)]
pub(crate) struct Doubts(Arc<AtomicU64>);

impl Doubts {
    fn raise(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// How this process reaches its database.
#[derive(Debug, Clone)]
pub(crate) struct Reach {
    options: PgConnectOptions,
    pooler: Pooler,
    doubts: Doubts,
}

impl Reach {
    pub(crate) fn new(options: &PgConnectOptions, pooler: Pooler) -> Self {
        let options = plain(options);
        let options = match pooler {
            Pooler::None => options,
            Pooler::Transaction => options.statement_cache_capacity(0),
        };
        Self { options, pooler, doubts: Doubts::default() }
    }
}

/// Without what a pooler refuses at the start; ours are read as they come in any case.
pub(super) fn plain(options: &PgConnectOptions) -> PgConnectOptions {
    options.clone().extra_float_digits(None)
}

/// A connection of our own for one purpose: made when needed, dropped when it breaks, made again.
pub(crate) struct Link {
    reach: Reach,
    connection: Option<PgConnection>,
    purpose: &'static str,
    failing: bool,
    limit: Duration,
    /// The doubts that were known when the connection last answered.
    known_doubts: u64,
    meter: Option<Meter>,
}

impl Link {
    pub(crate) fn new(reach: &Reach, purpose: &'static str) -> Self {
        let options = reach.options.clone().application_name(&format!("postrider {purpose}"));
        let reach = Reach { options, ..reach.clone() };
        Self { reach, connection: None, purpose, failing: false, limit: LIMIT, known_doubts: 0, meter: None }
    }

    /// The same link, given up earlier.
    pub(crate) fn within(mut self, limit: Duration) -> Self {
        self.limit = self.limit.min(limit);
        self
    }

    /// The same link, for statements that may read much.
    pub(crate) fn patient(mut self, limit: Duration) -> Self {
        self.limit = self.limit.max(limit);
        self
    }

    /// The same link, whose calls are measured.
    pub(crate) fn measured(mut self, meter: Meter) -> Self {
        self.meter = Some(meter);
        self
    }

    /// Runs `work` on the connection, which it takes and gives back. A broken connection is dropped, so that the next call makes a new one.
    /// A failure is logged when it begins and when it ends, not at each try.
    pub(crate) async fn run<T, F, W>(&mut self, statement: &'static Statement, work: F) -> Result<T, Error>
    where
        F: FnOnce(PgConnection) -> W + Send,
        W: Future<Output = (PgConnection, Result<T, Error>)> + Send,
    {
        let result = match self.meter.clone() {
            Some(meter) => meter.measure(self.attempt(statement, work)).await,
            None => self.attempt(statement, work).await,
        };
        self.note(&result);
        result
    }

    /// The same for a statement that is not what the calls of this link are measured for.
    pub(crate) async fn run_beside<T, F, W>(&mut self, statement: &'static Statement, work: F) -> Result<T, Error>
    where
        F: FnOnce(PgConnection) -> W + Send,
        W: Future<Output = (PgConnection, Result<T, Error>)> + Send,
    {
        let result = self.attempt(statement, work).await;
        self.note(&result);
        result
    }

    fn note<T>(&mut self, result: &Result<T, Error>) {
        match result {
            Ok(_) if self.failing => {
                self.failing = false;
                info!(purpose = self.purpose, "database connection for {} is back", self.purpose);
            }
            Err(error) if !self.failing && error.is_transient() => {
                self.failing = true;
                warn!(purpose = self.purpose, error = ?error, "database connection for {} failed, trying again", self.purpose);
            }
            _ => {}
        }
    }

    async fn attempt<T, F, W>(&mut self, statement: &'static Statement, work: F) -> Result<T, Error>
    where
        F: FnOnce(PgConnection) -> W + Send,
        W: Future<Output = (PgConnection, Result<T, Error>)> + Send,
    {
        let doubts = self.reach.doubts.count();
        // taken out while it is used: a future that is dropped in the middle leaves no half-used connection behind
        let trusted = self.connection.take().filter(|_| doubts == self.known_doubts);
        let connection = match trusted {
            Some(connection) => connection,
            None => connect_within(&self.reach, self.limit).await?,
        };
        self.known_doubts = doubts;
        let answered = timeout(self.limit, work(connection)).await.map_err(|_| {
            self.reach.doubts.raise();
            Error::Timeout { statement: statement.name, limit: self.limit }
        });
        let (connection, result) = answered?;
        if !matches!(&result, Err(error) if error.breaks_connection()) {
            self.connection = Some(connection);
        }
        result
    }

    pub(crate) async fn close(&mut self) {
        if let Some(connection) = self.connection.take() {
            // a goodbye that does not arrive is noticed by the server all the same
            let _ = timeout(Duration::from_secs(1), connection.close()).await;
        }
    }
}

/// A connection for what is done once. It may have a pooler before it: what it runs stands in transactions begun by
/// [`begin`](super::begin), and it keeps nothing.
pub(crate) async fn connect(options: &PgConnectOptions) -> Result<PgConnection, Error> {
    connect_within(&Reach::new(options, Pooler::Transaction), LIMIT).await
}

async fn connect_within(reach: &Reach, limit: Duration) -> Result<PgConnection, Error> {
    let connecting = async {
        let mut connection = reach.options.connect().await?;
        if reach.pooler == Pooler::None {
            // kept: from here on this connection is known to keep statements
            SESSION.query().execute(&mut connection).await?;
        }
        Ok(connection)
    };
    let late = |_| sqlx::Error::Io(std::io::ErrorKind::TimedOut.into());
    timeout(limit, connecting).await.map_err(late).flatten().map_err(Error::connecting)
}
