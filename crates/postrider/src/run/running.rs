use std::collections::HashMap;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::sync::{Notify, mpsc, watch};
use tokio::time::timeout;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;
use tracing::{info, warn};
use uuid::Uuid;

use super::beat::{Beater, Due, Timed};
use super::{Bus, WakeUps, housekeep};
use crate::complete::{self, Flush, Outcome};
use crate::error::Error;
use crate::handle::{Dispatcher, Fresh, Handled, QueueHook, Running as Attempts, Spawn, Told};
use crate::job::{self, Claimant, Claimer, Claims, Holdings};
use crate::measure::Held;
use crate::pg::{Ear, Link, Meter, Operation, Reach, Wake, listen};
use crate::port::Stopped;
use crate::relay;
use crate::schedule::{self, Firing};

/// How long a cancelled attempt may take to end by itself.
const CANCEL_GRACE: Duration = Duration::from_secs(1);
/// How long the last outcomes may take, and then the goodbye.
const LAST_WORDS: Duration = Duration::from_secs(10);

/// A bus at work. Dropped without [`Running::stop`], it stops claiming, its attempts are cut, and its jobs go back.
pub struct Running {
    worker: Uuid,
    /// Ends the loops that bring work.
    intake: CancellationToken,
    /// Cuts what has not ended.
    cut: CancellationToken,
    /// Ends completion once all is written.
    last: CancellationToken,
    /// Ends the beat.
    beat: CancellationToken,
    loops: TaskTracker,
    attempts: TaskTracker,
    completion: TaskTracker,
    dispatcher: Arc<Dispatcher>,
    beater: Option<JoinHandle<()>>,
    _slots: Held,
    _guards: [DropGuard; 4],
}

impl fmt::Debug for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Running").field("worker", &self.worker).finish_non_exhaustive()
    }
}

impl Running {
    pub(super) fn start(bus: &Bus) -> Result<Self, Error> {
        let options = bus.pool.connect_options();
        let reach = Reach::new(&options, bus.settings.pooler);
        let tokens: [CancellationToken; 4] = Default::default();
        let [intake, cut, last, beat] = tokens.clone();
        let (loops, attempts, completion) = (TaskTracker::new(), TaskTracker::new(), TaskTracker::new());
        let worker = Uuid::new_v4();
        let holdings = Arc::new(Holdings::default());
        let (sender, receiver) = mpsc::unbounded_channel();
        let dispatcher = Arc::new(dispatcher(bus, worker, &holdings, (sender, spawner(&attempts, &cut))));
        let queues = if bus.settings.work { bus.registry.queues() } else { std::collections::BTreeMap::new() };
        let wake_queue: HashMap<String, Arc<Notify>> = queues.keys().map(|q| (q.clone(), Arc::default())).collect();
        let (wake, due) = (wake(bus, worker, &wake_queue), Arc::new(Due::default()));

        let flush = flush(bus, worker, &holdings, &due, &wake);
        completion.spawn(complete::run(flush, link(bus, &reach, Operation::Finish, None), receiver, last.clone()));
        if bus.settings.wake_ups == WakeUps::Listen {
            loops.spawn(listen(bus.direct.as_ref().unwrap_or(&options).clone(), Arc::clone(&wake), intake.clone()));
        }
        if bus.settings.relay {
            let link = link(bus, &reach, Operation::Relay, None);
            let (counters, engine) = (Arc::clone(&bus.counters.relay), bus.engine.clone());
            loops.spawn(relay::run(counters, engine, link, Arc::clone(&wake), intake.clone()));
        }
        let held = bus.counters.slots.hold(queues.keys().map(|queue| slots(bus, queue) as u64).sum());
        for (queue, kinds) in &queues {
            let claimer = Claimer {
                claimant: claimant(bus, worker, queue, kinds),
                concurrency: slots(bus, queue),
                holdings: Arc::clone(&holdings),
                woken: wake_queue.get(queue).cloned().unwrap_or_default(),
                wake: Arc::clone(&wake),
                hook: bus.registry.watches(queue).then(|| Arc::new(QueueHook(Arc::clone(&bus.registry))) as Arc<_>),
                clock: bus.clock.clone(),
                claimed: Arc::clone(&bus.counters.claimed),
            };
            let sink = Arc::clone(&dispatcher) as Arc<dyn Claims>;
            let link = link(bus, &reach, Operation::Claim, Some(queue));
            loops.spawn(job::run(claimer, link, sink, intake.clone()));
        }
        let beater = Beater {
            worker,
            app: bus.app.clone(),
            settings: bus.settings.clone(),
            kinds: queues.values().flatten().cloned().collect(),
            queues: queues.into_keys().collect(),
            schedules: by_the_clock(bus, &reach, &loops, &intake),
            holdings,
            dispatcher: Arc::clone(&dispatcher),
            wake,
            wake_queue,
            counters: Arc::clone(&bus.counters),
            due,
            clock: bus.clock.clone(),
            before_goodbye: [loops.clone(), completion.clone()],
        };
        // one that gets no answer must be given up early enough to beat again before anybody takes this worker for dead
        let link = Link::new(&reach, "beat").within(bus.settings.dead_after / 3);
        let beater = Some(beat_on_its_own_thread(beater, link, beat.clone())?);
        Ok(Self {
            worker,
            intake,
            cut,
            last,
            beat,
            loops,
            attempts,
            completion,
            dispatcher,
            beater,
            _slots: held,
            _guards: tokens.map(CancellationToken::drop_guard),
        })
    }

