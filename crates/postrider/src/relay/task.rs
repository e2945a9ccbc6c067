use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::error;

use super::{Pass, decide, elsewhere, pg};
use crate::error::Error;
use crate::pg::{Link, Statement, Wake, tell_count};
use crate::port::Jobs;

/// Events in one pass: large enough to spread its cost, small enough to commit in some tens of milliseconds.
const SLICE: i32 = 2_000;
/// The same where another engine makes the jobs: their events pass through this process, each with up to its largest data.
const SLICE_ELSEWHERE: i32 = 200;
/// How long a relay that found another one at work leaves it alone.
const BUSY_PAUSE: Duration = Duration::from_millis(250);

/// The relay of this process.
#[derive(Debug, Default)]
pub(crate) struct Relay {
    /// Events taken by this process.
    pub(crate) events: AtomicU64,
    /// Jobs made of them.
    pub(crate) jobs: AtomicU64,
}

/// Relays until stopped; jobs are made by `engine` if there is one, else inside of the relay's own statement.
pub(crate) async fn run(
    relay: Arc<Relay>,
    engine: Option<Arc<dyn Jobs>>,
    mut link: Link,
    wake: Arc<Wake>,
    stop: CancellationToken,
) {
    let mut quiet = 0;
    let mut refused = false;
    while !stop.is_cancelled() {
        let next = match pass(&mut link, engine.as_ref()).await {
            Ok(pass) => {
                refused = false;
                relay.events.fetch_add(pass.events, Ordering::Relaxed);
                relay.jobs.fetch_add(pass.jobs, Ordering::Relaxed);
                if pass.jobs > 0 {
                    wake.jobs();
                }
                quiet = if pass.events > 0 { 0 } else { quiet + 1 };
                if pass.busy {
                    decide::Next::After(BUSY_PAUSE)
                } else {
                    decide::next(pass, quiet, wake.listens(), wake.poll)
                }
            }
            Err(failure) => {
                if !failure.is_transient() && !refused {
                    refused = true;
                    error!(error = ?failure, "the relay cannot go on: {failure}");
                }
                decide::Next::After(Duration::from_secs(1))
            }
        };
        let woken = wake.relay.notified();
        match next {
            decide::Next::Again => {}
            decide::Next::After(pause) => tokio::select! {
                () = stop.cancelled() => break,
                () = woken => quiet = 0,
                () = sleep(pause) => {}
            },
            decide::Next::Hint => tokio::select! {
                () = stop.cancelled() => break,
                () = woken => quiet = 0,
            },
        }
    }
    link.close().await;
}

/// A pass over what is new, and one over what a subscription that starts asked for, if one does.
async fn pass(link: &mut Link, engine: Option<&Arc<dyn Jobs>>) -> Result<Pass, Error> {
    let (new, starting) = one(link, engine, [&pg::RELAY, &elsewhere::RELAY_ELSEWHERE]).await?;
    if new.busy || !starting {
        return Ok(new);
    }
    let (old, _) = one(link, engine, [&pg::HAND_OVER, &elsewhere::HAND_OVER_ELSEWHERE]).await?;
    // a relay that is at it now goes on with the subscription as well
    let more = new.more || (old.more && !old.busy);
    Ok(Pass { events: new.events + old.events, jobs: new.jobs + old.jobs, more, busy: old.busy && !new.more, ..new })
}

/// One call: of the first statement, or of the second if another engine makes the jobs.
async fn one(
    link: &mut Link,
    engine: Option<&Arc<dyn Jobs>>,
    [here, there]: [&'static Statement; 2],
) -> Result<(Pass, bool), Error> {
    link.run(here, |mut connection| async move {
        let pass = match engine {
            Some(jobs) => elsewhere::relay(&mut connection, there, jobs, SLICE_ELSEWHERE).await,
            None => pg::relay(&mut connection, here, SLICE).await,
        };
        tell_count(pass.as_ref().map_or(0, |(pass, _)| pass.jobs));
        (connection, pass)
    })
    .await
}
