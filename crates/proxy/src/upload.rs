//! The body of a request: buffered up to a limit before a member is used, then streamed; counted, with limits on size,
//! silence and rate.

use std::{
    cell::{Cell, RefCell},
    future::poll_fn,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll},
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

/// Limit on silence before the pool is known.
const IDLE_DEFAULT: Duration = Duration::from_secs(60);

/// Bodies with at most this limit are read completely before a member is used, whatever else is buffered.
const WHOLE_BYTES_MAX: usize = 16 << 10;

/// How much of a body was read before a member is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gathered {
    /// All of it, or the maximum that one request may buffer.
    Enough,
    /// Less: the memory for buffers is used up.
    NoRoom,
}

/// The progress of a request body, shared by the exchange and the body that the member's connection polls.
#[derive(Debug)]
pub(crate) struct Upload {
    incoming: RefCell<Option<ClientBody>>,
    /// What was read before a member was used.
    peeked: RefCell<BodyBuffer>,
    /// What was sent to a member, from the start of the body, until the member responds.
    sent: RefCell<Vec<Bytes>>,
    /// Whether everything that was sent is stored.
    stores_sent: Cell<bool>,
    /// The attempt that may read. Connections of earlier attempts get no more data.
    attempt: Cell<u32>,
    /// Its charge to the memory for buffers, which is released on drop.
    charge: RefCell<Option<BodyCharge>>,
    limit: Cell<Option<u64>>,
    /// The body is small and is read completely before a member is used, within one idle timeout: any client may send
    /// an enrolment request, and none may hold a connection to the CA by sending it byte by byte.
    whole: Cell<bool>,
    idle: RefCell<IdleLimit>,
    /// The client's rate; none: not limited.
    pace: Cell<Option<Pace>>,
    /// Maximum bytes that all bodies together may buffer.
    buffers_max: Cell<u64>,
    /// Since when the client is waited for, and how long its rate allows.
    wait: Cell<Option<(Instant, Duration)>>,
    /// The client waits for `100 Continue`, which is sent when the body is first read.
    expects_continue: bool,
    /// Whether the body was read. The first read sends `100 Continue`.
    was_read: Cell<bool>,
    /// Whether a member's connection has read from the body. From then on it cannot be sent to another member.
    polled: Cell<bool>,
    bytes: Cell<u64>,
    finished: Cell<Option<Instant>>,
    /// How long the request waited for a member; none if it did not.
    queued: Cell<Option<Duration>>,
    /// The part of that time in which the body was incomplete.
    queued_incomplete: Cell<Duration>,
    /// When the member's connection took a frame and requested no more; none while the member waits for the client.
    taken_at: Cell<Option<Instant>>,
    fault: Cell<Option<BodyFault>>,
}

impl Upload {
    pub(crate) fn new(incoming: ClientBody, expects_continue: bool, began: Instant) -> Rc<Self> {
        let finished = incoming.is_end_stream().then_some(began);
        Rc::new(Self {
            incoming: RefCell::new(Some(incoming)),
            peeked: RefCell::default(),
            sent: RefCell::default(),
            stores_sent: Cell::new(false),
            attempt: Cell::new(0),
            limit: Cell::new(None),
            whole: Cell::new(false),
            charge: RefCell::default(),
            idle: RefCell::new(IdleLimit::new(IDLE_DEFAULT)),
            pace: Cell::new(None),
            buffers_max: Cell::new(0),
            wait: Cell::new(None),
            expects_continue,
            was_read: Cell::new(false),
            polled: Cell::new(false),
            bytes: Cell::new(0),
            finished: Cell::new(finished),
            queued: Cell::new(None),
            queued_incomplete: Cell::new(Duration::ZERO),
            taken_at: Cell::new(None),
            fault: Cell::new(None),
        })
    }

