use std::fmt;

use hyper::header::{HeaderName, HeaderValue};
use postrider_contract::{Code, Refused};

const HEADERS_MAX: usize = 20;
const NAME_BYTES_MAX: usize = 100;
const VALUE_BYTES_MAX: usize = 4_096;
const BYTES_MAX: usize = 8_192;
/// What is shorter is found in many answers by chance.
const CONCEALED_BYTES_MIN: usize = 6;

/// Names that say what the request is or how it travels, and so are ours or the connection's. An answer that is compressed could not be
/// shown.
const REFUSED: [&str; 16] = [
    "accept-encoding",
    "connection",
    "expect",
    "host",
    "http2-settings",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "traceparent",
    "tracestate",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "user-agent",
];
const PREFIXES_REFUSED: [&str; 3] = ["webhook-", "content-", "ce-"];

/// Headers that an endpoint's requests carry beside ours. `authorization` is among those that are allowed, so they are sealed at rest, and
/// `Debug` shows their names alone.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Headers(Vec<(String, String)>);

impl Headers {
    pub(crate) const NONE: &'static Self = &Self(Vec::new());

    /// Names, in any case, and values. Refused, as `headers.` and the name: what is not a legal name or value, is there twice, is too
    /// long, or would stand in the place of what is signed or of what the connection needs. A refusal never shows a value.
    pub fn new<N: Into<String>, V: Into<String>>(pairs: impl IntoIterator<Item = (N, V)>) -> Result<Self, Refused> {
        let pairs: Vec<(String, String)> =
            pairs.into_iter().map(|(name, value)| (name.into().to_ascii_lowercase(), value.into())).collect();
        for (n, (name, value)) in pairs.iter().enumerate() {
            check(name, value)?;
            if pairs.iter().take(n).any(|(other, _)| other == name) {
                return Err(refused(name, "it is there twice", "give each name once"));
            }
        }
        let bytes: usize = pairs.iter().map(|(name, value)| name.len() + value.len()).sum();
        if pairs.len() > HEADERS_MAX || bytes > BYTES_MAX {
            let message =
                format!("there are {} of {bytes} bytes, the limits are {HEADERS_MAX} and {BYTES_MAX}", pairs.len());
            return Err(Refused::new(Code::Size, "headers", message, "send less, or fewer of them"));
        }
        Ok(Self(pairs))
    }

    /// The names, in lower case and in their order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, _)| name.as_str())
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Names and values, to be sealed.
    pub(crate) fn pairs(&self) -> &[(String, String)] {
        &self.0
    }

    /// As they are sent; marked, so that nothing on the way shows a value or remembers it for compression.
    pub(crate) fn sent(&self) -> impl Iterator<Item = (HeaderName, HeaderValue)> {
        self.pairs().iter().filter_map(|(name, value)| {
            let mut value = HeaderValue::from_str(value).ok()?;
            value.set_sensitive(true);
            Some((HeaderName::from_bytes(name.as_bytes()).ok()?, value))
        })
    }

    /// What of them must not be shown if a receiver sends it back: values, and what follows the scheme of an `authorization`.
    pub(crate) fn concealed(&self) -> Vec<&str> {
        let values = self.0.iter().flat_map(|(_, value)| {
            let bare = value.split_once(' ').map(|(_, bare)| bare.trim_start());
            [Some(value.as_str()), bare]
        });
        values.flatten().filter(|value| value.len() >= CONCEALED_BYTES_MIN).collect()
    }
}

impl fmt::Debug for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.names()).finish()
    }
}

