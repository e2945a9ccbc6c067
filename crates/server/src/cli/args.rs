use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Arg, ArgMatches, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

use postrider::Timestamp;

use crate::config::NAMES;

const AFTER: &str = "Exit codes: 0 done, 1 failed, 2 the input or the configuration was refused.\n\
                     Every option of a command is also a key of postrider.toml and a variable POSTRIDER_…; \
                     see docs/configuration.md.";

/// A durable event bus in the Postgres you already run.
#[derive(Debug, Parser)]
#[command(name = "postrider", version, after_help = AFTER, arg_required_else_help = true)]
pub struct Args {
    /// The configuration file; postrider.toml in the working directory if there is one
    #[arg(long, global = true, value_name = "FILE", env = "POSTRIDER_CONFIG")]
    pub config: Option<PathBuf>,
    #[command(subcommand)]
    /// What to do.
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Start everything on this machine and show events moving
    Dev(Dev),
    /// Run the relay, the deliveries and the page on a database that was migrated
    Serve,
    /// Bring the schema in the database up to date
    Migrate(Migrate),
    /// Compute anew what the relay did, and say what is missing, doubled or altered
    Verify(Verify),
    /// Hold everything that leaves the database, or let it go on
    #[command(subcommand)]
    Outbound(Outbound),
}

/// `postrider dev`.
#[derive(Debug, Clone, clap::Args)]
pub struct Dev {
    /// Record events that the program makes itself
    #[arg(long)]
    pub demo: bool,
    /// Record each event once instead of again and again
    #[arg(long)]
    pub once: bool,
    /// Forget everything at the end: a Postgres in a temporary directory
    #[arg(long)]
    pub ephemeral: bool,
    /// Stop after this many seconds
    #[arg(long = "for", value_name = "SECONDS", value_parser = seconds)]
    pub stop_after: Option<Duration>,
}

/// `postrider migrate`.
#[derive(Debug, Clone, Copy, clap::Args)]
pub struct Migrate {
    /// Say what would be done, and do nothing
    #[arg(long)]
    pub plan: bool,
}

/// `postrider verify`.
#[derive(Debug, Clone, Copy, clap::Args)]
pub struct Verify {
    /// Only what was relayed from this moment on, such as 2026-01-31T00:00:00Z
    #[arg(long, value_name = "TIME", value_parser = moment)]
    pub from: Option<Timestamp>,
    /// Only what was relayed before this moment
    #[arg(long, value_name = "TIME", value_parser = moment)]
    pub to: Option<Timestamp>,
}

/// `postrider outbound`.
#[derive(Debug, Clone, Subcommand)]
pub enum Outbound {
    /// Hold everything that leaves, in all processes: it waits, and nothing of it fails
    Pause {
        /// Why, for whoever finds it
        #[arg(long, default_value = "")]
        reason: String,
    },
    /// Let what leaves go on
    Resume,
}

fn moment(text: &str) -> Result<Timestamp, String> {
    text.parse().map_err(|_| "write a moment as in RFC 3339, such as 2026-01-31T00:00:00Z".to_owned())
}

fn seconds(text: &str) -> Result<Duration, String> {
    match text.parse::<u32>() {
        Ok(seconds) if seconds > 0 => Ok(Duration::from_secs(seconds.into())),
        _ => Err("write whole seconds, 1 or more".to_owned()),
    }
}

/// The commands with a flag for each name of configuration that they read.
pub fn command() -> clap::Command {
    let mut root = Args::command();
    let commands: Vec<String> = root.get_subcommands().map(|command| command.get_name().to_owned()).collect();
    for command in commands {
        root = root.mut_subcommand(&command, |mut sub| {
            for name in NAMES.iter().filter(|name| name.commands.contains(&command.as_str())) {
                let help = format!("{} [{}]", name.meaning.replace('`', ""), name.takes.replace('`', ""));
                let flag =
                    Arg::new(name.key).long(name.flag()).value_name("VALUE").help(help).allow_hyphen_values(true);
                sub = sub.arg(flag.help_heading("Configuration"));
            }
            sub
        });
    }
    root
}

/// Keys of configuration and the values that their flags were given.
pub(super) type Flags = Vec<(&'static str, String)>;

/// What was typed, and the flags of names of configuration among it.
pub(super) fn parse(typed: impl IntoIterator<Item = OsString>) -> Result<(Args, Flags), clap::Error> {
    let matches = command().try_get_matches_from(typed)?;
    let flags = matches.subcommand().map(|(command, of)| given(command, of)).unwrap_or_default();
    Ok((Args::from_arg_matches(&matches)?, flags))
}

fn given(command: &str, matches: &ArgMatches) -> Flags {
    NAMES
        .iter()
        .filter(|name| name.commands.contains(&command))
        .filter_map(|name| Some((name.key, matches.get_one::<String>(name.key)?.clone())))
        .collect()
}
