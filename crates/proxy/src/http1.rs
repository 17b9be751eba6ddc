//! HTTP/1 towards clients. The requests of one connection are answered one after the other.

use std::{
    cell::Cell,
    future::poll_fn,
    io,
    pin::{Pin, pin},
    rc::Rc,
    task::{Context, Poll, ready},
    time::SystemTime,
};

use bytes::Bytes;
use http::{
    HeaderValue, Method, Version,
    header::{CONNECTION, CONTENT_LENGTH, CONTENT_TYPE},
};
use http_body::Body;
use http1::{BodyCoding, BodySize, Fields, RefusedHead, RequestHead, ResponseHead};
use listener::{ConnectionStage, TlsIo};
use tokio::io::AsyncWrite;

use crate::{
    client_response::ClientResponse,
    client_wire::{ClientWire, Next, RequestStream},
    connection::Conn,
    exchange::handle,
    output::Output,
    protocol::ConnectionProtocol,
    protocol_errors,
    request_id::RequestId,
    response_body::ResponseBody,
    tunnel_opening::TunnelOpening,
    worker::Worker,
};

/// One connection, as a future that completes when the connection ends. Between requests it may hold only its transport.
pub(crate) struct Http1 {
    worker: Rc<Worker>,
    conn: Rc<Conn>,
    head_bytes_max: usize,
    pending: Rc<PendingActions>,
    state: State,
}

enum State {
    /// No byte of a request has arrived since the connection began, or since it last released its buffers.
    Idle(TlsIo),
    /// Boxed, so that all requests use the same memory until the buffers are released.
    Serving(Pin<Box<dyn Future<Output = io::Result<Served>>>>),
    Ended(Option<Box<Switched>>),
}

/// Actions that the connection's timers have requested.
#[derive(Debug, Default)]
struct PendingActions {
    close: Cell<bool>,
    rest: Cell<bool>,
}

/// How the requests of a connection ended.
enum Served {
    Closed,
    /// The connection waits for its next request, and releases its buffers.
    Resting(TlsIo),
    Switched(Box<Switched>),
}

/// A connection whose 101 was sent.
pub(crate) struct Switched {
    pub(crate) io: TlsIo,
    /// The bytes that the client has sent after its request.
    pub(crate) read: Bytes,
    pub(crate) opening: Box<TunnelOpening>,
}

impl Http1 {
    pub(crate) fn new(
        worker: &Rc<Worker>,
        conn: &Rc<Conn>,
        head_bytes_max: usize,
        io: TlsIo,
    ) -> Self {
        Self {
            worker: Rc::clone(worker),
            conn: Rc::clone(conn),
            head_bytes_max,
            pending: Rc::default(),
            state: State::Idle(io),
        }
    }

    pub(crate) fn into_switched(self) -> Option<Box<Switched>> {
        match self.state {
            State::Ended(switched) => switched,
            State::Idle(_) | State::Serving(_) => None,
        }
    }

    fn poll_idle(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let State::Idle(io) = &mut self.state else {
            return Poll::Ready(());
        };
        if !self.pending.close.get() {
            match ready!(io.poll_readable(cx)) {
                Ok(has_bytes) => self.pending.close.set(!has_bytes),
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    self.pending.close.set(true);
                }
                // The transport is broken, so no request can be read from it.
                Err(error) => {
                    let client = self.conn.downstream.client;
                    tracing::debug!(%client, %error, "a connection ended with an error");
                    self.state = State::Ended(None);
                    return Poll::Ready(());
                }
            }
        }
        if self.pending.close.get() {
            // No request awaits a response, so it does not matter whether the close reaches the client.
            let _ = ready!(Pin::new(io).poll_shutdown(cx));
            self.state = State::Ended(None);
        }
        Poll::Ready(())
    }

    fn begin(&mut self) {
        if let State::Idle(io) = std::mem::replace(&mut self.state, State::Ended(None)) {
            self.worker.warm.enter(&self.conn);
            let requests = Requests {
                wire: ClientWire::new(io, &self.conn, self.head_bytes_max),
                worker: Rc::clone(&self.worker),
                conn: Rc::clone(&self.conn),
                pending: Rc::clone(&self.pending),
            };
            self.state = State::Serving(Box::pin(requests.serve()));
        }
    }
}

