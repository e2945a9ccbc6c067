use std::fmt;
use std::sync::Arc;

use aes_gcm::aead::{Aead, KeyInit, Payload};
use aes_gcm::{Aes256Gcm, Nonce};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use postrider_contract::{Code, Refused};
use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

const NONCE_BYTES: usize = 12;

/// Seals what must not stand readable in a table: AES-256-GCM with a key that the database never sees.
///
/// Several keys may be in the ring: the first one seals, all of them open. A sealed value only opens in the row that it
/// was sealed for.
#[derive(Clone)]
pub struct Seal(Arc<[SealKey]>);

struct SealKey {
    id: String,
    cipher: Aes256Gcm,
}

/// Where a sealed value stands; part of what is authenticated, so that rows cannot be swapped.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place<'a> {
    pub(crate) table: &'a str,
    pub(crate) row: &'a str,
}

/// A secret's row.
pub(crate) const fn secret(row: &str) -> Place<'_> {
    Place { table: "endpoint_secret", row }
}

/// A sealed value and the key that opens it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sealed {
    pub(crate) key_id: String,
    pub(crate) bytes: Vec<u8>,
}

/// Why a sealed value stays closed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SealError {
    /// The ring has no key of this id.
    #[error("no key with the id {0} is configured: add the key that sealed this secret")]
    UnknownKey(String),
    /// The value was changed, cut, or sealed for another row.
    #[error("the sealed value does not belong to this row or was changed")]
    Broken,
    /// The cipher refused to work.
    #[error("the value cannot be sealed")]
    Unsealable,
}

impl Seal {
    /// A ring of keys, each the base64 of 32 random bytes (`openssl rand -base64 32`). The first one seals.
    ///
    /// The error names the field `seal_key` and never repeats a key.
    pub fn parse<T: AsRef<str>>(keys: impl IntoIterator<Item = T>) -> Result<Self, Refused> {
        let keys: Vec<SealKey> =
            keys.into_iter().map(|text| SealKey::parse(text.as_ref())).collect::<Result<_, _>>()?;
        if keys.is_empty() {
            return Err(refused("there is none"));
        }
        Ok(Self(keys.into()))
    }

    /// Seals a value for its row. `nonce` comes from the caller's dice and is never used twice.
    pub(crate) fn seal(&self, place: Place<'_>, value: &[u8], nonce: [u8; NONCE_BYTES]) -> Result<Sealed, SealError> {
        let key = self.0.first().ok_or(SealError::Unsealable)?;
        let aad = place.aad(&key.id);
        let sealed = key
            .cipher
            .encrypt(&Nonce::from(nonce), Payload { msg: value, aad: &aad })
            .map_err(|_| SealError::Unsealable)?;
        Ok(Sealed { key_id: key.id.clone(), bytes: [nonce.as_slice(), &sealed].concat() })
    }

    /// Opens what was sealed for this row.
    pub(crate) fn open(&self, place: Place<'_>, sealed: &Sealed) -> Result<Zeroizing<Vec<u8>>, SealError> {
        let key = self
            .0
            .iter()
            .find(|key| key.id == sealed.key_id)
            .ok_or_else(|| SealError::UnknownKey(sealed.key_id.clone()))?;
        let (nonce, msg) = sealed.bytes.split_first_chunk::<NONCE_BYTES>().ok_or(SealError::Broken)?;
        let aad = place.aad(&key.id);
        let opened = key.cipher.decrypt(&Nonce::from(*nonce), Payload { msg, aad: &aad });
        opened.map(Zeroizing::new).map_err(|_| SealError::Broken)
    }
}

impl fmt::Debug for Seal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|key| &key.id)).finish()
    }
}

impl SealKey {
    fn parse(text: &str) -> Result<Self, Refused> {
        let bytes = STANDARD.decode(text.trim()).map(Zeroizing::new).map_err(|_| refused("it is not base64"))?;
        let cipher = Aes256Gcm::new_from_slice(&bytes)
            .map_err(|_| refused(format!("it is the base64 of {} bytes, not of 32", bytes.len())))?;
        // The id follows from the key, so that nobody has to name keys and two keys never share a name.
        let mut hash = Sha256::new();
        hash.update(b"postrider seal key id");
        hash.update(bytes.as_slice());
        let id = hash.finalize().iter().take(8).fold(String::new(), |id, byte| format!("{id}{byte:02x}"));
        Ok(Self { id, cipher })
    }
}

