//! HTTP/2 towards clients: frames of one connection, and each of its streams as a request like any other.
//!
//! h2 keeps the protocol: frames, header compression, flow control, and most of what a hostile peer may try. What is
//! said here is when a connection ends, how many requests may be taken back, and how bodies flow.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    future::poll_fn,
    pin::{Pin, pin},
    rc::Rc,
    task::{Context, Poll, Waker},
    time::{Duration, Instant},
};

use bytes::Bytes;
use h2::{
    Reason, RecvStream, SendStream,
    server::{Connection, Handshake, SendResponse},
};
use http::{
    HeaderMap, HeaderValue, Request, Response, StatusCode,
    header::{CONTENT_LENGTH, COOKIE, DATE, EXPECT, HOST},
    request::Parts,
};
use http_body::Body;
use listener::{Settings, TlsIo};
use telemetry::Limit;
use tokio::{
    sync::Notify,
    task::JoinSet,
    time::{Sleep, sleep, timeout},
};

use crate::{
    body::{BodyFault, ResponseBody},
    client_body::StreamBody,
    connection::Conn,
    date,
    exchange::{give_up, handle},
    frames::{Refused, Seen},
    record::{self, EndedBy},
    sanitize::Insane,
    worker::Worker,
};

/// Bytes of request bodies that a client may send ahead, for one stream and for all of a connection: the most that a
/// connection makes us hold of what its members do not take.
const STREAM_WINDOW_BYTES: u32 = 256 << 10;
const CONNECTION_WINDOW_BYTES: u32 = 1 << 20;

/// Bytes of one answer that wait for the socket.
const SEND_BUFFER_BYTES_MAX: usize = 64 << 10;

/// Most requests that were taken back before we heard of them (CVE-2023-44487), and most streams that the client's own
/// mistakes ended. More, and the connection ends.
const PENDING_RESETS_MAX: usize = 20;
const FAULTY_STREAMS_MAX: usize = 100;

/// Requests that a client may take back beyond those that it let be answered: each costs a member a connection.
const RESETS_AHEAD_MAX: u64 = 100;

/// Streams that were passed over and are remembered until something is heard of them: those refused by h2 whose refusal
/// waits for the socket. More, and a record may be missing.
const PASSED_STREAMS_MAX: usize = 100;

/// Heads larger than is allowed, up to so many times, are told so and recorded; larger ones h2 refuses by itself.
const HEAD_TOLD_FACTOR: usize = 2;

/// How long a connection that was told to end may stand without a request: the answer to our ping, which ends it at
/// once, takes a round trip. A client that is accepted no more has less.
const GOODBYE: Duration = Duration::from_secs(5);
const GOODBYE_REVOKED: Duration = Duration::from_secs(1);

/// The requests of one connection, where it carries several at once.
#[derive(Debug)]
pub(crate) struct Streams {
    pub(crate) head_bytes_max: usize,
    in_flight: Cell<u32>,
    /// Which numbers became requests: all up to the last, but those passed over.
    taken: RefCell<Taken>,
    /// Heads that h2 refused by itself, to be recorded.
    refused: RefCell<Vec<Refused>>,
    idle_since: Cell<Instant>,
    answered: Cell<u64>,
    resets: Cell<u64>,
    /// The client was accepted once and is no more.
    pub(crate) turned_away: Cell<bool>,
    /// Generation of the trust store that came while a stream was in flight, if one did.
    busy_at_swap: Cell<Option<u64>>,
    /// The task that drives the connection.
    driver: RefCell<Option<Waker>>,
}

impl Streams {
    pub(crate) fn new(settings: &Settings) -> Self {
        Self {
            head_bytes_max: settings.head_bytes_max,
            in_flight: Cell::new(0),
            taken: RefCell::default(),
            refused: RefCell::default(),
            idle_since: Cell::new(Instant::now()),
            answered: Cell::new(0),
            resets: Cell::new(0),
            turned_away: Cell::new(false),
            busy_at_swap: Cell::new(None),
            driver: RefCell::new(None),
        }
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.in_flight.get() == 0
    }

    /// Notes a frame that h2 sent, if no request of ours asked for it.
    pub(crate) fn refuse(&self, stream: u32, refused: Refused) {
        if self.taken.borrow_mut().is_not(stream) {
            self.refused.borrow_mut().push(refused);
        }
    }

