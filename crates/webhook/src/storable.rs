use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// Text that Postgres can hold, from whatever bytes an endpoint sent: what is not UTF-8 becomes U+FFFD, NUL becomes U+2400.
pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).replace('\0', "\u{2400}")
}

/// Headers as a JSON array of pairs, storable in the same way.
pub(crate) fn headers(headers: &[(String, Vec<u8>)]) -> String {
    let pairs: Vec<[String; 2]> = headers.iter().map(|(name, value)| [name.clone(), text(value)]).collect();
    serde_json::to_string(&pairs).unwrap_or_else(|_| "[]".to_owned())
}

/// Base64 as Postgres writes it: in lines.
pub(crate) fn unbase64(text: &str) -> Option<Vec<u8>> {
    STANDARD.decode(text.replace('\n', "")).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_postgres_refuses_are_shown_as_what_they_were() {
        assert_eq!(text(b"\x00\xff\xc3(ok\xf0\x9f\x98\x80"), "\u{2400}\u{fffd}\u{fffd}(ok\u{1f600}");
        let pairs = headers(&[("x-a".to_owned(), b"1\xff\x00\"".to_vec()), ("x-a".to_owned(), Vec::new())]);
        assert_eq!(pairs, "[[\"x-a\",\"1\u{fffd}\u{2400}\\\"\"],[\"x-a\",\"\"]]");
    }
}
