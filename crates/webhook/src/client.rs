use std::borrow::Cow;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1;
use hyper::header::{HOST, HeaderMap, HeaderName, HeaderValue};
use hyper::{Request, Response, body::Incoming};
use hyper_util::rt::TokioIo;
use postrider_contract::{Code, Refused};
use rustls::pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsConnector;

use crate::failure::{Class, Failure};
use crate::guard::{BLOCKED, Guard, Unresolved, Vetted};
use crate::meter::{Meter, Metered};
use crate::target::{Target, TargetHost};

/// How much of an answer is read at most, its head included, in bytes.
pub const ANSWER_BYTES_READ_MAX: u64 = 65_536;
/// How much of an answer's body is kept at most, in bytes.
pub const ANSWER_BYTES_KEPT_MAX: usize = 16_384;

const ANSWER_HEADERS_MAX: usize = 100;
const HEADER_BYTES_KEPT_MAX: usize = 1_024;
const READ_BUFFER_BYTES: usize = 16_384;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// More addresses of one name are not tried: each of them costs a part of the time to connect.
const ADDRESSES_TRIED_MAX: usize = 3;

/// Posts to endpoints: resolves, vets, connects, sends, reads; under one deadline; follows nothing, decompresses nothing,
/// and takes no proxy from the environment.
#[derive(Debug, Clone)]
pub struct Client {
    guard: Guard,
    tls: Arc<rustls::ClientConfig>,
}

/// One request.
#[derive(Debug, Clone, Copy)]
pub struct Post<'a> {
    /// Where to.
    pub target: &'a Target,
    /// Header names in lower case and their values; `host` and `content-length` follow from the rest.
    pub headers: &'a [(Cow<'static, str>, String)],
    /// The exact bytes of the body.
    pub body: &'a [u8],
    /// How long everything together may take.
    pub deadline: Duration,
}

/// What came of a request. With a `failure` there may be a status nevertheless: the answer was not complete then.
#[derive(Debug, Clone, Default)]
pub struct Exchange {
    /// The status of the answer.
    pub status: Option<u16>,
    /// Why there is no complete answer.
    pub failure: Option<Failure>,
    /// The answer's headers, each value cut to 1 KiB.
    pub headers: Vec<(String, Vec<u8>)>,
    /// The first 16 KiB of the answer's body.
    pub body: Vec<u8>,
    /// How much of the answer was read, head and body, in bytes.
    pub bytes_read: u64,
    /// Who answered.
    pub peer: Option<SocketAddr>,
    /// What took how long.
    pub took: Took,
}

/// How long the parts of a request took; `None` for a part that did not end.
#[derive(Debug, Clone, Copy, Default)]
pub struct Took {
    /// To resolve the name.
    pub dns: Option<Duration>,
    /// To connect.
    pub connect: Option<Duration>,
    /// To agree on TLS.
    pub tls: Option<Duration>,
    /// From sending to the first byte of the answer.
    pub first_byte: Option<Duration>,
    /// All of it.
    pub total: Duration,
}

impl Exchange {
    /// The value of a header of the answer, if it is there once or more.
    pub fn header(&self, name: &str) -> Option<&[u8]> {
        self.headers.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_slice())
    }
}

impl Client {
    /// A client that trusts the public certificate authorities, and these roots beside them.
    pub fn new(guard: Guard, roots: impl IntoIterator<Item = CertificateDer<'static>>) -> Result<Self, Refused> {
        let mut trusted = rustls::RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
        for root in roots {
            trusted.add(root).map_err(|e| unusable("roots", &e, "give certificates in DER or PEM"))?;
        }
        let mut tls = rustls::ClientConfig::builder_with_provider(rustls::crypto::ring::default_provider().into())
            .with_safe_default_protocol_versions()
            .map_err(|e| unusable("tls", &e, "this build has no usable TLS"))?
            .with_root_certificates(trusted)
            .with_no_client_auth();
        tls.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self { guard, tls: Arc::new(tls) })
    }

    /// Posts once. Never fails otherwise than in [`Exchange::failure`], and never takes longer than the deadline.
    pub async fn post(&self, post: Post<'_>) -> Exchange {
        let (mut seen, start) = (Exchange::default(), Instant::now());
        let meter = Arc::new(Meter::default());
        seen.failure = match timeout(post.deadline, self.exchange(post, &mut seen, &meter)).await {
            Ok(Ok(())) => None,
            Ok(Err(failure)) => Some(failure),
            Err(_) => Some(too_slow(post, &seen)),
        };
        seen.bytes_read = meter.bytes_read();
        seen.took.total = start.elapsed();
        seen
    }

    async fn exchange(&self, post: Post<'_>, seen: &mut Exchange, meter: &Arc<Meter>) -> Result<(), Failure> {
        let start = Instant::now();
        let addresses = self.guard.resolve(post.target).await.map_err(|why| match why {
            Unresolved::Blocked(_) => Failure::new(Class::Guard, BLOCKED),
            Unresolved::Dns(detail) => Failure::new(Class::Dns, detail),
        })?;
        seen.took.dns = Some(start.elapsed());

        let start = Instant::now();
        let stream = connect(&addresses, post.target.port()).await?;
        seen.took.connect = Some(start.elapsed());
        seen.peer = stream.peer_addr().ok();
        if !post.target.is_https() {
            return send(Metered::new(stream, meter.clone()), post, seen, meter).await;
        }

        let start = Instant::now();
        let stream = TlsConnector::from(self.tls.clone())
            .connect(server_name(post.target)?, stream)
            .await
            .map_err(|e| Failure::of_tls(&e))?;
        seen.took.tls = Some(start.elapsed());
        send(Metered::new(stream, meter.clone()), post, seen, meter).await
    }
}

