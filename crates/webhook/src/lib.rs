//! Signed webhooks: the first user of Postrider's `Handler`.
//!
//! An endpoint is a subscription with a url; a delivery is a job of kind `webhook.deliver`; every POST has a row that was
//! written before it. The modules stand in the order of the way: an endpoint is saved, its address vetted, its secret opened,
//! the body made and posted, the answer judged.
#![forbid(unsafe_code)]

mod error; // what can go wrong with endpoints
mod clock; // the time that is signed
mod dice; // bytes that nobody can guess
mod storable; // what an endpoint sent, as text that a table can hold
mod target; // a url, parsed once
mod address; // which addresses are public
mod resolve; // names, asked of name servers and nobody else
mod guard; // which addresses may be dialled
mod headers; // that an endpoint asks for
mod seal; // secrets at rest
mod schedule; // when it is tried again
mod endpoint; // where to, what, and with which secret
mod body; // the bytes that are signed and sent
mod keys; // what receivers verify with, published
mod failure; // why there is no answer
mod meter; // how much of an answer is read
mod conceal; // what of an answer is not kept
mod client; // one POST under one deadline
mod retry_after; // how long an answer asks to wait
mod redirect; // where it says that the endpoint is
mod judge; // what all of it means
mod deliver; // all of it, as a handler
mod replay; // and once more
mod service; // a service that the process is built with

pub use body::{BODY_BYTES_MAX, Format};
pub use client::{ANSWER_BYTES_KEPT_MAX, ANSWER_BYTES_READ_MAX, Client, Exchange, Post, Took};
pub use clock::Clock;
pub use deliver::{Deliverer, KIND, QUEUE, kind, kind_spec, kinds};
pub use endpoint::{
    Attempt, Created, Delivery, Disabled, Endpoint, EndpointChange, EndpointId, Endpoints, Figure, Health, IN_FLIGHT,
    KeyKind, NewEndpoint, OVERLAP, Rotated, Rotation, ScopeView, SecretView, TIMEOUT, TYPES_MAX, WouldGet,
};
pub use error::Error;
pub use failure::{Class as FailureClass, Failure};
pub use guard::{BLOCKED, Blocked, Guard, Vetted};
pub use headers::Headers;
pub use judge::On4xx;
pub use keys::{KEYS_PATH, keys_document};
pub use replay::{NewReplay, REPLAY_KIND, REPLAY_PER_SECOND, Redelivered, Replay, ReplayId, replay_kind};
pub use retry_after::RETRY_AFTER_MAX;
pub use schedule::{ATTEMPTS_MAX, Retries, schedule};
pub use seal::{Seal, SealError};
pub use service::{SERVICE_TIMEOUT, Service};
pub use target::{Target, URL_BYTES_MAX};

/// Every statement of this crate, for the test that prepares them on a real Postgres.
#[doc(hidden)]
pub fn statements() -> Vec<&'static postrider::Statement> {
    [endpoint::STATEMENTS, deliver::STATEMENTS, replay::STATEMENTS].concat()
}
