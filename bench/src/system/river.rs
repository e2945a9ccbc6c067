//! `riverqueue`, River's own client for Rust.

use std::time::Duration;

use anyhow::{Result, anyhow};
use riverqueue::migrate::PostgresMigrator;
use riverqueue::{BoxError, Client, Job, JobArgs, QueueConfig, WorkContext, WorkOutcome, Workers};
use serde::{Deserialize, Serialize};
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;
use tokio::process::Command;

use super::child::{Report, until_told};
use super::{Args, Fut, Mode, Name, Producer, System};
use crate::meter::unix_us;

pub(super) struct River;

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(transparent)]
struct Task(Args);

impl JobArgs for Task {
    const KIND: &'static str = "bench_job";
}

impl System for River {
    fn settings(&self) -> &'static str {
        "riverqueue 0.5.0; drains: 2 000 workers, fetch cooldown 1 ms; otherwise: 64 workers, fetch cooldown 1 ms, poll 1 s; \
         jobs by `Client::insert` and `insert_many`"
    }

    fn install<'a>(&'a self, url: &'a str) -> Fut<'a, ()> {
        Box::pin(async move {
            let pool = PgPoolOptions::new().max_connections(2).connect(url).await?;
            PostgresMigrator::new(pool.clone()).migrate_up().await?;
            pool.close().await;
            Ok(())
        })
    }

    fn producer<'a>(&'a self, url: &'a str) -> Fut<'a, Box<dyn Producer>> {
        Box::pin(async move {
            let pool = PgPoolOptions::new().max_connections(1).connect(url).await?;
            let client = Client::builder(pool.clone()).fetch_cooldown(Duration::from_millis(1)).build()?;
            Ok(Box::new(Inserts { pool, client }) as Box<dyn Producer>)
        })
    }

    fn worker(&self, mode: Mode, url: &str) -> Result<Command> {
        Name::RiverRust.command(mode, url)
    }

    fn drained(&self) -> &'static str {
        "select not exists (select from river_job where state in ('available', 'running'))"
    }
}

struct Inserts {
    pool: PgPool,
    client: Client,
}

impl Producer for Inserts {
    fn one(&mut self, n: u64) -> Fut<'_, ()> {
        Box::pin(async move {
            self.client.insert(Task(Args::new(n))).await?;
            Ok(())
        })
    }

    fn in_transaction(&mut self, n: u64) -> Fut<'_, i64> {
        Box::pin(async move {
            let mut tx = self.pool.begin().await?;
            self.client.insert(Task(Args::new(n))).tx(&mut tx).await?;
            let asked = unix_us();
            tx.commit().await?;
            Ok(asked)
        })
    }

    fn bulk(&mut self, from: u64, count: u64) -> Fut<'_, ()> {
        Box::pin(async move {
            self.client.insert_many((from..from + count).map(|n| Task(Args::new(n)))).await?;
            Ok(())
        })
    }
}

pub(super) async fn work(mode: Mode, url: &str) -> Result<()> {
    let pool = PgPoolOptions::new().max_connections(8).connect(url).await?;
    let report = Report::new(mode);
    let mut workers = Workers::new();
    workers.add_fn(move |_: WorkContext, job: Job<Task>| {
        report.started(job.args.0.n);
        async { Ok::<_, BoxError>(WorkOutcome::Complete) }
    })?;
    let most = if mode == Mode::Drain { 2_000 } else { 64 };
    let client = Client::builder(pool)
        .workers(workers)
        .fetch_cooldown(Duration::from_millis(1))
        .queue("default", QueueConfig::new(most))
        .build()?;
    let mut run = client.start()?;
    tokio::select! {
        ended = run.wait() => ended.map_err(|error| anyhow!("{error}"))?,
        told = until_told() => told?,
    }
    run.stop().await.map_err(|error| anyhow!("{error}"))?;
    Ok(())
}
