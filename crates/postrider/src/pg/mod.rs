//! Connections, statements, errors and migrations. In: SQL files. Out: rows. No table is named here but the migrator's own.

mod statement; // one statement, one file
mod tx; // the caller's transaction, whatever its driver
mod link; // a connection of our own that comes back
mod listen; // wake-ups
mod witness; // what a transaction wrote tells whether it committed
pub mod migrate; // the schema

pub use statement::Statement;
pub use tx::{Arg, Row, Tx};
pub use witness::Witness;

pub(crate) use link::{Doubts, Link, connect};
pub(crate) use listen::{Wake, listen};
pub(crate) use witness::Wrote;

pub(crate) const STATEMENTS: &[&Statement] =
    &[&link::SESSION, &migrate::LOCK, &migrate::EXISTS, &migrate::APPLIED, &migrate::NOTE];

/// A statement from a `.sql` file beside the calling one.
#[macro_export]
macro_rules! statement {
    ($path:literal) => {
        $crate::Statement { name: $path, sql: include_str!($path) }
    };
}
