use std::sync::Arc;
use std::sync::atomic::Ordering;

use rand::RngExt;
use rand::rngs::StdRng;
use sqlx::PgConnection;

use super::{Count, Ground, KEYS, ask, rest};

/// Raises the number of a key, whose row it locks, and records it: so the order of a key is known.
fn put(key: &str, n: u32) -> String {
    format!(
        "do $$ declare v bigint; begin for i in 1..{n} loop
             update public.account a set n = a.n + 1 where a.key = '{key}' returning a.n into v;
             perform postrider.record('k.put', '{key}', to_json(v));
         end loop; end $$"
    )
}

/// Some keys, each once, in the order of their names: two writers that lock in another order would be a deadlock of their own making.
fn some(dice: &mut StdRng, n: u64) -> Vec<(String, u32)> {
    if dice.random_bool(0.01) {
        return vec![(format!("huge/{n}"), dice.random_range(500..3_000))];
    }
    let mut keys: Vec<usize> = (0..dice.random_range(1..4)).map(|_| dice.random_range(0..KEYS)).collect();
    keys.sort_unstable();
    keys.dedup();
    keys.into_iter().map(|key| (format!("key/{key:02}"), dice.random_range(1..4))).collect()
}

/// Transactions that commit, abort, or are prepared and end later; with savepoints both ways, an early number, and pauses everywhere.
pub(super) async fn run(ground: Arc<Ground>, n: u64) -> anyhow::Result<()> {
    let mut dice = ground.dice(1, n);
    let mut connection = ground.pool.acquire().await?.detach();
    for key in (0..KEYS).map(|key| format!("key/{key:02}")).chain([format!("huge/{n}")]) {
        ask(&mut connection, format!("insert into public.account (key) values ('{key}') on conflict do nothing"))
            .await?;
    }
    let mut round = 0_u64;
    while !ground.is_over() {
        round += 1;
        let events = transaction(&ground, (&mut connection, &mut dice), (n, round)).await?;
        ground.committed.fetch_add(events, Ordering::SeqCst);
        rest(&mut dice, 10).await;
    }
    Ok(())
}

/// One transaction; answers with how many events it committed.
async fn transaction(
    ground: &Ground,
    (connection, dice): (&mut PgConnection, &mut StdRng),
    (n, round): (u64, u64),
) -> anyhow::Result<u64> {
    let name = format!("outbox-{n}-{round}");
    let prepared = dice.random_bool(0.15);
    ask(connection, "begin").await?;
    if prepared {
        // a wake-up makes PREPARE fail
        ask(connection, "set local postrider.wake = 'off'").await?;
    }
    if dice.random_bool(0.2) {
        ask(connection, "select pg_current_xact_id()").await?;
        rest(dice, 40).await;
    }
    let mut events = 0;
    for (key, n) in some(dice, n) {
        let (inside, undone) = (dice.random_bool(0.3), dice.random_bool(0.4));
        if inside {
            ask(connection, "savepoint s").await?;
        }
        ask(connection, put(&key, n)).await?;
        match (inside, undone) {
            (true, true) => {
                ask(connection, "rollback to savepoint s").await?;
                ground.count(Count::Savepoints);
                continue;
            }
            (true, false) => ask(connection, "release savepoint s").await?,
            _ => {}
        }
        events += u64::from(n);
        rest(dice, 8).await;
    }
    let longest = if dice.random_bool(0.05) { 300 } else { 15 };
    rest(dice, longest).await;
    let aborts = dice.random_bool(0.15);
    if prepared {
        ask(connection, format!("prepare transaction '{name}'")).await?;
        ground.count(Count::Prepared);
        rest(dice, 150).await;
        ask(connection, format!("{} prepared '{name}'", if aborts { "rollback" } else { "commit" })).await?;
    } else {
        ask(connection, if aborts { "rollback" } else { "commit" }).await?;
    }
    if aborts {
        ground.count(Count::Aborted);
        return Ok(0);
    }
    Ok(events)
}
