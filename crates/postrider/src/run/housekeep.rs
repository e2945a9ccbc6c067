use std::time::Duration;

use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, info};

use super::pg;
use crate::error::Error;
use crate::pg::Link;

const EVERY: Duration = Duration::from_mins(10);
const AFTER_FAILURE: Duration = Duration::from_secs(30);
/// How long one step may take: retention reads whole partitions before it lets them go.
pub(super) const LIMIT: Duration = Duration::from_mins(5);
/// Duties, in the order in which they are done.
const DUTIES: [&str; 3] = ["usual", "failures", "retire"];
/// Steps of one duty in one pass.
const STEPS_MOST: usize = 1_000;

/// Housekeeps until stopped.
pub(super) async fn run(mut link: Link, stop: CancellationToken) {
    loop {
        let mut pause = EVERY;
        for duty in DUTIES {
            match stop.run_until_cancelled(done(&mut link, duty)).await {
                Some(Ok(())) => {}
                Some(Err(failure)) => {
                    if !failure.is_transient() {
                        error!(duty, error = ?failure, "the duty {duty} of housekeeping fails: {failure}");
                    }
                    tell(&mut link, duty, &failure).await;
                    pause = AFTER_FAILURE;
                }
                None => return,
            }
        }
        link.close().await;
        tokio::select! {
            () = stop.cancelled() => return,
            () = sleep(pause) => {}
        }
    }
}

/// Does a duty, step by step.
async fn done(link: &mut Link, duty: &'static str) -> Result<(), Error> {
    for _ in 0..STEPS_MOST {
        let step = link.run(&pg::HOUSEKEEP, |mut connection| async move {
            let told = pg::housekeep(&mut connection, duty).await;
            (connection, told)
        });
        let (told, text) = step.await?;
        if told.held {
            info!(duty, "housekeeping comes again later: {text}");
        } else {
            debug!(duty, "housekeeping, {duty}: {text}");
        }
        if !told.again {
            break;
        }
    }
    Ok(())
}

/// Leaves word of a failure where an operator looks, if the database can be reached.
async fn tell(link: &mut Link, duty: &'static str, failure: &Error) {
    let says = std::error::Error::source(failure).map_or_else(|| failure.to_string(), |s| format!("{failure}: {s}"));
    let told = link.run(&pg::DUTY_FAILED, |mut connection| async move {
        let told = pg::duty_failed(&mut connection, duty, &says).await;
        (connection, told)
    });
    if let Err(failure) = told.await {
        debug!(duty, error = ?failure, "a failure of housekeeping could not be noted");
    }
}
