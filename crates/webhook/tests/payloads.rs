//! Payloads from outside, through both doors of the database, to a receiver that believes only an independent verifier.
#![expect(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use postrider::{Bus, EventTypeSpec, NewEvent, Payload, Settings};
use postrider_testkit::{Sink, TestDb, psql};
use postrider_webhook::{Client, Deliverer, Endpoints, Guard, NewEndpoint, Seal, kind};
use serde::Deserialize;
use serde_json::value::RawValue;

#[derive(Deserialize)]
struct Line<'a> {
    r#type: String,
    subject: String,
    #[serde(borrow)]
    data: &'a RawValue,
}

/// `(type, subject, data)`: what is easily changed on the way, and the recorded payloads of a real sender where this machine has
/// them (`POSTRIDER_EVENTS`, else the data beside the repository).
fn payloads() -> Vec<(String, String, String)> {
    let tricky = [
        "{ \"b\":1.0,\n\t\"a\" : 12345678901234567890123, \"a\":1E2, \"c\":-0.0 }",
        "[]",
        " null ",
        "\"\\u00fc ü \\ud83d\\ude00 😀 \\/ / \\b\"",
        "{\"\":{\"\":[[[[{}]]]]}}",
        "0.1000000000000000055511151231257827",
        "{\"html\":\"<script>alert('x')</script> & \\\"quoted\\\" \\\\u0000\"}",
    ];
    let mut all: Vec<_> = tricky.map(|data| ("test.tricky".to_owned(), "test/it's".to_owned(), data.to_owned())).into();
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/github-events.ndjson.gz");
    let file = std::env::var_os("POSTRIDER_EVENTS").map(PathBuf::from).or(Some(beside)).filter(|path| path.is_file());
    if let Some(file) = file {
        let before = all.len();
        let unpacked = BufReader::new(flate2::read::MultiGzDecoder::new(std::fs::File::open(file).unwrap()));
        for line in unpacked.lines() {
            let line = line.unwrap();
            let line: Line<'_> = serde_json::from_str(&line).unwrap();
            all.push((line.r#type, line.subject, line.data.get().to_owned()));
        }
        assert_eq!(all.len() - before, 329, "the file is not the one that is known");
    }
    all
}

/// Records through the `psql` of the server that runs, as any shell script would.
fn record_with_psql(url: &str, payloads: &[(String, String, String)]) {
    let mut child = Command::new(psql())
        .args(["-X", "-q", "-v", "ON_ERROR_STOP=1", "-o", "/dev/null", url])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let mut script = child.stdin.take().unwrap();
    for (kind, subject, data) in payloads {
        assert!(!data.contains("$data$"));
        let subject = subject.replace('\'', "''");
        writeln!(script, "select postrider.record('{kind}', '{subject}', $data${data}$data$);").unwrap();
    }
    drop(script);
    assert!(child.wait().unwrap().success());
}

#[tokio::test]
async fn all_payloads_recorded_through_rust_and_psql_arrive_byte_equal_and_verify_with_the_independent_crate() {
    let (db, sink) = (TestDb::fresh().await, Sink::start().await.unwrap());
    let payloads = payloads();
    let guard = || Guard::new(["127.0.0.1/32"]).unwrap();
    let seal = || Seal::parse(["AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE="]).unwrap();
    let deliverer = Deliverer::new(db.pool().clone(), seal(), Client::new(guard(), []).unwrap());
    let types: BTreeSet<&str> = payloads.iter().map(|(kind, ..)| kind.as_str()).collect();
    let bus = Bus::builder(db.pool().clone())
        .types(types.into_iter().map(|name| EventTypeSpec::new(name).public()))
        .kinds([kind(deliverer)])
        .settings(Settings::default())
        .build()
        .await
        .unwrap();
    let created = Endpoints::new(db.pool().clone(), seal(), guard())
        .create(NewEndpoint::new("all", sink.url("/"), ["**"]))
        .await
        .unwrap();
    let secret = created.secret.reveal();
    let running = bus.start().unwrap();

    for (kind, subject, data) in &payloads {
        let mut tx = db.pool().begin().await.unwrap();
        let event = NewEvent::new(kind, subject, Payload::parse(data.as_str()).unwrap());
        bus.recorder().record(&mut *tx, &event).await.unwrap();
        tx.commit().await.unwrap();
    }
    let (url, through_psql) = (db.url().to_owned(), payloads.clone());
    tokio::task::spawn_blocking(move || record_with_psql(&url, &through_psql)).await.unwrap();

    let requests = sink.wait_for(payloads.len() * 2, Duration::from_mins(1)).await;
    assert_eq!(requests.len(), payloads.len() * 2);
    let ids: Vec<String> =
        sqlx::query_scalar("select id::text from postrider.event order by seq").fetch_all(db.pool()).await.unwrap();
    let recorded: BTreeMap<&str, &(String, String, String)> =
        ids.iter().map(String::as_str).zip(payloads.iter().chain(&payloads)).collect();
    let mut seen = BTreeSet::new();
    for request in &requests {
        request.verify(&secret).unwrap();
        let id = request.header("webhook-id").unwrap();
        let (kind, subject, data) = recorded[id.as_str()];
        let body = std::str::from_utf8(&request.body).unwrap();
        assert!(body.ends_with(&format!(",\"data\":{data}}}")), "{kind}: the bytes of the data were changed");
        let envelope: Line<'_> = serde_json::from_str(body).unwrap();
        assert_eq!((&envelope.r#type, &envelope.subject), (kind, subject));
        seen.insert(id);
    }
    assert_eq!(seen.len(), payloads.len() * 2, "each event was delivered once");
    running.stop(Duration::from_secs(10)).await;
}
