//! For tests of Postrider and of its users.
#![forbid(unsafe_code)]

mod sink; // a webhook receiver that follows a script

pub use sink::{Reply, Request, Sink};
