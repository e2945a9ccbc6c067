//! Finds a Postgres on this machine and supervises a private cluster of it.
//!
//! `postrider dev` and the tests start their database through this one module. In: [`Options`]. Out: a running
//! [`Postgres`], reachable through a Unix socket in a directory of mode 0700 and through nothing else. What must stay
//! true:
//!
//! - fsync stays on in the server: what is tried here behaves like what runs in production;
//! - a half-made cluster is never started: `initdb` works in a sibling directory, which is renamed when it is whole;
//! - one supervisor a home, held by a file lock that ends with its process;
//! - the server ends when the process that started it ends, in whatever way (Linux; elsewhere, when it stops it);
//! - as root, Postgres runs as `postgres` or `nobody`, since it refuses to run as root.
//!
//! Unix only. Every call blocks: from async code, call it on a blocking thread.
//!
//! ```no_run
//! use postrider_embedded::{Home, Options, Postgres};
//!
//! let mut postgres = Postgres::start(Options::new(Home::Ephemeral))?;
//! println!("{}", postgres.psql_line("postgres"));
//! postgres.restart()?;
//! postgres.stop()?;
//! # Ok::<(), postrider_embedded::Error>(())
//! ```

mod server; // start, stop, kill and restart one cluster
mod home; // the directories of a cluster and the lock on them
mod finder; // which Postgres of this machine
mod account; // and as which user
mod spawn; // child processes that end with this one
mod sys; // the three system calls that std lacks
mod error;

pub use error::Error;
pub use finder::{Installation, find};
pub use home::Home;
pub use server::{Options, Postgres};
