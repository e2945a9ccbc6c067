//! One POST. In: a target, headers, a body, a deadline. Out: what came of it, whatever that is.

mod connect; // to a vetted address, and to no other
mod link; // HTTP over it
mod pool; // and what is kept of it for the next request

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::header::{CONTENT_LENGTH, HOST, HeaderMap, HeaderName, HeaderValue, TRANSFER_ENCODING};
use hyper::{Request, Response, body::Incoming};
use postrider_contract::{Code, Refused};
use rustls::pki_types::CertificateDer;
use tokio::time::{Instant, timeout};

use crate::conceal::conceal;
use crate::failure::{Class, Failure};
use crate::guard::{BLOCKED, Guard, Unresolved, Vetted};
use crate::headers::Headers;
use crate::meter::Meter;
use crate::target::Target;
use connect::{HTTP_1, HTTP_2, connect, tried};
use link::{ANSWER_HEADERS_MAX, Link, Unanswered};
use pool::{Key, Pool};

/// How much of an answer is read at most, its head included, in bytes.
pub const ANSWER_BYTES_READ_MAX: u64 = 65_536;
/// How much of an answer's body is kept at most, in bytes.
pub const ANSWER_BYTES_KEPT_MAX: usize = 16_384;

const HEADER_BYTES_KEPT_MAX: usize = 1_024;

/// Posts to endpoints: resolves, vets, connects, sends, reads; under one deadline; follows nothing, decompresses nothing,
/// and takes no proxy from the environment.
#[derive(Debug, Clone)]
pub struct Client {
    guard: Guard,
    tls: Arc<rustls::ClientConfig>,
    pool: Pool,
}

/// One request.
#[derive(Debug, Clone, Copy)]
pub struct Post<'a> {
    /// Where to.
    pub target: &'a Target,
    /// Whose connections may be used again, as the id of an endpoint; nobody's if there is none.
    pub reuse: Option<i64>,
    /// Headers that the endpoint asks for.
    pub extra: &'a Headers,
    /// Header names in lower case and their values, applied last; `host` and `content-length` follow from the rest.
    pub headers: &'a [(&'static str, String)],
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

/// How long the parts of a request took; `None` for a part that did not end, or that a connection in use made unnecessary.
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

