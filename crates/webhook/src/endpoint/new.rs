use std::time::Duration;

use postrider_contract::signature::Secret;
use postrider_contract::{Code, Pattern, Refused, check_owner};

use crate::schedule::ATTEMPTS_MAX;

/// How long an attempt may take when the endpoint does not say otherwise.
pub const TIMEOUT: Duration = Duration::from_secs(15);
/// The most patterns of one endpoint.
pub const TYPES_MAX: usize = 100;

const TIMEOUT_MIN: Duration = Duration::from_secs(1);
const TIMEOUT_MAX: Duration = Duration::from_mins(1);
const NAME_BYTES_MAX: usize = 200;

/// An endpoint that is about to be saved.
#[derive(Debug, Clone)]
pub struct NewEndpoint {
    /// Its name, unique for its owner.
    pub name: String,
    /// Whose events it gets; empty for the events of every owner.
    pub owner: String,
    /// Where it is: https, and a public address unless the deployment allows its network.
    pub url: String,
    /// Patterns over event types; only types that are declared public are ever sent.
    pub types: Vec<String>,
    /// How long one attempt may take, 1 s to 60 s. Default: [`TIMEOUT`].
    pub timeout: Duration,
    /// Attempts of a delivery, 1 to [`ATTEMPTS_MAX`], which is the default.
    pub max_attempts: i16,
    /// The secret to sign with. Default: a new one.
    pub secret: Option<Secret>,
}

impl NewEndpoint {
    /// An endpoint of the instance with the defaults.
    pub fn new<T: Into<String>>(
        name: impl Into<String>,
        url: impl Into<String>,
        types: impl IntoIterator<Item = T>,
    ) -> Self {
        Self {
            name: name.into(),
            owner: String::new(),
            url: url.into(),
            types: types.into_iter().map(Into::into).collect(),
            timeout: TIMEOUT,
            max_attempts: ATTEMPTS_MAX,
            secret: None,
        }
    }

    /// Everything that can be checked without asking anybody; the url is the guard's.
    pub(super) fn check(&self) -> Result<(), Refused> {
        if self.name.is_empty() || self.name.len() > NAME_BYTES_MAX || self.name.chars().any(char::is_control) {
            let message = "a name is 1 to 200 bytes of text without control characters";
            return Err(Refused::new(Code::Name, "name", message, "say what the endpoint is, for example billing"));
        }
        check_owner(&self.owner)?;
        if self.types.is_empty() || self.types.len() > TYPES_MAX {
            let message = format!("there are {} patterns, not 1 to {TYPES_MAX}", self.types.len());
            return Err(Refused::new(Code::Option, "types", message, "give at least one pattern, for example order.*"));
        }
        for pattern in &self.types {
            Pattern::parse(pattern)?;
        }
        if !(TIMEOUT_MIN..=TIMEOUT_MAX).contains(&self.timeout) {
            let message = format!("{} ms is not 1 s to 60 s", self.timeout.as_millis());
            return Err(Refused::new(Code::Option, "timeout", message, "leave it out for 15 s"));
        }
        if !(1..=ATTEMPTS_MAX).contains(&self.max_attempts) {
            let message = format!("{} is not 1 to {ATTEMPTS_MAX}", self.max_attempts);
            return Err(Refused::new(Code::Option, "max_attempts", message, "leave it out for all of them"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fine() -> NewEndpoint {
        NewEndpoint::new("billing", "https://hooks.example.com/", ["order.*"])
    }

    #[test]
    fn each_field_is_refused_by_its_name() {
        assert!(fine().check().is_ok());
        let cases = [
            ("name", NewEndpoint { name: String::new(), ..fine() }),
            ("name", NewEndpoint { name: "a\nb".into(), ..fine() }),
            ("name", NewEndpoint { name: "a".repeat(201), ..fine() }),
            ("owner", NewEndpoint { owner: "a\0".into(), ..fine() }),
            ("types", NewEndpoint { types: vec![], ..fine() }),
            ("types", NewEndpoint { types: vec!["order.*".into(), "Order".into()], ..fine() }),
            ("types", NewEndpoint { types: vec!["a".into(); 101], ..fine() }),
            ("timeout", NewEndpoint { timeout: Duration::from_millis(999), ..fine() }),
            ("timeout", NewEndpoint { timeout: Duration::from_millis(60_001), ..fine() }),
            ("max_attempts", NewEndpoint { max_attempts: 0, ..fine() }),
            ("max_attempts", NewEndpoint { max_attempts: 19, ..fine() }),
        ];
        for (field, new) in cases {
            let refused = new.check().unwrap_err();
            assert_eq!(refused.field, field);
            assert!(!refused.remedy.is_empty());
        }
    }
}
