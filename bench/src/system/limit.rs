//! The limit: a loop written by hand with no framework, no retries, no leases worth the name. What a system can reach at most.

use std::time::Duration;

use anyhow::{Result, bail};
use sqlx::postgres::PgListener;
use sqlx::{Connection as _, Executor as _, PgConnection};
use tokio::process::Command;

use super::child::{Report, until_told};
use super::{Fut, Mode, Name, Producer, System, args};
use crate::cluster::connect;
use crate::meter::unix_us;

/// How jobs are taken out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// Deleted when they are claimed: lost with the process.
    Delete,
    /// Marked when they are claimed, deleted when they are done.
    Update,
    /// Read by position from a log that nobody deletes from; one reader.
    Cursor,
}

pub(super) struct Limit(pub(super) Way);

const TABLES: &str = "
    create schema bench;
    create table bench.job (id bigint generated always as identity primary key, taken boolean not null default false,
        args json not null)
        with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 1);
    create index job_waits on bench.job (id) where not taken;
    create table bench.cursor (last bigint not null);
    insert into bench.cursor values (0)";

const BY_DELETE: &str = "
    delete from bench.job where ctid = any (array(
        select ctid from bench.job where not taken order by id limit 1000 for update skip locked))
    returning id, args::text";
const BY_UPDATE: &str = "
    update bench.job set taken = true where ctid = any (array(
        select ctid from bench.job where not taken order by id limit 1000 for update skip locked))
    returning id, args::text";
const FORGET: &str = "delete from bench.job where id = any ($1)";
const BY_CURSOR: &str = "
    with batch as materialized (
        select id, args from bench.job where id > (select last from bench.cursor) order by id limit 1000
    ), moved as (
        update bench.cursor set last = (select max(id) from batch) where exists (select from batch)
    )
    select id, args::text from batch";

impl System for Limit {
    fn settings(&self) -> &'static str {
        match self.0 {
            Way::Delete => "2 loops: DELETE … SKIP LOCKED RETURNING, 1 000 at a time",
            Way::Update => "2 loops: UPDATE … SKIP LOCKED RETURNING, 1 000 at a time, then DELETE",
            Way::Cursor => "1 loop: SELECT by position, 1 000 at a time, and the position's UPDATE",
        }
    }

    fn install<'a>(&'a self, url: &'a str) -> Fut<'a, ()> {
        Box::pin(async move {
            connect(url).await?.execute(TABLES).await?;
            Ok(())
        })
    }

    fn producer<'a>(&'a self, url: &'a str) -> Fut<'a, Box<dyn Producer>> {
        Box::pin(async move { Ok(Box::new(Inserts(connect(url).await?)) as Box<dyn Producer>) })
    }

    fn worker(&self, mode: Mode, url: &str) -> Result<Command> {
        let name = match self.0 {
            Way::Delete => Name::LimitDelete,
            Way::Update => Name::LimitUpdate,
            Way::Cursor => Name::LimitCursor,
        };
        name.command(mode, url)
    }

    fn drained(&self) -> &'static str {
        match self.0 {
            Way::Delete | Way::Update => "select not exists (select from bench.job)",
            Way::Cursor => "select last >= (select coalesce(max(id), 0) from bench.job) from bench.cursor",
        }
    }

    fn can(&self, mode: Mode) -> bool {
        mode == Mode::Drain || (mode == Mode::Starts && self.0 == Way::Update)
    }
}

struct Inserts(PgConnection);

const INSERT: &str = "insert into bench.job (args) values ($1::text::json)";

impl Producer for Inserts {
    fn one(&mut self, n: u64) -> Fut<'_, ()> {
        Box::pin(async move {
            sqlx::query(INSERT).bind(args(n)).execute(&mut self.0).await?;
            Ok(())
        })
    }

    fn in_transaction(&mut self, n: u64) -> Fut<'_, i64> {
        Box::pin(async move {
            let mut tx = self.0.begin().await?;
            sqlx::query(INSERT).bind(args(n)).execute(&mut *tx).await?;
            sqlx::query("select pg_notify('bench', '')").execute(&mut *tx).await?;
            let asked = unix_us();
            tx.commit().await?;
            Ok(asked)
        })
    }

    fn bulk(&mut self, from: u64, count: u64) -> Fut<'_, ()> {
        Box::pin(async move {
            let rows: Vec<String> = (from..from + count).map(args).collect();
            let insert = "insert into bench.job (args) select a::json from unnest($1::text[]) a";
            sqlx::query(insert).bind(rows).execute(&mut self.0).await?;
            Ok(())
        })
    }
}

pub(super) async fn work(way: Way, mode: Mode, url: &str) -> Result<()> {
    let report = Report::new(mode);
    if mode == Mode::Drain {
        let loops = if way == Way::Cursor { 1 } else { 2 };
        for _ in 0..loops {
            tokio::spawn(drain(way, connect(url).await?, report.clone()));
        }
    } else {
        if way != Way::Update {
            bail!("only the limit with an update is woken");
        }
        let mut listener = PgListener::connect(url).await?;
        listener.listen("bench").await?;
        tokio::spawn(serve(listener, connect(url).await?, report));
    }
    until_told().await
}

async fn take(way: Way, connection: &mut PgConnection, report: &Report) -> Result<usize> {
    let claim = match way {
        Way::Delete => BY_DELETE,
        Way::Update => BY_UPDATE,
        Way::Cursor => BY_CURSOR,
    };
    let rows: Vec<(i64, String)> = sqlx::query_as(claim).fetch_all(&mut *connection).await?;
    for (_, args) in &rows {
        report.started_with(args);
    }
    if way == Way::Update && !rows.is_empty() {
        let ids: Vec<i64> = rows.iter().map(|(id, _)| *id).collect();
        sqlx::query(FORGET).bind(ids).execute(connection).await?;
    }
    Ok(rows.len())
}

async fn drain(way: Way, mut connection: PgConnection, report: Report) -> Result<()> {
    connection.execute("set enable_seqscan = off").await?;
    loop {
        if take(way, &mut connection, &report).await? == 0 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}

async fn serve(mut listener: PgListener, mut connection: PgConnection, report: Report) -> Result<()> {
    connection.execute("set enable_seqscan = off").await?;
    loop {
        while take(Way::Update, &mut connection, &report).await? > 0 {}
        listener.recv().await?;
    }
}
