use std::sync::Arc;
use std::sync::atomic::Ordering;

use rand::RngExt;
use rand::rngs::StdRng;

use super::{Link, Sky, rest};

const WAITING_MAX: i64 = 4000;

/// Transactions of some events and jobs, held open for a while, some rolled back as a whole or in part.
pub(super) async fn run(sky: Arc<Sky>, n: u64) -> anyhow::Result<()> {
    let mut dice = sky.dice(1, n);
    let mut link = sky.open().await?;
    let mut transaction = 0;
    while !sky.is_over() {
        rest(&mut dice, 40).await;
        if sky.waiting.load(Ordering::Relaxed) > WAITING_MAX {
            continue;
        }
        transaction += 1;
        link.ask("begin").await?;
        let (mut events, mut jobs) = (0, 0);
        for item in 0..dice.random_range(1..5) {
            let undone = dice.random_bool(0.1);
            if undone {
                link.ask("savepoint s").await?;
            }
            let name = format!("p{n}/{transaction}/{item}");
            // two keys in one transaction, and two transactions with the same two, is a deadlock of the caller's own making
            let (e, j) = put(&sky, (&mut link, &mut dice), &name, item == 0).await?;
            if undone {
                link.ask("rollback to savepoint s").await?;
                sky.count("undone", 1);
            } else {
                events += e;
                jobs += j;
            }
        }
        rest(&mut dice, 15).await;
        if dice.random_bool(0.2) {
            link.ask("rollback").await?;
            sky.count("rolled back", 1);
        } else {
            link.ask("commit").await?;
            sky.events.fetch_add(events, Ordering::SeqCst);
            sky.jobs.fetch_add(jobs, Ordering::SeqCst);
        }
    }
    Ok(())
}

/// Puts something; answers with how many events and jobs.
async fn put(
    sky: &Sky,
    (link, dice): (&mut Link, &mut StdRng),
    name: &str,
    may_have_key: bool,
) -> anyhow::Result<(i64, i64)> {
    let kind = ["t.a", "t.b", "t.rare"].get(dice.random_range(0..3)).copied().unwrap_or_default();
    let kind_of_event = if dice.random_bool(0.5) { "order.made" } else { "order.paid" };
    if may_have_key && dice.random_bool(0.3) {
        // they are counted by nobody, since they may be removed
        let made = link.ask(&alike(dice)).await?.len();
        sky.count("alike", made as u64);
        return Ok((0, 0));
    }
    if dice.random_bool(0.3) {
        // nor are these
        let made = link.ask(&keyed(dice)).await?.len();
        sky.count("keyed", made as u64);
        return Ok((0, 0));
    }
    let (answer, sql) = match dice.random_range(0..10) {
        0 if may_have_key => {
            let key = dice.random_range(0..200);
            let sql = format!(
                "do $$ begin perform postrider.record('order.made', 'key/{key}', idempotency_key => 'k{key}',
                     traceparent => '00-' || md5('{name}') || '-00f067aa0ba902b7-01'); end $$;
                 select (e.traceparent = '00-' || md5('{name}') || '-00f067aa0ba902b7-01')::text from postrider.event e
                   join postrider.idempotency i on e.seq = postrider.event_seq(i.event_id) where i.key = 'k{key}'"
            );
            let first = link.one(&sql).await? == "true";
            return Ok((i64::from(first), 0));
        }
        0..=4 => ((1, 0), format!("select left(postrider.record('{kind_of_event}', '{name}')::text, 0)")),
        5 => (
            (3, 0),
            format!(
                r#"select left(e::text, 0) from postrider.record_many('[{{"type":"order.made","subject":"{name}/0"}},
                    {{"type":"order.paid","subject":"{name}/1"}},{{"type":"order.made","subject":"{name}/2"}}]') e"#
            ),
        ),
        6 => (
            (0, 1),
            format!(
                "select left(id::text, 0) from postrider.enqueue('{kind}', run_at => clock_timestamp() + interval '300 ms')"
            ),
        ),
        7 => (
            (0, 2),
            format!(
                r#"select left(id::text, 0) from postrider.enqueue_many('[{{"kind":"{kind}"}},{{"kind":"t.a","priority":4}}]')"#
            ),
        ),
        _ => {
            let (priority, queue) = (dice.random_range(1..5), dice.random_range(0..3));
            let options = format!("priority => {priority}, max_attempts => 2, queue => 'q{queue}'");
            ((0, 1), format!("select left(id::text, 0) from postrider.enqueue('{kind}', {options})"))
        }
    };
    link.ask(&sql).await?;
    Ok(answer)
}

/// Some jobs with keys, in one call.
fn keyed(dice: &mut StdRng) -> String {
    let items: Vec<String> = (0..dice.random_range(1..6))
        .map(|_| {
            let (key, limit, queue) = (dice.random_range(0..8), dice.random_range(0..3), dice.random_range(0..3));
            let policy = ["block", "skip", "park:1"].get(dice.random_range(0..3)).copied().unwrap_or_default();
            let order = format!(r#","order_key":"o{key}","order_policy":"{policy}""#);
            let limit = format!(r#","limit_key":"l{limit}""#);
            let keys = match dice.random_range(0..3) {
                0 => order,
                1 => limit,
                _ => order + &limit,
            };
            format!(r#"{{"kind":"t.act","queue":"q{queue}","priority":{}{keys}}}"#, dice.random_range(1..5))
        })
        .collect();
    format!("select fresh::text from postrider.enqueue_many('[{}]')", items.join(","))
}

/// Some jobs that may be one with others, in one call.
fn alike(dice: &mut StdRng) -> String {
    let modes = ["while_waiting", "until_done", "one_running_one_waiting"];
    let items: Vec<String> = (0..dice.random_range(1..5))
        .map(|_| {
            let mode = modes.get(dice.random_range(0..3)).copied().unwrap_or_default();
            let (key, queue) = (dice.random_range(0..30), dice.random_range(0..3));
            let again = if dice.random_bool(0.2) { r#","on_duplicate":"replace""# } else { "" };
            format!(r#"{{"kind":"t.act","queue":"q{queue}","unique_mode":"{mode}","unique_key":"k{key}"{again}}}"#)
        })
        .collect();
    format!("select fresh::text from postrider.enqueue_many('[{}]')", items.join(","))
}
