//! The transport of an HTTP/1 connection, which the connection shares with the body of its request.

use std::{
    cell::RefCell,
    io,
    pin::{Pin, pin},
    rc::Rc,
    task::{Context, Poll, Waker, ready},
};

use bytes::{Bytes, BytesMut};
use http_body::SizeHint;
use http1::{BodyKind, Decoded, Decoder, RefusedHead, RequestHead, RequestHeadReader};
use listener::TlsIo;
use tokio::io::{AsyncReadExt, AsyncWrite};

use crate::{body_fault::BodyFault, connection::Conn, output::Output};

/// Capacity for a first read.
const READ_BYTES_MIN: usize = 8 << 10;
/// Maximum capacity for a read, reached while reads fill the buffer.
const READ_BYTES_MAX: usize = 128 << 10;

/// The interim response for which a client with `Expect: 100-continue` waits.
const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// The transport of a connection while it has buffers.
pub(crate) struct ClientWire {
    conn: Rc<Conn>,
    state: RefCell<State>,
}

struct State {
    /// `None` only after the transport was taken out.
    io: Option<TlsIo>,
    /// Bytes that were received and not consumed yet.
    input: BytesMut,
    /// Capacity for the next read.
    room: usize,
    heads: RequestHeadReader,
    body: Decoder,
    /// Why the body is incomplete.
    fault: Option<BodyFault>,
    /// The number of the current request on the connection.
    request: u64,
    /// Whether the body of the current request may still be read.
    has_reader: bool,
    /// The interim response that the client gets before its body is first read.
    interim: &'static [u8],
    /// Whether the interim response has left the transport.
    is_flushed: bool,
    /// The task that waits for more of the body, if it is not the task of the connection.
    reader: Option<Waker>,
}

/// What follows on a connection between two requests.
#[expect(
    clippy::large_enum_variant,
    reason = "nearly every time it is the large one, and a box would cost each request an allocation"
)]
pub(crate) enum Next {
    Request(RequestHead),
    Refused(RefusedHead),
    /// The client has closed its direction.
    End,
}

impl ClientWire {
    pub(crate) fn new(io: TlsIo, conn: &Rc<Conn>, head_bytes_max: usize) -> Rc<Self> {
        Rc::new(Self {
            conn: Rc::clone(conn),
            state: RefCell::new(State {
                io: Some(io),
                input: BytesMut::new(),
                room: READ_BYTES_MIN,
                heads: RequestHeadReader::new(head_bytes_max),
                body: Decoder::of_request(BodyKind::Length(0)),
                fault: None,
                request: 0,
                has_reader: false,
                interim: b"",
                is_flushed: true,
                reader: None,
            }),
        })
    }

