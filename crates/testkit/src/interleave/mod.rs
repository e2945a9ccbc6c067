//! Sessions of a few statements each, run in every order, against a real Postgres.
//!
//! A [`Spec`] is a stage, two or three sessions of [`Step`]s, and what is expected: of the answer of each step, of who waits for
//! whom, of where the jobs are at the end. [`run`] runs every order that keeps each session's own one. A step that waits for
//! another session is found by asking Postgres who blocks it; the others go on, and it is reaped once it is released. After
//! each order the schema must hold together, and everything in it must still be able to run to its end.
//!
//! A new verb is a function in `verbs`; a new thing that must hold everywhere is a select in `sql/invariants.sql`.

mod spec; // what is run, and what is expected of it
mod verbs; // the steps, one statement each
mod acts; // and more of them
mod order; // all the orders
mod session; // a connection that may wait for another one
mod stage; // what there is before each order
mod run; // one order after the other
mod judge; // and what is to be said about it
mod report;
mod engine; // a wrong engine, to see that it is found

pub use acts::{
    act_on_lane, cancel, delete, enqueue_limited, enqueue_ordered, enqueue_unique, enqueue_unique_many, part,
    pause_queue, retry, set_limit,
};
pub use engine::{pause, rewrite};
pub(crate) use judge::Judge;
pub use report::Report;
pub use run::run;
pub use spec::{Spec, Step};
pub use verbs::{
    Outcome, advance, begin, claim, claim_as, claim_lines, commit, declare, drop_subscription, end, enqueue,
    enqueue_later, finish, finish_of, housekeep, leave, promote, put_subscription, record, record_once, relay, rescue,
    rollback, sql, tick, tick_with, unpark, worker,
};
