use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use postrider_contract::JobId;
use sqlx::PgPool;
use tokio::sync::{Notify, Semaphore};
use tokio::time::{Instant, sleep, timeout_at};

use crate::error::Error;
use crate::pg::borrow;
use crate::port::{JobView, Waited};
use crate::{inspect, job};

/// The first look comes after this long, later ones after twice as long, up to the last.
const FIRST: Duration = Duration::from_millis(10);
const LAST: Duration = Duration::from_millis(250);
/// A look may take so long, whatever the limit of the wait: what has ended already is answered also to those who would not wait at all.
const LOOK: Duration = Duration::from_secs(1);
/// Waits at a time in a process.
const WAITS_MOST: usize = 64;

/// Those who wait in this process. Each looks for itself when it comes; after that one of them looks for all, so that the database is asked
/// about as often for sixty as for one.
#[derive(Debug)]
pub(super) struct Waiters {
    slots: Semaphore,
    waiting: Mutex<BTreeMap<i64, Waiting>>,
    /// When somebody last looked for all.
    looked: tokio::sync::Mutex<Option<Instant>>,
}

#[derive(Debug, Default)]
struct Waiting {
    n: usize,
    ended: Arc<Notify>,
}

impl Default for Waiters {
    fn default() -> Self {
        Self::new(WAITS_MOST)
    }
}

impl Waiters {
    pub(super) fn new(most: usize) -> Self {
        Self { slots: Semaphore::new(most), waiting: Mutex::default(), looked: tokio::sync::Mutex::default() }
    }

    fn with<T>(&self, f: impl FnOnce(&mut BTreeMap<i64, Waiting>) -> T) -> T {
        f(&mut self.waiting.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) async fn wait(&self, pool: &PgPool, id: &JobId, limit: Duration) -> Result<Waited, Error> {
        // no poll may be so late that it is past the caller's patience
        let until = Instant::now() + limit.min(Duration::from_hours(24));
        let Ok(_slot) = self.slots.try_acquire() else { return Ok(Waited::Full(id.clone())) };
        let Ok(key) = id.as_str().parse::<i64>() else { return Ok(Waited::TimedOut(id.clone())) };
        let guard = Entered::new(self, key);
        let mut pause = FIRST;
        let mut first = true;
        loop {
            // before the look: what ends after it wakes
            let ended = guard.ended.notified();
            let look = async { if first { view(pool, key).await } else { self.look(pool, key, pause).await } };
            if let Some(view) = in_time(until, look).await? {
                return Ok(Waited::Ended(view));
            }
            if first && in_time(until, gone(pool, key)).await?.is_some() {
                return Ok(Waited::Gone(id.clone()));
            }
            first = false;
            if Instant::now() >= until {
                return Ok(Waited::TimedOut(id.clone()));
            }
            let looked = async {
                tokio::select! {
                    () = ended => true,
                    () = sleep(pause) => false,
                }
            };
            if timeout_at(until, looked).await.unwrap_or(false) {
                pause = Duration::ZERO;
                if let Some(view) = in_time(until, view(pool, key)).await? {
                    return Ok(Waited::Ended(view));
                }
            }
            pause = (pause * 2).clamp(FIRST, LAST);
        }
    }
}

impl Waiters {
    /// Looks for everybody, unless somebody else does or did within half of the last pause; answers with the job that is asked for if it
    /// has ended.
    async fn look(&self, pool: &PgPool, key: i64, pause: Duration) -> Result<Option<Box<JobView>>, Error> {
        let Ok(mut looked) = self.looked.try_lock() else { return Ok(None) };
        if looked.is_some_and(|at| at.elapsed() < pause / 2) {
            return Ok(None);
        }
        let asked = self.with(|waiting| waiting.keys().copied().collect::<Vec<_>>());
        let over = job::ended(&mut borrow(pool).await?, &asked).await?;
        self.with(|waiting| {
            over.iter().filter_map(|key| waiting.get(key)).for_each(|w| w.ended.notify_waiters());
        });
        *looked = Some(Instant::now());
        if over.contains(&key) { view(pool, key).await } else { Ok(None) }
    }
}

/// A job, if it has ended.
async fn view(pool: &PgPool, key: i64) -> Result<Option<Box<JobView>>, Error> {
    let mut connection = borrow(pool).await?;
    let view = inspect::views(&mut connection, &[key], true).await?.pop();
    Ok(view.filter(|view| view.state.is_terminal()).map(Box::new))
}

/// Whether a job is kept no longer. One that is not there may be one that has not committed yet.
async fn gone(pool: &PgPool, key: i64) -> Result<Option<()>, Error> {
    Ok(inspect::gone(&mut borrow(pool).await?, key).await?.map(drop))
}

/// What a look found; nothing if it takes longer than one may.
async fn in_time<T>(until: Instant, look: impl Future<Output = Result<Option<T>, Error>>) -> Result<Option<T>, Error> {
    timeout_at(until.max(Instant::now() + LOOK), look).await.unwrap_or(Ok(None))
}

/// One that waits; dropped, it waits no more.
struct Entered<'a> {
    waiters: &'a Waiters,
    key: i64,
    ended: Arc<Notify>,
}

impl<'a> Entered<'a> {
    fn new(waiters: &'a Waiters, key: i64) -> Self {
        let ended = waiters.with(|waiting| {
            let entry = waiting.entry(key).or_default();
            entry.n += 1;
            Arc::clone(&entry.ended)
        });
        Self { waiters, key, ended }
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        self.waiters.with(|waiting| {
            if let Some(entry) = waiting.get_mut(&self.key) {
                entry.n -= 1;
                if entry.n == 0 {
                    waiting.remove(&self.key);
                }
            }
        });
    }
}
