use sqlx::postgres::PgArguments;
use sqlx::query::Query;
use sqlx::{PgConnection, Postgres};

/// One statement: its text is a file of its own, checked on a real Postgres by a test.
#[derive(Debug)]
pub struct Statement {
    /// The file, for errors.
    pub name: &'static str,
    /// The text.
    pub sql: &'static str,
}

impl Statement {
    /// The statement for sqlx, to bind to. It stays prepared on a connection that has kept one before. On another it is prepared for
    /// this once: behind a pooler a name may be taken in the session that serves the next transaction, and a connection that can
    /// keep nothing would leave a statement behind in its session at each call.
    pub fn query_on(&'static self, on: &PgConnection) -> Query<'static, Postgres, PgArguments> {
        self.query().persistent(super::has_session(on))
    }

    /// The same, kept by a connection that can.
    #[expect(clippy::disallowed_methods, reason = "this is the one place that turns a statement file into a query")]
    pub fn query(&'static self) -> Query<'static, Postgres, PgArguments> {
        sqlx::query(self.sql)
    }
}
