use postrider::{Arg, Borrowed, Row, Statement, Timestamp, Tx, statement};
use postrider_contract::signature::Secret;
use postrider_contract::{Code, Refused};
use sqlx::PgPool;
use uuid::{Builder, Uuid};

use super::{Attempt, Delivery, Disabled, Endpoint, EndpointId, NewEndpoint};
use crate::deliver::KIND;
use crate::dice;
use crate::error::Error;
use crate::seal::Seal;
use crate::target::Target;

const CREATE: Statement = statement!("sql/create.sql");
const CREATE_SECRET: Statement = statement!("sql/create_secret.sql");
const LIST: Statement = statement!("sql/list.sql");
const DISABLE: Statement = statement!("sql/disable.sql");
const ENABLE: Statement = statement!("sql/enable.sql");
const DELETE: Statement = statement!("sql/delete.sql");
const DELIVERIES: Statement = statement!("sql/deliveries.sql");
const ATTEMPTS: Statement = statement!("sql/attempts.sql");

pub(super) const STATEMENTS: &[&Statement] =
    &[&CREATE, &CREATE_SECRET, &LIST, &DISABLE, &ENABLE, &DELETE, &DELIVERIES, &ATTEMPTS];

const ROWS_MAX: u32 = 200;

pub(crate) async fn connection(pool: &PgPool) -> Result<Borrowed, Error> {
    postrider::borrow(pool).await.map_err(Error::Bus)
}

/// The row that a sealed secret belongs to: the endpoint stands in it, so that a secret cannot be given to another one.
pub(crate) fn secret_place(id: Uuid, endpoint: EndpointId) -> String {
    format!("{id}/{endpoint}")
}

pub(super) async fn create(
    pool: &PgPool,
    new: &NewEndpoint,
    target: &Target,
    (seal, secret): (&Seal, &Secret),
) -> Result<EndpointId, Error> {
    let failed = |e| Error::Bus(postrider::Error::Connection(e));
    let mut tx = pool.begin().await.map_err(failed)?;
    let types: Vec<&str> = new.types.iter().map(String::as_str).collect();
    let timeout_ms = i64::try_from(new.timeout.as_millis()).unwrap_or(i64::MAX);
    let args = [
        Arg::Text(&new.name),
        Arg::Text(&new.owner),
        Arg::Text(target.as_str()),
        Arg::Texts(&types),
        Arg::Text(KIND),
        Arg::Int(timeout_ms),
        Arg::Int(new.max_attempts.into()),
    ];
    let created = tx.run(&CREATE, &args).await.map_err(|e| name_taken(e, &new.name))?;
    let id = EndpointId(only(&CREATE, &created)?.int(0)?);

    let secret_id = Builder::from_random_bytes(dice::bytes()?).into_uuid();
    let row = secret_place(secret_id, id);
    let sealed = seal.seal(crate::seal::secret(&row), secret.as_bytes(), dice::bytes()?)?;
    let (secret_id, key_id) = (secret_id.to_string(), sealed.key_id.as_str());
    let args = [Arg::Text(&secret_id), Arg::Int(id.0), Arg::Bytes(&sealed.bytes), Arg::Text(key_id)];
    tx.run(&CREATE_SECRET, &args).await?;
    tx.commit().await.map_err(failed)?;
    Ok(id)
}

fn name_taken(error: postrider::Error, name: &str) -> Error {
    if let postrider::Error::Database { source: sqlx::Error::Database(db), .. } = &error
        && db.constraint() == Some("an_owner_names_an_endpoint_once")
    {
        let message = format!("{name:?} is already the name of an endpoint of this owner");
        return Refused::new(Code::Conflict, "name", message, "choose another name, or delete that endpoint").into();
    }
    error.into()
}

pub(super) async fn list(pool: &PgPool, id: Option<EndpointId>) -> Result<Vec<Endpoint>, Error> {
    // 0 is no endpoint's id.
    let id = id.map_or(0, |id| id.0);
    let rows = connection(pool).await?.run(&LIST, &[Arg::Int(id)]).await?;
    rows.iter().map(endpoint).collect()
}

