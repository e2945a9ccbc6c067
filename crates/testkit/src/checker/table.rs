use std::collections::BTreeMap;
use std::fmt;

/// A number of the table that must be 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Number {
    /// Committed, and neither its effect is there nor a job that says why not.
    Lost,
    /// An effect, an event or a job of a transaction that was rolled back or that nobody meant; a request without its row.
    Phantom,
    /// A business row without its event or job, or the other way round; half of a transaction.
    Torn,
    /// A second effect without a lost lease that a fault explains, or an answer that the receiver kept to itself.
    UnexplainedExtra,
    /// Two effects of one event with another id or another body.
    NotDedupable,
    /// An outcome written by who did not hold the job then, or a job held twice at a time.
    StaleWrite,
    /// More attempts than the job has.
    OverMax,
    /// An attempt before its time, by the database's clock.
    Early,
    /// Not ended when everything had come to rest.
    Stuck,
    /// A request that an independent library does not believe, or that was signed before its attempt began.
    BadSignature,
    /// A process that ended, and nobody had ended it.
    Died,
}

impl Number {
    const ALL: [Self; 11] = [
        Self::Lost,
        Self::Phantom,
        Self::Torn,
        Self::UnexplainedExtra,
        Self::NotDedupable,
        Self::StaleWrite,
        Self::OverMax,
        Self::Early,
        Self::Stuck,
        Self::BadSignature,
        Self::Died,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Lost => "lost",
            Self::Phantom => "phantom",
            Self::Torn => "torn",
            Self::UnexplainedExtra => "unexplained extra",
            Self::NotDedupable => "not dedupable",
            Self::StaleWrite => "stale write",
            Self::OverMax => "attempts over max",
            Self::Early => "early",
            Self::Stuck => "stuck",
            Self::BadSignature => "bad signature",
            Self::Died => "ended unasked",
        }
    }
}

/// How many samples of a red number are told.
const SAMPLES_MAX: usize = 5;

/// Faults of one kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// How many the nemesis meant.
    pub planned: u64,
    /// How many befell anybody.
    pub fired: u64,
    /// How many lost attempts they explain.
    pub losses: u64,
}

/// What a run came to.
#[derive(Debug, Clone, Default)]
pub struct Table {
    /// Transactions that committed.
    pub committed: u64,
    /// Transactions that rolled back.
    pub rolled_back: u64,
    /// Transactions of which only the database tells: their producer was killed, or did not hear.
    pub undecided: u64,
    /// Events and jobs that committed transactions left.
    pub items: u64,
    /// What they should have come to: one effect for each subscription, endpoint or job.
    pub expected: u64,
    /// Effects.
    pub effects: u64,
    /// Effects beyond the first one.
    pub extra: u64,
    /// Jobs that ended as discarded and say why.
    pub dead: u64,
    /// Attempts that were lost with their worker.
    pub losses: u64,
    /// Faults by kind.
    pub faults: BTreeMap<String, Tally>,
    reds: BTreeMap<Number, (u64, Vec<String>)>,
    late_us: Vec<i64>,
}

impl Table {
    /// A number that must be 0.
    pub fn number(&self, number: Number) -> u64 {
        self.reds.get(&number).map_or(0, |(n, _)| *n)
    }

    /// The numbers that are not 0.
    pub fn red(&self) -> Vec<Number> {
        self.reds.keys().copied().collect()
    }

    /// How many faults fired.
    pub fn fired(&self) -> u64 {
        self.faults.values().map(|tally| tally.fired).sum()
    }

    pub(super) fn add(&mut self, number: Number, sample: impl FnOnce() -> String) {
        let (n, samples) = self.reds.entry(number).or_default();
        *n += 1;
        if samples.len() < SAMPLES_MAX {
            samples.push(sample());
        }
    }

    /// How much later than due a job was first given to a worker.
    pub(super) fn late(&mut self, us: i64) {
        self.late_us.push(us);
    }

    fn late_ms(&self) -> [i64; 3] {
        let mut late = self.late_us.clone();
        late.sort_unstable();
        let at = |permille: usize| late.get((late.len() * permille / 1_000).min(late.len().saturating_sub(1))).copied();
        [500, 990, 1_000].map(|permille| at(permille).unwrap_or_default() / 1_000)
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { committed, rolled_back, undecided, items, expected, effects, extra, dead, losses, .. } = self;
        writeln!(
            f,
            "transactions       {committed} committed, {rolled_back} rolled back; of {undecided} only the database tells"
        )?;
        writeln!(f, "events and jobs    {items}, to come to {expected} effects")?;
        writeln!(
            f,
            "effects            {effects}, of them extra {extra}; dead with a reason {dead}; attempts lost {losses}"
        )?;
        let [p50, p99, max] = self.late_ms();
        writeln!(f, "late               p50 {p50} ms, p99 {p99} ms, max {max} ms")?;
        writeln!(f, "{:<19}{:>9}  must be", "number", "value")?;
        for number in Number::ALL {
            let value = self.number(number);
            writeln!(f, "{:<19}{value:>9}  0{}", number.name(), if value > 0 { "   RED" } else { "" })?;
        }
        writeln!(
            f,
            "{:<19}{:>9}  not measured: effects are not written in the transaction that completes",
            "tx-effect", "-"
        )?;
        writeln!(f, "{:<19}{:>9}{:>9}{:>16}", "fault", "planned", "fired", "attempts lost")?;
        for (kind, tally) in &self.faults {
            writeln!(f, "{kind:<19}{:>9}{:>9}{:>16}", tally.planned, tally.fired, tally.losses)?;
        }
        let planned: u64 = self.faults.values().map(|tally| tally.planned).sum();
        writeln!(f, "{:<19}{planned:>9}{:>9}", "all", self.fired())?;
        for (number, (n, samples)) in &self.reds {
            for sample in samples {
                writeln!(f, "{}, one of {n}: {sample}", number.name())?;
            }
        }
        Ok(())
    }
}
