use crate::code::{Code, Refused};

/// The longest name of a type, kind, queue, subscription or owner, in bytes.
pub const NAME_BYTES_MAX: usize = 200;
/// The longest subject, in bytes.
pub const SUBJECT_BYTES_MAX: usize = 512;

const GRAMMAR: &str = "use lower-case segments of a-z, 0-9, _ and -, joined by single dots, 200 bytes at most";

fn is_segment(segment: &str) -> bool {
    !segment.is_empty()
        && segment.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_' || b == b'-')
}

/// Checks the name of a type, kind, queue or subscription: dotted lower-case segments.
pub fn check_name(field: &str, name: &str) -> Result<(), Refused> {
    if name.len() > NAME_BYTES_MAX || !name.split('.').all(is_segment) {
        return Err(Refused::new(Code::Name, field, format!("{name:?} is not a name"), GRAMMAR));
    }
    Ok(())
}

/// Like [`check_name`], and refuses what begins with `postrider.` or `webhook.`, which only Postrider itself declares.
pub fn check_public_name(field: &str, name: &str) -> Result<(), Refused> {
    check_name(field, name)?;
    if name.starts_with("postrider.") || name.starts_with("webhook.") {
        return Err(Refused::new(
            Code::Reserved,
            field,
            format!("{name:?} is reserved"),
            "choose a name that does not begin with postrider. or webhook.",
        ));
    }
    Ok(())
}

/// Checks a subject: 1 to 512 bytes without control characters.
pub fn check_subject(subject: &str) -> Result<(), Refused> {
    if subject.is_empty() || subject.len() > SUBJECT_BYTES_MAX || subject.chars().any(char::is_control) {
        return Err(Refused::new(
            Code::Name,
            "subject",
            "a subject is 1 to 512 bytes of text without control characters",
            "name the thing that the event is about, for example order/42",
        ));
    }
    Ok(())
}

/// Checks an owner: empty (the instance), or up to 200 bytes without control characters.
pub fn check_owner(owner: &str) -> Result<(), Refused> {
    if owner.len() > NAME_BYTES_MAX || owner.chars().any(char::is_control) {
        return Err(Refused::new(
            Code::Name,
            "owner",
            "an owner is at most 200 bytes of text without control characters",
            "leave it empty for the instance itself",
        ));
    }
    Ok(())
}

/// A pattern over event types: segments, `*` for exactly one segment, `**` for one or more.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Pattern(String);

impl Pattern {
    /// Parses a pattern; the error names the field `types`.
    pub fn parse(text: &str) -> Result<Self, Refused> {
        let fine = text.len() <= NAME_BYTES_MAX && text.split('.').all(|s| s == "*" || s == "**" || is_segment(s));
        if fine {
            return Ok(Self(text.to_owned()));
        }
        Err(Refused::new(
            Code::Name,
            "types",
            format!("{text:?} is not a pattern"),
            "use the segments of a type, * for exactly one segment and ** for one or more",
        ))
    }

    /// The pattern as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether a type matches.
    pub fn matches(&self, name: &str) -> bool {
        let pattern: Vec<&str> = self.0.split('.').collect();
        let segments: Vec<&str> = name.split('.').collect();
        matches(&pattern, &segments)
    }
}

fn matches(pattern: &[&str], segments: &[&str]) -> bool {
    match (pattern.split_first(), segments.split_first()) {
        (None, None) => true,
        (Some((&"**", rest)), Some((_, others))) => matches(rest, others) || matches(pattern, others),
        (Some((&p, rest)), Some((&s, others))) => (p == "*" || p == s) && matches(rest, others),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_dotted_lower_case_segments() {
        for good in ["a", "order.paid", "github.repository_dispatch.on-demand-test", "a.1"] {
            assert!(check_name("type", good).is_ok(), "{good}");
        }
        for bad in ["", ".", "a.", ".a", "a..b", "A", "a b", "a/b", "ä", "a\0", "a'; drop"] {
            assert_eq!(check_name("type", bad).unwrap_err().code, Code::Name, "{bad:?}");
        }
        assert!(check_name("type", &"a".repeat(200)).is_ok());
        assert!(check_name("type", &"a".repeat(201)).is_err());
    }

    #[test]
    fn names_of_postrider_itself_are_reserved() {
        assert_eq!(check_public_name("kind", "webhook.deliver").unwrap_err().code, Code::Reserved);
        assert_eq!(check_public_name("type", "postrider.endpoint.disabled").unwrap_err().code, Code::Reserved);
        assert!(check_public_name("type", "webhooks.mine").is_ok());
    }

    #[test]
    fn a_pattern_matches_by_segments() {
        let cases = [
            ("order.paid", "order.paid", true),
            ("order.paid", "order.paid.twice", false),
            ("order.*", "order.paid", true),
            ("order.*", "order.paid.twice", false),
            ("order.*", "order", false),
            ("order.**", "order.paid.twice", true),
            ("order.**", "order", false),
            ("**", "anything.at.all", true),
            ("*.paid", "order.paid", true),
            ("**.paid", "a.b.paid", true),
            ("**.paid", "paid", false),
            ("a.**.z", "a.b.c.z", true),
            ("a.**.z", "a.z", false),
            ("a*", "ab", false),
        ];
        for (pattern, name, expected) in cases {
            let found = Pattern::parse(pattern).is_ok_and(|p| p.matches(name));
            assert_eq!(found, expected, "{pattern} over {name}");
        }
        assert!(Pattern::parse("a*").is_err());
        assert!(Pattern::parse("").is_err());
    }
}
