//! Connections, statements, errors and migrations. In: SQL files. Out: rows. No table is named here but the migrator's own.

mod statement; // one statement, one file
mod tx; // the caller's transaction, whatever its driver
mod borrow; // a connection of the caller's pool
mod pooler; // where no session is ours
mod link; // a connection of our own that comes back
mod call; // what is asked of it, measured
mod listen; // wake-ups
mod witness; // what a transaction wrote tells whether it committed
pub mod migrate; // the schema

pub use borrow::{Borrowed, borrow};
pub use pooler::Pooler;
pub use statement::Statement;
pub use tx::{Arg, Row, Tx};
pub use witness::Witness;

pub(crate) use borrow::keeps;
pub(crate) use call::{Calls, Meter, Operation, tell_count};
pub(crate) use link::{Link, Reach, connect};
pub(crate) use listen::{Ear, Wake, listen};
pub(crate) use pooler::{begin, fetch, has_session, refuse_unknown, run};
pub(crate) use witness::Wrote;

pub(crate) const STATEMENTS: &[&Statement] =
    &[&link::SESSION, &pooler::BACKEND, &migrate::LOCK, &migrate::EXISTS, &migrate::APPLIED, &migrate::NOTE];

/// A statement from a `.sql` file beside the calling one.
#[macro_export]
macro_rules! statement {
    ($path:literal) => {
        $crate::Statement { name: $path, sql: include_str!($path) }
    };
}
