use std::time::Duration;

use postrider_contract::signature::{Secret, sign_v1};
use postrider_contract::{Event, Timestamp};

use super::pg::Loaded;
use crate::body::{body, sha256};
use crate::client::Post;
use crate::endpoint::{EndpointId, secret_place};
use crate::error::Error;
use crate::seal::{Seal, secret};
use crate::target::Target;

const USER_AGENT: &str = concat!("Postrider/", env!("CARGO_PKG_VERSION"));

/// A request that is ready to be sent.
pub(super) struct Letter {
    pub(super) endpoint: EndpointId,
    pub(super) max_attempts: i16,
    pub(super) sha256: [u8; 32],
    target: Target,
    headers: Vec<(&'static str, String)>,
    body: Vec<u8>,
    deadline: Duration,
}

/// Why there is no letter.
pub(super) enum Unwritten {
    /// There never will be one.
    Never(&'static str),
    /// Something is missing on our side; nothing is held against the endpoint.
    NotNow(String),
    /// The database.
    Database(Error),
}

impl Letter {
    pub(super) fn post(&self) -> Post<'_> {
        Post { target: &self.target, headers: &self.headers, body: &self.body, deadline: self.deadline }
    }
}

/// Writes and signs a letter. The id and the body are equal at every attempt; the time and the signature are new.
pub(super) fn write(
    attempt: i16,
    event: &Event,
    loaded: Option<Loaded>,
    (seal, now): (&Seal, Timestamp),
) -> Result<Letter, Unwritten> {
    let loaded = loaded.filter(|loaded| !loaded.deleted).ok_or(Unwritten::Never("the endpoint was deleted"))?;
    if loaded.disabled {
        return Err(Unwritten::Never("the endpoint is disabled"));
    }
    let target = Target::parse(&loaded.url).map_err(|_| Unwritten::Never("the endpoint's url is not allowed"))?;
    let secrets = secrets(&loaded, seal)?;
    let body = body(event, loaded.format)
        .ok_or_else(|| Unwritten::NotNow(format!("this program does not know format {} of the body", loaded.format)))?;
    let (id, timestamp) = (event.id.to_string(), now.as_secs());
    let signature = sign_v1(&secrets, &id, timestamp, &body);
    let mut headers = Vec::with_capacity(7);
    // the trace goes on at the receiver; not signed, like every header but those of the signature
    headers.extend(event.traceparent.clone().map(|trace| ("traceparent", trace)));
    headers.extend([
        ("content-type", "application/json".to_owned()),
        ("user-agent", USER_AGENT.to_owned()),
        ("webhook-attempt", attempt.to_string()),
        // What is signed comes last, so that nothing can stand in its place.
        ("webhook-id", id),
        ("webhook-timestamp", timestamp.to_string()),
        ("webhook-signature", signature),
    ]);
    Ok(Letter {
        endpoint: loaded.endpoint,
        max_attempts: loaded.max_attempts,
        sha256: sha256(&body),
        target,
        headers,
        body,
        deadline: loaded.timeout,
    })
}

/// Every valid secret. A key that is missing here is a deployment's mistake: the delivery waits for it.
fn secrets(loaded: &Loaded, seal: &Seal) -> Result<Vec<Secret>, Unwritten> {
    let opened = loaded.secrets.iter().map(|(id, sealed)| {
        let row = secret_place(*id, loaded.endpoint);
        let bytes = seal.open(secret(&row), sealed).map_err(|e| Unwritten::NotNow(e.to_string()))?;
        Secret::from_bytes(&bytes).map_err(|e| Unwritten::NotNow(e.to_string()))
    });
    let secrets = opened.collect::<Result<Vec<_>, _>>()?;
    // Never unsigned.
    if secrets.is_empty() { Err(Unwritten::NotNow("the endpoint has no valid secret".to_owned())) } else { Ok(secrets) }
}
