//! The body of a request: streamed, counted, with limits on size and silence; never gathered.

use std::{
    cell::{Cell, RefCell},
    future::poll_fn,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll},
    time::{Duration, Instant},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use crate::{
    body_fault::BodyFault, client_body::ClientBody, idle_limit::IdleLimit, peeked::Peeked,
};

/// Silence allowed in a body before a pool has its say.
const IDLE_DEFAULT: Duration = Duration::from_secs(60);

/// Bytes of a request body that are read before a member is asked.
const PEEK_BYTES_MAX: usize = 16 << 10;

/// How far a request body has come; shared by the exchange and the body that the member connection polls.
#[derive(Debug)]
pub(crate) struct Upload {
    incoming: RefCell<Option<ClientBody>>,
    /// What was read before a member was asked, at most [`PEEK_BYTES_MAX`] and a frame.
    peeked: RefCell<Peeked>,
    limit: Cell<Option<u64>>,
    /// It is small enough to be read whole before a member is asked, and has the idle timeout for all of it: anybody
    /// may send an enrolment request, and nobody may hold a connection to the CA by sending it byte by byte.
    whole: Cell<bool>,
    idle: RefCell<IdleLimit>,
    /// The client waits for `100 Continue`, which is sent when the body is first polled.
    expects_continue: bool,
    /// Whether anything was asked of the body: from then on it cannot be sent to another member.
    polled: Cell<bool>,
    bytes: Cell<u64>,
    finished: Cell<Option<Instant>>,
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
            limit: Cell::new(None),
            whole: Cell::new(false),
            idle: RefCell::new(IdleLimit::new(IDLE_DEFAULT)),
            expects_continue,
            polled: Cell::new(false),
            bytes: Cell::new(0),
            finished: Cell::new(finished),
            taken: Cell::new(None),
            fault: Cell::new(None),
        })
    }

    /// Sets what the route and its pool allow.
    pub(crate) fn allow(&self, limit: Option<u64>, idle: Duration) {
        self.limit.set(limit);
        self.whole
            .set(limit.is_some_and(|limit| limit <= PEEK_BYTES_MAX as u64));
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

    /// Reads what has come of a body already, all of one that must be small, so that a body whose framing is broken, or
    /// that is too large, is refused before a member sees its head. A client that waits to be told to send is told by
    /// this where its body must be small, and otherwise not.
    pub(crate) async fn peek(&self) -> Result<(), BodyFault> {
        if self.finished.get().is_some() || (self.expects_continue && !self.whole.get()) {
            return Ok(());
        }
        let mut peeked = 0;
        let mut waited = false;
        while self.whole.get() || peeked < PEEK_BYTES_MAX {
            let read = if self.whole.get() {
                Poll::Ready(poll_fn(|cx| self.read(cx)).await)
            } else {
                poll_fn(|cx| Poll::Ready(self.read(cx))).await
            };
            match read {
                Poll::Ready(Some(Ok(data))) => {
                    waited = false;
                    peeked += data.len();
                    self.peeked.borrow_mut().push(data);
                }
                Poll::Ready(Some(Err(fault))) => return Err(fault),
                Poll::Ready(None) => return Ok(()),
                Poll::Pending if waited => return Ok(()),
                // hyper reads the next piece once it was asked for and is given a turn.
                Poll::Pending => {
                    waited = true;
                    tokio::task::yield_now().await;
                }
            }
            if self.finished.get().is_some() {
                return Ok(());
            }
        }
        Ok(())
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
        self.expects_continue && !self.polled.get() && self.finished.get().is_none()
    }

    /// When the last byte was read from the client.
    pub(crate) fn finished(&self) -> Option<Instant> {
        self.finished.get()
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
        if let Some(data) = self.peeked.borrow_mut().pop() {
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
        match body.poll_data(cx) {
            Poll::Pending => match self.idle.borrow_mut().poll_exceeded(cx) {
                Poll::Pending => Poll::Pending,
                Poll::Ready(limit) => Poll::Ready(Some(Err(self.fail(BodyFault::Idle(limit))))),
            },
            Poll::Ready(None) => {
                self.finish();
                Poll::Ready(None)
            }
            Poll::Ready(Some(Err(fault))) => Poll::Ready(Some(Err(self.fail(fault)))),
            Poll::Ready(Some(Ok(data))) => {
                if !self.whole.get() {
                    self.idle.borrow_mut().touch();
                }
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
pub struct RequestBody(pub(crate) Rc<Upload>);

impl Body for RequestBody {
    type Data = Bytes;
    type Error = BodyFault;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyFault>>> {
        self.0.poll(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.0.finished.get().is_some() && self.0.peeked.borrow().is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.size_hint()
    }
}