impl Future for Http1 {
    type Output = io::Result<()>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        loop {
            match &mut this.state {
                State::Idle(_) => {
                    ready!(this.poll_idle(cx));
                    this.begin();
                }
                State::Serving(serving) => {
                    this.state = match ready!(serving.as_mut().poll(cx)) {
                        Ok(Served::Closed) => State::Ended(None),
                        Ok(Served::Resting(io)) => State::Idle(io),
                        Ok(Served::Switched(switched)) => State::Ended(Some(switched)),
                        Err(error) => {
                            this.state = State::Ended(None);
                            return Poll::Ready(Err(error));
                        }
                    }
                }
                State::Ended(_) => return Poll::Ready(Ok(())),
            }
        }
    }
}

impl ConnectionProtocol for Http1 {
    type Error = io::Error;

    fn graceful_shutdown(self: Pin<&mut Self>) {
        self.pending.close.set(true);
    }

    fn rest(self: Pin<&mut Self>) {
        self.pending.rest.set(true);
    }

    fn record_error(_: &Worker, _: &Conn, _: &io::Error) {}
}

/// The properties of a request's head that determine how the response is sent.
#[derive(Clone, Copy)]
struct Asker {
    version: Version,
    is_head: bool,
    keeps_alive: bool,
}

/// The requests of a connection, until it releases its buffers or ends.
struct Requests {
    wire: Rc<ClientWire>,
    worker: Rc<Worker>,
    conn: Rc<Conn>,
    pending: Rc<PendingActions>,
}

/// Takes the transport, so that the client sees the close even while another task still reads the body of the last request.
impl Drop for Requests {
    fn drop(&mut self) {
        drop(self.wire.take());
    }
}

impl Requests {
    async fn serve(self) -> io::Result<Served> {
        let mut output = Output::default();
        self.pending.rest.set(false);
        loop {
            let Some(next) = poll_fn(|cx| self.poll_next(cx)).await? else {
                return Ok(match self.wire.take() {
                    Some((io, _)) => Served::Resting(io),
                    None => Served::Closed,
                });
            };
            let head = match next {
                Next::Request(head) => head,
                Next::Refused(refused) => return self.refuse(refused, output).await,
                Next::End => return self.close().await,
            };
            self.conn.is_between.set(false);
            let asker = Asker {
                version: head.version,
                is_head: head.method == Method::HEAD,
                keeps_alive: head.keeps_alive,
            };
            let body = self.wire.begin_body(&head);
            let mut response = self.answer(head, body).await?;
            let tunnel = response.body.take_tunnel();
            let (coding, keeps_alive) = self.begin_response(asker, &response, &mut output);
            // The fields hold the buffer in which the member's head was received.
            drop(response.fields);
            self.send(response.body, coding, &mut output).await?;
            if let Some(opening) = tunnel {
                return Ok(match self.wire.take() {
                    Some((io, read)) => Served::Switched(Box::new(Switched { io, read, opening })),
                    None => Served::Closed,
                });
            }
            let is_read = poll_fn(|cx| self.poll_body_released(cx)).await;
            if !is_read || !keeps_alive || self.pending.close.get() {
                return self.close().await;
            }
        }
    }

