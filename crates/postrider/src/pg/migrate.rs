//! The schema's own migrations: numbered, forward only, each in one transaction, one process at a time.
//!
//! In: a pool. Out: the schema that this library knows. A kill in the middle leaves whole migrations behind; the next run goes
//! on. A schema that is newer than this library, or a migration that was edited after it ran, is refused.

use std::fmt::Write as _;

use sha2::{Digest, Sha256};
use sqlx::{Connection, Executor, PgConnection, PgPool, Row as _};

use super::{Statement, link, pooler};
use crate::error::Error;

/// A part of the schema that can be left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Component {
    /// Events, jobs, the relay.
    Core,
    /// Endpoints and their deliveries.
    Webhook,
}

impl Component {
    /// Everything.
    pub const ALL: &'static [Self] = &[Self::Core, Self::Webhook];
}

/// One migration.
#[derive(Debug, Clone, Copy)]
pub struct Migration {
    /// Its number; numbers only grow.
    pub number: i32,
    /// What it is about.
    pub name: &'static str,
    /// The part of the schema that it belongs to.
    pub component: Component,
    /// What it runs.
    pub sql: &'static str,
}

macro_rules! migration {
    ($number:literal, $name:literal, $component:ident) => {
        Migration {
            number: $number,
            name: $name,
            component: Component::$component,
            sql: include_str!(concat!("../../migrations/", $name, ".sql")),
        }
    };
}

/// All migrations, in their order.
pub const MIGRATIONS: &[Migration] = &[
    migration!(1, "0001_foundation", Core),
    migration!(2, "0002_declarations", Core),
    migration!(3, "0003_event", Core),
    migration!(4, "0004_job", Core),
    migration!(5, "0005_attempt", Core),
    migration!(6, "0006_tick", Core),
    migration!(7, "0007_relay", Core),
    migration!(8, "0008_housekeep", Core),
    migration!(9, "0009_unique", Core),
    migration!(10, "0010_webhook", Webhook),
    migration!(11, "0011_act", Core),
    migration!(12, "0012_view", Core),
    migration!(13, "0013_lane", Core),
    migration!(14, "0014_schedule", Core),
    migration!(15, "0015_keep", Core),
    migration!(16, "0016_watch", Core),
    migration!(17, "0017_keep_events", Core),
    migration!(18, "0018_take_turns", Core),
    migration!(19, "0019_settle_turns", Core),
    migration!(20, "0020_schema", Core),
    migration!(21, "0021_type", Core),
    migration!(22, "0022_row_capture", Core),
    migration!(23, "0023_declare_watch", Core),
    migration!(24, "0024_set_aside", Core),
    migration!(25, "0025_prove", Core),
    migration!(26, "0026_subscription", Core),
    migration!(27, "0027_fan_out", Core),
    migration!(28, "0028_huge_transaction", Core),
    migration!(29, "0029_delayed_event", Core),
    migration!(30, "0030_endpoint", Webhook),
    migration!(31, "0031_health", Webhook),
    migration!(32, "0032_redeliver", Webhook),
    migration!(33, "0033_tidy_webhooks", Webhook),
    migration!(36, "0036_tag", Core),
];

const PREPARE: &str = include_str!("sql/migrate_prepare.sql");
const FINISH: &str = include_str!("sql/migrate_finish.sql");
pub(super) const LOCK: Statement = crate::statement!("sql/migrate_lock.sql");
pub(super) const EXISTS: Statement = crate::statement!("sql/migrate_exists.sql");
pub(super) const APPLIED: Statement = crate::statement!("sql/migrate_applied.sql");
pub(super) const NOTE: Statement = crate::statement!("sql/migrate_note.sql");

/// How often a migration that waits for a lock is tried, two seconds each.
pub(super) const LOCK_TRIES: usize = 15;

