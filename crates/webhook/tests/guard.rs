//! What the guard lets through at the door, by spelling and by what name servers answer.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod spellings;

use std::net::IpAddr;

use postrider_testkit::NameServer;
use postrider_webhook::{BLOCKED, Guard};
use spellings::{LEADING_INSIDE, PUBLIC, REFUSED};

fn strict() -> Guard {
    Guard::new::<&str>([]).unwrap()
}

#[tokio::test]
async fn no_spelling_of_a_place_that_is_not_public_is_saved() {
    let guard = strict();
    for url in REFUSED {
        let refused = guard.parse(url).expect_err(url);
        assert_eq!(refused.field, "url", "{url}");
        assert!(!refused.remedy.is_empty(), "{url}");
    }
    for odd in ["https://hooks.example.com/a b", "https://hooks.\u{9}example.com/", "https://127.0\n.0.1/", "\0"] {
        assert!(guard.parse(odd).is_err(), "{odd:?}");
    }
}

#[tokio::test]
async fn public_places_are_saved() {
    let guard = strict();
    for (url, _) in PUBLIC {
        assert!(guard.parse(url).is_ok(), "{url}: {:?}", guard.parse(url));
    }
}

#[tokio::test]
async fn a_network_is_allowed_by_its_cidr_and_http_only_there() {
    let guard = Guard::new(["10.20.0.0/16", "fd00:1::/32", "127.0.0.9/32"]).unwrap();
    for url in ["http://10.20.1.1/", "https://10.20.1.1:8080/", "http://[fd00:1::5]:3000/", "http://127.0.0.9:3000/"] {
        assert!(guard.parse(url).is_ok(), "{url}");
    }
    for url in
        ["http://10.21.1.1/", "https://10.21.1.1/", "http://127.0.0.1:3000/", "http://8.8.8.8/", "http://[fd00:2::1]/"]
    {
        assert_eq!(guard.parse(url).unwrap_err().message, BLOCKED, "{url}");
    }
    // A mapped form of an allowed address is another address.
    assert!(guard.parse("https://[::ffff:10.20.1.1]/").is_err());
    // A name is never allowed by itself, also not one that means something inside.
    assert!(guard.parse("http://localhost:3000/").is_err());
    for cidr in ["10.20.0.1", "example.com", "10.0.0.0/33", "", "*"] {
        let refused = Guard::new([cidr]).unwrap_err();
        assert!(refused.field == "allow" && refused.remedy.contains("CIDR"), "{refused}");
    }
}

#[test]
fn an_address_is_vetted_or_blocked_with_one_text() {
    let guard = strict();
    let public: IpAddr = "9.9.9.9".parse().unwrap();
    assert_eq!(guard.vet(public).unwrap().address(), public);
    let texts: Vec<String> = ["127.0.0.1", "10.0.0.1", "::1", "169.254.169.254"]
        .iter()
        .map(|address| guard.vet(address.parse().unwrap()).unwrap_err().to_string())
        .collect();
    assert!(texts.iter().all(|text| text == BLOCKED), "{texts:?}");
}

#[tokio::test]
async fn every_answer_of_the_name_servers_must_be_public() {
    let server = NameServer::start().await.unwrap();
    let guard = strict().asking(&[server.address()]).unwrap();
    for (name, answers) in
        [("one.example.com", &["9.9.9.9"][..]), ("both.example.com", &["9.9.9.9", "2606:4700:4700::1111"])]
    {
        server.set(name, answers);
        assert!(guard.check(&format!("https://{name}/in")).await.is_ok(), "{name}");
    }
    for (name, answers) in LEADING_INSIDE {
        server.set(name, answers);
        let refused = guard.check(&format!("https://{name}/in")).await.expect_err(name);
        assert_eq!(refused.message, BLOCKED, "{name}");
    }
    // A name without an address may get one: every attempt looks again.
    assert!(guard.check("https://later.example.com/").await.is_ok());
    assert!(server.asked().contains(&"families.example.com".to_owned()));
    // Names are absolute: no search domain is ever appended.
    assert!(server.asked().iter().all(|name| name.ends_with(".example.com")), "{:?}", server.asked());
}
