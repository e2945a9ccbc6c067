use std::time::Duration;

use postrider_contract::{
    Code, Event, JobId, Order, Payload, Refused, Retry, Timestamp, Unique, check_json, check_name, check_owner,
    check_public_name,
};

use crate::error::Error;
use crate::pg::{Witness, Wrote};

/// The longest key, in bytes.
const KEY_BYTES_MAX: usize = 200;
/// Tags of one job.
const TAGS_MOST: usize = 10;
/// The longest tag, in bytes.
const TAG_BYTES_MAX: usize = 100;
/// The longest window of uniqueness: ten years.
const WINDOW_MOST: Duration = Duration::from_hours(3_660 * 24);
/// Steps of one schedule: what the database takes of the longest of them.
const RETRY_STEPS_MOST: usize = 250;
/// The longest step of a schedule: thirteen digits of milliseconds.
const RETRY_WAIT_MOST: Duration = Duration::from_millis(9_999_999_999_999);

/// A leased job, as its handler sees it.
#[derive(Debug, Clone)]
pub struct Job {
    /// Its id.
    pub id: JobId,
    /// Its kind.
    pub kind: String,
    /// The queue it waited in.
    pub queue: String,
    /// Whose it is; empty for the instance itself.
    pub owner: String,
    /// Which attempt this is, from 1.
    pub attempt: i16,
    /// How many attempts it has.
    pub max_attempts: i16,
    /// The fence of everything that this attempt writes: a number that its engine never gives twice for one job.
    pub lease: i64,
    /// What it was enqueued with; `{}` if an event made it.
    pub args: Payload,
    /// The event that made it.
    pub event: Option<Event>,
    /// The subscription through which the event made it.
    pub subscription: Option<i64>,
    /// When it was enqueued.
    pub created_at: Timestamp,
    /// When it was claimed, by the clock of its database.
    pub claimed_at: Timestamp,
    /// When it first became due: its age is counted from here.
    pub due_at: Timestamp,
    /// Its own retry schedule, instead of its kind's.
    pub retry: Option<Retry>,
    /// Jobs of the same order key run one after the other.
    pub order_key: Option<String>,
    /// The key under which it is limited.
    pub limit_key: Option<String>,
    /// The id inside of the native engine.
    pub(crate) key: i64,
    pub(crate) priority: i16,
    pub(crate) share: i16,
    pub(crate) pos: i64,
}

impl Job {
    /// A job of an engine that is not the native one. What is not given here is empty and may be set.
    pub fn outside(id: JobId, kind: impl Into<String>, lease: i64, args: Payload) -> Self {
        let epoch = Timestamp::from_micros(0);
        Self {
            id,
            kind: kind.into(),
            queue: String::new(),
            owner: String::new(),
            attempt: 1,
            max_attempts: 1,
            lease,
            args,
            event: None,
            subscription: None,
            created_at: epoch,
            claimed_at: epoch,
            due_at: epoch,
            retry: None,
            order_key: None,
            limit_key: None,
            key: 0,
            priority: 2,
            share: 0,
            pos: 0,
        }
    }
}

impl Job {
    /// How long it had been due when it was claimed, by the clock of its database.
    pub(crate) fn age_when_claimed(&self) -> Duration {
        let age = self.claimed_at.as_micros().saturating_sub(self.due_at.as_micros());
        Duration::from_micros(u64::try_from(age).unwrap_or(0))
    }
}

/// What the relay made a job of.
#[derive(Debug, Clone)]
pub struct Source {
    /// The event.
    pub event: Event,
    /// The subscription that it matched.
    pub subscription: i64,
}

/// What a duplicate of a job that waits does to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnDuplicate {
    /// Nothing: it stays as it is.
    #[default]
    Keep,
    /// Its args and its time become the duplicate's, if it has not started.
    Replace,
}

/// A job to be enqueued.
#[derive(Debug, Clone)]
pub struct NewJob {
    /// A declared kind.
    pub kind: String,
    /// JSON for its handler; its bytes are kept.
    pub args: Payload,
    /// Instead of the kind's queue.
    pub queue: Option<String>,
    /// Instead of the kind's priority, 1 (first) to 4 (last).
    pub priority: Option<i16>,
    /// Instead of the kind's number of attempts, 1 to 1 000.
    pub max_attempts: Option<i16>,
    /// Not before this moment of the database's clock; a moment in the past means now.
    pub run_at: Option<Timestamp>,
    /// Whose it is; empty for the instance itself.
    pub owner: String,
    /// Instead of the kind's retry schedule.
    pub retry: Option<Retry>,
    /// When it is one with a job like it, instead of what the kind says.
    pub unique: Option<Unique>,
    /// What tells jobs apart for `unique`, instead of their args; at most 200 bytes.
    pub unique_key: Option<String>,
    /// What it does to the job that it is a duplicate of.
    pub on_duplicate: OnDuplicate,
    /// The first job with this key of its owner is the only one for 24 hours, whatever its kind; at most 200 bytes.
    pub idempotency_key: Option<String>,
    /// Jobs of one order key in one queue run one after the other, in the order in which they were enqueued, also through their retries; at
    /// most 200 bytes.
    pub order_key: Option<String>,
    /// What becomes of the jobs behind it if it fails, instead of what the kind says; only with an order key.
    pub order: Option<Order>,
    /// The key under which a limit of its queue counts it, instead of the kind's; at most 200 bytes.
    pub limit_key: Option<String>,
    /// What a list finds it by, whatever else is there: up to 10, each of 1 to 100 bytes. A duplicate does not add its own.
    pub tags: Vec<String>,
    /// What the relay made it of; only the relay says so.
    pub source: Option<Box<Source>>,
}

