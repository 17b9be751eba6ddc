//! The body of a request. It is buffered up to a limit before a member is used, and then streamed. Its bytes are counted, and
//! its size, silence and rate are limited.

use std::{
    cell::{Cell, RefCell},
    future::poll_fn,
    iter, mem,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, ready},
    time::Duration,
};

use balancing::BodyCharge;
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::time::Instant;

use crate::{
    body_buffer::BodyBuffer, body_fault::BodyFault, client_body::ClientBody, idle_limit::IdleLimit,
    pace::Pace,
};

/// The limit on silence until the pool is known.
const IDLE_DEFAULT: Duration = Duration::from_secs(60);

/// Bodies limited to this size or less are read completely before a member is used, however much is buffered already.
const WHOLE_BYTES_MAX: u64 = 16 << 10;

/// How much of a body was read before a member is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gathered {
    /// All of it, or the maximum that one request may buffer.
    Enough,
    /// Less: the memory for buffers is used up.
    NoRoom,
}

/// Maximum bytes in memory before a member is used: for one body, and for all bodies together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BufferMaxima {
    pub(crate) body: u64,
    pub(crate) all: u64,
}

/// The progress of a request body, shared by the exchange and the body that the member's connection polls.
#[derive(Debug)]
pub(crate) struct Upload {
    /// `None`: the rest of the body was taken out, to be dropped.
    incoming: RefCell<Option<ClientBody>>,
    received: Cell<Received>,
    /// Whether the client still waits for `100 Continue`, which is sent when the body is first read.
    awaits_continue: Cell<bool>,
    bytes: Cell<u64>,
    limits: RefCell<Limits>,
    buffer: RefCell<Buffer>,
    sent: Cell<Sent>,
    /// The attempt that may read. Connections of earlier attempts get no more data.
    attempt: Cell<u32>,
    /// The time that the request has waited for a member. `None` if it has not waited.
    queue: Cell<Option<QueueTime>>,
}

/// How much the client has sent.
#[derive(Clone, Copy, Debug)]
enum Received {
    Part,
    /// All of it. The last byte was read at this instant.
    All(Instant),
    Fault(BodyFault),
}

/// How much a member's connection has read.
#[derive(Clone, Copy, Debug)]
enum Sent {
    Nothing,
    /// The member waits for the client.
    Wanted,
    /// The connection took a frame at this instant and has requested no more since.
    Taken(Instant),
}

/// Limits on the body that the client sends.
#[derive(Debug)]
struct Limits {
    bytes_max: Option<u64>,
    idle: IdleLimit,
    rate: Rate,
}

#[derive(Debug)]
enum Rate {
    /// The body is small and is read completely before a member is used, within one idle timeout. Any client may send an
    /// enrolment request, and no client may hold a connection to the CA by sending the request byte by byte.
    Whole,
    /// `since`: since when the proxy has waited for the client.
    Limited { pace: Pace, since: Option<Instant> },
}

#[derive(Debug, Default)]
struct Buffer {
    /// What was read before a member was used.
    peeked: BodyBuffer,
    /// The bytes that were sent, from the start of the body, if they are stored until the member responds.
    sent: Option<Vec<Bytes>>,
    /// The charge for these bytes to the memory for buffers, released on drop, and the maximum of that memory.
    charge: Option<(BodyCharge, u64)>,
}

#[derive(Clone, Copy, Debug, Default)]
struct QueueTime {
    all: Duration,
    /// The part of the time in which the body was incomplete.
    incomplete: Duration,
}

impl Upload {
    pub(crate) fn new(incoming: ClientBody, expects_continue: bool, began: Instant) -> Rc<Self> {
        let is_end = incoming.is_end_stream();
        let received = is_end.then_some(began);
        let received = received.map_or(Received::Part, Received::All);
        Rc::new(Self {
            incoming: RefCell::new(Some(incoming)),
            received: Cell::new(received),
            awaits_continue: Cell::new(expects_continue && !is_end),
            bytes: Cell::new(0),
            limits: RefCell::new(Limits {
                bytes_max: None,
                idle: IdleLimit::new(IDLE_DEFAULT),
                rate: Rate::Whole,
            }),
            buffer: RefCell::default(),
            sent: Cell::new(Sent::Nothing),
            attempt: Cell::new(0),
            queue: Cell::new(None),
        })
    }

