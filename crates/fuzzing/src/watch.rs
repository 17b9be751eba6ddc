//! Compares the proxy's request watch, which reads a client's bytes as they arrive, with a slow parser that has all
//! bytes at once, and with hyper.
//!
//! Input: one byte that selects how the rest is split into pieces, then everything that the client sends on its
//! connection.

use std::{
    cell::RefCell,
    convert::Infallible,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll},
};

use http::{Request, Response};
use http_body_util::{BodyExt, Empty};
use http1::{HeadFault, RequestWatch};
use hyper::{body::Incoming, server::conn::http1::Builder, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// What a parser finds on a connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Observed {
    /// Faults in request heads, each with the number of its request.
    pub(crate) faults: Vec<(u64, HeadFault)>,
    /// Number of complete heads.
    heads: u64,
    /// Offset at which a body is malformed.
    malformed: Option<usize>,
}

pub(crate) fn check(input: &[u8]) {
    let Some((&how, bytes)) = input.split_first() else {
        return;
    };
    let (slow, lines) = read_slowly(bytes);
    let whole = watched(&[bytes]);
    assert_eq!(whole, slow, "{:?}", bytes.escape_ascii().to_string());
    let piece = usize::from(how) % 24 + 1;
    let equal: Vec<_> = bytes.chunks(piece).collect();
    let growing = growing(bytes, usize::from(how >> 4));
    for pieces in [equal, growing] {
        assert_eq!(watched(&pieces), slow, "pieces of {piece}");
        check_hyper(&pieces, &slow, &lines);
    }
}

fn growing(mut bytes: &[u8], first: usize) -> Vec<&[u8]> {
    let mut pieces = Vec::new();
    let mut length = first;
    while !bytes.is_empty() {
        length = length * 2 % 61 + 1;
        let (piece, rest) = bytes.split_at(length.min(bytes.len()));
        pieces.push(piece);
        bytes = rest;
    }
    pieces
}

/// Parses the pieces with the proxy's request watch.
pub(crate) fn watched(pieces: &[&[u8]]) -> Observed {
    let mut watch = RequestWatch::new(HEAD_BYTES_MAX, 0);
    let mut seen = Observed::default();
    let mut before = 0;
    for piece in pieces {
        let passed = watch.pass(piece, |head, fault| seen.faults.push((head, fault)));
        seen.heads = watch.heads();
        if let Err((_, at)) = passed {
            seen.malformed = Some(before + at);
            break;
        }
        before += piece.len();
    }
    seen
}

/// Parses all bytes line by line. Also returns the request line of each head.
fn read_slowly(bytes: &[u8]) -> (Observed, Vec<&[u8]>) {
    let mut request_lines = Vec::new();
    let seen = slow_requests(bytes, &mut request_lines);
    (seen, request_lines)
}

fn slow_requests<'a>(bytes: &'a [u8], request_lines: &mut Vec<&'a [u8]>) -> Observed {
    let mut seen = Observed::default();
    let mut at = 0;
    loop {
        while matches!(bytes.get(at), Some(b'\r' | b'\n')) {
            at += 1;
        }
        let Some((head, length)) = lines_of_head(&bytes[at..]) else {
            return seen;
        };
        if length > HEAD_BYTES_MAX {
            return seen;
        }
        at += length;
        let number = seen.heads;
        seen.heads += 1;
        let bare = head.iter().any(|line| !line.ends_with(b"\r"));
        let lines: Vec<_> = head
            .iter()
            .map(|line| line.strip_suffix(b"\r").unwrap_or(line))
            .collect();
        request_lines.push(lines[0]);
        let lengths = values(&lines, "content-length");
        let chunked = !values(&lines, "transfer-encoding").is_empty();
        let fault = if bare {
            Some(HeadFault::BareLf)
        } else if chunked && !lengths.is_empty() {
            Some(HeadFault::TwoFramings)
        } else if lengths.len() > 1 {
            Some(HeadFault::RepeatedLength)
        } else if lines[0].contains(&b'#') {
            Some(HeadFault::Fragment)
        } else {
            None
        };
        seen.faults.extend(fault.map(|fault| (number, fault)));
        if chunked {
            match slow_chunks(&bytes[at..]) {
                Chunks::Whole(length) => at += length,
                Chunks::Part => return seen,
                Chunks::Malformed(good) => {
                    seen.malformed = Some(at + good);
                    return seen;
                }
            }
        } else if let Some(length) = lengths.last() {
            let length: u64 = length.trim_ascii().parse().unwrap_or(0);
            let left = (bytes.len() - at) as u64;
            if length > left {
                return seen;
            }
            at += length as usize;
        }
    }
}

