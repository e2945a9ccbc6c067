use postrider_contract::Event;
use sha2::{Digest as _, Sha256};

/// The format that a new endpoint gets.
pub(crate) const FORMAT: i64 = 1;

/// The body of an event in a format: a pure function, so that every attempt of every delivery has equal bytes.
///
/// Format 1 is `{"id","type","subject","occurred_at","data"}`, in this order and without blanks; `data` are the recorded
/// bytes, never parsed. `None` for a format that this program does not know.
pub(crate) fn body(event: &Event, format: i64) -> Option<Vec<u8>> {
    (format == FORMAT).then(|| {
        format!(
            r#"{{"id":"{}","type":{},"subject":{},"occurred_at":"{}","data":{}}}"#,
            event.id,
            quoted(&event.r#type),
            quoted(&event.subject),
            event.occurred_at,
            event.data.as_str()
        )
        .into_bytes()
    })
}

/// The sha256 of a body, as it stands on the attempt.
pub(crate) fn sha256(body: &[u8]) -> [u8; 32] {
    Sha256::digest(body).into()
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use postrider_contract::{EventId, Payload, Timestamp};

    use super::*;

    fn event(subject: &str, data: &str) -> Event {
        Event {
            id: "0190b5f0-7e1a-7c3d-8f00-0123456789ab".parse::<EventId>().unwrap(),
            r#type: "order.paid".to_owned(),
            subject: subject.to_owned(),
            owner: "acme".to_owned(),
            occurred_at: Timestamp::from_micros(1_700_000_000_000_001),
            recorded_at: Timestamp::from_micros(1_700_000_001_000_000),
            cause: None,
            version: None,
            traceparent: None,
            data: Payload::trusted(data),
        }
    }

    fn text(event: &Event) -> String {
        String::from_utf8(body(event, FORMAT).unwrap()).unwrap()
    }

    #[test]
    fn the_body_has_five_members_and_the_recorded_bytes() {
        let data = "{ \"total\" : 1.50,\n \"big\":12345678901234567890123, \"a\":1e2,\"a\":2, \"ü\":\"\\u00fc\\/\" }";
        let expected = format!(
            "{{\"id\":\"0190b5f0-7e1a-7c3d-8f00-0123456789ab\",\"type\":\"order.paid\",\"subject\":\"order/42\",\
             \"occurred_at\":\"2023-11-14T22:13:20.000001Z\",\"data\":{data}}}"
        );
        assert_eq!(text(&event("order/42", data)), expected);
    }

    #[test]
    fn a_subject_cannot_break_out_of_its_string() {
        let hostile = "a\",\"data\":{},\"x\":\"\\ \u{2028} </script>";
        let parsed: serde_json::Value = serde_json::from_str(&text(&event(hostile, "[]"))).unwrap();
        assert_eq!(parsed["subject"], hostile);
        assert_eq!(parsed.as_object().unwrap().len(), 5);
        assert_eq!(parsed["data"], serde_json::json!([]));
    }

    #[test]
    fn an_unknown_format_has_no_body() {
        assert_eq!(body(&event("a", "{}"), 0), None);
        assert_eq!(body(&event("a", "{}"), 2), None);
    }
}
