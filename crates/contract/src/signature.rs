//! Standard Webhooks: sign and verify.
//!
//! What is signed is `id.timestamp.body` over the exact bytes of the body. `v1` is HMAC-SHA256 with a shared [`Secret`],
//! `v1a` is ed25519 with a [`SigningKey`] whose [`PublicKey`] the receiver knows. Nothing here has a clock of its own.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ed25519_dalek::Signer as _;
use hmac::digest::CtOutput;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;
use zeroize::Zeroizing;

use crate::code::{Code, Refused};

/// How far a request's timestamp may be from the receiver's clock, in both directions, unless told otherwise.
pub const TOLERANCE: Duration = Duration::from_mins(5);
/// The shortest secret, in bytes.
pub const SECRET_BYTES_MIN: usize = 24;
/// The longest secret, in bytes.
pub const SECRET_BYTES_MAX: usize = 64;
/// The most signatures that one header may carry; checking one costs time that an attacker would otherwise choose.
const SIGNATURES_MAX: usize = 16;

const SECRET_PREFIX: &str = "whsec_";
const PUBLIC_PREFIX: &str = "whpk_";

type HmacSha256 = Hmac<Sha256>;

/// A shared secret of scheme `v1`. Its memory is wiped when it is dropped, and its `Debug` shows nothing of it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Zeroizing<Vec<u8>>);

impl Secret {
    /// Parses `whsec_` and the base64 of 24 to 64 bytes; the error names the field `secret` and never repeats its text.
    pub fn parse(text: &str) -> Result<Self, Refused> {
        let encoded = text
            .strip_prefix(SECRET_PREFIX)
            .ok_or_else(|| refused("secret", "it does not begin with whsec_", SECRET_REMEDY))?;
        let bytes = STANDARD
            .decode(encoded)
            .map(Zeroizing::new)
            .map_err(|_| refused("secret", "what follows whsec_ is not base64 with padding", SECRET_REMEDY))?;
        Self::of(bytes)
    }

    /// Wraps 24 to 64 bytes that a door decrypted or read itself; the error names the field `secret`.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Refused> {
        Self::of(Zeroizing::new(bytes.to_vec()))
    }

    /// A new secret of 32 bytes that the caller's dice threw.
    pub fn generate(dice: [u8; 32]) -> Self {
        Self(Zeroizing::new(dice.to_vec()))
    }

    /// The text form, to be shown once.
    pub fn reveal(&self) -> Zeroizing<String> {
        Zeroizing::new(format!("{SECRET_PREFIX}{}", STANDARD.encode(self.0.as_slice())))
    }

    /// The bytes, to be sealed.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    fn of(bytes: Zeroizing<Vec<u8>>) -> Result<Self, Refused> {
        if (SECRET_BYTES_MIN..=SECRET_BYTES_MAX).contains(&bytes.len()) {
            return Ok(Self(bytes));
        }
        let message = format!("it has {} bytes, not {SECRET_BYTES_MIN} to {SECRET_BYTES_MAX}", bytes.len());
        Err(refused("secret", message, SECRET_REMEDY))
    }

    fn mac(&self, id: &[u8], timestamp: &[u8], body: &[u8]) -> CtOutput<HmacSha256> {
        // A key of HMAC may have any length; the other arm cannot be reached and signs with nothing that is known.
        let mut mac = HmacSha256::new_from_slice(&self.0).unwrap_or_else(|_| HmacSha256::new(&[0; 64].into()));
        for part in [id, b".", timestamp, b".", body] {
            mac.update(part);
        }
        mac.finalize()
    }
}

const SECRET_REMEDY: &str = "use whsec_ followed by the base64 of 24 to 64 random bytes";

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(redacted)")
    }
}

impl FromStr for Secret {
    type Err = Refused;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse(text)
    }
}

/// The private half of scheme `v1a`. Its memory is wiped when it is dropped, and its `Debug` shows nothing of it.
#[derive(Clone)]
pub struct SigningKey(ed25519_dalek::SigningKey);

impl SigningKey {
    /// The key that grows from a seed.
    pub fn from_seed(seed: &[u8; 32]) -> Self {
        Self(ed25519_dalek::SigningKey::from_bytes(seed))
    }

    /// The half that receivers may know.
    pub fn public(&self) -> PublicKey {
        PublicKey(self.0.verifying_key())
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SigningKey(redacted)")
    }
}

/// The public half of scheme `v1a`; as text `whpk_` and base64.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PublicKey(ed25519_dalek::VerifyingKey);

