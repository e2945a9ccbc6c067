use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::stage::{Stage, guard};
use hyper::header;
use postrider::Timestamp;
use postrider::contract::signature::{Received, Secret, SigningKey, Trust, sign_v1, sign_v1a, verify};
use postrider_testkit::{Reply, Request, Sink, until};
use postrider_webhook::{Client, Format, NewEndpoint, NewReplay, Rotated, Rotation};
use serde_json::json;

const LONG: Duration = Duration::from_mins(1);

/// Data that verifiers, parsers and hands on the way like to change.
const DATA: [&str; 12] = [
    "{}",
    "null",
    "\"\"",
    "[]",
    "0",
    " { \"a\" : 1.0 , \"b\":12345678901234567890123, \"a\":1E2, \"c\":-0.0 }\n",
    "0.1000000000000000055511151231257827",
    "\"\\u00fc ü \\ud83d\\ude00 😀 \\/ / \\b \u{2028} \u{7f}\"",
    "{\"ключ\":\"значение\",\"鍵\":\"値\",\"مفتاح\":\"قيمة\"}",
    "\"e\u{301} is not \u{e9}, and \u{feff} is nothing\"",
    "{\"html\":\"<script>alert('x')</script> & \\\"quoted\\\" \\\\\"}",
    "{\"\":{\"\":[[[[{}]]]]}}",
];

/// A request as a verifier gets it.
#[derive(Debug, Clone)]
struct Sent {
    secret: String,
    headers: BTreeMap<String, String>,
    body: Vec<u8>,
}

impl Sent {
    fn of(request: &Request, secret: &str) -> Self {
        Self { secret: secret.to_owned(), headers: request.headers().into_iter().collect(), body: request.body.clone() }
    }

    fn signed(secrets: &[Secret], id: &str, at: i64, body: &[u8], secret: &Secret) -> Self {
        let headers = [
            ("webhook-id", id.to_owned()),
            ("webhook-timestamp", at.to_string()),
            ("webhook-signature", sign_v1(secrets, id, at, body)),
        ];
        let headers = headers.map(|(name, value)| (name.to_owned(), value)).into();
        Self { secret: secret.reveal().to_string(), headers, body: body.to_vec() }
    }

    fn with(&self, name: &str, value: impl Into<String>) -> Self {
        let mut other = self.clone();
        other.headers.insert(name.to_owned(), value.into());
        other
    }

    fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }

    /// What our helper says.
    fn ours(&self) -> bool {
        let received = Received {
            id: self.header("webhook-id").as_bytes(),
            timestamp: self.header("webhook-timestamp").as_bytes(),
            signature: self.header("webhook-signature").as_bytes(),
            body: &self.body,
        };
        verify(&received, &Trust::secrets(&[self.secret.parse().unwrap()]), now()).is_ok()
    }

    /// What the official crate for Rust says.
    fn rust(&self) -> bool {
        let mut headers = header::HeaderMap::new();
        for (name, value) in &self.headers {
            let (Ok(name), Ok(value)) = (header::HeaderName::try_from(name), header::HeaderValue::try_from(value))
            else {
                return false;
            };
            headers.append(name, value);
        }
        standardwebhooks::Webhook::new(&self.secret).unwrap().verify(&self.body, &headers).is_ok()
    }
}

fn now() -> i64 {
    i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()).unwrap()
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../testkit/verifiers")
}

/// What one of the official verifiers says of each request, run as its language runs it.
fn official(program: &str, script: &str, requests: &[Sent]) -> Vec<String> {
    let folder = folder();
    let remedy = "run ./test, or npm ci and python3 -m venv .venv && .venv/bin/pip install -r requirements.txt";
    let installed = folder.join("node_modules/standardwebhooks").is_dir() && folder.join(".venv/bin/python").exists();
    assert!(installed, "no official verifiers in {}: {remedy} there", folder.display());
    let mut child = Command::new(program)
        .arg(script)
        .current_dir(&folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap_or_else(|e| panic!("{program} does not run: {e}; {remedy} there"));
    let mut lines = String::new();
    for Sent { secret, headers, body } in requests {
        let body = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, body);
        lines.push_str(&json!({"secret": secret, "headers": headers, "body": body}).to_string());
        lines.push('\n');
    }
    let mut input = child.stdin.take().unwrap();
    let writing = std::thread::spawn(move || input.write_all(lines.as_bytes()));
    let output = child.wait_with_output().unwrap();
    writing.join().unwrap().unwrap();
    assert!(output.status.success(), "{program} failed");
    let said: Vec<String> = String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect();
    assert_eq!(said.len(), requests.len());
    said
}

