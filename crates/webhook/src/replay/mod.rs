//! What is delivered once more. In: a delivery, all that were given up, a part of the log, or the wish for a test. Out: deliveries like any other.
//!
//! A part of the log is replayed in steps of a second, each of them a transaction that makes deliveries and notes how far it has come: whoever is
//! killed in between has lost nothing and doubled nothing. A delivery of a replay looks once more, before it is sent, whether its event was taken.

mod pg;

use std::sync::Arc;
use std::time::Duration;

use postrider::{Answer, Class, Context, Handler, Job, Kind, KindSpec, Retry, Statement, Timestamp, Verdict};
use serde::{Deserialize, Serialize};
use sqlx::PgPool;

use crate::deliver::QUEUE;
use crate::endpoint::{EndpointId, Endpoints};
use crate::error::Error;

pub(crate) const STATEMENTS: &[&Statement] = pg::STATEMENTS;

/// The kind of what drives a replay.
pub const REPLAY_KIND: &str = "webhook.replay";
/// How many deliveries a replay makes in a second when it does not say otherwise.
pub const REPLAY_PER_SECOND: u32 = 10;

const STEP: Duration = Duration::from_secs(1);
const MAX_AGE: Duration = Duration::from_hours(366 * 24);

/// What became of a delivery that was to be sent once more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Redelivered {
    /// `done`; `running` (it is being sent just now: nothing was done), `waits` (it will be sent anyway), `gone` (it is not kept any longer) or
    /// `unknown`.
    pub effect: String,
    /// The delivery that is sent: another one, if it was sent as a new one.
    pub delivery: Option<String>,
}

/// A part of the log that is to be delivered once more.
#[derive(Debug, Clone)]
pub struct NewReplay {
    /// Events that were recorded from this moment on; not before the time for which it is known what was delivered.
    pub from: Timestamp,
    /// And before this one.
    pub to: Timestamp,
    /// Patterns that narrow to some of the types that the endpoint gets. Default: all of them.
    pub types: Option<Vec<String>>,
    /// An SQL/JSON path that narrows further, beside the endpoint's own.
    pub predicate: Option<String>,
    /// Deliveries in a second, 1 to 1 000. Default: [`REPLAY_PER_SECOND`].
    pub per_second: u32,
}

impl NewReplay {
    /// Everything that the endpoint gets of a time and has not taken.
    pub const fn new(from: Timestamp, to: Timestamp) -> Self {
        Self { from, to, types: None, predicate: None, per_second: REPLAY_PER_SECOND }
    }
}

/// The id of a replay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct ReplayId(pub i64);

/// A replay.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Replay {
    /// Its id.
    pub id: ReplayId,
    /// The endpoint.
    pub endpoint: EndpointId,
    /// `planned`, `running`, `paused` or `done`.
    pub state: String,
    /// How many events it was about when it was planned.
    pub planned: i64,
    /// Deliveries that it made.
    pub made: i64,
    /// Deliveries in a second.
    pub per_second: i64,
    /// When it was planned.
    pub created_at: Timestamp,
    /// When it was done.
    pub ended_at: Option<Timestamp>,
}

impl Endpoints {
    /// Sends a delivery once more, with all its attempts and under the same id, which a receiver that took it ignores; also if it was taken. One
    /// that waits for its next attempt is sent at once.
    pub async fn redeliver(&self, delivery: &str) -> Result<Redelivered, Error> {
        pg::redeliver(&self.pool, delivery, false).await
    }

    /// Sends the event of a delivery as another delivery with an id of its own, so that a receiver takes it once more. The event's id stands in
    /// the body as before.
    pub async fn redeliver_as_new(&self, delivery: &str) -> Result<Redelivered, Error> {
        pg::redeliver(&self.pool, delivery, true).await
    }

    /// Sends once more what was given up for an endpoint and is still kept; answers with how many. A call that was cut short is made again.
    pub async fn redeliver_discarded(&self, id: EndpointId) -> Result<u64, Error> {
        let (mut done, mut after) = (0, Some(0));
        while let Some(from) = after {
            let (n, upto) = pg::redeliver_discarded(&self.pool, id, from).await?;
            done += n;
            after = upto;
        }
        Ok(done)
    }

    /// Counts what a replay would deliver, and sends nothing. `None` if there is no such endpoint. A refusal names `from`, `to`, `types`,
    /// `predicate` or `per_second`.
    pub async fn plan_replay(&self, id: EndpointId, new: &NewReplay) -> Result<Option<Replay>, Error> {
        pg::plan(&self.pool, id, new).await
    }

    /// Starts a replay that was planned, or lets a paused one go on. False if there is none like that.
    pub async fn start_replay(&self, id: ReplayId) -> Result<bool, Error> {
        pg::start(&self.pool, id).await
    }

    /// Pauses a replay: it makes no more deliveries; those that it made are sent. False if it does not run.
    pub async fn pause_replay(&self, id: ReplayId) -> Result<bool, Error> {
        pg::pause(&self.pool, id).await
    }

    /// The last replays of an endpoint, the newest first; 100 at most.
    pub async fn replays(&self, id: EndpointId) -> Result<Vec<Replay>, Error> {
        pg::list(&self.pool, id).await
    }

    /// Sends an endpoint an event of the type `postrider.endpoint.test`, signed and judged like any other, tried once, whether the endpoint is
    /// enabled or not. Answers with the delivery; `None` if there is no such endpoint.
    pub async fn send_test(&self, id: EndpointId) -> Result<Option<String>, Error> {
        pg::send_test(&self.pool, id).await
    }
}

/// Drives replays: the handler of the kind `webhook.replay`.
#[derive(Debug, Clone)]
struct Replayer {
    pool: PgPool,
}

#[derive(Debug, Deserialize)]
struct Args {
    replay: i64,
}

/// The kind `webhook.replay`, run by this process.
pub fn replay_kind(pool: PgPool) -> Kind {
    let spec = KindSpec {
        queue: QUEUE.to_owned(),
        retry: Retry::Steps(vec![STEP]),
        max_attempts: 1_000,
        max_age: MAX_AGE,
        class: Class::Short,
        fair: true,
        ..KindSpec::new(REPLAY_KIND)
    };
    Kind::component(spec).handler(Arc::new(Replayer { pool }))
}

impl Handler for Replayer {
    fn handle<'a>(&'a self, job: &'a Job, _cx: &'a Context) -> Answer<'a> {
        Box::pin(async move {
            let Args { replay } = job.args.decode()?;
            let state = pg::step(&self.pool, replay).await?;
            Ok(if state == "running" { Verdict::Snooze(STEP) } else { Verdict::Complete })
        })
    }
}
