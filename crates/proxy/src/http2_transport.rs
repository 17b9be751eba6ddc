//! The transport under h2. It inspects the frames of both directions in order to record the heads that h2 refuses by itself, to
//! limit frames without content, to limit the time for a head, and to encode raw bytes in queries.

use std::{
    cell::RefCell,
    io::{self, IoSlice},
    pin::Pin,
    rc::Rc,
    task::{Context, Poll},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

use crate::{
    client_frames::{ClientFrames, FrameEvent},
    connection::Conn,
    exceeded_limit::ExceededLimit,
    frame_head::{DATA, HEAD_BYTES, HEADERS, RST_STREAM, number},
    path_encoder::PathEncoder,
    streams::{RefusedHead, Streams},
};

/// A transport that inspects frames. The inner transport is shared, because h2 owns this transport and `Http2` closes the
/// connection.
pub(crate) struct Http2Transport<T> {
    inner: Rc<RefCell<T>>,
    conn: Rc<Conn>,
    outgoing: WrittenFrames,
    incoming: ClientFrames,
    paths: PathEncoder,
}

impl<T> Http2Transport<T> {
    pub(crate) fn new(inner: &Rc<RefCell<T>>, conn: &Rc<Conn>) -> Self {
        Self {
            inner: Rc::clone(inner),
            conn: Rc::clone(conn),
            outgoing: WrittenFrames::default(),
            incoming: ClientFrames::new(),
            paths: PathEncoder::new(),
        }
    }

    fn wrote(&mut self, bytes: &[u8]) {
        let streams = self.conn.http2_streams();
        self.outgoing.read(bytes, |wrote| match wrote {
            WrittenFrame::Head(stream) => {
                streams.allowance.earn_by_head();
                streams.refuse(stream, RefusedHead::Large);
            }
            WrittenFrame::Data(length) => streams.allowance.earn_by_data(length),
            WrittenFrame::Fault(stream) => streams.refuse(stream, RefusedHead::Malformed),
        });
    }

    /// Inspects bytes that were read.
    fn heard(&mut self, bytes: &[u8], streams: &Streams) {
        self.incoming.read(bytes, |heard| match heard {
            FrameEvent::Bare => {
                if !streams.allowance.spend(Instant::now) {
                    streams.overstep(ExceededLimit::Frames);
                }
            }
            FrameEvent::PseudoInTrailers(stream) => streams.note_malformed(stream),
            FrameEvent::Fragment(stream) => streams.note_fragment(stream),
        });
        let since = self.incoming.open_since(Instant::now);
        streams.head_since.set(since);
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Http2Transport<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let conn = Rc::clone(&self.conn);
        let streams = conn.http2_streams();
        if streams.excess().is_some() {
            // The proxy reads nothing more from a client that exceeded a limit, so no task needs to be woken.
            return Poll::Pending;
        }
        let before = buffer.filled().len();
        loop {
            if self.paths.deliver(buffer) {
                return Poll::Ready(Ok(()));
            }
            let polled = Pin::new(&mut *self.inner.borrow_mut()).poll_read(cx, buffer);
            if buffer.filled().len() > before {
                self.heard(&buffer.filled()[before..], streams);
                self.paths.filter(buffer, before);
            } else {
                if matches!(polled, Poll::Ready(Ok(()))) {
                    self.paths.end();
                    self.paths.deliver(buffer);
                }
                return polled;
            }
            if buffer.filled().len() > before {
                return polled;
            }
        }
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Http2Transport<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut *self.inner.borrow_mut()).poll_write(cx, bytes);
        if let Poll::Ready(Ok(written)) = polled {
            self.wrote(&bytes[..written]);
        }
        polled
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.inner.borrow_mut()).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.inner.borrow_mut()).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut *self.inner.borrow_mut()).poll_write_vectored(cx, slices);
        if let Poll::Ready(Ok(written)) = polled {
            let mut left = written;
            for slice in slices {
                let length = slice.len().min(left);
                self.wrote(&slice[..length]);
                left -= length;
            }
        }
        polled
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.borrow().is_write_vectored()
    }
}

/// The parser of the frames that h2 writes. It inspects the nine bytes of each frame head and the four bytes of a reset's code,
/// and skips the rest.
#[derive(Default)]
struct WrittenFrames {
    head: [u8; HEAD_BYTES + CODE_BYTES],
    filled: usize,
    passing: usize,
}

const CODE_BYTES: usize = 4;
const PROTOCOL_ERROR: u32 = 1;

/// A frame from h2 that the proxy notes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WrittenFrame {
    /// The head of a response, on this stream.
    Head(u32),
    /// Data of a response, with the number of bytes.
    Data(usize),
    /// A reset for a protocol error of the client, on this stream.
    Fault(u32),
}

impl WrittenFrames {
    fn read(&mut self, mut bytes: &[u8], mut found: impl FnMut(WrittenFrame)) {
        while !bytes.is_empty() {
            let passed = self.passing.min(bytes.len());
            self.passing -= passed;
            bytes = &bytes[passed..];
            let wanted = self.wanted();
            let taken = (wanted - self.filled).min(bytes.len());
            if self.passing > 0 || taken == 0 {
                continue;
            }
            self.head[self.filled..self.filled + taken].copy_from_slice(&bytes[..taken]);
            self.filled += taken;
            bytes = &bytes[taken..];
            if self.filled == self.wanted() {
                self.filled = 0;
                let [_, _, _, kind, ..] = self.head;
                let stream = number(&self.head[5..9]) & 0x7fff_ffff;
                match kind {
                    RST_STREAM => {
                        if number(&self.head[HEAD_BYTES..]) == PROTOCOL_ERROR {
                            found(WrittenFrame::Fault(stream));
                        }
                    }
                    kind => {
                        self.passing = number(&self.head[..3]) as usize;
                        match kind {
                            HEADERS => found(WrittenFrame::Head(stream)),
                            DATA => found(WrittenFrame::Data(self.passing)),
                            _ => {}
                        }
                    }
                }
            }
        }
    }

    /// How many bytes of a frame are inspected.
    fn wanted(&self) -> usize {
        if self.filled >= HEAD_BYTES && self.head[3] == RST_STREAM {
            HEAD_BYTES + CODE_BYTES
        } else {
            HEAD_BYTES
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_read_in_pieces_of_any_size() {
        let frames = [
            &[0, 0, 2, HEADERS, 4, 0, 0, 0, 1, 7, 7][..],
            &[0, 0, 3, 0, 1, 0, 0, 0, 1, 1, 3, 3],
            &[0, 0, 4, RST_STREAM, 0, 0, 0, 0, 3, 0, 0, 0, 1],
            &[0, 0, 4, RST_STREAM, 0, 0, 0, 0, 5, 0, 0, 0, 8],
            &[0, 0, 0, 4, 1, 0, 0, 0, 0],
            &[0, 0, 4, RST_STREAM, 0, 0, 0, 0, 7, 0, 0, 0, 1],
        ]
        .concat();
        for piece in 1..=frames.len() {
            let (mut outgoing, mut found) = (WrittenFrames::default(), Vec::new());
            for bytes in frames.chunks(piece) {
                outgoing.read(bytes, |wrote| found.push(wrote));
            }
            assert_eq!(
                found,
                [
                    WrittenFrame::Head(1),
                    WrittenFrame::Data(3),
                    WrittenFrame::Fault(3),
                    WrittenFrame::Fault(7),
                ],
                "in pieces of {piece}"
            );
        }
    }
}
