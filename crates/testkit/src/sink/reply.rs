use std::io::Write as _;
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;

/// What the sink does with one request.
#[derive(Debug, Clone)]
pub enum Reply {
    /// Answers with this status and an empty body.
    Status(u16),
    /// Answers with this status, these headers and this body.
    Full(u16, Vec<(String, String)>, Vec<u8>),
    /// Waits, then does the other thing.
    After(Duration, Box<Reply>),
    /// Answers `200` with what came in: the names and values of all headers, a blank line, the body.
    Echo,
    /// Sends these bytes and closes properly; they need not be HTTP.
    Raw(Vec<u8>),
    /// Sends these bytes and keeps the connection open for another request.
    Keep(Vec<u8>),
    /// Sends the bytes one at a time with a pause after each.
    Drip(Vec<u8>, Duration),
    /// Sends the first bytes, then the others again and again, until the other side closes.
    Endless(Vec<u8>, Vec<u8>),
    /// Sends the bytes, then resets the connection (RST). Over HTTP/2: resets the stream.
    Reset(Vec<u8>),
    /// Over HTTP/2: says that it did not look at the request. Else resets the connection.
    Refuse,
    /// Closes its sending side at once and goes on reading.
    HalfClose,
    /// Sends the bytes, perhaps none, and then nothing more.
    Stall(Vec<u8>),
}

impl Reply {
    /// Answers with a status and one header.
    pub fn with_header(status: u16, name: &str, value: &str) -> Self {
        Self::Full(status, vec![(name.to_owned(), value.to_owned())], Vec::new())
    }

    /// Answers with a status and a body.
    pub fn with_body(status: u16, body: impl Into<Vec<u8>>) -> Self {
        Self::Full(status, Vec::new(), body.into())
    }

    /// Answers with a status that asks to come back later; the value need not be a valid one.
    pub fn retry_after(status: u16, value: &str) -> Self {
        Self::with_header(status, "retry-after", value)
    }

    /// Answers with a status that sends somewhere else.
    pub fn redirect(status: u16, location: &str) -> Self {
        Self::with_header(status, "location", location)
    }

    /// Does the other thing after a while.
    pub fn after(wait: Duration, then: Self) -> Self {
        Self::After(wait, Box::new(then))
    }

    /// Answers `200` with a gzipped body that would unpack to this many MiB of zeroes; about a thousandth of it is sent.
    pub fn gzip_bomb(mebibytes: usize) -> Self {
        let mut packed = GzEncoder::new(Vec::new(), Compression::best());
        let zeroes = vec![0; 1_048_576];
        for _ in 0..mebibytes {
            // Writing to memory cannot fail; a shorter bomb would be one as well.
            let _ = packed.write_all(&zeroes);
        }
        let headers = vec![("content-encoding".to_owned(), "gzip".to_owned())];
        Self::Full(200, headers, packed.finish().unwrap_or_default())
    }

    /// Answers `200` with a body that never ends.
    pub fn endless() -> Self {
        Self::Endless(b"HTTP/1.1 200 OK\r\n\r\n".to_vec(), vec![b'x'; 4_096])
    }
}