    /// Sets the limits of the route, its pool and the listener.
    pub(crate) fn allow(&self, limit: Option<u64>, idle: Duration, pace: Pace) {
        self.pace.set(Some(pace));
        self.limit.set(limit);
        self.whole
            .set(limit.is_some_and(|limit| limit <= WHOLE_BYTES_MAX as u64));
        *self.idle.borrow_mut() = IdleLimit::new(idle);
    }

    /// Refuses a body whose declared length is too large.
    pub(crate) fn check_length(&self) -> Result<(), BodyFault> {
        match (self.limit.get(), self.size_hint().exact()) {
            (Some(limit), Some(length)) if length > limit => {
                Err(self.fail(BodyFault::TooLarge(limit)))
            }
            _ => Ok(()),
        }
    }

    /// Whether the body comes in chunks.
    pub(crate) fn length_unknown(&self) -> bool {
        self.finished.get().is_none() && self.size_hint().exact().is_none()
    }

    fn size_hint(&self) -> SizeHint {
        let peeked = self.peeked.borrow().len() as u64;
        let rest = self
            .incoming
            .borrow()
            .as_ref()
            .map_or_else(SizeHint::default, ClientBody::size_hint);
        let mut hint = SizeHint::new();
        hint.set_lower(rest.lower() + peeked);
        if self.finished.get().is_some() {
            hint.set_exact(peeked);
        } else if let Some(upper) = rest.upper() {
            hint.set_upper(upper + peeked);
        }
        hint
    }

    /// Reads a body until it is complete or larger than one request may buffer, before a member is used. So a member
    /// never sees the head of a request whose body is too large or has invalid framing. A client that waits for `100
    /// Continue` gets it here, after routing and access checks.
    ///
    /// Every byte is charged when it is received, because a complete body may still wait for a member's connection.
    /// `maxima` are the limits for this body and for all bodies.
    pub(crate) async fn gather(
        &self,
        maxima: (u64, u64),
        charge: impl FnOnce() -> BodyCharge,
    ) -> Result<Gathered, BodyFault> {
        // There is no body, or nothing may be buffered.
        if self.finished.get().is_some() || (maxima.0 == 0 && !self.whole.get()) {
            return Ok(Gathered::Enough);
        }
        // Boxed, so that requests without a body need no room for it.
        Box::pin(self.gather_rest(maxima, charge)).await
    }

