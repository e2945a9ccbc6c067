use postrider_contract::{Deprecated, EventId, Exposure, Payload, Timestamp, TypeVersion, Validation};
use sqlx::PgPool;

use crate::error::Error;
use crate::pg::{Arg, Row, Statement, Tx as _, borrow};

pub(super) const TYPES: Statement = crate::statement!("sql/types.sql");
pub(super) const VERSION: Statement = crate::statement!("sql/version.sql");
pub(super) const MISMATCHES: Statement = crate::statement!("sql/mismatches.sql");

/// An event type as it stands in the catalogue.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TypeView {
    /// Its name.
    pub name: String,
    /// What it means.
    pub description: String,
    /// Who may see it.
    pub exposure: Exposure,
    /// The form of its subjects.
    pub subject: Option<String>,
    /// What becomes of data that do not fit.
    pub validation: Validation,
    /// The version that events follow unless they say another one.
    pub version: Option<i16>,
    /// Every version that there ever was.
    pub versions: Vec<i16>,
    /// Set when it is on its way out.
    pub deprecated: Option<Deprecated>,
    /// How many of the events that are kept were recorded although their data did not fit.
    pub mismatches: u64,
    /// The application that declared it.
    pub declared_by: String,
    /// The generation of that declaration.
    pub generation: i64,
}

/// An event that was recorded although its data did not fit.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Mismatch {
    /// The event.
    pub event: EventId,
    /// The version that its data were to follow.
    pub version: i16,
    /// What did not fit, with its JSON pointer.
    pub problem: String,
    /// When it was recorded.
    pub recorded_at: Timestamp,
}

/// The event types of the instance, whoever declared them.
#[derive(Debug, Clone)]
pub struct Types {
    pool: PgPool,
}

impl Types {
    /// Over a pool.
    pub fn new(pool: PgPool) -> Self {
        Self { pool }
    }

    /// All of them, by name.
    pub async fn list(&self) -> Result<Vec<TypeView>, Error> {
        let mut connection = borrow(&self.pool).await?;
        let mut all: Vec<TypeView> = Vec::new();
        loop {
            let after = all.last().map_or(String::new(), |view| view.name.clone());
            let page = connection.run(&TYPES, &[Arg::Text(&after)]).await?;
            if page.is_empty() {
                return Ok(all);
            }
            for row in &page {
                all.push(view(row)?);
            }
        }
    }

    /// One version of a type, or `None` if there is none.
    pub async fn version(&self, name: &str, version: i16) -> Result<Option<TypeVersion>, Error> {
        let rows = borrow(&self.pool).await?.run(&VERSION, &[Arg::Text(name), Arg::Int(version.into())]).await?;
        let found = |row: &Row| {
            let payload = |column| row.text(column).map(Payload::trusted);
            Ok(TypeVersion { version, schema: payload(0)?, example: payload(1)?, breaking: row.text(2)? == "true" })
        };
        rows.first().map(found).transpose()
    }

    /// The newest events of a type that were recorded although their data did not fit, at most so many.
    pub async fn mismatches(&self, name: &str, most: u16) -> Result<Vec<Mismatch>, Error> {
        let rows = borrow(&self.pool).await?.run(&MISMATCHES, &[Arg::Text(name), Arg::Int(most.into())]).await?;
        let mismatch = |row: &Row| {
            Ok(Mismatch {
                event: row.text(0)?.parse().map_err(|_| wrong(&MISMATCHES, 0, "a uuid"))?,
                version: number(&MISMATCHES, row, 1)?,
                problem: row.text(2)?.to_owned(),
                recorded_at: Timestamp::from_micros(row.int(3)?),
            })
        };
        rows.iter().map(mismatch).collect()
    }
}

fn wrong(statement: &'static Statement, column: usize, expected: &'static str) -> Error {
    Error::Row { statement: statement.name, column, expected }
}

fn number(statement: &'static Statement, row: &Row, column: usize) -> Result<i16, Error> {
    row.text(column)?.parse().map_err(|_| wrong(statement, column, "a version"))
}

fn view(row: &Row) -> Result<TypeView, Error> {
    let deprecated = row.opt(7).map(|on| Deprecated {
        on: on.to_owned(),
        note: row.opt(8).unwrap_or_default().to_owned(),
        replaced_by: row.opt(9).map(str::to_owned),
    });
    let versions = row.text(6)?.split(',').filter(|n| !n.is_empty()).map(str::parse);
    Ok(TypeView {
        name: row.text(0)?.to_owned(),
        description: row.text(1)?.to_owned(),
        exposure: if row.text(2)? == "public" { Exposure::Public } else { Exposure::Internal },
        subject: row.opt(3).map(str::to_owned),
        validation: match row.text(4)? {
            "off" => Validation::Off,
            "warn" => Validation::Warn,
            "enforce" => Validation::Enforce,
            _ => return Err(wrong(&TYPES, 4, "a validation")),
        },
        version: row.opt(5).map(|_| number(&TYPES, row, 5)).transpose()?,
        versions: versions.collect::<Result<_, _>>().map_err(|_| wrong(&TYPES, 6, "versions"))?,
        deprecated,
        mismatches: u64::try_from(row.int(10)?).unwrap_or(0),
        declared_by: row.text(11)?.to_owned(),
        generation: row.int(12)?,
    })
}
