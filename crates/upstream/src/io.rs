//! The transports that lead to a member.

use std::{
    fmt, io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
};

use rustls::pki_types::CertificateDer;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpStream, UnixStream},
};
use tokio_rustls::client::TlsStream;

use crate::connector::OpenSlot;

/// A transport to a member.
#[derive(Debug)]
pub(crate) enum MemberIo {
    Tcp(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
    Unix(UnixStream),
    /// In tests: no socket.
    Memory(Box<dyn Transport>),
}

/// A byte stream in place of a socket: what a test gives to stand for a member's connection.
pub trait Transport: AsyncRead + AsyncWrite + fmt::Debug + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + fmt::Debug + Send + Unpin> Transport for T {}

impl MemberIo {
    /// The certificate that the member showed; none without TLS.
    pub(crate) fn shown(&self) -> Option<CertificateDer<'static>> {
        let Self::Tls(stream) = self else {
            return None;
        };
        let chain = stream.get_ref().1.peer_certificates()?;
        Some(chain.first()?.clone().into_owned())
    }
}

macro_rules! each {
    ($io:expr, $inner:ident => $call:expr) => {
        match $io.get_mut() {
            MemberIo::Tcp(inner) => {
                let $inner = Pin::new(inner);
                $call
            }
            MemberIo::Tls(inner) => {
                let $inner = Pin::new(inner.as_mut());
                $call
            }
            MemberIo::Unix(inner) => {
                let $inner = Pin::new(inner);
                $call
            }
            MemberIo::Memory(inner) => {
                let $inner = Pin::new(inner.as_mut());
                $call
            }
        }
    };
}

impl AsyncRead for MemberIo {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        each!(self, inner => inner.poll_read(cx, buffer))
    }
}

impl AsyncWrite for MemberIo {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        each!(self, inner => inner.poll_write(cx, bytes))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(self, inner => inner.poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(self, inner => inner.poll_shutdown(cx))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        // A head without a body is one piece: sending it so spares the kernel the vector.
        if let [slice] = slices {
            return self.poll_write(cx, slice);
        }
        each!(self, inner => inner.poll_write_vectored(cx, slices))
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Tcp(inner) => inner.is_write_vectored(),
            Self::Tls(inner) => inner.is_write_vectored(),
            Self::Unix(inner) => inner.is_write_vectored(),
            Self::Memory(inner) => inner.is_write_vectored(),
        }
    }
}

/// Most bytes that may come between a request and the end of its answer's head: interim answers without end would
/// keep their reader, and with it the thread, as busy as they come. More than hyper reads ahead of a body.
const AHEAD_BYTES_MAX: u64 = 1 << 20;

/// Most bytes that a byte of a body takes in a chunk of its own: its size in a digit, two ends of lines, itself, and room.
const CHUNKED_BYTES_MAX: u64 = 8;

/// How much has come on a connection, and how much may.
#[derive(Debug)]
pub(crate) struct Intake {
    received: AtomicU64,
    allowed: AtomicU64,
}

impl Intake {
    pub(crate) fn new() -> Self {
        Self {
            received: AtomicU64::new(0),
            allowed: AtomicU64::new(u64::MAX),
        }
    }

    /// Bytes that came so far.
    pub(crate) fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    /// A head is waited for.
    pub(crate) fn expect_head(&self) {
        self.allowed
            .store(self.received() + AHEAD_BYTES_MAX, Ordering::Relaxed);
    }

    /// It has come, and a body follows of which so many bytes are read: in chunks of one byte at worst.
    pub(crate) fn expect_body(&self, bytes_max: usize) {
        let bytes_max = u64::try_from(bytes_max).unwrap_or(u64::MAX);
        let body = bytes_max.saturating_mul(CHUNKED_BYTES_MAX);
        let allowed = self.received().saturating_add(AHEAD_BYTES_MAX);
        self.allowed
            .store(allowed.saturating_add(body), Ordering::Relaxed);
    }

    /// It has come; what follows may be of any length.
    pub(crate) fn head_came(&self) {
        self.allowed.store(u64::MAX, Ordering::Relaxed);
    }
}

/// A transport that counts what it reads: whether an answer had begun decides whether a request may go again. It is
/// counted itself among the member's connections until it is dropped, whoever holds it then.
#[derive(Debug)]
pub struct Counted {
    io: MemberIo,
    intake: Arc<Intake>,
    /// None: a probe, which nobody counts.
    _slot: Option<OpenSlot>,
}

impl Counted {
    pub(crate) fn new(io: MemberIo, intake: Arc<Intake>, slot: Option<OpenSlot>) -> Self {
        Self {
            io,
            intake,
            _slot: slot,
        }
    }
}

impl AsyncRead for Counted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.intake.received() > self.intake.allowed.load(Ordering::Relaxed) {
            return Poll::Ready(Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "more than any answer takes: interim answers or a body without end",
            )));
        }
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.io).poll_read(cx, buffer);
        let read = (buffer.filled().len() - before) as u64;
        self.intake.received.fetch_add(read, Ordering::Relaxed);
        polled
    }
}

impl AsyncWrite for Counted {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }
}
