use sqlx::pool::PoolConnection;
use sqlx::postgres::PgConnectOptions;
use sqlx::{Connection as _, PgConnection, PgPool, Postgres};

use super::{Arg, Row, Statement, Tx};
use crate::error::{Error, Fut};

/// A connection of the caller's pool, for statements that need no transaction of the caller: each is one of its own.
#[derive(Debug)]
pub struct Borrowed {
    connection: PoolConnection<Postgres>,
    keeps: bool,
}

/// Takes a connection from a pool.
pub async fn borrow(pool: &PgPool) -> Result<Borrowed, Error> {
    let connection = pool.acquire().await.map_err(Error::connecting)?;
    Ok(Borrowed { connection, keeps: keeps(&pool.connect_options()) })
}

impl Tx for Borrowed {
    fn run<'a>(&'a mut self, statement: &'static Statement, args: &'a [Arg<'a>]) -> Fut<'a, Vec<Row>> {
        Box::pin(async move {
            if self.keeps {
                return super::tx::kept(&mut *self.connection, statement, args).await;
            }
            // unnamed, a statement lives until the next one of its session, which behind a pooler may be somebody else's
            let failed = |e| Error::from_sqlx(statement.name, e);
            let mut tx = self.connection.begin().await.map_err(failed)?;
            let rows = tx.run(statement, args).await?;
            tx.commit().await.map_err(failed)?;
            Ok(rows)
        })
    }

    fn as_sqlx(&mut self) -> Option<&mut PgConnection> {
        Some(&mut self.connection)
    }
}

/// Whether connections with these options keep prepared statements: a capacity of 0 says that they cannot.
pub(crate) fn keeps(options: &PgConnectOptions) -> bool {
    // the driver tells the capacity in this way only; its URL panics on hosts that it takes
    !format!("{options:?}").contains("statement_cache_capacity: 0,")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_capacity_of_zero_means_that_no_statement_is_kept() {
        let options = PgConnectOptions::new_without_pgpass();
        assert!(keeps(&options));
        assert!(keeps(&options.clone().statement_cache_capacity(1)));
        assert!(!keeps(&options.statement_cache_capacity(0)));
    }
}