impl<'a> Post<'a> {
    /// A request without headers, over a connection of its own.
    pub const fn new(target: &'a Target, body: &'a [u8], deadline: Duration) -> Self {
        Self { target, reuse: None, extra: Headers::NONE, headers: &[], body, deadline }
    }
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
        tls.alpn_protocols = vec![HTTP_2.to_vec(), HTTP_1.to_vec()];
        Ok(Self { guard, tls: Arc::new(tls), pool: Pool::default() })
    }

    /// Posts once. Never fails otherwise than in [`Exchange::failure`], and never takes longer than the deadline. What the endpoint's headers say
    /// is not in the exchange, also if the receiver sends it back.
    pub async fn post(&self, post: Post<'_>) -> Exchange {
        let (mut seen, start) = (Exchange::default(), Instant::now());
        let mut meter = None;
        seen.failure = match timeout(post.deadline, self.exchange(post, &mut seen, &mut meter)).await {
            Ok(Ok(())) => None,
            Ok(Err(failure)) => Some(failure),
            Err(_) => Some(too_slow(post, &seen)),
        };
        seen.bytes_read = meter.map_or(0, |meter| meter.bytes_read());
        seen.took.total = start.elapsed();
        conceal(&mut seen, &post.extra.concealed());
        seen
    }

    async fn exchange(
        &self,
        post: Post<'_>,
        seen: &mut Exchange,
        meter: &mut Option<Arc<Meter>>,
    ) -> Result<(), Failure> {
        let start = Instant::now();
        let addresses = self.guard.resolve(post.target, post.deadline / 2).await.map_err(|why| match why {
            Unresolved::Blocked(_) => Failure::new(Class::Guard, BLOCKED),
            Unresolved::Dns(detail) => Failure::new(Class::Dns, detail),
            Unresolved::Local(detail) => Failure::new(Class::Local, detail),
        })?;
        seen.took.dns = Some(start.elapsed());
        if let Some(link) = self.resting(post, &addresses) {
            *meter = Some(link.meter().clone());
            match self.over(link, post, seen).await {
                Err(Unanswered::Unsent) => {}
                Err(Unanswered::Failed(failure)) => return Err(failure),
                Ok(()) => return Ok(()),
            }
        }
        seen.peer = None;
        let connected = connect(&addresses, post.target, &self.tls, seen).await?;
        let link = Link::open(connected).await?;
        *meter = Some(link.meter().clone());
        self.over(link, post, seen).await.map_err(|unanswered| match unanswered {
            Unanswered::Failed(failure) => failure,
            Unanswered::Unsent => Failure::new(Class::Reset, "the connection was closed before any answer"),
        })
    }

    /// A connection that the endpoint left open, to an address that its name has now.
    fn resting(&self, post: Post<'_>, addresses: &[Vetted]) -> Option<Link> {
        tried(addresses).iter().find_map(|vetted| {
            let address = SocketAddr::new(vetted.address(), post.target.port());
            self.pool.take(&key(post, address)?)
        })
    }

    /// One request over a connection, which rests afterwards if all of the answer was read.
    async fn over(&self, mut link: Link, post: Post<'_>, seen: &mut Exchange) -> Result<(), Unanswered> {
        let request = request(post, link.is_http_2()).map_err(Unanswered::Failed)?;
        seen.peer = Some(link.peer());
        let start = Instant::now();
        let (answer, began) = link.send(request).await?;
        seen.took.first_byte = Some(began.saturating_duration_since(start));
        let whole = read(answer, seen, link.meter()).await.map_err(Unanswered::Failed)?;
        if let (true, Some(key)) = (whole, key(post, link.peer())) {
            self.pool.rest(key, link);
        }
        Ok(())
    }
}

fn key(post: Post<'_>, address: SocketAddr) -> Option<Key> {
    let scheme = if post.target.is_https() { "https" } else { "http" };
    Some(Key { endpoint: post.reuse?, origin: format!("{scheme}://{}", post.target.authority()), address })
}

fn request(post: Post<'_>, is_http_2: bool) -> Result<Request<Full<Bytes>>, Failure> {
    let unsendable = || Failure::new(Class::Protocol, "the request has a header that cannot be sent");
    let (authority, path) = (post.target.authority(), post.target.path());
    let uri = if is_http_2 { format!("https://{authority}{path}") } else { path };
    let mut request = Request::post(uri)
        .body(Full::new(Bytes::copy_from_slice(post.body)))
        .map_err(|_| Failure::new(Class::Protocol, "the path of the url cannot be sent"))?;
    let headers = request.headers_mut();
    if !is_http_2 {
        headers.insert(HOST, HeaderValue::from_str(&authority).map_err(|_| unsendable())?);
    }
    headers.extend(post.extra.sent());
    for (name, value) in post.headers {
        headers.insert(HeaderName::from_static(name), HeaderValue::from_str(value).map_err(|_| unsendable())?);
    }
    Ok(request)
}

/// Reads an answer; answers whether all of it came, so that the connection can carry another one.
async fn read(answer: Response<Incoming>, seen: &mut Exchange, meter: &Meter) -> Result<bool, Failure> {
    if answer.headers().len() > ANSWER_HEADERS_MAX {
        return Err(Failure::new(Class::Protocol, "the answer has too many headers"));
    }
    // Two lengths are one too many to know where the next answer begins.
    let ambiguous = answer.headers().contains_key(CONTENT_LENGTH) && answer.headers().contains_key(TRANSFER_ENCODING);
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
            Err(_) if meter.bytes_read() >= ANSWER_BYTES_READ_MAX => return Ok(false),
            Err(e) => return Err(Failure::of_http(&e, meter)),
        }
    }
    Ok(!ambiguous && meter.bytes_read() < ANSWER_BYTES_READ_MAX)
}

