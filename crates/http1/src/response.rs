//! Reads the head of a response, and the framing of its body.

use bytes::BytesMut;
use http::{Method, StatusCode, Version};

use crate::{
    fields::{FieldName, Fields, read_line},
    malformed::Malformed,
};

/// Maximum bytes of a head.
pub const HEAD_BYTES_MAX: usize = 64 << 10;
/// The bytes with which every head begins.
const BEGIN: &[u8] = b"HTTP/1.";
/// Number of fields that a head may have without a second allocation.
const USUAL_FIELDS: usize = 16;

/// The head of a response.
#[derive(Debug)]
pub struct Head {
    /// Status code.
    pub status: StatusCode,
    /// 1.0 or 1.1.
    pub version: Version,
    /// Fields, including hop-by-hop ones.
    pub fields: Fields,
    /// Which of the framing fields the head has. Most heads lack two of them.
    framing: FramingFields,
}

#[derive(Clone, Copy, Debug, Default)]
struct FramingFields {
    coding: bool,
    length: bool,
    connection: bool,
}

impl FramingFields {
    fn note(&mut self, known: FieldName) {
        self.coding |= known == FieldName::TransferEncoding;
        self.length |= known == FieldName::ContentLength;
        self.connection |= known == FieldName::Connection;
    }
}

/// The framing of a response body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyKind {
    /// Its length, which is 0 without a body.
    Length(u64),
    /// Chunks.
    Chunked,
    /// The end of the connection.
    UntilClose,
}

/// Finds the end of a head in the bytes that have arrived, and parses the head.
#[derive(Debug)]
pub struct HeadReader {
    /// How many bytes at the beginning are known not to contain the end of the head.
    searched: usize,
    fields_max: usize,
}

impl HeadReader {
    /// A reader for heads with at most this many fields.
    pub fn new(fields_max: usize) -> Self {
        Self {
            searched: 0,
            fields_max,
        }
    }

    /// Takes a head from the beginning of `buffer`. `None` if its end has not arrived.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn read(&mut self, buffer: &mut BytesMut) -> Result<Option<Head>, Malformed> {
        // Other bytes cannot become a head. They are refused at once, because a peer with another protocol may wait for an
        // answer to its first line.
        let begun = buffer.len().min(BEGIN.len());
        if buffer[..begun] != BEGIN[..begun] {
            return Err(Malformed::Version);
        }
        let Some(end) = self.end_of_head(buffer) else {
            return if buffer.len() >= HEAD_BYTES_MAX {
                Err(Malformed::TooLarge)
            } else {
                Ok(None)
            };
        };
        if end > HEAD_BYTES_MAX {
            return Err(Malformed::TooLarge);
        }
        self.searched = 0;
        parse(buffer.split_to(end), self.fields_max).map(Some)
    }

    /// The position after the empty line that ends a head.
    fn end_of_head(&mut self, buffer: &[u8]) -> Option<usize> {
        for line_end in memchr::memchr_iter(b'\n', &buffer[self.searched..]) {
            let next = self.searched + line_end + 1;
            match &buffer[next..] {
                [b'\n', ..] => return Some(next + 1),
                [b'\r', b'\n', ..] => return Some(next + 2),
                // Whether the next line is empty is unknown until it has arrived.
                [] | [b'\r'] => {
                    self.searched = next - 1;
                    return None;
                }
                _ => {}
            }
        }
        self.searched = buffer.len();
        None
    }
}

fn parse(mut head: BytesMut, fields_max: usize) -> Result<Head, Malformed> {
    let line_end = |head: &[u8], start: usize| Some(start + memchr::memchr(b'\n', &head[start..])?);
    let mut start = line_end(&head, 0).ok_or(Malformed::Field)? + 1;
    let (version, status) = status_line(&head[..start - 1])?;
    let (mut lines, mut framing) = (Vec::with_capacity(USUAL_FIELDS), FramingFields::default());
    while let Some(end) = line_end(&head, start) {
        match &head[start..end] {
            // `end_of_head` has found this empty line before.
            b"" | b"\r" if end + 1 == head.len() => break,
            [b' ' | b'\t', ..] => return Err(Malformed::Folded),
            _ if lines.len() == fields_max => return Err(Malformed::Fields(fields_max)),
            _ => {}
        }
        let line = read_line(&mut head, start, end);
        let (line, _) = line.ok_or(Malformed::Field)?;
        framing.note(line.known);
        lines.push(line);
        start = end + 1;
    }
    Ok(Head {
        status,
        version,
        fields: Fields::new(head.freeze(), lines),
        framing,
    })
}

