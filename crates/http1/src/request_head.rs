//! Reads the head of a client's request, and the framing of its body.
//!
//! A head that two parsers could read differently gets a [`HeadFault`], and its request is refused. RFC 9112 would allow a
//! server to accept it.

use bytes::{Buf, Bytes, BytesMut};
use http::{Method, Uri, Version};
use memchr::{memchr, memchr_iter, memchr3};

use crate::{
    chunks::is_token,
    fields::{Field, FieldName, Fields, read_line},
    response::{BodyKind, number},
};

/// Maximum fields of a head.
pub const REQUEST_FIELDS_MAX: usize = 100;
/// Maximum bytes of a request target: the maximum of [`Uri`].
const TARGET_BYTES_MAX: usize = (64 << 10) - 2;
/// Maximum length of a body. Many servers store it in a signed integer.
const LENGTH_MAX: u64 = i64::MAX as u64;
/// The first bytes of a client that speaks HTTP/2 without having negotiated it (RFC 9113, 3.4).
const HTTP2_PREFACE: &[u8] = b"PRI * HTTP/2.0";

/// A fault in a request head that most parsers accept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeadFault {
    /// A line ends with a bare LF.
    #[error("a line of the request's head ends without a carriage return")]
    BareLf,
    /// The head has both Content-Length and Transfer-Encoding.
    #[error("the request has both Content-Length and Transfer-Encoding")]
    TwoFramings,
    /// The request line contains `#`.
    #[error("the request target has a fragment (#)")]
    Fragment,
    /// The head has more than one Content-Length.
    #[error("the request has more than one Content-Length")]
    RepeatedLength,
}

/// Why a head is not a request. The proxy reads nothing that follows such a head on its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RefusedHead {
    /// The method is not a token.
    #[error("malformed request: invalid HTTP method")]
    Method,
    /// The target has bytes that a URL cannot have.
    #[error("malformed request: invalid URI")]
    Target,
    /// The target has more than 64 KiB.
    #[error("the target of the request is too long")]
    TargetTooLong,
    /// The version is neither HTTP/1.0 nor HTTP/1.1.
    #[error("malformed request: invalid HTTP version")]
    Version,
    /// The client begins with HTTP/2.
    #[error("malformed request: invalid HTTP version (found HTTP2 preface)")]
    Http2,
    /// A line is not a field.
    #[error("malformed request: invalid HTTP header")]
    Field,
    /// A Content-Length is not a number, exceeds 2⁶³ − 1, or is repeated with another value.
    #[error("malformed request: invalid content-length")]
    Length,
    /// The last transfer coding is not `chunked`, so the end of the body is unknown.
    #[error("malformed request: invalid transfer-encoding")]
    Coding,
    /// HTTP/1.0 has no transfer codings.
    #[error("malformed request: unexpected transfer-encoding")]
    CodingInHttp10,
    /// The head has more bytes than allowed, or more than [`REQUEST_FIELDS_MAX`] fields.
    #[error("the head of the request is too large")]
    TooLarge,
}

/// The head of a request.
#[derive(Debug)]
pub struct RequestHead {
    /// The method.
    pub method: Method,
    /// The target, in any form, without a fragment.
    pub target: Uri,
    /// The version of HTTP.
    pub version: Version,
    /// Fields, including hop-by-hop ones.
    pub fields: Fields,
    /// The framing of the body. The end of the connection never ends the body of a request.
    pub body: BodyKind,
    /// Why the request must be refused although it can be read.
    pub fault: Option<HeadFault>,
    /// Whether the client keeps the connection open after the response (RFC 9112, 9.3).
    pub keeps_alive: bool,
    /// Whether the client waits for `100 Continue` before it sends the body.
    pub expects_continue: bool,
    /// Whether an HTTP/1.1 request has an `Upgrade` field.
    pub has_upgrade: bool,
    /// By how many bytes the target has grown by percent-encoding bytes of its query. These bytes count towards the limit.
    encoded: usize,
}

