use postrider_contract::Event;
use sha2::{Digest as _, Sha256};

/// The largest body, in bytes.
pub const BODY_BYTES_MAX: usize = 262_144;

/// What `source` of CloudEvents says: ids are unique in it.
const SOURCE: &str = "/postrider";
const JSON: &str = "application/json";
const CLOUDEVENTS_JSON: &str = "application/cloudevents+json; charset=utf-8";

/// How an event becomes a request. Numbers and names are what rows and callers have; neither changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Format {
    /// `{"id","type","subject","occurred_at","data"}`, in this order and without blanks.
    #[default]
    Envelope,
    /// CloudEvents 1.0 in structured mode: one JSON object.
    CloudEvents,
    /// CloudEvents 1.0 in binary mode: the data as the body, the rest in headers that begin with `ce-`.
    CloudEventsBinary,
    /// The data alone.
    Raw,
}

impl Format {
    /// Every format.
    pub const ALL: [Self; 4] = [Self::Envelope, Self::CloudEvents, Self::CloudEventsBinary, Self::Raw];

    /// Its number in the table of endpoints.
    pub const fn number(self) -> i16 {
        match self {
            Self::Envelope => 1,
            Self::CloudEvents => 2,
            Self::CloudEventsBinary => 3,
            Self::Raw => 4,
        }
    }

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Envelope => "envelope",
            Self::CloudEvents => "cloudevents",
            Self::CloudEventsBinary => "cloudevents-binary",
            Self::Raw => "raw",
        }
    }

    /// The format of a number; `None` for one that this program does not know.
    pub fn of(number: i64) -> Option<Self> {
        Self::ALL.into_iter().find(|format| i64::from(format.number()) == number)
    }
}

/// What is sent of an event: the body, and the headers that describe it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Content {
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) body: Vec<u8>,
}

