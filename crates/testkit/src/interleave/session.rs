use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use anyhow::Context as _;
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection, Row};
use tokio::time::timeout;

use super::verbs::Rows;

/// How long an answer is waited for before Postgres is asked whether somebody blocks it; and again after that.
const LOOK: Duration = Duration::from_millis(3);

/// The rows, or the SQLSTATE and the message of the refusal.
pub(super) type Answer = Result<Rows, (String, String)>;

type Flight = Pin<Box<dyn Future<Output = (PgConnection, anyhow::Result<Answer>)> + Send>>;

/// One connection, and perhaps a statement on it that has not been answered.
pub(super) struct Session {
    pub(super) pid: i32,
    state: State,
}

enum State {
    Idle(PgConnection),
    Flies(Flight),
    Gone,
}

impl Session {
    pub(super) async fn open(url: &str) -> anyhow::Result<Self> {
        let mut connection = PgConnection::connect(url).await.context("cannot open a session")?;
        // nothing here outlives the server, and a deadlock is to be told soon
        let setting = "set synchronous_commit = off; set deadlock_timeout = '100ms'; set client_min_messages = error";
        connection.execute(sqlx::raw_sql(setting)).await?;
        let pid = sqlx::query_scalar("select pg_backend_pid()").fetch_one(&mut connection).await?;
        Ok(Self { pid, state: State::Idle(connection) })
    }

    /// Sends statements; [`reap`](Self::reap) has the answer.
    pub(super) fn send(&mut self, statements: String) -> anyhow::Result<()> {
        let State::Idle(mut connection) = std::mem::replace(&mut self.state, State::Gone) else {
            anyhow::bail!("a session can do one thing at a time");
        };
        self.state = State::Flies(Box::pin(async move {
            let answer = ask(&mut connection, statements).await;
            (connection, answer)
        }));
        Ok(())
    }

    /// The answer, if it is there after a moment.
    pub(super) async fn reap(&mut self) -> anyhow::Result<Option<Answer>> {
        let State::Flies(flight) = &mut self.state else { return Ok(None) };
        let Ok((connection, answer)) = timeout(LOOK, flight.as_mut()).await else { return Ok(None) };
        self.state = State::Idle(connection);
        answer.map(Some)
    }

    pub(super) fn is_idle(&self) -> bool {
        matches!(self.state, State::Idle(_))
    }

    /// Sends statements and waits for the answer.
    pub(super) async fn ask(&mut self, statements: String) -> anyhow::Result<Answer> {
        let State::Idle(connection) = &mut self.state else { anyhow::bail!("the session waits") };
        ask(connection, statements).await
    }
}

/// Runs statements by the simple protocol, all of whose answers are text.
async fn ask(connection: &mut PgConnection, statements: String) -> anyhow::Result<Answer> {
    match connection.fetch_all(sqlx::raw_sql(AssertSqlSafe(statements))).await {
        Ok(rows) => {
            let columns = |row: &sqlx::postgres::PgRow| (0..row.len()).map(|n| row.try_get(n)).collect();
            Ok(Ok(rows.iter().map(columns).collect::<Result<Rows, _>>()?))
        }
        Err(sqlx::Error::Database(error)) => {
            Ok(Err((error.code().unwrap_or_default().into_owned(), error.message().to_owned())))
        }
        Err(error) => Err(error.into()),
    }
}
