use postrider::{Arg, Borrowed, Row, Statement, Timestamp, Tx, statement};
use postrider_contract::signature::Secret;
use sqlx::{PgPool, Postgres, Transaction};
use uuid::{Builder, Uuid};

use super::rotation::{KeyKind, SecretView};
use super::skew::{clock_note, clock_skew};
use super::view::Told;
use super::{Attempt, Delivery, EndpointId, Figure, NewEndpoint, ScopeView, WouldGet};
use crate::deliver::KIND;
use crate::dice;
use crate::error::Error;
use crate::headers::Headers;
use crate::seal::{Place, Seal, Sealed};
use crate::target::Target;

const NEXT_ID: Statement = statement!("sql/next_id.sql");
const PUT: Statement = statement!("sql/put.sql");
const CREATE_SECRET: Statement = statement!("sql/create_secret.sql");
const LIST: Statement = statement!("sql/list.sql");
const ENABLE: Statement = statement!("sql/enable.sql");
const DISABLE: Statement = statement!("sql/disable.sql");
const RESUME: Statement = statement!("sql/resume.sql");
const DELETE: Statement = statement!("sql/delete.sql");
const WHO_WOULD_GET: Statement = statement!("sql/who_would_get.sql");
const SET_SCOPE: Statement = statement!("sql/set_scope.sql");
const SCOPE: Statement = statement!("sql/scope.sql");
const ROTATE: Statement = statement!("sql/rotate.sql");
const SECRETS: Statement = statement!("sql/secrets.sql");
const DELIVERIES: Statement = statement!("sql/deliveries.sql");
const ATTEMPTS: Statement = statement!("sql/attempts.sql");
const FIGURES: Statement = statement!("sql/figures.sql");

pub(super) const STATEMENTS: &[&Statement] = &[
    &NEXT_ID,
    &PUT,
    &CREATE_SECRET,
    &LIST,
    &ENABLE,
    &DISABLE,
    &RESUME,
    &DELETE,
    &WHO_WOULD_GET,
    &SET_SCOPE,
    &SCOPE,
    &ROTATE,
    &SECRETS,
    &DELIVERIES,
    &ATTEMPTS,
    &FIGURES,
];

const ROWS_MAX: u32 = 200;

pub(crate) async fn connection(pool: &PgPool) -> Result<Borrowed, Error> {
    postrider::borrow(pool).await.map_err(Error::Bus)
}

/// The row that a sealed secret belongs to: the endpoint stands in it, so that a secret cannot be given to another one.
pub(crate) fn secret_place(id: Uuid, endpoint: EndpointId) -> String {
    format!("{id}/{endpoint}")
}

/// Where the headers of an endpoint stand.
pub(crate) const fn headers_place(row: &str) -> Place<'_> {
    Place { table: "endpoint", row }
}

fn failed(error: sqlx::Error) -> Error {
    Error::Bus(postrider::Error::Connection(error))
}

/// A transaction of these statements' own.
pub(super) async fn begin(pool: &PgPool) -> Result<Transaction<'static, Postgres>, Error> {
    pool.begin().await.map_err(failed)
}

pub(super) async fn commit(tx: Transaction<'static, Postgres>) -> Result<(), Error> {
    tx.commit().await.map_err(failed)
}

pub(super) async fn create(
    pool: &PgPool,
    new: &NewEndpoint,
    target: &Target,
    (seal, secret): (&Seal, &Secret),
) -> Result<EndpointId, Error> {
    let mut tx = begin(pool).await?;
    let id = EndpointId(only(&NEXT_ID, &tx.run(&NEXT_ID, &[]).await?)?.int(0)?);
    let headers = seal_headers(seal, id, &new.headers)?;
    let names: Vec<String> = new.headers.names().map(str::to_owned).collect();
    put(&mut *tx, (id, None), &new.fields(target.as_str(), &names).to_string(), headers.as_ref()).await?;

    let (secret_id, sealed) = seal_secret(seal, id, secret.as_bytes())?;
    let secret_id = secret_id.to_string();
    let args = [Arg::Text(&secret_id), Arg::Int(id.0), Arg::Bytes(&sealed.bytes), Arg::Text(&sealed.key_id)];
    tx.run(&CREATE_SECRET, &args).await?;
    commit(tx).await?;
    Ok(id)
}

