//! Text of strangers made harmless: printable ASCII without quotes and backslashes, all else as `\xNN`.
//!
//! A certname, a path or a user agent can then neither end a field nor forge a line nor speak to a terminal.

use crate::spoken::Kept;

/// Where the text will stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Between quotes: a space is itself.
    Quoted,
    /// Between spaces: a space is `\x20`.
    Bare,
    /// In a JSON string: as between quotes, the backslash of `\xNN` doubled.
    Json,
}

/// Appends `text`, and `...` where it was cut.
pub(crate) fn push(line: &mut Vec<u8>, text: Kept<'_>, place: Place) {
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

/// How many bytes at the beginning may stand as they are. Eight are looked at together, since nearly all may.
fn plain_length(bytes: &[u8], place: Place) -> usize {
    let plain = if place == Place::Bare {
        PLAIN_BARE
    } else {
        PLAIN_QUOTED
    };
    let are_plain = |bytes: &[u8]| {
        bytes
            .iter()
            .fold(plain, |all, byte| all & PLAIN[usize::from(*byte)])
            != 0
    };
    let (eights, _) = bytes.as_chunks::<8>();
    let whole = 8 * eights.iter().take_while(|eight| are_plain(*eight)).count();
    let more = bytes[whole..]
        .iter()
        .take_while(|byte| are_plain(&[**byte]));
    whole + more.count()
}

const PLAIN_QUOTED: u8 = 1;
const PLAIN_BARE: u8 = 2;

/// Where each byte may stand as it is. A table, because every byte of every line passes here.
const PLAIN: [u8; 256] = {
    let mut plain = [0; 256];
    let mut byte = b'!';
    while byte <= b'~' {
        if byte != b'"' && byte != b'\\' {
            plain[byte as usize] = PLAIN_QUOTED | PLAIN_BARE;
        }
        byte += 1;
    }
    plain[b' ' as usize] = PLAIN_QUOTED;
    plain
};

fn push_hex(line: &mut Vec<u8>, byte: u8, place: Place) {
    if place == Place::Json {
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

    fn check(text: &[u8], place: Place, expected: &str) {
        let mut line = Vec::new();
        push(
            &mut line,
            Kept {
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
            check(text, Place::Quoted, quoted);
            check(text, Place::Bare, bare);
            check(text, Place::Json, &quoted.replace('\\', r"\\"));
        }
    }

    #[test]
    fn every_byte_gives_printable_ascii_and_never_a_quote() {
        for place in [Place::Quoted, Place::Bare, Place::Json] {
            let all: Vec<u8> = (0..=255).collect();
            let mut line = Vec::new();
            push(
                &mut line,
                Kept {
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
}
