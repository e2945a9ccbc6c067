use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Result, bail};
use sqlx::{Executor as _, Row as _};
use tokio::time::sleep;

use super::{Bench, fill, hold_a_snapshot, us};
use crate::cluster::Database;
use crate::meter::{self, unix_us};
use crate::system::{Mode, Name};
use crate::worker::{Worker, float};

const PATIENCE: Duration = Duration::from_mins(10);

/// A full queue is emptied; a job is done when the database says so.
pub(super) async fn drain(bench: &mut Bench) -> Result<()> {
    let count = bench.effort.of(100_000, 30_000);
    for name in bench.turns(|_| true) {
        let database = bench.database(name).await?;
        let wal = meter::wal(bench.cluster.admin()).await?;
        fill(name, &database, 0, count).await?;
        database.connect().await?.execute("vacuum analyze").await?;
        let filled = meter::wal(bench.cluster.admin()).await?;
        let (others, before) = (bench.others(), bench.server_cpu());
        let worker = Worker::start(name.system().worker(Mode::Drain, &database.url)?)?;
        let done = until_drained(name, &database, &worker, count).await?;
        let rate = float(count) / (float((done - worker.first()?).unsigned_abs()) / 1e6);
        let (server, client) = (bench.server_cpu().saturating_sub(before), worker.cpu());
        let wal_drain = meter::wal(bench.cluster.admin()).await? - filled;
        let figures = [
            ("jobs/s", rate),
            ("server CPU µs/job", us(server) / float(count)),
            ("worker CPU µs/job", us(client) / float(count)),
            ("WAL B/job, whole life", (filled - wal + wal_drain) / float(count)),
            ("WAL B/job, drain alone", wal_drain / float(count)),
            ("worker RSS MB, most", worker.rss_mb()?.1),
            ("others' share %", others.share(client)),
        ];
        worker.stop().await?;
        for (metric, value) in figures {
            bench.results.add("drain", metric, &name.text(), value);
        }
        bench.cluster.drop(database).await?;
    }
    statements(bench).await
}

/// Statements that a job costs in a drain, in a run of its own, since counting them is not free.
async fn statements(bench: &mut Bench) -> Result<()> {
    if !bench.cluster.counts_statements {
        return Ok(());
    }
    let count = 20_000;
    for name in bench.systems.clone() {
        let database = bench.database(name).await?;
        fill(name, &database, 0, count).await?;
        bench.cluster.count_statements(&database).await?;
        let worker = Worker::start(name.system().worker(Mode::Drain, &database.url)?)?;
        until_drained(name, &database, &worker, count).await?;
        worker.stop().await?;
        let (calls, texts) = called(&database).await?;
        eprintln!("{}:\n{texts}", name.text());
        bench.results.add("drain", "statements/job", &name.text(), calls / float(count));
        bench.cluster.drop(database).await?;
    }
    Ok(())
}

/// How many statements a database was sent, but for the looks whether it is drained, and the texts of the most frequent ones.
pub(super) async fn called(database: &Database) -> Result<(f64, String)> {
    let rows = sqlx::query(
        "select calls::float8, mean_exec_time, left(regexp_replace(regexp_replace(query, '--[^\\n]*', '', 'g'), '\\s+', ' ', 'g'), 60)
           from pg_stat_statements s join pg_database d on d.oid = s.dbid
          where d.datname = $1 and query not like 'select not exists%' and query not like 'select last >=%'
          order by calls desc",
    )
    .bind(&database.name)
    .fetch_all(&mut database.connect().await?)
    .await?;
    let calls = rows.iter().map(|row| row.get::<f64, _>(0)).sum();
    let texts = rows
        .iter()
        .take(8)
        .map(|row| format!("{}× {:.3} ms {}", row.get::<f64, _>(0), row.get::<f64, _>(1), row.get::<String, _>(2)));
    Ok((calls, texts.collect::<Vec<_>>().join("\n")))
}

/// Answers with the moment at which nothing was left.
async fn until_drained(name: Name, database: &Database, worker: &Worker, count: u64) -> Result<i64> {
    worker.until_count(count, PATIENCE).await?;
    let mut connection = database.connect().await?;
    for _ in 0..6_000 {
        if sqlx::query_scalar::<_, bool>(name.system().drained()).fetch_one(&mut connection).await? {
            return Ok(unix_us());
        }
        sleep(Duration::from_millis(5)).await;
    }
    bail!("{}: all handlers were run, but not all jobs have ended", name.text())
}

/// Filled and emptied at the same time.
pub(super) async fn steady(bench: &mut Bench) -> Result<()> {
    let (length, warm) = (Duration::from_secs(bench.effort.of(20, 5)), Duration::from_secs(bench.effort.of(5, 2)));
    for name in bench.turns(|_| true) {
        let rate = flow(bench, name, (length, warm), false).await?;
        bench.results.add("steady", "jobs/s", &name.text(), rate);
    }
    Ok(())
}

/// The same for 30 s with a snapshot that was taken before; what is counted are the last five seconds, beside a clean run of the same
/// length.
pub(super) async fn held(bench: &mut Bench) -> Result<()> {
    let (length, warm) = (Duration::from_secs(bench.effort.of(30, 8)), Duration::from_secs(bench.effort.of(25, 4)));
    let quick = bench.effort.quick;
    for name in bench.turns(|name| !quick || matches!(name, Name::Postrider | Name::GraphileRust | Name::LimitUpdate)) {
        let clean = flow(bench, name, (length, warm), false).await?;
        let held = flow(bench, name, (length, warm), true).await?;
        for (metric, value) in [("held / clean", held / clean), ("jobs/s, clean", clean), ("jobs/s, held", held)] {
            bench.results.add("held", metric, &name.text(), value);
        }
    }
    Ok(())
}

/// Jobs a second, once it has been warm for so long.
async fn flow(bench: &Bench, name: Name, (length, warm): (Duration, Duration), hold: bool) -> Result<f64> {
    let database = bench.database(name).await?;
    let snapshot = if hold { Some(hold_a_snapshot(&database).await?) } else { None };
    let worker = Worker::start(name.system().worker(Mode::Drain, &database.url)?)?;
    let (done, inserted) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let mut producers = Vec::new();
    for _ in 0..2 {
        let mut producer = name.system().producer(&database.url).await?;
        let (done, inserted) = (Arc::clone(&done), Arc::clone(&inserted));
        let counted = worker.counter();
        producers.push(tokio::spawn(async move {
            while !done.load(Ordering::Relaxed) {
                // no deeper than what keeps a worker busy: the rate is asked for, not the depth
                if inserted.load(Ordering::Relaxed) > counted() + 20_000 {
                    sleep(Duration::from_millis(2)).await;
                    continue;
                }
                let from = inserted.fetch_add(500, Ordering::Relaxed);
                producer.bulk(from, 500).await?;
            }
            anyhow::Ok(())
        }));
    }
    let started = unix_us();
    sleep(length).await;
    let ended = unix_us();
    done.store(true, Ordering::Relaxed);
    let rate = worker.rate(started + i64::try_from(warm.as_micros())?, ended)?;
    for producer in producers {
        producer.await??;
    }
    worker.stop().await?;
    drop(snapshot);
    bench.cluster.drop(database).await?;
    Ok(rate)
}
