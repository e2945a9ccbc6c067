use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::{Code, Event, EventTypeSpec, NewEvent, Payload, Refused};

/// An event as a Rust type: its data are what the value serialises to.
///
/// ```
/// # use postrider_contract::{EventTypeSpec, NewEvent, TypedEvent};
/// #[derive(serde::Serialize, serde::Deserialize)]
/// struct OrderPaid {
///     order: u64,
///     total: u64,
/// }
///
/// impl TypedEvent for OrderPaid {
///     const TYPE: &'static str = "order.paid";
///
///     fn subject(&self) -> String {
///         format!("order/{}", self.order)
///     }
/// }
///
/// let declared = EventTypeSpec::of::<OrderPaid>().subject("order/{id}");
/// let event = NewEvent::of(&OrderPaid { order: 42, total: 10 })?;
/// assert_eq!((event.r#type.as_str(), event.subject.as_str()), ("order.paid", "order/42"));
/// assert_eq!(event.data.as_str(), r#"{"order":42,"total":10}"#);
/// # Ok::<(), postrider_contract::Refused>(())
/// ```
pub trait TypedEvent: Serialize {
    /// The name of its type.
    const TYPE: &'static str;
    /// The version of the type that the value is written as; without one, the newest that is declared.
    const VERSION: Option<i16> = None;

    /// What this one is about.
    fn subject(&self) -> String;

    /// Whose it is. Default: the instance's own.
    fn owner(&self) -> String {
        String::new()
    }
}

impl EventTypeSpec {
    /// An internal type with the name of a Rust type.
    pub fn of<E: TypedEvent>() -> Self {
        Self::new(E::TYPE)
    }
}

impl NewEvent {
    /// The event that a value stands for, happening now. Refused if the value does not serialise, or to more than an event may hold.
    pub fn of<E: TypedEvent + ?Sized>(event: &E) -> Result<Self, Refused> {
        let data = Payload::of(event)?;
        Ok(Self { owner: event.owner(), version: E::VERSION, ..Self::new(E::TYPE, event.subject(), data) })
    }
}

impl Event {
    /// The value that it stands for. Refused if it is of another type, or if its data are not such a value: that does not pass, so a handler
    /// may discard what it cannot read.
    pub fn decode<E: TypedEvent + DeserializeOwned>(&self) -> Result<E, Refused> {
        if self.r#type != E::TYPE {
            let message = format!("the event is of type {}, not {}", self.r#type, E::TYPE);
            return Err(Refused::new(Code::Mismatch, "type", message, "look at the type before you decode"));
        }
        self.data.decode().map_err(|e| {
            let version = self.version.map_or(String::new(), |version| format!(" version {version}"));
            // where, and not what: the message of serde may tell the value
            let message = format!("the data of {}{version} cannot be read at column {}", self.r#type, e.column());
            Refused::new(Code::Mismatch, "data", message, "read what its version says")
        })
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;
    use crate::{EventId, Timestamp};

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Paid {
        total: u64,
    }

    impl TypedEvent for Paid {
        const TYPE: &'static str = "order.paid";
        const VERSION: Option<i16> = Some(2);

        fn subject(&self) -> String {
            "order/1".to_owned()
        }

        fn owner(&self) -> String {
            "acme".to_owned()
        }
    }

    fn event(r#type: &str, data: &str) -> Event {
        Event {
            id: "019ace2e-5c00-7a3f-8000-000000000001".parse::<EventId>().unwrap(),
            r#type: r#type.to_owned(),
            subject: "order/1".to_owned(),
            owner: String::new(),
            occurred_at: Timestamp::from_micros(0),
            recorded_at: Timestamp::from_micros(0),
            cause: None,
            traceparent: None,
            version: Some(1),
            data: Payload::parse(data).unwrap(),
        }
    }

    #[test]
    fn a_typed_event_is_recorded_as_its_type_and_read_back() {
        let new = NewEvent::of(&Paid { total: 7 }).unwrap();
        assert_eq!((new.r#type.as_str(), new.owner.as_str(), new.version), ("order.paid", "acme", Some(2)));
        assert_eq!(event(&new.r#type, new.data.as_str()).decode::<Paid>(), Ok(Paid { total: 7 }));
        assert_eq!(EventTypeSpec::of::<Paid>().name, "order.paid");
    }

    #[test]
    fn what_is_not_the_type_is_refused_without_telling_its_value() {
        let other = event("order.sent", "{}").decode::<Paid>().unwrap_err();
        assert_eq!((other.code, other.field.as_str()), (Code::Mismatch, "type"));
        let bad = event("order.paid", r#"{"total": "secret"}"#).decode::<Paid>().unwrap_err();
        assert_eq!((bad.code, bad.field.as_str()), (Code::Mismatch, "data"));
        assert!(bad.message.contains("version 1") && !bad.to_string().contains("secret"), "{bad}");
    }
}