/// An event in a format: a pure function, so that every attempt of every delivery has equal bytes. The data are the recorded
/// bytes, never parsed.
pub(crate) fn content(event: &Event, format: Format) -> Content {
    let data = event.data.as_str();
    let (id, occurred_at) = (event.id, event.occurred_at);
    let (kind, subject) = (quoted(&event.r#type), quoted(&event.subject));
    match format {
        Format::Envelope => Content::json(
            JSON,
            format!(r#"{{"id":"{id}","type":{kind},"subject":{subject},"occurred_at":"{occurred_at}","data":{data}}}"#),
        ),
        Format::CloudEvents => Content::json(
            CLOUDEVENTS_JSON,
            format!(
                r#"{{"specversion":"1.0","id":"{id}","source":"{SOURCE}","type":{kind},"subject":{subject},"time":"{occurred_at}","datacontenttype":"{JSON}","data":{data}}}"#
            ),
        ),
        Format::CloudEventsBinary => {
            let mut content = Content::json(JSON, data.to_owned());
            content.headers.extend([
                ("ce-specversion", "1.0".to_owned()),
                ("ce-id", id.to_string()),
                ("ce-source", SOURCE.to_owned()),
                ("ce-type", in_header(&event.r#type)),
                ("ce-subject", in_header(&event.subject)),
                ("ce-time", occurred_at.to_string()),
            ]);
            content
        }
        Format::Raw => Content::json(JSON, data.to_owned()),
    }
}

impl Content {
    fn json(content_type: &str, body: String) -> Self {
        Self { headers: vec![("content-type", content_type.to_owned())], body: body.into_bytes() }
    }
}

/// The sha256 of a body, as it stands on the attempt.
pub(crate) fn sha256(body: &[u8]) -> [u8; 32] {
    Sha256::digest(body).into()
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// An attribute as the HTTP binding of CloudEvents writes it: what is not printable ASCII, and `"`, `%` and blanks, as `%XX` of its
/// UTF-8.
fn in_header(text: &str) -> String {
    let mut written = String::with_capacity(text.len());
    for byte in text.bytes() {
        if (0x21..=0x7e).contains(&byte) && byte != b'"' && byte != b'%' {
            written.push(char::from(byte));
        } else {
            written.extend(['%', hex(byte >> 4), hex(byte & 15)]);
        }
    }
    written
}

fn hex(digit: u8) -> char {
    char::from_digit(digit.into(), 16).unwrap_or('0').to_ascii_uppercase()
}

#[cfg(test)]
mod tests {
    use postrider_contract::{EventId, Payload, Timestamp};

    use super::*;

    const ID: &str = "0190b5f0-7e1a-7c3d-8f00-0123456789ab";

    fn event(subject: &str, data: &str) -> Event {
        Event {
            id: ID.parse::<EventId>().unwrap(),
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

    fn text(event: &Event, format: Format) -> String {
        String::from_utf8(content(event, format).body).unwrap()
    }

    const DATA: &str =
        "{ \"total\" : 1.50,\n \"big\":12345678901234567890123, \"a\":1e2,\"a\":2, \"ü\":\"\\u00fc\\/\" }";

    #[test]
    fn the_body_has_five_members_and_the_recorded_bytes() {
        let expected = format!(
            "{{\"id\":\"{ID}\",\"type\":\"order.paid\",\"subject\":\"order/42\",\
             \"occurred_at\":\"2023-11-14T22:13:20.000001Z\",\"data\":{DATA}}}"
        );
        let event = event("order/42", DATA);
        assert_eq!(text(&event, Format::Envelope), expected);
        assert_eq!(content(&event, Format::Envelope).headers, [("content-type", "application/json".to_owned())]);
    }

    #[test]
    fn cloudevents_have_every_required_attribute_and_the_recorded_bytes() {
        let event = event("order/42", DATA);
        let expected = format!(
            "{{\"specversion\":\"1.0\",\"id\":\"{ID}\",\"source\":\"/postrider\",\"type\":\"order.paid\",\
             \"subject\":\"order/42\",\"time\":\"2023-11-14T22:13:20.000001Z\",\
             \"datacontenttype\":\"application/json\",\"data\":{DATA}}}"
        );
        assert_eq!(text(&event, Format::CloudEvents), expected);
        let structured = content(&event, Format::CloudEvents).headers;
        assert_eq!(structured, [("content-type", "application/cloudevents+json; charset=utf-8".to_owned())]);

        let binary = content(&event, Format::CloudEventsBinary);
        assert_eq!(binary.body, DATA.as_bytes());
        let headers: Vec<(&str, &str)> = binary.headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let expected = [
            ("content-type", "application/json"),
            ("ce-specversion", "1.0"),
            ("ce-id", ID),
            ("ce-source", "/postrider"),
            ("ce-type", "order.paid"),
            ("ce-subject", "order/42"),
            ("ce-time", "2023-11-14T22:13:20.000001Z"),
        ];
        assert_eq!(headers, expected);
    }

    #[test]
    fn raw_is_the_data_alone() {
        for data in [DATA, " null ", "[]", "\"\"", "1e400"] {
            assert_eq!(text(&event("order/42", data), Format::Raw), data);
        }
    }

    #[test]
    fn a_subject_cannot_break_out_of_its_string_or_its_header() {
        let hostile = "a\",\"data\":{},\"x\":\"\\ \u{2028} </script>";
        for (format, members) in [(Format::Envelope, 5), (Format::CloudEvents, 8)] {
            let parsed: serde_json::Value = serde_json::from_str(&text(&event(hostile, "[]"), format)).unwrap();
            assert_eq!(parsed["subject"], hostile);
            assert_eq!(parsed.as_object().unwrap().len(), members);
            assert_eq!(parsed["data"], serde_json::json!([]));
        }
        // The example of the HTTP binding of CloudEvents 1.0, section 3.1.3.2, and bytes that end a header.
        assert_eq!(in_header("Euro € 😀"), "Euro%20%E2%82%AC%20%F0%9F%98%80");
        assert_eq!(in_header("a\r\nb: \"%\u{7f}"), "a%0D%0Ab:%20%22%25%7F");
    }

    #[test]
    fn an_unknown_format_is_none() {
        assert_eq!((Format::of(0), Format::of(5), Format::of(65_537)), (None, None, None));
        for format in Format::ALL {
            assert_eq!(Format::of(format.number().into()), Some(format));
        }
    }
}