    pub(crate) fn allow(&self, bytes_max: Option<u64>, idle: Duration, pace: Pace) {
        *self.limits.borrow_mut() = Limits {
            bytes_max,
            idle: IdleLimit::new(idle),
            rate: match bytes_max {
                Some(..=WHOLE_BYTES_MAX) => Rate::Whole,
                _ => Rate::Limited { pace, since: None },
            },
        };
    }

    /// Refuses a body whose declared length is too large.
    pub(crate) fn check_length(&self) -> Result<(), BodyFault> {
        let length = self.size_hint().exact().unwrap_or_default();
        let checked = self.limits.borrow().check_length(length);
        if let Err(fault) = checked {
            self.received.set(Received::Fault(fault));
        }
        checked
    }

    /// Whether the body comes in chunks.
    pub(crate) fn length_unknown(&self) -> bool {
        self.finished().is_none() && self.size_hint().exact().is_none()
    }

    fn size_hint(&self) -> SizeHint {
        let peeked = self.buffer.borrow().peeked.len() as u64;
        if self.finished().is_some() {
            return SizeHint::with_exact(peeked);
        }
        let incoming = self.incoming.borrow();
        let rest = incoming.as_ref().map(ClientBody::size_hint);
        let (rest, mut hint) = (rest.unwrap_or_default(), SizeHint::new());
        hint.set_lower(rest.lower() + peeked);
        if let Some(upper) = rest.upper() {
            hint.set_upper(upper + peeked);
        }
        hint
    }

    /// Reads a body before a member is used, until it is complete or larger than one request may buffer. A member therefore
    /// never sees the head of a request whose body is too large or has invalid framing. A client that waits for `100 Continue`
    /// gets it here, after routing and access checks.
    ///
    /// Every byte is charged when it is received, because a complete body may still wait for a member's connection.
    pub(crate) async fn gather(
        &self,
        maxima: BufferMaxima,
        charge: impl FnOnce() -> BodyCharge,
    ) -> Result<Gathered, BodyFault> {
        // There is no body, or nothing may be buffered.
        if self.finished().is_some() || (maxima.body == 0 && !self.is_whole()) {
            return Ok(Gathered::Enough);
        }
        // Boxed, so that requests without a body need no room for it.
        Box::pin(self.gather_rest(maxima, charge)).await
    }

    async fn gather_rest(
        &self,
        maxima: BufferMaxima,
        charge: impl FnOnce() -> BodyCharge,
    ) -> Result<Gathered, BodyFault> {
        let mut charge = Some(charge);
        let mut yielded = false;
        while self.finished().is_none() {
            let buffered = self.buffer.borrow().peeked.len() as u64;
            if buffered > maxima.body && !self.is_whole() {
                break;
            }
            let read = match poll_fn(|cx| Poll::Ready(self.read(cx))).await {
                Poll::Ready(read) => read,
                // h2 reads the next piece only after a poll, when its task has run.
                Poll::Pending if !yielded => {
                    yielded = true;
                    tokio::task::yield_now().await;
                    continue;
                }
                Poll::Pending => poll_fn(|cx| self.read(cx)).await,
            };
            yielded = false;
            let Some(data) = read.transpose()? else {
                break;
            };
            let mut buffer = self.buffer.borrow_mut();
            if let Some(charge) = charge.take() {
                buffer.charge = Some((charge(), maxima.all));
            }
            let grown =
                |(charge, max): &mut (BodyCharge, u64)| charge.grow(data.len() as u64, *max);
            let has_room = buffer.charge.as_mut().is_none_or(grown);
            buffer.peeked.push(data);
            // A body that must be read completely is small, so it is stored even if the memory is used up.
            if !has_room && !self.is_whole() {
                return Ok(Gathered::NoRoom);
            }
        }
        Ok(Gathered::Enough)
    }

    fn is_whole(&self) -> bool {
        matches!(self.limits.borrow().rate, Rate::Whole)
    }

    /// Reads the rest of a body that must be small. A client that waits for `100 Continue` gets it here.
    pub(crate) async fn read_whole(&self) -> Result<(), BodyFault> {
        self.limits.borrow_mut().rate = Rate::Whole;
        while let Some(data) = poll_fn(|cx| self.read(cx)).await {
            self.buffer.borrow_mut().peeked.push(data?);
        }
        Ok(())
    }

