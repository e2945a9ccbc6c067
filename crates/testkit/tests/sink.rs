//! The scripted receiver and its name server, held against clients that are not ours.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a failed helper is a failed test")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use postrider_testkit::{NameServer, Reply, Said, Sink, TlsFault};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

const LONG: Duration = Duration::from_secs(10);
const REQUEST: &[u8] = b"POST /in HTTP/1.1\r\nhost: x\r\nx-odd: a:b\r\ncontent-length: 2\r\n\r\n{}";

async fn answer(address: SocketAddr) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(REQUEST).await.unwrap();
    let (mut seen, mut part) = (Vec::new(), [0; 4_096]);
    // What comes within a moment; a script that stalls has nothing more to say.
    while let Ok(Ok(read @ 1..)) = timeout(Duration::from_millis(300), stream.read(&mut part)).await {
        seen.extend(&part[..read]);
        if seen.len() > 100_000 {
            break;
        }
    }
    seen
}

#[tokio::test]
async fn a_sink_answers_as_it_is_told_and_keeps_what_came() {
    let sink = Sink::start().await.unwrap();
    sink.script([
        Reply::retry_after(429, "-5"),
        Reply::redirect(302, "file:///etc/passwd"),
        Reply::Echo,
        Reply::endless(),
        Reply::Stall(b"HTTP/1.1 2".to_vec()),
    ]);
    assert!(answer(sink.address()).await.ends_with(b"retry-after: -5\r\ncontent-length: 0\r\n\r\n"));
    assert!(answer(sink.address()).await.starts_with(b"HTTP/1.1 302 Scripted\r\nlocation: file:///etc/passwd\r\n"));
    assert!(answer(sink.address()).await.ends_with(b"host: x\nx-odd: a:b\ncontent-length: 2\n\n{}"));
    assert!(answer(sink.address()).await.len() > 100_000);
    assert_eq!(answer(sink.address()).await, b"HTTP/1.1 2");
    assert_eq!(answer(sink.address()).await, b"HTTP/1.1 204 Scripted\r\n\r\n");
    let requests = sink.requests();
    assert!(requests.iter().all(|request| [request.head.as_slice(), &request.body].concat() == REQUEST));
    let connections: Vec<u64> = requests.iter().map(|request| request.connection).collect();
    assert_eq!(connections, [0, 1, 2, 3, 4, 5]);
    assert_eq!(sink.dialled(), vec![sink.address(); 6]);
}

#[tokio::test]
async fn a_gzip_bomb_unpacks_to_a_thousand_times_its_size() {
    let Reply::Full(200, headers, packed) = Reply::gzip_bomb(16) else { panic!("not an answer") };
    assert_eq!(headers, [("content-encoding".to_owned(), "gzip".to_owned())]);
    let unpacked = std::io::copy(&mut flate2::read::GzDecoder::new(packed.as_slice()), &mut std::io::sink()).unwrap();
    assert_eq!(unpacked, 16 * 1_048_576);
    assert!(packed.len() < 20_000, "{}", packed.len());
}

#[tokio::test]
async fn each_fault_of_tls_is_seen_by_a_client_that_trusts_the_certificate() {
    for (fault, expected) in [
        (TlsFault::Expired, "Expired"),
        (TlsFault::NotYetValid, "NotValidYet"),
        (TlsFault::WrongName, "NotValidForName"),
        (TlsFault::Cut, "ConnectionReset"),
        (TlsFault::NotTls, "InvalidMessage"),
        (TlsFault::Silent, "silent"),
    ] {
        let sink = Sink::start_tls_fault(fault).await.unwrap();
        let mut roots = rustls::RootCertStore::empty();
        roots.add(sink.certificate().unwrap().clone()).unwrap();
        let config = rustls::ClientConfig::builder_with_provider(rustls::crypto::ring::default_provider().into())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let stream = TcpStream::connect(sink.address()).await.unwrap();
        let name = ServerName::IpAddress(sink.address().ip().into());
        let shaking = TlsConnector::from(Arc::new(config)).connect(name, stream);
        let seen = match timeout(Duration::from_millis(500), shaking).await {
            Ok(Ok(_)) => "agreed".to_owned(),
            Ok(Err(error)) => format!("{error:?}"),
            Err(_) => "silent".to_owned(),
        };
        assert!(seen.contains(expected), "{fault:?}: {seen}");
        assert_eq!(sink.requests().len(), 0);
    }
}

