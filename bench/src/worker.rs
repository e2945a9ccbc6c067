//! A worker process, as its parent sees it.

use std::collections::HashMap;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::time::{sleep, timeout};

use crate::meter;

/// What it has told so far.
#[derive(Debug, Default)]
struct Told {
    first: Option<i64>,
    counts: Vec<(i64, u64)>,
    starts: HashMap<u64, i64>,
    ended: bool,
}

/// A worker that runs.
pub(crate) struct Worker {
    child: Child,
    pid: u32,
    told: Arc<Mutex<Told>>,
}

impl Worker {
    pub(crate) fn start(mut command: Command) -> Result<Self> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child =
            command.spawn().with_context(|| format!("cannot run {}", command.as_std().get_program().display()))?;
        let pid = child.id().context("the worker has ended")?;
        let told = Arc::new(Mutex::new(Told::default()));
        let lines = BufReader::new(child.stdout.take().context("no output of the worker")?).lines();
        tokio::spawn(listen(lines, Arc::clone(&told)));
        Ok(Self { child, pid, told })
    }

    fn told<T>(&self, look: impl FnOnce(&Told) -> T) -> Result<T> {
        let told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        ensure!(!told.ended, "the worker ended by itself");
        Ok(look(&told))
    }

    /// How many handlers have started.
    pub(crate) fn count(&self) -> Result<u64> {
        self.told(|told| told.counts.last().map_or(0, |(_, count)| *count))
    }

    /// Reads [`Self::count`] elsewhere; after the worker's end, what it was last.
    pub(crate) fn counter(&self) -> impl Fn() -> u64 + Send + 'static {
        let told = Arc::clone(&self.told);
        move || told.lock().unwrap_or_else(PoisonError::into_inner).counts.last().map_or(0, |(_, count)| *count)
    }

    /// When the first handler started, in microseconds since the epoch.
    pub(crate) fn first(&self) -> Result<i64> {
        self.told(|told| told.first)?.context("no handler has started")
    }

    /// Handlers started a second between two moments.
    pub(crate) fn rate(&self, from: i64, to: i64) -> Result<f64> {
        let (a, b) = self.told(|told| {
            let at = |moment: i64| told.counts.iter().rev().find(|(us, _)| *us <= moment).copied();
            (at(from), at(to))
        })?;
        let ((a_us, a), (b_us, b)) = (a.context("no count before")?, b.context("no count after")?);
        ensure!(b_us > a_us, "no count between");
        Ok(float(b - a) / (float(u64::try_from(b_us - a_us)?) / 1e6))
    }

    /// Waits until so many handlers have started.
    pub(crate) async fn until_count(&self, count: u64, most: Duration) -> Result<()> {
        let waited = timeout(most, async {
            while self.count()? < count {
                sleep(Duration::from_millis(5)).await;
            }
            Ok(())
        });
        match waited.await {
            Ok(done) => done,
            Err(_) => bail!("only {} of {count} jobs were run in {} s", self.count()?, most.as_secs()),
        }
    }

    /// When a job's handler started; waits for it.
    pub(crate) async fn start_of(&self, n: u64, most: Duration) -> Result<i64> {
        let waited = timeout(most, async {
            loop {
                if let Some(at) = self.told(|told| told.starts.get(&n).copied())? {
                    return Ok(at);
                }
                sleep(Duration::from_millis(1)).await;
            }
        });
        waited.await.with_context(|| format!("job {n} was not run in {} s", most.as_secs()))?
    }

    /// Its processor time so far.
    pub(crate) fn cpu(&self) -> Duration {
        meter::cpu_of(self.pid).unwrap_or_default()
    }

    /// Its memory now and at most, in MB.
    pub(crate) fn rss_mb(&self) -> Result<(f64, f64)> {
        meter::rss_mb(self.pid).context("no memory of the worker")
    }

    /// Ends it in order, or else by force.
    pub(crate) async fn stop(mut self) -> Result<()> {
        drop(self.child.stdin.take());
        if timeout(Duration::from_secs(15), self.child.wait()).await.is_err() {
            self.child.kill().await?;
        }
        Ok(())
    }
}

pub(crate) fn float(n: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "counts and microseconds of a run are far below 2^53")]
    let float = n as f64;
    float
}

async fn listen(mut lines: tokio::io::Lines<BufReader<tokio::process::ChildStdout>>, told: Arc<Mutex<Told>>) {
    while let Ok(Some(line)) = lines.next_line().await {
        let mut told = told.lock().unwrap_or_else(PoisonError::into_inner);
        let mut words = line.split(' ');
        let word = words.next().unwrap_or_default();
        let mut number = || words.next().and_then(|word| word.parse::<i64>().ok()).unwrap_or_default();
        match word {
            "first" => told.first = Some(number()),
            "count" => {
                let at = number();
                told.counts.push((at, number().unsigned_abs()));
            }
            "start" => {
                let n = number().unsigned_abs();
                told.starts.entry(n).or_insert(number());
            }
            _ => eprintln!("worker: {line}"),
        }
    }
    told.lock().unwrap_or_else(PoisonError::into_inner).ended = true;
}