    /// Whether a stream was in flight when this trust store came: the next is told, whatever the connection does now.
    pub(crate) fn was_busy_at(&self, trust_generation: u64) -> bool {
        self.busy_at_swap.get() == Some(trust_generation)
    }

    /// When the last stream ended, or an answer that the client took slowly had gone.
    pub(crate) fn idle_since(&self) -> Instant {
        self.idle_since.get()
    }

    fn is_flooded(&self) -> bool {
        self.resets.get() > self.answered.get() + RESETS_AHEAD_MAX
    }

    fn wake_driver(&self) {
        if let Some(driver) = self.driver.borrow().as_ref() {
            driver.wake_by_ref();
        }
    }
}

/// Which streams became requests. They do so in the order of their numbers, so that few need be remembered.
#[derive(Debug, Default)]
struct Taken {
    last: u32,
    /// Numbers below that were passed over, and not heard of since.
    passed: VecDeque<u32>,
}

impl Taken {
    fn note(&mut self, stream: u32) {
        let between = (self.last + 1..stream).filter(|number| number % 2 == 1);
        self.passed.extend(between.take(PASSED_STREAMS_MAX));
        while self.passed.len() > PASSED_STREAMS_MAX {
            self.passed.pop_front();
        }
        self.last = stream;
    }

    /// Whether it did not, told once.
    fn is_not(&mut self, stream: u32) -> bool {
        if stream > self.last {
            return true;
        }
        let place = self.passed.iter().position(|passed| *passed == stream);
        place.and_then(|place| self.passed.remove(place)).is_some()
    }
}

/// A stream whose request is being answered.
struct OpenStream {
    conn: Rc<Conn>,
}

impl OpenStream {
    fn new(conn: &Rc<Conn>, number: u32) -> Self {
        let this = Self {
            conn: Rc::clone(conn),
        };
        let streams = this.streams();
        streams.taken.borrow_mut().note(number);
        streams.in_flight.set(streams.in_flight.get() + 1);
        this
    }

    fn streams(&self) -> &Streams {
        self.conn
            .streams
            .as_ref()
            .expect("a connection with streams has been told so")
    }

    /// Notes a change of trust that the connection's own task may not have heard of yet: it would find the connection
    /// idle, though it was busy then.
    fn note_swap(&self, worker: &Worker) {
        let trust_generation = worker.current().trust.generation();
        if trust_generation != self.conn.trust_generation() {
            self.streams().busy_at_swap.set(Some(trust_generation));
        }
    }

    /// Notes that the client took its request back.
    fn taken_back(&self) {
        let streams = self.streams();
        streams.resets.set(streams.resets.get() + 1);
    }

    fn answered(&self) {
        let streams = self.streams();
        streams.answered.set(streams.answered.get() + 1);
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        let streams = self.streams();
        streams.in_flight.set(streams.in_flight.get() - 1);
        if streams.is_idle() {
            streams.idle_since.set(Instant::now());
        }
        if self.conn.closing.get() || streams.is_flooded() {
            streams.wake_driver();
        }
    }
}

/// One connection: a future that ends with it. Its streams run as tasks of their own in `tasks`.
pub(crate) struct Http2<'a> {
    worker: &'a Rc<Worker>,
    conn: &'a Rc<Conn>,
    tasks: &'a RefCell<JoinSet<()>>,
    write_timeout: Duration,
    state: State,
    ending: Ending,
    /// Whether the client last kept an answer waiting.
    stalled: bool,
    goodbye: Option<Pin<Box<Sleep>>>,
}

enum State {
    Handshake(Handshake<Seen<TlsIo>, Bytes>),
    Open(Connection<Seen<TlsIo>, Bytes>),
}

/// What the client was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    /// Nothing.
    None,
    /// That no more requests are taken once those on their way are here.
    Graceful,
    /// That it asks too much.
    Abrupt,
}

