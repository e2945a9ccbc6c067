use std::fmt;

/// Why something was refused. The same code stands in a SQLSTATE, in [`Refused`], in an HTTP problem and in a log line.
///
/// `docs/errors.md` lists them; a test keeps the page and this table equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Code {
    /// A name does not follow its grammar.
    Name,
    /// A value is larger than its limit.
    Size,
    /// A payload is not JSON that every part of the way can carry.
    Json,
    /// A type, kind or subscription was never declared.
    Undeclared,
    /// An option has a value outside of its range, or is not an option.
    Option,
    /// Two declarations of one name contradict each other.
    Conflict,
    /// The name is reserved for Postrider itself.
    Reserved,
    /// The data or the subject of an event do not fit what their type declares.
    Mismatch,
    /// Events that cause each other make a chain that is too long.
    Depth,
    /// The transaction's isolation level is not READ COMMITTED.
    Isolation,
    /// The schema in the database is not the one that this program knows.
    Schema,
    /// The position of the relay contradicts the cluster that it is in.
    Position,
    /// The engine cannot do what it is asked for.
    Capability,
}

impl Code {
    /// Every code, in the order of the documentation.
    pub const ALL: [Self; 13] = [
        Self::Name,
        Self::Size,
        Self::Json,
        Self::Undeclared,
        Self::Option,
        Self::Conflict,
        Self::Reserved,
        Self::Mismatch,
        Self::Depth,
        Self::Isolation,
        Self::Schema,
        Self::Position,
        Self::Capability,
    ];

    /// The SQLSTATE, of class `PR`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Name => "PR001",
            Self::Size => "PR002",
            Self::Json => "PR003",
            Self::Undeclared => "PR004",
            Self::Option => "PR005",
            Self::Conflict => "PR006",
            Self::Reserved => "PR007",
            Self::Mismatch => "PR008",
            Self::Depth => "PR009",
            Self::Isolation => "PR010",
            Self::Schema => "PR011",
            Self::Position => "PR012",
            Self::Capability => "PR013",
        }
    }

    /// The code of a SQLSTATE, if it is one of ours.
    pub fn from_sqlstate(sqlstate: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|code| code.as_str() == sqlstate)
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A refusal: the code, the field it is about, what is wrong, and what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{code} {field}: {message}; {remedy}")]
pub struct Refused {
    /// The stable code.
    pub code: Code,
    /// The field that was refused, as it is named at the door.
    pub field: String,
    /// What is wrong with it.
    pub message: String,
    /// What the caller can do.
    pub remedy: String,
}

impl Refused {
    /// Builds a refusal.
    pub fn new(code: Code, field: &str, message: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { code, field: field.to_owned(), message: message.into(), remedy: remedy.into() }
    }
}