/// Connects to the first vetted address that takes the connection, and makes sure that it is the one that was meant.
async fn connect(addresses: &[Vetted], port: u16) -> Result<TcpStream, Failure> {
    let tried = addresses.len().clamp(1, ADDRESSES_TRIED_MAX);
    let share = CONNECT_TIMEOUT / u32::try_from(tried).unwrap_or(1);
    let mut last = Failure::new(Class::Unreachable, "there is no address to connect to");
    for vetted in addresses.iter().take(tried) {
        let address = SocketAddr::new(vetted.address(), port);
        last = match timeout(share, TcpStream::connect(address)).await {
            Ok(Ok(stream)) if stream.peer_addr().is_ok_and(|peer| peer == address) => {
                // Small requests: waiting for more to send would only cost time. A socket that refuses still works.
                stream.set_nodelay(true).ok();
                return Ok(stream);
            }
            Ok(Ok(_)) => return Err(Failure::new(Class::Guard, BLOCKED)),
            Ok(Err(e)) => Failure::of_connect(&e),
            Err(_) => Failure::new(Class::Timeout, format!("no connection within {} s", share.as_secs_f32())),
        };
    }
    Err(last)
}

fn server_name(target: &Target) -> Result<ServerName<'static>, Failure> {
    match target.host() {
        TargetHost::Address(address) => Ok(ServerName::IpAddress((*address).into())),
        TargetHost::Name(name) => ServerName::try_from(name.clone())
            .map_err(|_| Failure::new(Class::Tls, "the host is not a name that a certificate can have")),
    }
}

async fn send<S>(stream: Metered<S>, post: Post<'_>, seen: &mut Exchange, meter: &Meter) -> Result<(), Failure>
where
    S: AsyncRead + AsyncWrite + Unpin + Send,
{
    let request = request(post)?;
    let start = Instant::now();
    let (mut sender, connection) = http1::Builder::new()
        .max_headers(ANSWER_HEADERS_MAX)
        .max_buf_size(READ_BUFFER_BYTES)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(|e| Failure::of_http(&e, meter))?;
    let answered = async {
        let answer = sender.send_request(request).await;
        seen.took.first_byte = meter.first_byte().map(|at| at.saturating_duration_since(start));
        read(answer.map_err(|e| Failure::of_http(&e, meter))?, seen, meter).await
    };
    beside(connection, answered).await
}

/// Runs a future to its end while the connection under it is polled, in one task: what is dropped here is closed at once.
async fn beside<C, T>(connection: C, work: T) -> T::Output
where
    C: Future<Output = hyper::Result<()>>,
    T: Future,
{
    tokio::pin!(connection, work);
    tokio::select! {
        biased;
        done = &mut work => done,
        // How the connection ended is told to `work` through its channel.
        _ = &mut connection => work.await,
    }
}

fn request(post: Post<'_>) -> Result<Request<Full<Bytes>>, Failure> {
    let unsendable = || Failure::new(Class::Protocol, "the request has a header that cannot be sent");
    let mut request = Request::post(post.target.path())
        .body(Full::new(Bytes::copy_from_slice(post.body)))
        .map_err(|_| Failure::new(Class::Protocol, "the path of the url cannot be sent"))?;
    let headers = request.headers_mut();
    headers.insert(HOST, HeaderValue::from_str(&post.target.authority()).map_err(|_| unsendable())?);
    for (name, value) in post.headers {
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| unsendable())?;
        headers.insert(name, HeaderValue::from_str(value).map_err(|_| unsendable())?);
    }
    Ok(request)
}

