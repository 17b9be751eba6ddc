//! One request and its response on one connection to a member.

use std::{
    cell::Cell,
    fmt,
    future::poll_fn,
    rc::Rc,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::{Method, StatusCode, Uri, Version, header::CONTENT_LENGTH};
use http_body::{Body, SizeHint};
use http1::{BodyKind, Decoder, Fields, Head, RequestLine};
use tokio::time::Instant;

use crate::{
    connections::{Connections, Open},
    connector::Connector,
    conversation::{Conversation, WireError},
    dial::DialError,
    head::Stamped,
    http10::{self, NotHttp10},
    io::MemberIo,
    keep_alive::unacknowledged_max,
    settings::HttpVersion,
};

/// Why an attempt delivered no response.
#[derive(Debug)]
pub enum AttemptError {
    /// No connection was opened, so nothing was sent.
    Dial(DialError),
    /// No byte of the request was sent.
    Unsent {
        /// The error.
        source: WireError,
        /// Whether the connection had been used before.
        reused: bool,
    },
    /// The member may have acted on the request.
    Ambiguous {
        /// The error.
        source: WireError,
        /// Whether the connection had been used before.
        reused: bool,
        /// Whether a byte of a response had arrived.
        begun: bool,
    },
}

/// How a request is sent.
#[derive(Clone, Copy, Debug)]
pub struct SendOptions<'a> {
    /// Whether to use a new connection, for example after an idle one turned out to be closed.
    pub fresh: bool,
    /// The current time, to decide which idle connections are too old.
    pub now: Instant,
    /// Set while the head of the response is incomplete: whether a byte of it has arrived.
    pub begun: &'a Cell<bool>,
}

/// A response whose body has not been read yet.
#[derive(Debug)]
pub struct Exchange<B> {
    /// Head of the response.
    pub head: MemberHead,
    /// The body, and its connection.
    pub body: MemberBody<B>,
    /// How long connecting took. `None` if the connection had been used before.
    pub connect: Option<Duration>,
}

/// The body of a member's response, with its connection and the rest of the request. Dropping it closes the connection.
/// [`give_back`](Self::give_back) makes the connection available to other requests.
pub struct MemberBody<B> {
    open: Box<Open>,
    conversation: Conversation<B>,
    decoder: Decoder,
    /// Whether the member's response and the settings allow the connection to be reused.
    lasts: bool,
    connector: Arc<Connector>,
    home: Rc<Connections>,
}

impl<B> fmt::Debug for MemberBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemberBody")
            .field("member", &self.connector.address)
            .field("decoder", &self.decoder)
            .finish_non_exhaustive()
    }
}

impl<B> MemberBody<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    /// The next data. While waiting for it, the rest of the request is sent.
    pub fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, WireError>>> {
        let wire = &mut self.open.wire;
        self.conversation.poll_data(&mut self.decoder, wire, cx)
    }

    /// Whether the whole body has been read.
    pub fn is_end_stream(&self) -> bool {
        self.decoder.is_end()
    }

    /// How many bytes remain.
    pub fn size_hint(&self) -> SizeHint {
        let left = self.decoder.remaining();
        left.map_or_else(SizeHint::default, SizeHint::with_exact)
    }

    /// Takes over the transport after the member switched protocols, with the bytes that followed the 101.
    pub fn into_tunnel(self) -> (MemberIo, Bytes) {
        let (mut io, bytes) = self.open.wire.into_parts();
        // The member of a tunnel may leave the client's bytes unread, so the limit on unacknowledged data is removed.
        io.limit_unacknowledged(None);
        (io, bytes)
    }

    /// Ends the exchange. The connection is reused if the request was sent completely, the response ended by its own framing,
    /// and no bytes follow it.
    pub fn give_back(self, now: Instant) {
        let is_over = self.conversation.is_sent() && self.decoder.is_end();
        if self.lasts && is_over && self.open.wire.input.is_empty() {
            self.home.put(&self.connector, self.open, now);
        }
    }
}

