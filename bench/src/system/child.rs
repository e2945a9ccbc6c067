//! What a worker process tells on its standard output, a line at a time, the same for every language:
//!
//! - `first <us>`: the first handler started, in microseconds since the epoch;
//! - `count <us> <n>`: so many handlers have started, every 20 ms while that changes;
//! - `start <n> <us>`: the handler of job `n` started (modes that ask for it).
//!
//! It ends when its standard input ends.

use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Result;
use tokio::io::AsyncReadExt as _;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use super::{Mode, number};
use crate::meter::unix_us;

/// What the handlers of a worker report to.
#[derive(Debug, Clone)]
pub(crate) struct Report(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    first: AtomicI64,
    count: AtomicU64,
    starts: Option<UnboundedSender<(u64, i64)>>,
}

impl Report {
    pub(crate) fn new(mode: Mode) -> Self {
        let (sender, mut receiver) = unbounded_channel::<(u64, i64)>();
        let starts = (mode != Mode::Drain).then_some(sender);
        let inner = Arc::new(Inner { first: AtomicI64::new(0), count: AtomicU64::new(0), starts });
        if mode == Mode::Drain {
            let inner = Arc::clone(&inner);
            std::thread::spawn(move || tell_counts(&inner));
        } else {
            std::thread::spawn(move || {
                while let Some((n, at)) = receiver.blocking_recv() {
                    say(&format!("start {n} {at}"));
                }
            });
        }
        Self(inner)
    }

    /// The handler of a job started.
    pub(crate) fn started(&self, n: u64) {
        match &self.0.starts {
            Some(starts) => {
                let _ = starts.send((n, unix_us()));
            }
            None => self.counted(),
        }
    }

    /// A handler started with these arguments, whose number is looked for only if it is asked for.
    pub(crate) fn started_with(&self, args: &str) {
        if self.0.starts.is_none() {
            self.counted();
        } else if let Some(n) = number(args) {
            self.started(n);
        }
    }

    fn counted(&self) {
        if self.0.count.fetch_add(1, Ordering::Relaxed) == 0 {
            self.0.first.store(unix_us(), Ordering::Relaxed);
        }
    }
}

fn tell_counts(inner: &Inner) {
    let mut told = 0;
    loop {
        std::thread::sleep(Duration::from_millis(20));
        let count = inner.count.load(Ordering::Relaxed);
        if count == told {
            continue;
        }
        if told == 0 {
            say(&format!("first {}", inner.first.load(Ordering::Relaxed)));
        }
        say(&format!("count {} {count}", unix_us()));
        told = count;
    }
}

fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    // nobody listens any more: the end of standard input comes next
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

/// Waits until whoever started this process has had enough.
pub(crate) async fn until_told() -> Result<()> {
    tokio::io::stdin().read_to_end(&mut Vec::new()).await?;
    Ok(())
}
