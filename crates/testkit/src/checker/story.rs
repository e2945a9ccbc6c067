use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader};
use std::path::{Path, PathBuf};

use uuid::Uuid;

use super::Terms;
use super::fault::Blow;
use super::line::{Fate, Item, Line, Posted, Ran};

/// How much is read for one part of the transactions; what is kept of it takes about three times as much.
const PART_BYTES: u64 = 120 << 20;

/// A transaction: what its producer said, and what is there.
#[derive(Debug, Default)]
pub(super) struct Tx {
    pub(super) intended: bool,
    /// What is there after a commit: its number, and whether it is a job.
    pub(super) kept: Vec<(u32, bool)>,
    pub(super) fate: Option<Fate>,
    /// The numbers of its business rows.
    pub(super) rows: BTreeSet<u32>,
    /// Its events.
    pub(super) events: BTreeMap<u32, Uuid>,
}

/// What became of one item for one subscription, endpoint or kind.
#[derive(Debug, Default)]
pub(super) struct Strand {
    pub(super) jobs: Vec<i64>,
    pub(super) ran: Vec<Ran>,
    pub(super) posted: Vec<Posted>,
}

/// A job as the database has it at the end, and every lease that it had.
#[derive(Debug, Default)]
pub(super) struct Life {
    pub(super) max_attempts: i16,
    pub(super) due_us: i64,
    pub(super) scheduled: bool,
    /// 2 completed, 3 discarded, 4 cancelled.
    pub(super) state: Option<i16>,
    pub(super) attempt: i16,
    pub(super) lease: i64,
    pub(super) says_why: bool,
    pub(super) notes: Vec<Note>,
    /// Lease, attempt, outcome (2 failed, 3 lost, 4 refused), and when it ended.
    pub(super) attempts: Vec<(i64, i16, i16, i64)>,
    /// Attempt, and when its row was written.
    pub(super) deliveries: Vec<(i16, i64)>,
}

/// What a trigger noted, in the order in which it happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Note {
    pub(super) lease: i64,
    pub(super) xid: u64,
    pub(super) process: String,
    pub(super) what: What,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum What {
    /// A worker has it from now on.
    Given { worker: Uuid, at_us: i64 },
    /// That lease does not hold it any more.
    Ended { worker: Uuid },
    /// It is done; 4: lost with its worker.
    Done { ended_as: i16 },
    /// It waits until then.
    Later { run_at_us: i64 },
}

/// Everything about a part of the transactions.
#[derive(Debug, Default)]
pub(super) struct Story {
    pub(super) txs: BTreeMap<Uuid, Tx>,
    pub(super) strands: BTreeMap<(Item, String), Strand>,
    pub(super) lives: HashMap<i64, Life>,
    /// Which process each worker was.
    pub(super) workers: HashMap<Uuid, String>,
    pub(super) blows: Vec<Blow>,
    pub(super) died: Vec<String>,
}

impl Story {
    fn strand(&mut self, item: Item, target: &str) -> &mut Strand {
        self.strands.entry((item, target.to_owned())).or_default()
    }
}

