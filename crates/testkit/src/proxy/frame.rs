use std::collections::BTreeMap;

use super::Hello;

/// The type of a message that has no type byte: the first of a connection.
pub(super) const STARTUP: u8 = 0;
/// A longer message is not one: Postgres refuses it as well.
const MESSAGE_BYTES_MAX: usize = 1 << 30;
const CANCEL: u32 = 80_877_102;
const TLS: u32 = 80_877_103;
const GSS: u32 = 80_877_104;

/// One message as it went over the wire.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Message {
    pub(super) kind: u8,
    pub(super) bytes: Vec<u8>,
}

/// These bytes are not of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Garbled;

/// Takes one direction of a connection apart into messages, protocol version 3.
#[derive(Debug)]
pub(super) struct Frames {
    buffer: Vec<u8>,
    typed: bool,
}

impl Frames {
    /// From the client, which begins without type bytes.
    pub(super) fn from_client() -> Self {
        Self { buffer: Vec::new(), typed: false }
    }

    /// From the server.
    pub(super) fn from_server() -> Self {
        Self { buffer: Vec::new(), typed: true }
    }

    pub(super) fn feed(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// The next whole message, `None` if it is not all here.
    pub(super) fn next(&mut self) -> Result<Option<Message>, Garbled> {
        let head = usize::from(self.typed);
        let Some(length) = self.buffer.get(head..head + 4).and_then(number) else { return Ok(None) };
        let whole = head + usize::try_from(length).map_err(|_| Garbled)?;
        if !(head + 4..=MESSAGE_BYTES_MAX).contains(&whole) {
            return Err(Garbled);
        }
        if self.buffer.len() < whole {
            return Ok(None);
        }
        let rest = self.buffer.split_off(whole);
        let bytes = std::mem::replace(&mut self.buffer, rest);
        let kind = if self.typed { bytes.first().copied().unwrap_or(STARTUP) } else { STARTUP };
        let message = Message { kind, bytes };
        self.typed = self.typed || !message.asks_for_encryption();
        Ok(Some(message))
    }

    /// What is left of a message whose end never came.
    pub(super) fn rest(self) -> Vec<u8> {
        self.buffer
    }
}

fn number(bytes: &[u8]) -> Option<u32> {
    bytes.try_into().ok().map(u32::from_be_bytes)
}

impl Message {
    fn code(&self) -> Option<u32> {
        if self.kind == STARTUP { self.bytes.get(4..8).and_then(number) } else { None }
    }

    pub(super) fn asks_for_encryption(&self) -> bool {
        matches!(self.code(), Some(TLS | GSS))
    }

    pub(super) fn asks_to_cancel(&self) -> bool {
        self.code() == Some(CANCEL)
    }

    /// What a startup message says of its client.
    pub(super) fn hello(&self, number: u64) -> Hello {
        let mut texts = self.texts(8);
        let mut said = BTreeMap::new();
        while let (Some(name), Some(value)) = (texts.next(), texts.next()) {
            said.insert(name, value);
        }
        let mut take = |name| said.remove(name).unwrap_or_default();
        Hello { number, application: take("application_name"), user: take("user"), database: take("database") }
    }

    /// The texts that end with a zero byte, from a place in the message on.
    pub(super) fn texts(&self, from: usize) -> impl Iterator<Item = String> {
        let body = self.bytes.get(from..).unwrap_or_default();
        body.split(|byte| *byte == 0).map(|text| String::from_utf8_lossy(text).into_owned())
    }

    pub(super) fn contains(&self, text: &str) -> bool {
        self.bytes.windows(text.len().max(1)).any(|window| window == text.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(kind: u8, body: &[u8]) -> Vec<u8> {
        let length = u32::try_from(body.len() + 4).unwrap();
        [&[kind], length.to_be_bytes().as_slice(), body].concat()
    }

    fn startup(code: u32, body: &[u8]) -> Vec<u8> {
        let length = u32::try_from(body.len() + 8).unwrap();
        [length.to_be_bytes().as_slice(), code.to_be_bytes().as_slice(), body].concat()
    }

    #[test]
    fn messages_are_found_wherever_the_stream_is_torn() {
        let expected = [
            startup(TLS, b""),
            startup(196_608, b"user\0me\0application_name\0postrider beat\0database\0shop\0\0"),
            typed(b'Q', b"begin\0"),
            typed(b'S', b""),
        ];
        let stream = expected.concat();
        for size in 1..=stream.len() {
            let mut frames = Frames::from_client();
            let mut found = Vec::new();
            for chunk in stream.chunks(size) {
                frames.feed(chunk);
                while let Some(message) = frames.next().unwrap() {
                    found.push(message);
                }
            }
            assert_eq!(found.iter().map(|m| m.bytes.clone()).collect::<Vec<_>>(), expected, "in pieces of {size}");
            assert_eq!(found.iter().map(|m| m.kind).collect::<Vec<_>>(), [STARTUP, STARTUP, b'Q', b'S']);
            assert!(found[0].asks_for_encryption() && !found[1].asks_for_encryption());
            let hello = found[1].hello(3);
            assert_eq!((hello.number, hello.application.as_str()), (3, "postrider beat"));
            assert_eq!((hello.user.as_str(), hello.database.as_str()), ("me", "shop"));
        }
    }

    #[test]
    fn what_cannot_be_a_message_is_refused_and_a_torn_end_is_kept() {
        let mut frames = Frames::from_server();
        frames.feed(&[b'Z', 0, 0, 0, 3, b'I']);
        assert_eq!(frames.next(), Err(Garbled), "a length covers itself");
        let mut frames = Frames::from_server();
        frames.feed(&[b'D', 0xff, 0, 0, 0]);
        assert_eq!(frames.next(), Err(Garbled), "nothing is this long");
        let mut frames = Frames::from_server();
        frames.feed(&[b'Z', 0, 0, 0, 5]);
        assert_eq!(frames.next(), Ok(None));
        assert_eq!(frames.rest(), [b'Z', 0, 0, 0, 5]);
    }
}