async fn read(answer: Response<Incoming>, seen: &mut Exchange, meter: &Meter) -> Result<(), Failure> {
    seen.status = Some(answer.status().as_u16());
    seen.headers = kept_headers(answer.headers());
    let mut body = answer.into_body();
    while let Some(frame) = body.frame().await {
        match frame {
            Ok(frame) => {
                let data = frame.data_ref().map(Bytes::as_ref).unwrap_or_default();
                let room = ANSWER_BYTES_KEPT_MAX - seen.body.len();
                seen.body.extend(data.iter().take(room));
            }
            // The status is known and enough was read: the rest is nobody's business.
            Err(_) if meter.bytes_read() >= ANSWER_BYTES_READ_MAX => return Ok(()),
            Err(e) => return Err(Failure::of_http(&e, meter)),
        }
    }
    Ok(())
}

fn kept_headers(headers: &HeaderMap) -> Vec<(String, Vec<u8>)> {
    let cut = |value: &HeaderValue| value.as_bytes().iter().copied().take(HEADER_BYTES_KEPT_MAX).collect();
    headers.iter().map(|(name, value)| (name.as_str().to_owned(), cut(value))).collect()
}

fn too_slow(post: Post<'_>, seen: &Exchange) -> Failure {
    let doing = match seen {
        Exchange { status: Some(_), .. } => "reading the answer",
        Exchange { took: Took { dns: None, .. }, .. } => "resolving the name",
        Exchange { took: Took { connect: None, .. }, .. } => "connecting",
        Exchange { took: Took { tls: None, .. }, .. } if post.target.is_https() => "agreeing on TLS",
        _ => "waiting for the answer",
    };
    Failure::new(Class::Timeout, format!("{} s were over while {doing}", post.deadline.as_secs_f32()))
}

fn unusable(field: &str, error: &rustls::Error, remedy: &str) -> Refused {
    Refused::new(Code::Option, field, error.to_string(), remedy)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_request_has_exactly_the_headers_that_were_given_and_the_host() {
        let target = Target::parse("https://hooks.example.com:8443/in?x=1").unwrap();
        let headers =
            [("webhook-id".into(), "evt_1".to_owned()), ("content-type".into(), "application/json".to_owned())];
        let post = Post { target: &target, headers: &headers, body: b"{}", deadline: Duration::from_secs(1) };
        let request = request(post).unwrap();
        assert_eq!(request.uri(), "/in?x=1");
        let names: Vec<_> = request.headers().iter().map(|(n, v)| (n.as_str(), v.to_str().unwrap())).collect();
        let expected =
            [("host", "hooks.example.com:8443"), ("webhook-id", "evt_1"), ("content-type", "application/json")];
        assert_eq!(names, expected);
    }

    #[test]
    fn a_value_with_a_line_end_is_never_sent() {
        let target = Target::parse("https://hooks.example.com/").unwrap();
        let headers = [("webhook-id".into(), "a\r\nx-b: c".to_owned())];
        let post = Post { target: &target, headers: &headers, body: b"{}", deadline: Duration::from_secs(1) };
        assert_eq!(request(post).unwrap_err().class, Class::Protocol);
    }

    #[test]
    fn what_was_being_done_when_time_ran_out_is_told() {
        let target = Target::parse("https://hooks.example.com/").unwrap();
        let post = Post { target: &target, headers: &[], body: b"", deadline: Duration::from_secs(15) };
        let mut seen = Exchange::default();
        let mut said = vec![too_slow(post, &seen).detail];
        seen.took.dns = Some(Duration::ZERO);
        said.push(too_slow(post, &seen).detail);
        seen.took.connect = Some(Duration::ZERO);
        said.push(too_slow(post, &seen).detail);
        seen.took.tls = Some(Duration::ZERO);
        said.push(too_slow(post, &seen).detail);
        seen.status = Some(200);
        said.push(too_slow(post, &seen).detail);
        let ends =
            ["resolving the name", "connecting", "agreeing on TLS", "waiting for the answer", "reading the answer"];
        for (said, end) in said.iter().zip(ends) {
            assert!(said.starts_with("15 s") && said.ends_with(end), "{said}");
        }
    }
}
