//! TLS on a socket, after the handshake.

use std::{
    fmt,
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll, ready},
};

use rustls::CommonState;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};

use crate::tls_records::Records;

/// TLS on a socket, after the handshake.
pub(crate) struct TlsStream<S = TcpStream> {
    socket: S,
    records: Records,
}

impl<S: AsyncRead + AsyncWrite + Unpin> TlsStream<S> {
    pub(crate) fn new(socket: S, records: Records) -> Self {
        Self { socket, records }
    }

    pub(crate) fn socket(&self) -> &S {
        &self.socket
    }

    pub(crate) fn common(&self) -> &CommonState {
        self.records.common()
    }

    pub(crate) fn wants_write(&self) -> bool {
        self.records.wants_write()
    }

    /// Waits until the client has sent data, and leaves the data to be read. `false`: the client has closed its direction.
    ///
    /// # Errors
    /// The same as for [`poll_read`](AsyncRead::poll_read).
    pub(crate) fn poll_readable(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        let Self { socket, records } = self;
        while !records.has_data() {
            let read = records.poll_data(cx, socket, 0, &mut |plain, payload| {
                plain.extend_from_slice(payload);
            });
            if !ready!(read)? {
                return Poll::Ready(Ok(false));
            }
        }
        Poll::Ready(Ok(true))
    }

    #[cfg(test)]
    pub(crate) fn records(&self) -> &Records {
        &self.records
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for TlsStream<S> {
    /// # Errors
    /// The client sent bytes that are not TLS, or the connection broke. If it ended without a `close_notify`, the error
    /// is [`io::ErrorKind::UnexpectedEof`].
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Self { socket, records } = &mut *self;
        let before = buffer.filled().len();
        while buffer.filled().len() == before && buffer.remaining() > 0 {
            if records.has_data() {
                records.read_data(buffer);
                break;
            }
            let wanted = buffer.remaining();
            let read = records.poll_data(cx, socket, wanted, &mut |plain, payload| {
                let (now, later) = payload.split_at(payload.len().min(buffer.remaining()));
                buffer.put_slice(now);
                plain.extend_from_slice(later);
            });
            if !ready!(read)? {
                break;
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for TlsStream<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let Self { socket, records } = &mut *self;
        records.poll_encrypted(cx, socket, slices)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Self { socket, records } = &mut *self;
        records.poll_send(cx, socket)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Self { socket, records } = &mut *self;
        records.send_close_notify();
        ready!(records.poll_send(cx, socket))?;
        Pin::new(socket).poll_shutdown(cx)
    }
}

impl<S: fmt::Debug> fmt::Debug for TlsStream<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsStream")
            .field("socket", &self.socket)
            .finish_non_exhaustive()
    }
}
