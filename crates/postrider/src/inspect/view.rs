use postrider_contract::{JobId, Payload, Timestamp};
use serde::Deserialize;

use crate::error::Error;
use crate::pg::{Arg, Row, Statement, Tx};
use crate::port::{AttemptView, JobView, Progress, QueueView, State, Waits};

pub(super) const VIEW: Statement = crate::statement!("sql/view.sql");
pub(super) const LIST: Statement = crate::statement!("sql/list.sql");
pub(super) const QUEUES: Statement = crate::statement!("sql/queues.sql");
pub(super) const GONE: Statement = crate::statement!("sql/gone.sql");
pub(super) const EXPLAIN: Statement = crate::statement!("sql/explain.sql");

#[derive(Deserialize)]
struct Past {
    attempt: i16,
    outcome: String,
    started_at: i64,
    ended_at: i64,
    error: Option<String>,
}

/// Jobs as they are, in the order of the ids; those that are not there are left out.
pub(crate) async fn views(tx: &mut dyn Tx, ids: &[i64], attempts: bool) -> Result<Vec<JobView>, Error> {
    let attempts = if attempts { "true" } else { "false" };
    tx.run(&VIEW, &[Arg::Ints(ids), Arg::Text(attempts)]).await?.iter().map(view).collect()
}

fn micros(row: &Row, column: usize) -> Option<Timestamp> {
    row.opt(column).and_then(|text| text.parse().ok()).map(Timestamp::from_micros)
}

fn small(row: &Row, column: usize) -> Result<i16, Error> {
    let wrong = Error::Row { statement: VIEW.name, column, expected: "a small integer" };
    i16::try_from(row.int(column)?).map_err(|_| wrong)
}

fn view(row: &Row) -> Result<JobView, Error> {
    let wrong = |column, expected| Error::Row { statement: VIEW.name, column, expected };
    let payload = |column| row.opt(column).map(|text| Payload::trusted(text.to_owned()));
    let attempts: Vec<Past> = match row.opt(22) {
        Some(text) => serde_json::from_str(text).map_err(|_| wrong(22, "attempts"))?,
        None => Vec::new(),
    };
    let tags = match row.opt(26) {
        Some(text) => serde_json::from_str(text).map_err(|_| wrong(26, "tags"))?,
        None => Vec::new(),
    };
    Ok(JobView {
        id: JobId::new(row.text(0)?),
        kind: row.text(1)?.to_owned(),
        queue: row.text(2)?.to_owned(),
        priority: small(row, 3)?,
        owner: row.text(4)?.to_owned(),
        order_key: row.opt(24).map(str::to_owned),
        limit_key: row.opt(25).map(str::to_owned),
        tags,
        state: State::named(row.text(5)?).ok_or_else(|| wrong(5, "a state"))?,
        waits: waits(row),
        attempt: small(row, 9)?,
        max_attempts: small(row, 10)?,
        args: payload(11).ok_or_else(|| wrong(11, "json"))?,
        created_at: micros(row, 12).ok_or_else(|| wrong(12, "a moment"))?,
        started_at: micros(row, 13),
        finished_at: micros(row, 14),
        reason: row.opt(15).map(str::to_owned),
        ended_as: row.opt(16).map(str::to_owned),
        output: payload(17),
        progress: progress(row),
        lease: row.opt(21).and_then(|text| text.parse().ok()),
        attempts: attempts
            .into_iter()
            .map(|a| AttemptView {
                attempt: a.attempt,
                outcome: a.outcome,
                started_at: Timestamp::from_micros(a.started_at),
                ended_at: Timestamp::from_micros(a.ended_at),
                error: a.error,
            })
            .collect(),
    })
}

fn waits(row: &Row) -> Option<Waits> {
    let at = || micros(row, 7).unwrap_or(Timestamp::from_micros(0));
    Some(match row.opt(6)? {
        "scheduled" => Waits::Scheduled(at()),
        "backoff" => Waits::Backoff(at()),
        "snoozed" => Waits::Snoozed(at()),
        "paused" => Waits::Paused,
        "no_worker" => Waits::NoWorker,
        "behind" | "turn" => Waits::Behind(JobId::new(row.opt(8).unwrap_or_default())),
        "stopped" => Waits::Stopped(row.opt(23).unwrap_or_default().to_owned()),
        "held" => Waits::Held(at(), row.opt(23).unwrap_or_default().to_owned()),
        "limited" => Waits::Limited,
        "suspect" => Waits::Suspect,
        _ => Waits::Due,
    })
}

fn progress(row: &Row) -> Option<Progress> {
    Some(Progress { percent: row.opt(18)?.parse().ok()?, note: row.opt(19)?.to_owned(), at: micros(row, 20)? })
}

/// The ids of the newest jobs that match, before one, and how far was looked if there is more to look at.
pub(crate) async fn list(
    tx: &mut dyn Tx,
    filter: &Payload,
    before: i64,
    most: i64,
) -> Result<(Vec<i64>, Option<JobId>), Error> {
    let args = [Arg::Text(filter.as_str()), Arg::Int(before), Arg::Int(most)];
    let (mut ids, mut next) = (Vec::new(), None);
    for row in tx.run(&LIST, &args).await? {
        match row.opt(1) {
            Some(looked) => next = Some(JobId::new(looked)),
            None => ids.push(row.int(0)?),
        }
    }
    Ok((ids, next))
}

/// By when a job had ended that was there once and is kept no longer.
pub(crate) async fn gone(tx: &mut dyn Tx, id: i64) -> Result<Option<Timestamp>, Error> {
    Ok(tx.run(&GONE, &[Arg::Int(id)]).await?.first().and_then(|row| micros(row, 0)))
}

/// Why a job has not run.
pub(crate) async fn explain(tx: &mut dyn Tx, id: i64) -> Result<Option<String>, Error> {
    Ok(tx.run(&EXPLAIN, &[Arg::Int(id)]).await?.first().and_then(|row| row.opt(0)).map(str::to_owned))
}

pub(crate) async fn queues(tx: &mut dyn Tx) -> Result<Vec<QueueView>, Error> {
    let rows = tx.run(&QUEUES, &[]).await?;
    rows.iter().map(|row| Ok(QueueView { name: row.text(0)?.to_owned(), paused_at: micros(row, 1) })).collect()
}