/// Finds the end of a head in the bytes that have arrived, and parses the head.
#[derive(Debug)]
pub struct RequestHeadReader {
    bytes_max: usize,
    /// Bytes of empty lines that were skipped before the head. They count towards the limit, so that a client cannot send them
    /// without end.
    skipped: usize,
    /// How many bytes at the beginning are known not to contain the end of the head.
    searched: usize,
    /// The positions of the LFs in these bytes. The first LF ends the request line.
    ends: Vec<u32>,
}

impl RequestHeadReader {
    /// A reader for heads with at most this many bytes.
    pub fn new(bytes_max: usize) -> Self {
        Self {
            bytes_max,
            skipped: 0,
            searched: 0,
            ends: Vec::new(),
        }
    }

    /// Whether a part of a head has been read.
    pub fn has_begun(&self) -> bool {
        self.skipped > 0 || self.searched > 0
    }

    /// Takes a head from the beginning of `buffer`. `None` if its end has not arrived.
    ///
    /// # Errors
    /// [`RefusedHead`]. Bytes that cannot become a request line are refused before the end of the head.
    pub fn read(&mut self, buffer: &mut BytesMut) -> Result<Option<RequestHead>, RefusedHead> {
        let is_begin = self.searched == 0;
        if is_begin {
            let empty = empty_lines(buffer);
            buffer.advance(empty);
            self.skipped += empty;
        }
        let has_line = !self.ends.is_empty();
        let Some(end) = self.end_of_head(buffer)? else {
            // Checked only at the first read and when the request line is complete. Checking a request line at each read would
            // take time quadratic in its length.
            if is_begin || has_line == self.ends.is_empty() {
                check_beginning(buffer, self.ends.first())?;
            }
            return if self.skipped + buffer.len() >= self.bytes_max {
                Err(RefusedHead::TooLarge)
            } else {
                Ok(None)
            };
        };
        let bytes = self.skipped + end;
        if bytes > self.bytes_max {
            return Err(RefusedHead::TooLarge);
        }
        let parsed = parse(buffer.split_to(end), &self.ends)?;
        (self.skipped, self.searched) = (0, 0);
        self.ends.clear();
        if bytes + parsed.encoded > self.bytes_max {
            Err(RefusedHead::TooLarge)
        } else {
            Ok(Some(parsed))
        }
    }

    /// The position after the empty line that ends a head.
    fn end_of_head(&mut self, buffer: &[u8]) -> Result<Option<usize>, RefusedHead> {
        for line_end in memchr_iter(b'\n', &buffer[self.searched..]) {
            let end = self.searched + line_end;
            let start = self.ends.last().map_or(0, |before| *before as usize + 1);
            if matches!(&buffer[start..end], b"" | b"\r") {
                return Ok(Some(end + 1));
            }
            // The request line is not a field, so `ends` may have one element more.
            if self.ends.len() > REQUEST_FIELDS_MAX {
                return Err(RefusedHead::TooLarge);
            }
            self.ends.push(end as u32);
        }
        // A lone CR may become an empty line before the head.
        self.searched = match buffer {
            b"\r" => 0,
            _ => buffer.len(),
        };
        Ok(None)
    }
}

/// The number of bytes in leading empty lines. They do not belong to a request (RFC 9112, 2.2).
fn empty_lines(bytes: &[u8]) -> usize {
    let mut rest = bytes;
    while let [b'\r', b'\n', after @ ..] | [b'\n', after @ ..] = rest {
        rest = after;
    }
    bytes.len() - rest.len()
}

/// Refuses bytes that cannot begin a request, because a peer with another protocol may wait for an answer to its first line.
fn check_beginning(buffer: &[u8], end: Option<&u32>) -> Result<(), RefusedHead> {
    if let Some(end) = end {
        return request_line(line(buffer, 0, *end).0).map(|_| ());
    }
    let line = buffer.strip_suffix(b"\r").unwrap_or(buffer);
    let mut words = line.split(|byte| *byte == b' ');
    let (method, target) = (words.next(), words.next());
    if !method
        .unwrap_or_default()
        .iter()
        .all(|byte| is_token(*byte))
    {
        return Err(RefusedHead::Method);
    }
    if is_target(target.unwrap_or_default()) {
        Ok(())
    } else {
        Err(RefusedHead::Target)
    }
}

