use std::str::FromStr as _;
use std::time::Duration;

use anyhow::Context as _;
use postrider::Pooler;
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
    let options = options_of(url.expose_secret())?;
    // what a pooler refuses or cannot keep
    let options = match config.pooler {
        Pooler::None => options,
        _ => options.statement_cache_capacity(0).extra_float_digits(None),
    };
    Ok(pool_on(options, config.database_connections))
}

/// The same on a URL of our own making.
pub(super) fn pool_of(url: &str, connections: u32) -> anyhow::Result<PgPool> {
    Ok(pool_on(options_of(url)?, connections))
}

fn pool_on(options: PgConnectOptions, connections: u32) -> PgPool {
    PgPoolOptions::new().max_connections(connections).acquire_timeout(ACQUIRE_MAX).connect_lazy_with(options)
}

/// How to reach the database of a URL.
pub(super) fn options_of(url: &str) -> anyhow::Result<PgConnectOptions> {
    // The driver's message may hold a part of the URL, and so of the password.
    PgConnectOptions::from_str(url).ok().context("the URL of the database cannot be read")
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
