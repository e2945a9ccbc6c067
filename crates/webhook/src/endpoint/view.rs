use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use postrider::Timestamp;
use postrider_contract::{Code, Order, Rate, Refused};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::NewEndpoint;
use crate::body::Format;
use crate::judge::On4xx;
use crate::schedule::Retries;
use crate::seal::Sealed;
use crate::storable::unbase64;

/// The id of an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct EndpointId(pub i64);

impl fmt::Display for EndpointId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// An endpoint as it is saved, without its secrets.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Endpoint {
    /// Its id.
    pub id: EndpointId,
    /// How often it was changed, and one.
    pub revision: i64,
    /// Its name, unique for its owner.
    pub name: String,
    /// Whose it is; it gets events of this owner only. Empty for the instance, which gets events of every owner.
    pub owner: String,
    /// Where it is.
    pub url: String,
    /// Patterns over event types.
    pub types: Vec<String>,
    /// What is true of the data of events that it gets, as Postgres writes the path back.
    pub predicate: Option<String>,
    /// If its deliveries are in order by subject: `block`, `skip` or `park:` and a number.
    pub order_policy: Option<String>,
    /// What its owner finds it by.
    pub labels: BTreeMap<String, String>,
    /// How many of its deliveries run at a time.
    pub max_in_flight: i64,
    /// How many attempts begin in each `rate_per_ms`.
    pub rate_starts: Option<i64>,
    /// A period of its rate, in milliseconds.
    pub rate_per_ms: Option<i64>,
    /// The format of the body.
    pub format: i64,
    /// The name of its schedule, unless that is a list.
    pub schedule: Option<String>,
    /// The waits after failed attempts, in milliseconds; `None` for those of the schedule `default`.
    pub steps_ms: Option<Vec<i64>>,
    /// How long one attempt may take, in milliseconds.
    pub timeout_ms: i64,
    /// Attempts of a delivery.
    pub max_attempts: i64,
    /// What becomes of a delivery that is answered with 4xx: `retry` or `discard`.
    pub on_4xx: String,
    /// What an answer has to contain.
    pub answer_contains: Option<String>,
    /// The names of its own headers; their values are sealed.
    pub header_names: Vec<String>,
    /// When it was created.
    pub created_at: Timestamp,
    /// Since when it is disabled, and why; `None` while it is enabled.
    pub disabled: Option<Disabled>,
    /// How it does.
    pub health: Health,
}

/// That an endpoint is disabled. What is to be delivered to it is held until it is enabled, or the time that events are kept is over.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Disabled {
    /// Since when.
    pub at: Timestamp,
    /// Why.
    pub reason: String,
    /// The last attempts before it, newest first: when, status, failure, reason.
    pub evidence: Value,
}

/// How an endpoint does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Default)]
pub struct Health {
    /// Since when most of its attempts fail; its deliveries wait behind one probe at a time.
    pub failing_since: Option<Timestamp>,
    /// Since when no attempt succeeded, although some were made.
    pub silent_since: Option<Timestamp>,
    /// Attempts that failed since then.
    pub failed: i64,
    /// How many of its deliveries run at a time while it is tried out again.
    pub in_flight: Option<i64>,
    /// One start in so many milliseconds, while it makes up for what has waited.
    pub pace_ms: Option<i64>,
    /// Until when nothing is sent: it asked to wait, or it cools down.
    pub held_until: Option<Timestamp>,
    /// Which of them.
    pub held_reason: Option<String>,
}

/// A delivery: one event on its way to one endpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Delivery {
    /// The id of its job.
    pub id: String,
    /// The endpoint.
    pub endpoint: EndpointId,
    /// The endpoint's name.
    pub endpoint_name: String,
    /// `waiting`, `held` (its endpoint is disabled), `sending`, `retrying`, `delivered`, `discarded` or `cancelled`.
    pub state: String,
    /// Attempts until now, those included that sent nothing.
    pub attempts: i64,
    /// The status of the last answer.
    pub status: Option<i64>,
    /// What the last attempt or the end of the delivery says.
    pub reason: Option<String>,
    /// When the event became a delivery.
    pub created_at: Timestamp,
    /// When it ended.
    pub finished_at: Option<Timestamp>,
}