    /// Reads the next head.
    ///
    /// # Errors
    /// The connection broke.
    pub(crate) fn poll_next(&self, cx: &mut Context<'_>) -> Poll<io::Result<Next>> {
        let state = &mut *self.state.borrow_mut();
        let mut is_new = !state.input.is_empty();
        loop {
            if is_new {
                match state.heads.read(&mut state.input) {
                    Ok(Some(head)) => return Poll::Ready(Ok(Next::Request(head))),
                    Ok(None) => self.conn.activity.begin_head(),
                    Err(refused) => return Poll::Ready(Ok(Next::Refused(refused))),
                }
            }
            match ready!(state.poll_fill(cx)) {
                Ok(0) => return Poll::Ready(Ok(Next::End)),
                Ok(_) => is_new = true,
                // The client has closed its direction without a `close_notify`. There is no response to lose.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    return Poll::Ready(Ok(Next::End));
                }
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }

    /// Whether nothing of the next request has been received.
    pub(crate) fn is_between(&self) -> bool {
        let state = self.state.borrow();
        state.input.is_empty() && !state.heads.has_begun()
    }

    pub(crate) fn begin_body(self: &Rc<Self>, head: &RequestHead) -> RequestStream {
        let mut state = self.state.borrow_mut();
        state.body = Decoder::of_request(head.body);
        state.fault = None;
        state.request += 1;
        state.has_reader = true;
        state.interim = if head.expects_continue { CONTINUE } else { b"" };
        RequestStream {
            request: state.request,
            wire: Rc::clone(self),
        }
    }

    /// Ready when the client has gone, so that its response is no longer needed. While the body is incomplete, the reader of
    /// the body notices that.
    pub(crate) fn poll_gone(&self, cx: &mut Context<'_>) -> Poll<io::Error> {
        let state = &mut *self.state.borrow_mut();
        if !state.body.is_end() || !state.input.is_empty() {
            return Poll::Pending;
        }
        state.room = READ_BYTES_MIN;
        match ready!(state.poll_fill(cx)) {
            Ok(0) => Poll::Ready(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) => Poll::Pending,
            Err(error) => Poll::Ready(error),
        }
    }

    /// Waits until the body was read to its end (`true`), or is no longer read.
    pub(crate) fn poll_body_released(&self, cx: &mut Context<'_>) -> Poll<bool> {
        let state = &mut *self.state.borrow_mut();
        if state.has_reader && !state.body.is_end() && state.fault.is_none() {
            return Poll::Pending;
        }
        // The rest of a small body may have arrived already.
        if !state.body.is_end() && state.fault.is_none() {
            let _ = state.poll_fill(cx);
            while let Ok(Decoded::Data(_)) = state.body.decode(&mut state.input) {}
        }
        Poll::Ready(state.body.is_end() && state.fault.is_none())
    }

    /// Called when the response begins. A client that waits for `100 Continue` does not get it any more. Returns the rest of a
    /// `100 Continue` that was sent in part.
    pub(crate) fn begin_response(&self) -> &'static [u8] {
        match std::mem::take(&mut self.state.borrow_mut().interim) {
            CONTINUE => b"",
            rest => rest,
        }
    }

    /// Writes all of `output`.
    ///
    /// # Errors
    /// The connection broke.
    pub(crate) fn poll_write(
        &self,
        cx: &mut Context<'_>,
        output: &mut Output,
    ) -> Poll<io::Result<()>> {
        match &mut self.state.borrow_mut().io {
            Some(io) => output.poll_write(cx, Pin::new(io)),
            None => Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
        }
    }

    /// Sends the bytes that TLS holds.
    ///
    /// # Errors
    /// The connection broke.
    pub(crate) fn poll_flush(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.state.borrow_mut().io {
            Some(io) => Pin::new(io).poll_flush(cx),
            None => Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
        }
    }

    /// Closes the connection in an orderly way.
    ///
    /// # Errors
    /// The connection broke.
    pub(crate) fn poll_shutdown(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.state.borrow_mut().io {
            Some(io) => Pin::new(io).poll_shutdown(cx),
            None => Poll::Ready(Ok(())),
        }
    }

    /// Takes out the transport, with the bytes that were received and not consumed. No body can be read afterwards.
    pub(crate) fn take(&self) -> Option<(TlsIo, Bytes)> {
        let state = &mut *self.state.borrow_mut();
        if let Some(reader) = state.reader.take() {
            reader.wake();
        }
        let input = std::mem::take(&mut state.input).freeze();
        state.io.take().map(|io| (io, input))
    }
}

