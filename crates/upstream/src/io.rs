//! The transports to members.

use std::{
    fmt, io,
    pin::Pin,
    task::{Context, Poll, Waker},
    time::Duration,
};

use rustls::pki_types::CertificateDer;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpStream, UnixStream},
};
use tokio_rustls::client::TlsStream;

use crate::{keep_alive::limit_unacknowledged, slots::OpenSlot};

/// A transport to a member.
#[derive(Debug)]
pub(crate) enum MemberTransport {
    Tcp(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
    Unix(UnixStream),
    /// In tests: without a socket.
    Memory(Box<dyn MemberStream>),
}

/// A byte stream that tests use in place of a member's socket.
pub trait MemberStream: AsyncRead + AsyncWrite + fmt::Debug + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + fmt::Debug + Send + Unpin> MemberStream for T {}

impl MemberTransport {
    /// The certificate that the member presented. `None` without TLS.
    pub(crate) fn presented(&self) -> Option<CertificateDer<'static>> {
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
            MemberTransport::Tcp(inner) => {
                let $inner = Pin::new(inner);
                $call
            }
            MemberTransport::Tls(inner) => {
                let $inner = Pin::new(inner.as_mut());
                $call
            }
            MemberTransport::Unix(inner) => {
                let $inner = Pin::new(inner);
                $call
            }
            MemberTransport::Memory(inner) => {
                let $inner = Pin::new(inner.as_mut());
                $call
            }
        }
    };
}

impl AsyncRead for MemberTransport {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        each!(self, inner => inner.poll_read(cx, buffer))
    }
}

impl AsyncWrite for MemberTransport {
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

/// A transport that counts as one of the member's connections until it is dropped.
#[derive(Debug)]
pub struct MemberIo {
    io: MemberTransport,
    /// The slot that the transport takes. `None` for a query of the proxy itself, which is not counted.
    _slot: Option<OpenSlot>,
    /// How long data may stay unacknowledged, as currently set on the socket.
    unacknowledged_max: Option<Duration>,
}

impl MemberIo {
    pub(crate) fn new(io: MemberTransport, slot: Option<OpenSlot>) -> Self {
        Self {
            io,
            _slot: slot,
            unacknowledged_max: None,
        }
    }

    /// Limits how long sent data may stay unacknowledged, or removes the limit.
    pub(crate) fn limit_unacknowledged(&mut self, max: Option<Duration>) {
        let stream = match &self.io {
            MemberTransport::Tcp(stream) => stream,
            MemberTransport::Tls(stream) => stream.get_ref().0,
            MemberTransport::Unix(_) | MemberTransport::Memory(_) => return,
        };
        if self.unacknowledged_max != max {
            self.unacknowledged_max = max;
            limit_unacknowledged(stream, max);
        }
    }

    /// The certificate that the member presented. `None` without TLS.
    pub fn presented(&self) -> Option<CertificateDer<'static>> {
        self.io.presented()
    }

    /// The TCP socket. `None` for a Unix socket and for TLS.
    pub fn tcp(&self) -> Option<&TcpStream> {
        match &self.io {
            MemberTransport::Tcp(stream) => Some(stream),
            _ => None,
        }
    }
}

impl Drop for MemberIo {
    /// Sends a TLS `close_notify`, if that is possible without waiting.
    fn drop(&mut self) {
        if let MemberTransport::Tls(stream) = &mut self.io {
            let mut cx = Context::from_waker(Waker::noop());
            let _ = Pin::new(stream.as_mut()).poll_shutdown(&mut cx);
        }
    }
}

impl AsyncRead for MemberIo {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buffer)
    }
}

impl AsyncWrite for MemberIo {
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