impl<'a> Http2<'a> {
    pub(crate) fn new(
        worker: &'a Rc<Worker>,
        conn: &'a Rc<Conn>,
        settings: &Settings,
        io: TlsIo,
        tasks: &'a RefCell<JoinSet<()>>,
    ) -> Self {
        let handshake = h2::server::Builder::new()
            .initial_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .max_send_buffer_size(SEND_BUFFER_BYTES_MAX)
            .max_concurrent_streams(settings.streams_max)
            .max_header_list_size(head_list_bytes_max(settings.head_bytes_max))
            .max_pending_accept_reset_streams(PENDING_RESETS_MAX)
            .max_local_error_reset_streams(Some(FAULTY_STREAMS_MAX))
            .handshake(Seen::new(io, conn));
        Self {
            worker,
            conn,
            tasks,
            write_timeout: settings.write_timeout,
            state: State::Handshake(handshake),
            ending: Ending::None,
            stalled: false,
            goodbye: None,
        }
    }

    /// Tells the client that the connection takes no more requests.
    pub(crate) fn leave(&self) {
        self.conn.closing.set(true);
        self.streams().wake_driver();
    }

    fn streams(&self) -> &'a Streams {
        self.conn
            .streams
            .as_ref()
            .expect("a connection with streams has been told so")
    }

    /// Tells the client that the connection ends, if it does.
    fn tell_ending(&mut self) {
        let flooded = self.streams().is_flooded();
        let State::Open(connection) = &mut self.state else {
            return;
        };
        if flooded && self.ending != Ending::Abrupt {
            self.ending = Ending::Abrupt;
            self.conn.metrics.limit(Limit::Resets);
            self.conn.broken_off.set(Some("too-many-resets"));
            connection.abrupt_shutdown(Reason::ENHANCE_YOUR_CALM);
        } else if self.conn.closing.get() && self.ending == Ending::None {
            self.ending = Ending::Graceful;
            connection.graceful_shutdown();
        }
    }

    /// Starts a task for a request that has come.
    fn start(&self, request: Request<RecvStream>, respond: SendResponse<Bytes>) {
        let open = OpenStream::new(self.conn, respond.stream_id().as_u32());
        let worker = Rc::clone(self.worker);
        let write_timeout = self.write_timeout;
        let mut tasks = self.tasks.borrow_mut();
        // What has ended is not kept until the connection ends.
        while tasks.try_join_next().is_some() {}
        tasks.spawn_local(answer(worker, open, request, respond, write_timeout));
    }

    /// Whether a client that was told to end has had its time to do so.
    fn has_said_goodbye(&mut self, cx: &mut Context<'_>) -> bool {
        if self.ending == Ending::None || !self.streams().is_idle() {
            self.goodbye = None;
            return false;
        }
        let time = match self.streams().turned_away.get() {
            true => GOODBYE_REVOKED,
            false => GOODBYE,
        };
        let goodbye = self.goodbye.get_or_insert_with(|| Box::pin(sleep(time)));
        goodbye.as_mut().poll(cx).is_ready()
    }

    /// Every head leaves a record, those too that h2 refused by itself.
    fn record_refused(&self) {
        let refused = std::mem::take(&mut *self.streams().refused.borrow_mut());
        for refused in refused {
            let (status, reason, cause) = match refused {
                Refused::Malformed => (
                    StatusCode::BAD_REQUEST,
                    "bad-head",
                    "a malformed request (RFC 9113, 8.1.1): its stream was reset",
                ),
                Refused::Large => {
                    self.conn.metrics.limit(Limit::Head);
                    let status = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
                    (
                        status,
                        "head-too-large",
                        "a head of more than twice head_max",
                    )
                }
            };
            record::no_request(self.worker, self.conn, status, reason, cause.to_owned());
        }
    }

    /// An answer that the client takes slowly is on its way out after its stream has ended: no idle time.
    fn note_stall(&mut self) {
        let stalled = self.conn.activity.write_stalled().is_some();
        if self.stalled && !stalled {
            self.streams().idle_since.set(Instant::now());
        }
        self.stalled = stalled;
    }
}

