//! Deliveries. In: a leased job and its event. Out: one POST, one finished row, one verdict.
//!
//! The row of the attempt is written in the transaction that claims the job, so that no POST is ever without one. Nothing is open
//! on the database while the POST runs.

mod errand;
mod gather;
mod letter;
mod outcome;
mod pg;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use postrider::{Answer, BoxError, Class, Context, Fut, Handler, Job, Kind, KindSpec, Statement, Tx, Verdict};
use sqlx::PgPool;
use tokio::time::{sleep, timeout};
use tracing::{debug, error, warn};

use crate::client::{Client, Exchange};
use crate::clock::Clock;
use crate::error::Error;
use crate::judge::{Seen, judge, logged};
use crate::redirect::suggested;
use crate::replay::replay_kind;
use crate::retry_after::retry_after;
use crate::schedule::{ATTEMPTS_MAX, schedule};
use crate::seal::Seal;
use errand::Errand;
use gather::Gather;
use letter::{Letter, Unwritten};
use outcome::{Ended, ended};
use pg::{Asked, Became, Loaded, Scope, Told};

pub(crate) const STATEMENTS: &[&Statement] = pg::STATEMENTS;

/// The kind of a delivery.
pub const KIND: &str = "webhook.deliver";
/// The queue of deliveries.
pub const QUEUE: &str = "webhook";

/// Longer than any endpoint's timeout, with room for the rows.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(90);
/// When to look again while it is us who cannot deliver.
const HELD: Duration = Duration::from_mins(5);
const DATABASE_BUSY: Duration = Duration::from_secs(10);
/// What was claimed while its endpoint was disabled comes back so soon, and is held then before it is claimed; what is to be cancelled does not.
const DISABLED: Duration = Duration::from_secs(1);
/// What is said of a delivery that the scope function keeps from its endpoint, and of one of which it fails to say anything: always the same, whoever
/// reads it may be the endpoint's owner.
const OUTSIDE: &str = "the event is not in the scope of the endpoint";
const SCOPE_FAILED: &str = "whether the event is in the scope of the endpoint could not be said";
/// Requests at a time of a process, if nobody says otherwise. They wait more than they work, and those of endpoints that hang should leave room.
const CONCURRENCY: usize = 256;
/// How long the end of an attempt waits for those of others, if there are others.
const LINGER: Duration = Duration::from_millis(1);
/// How soon the end of an attempt is told again while its endpoint is in somebody's hands, or the database cannot take it.
const AGAIN_FIRST: Duration = Duration::from_millis(5);
const AGAIN_MOST: Duration = Duration::from_millis(500);
/// How long that is tried: with the longest timeout of an endpoint it is less than the attempt may take, which would be made again otherwise.
const TELL_MOST: Duration = Duration::from_secs(20);
/// How old a delivery may become by being put off. How long it is asked to wait is bounded by the judge; what was held for long may be put off.
const MAX_AGE: Duration = Duration::from_hours(90 * 24);

/// Delivers: the handler of the kind `webhook.deliver`.
#[derive(Debug, Clone)]
pub struct Deliverer {
    pool: PgPool,
    seal: Seal,
    client: Client,
    clock: Clock,
    /// Deliveries that have begun and not ended.
    under_way: Arc<AtomicUsize>,
    loads: Gather<Asked, Result<Option<Loaded>, Arc<Error>>>,
    finishes: Gather<Arc<Told>, Result<Became, Arc<Error>>>,
}

/// The kind `webhook.deliver`, run by this process.
pub fn kind(deliverer: Deliverer) -> Kind {
    Kind::component(kind_spec()).handler(Arc::new(deliverer))
}

/// The kinds of all of this: deliveries, and what makes them anew.
pub fn kinds(deliverer: Deliverer) -> [Kind; 2] {
    let replays = replay_kind(deliverer.pool.clone());
    [kind(deliverer), replays]
}

/// The kind `webhook.deliver`, for a process that declares it and lets others deliver.
pub fn kind_spec() -> KindSpec {
    KindSpec {
        queue: QUEUE.to_owned(),
        max_attempts: ATTEMPTS_MAX,
        timeout: ATTEMPT_TIMEOUT,
        retry: schedule(),
        class: Class::Standard,
        max_age: MAX_AGE,
        fair: true,
        ..KindSpec::new(KIND)
    }
}

/// What is written on the row of an attempt, and what its endpoint learns from it.
struct Outcome {
    word: &'static str,
    reason: String,
    exchange: Option<Exchange>,
    sha256: Option<[u8; 32]>,
    /// How long the endpoint asked to be left alone.
    asked: Option<Duration>,
    end: End,
}

/// What an attempt is the end of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// Nothing, or a delivery that was taken.
    Nothing,
    /// Its delivery was given up.
    GivenUp,
    /// The endpoint is not there any more.
    Gone,
}

