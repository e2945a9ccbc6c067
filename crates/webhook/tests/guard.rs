//! What the guard lets through at the door, by spelling and by what name servers answer.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod dns;

use std::net::IpAddr;

use dns::NameServer;
use postrider_webhook::{BLOCKED, Guard};

fn strict() -> Guard {
    Guard::new::<&str>([]).unwrap()
}

/// Spellings of places that are not public, or of nothing at all.
const REFUSED: [&str; 84] = [
    // 127.0.0.1 in numbers
    "https://127.0.0.1/",
    "https://127.1/",
    "https://127.0.1/",
    "https://2130706433/",
    "https://0x7f000001/",
    "https://0x7f.1/",
    "https://0x7f.0x0.0x0.0x1/",
    "https://0177.0.0.1/",
    "https://017700000001/",
    "https://0177.0.0.01/",
    "https://127.0.0.1./",
    "https://127.127.127.127/",
    "https://127.0.0.1:8443/",
    "https://%31%32%37.0.0.1/",
    "https://127%2e0%2e0%2e1/",
    // other digits and dots
    "https://１２７.０.０.１/",
    "https://①②⑦.⓪.⓪.①/",
    "https://127。0。0。1/",
    "https://127．0．0．1/",
    // nowhere, and everywhere
    "https://0/",
    "https://0.0.0.0/",
    "https://0x0/",
    "https://255.255.255.255/",
    "https://256.256.256.256/",
    "https://4294967295/",
    "https://4294967296/",
    "https://1.2.3.4.5/",
    "https://0xffffffffff/",
    // private, shared and link-local networks; platform services
    "https://10.0.0.1/",
    "https://172.16.0.1/",
    "https://172.31.255.254/",
    "https://192.168.1.1/",
    "https://100.64.0.1/",
    "https://169.254.169.254/latest/meta-data/",
    "https://2852039166/",
    "https://0xa9fea9fe/",
    "https://0251.0376.0251.0376/",
    "https://168.63.129.16/",
    "https://192.0.0.192/",
    "https://198.18.0.1/",
    "https://224.0.0.1/",
    "https://240.0.0.1/",
    // IPv6
    "https://[::]/",
    "https://[::1]/",
    "https://[0:0:0:0:0:0:0:1]/",
    "https://[::ffff:127.0.0.1]/",
    "https://[::ffff:7f00:1]/",
    "https://[::ffff:8.8.8.8]/",
    "https://[::127.0.0.1]/",
    "https://[::7f00:1]/",
    "https://[64:ff9b::127.0.0.1]/",
    "https://[64:ff9b::a9fe:a9fe]/",
    "https://[64:ff9b::10.0.0.1]/",
    "https://[2002:7f00:1::]/",
    "https://[2002:a9fe:a9fe::1]/",
    "https://[2001:0:4136:e378:8000:63bf:3fff:fdd2]/",
    "https://[2001:db8::1]/",
    "https://[fe80::1]/",
    "https://[fe80::1%25eth0]/",
    "https://[fc00::1]/",
    "https://[fd00:ec2::254]/",
    "https://[ff02::1]/",
    "https://[::1",
    // names inside a network
    "https://localhost/",
    "https://LOCALHOST/",
    "https://localhost./",
    "https://localhost../",
    "https://ｌｏｃａｌｈｏｓｔ/",
    "https://a.localhost/",
    "https://printer.local/",
    "https://metadata.google.internal/",
    "https://metadata.google.internal./",
    "https://nas.home.arpa/",
    "https://router.lan/",
    "https://intranet/",
    "https://hooks..example.com/",
    "https://./",
    // everything else that is not a receiver
    "https://user@hooks.example.com/",
    "https://:password@hooks.example.com/",
    "https://hooks.example.com@127.0.0.1/",
    "https://hooks.example.com:22/",
    "https://hooks.example.com:0/",
    "http://hooks.example.com/",
    "file:///etc/passwd",
];

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
    for url in [
        "https://1.1.1.1/",
        "https://8.8.8.8/in",
        "https://9.255.255.255/",
        "https://11.0.0.1/",
        "https://93.184.215.14:8443/a?b=c",
        "https://100.63.255.255/",
        "https://100.128.0.1/",
        "https://126.255.255.255/",
        "https://128.0.0.1/",
        "https://169.253.255.255/",
        "https://172.15.255.255/",
        "https://172.32.0.1/",
        "https://192.167.255.255/",
        "https://192.169.0.1/",
        "https://198.17.255.255/",
        "https://198.20.0.1/",
        "https://223.255.255.255/",
        "https://[2606:4700:4700::1111]/",
        "https://[2001:4860:4860::8888]:8443/",
        "https://[2a00:1450:4001:81b::200e]/",
        "https://[64:ff9b::8.8.8.8]/",
        "https://hooks.example.com/",
        "https://hooks.example.com./",
        "https://a.b.c.example.co.uk:8080/",
        "https://xn--bcher-kva.example/",
        "https://bücher.example/",
        "https://local.example.com/",
        "https://localhost.example.com/",
        "https://internal.example.com/",
        "https://my-lan.example/",
    ] {
        assert!(guard.parse(url).is_ok(), "{url}");
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
    let server = NameServer::start().await;
    let guard = strict().asking(&[server.address()]).unwrap();
    for (name, answers, fine) in [
        ("one.example.com", &["9.9.9.9"][..], true),
        ("both.example.com", &["9.9.9.9", "2606:4700:4700::1111"], true),
        ("private.example.com", &["10.9.9.9"], false),
        ("mixed.example.com", &["9.9.9.9", "10.9.9.9"], false),
        ("last.example.com", &["9.9.9.9", "8.8.8.8", "1.1.1.1", "127.0.0.1"], false),
        ("aaaa.example.com", &["9.9.9.9", "::1"], false),
        ("mapped.example.com", &["::ffff:9.9.9.9"], false),
        ("nat64.example.com", &["64:ff9b::a9fe:a9fe"], false),
        ("6to4.example.com", &["2002:7f00:1::"], false),
        ("127.0.0.1.nip.example.com", &["127.0.0.1"], false),
    ] {
        server.set(name, answers);
        let checked = guard.check(&format!("https://{name}/in")).await;
        match checked {
            Ok(target) => assert!(fine, "{target} passed with {answers:?}"),
            Err(refused) => assert!(!fine && refused.message == BLOCKED, "{name}: {refused}"),
        }
    }
    // A name without an address may get one: every attempt looks again.
    assert!(guard.check("https://later.example.com/").await.is_ok());
    assert!(server.asked().contains(&"aaaa.example.com".to_owned()));
    // Names are absolute: no search domain is ever appended.
    assert!(server.asked().iter().all(|name| name.ends_with(".example.com")), "{:?}", server.asked());
}
