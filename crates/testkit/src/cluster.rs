use std::path::PathBuf;
use std::str::FromStr;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use postrider::migrate;
use postrider_embedded::{Error, Home, Options, Postgres, find};
use sqlx::PgPool;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use crate::db::{POOL_CONNECTIONS_MAX, create_database};

/// The variable that names the server of a whole run: the URL of its maintenance database, as a superuser.
pub const SERVER_VARIABLE: &str = "POSTRIDER_TEST_SERVER";

const MAINTENANCE: &str = "postgres";
const DATABASE: &str = "postrider";

/// What a cluster for tests is started with: temporary, with room for many pools, and fsync as in production.
pub fn test_options() -> Options {
    Options::new(Home::Ephemeral)
        .setting("max_connections", "300")
        .setting("max_prepared_transactions", "20")
        .setting("shared_buffers", "128MB")
}

/// What the cluster that tests share is started with. It is never killed while anybody looks: nothing of it needs to survive that, and most
/// of a short test's time was the disk's.
pub fn shared_options() -> Options {
    test_options().setting("fsync", "off").setting("full_page_writes", "off")
}

/// The URL of the maintenance database of the run's server. Without a run there is one for this process, started when
/// it is first asked for; it ends with the process.
pub(crate) fn shared_server() -> Result<String, Arc<Error>> {
    static SERVER: OnceLock<Result<Postgres, Arc<Error>>> = OnceLock::new();
    if let Ok(server) = std::env::var(SERVER_VARIABLE) {
        return Ok(server);
    }
    let server = SERVER.get_or_init(|| Postgres::start(shared_options()).map_err(Arc::new));
    server.as_ref().map(|server| server.url(MAINTENANCE)).map_err(Arc::clone)
}

/// The `psql` of the Postgres that tests run on.
///
/// # Panics
/// If there is no Postgres on this machine, with what to do about it.
pub fn psql() -> PathBuf {
    match find(None, None) {
        Ok(installation) => installation.bin.join("psql"),
        Err(error) => panic!("no psql: {error}"),
    }
}

/// A Postgres of this test alone, with a migrated database, for tests that kill it. It ends when this is dropped.
#[derive(Debug)]
pub struct TestServer {
    postgres: Arc<Mutex<Postgres>>,
    url: String,
    pool: PgPool,
}

impl TestServer {
    /// Starts a cluster and migrates a database in it.
    ///
    /// # Panics
    /// If that fails, with what to do about it.
    pub async fn start() -> Self {
        Self::start_with(&[]).await
    }

    /// The same with these settings of the server on top.
    ///
    /// # Panics
    /// If that fails, with what to do about it.
    pub async fn start_with(settings: &[(&str, &str)]) -> Self {
        Self::with(settings.iter().fold(test_options(), |options, (name, value)| options.setting(name, value))).await
    }

    /// The same with these options.
    ///
    /// # Panics
    /// If that fails, with what to do about it.
    pub async fn with(options: Options) -> Self {
        Self::try_start(options).await.unwrap_or_else(|error| panic!("no Postgres for this test: {error:#}"))
    }

    async fn try_start(options: Options) -> anyhow::Result<Self> {
        let postgres = tokio::task::spawn_blocking(|| Postgres::start(options)).await??;
        let url = postgres.url(DATABASE);
        create_database(&postgres.url(MAINTENANCE), DATABASE, "template1").await?;
        let options = PgConnectOptions::from_str(&url)?;
        let pool = PgPoolOptions::new().max_connections(POOL_CONNECTIONS_MAX).connect_lazy_with(options);
        migrate::run(&pool, migrate::Component::ALL).await?;
        Ok(Self { postgres: Arc::new(Mutex::new(postgres)), url, pool })
    }

    /// The URL of the migrated database.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Connections to the migrated database. They break when the server is killed; the pool makes new ones.
    pub fn pool(&self) -> &PgPool {
        &self.pool
    }

    /// The process id of the server, unless it was killed.
    pub fn pid(&self) -> Option<u32> {
        self.postgres.lock().unwrap_or_else(PoisonError::into_inner).pid()
    }

    /// Kills the server with SIGKILL.
    ///
    /// # Panics
    /// If the system refuses.
    pub async fn kill(&self) {
        self.blocking("kill", Postgres::kill).await;
    }

    /// Stops the server cleanly; its data stays.
    ///
    /// # Panics
    /// If the system refuses.
    pub async fn halt(&self) {
        self.blocking("stop", Postgres::halt).await;
    }

    /// Starts the server again on its data, stopping it first if it runs.
    ///
    /// # Panics
    /// If it does not start, with the last lines of its log.
    pub async fn restart(&self) {
        self.blocking("restart", Postgres::restart).await;
    }

    async fn blocking(
        &self,
        verb: &'static str,
        act: impl FnOnce(&mut Postgres) -> Result<(), Error> + Send + 'static,
    ) {
        let postgres = Arc::clone(&self.postgres);
        let act = move || act(&mut postgres.lock().unwrap_or_else(PoisonError::into_inner));
        match tokio::task::spawn_blocking(act).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => panic!("cannot {verb} the Postgres of this test: {error}"),
            Err(error) => panic!("cannot {verb} the Postgres of this test: {error}"),
        }
    }
}
