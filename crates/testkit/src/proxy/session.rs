use super::frame::{Message, STARTUP};
use super::track::Track;
use super::{At, Counts, Fault, Hello, Script, Side};

/// What one connection has said so far, and what its script still holds.
#[derive(Debug, Default)]
pub(super) struct Session {
    pub(super) hello: Hello,
    pub(super) script: Script,
    pub(super) counts: Counts,
    pub(super) fired: u64,
    track: Track,
    /// The reply to a commit, until it is whole.
    withheld: Vec<Message>,
}

/// What becomes of a message: first a fault, then what is forwarded, if that is still possible.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Pass {
    pub(super) fault: Option<Fault>,
    pub(super) then: Vec<Message>,
}

impl Session {
    pub(super) fn new(number: u64) -> Self {
        Self { hello: Hello { number, ..Hello::default() }, ..Self::default() }
    }

    /// A message that comes from this side.
    pub(super) fn pass(&mut self, from: Side, message: Message) -> Pass {
        match from {
            Side::Client => self.frontend(message),
            Side::Server => self.backend(message),
        }
    }

    fn frontend(&mut self, message: Message) -> Pass {
        *self.counts.frontend.entry(message.kind).or_default() += 1;
        let n = self.counts.frontends();
        let commit = if message.kind == STARTUP { None } else { self.track.frontend(&message) };
        let asks = matches!(message.kind, b'Q' | b'P');
        let fault = self.fire(|at| match at {
            At::Frontend(at) => *at == n,
            At::Saying(text) => asks && message.contains(text),
            At::Commit(at) => Some(*at) == commit,
            At::Backend(_) | At::Committed(_) => false,
        });
        Pass { fault, then: vec![message] }
    }

    fn backend(&mut self, message: Message) -> Pass {
        *self.counts.backend.entry(message.kind).or_default() += 1;
        let n = self.counts.backends();
        let awaited = self.track.awaited();
        let withhold = self.script.faults.iter().any(|(at, _)| matches!(at, At::Committed(n) if Some(*n) == awaited));
        let landed = self.track.backend(&message);
        let mut fault = self.fire(|at| matches!(at, At::Backend(at) if *at == n));
        self.withheld.push(message);
        if fault.is_none() && withhold {
            match landed {
                None => return Pass::default(),
                Some(true) => fault = self.fire(|at| matches!(at, At::Committed(n) if Some(*n) == awaited)),
                Some(false) => {}
            }
        }
        Pass { fault, then: std::mem::take(&mut self.withheld) }
    }

    fn fire(&mut self, mut due: impl FnMut(&At) -> bool) -> Option<Fault> {
        let index = self.script.faults.iter().position(|(at, _)| due(at))?;
        self.fired += 1;
        Some(self.script.faults.remove(index).1)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Cut;
    use super::*;

    const CUT: Fault = Fault::Cut(Cut::Fin);

    fn message(kind: u8, body: &[u8]) -> Message {
        let length = u32::try_from(body.len() + 4).unwrap();
        Message { kind, bytes: [&[kind], length.to_be_bytes().as_slice(), body].concat() }
    }

    #[test]
    fn nothing_of_the_reply_to_a_commit_is_forwarded_before_it_is_whole() {
        let mut session = Session { script: Script::new().at(At::Committed(1), CUT), ..Session::new(1) };
        let insert = message(b'Q', b"insert into t values (1)\0");
        assert_eq!(session.pass(Side::Client, insert.clone()), Pass { fault: None, then: vec![insert] });
        let (done, ready) = (message(b'C', b"INSERT 0 1\0"), message(b'Z', b"I"));
        assert_eq!(session.pass(Side::Server, done.clone()), Pass::default());
        let whole = Pass { fault: Some(CUT), then: vec![done, ready] };
        assert_eq!(session.pass(Side::Server, message(b'Z', b"I")), whole);
    }

    #[test]
    fn the_reply_to_a_commit_that_failed_is_forwarded_as_a_whole() {
        let mut session = Session { script: Script::new().at(At::Committed(1), CUT), ..Session::new(1) };
        session.pass(Side::Client, message(b'Q', b"insert into t values (1)\0"));
        let (error, ready) = (message(b'E', b"SERROR\0\0"), message(b'Z', b"I"));
        assert_eq!(session.pass(Side::Server, error.clone()), Pass::default());
        let whole = Pass { fault: None, then: vec![error, ready.clone()] };
        assert_eq!(session.pass(Side::Server, ready), whole);
        assert_eq!(session.fired, 0);
    }

    #[test]
    fn a_fault_befalls_its_message_once() {
        let mut session = Session { script: Script::new().at(At::Frontend(2), Fault::Stall), ..Session::new(1) };
        let faults: Vec<_> = (0..3).map(|_| session.pass(Side::Client, message(b'S', b"")).fault).collect();
        assert_eq!(faults, [None, Some(Fault::Stall), None]);
        assert_eq!((session.fired, session.counts.frontend(b'S')), (1, 3));
    }
}
