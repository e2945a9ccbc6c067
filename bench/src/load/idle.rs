use std::time::Duration;

use anyhow::Result;
use sqlx::Executor as _;
use tokio::time::sleep;

use super::drain::called;
use super::{Bench, us};
use crate::system::{Mode, Name};
use crate::worker::Worker;

/// What a worker costs that has nothing to do.
pub(super) async fn run(bench: &mut Bench) -> Result<()> {
    let length = Duration::from_secs(bench.effort.of(30, 6));
    for name in bench.turns(|name| !name.is_limit()) {
        one(bench, name, length).await?;
    }
    Ok(())
}

async fn one(bench: &mut Bench, name: Name, length: Duration) -> Result<()> {
    let database = bench.database(name).await?;
    if bench.cluster.counts_statements {
        bench.cluster.count_statements(&database).await?;
    }
    let worker = Worker::start(name.system().worker(Mode::Starts, &database.url)?)?;
    sleep(Duration::from_secs(bench.effort.of(8, 5))).await;
    if bench.cluster.counts_statements {
        database.connect().await?.execute("select pg_stat_statements_reset()").await?;
    }
    let (server, client) = (bench.server_cpu(), worker.cpu());
    sleep(length).await;
    let (server, client) = (bench.server_cpu().saturating_sub(server), worker.cpu().saturating_sub(client));
    let seconds = length.as_secs_f64();
    let mut figures = vec![
        ("server CPU ms/s", us(server) / 1e3 / seconds),
        ("worker CPU ms/s", us(client) / 1e3 / seconds),
        ("worker RSS MB", worker.rss_mb()?.0),
    ];
    if bench.cluster.counts_statements {
        let (calls, texts) = called(&database).await?;
        eprintln!("{}:\n{texts}", name.text());
        // the reset itself is among them
        figures.insert(0, ("statements/s", (calls - 1.0).max(0.0) / seconds));
    }
    worker.stop().await?;
    for (metric, value) in figures {
        bench.results.add("idle", metric, &name.text(), value);
    }
    bench.cluster.drop(database).await
}
