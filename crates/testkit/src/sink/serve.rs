use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::reply::Reply;
use super::request::Request;
use super::tls::{Manner, TlsFault};
use super::{HTTP_2, Shared, h2, lock};

/// How long what a client of HTTP/2 sends first is: RFC 9113, section 3.4.
const PREFACE_BYTES: usize = 24;

const HEADERS: u8 = 1;

/// Which connection it is, and what was dialled for it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Call {
    pub(super) number: u64,
    pub(super) dialled: SocketAddr,
}

pub(super) async fn accept(listener: TcpListener, manner: Manner, shared: Arc<Shared>) {
    let mut serving = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        while serving.try_join_next().is_some() {}
        let Ok(dialled) = stream.local_addr() else { continue };
        // A socket that listens for both families shows IPv4 in its mapped form.
        let dialled = SocketAddr::new(dialled.ip().to_canonical(), dialled.port());
        let number = {
            let mut all = lock(&shared.dialled);
            all.push(dialled);
            all.len() as u64 - 1
        };
        let (manner, shared) = (manner.clone(), shared.clone());
        let call = Call { number, dialled };
        serving.spawn(async move {
            shared.open.fetch_add(1, Ordering::SeqCst);
            // A connection that the other side gives up is what many scripts are for.
            let _given_up = take(stream, manner, call, &shared).await;
            shared.open.fetch_sub(1, Ordering::SeqCst);
        });
    }
}

async fn take(stream: TcpStream, manner: Manner, call: Call, shared: &Arc<Shared>) -> io::Result<()> {
    match manner {
        Manner::Plain => serve(stream, call, shared).await,
        Manner::Tls(acceptor) => {
            let stream = acceptor.accept(stream).await?;
            if stream.get_ref().1.alpn_protocol() == Some(HTTP_2) {
                h2::serve(stream, call, shared).await
            } else {
                serve(stream, call, shared).await
            }
        }
        Manner::RawHttp2(acceptor) => {
            let mut stream = acceptor.accept(stream).await?;
            let head = receive_frames(&mut stream).await?;
            let (connection, dialled) = (call.number, call.dialled);
            let request = Request { at: Instant::now(), connection, dialled, head, body: Vec::new() };
            lock(&shared.requests).push(request.clone());
            act(&mut stream, shared.next_reply(), &request, &shared.bytes_sent).await.map(drop)
        }
        Manner::Broken(fault) => break_handshake(stream, fault).await,
    }
}

/// What a client of HTTP/2 sends until the head of its first request is there, raw.
async fn receive_frames(wire: &mut impl Wire) -> io::Result<Vec<u8>> {
    let mut seen = vec![0; PREFACE_BYTES];
    wire.read_exact(&mut seen).await?;
    loop {
        // Length in three bytes, kind, flags, stream: RFC 9113, section 4.1.
        let mut frame = [0; 9];
        wire.read_exact(&mut frame).await?;
        let [a, b, c, kind, ..] = frame;
        let mut payload = vec![0; usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c)];
        wire.read_exact(&mut payload).await?;
        seen.extend([frame.as_slice(), &payload].concat());
        if kind == HEADERS {
            return Ok(seen);
        }
    }
}

