use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use postrider_contract::{Event, EventId, Order, Payload, Timestamp};
use serde::{Deserialize, Serialize};
use sqlx::{Connection as _, PgConnection, Row as _};
use uuid::Uuid;

use super::{Pass, pg};
use crate::error::Error;
use crate::pg::{Statement, begin};
use crate::port::{Jobs, NewJob, Source};

pub(super) const RELAY_ELSEWHERE: Statement = crate::statement!("sql/relay_elsewhere.sql");
pub(super) const DUE_ELSEWHERE: Statement = crate::statement!("sql/due_elsewhere.sql");
pub(super) const RETRIED_ELSEWHERE: Statement = crate::statement!("sql/retried_elsewhere.sql");
pub(super) const HAND_OVER_ELSEWHERE: Statement = crate::statement!("sql/hand_over_elsewhere.sql");

/// The events of a pass, and the jobs that they become, as the database tells them.
#[derive(Deserialize)]
struct Matched {
    events: Vec<Told>,
    jobs: Vec<Match>,
}

#[derive(Deserialize)]
struct Told {
    seq: i64,
    id: Uuid,
    r#type: String,
    owner: String,
    subject: String,
    cause: Option<Uuid>,
    version: Option<i16>,
    traceparent: Option<String>,
    data: String,
    occurred_at: i64,
    recorded_at: i64,
}

#[derive(Deserialize)]
struct Match {
    seq: i64,
    subscription: i64,
    kind: String,
    queue: String,
    priority: i16,
    max_attempts: i16,
    run_at: Option<i64>,
    order_key: Option<String>,
    order_rule: Option<i16>,
}

/// A pair that the engine does not take.
#[derive(Serialize)]
struct Tried {
    seq: i64,
    subscription: i64,
    error: Option<String>,
}

/// The jobs that a pass is to make, each with the pair that it is made of.
#[derive(Default)]
struct Made {
    pairs: Vec<(i64, i64)>,
    jobs: Vec<NewJob>,
}

/// One pass whose jobs another engine makes, in the transaction of the cut: either both are there or neither is. With care, what the engine
/// refuses is found first, in a transaction that is undone: an engine elsewhere knows what it is given again by its pair.
pub(super) async fn relay(
    connection: &mut PgConnection,
    statement: &'static Statement,
    (jobs, most): (&Arc<dyn Jobs>, i32),
    careful: bool,
) -> Result<(Pass, bool), Error> {
    let failed = |e| Error::from_sqlx(statement.name, e);
    let mut refused = None;
    if careful {
        let mut tx = begin(connection).await.map_err(failed)?;
        let (_, made) = told(&mut tx, statement, most, None).await?;
        let found = refusals(&mut tx, jobs, &made).await?;
        tx.rollback().await.map_err(failed)?;
        refused = Some(json(&found.into_iter().filter(|tried| tried.error.is_some()).collect::<Vec<_>>()));
    }
    let mut tx = begin(connection).await.map_err(failed)?;
    let ((pass, starting), made) = told(&mut tx, statement, most, refused).await?;
    if !made.jobs.is_empty() {
        jobs.fan_out(&mut *tx, &made.jobs).await?;
    }
    tx.commit().await.map_err(failed)?;
    if pass.retry_in == Some(Duration::ZERO) {
        retry(connection, jobs).await?;
    }
    Ok((pass, starting))
}

async fn told(
    tx: &mut PgConnection,
    statement: &'static Statement,
    most: i32,
    refused: Option<String>,
) -> Result<((Pass, bool), Made), Error> {
    let failed = |e| Error::from_sqlx(statement.name, e);
    let row = statement.query_on(tx).bind(most).bind(refused).fetch_one(&mut *tx).await.map_err(failed)?;
    let pass = pg::pass(&row).map_err(failed)?;
    let text = row.try_get::<Option<String>, _>(8).map_err(failed)?;
    Ok((pass, text.map(|text| made(&text)).transpose()?.unwrap_or_default()))
}

