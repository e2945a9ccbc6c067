use anyhow::Context as _;
use postrider::proof::{self, Verified};
use sqlx::PgPool;

use super::args::Verify;
use super::printed::tell;

/// Says what the log, the cuts and the jobs come to; fails if they do not say the same.
pub(super) async fn run(pool: &PgPool, args: Verify) -> anyhow::Result<()> {
    let told = proof::verify(pool, args.from, args.to).await.context("the log cannot be verified")?;
    let Verified { committed, fanned_out, jobs, missing, twice, broken, altered, .. } = &told;
    tell(format_args!(
        "{committed} events committed, {fanned_out} fanned out, {jobs} jobs; {missing} missing, {twice} twice"
    ));
    tell(format_args!("{} rows of cut; {broken} broken, {altered} altered", told.cuts));
    if told.unchecked_events + told.unchecked_jobs > 0 {
        tell(format_args!(
            "not checked, since retention or an operator took them or another engine has them: {} events, {} jobs",
            told.unchecked_events, told.unchecked_jobs
        ));
    }
    for finding in &told.findings {
        tell(finding);
    }
    anyhow::ensure!(told.is_whole(), "the log, the cuts and the jobs do not say the same");
    tell("Nothing is missing, nothing is there twice, the chain is unbroken.");
    Ok(())
}
