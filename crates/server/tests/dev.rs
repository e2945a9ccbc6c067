//! `postrider dev` as a person runs it: the built binary, a Postgres of its own, real payloads where the machine has them.
#![expect(clippy::expect_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod binary;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use binary::{Ended, Running, get, postrider, processes_of, real_events, until};

const EPHEMERAL: [&str; 5] = ["dev", "--ephemeral", "--listen", "127.0.0.1:0", "--rate"];

/// A directory that goes with its owner.
struct Removed(PathBuf);

impl Drop for Removed {
    fn drop(&mut self) {
        // Not there where nothing made it.
        drop(fs::remove_dir_all(&self.0));
    }
}

/// Where the run says that its data lies.
fn home(running: &mut Running) -> PathBuf {
    let told = running.told("Data    in ");
    PathBuf::from(told.split(',').next().expect("a path"))
}

fn assert_adds_up(ended: &Ended) {
    let recorded = ended.numbers("recorded")[0];
    assert!(recorded > 0, "{:?}", ended.printed);
    assert_eq!(ended.numbers("fanned"), [recorded, 4 * recorded], "{:?}", ended.printed);
    assert_eq!(ended.numbers("done"), [2 * recorded], "{:?}", ended.printed);
    assert!(ended.numbers("delivered")[0] >= recorded, "{:?}", ended.printed);
    assert_eq!(ended.numbers("receiver")[2], 0, "a bad signature: {:?}", ended.printed);
}

#[test]
fn what_is_recorded_is_fanned_out_handled_and_delivered_with_right_signatures() {
    let file = real_events();
    let source = file.as_ref().map_or(vec!["--demo"], |path| vec!["--events", path.to_str().expect("UTF-8")]);
    let mut running = Running::start(&[&EPHEMERAL[..], &["200", "--for", "10"], &source].concat());
    let (page, home) = (running.page(), home(&mut running));
    assert!(!processes_of(&home).is_empty(), "a Postgres runs in {}", home.display());

    let (status, headers, _) = get(page, "/healthz");
    assert_eq!((status, headers["x-content-type-options"].as_str()), (200, "nosniff"));
    until(page, "/readyz", |status, body| status == 200 && body == "ready\n");
    let first = if file.is_some() { "github." } else { "repository." };
    let body = until(page, "/", |status, body| {
        status == 200
            && [first, "demo.count", "webhook.deliver", "postrider-dev"].iter().all(|text| body.contains(text))
    });
    assert!(!body.contains("<script"), "{body}");
    let (_, headers, _) = get(page, "/");
    assert!(headers["content-security-policy"].starts_with("default-src 'none'"), "{headers:?}");

    let ended = running.end();
    assert!(ended.status.success(), "{:?}", ended.printed);
    assert_adds_up(&ended);
    // Two endpoints: what one of them has not taken yet waits for its next attempt.
    let (recorded, delivered) = (ended.numbers("recorded")[0], ended.numbers("delivered")[0]);
    assert_eq!(delivered + ended.numbers("waiting")[0], 2 * recorded, "{:?}", ended.printed);
    assert!(ended.printed.iter().any(|line| line.contains("(commit to delivered)")), "{:?}", ended.printed);
    assert_eq!(processes_of(&home), Vec::<String>::new());
    assert!(!home.exists(), "{} is left", home.display());
}

#[test]
fn a_signal_stops_it_in_order_and_leaves_no_postgres() {
    for signal in ["TERM", "INT"] {
        let mut running = Running::start(&[&EPHEMERAL[..], &["50", "--demo"]].concat());
        let (page, home) = (running.page(), home(&mut running));
        until(page, "/", |_, body| body.contains("demo.index"));
        running.signal(signal);
        let ended = running.end();
        assert_eq!(ended.status.code(), Some(0), "{:?}", ended.printed);
        assert_adds_up(&ended);
        assert_eq!(processes_of(&home), Vec::<String>::new());
        assert!(!home.exists());
    }
}

#[test]
fn a_signal_during_the_start_is_not_lost() {
    let running = Running::start(&[&EPHEMERAL[..], &["50", "--demo"]].concat());
    // Signals are waited for before the Postgres starts, whose directory is the first thing that can be seen.
    let mut own = Vec::new();
    while own.is_empty() {
        own = processes_of(&std::env::temp_dir().join("postrider-ephemeral-"));
        own.retain(|line| line.contains(&format!("-{}-", running.id())));
    }
    running.signal("TERM");
    let ended = running.end();
    assert_eq!(ended.status.code(), Some(0), "{:?}", ended.printed);
}

#[test]
fn a_bad_line_ends_it_before_anything_starts() {
    let path = std::env::temp_dir().join(format!("postrider-bad-{}.ndjson", std::process::id()));
    fs::write(&path, "{\"type\":\"a.b\",\"subject\":\"s\",\"data\":{}}\n{\"type\":\"a.b\",\"subject\":\"s\"}\n")
        .expect("a file");
    let out = postrider(&["dev", "--ephemeral", "--events", path.to_str().expect("UTF-8")]).output().expect("it runs");
    fs::remove_file(&path).expect("the file goes");
    let told = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(2), "{told}");
    assert!(told.contains("line 2: data: it is missing") && out.stdout.is_empty(), "{told}");
}

#[test]
fn what_contradicts_itself_is_refused_with_a_sentence() {
    let cases: [(&[&str], &str); 5] = [
        (&["--demo", "--events", "x"], "--demo: a file of events is named too; leave one of them out"),
        (&["--ephemeral", "--data-dir", "/tmp/x"], "--ephemeral: a data_dir is named too; leave one of them out"),
        (&["--ephemeral", "--database-url", "postgres://h/d"], "--ephemeral: a database is named too"),
        (&["--events", "/nowhere/at/all"], "events: /nowhere/at/all cannot be read"),
        (&["--rate", "0"], "--rate: it is not a rate; write events per second"),
    ];
    for (args, sentence) in cases {
        let out = postrider(&[&["dev"][..], args].concat()).output().expect("it runs");
        let told = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(2), "{told}");
        assert!(told.contains(sentence), "{told}");
    }
}

#[test]
fn a_second_start_goes_on_with_the_data_of_the_first() {
    let Removed(dir) = &Removed(std::env::temp_dir().join(format!("postrider-kept-{}", std::process::id())));
    let dir_text = dir.to_str().expect("UTF-8").to_owned();
    let run = |fanned_out_before: u64| {
        let args = ["dev", "--demo", "--rate", "40", "--for", "3", "--listen", "127.0.0.1:0", "--data-dir", &dir_text];
        let mut running = Running::start(&args);
        let page = running.page();
        until(page, "/", |_, body| body.contains("webhook.deliver") && events_on(body) > fanned_out_before);
        let ended = running.end();
        assert!(ended.status.success(), "{:?}", ended.printed);
        assert_adds_up(&ended);
        ended.numbers("recorded")[0]
    };
    let first = run(0);
    let key = dir.join("seal.key");
    let before = fs::read(&key).expect("a key");
    assert_eq!(fs::metadata(&key).expect("a key").permissions().mode() & 0o777, 0o600);
    run(first);
    assert_eq!(fs::read(&key).expect("a key"), before);
    assert_eq!(processes_of(dir), Vec::<String>::new());
}

/// The events that the page says were fanned out since the log began.
fn events_on(page: &str) -> u64 {
    let figure = page.split("<dt>events</dt><dd>").nth(1).and_then(|rest| rest.split('<').next()).expect("a figure");
    figure.replace(' ', "").parse().expect("a number")
}
