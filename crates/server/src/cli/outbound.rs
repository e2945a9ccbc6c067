use anyhow::Context as _;
use postrider::proof;
use sqlx::PgPool;

use super::args::Outbound;
use super::printed::tell;

/// Holds what leaves, or lets it go on.
pub(super) async fn run(pool: &PgPool, act: Outbound) -> anyhow::Result<()> {
    match act {
        Outbound::Pause { reason } => {
            proof::pause_outbound(pool, &reason).await.context("outbound work was not paused")?;
            tell("Outbound work is paused: it waits until `postrider outbound resume`.");
        }
        Outbound::Resume => {
            let was = proof::resume_outbound(pool).await.context("outbound work was not resumed")?;
            tell(if was { "Outbound work goes on." } else { "Outbound work was not paused." });
        }
    }
    Ok(())
}