impl Deliverer {
    /// Reads endpoints from a pool, opens their secrets with `seal`, posts with `client`.
    pub fn new(pool: PgPool, seal: Seal, client: Client) -> Self {
        let clock = Clock::system();
        let (loads, finishes) = (Gather::default(), Gather::default());
        Self { pool, seal, client, clock, under_way: Arc::default(), loads, finishes }
    }

    /// The same, with another clock for signatures.
    #[must_use]
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    async fn deliver(&self, job: &Job, cx: &Context) -> Result<Verdict, BoxError> {
        let letter = match self.write(job).await {
            Ok(letter) => letter,
            Err(unwritten) => return self.put_off(job, unwritten).await,
        };
        let exchange = tokio::select! {
            exchange = self.client.post(letter.post()) => exchange,
            // The row stays without an outcome: whether the request arrived is not known.
            () = cx.stop().cancelled() => return Err("the attempt was stopped before its answer".into()),
        };
        let now = self.clock.now();
        let location = exchange.status.filter(|status| (300..400).contains(status)).and(exchange.header("location"));
        let suggested = location.and_then(|location| suggested(&letter.target, location));
        let judgement = judge(Seen {
            status: exchange.status,
            failure: exchange.failure.as_ref(),
            retry_after: exchange.header("retry-after"),
            suggested: suggested.as_deref(),
            body: &exchange.body,
            rules: letter.rules(),
            steps: letter.steps.as_deref(),
            attempt: job.attempt,
            // what was held is as old as its endpoint's second chance
            age: now.since(job.due_at.max(letter.enabled_at)),
            now: now.as_secs(),
        });
        let asked = exchange.header("retry-after").and_then(|value| retry_after(value, now.as_secs()));
        let Ended { word, reason, verdict, asked, end } = ended(judgement, job, &letter, asked);
        if word != "delivered" {
            let (id, endpoint, attempt) = (&job.id, letter.endpoint, job.attempt);
            let reason = logged(&reason);
            warn!(delivery.id = %id, endpoint.id = %endpoint, attempt, "delivery {id} is {word}: {reason}");
        }
        let sha256 = Some(letter.sha256);
        self.finish(job, Outcome { word, reason, exchange: Some(exchange), sha256, asked, end }).await;
        verdict
    }

    /// Loads what the letter needs, and writes it.
    async fn write(&self, job: &Job) -> Result<Letter, Unwritten> {
        let event = job.event.as_ref().ok_or(Unwritten::Never("the event is not in the log any more"))?;
        let errand = Errand::of(job);
        if job.subscription.is_none() && errand.endpoint.is_none() {
            return Err(Unwritten::Never("the delivery belongs to no endpoint"));
        }
        let loaded = self.load(Asked::of(job, &errand)).await?;
        let letter = match letter::write((job.attempt, &errand), event, loaded, (&self.seal, self.clock.now())) {
            Ok(letter) if letter.scoped => self.in_scope(letter, job, &event.id.to_string()).await,
            letter => letter,
        };
        if let Err(Unwritten::Cancelled(reason)) = letter {
            // and so it ends with this attempt
            pg::cancel(&self.pool, job, reason).await.map_err(database)?;
        }
        letter
    }

    /// Lets through what the scope function says yes of.
    async fn in_scope(&self, letter: Letter, job: &Job, event: &str) -> Result<Letter, Unwritten> {
        match pg::ask_scope(&self.pool, letter.endpoint, event).await.map_err(database)? {
            Scope::Inside => Ok(letter),
            Scope::Outside => Err(Unwritten::Cancelled(OUTSIDE)),
            Scope::Unknown(code) => {
                error!(delivery.id = %job.id, "the scope function fails with {code}: delivery {} is given up", job.id);
                Err(Unwritten::Never(SCOPE_FAILED))
            }
        }
    }

    /// Loads what a delivery needs, along with others that begin.
    async fn load(&self, asked: Asked) -> Result<Option<Loaded>, Unwritten> {
        let pool = self.pool.clone();
        let round = move |asked| load_round(pool.clone(), asked);
        self.loads.ask(asked, Duration::ZERO, round).await.ok_or(Unwritten::Unanswered)?.map_err(Unwritten::Database)
    }

    /// Ends an attempt that sent nothing.
    async fn put_off(&self, job: &Job, unwritten: Unwritten) -> Result<Verdict, BoxError> {
        let end = if matches!(unwritten, Unwritten::Never(_)) { End::GivenUp } else { End::Nothing };
        let (word, reason, verdict) = match unwritten {
            // The row could not be finished either: it stays without an outcome, and nothing was sent.
            Unwritten::Database(e) if e.is_transient() => return Ok(Verdict::Snooze(DATABASE_BUSY)),
            Unwritten::Database(e) => return Err(e.into()),
            Unwritten::Unanswered => return Err("the process stops".into()),
            Unwritten::Delivered => ("skipped", "it was delivered already".to_owned(), Verdict::Complete),
            Unwritten::Held => ("postponed", "the endpoint is disabled".to_owned(), Verdict::Snooze(DISABLED)),
            Unwritten::Never(reason) => ("discarded", reason.to_owned(), Verdict::Discard(reason.to_owned())),
            // it is to be cancelled, and ends so instead; a refusal would be counted as a failure
            Unwritten::Cancelled(reason) => ("skipped", reason.to_owned(), Verdict::Snooze(DISABLED)),
            Unwritten::NotNow(reason) => {
                warn!(delivery.id = %job.id, "delivery {} waits: {reason}", job.id);
                ("postponed", reason, Verdict::Snooze(HELD))
            }
        };
        self.finish(job, Outcome { word, reason, exchange: None, sha256: None, asked: None, end }).await;
        Ok(verdict)
    }

