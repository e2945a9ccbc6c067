//! Looks at what processes wrote down outside of the database, at what the database says in the end, and at which faults fired; and
//! computes from that what was lost, doubled, torn or changed by a stranger. It asks nothing of the library that it judges.
//!
//! In: a folder with the ledgers of producers, workers, receivers and the nemesis, and with the tables as they were at the end
//! ([`dump`]). Out: a [`Table`]. The folder is all that is needed: a run can be judged again later.

mod line; // what the ledgers say
mod state; // what the database says
mod story; // both, by transaction
mod fault; // which fault explains a lost lease
mod judge; // what is wrong with it
mod table; // as numbers

use std::io;
use std::path::Path;
use std::time::Duration;

pub use fault::Blow;
pub use line::{Answer, Item, Posted, Ran, Word, now_us};
pub use state::{dump, watch};
pub use table::{Number, Table, Tally};

/// What is to come of each event and each job, and how long a fault is felt.
#[derive(Debug, Clone)]
pub struct Terms {
    /// Subscriptions whose handlers note each event.
    pub subscriptions: Vec<String>,
    /// Endpoints that receive each event.
    pub endpoints: Vec<String>,
    /// The kind of the jobs that producers enqueue themselves.
    pub kind: String,
    /// How long after a fault a lease may still be lost because of it.
    pub aftermath: Duration,
}

/// Judges a run. The ledgers are read line by line; memory grows with the number of events, and is bounded by reading them as often as
/// needed, for a part of the transactions each time.
///
/// # Errors
/// If a file cannot be read, or a line is not what it should be.
pub fn check(folder: &Path, terms: &Terms) -> io::Result<Table> {
    let parts = story::parts(folder)?;
    let mut table = Table::default();
    for part in 0..parts {
        let story = story::read(folder, terms, (part, parts))?;
        judge::judge(&story, terms, part == 0, &mut table);
    }
    Ok(table)
}
