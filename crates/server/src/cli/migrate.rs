use anyhow::Context as _;
use postrider::migrate::{self, Component};
use sqlx::PgPool;

use super::args::Migrate;
use super::printed::tell;

/// Brings the schema up to date, or says what that would do.
pub(super) async fn run(pool: &PgPool, args: Migrate) -> anyhow::Result<()> {
    if args.plan {
        let pending = migrate::plan(pool, Component::ALL).await.context("the schema cannot be read")?;
        if pending.is_empty() {
            tell("The schema is up to date.");
        }
        for migration in pending {
            tell(format_args!("would apply {}", migration.name));
        }
        return Ok(());
    }
    let applied = migrate::run(pool, Component::ALL).await.context("the schema was not brought up to date")?;
    if applied.is_empty() {
        tell("The schema was up to date already.");
    }
    for migration in applied {
        tell(format_args!("applied {}", migration.name));
    }
    Ok(())
}
