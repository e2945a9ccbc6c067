use std::time::{Duration, Instant};

use anyhow::Result;

use super::{Bench, fill, hammer, us};
use crate::meter;
use crate::system::{Name, Producer};
use crate::worker::float;

/// One job in a transaction of its own.
pub(super) async fn enqueue(bench: &mut Bench) -> Result<()> {
    let length = Duration::from_secs(bench.effort.of(4, 1));
    for name in bench.turns(|name| !matches!(name, Name::LimitDelete | Name::LimitCursor)) {
        let database = bench.database(name).await?;
        for connections in [1, 16] {
            let mut producers: Vec<Box<dyn Producer>> = Vec::new();
            for _ in 0..connections {
                producers.push(name.system().producer(&database.url).await?);
            }
            let (others, before) = (bench.others(), bench.server_cpu());
            let (rate, _) = hammer(producers, length, |producer, n| producer.one(n)).await?;
            let spent = bench.server_cpu().saturating_sub(before);
            let per_tx = us(spent) / (rate * length.as_secs_f64());
            let results = &mut bench.results;
            let share = others.share(Duration::ZERO);
            for (metric, value) in [("tx/s", rate), ("server CPU µs/tx", per_tx), ("others' share %", share)] {
                results.add("enqueue", &format!("{metric}, {connections} connections"), &name.text(), value);
            }
        }
        bench.cluster.drop(database).await?;
    }
    Ok(())
}

/// 1 000 jobs in a transaction, over two connections.
pub(super) async fn bulk(bench: &mut Bench) -> Result<()> {
    let count = bench.effort.of(100_000, 30_000);
    for name in bench.turns(|name| !matches!(name, Name::LimitDelete | Name::LimitCursor)) {
        let database = bench.database(name).await?;
        fill(name, &database, 0, 2_000).await?;
        let (others, before, wal) = (bench.others(), bench.server_cpu(), meter::wal(bench.cluster.admin()).await?);
        let started = Instant::now();
        fill(name, &database, 2_000, count).await?;
        let rate = float(count) / started.elapsed().as_secs_f64();
        let spent = us(bench.server_cpu().saturating_sub(before)) / float(count);
        let wal = (meter::wal(bench.cluster.admin()).await? - wal) / float(count);
        let share = others.share(Duration::ZERO);
        for (metric, value) in
            [("rows/s", rate), ("server CPU µs/row", spent), ("WAL B/row", wal), ("others' share %", share)]
        {
            bench.results.add("bulk", metric, &name.text(), value);
        }
        bench.cluster.drop(database).await?;
    }
    Ok(())
}
