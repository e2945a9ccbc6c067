//! Deliveries. In: a leased job and its event. Out: one POST, one finished row, one verdict.
//!
//! The row of the attempt is written in the transaction that claims the job, so that no POST is ever without one. Nothing is open
//! on the database while the POST runs.

mod letter;
mod pg;

use std::sync::Arc;
use std::time::Duration;

use postrider::{Answer, BoxError, Class, Context, Fut, Handler, Job, Kind, KindSpec, Statement, Tx, Verdict};
use sqlx::PgPool;
use tracing::warn;

use crate::client::{Client, Exchange};
use crate::clock::Clock;
use crate::endpoint::{EndpointId, connection, disable};
use crate::error::Error;
use crate::judge::{Judgement, Seen, judge};
use crate::schedule::{ATTEMPTS_MAX, schedule};
use crate::seal::Seal;
use letter::{Letter, Unwritten};

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

/// Delivers: the handler of the kind `webhook.deliver`.
#[derive(Debug, Clone)]
pub struct Deliverer {
    pool: PgPool,
    seal: Seal,
    client: Client,
    clock: Clock,
}

/// The kind `webhook.deliver`, run by this process.
pub fn kind(deliverer: Deliverer) -> Kind {
    Kind::component(kind_spec()).handler(Arc::new(deliverer))
}

/// The kind `webhook.deliver`, for a process that declares it and lets others deliver.
pub fn kind_spec() -> KindSpec {
    KindSpec {
        queue: QUEUE.to_owned(),
        max_attempts: ATTEMPTS_MAX,
        timeout: ATTEMPT_TIMEOUT,
        retry: schedule(),
        class: Class::Standard,
        ..KindSpec::new(KIND)
    }
}

/// What is written on the row of an attempt.
struct Outcome {
    word: &'static str,
    reason: String,
    exchange: Option<Exchange>,
    sha256: Option<[u8; 32]>,
    gone: Option<EndpointId>,
}

impl Deliverer {
    /// Reads endpoints from a pool, opens their secrets with `seal`, posts with `client`.
    pub fn new(pool: PgPool, seal: Seal, client: Client) -> Self {
        Self { pool, seal, client, clock: Clock::system() }
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
        let judgement = judge(Seen {
            status: exchange.status,
            failure: exchange.failure.as_ref(),
            retry_after: exchange.header("retry-after"),
            attempt: job.attempt,
            age: self.clock.now().since(job.created_at),
            now: self.clock.now().as_secs(),
        });
        let (word, reason, verdict) = verdict(judgement.clone(), job.attempt, letter.max_attempts);
        let gone = matches!(judgement, Judgement::Gone { .. }).then_some(letter.endpoint);
        if word != "delivered" {
            let (id, endpoint, attempt) = (&job.id, letter.endpoint, job.attempt);
            warn!(delivery.id = %id, endpoint.id = %endpoint, attempt, "delivery {id} is {word}: {reason}");
        }
        let sha256 = Some(letter.sha256);
        self.finish(job, Outcome { word, reason, exchange: Some(exchange), sha256, gone }).await;
        verdict
    }

    /// Loads what the letter needs, and writes it.
    async fn write(&self, job: &Job) -> Result<Letter, Unwritten> {
        let event = job.event.as_ref().ok_or(Unwritten::Never("the event is not in the log any more"))?;
        let subscription = job.subscription.ok_or(Unwritten::Never("the delivery belongs to no endpoint"))?;
        let loaded = pg::load(&self.pool, subscription).await.map_err(Unwritten::Database)?;
        letter::write(job.attempt, event, loaded, (&self.seal, self.clock.now()))
    }

    /// Ends an attempt that sent nothing.
    async fn put_off(&self, job: &Job, unwritten: Unwritten) -> Result<Verdict, BoxError> {
        let (word, reason, verdict) = match unwritten {
            // The row could not be finished either: it stays without an outcome, and nothing was sent.
            Unwritten::Database(e) if e.is_transient() => return Ok(Verdict::Snooze(DATABASE_BUSY)),
            Unwritten::Database(e) => return Err(e.into()),
            Unwritten::Never(reason) => ("discarded", reason.to_owned(), Verdict::Discard(reason.to_owned())),
            Unwritten::NotNow(reason) => {
                warn!(delivery.id = %job.id, "delivery {} waits: {reason}", job.id);
                ("postponed", reason, Verdict::Snooze(HELD))
            }
        };
        self.finish(job, Outcome { word, reason, exchange: None, sha256: None, gone: None }).await;
        Ok(verdict)
    }

    /// Finishes the row. What was sent was sent: a row that cannot be finished changes nothing about the verdict.
    async fn finish(&self, job: &Job, outcome: Outcome) {
        let finished = async {
            let mut connection = connection(&self.pool).await?;
            let found = pg::finish(&mut connection, job, &outcome).await?;
            if let Some(endpoint) = outcome.gone {
                disable(&mut connection, endpoint, &outcome.reason).await?;
            }
            Ok::<bool, Error>(found)
        };
        match finished.await {
            Ok(true) => {}
            Ok(false) => warn!(delivery.id = %job.id, "delivery {} has no open row for this attempt", job.id),
            Err(e) => {
                warn!(delivery.id = %job.id, error = %e, "the attempt of delivery {} stays without an outcome", job.id);
            }
        }
    }
}

impl Handler for Deliverer {
    fn handle<'a>(&'a self, job: &'a Job, cx: &'a Context) -> Answer<'a> {
        Box::pin(self.deliver(job, cx))
    }

    fn watches_claims(&self) -> bool {
        true
    }

    fn claimed<'a>(&'a self, tx: &'a mut dyn Tx, jobs: &'a [&'a Job]) -> Fut<'a, ()> {
        Box::pin(pg::open(tx, jobs))
    }
}

/// The word on the row, the reason, and what the engine is told.
fn verdict(judgement: Judgement, attempt: i16, max_attempts: i16) -> (&'static str, String, Result<Verdict, BoxError>) {
    match judgement {
        Judgement::Delivered => ("delivered", String::new(), Ok(Verdict::Complete)),
        Judgement::Failed { reason, .. } if attempt >= max_attempts => {
            let told = format!("gave up after {attempt} attempts: {reason}");
            ("failed", reason, Ok(Verdict::Discard(told)))
        }
        Judgement::Failed { reason, not_before: Some(after) } => {
            ("failed", reason.clone(), Ok(Verdict::Retry { reason, after }))
        }
        Judgement::Failed { reason, not_before: None } => ("failed", reason.clone(), Err(reason.into())),
        Judgement::Postponed { wait } => {
            let reason = format!("the endpoint asked to wait {} s", wait.as_secs());
            ("postponed", reason, Ok(Verdict::Snooze(wait)))
        }
        Judgement::Discarded { reason } | Judgement::Gone { reason } => {
            ("discarded", reason.clone(), Ok(Verdict::Discard(reason)))
        }
    }
}
