use std::sync::Arc;

use rand::RngExt;
use rand::rngs::StdRng;

use super::{Sky, rest};

/// Acts on many jobs at a time, wherever they are, and pauses queues.
pub(super) async fn run(sky: Arc<Sky>, n: u64) -> anyhow::Result<()> {
    let mut dice = sky.dice(6, n);
    let mut link = sky.open().await?;
    while !sky.is_over() {
        rest(&mut dice, 60).await;
        let (what, sql) = act(&mut dice);
        let in_transaction = dice.random_bool(0.3);
        if in_transaction {
            link.ask("begin").await?;
        }
        let done = link.ask(&sql).await?.len();
        if in_transaction {
            rest(&mut dice, 20).await;
            if dice.random_bool(0.4) {
                link.ask("rollback").await?;
                continue;
            }
            link.ask("commit").await?;
        }
        sky.count(what, done as u64);
    }
    Ok(())
}

fn act(dice: &mut StdRng) -> (&'static str, String) {
    if dice.random_bool(0.3) {
        let verb = ["release", "release", "retry", "skip"].get(dice.random_range(0..4)).copied().unwrap_or_default();
        let (queue, key) = (dice.random_range(0..3), dice.random_range(0..8));
        let sql = format!(
            "select e from (select postrider.act_on_lane('q{queue}', 'o{key}', '{verb}') as e) a where e = 'done'"
        );
        return ("lanes", sql);
    }
    let (what, verb) = match dice.random_range(0..10) {
        0..4 => ("cancelled", "cancel"),
        4..7 => ("run again", "retry"),
        7..9 => ("deleted", "delete"),
        _ => {
            let (queue, paused) = (dice.random_range(0..3), dice.random_bool(0.3));
            return ("paused", format!("select left(postrider.pause('q{queue}', {paused})::text, 0)"));
        }
    };
    // in no order
    let sql = format!(
        "select effect from postrider.{verb}(array(
            select j.id from postrider.job j where j.class = 3 order by random() limit {})) where effect in ('done', 'requested')",
        dice.random_range(1..40)
    );
    (what, sql)
}