fn endpoint(row: &Row) -> Result<Endpoint, Error> {
    let types: Vec<String> = serde_json::from_str(row.text(4)?).unwrap_or_default();
    Ok(Endpoint {
        id: EndpointId(row.int(0)?),
        name: row.text(1)?.to_owned(),
        owner: row.text(2)?.to_owned(),
        url: row.text(3)?.to_owned(),
        types,
        timeout_ms: row.int(5)?,
        max_attempts: row.int(6)?,
        created_at: moment(row, 7)?,
        disabled: match row.opt(8) {
            Some(_) => Some(Disabled { at: moment(row, 8)?, reason: row.text(9)?.to_owned() }),
            None => None,
        },
    })
}

pub(crate) async fn disable(tx: &mut dyn Tx, id: EndpointId, reason: &str) -> Result<bool, Error> {
    let reason = crate::storable::text(reason.as_bytes());
    Ok(!tx.run(&DISABLE, &[Arg::Int(id.0), Arg::Text(&reason)]).await?.is_empty())
}

pub(super) async fn enable(pool: &PgPool, id: EndpointId) -> Result<bool, Error> {
    Ok(!connection(pool).await?.run(&ENABLE, &[Arg::Int(id.0)]).await?.is_empty())
}

pub(super) async fn delete(pool: &PgPool, id: EndpointId) -> Result<bool, Error> {
    Ok(!connection(pool).await?.run(&DELETE, &[Arg::Int(id.0)]).await?.is_empty())
}

pub(super) async fn deliveries(pool: &PgPool, most: u32) -> Result<Vec<Delivery>, Error> {
    let args = [Arg::Int(most.min(ROWS_MAX).into()), Arg::Text(KIND)];
    let rows = connection(pool).await?.run(&DELIVERIES, &args).await?;
    rows.iter().map(delivery).collect()
}

fn delivery(row: &Row) -> Result<Delivery, Error> {
    Ok(Delivery {
        id: row.text(0)?.to_owned(),
        endpoint: EndpointId(row.int(1)?),
        endpoint_name: row.text(2)?.to_owned(),
        state: row.text(3)?.to_owned(),
        attempts: row.int(4)?,
        status: int(row, 5)?,
        reason: row.opt(6).map(str::to_owned),
        created_at: moment(row, 7)?,
        finished_at: row.opt(8).map(|_| moment(row, 8)).transpose()?,
    })
}

pub(super) async fn attempts(pool: &PgPool, most: u32) -> Result<Vec<Attempt>, Error> {
    let rows = connection(pool).await?.run(&ATTEMPTS, &[Arg::Int(most.min(ROWS_MAX).into())]).await?;
    rows.iter().map(attempt).collect()
}

fn attempt(row: &Row) -> Result<Attempt, Error> {
    Ok(Attempt {
        delivery: row.text(0)?.to_owned(),
        endpoint: int(row, 1)?.map(EndpointId),
        event: row.opt(2).map(str::to_owned),
        attempt: row.int(3)?,
        started_at: moment(row, 4)?,
        ended_at: row.opt(5).map(|_| moment(row, 5)).transpose()?,
        outcome: row.opt(6).map(str::to_owned),
        reason: row.opt(7).map(str::to_owned),
        status: int(row, 8)?,
        failure: row.opt(9).map(str::to_owned),
        excerpt: row.opt(10).map(str::to_owned),
        peer: row.opt(11).map(str::to_owned),
        total_us: int(row, 12)?,
    })
}

fn int(row: &Row, column: usize) -> Result<Option<i64>, Error> {
    Ok(row.opt(column).map(|_| row.int(column)).transpose()?)
}

fn moment(row: &Row, column: usize) -> Result<Timestamp, Error> {
    Ok(Timestamp::from_micros(row.int(column)?))
}

fn only<'a>(statement: &'static Statement, rows: &'a [Row]) -> Result<&'a Row, Error> {
    let missing = postrider::Error::Row { statement: statement.name, column: 0, expected: "one row" };
    rows.first().ok_or(Error::Bus(missing))
}
