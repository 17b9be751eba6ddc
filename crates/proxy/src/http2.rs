//! HTTP/2 towards clients: frames of one connection, and each of its streams as a request like any other.
//!
//! h2 keeps the protocol: frames, header compression, flow control, and most of what a hostile peer may try. What is
//! said here is when a connection ends, how many requests may be taken back, and how bodies flow.

use std::{
    cell::RefCell,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use h2::{
    Reason, RecvStream,
    server::{Connection, Handshake, SendResponse},
};
use http::{Request, StatusCode};
use listener::{ListenerSettings, TlsIo};
use telemetry::Limit;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    task::JoinSet,
    time::{Instant, Sleep, sleep},
};

use crate::{
    connection::Conn,
    exceeded_limit::ExceededLimit,
    http2_transport::Http2Transport,
    open_stream::OpenStream,
    protocol_errors,
    reason::LogReason,
    stream::{ReadLimits, answer},
    streams::{RefusedHead, Streams},
    worker::Worker,
};

/// Bytes of a request's body that a client may send ahead, and of all bodies of a connection: the most that it makes us
/// hold of what members do not take. There is room for as many streams as there may be, so that those whose members take
/// nothing leave the others theirs; where `streams_max` is so large that it would not fit, each has less, down to a frame.
const STREAM_WINDOW_BYTES: u32 = 64 << 10;
const STREAM_WINDOW_BYTES_MIN: u32 = 16 << 10;
const CONNECTION_WINDOW_BYTES_MAX: u32 = 8 << 20;
/// What a client may send in any case (RFC 9113, 6.9.2).
const CONNECTION_WINDOW_BYTES_MIN: u32 = 65_535;

/// Bytes of one answer that wait for the socket.
const SEND_BUFFER_BYTES_MAX: usize = 64 << 10;

/// Most requests that were taken back before we heard of them (CVE-2023-44487), and most streams that the client's own
/// mistakes ended. More, and the connection ends.
const PENDING_RESETS_MAX: usize = 20;
const FAULTY_STREAMS_MAX: usize = 100;

/// Heads larger than is allowed, up to so many times, are told so and recorded; larger ones h2 refuses by itself.
const HEAD_BYTES_FACTOR: usize = 2;

/// How long a connection that was told to end may stand without a request: the answer to our ping, which ends it at
/// once, takes a round trip. A client that is accepted no more has less.
const GOODBYE: Duration = Duration::from_secs(5);
const GOODBYE_REVOKED: Duration = Duration::from_secs(1);

/// How often a client that is slow with our last answers may be silent almost so long before it is cut.
const FAREWELL_TIMES_MAX: u32 = 6;
/// What it says then is of no more interest.
const FAREWELL_BYTES: usize = 1 << 10;

/// One connection: a future that ends with it. Its streams run as tasks of their own in `tasks`.
pub(crate) struct Http2<'a> {
    worker: &'a Rc<Worker>,
    conn: &'a Rc<Conn>,
    tasks: &'a RefCell<JoinSet<()>>,
    reading: ReadLimits,
    io: Rc<RefCell<TlsIo>>,
    state: State,
    goaway: GoawaySent,
    /// Until when requests may come that had set out before the client heard that no more are taken.
    taken_until: Option<Instant>,
    /// Whether the client last kept an answer waiting.
    stalled: bool,
    goodbye: Option<Pin<Box<Sleep>>>,
}

enum State {
    Handshake(Handshake<Http2Transport<TlsIo>, Bytes>),
    Open(Connection<Http2Transport<TlsIo>, Bytes>),
    Leaving(Box<Farewell>),
}

