use std::io;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::watch;
use tokio::time::sleep;

use super::frame::{Frames, Garbled, Message};
use super::session::Session;
use super::{Cut, Fault, Hello, Script, Side};

const CHUNK_BYTES: usize = 16_384;

type Reader<'a> = Box<dyn AsyncRead + Send + Unpin + 'a>;
type Writer<'a> = Box<dyn AsyncWrite + Send + Unpin + 'a>;

/// Where Postgres is.
#[derive(Debug, Clone)]
pub(super) enum Upstream {
    Unix(PathBuf),
    Tcp(String, u16),
}

#[derive(Debug)]
enum Stream {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Upstream {
    async fn connect(&self) -> io::Result<Stream> {
        match self {
            Self::Unix(path) => UnixStream::connect(path).await.map(Stream::Unix),
            Self::Tcp(host, port) => {
                let stream = TcpStream::connect((host.as_str(), *port)).await?;
                stream.set_nodelay(true)?;
                Ok(Stream::Tcp(stream))
            }
        }
    }
}

impl Stream {
    fn split(&mut self) -> (Reader<'_>, Writer<'_>) {
        match self {
            Self::Unix(stream) => {
                let (reader, writer) = stream.split();
                (Box::new(reader), Box::new(writer))
            }
            Self::Tcp(stream) => {
                let (reader, writer) = stream.split();
                (Box::new(reader), Box::new(writer))
            }
        }
    }

    fn reset_when_dropped(&self) {
        if let Self::Tcp(stream) = self {
            // one that is gone already needs no reset
            let _ = stream.set_zero_linger();
        }
    }
}

/// What holds for a connection at the moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct State {
    flow: Flow,
    cut: Option<Cut>,
    /// The sides that were told the end.
    ended: [bool; 2],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Flow {
    #[default]
    Forward,
    Stall,
    Swallow,
}

/// One connection: what it said, and what is being done to it.
#[derive(Debug)]
pub(super) struct Link {
    session: Mutex<Session>,
    state: watch::Sender<State>,
}

impl Link {
    pub(super) fn new(number: u64) -> Self {
        Self { session: Mutex::new(Session::new(number)), state: watch::Sender::new(State::default()) }
    }

    pub(super) fn session(&self) -> MutexGuard<'_, Session> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn act(&self, fault: Fault) {
        self.state.send_modify(|state| match fault {
            Fault::Cut(cut) => state.cut = state.cut.or(Some(cut)),
            Fault::Stall if state.flow == Flow::Swallow => {}
            Fault::Stall => state.flow = Flow::Stall,
            Fault::BlackHole => state.flow = Flow::Swallow,
            Fault::HalfClose(Side::Client) => state.ended[0] = true,
            Fault::HalfClose(Side::Server) => state.ended[1] = true,
        });
    }

    /// Ends a stall.
    pub(super) fn resume(&self) {
        self.state.send_modify(|state| {
            if state.flow == Flow::Stall {
                state.flow = Flow::Forward;
            }
        });
    }
}

/// Serves one connection until both sides have ended, or it is cut.
pub(super) async fn serve(
    link: &Link,
    client: TcpStream,
    upstream: &Upstream,
    script: &(dyn Fn(&Hello) -> Script + Send + Sync),
) {
    let mut client = Stream::Tcp(client);
    let mut server = None;
    let mut state = link.state.subscribe();
    let cut = tokio::select! {
        biased;
        state = state.wait_for(|state| state.cut.is_some()) => state.ok().and_then(|state| state.cut),
        () = converse(link, &mut client, &mut server, upstream, script) => None,
    };
    if cut == Some(Cut::Rst) {
        client.reset_when_dropped();
        if let Some(server) = &server {
            server.reset_when_dropped();
        }
    }
}

async fn converse(
    link: &Link,
    client: &mut Stream,
    server: &mut Option<Stream>,
    upstream: &Upstream,
    script: &(dyn Fn(&Hello) -> Script + Send + Sync),
) {
    let (mut from_client, mut to_client) = client.split();
    let mut frames = Frames::from_client();
    let Ok(Some(first)) = greet(&mut frames, &mut from_client, &mut to_client).await else { return };
    let Ok(connected) = upstream.connect().await else { return };
    let (from_server, mut to_server) = server.insert(connected).split();
    if first.asks_to_cancel() {
        let _ = to_server.write_all(&first.bytes).await;
        return;
    }
    {
        let mut session = link.session();
        let hello = first.hello(session.hello.number);
        session.script = script(&hello);
        session.hello = hello;
    }
    let up = Pump { link, from: Side::Client, frames, reader: from_client, writer: Some(to_server) };
    let down =
        Pump { link, from: Side::Server, frames: Frames::from_server(), reader: from_server, writer: Some(to_client) };
    // a side that breaks takes the other one with it; one that only ends does not
    let _ = tokio::try_join!(up.run(Some(first)), down.run(None));
}

