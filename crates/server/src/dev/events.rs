//! A file of events, read and checked as a whole before anything of it is recorded.

use std::fmt;
use std::io::{self, BufRead, BufReader, Read};

use flate2::bufread::MultiGzDecoder;
use postrider_contract::{DATA_BYTES_MAX, Payload, check_public_name, check_subject};
use serde::Deserialize;
use serde_json::value::RawValue;

/// The most that a file may hold once it is unpacked, in bytes: it is kept in memory.
pub const FILE_BYTES_MAX: u64 = 256 * 1024 * 1024;
/// The longest line, in bytes: the largest payload and room for its names.
const LINE_BYTES_MAX: u64 = DATA_BYTES_MAX as u64 + 4_096;
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

/// One line of a file of events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// The event's type.
    pub r#type: String,
    /// What it is about.
    pub subject: String,
    /// The bytes of the line's `data`, as they stand there.
    pub data: Payload,
}

/// Why a file of events was refused. Nothing of it was recorded.
#[derive(Debug)]
pub struct BadLine {
    /// The line, from 1; 0 for the file as a whole.
    pub line: usize,
    /// The field of the line, if one is at fault.
    pub field: Option<&'static str>,
    /// What is wrong and what to do.
    pub message: String,
}

impl fmt::Display for BadLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line > 0 {
            write!(f, "line {}: ", self.line)?;
        }
        if let Some(field) = self.field {
            write!(f, "{field}: ")?;
        }
        f.write_str(&self.message)
    }
}

impl std::error::Error for BadLine {}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Fields<'a> {
    #[serde(borrow, rename = "type")]
    r#type: Option<&'a RawValue>,
    #[serde(borrow)]
    subject: Option<&'a RawValue>,
    #[serde(borrow)]
    data: Option<&'a RawValue>,
}

/// Reads a whole file of events, plain or gzip (told by its first bytes), and checks every line at the gates that
/// `record` has, so that a bad line is found before anything is recorded.
pub fn read(file: impl Read) -> Result<Vec<Line>, BadLine> {
    let mut file = BufReader::new(file);
    let is_gzip = file.fill_buf().map_err(|e| unreadable(0, &e))?.starts_with(&GZIP_MAGIC);
    if is_gzip { lines(BufReader::new(MultiGzDecoder::new(file))) } else { lines(file) }
}

fn lines(file: impl BufRead) -> Result<Vec<Line>, BadLine> {
    let mut file = file.take(FILE_BYTES_MAX + 1);
    let mut lines = Vec::new();
    let mut line = Vec::new();
    for number in 1.. {
        line.clear();
        let length = (&mut file).take(LINE_BYTES_MAX + 1).read_until(b'\n', &mut line);
        if length.map_err(|e| unreadable(number, &e))? == 0 {
            break;
        }
        if file.limit() == 0 {
            let message = format!("the file unpacks to more than {FILE_BYTES_MAX} bytes; take a part of it");
            return Err(BadLine { line: 0, field: None, message });
        }
        if line.len() as u64 > LINE_BYTES_MAX {
            let message = format!("it is longer than {LINE_BYTES_MAX} bytes; payloads have at most {DATA_BYTES_MAX}");
            return Err(BadLine { line: number, field: None, message });
        }
        if !line.trim_ascii().is_empty() {
            lines.push(parse(&line).map_err(|(field, message)| BadLine { line: number, field, message })?);
        }
    }
    if lines.is_empty() {
        let message = "the file has no events; write one JSON object a line: type, subject, data".to_owned();
        return Err(BadLine { line: 0, field: None, message });
    }
    Ok(lines)
}

fn unreadable(line: usize, error: &io::Error) -> BadLine {
    BadLine { line, field: None, message: format!("it cannot be read: {error}") }
}

type Wrong = (Option<&'static str>, String);

fn parse(line: &[u8]) -> Result<Line, Wrong> {
    let text = std::str::from_utf8(line).map_err(|e| (None, format!("it is not UTF-8: {e}")))?;
    let fields: Fields<'_> = serde_json::from_str(text)
        .map_err(|e| (None, format!("it is not an object of type, subject and data: {e}")))?;
    let r#type = string("type", fields.r#type)?;
    check_public_name("type", &r#type).map_err(|refused| (Some("type"), told(&refused)))?;
    let subject = string("subject", fields.subject)?;
    check_subject(&subject).map_err(|refused| (Some("subject"), told(&refused)))?;
    let data = Payload::parse(present("data", fields.data)?.get()).map_err(|refused| (Some("data"), told(&refused)))?;
    Ok(Line { r#type, subject, data })
}

fn told(refused: &postrider_contract::Refused) -> String {
    format!("{}; {}", refused.message, refused.remedy)
}

fn present<'a>(field: &'static str, value: Option<&'a RawValue>) -> Result<&'a RawValue, Wrong> {
    value.ok_or_else(|| (Some(field), "it is missing; a line has type, subject and data".to_owned()))
}

fn string(field: &'static str, value: Option<&RawValue>) -> Result<String, Wrong> {
    serde_json::from_str(present(field, value)?.get())
        .map_err(|_| (Some(field), "it is not a string; write it in quotes".to_owned()))
}
