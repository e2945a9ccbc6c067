//! A proxy between a client and Postgres that knows the protocol, so that a connection fails at a chosen message.
//!
//! It listens on the loopback and speaks without encryption: a client that asks for it is answered no. Each connection gets a
//! [`Script`] when it says who it is; a running one can be cut, stalled or swallowed at any time.
//!
//! ```no_run
//! # async fn example(db: postrider_testkit::TestDb) {
//! use postrider_testkit::proxy::{At, Cut, Fault, Proxy, Script};
//!
//! let proxy = Proxy::before(db.url()).await;
//! // the reply to the second commit of each connection that claims is lost
//! proxy.script(|hello| match hello.application.as_str() {
//!     "postrider claim" => Script::new().at(At::Committed(2), Fault::Cut(Cut::Rst)),
//!     _ => Script::new(),
//! });
//! let pool = sqlx::PgPool::connect(&proxy.url()).await;
//! # }
//! ```

mod frame; // a stream taken apart into messages
mod track; // which message commits
mod script; // what is to happen to a connection
mod session; // what becomes of a message
mod pump; // bytes in, bytes out

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::Context as _;
use sqlx::postgres::PgConnectOptions;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use pump::{Link, Upstream};
pub use script::{At, Counts, Cut, Fault, Hello, Script, Side};

type Scripts = Arc<dyn Fn(&Hello) -> Script + Send + Sync>;

/// Stands between clients and a Postgres. When it is dropped, its connections end.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    user: String,
    database: String,
    shared: Arc<Shared>,
    _tasks: JoinSet<()>,
}

struct Shared {
    upstream: Upstream,
    scripts: Mutex<Scripts>,
    refuses: AtomicBool,
    links: Mutex<Links>,
}

/// The open connections, and what the ended ones said.
#[derive(Debug, Default)]
struct Links {
    accepted: u64,
    open: Vec<Arc<Link>>,
    ended: Counts,
    ended_fired: u64,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("upstream", &self.upstream).finish_non_exhaustive()
    }
}

impl Shared {
    fn links(&self) -> MutexGuard<'_, Links> {
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn scripts(&self) -> MutexGuard<'_, Scripts> {
        self.scripts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Proxy {
    /// Listens before the Postgres of a URL, which may name a Unix socket or a host. Forwards everything until it is told otherwise.
    ///
    /// # Panics
    /// If the URL is none, or nothing can be listened on.
    pub async fn before(url: &str) -> Self {
        Self::try_before(url).await.unwrap_or_else(|error| panic!("no proxy before {url}: {error:#}"))
    }

    async fn try_before(url: &str) -> anyhow::Result<Self> {
        let options = PgConnectOptions::from_str(url).context("it is not the URL of a Postgres")?;
        let port = options.get_port();
        let socket = options.get_socket().map(|folder| folder.join(format!(".s.PGSQL.{port}")));
        let upstream = socket.map_or_else(|| Upstream::Tcp(options.get_host().to_owned(), port), Upstream::Unix);
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let user = url.split_once("://").map_or(url, |(_, rest)| rest).rsplit_once('@').map_or("", |(user, _)| user);
        let shared = Arc::new(Shared {
            upstream,
            scripts: Mutex::new(Arc::new(|_| Script::new())),
            refuses: AtomicBool::new(false),
            links: Mutex::default(),
        });
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(listener, Arc::clone(&shared)));
        let database = options.get_database().unwrap_or(options.get_username()).to_owned();
        Ok(Self { address, user: user.to_owned(), database, shared, _tasks: tasks })
    }

    /// The same user and database, through the proxy.
    pub fn url(&self) -> String {
        let at = if self.user.is_empty() { "" } else { "@" };
        format!("postgres://{}{at}{}/{}?sslmode=disable", self.user, self.address, self.database)
    }

    /// What happens to each connection from now on; asked when it has said who it is.
    pub fn script(&self, script: impl Fn(&Hello) -> Script + Send + Sync + 'static) {
        *self.shared.scripts() = Arc::new(script);
    }

    /// Whether new connections are closed at once, as by a server that is down.
    pub fn refuse(&self, refuses: bool) {
        self.shared.refuses.store(refuses, Ordering::SeqCst);
    }

    /// The open connections, the oldest first.
    pub fn connections(&self) -> Vec<Connection> {
        self.shared.links().open.iter().cloned().map(Connection).collect()
    }

    /// Does this to every open connection.
    pub fn act(&self, fault: Fault) {
        self.connections().iter().for_each(|connection| connection.act(fault));
    }

    /// Ends the stall of every connection.
    pub fn resume(&self) {
        self.connections().iter().for_each(Connection::resume);
    }

    /// How many connections were accepted so far.
    pub fn accepted(&self) -> u64 {
        self.shared.links().accepted
    }

    /// The messages of all connections so far.
    pub fn counts(&self) -> Counts {
        let links = self.shared.links();
        let mut counts = links.ended.clone();
        links.open.iter().for_each(|link| counts.add(&link.session().counts));
        counts
    }

    /// How many scripted faults befell a connection so far. One that did not is a test that did not happen.
    pub fn fired(&self) -> u64 {
        let links = self.shared.links();
        links.ended_fired + links.open.iter().map(|link| link.session().fired).sum::<u64>()
    }
}

/// An open connection of the proxy.
#[derive(Debug, Clone)]
pub struct Connection(Arc<Link>);

impl Connection {
    /// Who it is; only its number until its startup message has come.
    pub fn hello(&self) -> Hello {
        self.0.session().hello.clone()
    }

    /// Does this to it, now.
    pub fn act(&self, fault: Fault) {
        self.0.act(fault);
    }

    /// Ends its stall.
    pub fn resume(&self) {
        self.0.resume();
    }

    /// Its messages so far.
    pub fn counts(&self) -> Counts {
        self.0.session().counts.clone()
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((client, _)) = accepted else { continue };
                if !shared.refuses.load(Ordering::SeqCst) && client.set_nodelay(true).is_ok() {
                    connections.spawn(serve(client, Arc::clone(&shared)));
                }
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn serve(client: TcpStream, shared: Arc<Shared>) {
    let link = {
        let mut links = shared.links();
        links.accepted += 1;
        let link = Arc::new(Link::new(links.accepted));
        links.open.push(Arc::clone(&link));
        link
    };
    let scripts = Arc::clone(&shared.scripts());
    pump::serve(&link, client, &shared.upstream, scripts.as_ref()).await;
    let mut links = shared.links();
    links.open.retain(|open| !Arc::ptr_eq(open, &link));
    let session = link.session();
    links.ended.add(&session.counts);
    links.ended_fired += session.fired;
}
