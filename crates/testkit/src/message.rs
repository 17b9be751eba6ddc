//! Strict HTTP/1.1 framing, so that tests do not read through the library that they test.

use std::{
    fmt,
    io::{self, ErrorKind, Read},
};

/// Maximum bytes of a body that are stored; the rest is counted.
const BODY_KEPT_MAX: usize = 1 << 20;
/// Maximum bytes of a head.
const HEAD_MAX: usize = 1 << 20;

/// Header fields in order, with names as sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Headers(pub Vec<(String, String)>);

impl Headers {
    /// The values of every field line with this name, in any case.
    pub fn all(&self, name: &str) -> Vec<&str> {
        let same = |(n, _): &&(String, String)| n.eq_ignore_ascii_case(name);
        self.0
            .iter()
            .filter(same)
            .map(|(_, value)| value.as_str())
            .collect()
    }

    /// The first value of a field.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.all(name).first().copied()
    }

    /// The value of a field that must be present exactly once.
    ///
    /// # Panics
    /// The field is missing, or present several times.
    #[track_caller]
    pub fn only(&self, name: &str) -> &str {
        match self.all(name).as_slice() {
            [value] => value,
            values => panic!("{name}: expected one field line, found {values:?} in {self:?}"),
        }
    }

    /// Names of all fields, in lower case.
    pub fn names(&self) -> Vec<String> {
        self.0
            .iter()
            .map(|(name, _)| name.to_ascii_lowercase())
            .collect()
    }

    fn has_token(&self, name: &str, token: &str) -> bool {
        self.all(name)
            .iter()
            .flat_map(|v| v.split(','))
            .any(|t| t.trim().eq_ignore_ascii_case(token))
    }
}

/// How the end of a body is determined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyFraming {
    /// There is no body.
    None,
    /// Content-Length.
    Length(u64),
    /// Chunks.
    Chunked,
    /// The end of the connection.
    ToClose,
}

/// A body as read: at most its first MiB, and its full length.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Body {
    /// At most the first MiB of the body.
    pub kept: Vec<u8>,
    /// The number of bytes, stored or not.
    pub length: u64,
    /// Trailer fields after the last chunk.
    pub trailers: Headers,
}

impl Body {
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        let room = BODY_KEPT_MAX - self.kept.len();
        self.kept.extend_from_slice(&bytes[..bytes.len().min(room)]);
        self.length += bytes.len() as u64;
    }
}

/// A 1xx response before the final one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interim {
    /// Status code.
    pub status: u16,
    /// The fields of the response.
    pub headers: Headers,
}

/// A response as the client saw it.
#[derive(Clone, PartialEq, Eq)]
pub struct Response {
    /// Status code.
    pub status: u16,
    /// `HTTP/2`, `HTTP/1.1` or `HTTP/1.0`.
    pub version: String,
    /// Reason phrase.
    pub reason: String,
    /// Fields.
    pub headers: Headers,
    /// How the end of the body was determined.
    pub framing: BodyFraming,
    /// The body.
    pub body: Body,
    /// 1xx responses that arrived before this response.
    pub interim: Vec<Interim>,
    /// The head as received. For HTTP/2, its fields as lines.
    pub raw_head: Vec<u8>,
    /// The stream (HTTP/2).
    pub stream: Option<u32>,
    /// Whether the peer had announced the end of the connection when the response was read (HTTP/2).
    pub last: bool,
}

impl Response {
    /// The stored body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body.kept).into_owned()
    }

    /// The stored body as JSON.
    ///
    /// # Panics
    /// The body is not JSON.
    #[track_caller]
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body.kept)
            .unwrap_or_else(|error| panic!("{error} in {:?}", self.text()))
    }

    /// Whether the server announced that it closes the connection.
    pub fn says_close(&self) -> bool {
        self.last || self.headers.has_token("connection", "close")
    }
}

impl fmt::Debug for Response {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = self.text();
        if text.len() > 400 {
            text = format!(
                "{}… ({} bytes)",
                text.chars().take(400).collect::<String>(),
                self.body.length
            );
        }
        write!(
            f,
            "{} {} {:?} {:?}",
            self.status, self.reason, self.headers.0, text
        )
    }
}