    /// The id of this worker, new for each start.
    pub fn worker(&self) -> Uuid {
        self.worker
    }

    /// Stops: claims nothing more, waits up to `grace` for what runs, cancels the rest, gives it back with its attempt, and leaves
    /// nothing leased.
    pub async fn stop(mut self, grace: Duration) -> Stopped {
        self.intake.cancel();
        self.dispatcher.give_back_lines();
        self.loops.close();
        self.attempts.close();
        let drained = async {
            // a claim on its way is waited for: its jobs belong to us
            self.loops.wait().await;
            self.attempts.wait().await;
        };
        let in_time = timeout(grace, drained).await.is_ok();
        if !in_time {
            info!("{} attempts did not end within the grace, cancelling them", self.dispatcher.running.count());
            self.dispatcher.running.cancel_all();
            let ended = async {
                // a claim that is still on its way brings jobs: they can be given back only once they are here
                self.loops.wait().await;
                self.attempts.wait().await;
            };
            let _ = timeout(CANCEL_GRACE, ended).await;
        }
        let abandoned = self.dispatcher.abandon();
        self.cut.cancel();
        self.last.cancel();
        self.completion.close();
        if timeout(LAST_WORDS, self.completion.wait()).await.is_err() {
            warn!("the last outcomes could not be written: their jobs run again elsewhere");
        }
        self.beat.cancel();
        if let Some(beater) = self.beater.take() {
            let joined = tokio::task::spawn_blocking(move || beater.join());
            if timeout(LAST_WORDS, joined).await.is_err() {
                warn!("no goodbye within {} s: what is still leased runs again elsewhere", LAST_WORDS.as_secs());
            }
        }
        if abandoned == 0 { Stopped::Drained } else { Stopped::Abandoned(abandoned) }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // its goodbye waits for them
        self.loops.close();
        self.completion.close();
    }
}

/// Starts what comes by the clock: housekeeping and schedules. Answers with what the beat tells of schedules, and is told.
fn by_the_clock(bus: &Bus, reach: &Reach, loops: &TaskTracker, intake: &CancellationToken) -> Timed {
    if bus.settings.housekeeping {
        loops.spawn(housekeep::run(Link::new(reach, "housekeeping").patient(housekeep::LIMIT), intake.clone()));
    }
    let mut timed = Timed { names: Vec::new(), due: watch::Sender::new(None) };
    if bus.settings.schedules {
        timed.names = bus.schedules.iter().map(|schedule| schedule.name.clone()).collect();
        let at_start = bus.schedules.iter().any(|schedule| schedule.run_at_start);
        let (names, due) = (timed.names.clone(), timed.due.subscribe());
        let firing = Firing { names, at_start, due, clock: bus.clock.clone() };
        loops.spawn(schedule::run(firing, Link::new(reach, "schedules"), intake.clone()));
    }
    timed
}