fn files(folder: &Path, ending: &str) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|e| e == ending) {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// In how many parts the transactions are to be judged.
pub(super) fn parts(folder: &Path) -> io::Result<u64> {
    let mut bytes = 0;
    for path in files(folder, "ledger")?.into_iter().chain(files(folder, "state")?) {
        bytes += fs::metadata(path)?.len();
    }
    Ok(bytes / PART_BYTES + 1)
}

/// Reads what concerns one part of the transactions.
pub(super) fn read(folder: &Path, terms: &Terms, (part, parts): (u64, u64)) -> io::Result<Story> {
    let mut story = Story::default();
    let ours = |tx: Uuid| tx.as_u128() % u128::from(parts) == u128::from(part);
    for path in files(folder, "ledger")? {
        let process = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let mut begun = BTreeMap::new();
        each_line(&path, |text| {
            let line = Line::parse(text)?;
            if line.tx().is_none_or(ours) {
                told(&mut story, &process, line, &mut begun);
            }
            Some(())
        })?;
        // a fault that was never ended goes on
        story.blows.extend(begun.into_values());
    }
    let open = |name: &str| folder.join(format!("{name}.state"));
    each_line(&open("rows"), |text| row(&mut story, &ours, text))?;
    each_line(&open("events"), |text| event(&mut story, &ours, text))?;
    each_line(&open("jobs"), |text| job(&mut story, &ours, terms, text))?;
    each_line(&open("notes"), |text| note(&mut story, text))?;
    each_line(&open("attempts"), |text| {
        let &[id, lease, attempt, outcome, at] = columns(text).as_slice() else { return None };
        let one = (lease.parse().ok()?, attempt.parse().ok()?, outcome.parse().ok()?, at.parse().ok()?);
        story.lives.entry(id.parse().ok()?).and_modify(|life| life.attempts.push(one));
        Some(())
    })?;
    each_line(&open("deliveries"), |text| {
        let &[id, attempt, at] = columns(text).as_slice() else { return None };
        let one = (attempt.parse().ok()?, at.parse().ok()?);
        story.lives.entry(id.parse().ok()?).and_modify(|life| life.deliveries.push(one));
        Some(())
    })?;
    Ok(story)
}

/// Every whole line; one that its writer did not finish was told to nobody.
fn each_line(path: &Path, mut take: impl FnMut(&str) -> Option<()>) -> io::Result<()> {
    let mut reader = BufReader::new(File::open(path)?);
    let mut line = String::new();
    while reader.read_line(&mut line)? > 0 {
        if let Some(text) = line.strip_suffix('\n') {
            take(text).ok_or_else(|| {
                io::Error::new(io::ErrorKind::InvalidData, format!("{}: what does this say? {text:?}", path.display()))
            })?;
        }
        line.clear();
    }
    Ok(())
}

fn columns(text: &str) -> Vec<&str> {
    text.split('\t').collect()
}

fn told(story: &mut Story, process: &str, line: Line, begun: &mut BTreeMap<u64, Blow>) {
    match line {
        Line::Intent(tx, kept) => {
            let told = story.txs.entry(tx).or_default();
            told.intended = true;
            told.kept = kept;
        }
        Line::Ended(tx, fate) => story.txs.entry(tx).or_default().fate = Some(fate),
        Line::Ran(ran) => story.strand(ran.item, &ran.target.clone()).ran.push(ran),
        Line::Posted(posted) => story.strand(posted.item, &posted.target.clone()).posted.push(posted),
        Line::Started(worker) => drop(story.workers.insert(worker, process.to_owned())),
        Line::Begin { no, kind, target, at_us } => {
            begun.insert(no, Blow { kind, target, begin_us: at_us, end_us: i64::MAX, fired: false });
        }
        Line::End { no, fired, at_us } => {
            if let Some(blow) = begun.remove(&no) {
                story.blows.push(Blow { end_us: at_us, fired, ..blow });
            }
        }
        Line::Died(process) => story.died.push(process),
        Line::Unknown(_) | Line::Other => {}
    }
}

fn row(story: &mut Story, ours: &impl Fn(Uuid) -> bool, text: &str) -> Option<()> {
    let &[tx, n] = columns(text).as_slice() else { return None };
    let tx = tx.parse().ok()?;
    if ours(tx) {
        story.txs.entry(tx).or_default().rows.insert(n.parse().ok()?);
    }
    Some(())
}

fn event(story: &mut Story, ours: &impl Fn(Uuid) -> bool, text: &str) -> Option<()> {
    let &[tx, n, id] = columns(text).as_slice() else { return None };
    let tx = tx.parse().ok()?;
    if ours(tx) {
        story.txs.entry(tx).or_default().events.insert(n.parse().ok()?, id.parse().ok()?);
    }
    Some(())
}

fn job(story: &mut Story, ours: &impl Fn(Uuid) -> bool, terms: &Terms, text: &str) -> Option<()> {
    let &[tx, n, target, id, max_attempts, due, scheduled, state, attempt, lease, says_why] = columns(text).as_slice()
    else {
        return None;
    };
    let item = Item { tx: tx.parse().ok()?, n: n.parse().ok()? };
    if !ours(item.tx) {
        return Some(());
    }
    let id: i64 = id.parse().ok()?;
    let optional = |text: &str| if text == "\\N" { Some(None) } else { text.parse().ok().map(Some) };
    let life = Life {
        max_attempts: max_attempts.parse().ok()?,
        due_us: due.parse().ok()?,
        scheduled: scheduled == "t",
        state: optional(state)?,
        attempt: optional(attempt)?.unwrap_or_default(),
        lease: lease.parse().ok()?,
        says_why: says_why == "t",
        ..Life::default()
    };
    story.lives.insert(id, life);
    let target = if terms.knows(target) { target } else { "?" };
    story.strand(item, target).jobs.push(id);
    Some(())
}

fn note(story: &mut Story, text: &str) -> Option<()> {
    let &[job, lease, what, xid, process, worker, word, at] = columns(text).as_slice() else { return None };
    let Some(life) = story.lives.get_mut(&job.parse().ok()?) else { return Some(()) };
    let what = match what {
        "given" => {
            let worker = worker.parse().ok()?;
            // one that was killed before it could say who it is
            story.workers.entry(worker).or_insert_with(|| process.to_owned());
            What::Given { worker, at_us: at.parse().ok()? }
        }
        "ended" => What::Ended { worker: worker.parse().ok()? },
        "done" => What::Done { ended_as: word.parse().ok()? },
        "later" => What::Later { run_at_us: at.parse().ok()? },
        _ => return None,
    };
    let (lease, xid) = (lease.parse().ok()?, xid.parse().ok()?);
    life.notes.push(Note { lease, xid, process: process.to_owned(), what });
    Some(())
}
