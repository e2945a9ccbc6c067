use std::fmt;
use std::net::IpAddr;

use postrider_contract::{Code, Refused};
use url::{Host, Url};

/// The longest URL of an endpoint, in bytes.
pub const URL_BYTES_MAX: usize = 2_048;

/// Ports at or above 1024 where databases, brokers and engines listen that take HTTP's first line for a command, or
/// that speak HTTP without asking who calls.
const PORTS_DENIED: [u16; 20] = [
    1433, 1521, 2049, 2375, 2376, 2379, 2380, 3306, 3389, 5432, 5672, 5900, 6379, 8500, 9042, 9092, 9200, 9300, 11211,
    27017,
];

/// Names that only mean something inside a network.
const NAMES_REFUSED: [&str; 5] = ["localhost", "local", "internal", "home.arpa", "lan"];

/// An endpoint's URL, parsed once. What is stored, resolved, dialled and sent all comes from here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    url: Url,
    host: TargetHost,
    port: u16,
}

/// The host as the parser understood it, whatever its spelling was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TargetHost {
    /// An address; a resolver would never see it, so the guard must.
    Address(IpAddr),
    /// A name in lower-case ASCII, without a trailing dot.
    Name(String),
}

impl Target {
    /// Parses a URL; the error names the field `url`. Says nothing yet about addresses.
    pub(crate) fn parse(text: &str) -> Result<Self, Refused> {
        let target = Self::trusted(text)?;
        if let TargetHost::Name(name) = &target.host {
            check_host_name(name)?;
        }
        check_port(Some(target.port))?;
        Ok(target)
    }

    /// The same for a URL that whoever runs the process chose: with any name and any port.
    pub(crate) fn trusted(text: &str) -> Result<Self, Refused> {
        if text.len() > URL_BYTES_MAX {
            let message = format!("it has {} bytes, the limit is {URL_BYTES_MAX}", text.len());
            return Err(Refused::new(Code::Size, "url", message, "use a shorter url"));
        }
        // The parser would drop tabs and line ends without a word.
        if text.chars().any(|c| c.is_control() || c.is_whitespace()) {
            return Err(refused("it has a space or a control character", "remove it or write it percent-encoded"));
        }
        let mut url = Url::parse(text).map_err(|e| refused(format!("it is not a url: {e}"), EXAMPLE))?;
        if !matches!(url.scheme(), "https" | "http") {
            return Err(refused(format!("its scheme is {}", url.scheme()), EXAMPLE));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(refused("it has a user name or a password", "remove what stands before the @"));
        }
        let host = match url.host() {
            Some(Host::Ipv4(v4)) => TargetHost::Address(v4.into()),
            Some(Host::Ipv6(v6)) => TargetHost::Address(v6.into()),
            Some(Host::Domain(name)) => TargetHost::Name(name.strip_suffix('.').unwrap_or(name).to_owned()),
            None => return Err(refused("it has no host", EXAMPLE)),
        };
        if let TargetHost::Name(name) = &host {
            // One spelling of one host: the certificate and the `host` header have no trailing dot.
            url.set_host(Some(name)).map_err(|e| refused(format!("it is not a url: {e}"), EXAMPLE))?;
        }
        url.set_fragment(None);
        let port = url.port_or_known_default().filter(|port| *port != 0);
        let port = port.ok_or_else(|| refused("it has no port", "write one from 1 to 65535"))?;
        Ok(Self { url, host, port })
    }

    /// The serialised form, as it is stored.
    pub fn as_str(&self) -> &str {
        self.url.as_str()
    }

    /// Whether the request goes over TLS.
    pub fn is_https(&self) -> bool {
        self.url.scheme() == "https"
    }