/// A hash over all migrations: equal for equal schemas.
pub fn fingerprint() -> String {
    let mut hash = Sha256::new();
    hash.update(PREPARE);
    hash.update(FINISH);
    for migration in MIGRATIONS {
        hash.update(migration.number.to_be_bytes());
        hash.update(migration.sql);
    }
    hex(&hash.finalize())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// What [`run`] would do, in its order; nothing is changed.
pub async fn plan(pool: &PgPool, components: &[Component]) -> Result<Vec<Migration>, Error> {
    let mut connection = link::connect(&pool.connect_options()).await?;
    let pending = pending_alone(&mut connection, components).await;
    let _ = connection.close().await;
    pending
}

async fn pending_alone(connection: &mut PgConnection, components: &[Component]) -> Result<Vec<Migration>, Error> {
    let failed = |e| Error::from_sqlx("migrate", e);
    let mut tx = pooler::begin(connection).await.map_err(failed)?;
    let pending = pending(&mut tx, components).await?;
    tx.commit().await.map_err(failed)?;
    Ok(pending)
}

/// Brings the schema up to date and answers with what was applied.
///
/// No statement waits longer than 2 s for a lock; a migration that met one is tried again for 30 s.
pub async fn run(pool: &PgPool, components: &[Component]) -> Result<Vec<Migration>, Error> {
    let mut connection = link::connect(&pool.connect_options()).await?;
    let mut applied = Vec::new();
    let mut tries = 0;
    loop {
        match step(&mut connection, components).await {
            Ok(Some(migration)) => {
                applied.push(migration);
                tries = 0;
            }
            Ok(None) => break,
            Err(error) if lock_timeout(&error) && tries < LOCK_TRIES => tries += 1,
            Err(error) => return Err(error),
        }
    }
    let _ = connection.close().await;
    Ok(applied)
}

/// Refuses a schema that is not the one this library knows; the error says what to run.
pub async fn check(pool: &PgPool, components: &[Component]) -> Result<(), Error> {
    let mut connection = link::connect(&pool.connect_options()).await?;
    let checked = check_on(&mut connection, components).await;
    let _ = connection.close().await;
    checked
}

/// The same on a connection that is there already.
pub(crate) async fn check_on(connection: &mut PgConnection, components: &[Component]) -> Result<(), Error> {
    let pending = pending_alone(connection, components).await?;
    match pending.first() {
        None => Ok(()),
        Some(first) => Err(Error::Schema(format!(
            "the schema lacks {} migrations from {} on: run `postrider migrate`",
            pending.len(),
            first.name
        ))),
    }
}

fn lock_timeout(error: &Error) -> bool {
    matches!(error, Error::Database { source: sqlx::Error::Database(db), .. } if db.code().as_deref() == Some("55P03"))
}

async fn step(connection: &mut PgConnection, components: &[Component]) -> Result<Option<Migration>, Error> {
    let failed = |e| Error::from_sqlx("migrate", e);
    let mut tx = pooler::begin(connection).await.map_err(failed)?;
    LOCK.query_on(&tx).execute(&mut *tx).await.map_err(failed)?;
    tx.execute(sqlx::raw_sql(PREPARE)).await.map_err(failed)?;
    let Some(next) = pending(&mut tx, components).await?.first().copied() else {
        tx.execute(sqlx::raw_sql(FINISH)).await.map_err(failed)?;
        tx.commit().await.map_err(failed)?;
        return Ok(None);
    };
    tx.execute(sqlx::raw_sql(next.sql)).await.map_err(|e| Error::from_sqlx(next.name, e))?;
    NOTE.query_on(&tx)
        .bind(next.number)
        .bind(next.name)
        .bind(hex(&Sha256::digest(next.sql)))
        .execute(&mut *tx)
        .await
        .map_err(failed)?;
    tx.commit().await.map_err(failed)?;
    Ok(Some(next))
}

async fn pending(connection: &mut PgConnection, components: &[Component]) -> Result<Vec<Migration>, Error> {
    let failed = |e| Error::from_sqlx("migrate", e);
    let exists: bool =
        EXISTS.query_on(connection).fetch_one(&mut *connection).await.and_then(|r| r.try_get(0)).map_err(failed)?;
    let mut applied = Vec::new();
    if exists {
        for row in APPLIED.query_on(connection).fetch_all(&mut *connection).await.map_err(failed)? {
            let number: i32 = row.try_get(0).map_err(failed)?;
            let name: String = row.try_get(1).map_err(failed)?;
            let hash: String = row.try_get(2).map_err(failed)?;
            let Some(known) = MIGRATIONS.iter().find(|m| m.number == number) else {
                return Err(Error::Schema(format!(
                    "the schema is newer than this program: it has {name}; run a newer version of the program"
                )));
            };
            if hex(&Sha256::digest(known.sql)) != hash {
                return Err(Error::Schema(format!(
                    "migration {name} is not the one that was applied: this program and the database come from different lines"
                )));
            }
            applied.push(number);
        }
    }
    Ok(MIGRATIONS
        .iter()
        .filter(|m| components.contains(&m.component) && !applied.contains(&m.number))
        .copied()
        .collect())
}