impl PublicKey {
    /// Its 32 bytes.
    pub fn as_bytes(&self) -> &[u8; 32] {
        self.0.as_bytes()
    }
}

impl FromStr for PublicKey {
    type Err = Refused;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let remedy = "use whpk_ followed by the base64 of an ed25519 public key";
        let encoded = text
            .strip_prefix(PUBLIC_PREFIX)
            .ok_or_else(|| refused("public_key", "it does not begin with whpk_", remedy))?;
        STANDARD
            .decode(encoded)
            .ok()
            .and_then(|bytes| <[u8; 32]>::try_from(bytes).ok())
            .and_then(|bytes| ed25519_dalek::VerifyingKey::from_bytes(&bytes).ok())
            .map(Self)
            .ok_or_else(|| refused("public_key", "what follows whpk_ is not the base64 of a public key", remedy))
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PUBLIC_PREFIX}{}", STANDARD.encode(self.0.as_bytes()))
    }
}

/// The value of `webhook-signature`: one `v1,…` for each secret, in their order, joined by spaces.
///
/// `timestamp` is in seconds since the epoch. An id with a dot would make two requests of one text: never use one.
pub fn sign_v1(secrets: &[Secret], id: &str, timestamp: i64, body: &[u8]) -> String {
    let timestamp = timestamp.to_string();
    let signed: Vec<String> = secrets
        .iter()
        .map(|secret| secret.mac(id.as_bytes(), timestamp.as_bytes(), body))
        .map(|tag| format!("v1,{}", STANDARD.encode(tag.into_bytes())))
        .collect();
    signed.join(" ")
}

/// The same with an ed25519 key: one `v1a,…`.
pub fn sign_v1a(key: &SigningKey, id: &str, timestamp: i64, body: &[u8]) -> String {
    let content = content(id.as_bytes(), timestamp.to_string().as_bytes(), body);
    format!("v1a,{}", STANDARD.encode(key.0.sign(&content).to_bytes()))
}

/// A request as it came in: three headers and the body, all of them any bytes.
#[derive(Debug, Clone, Copy)]
pub struct Received<'a> {
    /// The value of `webhook-id`.
    pub id: &'a [u8],
    /// The value of `webhook-timestamp`.
    pub timestamp: &'a [u8],
    /// The value of `webhook-signature`.
    pub signature: &'a [u8],
    /// The body, before anything parsed it.
    pub body: &'a [u8],
}

/// What a receiver trusts.
#[derive(Debug, Clone, Copy)]
pub struct Trust<'a> {
    /// Secrets of scheme `v1`; more than one while they rotate.
    pub secrets: &'a [Secret],
    /// Keys of scheme `v1a`.
    pub public_keys: &'a [PublicKey],
    /// How far the timestamp may be from `now`, before and after it.
    pub tolerance: Duration,
}

impl<'a> Trust<'a> {
    /// Trusts these secrets, within [`TOLERANCE`].
    pub const fn secrets(secrets: &'a [Secret]) -> Self {
        Self { secrets, public_keys: &[], tolerance: TOLERANCE }
    }

    /// Trusts these public keys, within [`TOLERANCE`].
    pub const fn public_keys(public_keys: &'a [PublicKey]) -> Self {
        Self { secrets: &[], public_keys, tolerance: TOLERANCE }
    }
}

/// Why a request is not to be believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotVerified {
    /// `webhook-id` is empty or has a dot.
    #[error("webhook-id is empty or has a dot")]
    Id,
    /// `webhook-timestamp` is not a whole number of seconds.
    #[error("webhook-timestamp is not a whole number of seconds")]
    Timestamp,
    /// The timestamp is further in the past than tolerated: perhaps somebody replays an old request.
    #[error("webhook-timestamp is too far in the past")]
    TooOld,
    /// The timestamp is further in the future than tolerated.
    #[error("webhook-timestamp is too far in the future")]
    TooNew,
    /// `webhook-signature` has no signature of a scheme that is trusted here.
    #[error("webhook-signature has no signature of a scheme that is trusted here")]
    NoSignature,
    /// `webhook-signature` has more signatures than a sender needs.
    #[error("webhook-signature has more than 16 signatures")]
    TooManySignatures,
    /// No signature fits: another secret, or other bytes than those that were signed.
    #[error("no signature fits the secret and the exact bytes of the body")]
    Mismatch,
}