/// What the client was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GoawaySent {
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
        settings: &ListenerSettings,
        io: TlsIo,
        tasks: &'a RefCell<JoinSet<()>>,
    ) -> Self {
        let io = Rc::new(RefCell::new(io));
        let (stream_window, connection_window) = windows(settings.streams_max);
        let handshake = h2::server::Builder::new()
            .initial_window_size(stream_window)
            .initial_connection_window_size(connection_window)
            .max_send_buffer_size(SEND_BUFFER_BYTES_MAX)
            .max_concurrent_streams(settings.streams_max)
            .max_header_list_size(head_list_bytes_max(settings.head_bytes_max))
            .max_pending_accept_reset_streams(PENDING_RESETS_MAX)
            .max_local_error_reset_streams(Some(FAULTY_STREAMS_MAX))
            .handshake(Http2Transport::new(&io, conn));
        Self {
            worker,
            conn,
            tasks,
            reading: ReadLimits {
                write_timeout: settings.write_timeout,
                rates: conn.rates,
            },
            io,
            state: State::Handshake(handshake),
            goaway: GoawaySent::None,
            taken_until: None,
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
        self.conn.http2_streams()
    }

    /// Tells the client that the connection ends, if it does.
    fn send_goaway(&mut self) {
        if let Some(excess) = self.unsent_excess() {
            self.break_off(excess);
        } else if let State::Open(connection) = &mut self.state
            && self.conn.closing.get()
            && self.goaway == GoawaySent::None
        {
            self.goaway = GoawaySent::Graceful;
            connection.graceful_shutdown();
            self.taken_until = Some(Instant::now() + self.goodbye_time());
        }
    }

    /// What the client did too much of, if it was not told yet.
    fn unsent_excess(&self) -> Option<ExceededLimit> {
        let told = self.goaway == GoawaySent::Abrupt;
        self.streams().excess().filter(|_| !told)
    }

    fn break_off(&mut self, excess: ExceededLimit) {
        self.goaway = GoawaySent::Abrupt;
        self.conn.broken_off.set(Some(excess.reason()));
        protocol_errors::overstepped(self.worker, self.conn, excess);
        match &mut self.state {
            State::Open(connection) => connection.abrupt_shutdown(Reason::ENHANCE_YOUR_CALM),
            // There are no words for it before HTTP/2 has begun.
            State::Handshake(_) => self.part(),
            State::Leaving(_) => {}
        }
    }

    /// Starts a task for a request that has come.
    fn start(&self, request: Request<RecvStream>, mut respond: SendResponse<Bytes>) {
        let open = OpenStream::new(self.conn, respond.stream_id().as_u32());
        // h2 takes requests until the client has answered its ping; one that never does would never have to end.
        if self
            .taken_until
            .is_some_and(|until| until <= Instant::now())
        {
            respond.send_reset(Reason::REFUSED_STREAM);
            return open.cancelled();
        }
        let worker = Rc::clone(self.worker);
        let reading = self.reading;
        let mut tasks = self.tasks.borrow_mut();
        // What has ended is not kept until the connection ends.
        while tasks.try_join_next().is_some() {}
        // Boxed: the runtime would copy its kilobytes several times before it stands where it is polled.
        tasks.spawn_local(Box::pin(answer(worker, open, request, respond, reading)));
    }

    /// Whether a client that was told to end has had its time to do so.
    fn has_said_goodbye(&mut self, cx: &mut Context<'_>) -> bool {
        // Until HTTP/2 has begun nothing can be told, and a client that never begins it has its time all the same. An
        // answer that is on its way out has the time of a slow client.
        let told = self.goaway != GoawaySent::None || self.conn.closing.get();
        if !told || self.stalled || !self.streams().is_idle() {
            self.goodbye = None;
            return false;
        }
        let time = self.goodbye_time();
        let goodbye = self.goodbye.get_or_insert_with(|| Box::pin(sleep(time)));
        goodbye.as_mut().poll(cx).is_ready()
    }

    fn goodbye_time(&self) -> Duration {
        match self.streams().turned_away.get() {
            true => GOODBYE_REVOKED,
            false => GOODBYE,
        }
    }

    /// HTTP/2 is over on this connection.
    fn part(&mut self) {
        self.streams().head_since.set(None);
        self.state = State::Leaving(Box::new(Farewell::new(self.goodbye_time())));
    }

    /// Every head leaves a record, those too that h2 refused by itself.
    fn record_refused(&self) {
        for refused in self.streams().take_refused() {
            let (status, reason, cause) = match refused {
                RefusedHead::Malformed => (
                    StatusCode::BAD_REQUEST,
                    LogReason::BadHead,
                    "a malformed request (RFC 9113, 8.1.1): its stream was reset",
                ),
                RefusedHead::Large => {
                    self.conn.metrics.limit(Limit::Head);
                    let status = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
                    (
                        status,
                        LogReason::HeadTooLarge,
                        "a head of more than twice head_max",
                    )
                }
            };
            protocol_errors::no_request(self.worker, self.conn, status, reason, cause.to_owned());
        }
    }

    /// An answer that the client takes slowly is on its way out after its stream has ended: no idle time.
    fn note_stall(&mut self) {
        let stalled = self.conn.activity.write_stalled().is_some();
        if self.stalled && !stalled {
            self.streams().rest();
        }
        self.stalled = stalled;
    }
}

