//! Standard Webhooks, held against fixed vectors and against the independent `standardwebhooks` crate.
#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test may panic, and the other crate reads the system's clock"
)]

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use postrider_contract::Code;
use postrider_contract::signature::{
    NotVerified, PublicKey, Received, Secret, SigningKey, TOLERANCE, Trust, sign_v1, sign_v1a, verify,
};
use proptest::prelude::*;

const K: &str = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
const K2: &str = "whsec_ICEiIyQlJicoKSorLC0uLzAxMjM0NTY3ODk6Ozw9Pj8=";
const AT: i64 = 1_700_000_000;

/// Computed with Python's `hmac` and `hashlib`, not with this code.
const VECTORS: [(&str, &[u8], &str); 6] = [
    ("evt_empty", b"", "v1,GUYDELkSw8FK+T8uL1UeCZWBON66g2GKuoEbAK3mtA4="),
    ("evt_0001", b"{}", "v1,0lKFfibB7iVpQtQCZAsH31/zgPYF8MxivrySKvHmhfA="),
    ("evt_0001", b"{}\n", "v1,LAbaadvuOg1cteSh1sLrMTE7+liJ82ugJk27HEbqV+4="),
    ("evt_crlf", b"{\"a\":\"x\"}\r\n", "v1,2qNfIo9fxpHlSusEnmd+A8fpzolyr0U+Gp9k7Op7W90="),
    ("evt_num", br#"{"a":1.0,"b":12345678901234567890,"c":1e3}"#, "v1,x3G5Z8EcZmmYcvAn3aoBR1rqA7d9Tps1sqfiWEGQKCA="),
    ("evt_bin", b"\xff\xfe\x00\x0d\x0a", "v1,ZvjPxE5jnVXs1rwFiwmpvaUdHgRFXD/wNRe4JVtlecg="),
];
const ROTATED: &str = "v1,0lKFfibB7iVpQtQCZAsH31/zgPYF8MxivrySKvHmhfA= v1,2T3Au5DklWN7g9LDFkdzQjDAo/5FOIkHEJMW/DhCMGM=";
const ED25519: &str = "v1a,Yjlv8OaDgOq/p6wFqee60Ld6vfacuZNN88+BTwlQs+ScHke30aSOgR5RTAjZjs0czXwnF7LERNERdgzoWf6PAA==";
const PUBLIC: &str = "whpk_A6EHv/POEL4dcN0Y50vAmWfk1jCbpQ1fHdyGZBJVMbg=";

fn secret(text: &str) -> Secret {
    Secret::parse(text).unwrap()
}

fn seed() -> [u8; 32] {
    std::array::from_fn(|i| u8::try_from(i).unwrap())
}

fn received<'a>(id: &'a str, timestamp: &'a str, signature: &'a str, body: &'a [u8]) -> Received<'a> {
    Received { id: id.as_bytes(), timestamp: timestamp.as_bytes(), signature: signature.as_bytes(), body }
}

#[test]
fn a_signature_equals_the_vector_that_was_computed_elsewhere() {
    for (id, body, expected) in VECTORS {
        assert_eq!(sign_v1(&[secret(K)], id, AT, body), expected, "{id}");
        let trust = [secret(K)];
        assert_eq!(verify(&received(id, "1700000000", expected, body), &Trust::secrets(&trust), AT), Ok(()), "{id}");
    }
}

#[test]
fn while_secrets_rotate_both_sign_and_either_verifies() {
    assert_eq!(sign_v1(&[secret(K), secret(K2)], "evt_0001", AT, b"{}"), ROTATED);
    let request = received("evt_0001", "1700000000", ROTATED, b"{}");
    for trusted in [vec![secret(K)], vec![secret(K2)], vec![secret(K2), secret(K)]] {
        assert_eq!(verify(&request, &Trust::secrets(&trusted), AT), Ok(()));
    }
    let other = [Secret::generate([9; 32])];
    assert_eq!(verify(&request, &Trust::secrets(&other), AT), Err(NotVerified::Mismatch));
}

#[test]
fn an_ed25519_signature_equals_its_vector_and_verifies_with_the_public_key_alone() {
    let key = SigningKey::from_seed(&seed());
    assert_eq!(key.public().to_string(), PUBLIC);
    assert_eq!(sign_v1a(&key, "evt_0001", AT, b"{}"), ED25519);
    let keys: [PublicKey; 1] = [PUBLIC.parse().unwrap()];
    let request = received("evt_0001", "1700000000", ED25519, b"{}");
    assert_eq!(verify(&request, &Trust::public_keys(&keys), AT), Ok(()));
    // Beside an HMAC of somebody else's secret it still counts.
    let both = format!("{ROTATED} {ED25519}");
    let secrets = [Secret::generate([9; 32])];
    let trust = Trust { secrets: &secrets, public_keys: &keys, tolerance: TOLERANCE };
    assert_eq!(verify(&received("evt_0001", "1700000000", &both, b"{}"), &trust, AT), Ok(()));
    assert_eq!(verify(&received("evt_0001", "1700000000", &both, b"{} "), &trust, AT), Err(NotVerified::Mismatch));
}

#[test]
fn a_flipped_bit_anywhere_is_refused() {
    let body = br#"{"total":10}"#;
    let (keys, secrets) = ([PUBLIC.parse().unwrap()], [secret(K)]);
    let v1 = sign_v1(&secrets, "evt_0001", AT, body);
    let v1a = sign_v1a(&SigningKey::from_seed(&seed()), "evt_0001", AT, body);
    // Each check of ed25519 takes milliseconds without optimisation, so fewer bits of it.
    let cases: [(String, Trust<'_>, &[u8]); 2] =
        [(v1, Trust::secrets(&secrets), &[0, 1, 2, 3, 4, 5, 6, 7]), (v1a, Trust::public_keys(&keys), &[0, 5])];
    for (signature, trust, bits) in cases {
        let original = [b"evt_0001".to_vec(), b"1700000000".to_vec(), signature.into_bytes(), body.to_vec()];
        let check = |parts: &[Vec<u8>; 4]| {
            let [id, timestamp, signature, body] = parts;
            verify(&Received { id, timestamp, signature, body }, &trust, AT)
        };
        assert_eq!(check(&original), Ok(()));
        for part in 0..original.len() {
            for byte in 0..original[part].len() {
                for bit in bits {
                    let mut flipped = original.clone();
                    flipped[part][byte] ^= 1 << bit;
                    assert!(check(&flipped).is_err(), "part {part}, byte {byte}, bit {bit}");
                }
            }
            let mut shorter = original.clone();
            shorter[part].pop();
            assert!(check(&shorter).is_err(), "part {part} without its last byte");
        }
    }
}

#[test]
fn the_timestamp_is_tolerated_on_both_sides_up_to_the_second() {
    let trusted = [secret(K)];
    let trust = Trust::secrets(&trusted);
    let sign = |at: i64| sign_v1(&trusted, "evt_1", at, b"{}");
    let at_text = AT.to_string();
    let signature = sign(AT);
    let request = received("evt_1", &at_text, &signature, b"{}");
    assert_eq!(verify(&request, &trust, AT + 300), Ok(()));
    assert_eq!(verify(&request, &trust, AT + 301), Err(NotVerified::TooOld));
    assert_eq!(verify(&request, &trust, AT - 300), Ok(()));
    assert_eq!(verify(&request, &trust, AT - 301), Err(NotVerified::TooNew));
    let wide = Trust { tolerance: Duration::MAX, ..trust };
    for now in [i64::MIN, 0, i64::MAX] {
        let sent = i64::MAX.to_string();
        let signature = sign(i64::MAX);
        let answer = verify(&received("evt_1", &sent, &signature, b"{}"), &wide, now);
        assert_eq!(answer.is_ok(), now >= 0, "{now}");
    }
}

#[test]
fn each_malformed_header_has_its_own_answer() {
    let trusted = [secret(K)];
    let trust = Trust::secrets(&trusted);
    let good = sign_v1(&trusted, "evt_1", AT, b"{}");
    for timestamp in ["", "+1700000000", "-1", "1700000000.0", " 1700000000", "99999999999999999999", "١٧٠٠٠٠٠٠٠٠"]
    {
        let answer = verify(&received("evt_1", timestamp, &good, b"{}"), &trust, AT);
        assert_eq!(answer, Err(NotVerified::Timestamp), "{timestamp:?}");
    }
    for id in ["", "evt.1"] {
        assert_eq!(verify(&received(id, "1700000000", &good, b"{}"), &trust, AT), Err(NotVerified::Id), "{id:?}");
    }
    for signature in ["", " ", "v1", "v1,", "v2,abc", "v1,====", &good[3..], ED25519] {
        let answer = verify(&received("evt_1", "1700000000", signature, b"{}"), &trust, AT);
        assert_eq!(answer, Err(NotVerified::NoSignature), "{signature:?}");
    }
    let many = vec![good.as_str(); 17].join(" ");
    let answer = verify(&received("evt_1", "1700000000", &many, b"{}"), &trust, AT);
    assert_eq!(answer, Err(NotVerified::TooManySignatures));
    assert_eq!(
        verify(&received("evt_1", "1700000000", &many[..many.len() - good.len() - 1], b"{}"), &trust, AT),
        Ok(())
    );
    let nobody = Trust::secrets(&[]);
    assert_eq!(verify(&received("evt_1", "1700000000", &good, b"{}"), &nobody, AT), Err(NotVerified::NoSignature));
}

#[test]
fn a_secret_is_24_to_64_bytes_of_base64_and_is_never_shown_by_accident() {
    for bytes in [24, 32, 64] {
        let made = Secret::from_bytes(&vec![7; bytes]).unwrap();
        assert_eq!(Secret::parse(&made.reveal()).unwrap(), made);
    }
    for bytes in [0, 1, 23, 65, 1_000] {
        let refused = Secret::from_bytes(&vec![7; bytes]).unwrap_err();
        assert_eq!((refused.code, refused.field.as_str()), (Code::Option, "secret"), "{bytes}");
    }
    for text in
        ["", "whsec_", "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=", "whsec_AAEC", "WHSEC_AAECAwQF", "whsec_ä"]
    {
        let refused = Secret::parse(text).unwrap_err();
        assert_eq!(refused.field, "secret", "{text}");
        assert!(refused.to_string().contains("24 to 64"), "{refused}");
    }
    let unpadded = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8";
    let refused = Secret::parse(unpadded).unwrap_err();
    assert!(!refused.to_string().contains("AAEC"), "{refused}");
    assert_eq!(format!("{:?}", secret(K)), "Secret(redacted)");
    assert_eq!(format!("{:?}", SigningKey::from_seed(&seed())), "SigningKey(redacted)");
    assert_eq!(secret(K).reveal().as_str(), K);
    assert_eq!(Secret::generate(seed()), secret(K));
    assert!("whpk_AAAA".parse::<PublicKey>().is_err());
}

fn system_now() -> i64 {
    i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()).unwrap()
}

#[test]
fn the_independent_crate_believes_our_signature_and_we_believe_its() {
    let theirs = standardwebhooks::Webhook::new(K).unwrap();
    // That crate takes UTF-8 bodies only.
    for (id, body, _) in VECTORS.into_iter().filter(|(_, body, _)| std::str::from_utf8(body).is_ok()) {
        let now = system_now();
        let mut headers = standardwebhooks_headers(id, now, &sign_v1(&[secret(K)], id, now, body));
        theirs.verify(body, &headers).unwrap();
        // With a second secret in front, as while secrets rotate.
        headers = standardwebhooks_headers(id, now, &sign_v1(&[secret(K2), secret(K)], id, now, body));
        theirs.verify(body, &headers).unwrap();
        headers = standardwebhooks_headers(id, now, &sign_v1(&[secret(K2)], id, now, body));
        theirs.verify(body, &headers).unwrap_err();

        let signature = theirs.sign(id, now, body).unwrap();
        let trusted = [secret(K2), secret(K)];
        let timestamp = now.to_string();
        assert_eq!(verify(&received(id, &timestamp, &signature, body), &Trust::secrets(&trusted), now), Ok(()));
    }
}

fn standardwebhooks_headers(id: &str, timestamp: i64, signature: &str) -> http::HeaderMap {
    let mut headers = http::HeaderMap::new();
    headers.insert("webhook-id", id.parse().unwrap());
    headers.insert("webhook-timestamp", timestamp.to_string().parse().unwrap());
    headers.insert("webhook-signature", signature.parse().unwrap());
    headers
}

proptest! {
    #[test]
    fn any_bytes_get_an_answer_and_none_is_believed(
        id in any::<Vec<u8>>(),
        timestamp in prop_oneof![any::<Vec<u8>>(), Just(b"1700000000".to_vec())],
        entries in prop::collection::vec((prop_oneof![Just("v1,"), Just("v1a,"), Just("")], any::<Vec<u8>>()), 0..20),
        body in any::<Vec<u8>>(),
        now in prop_oneof![any::<i64>(), Just(AT)],
    ) {
        let mut signature = Vec::new();
        for (prefix, bytes) in entries {
            signature.extend_from_slice(prefix.as_bytes());
            signature.extend_from_slice(&bytes);
            signature.push(b' ');
        }
        let (secrets, public_keys) = ([secret(K)], [PUBLIC.parse().unwrap()]);
        let trust = Trust { secrets: &secrets, public_keys: &public_keys, tolerance: TOLERANCE };
        let received = Received { id: &id, timestamp: &timestamp, signature: &signature, body: &body };
        prop_assert!(verify(&received, &trust, now).is_err());
    }

    #[test]
    fn what_was_signed_verifies_whatever_the_body_is(
        key in prop::collection::vec(any::<u8>(), 24..=64), body in any::<Vec<u8>>(), at in 0..4_000_000_000i64,
    ) {
        let secrets = [Secret::from_bytes(&key).unwrap()];
        let (signature, timestamp) = (sign_v1(&secrets, "evt_1", at, &body), at.to_string());
        prop_assert_eq!(verify(&received("evt_1", &timestamp, &signature, &body), &Trust::secrets(&secrets), at), Ok(()));
    }

    #[test]
    fn a_secret_is_parsed_or_refused_but_never_panics(text in "(whsec_)?.{0,100}") {
        let _ = Secret::parse(&text);
        let _ = text.parse::<PublicKey>();
    }
}
