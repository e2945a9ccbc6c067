use std::fmt;

use serde::de::DeserializeOwned;
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

use crate::code::{Code, Refused};

/// The largest payload, in bytes.
pub const DATA_BYTES_MAX: usize = 262_144;
/// The deepest nesting of arrays and objects.
pub const DEPTH_MAX: usize = 128;
/// The longest number before its exponent, in characters; with the exponent's limit this is what `jsonb` can always hold.
const MANTISSA_MAX: usize = 4_096;
const EXPONENT_DIGITS_MAX: usize = 4;

/// JSON text that passed the gate. Its bytes are kept: never re-serialised on the way.
#[derive(Clone, PartialEq, Eq)]
pub struct Payload(Box<str>);

impl Payload {
    /// Checks a text at the door; the error names the field `data`.
    pub fn parse(text: impl Into<Box<str>>) -> Result<Self, Refused> {
        let text = text.into();
        check_json("data", &text)?;
        Ok(Self(text))
    }

    /// Serialises a value.
    pub fn of<T: Serialize + ?Sized>(value: &T) -> Result<Self, Refused> {
        let text = serde_json::to_string(value)
            .map_err(|e| refused("data", format!("it does not serialise: {e}"), "pass a value with string keys"))?;
        Self::parse(text)
    }

    /// Serialises a value whose payloads have been checked one by one; the whole may be larger than one payload.
    pub fn of_trusted<T: Serialize + ?Sized>(value: &T) -> Result<Self, Refused> {
        serde_json::to_string(value)
            .map(|text| Self(text.into()))
            .map_err(|e| refused("data", format!("it does not serialise: {e}"), "pass a value with string keys"))
    }

    /// Wraps a text that the database has already checked.
    pub fn trusted(text: impl Into<Box<str>>) -> Self {
        Self(text.into())
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Decodes it.
    pub fn decode<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_str(&self.0)
    }
}

impl fmt::Debug for Payload {
    /// Tells the size only: payloads do not belong in a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Payload({} bytes)", self.0.len())
    }
}

impl Serialize for Payload {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let raw: &RawValue = serde_json::from_str(&self.0).map_err(serde::ser::Error::custom)?;
        raw.serialize(serializer)
    }
}

fn refused(field: &str, message: impl Into<String>, remedy: &str) -> Refused {
    Refused::new(Code::Json, field, message, remedy)
}

/// The gate that every payload passes, the same at each door: at most 256 KiB of JSON, 128 levels deep, without NUL and
/// lone surrogates, with numbers that `jsonb` can hold.
pub fn check_json(field: &str, text: &str) -> Result<(), Refused> {
    if text.len() > DATA_BYTES_MAX {
        let message = format!("it has {} bytes, the limit is {DATA_BYTES_MAX}", text.len());
        return Err(Refused::new(Code::Size, field, message, "keep the payload elsewhere and send its address"));
    }
    serde_json::from_str::<&RawValue>(text)
        .map_err(|e| refused(field, format!("it is not JSON: {e}"), "send one JSON value in UTF-8"))?;
    Scan { text: text.as_bytes(), at: 0, depth: 0 }.run(field)
}

/// A walk over text that is known to be JSON.
struct Scan<'a> {
    text: &'a [u8],
    at: usize,
    depth: usize,
}

