use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use postrider::{Arg, Job, Row, Statement, Timestamp, Tx, statement};
use serde::Serialize;
use sqlx::PgPool;
use uuid::Uuid;

use super::errand::{Errand, Trigger};
use super::{End, Outcome};
use crate::endpoint::{EndpointId, KeyKind, connection};
use crate::error::Error;
use crate::judge::On4xx;
use crate::seal::Sealed;
use crate::storable;

const OPEN: Statement = statement!("sql/open.sql");
const LOAD: Statement = statement!("sql/load.sql");
const FINISH: Statement = statement!("sql/finish.sql");
const CANCEL: Statement = statement!("sql/cancel.sql");
const ASK_SCOPE: Statement = statement!("sql/ask_scope.sql");
const NOTE_SCOPE_FAILURE: Statement = statement!("sql/note_scope_failure.sql");

pub(super) const STATEMENTS: &[&Statement] = &[&OPEN, &LOAD, &FINISH, &CANCEL, &ASK_SCOPE, &NOTE_SCOPE_FAILURE];

/// An endpoint as a delivery needs it.
#[derive(Debug)]
pub(super) struct Addressee {
    pub(super) endpoint: EndpointId,
    pub(super) url: String,
    pub(super) format: i64,
    pub(super) timeout: Duration,
    pub(super) max_attempts: i16,
    pub(super) disabled: bool,
    pub(super) deleted: bool,
    /// The waits after failed attempts, if they are not the kind's.
    pub(super) steps: Option<Vec<Duration>>,
    pub(super) on_4xx: On4xx,
    pub(super) answer_contains: Option<String>,
    pub(super) headers: Option<Sealed>,
    pub(super) enabled_at: Timestamp,
    /// The application has declared a scope function.
    pub(super) scoped: bool,
    pub(super) secrets: Vec<(Uuid, KeyKind, Sealed)>,
}

/// What there is of a delivery.
#[derive(Debug, Clone)]
pub(super) struct Loaded {
    pub(super) to: Arc<Addressee>,
    /// There is nothing left to send.
    pub(super) delivered: bool,
}

/// A delivery, as what it needs is asked for.
#[derive(Debug, Serialize)]
pub(super) struct Asked {
    id: String,
    due_us: i64,
    subscription: Option<i64>,
    endpoint: Option<i64>,
    event: Option<String>,
    replay: bool,
}

/// An attempt that ended, as it is told.
#[derive(Debug, Serialize)]
pub(super) struct Told {
    id: String,
    lease: i64,
    outcome: &'static str,
    reason: Option<String>,
    status: Option<u16>,
    failure: Option<String>,
    excerpt: Option<String>,
    headers: Option<String>,
    sha256: Option<String>,
    peer: Option<String>,
    dns_us: Option<u64>,
    connect_us: Option<u64>,
    tls_us: Option<u64>,
    first_byte_us: Option<u64>,
    total_us: Option<u64>,
    asked_ms: Option<u64>,
    gone: bool,
    given_up: bool,
}

/// What became of an attempt that was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Became {
    Ended,
    /// There is no such attempt that is open.
    Missing,
    /// Its endpoint is in somebody else's hands.
    Busy,
}

/// Writes a row without an outcome for each claimed job.
pub(super) async fn open(tx: &mut dyn Tx, jobs: &[&Job]) -> Result<(), postrider::Error> {
    let ids: Vec<&str> = jobs.iter().map(|job| job.id.as_str()).collect();
    let leases: Vec<i64> = jobs.iter().map(|job| job.lease).collect();
    let attempts: Vec<i64> = jobs.iter().map(|job| job.attempt.into()).collect();
    let subscriptions: Vec<i64> = jobs.iter().map(|job| job.subscription.unwrap_or_default()).collect();
    let events: Vec<String> =
        jobs.iter().map(|job| job.event.as_ref().map(|event| event.id.to_string()).unwrap_or_default()).collect();
    let events: Vec<&str> = events.iter().map(String::as_str).collect();
    let errands: Vec<Errand> = jobs.iter().map(|job| Errand::of(job)).collect();
    let endpoints: Vec<i64> = errands.iter().map(|errand| errand.endpoint.unwrap_or_default()).collect();
    let triggers: Vec<&str> = errands.iter().map(|errand| errand.trigger.name()).collect();
    let sent_as: Vec<String> =
        errands.iter().map(|errand| errand.sent_as.map(|id| id.to_string()).unwrap_or_default()).collect();
    let sent_as: Vec<&str> = sent_as.iter().map(String::as_str).collect();
    let args = [
        Arg::Texts(&ids),
        Arg::Ints(&leases),
        Arg::Ints(&attempts),
        Arg::Ints(&subscriptions),
        Arg::Texts(&events),
        Arg::Texts(&triggers),
        Arg::Texts(&sent_as),
        Arg::Ints(&endpoints),
    ];
    tx.run(&OPEN, &args).await.map(drop)
}

