use sqlx::postgres::PgRow;
use sqlx::{PgConnection, Row as _};

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
        Box::pin(async move {
            let mut query = statement.query();
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
            let rows = query.fetch_all(&mut *self).await.map_err(|e| Error::from_sqlx(statement.name, e))?;
            rows.iter().map(|row| texts(statement, row)).collect()
        })
    }

    fn as_sqlx(&mut self) -> Option<&mut PgConnection> {
        Some(self)
    }
}

fn texts(statement: &'static Statement, row: &PgRow) -> Result<Row, Error> {
    let columns = (0..row.len())
        .map(|column| row.try_get::<Option<String>, _>(column).map_err(|e| Error::from_sqlx(statement.name, e)))
        .collect::<Result<Vec<_>, _>>()?;
    Ok(Row { statement: statement.name, columns })
}