    /// The next head. `None`: the connection should release its buffers.
    fn poll_next(&self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Next>>> {
        if self.pending.close.get() {
            return Poll::Ready(Ok(Some(Next::End)));
        }
        if self.pending.rest.take() && self.wire.is_between() {
            return Poll::Ready(Ok(None));
        }
        let next = self.wire.poll_next(cx);
        self.conn
            .is_between
            .set(next.is_pending() && self.wire.is_between());
        next.map_ok(Some)
    }

    async fn answer(&self, head: RequestHead, body: RequestStream) -> io::Result<ClientResponse> {
        let (worker, conn) = (Rc::clone(&self.worker), Rc::clone(&self.conn));
        let mut handling = pin!(handle(worker, conn, head, body.into()));
        poll_fn(|cx| match handling.as_mut().poll(cx) {
            Poll::Ready(response) => Poll::Ready(Ok(response)),
            Poll::Pending => self.wire.poll_gone(cx).map(Err),
        })
        .await
    }

    /// Writes the head of a response into `output`. Returns how the body is coded, and whether the connection stays open
    /// after the response.
    fn begin_response(
        &self,
        asker: Asker,
        response: &ClientResponse,
        output: &mut Output,
    ) -> (BodyCoding, bool) {
        let interim = self.wire.begin_response();
        output.head().extend_from_slice(interim);
        let size = match response.body.size_hint().exact() {
            _ if response.body.is_end_stream() => BodySize::None,
            Some(length) => BodySize::Length(length),
            None => BodySize::Unknown,
        };
        let closes = response.fields.value(&CONNECTION) == Some(b"close");
        let keeps_alive = asker.keeps_alive && !closes && !self.pending.close.get();
        let date = self.worker.date.at(SystemTime::now());
        let head = ResponseHead {
            status: response.status,
            version: asker.version,
            fields: &response.fields,
            date: &date,
            body: size,
            to_head: asker.is_head,
            keeps_alive,
        };
        let coding = head.write(output.head());
        (coding, keeps_alive && coding != BodyCoding::UntilClose)
    }

    /// Sends the head in `output`, and the body as fast as the client accepts it.
    ///
    /// # Errors
    /// The client has gone, or the body is incomplete.
    async fn send(
        &self,
        mut body: ResponseBody,
        coding: BodyCoding,
        output: &mut Output,
    ) -> io::Result<()> {
        let mut has_more = coding != BodyCoding::None && !body.is_end_stream();
        let mut is_broken = false;
        poll_fn(|cx| {
            loop {
                let mut waits = false;
                while has_more && !waits && output.has_room() {
                    match Pin::new(&mut body).poll_frame(cx) {
                        Poll::Pending => waits = true,
                        Poll::Ready(frame) => {
                            let data = frame.transpose().map(|frame| frame?.into_data().ok());
                            is_broken = data.is_err();
                            has_more = matches!(data, Ok(Some(_))) && !body.is_end_stream();
                            let data = data.ok().flatten().unwrap_or_default();
                            match coding {
                                BodyCoding::Chunked if is_broken => {}
                                BodyCoding::Chunked => output.push_chunk(data, !has_more),
                                BodyCoding::None => {}
                                BodyCoding::Length | BodyCoding::UntilClose => output.push(data),
                            }
                        }
                    }
                }
                let written = self.wire.poll_write(cx, output)?;
                if is_broken {
                    return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
                }
                if written.is_ready() {
                    let flushed = self.wire.poll_flush(cx)?;
                    match has_more {
                        true if !waits => continue,
                        false if flushed.is_ready() => return Poll::Ready(Ok(())),
                        _ => {}
                    }
                }
                return self.wire.poll_gone(cx).map(Err);
            }
        })
        .await
    }

    /// Waits until the body of the request was read, or is no longer read. Returns whether it was read.
    fn poll_body_released(&self, cx: &mut Context<'_>) -> Poll<bool> {
        if self.pending.close.get() {
            Poll::Ready(false)
        } else {
            self.wire.poll_body_released(cx)
        }
    }

    /// Responds to a head that was refused, and closes the connection.
    async fn refuse(&self, refused: RefusedHead, mut output: Output) -> io::Result<Served> {
        // From now on the limits of an idle connection apply, and not those of a head.
        self.conn.activity.enter(ConnectionStage::Idle);
        let id = self.worker.request_id();
        protocol_errors::head_refused(&self.worker, &self.conn, refused, &id);
        let Some((status, text)) = protocol_errors::answer_to(refused) else {
            return Ok(Served::Closed);
        };
        let mut fields = Fields::default();
        fields.append(CONNECTION, HeaderValue::from_static("close"));
        let kind = HeaderValue::from_static("text/plain; charset=utf-8");
        fields.append(CONTENT_TYPE, kind);
        fields.append(CONTENT_LENGTH, HeaderValue::from(text.len()));
        fields.append(RequestId::HEADER, id.to_value());
        let date = self.worker.date.at(SystemTime::now());
        let head = ResponseHead {
            status,
            version: Version::HTTP_11,
            fields: &fields,
            date: &date,
            body: BodySize::Length(text.len() as u64),
            to_head: false,
            keeps_alive: false,
        };
        head.write(output.head());
        output.push(Bytes::from_static(text.as_bytes()));
        poll_fn(|cx| self.wire.poll_write(cx, &mut output)).await?;
        self.close().await
    }

    async fn close(&self) -> io::Result<Served> {
        poll_fn(|cx| self.wire.poll_shutdown(cx)).await?;
        Ok(Served::Closed)
    }
}
