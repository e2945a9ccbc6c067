use std::collections::BTreeSet;
use std::time::Duration;

use sqlx::PgConnection;
use tokio::sync::watch;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, info, warn};

use super::decide::{Times, look};
use super::pg::{self, Due};
use crate::clock::Clock;
use crate::error::Error;
use crate::pg::{Link, begin};

/// A connection that is not needed for so long is given back.
const IDLE: Duration = Duration::from_secs(10);
const AFTER_FAILURE: Duration = Duration::from_secs(1);
/// How long a schedule that somebody else holds is left alone.
const HELD: Duration = Duration::from_millis(250);

/// What this process fires, and when it is told that something is due.
pub(crate) struct Firing {
    /// The schedules that it declares.
    pub(crate) names: Vec<String>,
    /// Whether one of them runs when a process starts.
    pub(crate) at_start: bool,
    /// The moment of the monotonic clock at which the next one is due, as the last beat was told.
    pub(crate) due: watch::Receiver<Option<Duration>>,
    pub(crate) clock: Clock,
}

/// Fires what is due until stopped. It asks nothing before something is.
pub(crate) async fn run(firing: Firing, mut link: Link, stop: CancellationToken) {
    let Firing { names, mut at_start, mut due, clock } = firing;
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut failing = BTreeSet::new();
    let mut next = at_start.then_some(Duration::ZERO);
    loop {
        let wait = next.map(|at| at.saturating_sub(clock.monotonic()));
        if wait.is_none_or(|wait| wait > IDLE) {
            link.close().await;
        }
        let alarm = async {
            match wait {
                Some(wait) => sleep(wait).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = stop.cancelled() => break,
            told = due.changed() => {
                if told.is_err() {
                    break;
                }
                // a beat knows better, but not while something is to be done at the start
                if !at_start {
                    next = *due.borrow_and_update();
                }
                continue;
            }
            () = alarm => {}
        }
        let (names, failing) = (&names, &mut failing);
        let passed = link
            .run(&pg::DUE, |mut connection| async move {
                let passed = pass(&mut connection, names, at_start, failing).await;
                (connection, passed)
            })
            .await;
        let pause = match passed {
            Ok(pause) => {
                at_start = false;
                pause
            }
            Err(failure) => {
                if !failure.is_transient() {
                    error!(error = ?failure, "schedules cannot be fired: {failure}");
                }
                Some(AFTER_FAILURE)
            }
        };
        next = pause.map(|pause| clock.monotonic() + pause);
    }
    link.close().await;
}

/// One look at all that is due. Answers with when to look again, if that is known; else a beat will tell.
async fn pass(
    connection: &mut PgConnection,
    names: &[&str],
    at_start: bool,
    failing: &mut BTreeSet<String>,
) -> Result<Option<Duration>, Error> {
    let failed = |e| Error::from_sqlx(pg::DUE.name, e);
    if at_start {
        let mut tx = begin(connection).await.map_err(failed)?;
        let started = pg::start(&mut *tx, names).await?;
        tx.commit().await.map_err(failed)?;
        debug!("{started} schedules run, since a process starts");
    }
    let mut tx = begin(connection).await.map_err(failed)?;
    let all = pg::due(&mut *tx, names).await?;
    tx.commit().await.map_err(failed)?;
    let mut again = None;
    for due in &all {
        match take(connection, due, names).await {
            Ok(pause) => {
                failing.remove(&due.name);
                again = pause;
            }
            Err(failure) if failure.is_transient() => return Err(failure),
            // one that fails holds up no other
            Err(failure) => {
                if failing.insert(due.name.clone()) {
                    error!(error = ?failure, "schedule {} cannot be fired: {failure}", due.name);
                }
                again = Some(AFTER_FAILURE);
            }
        }
    }
    Ok(again)
}

/// Takes what is due of one schedule, in a transaction of its own.
async fn take(connection: &mut PgConnection, due: &Due, names: &[&str]) -> Result<Option<Duration>, Error> {
    let failed = |e| Error::from_sqlx(pg::FIRE.name, e);
    let look = match Times::read(&due.name, &due.when, &due.zone) {
        Ok(times) => look(&times, &due.row, due.now).ok_or_else(|| "it never comes again".to_owned()),
        Err(refused) => Err(refused.iter().map(ToString::to_string).collect::<Vec<_>>().join(" | ")),
    };
    let mut tx = begin(connection).await.map_err(failed)?;
    let pause = match look {
        Err(problem) => {
            pg::give_up(&mut *tx, due, &problem).await?;
            warn!("schedule {} does not come any more: {problem}", due.name);
            Some(Duration::ZERO)
        }
        Ok(look) => {
            let (outcome, due_in_ms) = pg::fire(&mut *tx, due, &look, names).await?;
            if look.missed > 0 && outcome != "gone" {
                info!("{} due times of schedule {} were missed", look.missed, due.name);
            }
            match outcome.as_str() {
                "gone" => Some(HELD),
                _ => due_in_ms.map(Duration::from_millis),
            }
        }
    };
    tx.commit().await.map_err(failed)?;
    Ok(pause)
}
