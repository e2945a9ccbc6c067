use std::os::unix::process::ExitStatusExt;
use std::process::{ExitCode, ExitStatus};

use anyhow::Context as _;
use postrider_embedded::Postgres;
use postrider_testkit::{SERVER_VARIABLE, shared_options};
use tokio::process::Command;
use tokio::signal::unix::{SignalKind, signal};

/// Runs a command beside a temporary Postgres. Answers with the command's own exit code.
pub(crate) async fn run(command: &[String]) -> anyhow::Result<ExitCode> {
    let Some((program, arguments)) = command.split_first() else { anyhow::bail!("no command") };
    let postgres = tokio::task::spawn_blocking(|| Postgres::start(shared_options())).await??;
    // Ctrl-C reaches the command too. It decides what to do, and the server stops once it has ended.
    let _ignored = signal(SignalKind::interrupt())?;
    let mut command = Command::new(program);
    command.args(arguments).env(SERVER_VARIABLE, postgres.url("postgres"));
    let status = command.status().await.with_context(|| format!("cannot run {program}"));
    tokio::task::spawn_blocking(|| postgres.stop()).await??;
    Ok(ExitCode::from(code(status?)))
}

/// As a shell counts: a command that a signal ended answers with 128 and the signal's number.
fn code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| Some(128 + status.signal()?));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}