/// Saves all fields; false if the endpoint is not there with this revision any more.
pub(super) async fn put(
    tx: &mut dyn Tx,
    (id, revision): (EndpointId, Option<i64>),
    fields: &str,
    headers: Option<&Sealed>,
) -> Result<bool, Error> {
    let revision = revision.map(|revision| revision.to_string());
    let args = [
        Arg::Int(id.0),
        revision.as_deref().map_or(Arg::Null, Arg::Text),
        Arg::Text(fields),
        Arg::Bytes(headers.map(|sealed| sealed.bytes.as_slice()).unwrap_or_default()),
        headers.map_or(Arg::Null, |sealed| Arg::Text(&sealed.key_id)),
    ];
    Ok(only(&PUT, &tx.run(&PUT, &args).await?)?.opt(0).is_some())
}

pub(super) fn seal_headers(seal: &Seal, id: EndpointId, headers: &Headers) -> Result<Option<Sealed>, Error> {
    if headers.is_empty() {
        return Ok(None);
    }
    let text = serde_json::to_vec(headers.pairs()).unwrap_or_default();
    Ok(Some(seal.seal(headers_place(&id.to_string()), &text, dice::bytes()?)?))
}

/// A new row's id and what stands in it.
pub(super) fn seal_secret(seal: &Seal, endpoint: EndpointId, bytes: &[u8]) -> Result<(Uuid, Sealed), Error> {
    let id = Builder::from_random_bytes(dice::bytes()?).into_uuid();
    let row = secret_place(id, endpoint);
    Ok((id, seal.seal(crate::seal::secret(&row), bytes, dice::bytes()?)?))
}

/// Which endpoints are asked for.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Asked<'a> {
    pub(super) id: Option<EndpointId>,
    pub(super) owner: Option<&'a str>,
    pub(super) after: i64,
    pub(super) most: i64,
}

pub(super) async fn list(tx: &mut dyn Tx, asked: Asked<'_>) -> Result<Vec<Told>, Error> {
    let id = asked.id.map(|id| id.to_string());
    let text = |text: Option<&'_ str>| -> Option<String> { text.map(str::to_owned) };
    let owner = text(asked.owner);
    let args = [
        id.as_deref().map_or(Arg::Null, Arg::Text),
        owner.as_deref().map_or(Arg::Null, Arg::Text),
        Arg::Int(asked.after),
        Arg::Int(asked.most),
    ];
    let rows = tx.run(&LIST, &args).await?;
    let wrong = |_| Error::Bus(postrider::Error::Row { statement: LIST.name, column: 0, expected: "an endpoint" });
    rows.iter().map(|row| serde_json::from_str(row.text(0)?).map_err(wrong)).collect()
}

pub(crate) async fn disable(tx: &mut dyn Tx, id: EndpointId, reason: &str) -> Result<bool, Error> {
    let reason = crate::storable::text(reason.as_bytes());
    said(&DISABLE, &tx.run(&DISABLE, &[Arg::Int(id.0), Arg::Text(&reason)]).await?)
}

pub(super) async fn enable(pool: &PgPool, id: EndpointId) -> Result<bool, Error> {
    said(&ENABLE, &connection(pool).await?.run(&ENABLE, &[Arg::Int(id.0)]).await?)
}

pub(super) async fn resume(pool: &PgPool, id: EndpointId) -> Result<bool, Error> {
    said(&RESUME, &connection(pool).await?.run(&RESUME, &[Arg::Int(id.0)]).await?)
}

pub(super) async fn delete(pool: &PgPool, id: EndpointId) -> Result<bool, Error> {
    said(&DELETE, &connection(pool).await?.run(&DELETE, &[Arg::Int(id.0)]).await?)
}

pub(super) async fn who_would_get(pool: &PgPool, of: [&str; 4]) -> Result<Vec<WouldGet>, Error> {
    let rows = connection(pool).await?.run(&WHO_WOULD_GET, &of.map(Arg::Text)).await?;
    let would = |row: &Row| {
        Ok(WouldGet {
            id: EndpointId(row.int(0)?),
            name: row.text(1)?.to_owned(),
            url: row.text(2)?.to_owned(),
            state: row.text(3)?.to_owned(),
        })
    };
    rows.iter().map(would).collect()
}

pub(super) async fn set_scope(pool: &PgPool, function: Option<&str>) -> Result<(), Error> {
    connection(pool).await?.run(&SET_SCOPE, &[function.map_or(Arg::Null, Arg::Text)]).await?;
    Ok(())
}

