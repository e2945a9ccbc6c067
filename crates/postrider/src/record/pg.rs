use postrider_contract::{EventId, NewEvent};

use super::catalogue::{MISMATCHES, TYPES, VERSION};
use super::{CancelledEvent, Recorded, Resolution};
use crate::error::Error;
use crate::pg::{Arg, Pooler, Statement, Tx, Witness, Wrote, run};
use crate::port::Cause;

const RECORD: Statement = crate::statement!("sql/record.sql");
const RESOLVE: Statement = crate::statement!("sql/resolve.sql");
const CANCEL_EVENT: Statement = crate::statement!("sql/cancel_event.sql");

pub(super) const STATEMENTS: &[&Statement] = &[&RECORD, &RESOLVE, &CANCEL_EVENT, &TYPES, &VERSION, &MISMATCHES];

pub(super) async fn record(tx: &mut dyn Tx, pooler: Pooler, event: &NewEvent) -> Result<Recorded, Error> {
    let [occurred_at, deliver_at] = [event.occurred_at, event.deliver_at].map(|at| at.map(|at| at.to_string()));
    // who names a cause leaves the one of the handler behind, with its trace
    let ambient = Cause::current().filter(|_| event.cause.is_none());
    let cause = event.cause.or(ambient.as_ref().map(|cause| cause.event)).map(|id| id.to_string());
    let traceparent = event.traceparent.as_deref().or(ambient.as_ref().and_then(|cause| cause.traceparent.as_deref()));
    let version = event.version.map(|version| version.to_string());
    let args = [
        Arg::Text(&event.r#type),
        Arg::Text(&event.subject),
        Arg::Text(event.data.as_str()),
        Arg::Text(&event.owner),
        occurred_at.as_deref().map_or(Arg::Null, Arg::Text),
        cause.as_deref().map_or(Arg::Null, Arg::Text),
        event.idempotency_key.as_deref().map_or(Arg::Null, Arg::Text),
        version.as_deref().map_or(Arg::Null, Arg::Text),
        traceparent.map_or(Arg::Null, Arg::Text),
        deliver_at.as_deref().map_or(Arg::Null, Arg::Text),
    ];
    let rows = run(tx, pooler, &RECORD, &args).await?;
    let wrong = |column, expected| Error::Row { statement: RECORD.name, column, expected };
    let row = rows.first().ok_or(wrong(0, "one row"))?;
    Ok(Recorded {
        id: row.text(0)?.parse().map_err(|_| wrong(0, "a uuid"))?,
        xid: row.text(1)?.parse().map_err(|_| wrong(1, "a transaction id"))?,
    })
}

pub(super) async fn cancel_event(
    tx: &mut dyn Tx,
    pooler: Pooler,
    event: EventId,
    reason: Option<&str>,
) -> Result<CancelledEvent, Error> {
    let event = event.to_string();
    let rows = run(tx, pooler, &CANCEL_EVENT, &[Arg::Text(&event), reason.map_or(Arg::Null, Arg::Text)]).await?;
    match rows.first().and_then(|row| row.opt(0)) {
        Some("cancelled") => Ok(CancelledEvent::Cancelled),
        Some("delivered") => Ok(CancelledEvent::Delivered),
        Some("unknown") => Ok(CancelledEvent::Unknown),
        _ => Err(Error::Row { statement: CANCEL_EVENT.name, column: 0, expected: "cancelled, delivered or unknown" }),
    }
}

pub(super) async fn resolve(tx: &mut dyn Tx, pooler: Pooler, witness: &Witness) -> Result<Resolution, Error> {
    let xid = witness.xid.to_string();
    let (event, job) = match &witness.wrote {
        Wrote::Event(id) => (Some(id.to_string()), None),
        Wrote::Job(id, told_at) => (None, Some((id.as_str(), told_at.to_string()))),
        Wrote::Nothing => (None, None),
    };
    let (job, told_at) = job.as_ref().map_or((Arg::Null, Arg::Null), |(id, at)| (Arg::Text(id), Arg::Text(at)));
    let args = [Arg::Text(&xid), event.as_deref().map_or(Arg::Null, Arg::Text), job, told_at];
    let rows = run(tx, pooler, &RESOLVE, &args).await?;
    Ok(match rows.first().and_then(|row| row.opt(0)) {
        Some("committed") => Resolution::Committed,
        Some("aborted") => Resolution::Aborted,
        Some("in progress") => Resolution::InProgress,
        _ => Resolution::Unknown,
    })
}
