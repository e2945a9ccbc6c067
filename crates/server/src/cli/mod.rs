//! The commands: what is typed, what is printed, how it ends.
//!
//! Only this folder prints. The exit code is 0 for done, 1 for failed, 2 for an input or a configuration that was refused.

mod args; // what can be typed
mod sources; // the file, the environment and the flags, collected
mod signals; // Ctrl-C and SIGTERM
mod printed; // what is told to a person
mod connect; // a pool on the database that was named
mod migrate; // `postrider migrate`
mod verify; // `postrider verify`
mod outbound; // `postrider outbound`
mod serve; // `postrider serve`
mod dev; // `postrider dev`
mod run; // a whole run, from arguments to an exit code

pub use args::{Args, Command, command};
pub use run::main;
