//! For tests of Postrider and of its users.
#![forbid(unsafe_code)]

mod cluster; // a Postgres for a run, or for one test that kills it
mod db; // and in it a database for each test
mod sink; // a webhook receiver that follows a script

pub use cluster::{SERVER_VARIABLE, TestServer, test_options};
pub use db::TestDb;
pub use sink::{Reply, Request, Sink};
