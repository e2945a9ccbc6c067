use postrider_contract::{EventId, JobId, Timestamp};
use sqlx::PgPool;

use super::{Fanout, Poison, Verified};
use crate::error::Error;
use crate::pg::{Arg, Row, Statement, Tx as _, borrow};

const POISON: Statement = crate::statement!("sql/poison.sql");
const REQUEUE: Statement = crate::statement!("sql/requeue.sql");
const DROP_POISON: Statement = crate::statement!("sql/drop_poison.sql");
const VERIFY: Statement = crate::statement!("sql/verify.sql");
const AWAIT_FANOUT: Statement = crate::statement!("sql/await_fanout.sql");
const ERASE: Statement = crate::statement!("sql/erase.sql");
const PAUSE_OUTBOUND: Statement = crate::statement!("sql/pause_outbound.sql");
const RESUME_OUTBOUND: Statement = crate::statement!("sql/resume_outbound.sql");
const NAME_INSTANCE: Statement = crate::statement!("sql/name_instance.sql");

pub(super) const STATEMENTS: &[&Statement] = &[
    &POISON,
    &REQUEUE,
    &DROP_POISON,
    &VERIFY,
    &AWAIT_FANOUT,
    &ERASE,
    &PAUSE_OUTBOUND,
    &RESUME_OUTBOUND,
    &NAME_INSTANCE,
];

async fn rows(pool: &PgPool, statement: &'static Statement, args: &[Arg<'_>]) -> Result<Vec<Row>, Error> {
    borrow(pool).await?.run(statement, args).await
}

async fn one(pool: &PgPool, statement: &'static Statement, args: &[Arg<'_>]) -> Result<Row, Error> {
    let missing = Error::Row { statement: statement.name, column: 0, expected: "one row" };
    rows(pool, statement, args).await?.into_iter().next().ok_or(missing)
}

fn or_null(text: Option<&str>) -> Arg<'_> {
    text.map_or(Arg::Null, Arg::Text)
}

fn count(row: &Row, column: usize) -> Result<u64, Error> {
    Ok(u64::try_from(row.int(column)?).unwrap_or(0))
}

pub(super) async fn poison(pool: &PgPool, most: u32) -> Result<Vec<Poison>, Error> {
    let wrong = || Error::Row { statement: POISON.name, column: 0, expected: "an event id" };
    let of = |row: &Row| {
        Ok(Poison {
            event: row.text(0)?.parse().map_err(|_| wrong())?,
            subscription: row.int(1)?,
            name: row.opt(2).map(str::to_owned),
            error: row.text(3)?.to_owned(),
            since: Timestamp::from_micros(row.int(4)?),
            tries: count(row, 5)?,
            retry_at: row.opt(6).and_then(|text| text.parse().ok()).map(Timestamp::from_micros),
        })
    };
    rows(pool, &POISON, &[Arg::Int(i64::from(most))]).await?.iter().map(of).collect()
}

pub(super) async fn requeue(pool: &PgPool, event: Option<EventId>, subscription: Option<&str>) -> Result<u64, Error> {
    let event = event.map(|event| event.to_string());
    count(&one(pool, &REQUEUE, &[or_null(event.as_deref()), or_null(subscription)]).await?, 0)
}

pub(super) async fn drop_poison(
    pool: &PgPool,
    reason: &str,
    event: Option<EventId>,
    subscription: Option<&str>,
) -> Result<u64, Error> {
    let event = event.map(|event| event.to_string());
    let args = [Arg::Text(reason), or_null(event.as_deref()), or_null(subscription)];
    count(&one(pool, &DROP_POISON, &args).await?, 0)
}

pub(super) async fn verify(pool: &PgPool, from: Option<Timestamp>, to: Option<Timestamp>) -> Result<Verified, Error> {
    let [from, to] = [from, to].map(|at| at.map(|at| at.as_micros().to_string()));
    let row = one(pool, &VERIFY, &[or_null(from.as_deref()), or_null(to.as_deref())]).await?;
    let wrong = Error::Row { statement: VERIFY.name, column: 12, expected: "texts" };
    let passes = row.opt(0).map(|_| Ok::<_, Error>((count(&row, 0)?, count(&row, 1)?))).transpose()?;
    Ok(Verified {
        passes,
        cuts: count(&row, 2)?,
        committed: count(&row, 3)?,
        fanned_out: count(&row, 4)?,
        jobs: count(&row, 5)?,
        missing: count(&row, 6)?,
        twice: count(&row, 7)?,
        broken: count(&row, 8)?,
        altered: count(&row, 9)?,
        unchecked_events: count(&row, 10)?,
        unchecked_jobs: count(&row, 11)?,
        findings: serde_json::from_str(row.text(12)?).map_err(|_| wrong)?,
    })
}

/// `None` while it is not there, or waits for the relay.
pub(super) async fn await_fanout(pool: &PgPool, event: EventId) -> Result<Option<Fanout>, Error> {
    let wrong = |column| Error::Row { statement: AWAIT_FANOUT.name, column, expected: "texts" };
    let row = one(pool, &AWAIT_FANOUT, &[Arg::Text(&event.to_string())]).await?;
    let state = row.text(0)?;
    if state == "waiting" || state == "unknown" {
        return Ok(None);
    }
    let jobs: Vec<String> = serde_json::from_str(row.text(1)?).map_err(|_| wrong(1))?;
    let aside = serde_json::from_str(row.text(2)?).map_err(|_| wrong(2))?;
    let (elsewhere, cancelled) = (state == "elsewhere", state == "cancelled");
    Ok(Some(Fanout { jobs: jobs.into_iter().map(JobId::new).collect(), aside, elsewhere, cancelled }))
}

pub(super) async fn erase(pool: &PgPool, event: EventId, reason: &str) -> Result<bool, Error> {
    let row = one(pool, &ERASE, &[Arg::Text(&event.to_string()), Arg::Text(reason)]).await?;
    Ok(row.text(0)? == "true")
}

pub(super) async fn pause_outbound(pool: &PgPool, reason: &str) -> Result<(), Error> {
    one(pool, &PAUSE_OUTBOUND, &[Arg::Text(reason)]).await.map(drop)
}

pub(super) async fn resume_outbound(pool: &PgPool) -> Result<bool, Error> {
    Ok(one(pool, &RESUME_OUTBOUND, &[]).await?.text(0)? == "true")
}

pub(super) async fn name_instance(pool: &PgPool, name: &str) -> Result<(), Error> {
    one(pool, &NAME_INSTANCE, &[Arg::Text(name)]).await.map(drop)
}
