use std::fmt;
use std::str::FromStr;

use postrider_webhook::Clock;
use uuid::Uuid;

/// Now, in microseconds since 1970. All processes of a run are on one machine, so that its clock orders what they write.
pub fn now_us() -> i64 {
    Clock::system().now().as_micros()
}

/// One event or job that a producer made: the n-th of a transaction, named after it in its subject.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Item {
    /// The transaction, as its producer calls it.
    pub tx: Uuid,
    /// Its number in the transaction, from 1.
    pub n: u32,
}

impl Item {
    /// The item that a subject is about.
    pub fn of_subject(subject: &str) -> Option<Self> {
        let (tx, n) = subject.strip_prefix("booking/")?.split_once('/')?;
        Some(Self { tx: tx.parse().ok()?, n: n.parse().ok()? })
    }
}

impl fmt::Display for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.tx, self.n)
    }
}

/// What a handler noted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Word {
    /// It began.
    Begun,
    /// It had its effect, and will answer that it is complete.
    Effect,
    /// It will answer with a failure.
    Failed,
}

/// A handler's note, on the disk before it answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ran {
    /// What it did.
    pub word: Word,
    /// For which event or job.
    pub item: Item,
    /// The subscription, or the kind.
    pub target: String,
    /// The event's id; none for a job of its own.
    pub event: Option<Uuid>,
    /// The job.
    pub job: i64,
    /// The lease that it ran under.
    pub lease: i64,
    /// Which attempt.
    pub attempt: i16,
    /// The beginning of the SHA-256 of what it was given.
    pub hash: String,
    /// When, see [`now_us`].
    pub at_us: i64,
}

/// What a receiver is about to answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// A success.
    Ok,
    /// A failure: it did nothing.
    Fail,
    /// Nothing: it did what it was asked to, and closes the connection.
    Drop,
}

/// A receiver's note, on the disk before it answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Posted {
    /// For which event.
    pub item: Item,
    /// The endpoint.
    pub target: String,
    /// The `webhook-id`.
    pub event: Uuid,
    /// The `webhook-attempt`.
    pub attempt: i16,
    /// The beginning of the SHA-256 of the body.
    pub hash: String,
    /// Whether an independent library believes the signature.
    pub believed: bool,
    /// The `webhook-timestamp`, in seconds.
    pub signed_at: i64,
    /// What it will answer.
    pub answer: Answer,
    /// When, see [`now_us`].
    pub at_us: i64,
}

impl fmt::Display for Ran {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = match self.word {
            Word::Begun => "begun",
            Word::Effect => "effect",
            Word::Failed => "failed",
        };
        let Self { item, target, job, lease, attempt, hash, at_us, .. } = self;
        let event = self.event.map_or_else(|| "-".to_owned(), |event| event.to_string());
        write!(f, "{word} {item} {target} {event} {job} {lease} {attempt} {hash} {at_us}")
    }
}

impl fmt::Display for Posted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let answer = match self.answer {
            Answer::Ok => "ok",
            Answer::Fail => "fail",
            Answer::Drop => "drop",
        };
        let believed = if self.believed { "good" } else { "bad" };
        let Self { item, target, event, attempt, hash, signed_at, at_us, .. } = self;
        write!(f, "post {item} {target} {event} {attempt} {hash} {believed} {signed_at} {answer} {at_us}")
    }
}

/// What became of a transaction, as far as its producer knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    Committed,
    RolledBack,
}

/// A line of a ledger; of a transaction, of a handler, of a receiver, of the nemesis, or of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Line {
    /// What will be there after the commit: numbers, and whether each is a job.
    Intent(Uuid, Vec<(u32, bool)>),
    Ended(Uuid, Fate),
    Unknown(Uuid),
    Ran(Ran),
    Posted(Posted),
    Started(Uuid),
    Begin {
        no: u64,
        kind: String,
        target: String,
        at_us: i64,
    },
    End {
        no: u64,
        fired: bool,
        at_us: i64,
    },
    /// The nemesis found a process ended that nobody ended.
    Died(String),
    /// Of no interest here.
    Other,
}

impl Line {
    /// The transaction that a line is about, if it is about one.
    pub(super) fn tx(&self) -> Option<Uuid> {
        match self {
            Self::Intent(tx, _) | Self::Ended(tx, _) | Self::Unknown(tx) => Some(*tx),
            Self::Ran(ran) => Some(ran.item.tx),
            Self::Posted(posted) => Some(posted.item.tx),
            _ => None,
        }
    }

