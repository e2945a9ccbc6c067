//! What a client keeps open, for whom, and what receivers may do to it.
#![expect(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::time::Duration;

use postrider_testkit::{NameServer, Reply, Request, Sink, until};
use postrider_webhook::{
    ANSWER_BYTES_KEPT_MAX, ANSWER_BYTES_READ_MAX, BLOCKED, Client, Exchange, FailureClass, Guard, Headers, Post,
};

const DEADLINE: Duration = Duration::from_secs(10);
const LONG: Duration = Duration::from_secs(30);
const LATE: Duration = Duration::from_millis(250);

fn guard() -> Guard {
    Guard::new(["127.0.0.1/32"]).unwrap()
}

fn client() -> Client {
    Client::new(guard(), []).unwrap()
}

fn trusting(sink: &Sink) -> Client {
    Client::new(guard(), sink.certificate().cloned()).unwrap()
}

async fn post(client: &Client, url: &str, endpoint: Option<i64>) -> Exchange {
    post_within(client, url, endpoint, DEADLINE).await
}

async fn post_within(client: &Client, url: &str, endpoint: Option<i64>, deadline: Duration) -> Exchange {
    let target = guard().parse(url).unwrap();
    let headers = [("webhook-id", "evt_1".to_owned())];
    client.post(Post { headers: &headers, reuse: endpoint, ..Post::new(&target, br#"{"a":1.0}"#, deadline) }).await
}

fn connections(requests: &[Request]) -> Vec<u64> {
    requests.iter().map(|request| request.connection).collect()
}

fn class(exchange: &Exchange) -> Option<FailureClass> {
    exchange.failure.as_ref().map(|failure| failure.class)
}

#[tokio::test]
async fn a_connection_is_used_again_by_its_endpoint_and_by_nobody_else() {
    for sink in [Sink::start().await.unwrap(), Sink::start_tls(&[]).await.unwrap(), Sink::start_h2(&[]).await.unwrap()]
    {
        let client = trusting(&sink);
        for endpoint in [Some(1), Some(1), Some(2), Some(1), None, None, Some(2)] {
            let exchange = post(&client, &sink.url("/in"), endpoint).await;
            assert_eq!((exchange.status, &exchange.failure), (Some(204), &None));
            assert_eq!(exchange.peer, Some(sink.address()));
        }
        assert_eq!(connections(&sink.requests()), [0, 0, 1, 0, 2, 3, 1], "{}", sink.url(""));
        // Who waits for another answer keeps its connection to itself.
        sink.script([Reply::after(Duration::from_millis(500), Reply::Status(200))]);
        let url = sink.url("/in");
        let (slow, quick) = tokio::join!(post(&client, &url, Some(1)), async {
            sink.wait_for(8, LONG).await;
            post(&client, &url, Some(1)).await
        });
        assert_eq!((slow.status, quick.status), (Some(200), Some(204)));
        assert_eq!(connections(&sink.requests()).split_off(7), [0, 4]);
        assert!(slow.took.connect.is_none() && quick.took.connect.is_some());
    }
}

#[tokio::test]
async fn what_is_read_over_a_connection_is_counted_anew_for_each_answer() {
    for sink in [Sink::start().await.unwrap(), Sink::start_h2(&[]).await.unwrap()] {
        let client = trusting(&sink);
        for _ in 0..20 {
            sink.script([Reply::with_body(200, vec![b'x'; 10_000])]);
            let exchange = post(&client, &sink.url("/"), Some(1)).await;
            assert_eq!((exchange.status, exchange.failure, exchange.body.len()), (Some(200), None, 10_000));
            assert!((10_000..11_000).contains(&exchange.bytes_read), "{}", exchange.bytes_read);
        }
        assert_eq!(sink.connections(), 1);
    }
}

#[tokio::test]
async fn a_connection_that_is_open_is_not_used_once_its_name_leads_somewhere_else() {
    let (names, sink) = (NameServer::start().await.unwrap(), Sink::start().await.unwrap());
    let client = Client::new(guard().asking(&[names.address()]).unwrap(), []).unwrap();
    let url = format!("http://hooks.example.com:{}/in", sink.address().port());
    names.set("hooks.example.com", &["127.0.0.1"]);
    assert_eq!(post(&client, &url, Some(1)).await.status, Some(204));
    assert_eq!(sink.open(), 1);
    names.set("hooks.example.com", &["127.0.0.2"]);
    assert_eq!(post(&client, &url, Some(1)).await.failure.unwrap().detail, BLOCKED);
    names.set("hooks.example.com", &["127.0.0.1"]);
    assert_eq!(post(&client, &url, Some(1)).await.status, Some(204));
    assert_eq!(sink.requests().len(), 2);
}

#[tokio::test]
async fn a_connection_that_a_receiver_closed_costs_no_attempt() {
    let sink = Sink::start().await.unwrap();
    let client = client();
    for n in 0..20 {
        // A whole answer that does not say that the connection ends, and its end.
        sink.script([Reply::Raw(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok".to_vec())]);
        let exchange = post(&client, &sink.url("/in"), Some(1)).await;
        assert_eq!((exchange.status, exchange.failure), (Some(200), None), "{n}");
    }
    assert_eq!(sink.requests().len(), 20, "each was sent once");
}

#[tokio::test]
async fn what_follows_an_answer_is_never_taken_for_the_next_one() {
    let forged = b"HTTP/1.1 299 Forged\r\ncontent-length: 0\r\n\r\n".to_vec();
    let sized = [b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok".to_vec(), forged.clone()].concat();
    let two_lengths = [
        b"HTTP/1.1 200 OK\r\ncontent-length: 60\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n".to_vec(),
        forged.clone(),
    ]
    .concat();
    let bodiless = [b"HTTP/1.1 204 No Content\r\n\r\n".to_vec(), forged].concat();
    for answer in [sized, two_lengths, bodiless] {
        let (sink, client) = (Sink::start().await.unwrap(), client());
        let told = String::from_utf8_lossy(&answer).into_owned();
        sink.script([Reply::Keep(answer)]);
        post(&client, &sink.url("/in"), Some(1)).await;
        let next = post(&client, &sink.url("/in"), Some(1)).await;
        assert_eq!((next.status, next.failure), (Some(204), None), "{told}");
    }
}

#[tokio::test]
async fn what_was_not_read_to_its_end_is_closed_at_once() {
    let sink = Sink::start().await.unwrap();
    let client = client();
    for reply in [
        Reply::endless(),
        Reply::Stall(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n".to_vec()),
        Reply::Keep(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n".to_vec()),
        Reply::Keep(b"HTTP/1.0 200 OK\r\ncontent-length: 0\r\n\r\n".to_vec()),
    ] {
        sink.script([reply]);
        let target = guard().parse(&sink.url("/")).unwrap();
        let post = Post { reuse: Some(1), ..Post::new(&target, b"{}", Duration::from_secs(1)) };
        client.post(post).await;
        until("the connection is closed", LONG, async || (sink.open() == 0).then_some(())).await;
    }
    assert_eq!(sink.connections(), 4);
}

#[tokio::test]
async fn an_idle_connection_ends_after_seconds_and_with_its_client() {
    let (sink, client) = (Sink::start().await.unwrap(), client());
    post(&client, &sink.url("/"), Some(1)).await;
    let start = tokio::time::Instant::now();
    until("it is closed", LONG, async || (sink.open() == 0).then_some(())).await;
    assert!(start.elapsed() > Duration::from_secs(3), "{:?}", start.elapsed());
    post(&client, &sink.url("/"), Some(1)).await;
    assert_eq!(sink.open(), 1);
    drop(client);
    let start = tokio::time::Instant::now();
    until("it is closed", LONG, async || (sink.open() == 0).then_some(())).await;
    assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
}

#[tokio::test]
async fn so_many_connections_rest_and_no_more() {
    let (sink, client) = (Sink::start().await.unwrap(), client());
    let url = sink.url("/");
    // Five at a time for one endpoint, of which four may rest.
    sink.script((0..5).map(|_| Reply::after(Duration::from_millis(300), Reply::Status(204))));
    tokio::join!(
        post(&client, &url, Some(1)),
        post(&client, &url, Some(1)),
        post(&client, &url, Some(1)),
        post(&client, &url, Some(1)),
        post(&client, &url, Some(1)),
    );
    until("one of them is closed", LONG, async || (sink.open() == 4).then_some(())).await;
}

#[tokio::test]
async fn f55_over_http_2_a_request_is_the_same_and_so_are_its_failures() {
    let sink = Sink::start_h2(&["hooks.example.com"]).await.unwrap();
    let client = trusting(&sink);
    let exchange = post(&client, &sink.url("/in?x=%20"), Some(1)).await;
    assert_eq!((exchange.status, &exchange.failure), (Some(204), &None));
    assert!(exchange.took.tls.is_some() && exchange.took.first_byte.is_some());
    let [request] = sink.requests().try_into().unwrap();
    assert_eq!(request.line(), "POST /in?x=%20 HTTP/2");
    let expected = [
        (":scheme", "https".to_owned()),
        (":authority", sink.address().to_string()),
        ("webhook-id", "evt_1".to_owned()),
        ("content-length", "9".to_owned()),
    ];
    assert_eq!(request.headers(), expected.map(|(name, value)| (name.to_owned(), value)));
    assert_eq!(request.body, br#"{"a":1.0}"#);

    // A reset of the stream, an answer with a body, one without an end.
    sink.script([Reply::Reset(Vec::new()), Reply::with_body(500, "down"), Reply::endless()]);
    let reset = post(&client, &sink.url("/"), Some(1)).await;
    assert_eq!((class(&reset), reset.status), (Some(FailureClass::Reset), None), "{:?}", reset.failure);
    let down = post(&client, &sink.url("/"), Some(1)).await;
    assert_eq!((down.status, down.body.as_slice()), (Some(500), b"down".as_slice()));
    let endless = post(&client, &sink.url("/"), Some(1)).await;
    assert_eq!((endless.status, &endless.failure), (Some(200), &None));
    assert_eq!(endless.body, vec![b'x'; ANSWER_BYTES_KEPT_MAX]);
    assert!(endless.bytes_read <= ANSWER_BYTES_READ_MAX && endless.took.total < DEADLINE);

    // One that refuses a stream has not looked at it: it is sent again at once, and the attempt is one.
    let before = sink.requests().len();
    assert_eq!(post(&client, &sink.url("/"), Some(1)).await.status, Some(204));
    sink.script([Reply::Refuse]);
    let exchange = post(&client, &sink.url("/"), Some(1)).await;
    assert_eq!((exchange.status, &exchange.failure), (Some(204), &None));
    assert_eq!(sink.requests().len(), before + 3);

    // Silence.
    let target = guard().parse(&sink.url("/")).unwrap();
    sink.script([Reply::Stall(Vec::new())]);
    let deadline = Duration::from_millis(600);
    let silence = client.post(Post { reuse: Some(1), ..Post::new(&target, b"{}", deadline) }).await;
    assert_eq!(class(&silence), Some(FailureClass::Timeout));
    assert!(silence.took.total < deadline + LATE, "{:?}", silence.took.total);
}

/// RFC 9113, section 4.1.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

#[tokio::test]
async fn f55_a_server_of_http_2_that_floods_stalls_or_goes_away_ends_the_attempt_and_nothing_else() {
    use FailureClass::{Protocol, Reset, Timeout};
    let settings = frame(4, 0, 0, &[]);
    let and = |more: Vec<u8>| [settings.clone(), more].concat();
    // HEADERS with :status 200 that do not end, and a header of one letter for ever.
    let (begun, more) = (frame(1, 0, 1, &[0x88]), frame(9, 0, 1, &[0, 1, b'a', 1, b'b']));
    let answer = and(frame(1, 5, 1, &[0x88]));
    let goes_away = frame(7, 0, 0, &[0; 8]);
    let broken = frame(7, 0, 0, &[0, 0, 0, 1, 0, 0, 0, 1]);
    for (told, reply, expected) in [
        ("SETTINGS for ever", Reply::Endless(Vec::new(), settings.repeat(100)), &[Protocol, Reset][..]),
        ("PING for ever", Reply::Endless(settings.clone(), frame(6, 0, 0, &[7; 8]).repeat(100)), &[Protocol, Reset]),
        ("CONTINUATION for ever", Reply::Endless(and(begun), more.repeat(100)), &[Protocol, Reset]),
        ("DATA of no stream", Reply::Stall(and(frame(0, 0, 9, b"x"))), &[Protocol, Reset]),
        ("a frame that is too long", Reply::Stall(and(frame(0, 0, 1, &vec![0; 20_000]))), &[Protocol, Reset]),
        ("GOAWAY before the request", Reply::Stall(and(goes_away)), &[Reset]),
        // It may still answer what it has taken.
        ("GOAWAY with an error", Reply::Stall(and(broken)), &[Timeout, Reset]),
        ("RST_STREAM", Reply::Stall(and(frame(3, 0, 1, &[0, 0, 0, 2]))), &[Reset]),
        ("no window", Reply::Stall(frame(4, 0, 0, &[0, 4, 0, 0, 0, 0])), &[Timeout]),
        ("silence", Reply::Stall(settings.clone()), &[Timeout]),
        ("not HTTP/2", Reply::Raw(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n".to_vec()), &[Protocol, Reset]),
        ("the end", Reply::Raw(Vec::new()), &[Protocol, Reset]),
        ("a reset", Reply::Reset(Vec::new()), &[Protocol, Reset]),
    ] {
        let sink = Sink::start_h2_raw().await.unwrap();
        sink.script([reply]);
        let client = trusting(&sink);
        let deadline = Duration::from_secs(3);
        let exchange = post_within(&client, &sink.url("/"), Some(1), deadline).await;
        let seen = class(&exchange).unwrap_or_else(|| panic!("{told}: {exchange:?}"));
        assert!(expected.contains(&seen), "{told}: {:?}", exchange.failure);
        assert!(exchange.bytes_read <= ANSWER_BYTES_READ_MAX, "{told}");
        assert!(exchange.took.total < deadline + LATE, "{told}: {:?}", exchange.took.total);
        until("the connection is closed", LONG, async || (sink.open() == 0).then_some(())).await;
        // The next one is not the worse for it.
        sink.script([Reply::Stall(answer.clone())]);
        assert_eq!(post(&client, &sink.url("/"), Some(1)).await.status, Some(200), "{told}");
    }
}

#[tokio::test]
async fn what_an_endpoint_wants_sent_is_sent_and_nothing_of_it_replaces_ours() {
    let (plain, two) = (Sink::start().await.unwrap(), Sink::start_h2(&[]).await.unwrap());
    let extra = Headers::new([("Authorization", "Bearer s3cret"), ("X-Team", "a\tb, \"c\"")]).unwrap();
    for sink in [plain, two] {
        let target = guard().parse(&sink.url("/")).unwrap();
        let headers = [("webhook-id", "evt_1".to_owned())];
        let post = Post { extra: &extra, headers: &headers, ..Post::new(&target, b"{}", DEADLINE) };
        assert_eq!(trusting(&sink).post(post).await.status, Some(204));
        let request = &sink.requests()[0];
        for (name, value) in [("authorization", "Bearer s3cret"), ("x-team", "a\tb, \"c\""), ("webhook-id", "evt_1")] {
            assert_eq!(request.header(name).as_deref(), Some(value), "{name}");
        }
        assert!(!format!("{post:?}").contains("s3cret"));
    }
}

/// The resident memory of this process, in KiB: now, and at its highest since `5` was written to `clear_refs`.
fn memory() -> (i64, i64) {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let of = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    };
    (of("VmRSS:"), of("VmHWM:"))
}

#[tokio::test]
async fn f50_f52_however_much_receivers_send_a_delivery_costs_little_memory() {
    const AT_ONCE: usize = 25;
    let head = b"HTTP/1.1 200 OK\r\n".to_vec();
    let chunked = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n".to_vec();
    let chunk = [b"1000\r\n".to_vec(), vec![b'x'; 4_096], b"\r\n".to_vec()].concat();
    let replies = [
        Reply::endless(),
        Reply::Endless(chunked, chunk),
        Reply::Endless(head.clone(), b"x-a: 0123456789\r\n".repeat(100)),
        Reply::Endless(head, vec![b'a'; 4_096]),
        Reply::Endless(Vec::new(), b"HTTP/1.1 100 Continue\r\n\r\n".repeat(100)),
        Reply::Endless(Vec::new(), vec![0; 4_096]),
        // As small as a frame of HTTP/2 can be useful.
        Reply::Endless(b"HTTP/1.1 200 OK\r\n\r\n".to_vec(), vec![b'x'; 16]),
        Reply::gzip_bomb(64),
    ];
    let sinks = [Sink::start().await.unwrap(), Sink::start_tls(&[]).await.unwrap(), Sink::start_h2(&[]).await.unwrap()];
    // Frames of a few bytes, which only HTTP/2 has, are remembered one by one.
    for (sink, most) in sinks.iter().zip([512, 512, 2_048]) {
        let client = trusting(sink);
        // What is made once.
        assert_eq!(post(&client, &sink.url("/"), None).await.status, Some(204));
        std::fs::write("/proc/self/clear_refs", "5").unwrap();
        let (before, _) = memory();
        for reply in &replies {
            sink.script(vec![reply.clone(); AT_ONCE]);
            let url = sink.url("/");
            let posts: Vec<_> =
                (0..AT_ONCE).map(|_| post_within(&client, &url, None, Duration::from_mins(1))).collect();
            for exchange in futures_util::future::join_all(posts).await {
                assert!(exchange.bytes_read <= ANSWER_BYTES_READ_MAX && exchange.body.len() <= ANSWER_BYTES_KEPT_MAX);
                let told = format!("{reply:?}").chars().take(60).collect::<String>();
                assert_ne!(
                    class(&exchange),
                    Some(FailureClass::Timeout),
                    "{told} {:?} {}",
                    exchange.failure,
                    exchange.bytes_read
                );
            }
        }
        let (_, highest) = memory();
        let each = (highest - before) / i64::try_from(AT_ONCE).unwrap();
        // Both sides of every connection are in this process: its TLS, its buffers, and what the receiver has in hand.
        assert!(each < most, "{each} KiB for each delivery");
        println!("{}: at most {each} KiB for each of {AT_ONCE} deliveries at once, receiver included", sink.url(""));
    }
}
