//! Names and shapes that cross a border of Postrider.
//!
//! Everything here is data or a total function of its arguments: no I/O, no async, no clock, no database.
//! An application's domain code may depend on this crate alone.
#![forbid(unsafe_code)]

mod code; // what can be refused, and how a refusal reads
mod name; // the grammar of names, and patterns over event types
mod json; // the gate that every payload passes
mod id; // ids
mod time; // microseconds
mod event_type; // what events say, and how their data look
mod declare; // kinds: declared as data
mod subscription; // which events become jobs
mod schedule; // and what comes by the clock
mod watch; // and tables whose changes are events
mod event; // an event, before and after it is recorded
mod typed; // an event as a Rust type
mod unique; // when jobs are alike
mod key; // which jobs come one after the other, or a few at a time
mod verdict; // what a handler answers
pub mod signature; // Standard Webhooks: sign and verify

pub use code::{Code, Refused};
pub use declare::{Class, KindSpec, Retry};
pub use event::{Event, NewEvent};
pub use event_type::{Deprecated, EventTypeSpec, Exposure, TypeVersion, Validation};
pub use id::{EventId, JobId};
pub use json::{DATA_BYTES_MAX, DEPTH_MAX, Payload, check_json};
pub use key::{Limit, Order, Rate};
pub use name::{NAME_BYTES_MAX, Pattern, SUBJECT_BYTES_MAX, check_name, check_owner, check_public_name, check_subject};
pub use schedule::{Missed, Overlap, Schedule, When};
pub use subscription::{OrderBy, Start, SubscriptionSpec};
pub use time::Timestamp;
pub use typed::TypedEvent;
pub use unique::Unique;
pub use verdict::Verdict;
pub use watch::{Operation, Watch};