impl NewJob {
    /// A job that is due at once, with what its kind says.
    pub fn new(kind: impl Into<String>, args: Payload) -> Self {
        Self {
            kind: kind.into(),
            args,
            queue: None,
            priority: None,
            max_attempts: None,
            run_at: None,
            owner: String::new(),
            retry: None,
            unique: None,
            unique_key: None,
            on_duplicate: OnDuplicate::Keep,
            idempotency_key: None,
            order_key: None,
            order: None,
            limit_key: None,
            tags: Vec::new(),
            source: None,
        }
    }

    /// The same job, one with those like it.
    #[must_use]
    pub fn unique(mut self, unique: Unique) -> Self {
        self.unique = Some(unique);
        self
    }

    /// Refuses what can be refused without a database: names, sizes, payloads, numbers.
    pub fn check(&self) -> Result<(), Error> {
        check_public_name("kind", &self.kind)?;
        if let Some(queue) = &self.queue {
            check_name("queue", queue)?;
        }
        check_owner(&self.owner)?;
        check_json("args", self.args.as_str())?;
        self.check_numbers()?;
        self.check_alike()?;
        self.check_tags()?;
        Ok(())
    }

    fn check_tags(&self) -> Result<(), Refused> {
        if self.tags.len() > TAGS_MOST {
            let message = format!("{} are too many", self.tags.len());
            return Err(option("tags", message, "use 10 tags at most"));
        }
        let fits = |tag: &String| (1..=TAG_BYTES_MAX).contains(&tag.len()) && !tag.chars().any(char::is_control);
        if !self.tags.iter().all(fits) {
            let message = "a tag is 1 to 100 bytes of text without control characters".to_owned();
            return Err(option("tags", message, "use shorter ones"));
        }
        Ok(())
    }

    fn check_numbers(&self) -> Result<(), Refused> {
        if let Some(priority) = self.priority.filter(|priority| !(1..=4).contains(priority)) {
            return Err(option("priority", format!("{priority} is not a priority"), "use 1 (first) to 4 (last)"));
        }
        if let Some(most) = self.max_attempts.filter(|most| !(1..=1000).contains(most)) {
            return Err(option("max_attempts", format!("{most} is out of range"), "use 1 to 1000"));
        }
        let Some(retry) = &self.retry else { return Ok(()) };
        let waits = match retry {
            Retry::Backoff { first, most } => &[*first, *most],
            Retry::Steps(steps) => steps.as_slice(),
        };
        if waits.is_empty() || waits.len() > RETRY_STEPS_MOST || waits.iter().any(|wait| *wait > RETRY_WAIT_MOST) {
            let message = format!("it is not a retry schedule of 1 to {RETRY_STEPS_MOST} steps of 300 years at most");
            return Err(option("retry", message, "use fewer or shorter steps: the last one stays for all that follow"));
        }
        Ok(())
    }

    fn check_alike(&self) -> Result<(), Refused> {
        let keys = [
            ("unique_key", &self.unique_key),
            ("idempotency_key", &self.idempotency_key),
            ("order_key", &self.order_key),
            ("limit_key", &self.limit_key),
        ];
        for (field, key) in keys {
            if key.as_ref().is_some_and(|key| !(1..=KEY_BYTES_MAX).contains(&key.len()) || key.contains('\0')) {
                return Err(option(
                    field,
                    "a key is 1 to 200 bytes without NUL".to_owned(),
                    "use a shorter key, or a hash",
                ));
            }
        }
        if let Some(Unique::Within(window)) = self.unique
            && !(Duration::from_millis(1)..=WINDOW_MOST).contains(&window)
        {
            let remedy = "use a millisecond at least and ten years at most";
            return Err(option("unique_for", format!("{window:?} is not a window"), remedy));
        }
        match self.order {
            Some(_) if self.order_key.is_none() => {
                Err(option("order_policy", "a policy belongs to an order key".to_owned(), "give order_key as well"))
            }
            Some(order) => check_order(order),
            None => Ok(()),
        }?;
        Ok(())
    }
}

/// Refuses a policy that there is not.
pub(crate) fn check_order(order: Order) -> Result<(), Refused> {
    match order {
        Order::Park(failures) if !(1..=999).contains(&failures) => {
            Err(option("order_policy", format!("{failures} failures are out of range"), "use 1 to 999"))
        }
        _ => Ok(()),
    }
}

fn option(field: &str, message: String, remedy: &str) -> Refused {
    Refused::new(Code::Option, field, message, remedy)
}

/// The answer to one enqueued job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Enqueued {
    /// Its id.
    pub id: JobId,
    /// False if there was such a job already, whose id this is.
    pub fresh: bool,
    /// True if the job that there was has taken over the args and the time of this one.
    pub replaced: bool,
    /// The transaction's id: [`Recorder::resolve`](crate::Recorder::resolve) tells what became of it.
    pub xid: u64,
    /// When the database told the id, by its clock: a job of this id that was made later is another one's. None if the recorder cannot look
    /// for a job of this engine; then the transaction's id has to be enough.
    pub told_at: Option<Timestamp>,
    /// In the mode [`Unique::Within`]: the end of the window, also if this is a duplicate.
    pub until: Option<Timestamp>,
}

impl From<&Enqueued> for Witness {
    /// A job that was there already is no evidence: then the transaction's id has to be enough.
    fn from(enqueued: &Enqueued) -> Self {
        let told_at = enqueued.told_at.filter(|_| enqueued.fresh);
        let wrote = told_at.map_or(Wrote::Nothing, |at| Wrote::Job(enqueued.id.clone(), at));
        Self::new(enqueued.xid, wrote)
    }
}