/// The lines of the head at the start of `bytes`, without their LF, and the length of the head.
fn lines_of_head(bytes: &[u8]) -> Option<(Vec<&[u8]>, usize)> {
    let mut lines = Vec::new();
    let mut at = 0;
    loop {
        let end = bytes[at..].iter().position(|byte| *byte == b'\n')?;
        let line = &bytes[at..at + end];
        at += end + 1;
        lines.push(line);
        if matches!(line, b"" | b"\r") {
            return Some((lines, at));
        }
    }
}

fn values<'a>(lines: &[&'a [u8]], name: &str) -> Vec<&'a str> {
    let fields = lines.iter().skip(1).filter_map(|line| {
        let at = line.iter().position(|byte| *byte == b':')?;
        let same = line[..at].eq_ignore_ascii_case(name.as_bytes());
        same.then(|| std::str::from_utf8(&line[at + 1..]).unwrap_or_default())
    });
    fields.collect()
}

enum Chunks {
    Whole(usize),
    Part,
    /// Malformed after this many valid bytes.
    Malformed(usize),
}

/// Parses a chunked body line by line, following the grammar of RFC 9112, section 7.1.
fn slow_chunks(bytes: &[u8]) -> Chunks {
    let mut at = 0;
    loop {
        let (line, end) = line_at(bytes, at);
        match size_line(line, end) {
            Line::Good => {}
            Line::Part => return Chunks::Part,
            Line::Bad(good) => return Chunks::Malformed(at + good),
        }
        let digits = line.iter().take_while(|byte| byte.is_ascii_hexdigit());
        let text = std::str::from_utf8(&line[..digits.count()]).unwrap_or_default();
        let size = u64::from_str_radix(text, 16).unwrap_or(u64::MAX);
        at += line.len() + 2;
        if size == 0 {
            break;
        }
        if size > (bytes.len() - at) as u64 {
            return Chunks::Part;
        }
        at += size as usize;
        for expected in *b"\r\n" {
            match bytes.get(at) {
                None => return Chunks::Part,
                Some(byte) if *byte == expected => at += 1,
                Some(_) => return Chunks::Malformed(at),
            }
        }
    }
    loop {
        let (line, end) = line_at(bytes, at);
        match trailer_line(line, end) {
            Line::Good => {}
            Line::Part => return Chunks::Part,
            Line::Bad(good) => return Chunks::Malformed(at + good),
        }
        at += line.len() + 2;
        if line.is_empty() {
            return Chunks::Whole(at);
        }
    }
}

enum Line {
    Good,
    Part,
    /// Malformed after this many valid bytes.
    Bad(usize),
}

/// Splits the bytes from `at` on at the first CR or LF, or at the end.
fn line_at(bytes: &[u8], at: usize) -> (&[u8], &[u8]) {
    let rest = bytes.get(at..).unwrap_or_default();
    let end = rest.iter().position(|byte| matches!(byte, b'\r' | b'\n'));
    rest.split_at(end.unwrap_or(rest.len()))
}

/// Checks the line end after a line that is valid and complete.
fn line_end(line: &[u8], end: &[u8]) -> Line {
    match end {
        [] | [b'\r'] => Line::Part,
        [b'\r', b'\n', ..] => Line::Good,
        [b'\r', ..] => Line::Bad(line.len() + 1),
        _ => Line::Bad(line.len()),
    }
}

