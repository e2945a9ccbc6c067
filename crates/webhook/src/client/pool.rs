use std::collections::HashMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::task::AbortHandle;
use tokio::time::sleep;

use super::link::Link;

/// How long a connection waits for another request. Many receivers close theirs after five seconds: a request that crosses with such a close
/// would count as a failed attempt.
const IDLE_TIME_MAX: Duration = Duration::from_secs(4);
/// Idle connections to one address of one endpoint.
const IDLE_PER_KEY_MAX: usize = 4;
/// Idle connections of the client.
const IDLE_MAX: usize = 256;
/// After so many requests a connection is made anew, so that a receiver can spread its load.
const CARRIED_MAX: u32 = 1_000;

/// Connections that wait for another request of the same endpoint to the same address. An address is vetted anew before one is taken.
#[derive(Clone, Default)]
pub(super) struct Pool(Arc<Mutex<Idle>>);

#[derive(Default)]
struct Idle {
    links: HashMap<Key, Vec<Resting>>,
    count: usize,
    number: u64,
}

/// Whose connection it is, and where it leads.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub(super) endpoint: i64,
    pub(super) origin: String,
    pub(super) address: SocketAddr,
}

struct Resting {
    link: Link,
    number: u64,
    end: AbortHandle,
}

impl Pool {
    /// The connection that rested last, if one is still open.
    pub(super) fn take(&self, key: &Key) -> Option<Link> {
        let mut idle = self.idle();
        let mut resting = idle.links.remove(key)?;
        let mut open = None;
        while open.is_none()
            && let Some(Resting { link, end, .. }) = resting.pop()
        {
            idle.count -= 1;
            end.abort();
            open = Some(link).filter(|link| !link.is_closed());
        }
        if !resting.is_empty() {
            idle.links.insert(key.clone(), resting);
        }
        open
    }

    /// Lets a connection rest that has carried a whole answer.
    pub(super) fn rest(&self, key: Key, link: Link) {
        if link.is_closed() || link.carried >= CARRIED_MAX {
            return;
        }
        let mut idle = self.idle();
        if idle.count >= IDLE_MAX || idle.links.get(&key).is_some_and(|links| links.len() >= IDLE_PER_KEY_MAX) {
            return;
        }
        idle.number += 1;
        idle.count += 1;
        let number = idle.number;
        let pool = Arc::downgrade(&self.0);
        let place = key.clone();
        let end = link.beside(async move {
            sleep(IDLE_TIME_MAX).await;
            if let Some(idle) = pool.upgrade() {
                Self(idle).remove(&place, number);
            }
        });
        idle.links.entry(key).or_default().push(Resting { link, number, end });
    }

    fn remove(&self, key: &Key, number: u64) {
        let mut idle = self.idle();
        let Some(mut resting) = idle.links.remove(key) else { return };
        let before = resting.len();
        resting.retain(|resting| resting.number != number);
        idle.count -= before - resting.len();
        if !resting.is_empty() {
            idle.links.insert(key.clone(), resting);
        }
    }

    fn idle(&self) -> MutexGuard<'_, Idle> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("idle", &self.idle().count).finish()
    }
}
