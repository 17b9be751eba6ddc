//! Writes the head of a request, and the framing of its body.

use http::{Method, Uri, Version};

use crate::fields::FieldName;

/// The framing of a request body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// There is no body.
    None,
    /// The length of the body in bytes.
    Length(u64),
    /// Chunks, which HTTP/1.0 does not have.
    Chunked,
}

/// The request line.
#[derive(Clone, Copy, Debug)]
pub struct RequestLine<'a> {
    /// Method.
    pub method: &'a Method,
    /// The target. Only its path and query are sent.
    pub target: &'a Uri,
    /// 1.0 or 1.1.
    pub version: Version,
}

/// Why a head cannot be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unwritable {
    /// A control character other than tab, or a space in the request line. CR, LF and NUL would end a part of the head early.
    #[error("a part of the request has a control character or a space that would end it")]
    Byte,
    /// HTTP/1.0 has no chunks.
    #[error("HTTP/1.0 has no body of unknown length")]
    Framing,
}

/// Field lines that are the same in many heads. They are checked and written once, and copied into each head.
#[derive(Debug, Default)]
pub struct FieldLines {
    bytes: Vec<u8>,
    lines: u32,
}

impl FieldLines {
    /// Checks and writes these fields.
    ///
    /// # Errors
    /// [`Unwritable::Byte`].
    pub fn new<'f>(fields: impl Iterator<Item = (&'f [u8], &'f [u8])>) -> Result<Self, Unwritable> {
        let mut bytes = Vec::new();
        let lines = push_fields(&mut bytes, fields);
        if has_no_controls(&bytes, 2 * lines) {
            Ok(Self { bytes, lines })
        } else {
            Err(Unwritable::Byte)
        }
    }
}

/// Appends a request head. `framing` determines Content-Length and Transfer-Encoding, whatever `fields` contains. `more` has
/// the lines of further fields.
///
/// # Errors
/// [`Unwritable`]. Nothing has been appended then.
pub fn write_head<'f>(
    out: &mut Vec<u8>,
    line: RequestLine<'_>,
    fields: impl Iterator<Item = (&'f [u8], &'f [u8])>,
    more: Option<&FieldLines>,
    framing: Framing,
) -> Result<(), Unwritable> {
    let before = out.len();
    let written = write(out, line, fields, more, framing);
    if written.is_err() {
        out.truncate(before);
    }
    written
}

fn write<'f>(
    out: &mut Vec<u8>,
    line: RequestLine<'_>,
    fields: impl Iterator<Item = (&'f [u8], &'f [u8])>,
    more: Option<&FieldLines>,
    framing: Framing,
) -> Result<(), Unwritable> {
    let begin = out.len();
    // The number of lines: the request line, the empty line, and a line for each field.
    let mut lines = 2_u32;
    let is_10 = line.version == Version::HTTP_10;
    let target = line
        .target
        .path_and_query()
        .map_or("/", |target| target.as_str());
    word(out, line.method.as_str())?;
    out.push(b' ');
    word(out, target)?;
    out.extend_from_slice(if is_10 {
        b" HTTP/1.0\r\n"
    } else {
        b" HTTP/1.1\r\n"
    });
    lines += push_fields(out, fields);
    if let Some(more) = more {
        lines += more.lines;
        out.extend_from_slice(&more.bytes);
    }
    match framing {
        Framing::None => {}
        Framing::Length(length) => {
            lines += 1;
            out.extend_from_slice(b"content-length: ");
            decimal(out, length);
            out.extend_from_slice(b"\r\n");
        }
        Framing::Chunked if is_10 => return Err(Unwritable::Framing),
        Framing::Chunked => {
            lines += 1;
            out.extend_from_slice(b"transfer-encoding: chunked\r\n");
        }
    }
    out.extend_from_slice(b"\r\n");
    // The only control characters are CR and LF of each line. One more control character could end a part of the head early.
    if has_no_controls(&out[begin..], 2 * lines) {
        Ok(())
    } else {
        Err(Unwritable::Byte)
    }
}

