use std::str::FromStr;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use anyhow::Context as _;
use postrider::migrate;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection, PgPool};
use uuid::Uuid;

use crate::cluster::shared_server;

pub(crate) const POOL_CONNECTIONS_MAX: u32 = 20;
/// A checkpoint of a busy machine may hold a drop up; a test's end does not wait for more.
const DROP_WAIT: Duration = Duration::from_secs(10);
/// Held while the template is made, in the maintenance database: "postride" as a number.
const TEMPLATE_LOCK: i64 = 0x706F_7374_7269_6465;

/// A migrated database of this test's own, copied from a template. Dropping this drops the database.
#[derive(Debug)]
pub struct TestDb {
    name: String,
    url: String,
    server: String,
    pool: PgPool,
}

impl TestDb {
    /// A new database on the run's server ([`SERVER_VARIABLE`](crate::SERVER_VARIABLE)), else on one that this process
    /// starts.
    ///
    /// # Panics
    /// If there is no server or the database cannot be made, with what to do about it.
    pub async fn fresh() -> Self {
        Self::try_fresh().await.unwrap_or_else(|error| panic!("no database for this test: {error:#}"))
    }

    async fn try_fresh() -> anyhow::Result<Self> {
        let server = tokio::task::spawn_blocking(shared_server).await??;
        let template = template(&server).await.context("cannot make the template")?;
        let name = format!("test_{}", Uuid::new_v4().simple());
        copy_database(&server, &name, &template).await?;
        let url = in_database(&server, &name);
        let options = PgConnectOptions::from_str(&url)?;
        let pool = PgPoolOptions::new().max_connections(POOL_CONNECTIONS_MAX).connect_lazy_with(options);
        Ok(Self { name, url, server, pool })
    }

    /// Connections to the database.
    pub fn pool(&self) -> &PgPool {
        &self.pool
    }

    /// The URL of the database.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The name of the database.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl Drop for TestDb {
    /// Waits, since a test's process may end right after; on a thread with a runtime of its own, since a drop cannot
    /// await and the test's runtime may be the thread that waits. A database that stays goes with its server.
    fn drop(&mut self) {
        let (server, name) = (self.server.clone(), self.name.clone());
        let (done, end) = mpsc::channel();
        let thread = thread::Builder::new().name("postrider-drop".into()).spawn(move || {
            if let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() {
                let _ = runtime.block_on(drop_database(&server, &name));
            }
            let _ = done.send(());
        });
        if thread.is_ok() {
            let _ = end.recv_timeout(DROP_WAIT);
        }
    }
}

/// The name of the migrated template, which is made once for each state of the migrations, by whoever comes first.
async fn template(server: &str) -> anyhow::Result<String> {
    let mut name = format!("postrider_template_{}", migrate::fingerprint());
    name.truncate(60); // Postgres cuts names at 63 bytes
    let mut maintenance = PgConnection::connect(server).await.with_context(|| format!("cannot connect to {server}"))?;
    if !is_template(&mut maintenance, &name).await? {
        let mut turn = maintenance.begin().await?;
        sqlx::query_scalar::<_, String>("select pg_advisory_xact_lock($1)::text")
            .bind(TEMPLATE_LOCK)
            .fetch_one(&mut *turn)
            .await?;
        if !is_template(&mut turn, &name).await? {
            make_template(server, &name).await?;
        }
        turn.commit().await?;
    }
    maintenance.close().await?;
    Ok(name)
}

async fn is_template(connection: &mut PgConnection, name: &str) -> sqlx::Result<bool> {
    let sql = "select exists (select from pg_catalog.pg_database where datname = $1 and datistemplate)";
    sqlx::query_scalar(sql).bind(name).fetch_one(connection).await
}

/// The last step says that the template is whole. What a killed process left half done is made anew.
async fn make_template(server: &str, name: &str) -> anyhow::Result<()> {
    drop_database(server, name).await?;
    create_database(server, name, "template1").await?;
    let options = PgConnectOptions::from_str(&in_database(server, name))?;
    let pool = PgPoolOptions::new().max_connections(2).connect_with(options).await?;
    migrate::run(&pool, migrate::Component::ALL).await?;
    pool.close().await;
    // Nobody may connect: a database with a connection cannot be copied.
    execute(server, format!("alter database {name} is_template true allow_connections false")).await?;
    Ok(())
}

/// Copies a database. The names are ours, of letters, digits and underscores.
pub(crate) async fn create_database(server: &str, name: &str, template: &str) -> sqlx::Result<()> {
    execute(server, format!("create database {name} template {template}")).await
}

/// The same, file by file where that is the quicker way: where nothing waits for the disk.
async fn copy_database(server: &str, name: &str, template: &str) -> sqlx::Result<()> {
    let mut connection = PgConnection::connect(server).await?;
    let files = "select current_setting('fsync') = 'off' and current_setting('server_version_num')::int >= 150000";
    let files: bool = sqlx::query_scalar(files).fetch_one(&mut connection).await?;
    let strategy = if files { "strategy file_copy" } else { "" };
    let copy = format!("create database {name} template {template} {strategy}");
    connection.execute(sqlx::raw_sql(AssertSqlSafe(copy))).await?;
    connection.close().await
}

async fn drop_database(server: &str, name: &str) -> sqlx::Result<()> {
    execute(server, format!("drop database if exists {name} with (force)")).await
}

async fn execute(server: &str, sql: String) -> sqlx::Result<()> {
    let mut connection = PgConnection::connect(server).await?;
    connection.execute(sqlx::raw_sql(AssertSqlSafe(sql))).await?;
    connection.close().await
}

/// The URL of another database of the same server.
fn in_database(server: &str, name: &str) -> String {
    let (address, parameters) = server.split_once('?').map_or((server, None), |(a, p)| (a, Some(p)));
    let authority = address.find("://").map_or(0, |scheme| scheme + 3);
    let end = address.get(authority..).and_then(|rest| rest.find('/')).map_or(address.len(), |path| authority + path);
    let parameters = parameters.map_or_else(String::new, |parameters| format!("?{parameters}"));
    format!("{}/{name}{parameters}", address.get(..end).unwrap_or(address))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_database_of_a_url_is_replaced_and_the_rest_stays() {
        for (server, expected) in [
            (
                "postgres://postgres@%2Ftmp%2Frun:5432/postgres?sslmode=disable",
                "postgres://postgres@%2Ftmp%2Frun:5432/x?sslmode=disable",
            ),
            ("postgres://u:p@host/postgres", "postgres://u:p@host/x"),
            ("postgres://u:p@host", "postgres://u:p@host/x"),
            ("postgres://host?user=a/b", "postgres://host/x?user=a/b"),
        ] {
            assert_eq!(in_database(server, "x"), expected);
        }
    }
}
