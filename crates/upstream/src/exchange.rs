//! One request with its response on one connection to a member.

use std::{cell::Cell, future::poll_fn, pin::pin, rc::Rc, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Uri, Version, header::CONNECTION, response};
use http_body::Body;
use hyper::{body::Incoming, upgrade::OnUpgrade};
use hyper_util::rt::TokioIo;
use tokio::time::Instant;

use crate::{
    connections::{Connections, Sender},
    connector::Connector,
    dial::DialError,
    head::Stamped,
    http10,
    io::Counted,
    settings::HttpVersion,
};

/// An attempt that brought no response.
#[derive(Debug)]
pub enum AttemptError<B> {
    /// No connection; nothing was sent. The body is handed back.
    Dial(DialError, B),
    /// The message came back unsent, certainly not acted on.
    Unsent(hyper::Error, B),
    /// It may have been acted on.
    Ambiguous {
        /// What was seen.
        source: hyper::Error,
        /// Whether the connection had been used before.
        reused: bool,
        /// Whether a byte of an answer had come.
        begun: bool,
    },
}

/// How a request is sent.
#[derive(Clone, Copy, Debug)]
pub struct SendOptions<'a> {
    /// Whether on a new connection, as after a kept one that turned out to be closed.
    pub fresh: bool,
    /// The present time, by which kept connections are too old.
    pub now: Instant,
    /// Set to whether a byte of the answer has come, while the answer's head is not complete.
    pub begun: &'a Cell<bool>,
}

/// A response whose body is still to come, and the connection it comes on.
#[derive(Debug)]
pub struct Exchange<B> {
    /// Head of the response.
    pub head: response::Parts,
    /// Its body.
    pub body: Incoming,
    /// The connection, to be given back when the body has ended.
    pub lent: Lent<B>,
    /// How long connecting took; none: the connection had been used before.
    pub connect: Option<Duration>,
}

/// A connection that carries an exchange. Dropped, it is closed; `give_back` keeps it.
pub struct Lent<B> {
    sender: Sender<B>,
    /// Whether the connection may serve again: the member's answer and the settings allow it.
    lasts: bool,
    connector: Arc<Connector>,
    home: Rc<Connections<B>>,
}

impl<B> std::fmt::Debug for Lent<B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lent")
            .field("member", &self.connector.address)
            .finish_non_exhaustive()
    }
}

impl<B> Lent<B>
where
    B: Body<Data = Bytes> + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    /// The member has switched protocols: its end of the tunnel, and what came behind the 101 already. None: the
    /// connection ended in this moment.
    pub async fn into_tunnel(self, head: &mut response::Parts) -> Option<(Counted, Bytes)> {
        // hyper hands the transport over once it has taken leave of it; until then the sender has to live.
        let upgraded = head.extensions.remove::<OnUpgrade>()?.await.ok()?;
        let parts = upgraded.downcast::<TokioIo<Counted>>().ok()?;
        Some((parts.io.into_inner(), parts.read_buf))
    }

    /// The exchange is over and both bodies have ended: the connection may serve again.
    pub fn give_back(self, now: Instant) {
        if !self.lasts {
            return;
        }
        self.home.put(&self.connector, self.sender, now);
    }
}

impl<B> Connections<B>
where
    B: Body<Data = Bytes> + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    /// Sends one request to a member and waits for the head of its response.
    ///
    /// # Errors
    /// [`AttemptError`] says whether anything can have been acted on.
    pub async fn send(
        self: &Rc<Self>,
        connector: &Arc<Connector>,
        method: &Method,
        target: &Uri,
        stamped: Stamped,
        body: B,
        SendOptions { fresh, now, begun }: SendOptions<'_>,
    ) -> Result<Exchange<B>, AttemptError<B>> {
        let held = match self.take(connector, fresh, now).await {
            Ok(held) => held,
            Err(error) => return Err(AttemptError::Dial(error, body)),
        };
        let mut sender = held.sender;
        let mut request = Request::new(body);
        *request.method_mut() = method.clone();
        *request.uri_mut() = target.clone();
        *request.version_mut() = Version::HTTP_11;
        *request.headers_mut() = stamped.into_headers();
        let settings = &connector.settings;
        let interim = match settings.http_version {
            HttpVersion::Http11 => None,
            HttpVersion::Http10 => Some(http10::prepare(&mut request)),
        };
        if settings.keepalive.is_zero() {
            let close = HeaderValue::from_static("close");
            request.headers_mut().insert(CONNECTION, close);
        }
        let before = sender.received();
        sender.expect_head(true);
        let mut response = pin!(sender.http.try_send_request(request));
        let answered = poll_fn(|cx| {
            let polled = response.as_mut().poll(cx);
            if polled.is_pending() {
                begun.set(sender.received() > before);
            }
            polled
        });
        match answered.await {
            Ok(response) => {
                sender.expect_head(false);
                let (mut head, body) = response.into_parts();
                let lasts = match interim {
                    None => true,
                    Some(interim) => http10::lasts(&mut head, &interim),
                };
                let lent = Lent {
                    sender,
                    lasts: lasts && !settings.keepalive.is_zero(),
                    connector: Arc::clone(connector),
                    home: Rc::clone(self),
                };
                Ok(Exchange {
                    head,
                    body,
                    lent,
                    connect: held.connect,
                })
            }
            Err(mut error) => Err(match error.take_message() {
                Some(request) => AttemptError::Unsent(error.into_error(), request.into_body()),
                None => AttemptError::Ambiguous {
                    source: error.into_error(),
                    reused: held.connect.is_none(),
                    begun: sender.received() > before,
                },
            }),
        }
    }
}
