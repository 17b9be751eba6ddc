//! Checks the framing of a chunked request body, byte by byte.

use crate::malformed::Malformed;

/// Maximum digits of a chunk size, including leading zeros: as many as the largest size has.
const SIZE_DIGITS_MAX: u8 = 16;

/// Checks a chunked body against the strict grammar of RFC 9112 §7.1: no blanks around sizes and extensions, and no
/// line that ends with a bare LF. Several parsers read a client's request one after the other, and differ in what else
/// they accept.
#[derive(Debug)]
pub(crate) struct ChunkWatch(State);

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

impl State {
    /// Whether the byte before belongs to an extension or a trailer.
    fn is_overhead(self) -> bool {
        matches!(
            self,
            Self::NameStart(_)
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

impl ChunkWatch {
    /// Begins with a new body.
    pub(crate) fn new() -> Self {
        Self(State::Size(0, 0))
    }

    /// How many bytes of data come next, before any framing.
    pub(crate) fn data_left(&self) -> u64 {
        match self.0 {
            State::Data(left) => left,
            _ => 0,
        }
    }

    /// This many bytes of data were taken.
    pub(crate) fn took(&mut self, bytes: u64) {
        if let State::Data(left) = self.0 {
            self.0 = match left.saturating_sub(bytes) {
                0 => State::DataEnd,
                left => State::Data(left),
            };
        }
    }

    /// Whether the body is complete.
    pub(crate) fn is_end(&self) -> bool {
        self.0 == State::End
    }

    /// Reads framing up to the next data, the end of the body or the end of these bytes. Returns how many bytes that are,
    /// and how many of them belong to extensions and trailers.
    pub(crate) fn skip_framing(&mut self, bytes: &[u8]) -> (usize, usize, Result<(), Malformed>) {
        let (mut read, mut overhead) = (0, 0);
        while read < bytes.len() && !matches!(self.0, State::Data(_) | State::End) {
            let Some(next) = self.after(bytes[read]) else {
                return (read, overhead, Err(Malformed::Chunk));
            };
            overhead += usize::from(next.is_overhead());
            self.0 = next;
            read += 1;
        }
        (read, overhead, Ok(()))
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

/// RFC 9110 §5.6.2.
pub(crate) const fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
        || matches!(
            byte,
            b'!' | b'#'..=b'\'' | b'*' | b'+' | b'-' | b'.' | b'^'..=b'`' | b'|' | b'~'
        )
}