    /// Finishes the row. What was sent was sent: a row that cannot be finished changes nothing about the verdict.
    async fn finish(&self, job: &Job, outcome: Outcome) {
        let id = &job.id;
        match timeout(TELL_MOST, self.tell(Arc::new(Told::of(job, &outcome)))).await {
            Ok(Some(Ok(true))) => {}
            Ok(Some(Ok(false))) => warn!(delivery.id = %id, "delivery {id} has no open row for this attempt"),
            Ok(Some(Err(e))) => {
                warn!(delivery.id = %id, error = %e, "the attempt of delivery {id} stays without an outcome");
            }
            Ok(None) => warn!(delivery.id = %id, "the attempt of delivery {id} may stay without an outcome"),
            Err(_) => {
                warn!(delivery.id = %id, "the attempt of delivery {id} stays without an outcome: what it needs was locked, or the database away");
            }
        }
    }

    /// Tells the end of an attempt along with others, and again as long as its endpoint is in somebody's hands or the database cannot take it.
    /// True if its row is finished, false if there is none that is open.
    async fn tell(&self, told: Arc<Told>) -> Option<Result<bool, Arc<Error>>> {
        let mut wait = AGAIN_FIRST;
        let mut unanswered = false;
        loop {
            let pool = self.pool.clone();
            let round = move |told| finish_round(pool.clone(), told);
            let linger = if self.under_way.load(Ordering::Relaxed) > 1 { LINGER } else { Duration::ZERO };
            match self.finishes.ask(Arc::clone(&told), linger, round).await? {
                Ok(Became::Ended) => return Some(Ok(true)),
                // it may have been finished when the answer was lost
                Ok(Became::Missing) => return Some(Ok(unanswered)),
                Ok(Became::Busy) => {}
                Err(e) if e.is_transient() => {
                    debug!(delivery.id = %told.id(), error = %e, "the end of an attempt is told again");
                    unanswered = true;
                }
                Err(e) => return Some(Err(e)),
            }
            sleep(wait).await;
            wait = wait.saturating_mul(2).min(AGAIN_MOST);
        }
    }
}

fn database(error: Error) -> Unwritten {
    Unwritten::Database(Arc::new(error))
}

/// One that is counted as long as this is there.
struct Counted<'a>(&'a AtomicUsize);

impl<'a> Counted<'a> {
    fn of(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Finishes rows together; if the database refuses them for what one of them says, one by one.
async fn finish_round(pool: PgPool, told: Vec<Arc<Told>>) -> Vec<Result<Became, Arc<Error>>> {
    let all: Vec<&Told> = told.iter().map(AsRef::as_ref).collect();
    match pg::finish(&pool, &all).await {
        Ok(became) => became.into_iter().map(Ok).collect(),
        Err(e) if e.is_transient() || all.len() == 1 => vec![Err(Arc::new(e)); all.len()],
        Err(_) => {
            let mut became = Vec::with_capacity(all.len());
            for one in all {
                let alone = pg::finish(&pool, &[one]).await.map(|became| became.first().copied());
                became.push(alone.map(|became| became.unwrap_or(Became::Missing)).map_err(Arc::new));
            }
            became
        }
    }
}

/// What deliveries need, which is asked for together.
async fn load_round(pool: PgPool, asked: Vec<Asked>) -> Vec<Result<Option<Loaded>, Arc<Error>>> {
    match pg::load(&pool, &asked).await {
        Ok(loaded) => loaded.into_iter().map(Ok).collect(),
        Err(e) => vec![Err(Arc::new(e)); asked.len()],
    }
}

impl Handler for Deliverer {
    fn handle<'a>(&'a self, job: &'a Job, cx: &'a Context) -> Answer<'a> {
        Box::pin(async move {
            let _counted = Counted::of(&self.under_way);
            self.deliver(job, cx).await
        })
    }

    fn watches_claims(&self) -> bool {
        true
    }

    fn concurrency(&self) -> Option<usize> {
        Some(CONCURRENCY)
    }

    fn claimed<'a>(&'a self, tx: &'a mut dyn Tx, jobs: &'a [&'a Job]) -> Fut<'a, ()> {
        Box::pin(pg::open(tx, jobs))
    }
}
