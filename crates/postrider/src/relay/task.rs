use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::{error, warn};

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
    let mut careful = false;
    let mut refused = false;
    while !stop.is_cancelled() {
        let looked = pass(&mut link, engine.as_ref(), careful).await;
        let again = !careful && decide::careful(careful, &looked);
        if let Err(failure) = &looked
            && careful
            && !failure.is_transient()
            && !refused
        {
            refused = true;
            error!(error = ?failure, "the relay cannot go on: {failure}");
        }
        careful = decide::careful(careful, &looked);
        let next = match looked {
            Ok(pass) => {
                refused = false;
                relay.events.fetch_add(pass.events, Ordering::Relaxed);
                relay.jobs.fetch_add(pass.jobs, Ordering::Relaxed);
                if pass.jobs > 0 {
                    wake.jobs();
                }
                if pass.aside > 0 {
                    warn!(pairs = pass.aside, "{} pairs of an event and a subscription were set aside", pass.aside);
                }
                quiet = if pass.events > 0 { 0 } else { quiet + 1 };
                if pass.busy {
                    decide::Next::After(BUSY_PAUSE)
                } else {
                    decide::next(pass, quiet, wake.listens(), wake.poll)
                }
            }
            Err(_) if again => decide::Next::Again,
            Err(_) => decide::Next::After(Duration::from_secs(1)),
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
async fn pass(link: &mut Link, engine: Option<&Arc<dyn Jobs>>, careful: bool) -> Result<Pass, Error> {
    let (new, starting) = one(link, engine, [&pg::RELAY, &elsewhere::RELAY_ELSEWHERE], careful).await?;
    if new.busy || !starting {
        return Ok(new);
    }
    let (old, _) = one(link, engine, [&pg::HAND_OVER, &elsewhere::HAND_OVER_ELSEWHERE], careful).await?;
    // a relay that is at it now goes on with the subscription as well
    let more = new.more || (old.more && !old.busy);
    let (events, jobs, aside) = (new.events + old.events, new.jobs + old.jobs, new.aside + old.aside);
    Ok(Pass { events, jobs, aside, more, busy: old.busy && !new.more, ..new })
}

/// One call: of the first statement, or of the second if another engine makes the jobs.
async fn one(
    link: &mut Link,
    engine: Option<&Arc<dyn Jobs>>,
    [here, there]: [&'static Statement; 2],
    careful: bool,
) -> Result<(Pass, bool), Error> {
    link.run(here, |mut connection| async move {
        let pass = match engine {
            Some(jobs) => elsewhere::relay(&mut connection, there, (jobs, SLICE_ELSEWHERE), careful).await,
            None => pg::relay(&mut connection, here, SLICE, careful).await,
        };
        tell_count(pass.as_ref().map_or(0, |(pass, _)| pass.jobs));
        (connection, pass)
    })
    .await
}
