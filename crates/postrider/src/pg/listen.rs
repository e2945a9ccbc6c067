use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::FutureExt as _;
use sqlx::postgres::{PgConnectOptions, PgListener, PgNotification, PgPoolOptions};
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::link::plain;

/// Between two tries to listen.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MOST: Duration = Duration::from_secs(5);
/// How long nothing may be heard before a sign of life is asked for, and how long that may be on its way.
const SILENCE: Duration = Duration::from_secs(10);
const ECHO: Duration = Duration::from_secs(5);

/// Who can be woken. A wake-up is a hint: losing one costs time, never work.
#[derive(Debug)]
pub(crate) struct Wake {
    pub(crate) relay: Notify,
    pub(crate) jobs: Vec<Arc<Notify>>,
    /// Lanes were called: one of those who claim is to look at them.
    called: AtomicBool,
    /// How often who hears nothing looks.
    pub(crate) poll: Duration,
    pub(crate) ear: Ear,
    /// Whether notifications arrive at all.
    listening: AtomicBool,
}

impl Wake {
    pub(crate) fn new(jobs: Vec<Arc<Notify>>, poll: Duration, ear: Ear) -> Self {
        Self {
            relay: Notify::new(),
            jobs,
            called: AtomicBool::new(false),
            poll,
            ear,
            listening: AtomicBool::new(false),
        }
    }

    pub(crate) fn listens(&self) -> bool {
        self.listening.load(Ordering::Relaxed)
    }

    pub(crate) fn jobs(&self) {
        for queue in &self.jobs {
            queue.notify_one();
        }
    }

    /// Has one of those who claim look at the lanes that were called.
    pub(crate) fn call(&self) {
        self.called.store(true, Ordering::Relaxed);
        self.jobs();
    }

    /// Whether somebody is to look at lanes; whoever asks does.
    pub(crate) fn is_called(&self) -> bool {
        self.called.swap(false, Ordering::Relaxed)
    }

    fn all(&self) {
        self.relay.notify_one();
        self.jobs();
    }
}

/// How a process that listens finds out that it hears nothing any more, without a statement for it: now and then a beat says something
/// on a channel of this process alone.
#[derive(Debug)]
pub(crate) struct Ear {
    channel: String,
    asks: AtomicBool,
    said: Notify,
}

impl Ear {
    /// `channel`: a name that no other process has.
    pub(crate) fn new(channel: String) -> Self {
        Self { channel, asks: AtomicBool::new(false), said: Notify::new() }
    }

    /// The channel on which something is to be said, if that is wanted.
    pub(crate) fn asks(&self) -> Option<String> {
        self.asks.load(Ordering::Relaxed).then(|| self.channel.clone())
    }

    /// Something was said, and committed.
    pub(crate) fn said(&self) {
        self.asks.store(false, Ordering::Relaxed);
        self.said.notify_one();
    }

    /// Asks for something to be said, and waits until it was.
    async fn ask(&self) {
        // what was said before was heard before
        let _ = self.said.notified().now_or_never();
        self.asks.store(true, Ordering::Relaxed);
        self.said.notified().await;
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
        .connect_with(plain(options).application_name("postrider listen"))
        .await?;
    let mut listener = PgListener::connect_with(&pool).await?;
    // a lost connection must be seen here, so that everybody looks again after it
    listener.eager_reconnect(false);
    listener.listen_all(["postrider_event", "postrider_job", "postrider_lane", &wake.ear.channel]).await?;
    wake.listening.store(true, Ordering::Relaxed);
    wake.all();
    while let Some(notification) = next(&mut listener, &wake.ear).await? {
        match notification.channel() {
            "postrider_event" => wake.relay.notify_one(),
            "postrider_job" => wake.jobs(),
            "postrider_lane" => wake.call(),
            _ => {}
        }
    }
    Ok(())
}

/// The next notification; `None` if the connection ended.
async fn next(listener: &mut PgListener, ear: &Ear) -> Result<Option<PgNotification>, sqlx::Error> {
    if let Ok(heard) = timeout(SILENCE, listener.try_recv()).await {
        return heard;
    }
    tokio::select! {
        heard = listener.try_recv() => return heard,
        () = ear.ask() => {}
    }
    // a connection that died without a word does not bring what was said
    timeout(ECHO, listener.try_recv()).await.unwrap_or(Err(sqlx::Error::PoolTimedOut))
}
