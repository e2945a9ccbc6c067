//! One Postgres for everything that is measured, with settings that are told, and a fresh database for each measurement.

use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context as _, Result};
use postrider_embedded::{Home, Options, Postgres};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{AssertSqlSafe, ConnectOptions as _, Executor as _, PgConnection, PgPool};

/// How the server is set.
pub(crate) const SETTINGS: &[(&str, &str)] = &[
    ("shared_buffers", "1GB"),
    ("max_wal_size", "8GB"),
    ("checkpoint_timeout", "30min"),
    ("jit", "off"),
    ("fsync", "on"),
    ("synchronous_commit", "on"),
    ("max_connections", "100"),
];
/// How statements are counted, in databases that ask for it, where the server has the extension.
const COUNTING: &[(&str, &str)] =
    &[("shared_preload_libraries", "pg_stat_statements"), ("pg_stat_statements.track", "none")];

pub(crate) struct Cluster {
    postgres: Postgres,
    admin: PgPool,
    databases: AtomicU32,
    /// Whether the server can count statements.
    pub(crate) counts_statements: bool,
}

impl Cluster {
    pub(crate) async fn start() -> Result<Self> {
        let set = |options: Options, (name, value): &(&str, &str)| options.setting(name, value);
        let postgres = tokio::task::spawn_blocking(move || {
            let plain = || SETTINGS.iter().fold(Options::new(Home::Ephemeral), set);
            let counting = COUNTING.iter().fold(plain(), set);
            Postgres::start(counting).map(|started| (started, true)).or_else(|_| {
                // a small installation lacks the extension
                Postgres::start(plain()).map(|started| (started, false))
            })
        });
        let (postgres, counts_statements) = postgres.await??;
        let admin = PgPoolOptions::new().max_connections(2).connect(&postgres.url("postgres")).await?;
        Ok(Self { postgres, admin, databases: AtomicU32::new(0), counts_statements })
    }

    pub(crate) async fn stop(self) -> Result<()> {
        self.admin.close().await;
        tokio::task::spawn_blocking(|| self.postgres.stop()).await??;
        Ok(())
    }

    pub(crate) fn pid(&self) -> u32 {
        self.postgres.pid().unwrap_or_default()
    }

    /// A connection that is not counted among those of a measured database.
    pub(crate) fn admin(&self) -> &PgPool {
        &self.admin
    }

    pub(crate) async fn version(&self) -> Result<String> {
        Ok(sqlx::query_scalar("show server_version").fetch_one(&self.admin).await?)
    }

    /// A database made from a template, or from nothing.
    pub(crate) async fn database(&self, template: Option<&str>) -> Result<Database> {
        let name = format!("bench_{}", self.databases.fetch_add(1, Ordering::Relaxed));
        let template = template.unwrap_or("template1");
        let make = format!("create database {name} template {template}");
        self.admin.execute(AssertSqlSafe(make)).await.with_context(|| format!("cannot copy {template}"))?;
        Ok(Database { url: self.postgres.url(&name), name })
    }

    /// From now on, statements of new connections to this database are counted, on a server that can.
    pub(crate) async fn count_statements(&self, database: &Database) -> Result<()> {
        let on = format!("alter database {} set pg_stat_statements.track = 'top'", database.name);
        self.admin.execute(AssertSqlSafe(on)).await?;
        Ok(())
    }

    pub(crate) async fn drop(&self, database: Database) -> Result<()> {
        self.admin.execute(AssertSqlSafe(format!("drop database {} with (force)", database.name))).await?;
        Ok(())
    }
}

/// One database of the cluster.
pub(crate) struct Database {
    pub(crate) name: String,
    pub(crate) url: String,
}

impl Database {
    pub(crate) async fn connect(&self) -> Result<PgConnection> {
        connect(&self.url).await
    }
}

pub(crate) async fn connect(url: &str) -> Result<PgConnection> {
    Ok(url.parse::<PgConnectOptions>()?.connect().await?)
}
