use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use postrider_contract::signature::PublicKey;
use serde_json::json;
use sha2::{Digest as _, Sha256};

/// Where receivers look for the public keys of `v1a` signatures.
pub const KEYS_PATH: &str = "/.well-known/webhook-keys";

/// The document at [`KEYS_PATH`]: a JSON Web Key Set (RFC 7517, RFC 8037) whose keys also have the form that verifiers of Standard Webhooks
/// take, as `whpk`. While keys rotate it lists all that may have signed.
pub fn keys_document<'a>(keys: impl IntoIterator<Item = &'a PublicKey>) -> String {
    let keys: Vec<_> = keys
        .into_iter()
        .map(|key| {
            let x = URL_SAFE_NO_PAD.encode(key.as_bytes());
            let kid = thumbprint(&x);
            json!({"kty": "OKP", "crv": "Ed25519", "alg": "EdDSA", "use": "sig", "kid": kid, "x": x, "whpk": key.to_string()})
        })
        .collect();
    json!({ "keys": keys }).to_string()
}

/// RFC 7638: the hash of the required members in their order, without blanks.
fn thumbprint(x: &str) -> String {
    let members = format!(r#"{{"crv":"Ed25519","kty":"OKP","x":"{x}"}}"#);
    URL_SAFE_NO_PAD.encode(Sha256::digest(members))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_is_a_key_set_with_the_thumbprints_of_the_standard() {
        // The key and the thumbprint of RFC 8037, appendix A.3.
        let key: PublicKey = "whpk_11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=".parse().unwrap();
        let document: serde_json::Value = serde_json::from_str(&keys_document([&key])).unwrap();
        let expected = json!({"keys": [{
            "kty": "OKP", "crv": "Ed25519", "alg": "EdDSA", "use": "sig",
            "kid": "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k",
            "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo",
            "whpk": "whpk_11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=",
        }]});
        assert_eq!(document, expected);
        assert_eq!(keys_document([]), r#"{"keys":[]}"#);
    }
}
