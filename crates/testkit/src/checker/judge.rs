use std::collections::{BTreeMap, BTreeSet};

use uuid::Uuid;

use super::Terms;
use super::line::{Answer, Fate, Item, Word};
use super::story::{Life, Note, Story, Strand, Tx, What};
use super::table::{Number, Table};

impl Terms {
    pub(super) fn knows(&self, target: &str) -> bool {
        self.is_endpoint(target) || self.kind == target || self.subscriptions.iter().any(|name| name == target)
    }

    fn is_endpoint(&self, target: &str) -> bool {
        self.endpoints.iter().any(|name| name == target)
    }

    fn targets(&self, is_job: bool) -> Vec<&String> {
        if is_job { vec![&self.kind] } else { self.subscriptions.iter().chain(&self.endpoints).collect() }
    }
}

/// Judges a part of the transactions; what belongs to none is judged with the first part.
pub(super) fn judge(story: &Story, terms: &Terms, is_first: bool, table: &mut Table) {
    let mut expected = BTreeSet::new();
    for (id, tx) in &story.txs {
        if transaction(*id, tx, table) {
            for &(n, is_job) in &tx.kept {
                table.items += 1;
                let targets = terms.targets(is_job).into_iter();
                expected.extend(targets.map(|target| (Item { tx: *id, n }, target.clone())));
            }
        }
    }
    table.expected += expected.len() as u64;
    let nothing = Strand::default();
    for key in &expected {
        let (strand, event) = (story.strands.get(key).unwrap_or(&nothing), event_of(story, key.0));
        Judgement { story, terms, key, strand, event, table: &mut *table }.pass();
    }
    for (key, strand) in story.strands.iter().filter(|(key, _)| !expected.contains(key)) {
        let effects = strand.ran.len() + strand.posted.len() + strand.jobs.len();
        for _ in 0..effects {
            table.add(Number::Phantom, || format!("{} for {}", key.0, key.1));
        }
    }
    if is_first {
        for process in &story.died {
            table.add(Number::Died, || process.clone());
        }
        for blow in &story.blows {
            let of_kind = table.faults.entry(blow.kind.clone()).or_default();
            of_kind.planned += 1;
            of_kind.fired += u64::from(blow.fired);
        }
    }
}

fn event_of(story: &Story, item: Item) -> Option<Uuid> {
    story.txs.get(&item.tx)?.events.get(&item.n).copied()
}

/// Whether what it meant to leave must be there.
fn transaction(id: Uuid, tx: &Tx, table: &mut Table) -> bool {
    let there = !tx.rows.is_empty();
    if !tx.intended {
        table.add(Number::Phantom, || format!("{id} was never meant"));
        return false;
    }
    let events: BTreeSet<u32> = tx.kept.iter().filter(|(_, is_job)| !is_job).map(|(n, _)| *n).collect();
    let whole: BTreeSet<u32> = tx.kept.iter().map(|(n, _)| *n).chain([0]).collect();
    let recorded: BTreeSet<u32> = tx.events.keys().copied().collect();
    match tx.fate {
        Some(Fate::RolledBack) => {
            table.rolled_back += 1;
            if there || !recorded.is_empty() {
                table.add(Number::Phantom, || format!("{id} was rolled back and is there"));
            }
            return false;
        }
        Some(Fate::Committed) => {
            table.committed += 1;
            if !there {
                table.add(Number::Lost, || format!("{id} was acknowledged and has no row"));
            }
        }
        None => {
            table.undecided += 1;
            if !there && recorded.is_empty() {
                return false;
            }
        }
    }
    if tx.rows != whole || recorded != events {
        table.add(Number::Torn, || {
            format!("{id} has rows {:?} of {whole:?}, events {recorded:?} of {events:?}", tx.rows)
        });
    }
    true
}

/// Everything about one item for one subscription, endpoint or kind.
struct Judgement<'a> {
    story: &'a Story,
    terms: &'a Terms,
    key: &'a (Item, String),
    strand: &'a Strand,
    event: Option<Uuid>,
    table: &'a mut Table,
}

