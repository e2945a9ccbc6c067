use std::collections::BTreeMap;
use std::time::Duration;

use postrider_contract::signature::Secret;
use postrider_contract::{Code, Order, Pattern, Rate, Refused, check_owner};
use serde_json::{Value, json};

use crate::body::Format;
use crate::headers::Headers;
use crate::judge::On4xx;
use crate::schedule::{ATTEMPTS_MAX, Retries};

/// How long an attempt may take when the endpoint does not say otherwise.
pub const TIMEOUT: Duration = Duration::from_secs(15);
/// The most patterns of one endpoint.
pub const TYPES_MAX: usize = 100;
/// How many deliveries of an endpoint run at a time when it does not say otherwise.
pub const IN_FLIGHT: i16 = 5;

const TIMEOUT_MIN: Duration = Duration::from_secs(1);
const TIMEOUT_MAX: Duration = Duration::from_mins(1);
const NAME_BYTES_MAX: usize = 200;
const IN_FLIGHT_MAX: i16 = 32;
const LABELS_MAX: usize = 20;
const LABEL_BYTES_MAX: usize = 100;
const ANSWER_BYTES_MAX: usize = 200;

/// An endpoint that is about to be saved.
#[derive(Debug, Clone)]
pub struct NewEndpoint {
    /// Its name, unique for its owner.
    pub name: String,
    /// Whose events it gets; empty for the events of every owner. It never changes.
    pub owner: String,
    /// Where it is: https, and a public address unless the deployment allows its network.
    pub url: String,
    /// Patterns over event types; only types that are declared public are ever sent.
    pub types: Vec<String>,
    /// An SQL/JSON path over the event's data that is true of those that are sent, as a subscription has one.
    pub predicate: Option<String>,
    /// Deliveries of one subject are sent one after the other, in the order of the events; and what becomes of those behind one that fails.
    pub order: Option<Order>,
    /// What the owner wants to find it by: at most 20 names and texts of at most 100 bytes.
    pub labels: BTreeMap<String, String>,
    /// How many of its deliveries run at a time, 1 to 32. Default: [`IN_FLIGHT`].
    pub max_in_flight: i16,
    /// How many attempts begin in a period. Default: as many as come.
    pub rate: Option<Rate>,
    /// How an event becomes a request.
    pub format: Format,
    /// When failed attempts are tried again.
    pub retries: Retries,
    /// How long one attempt may take, 1 s to 60 s. Default: [`TIMEOUT`].
    pub timeout: Duration,
    /// Attempts of a delivery, 1 to [`ATTEMPTS_MAX`], which is the default.
    pub max_attempts: i16,
    /// What becomes of a delivery that is answered with 4xx.
    pub on_4xx: On4xx,
    /// A text that the beginning of the answer's body has to contain, 1 to 200 bytes; else an answer of 2xx is a failure.
    pub answer_contains: Option<String>,
    /// Headers beside ours; sealed at rest.
    pub headers: Headers,
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
            predicate: None,
            order: None,
            labels: BTreeMap::new(),
            max_in_flight: IN_FLIGHT,
            rate: None,
            format: Format::default(),
            retries: Retries::Default,
            timeout: TIMEOUT,
            max_attempts: ATTEMPTS_MAX,
            on_4xx: On4xx::Retry,
            answer_contains: None,
            headers: Headers::default(),
            secret: None,
        }
    }

    /// Everything that can be checked without asking anybody; the url is the guard's, the predicate the database's.
    pub(super) fn check(&self) -> Result<(), Refused> {
        if !is_text(&self.name, NAME_BYTES_MAX) {
            let message = "a name is 1 to 200 bytes of text without control characters";
            return Err(Refused::new(Code::Name, "name", message, "say what the endpoint is, for example billing"));
        }
        check_owner(&self.owner)?;
        if self.types.is_empty() || self.types.len() > TYPES_MAX {
            let message = format!("there are {} patterns, not 1 to {TYPES_MAX}", self.types.len());
            return Err(option("types", message, "give at least one pattern, for example order.*"));
        }
        for pattern in &self.types {
            Pattern::parse(pattern)?;
        }
        if self.predicate.as_ref().is_some_and(|path| path.contains('\0')) {
            return Err(option(
                "predicate",
                "it has NUL in it",
                "write a path that is true or false, such as $.total > 100",
            ));
        }
        self.check_sending()?;
        self.check_judging()
    }

    fn check_sending(&self) -> Result<(), Refused> {
        if let Some(Order::Park(failures)) = self.order
            && !(1..=999).contains(&failures)
        {
            return Err(option(
                "order",
                format!("{failures} failures are not 1 to 999"),
                "use park after 1 to 999 failures",
            ));
        }
        let labelled = |(name, text): (&String, &String)| {
            is_text(name, LABEL_BYTES_MAX) && text.len() <= LABEL_BYTES_MAX && !text.contains('\0')
        };
        if self.labels.len() > LABELS_MAX || !self.labels.iter().all(labelled) {
            let message = "labels are at most 20 names and texts of at most 100 bytes";
            return Err(option("labels", message, "keep more about it elsewhere, under its id"));
        }
        if !(1..=IN_FLIGHT_MAX).contains(&self.max_in_flight) {
            let message = format!("{} is not 1 to {IN_FLIGHT_MAX}", self.max_in_flight);
            return Err(option("max_in_flight", message, "leave it out for 5"));
        }
        if let Some(rate) = self.rate
            && (!(1..=1_000_000).contains(&rate.starts)
                || !(Duration::from_secs(1)..=Duration::from_hours(24)).contains(&rate.per))
        {
            let message = format!("{} starts in {} ms are not a rate", rate.starts, rate.per.as_millis());
            return Err(option("rate", message, "use 1 to 1000000 starts in 1 s to a day"));
        }
        Ok(())
    }

    fn check_judging(&self) -> Result<(), Refused> {
        self.retries.check()?;
        if !(TIMEOUT_MIN..=TIMEOUT_MAX).contains(&self.timeout) {
            let message = format!("{} ms is not 1 s to 60 s", self.timeout.as_millis());
            return Err(option("timeout", message, "leave it out for 15 s"));
        }
        if !(1..=ATTEMPTS_MAX).contains(&self.max_attempts) {
            let message = format!("{} is not 1 to {ATTEMPTS_MAX}", self.max_attempts);
            return Err(option("max_attempts", message, "leave it out for all of them"));
        }
        match &self.answer_contains {
            Some(text) if text.is_empty() || text.len() > ANSWER_BYTES_MAX || text.contains('\0') => {
                let message = "it is not 1 to 200 bytes of text";
                Err(option("answer_contains", message, "leave it out if every answer of 2xx is a success"))
            }
            _ => Ok(()),
        }
    }

    /// As `postrider.put_endpoint` reads it, at the url that the guard understood.
    pub(super) fn fields(&self, url: &str, header_names: &[String]) -> Value {
        let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        json!({
            "name": self.name, "owner": self.owner, "url": url, "types": self.types, "predicate": self.predicate,
            "order_by": self.order.map(|_| "subject"), "order_policy": self.order.map(Order::policy), "labels": self.labels,
            "max_in_flight": self.max_in_flight, "rate_starts": self.rate.map(|rate| rate.starts),
            "rate_per_ms": self.rate.map(|rate| ms(rate.per)), "format": self.format.number(), "schedule": self.retries.name(),
            "steps_ms": self.retries.steps().map(|steps| steps.iter().copied().map(ms).collect::<Vec<_>>()),
            "timeout_ms": ms(self.timeout), "max_attempts": self.max_attempts, "on_4xx": self.on_4xx.name(),
            "answer_contains": self.answer_contains, "header_names": header_names,
        })
    }
}