    /// The bytes that were read and not yet sent, in one piece.
    pub(crate) fn read_so_far(&self) -> Vec<u8> {
        self.buffer.borrow().peeked.gathered()
    }

    pub(crate) fn awaits_continue(&self) -> bool {
        self.awaits_continue.get()
    }

    /// When the last byte was read from the client.
    pub(crate) fn finished(&self) -> Option<Instant> {
        match self.received.get() {
            Received::All(at) => Some(at),
            Received::Part | Received::Fault(_) => None,
        }
    }

    pub(crate) fn fault(&self) -> Option<BodyFault> {
        match self.received.get() {
            Received::Fault(fault) => Some(fault),
            Received::Part | Received::All(_) => None,
        }
    }

    /// Notes a wait for a member. While the body is incomplete, none of it is read during the wait, and the wait counts towards
    /// the time for the response.
    pub(crate) fn queued(&self, time: Duration) {
        let mut queue = self.queue.get().unwrap_or_default();
        queue.all += time;
        if self.finished().is_none() {
            queue.incomplete += time;
        }
        self.queue.set(Some(queue));
    }

    /// How long the request has waited for a member, in total. `None` if it has not waited.
    pub(crate) fn time_in_queue(&self) -> Option<Duration> {
        self.queue.get().map(|queue| queue.all)
    }

    /// How long the request waited while the body was not complete.
    pub(crate) fn time_in_queue_incomplete(&self) -> Duration {
        self.queue.get().unwrap_or_default().incomplete
    }

    /// For how long the member has read nothing although there is more to read.
    pub(crate) fn stalled_for(&self) -> Duration {
        match self.sent.get() {
            Sent::Taken(at) => at.elapsed(),
            Sent::Nothing | Sent::Wanted => Duration::ZERO,
        }
    }

    /// Whether the body can still be sent from its start.
    pub(crate) fn replayable(&self) -> bool {
        matches!(self.sent.get(), Sent::Nothing)
            || (self.finished().is_some() && self.bytes.get() == 0)
    }

    /// Stores the bytes that are sent until the member responds, so that they can be sent again if the member did nothing with
    /// them. This is possible only for a complete body within the buffer's limit.
    pub(crate) fn store_sent(&self) {
        self.buffer.borrow_mut().sent = self.finished().map(|_| Vec::new());
    }

    pub(crate) fn drop_sent(&self) {
        self.buffer.borrow_mut().drop_sent();
    }

    /// Returns to the start of the body. False: the body was not stored, so it cannot be sent again.
    pub(crate) fn rewind(&self) -> bool {
        let mut buffer = self.buffer.borrow_mut();
        let is_stored = buffer.sent.is_some() && self.fault().is_none();
        if !is_stored && !self.replayable() {
            return false;
        }
        self.attempt.set(self.attempt.get() + 1);
        buffer.rewind();
        self.sent.set(Sent::Nothing);
        true
    }

    /// Counts what a client sent through a tunnel.
    pub(crate) fn tunnelled(&self, bytes: u64) {
        self.bytes.set(bytes);
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.get()
    }

    /// Takes out what the client has not sent yet, to be dropped. From now on the member gets no more of the body.
    pub(crate) fn rest(&self) -> Option<ClientBody> {
        let mut incoming = self.incoming.borrow_mut();
        incoming.take_if(|_| self.finished().is_none())
    }

