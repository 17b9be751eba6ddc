//! One request and its response on one connection. The response is read while the request is still being sent.

use std::{
    fmt, io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http::{Method, Version};
use http_body::Body;
use http1::{
    Decoded, Decoder, FieldLines, Framing, Head, HeadReader, Malformed, RequestLine, Unwritable,
    begin_chunk, end_chunk, end_chunks, write_head,
};

use crate::{keep_alive::is_unanswered, wire::Wire};

/// Errors of a request body.
type BodyError = Box<dyn std::error::Error + Send + Sync>;

/// Maximum bytes of a request that are copied into one buffer, so that one write sends them.
const TOGETHER_BYTES_MAX: usize = 16 << 10;
/// Maximum bytes of interim responses (1xx) to one request. Without it, an endless stream of them would occupy the reader.
const INTERIM_BYTES_MAX: usize = 1 << 20;

/// Why a connection did not deliver a complete response.
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    /// The head of the response is malformed.
    #[error("malformed response: {0}")]
    Head(Malformed),
    /// The framing of the response's body is malformed.
    #[error("malformed response body: {0}")]
    Body(Malformed),
    /// The member closed the connection before the end of the response.
    #[error("the member closed the connection before the response was complete")]
    Closed,
    /// The transport failed.
    #[error("the connection failed")]
    Io(#[from] io::Error),
    /// The member sent more interim responses than a request can have.
    #[error("the member sent interim responses without end")]
    Interim,
    /// The body of the request ended early, or its length differs from that in the head.
    #[error("the request was not sent completely")]
    Request,
    /// The proxy refuses to send such a request head.
    #[error(transparent)]
    Unwritable(#[from] Unwritable),
}

impl WireError {
    /// Why the member's bytes are not a valid response, worded as a part of a sentence. `None` if the response is missing or
    /// ended early.
    pub fn malformed(&self) -> Option<String> {
        match self {
            Self::Head(what) => Some(what.to_string()),
            Self::Body(what) => Some(format!("in its body: {what}")),
            Self::Interim => Some("it has interim responses (1xx) without end".to_owned()),
            Self::Closed | Self::Io(_) | Self::Request | Self::Unwritable(_) => None,
        }
    }

    /// Whether the member sent something that is not a response.
    pub fn is_malformed(&self) -> bool {
        self.malformed().is_some()
    }

    /// Whether the connection ended because the member's host no longer answers (`down_wait`).
    pub fn is_unanswered(&self) -> bool {
        matches!(self, Self::Io(error) if is_unanswered(error))
    }

    /// Whether the member closed or reset the connection.
    pub fn is_end(&self) -> bool {
        matches!(self, Self::Closed | Self::Io(_)) && !self.is_unanswered()
    }
}

/// A request that is being sent, and its response.
pub(crate) struct Conversation<B> {
    /// The rest of the body. `None` if it was sent completely, or will not be sent.
    body: Option<B>,
    framing: Framing,
    /// Data that is too large to be copied, so that it is written directly.
    large: Bytes,
    /// Whether the end of the chunk that contains `large` still has to be written.
    chunk_open: bool,
    /// Whether the transport has accepted a byte.
    begun: bool,
    /// Whether the transport has accepted everything.
    sent: bool,
    /// The error, if the transport accepts no more bytes. A response may have arrived before.
    failed: Option<io::Error>,
    /// Whether a byte of a response has arrived.
    answered: bool,
    reader: HeadReader,
    /// Bytes of interim responses so far.
    interim: usize,
}

impl<B> fmt::Debug for Conversation<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Conversation")
            .field("framing", &self.framing)
            .field("sent", &self.sent)
            .finish_non_exhaustive()
    }
}

