use std::time::{Duration, Instant};

use anyhow::Result;
use tokio::time::sleep;

use super::{Bench, fill, hold_a_snapshot};
use crate::cluster::Database;
use crate::stats::percentile;
use crate::system::{Mode, Name, Producer};
use crate::worker::{Worker, float};

const PATIENCE: Duration = Duration::from_secs(30);

/// From the moment at which the commit is asked for to the start of the handler.
pub(super) async fn jobs(bench: &mut Bench) -> Result<()> {
    measure(bench, Mode::Starts, "latency").await
}

/// The same for an event and the job that its subscription makes.
pub(super) async fn events(bench: &mut Bench) -> Result<()> {
    measure(bench, Mode::EventStarts, "event latency").await
}

async fn measure(bench: &mut Bench, mode: Mode, workload: &str) -> Result<()> {
    for name in bench.turns(|name| name.system().can(mode)) {
        let quick = bench.effort.quick && name != Name::Postrider;
        for hold in [false, true].into_iter().filter(|hold| !(*hold && quick)) {
            let database = bench.database(name).await?;
            let held = if hold { Some(hold_a_snapshot(&database).await?) } else { None };
            if hold && mode == Mode::Starts {
                leave_dead_rows(bench, name, &database).await?;
            }
            let worker = Worker::start(name.system().worker(mode, &database.url)?)?;
            sleep(Duration::from_secs(bench.effort.of(3, 2))).await;
            let tag = if hold { ", snapshot held" } else { "" };
            let idle = idle(bench, name, &database, (&worker, mode)).await?;
            let busy = at_500(bench, name, &database, (&worker, mode)).await?;
            worker.stop().await?;
            for (pace, samples) in [("idle", idle), ("500/s", busy)] {
                for (share, text) in [(0.5, "p50"), (0.99, "p99")] {
                    let metric = format!("{pace} {text} ms{tag}");
                    bench.results.add(workload, &metric, &name.text(), percentile(&samples, share));
                }
            }
            drop(held);
            bench.cluster.drop(database).await?;
        }
    }
    Ok(())
}

/// Under a held snapshot a queue is slow because of what went through it before.
async fn leave_dead_rows(bench: &Bench, name: Name, database: &Database) -> Result<()> {
    let count = bench.effort.of(20_000, 5_000);
    fill(name, database, 1_000_000, count).await?;
    let worker = Worker::start(name.system().worker(Mode::Drain, &database.url)?)?;
    worker.until_count(count, Duration::from_mins(2)).await?;
    sleep(Duration::from_secs(1)).await;
    worker.stop().await
}

async fn put(producer: &mut dyn Producer, mode: Mode, n: u64) -> Result<i64> {
    if mode == Mode::EventStarts { producer.event(n).await } else { producer.in_transaction(n).await }
}

/// One after the other, at distances that no timer of a system shares.
async fn idle(bench: &Bench, name: Name, database: &Database, (worker, mode): (&Worker, Mode)) -> Result<Vec<f64>> {
    let mut producer = name.system().producer(&database.url).await?;
    let mut samples = Vec::new();
    for n in 0..bench.effort.of(300, 40) {
        sleep(Duration::from_millis(20 + n * 37 % 61)).await;
        let asked = put(producer.as_mut(), mode, n).await?;
        let started = worker.start_of(n, PATIENCE).await?;
        samples.push(ms(asked, started));
    }
    samples.sort_by(f64::total_cmp);
    Ok(samples)
}

/// 500 a second, on four connections, at times that do not wait for the ones before.
async fn at_500(bench: &Bench, name: Name, database: &Database, (worker, mode): (&Worker, Mode)) -> Result<Vec<f64>> {
    const CONNECTIONS: u64 = 4;
    let count: u64 = bench.effort.of(5_000, 1_000);
    let started = Instant::now() + Duration::from_millis(100);
    let mut tasks = Vec::new();
    for first in 0..CONNECTIONS {
        let mut producer = name.system().producer(&database.url).await?;
        tasks.push(tokio::spawn(async move {
            let mut asked = Vec::new();
            for n in (first..count).step_by(4) {
                sleep((started + Duration::from_millis(n * 2)).saturating_duration_since(Instant::now())).await;
                asked.push((10_000 + n, put(producer.as_mut(), mode, 10_000 + n).await?));
            }
            anyhow::Ok(asked)
        }));
    }
    let mut samples = Vec::new();
    for task in tasks {
        for (n, asked) in task.await?? {
            samples.push(ms(asked, worker.start_of(n, PATIENCE).await?));
        }
    }
    samples.sort_by(f64::total_cmp);
    Ok(samples)
}

fn ms(from: i64, to: i64) -> f64 {
    let distance = float((to - from).unsigned_abs()) / 1e3;
    if to < from { -distance } else { distance }
}