/// Parses a status line (RFC 9112, 4). Many servers leave out the blank before an empty reason.
fn status_line(line: &[u8]) -> Result<(Version, StatusCode), Malformed> {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let (version, rest) = match line.strip_prefix(BEGIN) {
        Some([b'0', b' ', rest @ ..]) => (Version::HTTP_10, rest),
        Some([b'1', b' ', rest @ ..]) => (Version::HTTP_11, rest),
        _ => return Err(Malformed::Version),
    };
    let (code, reason) = rest.split_at_checked(3).ok_or(Malformed::Status)?;
    let is_text = |byte: &u8| matches!(byte, b'\t' | b' '..=b'~' | 0x80..);
    if !matches!(reason, [] | [b' ', ..]) || !reason.iter().all(is_text) {
        return Err(Malformed::Status);
    }
    let status = StatusCode::from_bytes(code).map_err(|_| Malformed::Status)?;
    Ok((version, status))
}

impl Head {
    /// The framing of the body, if the request had this method (RFC 9112, 6.3). A transfer coding overrides a Content-Length.
    ///
    /// # Errors
    /// [`Malformed::Length`] and [`Malformed::Coding`]: parsers could disagree on where the body ends.
    pub fn body(&self, method: &Method) -> Result<BodyKind, Malformed> {
        let is_bare = *method == Method::HEAD
            || self.status.is_informational()
            || self.status == StatusCode::NO_CONTENT
            || self.status == StatusCode::NOT_MODIFIED;
        if is_bare {
            return Ok(BodyKind::Length(0));
        }
        if !self.framing.coding {
            return Ok(self
                .length()?
                .map_or(BodyKind::UntilClose, BodyKind::Length));
        }
        let mut codings = self.fields.all("transfer-encoding");
        match codings.next() {
            Some(coding)
                if codings.next().is_none()
                    && coding.eq_ignore_ascii_case(b"chunked")
                    && self.version == Version::HTTP_11 =>
            {
                Ok(BodyKind::Chunked)
            }
            _ => Err(Malformed::Coding),
        }
    }

    /// The Content-Length. The field may occur several times with the same value.
    fn length(&self) -> Result<Option<u64>, Malformed> {
        let mut known = None;
        if !self.framing.length {
            return Ok(known);
        }
        for line in self.fields.all("content-length") {
            for value in line.split(|byte| *byte == b',') {
                let length = number(value.trim_ascii()).ok_or(Malformed::Length)?;
                if known.is_some_and(|known| known != length) {
                    return Err(Malformed::Length);
                }
                known = Some(length);
            }
        }
        Ok(known)
    }

    /// Whether the connection can be reused: the server keeps it open (RFC 9112, 9.3), and no parser could find another end of
    /// the response.
    pub fn keeps_alive(&self) -> bool {
        if self.framing.coding && self.framing.length {
            return false;
        }
        if !self.framing.connection {
            return self.version == Version::HTTP_11;
        }
        let mut close = false;
        let mut keep = false;
        for line in self.fields.all("connection") {
            for token in line.split(|byte| *byte == b',') {
                let token = token.trim_ascii();
                close |= token.eq_ignore_ascii_case(b"close");
                keep |= token.eq_ignore_ascii_case(b"keep-alive");
            }
        }
        !close && (keep || self.version == Version::HTTP_11)
    }
}