/// A query for the addresses of one family (1: IPv4, 28: IPv6), written by hand.
fn query(name: &str, family: u8) -> Vec<u8> {
    let mut packet = vec![0xab, 0xcd, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.split('.') {
        packet.push(u8::try_from(label.len()).unwrap());
        packet.extend(label.as_bytes());
    }
    packet.extend([0, 0, family, 0, 1]);
    packet
}

async fn asked(server: &NameServer, name: &str, family: u8) -> Option<Vec<u8>> {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    socket.send_to(&query(name, family), server.address()).await.unwrap();
    let mut packet = vec![0; 1_500];
    let length = timeout(Duration::from_millis(300), socket.recv(&mut packet)).await.ok()?.unwrap();
    packet.truncate(length);
    Some(packet)
}

#[tokio::test]
async fn a_name_server_says_what_its_script_says_look_by_look() {
    let server = NameServer::start().await.unwrap();
    let code =
        |packet: Option<Vec<u8>>| packet.map(|packet| (packet[3] & 15, u16::from_be_bytes([packet[6], packet[7]])));
    server.say("moving.example.com", [Said::addresses(&["9.9.9.9"]), Said::addresses(&["127.0.0.1", "::1"])]);
    assert!(asked(&server, "moving.example.com", 1).await.unwrap().ends_with(&[0, 4, 9, 9, 9, 9]));
    assert_eq!(code(asked(&server, "moving.example.com", 28).await), Some((0, 0)));
    assert!(asked(&server, "moving.example.com", 1).await.unwrap().ends_with(&[0, 4, 127, 0, 0, 1]));
    assert_eq!(code(asked(&server, "MOVING.example.com", 28).await), Some((0, 1)));

    server.say("other.example.com", [Said::Cname("moving.example.com".to_owned())]);
    let chained = asked(&server, "other.example.com", 1).await.unwrap();
    assert_eq!(code(Some(chained.clone())), Some((0, 2)));
    assert!(chained.ends_with(&[0, 4, 127, 0, 0, 1]));
    server.say("loop.example.com", [Said::Cname("loop.example.com".to_owned())]);
    assert_eq!(code(asked(&server, "loop.example.com", 1).await), Some((0, 8)));

    for (said, expected) in [
        (Said::NoSuchName, Some((3, 0))),
        (Said::NoAddress, Some((0, 0))),
        (Said::ServFail, Some((2, 0))),
        (Said::Silent, None),
        (Said::After(Duration::from_millis(50), Box::new(Said::ServFail)), Some((2, 0))),
    ] {
        server.say("odd.example.com", [said.clone()]);
        assert_eq!(code(asked(&server, "odd.example.com", 1).await), expected, "{said:?}");
    }
    assert_eq!(code(asked(&server, "never.example.com", 1).await), Some((3, 0)));

    // Too long for UDP: cut there, whole over TCP.
    let many: Vec<String> = (0..1_000).map(|n| format!("9.9.{}.{}", n / 250, n % 250)).collect();
    server.set("many.example.com", &many.iter().map(String::as_str).collect::<Vec<_>>());
    let cut = asked(&server, "many.example.com", 1).await.unwrap();
    assert_eq!(cut[2] & 2, 2, "the bit that says so");
    let mut stream = TcpStream::connect(server.address()).await.unwrap();
    let query = query("many.example.com", 1);
    stream.write_u16(u16::try_from(query.len()).unwrap()).await.unwrap();
    stream.write_all(&query).await.unwrap();
    let mut whole = vec![0; timeout(LONG, stream.read_u16()).await.unwrap().unwrap().into()];
    timeout(LONG, stream.read_exact(&mut whole)).await.unwrap().unwrap();
    assert_eq!(code(Some(whole)), Some((0, 1_000)));
    assert!(server.asked().contains(&"loop.example.com".to_owned()));
}