/// The first message that is not about encryption, which there is none of.
async fn greet(
    frames: &mut Frames,
    from_client: &mut Reader<'_>,
    to_client: &mut Writer<'_>,
) -> io::Result<Option<Message>> {
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        match frames.next() {
            Err(Garbled) => return Ok(None),
            Ok(Some(message)) if message.asks_for_encryption() => to_client.write_all(b"N").await?,
            Ok(Some(message)) => return Ok(Some(message)),
            Ok(None) => {
                let n = from_client.read(&mut chunk).await?;
                if n == 0 {
                    return Ok(None);
                }
                frames.feed(chunk.get(..n).unwrap_or_default());
            }
        }
    }
}

/// The connection is of no use any more.
struct Broken;

impl From<io::Error> for Broken {
    fn from(_: io::Error) -> Self {
        Self
    }
}

/// One direction of a connection.
struct Pump<'a> {
    link: &'a Link,
    from: Side,
    frames: Frames,
    reader: Reader<'a>,
    /// None once the other side was told the end.
    writer: Option<Writer<'a>>,
}

impl Pump<'_> {
    async fn run(mut self, first: Option<Message>) -> Result<(), Broken> {
        let mut state = self.link.state.subscribe();
        if let Some(message) = first {
            self.take(message, &mut state).await?;
        }
        let mut chunk = vec![0; CHUNK_BYTES];
        loop {
            while let Some(message) = self.frames.next().map_err(|Garbled| Broken)? {
                self.take(message, &mut state).await?;
            }
            self.heed(&mut state).await?;
            let read = tokio::select! {
                biased;
                changed = state.changed() => {
                    changed.map_err(|_| Broken)?;
                    continue;
                }
                read = self.reader.read(&mut chunk) => read,
            };
            let swallows = self.link.state.borrow().flow == Flow::Swallow;
            match read {
                // nobody is told that this side is gone
                Ok(0) | Err(_) if swallows => std::future::pending().await,
                Ok(_) if swallows => {}
                Ok(0) => break,
                Ok(n) => self.frames.feed(chunk.get(..n).unwrap_or_default()),
                Err(_) => return Err(Broken),
            }
        }
        if let Some(mut writer) = self.writer.take() {
            writer.write_all(&self.frames.rest()).await?;
            writer.shutdown().await?;
        }
        Ok(())
    }

    async fn take(&mut self, message: Message, state: &mut watch::Receiver<State>) -> Result<(), Broken> {
        let pass = self.link.session().pass(self.from, message);
        if let Some(fault) = pass.fault {
            self.link.act(fault);
        }
        for message in pass.then {
            self.send(&message.bytes, state).await?;
        }
        Ok(())
    }

    async fn send(&mut self, bytes: &[u8], state: &mut watch::Receiver<State>) -> Result<(), Broken> {
        let (delay, byte_at_a_time) = {
            let script = &self.link.session().script;
            (script.delay, script.byte_at_a_time)
        };
        if delay > Duration::ZERO {
            sleep(delay).await;
        }
        self.heed(state).await?;
        let swallows = self.link.state.borrow().flow == Flow::Swallow;
        let Some(writer) = self.writer.as_mut().filter(|_| !swallows) else { return Ok(()) };
        let size = if byte_at_a_time { 1 } else { bytes.len().max(1) };
        for piece in bytes.chunks(size) {
            writer.write_all(piece).await?;
            writer.flush().await?;
            if byte_at_a_time {
                tokio::task::yield_now().await;
            }
        }
        Ok(())
    }

    /// Waits while the connection stalls, for ever once it is cut, and tells the other side the end if it is to be told.
    async fn heed(&mut self, state: &mut watch::Receiver<State>) -> Result<(), Broken> {
        loop {
            let now = *state.borrow_and_update();
            if now.cut.is_none() && now.flow != Flow::Stall {
                let [client, server] = now.ended;
                let ended = if self.from == Side::Client { server } else { client };
                if ended && let Some(mut writer) = self.writer.take() {
                    writer.shutdown().await?;
                }
                return Ok(());
            }
            state.changed().await.map_err(|_| Broken)?;
        }
    }
}
