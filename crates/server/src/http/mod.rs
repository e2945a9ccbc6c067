//! HTTP: a page for a person, two answers for a machine.
//!
//! The page only reads. It has no sign-in, so it is shown on loopback addresses alone, and only to requests that name a
//! loopback host: a foreign name that resolves to this machine gets nothing (DNS rebinding).

mod view; // what the page shows, as text
mod page; // how it is shown
mod guard; // who may see it, and under which policy
mod ask; // what it asks the database
mod serve; // the addresses

pub use ask::Site;
pub use guard::{POLICY, names_loopback};
pub use page::{STYLE, notice, page};
pub use serve::serve;
pub use view::{DeliveryRow, EventRow, Figure, HOSTILE, JobRow, View, WorkerRow};