impl<B> Conversation<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<BodyError>,
{
    /// Writes the head to the buffer. The first poll sends it.
    ///
    /// `has_length`: the client declared the length of its body, which may be 0. `fields_max`: maximum number of fields in the
    /// response's head.
    pub(crate) fn begin<'f>(
        wire: &mut Wire,
        line: RequestLine<'_>,
        fields: impl Iterator<Item = (&'f [u8], &'f [u8])>,
        more: Option<&FieldLines>,
        has_length: bool,
        body: B,
        fields_max: usize,
    ) -> Result<Self, WireError> {
        let framing = framing(&line, has_length, &body);
        write_head(&mut wire.out, line, fields, more, framing)?;
        Ok(Self {
            body: (framing != Framing::None).then_some(body),
            framing,
            large: Bytes::new(),
            chunk_open: false,
            begun: false,
            sent: false,
            failed: None,
            answered: false,
            reader: HeadReader::new(fields_max),
            interim: 0,
        })
    }

    pub(crate) fn is_sent(&self) -> bool {
        self.sent
    }

    pub(crate) fn is_begun(&self) -> bool {
        self.begun
    }

    /// Whether a byte of a response has arrived.
    pub(crate) fn is_answered(&self) -> bool {
        self.answered
    }

    pub(crate) fn had_interim(&self) -> bool {
        self.interim > 0
    }

    /// Sends the request, and reads the head of the final response.
    pub(crate) fn poll_head(
        &mut self,
        wire: &mut Wire,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Head, WireError>> {
        self.drive(wire, cx)?;
        loop {
            let before = wire.input.len();
            let read = self.reader.read(&mut wire.input);
            match read.map_err(WireError::Head)? {
                Some(head) if is_interim(&head) => {
                    self.interim += before - wire.input.len();
                    if self.interim > INTERIM_BYTES_MAX {
                        return Poll::Ready(Err(WireError::Interim));
                    }
                }
                Some(head) => return Poll::Ready(Ok(head)),
                None => match ready!(wire.poll_read(cx)) {
                    Ok(Some(())) => self.answered = true,
                    Ok(None) => {
                        return Poll::Ready(Err(self
                            .failed
                            .take()
                            .map_or(WireError::Closed, WireError::Io)));
                    }
                    Err(error) => return Poll::Ready(Err(error.into())),
                },
            }
        }
    }

    /// Continues to send the request, and reads the next data of the response's body.
    pub(crate) fn poll_data(
        &mut self,
        decoder: &mut Decoder,
        wire: &mut Wire,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, WireError>>> {
        self.drive(wire, cx)?;
        loop {
            match decoder.decode(&mut wire.input).map_err(WireError::Body)? {
                Decoded::Data(data) => return Poll::Ready(Some(Ok(data))),
                Decoded::End => return Poll::Ready(None),
                Decoded::Incomplete => {}
            }
            if ready!(wire.poll_read(cx)).map_err(WireError::Io)?.is_none() {
                decoder.closed().map_err(|_| WireError::Closed)?;
            }
        }
    }

    /// Sends as much as possible. If the transport accepts no more bytes, that is not an error yet, because a server may answer
    /// and close before it has read the whole body.
    fn drive(&mut self, wire: &mut Wire, cx: &mut Context<'_>) -> Result<(), WireError> {
        if self.sent || self.failed.is_some() {
            return Ok(());
        }
        match self.poll_send(wire, cx) {
            Poll::Ready(Ok(())) => self.sent = true,
            Poll::Ready(Err(WireError::Io(error))) => {
                if !self.begun {
                    return Err(error.into());
                }
                self.failed = Some(error);
                self.body = None;
            }
            Poll::Ready(Err(error)) => return Err(error),
            Poll::Pending => {}
        }
        Ok(())
    }

    fn poll_send(&mut self, wire: &mut Wire, cx: &mut Context<'_>) -> Poll<Result<(), WireError>> {
        let mut waits = false;
        loop {
            while !waits && self.body.is_some() && self.takes_more(&wire.out) {
                waits = self.take(&mut wire.out, cx)?.is_pending();
            }
            if !wire.out.is_empty() || !self.large.is_empty() {
                ready!(wire.poll_write(&mut self.large, cx))?;
                self.begun = true;
                if self.large.is_empty() && self.chunk_open {
                    self.chunk_open = false;
                    end_chunk(&mut wire.out);
                }
                continue;
            }
            ready!(wire.poll_flush(cx))?;
            return match self.body {
                Some(_) => Poll::Pending,
                None => Poll::Ready(Ok(())),
            };
        }
    }

    fn takes_more(&self, out: &[u8]) -> bool {
        self.large.is_empty() && out.len() < TOGETHER_BYTES_MAX
    }

    /// Appends the next data of the body to the write buffer.
    fn take(&mut self, out: &mut Vec<u8>, cx: &mut Context<'_>) -> Result<Poll<()>, WireError> {
        let Some(body) = &mut self.body else {
            return Ok(Poll::Ready(()));
        };
        let data = if body.is_end_stream() {
            None
        } else {
            match Pin::new(body).poll_frame(cx) {
                Poll::Pending => return Ok(Poll::Pending),
                Poll::Ready(None) => None,
                Poll::Ready(Some(Ok(frame))) => Some(frame.into_data().unwrap_or_default()),
                Poll::Ready(Some(Err(_))) => return Err(WireError::Request),
            }
        };
        let Some(data) = data else {
            self.body = None;
            return match self.framing {
                Framing::Length(1..) => Err(WireError::Request),
                Framing::Chunked => {
                    end_chunks(out);
                    Ok(Poll::Ready(()))
                }
                _ => Ok(Poll::Ready(())),
            };
        };
        self.put(data, out)?;
        Ok(Poll::Ready(()))
    }

    fn put(&mut self, data: Bytes, out: &mut Vec<u8>) -> Result<(), WireError> {
        // An empty chunk would end the body.
        if data.is_empty() {
            return Ok(());
        }
        match &mut self.framing {
            Framing::None => return Err(WireError::Request),
            Framing::Length(left) => {
                let length = data.len() as u64;
                *left = left.checked_sub(length).ok_or(WireError::Request)?;
            }
            Framing::Chunked => {
                begin_chunk(out, data.len());
                self.chunk_open = true;
            }
        }
        if data.len() > TOGETHER_BYTES_MAX {
            self.large = data;
            return Ok(());
        }
        out.extend_from_slice(&data);
        if self.chunk_open {
            self.chunk_open = false;
            end_chunk(out);
        }
        Ok(())
    }
}

/// Whether a response is an interim one, which the proxy does not forward. A 101 is final.
fn is_interim(head: &Head) -> bool {
    head.status.is_informational() && head.status != http::StatusCode::SWITCHING_PROTOCOLS
}

/// The framing for this body.
fn framing<B: Body>(line: &RequestLine<'_>, has_length: bool, body: &B) -> Framing {
    if !body.is_end_stream() {
        let length = body.size_hint().exact();
        return length.map_or(Framing::Chunked, Framing::Length);
    }
    // RFC 1945, 7.2.2: a request with a body must declare its length.
    let has_body = !matches!(*line.method, Method::GET | Method::HEAD | Method::DELETE);
    if has_length || (has_body && line.version == Version::HTTP_10) {
        Framing::Length(0)
    } else {
        Framing::None
    }
}
