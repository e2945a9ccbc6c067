//! A process for tests to kill: a producer, a worker or a relay. See `postrider_testkit::fixture`.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::Parser as _;
use postrider_testkit::fixture;

fn main() -> ExitCode {
    fixture::run(fixture::Arguments::parse())
}
