//! `graphile_worker`, the Rust port: local queue and batched completion as its own throughput benchmark sets them.

use std::time::Duration;

use anyhow::Result;
use graphile_worker::{
    IntoTaskHandlerResult, JobSpec, LocalQueueConfig, RawJobSpec, TaskHandler, WorkerContext, WorkerOptions,
    WorkerUtils,
};
use serde::{Deserialize, Serialize};
use sqlx::postgres::PgPoolOptions;
use sqlx::{Connection as _, PgConnection};
use tokio::process::Command;

use super::child::{Report, until_told};
use super::{Args, Fut, Mode, Name, Producer, System, args};
use crate::cluster::connect;
use crate::meter::unix_us;

pub(super) struct Graphile;

const SCHEMA: &str = "graphile_worker";
const TASK: &str = "bench_job";

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Task(Args);

impl TaskHandler for Task {
    const IDENTIFIER: &'static str = TASK;

    async fn run(self, cx: WorkerContext) -> impl IntoTaskHandlerResult {
        if let Some(report) = cx.get_ext::<Report>() {
            report.started(self.0.n);
        }
        Ok::<(), String>(())
    }
}

impl System for Graphile {
    fn settings(&self) -> &'static str {
        "graphile_worker 0.14.1; drains: concurrency 500, local queue of 5 000, completion batched by 5 ms, poll 5 ms; \
         otherwise: concurrency 64, no local queue, poll 1 s; jobs by `WorkerUtils` and by `add_job` in a transaction"
    }

    fn install<'a>(&'a self, url: &'a str) -> Fut<'a, ()> {
        Box::pin(async move {
            let pool = PgPoolOptions::new().max_connections(2).connect(url).await?;
            WorkerUtils::new(pool.clone(), SCHEMA).migrate().await?;
            // the task's name is registered by the first worker that knows it
            let options = WorkerOptions::default().schema(SCHEMA).pg_pool(pool.clone()).define_job::<Task>();
            drop(Box::pin(options.init()).await?);
            pool.close().await;
            Ok(())
        })
    }

    fn producer<'a>(&'a self, url: &'a str) -> Fut<'a, Box<dyn Producer>> {
        Box::pin(async move {
            let pool = PgPoolOptions::new().max_connections(1).connect(url).await?;
            let utils = WorkerUtils::new(pool, SCHEMA);
            Ok(Box::new(Adds { utils, connection: connect(url).await? }) as Box<dyn Producer>)
        })
    }

    fn worker(&self, mode: Mode, url: &str) -> Result<Command> {
        Name::GraphileRust.command(mode, url)
    }

    fn drained(&self) -> &'static str {
        "select not exists (select from graphile_worker._private_jobs)"
    }
}

struct Adds {
    utils: WorkerUtils,
    connection: PgConnection,
}

impl Producer for Adds {
    fn one(&mut self, n: u64) -> Fut<'_, ()> {
        Box::pin(async move {
            self.utils.add_raw_job(TASK, Args::new(n), JobSpec::default()).await?;
            Ok(())
        })
    }

    fn in_transaction(&mut self, n: u64) -> Fut<'_, i64> {
        Box::pin(async move {
            let mut tx = self.connection.begin().await?;
            let add = "select id from graphile_worker.add_job($1, $2::text::json)";
            sqlx::query(add).bind(TASK).bind(args(n)).execute(&mut *tx).await?;
            let asked = unix_us();
            tx.commit().await?;
            Ok(asked)
        })
    }

    fn bulk(&mut self, from: u64, count: u64) -> Fut<'_, ()> {
        Box::pin(async move {
            let job = |n| {
                let payload = serde_json::to_value(Args::new(n))?;
                Ok(RawJobSpec { identifier: TASK.to_owned(), payload, spec: JobSpec::default() })
            };
            let jobs: Vec<RawJobSpec> = (from..from + count).map(job).collect::<Result<_>>()?;
            self.utils.add_raw_jobs(&jobs).await?;
            Ok(())
        })
    }
}

pub(super) async fn work(mode: Mode, url: &str) -> Result<()> {
    let pool = PgPoolOptions::new().max_connections(8).connect(url).await?;
    let options =
        WorkerOptions::default().schema(SCHEMA).pg_pool(pool).define_job::<Task>().add_extension(Report::new(mode));
    let options = match mode {
        Mode::Drain => options
            .concurrency(500)
            .poll_interval(Duration::from_millis(5))
            .complete_job_batch_delay(Duration::from_millis(5))
            .local_queue(LocalQueueConfig::default().with_size(5_000)),
        _ => options.concurrency(64),
    };
    let worker = Box::pin(options.init()).await?;
    tokio::select! {
        ended = worker.run() => ended?,
        told = until_told() => told?,
    }
    Ok(())
}
