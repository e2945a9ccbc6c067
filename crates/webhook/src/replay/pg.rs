use postrider::{Arg, Row, Statement, Timestamp, Tx as _, statement};
use postrider_contract::{Code, Refused};
use sqlx::PgPool;

use super::{NewReplay, Redelivered, Replay, ReplayId};
use crate::endpoint::{EndpointId, connection};
use crate::error::Error;

const REDELIVER: Statement = statement!("sql/redeliver.sql");
const REDELIVER_DISCARDED: Statement = statement!("sql/redeliver_discarded.sql");
const PLAN: Statement = statement!("sql/plan.sql");
const START: Statement = statement!("sql/start.sql");
const PAUSE: Statement = statement!("sql/pause.sql");
const STEP: Statement = statement!("sql/step.sql");
const LIST: Statement = statement!("sql/list.sql");
const SEND_TEST: Statement = statement!("sql/send_test.sql");

pub(super) const STATEMENTS: &[&Statement] =
    &[&REDELIVER, &REDELIVER_DISCARDED, &PLAN, &START, &PAUSE, &STEP, &LIST, &SEND_TEST];

pub(super) async fn redeliver(pool: &PgPool, delivery: &str, as_new: bool) -> Result<Redelivered, Error> {
    let id: i64 = delivery.parse().map_err(|_| {
        Refused::new(Code::Option, "delivery", "it is not the id of a delivery", "use an id that deliveries() tells")
    })?;
    let rows = connection(pool).await?.run(&REDELIVER, &[Arg::Int(id), Arg::Int(as_new.into())]).await?;
    let row = only(&REDELIVER, &rows)?;
    Ok(Redelivered { effect: row.text(0)?.to_owned(), delivery: row.opt(1).map(str::to_owned) })
}

/// How many, and where to go on.
pub(super) async fn redeliver_discarded(
    pool: &PgPool,
    id: EndpointId,
    after: i64,
) -> Result<(u64, Option<i64>), Error> {
    let rows = connection(pool).await?.run(&REDELIVER_DISCARDED, &[Arg::Int(id.0), Arg::Int(after)]).await?;
    let row = only(&REDELIVER_DISCARDED, &rows)?;
    Ok((u64::try_from(row.int(0)?).unwrap_or_default(), row.opt(1).map(|_| row.int(1)).transpose()?))
}

pub(super) async fn plan(pool: &PgPool, id: EndpointId, new: &NewReplay) -> Result<Option<Replay>, Error> {
    if new.predicate.as_ref().is_some_and(|path| path.contains('\0')) {
        let remedy = "write a path that is true or false, such as $.total > 100";
        return Err(Refused::new(Code::Option, "predicate", "it has NUL in it", remedy).into());
    }
    for pattern in new.types.iter().flatten() {
        postrider_contract::Pattern::parse(pattern)?;
    }
    let types: Vec<&str> = new.types.iter().flatten().map(String::as_str).collect();
    let args = [
        Arg::Int(id.0),
        Arg::Int(new.from.as_micros()),
        Arg::Int(new.to.as_micros()),
        Arg::Texts(&types),
        new.predicate.as_deref().map_or(Arg::Null, Arg::Text),
        Arg::Int(new.per_second.into()),
    ];
    connection(pool).await?.run(&PLAN, &args).await?.first().map(replay).transpose()
}

pub(super) async fn start(pool: &PgPool, id: ReplayId) -> Result<bool, Error> {
    let rows = connection(pool).await?.run(&START, &[Arg::Int(id.0)]).await?;
    Ok(only(&START, &rows)?.opt(0) == Some("true"))
}

pub(super) async fn pause(pool: &PgPool, id: ReplayId) -> Result<bool, Error> {
    let rows = connection(pool).await?.run(&PAUSE, &[Arg::Int(id.0)]).await?;
    Ok(only(&PAUSE, &rows)?.opt(0) == Some("true"))
}

/// One step; the state after it.
pub(super) async fn step(pool: &PgPool, id: i64) -> Result<String, Error> {
    let rows = connection(pool).await?.run(&STEP, &[Arg::Int(id)]).await?;
    Ok(only(&STEP, &rows)?.text(0)?.to_owned())
}

pub(super) async fn list(pool: &PgPool, id: EndpointId) -> Result<Vec<Replay>, Error> {
    connection(pool).await?.run(&LIST, &[Arg::Int(id.0)]).await?.iter().map(replay).collect()
}

pub(super) async fn send_test(pool: &PgPool, id: EndpointId) -> Result<Option<String>, Error> {
    let rows = connection(pool).await?.run(&SEND_TEST, &[Arg::Int(id.0)]).await?;
    Ok(only(&SEND_TEST, &rows)?.opt(0).map(str::to_owned))
}

fn replay(row: &Row) -> Result<Replay, Error> {
    Ok(Replay {
        id: ReplayId(row.int(0)?),
        endpoint: EndpointId(row.int(1)?),
        state: row.text(2)?.to_owned(),
        planned: row.int(3)?,
        made: row.int(4)?,
        per_second: row.int(5)?,
        created_at: Timestamp::from_micros(row.int(6)?),
        ended_at: row.opt(7).map(|_| row.int(7).map(Timestamp::from_micros)).transpose()?,
    })
}

fn only<'a>(statement: &'static Statement, rows: &'a [Row]) -> Result<&'a Row, Error> {
    let missing = postrider::Error::Row { statement: statement.name, column: 0, expected: "one row" };
    rows.first().ok_or(Error::Bus(missing))
}
