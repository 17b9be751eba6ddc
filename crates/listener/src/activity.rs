//! When a connection last did something, and the transport that notes it.
//!
//! hyper has one timer for a head and for an idle connection; two are needed, and the drain rule needs the time of
//! the last byte. The transport notes times; whoever drives the connection reads them.

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
use tokio_rustls::server::TlsStream;

/// What a connection is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ConnectionStage {
    /// Between requests: no byte of the next one has come.
    Idle = 0,
    /// Bytes of a head have come, not yet all of it.
    Head = 1,
    /// A request is being answered.
    Busy = 2,
}

/// Times and stage of one connection, shared by its transport and its driver. Relaxed: one thread drives both.
#[derive(Debug)]
pub struct Activity {
    start: Instant,
    stage: AtomicU8,
    /// Microseconds from `start` at which `stage` began.
    since: AtomicU64,
    /// Microseconds from `start` of the last byte read.
    last_read: AtomicU64,
    /// Microseconds from `start` at which the peer last took what it had not taken at first. What it takes at once is
    /// written when its stage begins, and needs no look at the clock.
    last_write: AtomicU64,
    /// Microseconds from `start` since which a write has been refused; 0: none is.
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

    /// Notes that a new stage begins now.
    pub fn enter(&self, stage: ConnectionStage) {
        self.enter_at(stage, Instant::now());
    }

    /// Notes that a new stage has begun. Who knows the time already need not ask for it again: a request passes here
    /// several times.
    pub fn enter_at(&self, stage: ConnectionStage, now: Instant) {
        let since = now.saturating_duration_since(self.start).as_micros() as u64;
        self.since.store(since, Ordering::Relaxed);
        self.stage.store(stage as u8, Ordering::Relaxed);
    }

    /// The present stage and when it began.
    pub fn stage(&self) -> (ConnectionStage, Instant) {
        let stage = match self.stage.load(Ordering::Relaxed) {
            0 => ConnectionStage::Idle,
            1 => ConnectionStage::Head,
            _ => ConnectionStage::Busy,
        };
        (stage, self.instant(&self.since))
    }

    /// Since when nothing happened on an idle connection: its last answer may still be on its way out.
    pub fn idle_since(&self) -> Instant {
        self.instant(&self.since)
            .max(self.instant(&self.last_write))
    }

    /// When the last byte was read, or the connection began.
    pub fn last_read(&self) -> Instant {
        self.instant(&self.last_read)
    }

    /// Since when the peer has taken no byte that we want to write.
    pub fn write_stalled(&self) -> Option<Instant> {
        let stalled = self.write_stalled.load(Ordering::Relaxed);
        (stalled > 0).then(|| self.start + Duration::from_micros(stalled))
    }

    /// Bytes that the peer's connection has accepted so far.
    pub fn written(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    fn read_some(&self) {
        let now = self.now();
        self.last_read.store(now, Ordering::Relaxed);
        if self.stage.load(Ordering::Relaxed) == ConnectionStage::Idle as u8 {
            self.since.store(now, Ordering::Relaxed);
            self.stage
                .store(ConnectionStage::Head as u8, Ordering::Relaxed);
        }
    }

    /// A flush that waits is a stalled write as well: TLS keeps a record until the socket takes it.
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

    /// What a write has come to.
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

/// A byte stream in place of TLS on a socket: what a test gives to stand for a client's connection.
pub trait ClientStream: AsyncRead + AsyncWrite + fmt::Debug + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + fmt::Debug + Send + Unpin> ClientStream for T {}

#[derive(Debug)]
enum Inner {
    /// Boxed: more than a kilobyte, which is handed on a dozen times until it is at its place.
    Tls(Box<TlsStream<TcpStream>>),
    /// In tests: no socket and no TLS.
    Memory(BufReader<Box<dyn ClientStream>>),
}

impl Inner {
    /// Whether TLS has something to write of its own.
    fn wants_write(&self) -> bool {
        matches!(self, Self::Tls(stream) if stream.get_ref().1.wants_write())
    }
}

/// Calls a method of whichever transport it is.
macro_rules! each {
    ($io:expr, $inner:ident => $call:expr) => {
        match $io {
            Inner::Tls($inner) => $call,
            Inner::Memory($inner) => $call,
        }
    };
}

/// The transport of a connection, which notes its activity.
#[derive(Debug)]
pub struct TlsIo {
    inner: Inner,
    activity: Arc<Activity>,
    end: End,
}

/// Whether the client has said that nothing more comes from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    NotYet,
    /// It has, between requests, and nothing was written since.
    Idle,
    /// It has, while it was owed something: it may have ended its own direction alone.
    Owed,
}

impl TlsIo {
    pub(crate) fn new(inner: Box<TlsStream<TcpStream>>, activity: Arc<Activity>) -> Self {
        Self {
            inner: Inner::Tls(inner),
            activity,
            end: End::NotYet,
        }
    }

    /// For tests: a connection without a socket, whose bytes are what TLS would have carried.
    pub fn in_memory(transport: Box<dyn ClientStream>, activity: Arc<Activity>) -> Self {
        Self {
            inner: Inner::Memory(BufReader::new(transport)),
            activity,
            end: End::NotYet,
        }
    }

    /// Waits until the client says something, and leaves it to be read; `false`: it has said that nothing comes.
    ///
    /// # Errors
    /// What it sent is no TLS, or the connection broke (not to be asked again then), or ended without the word that TLS
    /// has for it ([`io::ErrorKind::UnexpectedEof`]).
    pub fn poll_readable(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        let polled = each!(&mut self.inner, inner => Pin::new(inner).poll_fill_buf(cx));
        let has_bytes = match polled {
            Poll::Ready(Ok(bytes)) => !bytes.is_empty(),
            Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
            Poll::Pending => {
                // TLS itself may have an answer: no to a renegotiation.
                if self.inner.wants_write() {
                    let _ = Pin::new(self).poll_flush(cx);
                }
                return Poll::Pending;
            }
        };
        if !has_bytes {
            self.ended();
        }
        Poll::Ready(Ok(has_bytes))
    }

    /// Whether the client has closed the connection after its last answer. Then nobody is left to be told of our end
    /// of it: the system would answer the word with a reset.
    fn is_left(&self) -> bool {
        let Inner::Tls(stream) = &self.inner else {
            return self.end == End::Idle;
        };
        let socket = stream.get_ref().0;
        // Asked of the system itself where the runtime knows of no end: it may have come just after the last bytes.
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
        if let Poll::Ready(Ok(())) = polled {
            match buffer.filled().len() > before {
                true => self.activity.read_some(),
                false if buffer.remaining() > 0 => self.ended(),
                false => {}
            }
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

/// Whether the runtime has heard of the end of what the peer sends.
fn is_ended(socket: &TcpStream) -> bool {
    let ready =
        pin!(socket.ready(Interest::READABLE)).poll(&mut Context::from_waker(Waker::noop()));
    matches!(ready, Poll::Ready(Ok(ready)) if ready.is_read_closed())
}