/// One attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Attempt {
    /// The delivery.
    pub delivery: String,
    /// The endpoint, if the delivery belongs to one.
    pub endpoint: Option<EndpointId>,
    /// The event.
    pub event: Option<String>,
    /// The request's `webhook-id`, if it is not the event's id.
    pub sent_as: Option<String>,
    /// What made it: `auto`, `probe` (the endpoint was failing), `manual`, `replay` or `test`.
    pub trigger: String,
    /// Its number, from 1; a postponed attempt is followed by one with the same number.
    pub attempt: i64,
    /// When it was claimed.
    pub started_at: Timestamp,
    /// When its outcome was written.
    pub ended_at: Option<Timestamp>,
    /// `delivered`, `failed`, `postponed`, `discarded` or `skipped` (there was nothing to send); `None` while it is unknown.
    pub outcome: Option<String>,
    /// What it came to, in words.
    pub reason: Option<String>,
    /// The status of the answer.
    pub status: Option<i64>,
    /// The class of the failure, if there was no complete answer.
    pub failure: Option<String>,
    /// The beginning of the answer's body, made storable.
    pub excerpt: Option<String>,
    /// Who answered.
    pub peer: Option<String>,
    /// How many seconds the clock that dated the answer is ahead of the database's; below zero if it is behind, 0 if the date lies within the attempt.
    /// `None` without a date.
    pub clock_skew_s: Option<i64>,
    /// What that means, if it is so much that signatures are refused for it.
    pub clock_note: Option<String>,
    /// How long it took, in microseconds.
    pub total_us: Option<i64>,
}

fn order(policy: &str) -> Order {
    match policy.strip_prefix("park:").map(str::parse) {
        Some(Ok(failures)) => Order::Park(failures),
        _ if policy == "skip" => Order::Skip,
        _ => Order::Block,
    }
}

/// A number about endpoints.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Figure {
    /// `postrider.webhook.endpoints` (those in a state), `postrider.webhook.held` (deliveries of disabled endpoints, counted up to 10 000),
    /// `postrider.webhook.attempts` (those of the last hour that had an outcome) or, if there is a scope function, `postrider.webhook.scope_failures`
    /// (deliveries of which it failed to say anything).
    pub name: String,
    /// What it counts, as OpenTelemetry writes units.
    pub unit: String,
    /// The state of the endpoints, or the outcome of the attempts.
    pub attribute: String,
    /// How many.
    pub value: i64,
}

/// The function that is asked about each delivery.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ScopeView {
    /// Its name, with its schema.
    pub function: String,
    /// When it was declared.
    pub declared_at: Timestamp,
    /// Of how many deliveries it failed to say anything; they were given up.
    pub failures: i64,
    /// When it did last.
    pub failed_at: Option<Timestamp>,
    /// And with what: the SQLSTATE and the message, which may have data of the event in it.
    pub error: Option<String>,
}

/// Who would get an event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct WouldGet {
    /// The endpoint.
    pub id: EndpointId,
    /// Its name.
    pub name: String,
    /// Where it is.
    pub url: String,
    /// `enabled`, `failing` or `disabled`: then the delivery would be held.
    pub state: String,
}

/// An endpoint as `postrider.endpoints` tells it.
#[derive(Debug, Deserialize)]
pub(super) struct Told {
    id: i64,
    pub(super) revision: i64,
    name: String,
    owner: String,
    url: String,
    types: Vec<String>,
    predicate: Option<String>,
    order_policy: Option<String>,
    labels: BTreeMap<String, String>,
    max_in_flight: i64,
    rate_starts: Option<i64>,
    rate_per_ms: Option<i64>,
    format: i64,
    schedule: Option<String>,
    steps_ms: Option<Vec<i64>>,
    timeout_ms: i64,
    max_attempts: i64,
    on_4xx: String,
    answer_contains: Option<String>,
    pub(super) header_names: Vec<String>,
    headers: Option<String>,
    headers_key: Option<String>,
    created_us: i64,
    disabled_us: Option<i64>,
    disabled_reason: Option<String>,
    disabled_evidence: Option<Value>,
    failing_us: Option<i64>,
    silent_us: Option<i64>,
    failed: i64,
    in_flight: Option<i64>,
    pace_ms: Option<i64>,
    held_until_us: Option<i64>,
    held_reason: Option<String>,
}

