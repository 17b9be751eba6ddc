//! Checks the framing of a chunked request body, byte by byte.

use crate::malformed::Malformed;

/// Maximum digits of a chunk size, including leading zeros: as many as the largest size has.
const SIZE_DIGITS_MAX: u8 = 16;

/// Checks a chunked body against the strict grammar of RFC 9112 §7.1: no blanks around sizes and extensions, and no
/// line that ends with a bare LF. Several parsers read a client's request one after the other, and differ in what else
/// they accept.
#[derive(Debug)]
pub struct ChunkWatch(State);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The size line: its value so far, and the number of its digits.
    Size(u64, u8),
    /// The first byte of an extension's name.
    NameStart(u64),
    /// The rest of an extension's name.
    Name(u64),
    /// The first byte of an extension's value.
    ValueStart(u64),
    /// The rest of a value that is a token.
    Value(u64),
    /// Within a value in quotes.
    Quoted(u64),
    /// Behind a backslash in quotes.
    Escaped(u64),
    /// Behind the closing quote.
    QuotedEnd(u64),
    /// The LF that ends the size line.
    SizeEnd(u64),
    /// The number of bytes that remain of the data.
    Data(u64),
    /// The CR behind the data.
    DataEnd,
    /// The LF behind that CR.
    DataEndLf,
    /// The first byte of a trailer, or of the empty line.
    Trailer,
    /// Within the name of a trailer.
    TrailerName,
    /// Within the value of a trailer.
    TrailerValue,
    /// The LF that ends a trailer.
    TrailerEnd,
    /// The LF of the empty line.
    LastLf,
    End,
}

impl ChunkWatch {
    /// Begins with a new body.
    pub fn new() -> Self {
        Self(State::Size(0, 0))
    }

    /// Checks the next bytes. Returns how many of them belong to the body, and whether it ends with them.
    ///
    /// # Errors
    /// [`Malformed::Chunk`], with how many bytes before it were well-formed.
    pub fn pass(&mut self, bytes: &[u8]) -> Result<(usize, bool), (Malformed, usize)> {
        let mut passed = 0;
        while passed < bytes.len() && self.0 != State::End {
            if let State::Data(left) = self.0 {
                let here = bytes.len() - passed;
                let taken = usize::try_from(left).map_or(here, |left| left.min(here));
                passed += taken;
                self.0 = match left - taken as u64 {
                    0 => State::DataEnd,
                    left => State::Data(left),
                };
            } else {
                self.0 = self
                    .after(bytes[passed])
                    .ok_or((Malformed::Chunk, passed))?;
                passed += 1;
            }
        }
        Ok((passed, self.0 == State::End))
    }

    /// The state after a byte of framing. `None` if the grammar does not allow the byte.
    fn after(&self, byte: u8) -> Option<State> {
        use State::{
            Data, DataEnd, DataEndLf, End, Escaped, LastLf, Name, NameStart, Quoted, QuotedEnd,
            Size, SizeEnd, Trailer, TrailerEnd, TrailerName, TrailerValue, Value, ValueStart,
        };
        let text = matches!(byte, b'\t' | b' '..=b'~' | 0x80..);
        Some(match (self.0, byte) {
            (Size(size, digits), b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F')
                if digits < SIZE_DIGITS_MAX =>
            {
                let value = char::from(byte).to_digit(16)?;
                Size(size << 4 | u64::from(value), digits + 1)
            }
            (Size(_, 0), _) => return None,
            (Size(n, _) | Name(n) | Value(n) | QuotedEnd(n), b'\r') => SizeEnd(n),
            (Size(n, _) | Name(n) | Value(n) | QuotedEnd(n), b';') => NameStart(n),
            (NameStart(n) | Name(n), byte) if is_token(byte) => Name(n),
            (Name(n), b'=') => ValueStart(n),
            (ValueStart(n), b'"') => Quoted(n),
            (ValueStart(n) | Value(n), byte) if is_token(byte) => Value(n),
            (Quoted(n), b'"') => QuotedEnd(n),
            (Quoted(n), b'\\') => Escaped(n),
            (Quoted(n) | Escaped(n), _) if text => Quoted(n),
            (SizeEnd(0), b'\n') => Trailer,
            (SizeEnd(n), b'\n') => Data(n),
            (DataEnd, b'\r') => DataEndLf,
            (DataEndLf, b'\n') => Size(0, 0),
            (Trailer, b'\r') => LastLf,
            (LastLf, b'\n') => End,
            (Trailer | TrailerName, byte) if is_token(byte) => TrailerName,
            (TrailerName, b':') => TrailerValue,
            (TrailerValue, b'\r') => TrailerEnd,
            (TrailerValue, _) if text => TrailerValue,
            (TrailerEnd, b'\n') => Trailer,
            _ => return None,
        })
    }
}

impl Default for ChunkWatch {
    fn default() -> Self {
        Self::new()
    }
}

/// RFC 9110 §5.6.2.
pub(crate) fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_body_by_the_grammar_passes_in_any_division_into_pieces() {
        // How many bytes pass, and whether they are a whole body or a malformed one.
        let (whole, part, bad) = (Ok(true), Ok(false), Err(Malformed::Chunk));
        for (bytes, passed, expected) in [
            ("0\r\n\r\n", 5, whole),
            ("3\r\nabc\r\n0\r\n\r\nGET /", 13, whole),
            ("0A\r\n0123456789\r\n000\r\n\r\n", 23, whole),
            ("1;a;b=c;d=\"e;\\\"\r\"\r\n", 15, bad),
            ("1;a;b=c;d=\"e;\\\" f\"\r\nx\r\n0;z\r\n\r\n", 30, whole),
            ("0\r\nA: b\r\nC:\r\n\r\n", 15, whole),
            ("3\r\nab", 5, part),
            ("3\r\nabc\r\n0\r\n", 11, part),
            ("", 0, part),
            ("\r\n", 0, bad),
            (" 1\r\n", 0, bad),
            ("1 \r\nx", 1, bad),
            ("1\t;a\r\nx", 1, bad),
            ("1;\r\nx", 2, bad),
            ("1; a\r\nx", 2, bad),
            ("1;a =b\r\nx", 3, bad),
            ("1;a=\r\nx", 4, bad),
            ("1;a=b c\r\nx", 5, bad),
            ("1;a=\"b\"c\r\nx", 7, bad),
            ("1\nx\n0\n\n", 1, bad),
            ("1;a\nx", 3, bad),
            ("1\rx", 2, bad),
            ("0x1\r\n", 1, bad),
            ("+1\r\n", 0, bad),
            ("1\r\nxy\r\n", 4, bad),
            ("1\r\nx\n0\r\n\r\n", 4, bad),
            ("00000000000000001\r\nx", 16, bad),
            ("0\r\nA : b\r\n\r\n", 4, bad),
            ("0\r\nA: b\n\r\n", 7, bad),
            ("0\r\n A: b\r\n\r\n", 3, bad),
            ("0\r\n\n", 3, bad),
        ] {
            for piece in 1..=bytes.len().max(1) {
                let mut watch = ChunkWatch::new();
                let (mut total, mut got) = (0, Ok(false));
                for bytes in bytes.as_bytes().chunks(piece) {
                    match watch.pass(bytes) {
                        Ok((n, ended)) => (total, got) = (total + n, Ok(ended)),
                        Err((malformed, n)) => (total, got) = (total + n, Err(malformed)),
                    }
                    if got != Ok(false) {
                        break;
                    }
                }
                assert_eq!((total, got), (passed, expected), "{bytes:?} by {piece}");
            }
        }
    }
}
