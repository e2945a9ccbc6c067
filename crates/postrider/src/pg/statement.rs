use sqlx::Postgres;
use sqlx::postgres::PgArguments;
use sqlx::query::Query;

/// One statement: its text is a file of its own, checked on a real Postgres by a test.
#[derive(Debug)]
pub struct Statement {
    /// The file, for errors.
    pub name: &'static str,
    /// The text.
    pub sql: &'static str,
}

impl Statement {
    /// The statement for sqlx, to bind to.
    #[expect(clippy::disallowed_methods, reason = "this is the one place that turns a statement file into a query")]
    pub fn query(&'static self) -> Query<'static, Postgres, PgArguments> {
        sqlx::query(self.sql)
    }
}