/// Verifies a request at the moment `now`, in seconds since the epoch.
///
/// Total: any bytes give an answer. The time it takes depends on lengths and on the number of signatures, not on how
/// much of one is right.
///
/// ```
/// use postrider_contract::signature::{Received, Secret, Trust, verify};
/// let secret: Secret = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=".parse()?;
/// let received = Received {
///     id: b"evt_0001",
///     timestamp: b"1700000000",
///     signature: b"v1,0lKFfibB7iVpQtQCZAsH31/zgPYF8MxivrySKvHmhfA=",
///     body: b"{}",
/// };
/// verify(&received, &Trust::secrets(&[secret]), 1_700_000_042)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn verify(received: &Received<'_>, trust: &Trust<'_>, now: i64) -> Result<(), NotVerified> {
    if received.id.is_empty() || received.id.contains(&b'.') {
        return Err(NotVerified::Id);
    }
    check_time(received.timestamp, trust.tolerance, now)?;
    let candidates = Candidates::of(received.signature)?;
    if candidates.none_for(trust) {
        return Err(NotVerified::NoSignature);
    }
    let by_secret = candidates.fit_secret(received, trust.secrets);
    let by_key = candidates.fit_key(received, trust.public_keys);
    if by_secret | by_key { Ok(()) } else { Err(NotVerified::Mismatch) }
}

fn check_time(timestamp: &[u8], tolerance: Duration, now: i64) -> Result<(), NotVerified> {
    // `parse` alone would take a sign.
    if !timestamp.iter().all(u8::is_ascii_digit) {
        return Err(NotVerified::Timestamp);
    }
    let sent: i64 =
        std::str::from_utf8(timestamp).ok().and_then(|text| text.parse().ok()).ok_or(NotVerified::Timestamp)?;
    let tolerance = i64::try_from(tolerance.as_secs()).unwrap_or(i64::MAX);
    if sent < now.saturating_sub(tolerance) {
        return Err(NotVerified::TooOld);
    }
    if sent > now.saturating_add(tolerance) {
        return Err(NotVerified::TooNew);
    }
    Ok(())
}

/// The well-formed signatures of a header; those of other schemes are skipped, as the specification asks.
#[derive(Default)]
struct Candidates {
    v1: Vec<CtOutput<HmacSha256>>,
    v1a: Vec<ed25519_dalek::Signature>,
}

impl Candidates {
    fn of(header: &[u8]) -> Result<Self, NotVerified> {
        let mut found = Self::default();
        for (index, entry) in header.split(|b| *b == b' ').filter(|entry| !entry.is_empty()).enumerate() {
            if index >= SIGNATURES_MAX {
                return Err(NotVerified::TooManySignatures);
            }
            if let Some(tag) = entry.strip_prefix(b"v1,").and_then(decode::<32>) {
                found.v1.push(CtOutput::new(tag.into()));
            } else if let Some(bytes) = entry.strip_prefix(b"v1a,").and_then(decode::<64>) {
                found.v1a.push(ed25519_dalek::Signature::from_bytes(&bytes));
            }
        }
        Ok(found)
    }

    fn none_for(&self, trust: &Trust<'_>) -> bool {
        (trust.secrets.is_empty() || self.v1.is_empty()) && (trust.public_keys.is_empty() || self.v1a.is_empty())
    }

    fn fit_secret(&self, received: &Received<'_>, secrets: &[Secret]) -> bool {
        let mut fits = false;
        for secret in secrets {
            let expected = secret.mac(received.id, received.timestamp, received.body);
            for candidate in &self.v1 {
                fits |= *candidate == expected;
            }
        }
        fits
    }

    fn fit_key(&self, received: &Received<'_>, keys: &[PublicKey]) -> bool {
        if self.v1a.is_empty() || keys.is_empty() {
            return false;
        }
        let content = content(received.id, received.timestamp, received.body);
        keys.iter().any(|key| self.v1a.iter().any(|candidate| key.0.verify_strict(&content, candidate).is_ok()))
    }
}

fn decode<const N: usize>(encoded: &[u8]) -> Option<[u8; N]> {
    // A bound before the allocation: the header's length is the sender's choice.
    if encoded.len() > 4 * N.div_ceil(3) {
        return None;
    }
    STANDARD.decode(encoded).ok()?.try_into().ok()
}

fn content(id: &[u8], timestamp: &[u8], body: &[u8]) -> Vec<u8> {
    [id, timestamp, body].join(&b'.')
}

fn refused(field: &str, message: impl Into<String>, remedy: &str) -> Refused {
    Refused::new(Code::Option, field, message, remedy)
}