impl Asked {
    pub(super) fn of(job: &Job, errand: &Errand) -> Self {
        Self {
            id: job.id.as_str().to_owned(),
            due_us: job.due_at.as_micros(),
            subscription: job.subscription,
            endpoint: errand.endpoint,
            // what somebody wants once more, or as a test, is sent whatever was delivered
            event: job
                .event
                .as_ref()
                .filter(|_| matches!(errand.trigger, Trigger::Auto | Trigger::Replay))
                .map(|event| event.id.to_string()),
            replay: errand.trigger == Trigger::Replay,
        }
    }
}

impl Told {
    pub(super) fn id(&self) -> &str {
        &self.id
    }

    pub(super) fn of(job: &Job, outcome: &Outcome) -> Self {
        let exchange = outcome.exchange.as_ref();
        let micros = |took: Option<Duration>| took.and_then(|took| u64::try_from(took.as_micros()).ok());
        let took = exchange.map(|exchange| exchange.took);
        let reason = storable::text(outcome.reason.as_bytes());
        Self {
            id: job.id.as_str().to_owned(),
            lease: job.lease,
            outcome: outcome.word,
            reason: Some(reason).filter(|reason| !reason.is_empty()),
            status: exchange.and_then(|e| e.status),
            failure: exchange.and_then(|e| e.failure.as_ref()).map(|failure| failure.class.as_str().to_owned()),
            excerpt: exchange.filter(|e| !e.body.is_empty()).map(|e| storable::text(&e.body)),
            headers: exchange.filter(|e| e.status.is_some()).map(|e| storable::headers(&e.headers)),
            sha256: outcome.sha256.map(|hash| STANDARD.encode(hash)),
            peer: exchange.and_then(|e| e.peer).map(|peer| peer.to_string()),
            dns_us: micros(took.and_then(|took| took.dns)),
            connect_us: micros(took.and_then(|took| took.connect)),
            tls_us: micros(took.and_then(|took| took.tls)),
            first_byte_us: micros(took.and_then(|took| took.first_byte)),
            total_us: micros(took.map(|took| took.total)),
            asked_ms: outcome.asked.and_then(|asked| u64::try_from(asked.as_millis()).ok()),
            gone: outcome.end == End::Gone,
            given_up: outcome.end == End::GivenUp,
        }
    }
}

/// What each of these deliveries needs, in their order; none for one that belongs to no endpoint.
pub(super) async fn load(pool: &PgPool, asked: &[Asked]) -> Result<Vec<Option<Loaded>>, Error> {
    let rows = connection(pool).await?.run(&LOAD, &[Arg::Text(&json(asked))]).await?;
    let mut loaded: HashMap<String, Loaded> = HashMap::new();
    // the rows of an endpoint stand together
    for rows in rows.chunk_by(|a, b| a.opt(0) == b.opt(0)) {
        let Some(first) = rows.first() else { continue };
        let to = Arc::new(addressee(first, rows)?);
        let taken: HashSet<String> = ids(first, 14)?.into_iter().collect();
        for id in ids(first, 13)? {
            let delivered = taken.contains(&id);
            loaded.insert(id, Loaded { to: Arc::clone(&to), delivered });
        }
    }
    Ok(asked.iter().map(|asked| loaded.get(&asked.id).cloned()).collect())
}

fn addressee(first: &Row, rows: &[Row]) -> Result<Addressee, Error> {
    let steps: Option<Vec<u64>> = first.opt(7).and_then(|steps| serde_json::from_str(steps).ok());
    Ok(Addressee {
        endpoint: EndpointId(first.int(0)?),
        url: first.text(1)?.to_owned(),
        format: first.int(2)?,
        timeout: Duration::from_millis(u64::try_from(first.int(3)?).unwrap_or_default()),
        max_attempts: i16::try_from(first.int(4)?).unwrap_or(i16::MAX),
        disabled: first.text(5)? == "true",
        deleted: first.text(6)? == "true",
        steps: steps.map(|steps| steps.into_iter().map(Duration::from_millis).collect()),
        on_4xx: On4xx::of(first.text(8)?),
        answer_contains: first.opt(9).map(str::to_owned),
        headers: first.opt(10).map(|key_id| sealed(key_id, first, 11)).transpose()?,
        enabled_at: Timestamp::from_micros(first.int(12)?),
        scoped: first.text(19)? == "true",
        secrets: rows.iter().filter(|row| row.opt(15).is_some()).map(secret).collect::<Result<_, _>>()?,
    })
}