fn is_text(text: &str, bytes_max: usize) -> bool {
    !text.is_empty() && text.len() <= bytes_max && !text.chars().any(char::is_control)
}

fn option(field: &str, message: impl Into<String>, remedy: &str) -> Refused {
    Refused::new(Code::Option, field, message, remedy)
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
        let rate = |starts, per| Some(Rate { starts, per });
        let cases = [
            ("name", NewEndpoint { name: String::new(), ..fine() }),
            ("name", NewEndpoint { name: "a\nb".into(), ..fine() }),
            ("name", NewEndpoint { name: "a".repeat(201), ..fine() }),
            ("owner", NewEndpoint { owner: "a\0".into(), ..fine() }),
            ("types", NewEndpoint { types: vec![], ..fine() }),
            ("types", NewEndpoint { types: vec!["order.*".into(), "Order".into()], ..fine() }),
            ("types", NewEndpoint { types: vec!["a".into(); 101], ..fine() }),
            ("predicate", NewEndpoint { predicate: Some("$.a == \"\0\"".into()), ..fine() }),
            ("order", NewEndpoint { order: Some(Order::Park(0)), ..fine() }),
            ("labels", NewEndpoint { labels: [("a".repeat(101), "b".into())].into(), ..fine() }),
            ("labels", NewEndpoint { labels: (0..21).map(|n| (n.to_string(), "b".into())).collect(), ..fine() }),
            ("max_in_flight", NewEndpoint { max_in_flight: 0, ..fine() }),
            ("max_in_flight", NewEndpoint { max_in_flight: 33, ..fine() }),
            ("rate", NewEndpoint { rate: rate(0, Duration::from_secs(1)), ..fine() }),
            ("rate", NewEndpoint { rate: rate(1, Duration::from_millis(999)), ..fine() }),
            ("schedule", NewEndpoint { retries: Retries::Steps(vec![]), ..fine() }),
            ("timeout", NewEndpoint { timeout: Duration::from_millis(999), ..fine() }),
            ("timeout", NewEndpoint { timeout: Duration::from_millis(60_001), ..fine() }),
            ("max_attempts", NewEndpoint { max_attempts: 0, ..fine() }),
            ("max_attempts", NewEndpoint { max_attempts: 19, ..fine() }),
            ("answer_contains", NewEndpoint { answer_contains: Some(String::new()), ..fine() }),
            ("answer_contains", NewEndpoint { answer_contains: Some("a".repeat(201)), ..fine() }),
        ];
        for (field, new) in cases {
            let refused = new.check().unwrap_err();
            assert_eq!(refused.field, field);
            assert!(!refused.remedy.is_empty());
        }
    }
}
