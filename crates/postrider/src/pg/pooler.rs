use sqlx::postgres::{PgArguments, PgRow};
use sqlx::query::Query;
use sqlx::{Connection as _, PgConnection, Postgres, Row as _, Transaction};

use super::tx::kept;
use super::{Arg, Row, Statement, Tx};
use crate::error::Error;

/// What stands between this process and its database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Pooler {
    /// Nothing, or what keeps a server's session for each connection.
    #[default]
    None,
    /// A pooler in transaction mode, such as `PgBouncer`: each transaction may run in another session of the server.
    Transaction,
}

/// Begins a transaction of ours and gives it what a session of ours has: behind a pooler nothing holds from one transaction to the next.
/// One message; the server gives up a transaction that says nothing for too long.
const BEGIN: &str = "begin isolation level read committed; set local idle_in_transaction_session_timeout = '10s'";

pub(super) const BACKEND: Statement = crate::statement!("sql/backend.sql");

/// Begins a transaction as all of ours are.
pub(crate) async fn begin(connection: &mut PgConnection) -> Result<Transaction<'_, Postgres>, sqlx::Error> {
    connection.begin_with(BEGIN).await
}

/// Runs a statement in the caller's transaction. Its connection keeps the statement prepared, unless a pooler stands before it.
pub(crate) async fn run(
    tx: &mut dyn Tx,
    pooler: Pooler,
    statement: &'static Statement,
    args: &[Arg<'_>],
) -> Result<Vec<Row>, Error> {
    match pooler {
        Pooler::None => kept(tx, statement, args).await,
        Pooler::Transaction => tx.run(statement, args).await,
    }
}

/// Runs a statement of our own that stands alone. Where no session is ours it needs a transaction all the same: a statement comes in two
/// messages, and between two transactions a pooler may change the session.
pub(crate) async fn fetch(
    connection: &mut PgConnection,
    statement: &'static Statement,
    query: Query<'static, Postgres, PgArguments>,
) -> Result<Vec<PgRow>, Error> {
    let failed = |e| Error::from_sqlx(statement.name, e);
    // in a transaction of the application the session is there until that ends
    if has_session(connection) || connection.is_in_transaction() {
        return query.fetch_all(connection).await.map_err(failed);
    }
    let mut tx = begin(connection).await.map_err(failed)?;
    let rows = query.fetch_all(&mut *tx).await.map_err(failed)?;
    tx.commit().await.map_err(failed)?;
    Ok(rows)
}

/// Whether a connection has a session of the server for itself: those of ours that have keep the statement that they begin with.
pub(crate) fn has_session(connection: &PgConnection) -> bool {
    connection.cached_statements_size() > 0
}

/// How often each of two connections is asked twice again which session serves it.
const LOOKS: usize = 2;

/// Refuses a pooler in transaction mode that nobody has told of. Two connections that one session of the server serves, or one that
/// two serve, have a pooler before them: whether it hands its sessions out by turns or the last one first, the first looks in this
/// order tell; the others are for one that is busy with other clients.
pub(crate) async fn refuse_unknown(first: &mut PgConnection, second: &mut PgConnection) -> Result<(), Error> {
    let (a, b) = (backend(first).await?, backend(second).await?);
    let mut own = a != b;
    for _ in 0..LOOKS {
        own &= backend(second).await? == b && backend(first).await? == a;
        own &= backend(first).await? == a && backend(second).await? == b;
    }
    if own { Ok(()) } else { Err(Error::Pooler { source: None }) }
}

/// The session that serves a connection at this moment. A simple query: one message, which no pooler tears apart.
async fn backend(connection: &mut PgConnection) -> Result<i32, Error> {
    let row = sqlx::raw_sql(BACKEND.sql).fetch_one(connection).await;
    row.and_then(|row| row.try_get(0)).map_err(|e| Error::from_sqlx(BACKEND.name, e))
}
