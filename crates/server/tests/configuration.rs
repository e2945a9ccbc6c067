//! What an operator can set: which layer wins, what is refused, what is never shown, and the page that lists it all.
#![expect(clippy::expect_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::Path;
use std::time::Duration;

use postrider::{Pooler, WakeUps};
use postrider_server::config::{Config, Default, Layers, NAMES, Problems, Role, page};
use secrecy::ExposeSecret as _;

const KEY: &str = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";

fn load(file: &str, env: &[(&str, &str)], flags: &[(&'static str, &str)]) -> Result<Config, Problems> {
    let owned = |pairs: &[(&str, &str)]| pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    Config::load(&Layers {
        file: (!file.is_empty()).then(|| ("postrider.toml".to_owned(), file.to_owned())),
        env: owned(env),
        flags: flags.iter().map(|(k, v)| (*k, (*v).to_owned())).collect(),
    })
}

fn problems(file: &str, env: &[(&str, &str)], flags: &[(&'static str, &str)]) -> String {
    load(file, env, flags).expect_err("it is refused").to_string()
}

#[test]
fn without_anything_given_the_defaults_hold() {
    let config = load("", &[], &[]).expect("defaults");
    assert_eq!(config.listen.to_string(), "127.0.0.1:7117");
    assert_eq!(config.roles, [Role::Relay, Role::Work, Role::Housekeeping]);
    assert_eq!(config.grace, Duration::from_secs(30));
    assert_eq!((config.queue_concurrency, config.webhook_concurrency, config.database_connections), (8, 256, 10));
    assert!(
        config.allow_cidrs.is_empty()
            && config.database_url.is_none()
            && config.seal_key.is_none()
            && config.log.is_none()
    );
    assert!((config.rate - 20.0).abs() < f64::EPSILON);
    assert_eq!((config.pooler, config.wake_ups), (Pooler::None, WakeUps::Listen));
    assert_eq!(config.poll_interval, Duration::from_secs(1));
}

#[test]
fn a_pooler_and_polling_are_said_by_name() {
    let config = load("pooler = 'transaction'\nwake_ups = 'poll'\npoll_interval = 250\n", &[], &[]).expect("right");
    assert_eq!((config.pooler, config.wake_ups), (Pooler::Transaction, WakeUps::Poll));
    assert_eq!(config.poll_interval, Duration::from_millis(250));
    let told = problems("pooler = 'session'\nwake_ups = 'push'\npoll_interval = 0\ndirect_url = 'here'\n", &[], &[]);
    for part in ["none or transaction", "listen or poll", "from 10 to 3600000", "direct_url"] {
        assert!(told.contains(part), "{part}: {told}");
    }
}

#[test]
fn a_flag_wins_over_the_environment_and_the_environment_over_the_file() {
    let file = "grace = 1\nrate = 1.5\nqueue_concurrency = 3\n";
    let env = [("POSTRIDER_GRACE", "2"), ("POSTRIDER_QUEUE_CONCURRENCY", "4")];
    let config = load(file, &env, &[("grace", "3")]).expect("right");
    assert_eq!(config.grace, Duration::from_secs(3));
    assert_eq!(config.queue_concurrency, 4);
    assert!((config.rate - 1.5).abs() < f64::EPSILON);
}

#[test]
fn database_url_of_the_environment_is_a_fallback_only() {
    let url = |config: &Config| config.database_url.as_ref().expect("a database").expose_secret().to_owned();
    let fallback = [("DATABASE_URL", "postgres://fallback/db")];
    let config = load("", &fallback, &[]).expect("right");
    assert_eq!((url(&config).as_str(), config.database_url_is_a_fallback), ("postgres://fallback/db", true));

    for (file, env, flags) in [
        ("database_url = 'postgres://own/db'", vec![], vec![]),
        ("", vec![("POSTRIDER_DATABASE_URL", "postgres://own/db")], vec![]),
        ("", vec![], vec![("database_url", "postgres://own/db")]),
    ] {
        let env: Vec<_> = fallback.iter().copied().chain(env).collect();
        let config = load(file, &env, &flags).expect("right");
        assert_eq!((url(&config).as_str(), config.database_url_is_a_fallback), ("postgres://own/db", false));
    }
}

#[test]
fn lists_are_arrays_in_the_file_and_commas_elsewhere() {
    let config = load("roles = ['work', 'relay']\nallow_cidrs = ['10.0.0.0/8', 'fd00::/8']", &[], &[]).expect("right");
    assert_eq!(config.roles, [Role::Work, Role::Relay]);
    assert_eq!(config.allow_cidrs.len(), 2);
    let config = load("", &[("POSTRIDER_ALLOW_CIDRS", "10.0.0.0/8,fd00::/8")], &[]).expect("right");
    assert_eq!(config.allow_cidrs.len(), 2);
}

#[test]
fn an_unknown_key_is_refused_with_the_name_that_was_meant() {
    let told = problems("grase = 1", &[], &[]);
    assert!(told.contains("grase (in postrider.toml): no such name; did you mean grace?"), "{told}");
    let told = problems("", &[("POSTRIDER_LISTN", "127.0.0.1:1")], &[]);
    assert!(told.contains("POSTRIDER_LISTN: no such name; did you mean listen?"), "{told}");
    let told = problems("[webhook]\nretries = 3", &[], &[]);
    assert!(told.contains("webhook (in postrider.toml): no such name"), "{told}");
}

#[test]
fn variables_of_others_are_left_alone_and_the_one_that_names_the_file_is_known() {
    assert!(load("", &[("HOME", "/"), ("POSTRIDERS", "x"), ("POSTRIDER_CONFIG", "x.toml")], &[]).is_ok());
}

#[test]
fn every_problem_is_told_at_once_with_its_name_and_what_to_do() {
    let told = problems("listen = 'localhost'\ngrace = true\n", &[("POSTRIDER_RATE", "0")], &[("roles", "everything")]);
    for line in [
        "listen (in postrider.toml): it is not an address with a port; write an IP address and a port",
        "grace (in postrider.toml): it is a boolean; it takes whole seconds, 0 to 3600",
        "POSTRIDER_RATE: it is not a rate; write events per second",
        "--roles: \"everything\" is not a role; write at least one of relay, work and housekeeping",
    ] {
        assert!(told.contains(line), "{line}\n---\n{told}");
    }
    assert_eq!(told.lines().count(), 4, "{told}");
}

#[test]
fn a_file_that_is_not_toml_is_refused_without_quoting_it() {
    let told = problems("seal_key = hunter2secret", &[], &[]);
    assert!(told.starts_with("postrider.toml: "), "{told}");
    assert!(!told.contains("hunter2"), "{told}");
}

#[test]
fn a_secret_is_shown_by_nothing() {
    let layers = Layers {
        file: Some(("postrider.toml".to_owned(), format!("seal_key = '{KEY}'"))),
        env: vec![("DATABASE_URL".to_owned(), "postgres://me:hunter2@db/x".to_owned())],
        flags: vec![],
    };
    let config = Config::load(&layers).expect("right");
    for shown in [format!("{config:?}"), format!("{layers:?}")] {
        assert!(!shown.contains("hunter2") && !shown.contains(KEY), "{shown}");
    }
    let env = [("POSTRIDER_DATABASE_URL", "mysql://me:hunter2@db/x"), ("POSTRIDER_SEAL_KEY", "hunter2")];
    let told = problems("", &env, &[]);
    assert!(!told.contains("hunter2"), "{told}");
    let told = problems("", &[("POSTRIDER_DATABASE_URL", "postgres://me:hunter2@[db/x")], &[]);
    assert!(!told.contains("hunter2"), "{told}");
}

#[test]
fn there_are_at_most_forty_names_and_each_default_is_right() {
    assert!(NAMES.len() <= 40, "{} names", NAMES.len());
    for name in NAMES {
        assert!(!name.commands.is_empty(), "{} is read by no command", name.key);
        if let Default::Text(text) = name.default {
            // An environment that spells the default out is what no environment at all is.
            let spelt = load("", &[(name.env().as_str(), text)], &[]).expect(name.key);
            assert_eq!(format!("{spelt:?}"), format!("{:?}", load("", &[], &[]).expect(name.key)), "{}", name.key);
        }
    }
}

#[test]
fn the_page_of_all_names_is_equal_to_the_code() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/configuration.md");
    if std::env::var_os("POSTRIDER_BLESS").is_some() {
        fs::write(&path, page()).expect("the page is written");
    }
    let found = fs::read_to_string(&path).unwrap_or_default();
    assert!(found == page(), "docs/configuration.md differs from the code: run this test with POSTRIDER_BLESS=1");
}
