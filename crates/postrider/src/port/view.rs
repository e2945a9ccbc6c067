use postrider_contract::{JobId, Payload, Timestamp};

/// Where a job is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum State {
    /// It waits to run for the first time.
    Pending,
    /// It runs under a lease.
    Running,
    /// An attempt failed; it waits for the next one.
    Retryable,
    /// It did what it was to do.
    Completed,
    /// It was given up: refused by its handler, or its attempts are used up.
    Discarded,
    /// It was cancelled.
    Cancelled,
}

impl State {
    /// Its name, as SQL and the wire spell it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Running => "running",
            Self::Retryable => "retryable",
            Self::Completed => "completed",
            Self::Discarded => "discarded",
            Self::Cancelled => "cancelled",
        }
    }

    /// The state of this name.
    pub fn named(name: &str) -> Option<Self> {
        use State::{Cancelled, Completed, Discarded, Pending, Retryable, Running};
        [Pending, Running, Retryable, Completed, Discarded, Cancelled].into_iter().find(|state| state.name() == name)
    }

    /// Whether nothing but an operator's retry leaves it.
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Completed | Self::Discarded | Self::Cancelled)
    }
}

/// Why a job waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Waits {
    /// It is its turn as soon as a worker has a free slot.
    Due,
    /// It was enqueued for later.
    Scheduled(Timestamp),
    /// It failed, and the next attempt comes on its schedule.
    Backoff(Timestamp),
    /// Its handler put it off.
    Snoozed(Timestamp),
    /// Its queue is paused.
    Paused,
    /// No live worker knows its kind.
    NoWorker,
    /// One like it runs, or one of its order key has the turn, and it comes after that one.
    Behind(JobId),
    /// The lane of its order key is stopped, and why.
    Stopped(String),
    /// Its limit has no room now.
    Limited,
    /// Its limit key is held until then, and why.
    Held(Timestamp, String),
    /// It may have killed its worker, and waits for its turn alone.
    Suspect,
}

/// How far a running attempt has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Progress {
    /// 0 to 100.
    pub percent: u8,
    /// What it does.
    pub note: String,
    /// When it said so.
    pub at: Timestamp,
}

/// An attempt that ended in another way than completed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttemptView {
    /// Which one it was, from 1.
    pub attempt: i16,
    /// `failed`, `lost`, `refused`; `completed` or `cancelled` if the job was run again after it had ended so.
    pub outcome: String,
    /// When it began.
    pub started_at: Timestamp,
    /// When it ended.
    pub ended_at: Timestamp,
    /// What went wrong.
    pub error: Option<String>,
}

/// A job, where it is and what became of it.
#[derive(Debug, Clone, PartialEq)]
pub struct JobView {
    /// Its id.
    pub id: JobId,
    /// Its kind.
    pub kind: String,
    /// The queue it waits in.
    pub queue: String,
    /// 1 (first) to 4 (last).
    pub priority: i16,
    /// Whose it is.
    pub owner: String,
    /// Jobs of one order key run one after the other.
    pub order_key: Option<String>,
    /// The key under which it is limited.
    pub limit_key: Option<String>,
    /// What a list finds it by, in the order of their bytes.
    pub tags: Vec<String>,
    /// Where it is in its life.
    pub state: State,
    /// Why it waits, if it does.
    pub waits: Option<Waits>,
    /// The attempt that runs, or the last one.
    pub attempt: i16,
    /// Attempts at most.
    pub max_attempts: i16,
    /// What it was enqueued with.
    pub args: Payload,
    /// When it was enqueued.
    pub created_at: Timestamp,
    /// When its last attempt began.
    pub started_at: Option<Timestamp>,
    /// When it ended.
    pub finished_at: Option<Timestamp>,
    /// Why it was discarded or cancelled, or the last error.
    pub reason: Option<String>,
    /// `completed`, `refused`, `exhausted`, `lost` or `cancelled`, once it has ended.
    pub ended_as: Option<String>,
    /// What its handler left.
    pub output: Option<Payload>,
    /// How far the attempt that runs has come.
    pub progress: Option<Progress>,
    /// The lease that it runs under.
    pub lease: Option<i64>,
    /// Attempts that did not complete, oldest first. Of many, the first and the last ones.
    pub attempts: Vec<AttemptView>,
}

/// What a look for one job finds.
#[derive(Debug, Clone, PartialEq)]
pub enum Look {
    /// It is there.
    Here(Box<JobView>),
    /// It had ended, and the time that it is kept for is over.
    Gone {
        /// Its id.
        id: JobId,
        /// It had ended at this moment, or before it.
        ended_by: Timestamp,
    },
    /// There is no job with this id, or it was deleted.
    Unknown,
}

/// One page of jobs, newest first; without args, output and attempts.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Page {
    /// The jobs.
    pub jobs: Vec<JobView>,
    /// Where the next page begins; none if this is the last one.
    pub next: Option<JobId>,
}

/// How many jobs of a kind are in a queue and a state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Count {
    /// The kind.
    pub kind: String,
    /// The queue.
    pub queue: String,
    /// The state.
    pub state: State,
    /// How many.
    pub jobs: u64,
    /// Counting stopped at a bound: there are so many at least.
    pub more: bool,
    /// When they were counted.
    pub at: Timestamp,
}

/// A queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueView {
    /// Its name.
    pub name: String,
    /// Since when it is paused, if it is.
    pub paused_at: Option<Timestamp>,
}