impl Scan<'_> {
    fn run(mut self, field: &str) -> Result<(), Refused> {
        while let Some(&byte) = self.text.get(self.at) {
            self.at += 1;
            match byte {
                b'"' => self.string(field)?,
                b'{' | b'[' => {
                    self.depth += 1;
                    if self.depth > DEPTH_MAX {
                        let message = format!("it is nested deeper than {DEPTH_MAX} levels");
                        return Err(refused(field, message, "flatten the payload"));
                    }
                }
                b'}' | b']' => self.depth -= 1,
                b'-' | b'0'..=b'9' => self.number(field)?,
                _ => {}
            }
        }
        Ok(())
    }

    fn string(&mut self, field: &str) -> Result<(), Refused> {
        let mut high = false; // a high surrogate waits for its low one
        while let Some(&byte) = self.text.get(self.at) {
            self.at += 1;
            let unit = match byte {
                b'"' if high => return Err(lone(field)),
                b'"' => return Ok(()),
                b'\\' => self.escape(),
                _ => None,
            };
            match unit {
                Some(0) => return Err(refused(field, "a string has \\u0000", "remove NUL: Postgres cannot hold it")),
                Some(0xDC00..=0xDFFF) if high => high = false,
                Some(0xDC00..=0xDFFF) => return Err(lone(field)),
                _ if high => return Err(lone(field)),
                Some(0xD800..=0xDBFF) => high = true,
                _ => {}
            }
        }
        Ok(())
    }

    /// After a backslash: the code unit of a `\u` escape; other escapes are of no interest.
    fn escape(&mut self) -> Option<u16> {
        let kind = self.text.get(self.at).copied();
        self.at += 1;
        if kind != Some(b'u') {
            return None;
        }
        let digits = self.text.get(self.at..self.at + 4)?;
        self.at += 4;
        u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
    }

    fn number(&mut self, field: &str) -> Result<(), Refused> {
        let mantissa = 1 + self.skip(|b| b.is_ascii_digit() || b == b'.');
        let mut exponent = 0;
        if matches!(self.text.get(self.at), Some(b'e' | b'E')) {
            self.at += 1;
            self.skip(|b| b == b'+' || b == b'-');
            self.skip(|b| b == b'0');
            exponent = self.skip(|b| b.is_ascii_digit());
        }
        if mantissa > MANTISSA_MAX || exponent > EXPONENT_DIGITS_MAX {
            return Err(refused(
                field,
                "a number is too long or its exponent too large",
                "use at most 4096 characters and an exponent within 9999, or send it as a string",
            ));
        }
        Ok(())
    }

    fn skip(&mut self, wanted: impl Fn(u8) -> bool) -> usize {
        let rest = self.text.get(self.at..).unwrap_or_default();
        let n = rest.iter().take_while(|b| wanted(**b)).count();
        self.at += n;
        n
    }
}

fn lone(field: &str) -> Refused {
    refused(field, "a string has half of a surrogate pair", "send both halves, or the character itself")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nested(depth: usize) -> String {
        "[".repeat(depth) + &"]".repeat(depth)
    }

    #[test]
    fn the_gate_accepts_what_every_part_of_the_way_can_carry() {
        for good in [
            "{}",
            " {\"a\" : 1.0, \"a\": 2}\n",
            "12345678901234567890123",
            "1e9999",
            "1E+0001",
            r#""\\u0000""#,
            r#""\ud83d\ude00""#,
            r#""\"[[[""#,
            &nested(128),
        ] {
            assert!(check_json("data", good).is_ok(), "{good}");
        }
    }

    #[test]
    fn the_gate_refuses_the_rest_with_the_code_of_its_reason() {
        for bad in [
            "",
            "{",
            "[1,]",
            "nul",
            "\u{feff}{}",
            r#""\u0000""#,
            r#""\\\u0000""#,
            r#""\ud800""#,
            r#""\ud800x""#,
            r#""\ud800\n""#,
            r#""\udc00""#,
            r#""\ud800\ud800\udc00""#,
            "1e10000",
            "-1E+123456",
            &"9".repeat(4_097),
            &nested(129),
        ] {
            assert_eq!(check_json("data", bad).unwrap_err().code, Code::Json, "{bad}");
        }
        let large = format!("\"{}\"", "a".repeat(DATA_BYTES_MAX - 1));
        assert_eq!(check_json("data", &large).unwrap_err().code, Code::Size);
        assert!(check_json("data", &large[..1]).is_err());
    }

    #[test]
    fn a_payload_keeps_its_bytes() {
        let text = "{\"b\": 1.50, \"a\": 1e2}";
        let payload = Payload::parse(text).unwrap();
        assert_eq!(payload.as_str(), text);
        assert_eq!(serde_json::to_string(&payload).unwrap(), text);
        assert_eq!(format!("{payload:?}"), "Payload(21 bytes)");
    }
}