    pub(crate) fn host(&self) -> &TargetHost {
        &self.host
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// The value of the `host` header: the port stands there only when it is not the scheme's own.
    pub(crate) fn authority(&self) -> String {
        let host = self.url.host_str().unwrap_or_default();
        self.url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
    }

    /// Path and query, as they stand in the request line.
    pub(crate) fn path(&self) -> String {
        let path = self.url.path();
        self.url.query().map_or_else(|| path.to_owned(), |query| format!("{path}?{query}"))
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

const EXAMPLE: &str = "use https and a public host, for example https://hooks.example.com/in";

fn check_host_name(name: &str) -> Result<String, Refused> {
    let name = name.strip_suffix('.').unwrap_or(name);
    let is_label = |label: &str| {
        (1..=63).contains(&label.len()) && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
    };
    // A top-level domain begins with a letter; what does not is a number that only some parsers read.
    let ends_in_letters =
        name.rsplit('.').next().is_some_and(|last| last.starts_with(|c: char| c.is_ascii_alphabetic()));
    if !name.split('.').all(is_label) || name.len() > 253 || !ends_in_letters {
        return Err(refused("its host is not a name", EXAMPLE));
    }
    let local = NAMES_REFUSED
        .into_iter()
        .any(|refused| name.strip_suffix(refused).is_some_and(|rest| rest.is_empty() || rest.ends_with('.')));
    if local || !name.contains('.') {
        return Err(refused(format!("{name:?} is a name inside a network"), EXAMPLE));
    }
    Ok(name.to_owned())
}

fn check_port(port: Option<u16>) -> Result<u16, Refused> {
    match port {
        Some(port) if (port == 443 || port == 80 || port >= 1024) && !PORTS_DENIED.contains(&port) => Ok(port),
        Some(port) => Err(refused(
            format!("port {port} is not for webhooks"),
            "use 443, 80 or a port from 1024 that is not a database's",
        )),
        None => Err(refused("it has no port", EXAMPLE)),
    }
}

fn refused(message: impl Into<String>, remedy: &str) -> Refused {
    Refused::new(Code::Option, "url", message, remedy)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_host_has_one_spelling() {
        for (text, stored) in [
            ("https://Hooks.Example.com", "https://hooks.example.com/"),
            ("HTTPS://hooks.example.com.:443/a?b=c#d", "https://hooks.example.com/a?b=c"),
            ("https:\\\\hooks.example.com\\x", "https://hooks.example.com/x"),
            ("https://@hooks.example.com/", "https://hooks.example.com/"),
            ("https://bücher.example/", "https://xn--bcher-kva.example/"),
            ("https://hooks。example。com/", "https://hooks.example.com/"),
            ("https://hooks.example.com/../../a/./b", "https://hooks.example.com/a/b"),
            ("https://0x8.0x8.2056/", "https://8.8.8.8/"),
            ("https://134744072:8443/", "https://8.8.8.8:8443/"),
        ] {
            let target = Target::parse(text).unwrap();
            assert_eq!(target.as_str(), stored, "{text}");
            assert_eq!(Target::parse(stored).unwrap(), target, "what was stored parses to the same");
        }
    }

    #[test]
    fn the_request_is_made_of_the_parsed_parts() {
        let target = Target::parse("https://hooks.example.com:8443/a%20b?c=d").unwrap();
        assert_eq!((target.authority().as_str(), target.path().as_str()), ("hooks.example.com:8443", "/a%20b?c=d"));
        let target = Target::parse("https://[2606:4700:4700::1111]").unwrap();
        assert_eq!((target.authority().as_str(), target.path().as_str()), ("[2606:4700:4700::1111]", "/"));
    }

    #[test]
    fn ports_of_other_services_are_refused() {
        for port in [1, 22, 25, 79, 81, 110, 442, 444, 1023, 2375, 3306, 5432, 6379, 9200, 11211, 27017] {
            let refused = Target::parse(&format!("https://hooks.example.com:{port}/")).unwrap_err();
            assert!(refused.message.contains(&port.to_string()), "{refused}");
        }
        assert!(Target::parse("https://hooks.example.com:0/").is_err());
        assert!(Target::parse("https://hooks.example.com:65536/").is_err());
        for port in [80, 443, 1024, 3000, 8080, 8443, 65535] {
            assert!(Target::parse(&format!("https://hooks.example.com:{port}/")).is_ok(), "{port}");
        }
    }

    #[test]
    fn a_refusal_names_the_field_and_the_remedy() {
        let long = format!("https://hooks.example.com/{}", "a".repeat(URL_BYTES_MAX));
        for text in ["", "hooks.example.com", "ftp://hooks.example.com/", "https://u:p@hooks.example.com/", &long] {
            let refused = Target::parse(text).unwrap_err();
            assert_eq!(refused.field, "url", "{text}");
            assert!(!refused.remedy.is_empty());
        }
    }
}
