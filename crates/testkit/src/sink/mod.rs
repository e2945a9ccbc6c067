//! A receiver of webhooks that follows a script, and the name server that leads to it.

mod reply; // what it is told to do
mod request; // what it keeps
mod tls; // what it shows before, and how that may be wrong
mod serve; // one connection, byte by byte
mod h2; // the same over HTTP/2
mod names; // who says where it is

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustls::pki_types::CertificateDer;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

pub use names::{NameServer, Said};
pub use reply::Reply;
pub use request::Request;
pub use tls::TlsFault;

use tls::Manner;

const HTTP_2: &[u8] = b"h2";
const HTTP_1: &[u8] = b"http/1.1";
const LOOPBACK: &str = "127.0.0.1:0";

/// A webhook receiver on the loopback that does what its script says, byte by byte, and keeps every request as it came.
///
/// It answers `204` when the script is empty. Its task ends with it.
#[derive(Debug)]
pub struct Sink {
    address: SocketAddr,
    certificate: Option<CertificateDer<'static>>,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct Shared {
    script: Mutex<VecDeque<Reply>>,
    requests: Mutex<Vec<Request>>,
    dialled: Mutex<Vec<SocketAddr>>,
    open: AtomicU64,
    bytes_sent: AtomicU64,
}

impl Sink {
    /// Starts a sink that speaks HTTP.
    pub async fn start() -> io::Result<Self> {
        Self::listen(LOOPBACK, None, Manner::Plain).await
    }

    /// Starts a sink that speaks HTTPS with a certificate of its own, for `127.0.0.1` and the given names.
    pub async fn start_tls(names: &[&str]) -> io::Result<Self> {
        Self::start_tls_at(LOOPBACK, names).await
    }

    /// The same, speaking HTTP/2 only.
    pub async fn start_h2(names: &[&str]) -> io::Result<Self> {
        let (certificate, manner) = tls::certified(with_loopback(names), &[HTTP_2])?;
        Self::listen(LOOPBACK, Some(certificate), manner).await
    }

    /// Agrees on HTTP/2, and then does with each connection what the script says, as soon as the head of a request is there: what a reply sends
    /// has to be frames, or is meant not to be.
    pub async fn start_h2_raw() -> io::Result<Self> {
        let (certificate, manner) = tls::certified(with_loopback(&[]), &[HTTP_2])?;
        let manner = if let Manner::Tls(acceptor) = manner { Manner::RawHttp2(acceptor) } else { manner };
        Self::listen(LOOPBACK, Some(certificate), manner).await
    }

    /// Starts a sink whose TLS is wrong.
    pub async fn start_tls_fault(fault: TlsFault) -> io::Result<Self> {
        let (certificate, manner) = tls::broken(fault)?;
        Self::listen(LOOPBACK, Some(certificate), manner).await
    }

    /// Starts a sink that speaks HTTP on an address such as `0.0.0.0:8080`.
    pub async fn start_at(address: &str) -> io::Result<Self> {
        Self::listen(address, None, Manner::Plain).await
    }

    /// Starts a sink that speaks HTTPS on an address, with a certificate for `127.0.0.1` and the given names or addresses.
    pub async fn start_tls_at(address: &str, names: &[&str]) -> io::Result<Self> {
        let (certificate, manner) = tls::certified(with_loopback(names), &[HTTP_1])?;
        Self::listen(address, Some(certificate), manner).await
    }

    async fn listen(address: &str, certificate: Option<CertificateDer<'static>>, manner: Manner) -> io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let (address, shared) = (listener.local_addr()?, Arc::<Shared>::default());
        let work = serve::accept(listener, manner, shared.clone());
        #[expect(
            clippy::disallowed_methods,
            reason = "the sink is its own supervisor: the task ends when it is dropped"
        )]
        let task = tokio::spawn(work);
        Ok(Self { address, certificate, shared, task })
    }

    /// The url of a path of the sink.
    pub fn url(&self, path: &str) -> String {
        let scheme = if self.certificate.is_some() { "https" } else { "http" };
        format!("{scheme}://{}{path}", self.address)
    }

    /// Where it listens.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// The certificate to trust, of a sink that speaks HTTPS.
    pub const fn certificate(&self) -> Option<&CertificateDer<'static>> {
        self.certificate.as_ref()
    }

    /// Adds to the script: one reply for each request, in the order in which they come.
    pub fn script(&self, replies: impl IntoIterator<Item = Reply>) {
        lock(&self.shared.script).extend(replies);
    }

    /// What came until now.
    pub fn requests(&self) -> Vec<Request> {
        lock(&self.shared.requests).clone()
    }

    /// Waits until this many requests came, and answers with all of them; after the limit with what there is.
    pub async fn wait_for(&self, count: usize, limit: Duration) -> Vec<Request> {
        let enough = async {
            while lock(&self.shared.requests).len() < count {
                sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(limit, enough).await.ok();
        self.requests()
    }

    /// How many connections were accepted, with or without a request.
    pub fn connections(&self) -> u64 {
        lock(&self.shared.dialled).len() as u64
    }

    /// The address of ours that was dialled for each connection, with or without a request. It tells something where the
    /// sink listens on more than one.
    pub fn dialled(&self) -> Vec<SocketAddr> {
        lock(&self.shared.dialled).clone()
    }

    /// How many connections are open now.
    pub fn open(&self) -> u64 {
        self.shared.open.load(Ordering::SeqCst)
    }

    /// How many bytes the other side's system took in answers.
    pub fn bytes_sent(&self) -> u64 {
        self.shared.bytes_sent.load(Ordering::Relaxed)
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Shared {
    fn next_reply(&self) -> Reply {
        lock(&self.script).pop_front().unwrap_or(Reply::Status(204))
    }
}

fn with_loopback(names: &[&str]) -> Vec<String> {
    names.iter().copied().chain(["127.0.0.1"]).map(str::to_owned).collect()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
