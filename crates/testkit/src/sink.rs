use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep, timeout};
use tokio_rustls::TlsAcceptor;

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

/// What the sink does with one request.
#[derive(Debug, Clone)]
pub enum Reply {
    /// Answers with this status and an empty body.
    Status(u16),
    /// Answers with this status, these headers and this body.
    Full(u16, Vec<(String, String)>, Vec<u8>),
    /// Waits, then does the other thing.
    After(Duration, Box<Reply>),
    /// Sends these bytes and closes properly; they need not be HTTP.
    Raw(Vec<u8>),
    /// Sends the bytes one at a time with a pause after each.
    Drip(Vec<u8>, Duration),
    /// Sends the first bytes, then the others again and again, until the other side closes.
    Endless(Vec<u8>, Vec<u8>),
    /// Sends the bytes, then resets the connection (RST).
    Reset(Vec<u8>),
    /// Closes its sending side at once and goes on reading.
    HalfClose,
    /// Sends the bytes, perhaps none, and then nothing more.
    Stall(Vec<u8>),
}

impl Reply {
    /// Answers with a status and one header.
    pub fn with_header(status: u16, name: &str, value: &str) -> Self {
        Self::Full(status, vec![(name.to_owned(), value.to_owned())], Vec::new())
    }

    /// Answers with a status and a body.
    pub fn with_body(status: u16, body: impl Into<Vec<u8>>) -> Self {
        Self::Full(status, Vec::new(), body.into())
    }
}

/// A request as it came in.
#[derive(Debug, Clone)]
pub struct Request {
    /// When its last byte was read.
    pub at: Instant,
    /// Request line and headers, raw, with the blank line.
    pub head: Vec<u8>,
    /// The body, raw.
    pub body: Vec<u8>,
}

impl Request {
    /// The first line.
    pub fn line(&self) -> String {
        String::from_utf8_lossy(self.head.split(|b| *b == b'\r').next().unwrap_or_default()).into_owned()
    }

    /// Names as they were spelt, and values, in their order.
    pub fn headers(&self) -> Vec<(String, String)> {
        let head = String::from_utf8_lossy(&self.head).into_owned();
        let lines = head.split("\r\n").skip(1).filter_map(|line| line.split_once(':'));
        lines.map(|(name, value)| (name.to_owned(), value.trim().to_owned())).collect()
    }

    /// The value of a header that is there exactly once.
    pub fn header(&self, name: &str) -> Option<String> {
        let mut found = self.headers().into_iter().filter(|(n, _)| n.eq_ignore_ascii_case(name));
        let value = found.next().map(|(_, value)| value);
        if found.next().is_some() { None } else { value }
    }

    /// Verifies the request with the independent `standardwebhooks` crate and the system's clock.
    pub fn verify(&self, secret: &str) -> Result<(), standardwebhooks::WebhookError> {
        let mut headers = HeaderMap::new();
        for (name, value) in self.headers() {
            if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::try_from(value)) {
                headers.append(name, value);
            }
        }
        standardwebhooks::Webhook::new(secret)?.verify(&self.body, &headers)
    }
}

#[derive(Debug, Default)]
struct Shared {
    script: Mutex<VecDeque<Reply>>,
    requests: Mutex<Vec<Request>>,
    connections: AtomicU64,
    bytes_sent: AtomicU64,
}

impl Sink {
    /// Starts a sink that speaks HTTP.
    pub async fn start() -> io::Result<Self> {
        Self::listen(None).await
    }

    /// Starts a sink that speaks HTTPS with a certificate of its own, for `127.0.0.1` and the given names.
    pub async fn start_tls(names: &[&str]) -> io::Result<Self> {
        let names: Vec<String> = names.iter().copied().chain(["127.0.0.1"]).map(str::to_owned).collect();
        Self::listen(Some(generate_simple_self_signed(names).map_err(io::Error::other)?)).await
    }

