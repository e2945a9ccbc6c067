use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context as _, bail};
use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions as _, Connection as _};
use tokio::time::{Instant, sleep};
use uuid::Uuid;

const START_MOST: Duration = Duration::from_secs(10);
/// A name for the socket in a folder of its own: nothing listens on the port.
const PORT: u16 = 6432;
/// Sessions of the server for each database and role: fewer than the connections of any bus.
const FEW: u16 = 2;
/// Ends the pooler when its standard input ends, so that it does not outlive a test that was killed.
const KEEPER: &str = r#""$@" & pooler=$!; cat >/dev/null; kill -KILL "$pooler""#;

/// A `PgBouncer` in transaction mode before a Postgres. Its sessions take turns, so that no two transactions of a client have the same one
/// but by chance, and one that idles for a second is closed. It ends when this is dropped.
#[derive(Debug)]
pub struct PgBouncer {
    keeper: Child,
    folder: PathBuf,
    url: String,
}

impl PgBouncer {
    /// Starts one before the database of a URL, which names its host or socket in the usual place, with two sessions for all of its
    /// clients.
    ///
    /// # Panics
    /// If there is no `pgbouncer` on this machine, or it does not start, with what it wrote.
    pub async fn before(url: &str) -> Self {
        Self::with_sessions(url, FEW).await
    }

    /// The same, with so many sessions: for an application that holds some transactions open.
    ///
    /// # Panics
    /// As above.
    pub async fn with_sessions(url: &str, sessions: u16) -> Self {
        Self::start(url, sessions).await.unwrap_or_else(|error| panic!("no PgBouncer before {url}: {error:#}"))
    }

    async fn start(url: &str, sessions: u16) -> anyhow::Result<Self> {
        let folder = std::env::temp_dir().join(format!("postrider-pgbouncer-{}", Uuid::new_v4().simple()));
        fs::create_dir(&folder)?;
        // another user, if this is root, makes the socket and the log in it
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o777))?;
        let options = PgConnectOptions::from_str(url)?;
        let file = folder.join("pgbouncer.ini");
        fs::write(&file, configuration(&options, &folder, sessions))?;
        let database = options.get_database().unwrap_or(options.get_username());
        let socket: String = folder.to_string_lossy().replace('/', "%2F");
        let user = options.get_username();
        let through = format!("postgres://{user}@{socket}:{PORT}/{database}?sslmode=disable");
        let keeper = start(&file).context("the package pgbouncer is needed")?;
        let pooler = Self { keeper, folder, url: through };
        pooler.wait().await?;
        Ok(pooler)
    }

    /// The same database, through the pooler.
    pub fn url(&self) -> &str {
        &self.url
    }

    async fn wait(&self) -> anyhow::Result<()> {
        let options = PgConnectOptions::from_str(&self.url)?.extra_float_digits(None);
        let start = Instant::now();
        loop {
            match options.connect().await {
                Ok(connection) => return Ok(connection.close().await?),
                Err(error) if start.elapsed() > START_MOST => {
                    let log = fs::read_to_string(self.folder.join("pgbouncer.log")).unwrap_or_default();
                    bail!("it does not answer: {error}\n{log}");
                }
                Err(_) => sleep(Duration::from_millis(20)).await,
            }
        }
    }
}

impl Drop for PgBouncer {
    fn drop(&mut self) {
        // the end of its input is the keeper's sign
        drop(self.keeper.stdin.take());
        let _ = self.keeper.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Each client is the user of the URL; what a start may ask for is what `PgBouncer` allows by itself.
fn configuration(options: &PgConnectOptions, folder: &Path, sessions: u16) -> String {
    let host = options.get_socket().map_or_else(|| options.get_host().to_owned(), |s| s.display().to_string());
    let (port, user, folder) = (options.get_port(), options.get_username(), folder.display());
    format!(
        "[databases]\n* = host={host} port={port} user={user}\n\n[pgbouncer]\n\
         listen_port = {PORT}\nunix_socket_dir = {folder}\nunix_socket_mode = 0777\n\
         auth_type = any\npool_mode = transaction\ndefault_pool_size = {sessions}\nmax_client_conn = 1000\n\
         server_round_robin = 1\nserver_idle_timeout = 1\n\
         logfile = {folder}/pgbouncer.log\n"
    )
}

fn start(file: &Path) -> io::Result<Child> {
    let known = ["/usr/sbin/pgbouncer", "/usr/local/sbin/pgbouncer", "/opt/homebrew/bin/pgbouncer"];
    let program = known.into_iter().find(|path| Path::new(path).is_file()).unwrap_or("pgbouncer");
    let mut command = Command::new("sh");
    command.args(["-c", KEEPER, "sh", program, "-q"]);
    if rustix::process::geteuid().is_root() {
        // it refuses to be root; the server's socket is open to the user that the server runs as
        let passwd = fs::read_to_string("/etc/passwd")?;
        let postgres = passwd.lines().any(|line| line.starts_with("postgres:"));
        command.args(["-u", if postgres { "postgres" } else { "nobody" }]);
    }
    command.arg(file).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()
}
