use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rand::RngExt;
use rand::rngs::StdRng;
use tokio::time::{Instant, sleep};

use super::{Link, Sky, rest};

/// Each epoch has a dozen tables; these are enough to meet everything on the way.
const EPOCHS_MAX: u64 = 12;

/// Passes of a few events each, without a pause while there is more.
pub(super) async fn relay(sky: Arc<Sky>, n: u64) -> anyhow::Result<()> {
    let mut dice = sky.dice(2, n);
    let mut link = sky.open().await?;
    while !sky.is_over() {
        let most = dice.random_range(1..60);
        let relayed = link.one(&format!("select n::text from postrider.relay({most})")).await?.parse().unwrap_or(0);
        sky.count("relayed", relayed);
        if relayed == 0 {
            rest(&mut dice, 15).await;
        }
    }
    Ok(())
}

/// Housekeeping in great haste: epochs last a second.
pub(super) async fn keep(sky: Arc<Sky>) -> anyhow::Result<()> {
    let mut link = sky.open().await?;
    let mut last = Instant::now();
    let mut aged = 0;
    while !sky.is_over() {
        sleep(Duration::from_millis(200)).await;
        let waiting = link.one("select count(*)::text from postrider.ready").await?;
        sky.waiting.store(waiting.parse().unwrap_or(0), Ordering::Relaxed);
        if last.elapsed() > Duration::from_secs(1) && aged < EPOCHS_MAX {
            last = Instant::now();
            aged += 1;
            link.ask("update postrider.epoch set started_at = started_at - interval '8 days'").await?;
        }
        let advanced = link.one("select json_array_length(postrider.housekeep() -> 'advanced')::text").await?;
        sky.count("epochs", advanced.parse().unwrap_or(0));
        retire(&sky, &mut link).await?;
    }
    // in the thick of it there may never have been a moment for the exchange; the workers still drain
    for _ in 0..50 {
        if sky.counted("spans") > 0 {
            break;
        }
        retire(&sky, &mut link).await?;
    }
    Ok(())
}

/// A step of retention. Everything of the storm ended just now or lives: what is retired is exchanged, and nothing is lost.
async fn retire(sky: &Sky, link: &mut Link) -> anyhow::Result<()> {
    // who was in its way a moment ago is not waited for
    link.ask("update postrider.pinned set look_at = clock_timestamp()").await?;
    let retired = link.one("select ((postrider.housekeep('retire') ->> 'kept') is not null)::text").await?;
    sky.count("spans", u64::from(retired == "true"));
    Ok(())
}

/// Holds one row for a moment, again and again, and waits for none: whoever locks many stops in the middle of them, so that two who
/// lock in different orders meet.
pub(super) async fn sand(sky: Arc<Sky>, n: u64) -> anyhow::Result<()> {
    let mut dice = sky.dice(5, n);
    let mut link = sky.open().await?;
    while !sky.is_over() {
        let table =
            ["lease", "lease", "lease", "parked", "worker", "ready", "later"].get(dice.random_range(0..7)).copied();
        link.ask("begin").await?;
        let sql = format!(
            "select '' from postrider.{0} where ctid = (select ctid from postrider.{0} order by random() limit 1) for update skip locked",
            table.unwrap_or("lease")
        );
        let held = link.ask(&sql).await?.len();
        sky.count("held up", held as u64);
        rest(&mut dice, 40).await;
        link.ask("rollback").await?;
    }
    Ok(())
}

/// Types, kinds and subscriptions that come, change and go.
pub(super) async fn declare(sky: Arc<Sky>, n: u64) -> anyhow::Result<()> {
    let mut dice = sky.dice(3, n);
    let mut link = sky.open().await?;
    while !sky.is_over() {
        rest(&mut dice, 150).await;
        let (what, sql) = change(&sky, &mut dice);
        if dice.random_bool(0.3) {
            link.ask("begin").await?;
            link.ask(&sql).await?;
            rest(&mut dice, 20).await;
            if dice.random_bool(0.5) {
                link.ask("rollback").await?;
                continue;
            }
            link.ask("commit").await?;
        } else {
            link.ask(&sql).await?;
        }
        sky.count(what, 1);
    }
    Ok(())
}

fn change(sky: &Sky, dice: &mut StdRng) -> (&'static str, String) {
    let subscription = dice.random_range(0..6);
    match dice.random_range(0..4) {
        0 => {
            // everybody has a generation of its own: two ways to say one generation would be refused
            let generation = sky.generation.fetch_add(1, Ordering::Relaxed);
            let (kind, attempts) = if dice.random_bool(0.5) { ("t.a", 3) } else { ("t.b", 2) };
            let (queue, priority) = (dice.random_range(0..3), dice.random_range(1..5));
            let declared = format!(
                r#"{{"app":"next","generation":{generation},"types":[{{"name":"order.t{}"}}],
                     "kinds":[{{"name":"{kind}","queue":"q{queue}","priority":{priority},"max_attempts":{attempts}}}],
                     "subscriptions":[{{"name":"s.d{subscription}","types":["order.*"],"kind":"t.b"}}]}}"#,
                dice.random_range(0..50)
            );
            ("declared", format!("select '' from postrider.declare('{declared}')"))
        }
        1 | 2 => {
            let types = ["{order.*}", "{order.paid,nothing.*}", "{**}"].get(dice.random_range(0..3)).copied();
            let kind = if dice.random_bool(0.5) { "t.a" } else { "t.b" };
            let sql = format!(
                "select postrider.put_subscription('s.d{subscription}', '{}', '{kind}', delay_ms => {})::text",
                types.unwrap_or_default(),
                if dice.random_bool(0.2) { 200 } else { 0 }
            );
            ("put", sql)
        }
        _ => {
            let sql = format!(
                "select postrider.drop_subscription(s.id)::text from postrider.subscription s where s.name = 's.d{subscription}'"
            );
            ("dropped", sql)
        }
    }
}