/// A request line and fields.
#[derive(Clone, Debug)]
pub(crate) struct RequestHead {
    pub(crate) method: String,
    pub(crate) target: String,
    pub(crate) version: String,
    pub(crate) headers: Headers,
}

/// Reads messages from `io` and records the bytes of the current one.
pub(crate) struct MessageReader {
    buffer: Vec<u8>,
    start: usize,
    /// Bytes returned since the last `take_raw`, at most one MiB plus a head.
    raw: Vec<u8>,
}

impl MessageReader {
    pub(crate) fn new() -> Self {
        Self {
            buffer: Vec::new(),
            start: 0,
            raw: Vec::new(),
        }
    }

    /// Returns the bytes that were read since the last call.
    pub(crate) fn take_raw(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.raw)
    }

    /// Bytes that have been received and that no test has read.
    pub(crate) fn pending(&self) -> &[u8] {
        &self.buffer[self.start..]
    }

    /// Reads the next `n` bytes, whatever they mean, or as many as arrive before the end.
    pub(crate) fn bytes(&mut self, io: &mut impl Read, n: usize) -> io::Result<Vec<u8>> {
        while self.pending().len() < n && self.fill(io)? > 0 {}
        Ok(self.consume(n.min(self.pending().len())))
    }

    /// Reads a head up to and including its empty line. `None` if the connection ended before the first byte.
    pub(crate) fn head(&mut self, io: &mut impl Read) -> io::Result<Option<Vec<u8>>> {
        let mut seen = 0;
        loop {
            let pending = self.pending();
            if let Some(at) = find(&pending[seen..], b"\r\n\r\n") {
                return Ok(Some(self.consume(seen + at + 4)));
            }
            seen = pending.len().saturating_sub(3);
            if pending.len() > HEAD_MAX {
                return Err(io::Error::new(
                    ErrorKind::InvalidData,
                    "head without an end",
                ));
            }
            if self.fill(io)? == 0 {
                return match self.pending() {
                    [] => Ok(None),
                    rest => Err(ended(&format!(
                        "inside a head: {:?}",
                        String::from_utf8_lossy(rest)
                    ))),
                };
            }
        }
    }

    /// Reads a body with this framing.
    pub(crate) fn body(&mut self, io: &mut impl Read, framing: BodyFraming) -> io::Result<Body> {
        let mut body = Body::default();
        self.body_into(io, framing, &mut body)?;
        Ok(body)
    }

    /// Reads a body with this framing. If the body breaks off, `body` has the bytes that arrived.
    pub(crate) fn body_into(
        &mut self,
        io: &mut impl Read,
        framing: BodyFraming,
        body: &mut Body,
    ) -> io::Result<()> {
        match framing {
            BodyFraming::None => Ok(()),
            BodyFraming::Length(length) => self.exactly(io, length, body),
            BodyFraming::Chunked => self.chunks(io, body),
            BodyFraming::ToClose => self.rest(io, body),
        }
    }

    fn exactly(&mut self, io: &mut impl Read, mut length: u64, body: &mut Body) -> io::Result<()> {
        while length > 0 {
            if self.pending().is_empty() && self.fill(io)? == 0 {
                return Err(ended(&format!("{length} bytes before the end of a body")));
            }
            let take = (self.pending().len() as u64).min(length) as usize;
            body.push(&self.buffer[self.start..self.start + take]);
            self.skip(take);
            length -= take as u64;
        }
        Ok(())
    }

    fn chunks(&mut self, io: &mut impl Read, body: &mut Body) -> io::Result<()> {
        loop {
            let line = self.line(io)?;
            let size = line.split(';').next().unwrap_or_default();
            let size = Some(size)
                .filter(|s| !s.is_empty() && s.bytes().all(|b| b.is_ascii_hexdigit()))
                .and_then(|s| u64::from_str_radix(s, 16).ok())
                .ok_or_else(|| invalid(&format!("chunk size {line:?}")))?;
            if size == 0 {
                break;
            }
            self.exactly(io, size, body)?;
            if !self.line(io)?.is_empty() {
                return Err(invalid("bytes after a chunk"));
            }
        }
        loop {
            let line = self.line(io)?;
            if line.is_empty() {
                return Ok(());
            }
            body.trailers.0.push(field(&line)?);
        }
    }

    fn rest(&mut self, io: &mut impl Read, body: &mut Body) -> io::Result<()> {
        loop {
            let take = self.pending().len();
            body.push(&self.buffer[self.start..]);
            self.skip(take);
            if self.fill(io)? == 0 {
                return Ok(());
            }
        }
    }

    fn line(&mut self, io: &mut impl Read) -> io::Result<String> {
        loop {
            if let Some(at) = find(self.pending(), b"\r\n") {
                let line = self.consume(at + 2);
                return String::from_utf8(line[..at].to_vec())
                    .map_err(|_| invalid("a line that is not UTF-8"));
            }
            if self.fill(io)? == 0 {
                return Err(ended("inside a chunked body"));
            }
        }
    }

    /// Reads more bytes. Returns 0 at the end.
    pub(crate) fn fill(&mut self, io: &mut impl Read) -> io::Result<usize> {
        if self.start > 0 {
            self.buffer.drain(..self.start);
            self.start = 0;
        }
        let mut piece = [0; 16 << 10];
        loop {
            match io.read(&mut piece) {
                Ok(n) => {
                    self.buffer.extend_from_slice(&piece[..n]);
                    return Ok(n);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn consume(&mut self, n: usize) -> Vec<u8> {
        let taken = self.buffer[self.start..self.start + n].to_vec();
        self.skip(n);
        taken
    }

    fn skip(&mut self, n: usize) {
        if self.raw.len() < BODY_KEPT_MAX + HEAD_MAX {
            self.raw
                .extend_from_slice(&self.buffer[self.start..self.start + n]);
        }
        self.start += n;
    }
}

/// Parses a request head. Bytes that are not UTF-8 are replaced; the raw bytes still have them.
pub(crate) fn request_head(raw: &[u8]) -> io::Result<RequestHead> {
    let (start, headers) = start_and_headers(raw)?;
    let parts: Vec<&str> = start.split(' ').collect();
    let [method, target, version] = parts[..] else {
        return Err(invalid(&format!("request line {start:?}")));
    };
    if !matches!(version, "HTTP/1.1" | "HTTP/1.0") {
        return Err(invalid(&format!("version {version:?}")));
    }
    Ok(RequestHead {
        method: method.to_owned(),
        target: target.to_owned(),
        version: version.to_owned(),
        headers,
    })
}

/// Parses a response head: version, status, reason, fields.
pub(crate) fn response_head(raw: &[u8]) -> io::Result<(String, u16, String, Headers)> {
    let (start, headers) = start_and_headers(raw)?;
    let mut parts = start.splitn(3, ' ');
    let (version, status) = (
        parts.next().unwrap_or_default(),
        parts.next().unwrap_or_default(),
    );
    let status = Some(status)
        .filter(|s| s.len() == 3)
        .and_then(|s| s.parse().ok());
    match status {
        Some(status) if version.starts_with("HTTP/1.") => Ok((
            version.to_owned(),
            status,
            parts.next().unwrap_or_default().to_owned(),
            headers,
        )),
        _ => Err(invalid(&format!("status line {start:?}"))),
    }
}

/// The framing of a request's body. A length together with chunks, or the same kind twice, is an error.
pub(crate) fn request_framing(headers: &Headers) -> io::Result<BodyFraming> {
    Ok(declared(headers)?.unwrap_or(BodyFraming::None))
}

/// The framing of the body of a response to `method`.
pub(crate) fn response_framing(
    method: &str,
    status: u16,
    headers: &Headers,
) -> io::Result<BodyFraming> {
    let declared = declared(headers)?;
    match status {
        _ if method == "HEAD" => Ok(BodyFraming::None),
        100..=199 | 204 | 304 => Ok(BodyFraming::None),
        _ => Ok(declared.unwrap_or(BodyFraming::ToClose)),
    }
}

fn declared(headers: &Headers) -> io::Result<Option<BodyFraming>> {
    match (
        headers.all("content-length").as_slice(),
        headers.all("transfer-encoding").as_slice(),
    ) {
        ([], []) => Ok(None),
        ([length], []) if !length.is_empty() && length.bytes().all(|b| b.is_ascii_digit()) => {
            let length = length
                .parse()
                .map_err(|_| invalid("content-length out of range"))?;
            Ok(Some(BodyFraming::Length(length)))
        }
        ([], [coding]) if coding.eq_ignore_ascii_case("chunked") => Ok(Some(BodyFraming::Chunked)),
        (lengths, codings) => Err(invalid(&format!(
            "content-length {lengths:?} with transfer-encoding {codings:?}"
        ))),
    }
}

fn start_and_headers(raw: &[u8]) -> io::Result<(String, Headers)> {
    let text = String::from_utf8_lossy(raw);
    let mut lines = text.strip_suffix("\r\n\r\n").unwrap_or(&text).split("\r\n");
    let start = lines.next().unwrap_or_default().to_owned();
    let headers = lines.map(field).collect::<io::Result<_>>()?;
    Ok((start, Headers(headers)))
}

fn field(line: &str) -> io::Result<(String, String)> {
    let parts = line
        .split_once(':')
        .filter(|(name, _)| !name.is_empty() && !name.contains([' ', '\t', '\n']));
    let (name, value) = parts.ok_or_else(|| invalid(&format!("field line {line:?}")))?;
    if value.contains(['\n', '\r', '\0']) {
        return Err(invalid(&format!("field line {line:?}")));
    }
    Ok((name.to_owned(), value.trim_matches([' ', '\t']).to_owned()))
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack
        .windows(needle.len())
        .position(|window| window == needle)
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, what.to_owned())
}

fn ended(place: &str) -> io::Error {
    io::Error::new(
        ErrorKind::UnexpectedEof,
        format!("the connection ended {place}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(raw: &str) -> io::Result<Body> {
        let mut io = raw.as_bytes();
        let mut reader = MessageReader::new();
        let head = request_head(&reader.head(&mut io)?.expect("a head"))?;
        let body = reader.body(&mut io, request_framing(&head.headers)?)?;
        assert_eq!(
            reader.take_raw(),
            raw.as_bytes(),
            "the raw bytes are those of the message"
        );
        Ok(body)
    }

    #[test]
    fn bodies_are_read_by_their_framing() {
        let length = check("PUT / HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc").expect("by length");
        assert_eq!((length.kept.as_slice(), length.length), (&b"abc"[..], 3));
        let raw = "PUT / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1;x=y\r\nc\r\n0\r\nT: 1\r\n\r\n";
        let chunked = check(raw).expect("by chunks");
        assert_eq!(chunked.kept, b"abc");
        assert_eq!(chunked.trailers.only("t"), "1");
    }

    #[test]
    fn what_two_parsers_could_read_two_ways_is_an_error() {
        for raw in [
            "PUT / HTTP/1.1\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            "PUT / HTTP/1.1\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\nabc",
            "PUT / HTTP/1.1\r\nContent-Length: +3\r\n\r\nabc",
            "PUT / HTTP/1.1\r\nContent-Length : 3\r\n\r\nabc",
            "PUT / HTTP/1.1\r\nA: b\r\n folded\r\n\r\n",
            "PUT / HTTP/1.1\r\nA: b\nB: c\r\n\r\n",
            "PUT  / HTTP/1.1\r\n\r\n",
            "PUT / HTTP/1.1\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
            "PUT / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0x1\r\na\r\n0\r\n\r\n",
            "PUT / HTTP/1.1\r\nContent-Length: 3\r\n\r\nab",
        ] {
            assert!(check(raw).is_err(), "{raw:?}");
        }
    }
}
