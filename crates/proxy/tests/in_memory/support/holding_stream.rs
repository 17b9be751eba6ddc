//! A transport that holds bytes that it has accepted, as TLS holds a record until its socket accepts it.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};

/// Maximum bytes that are held.
const HELD_BYTES_MAX: usize = 16 << 10;

/// Holds bytes until a write, flush or read can send them.
#[derive(Debug)]
pub struct HoldingStream {
    io: DuplexStream,
    held: Vec<u8>,
}

impl HoldingStream {
    pub fn new(io: DuplexStream) -> Self {
        let held = Vec::new();
        Self { io, held }
    }

    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.held.is_empty() {
            let sent = ready!(Pin::new(&mut self.io).poll_write(cx, &self.held))?;
            self.held.drain(..sent);
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncRead for HoldingStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.io).poll_read(cx, buffer);
        if read.is_pending() {
            let _ = self.poll_send(cx);
        }
        read
    }
}

impl AsyncWrite for HoldingStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_send(cx))?;
        let held = &bytes[..bytes.len().min(HELD_BYTES_MAX)];
        self.held.extend_from_slice(held);
        let _ = self.poll_send(cx)?;
        Poll::Ready(Ok(held.len()))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_send(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_send(cx))?;
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}
