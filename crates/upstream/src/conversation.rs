//! One request and its answer on one connection: the request is sent while its answer is waited for and read.

use std::{
    fmt, io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, Method, Version};
use http_body::Body;
use http1::{
    Decoded, Decoder, FieldLines, Framing, Head, HeadReader, Malformed, RequestLine, Unwritable,
    begin_chunk, end_chunk, end_chunks, write_head,
};

use crate::wire::Wire;

/// Errors of a request body.
type BodyError = Box<dyn std::error::Error + Send + Sync>;

/// Most bytes of a request that are copied together so that they go in one write.
const TOGETHER_BYTES_MAX: usize = 16 << 10;
/// Most bytes of interim answers (1xx) to one request: without end they would keep their reader busy.
const INTERIM_BYTES_MAX: usize = 1 << 20;

/// Why a connection brought no whole answer.
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    /// The head of the answer is none.
    #[error("malformed response: {0}")]
    Head(Malformed),
    /// The framing of its body is wrong.
    #[error("malformed response body: {0}")]
    Body(Malformed),
    /// The member closed the connection within the answer or before it.
    #[error("the member closed the connection before the response was complete")]
    Closed,
    /// The transport failed.
    #[error("the connection failed")]
    Io(#[from] io::Error),
    /// More interim answers than any request has.
    #[error("the member sent interim responses without end")]
    Interim,
    /// The body of the request broke off, or is not as long as its head says.
    #[error("the request was not sent whole")]
    Request,
    /// A head that is not sent.
    #[error(transparent)]
    Unwritable(#[from] Unwritable),
}

/// A request on its way, and its answer.
pub(crate) struct Conversation<B> {
    /// What is left of the body; none: it was sent whole, or will not be.
    body: Option<B>,
    framing: Framing,
    /// Data too large to be copied: it is written from where it is.
    large: Bytes,
    /// The chunk of `large` has an end that is still to be written.
    chunk_open: bool,
    /// Whether the transport has taken a byte.
    begun: bool,
    /// Whether the transport has taken all.
    sent: bool,
    /// The transport takes no more. An answer may have come before.
    failed: Option<io::Error>,
    /// Whether a byte of an answer has come.
    answered: bool,
    reader: HeadReader,
    /// Bytes of interim answers.
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
    /// Writes the head; nothing is sent before the first poll.
    ///
    /// `has_length`: the client has said the length of its body, which may be 0.
    pub(crate) fn begin<'f>(
        wire: &mut Wire,
        line: RequestLine<'_>,
        fields: impl Iterator<Item = (&'f HeaderName, &'f [u8])>,
        more: Option<&FieldLines>,
        has_length: bool,
        body: B,
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
            reader: HeadReader::default(),
            interim: 0,
        })
    }

    /// Whether the transport has taken all of it.
    pub(crate) fn is_sent(&self) -> bool {
        self.sent
    }

    /// Whether the transport has taken a byte of it.
    pub(crate) fn is_begun(&self) -> bool {
        self.begun
    }

    /// Whether a byte of an answer has come.
    pub(crate) fn is_answered(&self) -> bool {
        self.answered
    }

    /// Whether an interim answer has come.
    pub(crate) fn had_interim(&self) -> bool {
        self.interim > 0
    }

    /// Sends, and reads the head of the final answer into `spare`.
    pub(crate) fn poll_head(
        &mut self,
        wire: &mut Wire,
        spare: &mut HeaderMap,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Head, WireError>> {
        self.drive(wire, cx)?;
        loop {
            let before = wire.input.len();
            let read = self.reader.read(&mut wire.input, spare);
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

    /// Goes on sending, and reads the next data of the answer's body.
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

    /// Sends as much as goes. What the transport does not take any more is no error yet: servers answer and close before they
    /// have read a whole body.
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

    /// The next of the body joins what waits to be written.
    fn take(&mut self, out: &mut Vec<u8>, cx: &mut Context<'_>) -> Result<Poll<()>, WireError> {
        let Some(body) = &mut self.body else {
            return Ok(Poll::Ready(()));
        };
        let data = match body.is_end_stream() {
            true => None,
            false => match Pin::new(body).poll_frame(cx) {
                Poll::Pending => return Ok(Poll::Pending),
                Poll::Ready(None) => None,
                Poll::Ready(Some(Ok(frame))) => Some(frame.into_data().unwrap_or_default()),
                Poll::Ready(Some(Err(_))) => return Err(WireError::Request),
            },
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
        // A chunk of none would be the last.
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

/// Interim answers are not passed on; 101 is final.
fn is_interim(head: &Head) -> bool {
    head.status.is_informational() && head.status != http::StatusCode::SWITCHING_PROTOCOLS
}

/// How the end of this body is told.
fn framing<B: Body>(line: &RequestLine<'_>, has_length: bool, body: &B) -> Framing {
    if !body.is_end_stream() {
        let length = body.size_hint().exact();
        return length.map_or(Framing::Chunked, Framing::Length);
    }
    // RFC 1945, 7.2.2: a request that has a body must say its length.
    let has_body = !matches!(*line.method, Method::GET | Method::HEAD | Method::DELETE);
    match has_length || (has_body && line.version == Version::HTTP_10) {
        true => Framing::Length(0),
        false => Framing::None,
    }
}
