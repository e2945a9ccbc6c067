//! The binary `postrider`: an operator's configuration, commands, and a page that shows what moves.
//!
//! The library part exists for the tests; its surface is not stable.
#![forbid(unsafe_code)]

pub mod cli; // the commands
pub mod config; // what an operator can set
pub mod dev; // an application in small, around the bus
pub mod outward; // webhooks, wired
pub mod http; // the page
pub mod tasks; // what runs until it is told to stop
pub mod system; // the clock and the dice
