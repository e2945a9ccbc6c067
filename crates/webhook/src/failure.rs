use std::error::Error as StdError;
use std::io;

use crate::meter::Meter;

/// The longest detail of a failure, in characters; some of it may come from the other side.
const DETAIL_CHARS_MAX: usize = 200;

/// What kind of failure left a request without a complete answer; the same words stand in the table of attempts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Class {
    /// The guard does not allow the address.
    Guard,
    /// The name has no address.
    Dns,
    /// Nobody listens there.
    Refused,
    /// There is no way there.
    Unreachable,
    /// The connection was closed before any answer.
    Reset,
    /// TLS could not be agreed on, or the certificate is not one to trust.
    Tls,
    /// Time ran out.
    Timeout,
    /// What came was not a complete answer of HTTP.
    Protocol,
}

impl Class {
    /// Every class.
    pub const ALL: [Self; 8] = [
        Self::Guard,
        Self::Dns,
        Self::Refused,
        Self::Unreachable,
        Self::Reset,
        Self::Tls,
        Self::Timeout,
        Self::Protocol,
    ];

    /// The word in the table of attempts.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Guard => "guard",
            Self::Dns => "dns",
            Self::Refused => "refused",
            Self::Unreachable => "unreachable",
            Self::Reset => "reset",
            Self::Tls => "tls",
            Self::Timeout => "timeout",
            Self::Protocol => "protocol",
        }
    }
}

/// A failure: its class, and a sentence for the endpoint's owner.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: {detail}", class.as_str())]
pub struct Failure {
    /// What kind it is.
    pub class: Class,
    /// What happened, in at most 200 characters.
    pub detail: String,
}

impl Failure {
    pub(crate) fn new(class: Class, detail: impl Into<String>) -> Self {
        let detail: String = detail.into();
        Self { class, detail: detail.chars().take(DETAIL_CHARS_MAX).collect() }
    }

    pub(crate) fn of_connect(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::ConnectionRefused => Self::new(Class::Refused, "nobody listens there"),
            io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionAborted => {
                Self::new(Class::Reset, "the connection was reset while connecting")
            }
            io::ErrorKind::TimedOut => Self::new(Class::Timeout, "the connection was not answered"),
            _ => Self::new(Class::Unreachable, "there is no way to the address"),
        }
    }

    pub(crate) fn of_tls(error: &io::Error) -> Self {
        // What rustls says is about the certificate or the handshake, never about us.
        if let Some(tls) = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
            return Self::new(Class::Tls, tls.to_string());
        }
        match error.kind() {
            io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => {
                Self::new(Class::Reset, "the connection was reset during the handshake")
            }
            _ => Self::new(Class::Tls, "the connection was closed during the handshake"),
        }
    }

    pub(crate) fn of_http(error: &hyper::Error, meter: &Meter) -> Self {
        if error.is_parse() {
            return Self::new(Class::Protocol, "the answer is not HTTP, or its head is too large");
        }
        let reset = sources(error).filter_map(|source| source.downcast_ref::<io::Error>()).any(|io| {
            matches!(
                io.kind(),
                io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionAborted | io::ErrorKind::BrokenPipe
            )
        });
        if reset {
            return Self::new(Class::Reset, "the connection was reset");
        }
        if meter.bytes_read() == 0 {
            return Self::new(Class::Reset, "the connection was closed before any answer");
        }
        Self::new(Class::Protocol, "the answer ended before it was complete")
    }
}

fn sources<'a>(error: &'a hyper::Error) -> impl Iterator<Item = &'a (dyn StdError + 'static)> {
    let mut next: Option<&'a (dyn StdError + 'static)> = Some(error);
    std::iter::from_fn(move || {
        let error = next?;
        next = error.source();
        Some(error)
    })
}
