//! HTTP/2 towards clients: the frames of one connection, and each of its streams as a request.
//!
//! h2 implements the protocol: frames, header compression, flow control, and most defences against hostile peers. This
//! file decides when a connection closes, how many requests may be cancelled, and how much body data is in flight.

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

/// Maximum bytes of request bodies that a client may send before members read them, for one stream and for one connection. They
/// bound the memory for such bodies. The connection window has room for all streams, so that stalled streams do not block the
/// others. If `streams_max` is too large for that, each stream gets less, but at least one frame.
const STREAM_WINDOW_BYTES: u32 = 64 << 10;
const STREAM_WINDOW_BYTES_MIN: u32 = 16 << 10;
const CONNECTION_WINDOW_BYTES_MAX: u32 = 8 << 20;
/// The minimum that RFC 9113, 6.9.2 lets a client send.
const CONNECTION_WINDOW_BYTES_MIN: u32 = 65_535;

/// Maximum bytes of one response that wait for the socket.
const SEND_BUFFER_BYTES_MAX: usize = 64 << 10;

/// Maximum number of requests that the client cancelled before the proxy accepted them (CVE-2023-44487), and maximum number of
/// streams that h2 reset because of the client's errors. Beyond either, the connection closes.
const PENDING_RESETS_MAX: usize = 20;
const FAULTY_STREAMS_MAX: usize = 100;

/// A head of up to this many times the maximum gets a response that names the limit, and a record with the request. h2 itself
/// refuses larger heads.
const HEAD_BYTES_FACTOR: usize = 2;

/// How long a connection without a request may stay open after its GOAWAY. Usually it closes after a round trip, when the
/// client responds to the ping. A client that is no longer accepted gets less time.
const GOODBYE: Duration = Duration::from_secs(5);
const GOODBYE_REVOKED: Duration = Duration::from_secs(1);

/// How long a client may take to read the last responses before it is cut off, as a multiple of the farewell time.
const FAREWELL_TIMES_MAX: u32 = 6;
/// Size of the buffer for bytes that the client still sends. They are discarded.
const FAREWELL_BYTES: usize = 1 << 10;

/// One connection, as a future that completes when the connection ends. Its streams run as separate tasks in `tasks`.
pub(crate) struct Http2<'a> {
    worker: &'a Rc<Worker>,
    conn: &'a Rc<Conn>,
    tasks: &'a RefCell<JoinSet<()>>,
    reading: ReadLimits,
    io: Rc<RefCell<TlsIo>>,
    state: State,
    goaway: GoawaySent,
    /// Until this time, requests that the client sent before it received the GOAWAY are accepted.
    accept_until: Option<Instant>,
    /// Whether writes to the client were stalled at the last poll.
    stalled: bool,
    goodbye: Option<Pin<Box<Sleep>>>,
}

enum State {
    Handshake(Handshake<Http2Transport<TlsIo>, Bytes>),
    Open(Connection<Http2Transport<TlsIo>, Bytes>),
    Leaving(Box<Farewell>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GoawaySent {
    None,
    /// Requests that the client has already sent are still accepted.
    Graceful,
    /// `ENHANCE_YOUR_CALM`: the client exceeded a limit.
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
            accept_until: None,
            stalled: false,
            goodbye: None,
        }
    }

    /// Requests that a GOAWAY is sent, so that the connection accepts no more requests.
    pub(crate) fn leave(&self) {
        self.conn.closing.set(true);
        self.streams().wake_driver();
    }