impl Future for Http2<'_> {
    type Output = Result<(), h2::Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        this.streams().driven_by(cx.waker());
        loop {
            this.send_goaway();
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
                State::Leaving(farewell) => {
                    return farewell.poll(cx, &mut this.io.borrow_mut()).map(Ok);
                }
            };
            this.record_refused();
            match polled {
                Poll::Ready(Some(Ok((request, respond)))) => this.start(request, respond),
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Err(error)),
                Poll::Ready(None) => this.part(),
                Poll::Pending => {
                    if this.unsent_excess().is_some() {
                        continue;
                    }
                    this.note_stall();
                    if !this.has_said_goodbye(cx) {
                        return Poll::Pending;
                    }
                    this.part();
                }
            }
        }
    }
}

/// The end of a connection whose last answers may still be on their way. The client says of each piece that it has taken
/// it (WINDOW_UPDATE); where it says so to a socket that is closed already, the system throws away the rest. So it is
/// told that nothing more comes, and heard until it has nothing to say.
struct Farewell {
    time: Duration,
    silence: Pin<Box<Sleep>>,
    limit: Pin<Box<Sleep>>,
}

impl Farewell {
    fn new(time: Duration) -> Self {
        Self {
            time,
            silence: Box::pin(sleep(time)),
            limit: Box::pin(sleep(time * FAREWELL_TIMES_MAX)),
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>, io: &mut TlsIo) -> Poll<()> {
        let told = Pin::new(&mut *io).poll_shutdown(cx);
        if matches!(told, Poll::Ready(Err(_))) || self.limit.as_mut().poll(cx).is_ready() {
            return Poll::Ready(());
        }
        let mut bytes = [0; FAREWELL_BYTES];
        loop {
            let mut said = ReadBuf::new(&mut bytes);
            match Pin::new(&mut *io).poll_read(cx, &mut said) {
                Poll::Ready(Ok(())) if !said.filled().is_empty() => {
                    self.silence.as_mut().reset(Instant::now() + self.time);
                }
                Poll::Ready(_) => return Poll::Ready(()),
                Poll::Pending => return self.silence.as_mut().poll(cx),
            }
        }
    }
}

/// Bytes that may come ahead: of one stream, of all.
fn windows(streams_max: u32) -> (u32, u32) {
    let share = CONNECTION_WINDOW_BYTES_MAX / streams_max.max(1);
    let stream = share.clamp(STREAM_WINDOW_BYTES_MIN, STREAM_WINDOW_BYTES);
    let all = stream.saturating_mul(streams_max);
    let connection = all.clamp(CONNECTION_WINDOW_BYTES_MIN, CONNECTION_WINDOW_BYTES_MAX);
    (stream, connection)
}

/// What h2 is told of the largest head, by its measure: 32 bytes more for each field than there are.
fn head_list_bytes_max(head_bytes_max: usize) -> u32 {
    u32::try_from(head_bytes_max * HEAD_BYTES_FACTOR).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_stream_has_its_room_within_the_bound_of_the_connection() {
        for (streams_max, expected) in [
            (1, (64 << 10, 64 << 10)),
            (100, (64 << 10, 6400 << 10)),
            (128, (64 << 10, 8 << 20)),
            (256, (32 << 10, 8 << 20)),
            (512, (16 << 10, 8 << 20)),
            (10_000, (16 << 10, 8 << 20)),
        ] {
            assert_eq!(windows(streams_max), expected, "{streams_max}");
        }
    }
}
