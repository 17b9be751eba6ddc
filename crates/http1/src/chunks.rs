//! The framing of a chunked body, byte by byte (RFC 9112, 7.1).

use crate::malformed::Malformed;

/// Maximum bytes of chunk extensions and trailers in one body. They are skipped.
pub(crate) const OVERHEAD_BYTES_MAX: usize = 16 << 10;
/// Maximum digits of a chunk size, including leading zeros: as many as the largest size has.
const SIZE_DIGITS_MAX: u8 = 16;

/// Reads the framing of one chunked body. A line that ends with a bare LF is malformed.
#[derive(Debug)]
pub(crate) struct Chunks {
    grammar: Grammar,
    state: State,
    /// How many bytes of extensions and trailers were skipped.
    overhead: usize,
}

/// What may follow the size of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Grammar {
    /// Extensions exactly as in RFC 9112. For requests, because several parsers read a client's request one after the other and
    /// differ in what else they accept.
    Strict,
    /// Also blanks, and extensions with any bytes. For responses of members.
    Lenient,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The size line: its value so far, and the number of its digits.
    Size(u64, u8),
    /// Blanks after the digits, where the grammar is lenient.
    Blank(u64),
    /// Extensions up to the end of the line, where the grammar is lenient.
    Extension(u64),
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
    /// The byte after a backslash in quotes.
    Escaped(u64),
    /// The byte after the closing quote.
    QuotedEnd(u64),
    /// The LF that ends the size line.
    SizeEnd(u64),
    /// The data of a chunk, with the number of bytes that remain.
    Data(u64),
    /// The CR after the data.
    DataEnd,
    /// The LF after that CR.
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

impl State {
    /// Whether the byte that led to this state belongs to an extension or a trailer.
    fn is_overhead(self) -> bool {
        matches!(
            self,
            Self::Blank(_)
                | Self::Extension(_)
                | Self::NameStart(_)
                | Self::Name(_)
                | Self::ValueStart(_)
                | Self::Value(_)
                | Self::Quoted(_)
                | Self::Escaped(_)
                | Self::QuotedEnd(_)
                | Self::TrailerName
                | Self::TrailerValue
                | Self::TrailerEnd
        )
    }
}

impl Chunks {
    pub(crate) fn new(grammar: Grammar) -> Self {
        Self {
            grammar,
            state: State::Size(0, 0),
            overhead: 0,
        }
    }

    /// How many bytes of data come next, before any framing.
    pub(crate) fn data_left(&self) -> u64 {
        match self.state {
            State::Data(left) => left,
            _ => 0,
        }
    }

    /// Notes that this many bytes of data were consumed.
    pub(crate) fn took(&mut self, bytes: u64) {
        if let State::Data(left) = self.state {
            self.state = match left.saturating_sub(bytes) {
                0 => State::DataEnd,
                left => State::Data(left),
            };
        }
    }

    pub(crate) fn is_end(&self) -> bool {
        self.state == State::End
    }

    /// Reads framing up to the next data, the end of the body or the end of these bytes. Returns how many bytes were read.
    pub(crate) fn skip_framing(&mut self, bytes: &[u8]) -> (usize, Result<(), Malformed>) {
        let mut read = 0;
        while read < bytes.len() && !matches!(self.state, State::Data(_) | State::End) {
            let Some(next) = self.after(bytes[read]) else {
                return (read, Err(Malformed::Chunk));
            };
            self.overhead += usize::from(next.is_overhead());
            if self.overhead > OVERHEAD_BYTES_MAX {
                return (read, Err(Malformed::Overhead));
            }
            self.state = next;
            read += 1;
        }
        (read, Ok(()))
    }

    /// The state after a byte of framing. `None` if the grammar does not allow the byte.
    fn after(&self, byte: u8) -> Option<State> {
        use State::{
            Blank, Data, DataEnd, DataEndLf, End, Escaped, Extension, LastLf, Name, NameStart,
            Quoted, QuotedEnd, Size, SizeEnd, Trailer, TrailerEnd, TrailerName, TrailerValue,
            Value, ValueStart,
        };
        let text = matches!(byte, b'\t' | b' '..=b'~' | 0x80..);
        let lenient = self.grammar == Grammar::Lenient;
        Some(match (self.state, byte) {
            (Size(size, digits), b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F')
                if digits < SIZE_DIGITS_MAX =>
            {
                let value = char::from(byte).to_digit(16)?;
                Size(size << 4 | u64::from(value), digits + 1)
            }
            (Size(_, 0), _) => return None,
            (Size(n, _) | Blank(n) | Extension(n) | Name(n) | Value(n) | QuotedEnd(n), b'\r') => {
                SizeEnd(n)
            }
            (Size(n, _) | Blank(n), b' ' | b'\t') if lenient => Blank(n),
            (Size(n, _) | Blank(n), b';') if lenient => Extension(n),
            (Extension(n), byte) if byte != b'\n' => Extension(n),
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

/// Whether a token may have this byte (RFC 9110, 5.6.2).
pub(crate) const fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
        || matches!(
            byte,
            b'!' | b'#'..=b'\'' | b'*' | b'+' | b'-' | b'.' | b'^'..=b'`' | b'|' | b'~'
        )
}
