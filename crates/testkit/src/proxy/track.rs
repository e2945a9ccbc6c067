use std::collections::{HashMap, VecDeque};

use super::frame::Message;

/// Follows the transactions of a connection, so as to know which message brings a commit about and which reply tells of it.
///
/// It reads only the first word of a statement: a simple query of several statements is taken for its first one.
#[derive(Debug, Default)]
pub(super) struct Track {
    in_transaction: bool,
    statements: HashMap<String, Word>,
    portals: HashMap<String, Word>,
    batch: Batch,
    /// What the server has not answered with `ReadyForQuery` yet.
    cycles: VecDeque<Cycle>,
    commits: u64,
}

/// What a statement does to its transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Word {
    Begin,
    Commit,
    Rollback,
    Other,
}

/// The extended messages since the last `Sync`.
#[derive(Debug, Default)]
struct Batch {
    executed: bool,
    commit: Option<u64>,
}

/// From a simple query, or a `Sync`, to its `ReadyForQuery`.
#[derive(Debug)]
struct Cycle {
    commit: Option<u64>,
    failed: bool,
}

impl Word {
    fn of(sql: &str) -> Self {
        let words: Vec<String> = sql
            .split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
            .filter(|word| !word.is_empty())
            .take(4)
            .map(str::to_ascii_lowercase)
            .collect();
        match words.first().map(String::as_str) {
            Some("begin" | "start") => Self::Begin,
            Some("commit" | "end") => Self::Commit,
            // rolling back to a savepoint ends nothing
            Some("rollback" | "abort") if !words.iter().any(|word| word == "to") => Self::Rollback,
            _ => Self::Other,
        }
    }
}

impl Track {
    /// A message of the client is about to be forwarded: the number of the commit that it brings about, from 1. A statement outside
    /// of a transaction commits with its query or its `Sync`.
    pub(super) fn frontend(&mut self, message: &Message) -> Option<u64> {
        let mut texts = message.texts(5);
        let first = texts.next().unwrap_or_default();
        let second = texts.next().unwrap_or_default();
        match message.kind {
            b'Q' | b'F' => {
                let word = if message.kind == b'Q' { Word::of(&first) } else { Word::Other };
                let commit = self.ends(word, self.in_transaction).then(|| self.next_commit());
                self.cycles.push_back(Cycle { commit, failed: false });
                commit
            }
            b'P' => {
                self.statements.insert(first, Word::of(&second));
                None
            }
            b'B' => {
                let word = self.statements.get(&second).copied().unwrap_or(Word::Other);
                self.portals.insert(first, word);
                None
            }
            b'E' => {
                let word = self.portals.get(&first).copied().unwrap_or(Word::Other);
                self.batch.executed |= word == Word::Other;
                if word == Word::Other || !self.ends(word, self.in_transaction) {
                    return None;
                }
                self.batch.commit = Some(self.next_commit());
                self.batch.commit
            }
            b'S' => {
                let batch = std::mem::take(&mut self.batch);
                let alone = batch.commit.is_none() && batch.executed && !self.in_transaction;
                let fresh = alone.then(|| self.next_commit());
                self.cycles.push_back(Cycle { commit: batch.commit.or(fresh), failed: false });
                fresh
            }
            _ => None,
        }
    }

    /// Whether a statement commits; and the transaction as it is after it.
    fn ends(&mut self, word: Word, in_transaction: bool) -> bool {
        self.in_transaction = match word {
            Word::Begin => true,
            Word::Commit | Word::Rollback => false,
            Word::Other => in_transaction,
        };
        (word == Word::Commit && in_transaction) || (word == Word::Other && !in_transaction)
    }

    fn next_commit(&mut self) -> u64 {
        self.commits += 1;
        self.commits
    }

    /// The commit whose reply comes next.
    pub(super) fn awaited(&self) -> Option<u64> {
        self.cycles.front().map_or(self.batch.commit, |cycle| cycle.commit)
    }

