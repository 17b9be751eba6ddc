//! One stream of an HTTP/2 connection. Its request is handled like any other, and its response is sent as fast as the client
//! reads it.

use std::{
    future::{Future, poll_fn},
    pin::pin,
    rc::Rc,
    sync::Arc,
    task::{Context, Poll},
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use h2::{Reason, RecvStream, SendStream, server::SendResponse};
use http::{
    HeaderMap, HeaderValue, Request, Response, StatusCode,
    header::{CONTENT_LENGTH, COOKIE, DATE, EXPECT, HOST},
    request::Parts,
};
use http_body::Body;
use http1::{Fields, RequestHead};
use telemetry::Limit;
use tokio::{
    sync::Notify,
    time::{Instant, timeout},
};

use crate::{
    body_fault::BodyFault,
    client_body::StreamBody,
    client_response::ClientResponse,
    exchange::{give_up, handle},
    open_stream::OpenStream,
    pace::{Pace, RateLimits},
    reason::LogReason,
    record::EndedBy,
    response_body::ResponseBody,
    slow_readers::{Download, SLOW_AFTER, SlowReaderEntry, SlowReaders},
    worker::Worker,
};

/// How slowly a client may read a response.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadLimits {
    /// How long it may stall without reading any of the response.
    pub(crate) write_timeout: Duration,
    /// The minimum rate at which it must read.
    pub(crate) rates: RateLimits,
}

/// Handles one request until the last byte of its response, unless the client cancels it.
pub(crate) async fn answer(
    worker: Rc<Worker>,
    open: OpenStream,
    request: Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
    reading: ReadLimits,
) {
    let (mut head, data) = request.into_parts();
    as_http1(&mut head);
    let wanted = Rc::new(Notify::new());
    let expects = head.headers.contains_key(EXPECT) && !data.is_end_stream();
    let length = declared_length(&head.headers);
    let stream = (Rc::clone(&open.conn), open.number);
    let body = StreamBody::new(data, length, expects.then(|| Rc::clone(&wanted)), stream);
    let fields = Fields::from(&head.headers);
    let fault = open.take_head_fault();
    let head = RequestHead::of_http2(head.method, head.uri, fields, fault);
    // A request that was cancelled, or found to be malformed, before it was handled uses no member.
    if let Poll::Ready(ended) = poll_fn(|cx| Poll::Ready(respond.poll_reset(cx))).await {
        let fault = matches!(ended, Ok(Reason::PROTOCOL_ERROR)).then_some(BodyFault::Broken);
        give_up(&worker, &open.conn, (&head, body.into()), fault);
        return open.cancelled();
    }
    let mut handling = pin!(handle(
        Rc::clone(&worker),
        Rc::clone(&open.conn),
        head,
        body.into(),
    ));
    let response = loop {
        tokio::select! {
            biased;
            _ = poll_fn(|cx| respond.poll_reset(cx)) => return open.cancelled(),
            response = handling.as_mut() => break response,
            () = wanted.notified() => {
                let mut interim = Response::new(());
                *interim.status_mut() = StatusCode::CONTINUE;
                // If the client has gone, the next poll returns an error.
                let _ = respond.send_informational(interim);
            }
        }
    };
    if open.is_malformed() {
        respond.send_reset(Reason::PROTOCOL_ERROR);
        return open.cancelled();
    }
    let sent = send(&worker, response, respond, reading).await;
    open.note_swap(&worker);
    match sent {
        Ok(()) => open.answered(),
        Err(Unsent::Cancelled) => open.cancelled(),
        Err(Unsent::Stalled) => open.conn.metrics.limit(Limit::WriteTimeout),
        Err(Unsent::Slow) => open.conn.metrics.limit(Limit::ReadRate),
        Err(Unsent::Displaced) => open.conn.metrics.limit(Limit::ClientShare),
        Err(Unsent::Broken) => {}
    }
}

/// Why a response was not sent completely.
enum Unsent {
    /// The client cancelled it, or is gone.
    Cancelled,
    /// The client read none of it for too long.
    Stalled,
    /// The client read it too slowly.
    Slow,
    /// The client read it slowly, and a request waits for its connection to the member.
    Displaced,
    /// Its source failed.
    Broken,
}

