//! The tables of the demonstration's own business, in the schema `demo`: what an application would have beside the bus.

use anyhow::Context as _;
use postrider::{Arg, Error, Statement, Tx as _, statement};
use sqlx::{Connection as _, PgConnection, PgPool};

use super::place::DATABASE;

const SCHEMA: Statement = statement!("sql/schema.sql");
const FIND_DATABASE: Statement = statement!("sql/find_database.sql");
const MAKE_DATABASE: Statement = statement!("sql/make_database.sql");
const FORGET: Statement = statement!("sql/forget.sql");

/// Says that a repository has had one more event.
pub(super) const TOUCH: Statement = statement!("sql/touch.sql");
/// Counts an event under its type, once.
pub(super) const COUNT: Statement = statement!("sql/count.sql");
/// Keeps the row of the search index of a subject.
pub(super) const INDEX: Statement = statement!("sql/index.sql");

/// Makes what is missing of the schema `demo`.
pub(super) async fn seed(pool: &PgPool) -> Result<(), Error> {
    pool.acquire().await.map_err(Error::Connection)?.run(&SCHEMA, &[]).await?;
    Ok(())
}

/// Forgets which events were counted more than a day ago: no job of theirs runs again.
pub(super) async fn forget_old(pool: &PgPool) -> Result<(), Error> {
    pool.acquire().await.map_err(Error::Connection)?.run(&FORGET, &[]).await?;
    Ok(())
}

/// Makes the database of the demonstration on a Postgres of our own, if it is not there.
pub(super) async fn make_database(first: &str) -> anyhow::Result<()> {
    let mut connection = PgConnection::connect(first).await.context("the Postgres that was started does not answer")?;
    let found = connection.run(&FIND_DATABASE, &[Arg::Text(DATABASE)]).await?;
    if found.is_empty() {
        connection.run(&MAKE_DATABASE, &[]).await?;
    }
    connection.close().await?;
    Ok(())
}
