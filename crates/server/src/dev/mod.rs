//! What `postrider dev` shows: an application in small, around the bus.
//!
//! In: events from a file or made by the program. Out: figures that this process saw itself. On the way each event commits
//! with a business row, becomes two jobs of handlers and two deliveries to a receiver on loopback, which verifies each
//! signature and fails at times, so that retries show.

pub mod demo; // events for machines without a file of them
pub mod events; // or from a file
pub mod figures; // what this process saw
pub mod live; // as one line
pub mod mood; // when the receiver fails
pub mod sink; // the receiver
pub mod place; // where the database is
pub mod told; // what a run comes to
mod business; // the application's own tables
mod feeder; // records events with business rows
mod handlers; // and handles them
pub mod app; // all of it, started and stopped in order
