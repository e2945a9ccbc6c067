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
    /// It is our own side that cannot send; nothing of it is the endpoint's.
    Local,
}

impl Class {
    /// Every class.
    pub const ALL: [Self; 9] = [
        Self::Guard,
        Self::Dns,
        Self::Refused,
        Self::Unreachable,
        Self::Reset,
        Self::Tls,
        Self::Timeout,
        Self::Protocol,
        Self::Local,
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
            Self::Local => "local",
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
        if matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS)) {
            return Self::new(Class::Local, "this process may open no more connections");
        }
        match error.kind() {
            io::ErrorKind::OutOfMemory | io::ErrorKind::NetworkDown | io::ErrorKind::PermissionDenied => {
                Self::new(Class::Local, "this machine does not let the connection out")
            }
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

    /// Whether a server of HTTP/2 says that it did not look at the request.
    pub(crate) fn is_refused_stream(error: &hyper::Error) -> bool {
        of_http_2(error).is_some_and(|error| {
            let refused = error.reason() == Some(h2::Reason::REFUSED_STREAM);
            // What a server that goes away has begun, it ends; the others fail like this.
            let left = error.is_go_away() && error.reason() == Some(h2::Reason::NO_ERROR);
            error.is_remote() && (refused || left)
        })
    }

    pub(crate) fn of_http(error: &hyper::Error, meter: &Meter) -> Self {
        if of_http_2(error).is_some_and(|error| error.is_remote() && (error.is_reset() || error.is_go_away())) {
            return Self::new(Class::Reset, "the request was reset");
        }
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

fn of_http_2(error: &hyper::Error) -> Option<&h2::Error> {
    sources(error).find_map(|source| source.downcast_ref::<h2::Error>())
}

fn sources<'a>(error: &'a hyper::Error) -> impl Iterator<Item = &'a (dyn StdError + 'static)> {
    let mut next: Option<&'a (dyn StdError + 'static)> = Some(error);
    std::iter::from_fn(move || {
        let error = next?;
        next = error.source();
        Some(error)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_keeps_a_connection_from_being_opened_here_is_our_own() {
        for (error, class) in [
            (libc::EMFILE, Class::Local),
            (libc::ENFILE, Class::Local),
            (libc::ENOBUFS, Class::Local),
            (libc::ENOMEM, Class::Local),
            (libc::ENETDOWN, Class::Local),
            (libc::EACCES, Class::Local),
            (libc::EPERM, Class::Local),
            (libc::ECONNREFUSED, Class::Refused),
            (libc::ECONNRESET, Class::Reset),
            (libc::ECONNABORTED, Class::Reset),
            (libc::ETIMEDOUT, Class::Timeout),
            (libc::ENETUNREACH, Class::Unreachable),
            (libc::EHOSTUNREACH, Class::Unreachable),
            (libc::EADDRNOTAVAIL, Class::Unreachable),
        ] {
            assert_eq!(Failure::of_connect(&io::Error::from_raw_os_error(error)).class, class, "{error}");
        }
    }

    #[test]
    fn a_detail_is_never_long() {
        assert_eq!(Failure::new(Class::Tls, "ü".repeat(1_000)).detail.chars().count(), 200);
    }
}
