use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::error;
use uuid::Uuid;

use super::probes::Probes;
use super::{Holdings, Hook, Job, decide, pg};
use crate::pg::{Link, Wake};

/// Jobs in one claim: enough to spread the cost of its commit.
const BATCH_MOST: usize = 200;
/// How long freed slots are gathered before the next claim of a busy queue.
const GATHER: Duration = Duration::from_millis(5);

/// What a claimer hands its jobs to; each comes with the slot that it occupies until it is dropped.
pub(crate) trait Claims: Send + Sync {
    fn dispatch(&self, job: Job, slot: OwnedSemaphorePermit);
}

/// Claims the jobs of one queue.
pub(crate) struct Claimer {
    pub(crate) worker: Uuid,
    pub(crate) queue: String,
    pub(crate) kinds: Vec<String>,
    pub(crate) concurrency: usize,
    pub(crate) holdings: Arc<Holdings>,
    pub(crate) woken: Arc<Notify>,
    pub(crate) wake: Arc<Wake>,
    pub(crate) hook: Hook,
    pub(crate) clock: crate::run::Clock,
    pub(crate) claimed: Arc<AtomicU64>,
}

/// Claims until stopped. A claim once sent is never cancelled: its reply is waited for, or it is given up and the next beat hands
/// back what it took.
pub(crate) async fn run(claimer: Claimer, mut link: Link, sink: Arc<dyn Claims>, stop: CancellationToken) {
    let slots = Arc::new(Semaphore::new(claimer.concurrency));
    let claimant = pg::Claimant { worker: claimer.worker, queue: claimer.queue.clone(), kinds: claimer.kinds.clone() };
    let mut probes = Probes::default();
    let (mut quiet, mut errors, mut busy) = (0_u32, 0_u32, false);
    loop {
        let Some(mut permits) = free_slots(&slots, claimer.concurrency, busy, &stop).await else { break };
        let asked = permits.num_permits();
        let started = claimer.clock.monotonic();
        let probe = probes.next(started);
        let call = claimer.holdings.begin_call();
        let claimed = link
            .run(&pg::CLAIM, |mut connection| async {
                let claimed = pg::claim(&mut connection, &claimant, (call, asked), &probe, &claimer.hook).await;
                (connection, claimed)
            })
            .await;
        let wait = match claimed {
            Ok(claimed) => {
                claimer.holdings.end_call(call, claimed.jobs.iter().map(|job| job.lease));
                claimer.claimed.fetch_add(claimed.jobs.len() as u64, Ordering::Relaxed);
                let got: Vec<(i16, i64)> = claimed.jobs.iter().map(|job| (job.priority, job.pos)).collect();
                let now = claimer.clock.monotonic();
                let empty = probes.learn(&probe, asked, &got, now.saturating_sub(started), now);
                busy = got.len() == asked;
                quiet = if got.is_empty() { quiet + 1 } else { 0 };
                errors = 0;
                for job in claimed.jobs {
                    if let Some(slot) = permits.split(1) {
                        sink.dispatch(job, slot);
                    }
                }
                if claimed.more || !empty { Some(Duration::ZERO) } else { decide::pause(quiet, claimer.hears()) }
            }
            Err(failure) => {
                claimer.holdings.end_call(call, []);
                if errors == 0 && !failure.is_transient() {
                    error!(queue = claimer.queue, error = ?failure, "claiming of queue {} fails: {failure}", claimer.queue);
                }
                errors += 1;
                Some(pg::pause_after_error(errors))
            }
        };
        drop(permits);
        tokio::select! {
            () = stop.cancelled() => break,
            () = claimer.woken.notified() => quiet = 0,
            () = async { match wait { Some(pause) => sleep(pause).await, None => std::future::pending().await } } => {}
        }
    }
    link.close().await;
}

impl Claimer {
    fn hears(&self) -> bool {
        self.wake.listening.load(Ordering::Relaxed)
    }
}

/// Waits for free slots; on a busy queue until half of them are free, or 5 ms after the first, so that claims do not become tiny.
async fn free_slots(
    slots: &Arc<Semaphore>,
    concurrency: usize,
    busy: bool,
    stop: &CancellationToken,
) -> Option<OwnedSemaphorePermit> {
    let mut first = tokio::select! {
        biased;
        () = stop.cancelled() => return None,
        permit = Arc::clone(slots).acquire_owned() => permit.ok()?,
    };
    let enough = concurrency.div_ceil(2).min(BATCH_MOST);
    if busy && slots.available_permits() + 1 < enough {
        let more = u32::try_from(enough - 1).unwrap_or(u32::MAX);
        if let Ok(Ok(permits)) = timeout(GATHER, Arc::clone(slots).acquire_many_owned(more)).await {
            first.merge(permits);
        }
    }
    let rest = slots.available_permits().min(BATCH_MOST.saturating_sub(first.num_permits()));
    if let Ok(permits) = Arc::clone(slots).try_acquire_many_owned(u32::try_from(rest).unwrap_or(0)) {
        first.merge(permits);
    }
    Some(first)
}
