use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use postrider::{Arg, Job, Row, Statement, Timestamp, Tx, statement};
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

/// Whether the application has declared a scope function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Narrowed {
    No,
    ByFunction,
}

/// An endpoint as a delivery needs it.
pub(super) struct Loaded {
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
    /// There is nothing left to send.
    pub(super) delivered: bool,
    pub(super) narrowed: Narrowed,
    pub(super) secrets: Vec<(Uuid, KeyKind, Sealed)>,
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

/// The endpoint of a job's subscription and its valid secrets.
pub(super) async fn load(pool: &PgPool, job: &Job, errand: &Errand) -> Result<Option<Loaded>, Error> {
    // a replay leaves out what was delivered meanwhile, by whichever job
    let event = job.event.as_ref().filter(|_| errand.trigger == Trigger::Replay).map(|event| event.id.to_string());
    let args = [
        Arg::Int(job.subscription.unwrap_or_default()),
        Arg::Text(job.id.as_str()),
        Arg::Int(job.due_at.as_micros()),
        Arg::Text(event.as_deref().unwrap_or_default()),
        // 0 is no endpoint's id
        Arg::Int(errand.endpoint.unwrap_or_default()),
    ];
    let rows = connection(pool).await?.run(&LOAD, &args).await?;
    let Some(first) = rows.first() else { return Ok(None) };
    let secrets = rows.iter().filter(|row| row.opt(7).is_some()).map(secret).collect::<Result<_, _>>()?;
    let steps: Option<Vec<u64>> = first.opt(11).and_then(|steps| serde_json::from_str(steps).ok());
    let headers = first.opt(14).map(|key_id| sealed(key_id, first, 15)).transpose()?;
    Ok(Some(Loaded {
        endpoint: EndpointId(first.int(0)?),
        url: first.text(1)?.to_owned(),
        format: first.int(2)?,
        timeout: Duration::from_millis(u64::try_from(first.int(3)?).unwrap_or_default()),
        max_attempts: i16::try_from(first.int(4)?).unwrap_or(i16::MAX),
        disabled: first.text(5)? == "true",
        deleted: first.text(6)? == "true",
        steps: steps.map(|steps| steps.into_iter().map(Duration::from_millis).collect()),
        on_4xx: On4xx::of(first.text(12)?),
        answer_contains: first.opt(13).map(str::to_owned),
        headers,
        enabled_at: Timestamp::from_micros(first.int(16)?),
        delivered: first.text(17)? == "true",
        narrowed: if first.text(18)? == "true" { Narrowed::ByFunction } else { Narrowed::No },
        secrets,
    }))
}

fn secret(row: &Row) -> Result<(Uuid, KeyKind, Sealed), Error> {
    let wrong = |column, expected| postrider::Error::Row { statement: LOAD.name, column, expected };
    let id = row.text(7)?.parse().map_err(|_| wrong(7, "a uuid"))?;
    let kind = KeyKind::of(row.text(10)?).ok_or_else(|| wrong(10, "v1 or v1a"))?;
    Ok((id, kind, sealed(row.text(8)?, row, 9)?))
}

fn sealed(key_id: &str, row: &Row, column: usize) -> Result<Sealed, Error> {
    let wrong = postrider::Error::Row { statement: LOAD.name, column, expected: "base64" };
    let bytes = storable::unbase64(row.text(column)?).ok_or(wrong)?;
    Ok(Sealed { key_id: key_id.to_owned(), bytes })
}

/// Finishes the row of an attempt; false if there is none that is open.
pub(super) async fn finish(tx: &mut dyn Tx, job: &Job, outcome: &Outcome) -> Result<bool, Error> {
    let exchange = outcome.exchange.as_ref();
    let micros = |took: Option<Duration>| took.map(|took| took.as_micros().to_string());
    let took = exchange.map(|exchange| exchange.took);
    let reason = storable::text(outcome.reason.as_bytes());
    let failure = exchange.and_then(|e| e.failure.as_ref()).map(|failure| failure.class.as_str().to_owned());
    let texts = [
        Some(job.id.as_str().to_owned()),
        Some(job.lease.to_string()),
        Some(outcome.word.to_owned()),
        Some(reason).filter(|reason| !reason.is_empty()),
        exchange.and_then(|e| e.status).map(|status| status.to_string()),
        failure,
        exchange.filter(|e| !e.body.is_empty()).map(|e| storable::text(&e.body)),
        exchange.filter(|e| e.status.is_some()).map(|e| storable::headers(&e.headers)),
        outcome.sha256.map(|hash| STANDARD.encode(hash)),
        exchange.and_then(|e| e.peer).map(|peer| peer.to_string()),
        micros(took.and_then(|took| took.dns)),
        micros(took.and_then(|took| took.connect)),
        micros(took.and_then(|took| took.tls)),
        micros(took.and_then(|took| took.first_byte)),
        micros(took.map(|took| took.total)),
        outcome.asked.map(|asked| asked.as_millis().to_string()),
        Some((outcome.end == End::Gone).to_string()),
        Some((outcome.end == End::GivenUp).to_string()),
    ];
    // All of them texts: what may be null has one type whatever it is this time.
    let args: Vec<Arg<'_>> = texts.iter().map(|text| text.as_deref().map_or(Arg::Null, Arg::Text)).collect();
    Ok(!tx.run(&FINISH, &args).await?.is_empty())
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
