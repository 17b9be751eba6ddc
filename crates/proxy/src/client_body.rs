//! The body of a request as the client's protocol delivers it: data without trailers, and a fault if the body ends early.

use std::{
    rc::Rc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use h2::RecvStream;
use http_body::SizeHint;
use tokio::sync::Notify;

use crate::{body_fault::BodyFault, client_wire::RequestStream, connection::Conn};

/// The body of a request before it is read.
#[derive(Debug)]
pub(crate) enum ClientBody {
    Http1(RequestStream),
    Http2(StreamBody),
}

/// The data of an HTTP/2 stream after its head.
#[derive(Debug)]
pub(crate) struct StreamBody {
    data: RecvStream,
    /// Bytes still to arrive, if the head declares a length. h2 enforces the length.
    length: Option<u64>,
    /// The last of the declared bytes, held back until the stream ends. If more bytes follow, the request is malformed
    /// and must not have been forwarded as complete.
    last: Option<Bytes>,
    /// Notified when the body is first read, because the client may wait for `100 Continue`.
    wanted: Option<Rc<Notify>>,
    /// The connection, and the stream number.
    stream: (Rc<Conn>, u32),
}

impl From<RequestStream> for ClientBody {
    fn from(stream: RequestStream) -> Self {
        Self::Http1(stream)
    }
}

impl From<StreamBody> for ClientBody {
    fn from(stream: StreamBody) -> Self {
        Self::Http2(stream)
    }
}

impl ClientBody {
    /// The next data. Trailers are dropped, because they could carry fields that are refused in a head.
    pub(crate) fn poll_data(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, BodyFault>>> {
        match self {
            Self::Http1(stream) => stream.poll_data(cx),
            Self::Http2(stream) => stream.poll_data(cx),
        }
    }

    pub(crate) fn is_end_stream(&self) -> bool {
        match self {
            Self::Http1(stream) => stream.is_end(),
            Self::Http2(stream) => stream.is_end(),
        }
    }

    pub(crate) fn size_hint(&self) -> SizeHint {
        match self {
            Self::Http1(stream) => stream.size_hint(),
            Self::Http2(stream) => match stream.length {
                Some(length) => SizeHint::with_exact(length + stream.held()),
                None if stream.data.is_end_stream() => SizeHint::with_exact(0),
                None => SizeHint::default(),
            },
        }
    }
}

impl StreamBody {
    pub(crate) fn new(
        data: RecvStream,
        length: Option<u64>,
        wanted: Option<Rc<Notify>>,
        stream: (Rc<Conn>, u32),
    ) -> Self {
        Self {
            data,
            length,
            last: None,
            wanted,
            stream,
        }
    }

    fn is_end(&self) -> bool {
        self.last.is_none() && self.data.is_end_stream()
    }

    /// Bytes that have arrived and were not passed on yet.
    fn held(&self) -> u64 {
        self.last.as_ref().map_or(0, |last| last.len() as u64)
    }

    /// Reads the next data and allows the client to send as much again. This bounds the memory for a body that its member reads
    /// slowly.
    fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BodyFault>>> {
        if let Some(wanted) = self.wanted.take() {
            wanted.notify_one();
        }
        loop {
            let next = ready!(self.data.poll_data(cx));
            let (conn, number) = &self.stream;
            if next.is_none() && conn.http2_streams().is_malformed(*number) {
                return Poll::Ready(Some(Err(BodyFault::Broken)));
            }
            let Some(data) = next else {
                return Poll::Ready(self.last.take().map(Ok));
            };
            let data = data.map_err(|error| stream_fault(&error))?;
            // This fails on a stream that has ended. The next poll returns the end.
            let _ = self.data.flow_control().release_capacity(data.len());
            if let Some(length) = &mut self.length {
                *length = length.saturating_sub(data.len() as u64);
                if *length == 0 && !self.data.is_end_stream() {
                    // Empty frames may follow the last data.
                    self.last.get_or_insert(data);
                    continue;
                }
            }
            return Poll::Ready(Some(Ok(data)));
        }
    }
}

/// The fault for an error of h2. An error that h2 raises by itself means invalid framing: more or fewer bytes than declared.
fn stream_fault(error: &h2::Error) -> BodyFault {
    if error.is_library() && !error.is_io() {
        BodyFault::Broken
    } else {
        BodyFault::Gone
    }
}
