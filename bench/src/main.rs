//! Measures Postrider, its peers and a hand-written limit on one Postgres, in turn: `cargo run --release -- --help`.

mod meter; // processor time, memory, log bytes
mod stats; // medians and percentiles
mod results; // what was measured
mod cluster; // the server
mod worker; // a worker process
mod system; // what is measured
mod load; // under which load

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use clap::{Parser, Subcommand};

use crate::load::{Bench, Effort, Load};
use crate::system::{Mode, Name};

#[derive(Debug, Parser)]
#[command(about = "Measures Postrider, its peers and a hand-written limit on one Postgres")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Every system, in turn.
    All(Options),
    /// Postrider alone.
    Postrider(Options),
    /// A worker process; started by the others.
    #[command(hide = true)]
    Worker {
        /// Of which system.
        system: Name,
        /// What it does.
        mode: Mode,
        /// Its database.
        url: String,
    },
}

#[derive(Debug, clap::Args)]
struct Options {
    /// Shorter and less exact, in less than five minutes.
    #[arg(long)]
    quick: bool,
    /// Rounds of each measurement. Default: 3, or 1 with --quick.
    #[arg(long)]
    rounds: Option<usize>,
    /// Only these workloads.
    #[arg(long, value_delimiter = ',')]
    only: Vec<Load>,
    /// Only these systems.
    #[arg(long, value_delimiter = ',')]
    systems: Vec<Name>,
    /// Where the tables are also written to, after each workload.
    #[arg(long)]
    out: Option<PathBuf>,
}

#[tokio::main]
async fn main() -> Result<()> {
    match Arguments::parse().command {
        Command::All(options) => Box::pin(measure(options, Name::all())).await,
        Command::Postrider(options) => Box::pin(measure(options, &[Name::Postrider])).await,
        Command::Worker { system, mode, url } => system.work(mode, &url).await,
    }
}

async fn measure(options: Options, systems: &[Name]) -> Result<()> {
    let effort = Effort { rounds: options.rounds.unwrap_or(if options.quick { 1 } else { 3 }), quick: options.quick };
    let systems = if options.systems.is_empty() { systems.to_vec() } else { options.systems };
    let mut bench = Bench::new(effort, systems).await?;
    let head = head(&bench).await?;
    let loads =
        if options.only.is_empty() { <Load as clap::ValueEnum>::value_variants().to_vec() } else { options.only };
    for load in loads {
        if let Err(failure) = bench.run(load).await {
            eprintln!("{load:?} failed: {failure:#}");
        }
        if let Some(out) = &options.out {
            write(out, &report(&head, &bench))?;
        }
    }
    println!("{}", report(&head, &bench));
    bench.cluster.stop().await
}

fn report(head: &str, bench: &Bench) -> String {
    format!("{head}{}{}", bench.results.comparison(), bench.results.tables())
}

fn write(out: &Path, text: &str) -> Result<()> {
    std::fs::write(out, text).with_context(|| format!("cannot write {}", out.display()))
}

async fn head(bench: &Bench) -> Result<String> {
    let processors = std::thread::available_parallelism()?;
    let settings: Vec<String> = cluster::SETTINGS.iter().map(|(name, value)| format!("{name} {value}")).collect();
    let mut text = format!(
        "PostgreSQL {} with {}. {processors} processors. Load before: {}.\n\n",
        bench.cluster.version().await?,
        settings.join(", "),
        meter::load()
    );
    for name in &bench.systems {
        let _ = writeln!(text, "- `{}`: {}", name.text(), name.system().settings());
    }
    Ok(text)
}