impl Future for Http2<'_> {
    type Output = Result<(), h2::Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        *this.streams().driver.borrow_mut() = Some(cx.waker().clone());
        loop {
            this.tell_ending();
            let polled = match &mut this.state {
                State::Handshake(handshake) => match Pin::new(handshake).poll(cx) {
                    Poll::Ready(Ok(connection)) => {
                        this.state = State::Open(connection);
                        continue;
                    }
                    Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                    Poll::Pending => Poll::Pending,
                },
                State::Open(connection) => connection.poll_accept(cx),
            };
            this.record_refused();
            match polled {
                Poll::Ready(Some(Ok((request, respond)))) => this.start(request, respond),
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Err(error)),
                Poll::Ready(None) => return Poll::Ready(Ok(())),
                Poll::Pending => {
                    this.note_stall();
                    return match this.has_said_goodbye(cx) {
                        true => Poll::Ready(Ok(())),
                        false => Poll::Pending,
                    };
                }
            }
        }
    }
}

/// One request to the last byte of its answer, unless the client takes it back.
async fn answer(
    worker: Rc<Worker>,
    open: OpenStream,
    request: Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
    write_timeout: Duration,
) {
    let (mut head, data) = request.into_parts();
    as_http1(&mut head);
    let wanted = Rc::new(Notify::new());
    let expects = head.headers.contains_key(EXPECT) && !data.is_end_stream();
    let length = declared_length(&head.headers);
    let body = StreamBody::new(data, length, expects.then(|| Rc::clone(&wanted)));
    let request = Request::from_parts(head, body);
    // Nobody is asked for what was taken back, or is known to be malformed, before it was looked at.
    if let Poll::Ready(ended) = poll_fn(|cx| Poll::Ready(respond.poll_reset(cx))).await {
        let fault = matches!(ended, Ok(Reason::PROTOCOL_ERROR)).then_some(BodyFault::Broken);
        give_up(&worker, &open.conn, request, fault);
        return open.taken_back();
    }
    let mut handling = pin!(handle(Rc::clone(&worker), Rc::clone(&open.conn), request));
    let response = loop {
        tokio::select! {
            biased;
            _ = poll_fn(|cx| respond.poll_reset(cx)) => return open.taken_back(),
            response = handling.as_mut() => break response,
            () = wanted.notified() => {
                let mut interim = Response::new(());
                *interim.status_mut() = StatusCode::CONTINUE;
                // A client that has gone is told by the next poll.
                let _ = respond.send_informational(interim);
            }
        }
    };
    let sent = send(response, respond, write_timeout).await;
    open.note_swap(&worker);
    match sent {
        Ok(()) => open.answered(),
        Err(Unsent::TakenBack) => open.taken_back(),
        Err(Unsent::Stalled) => open.conn.metrics.limit(Limit::WriteTimeout),
        Err(Unsent::Broken) => {}
    }
}

/// Why an answer did not go out whole.
enum Unsent {
    /// The client wants no more of it, or is gone.
    TakenBack,
    /// The client took nothing of it for too long.
    Stalled,
    /// There is no more of it to be had.
    Broken,
}

/// Sends an answer as fast as the client takes it: of a body one piece is held that the client has no room for.
async fn send(
    response: Response<ResponseBody>,
    mut respond: SendResponse<Bytes>,
    write_timeout: Duration,
) -> Result<(), Unsent> {
    let (mut head, mut body) = response.into_parts();
    if !head.headers.contains_key(DATE) {
        head.headers.insert(DATE, date::now());
    }
    let empty = body.is_end_stream();
    let sent = respond.send_response(Response::from_parts(head, ()), empty);
    let mut stream = sent.map_err(|_| Unsent::TakenBack)?;
    if empty {
        return Ok(());
    }
    loop {
        let next = tokio::select! {
            biased;
            _ = poll_fn(|cx| stream.poll_reset(cx)) => return Err(Unsent::TakenBack),
            next = poll_fn(|cx| body.poll_data(cx)) => next,
        };
        let (data, last) = match next {
            Some(Ok(data)) => (data, body.is_end_stream()),
            Some(Err(_)) => {
                stream.send_reset(Reason::INTERNAL_ERROR);
                return Err(Unsent::Broken);
            }
            None => (Bytes::new(), true),
        };
        match send_piece(&mut stream, data, last, write_timeout).await {
            Ok(()) if last => {
                body.end(EndedBy::Completion);
                return Ok(());
            }
            Ok(()) => {}
            Err(Unsent::Stalled) => {
                body.end(EndedBy::Us("write-timeout"));
                stream.send_reset(Reason::CANCEL);
                return Err(Unsent::Stalled);
            }
            Err(unsent) => return Err(unsent),
        }
    }
}

