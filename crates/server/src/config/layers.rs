use std::collections::BTreeMap;
use std::fmt;

use toml::Value;

use super::names::{Default, NAMES, named};
use super::value::Wrong;

/// What was given, from the weakest layer to the strongest.
#[derive(Clone, Default)]
pub struct Layers {
    /// The name and the text of `postrider.toml`.
    pub file: Option<(String, String)>,
    /// The environment.
    pub env: Vec<(String, String)>,
    /// Keys and the values of their flags.
    pub flags: Vec<(&'static str, String)>,
}

impl fmt::Debug for Layers {
    /// Tells what there is, not what it says: any layer may hold a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys: Vec<&str> = self.flags.iter().map(|(key, _)| *key).collect();
        f.debug_struct("Layers")
            .field("file", &self.file.as_ref().map(|(name, _)| name))
            .field("flags", &keys)
            .finish_non_exhaustive()
    }
}

/// One thing that is wrong with the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The name, as it was written, and where.
    pub name: String,
    /// What is wrong.
    pub message: String,
    /// What to do.
    pub remedy: String,
}

impl Problem {
    /// A problem with a name.
    pub fn new(name: impl Into<String>, message: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { name: name.into(), message: message.into(), remedy: remedy.into() }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}; {}", self.name, self.message, self.remedy)
    }
}

/// Everything that is wrong with the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problems(pub Vec<Problem>);

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, problem) in self.0.iter().enumerate() {
            if i > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{problem}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}

impl From<Problem> for Problems {
    fn from(problem: Problem) -> Self {
        Self(vec![problem])
    }
}

/// Variables that begin with `POSTRIDER_` and are not names: they say where the file is.
const OTHER_VARIABLES: &[&str] = &["POSTRIDER_CONFIG"];

/// A value that won, as text, and where it was written.
struct Given {
    text: String,
    written: String,
    fallback: bool,
}

/// The values that won, and the problems found so far.
pub(super) struct Reading<'a> {
    given: BTreeMap<&'a str, Given>,
    problems: Vec<Problem>,
}

impl Layers {
    pub(super) fn read(&self) -> Reading<'_> {
        let mut reading = Reading { given: BTreeMap::new(), problems: Vec::new() };
        if let Some(url) = self.variable("DATABASE_URL") {
            let given = Given { text: url.to_owned(), written: "DATABASE_URL".to_owned(), fallback: true };
            reading.given.insert("database_url", given);
        }
        if let Some((file, text)) = &self.file {
            reading.file(file, text);
        }
        for (variable, text) in &self.env {
            reading.variable(variable, text);
        }
        for (key, text) in &self.flags {
            let written = format!("--{}", key.replace('_', "-"));
            reading.given.insert(key, Given { text: text.clone(), written, fallback: false });
        }
        reading
    }

    fn variable(&self, name: &str) -> Option<&str> {
        self.env.iter().find(|(variable, text)| variable == name && !text.is_empty()).map(|(_, text)| text.as_str())
    }
}

impl Reading<'_> {
    fn file(&mut self, file: &str, text: &str) {
        let table = match text.parse::<toml::Table>() {
            Ok(table) => table,
            Err(e) => {
                // The parser's full message quotes the line, which may hold a secret.
                let problem = Problem::new(file, e.message().trim_end(), "mend the file: it is TOML, key = value");
                return self.problems.push(problem);
            }
        };
        for (key, value) in &table {
            let written = format!("{key} (in {file})");
            let Some(name) = named(key) else {
                self.problems.push(unknown(written, key));
                continue;
            };
            match text_of(value) {
                Some(text) => {
                    self.given.insert(name.key, Given { text, written, fallback: false });
                }
                None => self.problems.push(Problem::new(
                    written,
                    format!("it is a {}", value.type_str()),
                    format!("it takes {}", name.takes),
                )),
            }
        }
    }

    fn variable(&mut self, variable: &str, text: &str) {
        let Some(rest) = variable.strip_prefix("POSTRIDER_") else { return };
        match NAMES.iter().find(|name| name.env() == variable) {
            Some(name) => {
                let given = Given { text: text.to_owned(), written: variable.to_owned(), fallback: false };
                self.given.insert(name.key, given);
            }
            None if OTHER_VARIABLES.contains(&variable) => {}
            None => self.problems.push(unknown(variable.to_owned(), &rest.to_lowercase())),
        }
    }

    /// Whether it comes from a variable that is not ours.
    pub(super) fn is_fallback(&self, key: &str) -> bool {
        self.given.get(key).is_some_and(|given| given.fallback)
    }

    /// The value, if one was given and is right; a wrong one becomes a problem.
    pub(super) fn optional<T>(&mut self, key: &'static str, parse: impl Fn(&str) -> Result<T, Wrong>) -> Option<T> {
        let given = self.given.get(key)?;
        match parse(given.text.trim()) {
            Ok(value) => Some(value),
            Err(Wrong { message, remedy }) => {
                self.problems.push(Problem::new(given.written.clone(), message, remedy));
                None
            }
        }
    }

    /// The value given, else the default, so that one wrong value does not hide the others' problems.
    pub(super) fn required<T>(&mut self, key: &'static str, parse: impl Fn(&str) -> Result<T, Wrong>) -> Option<T> {
        self.optional(key, &parse).or_else(|| match named(key)?.default {
            Default::Text(text) => parse(text).ok(),
            Default::Said(_) => None,
        })
    }

    /// The configuration, or what is wrong.
    pub(super) fn finish<T>(self, value: Option<T>) -> Result<T, Problems> {
        match value {
            Some(value) if self.problems.is_empty() => Ok(value),
            _ => Err(Problems(self.problems)),
        }
    }
}

/// A TOML value as the text that the environment would carry.
fn text_of(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Integer(number) => Some(number.to_string()),
        Value::Float(number) => Some(number.to_string()),
        Value::Array(items) => {
            let texts: Option<Vec<String>> = items.iter().map(|item| item.as_str().map(str::to_owned)).collect();
            texts.map(|texts| texts.join(","))
        }
        Value::Boolean(_) | Value::Datetime(_) | Value::Table(_) => None,
    }
}

fn unknown(written: String, key: &str) -> Problem {
    let near = NAMES.iter().min_by_key(|name| distance(name.key, key)).filter(|name| distance(name.key, key) <= 3);
    let remedy = match near {
        Some(name) => format!("did you mean {}? docs/configuration.md lists every name", name.key),
        None => "take it out; docs/configuration.md lists every name".to_owned(),
    };
    Problem::new(written, "no such name", remedy)
}

/// The number of letters to insert, delete or change to make `b` out of `a`.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut next = vec![i + 1];
        for (y, pair) in b.iter().zip(row.windows(2)) {
            let left = next.last().copied().unwrap_or(0);
            let (diagonal, above) = (pair.first().copied().unwrap_or(0), pair.last().copied().unwrap_or(0));
            next.push((left + 1).min(above + 1).min(diagonal + usize::from(x != *y)));
        }
        row = next;
    }
    row.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_distance_is_the_number_of_letters_to_change() {
        for (a, b, expected) in [("kitten", "sitting", 3), ("", "abc", 3), ("rate", "rate", 0), ("grace", "grase", 1)] {
            assert_eq!(distance(a, b), expected, "{a} {b}");
        }
    }
}
