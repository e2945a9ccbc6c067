use std::time::Duration;

use postrider::Timestamp;
use postrider_contract::signature::{PublicKey, Secret, SigningKey};
use uuid::Uuid;

use super::pg;
use super::{EndpointId, Endpoints};
use crate::dice;
use crate::error::Error;

/// How long an old secret signs beside a new one when the rotation does not say otherwise.
pub const OVERLAP: Duration = Duration::from_hours(24);

/// What a request is signed with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum KeyKind {
    /// HMAC with a secret that both sides know.
    #[default]
    V1,
    /// An ed25519 key of which receivers know the public half.
    V1a,
}

impl KeyKind {
    /// Its name, as the header and SQL spell it.
    pub fn name(self) -> &'static str {
        match self {
            Self::V1 => "v1",
            Self::V1a => "v1a",
        }
    }

    pub(crate) fn of(name: &str) -> Option<Self> {
        [Self::V1, Self::V1a].into_iter().find(|kind| kind.name() == name)
    }
}

/// How a secret is rotated.
#[derive(Debug, Clone)]
pub struct Rotation {
    /// Which kind. A first one of the kind `v1a` signs beside those of `v1`.
    pub kind: KeyKind,
    /// How long those that are valid go on signing beside the new one, at most 7 days. Default: [`OVERLAP`].
    pub overlap: Duration,
    /// The new secret, if its kind is `v1`. Default: one is generated.
    pub secret: Option<Secret>,
}

impl Default for Rotation {
    fn default() -> Self {
        Self { kind: KeyKind::V1, overlap: OVERLAP, secret: None }
    }
}

/// What a rotation made. A secret is shown here and never again.
#[derive(Debug)]
pub enum Rotated {
    /// The secret that receivers verify with; [`Secret::reveal`] gives its text.
    Secret(Secret),
    /// The public half of the new key.
    PublicKey(PublicKey),
}

/// A secret as it is told of: not what it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretView {
    /// Its id.
    pub id: Uuid,
    /// Its kind.
    pub kind: KeyKind,
    /// Since when it signs.
    pub valid_from: Timestamp,
    /// Until when; `None` for the one that a rotation would replace.
    pub valid_until: Option<Timestamp>,
    /// Its public half, if it has one.
    pub public_key: Option<String>,
}

impl Endpoints {
    /// Gives an endpoint a new secret; requests are signed with it at once, and beside it with the older ones until the overlap is over.
    /// `None` if there is no such endpoint. A refusal names `overlap` or `secret`.
    pub async fn rotate_secret(&self, id: EndpointId, rotation: Rotation) -> Result<Option<Rotated>, Error> {
        let overlap = i64::try_from(rotation.overlap.as_millis()).unwrap_or(i64::MAX);
        let (bytes, rotated) = match rotation.kind {
            KeyKind::V1 => {
                let secret = match rotation.secret {
                    Some(given) => given,
                    None => Secret::generate(dice::bytes()?),
                };
                (secret.as_bytes().to_vec().into(), Rotated::Secret(secret))
            }
            KeyKind::V1a => {
                let seed = zeroize::Zeroizing::new(dice::bytes::<32>()?);
                (seed.to_vec().into(), Rotated::PublicKey(SigningKey::from_seed(&seed).public()))
            }
        };
        let bytes: zeroize::Zeroizing<Vec<u8>> = bytes;
        let (row, sealed) = pg::seal_secret(&self.seal, id, &bytes)?;
        let mut connection = pg::connection(&self.pool).await?;
        let done = pg::rotate(&mut connection, id, (rotation.kind, overlap), (row, &sealed)).await?;
        Ok(done.then_some(rotated))
    }

    /// The secrets that sign now, the newest first; of keys of the kind `v1a` with their public halves, for whoever publishes them.
    pub async fn secrets(&self, id: EndpointId) -> Result<Vec<SecretView>, Error> {
        let rows = pg::secrets(&self.pool, id).await?;
        let view = |(view, sealed): (SecretView, _)| {
            if view.kind == KeyKind::V1 {
                return Ok(view);
            }
            let row = pg::secret_place(view.id, id);
            let seed = self.seal.open(crate::seal::secret(&row), &sealed)?;
            let key = signing_key(&seed).map(|key| key.public().to_string());
            Ok(SecretView { public_key: key, ..view })
        };
        rows.into_iter().map(view).collect()
    }
}

/// The key that grows from an opened seed.
pub(crate) fn signing_key(seed: &[u8]) -> Option<SigningKey> {
    <&[u8; 32]>::try_from(seed).ok().map(SigningKey::from_seed)
}