/// Sends a response as fast as the client reads it. Holds at most one piece of the body for which the client has no room.
async fn send(
    worker: &Worker,
    response: ClientResponse,
    mut respond: SendResponse<Bytes>,
    reading: ReadLimits,
) -> Result<(), Unsent> {
    let mut pace = Pace::of_reader(reading.rates.read_min, reading.rates.grace);
    let mut body = response.body;
    let mut head = Response::new(());
    *head.status_mut() = response.status;
    *head.headers_mut() = response.fields.to_map();
    // The fields hold the buffer in which the member's head was received.
    drop(response.fields);
    if !head.headers().contains_key(DATE) {
        let date = worker.date.at(SystemTime::now());
        head.headers_mut().insert(DATE, date);
    }
    let empty = body.is_end_stream();
    let sent = respond.send_response(head, empty);
    let mut stream = sent.map_err(|_| Unsent::Cancelled)?;
    if empty {
        return Ok(());
    }
    let mut reader = StreamReader::new(&worker.shared.slow_readers, &body);
    loop {
        let next = tokio::select! {
            biased;
            _ = poll_fn(|cx| stream.poll_reset(cx)) => return Err(Unsent::Cancelled),
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
        let waits = || {
            if last {
                body.member_is_done();
            }
        };
        if last {
            // The member has sent everything, so its connection is no longer held for this client.
            reader.end();
        }
        let limits = (reading.write_timeout, &mut pace);
        let sending = send_piece(&mut stream, data, last, limits, &mut reader);
        match noting_wait(sending, waits).await {
            Ok(()) if last => {
                body.end(EndedBy::Completion);
                return Ok(());
            }
            Ok(()) => {}
            Err(unsent @ (Unsent::Stalled | Unsent::Slow | Unsent::Displaced)) => {
                let reason = match unsent {
                    Unsent::Slow => LogReason::ReadTooSlow,
                    Unsent::Displaced => LogReason::ReadDisplaced,
                    _ => LogReason::WriteTimeout,
                };
                body.end(EndedBy::Us(reason));
                stream.send_reset(Reason::CANCEL);
                return Err(unsent);
            }
            Err(unsent) => return Err(unsent),
        }
    }
}

/// The client that reads a response, while the response holds a connection to a member that other requests may need.
struct StreamReader<'a> {
    all: &'a Arc<SlowReaders>,
    /// The download, until the proxy first waits for the client and lists it.
    download: Option<Download>,
    /// Bytes that the client has accepted.
    accepted: u64,
    entry: Option<SlowReaderEntry>,
}

impl<'a> StreamReader<'a> {
    fn new(all: &'a Arc<SlowReaders>, body: &ResponseBody) -> Self {
        Self {
            all,
            download: body.download(),
            accepted: 0,
            entry: None,
        }
    }

    /// Called when the proxy waits for the client. Returns whether the response must end.
    fn waits(&mut self, cx: &Context<'_>) -> bool {
        if let Some(download) = self.download.take() {
            let slow_at = Instant::now() + SLOW_AFTER;
            self.entry = Some(self.all.note(download, slow_at, cx.waker()));
        }
        self.entry.as_ref().is_some_and(|entry| {
            entry.accepted(self.accepted);
            entry.is_ended()
        })
    }

    fn end(&mut self) {
        self.download = None;
        self.entry = None;
    }
}

/// Awaits a future. If the future is not ready at once, calls `waits` once.
async fn noting_wait<T>(future: impl Future<Output = T>, waits: impl FnOnce()) -> T {
    let mut future = pin!(future);
    if let Poll::Ready(done) = poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx))).await {
        return done;
    }
    waits();
    future.await
}

/// Sends one piece of a body, in as many frames as the client's window requires.
async fn send_piece(
    stream: &mut SendStream<Bytes>,
    mut data: Bytes,
    last: bool,
    (write_timeout, pace): (Duration, &mut Pace),
    reader: &mut StreamReader<'_>,
) -> Result<(), Unsent> {
    loop {
        // Capacity is reserved only when there is something to send, because the connection's other streams cannot use reserved
        // capacity.
        let room = match data.len() {
            0 => 0,
            length => {
                stream.reserve_capacity(length);
                room(stream, write_timeout, pace, reader).await?
            }
        };
        let piece = data.split_to(room.min(data.len()));
        let end = last && data.is_empty();
        pace.moved(piece.len());
        reader.accepted += piece.len() as u64;
        if !piece.is_empty() || end {
            let sent = stream.send_data(piece, end);
            sent.map_err(|_| Unsent::Cancelled)?;
        }
        if data.is_empty() {
            return Ok(());
        }
    }
}

/// Returns how many bytes may be sent now. Waits until it is at least one.
async fn room(
    stream: &mut SendStream<Bytes>,
    write_timeout: Duration,
    pace: &mut Pace,
    reader: &mut StreamReader<'_>,
) -> Result<usize, Unsent> {
    if stream.capacity() > 0 {
        return Ok(stream.capacity());
    }
    let more = poll_fn(|cx| {
        loop {
            match stream.poll_capacity(cx) {
                Poll::Ready(Some(Ok(0))) => {}
                Poll::Ready(Some(Ok(room))) => return Poll::Ready(Ok(room)),
                Poll::Ready(Some(Err(_)) | None) => return Poll::Ready(Err(Unsent::Cancelled)),
                Poll::Pending if reader.waits(cx) => return Poll::Ready(Err(Unsent::Displaced)),
                Poll::Pending => return Poll::Pending,
            }
        }
    });
    let began = Instant::now();
    let room = timeout(write_timeout.min(pace.left()), more).await;
    match room {
        Ok(room) => {
            pace.waited(began.elapsed());
            room
        }
        Err(_) if pace.left() < write_timeout => Err(Unsent::Slow),
        Err(_) => Err(Unsent::Stalled),
    }
}

/// Converts the fields that differ from HTTP/1.1: the authority becomes Host (RFC 9113, 8.3.1), and cookies become one
/// line (8.2.3). An existing Host stays, to be compared with the authority.
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

fn declared_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}