async fn break_handshake(mut stream: TcpStream, fault: TlsFault) -> io::Result<()> {
    let mut hello = [0; 5];
    stream.read_exact(&mut hello).await?;
    match fault {
        TlsFault::Cut => stream.set_zero_linger(),
        TlsFault::NotTls => {
            stream.write_all(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n").await?;
            stream.shutdown().await
        }
        _ => {
            let mut rest = [0; 4_096];
            while stream.read(&mut rest).await? > 0 {}
            Ok(())
        }
    }
}

/// A connection that can be reset.
trait Wire: AsyncRead + AsyncWrite + Unpin + Send {
    fn tcp(&self) -> &TcpStream;
}

impl Wire for TcpStream {
    fn tcp(&self) -> &TcpStream {
        self
    }
}

impl Wire for tokio_rustls::server::TlsStream<TcpStream> {
    fn tcp(&self) -> &TcpStream {
        self.get_ref().0
    }
}

async fn serve(mut wire: impl Wire, call: Call, shared: &Shared) -> io::Result<()> {
    while let Some(request) = receive(&mut wire, call).await? {
        lock(&shared.requests).push(request.clone());
        if !act(&mut wire, shared.next_reply(), &request, &shared.bytes_sent).await? {
            break;
        }
    }
    Ok(())
}

async fn receive(wire: &mut impl Wire, call: Call) -> io::Result<Option<Request>> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match wire.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) if head.is_empty() => return Ok(None),
            Err(error) => return Err(error),
        }
    }
    let (connection, dialled) = (call.number, call.dialled);
    let mut request = Request { at: Instant::now(), connection, dialled, head, body: Vec::new() };
    let length = request.header("content-length").and_then(|value| value.parse().ok()).unwrap_or(0);
    request.body = vec![0; length];
    wire.read_exact(&mut request.body).await?;
    request.at = Instant::now();
    Ok(Some(request))
}

/// Does what the script says; answers whether the connection can carry another request.
async fn act(wire: &mut impl Wire, reply: Reply, request: &Request, sent: &AtomicU64) -> io::Result<bool> {
    let mut reply = reply;
    while let Reply::After(wait, then) = reply {
        sleep(wait).await;
        reply = *then;
    }
    match reply {
        Reply::Status(status) => write(wire, &full(status, &[], &[]), sent).await?,
        Reply::Full(status, headers, body) => write(wire, &full(status, &headers, &body), sent).await?,
        Reply::Echo => write(wire, &full(200, &[], &echo(request)), sent).await?,
        Reply::Keep(bytes) => write(wire, &bytes, sent).await?,
        Reply::After(..) => {}
        Reply::Raw(bytes) => {
            write(wire, &bytes, sent).await?;
            wire.shutdown().await?;
            return Ok(false);
        }
        Reply::Drip(bytes, pause) => {
            for byte in bytes {
                write(wire, &[byte], sent).await?;
                sleep(pause).await;
            }
        }
        Reply::Endless(first, again) => {
            write(wire, &first, sent).await?;
            loop {
                write(wire, &again, sent).await?;
            }
        }
        Reply::Reset(bytes) => {
            write(wire, &bytes, sent).await?;
            wire.tcp().set_zero_linger()?;
            return Ok(false);
        }
        Reply::Refuse => {
            wire.tcp().set_zero_linger()?;
            return Ok(false);
        }
        Reply::HalfClose => {
            wire.shutdown().await?;
            while wire.read_u8().await.is_ok() {}
            return Ok(false);
        }
        Reply::Stall(bytes) => {
            write(wire, &bytes, sent).await?;
            while wire.read_u8().await.is_ok() {}
            return Ok(false);
        }
    }
    Ok(true)
}

async fn write(wire: &mut impl Wire, bytes: &[u8], sent: &AtomicU64) -> io::Result<()> {
    wire.write_all(bytes).await?;
    wire.flush().await?;
    sent.fetch_add(bytes.len() as u64, Ordering::Relaxed);
    Ok(())
}

/// What a receiver that shows everything answers with.
pub(super) fn echo(request: &Request) -> Vec<u8> {
    let lines =
        request.headers().into_iter().map(|(name, value)| [name, ": ".to_owned(), value, "\n".to_owned()].concat());
    let shown: String = lines.chain(["\n".to_owned()]).collect();
    [shown.into_bytes(), request.body.clone()].concat()
}

fn full(status: u16, headers: &[(String, String)], body: &[u8]) -> Vec<u8> {
    let mut answer = format!("HTTP/1.1 {status} Scripted\r\n").into_bytes();
    for (name, value) in headers {
        answer.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
    }
    if status != 204 {
        answer.extend_from_slice(format!("content-length: {}\r\n", body.len()).as_bytes());
    }
    answer.extend_from_slice(b"\r\n");
    answer.extend_from_slice(body);
    answer
}
