//! The body of a request: buffered up to a limit before a member is asked, then streamed; counted, with limits on size,
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

/// Silence allowed in a body before a pool has its say.
const IDLE_DEFAULT: Duration = Duration::from_secs(60);

/// Bodies whose route allows no more than this are read whole before a member is asked, whatever else is buffered.
const WHOLE_BYTES_MAX: usize = 16 << 10;

/// How much of a body was read before a member is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gathered {
    /// All of it, or as much as one request may buffer.
    Enough,
    /// What the budget for buffers had room for.
    NoRoom,
}

/// How far a request body has come; shared by the exchange and the body that the member connection polls.
#[derive(Debug)]
pub(crate) struct Upload {
    incoming: RefCell<Option<ClientBody>>,
    /// What was read before a member was asked.
    peeked: RefCell<BodyBuffer>,
    /// What was sent to a member and is kept until it answers, from the beginning of the body.
    sent: RefCell<Vec<Bytes>>,
    /// Whether all that was sent is kept.
    keeps_sent: Cell<bool>,
    /// Which attempt may read. A connection that was given up for another attempt gets nothing more.
    attempt: Cell<u32>,
    /// What it takes of the budget for buffers. Dropped, it is given back.
    charge: RefCell<Option<BodyCharge>>,
    limit: Cell<Option<u64>>,
    /// It is small enough to be read whole before a member is asked, and has the idle timeout for all of it: anybody
    /// may send an enrolment request, and nobody may hold a connection to the CA by sending it byte by byte.
    whole: Cell<bool>,
    idle: RefCell<IdleLimit>,
    /// The client's rate; none: not limited.
    pace: Cell<Option<Pace>>,
    /// Bytes that all bodies together may buffer.
    buffers_max: Cell<u64>,
    /// Since when the client is waited for, and for how long by its rate.
    wait: Cell<Option<(Instant, Duration)>>,
    /// The client waits for `100 Continue`, which is sent when the body is first read.
    expects_continue: bool,
    /// Whether the body was read, which sends `100 Continue` to a client that waits for it.
    asked: Cell<bool>,
    /// Whether a member's connection has read of it: from then on it cannot be sent to another member.
    polled: Cell<bool>,
    bytes: Cell<u64>,
    finished: Cell<Option<Instant>>,
    /// How long the request waited for a member; none if it did not.
    queued: Cell<Option<Duration>>,
    /// How much of that while the body was not complete.
    queued_incomplete: Cell<Duration>,
    /// When the member connection took a frame and asked for no more; none while it waits for the client.
    taken: Cell<Option<Instant>>,
    fault: Cell<Option<BodyFault>>,
}

impl Upload {
    pub(crate) fn new(incoming: ClientBody, expects_continue: bool, began: Instant) -> Rc<Self> {
        let finished = incoming.is_end_stream().then_some(began);
        Rc::new(Self {
            incoming: RefCell::new(Some(incoming)),
            peeked: RefCell::default(),
            sent: RefCell::default(),
            keeps_sent: Cell::new(false),
            attempt: Cell::new(0),
            limit: Cell::new(None),
            whole: Cell::new(false),
            charge: RefCell::default(),
            idle: RefCell::new(IdleLimit::new(IDLE_DEFAULT)),
            pace: Cell::new(None),
            buffers_max: Cell::new(0),
            wait: Cell::new(None),
            expects_continue,
            asked: Cell::new(false),
            polled: Cell::new(false),
            bytes: Cell::new(0),
            finished: Cell::new(finished),
            queued: Cell::new(None),
            queued_incomplete: Cell::new(Duration::ZERO),
            taken: Cell::new(None),
            fault: Cell::new(None),
        })
    }

    /// Sets what the route, its pool and the listener allow.
    pub(crate) fn allow(&self, limit: Option<u64>, idle: Duration, pace: Pace) {
        self.pace.set(Some(pace));
        self.limit.set(limit);
        self.whole
            .set(limit.is_some_and(|limit| limit <= WHOLE_BYTES_MAX as u64));
        *self.idle.borrow_mut() = IdleLimit::new(idle);
    }

    /// Refuses a body that says itself that it is too large.
    pub(crate) fn check_length(&self) -> Result<(), BodyFault> {
        match (self.limit.get(), self.size_hint().exact()) {
            (Some(limit), Some(length)) if length > limit => {
                Err(self.fail(BodyFault::TooLarge(limit)))
            }
            _ => Ok(()),
        }
    }

    /// Whether it comes in chunks.
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

