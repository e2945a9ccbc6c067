use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf, Take};
use tokio::time::Instant;

use crate::client::ANSWER_BYTES_READ_MAX;

/// Counts what was read of an answer, and knows when it began. A connection that carries several requests counts for each anew.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    bytes_read: AtomicU64,
    begun: AtomicBool,
    first_byte: Mutex<Option<Instant>>,
}

impl Meter {
    /// From now on what is read belongs to another answer.
    pub(crate) fn begin(&self) {
        self.bytes_read.store(0, Ordering::SeqCst);
        *self.first() = None;
        self.begun.store(true, Ordering::SeqCst);
    }

    pub(crate) fn bytes_read(&self) -> u64 {
        self.bytes_read.load(Ordering::SeqCst)
    }

    pub(crate) fn first_byte(&self) -> Option<Instant> {
        *self.first()
    }

    fn first(&self) -> std::sync::MutexGuard<'_, Option<Instant>> {
        self.first_byte.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A stream that ends after [`ANSWER_BYTES_READ_MAX`] bytes of one answer, whatever they are: head, interim answers, frames or body.
pub(crate) struct Metered<S> {
    stream: Take<S>,
    meter: Arc<Meter>,
}

impl<S: AsyncRead> Metered<S> {
    pub(crate) fn new(stream: S, meter: Arc<Meter>) -> Self {
        Self { stream: stream.take(ANSWER_BYTES_READ_MAX), meter }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Metered<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.meter.begun.swap(false, Ordering::SeqCst) {
            self.stream.set_limit(ANSWER_BYTES_READ_MAX);
        }
        let polled = Pin::new(&mut self.stream).poll_read(cx, buf);
        let read = ANSWER_BYTES_READ_MAX - self.stream.limit();
        self.meter.bytes_read.store(read, Ordering::SeqCst);
        if read > 0 {
            self.meter.first().get_or_insert_with(Instant::now);
        }
        polled
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Metered<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(self.stream.get_mut()).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(self.stream.get_mut()).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(self.stream.get_mut()).poll_shutdown(cx)
    }
}
