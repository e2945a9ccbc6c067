use std::fmt;

use postrider_contract::{Code, Refused};

const HEADERS_MAX: usize = 20;
const NAME_BYTES_MAX: usize = 100;
const VALUE_BYTES_MAX: usize = 4_096;
const BYTES_MAX: usize = 8_192;

/// Names that say what the request is or how it travels, and so are ours or the connection's.
const REFUSED: [&str; 14] = [
    "host",
    "connection",
    "transfer-encoding",
    "te",
    "trailer",
    "upgrade",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "expect",
    "traceparent",
    "tracestate",
    "user-agent",
];
const PREFIXES_REFUSED: [&str; 2] = ["webhook-", "content-"];

/// Headers that an endpoint's requests carry beside ours. They are sealed at rest, since `authorization` is among those that are allowed, and
/// `Debug` shows their names alone.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Headers(Vec<(String, String)>);

impl Headers {
    /// Names, in any case, and values. Refused, as `headers.` and the name: what is not a legal name or value, is there twice, is too long, or
    /// would stand in the place of what is signed or of what the connection needs.
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
            let message = format!(
                "there are {} headers of {bytes} bytes, the limits are {HEADERS_MAX} and {BYTES_MAX}",
                pairs.len()
            );
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

    pub(crate) fn pairs(&self) -> &[(String, String)] {
        &self.0
    }
}

impl fmt::Debug for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.names()).finish()
    }
}

fn check(name: &str, value: &str) -> Result<(), Refused> {
    let token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.bytes().all(token) {
        return Err(refused(name, "it is not the name of a header", "use letters, digits and -, 100 bytes at most"));
    }
    if REFUSED.contains(&name) || PREFIXES_REFUSED.iter().any(|prefix| name.starts_with(prefix)) {
        return Err(refused(
            name,
            "requests have it already, or the connection needs it",
            "choose another name, such as x-api-key",
        ));
    }
    // A tab and what HTTP calls visible, and no space around it: what a receiver sees is what was given.
    let legal = value.bytes().all(|b| b == b'\t' || (0x20..0x7f).contains(&b)) && value.trim() == value;
    if !legal || value.len() > VALUE_BYTES_MAX {
        return Err(refused(
            name,
            "its value cannot be sent",
            "use visible ASCII, 4096 bytes at most, without spaces around it",
        ));
    }
    Ok(())
}

fn refused(name: &str, message: &str, remedy: &str) -> Refused {
    // A name that is no name may be anything: it is not repeated.
    let shown: String = name.chars().filter(char::is_ascii_graphic).take(40).collect();
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
            ("Host", "x"),
            ("Content-Length", "1"),
            ("Content-Type", "text/plain"),
            ("Transfer-Encoding", "chunked"),
            ("Connection", "close"),
            ("TE", "trailers"),
            ("X-A", "b\r\nX-C: d"),
            ("X-A", "b\0"),
            ("X-A", "\u{fc}"),
            ("X-A", " b"),
            ("X A", "b"),
            ("X-A:", "b"),
            ("", "b"),
            ("X-A", long.as_str()),
        ] {
            let refused = Headers::new([(name, value)]).unwrap_err();
            assert!(refused.field.starts_with("headers."), "{name:?}: {refused}");
            assert!(!refused.to_string().contains("X-C") && refused.to_string().len() < 400);
        }
        assert_eq!(Headers::new([("x-a", "1"), ("X-A", "2")]).unwrap_err().field, "headers.x-a");
        assert_eq!(Headers::new((0..21).map(|n| (format!("x-{n}"), "1"))).unwrap_err().field, "headers");
        let headers = Headers::new([("Authorization", "Bearer s3cret"), ("X-Api-Key", "k")]).unwrap();
        assert_eq!(headers.names().collect::<Vec<_>>(), ["authorization", "x-api-key"]);
        assert_eq!(format!("{headers:?}"), r#"["authorization", "x-api-key"]"#);
    }
}
