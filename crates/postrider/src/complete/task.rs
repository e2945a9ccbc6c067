use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::{error, warn};
use uuid::Uuid;

use super::{Ended, Outcome, pg};
use crate::error::Error;
use crate::pg::{Link, tell_count};

/// Outcomes in one flush.
const BATCH_MOST: usize = 500;

/// Called for each outcome that was told, counted or not.
pub(crate) type Told = Arc<dyn Fn(&Outcome, bool) + Send + Sync>;

/// The completion of this process.
pub(crate) struct Flush {
    pub(crate) worker: Uuid,
    pub(crate) told: Told,
    /// Called after them, once for what was told together, also of what had committed by itself.
    pub(crate) all_told: Arc<dyn Fn() + Send + Sync>,
    /// Called with the shortest wait of what was put off: only a beat finds it again.
    pub(crate) put_off: Arc<dyn Fn(Duration) + Send + Sync>,
    pub(crate) flushes: Arc<AtomicU64>,
}

/// Writes outcomes until every sender is gone, or until `last` is cancelled and what was sent before is written. One flush is under way at a time, so that batches grow by themselves under load and a
/// lone outcome is written at once. A flush that failed for a passing reason is told again until it lands; sent twice, it changes
/// nothing the second time.
pub(crate) async fn run(
    flush: Flush,
    mut link: Link,
    mut outcomes: UnboundedReceiver<Outcome>,
    last: CancellationToken,
) {
    let mut batch = Vec::new();
    loop {
        let received = tokio::select! {
            n = outcomes.recv_many(&mut batch, BATCH_MOST) => n,
            () = last.cancelled(), if !outcomes.is_closed() => {
                outcomes.close();
                continue;
            }
        };
        if received == 0 {
            break;
        }
        if received < BATCH_MOST && !last.is_cancelled() {
            // what ends together is told together
            tokio::task::yield_now().await;
            while batch.len() < BATCH_MOST
                && let Ok(outcome) = outcomes.try_recv()
            {
                batch.push(outcome);
            }
        }
        for outcome in batch.extract_if(.., |outcome| outcome.ended == Ended::Committed) {
            (flush.told)(&outcome, true);
        }
        if !batch.is_empty() {
            tell(&flush, &mut link, std::mem::take(&mut batch)).await;
        }
        (flush.all_told)();
    }
    link.close().await;
}

async fn tell(flush: &Flush, link: &mut Link, batch: Vec<Outcome>) {
    let mut errors = 0_u32;
    loop {
        match write(flush, link, &batch, errors > 0).await {
            Ok(()) => return,
            Err(failure) if failure.is_transient() => {
                errors += 1;
                sleep(Duration::from_millis(50).saturating_mul(2_u32.saturating_pow(errors.min(6)))).await;
            }
            Err(failure) if batch.len() > 1 => {
                warn!(error = ?failure, "a batch of {} outcomes was refused, telling them one by one", batch.len());
                for outcome in batch {
                    Box::pin(tell(flush, link, vec![outcome])).await;
                }
                return;
            }
            Err(failure) => {
                let Some(outcome) = batch.into_iter().next() else { return };
                return alone(flush, link, outcome, failure).await;
            }
        }
    }
}

/// An outcome that the database refuses by itself: without its text, and if that is refused as well, left to its lease.
async fn alone(flush: &Flush, link: &mut Link, mut outcome: Outcome, failure: Error) {
    let text = format!("the text of this outcome could not be stored: {failure}");
    let stripped = match outcome.ended {
        Ended::Failed { wait, .. } => Ended::Failed { wait, error: text },
        Ended::Refused(_) => Ended::Refused(text),
        Ended::Exhausted { .. } => Ended::Exhausted { error: text },
        Ended::Aged { .. } => Ended::Aged { error: text },
        Ended::Completed(_) => Ended::Completed(None),
        other => other,
    };
    outcome.ended = stripped;
    if let Err(failure) = write(flush, link, std::slice::from_ref(&outcome), true).await {
        error!(job.id = outcome.id, error = ?failure, "the outcome of job {} cannot be written: {failure}", outcome.id);
        // told all the same: the lease is not held any more, so the next beat hands the job back
        (flush.told)(&outcome, false);
    }
}

/// `again`: an earlier try may have landed, so that what does not count now is taken to have counted then.
async fn write(flush: &Flush, link: &mut Link, batch: &[Outcome], again: bool) -> Result<(), Error> {
    let worker = flush.worker;
    let counted = link
        .run(&pg::FINISH, |mut connection| async move {
            tell_count(batch.len() as u64);
            let counted = pg::finish(&mut connection, worker, batch).await;
            (connection, counted)
        })
        .await?;
    flush.flushes.fetch_add(1, Ordering::Relaxed);
    let counted: HashSet<(i64, i64)> = counted.into_iter().collect();
    for outcome in batch {
        let fresh = counted.contains(&(outcome.lease, outcome.id));
        if !fresh && !again {
            warn!(
                job.id = outcome.id,
                lease = outcome.lease,
                "the outcome of job {} came too late: its lease was lost",
                outcome.id
            );
        }
        (flush.told)(outcome, fresh || again);
    }
    let waits = batch.iter().filter_map(|outcome| match outcome.ended {
        Ended::Failed { wait, .. } | Ended::Snoozed(wait) => Some(wait),
        _ => None,
    });
    if let Some(shortest) = waits.min() {
        (flush.put_off)(shortest);
    }
    Ok(())
}
