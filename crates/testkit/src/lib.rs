//! For tests of Postrider and of its users.
#![forbid(unsafe_code)]

mod cluster; // a Postgres for a run, or for one test that kills it
mod db; // and in it a database for each test
mod drain; // work without workers
mod sink; // a webhook receiver that follows a script, and who leads to it
mod ledger; // what processes meant to do and did, outside of the database
mod process; // a process that a test starts and kills
pub mod fixture; // and what it does
pub mod interleave; // statements of some sessions, in every order
mod storm; // and everything at once, at random
pub mod outbox; // the outbox alone, and harder
pub mod proxy; // what stands between it and Postgres
mod pgbouncer; // or a pooler
pub mod nemesis; // and what befalls all of them
pub mod checker; // and what came of it
pub mod conformance; // what every engine promises
pub mod capture; // and what changes of tables record

pub use cluster::{SERVER_VARIABLE, TestServer, psql, shared_options, test_options};
pub use db::TestDb;
pub use drain::DRAIN;
pub use ledger::{Effect, Ledger, lines};
pub use pgbouncer::PgBouncer;
pub use process::{Fixture, Process, until};
/// A signal for [`Process::signal`].
pub use rustix::process::Signal;
pub use sink::{NameServer, Reply, Request, Said, Sink, TlsFault};
pub use storm::{Storm, StormReport, storm};