    fn streams(&self) -> &'a Streams {
        self.conn.http2_streams()
    }

    fn send_goaway(&mut self) {
        if let Some(excess) = self.unsent_excess() {
            self.break_off(excess);
        } else if let State::Open(connection) = &mut self.state
            && self.conn.closing.get()
            && self.goaway == GoawaySent::None
        {
            self.goaway = GoawaySent::Graceful;
            connection.graceful_shutdown();
            self.accept_until = Some(Instant::now() + self.goodbye_time());
        }
    }

    /// The limit that the client exceeded, if no GOAWAY was sent for it yet.
    fn unsent_excess(&self) -> Option<ExceededLimit> {
        let sent = self.goaway == GoawaySent::Abrupt;
        self.streams().excess().filter(|_| !sent)
    }

    fn break_off(&mut self, excess: ExceededLimit) {
        self.goaway = GoawaySent::Abrupt;
        self.conn.broken_off.set(Some(excess.reason()));
        protocol_errors::overstepped(self.worker, self.conn, excess);
        match &mut self.state {
            State::Open(connection) => connection.abrupt_shutdown(Reason::ENHANCE_YOUR_CALM),
            // Before the HTTP/2 handshake no GOAWAY can be sent.
            State::Handshake(_) => self.end_http2(),
            State::Leaving(_) => {}
        }
    }

    fn start(&self, request: Request<RecvStream>, mut respond: SendResponse<Bytes>) {
        let open = OpenStream::new(self.conn, respond.stream_id().as_u32());
        // h2 accepts requests until the client has answered its ping. A client might never do that, so the time is limited too.
        if self
            .accept_until
            .is_some_and(|until| until <= Instant::now())
        {
            respond.send_reset(Reason::REFUSED_STREAM);
            return open.cancelled();
        }
        let worker = Rc::clone(self.worker);
        let reading = self.reading;
        let mut tasks = self.tasks.borrow_mut();
        // Removes tasks that have ended. Otherwise they would stay until the connection ends.
        while tasks.try_join_next().is_some() {}
        // Boxed, because the runtime would otherwise copy the several kilobytes of the future more than once.
        tasks.spawn_local(Box::pin(answer(worker, open, request, respond, reading)));
    }

    /// Whether the client's time to close the connection has passed.
    fn goodbye_is_over(&mut self, cx: &mut Context<'_>) -> bool {
        // Before the HTTP/2 handshake no GOAWAY can be sent, but the time is counted anyway. While a response is still being
        // written, the limits on slow clients apply instead.
        let is_closing = self.goaway != GoawaySent::None || self.conn.closing.get();
        if !is_closing || self.stalled || !self.streams().is_idle() {
            self.goodbye = None;
            return false;
        }
        let time = self.goodbye_time();
        let goodbye = self.goodbye.get_or_insert_with(|| Box::pin(sleep(time)));
        goodbye.as_mut().poll(cx).is_ready()
    }

    fn goodbye_time(&self) -> Duration {
        if self.streams().turned_away.get() {
            GOODBYE_REVOKED
        } else {
            GOODBYE
        }
    }

    fn end_http2(&mut self) {
        self.streams().head_since.set(None);
        self.state = State::Leaving(Box::new(Farewell::new(self.goodbye_time())));
    }

    /// Records the heads that h2 refused by itself, because every head must have a record.
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

    /// Notes whether writes to the client stall. A response that the client reads slowly is still being written after its
    /// stream has ended, and that time does not count as idle.
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
                Poll::Ready(None) => this.end_http2(),
                Poll::Pending => {
                    if this.unsent_excess().is_some() {
                        continue;
                    }
                    this.note_stall();
                    if !this.goodbye_is_over(cx) {
                        return Poll::Pending;
                    }
                    this.end_http2();
                }
            }
        }
    }
}

/// The end of a connection whose last responses may not have arrived yet. The client acknowledges each piece with a
/// WINDOW_UPDATE. If a WINDOW_UPDATE reached a closed socket, the system would discard the rest of the response. The proxy
/// therefore closes its own direction, and reads until the client is silent or closes.
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
        let closed = Pin::new(&mut *io).poll_shutdown(cx);
        if matches!(closed, Poll::Ready(Err(_))) || self.limit.as_mut().poll(cx).is_ready() {
            return Poll::Ready(());
        }
        let mut bytes = [0; FAREWELL_BYTES];
        loop {
            let mut read = ReadBuf::new(&mut bytes);
            match Pin::new(&mut *io).poll_read(cx, &mut read) {
                Poll::Ready(Ok(())) if !read.filled().is_empty() => {
                    self.silence.as_mut().reset(Instant::now() + self.time);
                }
                Poll::Ready(_) => return Poll::Ready(()),
                Poll::Pending => return self.silence.as_mut().poll(cx),
            }
        }
    }
}

/// The flow control windows: for one stream, and for the connection.
fn windows(streams_max: u32) -> (u32, u32) {
    let share = CONNECTION_WINDOW_BYTES_MAX / streams_max.max(1);
    let stream = share.clamp(STREAM_WINDOW_BYTES_MIN, STREAM_WINDOW_BYTES);
    let all = stream.saturating_mul(streams_max);
    let connection = all.clamp(CONNECTION_WINDOW_BYTES_MIN, CONNECTION_WINDOW_BYTES_MAX);
    (stream, connection)
}

/// The maximum head size that h2 gets. h2 counts 32 more bytes for each field.
fn head_list_bytes_max(head_bytes_max: usize) -> u32 {
    u32::try_from(head_bytes_max * HEAD_BYTES_FACTOR).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stream_windows_fit_into_the_connection_window() {
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
