//! Jobs that come by the clock. In: rows that say when. Out: a job for each due time, and the row moved on, in one transaction.
//!
//! When a schedule comes next stands in its row. Every process that declares it computes what follows, and of those that computed the same
//! one fires. A process asks nothing while nothing is due: its beat is told when that will be.

mod cron; // what an expression means in a zone
mod decide; // what a look comes to
mod handle; // what an operator does and sees
mod pg;
mod task;

use crate::pg::Statement;

pub use decide::next_runs;
pub(crate) use decide::refuse_times;
pub use handle::{ScheduleView, Schedules};
pub(crate) use task::{Firing, run};

pub(crate) const STATEMENTS: &[&Statement] = pg::STATEMENTS;
