use std::io;
use std::sync::Arc;

use rcgen::{CertificateParams, DnType, KeyPair, date_time_ymd};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio_rustls::TlsAcceptor;
use uuid::Uuid;

/// What is wrong with the TLS of a sink. Its certificate, if it has one, is for `127.0.0.1` unless something else is said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TlsFault {
    /// The certificate has run out.
    Expired,
    /// The certificate begins in a far year.
    NotYetValid,
    /// The certificate is for `somebody-else.example.com`.
    WrongName,
    /// The connection is reset after the first bytes of the handshake.
    Cut,
    /// The handshake is never answered.
    Silent,
    /// The answer to the handshake is not TLS.
    NotTls,
}

/// How a sink takes its connections.
#[derive(Clone)]
pub(super) enum Manner {
    Plain,
    Tls(TlsAcceptor),
    /// HTTP/2 is agreed on, and what follows are the bytes of the script.
    RawHttp2(TlsAcceptor),
    Broken(TlsFault),
}

/// A certificate that signs itself, and the manner that shows it.
pub(super) fn certified(names: Vec<String>, protocols: &[&[u8]]) -> io::Result<(CertificateDer<'static>, Manner)> {
    manner(CertificateParams::new(names).map_err(io::Error::other)?, protocols)
}

pub(super) fn broken(fault: TlsFault) -> io::Result<(CertificateDer<'static>, Manner)> {
    let name = if fault == TlsFault::WrongName { "somebody-else.example.com" } else { "127.0.0.1" };
    let mut params = CertificateParams::new(vec![name.to_owned()]).map_err(io::Error::other)?;
    match fault {
        TlsFault::Expired => {
            params.not_before = date_time_ymd(2019, 1, 1);
            params.not_after = date_time_ymd(2020, 1, 1);
        }
        TlsFault::NotYetValid => params.not_before = date_time_ymd(2990, 1, 1),
        TlsFault::WrongName | TlsFault::Cut | TlsFault::Silent | TlsFault::NotTls => {}
    }
    let (certificate, manner) = manner(params, &[])?;
    let breaks = matches!(fault, TlsFault::Cut | TlsFault::Silent | TlsFault::NotTls);
    Ok((certificate, if breaks { Manner::Broken(fault) } else { manner }))
}

fn manner(mut params: CertificateParams, protocols: &[&[u8]]) -> io::Result<(CertificateDer<'static>, Manner)> {
    // Who trusts several of them must not take one for the issuer of another.
    params.distinguished_name.push(DnType::CommonName, Uuid::new_v4().to_string());
    let key = KeyPair::generate().map_err(io::Error::other)?;
    let certificate = params.self_signed(&key).map_err(io::Error::other)?.der().clone();
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let mut config = rustls::ServerConfig::builder_with_provider(rustls::crypto::ring::default_provider().into())
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_no_client_auth()
        .with_single_cert(vec![certificate.clone()], key)
        .map_err(io::Error::other)?;
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    Ok((certificate, Manner::Tls(TlsAcceptor::from(Arc::new(config)))))
}
