use std::env;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use postrider_testkit::nemesis::{Plan, run};
use tokio::process::Command;

/// Runs everything under faults for some minutes and prints what came of it. Fails if a number is red.
pub(crate) async fn faults(minutes: f64, seed: u64, program: Option<PathBuf>) -> anyhow::Result<ExitCode> {
    ensure!(minutes.is_finite() && (0.1..=10_000.0).contains(&minutes), "--minutes: use 0.1 to 10000");
    let program = match program {
        Some(program) => program,
        None => fixture().await?,
    };
    let outcome = run(&Plan::new(program, seed, Duration::from_secs_f64(minutes * 60.0))).await?;
    write!(std::io::stdout(), "repeat: cargo run -p xtask -- faults --minutes {minutes} --seed {seed}\n{outcome}")?;
    Ok(if outcome.table.red().is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The program that plays producers, workers, relays and receivers, built as it is now; it is beside this one.
async fn fixture() -> anyhow::Result<PathBuf> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut build = Command::new(cargo);
    build.args(["build", "--quiet", "--package", "postrider-testkit", "--bin", "postrider-fixture"]);
    let ended = build.current_dir(env!("CARGO_MANIFEST_DIR")).status().await.context("cannot run cargo")?;
    ensure!(ended.success(), "postrider-fixture does not build");
    let own = env::current_exe().context("this program does not know where it is")?;
    let program = own.with_file_name("postrider-fixture");
    ensure!(program.is_file(), "{} is not there: run this by cargo run -p xtask", program.display());
    Ok(program)
}
