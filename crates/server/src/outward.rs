//! Webhooks, wired: who delivers, over which guard, with which keys.

use anyhow::Context as _;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ipnet::IpNet;
use postrider::Kind;
use postrider_contract::signature::Secret;
use postrider_webhook::{Client, Deliverer, Endpoints, Guard, NewEndpoint, Seal, kinds};
use secrecy::{ExposeSecret, SecretString};
use sqlx::PgPool;

use crate::system;

pub use postrider_webhook::QUEUE;

/// The endpoints of a database, and what delivers to them.
#[derive(Debug)]
pub struct Webhooks {
    endpoints: Endpoints,
    deliverer: Deliverer,
}

impl Webhooks {
    /// Deliveries from this database to public addresses and these networks; secrets are sealed with these keys.
    pub fn new(pool: &PgPool, keys: &[SecretString], allow: &[IpNet]) -> anyhow::Result<Self> {
        let seal = Seal::parse(keys.iter().map(ExposeSecret::expose_secret))?;
        let guard = Guard::new(allow.iter().map(ToString::to_string))?;
        let client = Client::new(guard.clone(), std::iter::empty())?;
        let deliverer = Deliverer::new(pool.clone(), seal.clone(), client);
        Ok(Self { endpoints: Endpoints::new(pool.clone(), seal, guard), deliverer })
    }

    /// The kinds of deliveries, run by this process.
    pub fn kinds(&self) -> [Kind; 2] {
        kinds(self.deliverer.clone())
    }

    /// Creates an endpoint in the place of those of the same name and owner, and answers with the secret that it signs with.
    pub async fn replace(&self, new: NewEndpoint) -> anyhow::Result<Secret> {
        for old in self.endpoints.list().await? {
            if old.name == new.name && old.owner == new.owner {
                self.endpoints.delete(old.id).await?;
            }
        }
        let name = new.name.clone();
        let created =
            self.endpoints.create(new).await.with_context(|| format!("the endpoint {name} was not created"))?;
        Ok(created.secret)
    }
}

/// Endpoints for looking only: no secret is opened there, so any key does.
pub fn reader(pool: PgPool) -> anyhow::Result<Endpoints> {
    let key = STANDARD.encode(system::secret_bytes()?);
    Ok(Endpoints::new(pool, Seal::parse([key])?, Guard::new(std::iter::empty::<&str>())?))
}
