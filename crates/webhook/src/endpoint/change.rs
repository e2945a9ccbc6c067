use std::collections::BTreeMap;
use std::time::Duration;

use postrider_contract::{Order, Rate};

use super::NewEndpoint;
use crate::body::Format;
use crate::headers::Headers;
use crate::judge::On4xx;
use crate::schedule::Retries;

/// What is to be different about an endpoint; what is `None` stays. What can be left out is taken away by `Some(None)`.
#[derive(Debug, Clone, Default)]
pub struct EndpointChange {
    /// See [`NewEndpoint::name`].
    pub name: Option<String>,
    /// See [`NewEndpoint::url`].
    pub url: Option<String>,
    /// See [`NewEndpoint::types`].
    pub types: Option<Vec<String>>,
    /// See [`NewEndpoint::predicate`].
    pub predicate: Option<Option<String>>,
    /// See [`NewEndpoint::order`]; for events from now on.
    pub order: Option<Option<Order>>,
    /// See [`NewEndpoint::labels`].
    pub labels: Option<BTreeMap<String, String>>,
    /// See [`NewEndpoint::max_in_flight`]; what runs goes on.
    pub max_in_flight: Option<i16>,
    /// See [`NewEndpoint::rate`].
    pub rate: Option<Option<Rate>>,
    /// See [`NewEndpoint::format`]; also of deliveries that wait.
    pub format: Option<Format>,
    /// See [`NewEndpoint::retries`]; from the next failure on.
    pub retries: Option<Retries>,
    /// See [`NewEndpoint::timeout`].
    pub timeout: Option<Duration>,
    /// See [`NewEndpoint::max_attempts`].
    pub max_attempts: Option<i16>,
    /// See [`NewEndpoint::on_4xx`].
    pub on_4xx: Option<On4xx>,
    /// See [`NewEndpoint::answer_contains`].
    pub answer_contains: Option<Option<String>>,
    /// See [`NewEndpoint::headers`]; all of them.
    pub headers: Option<Headers>,
}

impl EndpointChange {
    pub(super) fn of(self, was: NewEndpoint) -> NewEndpoint {
        NewEndpoint {
            name: self.name.unwrap_or(was.name),
            owner: was.owner,
            url: self.url.unwrap_or(was.url),
            types: self.types.unwrap_or(was.types),
            predicate: self.predicate.unwrap_or(was.predicate),
            order: self.order.unwrap_or(was.order),
            labels: self.labels.unwrap_or(was.labels),
            max_in_flight: self.max_in_flight.unwrap_or(was.max_in_flight),
            rate: self.rate.unwrap_or(was.rate),
            format: self.format.unwrap_or(was.format),
            retries: self.retries.unwrap_or(was.retries),
            timeout: self.timeout.unwrap_or(was.timeout),
            max_attempts: self.max_attempts.unwrap_or(was.max_attempts),
            on_4xx: self.on_4xx.unwrap_or(was.on_4xx),
            answer_contains: self.answer_contains.unwrap_or(was.answer_contains),
            headers: self.headers.unwrap_or(was.headers),
            secret: None,
        }
    }
}
