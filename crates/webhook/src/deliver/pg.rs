use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use postrider::{Arg, Job, Row, Statement, Tx, statement};
use sqlx::PgPool;
use uuid::Uuid;

use super::Outcome;
use crate::endpoint::{EndpointId, connection};
use crate::error::Error;
use crate::seal::Sealed;
use crate::storable;

const OPEN: Statement = statement!("sql/open.sql");
const LOAD: Statement = statement!("sql/load.sql");
const FINISH: Statement = statement!("sql/finish.sql");

pub(super) const STATEMENTS: &[&Statement] = &[&OPEN, &LOAD, &FINISH];

/// An endpoint as a delivery needs it.
pub(super) struct Loaded {
    pub(super) endpoint: EndpointId,
    pub(super) url: String,
    pub(super) format: i64,
    pub(super) timeout: Duration,
    pub(super) max_attempts: i16,
    pub(super) disabled: bool,
    pub(super) deleted: bool,
    pub(super) secrets: Vec<(Uuid, Sealed)>,
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
    let args =
        [Arg::Texts(&ids), Arg::Ints(&leases), Arg::Ints(&attempts), Arg::Ints(&subscriptions), Arg::Texts(&events)];
    tx.run(&OPEN, &args).await.map(drop)
}

/// The endpoint of a subscription and its valid secrets.
pub(super) async fn load(pool: &PgPool, subscription: i64) -> Result<Option<Loaded>, Error> {
    let rows = connection(pool).await?.run(&LOAD, &[Arg::Int(subscription)]).await?;
    let Some(first) = rows.first() else { return Ok(None) };
    let secrets = rows.iter().filter(|row| row.opt(7).is_some()).map(sealed).collect::<Result<_, _>>()?;
    Ok(Some(Loaded {
        endpoint: EndpointId(first.int(0)?),
        url: first.text(1)?.to_owned(),
        format: first.int(2)?,
        timeout: Duration::from_millis(u64::try_from(first.int(3)?).unwrap_or_default()),
        max_attempts: i16::try_from(first.int(4)?).unwrap_or(i16::MAX),
        disabled: first.text(5)? == "true",
        deleted: first.text(6)? == "true",
        secrets,
    }))
}

fn sealed(row: &Row) -> Result<(Uuid, Sealed), Error> {
    let wrong = |column, expected| postrider::Error::Row { statement: LOAD.name, column, expected };
    let id = row.text(7)?.parse().map_err(|_| wrong(7, "a uuid"))?;
    // Postgres breaks base64 into lines.
    let encoded = row.text(9)?.replace('\n', "");
    let bytes = STANDARD.decode(encoded).map_err(|_| wrong(9, "base64"))?;
    Ok((id, Sealed { key_id: row.text(8)?.to_owned(), bytes }))
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
    ];
    // All of them texts: what may be null has one type whatever it is this time.
    let args: Vec<Arg<'_>> = texts.iter().map(|text| text.as_deref().map_or(Arg::Null, Arg::Text)).collect();
    Ok(!tx.run(&FINISH, &args).await?.is_empty())
}
