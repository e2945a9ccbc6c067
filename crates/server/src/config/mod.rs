//! What an operator can set: read once, checked once, a plain struct ever after.
//!
//! In: the text of `postrider.toml`, the environment, the flags. Out: a [`Config`], or every problem at once, each with
//! the key, where it came from and what to do. Nothing below this folder reads the environment.

mod names; // the list of names
mod page; // the list as a page
mod layers; // which value wins
mod value; // from text to a value

use layers::Reading;
pub use layers::{Layers, Problem, Problems};
pub use names::{Default, NAMES, Name, named};
pub use page::page;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use ipnet::IpNet;
use postrider::{Pooler, WakeUps};
use secrecy::SecretString;

/// What a process does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Turns events into jobs.
    Relay,
    /// Delivers webhooks.
    Work,
    /// Rescues lost work and enforces retention.
    Housekeeping,
}

/// The configuration. [`NAMES`] holds each field's meaning, unit and default.
#[derive(Debug, Clone)]
pub struct Config {
    /// The database, if one was named.
    pub database_url: Option<SecretString>,
    /// Whether the database was only found in `DATABASE_URL`.
    pub database_url_is_a_fallback: bool,
    /// The most connections of the bus's pool. Default: 10.
    pub database_connections: u32,
    /// What stands before the database. Default: nothing.
    pub pooler: Pooler,
    /// The database past a pooler, if that was said.
    pub direct_url: Option<SecretString>,
    /// How the process learns that there is work. Default: by LISTEN.
    pub wake_ups: WakeUps,
    /// How often it looks while it hears nothing. Default: 1 s.
    pub poll_interval: Duration,
    /// Where HTTP is served. Default: 127.0.0.1:7117.
    pub listen: SocketAddr,
    /// What this process does. Default: everything.
    pub roles: Vec<Role>,
    /// The instance that the process is meant for, if that was said.
    pub instance: Option<String>,
    /// Jobs of handlers at a time. Default: 8.
    pub queue_concurrency: usize,
    /// Deliveries at a time. Default: 16.
    pub webhook_concurrency: usize,
    /// Private networks that endpoints may point into. Default: none.
    pub allow_cidrs: Vec<IpNet>,
    /// The keys that seal secrets, if they were given: base64 of 32 bytes each, the first one seals.
    pub seal_key: Option<Vec<SecretString>>,
    /// How long running work may take to finish at a stop. Default: 30 s.
    pub grace: Duration,
    /// The log's filter, if one was given.
    pub log: Option<String>,
    /// Where a Postgres of our own keeps its data, if that was said.
    pub data_dir: Option<PathBuf>,
    /// Where the programs of Postgres are, if that was said.
    pub pg_bin: Option<PathBuf>,
    /// The events to record, if a file was named.
    pub events: Option<PathBuf>,
    /// Events recorded per second. Default: 20.
    pub rate: f64,
}

impl Config {
    /// Reads and checks every name.
    pub fn load(layers: &Layers) -> Result<Self, Problems> {
        let mut read = layers.read();
        let config = Self::take(&mut read);
        read.finish(config)
    }

    fn take(read: &mut Reading<'_>) -> Option<Self> {
        Some(Self {
            database_url_is_a_fallback: read.is_fallback("database_url"),
            database_url: read.optional("database_url", value::database_url),
            database_connections: read.required("database_connections", value::whole(2..=1000))?,
            pooler: read.required("pooler", value::pooler)?,
            direct_url: read.optional("direct_url", value::database_url),
            wake_ups: read.required("wake_ups", value::wake_ups)?,
            poll_interval: Duration::from_millis(read.required("poll_interval", value::whole(10..=3_600_000))?),
            listen: read.required("listen", value::address)?,
            roles: read.required("roles", value::roles)?,
            instance: read.optional("instance", value::name),
            queue_concurrency: read.required("queue_concurrency", value::whole(1..=10_000))?,
            webhook_concurrency: read.required("webhook_concurrency", value::whole(1..=10_000))?,
            allow_cidrs: read.required("allow_cidrs", value::cidrs)?,
            seal_key: read.optional("seal_key", value::seal_keys),
            grace: Duration::from_secs(read.required("grace", value::whole(0..=3600))?),
            log: read.optional("log", value::log),
            data_dir: read.optional("data_dir", value::path),
            pg_bin: read.optional("pg_bin", value::path),
            events: read.optional("events", value::path),
            rate: read.required("rate", value::rate)?,
        })
    }
}
