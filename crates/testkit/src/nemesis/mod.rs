//! Runs of the whole thing under faults: producers, workers, relays and receivers as processes, and a nemesis that kills them, stops
//! them, cuts their connections and kills their Postgres. What comes of it is judged by the [`checker`](crate::checker).
//!
//! In: a [`Plan`] with a seed. Out: an [`Outcome`], whose first line repeats the run. The schedule of real processes is not repeated to
//! the instruction, so the ledgers of a run that is red are kept.

mod crew; // the processes
mod stage; // their database and what they write down
mod fault; // what may befall them
mod strike; // how it does
mod run; // all of it

pub use crew::{Crew, Member};
pub use fault::{FaultLog, Kind};
pub use run::{Outcome, Plan, run};
pub use stage::{Stage, Staging};
