//! The front that the codec of `http1` replaced, which serves as its reference: hyper's HTTP/1 server, and a watch over
//! the client's bytes for input that hyper accepts without reporting it.

use std::{
    cell::RefCell,
    collections::VecDeque,
    convert::Infallible,
    pin::{Pin, pin},
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
};

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, Version};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use http1::HeadFault;
use hyper::{
    body::Incoming, server::conn::http1::Builder, service::service_fn, upgrade::OnUpgrade,
};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::strict_chunks::{Chunks, strict_chunks};

/// A request as a front receives it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Received {
    pub(crate) method: Method,
    pub(crate) target: String,
    pub(crate) version: Version,
    pub(crate) fields: HeaderMap,
    pub(crate) fault: Option<HeadFault>,
    /// `None` for a chunked body.
    pub(crate) length: Option<u64>,
    pub(crate) has_upgrade: bool,
    pub(crate) body: Vec<u8>,
    pub(crate) end: BodyEnd,
}

/// How reading a body ended.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) enum BodyEnd {
    /// The end has not arrived.
    #[default]
    Incomplete,
    Complete,
    Malformed,
    /// The body has more trailers than hyper accepts.
    Trailers,
}

/// The body of a response, which has at most one piece.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) data: Option<Bytes>,
    pub(crate) has_length: bool,
}

/// The requests that a front received, and the bytes that it has written.
#[derive(Debug, Default)]
pub(crate) struct Served {
    pub(crate) requests: Vec<Received>,
    pub(crate) output: Vec<u8>,
}

/// Serves the client's bytes, which arrive in pieces of this size.
pub(crate) fn serve(
    bytes: &[u8],
    piece: usize,
    head_bytes_max: usize,
    answer: impl Fn(usize, Version) -> Response<Answer>,
) -> Served {
    let watched = watch(bytes, head_bytes_max);
    let transport = Transport {
        pieces: watched.passed.chunks(piece).map(<[u8]>::to_vec).collect(),
        is_malformed: watched.is_malformed,
        output: Rc::default(),
    };
    let output = Rc::clone(&transport.output);
    let (requests, faults) = (Rc::new(RefCell::new(Vec::new())), Rc::new(watched.faults));
    let seen = Rc::clone(&requests);
    let service = service_fn(move |request: Request<Incoming>| {
        let (head, body) = request.into_parts();
        let index = seen.borrow().len();
        let response = answer(index, head.version);
        let received = Received {
            has_upgrade: head.method != Method::CONNECT
                && head.extensions.get::<OnUpgrade>().is_some(),
            method: head.method,
            target: head.uri.to_string(),
            version: head.version,
            fields: head.headers,
            fault: faults.get(index).copied().flatten(),
            length: body.size_hint().exact(),
            ..Received::default()
        };
        seen.borrow_mut().push(received);
        let seen = Rc::clone(&seen);
        async move {
            read_body(body, |read| read(&mut seen.borrow_mut()[index])).await;
            Ok::<_, Infallible>(response)
        }
    });
    let connection = Builder::new()
        .header_read_timeout(None)
        .max_header_size(head_bytes_max)
        .serve_connection(TokioIo::new(transport), service);
    poll_while_woken(pin!(connection));
    let requests = requests.take();
    let output = output.take();
    Served { requests, output }
}

async fn read_body(mut body: Incoming, note: impl Fn(&dyn Fn(&mut Received))) {
    loop {
        match body.frame().await {
            Some(Ok(frame)) => {
                let data = frame.into_data().unwrap_or_default();
                note(&|received| received.body.extend_from_slice(&data));
            }
            Some(Err(error)) => {
                let error = format!("{error:?}");
                let end = if error.contains("chunk trailers") {
                    BodyEnd::Trailers
                } else {
                    BodyEnd::Malformed
                };
                return note(&|received| received.end = end.clone());
            }
            None => return note(&|received| received.end = BodyEnd::Complete),
        }
    }
}

/// Polls until the future waits for more bytes from the client, or has ended.
fn poll_while_woken(mut future: Pin<&mut impl Future>) {
    struct Woken(AtomicBool);
    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let woken = Arc::new(Woken(AtomicBool::new(true)));
    let waker = Waker::from(Arc::clone(&woken));
    while woken.0.swap(false, Ordering::Relaxed) {
        if future
            .as_mut()
            .poll(&mut Context::from_waker(&waker))
            .is_ready()
        {
            return;
        }
    }
}

impl Body for Answer {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.data.take().map(|data| Ok(Frame::data(data))))
    }

    fn is_end_stream(&self) -> bool {
        self.data.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        match &self.data {
            Some(_) if !self.has_length => SizeHint::default(),
            data => SizeHint::with_exact(data.as_ref().map_or(0, |data| data.len() as u64)),
        }
    }
}

/// Returns one piece per read, and accepts everything that is written.
struct Transport {
    pieces: VecDeque<Vec<u8>>,
    /// Whether an error follows the pieces. If not, the client sends nothing more and leaves the connection open.
    is_malformed: bool,
    output: Rc<RefCell<Vec<u8>>>,
}