    /// Reads a body until it is complete or larger than one request may buffer, before a member is asked. A body whose
    /// framing is broken, or that is too large, is so refused before a member sees its head. A client that waits for
    /// `100 Continue` gets it by this: routing and access have passed.
    ///
    /// Every byte is charged to the budget when it is received: a body that is complete may still wait for a member's
    /// connection. `maxima`: for this body, and for all.
    pub(crate) async fn gather(
        &self,
        maxima: (u64, u64),
        charge: impl FnOnce() -> BodyCharge,
    ) -> Result<Gathered, BodyFault> {
        // Nothing to send, or nothing is to be buffered.
        if self.finished.get().is_some() || (maxima.0 == 0 && !self.whole.get()) {
            return Ok(Gathered::Enough);
        }
        // Boxed: a request without a body need not have room for it.
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
                // hyper reads the next piece once it was asked for and is given a turn.
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

    /// Whether the budget has room for more bytes, which are charged then. One body that must be read whole is small
    /// enough to be held in any case.
    fn has_room(&self, bytes: u64, all_max: u64) -> bool {
        match self.charge.borrow_mut().as_mut() {
            Some(charge) => charge.grow(bytes, all_max) || self.whole.get(),
            None => true,
        }
    }

    /// Reads the rest of a body that must be small, of a client that waits to be told to send too: it is told by this.
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

    /// Whether the client waits to be told to send; one that has nothing to send waits for nothing.
    pub(crate) fn awaits_continue(&self) -> bool {
        self.expects_continue && !self.asked.get() && self.finished.get().is_none()
    }

    /// When the last byte was read from the client.
    pub(crate) fn finished(&self) -> Option<Instant> {
        self.finished.get()
    }

    /// Notes a wait for a member. While the body is not complete, nothing of it is read in that time, and it counts towards
    /// the time for the answer.
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

    /// How long the member has taken nothing though there is more.
    pub(crate) fn untaken(&self) -> Duration {
        self.taken
            .get()
            .map_or(Duration::ZERO, |taken| taken.elapsed())
    }

    /// Whether it may still be sent from its beginning.
    pub(crate) fn replayable(&self) -> bool {
        !self.polled.get() || (self.finished.get().is_some() && self.bytes.get() == 0)
    }

    /// Keeps what is sent until the member answers, so that it can be sent again where the member says that it did
    /// nothing with it. Only a body that is complete can be kept, and one larger than the buffer is not.
    pub(crate) fn keep_sent(&self) {
        self.keeps_sent.set(self.finished.get().is_some());
    }

    /// Forgets what was kept: the member has answered.
    pub(crate) fn forget_sent(&self) {
        self.keeps_sent.set(false);
        let sent = self.sent.take();
        if !sent.is_empty() {
            self.shrink(sent.iter().map(Bytes::len).sum());
        }
    }

    /// Goes back to the beginning, whether anything was sent or not. False: it was not kept, and cannot be sent again.
    pub(crate) fn rewind(&self) -> bool {
        let is_kept = self.keeps_sent.get() && self.fault.get().is_none();
        if !is_kept && !self.replayable() {
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
        self.taken.set(None);
        true
    }

    fn shrink(&self, bytes: usize) {
        if let Some(charge) = self.charge.borrow_mut().as_mut() {
            charge.shrink(bytes as u64);
        }
    }

    /// Notes a piece that is sent. It stays charged while it is kept, and is kept while memory is not scarce.
    fn note_sent(&self, piece: &Bytes) {
        let scarce = |charge: &BodyCharge| charge.is_scarce(self.buffers_max.get());
        if self.keeps_sent.get() && !self.charge.borrow().as_ref().is_some_and(scarce) {
            return self.sent.borrow_mut().push(piece.clone());
        }
        self.forget_sent();
        self.shrink(piece.len());
    }

    /// Counts what a client sent after its request had become a tunnel.
    pub(crate) fn tunnelled(&self, bytes: u64) {
        self.bytes.set(bytes);
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.get()
    }

    pub(crate) fn fault(&self) -> Option<BodyFault> {
        self.fault.get()
    }

    /// What has not been read, to be dropped in small amounts; from now on the member gets no more of it.
    pub(crate) fn rest(&self) -> Option<ClientBody> {
        if self.finished.get().is_some() {
            None
        } else {
            self.incoming.borrow_mut().take()
        }
    }

    /// What a member is sent.
    fn poll(&self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyFault>>> {
        let next = self.peeked.borrow_mut().pop();
        if let Some(data) = next {
            self.note_sent(&data);
            self.polled.set(true);
            self.taken.set(Some(Instant::now()));
            return Poll::Ready(Some(Ok(Frame::data(data))));
        }
        if self.finished.get().is_none() {
            self.polled.set(true);
        }
        let read = self.read(cx);
        self.taken.set(read.is_ready().then(Instant::now));
        read.map(|read| read.map(|read| read.map(Frame::data)))
    }

    /// What the client sends: counted, limited, without trailers.
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
        self.asked.set(true);
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

    /// The client is waited for, for as long as its rate and the limit on silence allow.
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

    /// Notes bytes that the client sent, and the time that it took for them. Bytes that were not waited for cost no look
    /// at the clock.
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

/// The request body that a member connection polls. A client that waits for `100 Continue` is polled only once that
/// connection is ready, so that it is answered after routing and access.
#[derive(Debug)]
pub struct RequestBody {
    upload: Rc<Upload>,
    attempt: u32,
}

impl RequestBody {
    /// The body for the next attempt; none before gets more of it.
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
