use crate::client::Exchange;

const SHOWN: &[u8] = b"[concealed]";
/// A shorter beginning of a secret at the end of what was kept tells nothing.
const BEGINNING_BYTES_MIN: usize = 4;

/// Takes what must not be shown out of what is kept of an answer: a receiver may send back what it was sent.
pub(crate) fn conceal(exchange: &mut Exchange, secrets: &[&str]) {
    for secret in secrets.iter().map(|secret| secret.as_bytes()) {
        exchange.body = without(&exchange.body, secret);
        for (name, value) in &mut exchange.headers {
            *value = without(value, secret);
            *name = String::from_utf8_lossy(&without(name.as_bytes(), secret)).into_owned();
        }
    }
}

fn without(kept: &[u8], secret: &[u8]) -> Vec<u8> {
    let mut shown = Vec::with_capacity(kept.len());
    let mut rest = kept;
    while !rest.is_empty() {
        if let Some(after) = rest.strip_prefix(secret) {
            shown.extend_from_slice(SHOWN);
            rest = after;
            // What was kept may have been cut in the middle of it.
        } else if rest.len() >= BEGINNING_BYTES_MIN && secret.starts_with(rest) {
            shown.extend_from_slice(SHOWN);
            break;
        } else if let Some((byte, after)) = rest.split_first() {
            shown.push(*byte);
            rest = after;
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_sent_is_not_kept_when_it_comes_back_whole_twice_or_cut() {
        let secret = "Bearer s3cret-token";
        let mut exchange = Exchange {
            body: b"a Bearer s3cret-token b s3cret-token Bearer s3cret-token Bearer s3cr".to_vec(),
            headers: vec![
                ("x-echo".to_owned(), b"Bearer s3cret-token".to_vec()),
                ("s3cret-token".to_owned(), b"1".to_vec()),
            ],
            ..Exchange::default()
        };
        conceal(&mut exchange, &[secret, "s3cret-token"]);
        let body = String::from_utf8(exchange.body).unwrap();
        assert_eq!(body, "a [concealed] b [concealed] [concealed] [concealed]");
        assert_eq!(exchange.headers[0].1, b"[concealed]");
        assert_eq!(exchange.headers[1].0, "[concealed]");
    }
}