impl Judgement<'_> {
    fn pass(mut self) {
        let lives = self.strand.jobs.iter().filter_map(|id| self.story.lives.get(id));
        let lives: Vec<&Life> = lives.collect();
        for _ in 1..lives.len() {
            self.red(Number::UnexplainedExtra, "has more than one job");
        }
        let Some(&life) = lives.first() else {
            self.red(Number::Lost, "has no job");
            return;
        };
        self.identity();
        self.time(life);
        for says in stale(life, &self.story.workers) {
            self.red(Number::StaleWrite, &says);
        }
        let (lost, unexplained) = self.losses(life);
        if self.terms.is_endpoint(&self.key.1) {
            self.received(life, lost.len() - unexplained.len());
        } else {
            self.handled(life, &lost, &unexplained);
        }
        self.end(life);
    }

    fn red(&mut self, number: Number, says: &str) {
        let (item, target) = self.key;
        self.table.add(number, || format!("{item} for {target} {says}"));
    }

    /// Whatever came of an event came with its id and with one body.
    fn identity(&mut self) {
        let ran = self.strand.ran.iter().map(|ran| (ran.event, ran.hash.as_str()));
        let posted = self.strand.posted.iter().map(|posted| (Some(posted.event), posted.hash.as_str()));
        let seen: BTreeSet<(Option<Uuid>, &str)> = ran.chain(posted).collect();
        if seen.len() > 1 || seen.iter().any(|(event, _)| *event != self.event) {
            self.red(Number::NotDedupable, &format!("was seen as {seen:?} of {:?}", self.event));
        }
    }

    /// No attempt began before its job was due, or due again.
    fn time(&mut self, life: &Life) {
        let mut due = life.scheduled.then_some(life.due_us);
        let mut is_first = true;
        for note in &life.notes {
            match note.what {
                What::Given { at_us, .. } => {
                    if due.is_some_and(|due| at_us < due) {
                        self.red(Number::Early, &format!("began at {at_us}, due {due:?}"));
                    }
                    if is_first {
                        self.table.late(at_us - life.due_us);
                    }
                    is_first = false;
                }
                What::Later { run_at_us } => due = Some(run_at_us),
                What::Ended { .. } | What::Done { .. } => {}
            }
        }
    }

    /// The leases that were lost with their worker, and those of them that no fault explains.
    fn losses(&mut self, life: &Life) -> (BTreeSet<i64>, BTreeSet<i64>) {
        let (mut lost, mut unexplained) = (BTreeSet::new(), BTreeSet::new());
        let aftermath = i64::try_from(self.terms.aftermath.as_micros()).unwrap_or(i64::MAX);
        for &(lease, _, _, lost_us) in life.attempts.iter().filter(|(_, _, outcome, _)| *outcome == 3) {
            lost.insert(lease);
            self.table.losses += 1;
            let had = life.notes.iter().find_map(|note| match note.what {
                What::Given { worker, at_us } if note.lease == lease => Some((worker, at_us)),
                _ => None,
            });
            let blow = had.and_then(|(worker, given_us)| {
                let process = self.story.workers.get(&worker)?;
                let blows = self.story.blows.iter();
                let blows = blows.filter(|blow| blow.explains(process, (given_us, lost_us), aftermath));
                // its own fault rather than everybody's
                blows.max_by_key(|blow| blow.target == *process)
            });
            match blow {
                Some(blow) => self.table.faults.entry(blow.kind.clone()).or_default().losses += 1,
                None => drop(unexplained.insert(lease)),
            }
        }
        (lost, unexplained)
    }

    /// An effect stands for its job if the lease that it ran under completed it. Every other one was lost with its lease, to a fault.
    fn handled(&mut self, life: &Life, lost: &BTreeSet<i64>, unexplained: &BTreeSet<i64>) {
        let mut effects = BTreeMap::<i64, u64>::new();
        for ran in self.strand.ran.iter().filter(|ran| ran.word == Word::Effect) {
            *effects.entry(ran.lease).or_default() += 1;
        }
        let all: u64 = effects.values().sum();
        self.table.effects += all;
        self.table.extra += all.saturating_sub(1);
        let completes = |lease: i64| life.state == Some(2) && life.lease == lease;
        for (&lease, &times) in &effects {
            let excused = completes(lease) || (lost.contains(&lease) && !unexplained.contains(&lease));
            if times > 1 || (all > 1 && !excused) {
                self.red(Number::UnexplainedExtra, &format!("had {times} of {all} effects under lease {lease}"));
            }
        }
        if life.state == Some(2) && !effects.contains_key(&life.lease) {
            self.red(Number::Lost, "is complete without an effect of the lease that completed it");
        }
        let given = |lease: i64| life.notes.iter().any(|n| n.lease == lease && matches!(n.what, What::Given { .. }));
        if let Some(ran) = self.strand.ran.iter().find(|ran| !given(ran.lease)) {
            self.red(Number::Phantom, &format!("ran under lease {}, which never had it", ran.lease));
        }
    }

    /// A receiver does not know of leases: it may have been asked once more for each lost one, and for each answer that it did not give.
    fn received(&mut self, life: &Life, lost: usize) {
        let count = |answer| self.strand.posted.iter().filter(|posted| posted.answer == answer).count();
        let (taken, dropped) = (count(Answer::Ok), count(Answer::Drop));
        self.table.effects += (taken + dropped) as u64;
        let extra = (taken + dropped).saturating_sub(1);
        self.table.extra += extra as u64;
        for _ in (lost + dropped)..extra {
            let says = format!("was received {taken} times, {dropped} times unanswered, with {lost} losses explained");
            self.red(Number::UnexplainedExtra, &says);
        }
        if life.state == Some(2) && taken == 0 {
            self.red(Number::Lost, "is delivered and was not received");
        }
        for posted in &self.strand.posted {
            let rows = life.deliveries.iter().filter(|(attempt, _)| *attempt == posted.attempt);
            match rows.map(|(_, started_us)| *started_us).min() {
                None => self.red(Number::Phantom, &format!("was posted as attempt {}, of no row", posted.attempt)),
                Some(started_us) if !posted.believed || posted.signed_at < started_us.div_euclid(1_000_000) => {
                    let says = format!("has {posted}, its attempt began at {started_us}");
                    self.red(Number::BadSignature, &says);
                }
                Some(_) => {}
            }
        }
    }

    fn end(&mut self, life: &Life) {
        let tried = life.attempts.iter().filter(|(_, _, outcome, _)| *outcome != 3).count();
        let most = i16::try_from(tried).unwrap_or(i16::MAX).max(life.attempt);
        let seen = self.strand.ran.iter().map(|ran| ran.attempt).chain(self.strand.posted.iter().map(|p| p.attempt));
        if seen.chain([most]).max() > Some(life.max_attempts) {
            self.red(Number::OverMax, &format!("was tried {most} times of {}", life.max_attempts));
        }
        match life.state {
            None => self.red(Number::Stuck, "has not ended"),
            Some(2) => {}
            Some(_) if life.says_why => self.table.dead += 1,
            Some(_) => self.red(Number::Lost, "is dead and does not say why"),
        }
    }
}

