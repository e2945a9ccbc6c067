use url::Url;

use crate::target::Target;

/// A longer one would not be read.
const URL_CHARS_MAX: usize = 300;

/// The url that a redirect names, if an endpoint could be there: what its owner may enter instead. It is never followed, and says nothing yet
/// about addresses.
pub(crate) fn suggested(target: &Target, location: &[u8]) -> Option<String> {
    let location = std::str::from_utf8(location).ok()?;
    let joined = Url::parse(target.as_str()).ok()?.join(location).ok()?;
    let suggested = Target::parse(joined.as_str()).ok()?;
    let fits = suggested != *target && suggested.as_str().len() <= URL_CHARS_MAX;
    fits.then(|| suggested.as_str().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_where_an_endpoint_could_be_is_suggested_and_nothing_else() {
        let target = Target::parse("https://hooks.example.com/a/in?x=1").unwrap();
        let long = format!("https://hooks.example.com/{}", "a".repeat(400));
        for (location, expected) in [
            ("https://new.example.com/in", Some("https://new.example.com/in")),
            ("/b?c=d#e", Some("https://hooks.example.com/b?c=d")),
            ("out", Some("https://hooks.example.com/a/out")),
            ("//other.example.com", Some("https://other.example.com/")),
            ("http://hooks.example.com/a", Some("http://hooks.example.com/a")),
            ("https://new.example.com/<script>\"", Some("https://new.example.com/%3Cscript%3E%22")),
            ("https://hooks.example.com/a/in?x=1", None),
            ("", None),
            ("file:///etc/passwd", None),
            ("javascript:alert(1)", None),
            ("https://user:pass@new.example.com/", None),
            ("https://localhost/", None),
            ("https://new.example.com:22/", None),
            ("https://new.example.com/a b", Some("https://new.example.com/a%20b")),
            (long.as_str(), None),
            ("https://[::1", None),
        ] {
            assert_eq!(suggested(&target, location.as_bytes()).as_deref(), expected, "{location}");
        }
        assert_eq!(suggested(&target, b"\xff\xfe"), None);
    }
}
