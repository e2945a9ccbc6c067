use std::collections::HashMap;
use std::sync::Arc;

use postrider_contract::{Event, EventId, Order, Payload, Timestamp};
use serde::Deserialize;
use sqlx::{PgConnection, Row as _};
use uuid::Uuid;

use super::{Pass, pg};
use crate::error::Error;
use crate::pg::{Statement, begin};
use crate::port::{Jobs, NewJob, Source};

pub(super) const RELAY_ELSEWHERE: Statement = crate::statement!("sql/relay_elsewhere.sql");
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

/// One pass whose jobs another engine makes, in the transaction of the cut: either both are there or neither is.
pub(super) async fn relay(
    connection: &mut PgConnection,
    statement: &'static Statement,
    jobs: &Arc<dyn Jobs>,
    most: i32,
) -> Result<(Pass, bool), Error> {
    let failed = |e| Error::from_sqlx(statement.name, e);
    let mut tx = begin(connection).await.map_err(failed)?;
    let row = statement.query_on(&tx).bind(most).fetch_one(&mut *tx).await.map_err(failed)?;
    let pass = pg::pass(&row).map_err(failed)?;
    if let Some(text) = row.try_get::<Option<String>, _>(6).map_err(failed)? {
        let made = made(&text)?;
        if !made.is_empty() {
            jobs.fan_out(&mut *tx, &made).await?;
        }
    }
    tx.commit().await.map_err(failed)?;
    Ok(pass)
}

fn made(text: &str) -> Result<Vec<NewJob>, Error> {
    let wrong =
        || Error::Row { statement: RELAY_ELSEWHERE.name, column: 6, expected: "events and the jobs that they become" };
    let matched: Matched = serde_json::from_str(text).map_err(|_| wrong())?;
    let events: HashMap<i64, Event> = matched.events.into_iter().map(|told| (told.seq, event(told))).collect();
    let jobs = matched.jobs.into_iter().map(|m| Some(job(events.get(&m.seq)?.clone(), m)));
    jobs.collect::<Option<_>>().ok_or_else(wrong)
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