/// Appends the lines of all fields except those that frame the body. Returns the number of lines.
fn push_fields<'f>(out: &mut Vec<u8>, fields: impl Iterator<Item = (&'f [u8], &'f [u8])>) -> u32 {
    let mut lines = 0;
    for (name, value) in fields {
        if matches!(
            FieldName::of(name),
            FieldName::ContentLength | FieldName::TransferEncoding
        ) {
            continue;
        }
        lines += 1;
        out.reserve(name.len() + value.len() + 4);
        out.extend_from_slice(name);
        out.extend_from_slice(b": ");
        out.extend_from_slice(value);
        out.extend_from_slice(b"\r\n");
    }
    lines
}

/// Whether a head has no control characters except tabs and its `ends`, the CR and LF of each line.
fn has_no_controls(head: &[u8], ends: u32) -> bool {
    let controls = controls(head);
    // Tabs are rare. They are counted only if there are more control characters than ends of lines.
    let tabs = || head.iter().filter(|byte| **byte == b'\t').count();
    controls == ends || controls == ends + tabs() as u32
}

/// Counts the control characters of a head. The whole head is scanned at once, because most of its parts are short. The scan
/// works on pieces of a fixed length, because the compiler then generates vector instructions.
fn controls(head: &[u8]) -> u32 {
    const PIECE: usize = 64;
    let count = |piece: &[u8; PIECE]| {
        let is_control = |byte: &u8| u8::from(*byte < b' ');
        u32::from(piece.iter().map(is_control).sum::<u8>())
    };
    let (pieces, rest) = head.as_chunks::<PIECE>();
    let mut last = [b' '; PIECE];
    last[..rest.len()].copy_from_slice(rest);
    pieces.iter().map(count).sum::<u32>() + count(&last)
}

/// Appends a part of the request line. It may not contain a space, which separates the parts.
fn word(out: &mut Vec<u8>, word: &str) -> Result<(), Unwritable> {
    let word = word.as_bytes();
    if memchr::memchr(b' ', word).is_some() {
        return Err(Unwritable::Byte);
    }
    out.extend_from_slice(word);
    Ok(())
}

pub(crate) fn decimal(out: &mut Vec<u8>, mut number: u64) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

/// Appends the size line of a chunk with this many bytes. The length must not be 0, because a size of 0 ends the body.
pub fn begin_chunk(out: &mut Vec<u8>, length: usize) {
    let digits = (usize::BITS - length.leading_zeros()).div_ceil(4).max(1);
    for digit in (0..digits).rev() {
        let value = (length >> (digit * 4)) & 0xf;
        out.push(b"0123456789abcdef"[value]);
    }
    end_chunk(out);
}

/// Appends the end of a chunk's data.
pub fn end_chunk(out: &mut Vec<u8>) {
    out.extend_from_slice(b"\r\n");
}