fn kept_headers(headers: &HeaderMap) -> Vec<(String, Vec<u8>)> {
    let cut = |value: &HeaderValue| value.as_bytes().iter().copied().take(HEADER_BYTES_KEPT_MAX).collect();
    headers.iter().map(|(name, value)| (name.as_str().to_owned(), cut(value))).collect()
}

fn too_slow(post: Post<'_>, seen: &Exchange) -> Failure {
    let doing = match seen {
        Exchange { status: Some(_), .. } => "reading the answer",
        Exchange { took: Took { dns: None, .. }, .. } => "resolving the name",
        Exchange { peer: None, .. } => "connecting",
        // A connection that was in use was neither made nor agreed on.
        Exchange { took: Took { connect: Some(_), tls: None, .. }, .. } if post.target.is_https() => "agreeing on TLS",
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
        let headers = [("webhook-id", "evt_1".to_owned()), ("content-type", "application/json".to_owned())];
        let post = Post { headers: &headers, ..Post::new(&target, b"{}", Duration::from_secs(1)) };
        let request = request(post, false).unwrap();
        assert_eq!(request.uri(), "/in?x=1");
        let over_http_2 = super::request(post, true).unwrap();
        assert_eq!(over_http_2.uri(), "https://hooks.example.com:8443/in?x=1");
        assert_eq!(over_http_2.headers().get("host"), None, "it is a pseudo header there");
        let names: Vec<_> = request.headers().iter().map(|(n, v)| (n.as_str(), v.to_str().unwrap())).collect();
        let expected =
            [("host", "hooks.example.com:8443"), ("webhook-id", "evt_1"), ("content-type", "application/json")];
        assert_eq!(names, expected);
    }

    #[test]
    fn what_is_signed_is_applied_last() {
        let target = Target::parse("https://hooks.example.com/in").unwrap();
        let headers = [("webhook-id", "evt_1".to_owned()), ("x-own", "ours".to_owned())];
        let extra = Headers::new([("x-own", "theirs"), ("x-other", "kept")]).unwrap();
        let post = Post { headers: &headers, extra: &extra, ..Post::new(&target, b"{}", Duration::from_secs(1)) };
        let request = request(post, false).unwrap();
        let values: Vec<_> = request.headers().get_all("x-own").iter().collect();
        assert_eq!(
            (values, request.headers()["x-other"].to_str().unwrap()),
            (vec![&HeaderValue::from_static("ours")], "kept")
        );
    }

    #[test]
    fn a_value_with_a_line_end_is_never_sent() {
        let target = Target::parse("https://hooks.example.com/").unwrap();
        let headers = [("webhook-id", "a\r\nx-b: c".to_owned())];
        let post = Post { headers: &headers, ..Post::new(&target, b"{}", Duration::from_secs(1)) };
        assert_eq!(request(post, false).unwrap_err().class, Class::Protocol);
    }

    #[test]
    fn what_was_being_done_when_time_ran_out_is_told() {
        let target = Target::parse("https://hooks.example.com/").unwrap();
        let post = Post::new(&target, b"", Duration::from_secs(15));
        let mut seen = Exchange::default();
        let mut said = vec![too_slow(post, &seen).detail];
        seen.took.dns = Some(Duration::ZERO);
        said.push(too_slow(post, &seen).detail);
        (seen.took.connect, seen.peer) = (Some(Duration::ZERO), Some("9.9.9.9:443".parse().unwrap()));
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
        let reused = Exchange { peer: seen.peer, took: Took { dns: Some(Duration::ZERO), ..Took::default() }, ..seen };
        let reused = Exchange { status: None, ..reused };
        assert!(too_slow(post, &reused).detail.ends_with("waiting for the answer"));
    }
}
