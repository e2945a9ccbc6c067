use std::process::ExitCode;
use std::time::Duration;

use postrider_testkit::{Storm, TestDb, storm};

/// Lets a storm go over a database of its own, and says what came of it.
#[expect(clippy::print_stdout, clippy::print_stderr, reason = "a command says what it saw")]
pub(crate) async fn run(minutes: f64, seed: u64) -> anyhow::Result<ExitCode> {
    let length = Duration::try_from_secs_f64(minutes * 60.0)?;
    let db = TestDb::fresh().await;
    let report = storm(&db, Storm { length, seed }).await?;
    println!("{report}");
    for wrong in &report.wrong {
        eprintln!("{wrong}");
    }
    Ok(if report.is_clean() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
