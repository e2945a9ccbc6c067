use std::time::Duration;

use anyhow::Result;
use sqlx::{Executor as _, PgConnection};
use uuid::Uuid;

use super::{Bench, hammer, us};
use crate::cluster::{Database, connect};
use crate::meter;
use crate::system::{Fut, Name, Producer, args};

/// The same row with the same indexes, in a table that is not partitioned: the least that an outbox can cost.
const BARE_TABLE: &str = "
    create schema bench;
    create sequence bench.number;
    create table bench.event (like postrider.event including all excluding identity)";
const BARE: &str = "
    insert into bench.event (seq, id, recorded_at, occurred_at, type, subject, data)
    values (nextval('bench.number'), $1, clock_timestamp(), clock_timestamp(), $2, $3, $4::text::json)";

const RECORD: &str = "record";
const INSERT: &str = "bare INSERT";

struct Bare(PgConnection);

impl Producer for Bare {
    fn record(&mut self, n: u64) -> Fut<'_, ()> {
        Box::pin(async move {
            let insert = sqlx::query(BARE).bind(Uuid::now_v7()).bind("bench.happened").bind(format!("order/{n}"));
            insert.bind(args(n)).execute(&mut self.0).await?;
            Ok(())
        })
    }

    fn one(&mut self, n: u64) -> Fut<'_, ()> {
        Box::pin(async move { anyhow::bail!("{n} is not asked for") })
    }

    fn in_transaction(&mut self, n: u64) -> Fut<'_, i64> {
        Box::pin(async move { anyhow::bail!("{n} is not asked for") })
    }

    fn bulk(&mut self, from: u64, _: u64) -> Fut<'_, ()> {
        Box::pin(async move { anyhow::bail!("{from} is not asked for") })
    }
}

/// Both in turn, each in a transaction of its own by one statement, with no relay at work.
pub(super) async fn run(bench: &mut Bench) -> Result<()> {
    if !bench.systems.contains(&Name::Postrider) {
        return Ok(());
    }
    let database = bench.database(Name::Postrider).await?;
    database.connect().await?.execute(BARE_TABLE).await?;
    let length = Duration::from_secs(bench.effort.of(4, 1));
    for _ in 0..bench.effort.rounds.max(bench.effort.of(5, 3)) {
        for connections in [1, 16] {
            for what in [INSERT, RECORD] {
                one(bench, &database, (what, connections), length).await?;
            }
        }
    }
    bench.cluster.drop(database).await
}

async fn one(bench: &mut Bench, database: &Database, (what, connections): (&str, u32), length: Duration) -> Result<()> {
    let mut producers: Vec<Box<dyn Producer>> = Vec::new();
    for _ in 0..connections {
        producers.push(match what {
            INSERT => Box::new(Bare(connect(&database.url).await?)),
            _ => Name::Postrider.system().producer(&database.url).await?,
        });
    }
    let backends = backends(bench, database).await?;
    let cpu = || backends.iter().filter_map(|pid| meter::cpu_of(*pid)).sum::<Duration>();
    let (others, before) = (bench.others(), cpu());
    // a backend that has ended cannot be asked any more: producers are kept until it was
    let (rate, producers) = hammer(producers, length, |producer, n| producer.record(n)).await?;
    let spent = cpu().saturating_sub(before);
    drop(producers);
    let add = |metric: &str, value| (format!("{metric}, {connections} connections"), value);
    let figures = [
        add("tx/s", rate),
        add("server CPU µs/tx", us(spent) / (rate * length.as_secs_f64())),
        add("others' share %", others.share(Duration::ZERO)),
    ];
    for (metric, value) in figures {
        bench.results.add("record", &metric, what, value);
    }
    Ok(())
}

async fn backends(bench: &Bench, database: &Database) -> Result<Vec<u32>> {
    let pids: Vec<i32> = sqlx::query_scalar("select pid from pg_stat_activity where datname = $1")
        .bind(&database.name)
        .fetch_all(bench.cluster.admin())
        .await?;
    Ok(pids.into_iter().map(i32::unsigned_abs).collect())
}