impl State {
    /// Receives more bytes. Returns 0 if the client has closed its direction.
    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let Some(io) = &mut self.io else {
            return Poll::Ready(Ok(0));
        };
        let mut room = self.input.capacity() - self.input.len();
        // More capacity is not requested early: a request may still hold parts of the buffer, and then it would mean a new
        // buffer.
        if room < self.room / 4 {
            self.input.reserve(self.room);
            room = self.input.capacity() - self.input.len();
        }
        let read = ready!(pin!(io.read_buf(&mut self.input)).poll(cx))?;
        if read == room {
            self.room = (self.room * 2).min(READ_BYTES_MAX);
        } else if read < room / 2 {
            self.room = (self.room / 2).max(READ_BYTES_MIN);
        }
        Poll::Ready(Ok(read))
    }

    /// Sends `100 Continue`, if the client waits for it.
    fn poll_interim(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(io) = &mut self.io else {
            return Poll::Ready(Ok(()));
        };
        while !self.interim.is_empty() {
            let written = ready!(Pin::new(&mut *io).poll_write(cx, self.interim))?;
            self.interim = self.interim.get(written..).unwrap_or_default();
            self.is_flushed = false;
        }
        if !self.is_flushed {
            self.is_flushed = Pin::new(io).poll_flush(cx)?.is_ready();
        }
        Poll::Ready(Ok(()))
    }

    fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BodyFault>>> {
        if let Some(fault) = self.fault {
            return Poll::Ready(Some(Err(fault)));
        }
        let fault = loop {
            match self.body.decode(&mut self.input) {
                Ok(Decoded::Data(data)) => return Poll::Ready(Some(Ok(data))),
                Ok(Decoded::End) => return Poll::Ready(None),
                Err(_) => break BodyFault::Broken,
                Ok(Decoded::Incomplete) => {}
            }
            if ready!(self.poll_interim(cx)).is_err() {
                break BodyFault::Gone;
            }
            if !matches!(ready!(self.poll_fill(cx)), Ok(1..)) {
                break BodyFault::Gone;
            }
        };
        self.fault = Some(fault);
        Poll::Ready(Some(Err(fault)))
    }
}

/// The body of one request.
pub(crate) struct RequestStream {
    wire: Rc<ClientWire>,
    /// The number of the request on the connection. Once the connection has another request, this body has ended.
    request: u64,
}

impl RequestStream {
    pub(crate) fn poll_data(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, BodyFault>>> {
        let mut state = self.wire.state.borrow_mut();
        if state.request != self.request {
            return Poll::Ready(None);
        }
        let Poll::Ready(data) = state.poll_data(cx) else {
            if !self.wire.is_own_task(cx) {
                state.reader = Some(cx.waker().clone());
                // This poll may have flushed bytes that TLS holds. The transport then wakes only this task, so the task of the
                // connection must be woken too.
                if self.wire.conn.activity.write_stalled().is_some() {
                    self.wire.wake();
                }
            }
            return Poll::Pending;
        };
        if state.body.is_end() || state.fault.is_some() {
            drop(state);
            if !self.wire.is_own_task(cx) {
                self.wire.wake();
            }
        }
        Poll::Ready(data)
    }

    pub(crate) fn is_end(&self) -> bool {
        let state = self.wire.state.borrow();
        state.request != self.request || state.body.is_end()
    }

    pub(crate) fn size_hint(&self) -> SizeHint {
        let state = self.wire.state.borrow();
        match state.body.remaining() {
            Some(left) => SizeHint::with_exact(left),
            None => SizeHint::default(),
        }
    }
}

impl ClientWire {
    fn is_own_task(&self, cx: &Context<'_>) -> bool {
        let task = self.conn.task.borrow();
        task.as_ref().is_some_and(|task| task.will_wake(cx.waker()))
    }

    fn wake(&self) {
        if let Some(task) = &*self.conn.task.borrow() {
            task.wake_by_ref();
        }
    }
}

impl Drop for RequestStream {
    fn drop(&mut self) {
        let mut state = self.wire.state.borrow_mut();
        if state.request == self.request {
            state.has_reader = false;
            let is_awaited = !state.body.is_end();
            drop(state);
            if is_awaited {
                self.wire.wake();
            }
        }
    }
}

impl std::fmt::Debug for RequestStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RequestStream")
            .field("request", &self.request)
            .finish_non_exhaustive()
    }
}
