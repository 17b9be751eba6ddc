//! The bytes to write to an HTTP/1 client: a head, and the pieces of a body with their framing.

use std::{
    collections::VecDeque,
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::{Buf, Bytes};
use listener::TlsIo;
use tokio::io::AsyncWrite;

/// Maximum bytes of a body, in addition to one piece, that wait for a client. The rest waits at the member.
const BYTES_MAX: usize = 400 << 10;
/// Maximum pieces that wait for a client.
const PIECES_MAX: usize = 16;
/// Maximum pieces that are written at once.
const PIECES_AT_ONCE: usize = 8;

/// A head and pieces of a body, until the client's connection has accepted them.
#[derive(Debug, Default)]
pub(crate) struct Output {
    /// A head, and possibly the size line of the first chunk.
    head: Vec<u8>,
    /// How many bytes of the head have been written.
    written: usize,
    pieces: VecDeque<Bytes>,
    bytes: usize,
}

impl Output {
    /// The buffer for the head. No other data may be waiting.
    pub(crate) fn head(&mut self) -> &mut Vec<u8> {
        &mut self.head
    }

    pub(crate) fn has_room(&self) -> bool {
        self.bytes < BYTES_MAX && self.pieces.len() < PIECES_MAX
    }

    pub(crate) fn push(&mut self, data: Bytes) {
        if !data.is_empty() {
            self.bytes += data.len();
            self.pieces.push_back(data);
        }
    }

    /// Adds a chunk. `is_last`: the chunk ends the body.
    pub(crate) fn push_chunk(&mut self, data: Bytes, is_last: bool) {
        if data.is_empty() {
            if is_last {
                self.push_framing(http1::end_chunks);
            }
            return;
        }
        self.push_framing(|out| http1::begin_chunk(out, data.len()));
        self.push(data);
        self.push(Bytes::from_static(if is_last {
            b"\r\n0\r\n\r\n"
        } else {
            b"\r\n"
        }));
    }

    fn push_framing(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        // Directly after the head, the framing does not need a separate piece.
        if self.pieces.is_empty() {
            return write(&mut self.head);
        }
        let mut framing = Vec::with_capacity(20);
        write(&mut framing);
        self.push(framing.into());
    }

    /// Writes all data.
    ///
    /// # Errors
    /// The connection broke.
    pub(crate) fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        mut io: Pin<&mut TlsIo>,
    ) -> Poll<io::Result<()>> {
        loop {
            let mut slices = [IoSlice::new(&[]); PIECES_AT_ONCE + 1];
            let mut count = 0;
            let head = &self.head[self.written..];
            if !head.is_empty() {
                slices[0] = IoSlice::new(head);
                count = 1;
            }
            for (slice, piece) in slices[count..].iter_mut().zip(&self.pieces) {
                *slice = IoSlice::new(piece);
                count += 1;
            }
            let written = match &slices[..count] {
                [] => return Poll::Ready(Ok(())),
                [only] => ready!(io.as_mut().poll_write(cx, only))?,
                several => ready!(io.as_mut().poll_write_vectored(cx, several))?,
            };
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.advance(written);
        }
    }

    /// Removes bytes that have been written.
    fn advance(&mut self, mut written: usize) {
        let of_head = written.min(self.head.len() - self.written);
        self.written += of_head;
        written -= of_head;
        if self.written == self.head.len() {
            self.head.clear();
            self.written = 0;
        }
        self.bytes -= written;
        while let Some(first) = self.pieces.front_mut()
            && written > 0
        {
            let of_first = written.min(first.len());
            first.advance(of_first);
            written -= of_first;
            if first.is_empty() {
                self.pieces.pop_front();
            }
        }
    }
}
