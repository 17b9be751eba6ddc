//! When a connection was last active, and the transport that records it.
//!
//! An incomplete head and an idle connection have different limits, and draining depends on the time of the last byte. The
//! transport records times. The task that serves the connection reads them.

use std::{
    fmt, io,
    mem::MaybeUninit,
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicU8, AtomicU64, Ordering},
    },
    task::{Context, Poll, Waker},
    time::Duration,
};

use socket2::SockRef;
use tokio::time::Instant;
use tokio::{
    io::{AsyncBufRead, AsyncRead, AsyncWrite, BufReader, Interest, ReadBuf},
    net::TcpStream,
};

use crate::tls_stream::TlsStream;

/// What a connection is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ConnectionStage {
    /// Between requests: no byte of the next one has arrived.
    Idle = 0,
    /// A part of a request head has arrived.
    Head = 1,
    /// The proxy is answering a request.
    Busy = 2,
}

/// Times and stage of one connection, shared by its transport and its task. The atomics use relaxed ordering, because one
/// thread uses both.
#[derive(Debug)]
pub struct Activity {
    start: Instant,
    stage: AtomicU8,
    /// Microseconds from `start` at which `stage` began.
    since: AtomicU64,
    /// Microseconds from `start` at which the last byte was read.
    last_read: AtomicU64,
    /// Microseconds from `start` at which the peer last accepted bytes after a stall. Bytes that it accepts at once are written
    /// when a stage begins, so the clock is not read for them.
    last_write: AtomicU64,
    /// Microseconds from `start` since when writes stall. 0: writes do not stall.
    write_stalled: AtomicU64,
    /// Bytes that the peer's connection has accepted.
    written: AtomicU64,
}

impl Activity {
    /// A connection that is idle from now on.
    pub fn new() -> Self {
        Self {
            start: Instant::now(),
            stage: AtomicU8::new(ConnectionStage::Idle as u8),
            since: AtomicU64::new(0),
            last_read: AtomicU64::new(0),
            last_write: AtomicU64::new(0),
            write_stalled: AtomicU64::new(0),
            written: AtomicU64::new(0),
        }
    }

    /// Begins a new stage now.
    pub fn enter(&self, stage: ConnectionStage) {
        self.enter_at(stage, Instant::now());
    }

    /// Begins a new stage at `now`. A caller that already knows the time saves a read of the clock. Otherwise each request
    /// would need several.
    pub fn enter_at(&self, stage: ConnectionStage, now: Instant) {
        let since = now.saturating_duration_since(self.start).as_micros() as u64;
        self.since.store(since, Ordering::Relaxed);
        self.stage.store(stage as u8, Ordering::Relaxed);
    }

    /// The current stage and when it began.
    pub fn stage(&self) -> (ConnectionStage, Instant) {
        let stage = match self.stage.load(Ordering::Relaxed) {
            0 => ConnectionStage::Idle,
            1 => ConnectionStage::Head,
            _ => ConnectionStage::Busy,
        };
        (stage, self.instant(&self.since))
    }

    /// Since when an idle connection has been inactive. Its last response may still be on its way to the client.
    pub fn idle_since(&self) -> Instant {
        self.instant(&self.since)
            .max(self.instant(&self.last_write))
    }

    /// When the last byte was read, or when the connection began.
    pub fn last_read(&self) -> Instant {
        self.instant(&self.last_read)
    }

    /// Since when the peer has accepted none of the bytes that the proxy wants to write. `None` if writes do not stall.
    pub fn write_stalled(&self) -> Option<Instant> {
        let stalled = self.write_stalled.load(Ordering::Relaxed);
        (stalled > 0).then(|| self.start + Duration::from_micros(stalled))
    }

    /// Bytes that the peer's connection has accepted so far.
    pub fn written(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    /// Called when a part of a request head has arrived on an idle connection.
    pub fn begin_head(&self) {
        if self.stage.load(Ordering::Relaxed) == ConnectionStage::Idle as u8 {
            self.since.store(self.now(), Ordering::Relaxed);
            self.stage
                .store(ConnectionStage::Head as u8, Ordering::Relaxed);
        }
    }

    fn read_some(&self) {
        self.last_read.store(self.now(), Ordering::Relaxed);
    }

    /// A pending flush counts as a stalled write too, because TLS holds a record until the socket accepts it.
    fn wrote(&self, pending: bool) {
        let stalled = self.write_stalled.load(Ordering::Relaxed);
        if pending && stalled == 0 {
            self.write_stalled
                .store(self.now().max(1), Ordering::Relaxed);
        } else if !pending && stalled > 0 {
            self.last_write.store(self.now(), Ordering::Relaxed);
            self.write_stalled.store(0, Ordering::Relaxed);
        }
    }

    /// Records the result of a write.
    fn accepted(&self, polled: &Poll<io::Result<usize>>) {
        self.wrote(polled.is_pending());
        if let Poll::Ready(Ok(bytes)) = polled {
            let written = self.written() + *bytes as u64;
            self.written.store(written, Ordering::Relaxed);
        }
    }

    fn now(&self) -> u64 {
        self.start.elapsed().as_micros() as u64
    }

    fn instant(&self, micros: &AtomicU64) -> Instant {
        self.start + Duration::from_micros(micros.load(Ordering::Relaxed))
    }
}

impl Default for Activity {
    fn default() -> Self {
        Self::new()
    }
}

/// A byte stream that tests use in place of a client's TLS connection.
pub trait ClientStream: AsyncRead + AsyncWrite + fmt::Debug + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + fmt::Debug + Send + Unpin> ClientStream for T {}

#[derive(Debug)]
enum Inner {
    /// Boxed, because the stream has more than a kilobyte and is moved a dozen times.
    Tls(Box<TlsStream>),
    /// In tests: without a socket and without TLS.
    Memory(BufReader<Box<dyn ClientStream>>),
}

impl Inner {
    /// Whether TLS itself has bytes to write.
    fn wants_write(&self) -> bool {
        matches!(self, Self::Tls(stream) if stream.wants_write())
    }
}

/// Calls a method of either transport.
macro_rules! each {
    ($io:expr, $inner:ident => $call:expr) => {
        match $io {
            Inner::Tls($inner) => $call,
            Inner::Memory($inner) => $call,
        }
    };
}

/// The transport of a connection, which records its activity.
#[derive(Debug)]
pub struct TlsIo {
    inner: Inner,
    activity: Arc<Activity>,
    end: End,
}

/// Whether the client has closed its direction of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    NotYet,
    /// It has closed between requests, and the proxy has written nothing since.
    Idle,
    /// It has closed while a response was due. The client may still read.
    Owed,
}