/// Gives the engine everything, by halves where it refuses, each in a savepoint. What came of each pair.
async fn refusals(tx: &mut PgConnection, jobs: &Arc<dyn Jobs>, made: &Made) -> Result<Vec<Tried>, Error> {
    let failed = |e| Error::from_sqlx(RELAY_ELSEWHERE.name, e);
    let mut tried = Vec::new();
    let mut parts = vec![(made.pairs.as_slice(), made.jobs.as_slice())];
    while let Some((pairs, some)) = parts.pop() {
        if pairs.is_empty() {
            continue;
        }
        let mut savepoint = tx.begin().await.map_err(failed)?;
        match jobs.fan_out(&mut *savepoint, some).await {
            Ok(_) => {
                savepoint.commit().await.map_err(failed)?;
                tried.extend(pairs.iter().map(|&(seq, subscription)| Tried { seq, subscription, error: None }));
            }
            Err(failure) if failure.is_transient() => return Err(failure),
            Err(failure) => {
                savepoint.rollback().await.map_err(failed)?;
                if let [(seq, subscription)] = *pairs {
                    tried.push(Tried { seq, subscription, error: Some(says(&failure)) });
                } else {
                    let ((first, last), (early, late)) =
                        (pairs.split_at(pairs.len() / 2), some.split_at(some.len() / 2));
                    parts.extend([(last, late), (first, early)]);
                }
            }
        }
    }
    Ok(tried)
}

/// Tries what was set aside and is due again, each pair by itself, in one transaction with what came of it.
async fn retry(connection: &mut PgConnection, jobs: &Arc<dyn Jobs>) -> Result<(), Error> {
    let failed = |e| Error::from_sqlx(DUE_ELSEWHERE.name, e);
    let mut tx = begin(connection).await.map_err(failed)?;
    let row = DUE_ELSEWHERE.query_on(&tx).fetch_one(&mut *tx).await.map_err(failed)?;
    if let Some(text) = row.try_get::<Option<String>, _>(0).map_err(failed)? {
        let made = made(&text)?;
        let mut tried = Vec::new();
        for (pair, job) in made.pairs.into_iter().zip(made.jobs) {
            let one = Made { pairs: vec![pair], jobs: vec![job] };
            tried.extend(refusals(&mut tx, jobs, &one).await?);
        }
        RETRIED_ELSEWHERE.query_on(&tx).bind(json(&tried)).fetch_one(&mut *tx).await.map_err(failed)?;
    }
    tx.commit().await.map_err(failed)
}

fn says(failure: &Error) -> String {
    std::error::Error::source(failure).map_or_else(|| failure.to_string(), |source| format!("{failure}: {source}"))
}

fn json(tried: &[Tried]) -> String {
    serde_json::to_string(tried).unwrap_or_else(|_| "[]".to_owned())
}

fn made(text: &str) -> Result<Made, Error> {
    let wrong =
        || Error::Row { statement: RELAY_ELSEWHERE.name, column: 8, expected: "events and the jobs that they become" };
    let matched: Matched = serde_json::from_str(text).map_err(|_| wrong())?;
    let events: HashMap<i64, Event> = matched.events.into_iter().map(|told| (told.seq, event(told))).collect();
    let pairs = matched.jobs.iter().map(|m| (m.seq, m.subscription)).collect();
    let jobs = matched.jobs.into_iter().map(|m| Some(job(events.get(&m.seq)?.clone(), m)));
    Ok(Made { pairs, jobs: jobs.collect::<Option<_>>().ok_or_else(wrong)? })
}

fn event(told: Told) -> Event {
    Event {
        id: EventId::from_uuid(told.id),
        r#type: told.r#type,
        subject: told.subject,
        owner: told.owner,
        occurred_at: Timestamp::from_micros(told.occurred_at),
        recorded_at: Timestamp::from_micros(told.recorded_at),
        cause: told.cause.map(EventId::from_uuid),
        version: told.version,
        traceparent: told.traceparent,
        data: Payload::trusted(told.data),
    }
}

fn job(event: Event, matched: Match) -> NewJob {
    NewJob {
        queue: Some(matched.queue),
        priority: Some(matched.priority),
        max_attempts: Some(matched.max_attempts),
        run_at: matched.run_at.map(Timestamp::from_micros),
        order: matched.order_key.is_some().then(|| order(matched.order_rule.unwrap_or(0))),
        order_key: matched.order_key,
        owner: event.owner.clone(),
        source: Some(Box::new(Source { event, subscription: matched.subscription })),
        ..NewJob::new(matched.kind, Payload::trusted("{}"))
    }
}

/// A policy as the tables keep it.
fn order(rule: i16) -> Order {
    match rule {
        0 => Order::Block,
        failures => u16::try_from(failures).map_or(Order::Skip, Order::Park),
    }
}