impl Told {
    /// The endpoint as it would be saved again, without its secret and its headers. A newer program may have saved it with a format that this
    /// one does not know: it is not lost with another change, but refused unless the change names one.
    pub(super) fn as_new(&self, format: Option<Format>) -> Result<NewEndpoint, Refused> {
        let format = format.or_else(|| Format::of(self.format)).ok_or_else(|| {
            let message = format!("this program does not know format {} of the endpoint", self.format);
            Refused::new(Code::Option, "format", message, "name a format, or change it with the program that saved it")
        })?;
        let ms = |ms: i64| Duration::from_millis(u64::try_from(ms).unwrap_or_default());
        let small = |n: i64| i16::try_from(n).unwrap_or(i16::MAX);
        let rate = self.rate_starts.zip(self.rate_per_ms);
        let retries = match (self.schedule.as_deref().map(Retries::named), &self.steps_ms) {
            (Some(Ok(named)), _) => named,
            (_, Some(steps)) => Retries::Steps(steps.iter().copied().map(ms).collect()),
            _ => Retries::Default,
        };
        Ok(NewEndpoint {
            owner: self.owner.clone(),
            predicate: self.predicate.clone(),
            order: self.order_policy.as_deref().map(order),
            labels: self.labels.clone(),
            max_in_flight: small(self.max_in_flight),
            rate: rate.map(|(starts, per)| Rate { starts: u32::try_from(starts).unwrap_or(u32::MAX), per: ms(per) }),
            format,
            retries,
            timeout: ms(self.timeout_ms),
            max_attempts: small(self.max_attempts),
            on_4xx: On4xx::of(&self.on_4xx),
            answer_contains: self.answer_contains.clone(),
            ..NewEndpoint::new(self.name.clone(), self.url.clone(), self.types.iter().cloned())
        })
    }

    /// Its own headers, as they are stored.
    pub(super) fn sealed_headers(&self) -> Option<Sealed> {
        let (encoded, key_id) = self.headers.as_ref().zip(self.headers_key.as_ref())?;
        // What is not base64 opens as broken.
        Some(Sealed { key_id: key_id.clone(), bytes: unbase64(encoded).unwrap_or_default() })
    }

    pub(super) fn endpoint(self) -> Endpoint {
        let at = Timestamp::from_micros;
        let disabled = self.disabled_us.map(|us| Disabled {
            at: at(us),
            reason: self.disabled_reason.unwrap_or_default(),
            evidence: self.disabled_evidence.unwrap_or(Value::Array(Vec::new())),
        });
        let held_reason = self.held_until_us.and(self.held_reason);
        let health = Health {
            failing_since: self.failing_us.map(at),
            silent_since: self.silent_us.map(at),
            failed: self.failed,
            in_flight: self.in_flight,
            pace_ms: self.pace_ms,
            held_until: self.held_until_us.map(at),
            held_reason,
        };
        Endpoint {
            id: EndpointId(self.id),
            revision: self.revision,
            name: self.name,
            owner: self.owner,
            url: self.url,
            types: self.types,
            predicate: self.predicate,
            order_policy: self.order_policy,
            labels: self.labels,
            max_in_flight: self.max_in_flight,
            rate_starts: self.rate_starts,
            rate_per_ms: self.rate_per_ms,
            format: self.format,
            schedule: self.schedule,
            steps_ms: self.steps_ms,
            timeout_ms: self.timeout_ms,
            max_attempts: self.max_attempts,
            on_4xx: self.on_4xx,
            answer_contains: self.answer_contains,
            header_names: self.header_names,
            created_at: at(self.created_us),
            disabled,
            health,
        }
    }
}