/// Appends the end of a chunked body, without trailers.
pub fn end_chunks(out: &mut Vec<u8>) {
    out.extend_from_slice(b"0\r\n\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(
        method: &str,
        target: &str,
        version: Version,
        fields: &[(&str, &str)],
        framing: Framing,
    ) -> String {
        let line = RequestLine {
            method: &method.parse().expect("a method"),
            target: &target.parse().expect("a target"),
            version,
        };
        let mut out = b"before".to_vec();
        let fields = fields.iter();
        let fields = fields.map(|(name, value)| (name.as_bytes(), value.as_bytes()));
        match write_head(&mut out, line, fields, None, framing) {
            Ok(()) => {}
            Err(error) => {
                assert_eq!(out, b"before");
                return error.to_string();
            }
        }
        String::from_utf8(out[6..].to_vec()).expect("text")
    }

    #[test]
    fn a_head_has_its_line_its_fields_and_its_framing() {
        let get = written(
            "GET",
            "/a/b?c=d",
            Version::HTTP_11,
            &[("host", "puppet:8140"), ("x-empty", "")],
            Framing::None,
        );
        assert_eq!(
            get,
            "GET /a/b?c=d HTTP/1.1\r\nhost: puppet:8140\r\nx-empty: \r\n\r\n"
        );
        let put = written(
            "PUT",
            "http://other/a",
            Version::HTTP_10,
            &[],
            Framing::Length(u64::MAX),
        );
        assert_eq!(
            put,
            "PUT /a HTTP/1.0\r\ncontent-length: 18446744073709551615\r\n\r\n"
        );
        let post = written("POST", "/", Version::HTTP_11, &[], Framing::Chunked);
        assert_eq!(
            post,
            "POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n"
        );
    }

    #[test]
    fn the_clients_framing_fields_are_never_written() {
        let fields = [
            ("content-length", "9"),
            ("transfer-encoding", "gzip"),
            ("accept", "*/*"),
        ];
        let head = written("POST", "/", Version::HTTP_11, &fields, Framing::Length(0));
        assert_eq!(
            head,
            "POST / HTTP/1.1\r\naccept: */*\r\ncontent-length: 0\r\n\r\n"
        );
        let refused = written("POST", "/", Version::HTTP_10, &fields, Framing::Chunked);
        assert_eq!(refused, Unwritable::Framing.to_string());
    }

    #[test]
    fn bytes_that_would_end_a_part_of_the_head_are_refused() {
        for value in ["a\r\nb: c", "a\nb", "a\rb", "a\0b"] {
            let refused = written("GET", "/", Version::HTTP_11, &[("x", value)], Framing::None);
            assert_eq!(refused, Unwritable::Byte.to_string(), "{value:?}");
        }
    }

    #[test]
    fn sizes_of_chunks_are_written_in_hexadecimal() {
        for (length, expected) in [
            (0, "0"),
            (1, "1"),
            (15, "f"),
            (16, "10"),
            (0xabc, "abc"),
            (usize::MAX, "ffffffffffffffff"),
        ] {
            let mut out = Vec::new();
            begin_chunk(&mut out, length);
            assert_eq!(out, format!("{expected}\r\n").as_bytes());
        }
    }

    #[test]
    fn control_characters_are_counted_at_every_position() {
        for length in [0, 1, 7, 16, 239, 240, 241, 1000] {
            for byte in 0..=u8::MAX {
                let expected = u32::from(byte < 32);
                let all = vec![byte; length];
                assert_eq!(controls(&all), expected * length as u32, "{byte} {length}");
                for at in [0, length / 2, length.saturating_sub(1)] {
                    let mut one = vec![b'a'; length];
                    one.get_mut(at).into_iter().for_each(|place| *place = byte);
                    assert_eq!(
                        controls(&one),
                        expected * length.min(1) as u32,
                        "{byte} at {at}"
                    );
                }
            }
        }
    }

    #[test]
    fn prewritten_lines_equal_those_of_their_fields() {
        let fields = |fields: &'static [(&str, &str)]| {
            let fields = fields.iter();
            fields.map(|(name, value)| (name.as_bytes(), value.as_bytes()))
        };
        let line = RequestLine {
            method: &Method::GET,
            target: &Uri::from_static("/"),
            version: Version::HTTP_11,
        };
        let more = fields(&[("a", "1"), ("b", "\t2"), ("content-length", "7")]);
        let more = FieldLines::new(more);
        let more = more.expect("legal values");
        let own = fields(&[("c", "3")]);
        let mut head = Vec::new();
        let written = write_head(&mut head, line, own, Some(&more), Framing::Length(4));
        assert_eq!(written, Ok(()));
        let expected = "GET / HTTP/1.1\r\nc: 3\r\na: 1\r\nb: \t2\r\ncontent-length: 4\r\n\r\n";
        assert_eq!(String::from_utf8(head).expect("text"), expected);
        for value in ["1\r\nd: 4", "\n", "\0"] {
            let bad = FieldLines::new([(&b"a"[..], value.as_bytes())].into_iter());
            assert!(matches!(bad, Err(Unwritable::Byte)), "{value:?}");
        }
    }
}
