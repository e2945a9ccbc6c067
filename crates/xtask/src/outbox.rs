use std::process::ExitCode;
use std::time::Duration;

use postrider_testkit::outbox::{self, Outbox};
use postrider_testkit::{TestServer, test_options};

/// Runs the outbox hard in a cluster of its own, then in a copy of it that wakes up in another one, and says what came of both.
#[expect(clippy::print_stdout, reason = "a command says what it saw")]
pub(crate) async fn run(minutes: f64, seed: u64) -> anyhow::Result<ExitCode> {
    let length = Duration::try_from_secs_f64(minutes * 60.0)?;
    let plan = |length, seed| Outbox { length, writers: 16, relays: 3, seed };
    let source = TestServer::with(test_options()).await;
    outbox::prepare(source.pool()).await?;
    println!("{}", outbox::run(source.pool(), plan(length, seed), false).await?);
    let (_target, copy) = outbox::copy(&source).await?;
    println!("in the copy: {}", outbox::run(&copy, plan(length / 4, seed + 1), true).await?);
    let in_copy = outbox::judge(&copy).await?;
    println!("in the copy: {in_copy}");
    outbox::run(source.pool(), plan(Duration::from_secs(1), seed + 2), true).await?;
    let report = outbox::judge(source.pool()).await?;
    println!("{report}");
    Ok(if report.is_clean() && in_copy.is_clean() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