/// Sends one piece of a body, in as many frames as the client gives room for.
async fn send_piece(
    stream: &mut SendStream<Bytes>,
    mut data: Bytes,
    last: bool,
    write_timeout: Duration,
) -> Result<(), Unsent> {
    loop {
        // Asked for only now that there is something to send: room that is reserved and not used is room that the
        // connection's other streams do not have.
        let room = match data.len() {
            0 => 0,
            length => {
                stream.reserve_capacity(length);
                room(stream, write_timeout).await?
            }
        };
        let piece = data.split_to(room.min(data.len()));
        let end = last && data.is_empty();
        if !piece.is_empty() || end {
            let sent = stream.send_data(piece, end);
            sent.map_err(|_| Unsent::TakenBack)?;
        }
        if data.is_empty() {
            return Ok(());
        }
    }
}

/// How much may be sent now; waits while that is nothing.
async fn room(stream: &mut SendStream<Bytes>, write_timeout: Duration) -> Result<usize, Unsent> {
    if stream.capacity() > 0 {
        return Ok(stream.capacity());
    }
    let more = poll_fn(|cx| {
        loop {
            match stream.poll_capacity(cx) {
                Poll::Ready(Some(Ok(0))) => {}
                Poll::Ready(Some(Ok(room))) => return Poll::Ready(Ok(room)),
                Poll::Ready(Some(Err(_)) | None) => return Poll::Ready(Err(Unsent::TakenBack)),
                Poll::Pending => return Poll::Pending,
            }
        }
    });
    match timeout(write_timeout, more).await {
        Ok(room) => room,
        Err(_) => Err(Unsent::Stalled),
    }
}

/// Says in fields what HTTP/1.1 says there: the authority is the Host (RFC 9113, 8.3.1), and a cookie is one line
/// (8.2.3). A Host that is there as well stays, to be compared.
fn as_http1(head: &mut Parts) {
    if !head.headers.contains_key(HOST)
        && let Some(authority) = head.uri.authority()
        && let Ok(host) = HeaderValue::from_str(authority.as_str())
    {
        head.headers.insert(HOST, host);
    }
    let mut crumbs = head.headers.get_all(COOKIE).iter();
    if let (Some(first), Some(second)) = (crumbs.next(), crumbs.next()) {
        let rest = crumbs.map(HeaderValue::as_bytes);
        let all: Vec<_> = [first.as_bytes(), second.as_bytes()]
            .into_iter()
            .chain(rest)
            .collect();
        if let Ok(cookie) = HeaderValue::from_bytes(&all.join(&b"; "[..])) {
            head.headers.insert(COOKIE, cookie);
        }
    }
}

/// Checks what hyper checks of an HTTP/1.1 head: its size and number of fields; and that no value begins or ends with
/// white space (RFC 9113, 8.2.1), which a member would read as another value.
pub(crate) fn check_head(head: &Parts, streams: &Streams) -> Result<(), Insane> {
    let fields: usize = head
        .headers
        .iter()
        .map(|(name, value)| name.as_str().len() + value.len() + ": \r\n".len())
        .sum();
    let target = head.uri.path_and_query().map_or(0, |t| t.as_str().len());
    if fields + target + head.method.as_str().len() > streams.head_bytes_max {
        return Err(Insane::Large("bytes than `head_max` allows"));
    }
    if head.headers.len() > FIELDS_MAX {
        return Err(Insane::Large("than 100 fields"));
    }
    let padded = |value: &HeaderValue| value.as_bytes() != value.as_bytes().trim_ascii();
    if head.headers.values().any(padded) {
        return Err(Insane::Field);
    }
    Ok(())
}

fn declared_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// What h2 is told of the largest head, by its measure: 32 bytes more for each field than there are.
fn head_list_bytes_max(head_bytes_max: usize) -> u32 {
    u32::try_from(head_bytes_max * HEAD_TOLD_FACTOR).unwrap_or(u32::MAX)
}

/// As many as hyper takes of an HTTP/1.1 head.
const FIELDS_MAX: usize = 100;