fn check(name: &str, value: &str) -> Result<(), Refused> {
    if name.is_empty() || name.len() > NAME_BYTES_MAX || HeaderName::from_bytes(name.as_bytes()).is_err() {
        let remedy = "use letters, digits and -, 100 bytes at most";
        return Err(refused(name, "it is not the name of a header", remedy));
    }
    if REFUSED.contains(&name) || PREFIXES_REFUSED.iter().any(|prefix| name.starts_with(prefix)) {
        let message = "requests have it already, or the connection needs it";
        return Err(refused(name, message, "choose another name, such as x-api-key"));
    }
    // A tab and what HTTP calls visible, and no space around it: what a receiver sees is what was given.
    let legal = value.bytes().all(|b| b == b'\t' || (0x20..0x7f).contains(&b)) && value.trim() == value;
    if !legal || value.len() > VALUE_BYTES_MAX {
        let remedy = "use visible ASCII, 4096 bytes at most, without spaces around it";
        return Err(refused(name, "its value cannot be sent", remedy));
    }
    Ok(())
}

fn refused(name: &str, message: &str, remedy: &str) -> Refused {
    // A name that is no name may be anything: only what of it could be one is repeated.
    let shown: String = name.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '-').take(40).collect();
    Refused::new(Code::Option, &format!("headers.{shown}"), message, remedy)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c56_reserved_and_illegal_headers_are_refused_by_name_and_authorization_is_not() {
        let long = "x".repeat(20_000);
        for (name, value) in [
            ("Webhook-Signature", "x"),
            ("webhook-id", "x"),
            ("webhook-anything", "x"),
            ("Host", "x"),
            ("Content-Length", "1"),
            ("Content-Type", "text/plain"),
            ("Content-Encoding", "gzip"),
            ("Transfer-Encoding", "chunked"),
            ("Connection", "close"),
            ("Keep-Alive", "timeout=5"),
            ("Proxy-Authorization", "x"),
            ("Proxy-Authenticate", "x"),
            ("Proxy-Connection", "close"),
            ("TE", "trailers"),
            ("Trailer", "x"),
            ("Upgrade", "h2c"),
            ("HTTP2-Settings", "AAMAAABkAARAAAAA"),
            ("Expect", "100-continue"),
            ("Accept-Encoding", "gzip"),
            ("User-Agent", "x"),
            ("traceparent", "x"),
            ("ce-id", "x"),
            (":authority", "x"),
            ("X-A", "b\r\nX-C: d"),
            ("X-A", "b\nX-C: d"),
            ("X-A", "b\0"),
            ("X-A", "\u{fc}"),
            ("X-A", " b"),
            ("X-A", "b\t"),
            ("X A", "b"),
            ("X-A:", "b"),
            ("X-A\r\nX-C", "b"),
            ("x-\u{fc}", "b"),
            ("", "b"),
            ("X-A", long.as_str()),
            (long.as_str(), "b"),
        ] {
            let refused = Headers::new([(name, value)]).unwrap_err();
            assert!(refused.field.starts_with("headers."), "{name:?}: {refused}");
            assert!(!refused.remedy.is_empty() && refused.to_string().len() < 400, "{refused}");
            assert!(!refused.to_string().contains("X-C"), "{refused}");
        }
        let refused = Headers::new([("authorization", "Bearer s3cret\n")]).unwrap_err();
        assert!(!format!("{refused} {refused:?}").contains("s3cret"), "{refused}");
        assert_eq!(Headers::new([("x-a", "1"), ("X-A", "2")]).unwrap_err().field, "headers.x-a");
        assert_eq!(Headers::new((0..21).map(|n| (format!("x-{n}"), "1"))).unwrap_err().field, "headers");
        let large = (0..3).map(|n| (format!("x-{n}"), "v".repeat(4_000)));
        assert_eq!(Headers::new(large).unwrap_err().code, Code::Size);
        let headers = Headers::new([("Authorization", "Bearer s3cret-token"), ("X-Api-Key", "k")]).unwrap();
        assert_eq!(headers.names().collect::<Vec<_>>(), ["authorization", "x-api-key"]);
        assert_eq!(format!("{headers:?}"), r#"["authorization", "x-api-key"]"#);
        assert_eq!(headers.concealed(), ["Bearer s3cret-token", "s3cret-token"]);
        let sent: Vec<_> = headers.sent().collect();
        assert!(sent.len() == 2 && !format!("{sent:?}").contains("s3cret"), "{sent:?}");
    }
}