    async fn listen(certified: Option<CertifiedKey<rcgen::KeyPair>>) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let (address, shared) = (listener.local_addr()?, Arc::<Shared>::default());
        let certificate = certified.as_ref().map(|certified| certified.cert.der().clone());
        let acceptor = certified.as_ref().map(acceptor).transpose()?;
        let work = accept(listener, acceptor, shared.clone());
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
        self.shared.connections.load(Ordering::Relaxed)
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

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn acceptor(certified: &CertifiedKey<rcgen::KeyPair>) -> io::Result<TlsAcceptor> {
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(certified.signing_key.serialize_der()));
    let config = rustls::ServerConfig::builder_with_provider(rustls::crypto::ring::default_provider().into())
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_no_client_auth()
        .with_single_cert(vec![certified.cert.der().clone()], key)
        .map_err(io::Error::other)?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

async fn accept(listener: TcpListener, acceptor: Option<TlsAcceptor>, shared: Arc<Shared>) {
    let mut serving = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        shared.connections.fetch_add(1, Ordering::Relaxed);
        let (acceptor, shared) = (acceptor.clone(), shared.clone());
        serving.spawn(async move {
            // A connection that the other side gives up is what many scripts are for.
            let _given_up = match acceptor {
                None => serve(stream, &shared).await,
                Some(acceptor) => match acceptor.accept(stream).await {
                    Ok(stream) => serve(stream, &shared).await,
                    Err(error) => Err(error),
                },
            };
        });
    }
}

/// A connection that can be reset.
trait Wire: AsyncRead + AsyncWrite + Unpin + Send {
    fn tcp(&self) -> &TcpStream;
}

impl Wire for TcpStream {
    fn tcp(&self) -> &TcpStream {
        self
    }
}

impl Wire for tokio_rustls::server::TlsStream<TcpStream> {
    fn tcp(&self) -> &TcpStream {
        self.get_ref().0
    }
}

async fn serve(mut wire: impl Wire, shared: &Shared) -> io::Result<()> {
    while let Some(request) = receive(&mut wire).await? {
        lock(&shared.requests).push(request);
        let reply = lock(&shared.script).pop_front().unwrap_or(Reply::Status(204));
        if !act(&mut wire, reply, &shared.bytes_sent).await? {
            break;
        }
    }
    Ok(())
}

async fn receive(wire: &mut impl Wire) -> io::Result<Option<Request>> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match wire.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) if head.is_empty() => return Ok(None),
            Err(error) => return Err(error),
        }
    }
    let mut request = Request { at: Instant::now(), head, body: Vec::new() };
    let length = request.header("content-length").and_then(|value| value.parse().ok()).unwrap_or(0);
    request.body = vec![0; length];
    wire.read_exact(&mut request.body).await?;
    request.at = Instant::now();
    Ok(Some(request))
}

/// Does what the script says; answers whether the connection can carry another request.
async fn act(wire: &mut impl Wire, reply: Reply, sent: &AtomicU64) -> io::Result<bool> {
    let mut reply = reply;
    while let Reply::After(wait, then) = reply {
        sleep(wait).await;
        reply = *then;
    }
    match reply {
        Reply::Status(status) => write(wire, &full(status, &[], &[]), sent).await?,
        Reply::Full(status, headers, body) => write(wire, &full(status, &headers, &body), sent).await?,
        Reply::After(..) => {}
        Reply::Raw(bytes) => {
            write(wire, &bytes, sent).await?;
            wire.shutdown().await?;
            return Ok(false);
        }
        Reply::Drip(bytes, pause) => {
            for byte in bytes {
                write(wire, &[byte], sent).await?;
                sleep(pause).await;
            }
        }
        Reply::Endless(first, again) => {
            write(wire, &first, sent).await?;
            loop {
                write(wire, &again, sent).await?;
            }
        }
        Reply::Reset(bytes) => {
            write(wire, &bytes, sent).await?;
            wire.tcp().set_zero_linger()?;
            return Ok(false);
        }
        Reply::HalfClose => {
            wire.shutdown().await?;
            while wire.read_u8().await.is_ok() {}
            return Ok(false);
        }
        Reply::Stall(bytes) => {
            write(wire, &bytes, sent).await?;
            while wire.read_u8().await.is_ok() {}
            return Ok(false);
        }
    }
    Ok(true)
}

async fn write(wire: &mut impl Wire, bytes: &[u8], sent: &AtomicU64) -> io::Result<()> {
    wire.write_all(bytes).await?;
    wire.flush().await?;
    sent.fetch_add(bytes.len() as u64, Ordering::Relaxed);
    Ok(())
}

fn full(status: u16, headers: &[(String, String)], body: &[u8]) -> Vec<u8> {
    let mut answer = format!("HTTP/1.1 {status} Scripted\r\n").into_bytes();
    for (name, value) in headers {
        answer.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
    }
    if status != 204 {
        answer.extend_from_slice(format!("content-length: {}\r\n", body.len()).as_bytes());
    }
    answer.extend_from_slice(b"\r\n");
    answer.extend_from_slice(body);
    answer
}
