use std::fmt;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::{TrySendError, http1, http2};
use hyper::rt::Executor;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;

use super::connect::Connected;
use crate::failure::Failure;
use crate::meter::{Meter, Metered};

pub(super) const ANSWER_HEADERS_MAX: usize = 100;
const READ_BUFFER_BYTES: usize = 16_384;
/// Nothing is read ahead of what is wanted: no more than this is ever on the way to us.
const WINDOW_BYTES: u32 = 65_535;
const SEND_BUFFER_BYTES: usize = 65_536;

type Body = Full<Bytes>;

/// One connection that speaks HTTP and carries one request at a time. What drives it ends when it is dropped, and the connection with it.
pub(super) struct Link {
    sender: Sender,
    tasks: Tasks,
    meter: Arc<Meter>,
    peer: SocketAddr,
    pub(super) carried: u32,
}

enum Sender {
    Http1(http1::SendRequest<Body>),
    Http2(http2::SendRequest<Body>),
}

/// Why there is no answer.
pub(super) enum Unanswered {
    /// The request was not taken: it may be sent over another connection.
    Unsent,
    /// It was, perhaps.
    Failed(Failure),
}

impl Link {
    /// Speaks HTTP over a connection.
    pub(super) async fn open(connected: Connected) -> Result<Self, Failure> {
        let (meter, tasks) = (Arc::<Meter>::default(), Tasks::default());
        let io = TokioIo::new(Metered::new(connected.wire, meter.clone()));
        let sender = if connected.is_http_2 {
            let opened = http2::Builder::new(tasks.clone())
                .timer(TokioTimer::new())
                .initial_stream_window_size(WINDOW_BYTES)
                .initial_connection_window_size(WINDOW_BYTES)
                .max_header_list_size(u32::try_from(READ_BUFFER_BYTES).unwrap_or(u32::MAX))
                .max_send_buf_size(SEND_BUFFER_BYTES)
                .handshake(io)
                .await;
            let (sender, connection) = opened.map_err(|e| Failure::of_http(&e, &meter))?;
            tasks.spawn(connection);
            Sender::Http2(sender)
        } else {
            let opened = http1::Builder::new()
                .max_headers(ANSWER_HEADERS_MAX)
                .max_buf_size(READ_BUFFER_BYTES)
                .handshake(io)
                .await;
            let (sender, connection) = opened.map_err(|e| Failure::of_http(&e, &meter))?;
            tasks.spawn(connection);
            Sender::Http1(sender)
        };
        Ok(Self { sender, tasks, meter, peer: connected.peer, carried: 0 })
    }

    pub(super) const fn meter(&self) -> &Arc<Meter> {
        &self.meter
    }

    pub(super) fn peer(&self) -> SocketAddr {
        self.peer
    }

    pub(super) fn is_http_2(&self) -> bool {
        matches!(self.sender, Sender::Http2(_))
    }

    pub(super) fn is_closed(&self) -> bool {
        match &self.sender {
            Sender::Http1(sender) => sender.is_closed(),
            Sender::Http2(sender) => sender.is_closed(),
        }
    }

    /// Runs something that ends with the connection at the latest.
    pub(super) fn beside(&self, work: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
        self.tasks.spawn(work)
    }

    /// Sends one request; answers with the head of the answer, and when it began to come.
    pub(super) async fn send(&mut self, request: Request<Body>) -> Result<(Response<Incoming>, Instant), Unanswered> {
        self.meter.begin();
        let answered = match &mut self.sender {
            Sender::Http1(sender) => {
                sender.ready().await.map_err(|_| Unanswered::Unsent)?;
                sender.try_send_request(request).await
            }
            Sender::Http2(sender) => {
                sender.ready().await.map_err(|_| Unanswered::Unsent)?;
                sender.try_send_request(request).await
            }
        };
        self.carried = self.carried.saturating_add(1);
        let answer = answered.map_err(|error| self.unanswered(error))?;
        // HTTP/2 has frames of its own before any answer.
        let began = if self.is_http_2() { None } else { self.meter.first_byte() };
        Ok((answer, began.unwrap_or_else(Instant::now)))
    }

    fn unanswered(&self, mut error: TrySendError<Request<Body>>) -> Unanswered {
        let unsent = error.take_message().is_some();
        let error = error.into_error();
        // A server that refuses a stream says that it has not looked at it.
        if unsent || Failure::is_refused_stream(&error) {
            return Unanswered::Unsent;
        }
        Unanswered::Failed(Failure::of_http(&error, &self.meter))
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("peer", &self.peer).finish_non_exhaustive()
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.tasks.end();
    }
}

/// The tasks of one connection. They hold this themselves, so they are ended by hand.
#[derive(Clone, Default)]
struct Tasks(Arc<Mutex<JoinSet<()>>>);

impl Tasks {
    fn spawn<F>(&self, work: F) -> AbortHandle
    where
        F: Future + Send + 'static,
    {
        let mut tasks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        while tasks.try_join_next().is_some() {}
        // How a connection ended is told through its sender.
        tasks.spawn(async move {
            work.await;
        })
    }

    fn end(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).abort_all();
    }
}

impl<F> Executor<F> for Tasks
where
    F: Future + Send + 'static,
{
    fn execute(&self, work: F) {
        self.spawn(work);
    }
}