/// `1*HEXDIG *( ";" token [ "=" ( token / quoted-string ) ] )`
fn size_line(line: &[u8], end: &[u8]) -> Line {
    let digits = line.iter().take_while(|byte| byte.is_ascii_hexdigit());
    let digits = digits.count();
    if digits > 16 {
        return Line::Bad(16);
    }
    let mut at = digits;
    if digits == 0 {
        return match (line, end) {
            ([], []) => Line::Part,
            _ => Line::Bad(0),
        };
    }
    while at < line.len() {
        if line[at] != b';' {
            return Line::Bad(at);
        }
        at += 1;
        let name = tokens(&line[at..]);
        if name == 0 {
            return incomplete(at, line, end);
        }
        at += name;
        if line.get(at) != Some(&b'=') {
            continue;
        }
        at += 1;
        if line.get(at) == Some(&b'"') {
            at += 1;
            loop {
                match line.get(at..).unwrap_or_default() {
                    [] => return incomplete(at, line, end),
                    [b'"', ..] => break,
                    [b'\\'] => return incomplete(at + 1, line, end),
                    [b'\\', escaped, ..] if is_text(*escaped) => at += 2,
                    [b'\\', ..] => return Line::Bad(at + 1),
                    [byte, ..] if is_text(*byte) => at += 1,
                    _ => return Line::Bad(at),
                }
            }
            at += 1;
        } else {
            let value = tokens(&line[at..]);
            if value == 0 {
                return incomplete(at, line, end);
            }
            at += value;
        }
    }
    line_end(line, end)
}

/// The line is incomplete at `at`. It is malformed unless the missing bytes have not arrived yet.
fn incomplete(at: usize, line: &[u8], end: &[u8]) -> Line {
    match at == line.len() && end.is_empty() {
        true => Line::Part,
        false => Line::Bad(at),
    }
}

/// `token ":" *text`, or an empty line.
fn trailer_line(line: &[u8], end: &[u8]) -> Line {
    if line.is_empty() {
        return line_end(line, end);
    }
    let name = tokens(line);
    if name == 0 || line.get(name) != Some(&b':') {
        return incomplete(name, line, end);
    }
    let value = &line[name + 1..];
    match value.iter().position(|byte| !is_text(*byte)) {
        Some(odd) => Line::Bad(name + 1 + odd),
        None => line_end(line, end),
    }
}

fn tokens(bytes: &[u8]) -> usize {
    let is_token =
        |byte: &&u8| byte.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(char::from(**byte));
    bytes.iter().take_while(is_token).count()
}

fn is_text(byte: u8) -> bool {
    byte == b'\t' || byte >= b' ' && byte != 0x7f
}

/// Each request that hyper parses must have the request line and the fault that the slow parser finds for the request
/// with the same number. This also shows that both agree on where each body ends. hyper may reject more requests, and
/// may stop earlier.
fn check_hyper(pieces: &[&[u8]], slow: &Observed, lines: &[&[u8]]) {
    let served = serve_with_hyper(pieces);
    assert!(served.targets.len() <= lines.len(), "{:?}", served.targets);
    for ((method, target), line) in served.targets.iter().zip(lines) {
        let (word, rest) = line.split_at(method.len());
        assert_eq!(word, method.as_bytes());
        let target = target.as_bytes();
        assert!(
            target.is_empty() || rest.windows(target.len()).any(|bytes| bytes == target),
            "{line:?}"
        );
    }
    let heads = served.targets.len() as u64;
    let faults = slow.faults.iter();
    let expected: Vec<_> = faults
        .filter(|(number, _)| *number < heads)
        .copied()
        .collect();
    assert_eq!(served.faults, expected);
}

struct Served {
    /// Method and target of each request that hyper parsed.
    targets: Vec<(String, String)>,
    /// Faults that the watch found in the requests that hyper parsed.
    faults: Vec<(u64, HeadFault)>,
}

