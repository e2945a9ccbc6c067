//! `postrider migrate` and `postrider serve` on a database that was there before.
#![expect(clippy::expect_used, reason = "a test fails by panicking")]

#[expect(dead_code, reason = "each test file uses its own part of it")]
mod binary;

use std::net::{Ipv4Addr, SocketAddr};

use binary::{Running, get, get_as, postrider, until};
use postrider_embedded::{Home, Options, Postgres};
use postrider_testkit::PgBouncer;

const KEY: &str = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";

fn told(args: &[&str]) -> (Option<i32>, String) {
    let out = postrider(args).output().expect("it runs");
    (out.status.code(), String::from_utf8_lossy(&[out.stdout, out.stderr].concat()).into_owned())
}

#[test]
fn it_serves_a_migrated_database_and_no_other() {
    let postgres = Postgres::start(Options::new(Home::Ephemeral)).expect("a Postgres");
    let url = postgres.url("postgres");
    let serve = ["serve", "--database-url", &url, "--listen", "127.0.0.1:0", "--seal-key", KEY];

    let (code, text) = told(&serve);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("run `postrider migrate`"), "{text}");
    let (code, text) = told(&["migrate", "--plan", "--database-url", &url]);
    assert!(code == Some(0) && text.contains("would apply 0001_foundation"), "{text}");
    let (code, text) = told(&["migrate", "--database-url", &url]);
    assert!(code == Some(0) && text.contains("applied 0001_foundation"), "{text}");
    let (code, text) = told(&["migrate", "--plan", "--database-url", &url]);
    assert_eq!((code, text.as_str()), (Some(0), "The schema is up to date.\n"));

    let mut running = Running::start(&serve);
    let page = running.page();
    assert_eq!(until(page, "/readyz", |status, _| status == 200), "ready\n");
    until(page, "/", |status, body| status == 200 && body.contains("postrider-server"));
    let (status, headers, body) = get(page, "/nowhere");
    assert!(status == 404 && headers.contains_key("content-security-policy"), "{body}");
    for path in ["/", "/page.css"] {
        assert_eq!(get_as(page, "evil.example", path).0, 421, "{path} under a name that resolves to this machine");
    }
    running.signal("TERM");
    let ended = running.end();
    assert_eq!(ended.status.code(), Some(0), "{:?}", ended.printed);

    let open = ["serve", "--database-url", &url, "--listen", "0.0.0.0:0", "--roles", "relay,housekeeping"];
    let mut running = Running::start(&open);
    let page = SocketAddr::from((Ipv4Addr::LOCALHOST, running.page().port()));
    until(page, "/readyz", |status, _| status == 200);
    let (status, _, body) = get(page, "/");
    assert!(status == 403 && body.contains("set listen to 127.0.0.1:7117"), "{body}");
    running.signal("INT");
    assert_eq!(running.end().status.code(), Some(0));
    postgres.stop().expect("it stops");
}

#[test]
fn z9_it_serves_through_a_pooler_that_it_is_told_of_and_names_the_setting_where_it_is_not() {
    let postgres = Postgres::start(Options::new(Home::Ephemeral)).expect("a Postgres");
    let direct = postgres.url("postgres");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let pooler = runtime.block_on(PgBouncer::before(&direct));
    let serve = ["serve", "--database-url", pooler.url(), "--listen", "127.0.0.1:0", "--seal-key", KEY];
    let (code, text) = told(&["migrate", "--database-url", pooler.url()]);
    assert!(code == Some(0) && text.contains("applied 0001_foundation"), "{text}");

    let (code, text) = told(&serve);
    assert!(code == Some(1) && text.contains("PgBouncer") && text.contains("set `pooler` to `transaction`"), "{text}");
    let with = |more: &[&'static str]| [&serve[..], &["--pooler", "transaction"], more].concat();
    let (code, text) = told(&with(&[]));
    assert!(code == Some(2) && text.contains("direct_url, or set wake_ups to poll"), "{text}");

    let past = [&with(&[])[..], &["--direct-url", &direct]].concat();
    for args in [with(&["--wake-ups", "poll", "--poll-interval", "200"]), past] {
        let mut running = Running::start(&args);
        let page = running.page();
        assert_eq!(until(page, "/readyz", |status, _| status == 200), "ready\n");
        until(page, "/", |status, body| status == 200 && body.contains("postrider-server"));
        running.signal("TERM");
        let ended = running.end();
        assert_eq!(ended.status.code(), Some(0), "{:?}", ended.printed);
    }
    postgres.stop().expect("it stops");
}

#[test]
fn without_a_database_or_a_key_it_says_which_name_to_set() {
    let (code, text) = told(&["serve", "--seal-key", KEY]);
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("database_url: no database is named; name one: postrider serve --database-url"), "{text}");
    let (code, text) = told(&["serve", "--database-url", "postgres://localhost/x"]);
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("seal_key: the role work delivers webhooks and needs it"), "{text}");
    let (code, text) = told(&["migrate"]);
    assert!(code == Some(2) && text.contains("postrider migrate --database-url"), "{text}");
}

#[test]
fn what_cannot_be_typed_ends_with_two_and_help_with_nought() {
    for (args, expected) in [
        (vec!["serve", "--rate", "3"], 2), // a name that serve does not read
        (vec!["conquer"], 2),
        (vec![], 2),
        (vec!["--help"], 0),
        (vec!["dev", "--help"], 0),
        (vec!["--version"], 0),
    ] {
        let (code, text) = told(&args);
        assert_eq!(code, Some(expected), "{args:?}: {text}");
    }
    let (_, help) = told(&["dev", "--help"]);
    for flag in
        ["--events", "--demo", "--rate", "--once", "--ephemeral", "--data-dir", "--database-url", "--listen", "--for"]
    {
        assert!(help.contains(flag), "{flag}");
    }
}

#[test]
fn an_address_in_use_is_told_with_the_flag_that_changes_it() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address").to_string();
    let postgres = Postgres::start(Options::new(Home::Ephemeral)).expect("a Postgres");
    let url = postgres.url("postgres");
    let (code, text) = told(&["migrate", "--database-url", &url]);
    assert_eq!(code, Some(0), "{text}");
    let (code, text) = told(&["serve", "--database-url", &url, "--listen", &address, "--seal-key", KEY]);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains(&format!("nothing can listen on {address}; choose another address with --listen")), "{text}");
    postgres.stop().expect("it stops");
}
