//! Endpoints. In: what an owner wants to be told, and where. Out: rows that deliveries find by their subscription.

mod change;
mod new;
mod pg;
mod rotation;
mod skew;
mod view;

use postrider::Statement;
use postrider_contract::signature::Secret;
use postrider_contract::{Code, Refused};
use sqlx::PgPool;

use crate::dice;
use crate::error::Error;
use crate::guard::Guard;
use crate::seal::Seal;

pub use change::EndpointChange;
pub use new::{IN_FLIGHT, NewEndpoint, TIMEOUT, TYPES_MAX};
pub(crate) use pg::{connection, headers_place, secret_place};
pub(crate) use rotation::signing_key;
pub use rotation::{KeyKind, OVERLAP, Rotated, Rotation, SecretView};
pub use view::{Attempt, Delivery, Disabled, Endpoint, EndpointId, Figure, Health, ScopeView, WouldGet};

pub(crate) const STATEMENTS: &[&Statement] = pg::STATEMENTS;

const LIST_MAX: i64 = 1_000;
/// How often a change is tried that meets another one of the same endpoint.
const CHANGES_TRIED: usize = 10;

/// What was created. The secret is shown here and never again.
#[derive(Debug)]
pub struct Created {
    /// The endpoint.
    pub id: EndpointId,
    /// What its deliveries are signed with; [`Secret::reveal`] gives the text for the receiver.
    pub secret: Secret,
}

/// Endpoints, and what became of their deliveries.
#[derive(Debug, Clone)]
pub struct Endpoints {
    pub(crate) pool: PgPool,
    seal: Seal,
    guard: Guard,
}

impl Endpoints {
    /// Over a pool; secrets are sealed with `seal`, urls checked by `guard`.
    pub const fn new(pool: PgPool, seal: Seal, guard: Guard) -> Self {
        Self { pool, seal, guard }
    }

    /// Saves an endpoint: its row, its subscription, its limit and its sealed secret, all or nothing.
    ///
    /// The kind `webhook.deliver` must be declared, see [`crate::kind`]. A refusal names the field of [`NewEndpoint`], or `kind`.
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

    /// Changes an endpoint, all of it or nothing; answers with what it is now, or `None` if there is none. What is in flight goes on as it began.
    ///
    /// Changes that meet come one after the other. A refusal names the field.
    pub async fn update(&self, id: EndpointId, change: EndpointChange) -> Result<Option<Endpoint>, Error> {
        // asks name servers: before anything is read
        let target = match &change.url {
            Some(url) => Some(self.guard.check(url).await?),
            None => None,
        };
        for _ in 0..CHANGES_TRIED {
            let mut tx = pg::begin(&self.pool).await?;
            let asked = pg::Asked { id: Some(id), most: 1, ..pg::Asked::default() };
            let Some(told) = pg::list(&mut *tx, asked).await?.into_iter().next() else { return Ok(None) };
            let sealed = match &change.headers {
                Some(headers) => pg::seal_headers(&self.seal, id, headers)?,
                None => told.sealed_headers(),
            };
            let changed = change.clone().of(told.as_new(change.format)?);
            changed.check()?;
            let names = match &change.headers {
                Some(headers) => headers.names().map(str::to_owned).collect(),
                None => told.header_names.clone(),
            };
            let url = target.as_ref().map_or(changed.url.as_str(), |target| target.as_str());
            let fields = changed.fields(url, &names).to_string();
            if pg::put(&mut *tx, (id, Some(told.revision)), &fields, sealed.as_ref()).await? {
                let now = pg::list(&mut *tx, asked).await?.into_iter().next();
                pg::commit(tx).await?;
                return Ok(now.map(view::Told::endpoint));
            }
        }
        let message = "others change the endpoint all the time";
        Err(Refused::new(Code::Conflict, "endpoint", message, "try again later").into())
    }

    /// All endpoints that are not deleted, by their ids; 1 000 at most.
    pub async fn list(&self) -> Result<Vec<Endpoint>, Error> {
        self.page(None, None, LIST_MAX).await
    }

    /// Endpoints of an owner, or of all, by their ids, after one of them; 1 000 at most.
    pub async fn page(
        &self,
        owner: Option<&str>,
        after: Option<EndpointId>,
        most: i64,
    ) -> Result<Vec<Endpoint>, Error> {
        let asked = pg::Asked { id: None, owner, after: after.map_or(0, |id| id.0), most: most.clamp(0, LIST_MAX) };
        let told = pg::list(&mut pg::connection(&self.pool).await?, asked).await?;
        Ok(told.into_iter().map(view::Told::endpoint).collect())
    }

    /// One endpoint; `None` if there is none, or not any more.
    pub async fn get(&self, id: EndpointId) -> Result<Option<Endpoint>, Error> {
        let asked = pg::Asked { id: Some(id), most: 1, ..pg::Asked::default() };
        let told = pg::list(&mut pg::connection(&self.pool).await?, asked).await?;
        Ok(told.into_iter().next().map(view::Told::endpoint))
    }

    /// Which endpoints would get an event if it were recorded now, disabled ones among them; asks, and sends nothing. `data` is JSON. A refusal names `type`, `owner` or
    /// `data`.
    pub async fn who_would_get(
        &self,
        r#type: &str,
        subject: &str,
        data: &str,
        owner: &str,
    ) -> Result<Vec<WouldGet>, Error> {
        postrider_contract::check_json("data", data)?;
        pg::who_would_get(&self.pool, [r#type, subject, data, owner]).await
    }

    /// Declares the function that is asked about each delivery before it is sent, by its name with its schema; `None` takes it away. Its signature is
    /// `(labels json, owner text, type text, subject text, data json) returns boolean`: the labels of the endpoint and the rest of the event. Where it says
    /// false nothing is delivered, and where it fails or says nothing neither. A refusal names `scope`.
    pub async fn set_scope(&self, function: Option<&str>) -> Result<(), Error> {
        pg::set_scope(&self.pool, function).await
    }

    /// The function that [`Endpoints::set_scope`] declared, and how it does.
    pub async fn scope(&self) -> Result<Option<ScopeView>, Error> {
        pg::scope(&self.pool).await
    }

    /// Stops deliveries to an endpoint: they are held until it is enabled again. False if there is nothing to disable.
    pub async fn disable(&self, id: EndpointId, reason: &str) -> Result<bool, Error> {
        pg::disable(&mut pg::connection(&self.pool).await?, id, reason).await
    }

    /// Takes deliveries up again, what was held among them: one at a time until one succeeds, then more and more of them, paced. False if there is
    /// nothing to enable.
    pub async fn enable(&self, id: EndpointId) -> Result<bool, Error> {
        pg::enable(&self.pool, id).await
    }

    /// Takes an endpoint at its operator's word that it is well: it is not failing any more, has not asked to wait, and gets what waits as fast as
    /// it may. False if it is not there, or disabled.
    pub async fn resume(&self, id: EndpointId) -> Result<bool, Error> {
        pg::resume(&self.pool, id).await
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
        pg::attempts(&self.pool, None, most).await
    }

    /// The last attempts of an endpoint, newest first; at most 200.
    pub async fn attempts_of(&self, id: EndpointId, most: u32) -> Result<Vec<Attempt>, Error> {
        pg::attempts(&self.pool, Some(id), most).await
    }

    /// Numbers about all endpoints, for whoever gathers them.
    pub async fn figures(&self) -> Result<Vec<Figure>, Error> {
        pg::figures(&self.pool).await
    }
}
