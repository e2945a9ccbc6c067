use std::env;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use tokio::runtime::{Builder, Runtime};
use tracing_subscriber::EnvFilter;

use super::args::{Args, Command, parse};
use super::printed::complain;
use super::{dev, migrate, outbound, serve, sources, verify};
use crate::config::{Config, Problem, Problems};
use crate::dev::events::BadLine;

/// How long tasks of the runtime may take to notice that it ends.
const RUNTIME_GRACE: Duration = Duration::from_secs(1);

/// How a run ended, if it did not end well.
pub(super) enum Ending {
    /// The command line was not understood, or asked for help.
    Typed(clap::Error),
    /// The configuration or an input was refused: nothing was started.
    Refused(String),
    /// It was started and failed.
    Failed(anyhow::Error),
}

impl From<clap::Error> for Ending {
    fn from(error: clap::Error) -> Self {
        Self::Typed(error)
    }
}

impl From<Problems> for Ending {
    fn from(problems: Problems) -> Self {
        Self::Refused(problems.to_string())
    }
}

impl From<Problem> for Ending {
    fn from(problem: Problem) -> Self {
        Self::Refused(problem.to_string())
    }
}

impl From<BadLine> for Ending {
    fn from(bad: BadLine) -> Self {
        Self::Refused(bad.to_string())
    }
}

impl From<anyhow::Error> for Ending {
    fn from(error: anyhow::Error) -> Self {
        Self::Failed(error)
    }
}

/// Runs the program with the arguments of the process.
pub fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(Ending::Typed(error)) => {
            // If nobody reads what is printed, there is nobody to tell.
            drop(error.print());
            ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2))
        }
        Err(Ending::Refused(told)) => {
            told.lines().for_each(complain);
            ExitCode::from(2)
        }
        Err(Ending::Failed(error)) => {
            complain(format_args!("{error:#}"));
            ExitCode::from(1)
        }
    }
}

fn run() -> Result<(), Ending> {
    let (Args { config, command }, flags) = parse(env::args_os())?;
    let config = Config::load(&sources::layers(config.as_deref(), flags)?)?;
    log(&config, &command);
    match command {
        Command::Dev(args) => dev::run(&config, &args),
        Command::Serve => serve::run(&config),
        Command::Migrate(args) => {
            let runtime = runtime()?;
            let pool = runtime.block_on(async { super::connect::pool(&config, "migrate") })?;
            Ok(runtime.block_on(migrate::run(&pool, args))?)
        }
        Command::Verify(args) => {
            let runtime = runtime()?;
            let pool = runtime.block_on(async { super::connect::pool(&config, "verify") })?;
            Ok(runtime.block_on(verify::run(&pool, args))?)
        }
        Command::Outbound(act) => {
            let runtime = runtime()?;
            let pool = runtime.block_on(async { super::connect::pool(&config, "outbound") })?;
            Ok(runtime.block_on(outbound::run(&pool, act))?)
        }
    }
}

fn log(config: &Config, command: &Command) {
    let usual = if matches!(command, Command::Dev(_)) { "error" } else { "warn" };
    let filter = EnvFilter::builder().parse_lossy(config.log.as_deref().unwrap_or(usual));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
}

pub(super) fn runtime() -> anyhow::Result<Runtime> {
    Builder::new_multi_thread().enable_all().build().context("the runtime does not start")
}

/// Ends the runtime without waiting for what does not end.
pub(super) fn end(runtime: Runtime) {
    runtime.shutdown_timeout(RUNTIME_GRACE);
}
