use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgListener, PgPoolOptions};
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

/// Between two tries to listen.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MOST: Duration = Duration::from_secs(5);

/// Who can be woken. A wake-up is a hint: losing one costs time, never work.
#[derive(Debug, Default)]
pub(crate) struct Wake {
    pub(crate) relay: Notify,
    pub(crate) jobs: Vec<Arc<Notify>>,
    /// Whether notifications arrive at all.
    pub(crate) listening: AtomicBool,
}

impl Wake {
    pub(crate) fn jobs(&self) {
        for queue in &self.jobs {
            queue.notify_one();
        }
    }

    pub(crate) fn all(&self) {
        self.relay.notify_one();
        self.jobs();
    }
}

/// Listens until stopped. After each connect everybody looks once, since what was said in between was said to nobody.
pub(crate) async fn listen(options: PgConnectOptions, wake: Arc<Wake>, stop: CancellationToken) {
    let mut pause = PAUSE_MIN;
    let mut failing = false;
    while !stop.is_cancelled() {
        let ended = tokio::select! {
            () = stop.cancelled() => return,
            ended = once(&options, &wake) => ended,
        };
        if wake.listening.swap(false, Ordering::Relaxed) {
            // whoever waits for a hint looks by itself from now on
            wake.all();
            failing = false;
            pause = PAUSE_MIN;
        }
        match ended {
            Ok(()) => info!("LISTEN connection ended, connecting again"),
            Err(error) => {
                if !failing {
                    warn!(error = ?error, "LISTEN is down, polling instead");
                }
                failing = true;
                pause = (pause * 2).min(PAUSE_MOST);
            }
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = sleep(pause) => {}
        }
    }
}

async fn once(options: &PgConnectOptions, wake: &Wake) -> Result<(), sqlx::Error> {
    let pool = PgPoolOptions::new()
        .max_connections(1)
        .acquire_timeout(Duration::from_secs(10))
        .connect_with(options.clone().application_name("postrider listen"))
        .await?;
    let mut listener = PgListener::connect_with(&pool).await?;
    // a lost connection must be seen here, so that everybody looks again after it
    listener.eager_reconnect(false);
    listener.listen_all(["postrider_event", "postrider_job"]).await?;
    wake.listening.store(true, Ordering::Relaxed);
    wake.all();
    loop {
        // a connection that died without a word is found by saying something on it
        match timeout(Duration::from_secs(10), listener.try_recv()).await {
            Ok(Ok(Some(notification))) if notification.channel() == "postrider_event" => wake.relay.notify_one(),
            Ok(Ok(Some(_))) => wake.jobs(),
            Ok(Ok(None)) => return Ok(()),
            Ok(Err(error)) => return Err(error),
            Err(_) => match timeout(Duration::from_secs(5), listener.listen("postrider_event")).await {
                Ok(result) => result?,
                Err(_) => return Err(sqlx::Error::PoolTimedOut),
            },
        }
    }
}