fn ids(row: &Row, column: usize) -> Result<Vec<String>, Error> {
    let wrong = postrider::Error::Row { statement: LOAD.name, column, expected: "an array of ids" };
    let ids = row.opt(column).map_or(Ok(Vec::new()), serde_json::from_str);
    ids.map_err(|_| wrong.into())
}

fn secret(row: &Row) -> Result<(Uuid, KeyKind, Sealed), Error> {
    let wrong = |column, expected| postrider::Error::Row { statement: LOAD.name, column, expected };
    let id = row.text(15)?.parse().map_err(|_| wrong(15, "a uuid"))?;
    let kind = KeyKind::of(row.text(16)?).ok_or_else(|| wrong(16, "v1 or v1a"))?;
    Ok((id, kind, sealed(row.text(17)?, row, 18)?))
}

fn sealed(key_id: &str, row: &Row, column: usize) -> Result<Sealed, Error> {
    let wrong = postrider::Error::Row { statement: LOAD.name, column, expected: "base64" };
    let bytes = storable::unbase64(row.text(column)?).ok_or(wrong)?;
    Ok(Sealed { key_id: key_id.to_owned(), bytes })
}

/// Finishes the rows of attempts, and answers what became of each, in their order.
pub(super) async fn finish(pool: &PgPool, told: &[&Told]) -> Result<Vec<Became>, Error> {
    let numbered: Vec<Numbered<'_>> = told.iter().enumerate().map(|(n, told)| Numbered { n, told }).collect();
    let rows = connection(pool).await?.run(&FINISH, &[Arg::Text(&json(&numbered))]).await?;
    let mut became = vec![Became::Missing; told.len()];
    for row in &rows {
        let of = usize::try_from(row.int(0)?).ok().and_then(|n| became.get_mut(n));
        let wrong = postrider::Error::Row { statement: FINISH.name, column: 0, expected: "a number that was told" };
        *of.ok_or(wrong)? = match row.text(1)? {
            "ended" => Became::Ended,
            "busy" => Became::Busy,
            _ => Became::Missing,
        };
    }
    Ok(became)
}

#[derive(Serialize)]
struct Numbered<'a> {
    n: usize,
    #[serde(flatten)]
    told: &'a Told,
}

/// What consists of numbers and texts alone is never refused.
fn json(value: &(impl Serialize + ?Sized)) -> String {
    serde_json::to_string(value).unwrap_or_else(|_| "[]".to_owned())
}

/// Has the running attempt of a job end as cancelled, unless it completes.
pub(super) async fn cancel(pool: &PgPool, job: &Job, reason: &str) -> Result<(), Error> {
    let args = [Arg::Text(job.id.as_str()), Arg::Text(reason)];
    connection(pool).await?.run(&CANCEL, &args).await?;
    Ok(())
}

/// What the scope function says of an event and an endpoint.
pub(super) enum Scope {
    Inside,
    Outside,
    /// Nothing: it failed with this code.
    Unknown(String),
}

/// Asks the scope function, with the rights of this pool's user; notes if it says nothing.
pub(super) async fn ask_scope(pool: &PgPool, endpoint: EndpointId, event: &str) -> Result<Scope, Error> {
    let mut connection = connection(pool).await?;
    let rows = connection.run(&ASK_SCOPE, &[Arg::Int(endpoint.0), Arg::Text(event)]).await?;
    let said = rows.first();
    match said.and_then(|row| row.opt(0)) {
        Some("true") => Ok(Scope::Inside),
        Some(_) => Ok(Scope::Outside),
        None => {
            let error =
                said.and_then(|row| row.opt(1)).unwrap_or("gone: the event or the endpoint is not there any more");
            connection.run(&NOTE_SCOPE_FAILURE, &[Arg::Text(error)]).await?;
            // the rest of it may have data of the event in it
            Ok(Scope::Unknown(error.split(':').next().unwrap_or_default().to_owned()))
        }
    }
}
