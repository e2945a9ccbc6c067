use std::cell::RefCell;
use std::time::Duration;

use postrider_contract::{Event, EventId, Payload, Retry, Timestamp};
use riverqueue::{BoxError, Hook, InsertContext, JobArgs};
use serde::{Deserialize, Serialize};

use postrider::NewJob;

/// What River keeps as the args of a job. River keeps args as `jsonb`, so texts whose bytes count are strings in it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Envelope {
    pub(crate) kind: String,
    pub(crate) args: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) owner: String,
    /// When it is first due, in microseconds; at once if it does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) due_at: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    retry: Option<Schedule>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    event: Option<Told>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) subscription: Option<i64>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Schedule {
    BackoffUs(u64, u64),
    StepsUs(Vec<u64>),
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Told {
    id: EventId,
    r#type: String,
    subject: String,
    owner: String,
    cause: Option<EventId>,
    version: Option<i16>,
    traceparent: Option<String>,
    occurred_at: i64,
    recorded_at: i64,
    data: String,
}

thread_local! {
    /// The kinds that the worker which is being registered runs: River asks a type for them, not a value.
    static KINDS: RefCell<&'static [&'static str]> = const { RefCell::new(&[]) };
}

impl JobArgs for Envelope {
    // never stored: the hook puts the job's own kind in its place
    const KIND: &'static str = "postrider";

    fn kind_aliases() -> &'static [&'static str] {
        KINDS.with_borrow(|kinds| *kinds)
    }
}

/// Runs `register` with the envelope's worker being registered for these kinds, which River then keeps for as long as the process lives.
pub(crate) fn registering<T>(kinds: impl Iterator<Item = String>, register: impl FnOnce() -> T) -> T {
    let kinds: Vec<&'static str> = kinds.map(|kind| &*Box::leak(kind.into_boxed_str())).collect();
    KINDS.set(Vec::leak(kinds));
    let registered = register();
    KINDS.set(&[]);
    registered
}

/// Gives each row its own kind: River's args know one kind for each Rust type, and every kind here is of one type.
pub(crate) struct OwnKind;

impl Hook for OwnKind {
    async fn insert_begin(&self, insert: &mut InsertContext) -> Result<(), BoxError> {
        let envelope: Envelope = serde_json::from_str(insert.encoded_args.get())?;
        insert.kind = envelope.kind;
        Ok(())
    }
}

impl Envelope {
    pub(crate) fn of(job: &NewJob) -> Self {
        let source = job.source.as_deref();
        Self {
            kind: job.kind.clone(),
            args: job.args.as_str().to_owned(),
            owner: job.owner.clone(),
            due_at: job.run_at.map(Timestamp::as_micros),
            retry: job.retry.as_ref().map(Schedule::of),
            event: source.map(|source| Told::of(&source.event)),
            subscription: source.map(|source| source.subscription),
        }
    }

    pub(crate) fn payload(&self) -> Payload {
        Payload::trusted(self.args.clone())
    }

    pub(crate) fn event(&self) -> Option<Event> {
        self.event.as_ref().map(Told::event)
    }

    pub(crate) fn retry(&self) -> Option<Retry> {
        self.retry.as_ref().map(Schedule::retry)
    }
}

impl Schedule {
    fn of(retry: &Retry) -> Self {
        let us = |duration: &Duration| u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        match retry {
            Retry::Backoff { first, most } => Self::BackoffUs(us(first), us(most)),
            Retry::Steps(steps) => Self::StepsUs(steps.iter().map(us).collect()),
        }
    }

    fn retry(&self) -> Retry {
        let us = |us: &u64| Duration::from_micros(*us);
        match self {
            Self::BackoffUs(first, most) => Retry::Backoff { first: us(first), most: us(most) },
            Self::StepsUs(steps) => Retry::Steps(steps.iter().map(us).collect()),
        }
    }
}

impl Told {
    fn of(event: &Event) -> Self {
        Self {
            id: event.id,
            r#type: event.r#type.clone(),
            subject: event.subject.clone(),
            owner: event.owner.clone(),
            cause: event.cause,
            version: event.version,
            traceparent: event.traceparent.clone(),
            occurred_at: event.occurred_at.as_micros(),
            recorded_at: event.recorded_at.as_micros(),
            data: event.data.as_str().to_owned(),
        }
    }

    fn event(&self) -> Event {
        Event {
            id: self.id,
            r#type: self.r#type.clone(),
            subject: self.subject.clone(),
            owner: self.owner.clone(),
            occurred_at: Timestamp::from_micros(self.occurred_at),
            recorded_at: Timestamp::from_micros(self.recorded_at),
            cause: self.cause,
            version: self.version,
            traceparent: self.traceparent.clone(),
            data: Payload::trusted(self.data.clone()),
        }
    }
}
