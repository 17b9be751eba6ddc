//! Bodies in both directions: streamed, counted, with a limit on silence; never gathered.

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
use hyper::body::Incoming;
use tokio::time::{Sleep, sleep_until};

use crate::{
    client_body::ClientBody,
    peeked::Peeked,
    record::{EndedBy, Exchanged},
};

/// Silence allowed in a body before a pool has its say.
const IDLE_DEFAULT: Duration = Duration::from_secs(60);

/// Bytes of a request body that are read before a member is asked.
const PEEK_BYTES_MAX: usize = 16 << 10;

/// What can be wrong with a request body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BodyFault {
    /// It is larger than the route allows.
    #[error("the request body is larger than {0} bytes")]
    TooLarge(u64),
    /// The client sent nothing for too long.
    #[error("the client sent nothing of its body for {0:?}")]
    Idle(Duration),
    /// The client broke the framing.
    #[error("the request body is not framed as its head says")]
    Broken,
    /// The client went away.
    #[error("the client broke off its body")]
    Gone,
}

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
    /// that is too large, is refused before a member sees its head. A client that waits to be told to send is not
    /// told by this.
    pub(crate) async fn peek(&self) -> Result<(), BodyFault> {
        if self.finished.get().is_some() || self.expects_continue {
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

/// A body that a member may not send.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ResponseFault {
    /// The member sent nothing for too long.
    #[error("the member sent nothing of its body for {0:?}")]
    Idle(Duration),
    /// The member went away or broke the framing.
    #[error("the member broke off its body")]
    Broken(#[source] hyper::Error),
}

/// The body of a response, which holds lease, connection and record until its end.
#[derive(Debug)]
pub(crate) struct ResponseBody {
    source: Source,
    exchanged: Option<Box<Exchanged>>,
}

/// Where a response's body comes from.
#[derive(Debug)]
enum Source {
    /// A text of our own: what is left of it.
    Local(Option<Bytes>),
    /// A member's, on its way through.
    Member(Incoming, IdleLimit),
}

impl ResponseBody {
    pub(crate) fn local(text: Bytes, exchanged: Box<Exchanged>) -> Self {
        Self::new(Source::Local((!text.is_empty()).then_some(text)), exchanged)
    }

    /// None at all, behind a 101: the exchange goes on as a tunnel.
    pub(crate) fn none() -> Self {
        Self {
            source: Source::Local(None),
            exchanged: None,
        }
    }

    pub(crate) fn member(incoming: Incoming, idle: Duration, exchanged: Box<Exchanged>) -> Self {
        Self::new(Source::Member(incoming, IdleLimit::new(idle)), exchanged)
    }

    fn new(source: Source, exchanged: Box<Exchanged>) -> Self {
        let mut body = Self {
            source,
            exchanged: Some(exchanged),
        };
        // hyper never polls a body that says it has ended.
        if body.is_end_stream() {
            body.end(EndedBy::Completion);
        }
        body
    }

    /// The end of the exchange, if it has not ended before.
    pub(crate) fn end(&mut self, by: EndedBy) {
        if let Some(exchanged) = self.exchanged.take() {
            exchanged.end(by);
        }
    }

    /// The next data. After the last of it the exchange has not ended: whoever sends it says when it has gone.
    pub(crate) fn poll_data(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, ResponseFault>>> {
        let polled = match &mut self.source {
            Source::Local(text) => Poll::Ready(Ok(text.take())),
            Source::Member(incoming, idle) => poll_member(incoming, idle, cx),
        };
        let Poll::Ready(data) = polled else {
            return Poll::Pending;
        };
        if let (Ok(Some(data)), Some(exchanged)) = (&data, &mut self.exchanged) {
            exchanged.sent(data.len());
        }
        match &data {
            Ok(Some(_)) => {}
            Ok(None) => self.end(EndedBy::Completion),
            Err(ResponseFault::Idle(_)) => self.end(EndedBy::MemberIdle),
            Err(ResponseFault::Broken(_)) => self.end(EndedBy::Member),
        }
        Poll::Ready(data.transpose())
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = ResponseFault;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ResponseFault>>> {
        let polled = self.poll_data(cx);
        // hyper asks no more once a body says that it has ended.
        if polled.is_ready() && self.is_end_stream() {
            self.end(EndedBy::Completion);
        }
        polled.map(|data| data.map(|data| data.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        match &self.source {
            Source::Local(text) => text.is_none(),
            Source::Member(incoming, _) => incoming.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.source {
            Source::Local(text) => {
                SizeHint::with_exact(text.as_ref().map_or(0, |text| text.len() as u64))
            }
            Source::Member(incoming, _) => incoming.size_hint(),
        }
    }
}

/// The next data of a member's body; trailers are dropped.
fn poll_member(
    incoming: &mut Incoming,
    idle: &mut IdleLimit,
    cx: &mut Context<'_>,
) -> Poll<Result<Option<Bytes>, ResponseFault>> {
    loop {
        return match Pin::new(&mut *incoming).poll_frame(cx) {
            Poll::Pending => idle
                .poll_exceeded(cx)
                .map(|limit| Err(ResponseFault::Idle(limit))),
            Poll::Ready(None) => Poll::Ready(Ok(None)),
            Poll::Ready(Some(Err(error))) => Poll::Ready(Err(ResponseFault::Broken(error))),
            Poll::Ready(Some(Ok(frame))) => {
                idle.touch();
                match frame.into_data() {
                    Ok(data) => Poll::Ready(Ok(Some(data))),
                    Err(_) => continue,
                }
            }
        };
    }
}

/// A limit on silence that costs a timer only while waiting.
#[derive(Debug)]
pub(crate) struct IdleLimit {
    limit: Duration,
    timer: Option<Pin<Box<Sleep>>>,
}

impl IdleLimit {
    pub(crate) fn new(limit: Duration) -> Self {
        Self { limit, timer: None }
    }

    fn touch(&mut self) {
        self.timer = None;
    }

    /// Ready with the limit once nothing came for so long. Silence counts from the first wait after the last frame:
    /// while nobody asks for more, nobody is late.
    fn poll_exceeded(&mut self, cx: &mut Context<'_>) -> Poll<Duration> {
        let limit = self.limit;
        let timer = self
            .timer
            .get_or_insert_with(|| Box::pin(sleep_until(tokio::time::Instant::now() + limit)));
        timer.as_mut().poll(cx).map(|()| limit)
    }
}
