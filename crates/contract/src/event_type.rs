use serde::Serialize;

use crate::Payload;

/// Who may see an event type outside of the instance. The default lets nothing out by accident.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Exposure {
    /// Only handlers of the instance.
    #[default]
    Internal,
    /// Also endpoints of its owner.
    Public,
}

/// What becomes of an event whose data do not fit the schema of their type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Validation {
    /// Nobody looks.
    #[default]
    Off,
    /// It is recorded, and what does not fit is noted for whoever looks at the type.
    Warn,
    /// It is refused.
    Enforce,
}

/// A version of an event type. It never changes: events say which one they follow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TypeVersion {
    /// Its number, from 1 to 32 767; a later version has a higher one.
    pub version: i16,
    /// A JSON Schema (2020-12) of the data, of the supported keywords.
    pub schema: Payload,
    /// Data that fit it.
    pub example: Payload,
    /// It may refuse what fitted the version before it, and leave out what that one required.
    pub breaking: bool,
}

impl TypeVersion {
    /// A version that is compatible with the one before it.
    pub fn new(version: i16, schema: Payload, example: Payload) -> Self {
        Self { version, schema, example, breaking: false }
    }

    /// The same, which need not be compatible.
    #[must_use]
    pub fn breaking(mut self) -> Self {
        self.breaking = true;
        self
    }
}

/// That a type is on its way out. It can still be recorded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Deprecated {
    /// Since when: a date such as `2026-01-31`.
    pub on: String,
    /// Why, and what to do.
    pub note: String,
    /// The type that takes its place, if one does.
    pub replaced_by: Option<String>,
}

impl Deprecated {
    /// Since a date such as `2026-01-31`.
    pub fn on(date: impl Into<String>) -> Self {
        Self { on: date.into(), note: String::new(), replaced_by: None }
    }

    /// The same, with a reason.
    #[must_use]
    pub fn note(mut self, note: impl Into<String>) -> Self {
        self.note = note.into();
        self
    }

    /// The same, with the type that takes its place.
    #[must_use]
    pub fn replaced_by(mut self, name: impl Into<String>) -> Self {
        self.replaced_by = Some(name.into());
        self
    }
}

/// An event type.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct EventTypeSpec {
    /// Its name, such as `order.paid`.
    pub name: String,
    /// What it means, for those who subscribe.
    pub description: String,
    /// Who may see it.
    pub exposure: Exposure,
    /// The form of its subjects, such as `order/{id}`: a name in braces stands for one or more characters other than a slash.
    pub subject: Option<String>,
    /// What becomes of data that do not fit.
    pub validation: Validation,
    /// What its data look like. Events follow the newest one unless they say another.
    pub versions: Vec<TypeVersion>,
    /// Set when it is on its way out.
    pub deprecated: Option<Deprecated>,
}

impl EventTypeSpec {
    /// An internal type.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            description: String::new(),
            exposure: Exposure::Internal,
            subject: None,
            validation: Validation::Off,
            versions: Vec::new(),
            deprecated: None,
        }
    }

    /// The same type, with what it means.
    #[must_use]
    pub fn description(mut self, text: impl Into<String>) -> Self {
        self.description = text.into();
        self
    }

    /// The same type, visible to endpoints.
    #[must_use]
    pub fn public(mut self) -> Self {
        self.exposure = Exposure::Public;
        self
    }

    /// The same type, whose subjects have this form, such as `order/{id}`.
    #[must_use]
    pub fn subject(mut self, form: impl Into<String>) -> Self {
        self.subject = Some(form.into());
        self
    }

    /// The same type, with one version more.
    #[must_use]
    pub fn version(mut self, version: TypeVersion) -> Self {
        self.versions.push(version);
        self
    }

    /// The same type, whose data are looked at when they are recorded.
    #[must_use]
    pub fn validation(mut self, validation: Validation) -> Self {
        self.validation = validation;
        self
    }

    /// The same type, on its way out.
    #[must_use]
    pub fn deprecated(mut self, deprecated: Deprecated) -> Self {
        self.deprecated = Some(deprecated);
        self
    }
}

impl From<&str> for EventTypeSpec {
    fn from(name: &str) -> Self {
        Self::new(name)
    }
}