/// A line without its line end, and whether it ends with a bare LF.
fn line(bytes: &[u8], start: usize, end: u32) -> (&[u8], bool) {
    let line = bytes.get(start..end as usize).unwrap_or_default();
    match line {
        [line @ .., b'\r'] => (line, false),
        line => (line, true),
    }
}

struct RequestLine<'a> {
    method: &'a [u8],
    target: &'a [u8],
    version: Version,
}

fn request_line(line: &[u8]) -> Result<RequestLine<'_>, RefusedHead> {
    let method = memchr(b' ', line).ok_or(RefusedHead::Method)?;
    let (method, rest) = (&line[..method], &line[method + 1..]);
    if method.is_empty() || !method.iter().all(|byte| is_token(*byte)) {
        return Err(RefusedHead::Method);
    }
    let target = memchr(b' ', rest).unwrap_or(rest.len());
    let (target, version) = rest.split_at(target);
    if target.is_empty() || !is_target(target) {
        return Err(RefusedHead::Target);
    }
    let version = match version {
        b" HTTP/1.1" => Version::HTTP_11,
        b" HTTP/1.0" => Version::HTTP_10,
        _ if line.starts_with(HTTP2_PREFACE) => return Err(RefusedHead::Http2),
        _ => return Err(RefusedHead::Version),
    };
    Ok(RequestLine {
        method,
        target,
        version,
    })
}

/// Whether all bytes are visible ASCII or belong to characters outside ASCII. A URL has stricter rules.
fn is_target(bytes: &[u8]) -> bool {
    // One pass without a branch costs less than a search that stops at the first other byte.
    let is_other = |byte: u8| (byte <= b' ') | (byte == 0x7f);
    !bytes.iter().fold(false, |any, byte| any | is_other(*byte))
}

fn parse(mut head: BytesMut, ends: &[u32]) -> Result<RequestHead, RefusedHead> {
    let Some((first, rest)) = ends.split_first() else {
        return Err(RefusedHead::Method);
    };
    let mut lines = Vec::with_capacity(rest.len());
    let mut start = *first as usize + 1;
    let mut has_bare_lf = head.get(*first as usize - 1) != Some(&b'\r');
    for end in rest {
        let line = read_line(&mut head, start, *end as usize);
        let (line, is_bare) = line.ok_or(RefusedHead::Field)?;
        has_bare_lf |= is_bare;
        lines.push(line);
        start = *end as usize + 1;
    }
    has_bare_lf |= head.get(start) != Some(&b'\r');
    let head = head.freeze();
    let RequestLine {
        method,
        target,
        version,
    } = request_line(line(&head, 0, *first).0)?;
    let is_11 = version == Version::HTTP_11;
    let uri = encoded(&head, target);
    if uri.len() > TARGET_BYTES_MAX {
        return Err(RefusedHead::TargetTooLong);
    }
    let has_fragment = memchr(b'#', target).is_some() || memchr(b'#', method).is_some();
    let mut parsed = RequestHead {
        method: Method::from_bytes(method).map_err(|_| RefusedHead::Method)?,
        encoded: uri.len() - target.len(),
        target: Uri::from_maybe_shared(uri).map_err(|_| RefusedHead::Target)?,
        version,
        fields: Fields::default(),
        body: BodyKind::Length(0),
        fault: None,
        keeps_alive: is_11,
        expects_continue: false,
        has_upgrade: false,
    };
    let fields = Fields::new(head.clone(), lines);
    let mut framing = Framing::default();
    for field in fields.iter() {
        parsed.note(field, &mut framing)?;
    }
    parsed.fields = fields;
    parsed.body = framing.body()?;
    // RFC 9112, 6.1: a connection closes after a request with both framings.
    parsed.keeps_alive &= framing.is_chunked.is_none() || framing.length.is_none();
    parsed.expects_continue &= is_11 && parsed.body != BodyKind::Length(0);
    parsed.fault = if has_bare_lf {
        Some(HeadFault::BareLf)
    } else if framing.is_chunked.is_some() && framing.length.is_some() {
        Some(HeadFault::TwoFramings)
    } else if framing.has_more_lengths {
        Some(HeadFault::RepeatedLength)
    } else if has_fragment {
        Some(HeadFault::Fragment)
    } else {
        None
    };
    Ok(parsed)
}