    /// Reads the next data for the member.
    fn poll(&self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyFault>>> {
        let peeked = self.buffer.borrow_mut().pop();
        if let Some(data) = peeked {
            self.sent.set(Sent::Taken(Instant::now()));
            return Poll::Ready(Some(Ok(Frame::data(data))));
        }
        if self.finished().is_some() {
            return Poll::Ready(None);
        }
        let read = self.read(cx);
        let taken = read.is_ready().then(Instant::now);
        self.sent.set(taken.map_or(Sent::Wanted, Sent::Taken));
        read.map(|read| read.map(|read| read.map(Frame::data)))
    }

    /// Reads the next data from the client, counts it and applies the limits.
    fn read(&self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BodyFault>>> {
        match self.received.get() {
            Received::Part => {}
            Received::All(_) => return Poll::Ready(None),
            Received::Fault(fault) => return Poll::Ready(Some(Err(fault))),
        }
        let mut incoming = self.incoming.borrow_mut();
        let Some(body) = incoming.as_mut() else {
            return Poll::Ready(Some(Err(BodyFault::Broken)));
        };
        self.awaits_continue.set(false);
        let mut limits = self.limits.borrow_mut();
        let read = match body.poll_data(cx) {
            Poll::Pending => Some(Err(ready!(limits.wait(cx)))),
            Poll::Ready(Some(Ok(data))) => {
                self.bytes.set(self.bytes.get() + data.len() as u64);
                Some(limits.received(data.len(), self.bytes.get()).map(|()| data))
            }
            Poll::Ready(end) => end,
        };
        match &read {
            Some(Err(fault)) => self.received.set(Received::Fault(*fault)),
            Some(Ok(_)) if !body.is_end_stream() => {}
            Some(Ok(_)) | None => self.received.set(Received::All(Instant::now())),
        }
        Poll::Ready(read)
    }
}

impl Limits {
    /// Waits for the client. Ready when the client exceeds its rate or the limit on silence.
    fn wait(&mut self, cx: &mut Context<'_>) -> Poll<BodyFault> {
        let Rate::Limited { pace, since } = &mut self.rate else {
            return self.idle.poll_exceeded(cx).map(BodyFault::Idle);
        };
        since.get_or_insert_with(Instant::now);
        let (rate_min, within) = (pace.rate_min(), pace.left());
        let exceeded = self.idle.poll_exceeded_within(cx, within);
        exceeded.map(|limit| {
            if within < limit {
                BodyFault::Slow(rate_min)
            } else {
                BodyFault::Idle(limit)
            }
        })
    }

    /// Notes bytes that the client sent, and how long the proxy waited for them. Bytes that had already arrived cost no read of
    /// the clock. `all`: how many bytes the client has sent so far.
    fn received(&mut self, bytes: usize, all: u64) -> Result<(), BodyFault> {
        if let Rate::Limited { pace, since } = &mut self.rate {
            self.idle.touch();
            if let Some(since) = since.take() {
                pace.waited(since.elapsed());
                pace.moved(bytes);
            }
        }
        self.check_length(all)
    }

    fn check_length(&self, bytes: u64) -> Result<(), BodyFault> {
        match self.bytes_max {
            Some(max) if bytes > max => Err(BodyFault::TooLarge(max)),
            _ => Ok(()),
        }
    }
}

impl Buffer {
    fn shrink(&mut self, bytes: usize) {
        if let Some((charge, _)) = &mut self.charge {
            charge.shrink(bytes as u64);
        }
    }

    /// The next piece to send. If it is stored, it stays charged. It is not stored while memory is scarce.
    fn pop(&mut self) -> Option<Bytes> {
        let piece = self.peeked.pop()?;
        let charge = self.charge.as_ref();
        let is_scarce = || charge.is_some_and(|(charge, max)| charge.is_scarce(*max));
        match &mut self.sent {
            Some(sent) if !is_scarce() => sent.push(piece.clone()),
            _ => {
                self.drop_sent();
                self.shrink(piece.len());
            }
        }
        Some(piece)
    }

    fn drop_sent(&mut self) {
        if let Some(sent) = self.sent.take() {
            self.shrink(sent.iter().map(Bytes::len).sum());
        }
    }

    fn rewind(&mut self) {
        let mut rest = mem::take(&mut self.peeked);
        let sent = self.sent.as_mut().map(mem::take).unwrap_or_default();
        for piece in sent.into_iter().chain(iter::from_fn(|| rest.pop())) {
            self.peeked.push(piece);
        }
    }
}

/// The request body that a member's connection polls. The connection polls it only when it is ready to send, so a client gets
/// `100 Continue` after routing and access checks.
#[derive(Debug)]
pub struct RequestBody {
    upload: Rc<Upload>,
    attempt: u32,
}

impl RequestBody {
    /// The body for the current attempt. Bodies of earlier attempts get no more data.
    pub(crate) fn new(upload: &Rc<Upload>) -> Self {
        Self {
            upload: Rc::clone(upload),
            attempt: upload.attempt.get(),
        }
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = BodyFault;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyFault>>> {
        if self.attempt == self.upload.attempt.get() {
            self.upload.poll(cx)
        } else {
            Poll::Ready(Some(Err(BodyFault::Gone)))
        }
    }

    fn is_end_stream(&self) -> bool {
        self.upload.finished().is_some() && self.upload.buffer.borrow().peeked.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        self.upload.size_hint()
    }
}