impl Place<'_> {
    /// Lengths stand in front, so that no two places have one text.
    fn aad(self, key_id: &str) -> Vec<u8> {
        let mut aad = Vec::new();
        for part in [self.table, self.row, key_id] {
            aad.extend_from_slice(&part.len().to_be_bytes());
            aad.extend_from_slice(part.as_bytes());
        }
        aad
    }
}

fn refused(message: impl Into<String>) -> Refused {
    Refused::new(Code::Option, "seal_key", message, "use the output of: openssl rand -base64 32")
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACE: Place<'static> = secret("1/7");

    fn key(byte: u8) -> String {
        STANDARD.encode([byte; 32])
    }

    #[test]
    fn a_sealed_value_opens_in_its_row_and_nowhere_else() {
        let seal = Seal::parse([key(1)]).unwrap();
        let sealed = seal.seal(PLACE, b"whatever", [3; 12]).unwrap();
        assert_eq!(seal.open(PLACE, &sealed).unwrap().as_slice(), b"whatever");
        assert!(!sealed.bytes.windows(4).any(|w| w == b"what"));
        for other in [
            Place { table: "endpoint_secret", row: "1/8" },
            Place { table: "endpoint_secret", row: "2/7" },
            Place { table: "endpoint", row: "1/7" },
            Place { table: "endpoint_secret1", row: "/7" },
        ] {
            assert_eq!(seal.open(other, &sealed), Err(SealError::Broken), "{other:?}");
        }
    }

    #[test]
    fn a_flipped_bit_a_lost_byte_or_an_added_one_keeps_it_closed() {
        let seal = Seal::parse([key(1)]).unwrap();
        let sealed = seal.seal(PLACE, &[42; 32], [3; 12]).unwrap();
        for byte in 0..sealed.bytes.len() {
            for bit in 0..8 {
                let mut other = sealed.clone();
                other.bytes[byte] ^= 1 << bit;
                assert_eq!(seal.open(PLACE, &other), Err(SealError::Broken), "byte {byte}, bit {bit}");
            }
            let cut = Sealed { bytes: sealed.bytes[..byte].to_vec(), ..sealed.clone() };
            assert_eq!(seal.open(PLACE, &cut), Err(SealError::Broken), "cut to {byte}");
        }
        let mut longer = sealed.clone();
        longer.bytes.push(0);
        assert_eq!(seal.open(PLACE, &longer), Err(SealError::Broken));
    }

    #[test]
    fn a_new_key_seals_while_the_old_one_still_opens() {
        let old = Seal::parse([key(1)]).unwrap();
        let sealed = old.seal(PLACE, b"kept", [3; 12]).unwrap();
        let both = Seal::parse([key(2), key(1)]).unwrap();
        assert_eq!(both.open(PLACE, &sealed).unwrap().as_slice(), b"kept");
        let fresh = both.seal(PLACE, b"kept", [3; 12]).unwrap();
        assert_ne!(fresh.key_id, sealed.key_id);
        assert_eq!(old.open(PLACE, &fresh), Err(SealError::UnknownKey(fresh.key_id.clone())));
        // The id is authenticated too: naming another key of the ring opens nothing.
        let renamed = Sealed { key_id: sealed.key_id.clone(), ..fresh };
        assert_eq!(both.open(PLACE, &renamed), Err(SealError::Broken));
    }

    #[test]
    fn the_cipher_is_aes_256_gcm_with_the_nonce_in_front() {
        // Computed with Python's `cryptography` 48 and with OpenSSL: AESGCM(bytes([1]*32)).encrypt(bytes([3]*12), b"whatever", aad).
        let seal = Seal::parse([key(1)]).unwrap();
        let sealed = seal.seal(PLACE, b"whatever", [3; 12]).unwrap();
        assert_eq!(sealed.key_id, "e1fd551104e693f9");
        assert_eq!(STANDARD.encode(&sealed.bytes), "AwMDAwMDAwMDAwMDjwl17pryUhubyDShRoEdYeNhCv+nWVl6");
    }

    #[test]
    fn a_key_is_32_bytes_of_base64_and_is_not_shown() {
        for text in ["", "not base64!", &STANDARD.encode([1; 16]), &STANDARD.encode([1; 33])] {
            let refused = Seal::parse([text]).unwrap_err();
            assert_eq!(refused.field, "seal_key");
            assert!(refused.remedy.contains("openssl"), "{refused}");
        }
        assert!(Seal::parse(Vec::<String>::new()).is_err());
        let shown = format!("{:?}", Seal::parse([key(1)]).unwrap());
        assert!(!shown.contains(&key(1)) && shown.len() < 30, "{shown}");
    }
}
