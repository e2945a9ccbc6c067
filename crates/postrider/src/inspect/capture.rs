use std::collections::BTreeMap;

use postrider_contract::{Operation, Timestamp, Watch};
use sqlx::PgPool;

use super::pg;
use crate::error::Error;

/// A watch, as it was declared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WatchView {
    /// What was declared, with what was left out filled in.
    pub watch: Watch,
    /// The columns of the table's primary key, in its order.
    pub key_columns: Vec<String>,
    /// The application that declared it.
    pub declared_by: String,
    /// The generation of the declaration.
    pub generation: i64,
    /// When it was last declared.
    pub seen_at: Timestamp,
}

/// How grave it is that a watch is not as it was declared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DriftSeverity {
    /// Changes are lost, or writes to the table fail.
    Critical,
    /// Nothing is lost yet.
    Warning,
    /// A way past the watch that somebody can take.
    Hole,
}

/// Where a watch is not as it was declared, or what gets past it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Drift {
    /// The watch; empty for a trigger that belongs to none.
    pub watch: String,
    /// The table.
    pub relation: String,
    /// How grave it is.
    pub severity: DriftSeverity,
    /// What sort of thing, such as `trigger`; `docs/guides/row-capture.md` lists them.
    pub problem: String,
    /// What is the matter.
    pub says: String,
    /// What to do.
    pub remedy: String,
}

/// What is watched, by name.
pub async fn watches(pool: &PgPool) -> Result<Vec<WatchView>, Error> {
    pg::watches(pool).await
}

/// Where watches are not as they were declared, and what gets past them. Reads the catalogue, never the tables.
pub async fn check_watches(pool: &PgPool) -> Result<Vec<Drift>, Error> {
    pg::check_watches(pool).await
}

/// Event types by operation, of what SQL tells.
pub(super) fn types(told: BTreeMap<String, String>) -> BTreeMap<Operation, String> {
    told.into_iter().filter_map(|(operation, name)| Some((Operation::named(&operation)?, name))).collect()
}
