use sqlx::postgres::{PgArguments, PgRow};
use sqlx::query::Query;
use sqlx::{PgConnection, Postgres, Row as _};

use super::Statement;
use crate::error::{Error, Fut};

/// An argument of a statement that may run on any driver; the statement casts it.
#[derive(Debug, Clone, Copy)]
pub enum Arg<'a> {
    /// `null`, as text.
    Null,
    /// `text`, also for uuid, json and timestamps.
    Text(&'a str),
    /// `bigint`.
    Int(i64),
    /// `bytea`.
    Bytes(&'a [u8]),
    /// `text[]`.
    Texts(&'a [&'a str]),
    /// `bigint[]`.
    Ints(&'a [i64]),
}

/// A row of a statement whose columns are all text.
#[derive(Debug, Clone)]
pub struct Row {
    statement: &'static str,
    columns: Vec<Option<String>>,
}

impl Row {
    /// For adapters of other drivers.
    pub fn new(statement: &'static Statement, columns: Vec<Option<String>>) -> Self {
        Self { statement: statement.name, columns }
    }

    /// A column, or `None` for null.
    pub fn opt(&self, column: usize) -> Option<&str> {
        self.columns.get(column).and_then(Option::as_deref)
    }

    /// A column that is not null.
    pub fn text(&self, column: usize) -> Result<&str, Error> {
        self.opt(column).ok_or(Error::Row { statement: self.statement, column, expected: "text" })
    }

    /// A column that is an integer.
    pub fn int(&self, column: usize) -> Result<i64, Error> {
        let wrong = Error::Row { statement: self.statement, column, expected: "an integer" };
        self.opt(column).and_then(|text| text.parse().ok()).ok_or(wrong)
    }
}

/// The caller's transaction, or a connection. It never begins, commits or makes savepoints.
pub trait Tx: Send {
    /// Runs a statement whose columns are all text.
    fn run<'a>(&'a mut self, statement: &'static Statement, args: &'a [Arg<'a>]) -> Fut<'a, Vec<Row>>;

    /// The sqlx connection under it, if there is one.
    fn as_sqlx(&mut self) -> Option<&mut PgConnection> {
        None
    }
}

impl Tx for PgConnection {
    fn run<'a>(&'a mut self, statement: &'static Statement, args: &'a [Arg<'a>]) -> Fut<'a, Vec<Row>> {
        Box::pin(fetch(statement.query_on(self), self, statement, args))
    }

    fn as_sqlx(&mut self) -> Option<&mut PgConnection> {
        Some(self)
    }
}

/// Runs a statement of the caller's transaction on a connection that is known to keep statements.
pub(crate) async fn kept(tx: &mut dyn Tx, statement: &'static Statement, args: &[Arg<'_>]) -> Result<Vec<Row>, Error> {
    match tx.as_sqlx() {
        Some(connection) => fetch(statement.query(), connection, statement, args).await,
        None => tx.run(statement, args).await,
    }
}

async fn fetch(
    mut query: Query<'static, Postgres, PgArguments>,
    connection: &mut PgConnection,
    statement: &'static Statement,
    args: &[Arg<'_>],
) -> Result<Vec<Row>, Error> {
    for arg in args {
        query = match *arg {
            Arg::Null => query.bind(None::<String>),
            Arg::Text(text) => query.bind(text.to_owned()),
            Arg::Int(int) => query.bind(int),
            Arg::Bytes(bytes) => query.bind(bytes.to_vec()),
            Arg::Texts(texts) => query.bind(texts.iter().map(ToString::to_string).collect::<Vec<_>>()),
            Arg::Ints(ints) => query.bind(ints.to_vec()),
        };
    }
    let rows = query.fetch_all(connection).await.map_err(|e| Error::from_sqlx(statement.name, e))?;
    rows.iter().map(|row| texts(statement, row)).collect()
}

fn texts(statement: &'static Statement, row: &PgRow) -> Result<Row, Error> {
    let columns = (0..row.len())
        .map(|column| row.try_get::<Option<String>, _>(column).map_err(|e| Error::from_sqlx(statement.name, e)))
        .collect::<Result<Vec<_>, _>>()?;
    Ok(Row { statement: statement.name, columns })
}