pub(super) async fn scope(pool: &PgPool) -> Result<Option<ScopeView>, Error> {
    let rows = connection(pool).await?.run(&SCOPE, &[]).await?;
    let view = |row: &Row| {
        Ok(ScopeView {
            function: row.text(0)?.to_owned(),
            declared_at: moment(row, 1)?,
            failures: row.int(2)?,
            failed_at: row.opt(3).map(|_| moment(row, 3)).transpose()?,
            error: row.opt(4).map(str::to_owned),
        })
    };
    rows.first().map(view).transpose()
}

pub(super) async fn rotate(
    tx: &mut dyn Tx,
    endpoint: EndpointId,
    (kind, overlap_ms): (KeyKind, i64),
    (id, sealed): (Uuid, &Sealed),
) -> Result<bool, Error> {
    let id = id.to_string();
    let args = [
        Arg::Int(endpoint.0),
        Arg::Text(&id),
        Arg::Text(kind.name()),
        Arg::Bytes(&sealed.bytes),
        Arg::Text(&sealed.key_id),
        Arg::Int(overlap_ms),
    ];
    said(&ROTATE, &tx.run(&ROTATE, &args).await?)
}

pub(super) async fn secrets(pool: &PgPool, endpoint: EndpointId) -> Result<Vec<(SecretView, Sealed)>, Error> {
    let rows = connection(pool).await?.run(&SECRETS, &[Arg::Int(endpoint.0)]).await?;
    rows.iter().map(secret).collect()
}

fn secret(row: &Row) -> Result<(SecretView, Sealed), Error> {
    let wrong = |column, expected| Error::Bus(postrider::Error::Row { statement: SECRETS.name, column, expected });
    let view = SecretView {
        id: row.text(0)?.parse().map_err(|_| wrong(0, "a uuid"))?,
        kind: KeyKind::of(row.text(1)?).ok_or_else(|| wrong(1, "v1 or v1a"))?,
        valid_from: moment(row, 2)?,
        valid_until: row.opt(3).map(|_| moment(row, 3)).transpose()?,
        public_key: None,
    };
    let bytes = crate::storable::unbase64(row.text(5)?).ok_or_else(|| wrong(5, "base64"))?;
    Ok((view, Sealed { key_id: row.text(4)?.to_owned(), bytes }))
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

pub(super) async fn attempts(pool: &PgPool, endpoint: Option<EndpointId>, most: u32) -> Result<Vec<Attempt>, Error> {
    // 0 is no endpoint's id.
    let args = [Arg::Int(most.min(ROWS_MAX).into()), Arg::Int(endpoint.map_or(0, |id| id.0))];
    let rows = connection(pool).await?.run(&ATTEMPTS, &args).await?;
    rows.iter().map(attempt).collect()
}

pub(super) async fn figures(pool: &PgPool) -> Result<Vec<Figure>, Error> {
    let rows = connection(pool).await?.run(&FIGURES, &[]).await?;
    let text = |row: &Row, column| row.text(column).map(str::to_owned);
    let figure = |row: &Row| {
        Ok(Figure { name: text(row, 0)?, unit: text(row, 1)?, attribute: text(row, 2)?, value: row.int(3)? })
    };
    rows.iter().map(figure).collect()
}

fn attempt(row: &Row) -> Result<Attempt, Error> {
    let (started_at, ended_at) = (moment(row, 4)?, row.opt(5).map(|_| moment(row, 5)).transpose()?);
    let clock_skew_s = row.opt(15).zip(ended_at).and_then(|(date, ended_at)| clock_skew(date, started_at, ended_at));
    Ok(Attempt {
        delivery: row.text(0)?.to_owned(),
        endpoint: int(row, 1)?.map(EndpointId),
        event: row.opt(2).map(str::to_owned),
        attempt: row.int(3)?,
        started_at,
        ended_at,
        clock_skew_s,
        clock_note: clock_skew_s.and_then(clock_note),
        outcome: row.opt(6).map(str::to_owned),
        reason: row.opt(7).map(str::to_owned),
        status: int(row, 8)?,
        failure: row.opt(9).map(str::to_owned),
        excerpt: row.opt(10).map(str::to_owned),
        peer: row.opt(11).map(str::to_owned),
        total_us: int(row, 12)?,
        trigger: row.text(13)?.to_owned(),
        sent_as: row.opt(14).map(str::to_owned),
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

/// The answer of a function that says whether it did something.
fn said(statement: &'static Statement, rows: &[Row]) -> Result<bool, Error> {
    Ok(only(statement, rows)?.opt(0) == Some("true"))
}