/// How many jobs of a queue run at a time.
fn slots(bus: &Bus, queue: &str) -> usize {
    let said = bus.concurrency.get(queue).copied().or_else(|| bus.registry.concurrency(queue));
    said.unwrap_or(bus.settings.concurrency)
}

/// A connection for what a process asks again and again, about one queue or all of them.
fn link(bus: &Bus, reach: &Reach, operation: Operation, queue: Option<&str>) -> Link {
    let (calls, clock) = (Arc::clone(bus.counters.calls(operation)), bus.clock.clone());
    Link::new(reach, operation.name()).measured(Meter { operation, queue: queue.map(Arc::from), calls, clock })
}

fn wake(bus: &Bus, worker: Uuid, queues: &HashMap<String, Arc<Notify>>) -> Arc<Wake> {
    let ear = Ear::new(format!("postrider_{}", worker.simple()));
    Arc::new(Wake::new(queues.values().cloned().collect(), bus.settings.poll_interval, ear))
}

fn claimant(bus: &Bus, worker: Uuid, queue: &str, kinds: &[String]) -> Claimant {
    Claimant { worker, queue: queue.to_owned(), kinds: kinds.to_vec(), fair: bus.registry.is_fair(queue) }
}

fn dispatcher(
    bus: &Bus,
    worker: Uuid,
    holdings: &Arc<Holdings>,
    (outcomes, spawn): (mpsc::UnboundedSender<Outcome>, Spawn),
) -> Dispatcher {
    let (pool, holdings) = (bus.pool.clone(), Arc::clone(holdings));
    Dispatcher {
        registry: Arc::clone(&bus.registry),
        running: Arc::new(Attempts::default()),
        handled: Arc::new(Handled { worker, pool, holdings, told: Told::default() }),
        outcomes,
        fresh: Fresh::new(bus.settings.dead_after, bus.clock.monotonic()),
        measured: Arc::clone(&bus.counters.attempts),
        clock: bus.clock.clone(),
        dice: bus.dice.clone(),
        spawn,
    }
}

/// Attempts run until they end, or until the process cuts them.
fn spawner(attempts: &TaskTracker, cut: &CancellationToken) -> Spawn {
    let (attempts, cut, runtime) = (attempts.clone(), cut.clone(), tokio::runtime::Handle::current());
    Arc::new(move |attempt: Pin<Box<dyn Future<Output = ()> + Send>>| {
        let cut = cut.clone();
        attempts.spawn_on(async move { cut.run_until_cancelled(attempt).await.unwrap_or_default() }, &runtime);
    })
}

fn flush(bus: &Bus, worker: Uuid, holdings: &Arc<Holdings>, due: &Arc<Due>, wake: &Arc<Wake>) -> Flush {
    let (holdings, counters, wake) = (Arc::clone(holdings), Arc::clone(&bus.counters), Arc::clone(wake));
    let keys = Arc::clone(&holdings);
    let (due, clock) = (Arc::clone(due), bus.clock.clone());
    Flush {
        worker,
        told: Arc::new(move |outcome, counted| {
            holdings.ended(outcome.lease);
            counters.told(outcome, counted);
        }),
        all_told: Arc::new(move || {
            if keys.has_keys() {
                // what was let go is claimed from here: the notification may be one too many, and not be sent
                wake.jobs();
            }
        }),
        put_off: Arc::new(move |wait| due.put_off(clock.monotonic() + wait)),
        flushes: Arc::clone(&bus.counters.flushes),
    }
}

fn beat_on_its_own_thread(beater: Beater, link: Link, stop: CancellationToken) -> Result<JoinHandle<()>, Error> {
    let failed =
        |what: &str, e: std::io::Error| Error::Connection(sqlx::Error::Configuration(format!("{what}: {e}").into()));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| failed("no runtime for the beat", e))?;
    std::thread::Builder::new()
        .name("postrider-beat".to_owned())
        .spawn(move || runtime.block_on(beater.run(link, stop)))
        .map_err(|e| failed("no thread for the beat", e))
}
