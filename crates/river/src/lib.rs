//! The ports of Postrider on River's own tables, through River's official client. A spike: it shows that the ports are honest.
//!
//! A job is one row of `river_job`, with its kind, queue, priority and attempts where River and its tools expect them. What River has no column
//! for (the bytes of the args, the owner, the event) is in an envelope in River's args. What River's client cannot do is said by
//! [`CAPABILITIES`] and refused.
#![forbid(unsafe_code)]

mod builder; // what an application declares, and its runtime
mod jobs; // enqueues jobs and acts on them
mod envelope; // what River's args hold
mod work; // River's worker: runs handlers
mod attempt; // one attempt, as its handler reaches it
mod inspector; // the operator's view
mod view; // River's rows in the words of the ports
mod error; // River's errors in the words of the ports

use postrider::{Capabilities, Error};
use riverqueue::migrate::PostgresMigrator;
use sqlx::PgPool;

pub use builder::{Builder, River, RiverRuntime};
pub use inspector::RiverInspector;
pub use jobs::RiverJobs;

/// What River's client can do, and no more.
pub const CAPABILITIES: Capabilities = Capabilities {
    engine: "river",
    unique: &[],
    replace: false,
    idempotency: false,
    owners: true,
    retry_per_job: true,
    cancel_running: true,
    filters: false,
    delete: true,
    pause: true,
    output: true,
    progress: true,
    transactional_completion: true,
    leases: false,
    unknown_kinds_wait: true,
    no_worker_shown: false,
    aging: false,
    stuck_told: false,
    max_age: true,
    tells_gone: false,
    explains: false,
    counts: false,
    schedules: false,
    order_keys: false,
    limits: false,
    fair_share: false,
    tags: false,
};

/// Makes River's tables, or brings them up to date, in the schema that the pool's connections look into first.
pub async fn migrate(pool: &PgPool) -> Result<(), Error> {
    let migrated = PostgresMigrator::new(pool.clone()).migrate_up().await;
    migrated.map(drop).map_err(|error| Error::Schema(format!("River's tables could not be made: {error}")))
}

/// River's tables must be there and as this client knows them.
async fn check(pool: &PgPool) -> Result<(), Error> {
    let found = PostgresMigrator::new(pool.clone()).validate(None).await;
    let found = found.map_err(|error| Error::Schema(format!("River's tables could not be checked: {error}")))?;
    if found.is_valid() {
        Ok(())
    } else {
        Err(Error::Schema(format!("River's tables lack migrations {:?}", found.unapplied)))
    }
}