/// Whether each of the verifiers believes a request: ours, and those for Rust, JavaScript and Python.
async fn believed(requests: &[Sent]) -> Vec<[bool; 4]> {
    let (for_node, for_python) = (requests.to_vec(), requests.to_vec());
    let node = tokio::task::spawn_blocking(move || official("node", "verify.mjs", &for_node)).await.unwrap();
    let python = ".venv/bin/python";
    let python = tokio::task::spawn_blocking(move || official(python, "verify.py", &for_python)).await.unwrap();
    let said = requests.iter().zip(node).zip(python);
    said.map(|((sent, node), python)| [sent.ours(), sent.rust(), node == "verified", python == "verified"]).collect()
}

#[tokio::test]
async fn c53_c54_the_official_verifiers_believe_every_delivery_of_every_format_first_and_again_and_none_that_was_changed()
 {
    let (stage, mut formats) = (Stage::set_quick(Client::new(guard(), []).unwrap()).await, Vec::new());
    for format in Format::ALL {
        let sink = Sink::start().await.unwrap();
        sink.script(DATA.map(|_| Reply::Status(500)));
        let (id, secret) = stage.endpoint(format.name(), &sink.url("/in")).await;
        let update = "update postrider.endpoint set format = $2 where id = $1";
        sqlx::query(update).bind(id.0).bind(format.number()).execute(stage.pool()).await.unwrap();
        formats.push((format, sink, secret));
    }
    for data in DATA {
        stage.record(data).await;
    }
    let mut requests = Vec::new();
    for (format, sink, secret) in &formats {
        let came = sink.wait_for(DATA.len() * 2, LONG).await;
        assert_eq!(came.len(), DATA.len() * 2, "{}", format.name());
        let again = came.iter().filter(|request| request.header("webhook-attempt").unwrap() != "1").count();
        assert_eq!(again, DATA.len(), "{}", format.name());
        for request in &came {
            let body = String::from_utf8(request.body.clone()).unwrap();
            let whole = matches!(format, Format::Raw | Format::CloudEventsBinary);
            let intact =
                |data: &&str| if whole { body == **data } else { body.ends_with(&format!(",\"data\":{data}}}")) };
            assert!(DATA.iter().any(intact), "{}: {body}", format.name());
        }
        requests.extend(came.iter().map(|request| Sent::of(request, secret)));
    }
    stage.strike().await;
    for (sent, believed) in requests.iter().zip(believed(&requests).await) {
        assert_eq!(believed, [true; 4], "{sent:?}");
    }
    let mut changed = Vec::new();
    for (n, sent) in requests.iter().enumerate() {
        let body = [sent.body.as_slice(), b" "].concat();
        changed.push(Sent { body, ..sent.clone() });
        changed.push(Sent { secret: formats[(n / (DATA.len() * 2) + 1) % 4].2.clone(), ..sent.clone() });
        changed.push(sent.with("webhook-id", "0190b5f0-7e1a-7c3d-8f00-0123456789ab"));
        changed.push(sent.with("webhook-timestamp", (now() - 10).to_string()));
        changed.push(sent.with("webhook-timestamp", (now() - 301).to_string()));
    }
    for (sent, believed) in changed.iter().zip(believed(&changed).await) {
        assert_eq!(believed, [false; 4], "{sent:?}");
    }
}

#[tokio::test]
async fn the_official_verifiers_believe_what_is_sent_once_more_replayed_and_tested_by_the_old_secret_and_by_the_new_one()
 {
    let (stage, sink) = (Stage::set_quick(Client::new(guard(), []).unwrap()).await, Sink::start().await.unwrap());
    let new = NewEndpoint { max_attempts: 1, ..NewEndpoint::new("billing", sink.url("/in"), ["order.*"]) };
    let (id, old) = stage.create(new).await;
    sink.script([Reply::Status(500)]);
    let (lost, _) = (stage.record(DATA[7]).await, sink.wait_for(1, LONG).await);
    let (taken, _) = (stage.record(DATA[5]).await, sink.wait_for(2, LONG).await);
    let Rotated::Secret(secret) = stage.endpoints.rotate_secret(id, Rotation::default()).await.unwrap().unwrap() else {
        panic!("it is a key")
    };
    let delivered = until("both have ended", LONG, async || {
        let all = stage.endpoints.deliveries(10).await.unwrap();
        let ended = all.iter().filter(|delivery| ["delivered", "discarded"].contains(&delivery.state.as_str())).count();
        (ended == 2).then(|| all.into_iter().find(|delivery| delivery.state == "delivered").unwrap())
    })
    .await;
    stage.endpoints.redeliver(&delivered.id).await.unwrap();
    sink.wait_for(3, LONG).await;
    stage.endpoints.redeliver_as_new(&delivered.id).await.unwrap();
    sink.wait_for(4, LONG).await;
    let micros = |seconds: i64| Timestamp::from_micros((now() + seconds) * 1_000_000);
    let of_all = NewReplay::new(micros(-3_600), micros(1));
    let replay = stage.endpoints.plan_replay(id, &of_all).await.unwrap().unwrap();
    assert!(stage.endpoints.start_replay(replay.id).await.unwrap());
    sink.wait_for(5, LONG).await;
    stage.endpoints.send_test(id).await.unwrap().unwrap();
    let came = sink.wait_for(6, LONG).await;
    stage.strike().await;
    let ids: Vec<String> = came.iter().map(|request| request.header("webhook-id").unwrap()).collect();
    assert_eq!((&ids[2], &ids[4]), (&taken, &lost), "under their own ids");
    assert!(!ids[..3].contains(&ids[3]) && !ids[..5].contains(&ids[5]), "under new ones");
    for secret in [old, secret.reveal().to_string()] {
        let requests: Vec<_> = came[2..].iter().map(|request| Sent::of(request, &secret)).collect();
        assert_eq!(believed(&requests).await, [[true; 4]; 4]);
    }
}

