//! Longer runs and generated files, as commands.
#![forbid(unsafe_code)]

mod bench; // beside the peers and the limit
mod cron; // beside cron libraries of other languages
mod faults; // everything, and what befalls it
mod schema; // what the migrations make, as one file to read
mod outbox; // the outbox alone, and harder
mod storm; // everything at once, for as long as one likes
mod with_postgres; // a command with a Postgres for its tests

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Debug, Parser)]
#[command(about = "Longer runs and generated files of this repository")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Starts a temporary Postgres, runs a command that finds it by its environment, and answers as the command
    /// does.
    WithPostgres {
        /// The command and its arguments.
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        command: Vec<String>,
    },
    /// Runs producers, workers, relays and receivers while processes are killed and stopped, connections are cut and Postgres is killed;
    /// prints what was lost, doubled or torn, and fails if anything was.
    Faults {
        /// How long faults go on.
        #[arg(long, default_value_t = 10.0)]
        minutes: f64,
        /// Where all dice begin.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// The program postrider-fixture. Default: it is built.
        #[arg(long)]
        fixture: Option<PathBuf>,
    },
    /// Producers, workers that die, relays, housekeeping and declarations at once: looks for deadlocks, and for what does
    /// not hold together afterwards.
    Storm {
        /// How long.
        #[arg(long, default_value_t = 3.0)]
        minutes: f64,
        /// Of the dice.
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
    /// Sixteen writers in every kind of transaction and three relays that are cut, then the same in a copy in another cluster: counts what was lost, doubled
    /// or out of order.
    Outbox {
        /// How long writers write.
        #[arg(long, default_value_t = 5.0)]
        minutes: f64,
        /// Of the dice.
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
    /// Measures Postrider beside its peers and a hand-written limit, on a Postgres of its own, and prints the tables.
    Bench {
        /// What the bench is told: --quick, --only drain,latency, --systems postrider,river-rust, --rounds 5, --out file.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Compares due times of cron expressions with two libraries of other languages, around every change of the clock; installs them into
    /// a folder that git ignores. Fails if they differ in a way that is not explained.
    CronDifferential {
        /// How many time zones.
        #[arg(long, default_value_t = 400)]
        zones: usize,
        /// How many years, up to 2026.
        #[arg(long, default_value_t = 20)]
        years: i16,
    },
    /// Writes the files that are made from other files: the schema that the migrations make.
    Regenerate {
        /// Writes nothing; fails if a file is not what it would be.
        #[arg(long)]
        check: bool,
    },
}

#[tokio::main]
async fn main() -> anyhow::Result<ExitCode> {
    match Arguments::parse().command {
        Command::WithPostgres { command } => with_postgres::run(&command).await,
        Command::Faults { minutes, seed, fixture } => faults::faults(minutes, seed, fixture).await,
        Command::Storm { minutes, seed } => storm::run(minutes, seed).await,
        Command::Outbox { minutes, seed } => outbox::run(minutes, seed).await,
        Command::Bench { arguments } => bench::run(&arguments).await,
        Command::CronDifferential { zones, years } => cron::differential(zones, years).await,
        Command::Regenerate { check } => schema::regenerate(check).await,
    }
}
