use std::collections::BTreeMap;

use postrider::port::{AttemptView, Progress};
use postrider::{Error, JobId, JobView, Payload, State, Timestamp, Waits};
use riverqueue::{AttemptError, JobRow, JobState, jiff};
use serde::{Deserialize, Serialize};

use crate::envelope::Envelope;

/// Keys of River's metadata that are ours.
pub(crate) const OWNER: &str = "postrider:owner";
pub(crate) const OUTPUT: &str = "postrider:output";
pub(crate) const PROGRESS: &str = "postrider:progress";
pub(crate) const ENDED: &str = "postrider:ended";
pub(crate) const REFUSED: &str = "postrider:refused";

/// Of more attempts than this, the first one and the last ones are shown.
pub(crate) const ATTEMPTS_MOST: usize = 20;

/// Why an attempt refused its job: River keeps no reason.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Refusal {
    pub(crate) attempt: i32,
    pub(crate) reason: String,
}

/// How far an attempt has come.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Word {
    pub(crate) percent: u8,
    pub(crate) note: String,
    pub(crate) at: i64,
}

/// A queue's name as River spells it: River knows no dots, and we know no bars.
pub(crate) fn queue_in_river(queue: &str) -> String {
    queue.replace('.', "|")
}

pub(crate) fn queue_here(queue: &str) -> String {
    queue.replace('|', ".")
}

pub(crate) fn micros(at: jiff::Timestamp) -> Timestamp {
    Timestamp::from_micros(at.as_microsecond())
}

pub(crate) fn small(n: i32) -> i16 {
    i16::try_from(n).unwrap_or(i16::MAX)
}

/// Where a job is in its life. River calls a job available or scheduled before its first attempt and between two.
pub(crate) fn state(row: &JobRow) -> State {
    let between = row.attempt > 0 && !row.errors.is_empty();
    match row.state {
        JobState::Running => State::Running,
        JobState::Completed => State::Completed,
        JobState::Discarded => State::Discarded,
        JobState::Cancelled => State::Cancelled,
        JobState::Retryable => State::Retryable,
        JobState::Available | JobState::Scheduled if between => State::Retryable,
        _ => State::Pending,
    }
}

/// A row as the ports show it. `whole`: with args, output and attempts.
pub(crate) fn view(row: &JobRow, paused: &[String], whole: bool) -> Result<JobView, Error> {
    let wrong = |_| Error::Row { statement: "river_job", column: 0, expected: "an envelope of this engine" };
    let envelope: Envelope = row.decode_args().map_err(wrong)?;
    let refusal = refusal(row);
    let state = state(row);
    let text: Option<String> = row.metadata.get(OUTPUT).unwrap_or_default();
    let ended: BTreeMap<i32, i64> = row.metadata.get(ENDED).unwrap_or_default().unwrap_or_default();
    let mut attempts: Vec<_> = row.errors.iter().map(|error| attempt(error, refusal.as_ref(), &ended)).collect();
    if attempts.len() > ATTEMPTS_MOST {
        attempts.drain(1..=attempts.len() - ATTEMPTS_MOST);
    }
    if !whole {
        attempts.clear();
    }
    Ok(JobView {
        id: JobId::new(row.id.to_string()),
        kind: row.kind.clone(),
        queue: queue_here(&row.queue),
        priority: row.priority,
        owner: envelope.owner.clone(),
        order_key: None,
        limit_key: None,
        tags: Vec::new(),
        state,
        waits: waits(row, state, paused),
        attempt: small(row.attempt),
        max_attempts: small(row.max_attempts),
        args: if whole { envelope.payload() } else { Payload::trusted("null") },
        created_at: micros(row.created_at),
        started_at: row.attempted_at.map(micros),
        finished_at: row.finalized_at.map(micros),
        reason: reason(row, refusal.as_ref()),
        ended_as: ended_as(row, state, refusal.as_ref()).map(str::to_owned),
        output: text.filter(|_| whole && state == State::Completed).map(Payload::trusted),
        progress: progress(row).filter(|_| state == State::Running),
        lease: (state == State::Running).then(|| lease(row)),
        attempts,
    })
}

/// River has no fence; the moment of the claim tells attempts of a job apart.
pub(crate) fn lease(row: &JobRow) -> i64 {
    row.attempted_at.map_or(0, jiff::Timestamp::as_microsecond)
}

fn refusal(row: &JobRow) -> Option<Refusal> {
    row.metadata.get::<Refusal>(REFUSED).ok().flatten().filter(|refusal| refusal.attempt == row.attempt)
}

fn progress(row: &JobRow) -> Option<Progress> {
    let Word { percent, note, at } = row.metadata.get(PROGRESS).ok().flatten()?;
    let at = Timestamp::from_micros(at);
    // what an attempt before this one told is over
    (row.attempted_at.is_none_or(|began| at >= micros(began))).then_some(Progress { percent, note, at })
}

fn reason(row: &JobRow, refusal: Option<&Refusal>) -> Option<String> {
    if row.state == JobState::Completed {
        return None;
    }
    refusal.map(|refusal| refusal.reason.clone()).or_else(|| row.errors.last().map(|error| error.error.clone()))
}

fn is_rescue(error: &AttemptError) -> bool {
    error.error.starts_with("Stuck job rescued")
}

fn ended_as(row: &JobRow, state: State, refusal: Option<&Refusal>) -> Option<&'static str> {
    match state {
        State::Completed => Some("completed"),
        State::Cancelled => Some("cancelled"),
        State::Discarded if refusal.is_some() => Some("refused"),
        State::Discarded if row.errors.last().is_some_and(is_rescue) => Some("lost"),
        State::Discarded => Some("exhausted"),
        _ => None,
    }
}

/// River tells when an attempt began; when it ended is in the metadata, for the last ones.
fn attempt(error: &AttemptError, refusal: Option<&Refusal>, ended: &BTreeMap<i32, i64>) -> AttemptView {
    let refusal = refusal.filter(|refusal| refusal.attempt == error.attempt);
    let outcome = match refusal {
        Some(_) => "refused",
        None if is_rescue(error) => "lost",
        None => "failed",
    };
    AttemptView {
        attempt: small(error.attempt),
        outcome: outcome.to_owned(),
        started_at: micros(error.at),
        ended_at: ended.get(&error.attempt).map_or(micros(error.at), |at| Timestamp::from_micros(*at)),
        error: Some(refusal.map_or_else(|| error.error.clone(), |refusal| refusal.reason.clone())),
    }
}

fn waits(row: &JobRow, state: State, paused: &[String]) -> Option<Waits> {
    let at = micros(row.scheduled_at);
    let snoozes: Option<i64> = row.metadata.get("snoozes").unwrap_or_default();
    let due = row.scheduled_at <= jiff::Timestamp::now();
    match state {
        State::Pending | State::Retryable if paused.contains(&row.queue) => Some(Waits::Paused),
        State::Pending | State::Retryable if due => Some(Waits::Due),
        State::Retryable => Some(Waits::Backoff(at)),
        State::Pending if snoozes.is_some_and(|n| n > 0) => Some(Waits::Snoozed(at)),
        State::Pending => Some(Waits::Scheduled(at)),
        _ => None,
    }
}
