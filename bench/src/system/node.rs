//! graphile-worker on Node, with a local queue and batched completion. Its jobs are put in through its SQL functions, which is what
//! its own client does.

use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use sqlx::{Connection as _, PgConnection};
use tokio::process::Command;

use super::{Fut, Mode, Producer, System, args};
use crate::cluster::connect;
use crate::meter::unix_us;

pub(super) struct Node;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/node");

fn command(what: &str, url: &str) -> Result<Command> {
    let folder = PathBuf::from(FOLDER);
    ensure!(folder.join("node_modules").is_dir(), "graphile-worker is not there: run `npm ci` in bench/node");
    let mut command = Command::new("node");
    command.current_dir(folder).arg("worker.mjs").arg(what).env("BENCH_SOCKET", socket(url)?);
    Ok(command)
}

/// The driver of Node takes a folder of a socket and a name apart.
fn socket(url: &str) -> Result<String> {
    let options: sqlx::postgres::PgConnectOptions = url.parse()?;
    let folder = options.get_socket().context("no socket in the address")?;
    Ok(format!("{} {}", folder.display(), options.get_database().unwrap_or("postgres")))
}

impl System for Node {
    fn settings(&self) -> &'static str {
        "graphile-worker 0.18.0 on Node; drains: concurrency 24, local queue of 5 000, refetch delay off, completion batched by 5 ms, poll \
         100 ms; otherwise: concurrency 24, no local queue, poll 1 s; jobs by `add_job` and `add_jobs`"
    }

    fn install<'a>(&'a self, url: &'a str) -> Fut<'a, ()> {
        Box::pin(async move {
            ensure!(command("install", url)?.status().await?.success(), "graphile-worker could not be installed");
            Ok(())
        })
    }

    fn producer<'a>(&'a self, url: &'a str) -> Fut<'a, Box<dyn Producer>> {
        Box::pin(async move { Ok(Box::new(Calls(connect(url).await?)) as Box<dyn Producer>) })
    }

    fn worker(&self, mode: Mode, url: &str) -> Result<Command> {
        command(if mode == Mode::Drain { "drain" } else { "starts" }, url)
    }

    fn drained(&self) -> &'static str {
        "select not exists (select from graphile_worker._private_jobs)"
    }
}

struct Calls(PgConnection);

const ADD: &str = "select id from graphile_worker.add_job('bench_job', $1::text::json)";
const ADD_MANY: &str = "
    select id from graphile_worker.add_jobs(array(
        select row ('bench_job', a::json, null, null, null, null, null, null)::graphile_worker.job_spec from unnest($1::text[]) a))";

impl Producer for Calls {
    fn one(&mut self, n: u64) -> Fut<'_, ()> {
        Box::pin(async move {
            sqlx::query(ADD).bind(args(n)).execute(&mut self.0).await?;
            Ok(())
        })
    }

    fn in_transaction(&mut self, n: u64) -> Fut<'_, i64> {
        Box::pin(async move {
            let mut tx = self.0.begin().await?;
            sqlx::query(ADD).bind(args(n)).execute(&mut *tx).await?;
            let asked = unix_us();
            tx.commit().await?;
            Ok(asked)
        })
    }

    fn bulk(&mut self, from: u64, count: u64) -> Fut<'_, ()> {
        Box::pin(async move {
            let jobs: Vec<String> = (from..from + count).map(args).collect();
            sqlx::query(ADD_MANY).bind(jobs).execute(&mut self.0).await?;
            Ok(())
        })
    }
}
