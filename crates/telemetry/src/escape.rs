//! Escapes text from peers: printable ASCII without quotes and backslashes, everything else as `\xNN`.
//!
//! A certname, a path or a user agent can then neither end a field nor forge a line nor control a terminal.

use crate::request_fields::FieldText;

/// Where the text appears.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EscapeContext {
    /// Between quotes: a space is not escaped.
    Quoted,
    /// Between spaces: a space is `\x20`.
    Bare,
    /// In a JSON string: like text between quotes, but the backslash of `\xNN` is doubled.
    Json,
}

/// Appends `text`, and `...` if it was truncated.
pub(crate) fn push(line: &mut Vec<u8>, text: FieldText<'_>, place: EscapeContext) {
    let mut rest = text.bytes;
    loop {
        let (plain, other) = rest.split_at(plain_length(rest, place));
        line.extend_from_slice(plain);
        let [byte, after @ ..] = other else { break };
        push_hex(line, *byte, place);
        rest = after;
    }
    if text.cut {
        line.extend_from_slice(b"...");
    }
}

/// The number of bytes at the beginning that need no escape. Nearly all bytes need none, so eight are checked at a time.
fn plain_length(bytes: &[u8], place: EscapeContext) -> usize {
    let is_plain = match bytes.last_chunk::<8>() {
        Some(last) => {
            let (eights, _) = bytes.as_chunks::<8>();
            let mut eights = eights.iter();
            eights.all(|eight| are_plain(*eight, place)) && are_plain(*last, place)
        }
        None => {
            let mut few = [b'x'; 8];
            few[..bytes.len()].copy_from_slice(bytes);
            are_plain(few, place)
        }
    };
    if is_plain {
        return bytes.len();
    }
    let odd = bytes.iter().position(|byte| !are_plain([*byte; 8], place));
    odd.unwrap_or(bytes.len())
}

/// Whether none of these bytes needs an escape: all are visible ASCII other than quote and backslash, or spaces between quotes.
fn are_plain(eight: [u8; 8], place: EscapeContext) -> bool {
    let bytes = u64::from_le_bytes(eight);
    let first = if place == EscapeContext::Bare {
        b'!'
    } else {
        b' '
    };
    // The highest bit of each byte says whether that byte is below `first`, above `~`, a quote or a backslash. A borrow from
    // such a byte may also set the bit of the next byte, but never clears one.
    let below = |bytes: u64, limit: u8| bytes.wrapping_sub(EACH * u64::from(limit)) & !bytes;
    let is = |byte: u8| below(bytes ^ (EACH * u64::from(byte)), 1);
    let above = bytes.wrapping_add(EACH) | bytes;
    let odd = below(bytes, first) | above | is(b'"') | is(b'\\');
    odd & (EACH * 0x80) == 0
}

/// The value 1 in each byte.
const EACH: u64 = 0x0101_0101_0101_0101;

fn push_hex(line: &mut Vec<u8>, byte: u8, place: EscapeContext) {
    if place == EscapeContext::Json {
        line.push(b'\\');
    }
    line.extend_from_slice(&[
        b'\\',
        b'x',
        HEX[usize::from(byte >> 4)],
        HEX[usize::from(byte & 15)],
    ]);
}

const HEX: &[u8; 16] = b"0123456789abcdef";

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &[u8], place: EscapeContext, expected: &str) {
        let mut line = Vec::new();
        push(
            &mut line,
            FieldText {
                bytes: text,
                cut: false,
            },
            place,
        );
        assert_eq!(
            String::from_utf8(line).expect("ASCII"),
            expected,
            "{text:?} {place:?}"
        );
    }

    #[test]
    fn strangers_text_stays_in_its_field() {
        for (text, quoted, bare) in [
            (
                &b"/puppet/v3/catalog/web01?x=y"[..],
                "/puppet/v3/catalog/web01?x=y",
                "/puppet/v3/catalog/web01?x=y",
            ),
            (b"a b", "a b", r"a\x20b"),
            (b"say \"hi\"", r"say \x22hi\x22", r"say\x20\x22hi\x22"),
            (br"a\x0ab", r"a\x5cx0ab", r"a\x5cx0ab"),
            (b"one\r\ntwo", r"one\x0d\x0atwo", r"one\x0d\x0atwo"),
            (
                b"\x1b[31m\x00\x7f",
                r"\x1b[31m\x00\x7f",
                r"\x1b[31m\x00\x7f",
            ),
            (
                "ü\u{202e}".as_bytes(),
                r"\xc3\xbc\xe2\x80\xae",
                r"\xc3\xbc\xe2\x80\xae",
            ),
            (b"\xff", r"\xff", r"\xff"),
            (b"", "", ""),
        ] {
            check(text, EscapeContext::Quoted, quoted);
            check(text, EscapeContext::Bare, bare);
            check(text, EscapeContext::Json, &quoted.replace('\\', r"\\"));
        }
    }

    #[test]
    fn every_byte_gives_printable_ascii_and_never_a_quote() {
        for place in [
            EscapeContext::Quoted,
            EscapeContext::Bare,
            EscapeContext::Json,
        ] {
            let all: Vec<u8> = (0..=255).collect();
            let mut line = Vec::new();
            push(
                &mut line,
                FieldText {
                    bytes: &all,
                    cut: true,
                },
                place,
            );
            assert!(line.ends_with(b"..."));
            assert!(
                line.iter()
                    .all(|byte| (b' '..=b'~').contains(byte) && *byte != b'"')
            );
        }
    }

    #[test]
    fn each_byte_is_escaped_independently_of_its_position() {
        for place in [
            EscapeContext::Quoted,
            EscapeContext::Bare,
            EscapeContext::Json,
        ] {
            for byte in 0..=u8::MAX {
                let is_plain = matches!(byte, b'!'..=b'~') && byte != b'"' && byte != b'\\'
                    || byte == b' ' && place != EscapeContext::Bare;
                for length in 1..=24 {
                    for at in 0..length {
                        let mut bytes = vec![b'~'; length];
                        bytes[at] = byte;
                        let expected = if is_plain { length } else { at };
                        assert_eq!(
                            plain_length(&bytes, place),
                            expected,
                            "{byte:#x} {at} of {length}"
                        );
                    }
                }
            }
        }
    }
}
