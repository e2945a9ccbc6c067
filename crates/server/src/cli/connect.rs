use std::str::FromStr as _;
use std::time::Duration;

use anyhow::Context as _;
use secrecy::ExposeSecret as _;
use sqlx::PgPool;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use super::run::Ending;
use crate::config::{Config, Problem};

/// How long whoever needs a connection waits for one.
const ACQUIRE_MAX: Duration = Duration::from_secs(10);

/// A pool on the database of the configuration; it connects when it is first used. Must be called within a runtime.
pub(super) fn pool(config: &Config, command: &str) -> Result<PgPool, Ending> {
    let Some(url) = &config.database_url else {
        let remedy = format!("name one: postrider {command} --database-url postgres://user@host/database");
        return Err(Problem::new("database_url", "no database is named", remedy).into());
    };
    Ok(pool_of(url.expose_secret(), config.database_connections)?)
}

/// The same on a URL of our own making.
pub(super) fn pool_of(url: &str, connections: u32) -> anyhow::Result<PgPool> {
    // The driver's message may hold a part of the URL, and so of the password.
    let options = PgConnectOptions::from_str(url).ok().context("the URL of the database cannot be read")?;
    Ok(PgPoolOptions::new().max_connections(connections).acquire_timeout(ACQUIRE_MAX).connect_lazy_with(options))
}

/// Which database a pool is on, for a person: no user, no password.
pub(super) fn place(pool: &PgPool) -> String {
    let options = pool.connect_options();
    let database = options.get_database().unwrap_or("the default database");
    match options.get_socket() {
        Some(socket) => format!("{database} at {}", socket.display()),
        None => format!("{database} at {}:{}", options.get_host(), options.get_port()),
    }
}