impl AsyncRead for Transport {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        match self.pieces.pop_front() {
            Some(mut piece) => {
                let rest = piece.split_off(piece.len().min(buffer.remaining()));
                if !rest.is_empty() {
                    self.pieces.push_front(rest);
                }
                buffer.put_slice(&piece);
                Poll::Ready(Ok(()))
            }
            None if self.is_malformed => Poll::Ready(Err(std::io::ErrorKind::InvalidData.into())),
            None => Poll::Pending,
        }
    }
}

impl AsyncWrite for Transport {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        self.output.borrow_mut().extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// The results of the watch over a connection.
#[derive(Default)]
struct Watched {
    /// The fault of each head.
    faults: Vec<Option<HeadFault>>,
    /// The bytes that are passed to hyper: without a malformed chunk, and with encoded queries.
    passed: Vec<u8>,
    is_malformed: bool,
}

fn watch(mut bytes: &[u8], head_bytes_max: usize) -> Watched {
    let mut watched = Watched::default();
    loop {
        let is_line_end = |byte: &&u8| matches!(byte, b'\r' | b'\n');
        let empty = bytes.iter().take_while(is_line_end).count();
        let seen = seen(&bytes[empty..]).filter(|seen| seen.bytes <= head_bytes_max);
        let Some(seen) = seen else {
            // hyper refuses such a head, or waits for its end.
            watched.passed.extend_from_slice(bytes);
            return watched;
        };
        let (head, rest) = bytes.split_at(empty + seen.bytes);
        let (empty, head) = head.split_at(empty);
        watched.passed.extend_from_slice(empty);
        watched.passed.extend(encoded(head));
        watched.faults.push(seen.fault());
        let body = match (seen.chunked, seen.length) {
            (true, _) => match strict_chunks(rest) {
                Chunks::Whole(length) => length,
                Chunks::Part => rest.len(),
                Chunks::Malformed(good) => {
                    watched.passed.extend_from_slice(&rest[..good]);
                    watched.is_malformed = true;
                    return watched;
                }
            },
            (false, length) => usize::try_from(length.unwrap_or(0)).unwrap_or(usize::MAX),
        };
        let (body, rest) = rest.split_at(body.min(rest.len()));
        watched.passed.extend_from_slice(body);
        if rest.is_empty() {
            return watched;
        }
        bytes = rest;
    }
}

/// The head with `"`, `<` and `>` after the first `?` of the request line encoded, because hyper refuses these
/// characters.
pub(crate) fn encoded(head: &[u8]) -> Vec<u8> {
    let mut encoded = Vec::with_capacity(head.len());
    let (mut in_line, mut in_query) = (true, false);
    for byte in head {
        in_line &= *byte != b'\n';
        in_query |= *byte == b'?';
        match byte {
            b'"' | b'<' | b'>' if in_line && in_query => {
                encoded.extend(format!("%{byte:02X}").bytes());
            }
            byte => encoded.push(*byte),
        }
    }
    encoded
}

/// The facts about a head that the watch needs.
#[derive(Debug, Default)]
struct Seen {
    /// Bytes of the head, including the empty line.
    bytes: usize,
    bare_lf: bool,
    fragment: bool,
    length: Option<u64>,
    repeated_length: bool,
    chunked: bool,
}

impl Seen {
    fn fault(&self) -> Option<HeadFault> {
        match self {
            Self { bare_lf: true, .. } => Some(HeadFault::BareLf),
            Self {
                length: Some(_),
                chunked: true,
                ..
            } => Some(HeadFault::TwoFramings),
            Self {
                repeated_length: true,
                ..
            } => Some(HeadFault::RepeatedLength),
            Self { fragment: true, .. } => Some(HeadFault::Fragment),
            _ => None,
        }
    }
}

/// The head at the beginning of these bytes, if it is complete.
fn seen(bytes: &[u8]) -> Option<Seen> {
    let mut seen = Seen::default();
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        let line_with_cr = line.strip_suffix(b"\n")?;
        let line_text = line_with_cr.strip_suffix(b"\r");
        seen.bare_lf |= line_text.is_none();
        let text = line_text.unwrap_or(line_with_cr);
        if text.is_empty() {
            seen.bytes += line.len();
            return Some(seen);
        }
        if seen.bytes == 0 {
            seen.fragment = text.contains(&b'#');
        } else if let Some(value) = value(text, b"content-length") {
            seen.repeated_length |= seen.length.is_some();
            let value = std::str::from_utf8(value).unwrap_or_default();
            // hyper refuses an invalid length.
            seen.length = Some(value.parse().unwrap_or_default());
        } else {
            seen.chunked |= value(text, b"transfer-encoding").is_some();
        }
        seen.bytes += line.len();
    }
    None
}

/// The value of a line, if the line is this field.
fn value<'a>(line: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let (start, rest) = line.split_at_checked(name.len())?;
    match rest {
        [b':', value @ ..] if start.eq_ignore_ascii_case(name) => Some(value.trim_ascii()),
        _ => None,
    }
}
