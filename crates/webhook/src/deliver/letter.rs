use std::sync::Arc;
use std::time::Duration;

use postrider_contract::signature::{Secret, SigningKey, sign_v1, sign_v1a};
use postrider_contract::{Event, Timestamp};

use super::errand::{Errand, Trigger};
use super::pg::{Addressee, Loaded};
use crate::body::{BODY_BYTES_MAX, Content, Format, content, sha256};
use crate::client::Post;
use crate::endpoint::{EndpointId, KeyKind, headers_place, secret_place, signing_key};
use crate::error::Error;
use crate::headers::Headers;
use crate::judge::{On4xx, Rules};
use crate::seal::{Seal, secret};
use crate::target::Target;

const USER_AGENT: &str = concat!("Postrider/", env!("CARGO_PKG_VERSION"));

/// A request that is ready to be sent.
pub(super) struct Letter {
    pub(super) endpoint: EndpointId,
    pub(super) max_attempts: i16,
    pub(super) steps: Option<Vec<Duration>>,
    pub(super) enabled_at: Timestamp,
    /// The scope function is to be asked before it is sent.
    pub(super) scoped: bool,
    pub(super) sha256: [u8; 32],
    pub(super) target: Target,
    extra: Headers,
    headers: Vec<(&'static str, String)>,
    body: Vec<u8>,
    deadline: Duration,
    on_4xx: On4xx,
    answer_contains: Option<String>,
}

/// Why there is no letter.
pub(super) enum Unwritten {
    /// There never will be one.
    Never(&'static str),
    /// It was delivered already: what told of it was lost on the way.
    Delivered,
    /// It is not to be delivered, and nobody has failed: it ends as cancelled.
    Cancelled(&'static str),
    /// The endpoint was disabled just now; whatever comes later is held before it is claimed.
    Held,
    /// Something is missing on our side; nothing is held against the endpoint.
    NotNow(String),
    /// The database, as everybody who asked with this one learns.
    Database(Arc<Error>),
    /// Nobody answered: the process stops.
    Unanswered,
}

impl Letter {
    pub(super) fn post(&self) -> Post<'_> {
        Post {
            reuse: Some(self.endpoint.0),
            extra: &self.extra,
            headers: &self.headers,
            ..Post::new(&self.target, &self.body, self.deadline)
        }
    }

    pub(super) fn rules(&self) -> Rules<'_> {
        Rules { on_4xx: self.on_4xx, answer_contains: self.answer_contains.as_deref() }
    }
}

/// Writes and signs a letter. The id and the body are equal at every attempt; the time and the signature are new.
pub(super) fn write(
    (attempt, errand): (i16, &Errand),
    event: &Event,
    loaded: Option<Loaded>,
    (seal, now): (&Seal, Timestamp),
) -> Result<Letter, Unwritten> {
    let Some(Loaded { to, delivered }) = loaded.filter(|loaded| !loaded.to.deleted) else {
        return Err(Unwritten::Cancelled("the endpoint was deleted"));
    };
    if delivered {
        return Err(Unwritten::Delivered);
    }
    // a test is how an owner finds out whether to enable it
    if to.disabled && errand.trigger != Trigger::Test {
        return Err(Unwritten::Held);
    }
    let target = Target::parse(&to.url).map_err(|_| Unwritten::Never("the endpoint's url is not allowed"))?;
    let (secrets, keys) = secrets(&to, seal)?;
    let format = Format::of(to.format)
        .ok_or_else(|| Unwritten::NotNow(format!("this program does not know format {} of the body", to.format)))?;
    let Content { headers: described, body } = content(event, format);
    if body.len() > BODY_BYTES_MAX {
        return Err(Unwritten::Never("the body is larger than 262144 bytes, the limit of a webhook"));
    }
    let (id, timestamp) = (errand.sent_as.map_or_else(|| event.id.to_string(), |id| id.to_string()), now.as_secs());
    let v1 = Some(sign_v1(&secrets, &id, timestamp, &body)).filter(|signature| !signature.is_empty());
    let v1a = keys.iter().map(|key| sign_v1a(key, &id, timestamp, &body));
    let signature = v1.into_iter().chain(v1a).collect::<Vec<_>>().join(" ");
    let extra = own_headers(&to, seal)?;
    let mut headers = Vec::with_capacity(described.len() + 6);
    // the trace goes on at the receiver; not signed, like every header but those of the signature
    headers.extend(event.traceparent.clone().map(|trace| ("traceparent", trace)));
    headers.extend(described);
    headers.extend([
        ("user-agent", USER_AGENT.to_owned()),
        ("webhook-attempt", attempt.to_string()),
        // What is signed comes last, so that nothing can stand in its place.
        ("webhook-id", id),
        ("webhook-timestamp", timestamp.to_string()),
        ("webhook-signature", signature),
    ]);
    Ok(Letter {
        endpoint: to.endpoint,
        max_attempts: to.max_attempts,
        steps: to.steps.clone(),
        on_4xx: to.on_4xx,
        answer_contains: to.answer_contains.clone(),
        enabled_at: to.enabled_at,
        // a test tells nothing of anybody
        scoped: to.scoped && errand.trigger != Trigger::Test,
        sha256: sha256(&body),
        target,
        extra,
        headers,
        body,
        deadline: to.timeout,
    })
}

/// Every valid secret and key. A key of the seal that is missing here is a deployment's mistake: the delivery waits for it.
fn secrets(to: &Addressee, seal: &Seal) -> Result<(Vec<Secret>, Vec<SigningKey>), Unwritten> {
    let (mut secrets, mut keys) = (Vec::new(), Vec::new());
    for (id, kind, sealed) in &to.secrets {
        let row = secret_place(*id, to.endpoint);
        let bytes = seal.open(secret(&row), sealed).map_err(|e| Unwritten::NotNow(e.to_string()))?;
        match kind {
            KeyKind::V1 => secrets.push(Secret::from_bytes(&bytes).map_err(|e| Unwritten::NotNow(e.to_string()))?),
            KeyKind::V1a => {
                let key = signing_key(&bytes).ok_or_else(|| Unwritten::NotNow("a key is not 32 bytes".to_owned()))?;
                keys.push(key);
            }
        }
    }
    // Never unsigned.
    if secrets.is_empty() && keys.is_empty() {
        return Err(Unwritten::NotNow("the endpoint has no valid secret".to_owned()));
    }
    Ok((secrets, keys))
}

/// The endpoint's own headers.
fn own_headers(to: &Addressee, seal: &Seal) -> Result<Headers, Unwritten> {
    let Some(sealed) = &to.headers else { return Ok(Headers::default()) };
    let row = to.endpoint.to_string();
    let opened = seal.open(headers_place(&row), sealed).map_err(|e| Unwritten::NotNow(e.to_string()))?;
    let pairs: Vec<(String, String)> = serde_json::from_slice(&opened)
        .map_err(|_| Unwritten::NotNow("the endpoint's headers cannot be read".to_owned()))?;
    Headers::new(pairs).map_err(|refused| Unwritten::NotNow(refused.to_string()))
}