#[tokio::test]
async fn the_official_verifiers_believe_either_secret_while_two_sign_and_a_key_beside_them() {
    let secrets =
        [Secret::generate([1; 32]), Secret::from_bytes(&[2; 64]).unwrap(), Secret::from_bytes(&[3; 24]).unwrap()];
    let (at, body) = (now(), "{\"ü\":\"😀\"}".as_bytes());
    let mut requests = Vec::new();
    for secret in &secrets {
        let sent = Sent::signed(&secrets, "evt_1", at, body, secret);
        let by_key = sign_v1a(&SigningKey::from_seed(&[7; 32]), "evt_1", at, body);
        let both = format!("{} {by_key}", sent.header("webhook-signature"));
        requests.push(sent.with("webhook-signature", both));
        requests.push(sent);
    }
    for (sent, believed) in requests.iter().zip(believed(&requests).await) {
        assert_eq!(believed, [true; 4], "{sent:?}");
    }
    let stranger = Secret::generate([9; 32]);
    let requests: Vec<_> =
        requests.iter().map(|sent| Sent { secret: stranger.reveal().to_string(), ..sent.clone() }).collect();
    assert!(believed(&requests).await.iter().all(|believed| *believed == [false; 4]));
}

/// Dice that fall the same way each time.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % limit
    }
}

#[tokio::test]
async fn our_verifier_says_what_the_official_ones_say_of_changed_requests() {
    let (secret, at, mut dice) = (Secret::generate([1; 32]), now(), Dice(1));
    let mut requests = Vec::new();
    for n in 0..600 {
        let body = format!("{{\"n\":{n},\"text\":\"{}\"}}", "a".repeat(dice.below(200)));
        let mut sent = Sent::signed(std::slice::from_ref(&secret), &format!("evt_{n}"), at, body.as_bytes(), &secret);
        let signature = sent.header("webhook-signature").to_owned();
        sent = match n % 12 {
            0 => sent,
            1 => {
                let place = dice.below(sent.body.len());
                sent.body[place] ^= 1;
                sent
            }
            2 => sent.with("webhook-id", format!("evt_{}", n + 1)),
            3 => sent.with("webhook-timestamp", (at + 1).to_string()),
            4 => {
                let skew = i64::try_from(dice.below(1_000)).unwrap() - 500;
                // The edge itself may pass while the verifiers run.
                let skew = if (290..=310).contains(&skew.abs()) { 200 } else { skew };
                Sent::signed(std::slice::from_ref(&secret), "evt_1", at + skew, &sent.body, &secret)
            }
            5 => {
                let place = 3 + dice.below(40);
                let mut bytes = signature.into_bytes();
                bytes[place] = if bytes[place] == b'A' { b'B' } else { b'A' };
                sent.with("webhook-signature", String::from_utf8(bytes).unwrap())
            }
            6 => sent.with("webhook-signature", format!("v1,{} {signature} v2,x", "A".repeat(43) + "=")),
            7 => sent.with("webhook-signature", signature.replace("v1,", "v2,")),
            8 => sent.with("webhook-signature", ""),
            9 => {
                sent.body.pop();
                sent
            }
            10 => sent.with("webhook-id", ""),
            _ => sent.with("webhook-timestamp", "soon"),
        };
        requests.push(sent);
    }
    let said = believed(&requests).await;
    let believed = said.iter().filter(|believed| **believed == [true; 4]).count();
    for (sent, said) in requests.iter().zip(&said) {
        assert!(said.iter().all(|says| *says == said[0]), "{said:?}: {sent:?}");
    }
    assert!((100..200).contains(&believed), "{believed} of 600 were believed");
}
