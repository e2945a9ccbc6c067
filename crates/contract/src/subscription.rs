use std::time::Duration;

use serde::Serialize;

use crate::key::Order;
use crate::time::Timestamp;

/// Which jobs of a subscription run one after the other, in the order of their events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum OrderBy {
    /// Those of one subject.
    Subject,
    /// Those of one owner.
    Owner,
    /// All of them.
    All,
}

impl OrderBy {
    /// As SQL and the wire spell it: `subject`, `owner`, `all`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Subject => "subject",
            Self::Owner => "owner",
            Self::All => "all",
        }
    }
}

/// Where a new subscription begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Start {
    /// With every event that commits after it was declared.
    #[default]
    Now,
    /// With the events that were recorded at this moment or later, of those that are kept.
    At(Timestamp),
    /// With the first event that is kept.
    Beginning,
}

impl Start {
    /// As SQL and the wire spell it: `now`, `beginning`, or a time.
    pub fn text(self) -> String {
        match self {
            Self::Now => "now".to_owned(),
            Self::At(time) => time.to_string(),
            Self::Beginning => "beginning".to_owned(),
        }
    }
}

/// A subscription: which events become jobs of which kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubscriptionSpec {
    /// Its name, such as `receipt.on-paid`.
    pub name: String,
    /// Patterns over event types.
    pub types: Vec<String>,
    /// The kind of the jobs; its queue, priority, attempts and class are used.
    pub kind: String,
    /// Only events of this owner; empty for events of every owner.
    pub owner: String,
    /// How long after the event its job becomes due. Default: at once.
    pub delay: Duration,
    /// Only events for which this SQL/JSON path over their data is true, such as `$.total > 100`; `$type`, `$owner` and `$subject` are there
    /// as variables. Of an event about which it says nothing, because a member is missing or has another type, it is not true.
    pub predicate: Option<String>,
    /// Its jobs run in the order of the events: those of one subject, of one owner, or all. Default: each as it comes.
    pub order_by: Option<OrderBy>,
    /// What becomes of the jobs behind one that fails. Default: what the kind says.
    pub order: Option<Order>,
    /// Of the events of a subject only the latest counts while its job waits: it takes the place of the event that the job was made of.
    /// Default: each event has a job.
    pub coalescing: bool,
    /// Where it begins when it is new. Default: with what is recorded from then on.
    pub start: Start,
}

impl SubscriptionSpec {
    /// A subscription of every owner's events, whose kind has the same name.
    pub fn new<T: Into<String>>(name: impl Into<String>, types: impl IntoIterator<Item = T>) -> Self {
        let name = name.into();
        Self {
            kind: name.clone(),
            name,
            types: types.into_iter().map(Into::into).collect(),
            owner: String::new(),
            delay: Duration::ZERO,
            predicate: None,
            order_by: None,
            order: None,
            coalescing: false,
            start: Start::Now,
        }
    }
}
