use std::net::IpAddr;

use axum::extract::{Request, State};
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, HOST, HeaderName, HeaderValue, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
    X_FRAME_OPTIONS,
};
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};

/// What the page may load and do: its own style sheet, an empty icon, nothing else.
pub const POLICY: &str =
    "default-src 'none'; style-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const HEADERS: [(HeaderName, HeaderValue); 5] = [
    (CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY)),
    (X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    (X_FRAME_OPTIONS, HeaderValue::from_static("DENY")),
    (REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
    (CACHE_CONTROL, HeaderValue::from_static("no-store")),
];

/// Puts the policy on every answer.
pub(super) async fn with_policy(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    for (name, value) in HEADERS {
        response.headers_mut().insert(name, value);
    }
    response
}

/// Lets a request through to the page if this process listens on loopback and the request says so too.
pub(super) async fn only_loopback(State(listens): State<IpAddr>, request: Request, next: Next) -> Response {
    if !listens.is_loopback() {
        let told =
            "The page has no sign-in, so it is shown on a loopback address only: set listen to 127.0.0.1:7117.\n";
        return (StatusCode::FORBIDDEN, told).into_response();
    }
    if !host(request.headers()).is_some_and(names_loopback) {
        let told = "This host name is not served here: use localhost or the loopback address.\n";
        return (StatusCode::MISDIRECTED_REQUEST, told).into_response();
    }
    next.run(request).await
}

fn host(headers: &HeaderMap) -> Option<&str> {
    headers.get(HOST)?.to_str().ok()
}

/// Whether the value of a `Host` header names this machine by loopback: `localhost` or an address, with or without a
/// port.
pub fn names_loopback(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) && !name.is_empty() => name,
        _ => host,
    };
    if name.eq_ignore_ascii_case("localhost") {
        return true;
    }
    let bare = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    bare.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_hosts_are_named_so() {
        for good in ["localhost", "LOCALHOST:7117", "127.0.0.1", "127.0.0.1:7117", "127.9.9.9:1", "[::1]:7117", "[::1]"]
        {
            assert!(names_loopback(good), "{good}");
        }
        for bad in
            ["", ":7117", "evil.example", "localhost.evil.example:7117", "127.0.0.1.nip.io", "10.0.0.1:7117", "0.0.0.0"]
        {
            assert!(!names_loopback(bad), "{bad}");
        }
    }
}
