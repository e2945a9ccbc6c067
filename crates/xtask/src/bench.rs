use std::process::ExitCode;

use anyhow::Context as _;
use tokio::process::Command;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../bench");

/// Builds the bench, which is a workspace of its own, with optimisation and runs it: every system in turn.
pub(crate) async fn run(arguments: &[String]) -> anyhow::Result<ExitCode> {
    if !tokio::fs::try_exists(format!("{FOLDER}/node/node_modules")).await? {
        let mut npm = Command::new("npm");
        let installed = npm.arg("ci").current_dir(format!("{FOLDER}/node")).status().await.context("cannot run npm")?;
        anyhow::ensure!(installed.success(), "npm ci failed in bench/node");
    }
    let mut cargo = Command::new("cargo");
    cargo.args(["run", "--release", "--locked", "--", "all"]).args(arguments).current_dir(FOLDER);
    let status = cargo.status().await.context("cannot run cargo")?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
