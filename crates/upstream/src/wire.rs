//! A transport to a member with its read and write buffers. It has no task. The future that waits for the response drives it.

use std::{
    future::poll_fn,
    io::{self, IoSlice},
    pin::{Pin, pin},
    task::{Context, Poll, Waker, ready},
};

use bytes::{Buf, Bytes, BytesMut};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf},
    task::unconstrained,
};

use crate::io::MemberIo;

/// Capacity for a first read.
const READ_BYTES_MIN: usize = 8 << 10;
/// Maximum capacity for a read, reached while reads fill the buffer.
const READ_BYTES_MAX: usize = 128 << 10;

/// Maximum capacity of a buffer that is stored for another connection.
const KEPT_BYTES_MAX: usize = READ_BYTES_MIN;

/// The empty buffers of a connection, for reuse.
#[derive(Debug, Default)]
pub(crate) struct WireBuffers {
    out: Vec<u8>,
    input: BytesMut,
}

impl WireBuffers {
    /// Whether they are small enough to be stored for another connection.
    pub(crate) fn are_small(&self) -> bool {
        self.out.capacity() <= KEPT_BYTES_MAX && self.input.capacity() <= KEPT_BYTES_MAX
    }
}

/// A transport and its buffers.
#[derive(Debug)]
pub(crate) struct Wire {
    pub(crate) io: MemberIo,
    /// Bytes to be written. Empty once the transport has accepted them all.
    pub(crate) out: Vec<u8>,
    /// How many of the bytes in `out` the transport has accepted.
    taken: usize,
    /// Bytes that were received and are not part of a response that was read.
    pub(crate) input: BytesMut,
    /// Capacity for the next read.
    room: usize,
}

impl Wire {
    pub(crate) fn new(io: MemberIo) -> Self {
        Self {
            io,
            out: Vec::new(),
            taken: 0,
            input: BytesMut::new(),
            room: READ_BYTES_MIN,
        }
    }

    /// Whether the member has neither closed the idle connection nor sent anything on it.
    pub(crate) fn is_silent(&mut self) -> bool {
        let mut byte = [0];
        let io = &mut self.io;
        // Without `unconstrained`, every transport would seem silent to a task that has used up its budget.
        let read = pin!(unconstrained(poll_fn(|cx| {
            Pin::new(&mut *io).poll_read(cx, &mut ReadBuf::new(&mut byte))
        })));
        let read = read.poll(&mut Context::from_waker(Waker::noop()));
        read.is_pending() && self.input.is_empty()
    }

    /// Reads more bytes. `None`: the member has closed the connection.
    pub(crate) fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<()>>> {
        self.input.reserve(self.room);
        let room = self.input.capacity() - self.input.len();
        let read = ready!(pin!(self.io.read_buf(&mut self.input)).poll(cx))?;
        if read == room {
            self.room = (self.room * 2).min(READ_BYTES_MAX);
        }
        Poll::Ready(Ok((read > 0).then_some(())))
    }

    /// Writes `out`, followed by `rest`. Returns how many bytes the transport accepted.
    pub(crate) fn poll_write(
        &mut self,
        rest: &mut Bytes,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        let io = Pin::new(&mut self.io);
        let out = &self.out[self.taken..];
        let written = match (out.is_empty(), rest.is_empty()) {
            (false, true) => io.poll_write(cx, out),
            (true, _) => io.poll_write(cx, rest),
            (false, false) => io.poll_write_vectored(cx, &[IoSlice::new(out), IoSlice::new(rest)]),
        };
        let written = ready!(written)?;
        if written == 0 {
            return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
        }
        let of_out = written.min(out.len());
        self.taken += of_out;
        if self.taken == self.out.len() {
            self.out.clear();
            self.taken = 0;
        }
        rest.advance(written - of_out);
        Poll::Ready(Ok(written))
    }

    pub(crate) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    /// Takes the empty buffers from a connection that becomes idle.
    pub(crate) fn take_buffers(&mut self) -> WireBuffers {
        self.room = READ_BYTES_MIN;
        WireBuffers {
            out: std::mem::take(&mut self.out),
            input: std::mem::take(&mut self.input),
        }
    }

    /// Gives empty buffers to an idle connection that is used again.
    pub(crate) fn put_buffers(&mut self, WireBuffers { out, input }: WireBuffers) {
        (self.out, self.input) = (out, input);
    }

    /// The transport, and the bytes that were received and not consumed.
    pub(crate) fn into_parts(self) -> (MemberIo, Bytes) {
        (self.io, self.input.freeze())
    }
}
