//! A throw-away Postgres until standard input ends: `cargo run -p postrider-embedded --example cluster`.
//!
//! Prints the process id of the server, its home and the psql line. With an argument, the cluster stays there.
#![expect(clippy::print_stdout, reason = "a program for a terminal")]

use std::io::{self, Read};

use postrider_embedded::{Error, Home, Options, Postgres};

fn main() -> Result<(), Error> {
    let home = std::env::args_os().nth(1).map_or(Home::Ephemeral, |home| Home::Persistent(home.into()));
    let postgres = Postgres::start(Options::new(home))?;
    println!("{}", postgres.pid().unwrap_or_default());
    println!("{}", postgres.home().display());
    println!("{}", postgres.psql_line("postgres"));
    drop(io::stdin().read_to_end(&mut Vec::new())); // the end of input and an error mean the same here
    postgres.stop()
}
