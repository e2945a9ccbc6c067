use serde::Serialize;

use crate::{EventId, Payload, Timestamp};

/// An event that is about to be recorded.
#[derive(Debug, Clone)]
pub struct NewEvent {
    /// The declared type, such as `order.paid`.
    pub r#type: String,
    /// What it is about, such as `order/42`.
    pub subject: String,
    /// JSON; its bytes are kept.
    pub data: Payload,
    /// Whose it is; empty for the instance itself.
    pub owner: String,
    /// When it happened, if that is not now.
    pub occurred_at: Option<Timestamp>,
    /// The event that caused it. What a handler records is caused by the event of its job unless this says otherwise.
    pub cause: Option<EventId>,
    /// Recording again with the same key answers with the first id, for 24 hours.
    pub idempotency_key: Option<String>,
    /// The version of the type that the data follow, if that is not the newest.
    pub version: Option<i16>,
    /// The trace that it belongs to, as the W3C's `traceparent`. A text that is none is dropped and counted.
    pub traceparent: Option<String>,
    /// When it is to be delivered, if that is not at once: its jobs are made then. At most 366 days ahead; a time that is over means now.
    pub deliver_at: Option<Timestamp>,
}

impl NewEvent {
    /// An event of the instance itself, happening now.
    pub fn new(r#type: impl Into<String>, subject: impl Into<String>, data: Payload) -> Self {
        Self {
            r#type: r#type.into(),
            subject: subject.into(),
            data,
            owner: String::new(),
            occurred_at: None,
            cause: None,
            idempotency_key: None,
            version: None,
            traceparent: None,
            deliver_at: None,
        }
    }
}

/// An event as the log has it.
#[derive(Debug, Clone, Serialize)]
pub struct Event {
    /// Its id.
    pub id: EventId,
    /// Its type.
    pub r#type: String,
    /// What it is about.
    pub subject: String,
    /// Whose it is; empty for the instance itself.
    pub owner: String,
    /// When it happened.
    pub occurred_at: Timestamp,
    /// When it was recorded, by the database's clock.
    pub recorded_at: Timestamp,
    /// The event that caused it.
    pub cause: Option<EventId>,
    /// The trace that it belongs to, as the W3C's `traceparent`.
    pub traceparent: Option<String>,
    /// The version of the type that the data follow, if the type has any.
    pub version: Option<i16>,
    /// The recorded bytes.
    pub data: Payload,
}
