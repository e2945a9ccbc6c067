//! What is measured: each system installs itself, puts jobs in and takes them out in a process of its own.

mod postrider; // us
mod graphile; // graphile_worker, in Rust
mod river; // riverqueue, in Rust
mod node; // graphile-worker, on Node
mod limit; // no framework at all
pub(crate) mod child; // what a worker process tells

use std::path::PathBuf;
use std::pin::Pin;

use anyhow::{Result, bail};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use tokio::process::Command;

pub(crate) type Fut<'a, T> = Pin<Box<dyn Future<Output = Result<T>> + Send + 'a>>;

/// Every system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, ValueEnum)]
pub(crate) enum Name {
    Postrider,
    GraphileRust,
    RiverRust,
    GraphileNode,
    LimitDelete,
    LimitUpdate,
    LimitCursor,
}

/// What a worker process does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Mode {
    /// Runs jobs as fast as it can and counts them.
    Drain,
    /// Runs jobs with the settings for a small queue and tells when each of them started.
    Starts,
    /// The same, for what an event makes.
    EventStarts,
}

/// A system that is measured.
pub(crate) trait System: Sync {
    /// How it is set, for the reader of the table.
    fn settings(&self) -> &'static str;

    /// Makes its tables.
    fn install<'a>(&'a self, url: &'a str) -> Fut<'a, ()>;

    /// A producer over one connection.
    fn producer<'a>(&'a self, url: &'a str) -> Fut<'a, Box<dyn Producer>>;

    /// Its worker, as a process that speaks as `child` says.
    fn worker(&self, mode: Mode, url: &str) -> Result<Command>;

    /// SQL that tells whether every job has ended and is written down as such.
    fn drained(&self) -> &'static str;

    /// Whether a worker of this mode exists.
    fn can(&self, mode: Mode) -> bool {
        mode != Mode::EventStarts
    }
}

/// Puts jobs into a system.
pub(crate) trait Producer: Send {
    /// One job in a transaction of its own, by the shortest way that the system has.
    fn one(&mut self, n: u64) -> Fut<'_, ()>;

    /// One job in a transaction that the caller begins and commits; answers with the moment at which the commit was asked for.
    fn in_transaction(&mut self, n: u64) -> Fut<'_, i64>;

    /// Many jobs in one transaction, by the fastest way.
    fn bulk(&mut self, from: u64, count: u64) -> Fut<'_, ()>;

    /// One event in a transaction of its own.
    fn record(&mut self, n: u64) -> Fut<'_, ()> {
        Box::pin(async move { bail!("no event {n}: this system has none") })
    }

    /// One event in a transaction that the caller begins and commits.
    fn event(&mut self, n: u64) -> Fut<'_, i64> {
        Box::pin(async move { bail!("no event {n}: this system has none") })
    }
}

impl Name {
    pub(crate) fn all() -> &'static [Self] {
        Self::value_variants()
    }

    pub(crate) fn system(self) -> Box<dyn System> {
        match self {
            Self::Postrider => Box::new(postrider::Postrider),
            Self::GraphileRust => Box::new(graphile::Graphile),
            Self::RiverRust => Box::new(river::River),
            Self::GraphileNode => Box::new(node::Node),
            Self::LimitDelete => Box::new(limit::Limit(limit::Way::Delete)),
            Self::LimitUpdate => Box::new(limit::Limit(limit::Way::Update)),
            Self::LimitCursor => Box::new(limit::Limit(limit::Way::Cursor)),
        }
    }

    pub(crate) fn is_limit(self) -> bool {
        matches!(self, Self::LimitDelete | Self::LimitUpdate | Self::LimitCursor)
    }

    pub(crate) fn is_peer(self) -> bool {
        self != Self::Postrider && !self.is_limit()
    }

    pub(crate) fn text(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    /// The worker of a Rust system, in the process that [`Self::command`] starts.
    pub(crate) async fn work(self, mode: Mode, url: &str) -> Result<()> {
        match self {
            Self::Postrider => postrider::work(mode, url).await,
            Self::GraphileRust => graphile::work(mode, url).await,
            Self::RiverRust => river::work(mode, url).await,
            Self::GraphileNode => bail!("its worker is a script"),
            Self::LimitDelete => limit::work(limit::Way::Delete, mode, url).await,
            Self::LimitUpdate => limit::work(limit::Way::Update, mode, url).await,
            Self::LimitCursor => limit::work(limit::Way::Cursor, mode, url).await,
        }
    }

    /// This program again, as a worker.
    fn command(self, mode: Mode, url: &str) -> Result<Command> {
        let program: PathBuf = std::env::current_exe()?;
        let mut command = Command::new(program);
        let mode = mode.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default();
        command.args(["worker", &self.text(), &mode, url]);
        Ok(command)
    }
}

/// A job's arguments: about 150 bytes of JSON, with the job's number.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Args {
    n: u64,
    customer: String,
    items: Vec<String>,
    total: Total,
    note: String,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Total {
    amount: u64,
    currency: String,
}

impl Args {
    fn new(n: u64) -> Self {
        Self {
            n,
            customer: "c-1024".to_owned(),
            items: vec!["espresso".to_owned(), "croissant".to_owned()],
            total: Total { amount: 1290, currency: "EUR".to_owned() },
            note: "to the table by the window, please".to_owned(),
        }
    }
}

/// The same as text.
pub(crate) fn args(n: u64) -> String {
    // a struct of numbers and strings always has a text
    serde_json::to_string(&Args::new(n)).unwrap_or_default()
}

/// The number in [`args`], whatever a system did to its blanks.
pub(crate) fn number(args: &str) -> Option<u64> {
    let rest = args.get(args.find("\"n\"")? + 3..)?.trim_start_matches([' ', ':']);
    rest.get(..rest.find(|c: char| !c.is_ascii_digit())?)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_json_of_about_150_bytes_and_keep_their_number() {
        for n in [0, 7, 9_999_999_999] {
            let text = args(n);
            assert!((140..=160).contains(&text.len()), "{}", text.len());
            let value: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
            assert_eq!(value.get("n").and_then(serde_json::Value::as_u64), Some(n));
            assert_eq!(number(&text), Some(n));
            assert_eq!(number(&value.to_string()), Some(n));
        }
    }
}