/// What was written by who did not hold the job. An outcome stands in the transaction that takes the job from its lease; unless the
/// job is told as lost, that is a transaction of the worker that held it. And nobody is given what another one holds, or what is done.
fn stale(life: &Life, workers: &std::collections::HashMap<Uuid, String>) -> Vec<String> {
    let mut found = Vec::new();
    let mut held: Option<i64> = None;
    let mut done = false;
    for note in &life.notes {
        match note.what {
            What::Given { .. } => {
                if done || held.is_some_and(|lease| lease != note.lease) {
                    found.push(format!("was given to lease {} while held by {held:?}, done: {done}", note.lease));
                }
                held = Some(note.lease);
            }
            What::Ended { .. } => {
                if held != Some(note.lease) {
                    found.push(format!("was taken from lease {}, which did not hold it", note.lease));
                }
                held = None;
            }
            What::Done { ended_as } => {
                found.extend(outcome(life, note, ended_as == 4, workers));
                done = true;
            }
            What::Later { .. } if note.lease != 0 => found.extend(outcome(life, note, false, workers)),
            What::Later { .. } => {}
        }
    }
    found
}

fn outcome(
    life: &Life,
    written: &Note,
    is_lost: bool,
    workers: &std::collections::HashMap<Uuid, String>,
) -> Option<String> {
    let holder = life.notes.iter().find_map(|note| match note.what {
        What::Ended { worker } if note.lease == written.lease && note.xid == written.xid => Some(worker),
        _ => None,
    });
    let Some(worker) = holder else {
        return Some(format!("was ended by {} for lease {}, which did not hold it", written.process, written.lease));
    };
    let owner = workers.get(&worker).map_or("?", String::as_str);
    (!is_lost && owner != written.process)
        .then(|| format!("was ended by {}, and {owner} had the lease", written.process))
}
