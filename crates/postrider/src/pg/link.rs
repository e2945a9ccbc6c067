use std::time::Duration;

use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions, Connection, PgConnection};
use tokio::time::timeout;
use tracing::{info, warn};

use super::Statement;
use crate::error::Error;

/// How long one of our own statements may take before its connection is given up.
const STATEMENT_LIMIT: Duration = Duration::from_secs(30);
const CONNECT_LIMIT: Duration = Duration::from_secs(10);

pub(super) const READ_COMMITTED: Statement = crate::statement!("sql/read_committed.sql");

/// A connection of our own for one purpose: made when needed, dropped when it breaks, made again.
pub(crate) struct Link {
    options: PgConnectOptions,
    connection: Option<PgConnection>,
    purpose: &'static str,
    failing: bool,
}

impl Link {
    pub(crate) fn new(options: &PgConnectOptions, purpose: &'static str) -> Self {
        let options = options.clone().application_name(&format!("postrider {purpose}"));
        Self { options, connection: None, purpose, failing: false }
    }

    /// Runs `work` on the connection, which it takes and gives back. A broken connection is dropped, so that the next call makes a new one.
    /// A failure is logged when it begins and when it ends, not at each try.
    pub(crate) async fn run<T, F, W>(&mut self, statement: &'static Statement, work: F) -> Result<T, Error>
    where
        F: FnOnce(PgConnection) -> W + Send,
        W: Future<Output = (PgConnection, Result<T, Error>)> + Send,
    {
        let result = self.attempt(statement, work).await;
        match &result {
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
        result
    }

    async fn attempt<T, F, W>(&mut self, statement: &'static Statement, work: F) -> Result<T, Error>
    where
        F: FnOnce(PgConnection) -> W + Send,
        W: Future<Output = (PgConnection, Result<T, Error>)> + Send,
    {
        // taken out while it is used: a future that is dropped in the middle leaves no half-used connection behind
        let connection = match self.connection.take() {
            Some(connection) => connection,
            None => connect(&self.options).await?,
        };
        let timed_out = |_| Error::Timeout { statement: statement.name, seconds: STATEMENT_LIMIT.as_secs() };
        let (connection, result) = timeout(STATEMENT_LIMIT, work(connection)).await.map_err(timed_out)?;
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

pub(crate) async fn connect(options: &PgConnectOptions) -> Result<PgConnection, Error> {
    let wait = |_| Error::Connection(sqlx::Error::Io(std::io::ErrorKind::TimedOut.into()));
    let mut connection = timeout(CONNECT_LIMIT, options.connect()).await.map_err(wait)?.map_err(Error::Connection)?;
    timeout(CONNECT_LIMIT, READ_COMMITTED.query().execute(&mut connection))
        .await
        .map_err(wait)?
        .map_err(|e| Error::from_sqlx(READ_COMMITTED.name, e))?;
    Ok(connection)
}
