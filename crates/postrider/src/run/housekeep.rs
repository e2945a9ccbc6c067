use std::time::Duration;

use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::{debug, error};

use super::pg;
use crate::pg::Link;

const EVERY: Duration = Duration::from_mins(10);
const AFTER_FAILURE: Duration = Duration::from_secs(30);

/// Housekeeps until stopped.
pub(super) async fn run(mut link: Link, stop: CancellationToken) {
    loop {
        let done = link
            .run(&pg::HOUSEKEEP, |mut connection| async move {
                let done = pg::housekeep(&mut connection).await;
                (connection, done)
            })
            .await;
        let pause = match done {
            Ok(done) => {
                debug!("housekeeping: {done}");
                EVERY
            }
            Err(failure) => {
                if !failure.is_transient() {
                    error!(error = ?failure, "housekeeping fails: {failure}");
                }
                AFTER_FAILURE
            }
        };
        link.close().await;
        tokio::select! {
            () = stop.cancelled() => return,
            () = sleep(pause) => {}
        }
    }
}
