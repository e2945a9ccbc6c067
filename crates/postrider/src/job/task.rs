use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::error;

use super::line::{Line, Pace, lines};
use super::probes::{Look, Place, Probe, Probes};
use super::{Claimant, Holdings, Hook, decide, pg};
use crate::pg::{Link, Wake};
use crate::port::Job;

/// Jobs in one claim: enough to spread the cost of its commit.
const BATCH_MOST: usize = 200;
/// How long freed slots are gathered before the next claim of a busy queue.
const GATHER: Duration = Duration::from_millis(5);

/// How often a claimer looks at lanes in vain before it leaves them to a beat.
const HELD_MOST: u32 = 5;

/// What a claimer hands its jobs to.
pub(crate) trait Claims: Send + Sync {
    fn dispatch(self: Arc<Self>, line: Line);
}

/// Claims the jobs of one queue.
pub(crate) struct Claimer {
    pub(crate) claimant: Claimant,
    pub(crate) concurrency: usize,
    pub(crate) holdings: Arc<Holdings>,
    pub(crate) woken: Arc<Notify>,
    pub(crate) wake: Arc<Wake>,
    pub(crate) hook: Hook,
    pub(crate) clock: crate::clock::Clock,
    pub(crate) claimed: Arc<AtomicU64>,
}

/// Claims until stopped. A claim once sent is never cancelled: its reply is waited for, or it is given up and the next beat hands
/// back what it took.
pub(crate) async fn run(claimer: Claimer, mut link: Link, sink: Arc<dyn Claims>, stop: CancellationToken) {
    let slots = Arc::new(Semaphore::new(claimer.concurrency));
    let mut state = State { probes: Probes::new(claimer.claimant.fair), ..State::default() };
    while let Some(permits) = free_slots(&slots, claimer.concurrency, state.busy, &stop).await {
        let wait = claimer.claim(&mut state, &mut link, permits, &sink).await;
        tokio::select! {
            () = stop.cancelled() => break,
            () = claimer.woken.notified() => state.quiet = 0,
            () = async { match wait { Some(pause) => sleep(pause).await, None => std::future::pending().await } } => {}
        }
    }
    link.close().await;
}

/// What a claimer knows from one claim to the next.
#[derive(Debug, Default)]
struct State {
    probes: Probes,
    /// Claims since the last work.
    quiet: u32,
    /// Failures in a row.
    errors: u32,
    /// How often in a row lanes that were called were somebody's.
    held: u32,
    /// The last claim brought all that it asked for.
    busy: bool,
    pace: Arc<Pace>,
}

impl State {
    /// What the heads of the lines say of where jobs wait. True if nothing more can be waiting.
    fn learn(
        &mut self,
        probe: &Probe,
        (short, lines): (bool, &[Vec<Job>]),
        (started, ended): (Duration, Duration),
    ) -> bool {
        let heads = lines.iter().filter_map(|line| line.first());
        let place = |job: &Job| -> Place { ((job.priority, job.share), job.pos) };
        let (turned, got): (Vec<&Job>, Vec<&Job>) =
            heads.partition(|job| job.order_key.is_some() && job.pos != job.key);
        let (turned, got): (Vec<Place>, Vec<Place>) =
            (turned.into_iter().map(place).collect(), got.into_iter().map(place).collect());
        self.probes.learn(probe, Look { short, got: &got, turned: &turned, started, ended })
    }
}

impl Claimer {
    /// One claim for the free slots; answers with how long to wait for the next, `None` until there is a hint.
    async fn claim(
        &self,
        state: &mut State,
        link: &mut Link,
        mut slots: OwnedSemaphorePermit,
        sink: &Arc<dyn Claims>,
    ) -> Option<Duration> {
        // who hears nothing looks as long as there is work
        let deaf = !self.wake.listens() && self.holdings.has_keys() && state.quiet < HELD_MOST;
        if self.wake.is_called() || deaf {
            self.settle_called(state, link).await;
        }
        let asked = slots.num_permits();
        let started = self.clock.monotonic();
        let probe = state.probes.next(started);
        let call = self.holdings.begin_call();
        // whoever is told of each claim takes it for the beginning of an attempt
        let in_line = if self.hook.is_some() { 0 } else { state.pace.in_line() };
        let ask = pg::Ask { call, most: asked, in_line };
        let answer = link
            .run(&pg::CLAIM, |mut connection| async {
                let answer = pg::claim(&mut connection, &self.claimant, ask, &probe, &self.hook).await;
                (connection, answer)
            })
            .await;
        match answer {
            Ok(got) => {
                self.holdings.end_call(call, got.jobs.iter().map(|job| job.lease));
                self.claimed.fetch_add(got.jobs.len() as u64, Ordering::Relaxed);
                if got.jobs.iter().any(|job| job.order_key.is_some() || job.limit_key.is_some()) {
                    self.holdings.note_key();
                }
                let lines = lines(got.jobs);
                let short = !got.more && lines.len() < asked;
                let all = state.learn(&probe, (short, &lines), (started, self.clock.monotonic()));
                state.busy = lines.len() == asked;
                state.quiet = if lines.is_empty() { state.quiet.saturating_add(1) } else { 0 };
                state.errors = 0;
                for jobs in lines {
                    if let Some(slot) = slots.split(1) {
                        Arc::clone(sink).dispatch(Line { jobs, slot, pace: Arc::clone(&state.pace) });
                    }
                }
                if got.more || state.busy || !all && state.quiet > 0 {
                    Some(Duration::ZERO)
                } else if !all {
                    // it brought all that it saw: what comes meanwhile is brought along with what it may have missed
                    Some(decide::FIRST)
                } else {
                    decide::pause(state.quiet, (!self.wake.listens()).then_some(self.wake.poll))
                }
            }
            Err(failure) => {
                self.holdings.end_call(call, []);
                if state.errors == 0 && !failure.is_transient() {
                    let queue = &self.claimant.queue;
                    error!(queue, error = ?failure, "claiming of queue {queue} fails: {failure}");
                }
                state.errors += 1;
                Some(pg::pause_after_error(state.errors))
            }
        }
    }
}

impl Claimer {
    /// Looks at the lanes that were called; a few times more if somebody has them, then a beat does.
    async fn settle_called(&self, state: &mut State, link: &mut Link) {
        let called = link.run_beside(&pg::SETTLE_CALLED, |mut connection| async {
            let called = pg::settle_called(&mut connection).await;
            (connection, called)
        });
        // what it could not be done for now, a beat does
        let called = called.await.unwrap_or(false);
        state.held = if called { state.held + 1 } else { 0 };
        if called && state.held < HELD_MOST {
            self.wake.call();
        }
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
