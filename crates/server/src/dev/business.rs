//! The tables of the demonstration's own business, in the schema `demo`: what an application would have beside the bus.

use postrider::{Statement, Tx as _, statement};
use sqlx::PgPool;

const SCHEMA: Statement = statement!("sql/schema.sql");
const FORGET: Statement = statement!("sql/forget.sql");

/// Says that a repository has had one more event.
pub(super) const TOUCH: Statement = statement!("sql/touch.sql");
/// Counts an event under its type, once.
pub(super) const COUNT: Statement = statement!("sql/count.sql");
/// Keeps the row of the search index of a subject.
pub(super) const INDEX: Statement = statement!("sql/index.sql");

/// Makes what is missing of the schema `demo`.
pub(super) async fn seed(pool: &PgPool) -> Result<(), postrider::Error> {
    pool.acquire().await?.run(&SCHEMA, &[]).await?;
    Ok(())
}

/// Forgets which events were counted more than a day ago: no job of theirs runs again.
pub(super) async fn forget_old(pool: &PgPool) -> Result<(), postrider::Error> {
    pool.acquire().await?.run(&FORGET, &[]).await?;
    Ok(())
}