    /// A message of the server: whether it tells that the awaited commit has landed, or that it has not; `None` if it is not the end
    /// of its reply.
    pub(super) fn backend(&mut self, message: &Message) -> Option<bool> {
        match message.kind {
            b'E' => self.fail(),
            // the end of a transaction that had failed before
            b'C' if message.bytes.get(5..) == Some(b"ROLLBACK\0") => self.fail(),
            b'Z' => {
                let cycle = self.cycles.pop_front();
                if self.cycles.is_empty() {
                    self.in_transaction = message.bytes.get(5) != Some(&b'I');
                }
                return Some(cycle.is_some_and(|cycle| !cycle.failed));
            }
            _ => {}
        }
        None
    }

    fn fail(&mut self) {
        if let Some(cycle) = self.cycles.front_mut() {
            cycle.failed = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: u8, body: &[u8]) -> Message {
        let length = u32::try_from(body.len() + 4).unwrap();
        Message { kind, bytes: [&[kind], length.to_be_bytes().as_slice(), body].concat() }
    }

    fn extended(track: &mut Track, sql: &str) -> Vec<Option<u64>> {
        let parse = [b"s\0", sql.as_bytes(), b"\0\0\0"].concat();
        let messages: [(u8, &[u8]); 4] = [(b'P', &parse), (b'B', b"\0s\0rest"), (b'E', b"\0\0\0\0\0"), (b'S', b"")];
        messages.iter().map(|(kind, body)| track.frontend(&message(*kind, body))).collect()
    }

    #[test]
    fn a_commit_is_the_message_that_brings_it_about() {
        let mut track = Track::default();
        assert_eq!(track.frontend(&message(b'Q', b"BEGIN\0")), None);
        assert_eq!(extended(&mut track, "insert into t values (1)"), [None; 4]);
        assert_eq!(track.frontend(&message(b'Q', b"rollback to savepoint a\0")), None);
        assert_eq!(track.frontend(&message(b'Q', b"  COMMIT ;\0")), Some(1));
        assert_eq!(extended(&mut track, "insert into t values (1)"), [None, None, None, Some(2)], "alone");
        assert_eq!(extended(&mut track, "start transaction"), [None; 4]);
        assert_eq!(extended(&mut track, "end"), [None, None, Some(3), None]);
        assert_eq!(track.frontend(&message(b'Q', b"insert into t values (1)\0")), Some(4));
        assert_eq!(track.frontend(&message(b'Q', b"commit\0")), None, "there is nothing to commit");
    }

    #[test]
    fn a_statement_that_is_only_prepared_commits_nothing() {
        let mut track = Track::default();
        assert_eq!(track.frontend(&message(b'P', b"s\0insert into t values (1)\0\0\0")), None);
        assert_eq!(track.frontend(&message(b'D', b"Ss\0")), None);
        assert_eq!(track.frontend(&message(b'S', b"")), None);
    }

    #[test]
    fn a_commit_has_landed_when_its_whole_reply_says_so() {
        let mut track = Track::default();
        track.frontend(&message(b'Q', b"begin\0"));
        assert_eq!(track.backend(&message(b'Z', b"T")), Some(true));
        track.frontend(&message(b'Q', b"commit\0"));
        assert_eq!(track.awaited(), Some(1));
        assert_eq!(track.backend(&message(b'C', b"COMMIT\0")), None);
        assert_eq!(track.backend(&message(b'Z', b"I")), Some(true));

        track.frontend(&message(b'Q', b"begin\0"));
        track.backend(&message(b'Z', b"E"));
        track.frontend(&message(b'Q', b"commit\0"));
        track.backend(&message(b'C', b"ROLLBACK\0"));
        assert_eq!(track.backend(&message(b'Z', b"I")), Some(false), "the transaction had failed");

        extended(&mut track, "insert into t values (1)");
        assert_eq!(track.awaited(), Some(3));
        track.backend(&message(b'E', b"SERROR\0\0"));
        assert_eq!(track.backend(&message(b'Z', b"I")), Some(false));
    }
}