    async fn gather_rest(
        &self,
        (body_max, all_max): (u64, u64),
        charge: impl FnOnce() -> BodyCharge,
    ) -> Result<Gathered, BodyFault> {
        self.buffers_max.set(all_max);
        let mut charge = Some(charge);
        let mut yielded = false;
        while self.finished.get().is_none() {
            let buffered = self.peeked.borrow().len() as u64;
            if buffered > body_max && !self.whole.get() {
                break;
            }
            let read = match poll_fn(|cx| Poll::Ready(self.read(cx))).await {
                Poll::Ready(read) => read,
                // h2 reads the next piece only after it was polled and got a turn.
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
            if let Some(charge) = charge.take() {
                *self.charge.borrow_mut() = Some(charge());
            }
            let bytes = data.len() as u64;
            self.peeked.borrow_mut().push(data);
            if !self.has_room(bytes, all_max) {
                return Ok(Gathered::NoRoom);
            }
        }
        Ok(Gathered::Enough)
    }

    /// Whether the memory for buffers has room for more bytes, which are then charged. A body that must be read
    /// completely is small enough to be stored in any case.
    fn has_room(&self, bytes: u64, all_max: u64) -> bool {
        match self.charge.borrow_mut().as_mut() {
            Some(charge) => charge.grow(bytes, all_max) || self.whole.get(),
            None => true,
        }
    }

    /// Reads the rest of a body that must be small. A client that waits for `100 Continue` gets it here.
    pub(crate) async fn read_whole(&self) -> Result<(), BodyFault> {
        self.whole.set(true);
        while self.finished.get().is_none() {
            match poll_fn(|cx| self.read(cx)).await {
                Some(Ok(data)) => self.peeked.borrow_mut().push(data),
                Some(Err(fault)) => return Err(fault),
                None => break,
            }
        }
        Ok(())
    }

    /// What was read and not yet sent, in one piece.
    pub(crate) fn read_so_far(&self) -> Vec<u8> {
        self.peeked.borrow().gathered()
    }

    /// Whether the client still waits for `100 Continue` before it sends its body.
    pub(crate) fn awaits_continue(&self) -> bool {
        self.expects_continue && !self.was_read.get() && self.finished.get().is_none()
    }

    /// When the last byte was read from the client.
    pub(crate) fn finished(&self) -> Option<Instant> {
        self.finished.get()
    }

    /// Notes a wait for a member. While the body is incomplete, none of it is read in that time, and the time counts
    /// towards the response.
    pub(crate) fn queued(&self, time: Duration) {
        let before = self.queued.get().unwrap_or_default();
        self.queued.set(Some(before + time));
        if self.finished.get().is_none() {
            self.queued_incomplete
                .set(self.queued_incomplete.get() + time);
        }
    }

    /// How long the request waited for a member, in all; none if it did not.
    pub(crate) fn time_in_queue(&self) -> Option<Duration> {
        self.queued.get()
    }

    /// How long the request waited while the body was not complete.
    pub(crate) fn time_in_queue_incomplete(&self) -> Duration {
        self.queued_incomplete.get()
    }

    /// How long the member has read nothing although there is more.
    pub(crate) fn stalled_for(&self) -> Duration {
        self.taken_at
            .get()
            .map_or(Duration::ZERO, |taken| taken.elapsed())
    }

    /// Whether the body can still be sent from its start.
    pub(crate) fn replayable(&self) -> bool {
        !self.polled.get() || (self.finished.get().is_some() && self.bytes.get() == 0)
    }

    /// Stores what is sent until the member responds, so that it can be sent again if the member did nothing with it.
    /// This is possible only for a complete body within the buffer's limit.
    pub(crate) fn store_sent(&self) {
        self.stores_sent.set(self.finished.get().is_some());
    }

    /// Drops what was stored: the member has responded.
    pub(crate) fn drop_sent(&self) {
        self.stores_sent.set(false);
        let sent = self.sent.take();
        if !sent.is_empty() {
            self.shrink(sent.iter().map(Bytes::len).sum());
        }
    }

    /// Returns to the start of the body. False: it was not stored, and cannot be sent again.
    pub(crate) fn rewind(&self) -> bool {
        let is_stored = self.stores_sent.get() && self.fault.get().is_none();
        if !is_stored && !self.replayable() {
            return false;
        }
        self.attempt.set(self.attempt.get() + 1);
        let mut peeked = self.peeked.borrow_mut();
        let mut rest = std::mem::take(&mut *peeked);
        let sent = self.sent.take().into_iter();
        for piece in sent.chain(std::iter::from_fn(|| rest.pop())) {
            peeked.push(piece);
        }
        self.polled.set(false);
        self.taken_at.set(None);
        true
    }

    fn shrink(&self, bytes: usize) {
        if let Some(charge) = self.charge.borrow_mut().as_mut() {
            charge.shrink(bytes as u64);
        }
    }

    /// Notes a piece that is sent. It stays charged while it is stored. It is not stored while memory is scarce.
    fn note_sent(&self, piece: &Bytes) {
        let scarce = |charge: &BodyCharge| charge.is_scarce(self.buffers_max.get());
        if self.stores_sent.get() && !self.charge.borrow().as_ref().is_some_and(scarce) {
            return self.sent.borrow_mut().push(piece.clone());
        }
        self.drop_sent();
        self.shrink(piece.len());
    }

    /// Counts what a client sent through a tunnel.
    pub(crate) fn tunnelled(&self, bytes: u64) {
        self.bytes.set(bytes);
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.get()
    }

    pub(crate) fn fault(&self) -> Option<BodyFault> {
        self.fault.get()
    }

    /// What the client has not sent yet, to be dropped. From now on the member gets no more of it.
    pub(crate) fn rest(&self) -> Option<ClientBody> {
        if self.finished.get().is_some() {
            None
        } else {
            self.incoming.borrow_mut().take()
        }
    }

    /// Reads what a member is sent.
    fn poll(&self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyFault>>> {
        let next = self.peeked.borrow_mut().pop();
        if let Some(data) = next {
            self.note_sent(&data);
            self.polled.set(true);
            self.taken_at.set(Some(Instant::now()));
            return Poll::Ready(Some(Ok(Frame::data(data))));
        }
        if self.finished.get().is_none() {
            self.polled.set(true);
        }
        let read = self.read(cx);
        self.taken_at.set(read.is_ready().then(Instant::now));
        read.map(|read| read.map(|read| read.map(Frame::data)))
    }

    /// Reads what the client sends: counted and limited.
    fn read(&self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BodyFault>>> {
        if let Some(fault) = self.fault.get() {
            return Poll::Ready(Some(Err(fault)));
        }
        if self.finished.get().is_some() {
            return Poll::Ready(None);
        }
        let mut incoming = self.incoming.borrow_mut();
        let Some(body) = incoming.as_mut() else {
            return Poll::Ready(Some(Err(BodyFault::Broken)));
        };
        self.was_read.set(true);
        match body.poll_data(cx) {
            Poll::Pending => self.wait(cx).map(|fault| Some(Err(self.fail(fault)))),
            Poll::Ready(None) => {
                self.finish();
                Poll::Ready(None)
            }
            Poll::Ready(Some(Err(fault))) => Poll::Ready(Some(Err(self.fail(fault)))),
            Poll::Ready(Some(Ok(data))) => {
                if !self.whole.get() {
                    self.idle.borrow_mut().touch();
                }
                self.keep_pace(data.len());
                self.bytes.set(self.bytes.get() + data.len() as u64);
                if let Some(limit) = self.limit.get()
                    && self.bytes.get() > limit
                {
                    return Poll::Ready(Some(Err(self.fail(BodyFault::TooLarge(limit)))));
                }
                if body.is_end_stream() {
                    self.finish();
                }
                Poll::Ready(Some(Ok(data)))
            }
        }
    }

    /// Waits for the client, within its rate and the limit on silence.
    fn wait(&self, cx: &mut Context<'_>) -> Poll<BodyFault> {
        let pace = self.pace.get().filter(|_| !self.whole.get());
        let (_, within) = self.wait.get().unwrap_or_else(|| {
            let left = pace.map_or(Duration::MAX, |pace| pace.left());
            let wait = (Instant::now(), left);
            self.wait.set(Some(wait));
            wait
        });
        let mut idle = self.idle.borrow_mut();
        let exceeded = idle.poll_exceeded_within(cx, within);
        exceeded.map(|limit| match pace {
            Some(pace) if within < limit => BodyFault::Slow(pace.rate_min()),
            _ => BodyFault::Idle(limit),
        })
    }

    /// Notes bytes that the client sent, and the time that was waited for them. Bytes that were there at once cost no
    /// read of the clock.
    fn keep_pace(&self, bytes: usize) {
        let Some((since, _)) = self.wait.take() else {
            return;
        };
        if let Some(mut pace) = self.pace.get() {
            pace.waited(since.elapsed());
            pace.moved(bytes);
            self.pace.set(Some(pace));
        }
    }

    fn finish(&self) {
        if self.finished.get().is_none() {
            self.finished.set(Some(Instant::now()));
        }
    }

    fn fail(&self, fault: BodyFault) -> BodyFault {
        self.fault.set(Some(fault));
        fault
    }
}

/// The request body that a member's connection polls. It polls only when it is ready, so a client gets `100 Continue`
/// after routing and access checks.
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
        match self.attempt == self.upload.attempt.get() {
            true => self.upload.poll(cx),
            false => Poll::Ready(Some(Err(BodyFault::Gone))),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.upload.finished.get().is_some() && self.upload.peeked.borrow().is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        self.upload.size_hint()
    }
}