    /// None if it is no line of a ledger.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let words: Vec<&str> = text.split(' ').collect();
        Some(match words.as_slice() {
            ["intent", tx, items] => Self::Intent(tx.parse().ok()?, intended(items)?),
            ["acked", tx] | ["resolved", tx, "committed"] => Self::Ended(tx.parse().ok()?, Fate::Committed),
            ["rolled-back", tx] | ["resolved", tx, "aborted"] => Self::Ended(tx.parse().ok()?, Fate::RolledBack),
            ["unknown", tx] => Self::Unknown(tx.parse().ok()?),
            ["begun" | "effect" | "failed", rest @ ..] => {
                let word = match words.first() {
                    Some(&"begun") => Word::Begun,
                    Some(&"effect") => Word::Effect,
                    _ => Word::Failed,
                };
                Self::Ran(ran(word, rest)?)
            }
            ["post", rest @ ..] => Self::Posted(posted(rest)?),
            ["started", worker] => Self::Started(worker.parse().ok()?),
            ["begin", no, kind, target, at] => Self::Begin {
                no: no.parse().ok()?,
                kind: (*kind).to_owned(),
                target: (*target).to_owned(),
                at_us: at.parse().ok()?,
            },
            ["end", no, fired, at] => {
                Self::End { no: no.parse().ok()?, fired: fired.parse().ok()?, at_us: at.parse().ok()? }
            }
            ["died", process] => Self::Died((*process).to_owned()),
            ["listening" | "stopped" | "figures", ..] => Self::Other,
            _ => return None,
        })
    }
}

/// `1,2j,`: the second one is a job.
fn intended(text: &str) -> Option<Vec<(u32, bool)>> {
    let one = |word: &str| {
        let number = word.strip_suffix('j').unwrap_or(word);
        Some((number.parse().ok()?, number.len() < word.len()))
    };
    text.split_terminator(',').map(one).collect()
}

fn ran(word: Word, words: &[&str]) -> Option<Ran> {
    let &[tx, n, target, event, job, lease, attempt, hash, at] = words else { return None };
    Some(Ran {
        word,
        item: item(tx, n)?,
        target: target.to_owned(),
        event: if event == "-" { None } else { Some(event.parse().ok()?) },
        job: job.parse().ok()?,
        lease: lease.parse().ok()?,
        attempt: attempt.parse().ok()?,
        hash: hash.to_owned(),
        at_us: at.parse().ok()?,
    })
}

fn posted(words: &[&str]) -> Option<Posted> {
    let &[tx, n, target, event, attempt, hash, believed, signed_at, answer, at] = words else { return None };
    Some(Posted {
        item: item(tx, n)?,
        target: target.to_owned(),
        event: event.parse().ok()?,
        attempt: attempt.parse().ok()?,
        hash: hash.to_owned(),
        believed: believed == "good",
        signed_at: signed_at.parse().ok()?,
        answer: match answer {
            "ok" => Answer::Ok,
            "fail" => Answer::Fail,
            "drop" => Answer::Drop,
            _ => return None,
        },
        at_us: at.parse().ok()?,
    })
}

fn item(tx: &str, n: &str) -> Option<Item> {
    Some(Item { tx: tx.parse().ok()?, n: u32::from_str(n).ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_read_as_it_was_written() {
        let item = Item { tx: Uuid::from_u128(7), n: 3 };
        let ran = Ran {
            word: Word::Effect,
            item,
            target: "note.quick".to_owned(),
            event: Some(Uuid::from_u128(9)),
            job: 41,
            lease: 5,
            attempt: 2,
            hash: "0badc0de".to_owned(),
            at_us: 1_700_000_000_000_000,
        };
        let alone = Ran { event: None, word: Word::Begun, ..ran.clone() };
        for ran in [ran, alone] {
            assert_eq!(Line::parse(&ran.to_string()), Some(Line::Ran(ran)));
        }
        let posted = Posted {
            item,
            target: "a".to_owned(),
            event: Uuid::from_u128(9),
            attempt: 1,
            hash: "0badc0de".to_owned(),
            believed: false,
            signed_at: 1_700_000_000,
            answer: Answer::Drop,
            at_us: 1_700_000_000_000_001,
        };
        assert_eq!(Line::parse(&posted.to_string()), Some(Line::Posted(posted)));
    }

    #[test]
    fn an_intent_tells_events_from_jobs_and_what_is_no_line_is_refused() {
        let tx = Uuid::from_u128(1);
        assert_eq!(Line::parse(&format!("intent {tx} 1,3j,")), Some(Line::Intent(tx, vec![(1, false), (3, true)])));
        assert_eq!(Line::parse(&format!("intent {tx} ")), Some(Line::Intent(tx, vec![])));
        for text in ["", "intent x 1,", "effect 1 2", "acked", &format!("intent {tx} 1,x,")] {
            assert_eq!(Line::parse(text), None, "{text}");
        }
        assert_eq!(Item::of_subject(&format!("booking/{tx}/4")), Some(Item { tx, n: 4 }));
        assert_eq!(Item::of_subject("order/4"), None);
    }
}
