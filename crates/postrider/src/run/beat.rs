use std::collections::HashMap;
use std::pin::{Pin, pin};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{info, warn};
use uuid::Uuid;

use super::Settings;
use super::figures::Counters;
use super::pg::{self, Answer, Beat, Cancel, Progress, Report};
use super::watch::Watch;
use crate::clock::Clock;
use crate::handle::Dispatcher;
use crate::job::Holdings;
use crate::pg::{Link, Wake};

/// No two beats are nearer than this.
const GAP_MIN: Duration = Duration::from_millis(20);
/// How long a goodbye waits for a claim that is on its way, and how long it then tries to be heard.
const GOODBYE: Duration = Duration::from_secs(4);
const GOODBYE_PAUSE: Duration = Duration::from_millis(100);

/// When something that this process put off becomes due.
#[derive(Debug, Default)]
pub(super) struct Due {
    at: Mutex<Option<Duration>>,
    changed: Notify,
}

impl Due {
    pub(super) fn put_off(&self, until: Duration) {
        let mut at = self.at.lock().unwrap_or_else(PoisonError::into_inner);
        if at.is_none_or(|known| until < known) {
            *at = Some(until);
            self.changed.notify_one();
        }
    }

    fn take(&self) {
        *self.at.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    fn get(&self) -> Option<Duration> {
        *self.at.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The schedules that this process fires, and when the next of them is due.
pub(super) struct Timed {
    pub(super) names: Vec<String>,
    pub(super) due: watch::Sender<Option<Duration>>,
}

/// The beat of this worker. It has a thread, a runtime and a connection of its own: a handler that blocks every thread of the
/// application may not cost it its leases.
pub(super) struct Beater {
    pub(super) worker: Uuid,
    pub(super) app: String,
    pub(super) settings: Settings,
    pub(super) queues: Vec<String>,
    pub(super) kinds: Vec<String>,
    pub(super) schedules: Timed,
    pub(super) holdings: Arc<Holdings>,
    pub(super) dispatcher: Arc<Dispatcher>,
    pub(super) wake: Arc<Wake>,
    pub(super) wake_queue: HashMap<String, Arc<Notify>>,
    pub(super) counters: Arc<Counters>,
    pub(super) due: Arc<Due>,
    pub(super) clock: Clock,
    /// What may still bring leases, or end them, when the beat is stopped.
    pub(super) before_goodbye: [TaskTracker; 2],
}

impl Beater {
    /// Beats until stopped; then says goodbye.
    pub(super) async fn run(self, mut link: Link, stop: CancellationToken) {
        let mut watch = Watch::new(self.settings.dead_after);
        let mut dead = Vec::new();
        let mut event_number = i64::MIN;
        self.counters.beats.answered(self.clock.monotonic());
        let mut over = pin!(self.over(&stop));
        loop {
            let started = self.clock.monotonic();
            self.due.take();
            let report = self.report(std::mem::take(&mut dead));
            let (worker, ask) = (self.worker, self.wake.ear.asks());
            let answer = link
                .run(&pg::TICK, |mut connection| async {
                    let answer = pg::tick(&mut connection, worker, &report, ask).await;
                    (connection, answer)
                })
                .await;
            let mut pause = self.settings.beat;
            match answer {
                Ok((answer, said)) => {
                    self.dispatcher.fresh.beat(started);
                    self.counters.beats.answered(started);
                    if said {
                        self.wake.ear.said();
                    }
                    let others: Vec<(Uuid, i64)> = answer.others.iter().map(|o| (o.worker, o.beat)).collect();
                    dead = watch.observe(&others, self.clock.monotonic());
                    if answer.event_number != event_number {
                        event_number = answer.event_number;
                        self.wake.relay.notify_one();
                    }
                    let due = answer.schedule_due_in_ms.map(|ms| self.clock.monotonic() + Duration::from_millis(ms));
                    self.schedules.due.send_if_modified(|known| std::mem::replace(known, due) != due);
                    self.heed(&answer);
                    if let Some(due) = answer.due_in_ms {
                        pause = pause.min(Duration::from_millis(due));
                    }
                }
                Err(failure) => {
                    watch.blind();
                    if !failure.is_transient() {
                        warn!(error = ?failure, "the beat of this worker fails: {failure}");
                    }
                }
            }
            self.dispatcher.tell_stuck();
            if self.rest(started + pause.max(GAP_MIN), over.as_mut()).await {
                break;
            }
        }
        self.counters.beats.over();
        let mut link = link.patient(GOODBYE);
        if timeout(GOODBYE, leave(&mut link, self.worker)).await.is_err() {
            info!("no goodbye to the database: what is still leased runs again elsewhere");
        }
        link.close().await;
    }

    /// Stopped, and nothing on its way brings leases any more. Until then the beat goes on: what is leased is still this worker's.
    async fn over(&self, stop: &CancellationToken) {
        stop.cancelled().await;
        let ended = async {
            for tasks in &self.before_goodbye {
                tasks.wait().await;
            }
        };
        let _ = timeout(GOODBYE, ended).await;
    }

    /// Sleeps until a moment, or until something becomes due before it. True if it is over.
    async fn rest(&self, until: Duration, mut over: Pin<&mut impl Future<Output = ()>>) -> bool {
        loop {
            let until = self.due.get().map_or(until, |due| due.min(until));
            let left = until.saturating_sub(self.clock.monotonic());
            tokio::select! {
                biased;
                () = over.as_mut() => return true,
                () = self.due.changed.notified() => {}
                () = sleep(left) => return false,
            }
        }
    }

    fn report(&self, dead: Vec<(Uuid, i64)>) -> Report {
        let (settled, held) = self.holdings.snapshot();
        let told = self.dispatcher.handled.told.take();
        Report {
            app: self.app.clone(),
            version: env!("CARGO_PKG_VERSION"),
            host: host(),
            pid: std::process::id(),
            queues: self.queues.clone(),
            kinds: self.kinds.clone(),
            schedules: self.schedules.names.clone(),
            held,
            settled,
            progress: told.into_iter().map(progress).collect(),
            dead: dead.into_iter().map(|(worker, beat)| Beat { worker, beat }).collect(),
        }
    }

    fn heed(&self, answer: &Answer) {
        for &lease in &answer.lost {
            let cancelled = self.dispatcher.running.lose(lease);
            if cancelled > 0 {
                warn!(lease, "lease {lease} was lost: {cancelled} attempts are cancelled");
            }
        }
        for &Cancel { lease, id } in answer.cancel.iter().flatten() {
            if self.dispatcher.running.cancel(lease, id) {
                info!(job.id = id, "job {id} is cancelled: its handler is told");
            }
        }
        if answer.handed_back > 0 {
            info!("{} jobs were handed back: their claim was never received", answer.handed_back);
        }
        if answer.rescued > 0 {
            self.counters.rescued.fetch_add(answer.rescued, Ordering::Relaxed);
            warn!("{} jobs of dead workers were put back", answer.rescued);
        }
        for queue in &answer.ready {
            if let Some(woken) = self.wake_queue.get(queue) {
                woken.notify_one();
            }
        }
    }
}

/// Says goodbye until it is heard; to say it twice changes nothing.
async fn leave(link: &mut Link, worker: Uuid) {
    loop {
        let left = link.run(&pg::LEAVE, |mut connection| async move {
            let left = pg::leave(&mut connection, worker).await;
            (connection, left)
        });
        match left.await {
            Ok(()) => return,
            Err(failure) if failure.is_transient() => sleep(GOODBYE_PAUSE).await,
            Err(failure) => {
                warn!(error = ?failure, "the goodbye of this worker fails: {failure}");
                return;
            }
        }
    }
}

/// Progress as a beat tells it: a note without the NUL that Postgres cannot hold.
fn progress(((lease, id), (percent, note)): ((i64, i64), (u8, String))) -> Progress {
    Progress { id, lease, percent, note: note.replace('\0', "\\0") }
}

/// The name of this machine, for the operator's eye only.
fn host() -> String {
    let named = |path| std::fs::read_to_string(path).ok().map(|name| name.trim().to_owned());
    named("/proc/sys/kernel/hostname").or_else(|| std::env::var("HOSTNAME").ok()).unwrap_or_default()
}