impl RequestHead {
    /// The head of an HTTP/2 request. HTTP/2 has its own rules for the connection.
    pub fn of_http2(method: Method, target: Uri, fields: Fields, fault: Option<HeadFault>) -> Self {
        Self {
            method,
            target,
            version: Version::HTTP_2,
            fields,
            body: BodyKind::Length(0),
            fault,
            keeps_alive: true,
            expects_continue: false,
            has_upgrade: false,
            encoded: 0,
        }
    }

    /// Notes what a field specifies about the connection and the framing.
    fn note(&mut self, field: Field<'_>, framing: &mut Framing) -> Result<(), RefusedHead> {
        let is_11 = self.version == Version::HTTP_11;
        // A value with bytes that a token cannot have, such as those of UTF-8, has no tokens.
        let list = if field.value.is_ascii() {
            field.value
        } else {
            b""
        };
        let tokens = || list.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
        match field.known {
            FieldName::TransferEncoding if !is_11 => return Err(RefusedHead::CodingInHttp10),
            FieldName::TransferEncoding => {
                let last = tokens().next_back().unwrap_or_default();
                framing.is_chunked = Some(last.eq_ignore_ascii_case(b"chunked"));
            }
            FieldName::ContentLength => {
                let length = number(field.value).filter(|length| *length <= LENGTH_MAX);
                let length = length.ok_or(RefusedHead::Length)?;
                if framing.length.is_some_and(|known| known != length) {
                    return Err(RefusedHead::Length);
                }
                framing.has_more_lengths = framing.length.is_some();
                framing.length = Some(length);
            }
            FieldName::Connection => {
                let has = |token: &[u8]| tokens().any(|one| one.eq_ignore_ascii_case(token));
                // Once a line has the option `close`, a later line does not undo it.
                framing.closes |= has(b"close");
                self.keeps_alive = !framing.closes && (self.keeps_alive || has(b"keep-alive"));
            }
            FieldName::Expect => {
                self.expects_continue = field.value.eq_ignore_ascii_case(b"100-continue");
            }
            FieldName::Upgrade => self.has_upgrade = is_11,
            _ => {}
        }
        Ok(())
    }
}

/// The framing fields of a head, and whether they end the connection.
#[derive(Default)]
struct Framing {
    /// Whether the last transfer coding is `chunked`, if there is any.
    is_chunked: Option<bool>,
    length: Option<u64>,
    has_more_lengths: bool,
    closes: bool,
}

impl Framing {
    /// The framing of the body (RFC 9112, 6.3).
    fn body(&self) -> Result<BodyKind, RefusedHead> {
        match (self.is_chunked, self.length) {
            (Some(true), _) => Ok(BodyKind::Chunked),
            (Some(false), _) => Err(RefusedHead::Coding),
            (None, length) => Ok(BodyKind::Length(length.unwrap_or_default())),
        }
    }
}

/// The target with the raw bytes of its query encoded. RFC 3986 allows `"`, `<` and `>` only percent-encoded, but curl and
/// other clients send them raw.
fn encoded(head: &Bytes, target: &[u8]) -> Bytes {
    let query = memchr(b'?', target).unwrap_or(target.len());
    if memchr3(b'"', b'<', b'>', &target[query..]).is_none() {
        return head.slice_ref(target);
    }
    let mut encoded = target[..query].to_vec();
    for byte in &target[query..] {
        match byte {
            b'"' | b'<' | b'>' => encoded.extend_from_slice(format!("%{byte:02X}").as_bytes()),
            byte => encoded.push(*byte),
        }
    }
    encoded.into()
}

#[cfg(test)]
mod tests;