/// Digits only, without sign and blanks.
pub(crate) fn number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0_u64, |number, digit| {
        let value = digit.is_ascii_digit().then(|| u64::from(digit - b'0'))?;
        number.checked_mul(10)?.checked_add(value)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIELDS_MAX: usize = 256;

    /// Reads a head in pieces of this size. Returns the head and the remaining bytes.
    fn read(bytes: &[u8], piece: usize) -> Result<Option<(Head, BytesMut)>, Malformed> {
        let mut reader = HeadReader::new(FIELDS_MAX);
        let mut buffer = BytesMut::new();
        let mut pieces = bytes.chunks(piece);
        for piece in pieces.by_ref() {
            buffer.extend_from_slice(piece);
            if let Some(head) = reader.read(&mut buffer)? {
                buffer.extend(pieces.flatten());
                return Ok(Some((head, buffer)));
            }
        }
        Ok(None)
    }

    fn head(fields: &str) -> Head {
        let bytes = format!("HTTP/1.1 200 OK\r\n{fields}\r\n");
        let (head, _) = read(bytes.as_bytes(), bytes.len())
            .expect("a head")
            .expect("whole");
        head
    }

    #[test]
    fn a_head_is_the_same_in_any_division_into_pieces() {
        for bytes in [
            "HTTP/1.1 200 OK\r\nA: b\r\nC:  d \r\na: e\r\n\r\nbody",
            "HTTP/1.1 200 OK\nA: b\nC: d\na: e\n\nbody",
            "HTTP/1.1 200\r\nA: b\r\nC: d\r\na: e\r\n\r\nbody",
        ] {
            for piece in 1..=bytes.len() {
                let (head, rest) = read(bytes.as_bytes(), piece)
                    .expect("a head")
                    .expect("whole");
                assert_eq!(
                    (head.status, head.version),
                    (StatusCode::OK, Version::HTTP_11)
                );
                let fields = head.fields.iter();
                let fields: Vec<_> = fields.map(|field| (field.text(), field.value)).collect();
                let expected: [(&str, &[u8]); 3] = [("a", b"b"), ("c", b"d"), ("a", b"e")];
                assert_eq!(fields, expected);
                assert_eq!(rest, "body");
            }
        }
    }

    #[test]
    fn a_malformed_head_is_refused_with_a_reason() {
        for (bytes, expected) in [
            ("SSH-2.0-OpenSSH\r\n", Malformed::Version),
            ("Hello", Malformed::Version),
            ("HTTP/0.9 200 OK\r\n", Malformed::Version),
            ("HTTP 200 OK\r\n", Malformed::Version),
            ("http/1.1 200 OK\r\n", Malformed::Version),
            ("SSH-2.0-OpenSSH\r\n\r\n", Malformed::Version),
            ("\r\nHTTP/1.1 200 OK\r\n\r\n", Malformed::Version),
            ("HTTP/2.0 200 OK\r\n\r\n", Malformed::Version),
            ("HTTP/1.1 ok\r\n\r\n", Malformed::Status),
            ("HTTP/1.1 20 OK\r\n\r\n", Malformed::Status),
            ("HTTP/1.1 099 Low\r\n\r\n", Malformed::Status),
            ("HTTP/1.1 200 OK\r\nbad header\r\n\r\n", Malformed::Field),
            ("HTTP/1.1 200 OK\r\nA : b\r\n\r\n", Malformed::Field),
            ("HTTP/1.1 200 OK\r\nA: b\r\n c\r\n\r\n", Malformed::Folded),
            ("HTTP/1.1 200 OK\nA: b\n\tc\n\n", Malformed::Folded),
            ("HTTP/1.1 200 OK\r\n A: b\r\n\r\n", Malformed::Folded),
            ("HTTP/1.1 200 OK\r\nA: b\0\r\n\r\n", Malformed::Field),
            ("HTTP/1.1 200 OK\r\nA: b\rc\r\n\r\n", Malformed::Field),
        ] {
            for piece in 1..=bytes.len() {
                let got = read(bytes.as_bytes(), piece).expect_err(bytes);
                // The result must not depend on how the bytes are split.
                assert_eq!(got, expected, "{bytes:?} in pieces of {piece}");
            }
        }
    }

    #[test]
    fn a_head_has_a_limit_in_bytes_and_in_fields() {
        let of_bytes = |bytes: usize| {
            let frame = "HTTP/1.1 200 OK\r\nx: \r\n\r\n".len();
            let head = format!(
                "HTTP/1.1 200 OK\r\nx: {}\r\n\r\n",
                "x".repeat(bytes - frame)
            );
            read(head.as_bytes(), 1000).map(|head| head.is_some())
        };
        assert_eq!(of_bytes(HEAD_BYTES_MAX), Ok(true));
        assert_eq!(of_bytes(HEAD_BYTES_MAX + 1), Err(Malformed::TooLarge));
        for max in [1, 99, 100, 101, 256, 10_000] {
            let of_fields = |count| {
                let head = format!("HTTP/1.1 200 OK\r\n{}\r\n", "x:y\r\n".repeat(count));
                let mut buffer = BytesMut::from(head.as_bytes());
                let read = HeadReader::new(max).read(&mut buffer);
                read.map(|head| head.map(|head| head.fields.len()))
            };
            assert_eq!(of_fields(max), Ok(Some(max)));
            assert_eq!(of_fields(max + 1), Err(Malformed::Fields(max)));
        }
    }

    #[test]
    fn a_response_with_an_ambiguous_end_is_refused() {
        use BodyKind::{Chunked, Length, UntilClose};
        for (fields, expected) in [
            ("", Ok(UntilClose)),
            ("Content-Length: 0\r\n", Ok(Length(0))),
            ("Content-Length: 42\r\n", Ok(Length(42))),
            ("Content-Length: 42, 42\r\n", Ok(Length(42))),
            (
                "Content-Length: 42\r\ncontent-length: 42\r\n",
                Ok(Length(42)),
            ),
            (
                "Content-Length: 18446744073709551615\r\n",
                Ok(Length(u64::MAX)),
            ),
            (
                "Content-Length: 18446744073709551616\r\n",
                Err(Malformed::Length),
            ),
            (
                "Content-Length: 1\r\nContent-Length: 2\r\n",
                Err(Malformed::Length),
            ),
            ("Content-Length: 1, 2\r\n", Err(Malformed::Length)),
            ("Content-Length: \r\n", Err(Malformed::Length)),
            ("Content-Length: 1,\r\n", Err(Malformed::Length)),
            ("Content-Length: +1\r\n", Err(Malformed::Length)),
            ("Content-Length: -1\r\n", Err(Malformed::Length)),
            ("Content-Length: 0x1\r\n", Err(Malformed::Length)),
            ("Content-Length: 1 1\r\n", Err(Malformed::Length)),
            ("Transfer-Encoding: chunked\r\n", Ok(Chunked)),
            ("Transfer-Encoding: Chunked\r\n", Ok(Chunked)),
            (
                "Transfer-Encoding: gzip, chunked\r\n",
                Err(Malformed::Coding),
            ),
            (
                "Transfer-Encoding: chunked, chunked\r\n",
                Err(Malformed::Coding),
            ),
            (
                "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
                Err(Malformed::Coding),
            ),
            ("Transfer-Encoding: identity\r\n", Err(Malformed::Coding)),
            ("Transfer-Encoding: \r\n", Err(Malformed::Coding)),
            (
                "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n",
                Ok(Chunked),
            ),
        ] {
            assert_eq!(head(fields).body(&Method::GET), expected, "{fields:?}");
        }
    }

    #[test]
    fn some_responses_have_no_body_whatever_their_fields() {
        for (status, method) in [
            ("200 OK", Method::HEAD),
            ("204 None", Method::GET),
            ("304 Same", Method::GET),
            ("101 Other", Method::GET),
        ] {
            for fields in [
                "Content-Length: 42\r\n",
                "Transfer-Encoding: chunked\r\n",
                "",
            ] {
                let bytes = format!("HTTP/1.1 {status}\r\n{fields}\r\n");
                let (head, _) = read(bytes.as_bytes(), bytes.len())
                    .expect("a head")
                    .expect("whole");
                assert_eq!(
                    head.body(&method),
                    Ok(BodyKind::Length(0)),
                    "{status} {fields:?}"
                );
            }
        }
    }

    #[test]
    fn http_1_0_has_no_chunks_and_needs_keep_alive() {
        let of = |version: &str, fields: &str| {
            let bytes = format!("HTTP/{version} 200 OK\r\n{fields}\r\n");
            let (head, _) = read(bytes.as_bytes(), bytes.len())
                .expect("a head")
                .expect("whole");
            head
        };
        let chunked = of("1.0", "Transfer-Encoding: chunked\r\n");
        assert_eq!(chunked.body(&Method::GET), Err(Malformed::Coding));
        for (version, fields, expected) in [
            ("1.0", "", false),
            ("1.0", "Connection: keep-alive\r\n", true),
            ("1.0", "Connection: Keep-Alive, close\r\n", false),
            ("1.1", "", true),
            ("1.1", "Connection: x, Close\r\n", false),
            (
                "1.1",
                "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n",
                false,
            ),
            ("1.1", "Connection: upgrade\r\nConnection: close\r\n", false),
        ] {
            assert_eq!(
                of(version, fields).keeps_alive(),
                expected,
                "{version} {fields:?}"
            );
        }
    }
}
