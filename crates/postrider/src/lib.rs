//! A durable event bus that lives in the Postgres you already run.
//!
//! The business row, the event and the job commit together or not at all; everything after the commit is durable, visible and
//! retried by one owner. The folders are the way of the data: an event is recorded, relayed into jobs, claimed, handled, completed.
#![forbid(unsafe_code)]

mod clock; // time and dice, for those who are given them
mod measure; // how long what took, and how many there are
mod error; // what can go wrong, in the words of those who ask
pub mod pg; // connections, statements, migrations; no table names
pub mod port; // what an engine promises
mod record; // 1 · an event commits with its cause
mod relay; // 2 · and becomes one job for each subscription
mod job; // 3 · which waits, is leased, fails, waits again
mod handle; // 4 · a handler runs under a lease and gives a verdict
mod complete; // 5 · the verdict is written once, fenced
pub mod inspect; // the operator's view over 1 to 5
pub mod proof; // whether 1 to 3 say the same, and what is held
mod schedule; // jobs that come by the clock
mod run; // keeps the loops alive and stops them in order
mod declare; // kinds, types and subscriptions, handed over at construction

pub use postrider_contract as contract;
pub use postrider_contract::{
    Class, Code, Deprecated, Event, EventId, EventTypeSpec, Exposure, JobId, KindSpec, Limit, Missed, NewEvent,
    Operation, Order, OrderBy, Overlap, Payload, Rate, Refused, Retry, Schedule, Start, SubscriptionSpec, Timestamp,
    TypeVersion, TypedEvent, Unique, Validation, Verdict, Watch, When,
};

pub use clock::{Clock, Dice};
pub use complete::storable;
pub use declare::{Builder, Kind, Subscription, refusals};
pub use error::{BoxError, Error, Fut, Shortage};
pub use handle::{Answer, Context, Handler, answer, handler};
pub use job::{Next, after_failure};
pub use measure::Histogram;
pub use pg::migrate;
pub use pg::{Arg, Borrowed, Pooler, Row, Statement, Tx, Witness, borrow};
pub use port::{
    Act, Capabilities, Completion, Count, Effect, Enqueued, Filter, Hold, Inspector, Job, JobView, Jobs, Keys, LaneAct,
    LaneEffect, LaneKey, LaneView, Look, NewJob, OnDuplicate, Runtime, State, Stopped, Waited, Waits,
};
pub use record::{CancelledEvent, Mismatch, Recorded, Recorder, Resolution, TypeView, Types};
pub use run::{Bus, Figures, Measured, Metric, PgInspector, PgJobs, PgKeys, Running, Settings, WakeUps};
pub use schedule::{ScheduleView, Schedules, next_runs};

/// Every statement of the library, for the test that prepares them on a real Postgres.
#[doc(hidden)]
pub fn statements() -> Vec<&'static Statement> {
    [
        pg::STATEMENTS,
        port::STATEMENTS,
        record::STATEMENTS,
        relay::STATEMENTS,
        job::STATEMENTS,
        handle::STATEMENTS,
        complete::STATEMENTS,
        inspect::STATEMENTS,
        proof::STATEMENTS,
        schedule::STATEMENTS,
        run::STATEMENTS,
        declare::STATEMENTS,
    ]
    .concat()
}
