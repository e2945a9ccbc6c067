use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rand::RngExt;
use sqlx::postgres::PgPool;
use sqlx::{Connection as _, PgConnection};
use tokio::time::sleep;

use super::{Count, Ground, ask, rest};

/// A small slice, so that windows are often left open.
const PASS: &str = "select format('%s %s', why, more or starting) || case when starting then '+' else '' end from postrider.relay(200)";
const HAND_OVER: &str = "select postrider.hand_over(200)::text";
/// Who is in a pass, or about to be.
const CUT: &str = "select count(pg_terminate_backend(pid)) from (
    select pid from pg_stat_activity where datname = current_database() and application_name = 'outbox-relay' and state <> 'idle'
     order by random() limit 1) s";

/// Passes, of which some are undone, on connections that somebody ends.
pub(super) async fn run(ground: Arc<Ground>, n: u64) -> anyhow::Result<()> {
    let mut dice = ground.dice(2, n);
    let options = (*ground.pool.connect_options()).clone().application_name("outbox-relay");
    let mut connection: Option<PgConnection> = None;
    while !ground.written.load(Ordering::Relaxed) {
        let mut link = match connection.take() {
            Some(link) => link,
            None => PgConnection::connect_with(&options).await?,
        };
        match pass(&ground, &mut link, dice.random_ratio(1, 17)).await {
            Ok(more) => {
                connection = Some(link);
                if !more {
                    rest(&mut dice, 10).await;
                }
            }
            Err(sqlx::Error::Database(e)) if e.code().as_deref() != Some("57P01") => {
                anyhow::bail!("a pass failed: {e}")
            }
            // cut: what it did is gone with it, or is committed
            Err(_) => ground.count(Count::Cut),
        }
    }
    Ok(())
}

/// What a pass came to, and whether somebody waits to be taken over.
fn told(said: String) -> (String, bool) {
    said.strip_suffix('+').map(|told| (told.to_owned(), true)).unwrap_or((said, false))
}

async fn pass(ground: &Ground, link: &mut PgConnection, undone: bool) -> sqlx::Result<bool> {
    ask(link, "begin").await?;
    let (told, starting) = told(sqlx::query_scalar(PASS).fetch_one(&mut *link).await?);
    let end = if undone { "rollback" } else { "commit" };
    ask(link, end).await?;
    if starting {
        ask(link, format!("begin; {HAND_OVER}; {end}")).await?;
    }
    ground.count(match told.as_str() {
        _ if undone => Count::Undone,
        "done t" => Count::Slices,
        "busy f" => Count::Busy,
        _ => Count::Passes,
    });
    Ok(told.ends_with('t') && !undone)
}

/// Ends the connection of a relay at work, now and then.
pub(super) async fn cut(ground: Arc<Ground>) -> anyhow::Result<()> {
    let mut dice = ground.dice(3, 0);
    while !ground.written.load(Ordering::Relaxed) {
        rest(&mut dice, 1_200).await;
        let _cut: i64 = sqlx::query_scalar(CUT).fetch_one(&ground.pool).await?;
    }
    Ok(())
}

/// Passes until nothing is left.
pub(super) async fn drain(pool: &PgPool) -> anyhow::Result<()> {
    loop {
        let (told, starting) = told(sqlx::query_scalar(PASS).fetch_one(pool).await?);
        if starting {
            sqlx::raw_sql(HAND_OVER).execute(pool).await?;
        }
        match told.as_str() {
            "idle f" => return Ok(()),
            "busy f" => sleep(Duration::from_millis(20)).await,
            _ => {}
        }
    }
}
