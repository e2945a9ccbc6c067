//! What a Rust file says before its tests, which stand at its end.

/// The text before `#[cfg(test)]`.
pub(crate) fn before_tests(text: &str) -> &str {
    text.split_once("\n#[cfg(test)]").map_or(text, |(code, _)| code)
}
