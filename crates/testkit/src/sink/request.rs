use std::net::SocketAddr;

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use tokio::time::Instant;

/// A request as it came in.
#[derive(Debug, Clone)]
pub struct Request {
    /// When its last byte was read.
    pub at: Instant,
    /// Which connection of the sink it came over, counted from 0.
    pub connection: u64,
    /// The address of ours that was dialled for it.
    pub dialled: SocketAddr,
    /// Request line and headers, raw, with the blank line. Of HTTP/2: what HTTP/1.1 would have sent, its line ending in
    /// `HTTP/2` and its pseudo headers `:scheme` and `:authority` before the others.
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
        let lines = head.split("\r\n").skip(1).filter(|line| !line.is_empty());
        // A pseudo header begins with a colon of its own.
        let pairs = lines.filter_map(|line| {
            let at = line.get(1..)?.find(':')? + 1;
            Some((line.get(..at)?.to_owned(), line.get(at + 1..)?.trim().to_owned()))
        });
        pairs.collect()
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