impl TlsIo {
    pub(crate) fn new(inner: Box<TlsStream>, activity: Arc<Activity>) -> Self {
        Self {
            inner: Inner::Tls(inner),
            activity,
            end: End::NotYet,
        }
    }

    /// For tests: a connection without a socket. Its bytes are the plaintext that TLS would carry.
    pub fn in_memory(transport: Box<dyn ClientStream>, activity: Arc<Activity>) -> Self {
        Self {
            inner: Inner::Memory(BufReader::new(transport)),
            activity,
            end: End::NotYet,
        }
    }

    /// Waits until the client sends data, and leaves the data to be read. `false`: the client has closed its direction.
    ///
    /// # Errors
    /// The client sent bytes that are not TLS, or the connection broke. Do not poll again after that. If the connection
    /// ended without a TLS `close_notify`, the error is [`io::ErrorKind::UnexpectedEof`].
    pub fn poll_readable(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        let polled = match &mut self.inner {
            Inner::Tls(stream) => stream.poll_readable(cx),
            Inner::Memory(stream) => Pin::new(stream)
                .poll_fill_buf(cx)
                .map_ok(|bytes| !bytes.is_empty()),
        };
        let has_bytes = match polled {
            Poll::Ready(Ok(has_bytes)) => has_bytes,
            Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
            Poll::Pending => {
                self.flush_tls(cx);
                return Poll::Pending;
            }
        };
        if !has_bytes {
            self.ended();
        }
        Poll::Ready(Ok(has_bytes))
    }

    /// Writes what TLS has to send. TLS may have to respond to what it has read, for example to refuse a renegotiation, and it
    /// holds what its socket did not accept.
    fn flush_tls(&mut self, cx: &mut Context<'_>) {
        if self.inner.wants_write() {
            let _ = Pin::new(self).poll_flush(cx);
        }
    }

    /// Whether the client has closed the connection after its last response. The proxy then sends no `close_notify`,
    /// because the system would answer with a reset.
    fn is_left(&self) -> bool {
        let Inner::Tls(stream) = &self.inner else {
            return self.end == End::Idle;
        };
        let socket = stream.socket();
        // The runtime may not know the end yet if it arrived just after the last bytes, so the proxy asks the system.
        self.end == End::Idle
            && (is_ended(socket)
                || matches!(
                    SockRef::from(socket).peek(&mut [MaybeUninit::uninit()]),
                    Ok(0)
                ))
    }

    fn ended(&mut self) {
        if self.end == End::NotYet {
            let owed = self.activity.stage().0 != ConnectionStage::Idle || self.inner.wants_write();
            self.end = if owed { End::Owed } else { End::Idle };
        }
    }

    fn writes(&mut self) {
        if self.end == End::Idle {
            self.end = End::Owed;
        }
    }
}

impl AsyncRead for TlsIo {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = each!(&mut self.inner, inner => Pin::new(inner).poll_read(cx, buffer));
        match polled {
            Poll::Ready(Ok(())) if buffer.filled().len() > before => self.activity.read_some(),
            Poll::Ready(Ok(())) if buffer.remaining() > 0 => self.ended(),
            Poll::Ready(_) => {}
            Poll::Pending => self.flush_tls(cx),
        }
        polled
    }
}

impl AsyncWrite for TlsIo {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.writes();
        let polled = each!(&mut self.inner, inner => Pin::new(inner).poll_write(cx, bytes));
        self.activity.accepted(&polled);
        polled
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = each!(&mut self.inner, inner => Pin::new(inner).poll_flush(cx));
        self.activity.wrote(polled.is_pending());
        polled
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.is_left() {
            return Poll::Ready(Ok(()));
        }
        let polled = each!(&mut self.inner, inner => Pin::new(inner).poll_shutdown(cx));
        self.activity.wrote(polled.is_pending());
        polled
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.writes();
        let polled =
            each!(&mut self.inner, inner => Pin::new(inner).poll_write_vectored(cx, slices));
        self.activity.accepted(&polled);
        polled
    }

    fn is_write_vectored(&self) -> bool {
        each!(&self.inner, inner => inner.is_write_vectored())
    }
}

/// Whether the runtime knows that the peer has closed its direction.
fn is_ended(socket: &TcpStream) -> bool {
    let ready =
        pin!(socket.ready(Interest::READABLE)).poll(&mut Context::from_waker(Waker::noop()));
    matches!(ready, Poll::Ready(Ok(ready)) if ready.is_read_closed())
}
