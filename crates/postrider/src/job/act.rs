use std::collections::HashMap;

use postrider_contract::{JobId, Payload, Timestamp};
use serde::Serialize;
use sqlx::PgPool;

use crate::error::Error;
use crate::pg::{Arg, Row, Statement, Tx};
use crate::port::{Act, Effect, Filter, Plan, State, Step};

pub(super) const CANCEL: Statement = crate::statement!("sql/cancel.sql");
pub(super) const RETRY: Statement = crate::statement!("sql/retry.sql");
pub(super) const DELETE: Statement = crate::statement!("sql/delete.sql");
pub(super) const PAUSE: Statement = crate::statement!("sql/pause.sql");
pub(super) const PLAN: Statement = crate::statement!("sql/plan.sql");
pub(super) const LAST: Statement = crate::statement!("sql/last.sql");
pub(super) const STEP: Statement = crate::statement!("sql/step.sql");
pub(super) const ENDED: Statement = crate::statement!("sql/ended.sql");

/// Jobs of one batch of a plan that are looked at.
const STEP_MOST: i64 = 500;
/// Jobs that a plan looks at to count: beyond them it says "this many or more".
const PLAN_MOST: i64 = 100_000;

/// An id of this engine; another engine's is simply not found here.
fn key(id: &JobId) -> Option<i64> {
    id.as_str().parse().ok().filter(|key| *key > 0)
}

/// Acts on jobs; answers in the order of the ids.
pub(crate) async fn act(tx: &mut dyn Tx, act: Act, ids: &[JobId]) -> Result<Vec<Effect>, Error> {
    let statement = match act {
        Act::Cancel => &CANCEL,
        Act::Retry => &RETRY,
        Act::Delete => &DELETE,
    };
    let keys: Vec<i64> = ids.iter().filter_map(key).collect();
    let mut effects = HashMap::new();
    if !keys.is_empty() {
        for row in tx.run(statement, &[Arg::Ints(&keys)]).await? {
            effects.insert(row.int(0)?, effect(statement, &row)?);
        }
    }
    let of = |id| key(id).and_then(|key| effects.get(&key).copied()).unwrap_or(Effect::Unknown);
    Ok(ids.iter().map(of).collect())
}

fn effect(statement: &'static Statement, row: &Row) -> Result<Effect, Error> {
    let wrong = Error::Row { statement: statement.name, column: 1, expected: "an effect" };
    Ok(match row.text(1)? {
        "done" => Effect::Done,
        "requested" => Effect::Requested,
        "running" => Effect::Running,
        "gone" => Effect::Gone,
        "unknown" => Effect::Unknown,
        "already" => Effect::Already(row.opt(2).and_then(State::named).ok_or(wrong)?),
        _ => return Err(wrong),
    })
}

pub(crate) async fn pause(tx: &mut dyn Tx, queue: &str, paused: bool) -> Result<(), Error> {
    let paused = if paused { "true" } else { "false" };
    tx.run(&PAUSE, &[Arg::Text(queue), Arg::Text(paused)]).await.map(drop)
}

#[derive(Serialize)]
struct FilterJson<'a> {
    kind: Option<&'a str>,
    queue: Option<&'a str>,
    owner: Option<&'a str>,
    subscription: Option<&'a str>,
    order_key: Option<&'a str>,
    limit_key: Option<&'a str>,
    tags: &'a [String],
    states: Vec<&'static str>,
    from: Option<Timestamp>,
    to: Option<Timestamp>,
    args: Option<&'a Payload>,
}

/// A filter as SQL takes it.
pub(crate) fn filter_json(filter: &Filter) -> Result<Payload, Error> {
    let states: Vec<&str> = filter.states.iter().map(|state| state.name()).collect();
    Ok(Payload::of_trusted(&FilterJson {
        kind: filter.kind.as_deref(),
        queue: filter.queue.as_deref(),
        owner: filter.owner.as_deref(),
        subscription: filter.subscription.as_deref(),
        order_key: filter.order_key.as_deref(),
        limit_key: filter.limit_key.as_deref(),
        tags: &filter.tags,
        states,
        from: filter.from,
        to: filter.to,
        args: filter.args.as_ref(),
    })?)
}

pub(crate) async fn plan(tx: &mut dyn Tx, act: Act, filter: &Filter) -> Result<Plan, Error> {
    let plan = |count, exact, last| Plan { act, filter: filter.clone(), count, exact, last };
    let newest = tx.run(&LAST, &[]).await?;
    let Some(last) = newest.first().and_then(|row| row.opt(0)).and_then(|text| text.parse::<i64>().ok()) else {
        return Ok(plan(0, true, None));
    };
    let filter = filter_json(filter)?;
    let rows = tx.run(&PLAN, &[Arg::Text(filter.as_str()), Arg::Int(last), Arg::Int(PLAN_MOST)]).await?;
    let row = rows.first().ok_or(Error::Row { statement: PLAN.name, column: 0, expected: "one row" })?;
    let exact = row.opt(1).and_then(|text| text.parse::<i64>().ok()).is_none_or(|looked| looked >= last);
    Ok(plan(u64::try_from(row.int(0)?).unwrap_or(0), exact, Some(JobId::new(last.to_string()))))
}

/// The next batch of a plan, in a transaction of its own.
pub(crate) async fn step(pool: &PgPool, plan: &Plan, after: Option<&JobId>) -> Result<Step, Error> {
    let Some(last) = plan.last.as_ref().and_then(key) else { return Ok(Step::default()) };
    let after = after.and_then(key).unwrap_or(0);
    let mut tx = pool.begin().await.map_err(Error::connecting)?;
    let filter = filter_json(&plan.filter)?;
    let args = [Arg::Text(filter.as_str()), Arg::Int(after), Arg::Int(last), Arg::Int(STEP_MOST)];
    let mut found = Vec::new();
    let mut looked = None;
    for row in (*tx).run(&STEP, &args).await? {
        let id = JobId::new(row.text(0)?);
        if row.opt(1).is_some() { found.push(id) } else { looked = Some(id) }
    }
    let effects = act(&mut *tx, plan.act, &found).await?;
    tx.commit().await.map_err(|e| Error::from_sqlx(STEP.name, e))?;
    let done = effects.iter().filter(|effect| matches!(effect, Effect::Done | Effect::Requested)).count() as u64;
    Ok(Step { done, skipped: found.len() as u64 - done, next: looked.filter(|id| key(id).is_some_and(|k| k < last)) })
}

/// Which of these jobs have ended.
pub(crate) async fn ended(tx: &mut dyn Tx, ids: &[i64]) -> Result<Vec<i64>, Error> {
    tx.run(&ENDED, &[Arg::Ints(ids)]).await?.iter().map(|row| row.int(0)).collect()
}