impl Connections {
    /// Sends one request to a member, and waits for the head of its response.
    ///
    /// # Errors
    /// [`AttemptError`] shows whether the member may have acted on the request.
    pub async fn send<B>(
        self: &Rc<Self>,
        connector: &Arc<Connector>,
        method: &Method,
        target: &Uri,
        mut stamped: Stamped<'_>,
        body: B,
        SendOptions { fresh, now, begun }: SendOptions<'_>,
    ) -> Result<Exchange<B>, AttemptError>
    where
        B: Body<Data = Bytes> + Unpin,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let held = self.take(connector, fresh, now).await;
        let held = held.map_err(AttemptError::Dial)?;
        let mut open = held.open;
        let settings = &connector.settings;
        let is_10 = settings.http_version == HttpVersion::Http10;
        if is_10 {
            stamped.set_connection(b"keep-alive");
        }
        if settings.keepalive.is_zero() {
            stamped.set_connection(b"close");
        }
        let line = RequestLine {
            method,
            target,
            version: if is_10 {
                Version::HTTP_10
            } else {
                Version::HTTP_11
            },
        };
        let has_length = stamped.has_length();
        let (fields, lines) = (stamped.fields(), stamped.lines());
        let fields_max = settings.response_fields_max as usize;
        let wire = &mut open.wire;
        let body_bytes = body.size_hint().exact();
        let conversation =
            Conversation::begin(wire, line, fields, lines, has_length, body, fields_max);
        let reused = held.connect.is_none();
        let unsent = |source| AttemptError::Unsent { source, reused };
        let mut conversation = conversation.map_err(unsent)?;
        let bytes = body_bytes.map(|body| body.saturating_add(open.wire.out.len() as u64));
        let unacknowledged_max = unacknowledged_max(bytes, settings.down_wait);
        open.wire.io.limit_unacknowledged(unacknowledged_max);
        let answered = poll_fn(|cx| {
            let polled = conversation.poll_head(&mut open.wire, cx);
            if polled.is_pending() {
                begun.set(conversation.is_answered());
            }
            polled
        });
        let answered = answered.await.and_then(|head| {
            if is_10 {
                http10::read(head, method, conversation.had_interim())
            } else {
                read(head, method)
            }
        });
        let (head, kind, lasts) = match answered {
            Ok(answered) => answered,
            Err(source) if !conversation.is_begun() => return Err(unsent(source)),
            Err(source) => {
                return Err(AttemptError::Ambiguous {
                    source,
                    reused,
                    begun: conversation.is_answered(),
                });
            }
        };
        Ok(Exchange {
            head,
            body: MemberBody {
                open,
                conversation,
                decoder: Decoder::of_response(kind),
                lasts: lasts && !settings.keepalive.is_zero(),
                connector: Arc::clone(connector),
                home: Rc::clone(self),
            },
            connect: held.connect,
        })
    }
}

/// The head of a member's response.
#[derive(Debug)]
pub struct MemberHead {
    /// Status code.
    pub status: StatusCode,
    /// Fields, including hop-by-hop ones.
    pub fields: Fields,
    /// Why the proxy cannot forward the response, if HTTP/1.0 does not allow such a response.
    pub not_http10: Option<NotHttp10>,
}

/// A response head, the framing of its body, and whether the connection can be reused after it.
pub(crate) type Answered = (MemberHead, BodyKind, bool);

fn read(mut head: Head, method: &Method) -> Result<Answered, WireError> {
    let kind = head.body(method).map_err(WireError::Head)?;
    let lasts = head.keeps_alive() && head.status != StatusCode::SWITCHING_PROTOCOLS;
    if kind == BodyKind::Chunked {
        head.fields.remove(&CONTENT_LENGTH);
    }
    Ok((parts(head), kind, lasts))
}

pub(crate) fn parts(head: Head) -> MemberHead {
    MemberHead {
        status: head.status,
        fields: head.fields,
        not_http10: None,
    }
}
