use std::fs::File;
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::mpsc;
use std::thread;

use tokio::sync::oneshot;

type Line = (String, oneshot::Sender<io::Result<()>>);

/// A file of lines outside of the database: what a process meant to do, and what it did. A line is on the disk before its writer
/// goes on, so that the file tells the truth whatever is killed afterwards.
#[derive(Debug, Clone)]
pub struct Ledger(mpsc::Sender<Line>);

impl Ledger {
    /// Appends to a file. Writers that come together share one `fdatasync`.
    pub fn append(path: &Path) -> io::Result<Self> {
        let mut file = File::options().create(true).append(true).open(path)?;
        let (sender, lines) = mpsc::channel::<Line>();
        thread::Builder::new().name("ledger".to_owned()).spawn(move || {
            while let Ok(first) = lines.recv() {
                let batch: Vec<Line> = std::iter::once(first).chain(lines.try_iter()).collect();
                let text: String = batch.iter().flat_map(|(line, _)| [line.as_str(), "\n"]).collect();
                let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_data());
                for (_, done) in batch {
                    let answer =
                        written.as_ref().map_or_else(|e| Err(io::Error::new(e.kind(), e.to_string())), |()| Ok(()));
                    let _ = done.send(answer);
                }
            }
        })?;
        Ok(Self(sender))
    }

    /// Writes a line; answers when it is on the disk.
    pub async fn write(&self, line: String) -> io::Result<()> {
        let ended = || io::Error::other("the thread of the ledger ended");
        let (done, answer) = oneshot::channel();
        self.0.send((line, done)).map_err(|_| ended())?;
        answer.await.map_err(|_| ended())?
    }
}

/// The whole lines of a ledger; none if there is no file yet. A last line without its end was not told to anybody.
///
/// # Panics
/// If the file cannot be read.
pub fn lines(path: &Path) -> Vec<String> {
    match std::fs::read_to_string(path) {
        Ok(text) => text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n')).map(str::to_owned).collect(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(error) => panic!("cannot read {}: {error}", path.display()),
    }
}

/// What a handler of the fixture did: `begin`, `end` or `cancelled`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Effect {
    /// `begin`, `end` or `cancelled`.
    pub word: String,
    /// The kind without its `t.`, or the subscription.
    pub kind: String,
    /// The job.
    pub job: i64,
    /// Which attempt it was.
    pub attempt: i16,
    /// The lease that it ran under.
    pub lease: i64,
    /// The subject of its event, or `-`.
    pub subject: String,
}

impl Effect {
    /// An effect of a job.
    pub(crate) fn of(word: &str, job: &postrider::Job) -> Self {
        Self {
            word: word.to_owned(),
            kind: job.kind.strip_prefix("t.").unwrap_or(&job.kind).to_owned(),
            job: job.id.as_str().parse().unwrap_or_default(),
            attempt: job.attempt,
            lease: job.lease,
            subject: job.event.as_ref().map_or_else(|| "-".to_owned(), |event| event.subject.clone()),
        }
    }

    pub(crate) fn line(&self) -> String {
        format!("{} {} {} {} {} {}", self.word, self.kind, self.job, self.attempt, self.lease, self.subject)
    }

    /// The effect that a line tells, if it tells one.
    pub fn parse(line: &str) -> Option<Self> {
        let words: Vec<&str> = line.split(' ').collect();
        let &[word, kind, job, attempt, lease, subject] = words.as_slice() else { return None };
        Some(Self {
            word: word.to_owned(),
            kind: kind.to_owned(),
            job: job.parse().ok()?,
            attempt: attempt.parse().ok()?,
            lease: lease.parse().ok()?,
            subject: subject.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_line_is_read_as_it_was_written_and_a_torn_one_is_not_read() {
        let path = std::env::temp_dir().join(format!("postrider-ledger-{}", uuid::Uuid::new_v4().simple()));
        assert_eq!(lines(&path), Vec::<String>::new());
        let effect = Effect {
            word: "end".to_owned(),
            kind: "sleep".to_owned(),
            job: 9,
            attempt: 2,
            lease: 77,
            subject: "order/1".to_owned(),
        };
        Ledger::append(&path).unwrap().write(effect.line()).await.unwrap();
        File::options().append(true).open(&path).unwrap().write_all(b"end sleep 9").unwrap();
        let read = lines(&path);
        std::fs::remove_file(&path).unwrap();
        assert_eq!(read.iter().map(|line| Effect::parse(line)).collect::<Vec<_>>(), [Some(effect)]);
    }
}
