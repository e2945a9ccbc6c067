//! One POST against a receiver that follows a script, down to the byte.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::time::Duration;

use postrider_testkit::{NameServer, Reply, Said, Sink};
use postrider_webhook::{
    ANSWER_BYTES_KEPT_MAX, ANSWER_BYTES_READ_MAX, BLOCKED, Client, Exchange, FailureClass, Guard, Post,
};
use tokio::io::AsyncReadExt as _;

const LOOPBACK: [&str; 2] = ["127.0.0.0/8", "::1/128"];
const DEADLINE: Duration = Duration::from_secs(10);
/// What a deadline may be late by, on a busy machine.
const LATE: Duration = Duration::from_millis(250);

fn guard() -> Guard {
    Guard::new(LOOPBACK).unwrap()
}

fn client() -> Client {
    Client::new(guard(), []).unwrap()
}

async fn post(client: &Client, url: &str, deadline: Duration) -> Exchange {
    let target = guard().parse(url).unwrap();
    let headers = [("webhook-id", "evt_1".to_owned()), ("content-type", "application/json".to_owned())];
    client.post(Post { headers: &headers, ..Post::new(&target, br#"{"a":1.0}"#, deadline) }).await
}

async fn answered(reply: Reply) -> (Exchange, Sink) {
    let sink = Sink::start().await.unwrap();
    sink.script([reply]);
    let exchange = post(&client(), &sink.url("/in?x=%20"), DEADLINE).await;
    (exchange, sink)
}

fn class(exchange: &Exchange) -> Option<FailureClass> {
    exchange.failure.as_ref().map(|failure| failure.class)
}

/// What Linux takes for this machine itself: whoever dials it is answered by another address.
const ELSEWHERE: [(&str, &str); 2] = [("0.0.0.0", "127.0.0.1:0"), ("[::]", "[::1]:0")];

#[tokio::test]
async fn s14_a_connection_that_ends_at_another_address_than_the_vetted_one_is_refused_before_a_byte_is_sent() {
    let guard = Guard::new(["0.0.0.0/32", "::/128"]).unwrap();
    let client = Client::new(guard.clone(), []).unwrap();
    for (host, listens) in ELSEWHERE {
        let listener = tokio::net::TcpListener::bind(listens).await.unwrap();
        let address = listener.local_addr().unwrap();
        for scheme in ["http", "https"] {
            let target = guard.parse(&format!("{scheme}://{host}:{}/in", address.port())).unwrap();
            let exchange = client.post(Post::new(&target, br#"{"a":1.0}"#, DEADLINE)).await;
            assert_eq!(exchange.failure.as_ref().unwrap().to_string(), format!("guard: {BLOCKED}"), "{scheme} {host}");
            assert_eq!((exchange.status, exchange.peer), (None, None));
            let (mut stream, _) = tokio::time::timeout(DEADLINE, listener.accept()).await.unwrap().unwrap();
            let mut arrived = Vec::new();
            tokio::time::timeout(DEADLINE, stream.read_to_end(&mut arrived)).await.unwrap().unwrap();
            assert_eq!(arrived, b"", "{scheme} {host}");
        }
    }
}

#[tokio::test]
async fn a_request_arrives_byte_for_byte_and_its_parts_are_timed() {
    let (exchange, sink) = answered(Reply::Full(201, vec![("x-a".into(), "b".into())], b"thanks".to_vec())).await;
    assert_eq!((exchange.status, &exchange.failure), (Some(201), &None));
    assert_eq!((exchange.body.as_slice(), exchange.header("x-a")), (b"thanks".as_slice(), Some(b"b".as_slice())));
    assert_eq!(exchange.peer, Some(sink.address()));
    let took = exchange.took;
    assert!(took.dns.is_some() && took.connect.is_some() && took.tls.is_none());
    assert!(took.first_byte.unwrap() <= took.total);

    let [request] = sink.requests().try_into().unwrap();
    let expected = format!(
        "POST /in?x=%20 HTTP/1.1\r\nhost: {}\r\nwebhook-id: evt_1\r\ncontent-type: application/json\r\n\
         content-length: 9\r\n\r\n",
        sink.address()
    );
    assert_eq!(String::from_utf8(request.head.clone()).unwrap(), expected);
    assert_eq!(request.body, br#"{"a":1.0}"#);
}

#[tokio::test]
async fn a_redirect_is_an_answer_and_nobody_goes_there() {
    let canary = Sink::start().await.unwrap();
    for status in [301, 302, 303, 307, 308] {
        let (exchange, sink) = answered(Reply::with_header(status, "location", &canary.url("/secret"))).await;
        assert_eq!((exchange.status, exchange.failure), (Some(status), None));
        assert_eq!(sink.connections(), 1);
    }
    assert_eq!(canary.connections(), 0);
}

#[tokio::test]
async fn one_deadline_covers_everything_however_the_other_side_is_slow() {
    let drip = |bytes: &[u8]| Reply::Drip(bytes.to_vec(), Duration::from_millis(50));
    let long = "a".repeat(10_000);
    let slow = [
        (Reply::Stall(Vec::new()), None),
        (Reply::Stall(b"HTTP/1.1 200 OK\r\n".to_vec()), None),
        (Reply::After(Duration::from_mins(1), Box::new(Reply::Status(200))), None),
        (drip(format!("HTTP/1.1 200 OK\r\nx: {long}\r\n\r\n").as_bytes()), None),
        (drip(&b"HTTP/1.1 100 Continue\r\n\r\n".repeat(200)), None),
        (Reply::Stall(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n".to_vec()), Some(200)),
    ];
    for (reply, status) in slow {
        let sink = Sink::start().await.unwrap();
        let told = format!("{reply:?}").chars().take(60).collect::<String>();
        sink.script([reply]);
        let deadline = Duration::from_millis(600);
        let exchange = post(&client(), &sink.url("/"), deadline).await;
        assert_eq!((class(&exchange), exchange.status), (Some(FailureClass::Timeout), status), "{told}");
        let total = exchange.took.total;
        assert!(total >= deadline && total < deadline + LATE, "{told}: {total:?}");
    }
    // A head at once, then a body byte by byte.
    let sink = Sink::start().await.unwrap();
    sink.script([drip(format!("HTTP/1.1 200 OK\r\ncontent-length: 10000\r\n\r\n{long}").as_bytes())]);
    let deadline = Duration::from_secs(4);
    let exchange = post(&client(), &sink.url("/"), deadline).await;
    assert_eq!((class(&exchange), exchange.status), (Some(FailureClass::Timeout), Some(200)));
    assert!(exchange.took.total < deadline + LATE, "{:?}", exchange.took.total);
    assert!(exchange.failure.unwrap().detail.ends_with("while reading the answer"));
}

#[tokio::test]
async fn of_an_endless_body_64_kib_are_read_and_16_are_kept() {
    let head = b"HTTP/1.1 200 OK\r\n\r\n".to_vec();
    let chunked = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n".to_vec();
    let chunk = [b"1000\r\n".to_vec(), vec![b'x'; 4_096], b"\r\n".to_vec()].concat();
    let sized = b"HTTP/1.1 200 OK\r\ncontent-length: 10000000000\r\n\r\n".to_vec();
    for (head, again) in [(head, vec![b'x'; 4_096]), (chunked, chunk), (sized, vec![b'x'; 4_096])] {
        let (exchange, _sink) = answered(Reply::Endless(head, again)).await;
        assert_eq!((exchange.status, &exchange.failure), (Some(200), &None), "the status counts: enough was read");
        assert_eq!(exchange.bytes_read, ANSWER_BYTES_READ_MAX);
        assert_eq!(exchange.body, vec![b'x'; ANSWER_BYTES_KEPT_MAX]);
        assert!(exchange.took.total < DEADLINE);
    }
}

#[tokio::test]
async fn a_head_without_an_end_is_not_an_answer() {
    let header = b"x-a: 0123456789\r\n".to_vec();
    let hundred: Vec<u8> = [b"HTTP/1.1 200 OK\r\n".to_vec(), header.repeat(101), b"\r\n".to_vec()].concat();
    for reply in [
        Reply::Endless(b"HTTP/1.1 200 OK\r\n".to_vec(), header.clone()),
        Reply::Endless(b"HTTP/1.1 200 OK\r\nx: ".to_vec(), vec![b'a'; 1_000]),
        Reply::Endless(Vec::new(), b"HTTP/1.1 100 Continue\r\n\r\n".to_vec()),
        Reply::Raw(hundred),
    ] {
        let told = format!("{reply:?}").chars().take(80).collect::<String>();
        let (exchange, _sink) = answered(reply).await;
        assert_eq!((class(&exchange), exchange.status), (Some(FailureClass::Protocol), None), "{told}");
        assert!(exchange.bytes_read <= ANSWER_BYTES_READ_MAX);
    }
}

#[tokio::test]
async fn a_torn_answer_has_the_class_of_how_it_was_torn() {
    use FailureClass::{Protocol, Reset};
    let ok = b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n12345".to_vec();
    for (reply, expected, status) in [
        (Reply::Reset(Vec::new()), Reset, None),
        (Reply::Reset(ok[..20].to_vec()), Reset, None),
        (Reply::Raw(Vec::new()), Reset, None),
        (Reply::HalfClose, Reset, None),
        (Reply::Raw(ok[..20].to_vec()), Protocol, None),
        (Reply::Raw(ok.clone()), Protocol, Some(200)),
        (Reply::Raw(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n".to_vec()), Protocol, Some(200)),
        (Reply::Raw(b"SSH-2.0-OpenSSH_9.2p1\r\n\r\n".to_vec()), Protocol, None),
        (Reply::Raw(b"HTTP/9.9 abc\r\n\r\n".to_vec()), Protocol, None),
        (Reply::Raw(b"HTTP/1.1 99999 No\r\n\r\n".to_vec()), Protocol, None),
        (Reply::Raw(vec![0; 500]), Protocol, None),
        (Reply::Raw(b"HTTP/1.1 200 OK\r\nx: a\0b\r\n\r\n".to_vec()), Protocol, None),
        (Reply::Raw(b"HTTP/1.1 200 OK\r\ncontent-length: -5\r\n\r\n".to_vec()), Protocol, None),
    ] {
        let told = format!("{reply:?}").chars().take(80).collect::<String>();
        let (exchange, _sink) = answered(reply).await;
        assert_eq!((class(&exchange), exchange.status), (Some(expected), status), "{told} {:?}", exchange.failure);
        assert!(exchange.took.total < DEADLINE, "{told}");
    }
}

#[tokio::test]
async fn a_compressed_answer_is_kept_as_it_came() {
    let bomb = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3];
    let (exchange, sink) =
        answered(Reply::Full(200, vec![("content-encoding".into(), "gzip".into())], bomb.clone())).await;
    assert_eq!(exchange.body, bomb);
    assert_eq!(sink.requests()[0].header("accept-encoding"), None);
}

#[tokio::test]
async fn where_nobody_listens_the_connection_is_refused() {
    let freed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let exchange = post(&client(), &format!("http://{freed}/"), DEADLINE).await;
    assert_eq!((class(&exchange), exchange.peer), (Some(FailureClass::Refused), None));
}

#[tokio::test]
async fn a_certificate_is_believed_only_under_a_trusted_root_and_for_its_name() {
    let sink = Sink::start_tls(&["hooks.example.com"]).await.unwrap();
    let exchange = post(&client(), &sink.url("/"), DEADLINE).await;
    assert_eq!(class(&exchange), Some(FailureClass::Tls));
    assert!(exchange.failure.unwrap().detail.contains("UnknownIssuer"));
    assert_eq!(sink.requests().len(), 0, "nothing was sent");

    let root = sink.certificate().unwrap().clone();
    let trusting = Client::new(guard(), [root.clone()]).unwrap();
    let exchange = post(&trusting, &sink.url("/"), DEADLINE).await;
    assert_eq!((exchange.status, &exchange.failure), (Some(204), &None));
    assert!(exchange.took.tls.is_some());

    // By a name, which the certificate has, and by one that it has not.
    let names = NameServer::start().await.unwrap();
    let trusting = Client::new(guard().asking(&[names.address()]).unwrap(), [root]).unwrap();
    for (name, expected) in [("hooks.example.com", None), ("other.example.com", Some(FailureClass::Tls))] {
        names.set(name, &["127.0.0.1"]);
        let url = format!("https://{name}:{}/in", sink.address().port());
        let exchange = post(&trusting, &url, DEADLINE).await;
        assert_eq!(class(&exchange), expected, "{name}: {:?}", exchange.failure);
    }
    assert_eq!(sink.requests().len(), 2);

    // Plain bytes where TLS should be.
    let plain = Sink::start().await.unwrap();
    let url = plain.url("/").replace("http://", "https://");
    let exchange = post(&client(), &url, Duration::from_secs(1)).await;
    assert!(matches!(class(&exchange), Some(FailureClass::Tls | FailureClass::Timeout)), "{:?}", exchange.failure);
}

#[tokio::test]
async fn a_name_that_moves_to_a_private_address_is_blocked_at_the_next_attempt() {
    let sink = Sink::start().await.unwrap();
    let names = NameServer::start().await.unwrap();
    // Only one address of the loopback is allowed here: the sink listens on it and on no other.
    let guard = Guard::new(["127.0.0.1/32"]).unwrap().asking(&[names.address()]).unwrap();
    let client = Client::new(guard.clone(), []).unwrap();
    let url = format!("http://hooks.example.com:{}/in", sink.address().port());
    names.set("hooks.example.com", &["127.0.0.1"]);
    let target = guard.check(&url).await.unwrap();
    let post = Post::new(&target, b"{}", DEADLINE);
    assert_eq!(client.post(post).await.status, Some(204));

    for moved in [&["127.0.0.2"][..], &["127.0.0.1", "127.0.0.2"], &["127.0.0.1", "::1"], &["9.9.9.9"]] {
        names.set("hooks.example.com", moved);
        let exchange = client.post(post).await;
        let failure = exchange.failure.unwrap();
        assert_eq!((failure.class, failure.detail.as_str()), (FailureClass::Guard, BLOCKED), "{moved:?}");
        assert_eq!(exchange.peer, None);
    }
    assert_eq!(sink.connections(), 1);

    // The answers had no time to live: both families were asked for at every attempt, and never a search domain's name.
    let asked = names.asked();
    assert!(asked.len() >= 10 && asked.iter().all(|name| name == "hooks.example.com"), "{asked:?}");

    names.set("hooks.example.com", &[]);
    let failure = client.post(post).await.failure.unwrap();
    assert_eq!((failure.class, failure.detail.as_str()), (FailureClass::Dns, "the name does not exist"));
}

#[tokio::test]
async fn f57_name_servers_that_answer_nobody_are_our_own_trouble_and_those_that_answer_others_the_names() {
    let silent = tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let freed = tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let names = NameServer::start().await.unwrap();
    names.say("silent.example.com", [Said::Silent]);
    names.say("broken.example.com", [Said::ServFail]);
    names.say("garbage.example.com", [Said::Garbage]);
    names.say("empty.example.com", [Said::NoAddress]);
    names.say("loop.example.com", [Said::Cname("loop.example.com".to_owned())]);
    names.say("nowhere.example.com", [Said::Cname("gone.example.com".to_owned())]);
    let unknown = (FailureClass::Dns, "the name cannot be looked up");
    for (server, name, expected) in [
        (silent.local_addr().unwrap(), "hooks", (FailureClass::Local, "our name servers do not answer")),
        (freed, "hooks", (FailureClass::Local, "our name servers do not answer")),
        (names.address(), "silent", unknown),
        (names.address(), "broken", unknown),
        (names.address(), "garbage", unknown),
        (names.address(), "empty", (FailureClass::Dns, "the name has no address")),
        (names.address(), "nowhere", (FailureClass::Dns, "the name does not exist")),
    ] {
        let client = Client::new(Guard::new(LOOPBACK).unwrap().asking(&[server]).unwrap(), []).unwrap();
        let deadline = Duration::from_secs(2);
        let exchange = post(&client, &format!("https://{name}.example.com/"), deadline).await;
        let failure = exchange.failure.unwrap();
        assert_eq!((failure.class, failure.detail.as_str()), expected, "{name}");
        assert!(exchange.took.total < deadline + LATE, "{name}: {:?}", exchange.took.total);
    }
    let client = Client::new(Guard::new(LOOPBACK).unwrap().asking(&[names.address()]).unwrap(), []).unwrap();
    let exchange = post(&client, "https://loop.example.com/", Duration::from_secs(2)).await;
    assert_eq!(class(&exchange), Some(FailureClass::Dns), "{:?}", exchange.failure);
}

#[tokio::test]
async fn f57_of_a_thousand_addresses_each_is_vetted_and_three_are_tried() {
    let names = NameServer::start().await.unwrap();
    let sink = Sink::start().await.unwrap();
    let client = Client::new(guard().asking(&[names.address()]).unwrap(), []).unwrap();
    let url = format!("http://many.example.com:{}/", sink.address().port());
    // The sink listens on 127.0.0.1 alone.
    let mut many: Vec<String> = (0..1_000).map(|n| format!("127.0.{}.{}", 1 + n / 250, n % 250)).collect();
    names.set("many.example.com", &many.iter().map(String::as_str).collect::<Vec<_>>());
    let exchange = post(&client, &url, DEADLINE).await;
    assert_eq!(class(&exchange), Some(FailureClass::Refused), "{:?}", exchange.failure);
    many.insert(0, "127.0.0.1".to_owned());
    names.set("many.example.com", &many.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(post(&client, &url, DEADLINE).await.status, Some(204));
    many.push("10.9.9.9".to_owned());
    names.set("many.example.com", &many.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(class(&post(&client, &url, DEADLINE).await), Some(FailureClass::Guard));
}
