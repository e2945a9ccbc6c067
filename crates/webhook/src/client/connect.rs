use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsConnector;

use super::Exchange;
use crate::failure::{Class, Failure};
use crate::guard::{BLOCKED, Vetted};
use crate::target::{Target, TargetHost};

pub(super) const HTTP_2: &[u8] = b"h2";
pub(super) const HTTP_1: &[u8] = b"http/1.1";

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// More addresses of one name are not tried: each of them costs a part of the time to connect.
const ADDRESSES_TRIED_MAX: usize = 3;

/// Bytes to and from an endpoint, with TLS or without.
pub(super) trait Wire: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Wire for T {}

/// A connection to an address that was vetted.
pub(super) struct Connected {
    pub(super) wire: Box<dyn Wire>,
    pub(super) peer: SocketAddr,
    pub(super) is_http_2: bool,
}

/// The addresses that are tried.
pub(super) fn tried(addresses: &[Vetted]) -> &[Vetted] {
    addresses.get(..ADDRESSES_TRIED_MAX).unwrap_or(addresses)
}

/// Connects to the first vetted address that takes the connection, makes sure that it is the one that was meant, and agrees on TLS if
/// the url asks for it.
pub(super) async fn connect(
    addresses: &[Vetted],
    target: &Target,
    tls: &Arc<rustls::ClientConfig>,
    seen: &mut Exchange,
) -> Result<Connected, Failure> {
    let start = Instant::now();
    let (stream, peer) = dial(tried(addresses), target.port()).await?;
    seen.took.connect = Some(start.elapsed());
    seen.peer = Some(peer);
    if !target.is_https() {
        return Ok(Connected { wire: Box::new(stream), peer, is_http_2: false });
    }
    let start = Instant::now();
    let stream =
        TlsConnector::from(tls.clone()).connect(server_name(target)?, stream).await.map_err(|e| Failure::of_tls(&e))?;
    seen.took.tls = Some(start.elapsed());
    let is_http_2 = stream.get_ref().1.alpn_protocol() == Some(HTTP_2);
    Ok(Connected { wire: Box::new(stream), peer, is_http_2 })
}

async fn dial(addresses: &[Vetted], port: u16) -> Result<(TcpStream, SocketAddr), Failure> {
    let share = CONNECT_TIMEOUT / u32::try_from(addresses.len().max(1)).unwrap_or(1);
    let mut last = Failure::new(Class::Unreachable, "there is no address to connect to");
    for vetted in addresses {
        let address = SocketAddr::new(vetted.address(), port);
        last = match timeout(share, TcpStream::connect(address)).await {
            Ok(Ok(stream)) if stream.peer_addr().is_ok_and(|peer| peer == address) => {
                // Small requests: waiting for more to send would only cost time. A socket that refuses still works.
                stream.set_nodelay(true).ok();
                return Ok((stream, address));
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
