use std::collections::BTreeSet;

use postrider_contract::{Code, Refused};

/// Names in one suggestion.
const SUGGESTED_MOST: usize = 3;

/// The kinds that a process declared.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Known(BTreeSet<String>);

impl Known {
    pub(crate) fn new(kinds: impl IntoIterator<Item = String>) -> Self {
        Self(kinds.into_iter().collect())
    }

    /// Refuses a kind that is not one of them, with those that it may have been meant for.
    pub(crate) fn check(&self, kind: &str) -> Result<(), Refused> {
        if self.0.contains(kind) {
            return Ok(());
        }
        let near = self.near(kind);
        let remedy = if near.is_empty() {
            "declare it with this application, with or without a handler".to_owned()
        } else {
            format!("did you mean {}", near.join(", "))
        };
        Err(Refused::new(Code::Undeclared, "kind", format!("'{kind}' was never declared"), remedy))
    }

    /// Those that are a few letters away, nearest first.
    fn near(&self, kind: &str) -> Vec<String> {
        let far = (kind.len() / 3).max(2);
        let mut near: Vec<(usize, &str)> =
            self.0.iter().map(|known| (distance(kind, known), known.as_str())).filter(|(d, _)| *d <= far).collect();
        near.sort_unstable();
        near.into_iter().take(SUGGESTED_MOST).map(|(_, known)| format!("'{known}'")).collect()
    }
}

/// How many letters must be added, removed or replaced to make one of the other.
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (n, letter) in one.chars().enumerate() {
        let mut before = n; // the cell up and to the left
        let mut left = n + 1;
        for (cell, &theirs) in row.iter_mut().skip(1).zip(&other) {
            let here = (*cell + 1).min(left + 1).min(before + usize::from(theirs != letter));
            before = *cell;
            *cell = here;
            left = here;
        }
        if let Some(first) = row.first_mut() {
            *first = n + 1;
        }
    }
    row.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_that_differ_are_counted() {
        for (one, other, expected) in
            [("", "", 0), ("", "abc", 3), ("abc", "", 3), ("mail.sent", "mail.send", 1), ("kitten", "sitting", 3)]
        {
            assert_eq!(distance(one, other), expected, "{one} {other}");
        }
    }

    #[test]
    fn near_kinds_are_suggested_and_far_ones_are_not() {
        let known = Known::new(["mail.send", "mail.sort", "image.resize"].map(str::to_owned));
        assert_eq!(known.check("mail.send"), Ok(()));
        assert_eq!(known.check("mail.sent").unwrap_err().remedy, "did you mean 'mail.send', 'mail.sort'");
        assert!(known.check("x").unwrap_err().remedy.starts_with("declare it"));
    }
}