/// Parses the pieces with hyper's server, through a transport with a request watch.
fn serve_with_hyper(pieces: &[&[u8]]) -> Served {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    runtime.expect("a runtime").block_on(async {
        let state = Rc::new(RefCell::new(Served {
            targets: Vec::new(),
            faults: Vec::new(),
        }));
        let found = Rc::new(RefCell::new(Vec::new()));
        let transport = WatchedTransport {
            pieces: pieces.iter().map(|piece| piece.to_vec()).collect(),
            watch: RequestWatch::new(HEAD_BYTES_MAX, 0),
            found: Rc::clone(&found),
            malformed: false,
        };
        let state_seen = Rc::clone(&state);
        let service = service_fn(move |request: Request<Incoming>| {
            let (state_seen, found) = (Rc::clone(&state_seen), Rc::clone(&found));
            async move {
                let number = state_seen.borrow().targets.len() as u64;
                let target = request.uri().path_and_query().map(ToString::to_string);
                // An absolute URL may omit the path; hyper then reports "/".
                let target = target.filter(|target| target != "/").unwrap_or_default();
                let method = request.method().to_string();
                state_seen.borrow_mut().targets.push((method, target));
                let fault = found
                    .borrow()
                    .iter()
                    .find(|(head, _): &&(u64, HeadFault)| *head == number)
                    .copied();
                state_seen.borrow_mut().faults.extend(fault);
                // Read the whole body. How hyper handles an unread body is not tested here.
                let _ = request.into_body().collect().await;
                Ok::<_, Infallible>(Response::new(Empty::<bytes::Bytes>::new()))
            }
        });
        let connection = Builder::new()
            .max_header_size(HEAD_BYTES_MAX)
            .serve_connection(TokioIo::new(transport), service);
        let _ = connection.await;
        Rc::into_inner(state)
            .expect("the connection has ended")
            .into_inner()
    })
}

/// Returns one piece per read, and accepts everything that is written.
struct WatchedTransport {
    pieces: std::collections::VecDeque<Vec<u8>>,
    watch: RequestWatch,
    found: Rc<RefCell<Vec<(u64, HeadFault)>>>,
    malformed: bool,
}

impl AsyncRead for WatchedTransport {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let malformed = || Poll::Ready(Err(std::io::ErrorKind::InvalidData.into()));
        if self.malformed {
            return malformed();
        }
        let Some(mut piece) = self.pieces.pop_front() else {
            return Poll::Ready(Ok(()));
        };
        if piece.len() > buffer.remaining() {
            let rest = piece.split_off(buffer.remaining());
            self.pieces.push_front(rest);
        }
        let found = Rc::clone(&self.found);
        let passed = self.watch.pass(&piece, |head, fault| {
            found.borrow_mut().push((head, fault));
        });
        if let Err((_, good)) = passed {
            self.malformed = true;
            if good == 0 {
                return malformed();
            }
            piece.truncate(good);
        }
        buffer.put_slice(&piece);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for WatchedTransport {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// A small limit, so that fuzz input reaches it.
const HEAD_BYTES_MAX: usize = 512;

pub(crate) const WORDS: &[&[u8]] = &[
    b"GET / HTTP/1.1\r\n",
    b"GET / HTTP/1.0\r\n",
    b"PUT /a?b HTTP/1.1\r\n",
    b"CONNECT a:1 HTTP/1.1\r\n",
    b"Host: a\r\n",
    b"Content-Length: 3\r\n",
    b"content-length:",
    b"Transfer-Encoding: chunked\r\n",
    b"transfer-encoding:gzip\r\n",
    b"Expect: 100-continue\r\n",
    b"Connection: close\r\n",
    b"Upgrade: x\r\n",
    b"0\r\n\r\n",
    b"3\r\nabc\r\n",
    b"3;a=\"b\\\"\"\r\nabc\r\n",
    b"A: b\r\n",
    b"\r\n\r\n",
    b"\r\n",
    b"\n",
    b"\r",
    b"#",
    b" ",
    b"\t",
    b";",
    b"+",
];
