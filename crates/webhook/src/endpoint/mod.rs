//! Endpoints. In: what an owner wants to be told, and where. Out: rows that deliveries find by their subscription.

mod new;
mod pg;

use std::fmt;

use postrider::{Statement, Timestamp};
use postrider_contract::signature::Secret;
use serde::Serialize;
use sqlx::PgPool;

use crate::dice;
use crate::error::Error;
use crate::guard::Guard;
use crate::seal::Seal;

pub use new::{NewEndpoint, TIMEOUT, TYPES_MAX};
pub(crate) use pg::{connection, secret_place};

pub(crate) const STATEMENTS: &[&Statement] = pg::STATEMENTS;

/// The id of an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct EndpointId(pub i64);

impl fmt::Display for EndpointId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What was created. The secret is shown here and never again.
#[derive(Debug)]
pub struct Created {
    /// The endpoint.
    pub id: EndpointId,
    /// What its deliveries are signed with; [`Secret::reveal`] gives the text for the receiver.
    pub secret: Secret,
}

/// An endpoint as it is saved, without its secrets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Endpoint {
    /// Its id.
    pub id: EndpointId,
    /// Its name, unique for its owner.
    pub name: String,
    /// Whose it is; it gets events of this owner only. Empty for the instance, which gets events of every owner.
    pub owner: String,
    /// Where it is.
    pub url: String,
    /// Patterns over event types.
    pub types: Vec<String>,
    /// How long one attempt may take, in milliseconds.
    pub timeout_ms: i64,
    /// Attempts of a delivery.
    pub max_attempts: i64,
    /// When it was created.
    pub created_at: Timestamp,
    /// Since when it is disabled, and why; `None` while it is enabled.
    pub disabled: Option<Disabled>,
}

/// That an endpoint is disabled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Disabled {
    /// Since when.
    pub at: Timestamp,
    /// Why.
    pub reason: String,
}

/// A delivery: one event on its way to one endpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Delivery {
    /// The id of its job.
    pub id: String,
    /// The endpoint.
    pub endpoint: EndpointId,
    /// The endpoint's name.
    pub endpoint_name: String,
    /// `waiting`, `sending`, `retrying`, `delivered`, `discarded` or `cancelled`.
    pub state: String,
    /// POSTs until now.
    pub attempts: i64,
    /// The status of the last answer.
    pub status: Option<i64>,
    /// What the last attempt or the end of the delivery says.
    pub reason: Option<String>,
    /// When the event became a delivery.
    pub created_at: Timestamp,
    /// When it ended.
    pub finished_at: Option<Timestamp>,
}

/// One POST.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Attempt {
    /// The delivery.
    pub delivery: String,
    /// The endpoint, if the delivery belongs to one.
    pub endpoint: Option<EndpointId>,
    /// The event, equal to the request's `webhook-id`.
    pub event: Option<String>,
    /// Its number, from 1; a postponed attempt is followed by one with the same number.
    pub attempt: i64,
    /// When it was claimed.
    pub started_at: Timestamp,
    /// When its outcome was written.
    pub ended_at: Option<Timestamp>,
    /// `delivered`, `failed`, `postponed` or `discarded`; `None` while it is unknown.
    pub outcome: Option<String>,
    /// What it came to, in words.
    pub reason: Option<String>,
    /// The status of the answer.
    pub status: Option<i64>,
    /// The class of the failure, if there was no complete answer.
    pub failure: Option<String>,
    /// The beginning of the answer's body, made storable.
    pub excerpt: Option<String>,
    /// Who answered.
    pub peer: Option<String>,
    /// How long it took, in microseconds.
    pub total_us: Option<i64>,
}

/// Endpoints, and what became of their deliveries.
#[derive(Debug, Clone)]
pub struct Endpoints {
    pool: PgPool,
    seal: Seal,
    guard: Guard,
}

impl Endpoints {
    /// Over a pool; secrets are sealed with `seal`, urls checked by `guard`.
    pub const fn new(pool: PgPool, seal: Seal, guard: Guard) -> Self {
        Self { pool, seal, guard }
    }

    /// Saves an endpoint: its row, its subscription and its sealed secret, all or nothing.
    ///
    /// The kind `webhook.deliver` must be declared, see [`crate::kind`]. A refusal names one of `name`, `owner`, `url`,
    /// `types`, `timeout`, `max_attempts`, `kind`.
    pub async fn create(&self, new: NewEndpoint) -> Result<Created, Error> {
        new.check()?;
        let target = self.guard.check(&new.url).await?;
        let secret = match &new.secret {
            Some(given) => given.clone(),
            None => Secret::generate(dice::bytes()?),
        };
        let id = pg::create(&self.pool, &new, &target, (&self.seal, &secret)).await?;
        Ok(Created { id, secret })
    }

    /// All endpoints that are not deleted, by their ids; 1 000 at most.
    pub async fn list(&self) -> Result<Vec<Endpoint>, Error> {
        pg::list(&self.pool, None).await
    }

    /// One endpoint; `None` if there is none, or not any more.
    pub async fn get(&self, id: EndpointId) -> Result<Option<Endpoint>, Error> {
        Ok(pg::list(&self.pool, Some(id)).await?.into_iter().next())
    }

    /// Stops deliveries to an endpoint: they end as discarded, each with a fixed text. False if there is nothing to disable.
    pub async fn disable(&self, id: EndpointId, reason: &str) -> Result<bool, Error> {
        pg::disable(&mut pg::connection(&self.pool).await?, id, reason).await
    }

    /// Takes deliveries up again, for events from now on. False if there is nothing to enable.
    pub async fn enable(&self, id: EndpointId) -> Result<bool, Error> {
        pg::enable(&self.pool, id).await
    }

    /// Forgets an endpoint, its subscription and its secrets; its attempts stay readable. False if it is not there.
    pub async fn delete(&self, id: EndpointId) -> Result<bool, Error> {
        pg::delete(&self.pool, id).await
    }

    /// The last deliveries, newest first; at most 200, and only among the last 10 000 jobs of their class.
    pub async fn deliveries(&self, most: u32) -> Result<Vec<Delivery>, Error> {
        pg::deliveries(&self.pool, most).await
    }

    /// The last attempts, newest first; at most 200.
    pub async fn attempts(&self, most: u32) -> Result<Vec<Attempt>, Error> {
        pg::attempts(&self.pool, most).await
    }
}

/// For the delivering side: the same as [`Endpoints::disable`] in a connection that is already there.
pub(crate) use pg::disable;
