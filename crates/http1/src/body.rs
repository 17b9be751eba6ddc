//! Decodes the body of a response from its framing.

use bytes::{Buf, Bytes, BytesMut};

use crate::{chunks::is_token, malformed::Malformed, response::BodyKind};

/// Maximum bytes of chunk extensions and trailers in one body. They are skipped.
const OVERHEAD_BYTES_MAX: u32 = 16 << 10;
/// Maximum digits of a chunk size, including leading zeros: as many as the largest size has.
const SIZE_DIGITS_MAX: u8 = 16;

/// Takes the data of one body from the bytes of a connection.
#[derive(Debug)]
pub struct Decoder {
    state: State,
    /// How many bytes were skipped.
    overhead: u32,
}

/// The next part of a body.
#[derive(Debug, PartialEq, Eq)]
pub enum Decoded {
    /// Data, never empty.
    Data(Bytes),
    /// More bytes must be read.
    Incomplete,
    /// The body is complete. Bytes left in the buffer belong to no response.
    End,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The number of bytes that remain.
    Length(u64),
    UntilClose,
    /// The size line of a chunk: its value so far, and the number of its digits.
    Size(u64, u8),
    /// Blanks behind the digits.
    Blank(u64),
    /// Extensions, up to the end of the line.
    Extension(u64),
    /// The LF after the CR that ends a size line.
    SizeEnd(u64),
    /// The number of bytes that remain of a chunk's data.
    Chunk(u64),
    /// CR and LF behind the data. `true`: the CR has been read.
    ChunkEnd(bool),
    /// The first byte of a trailer, or of the empty line.
    Trailer,
    /// Within the name of a trailer.
    TrailerName,
    /// Within the value of a trailer.
    TrailerValue,
    /// The LF that ends a trailer.
    TrailerEnd,
    /// The LF of the empty line.
    LastEnd,
    End,
}

impl Decoder {
    /// A decoder for a body of this kind.
    pub fn new(kind: BodyKind) -> Self {
        let state = match kind {
            BodyKind::Length(0) => State::End,
            BodyKind::Length(length) => State::Length(length),
            BodyKind::Chunked => State::Size(0, 0),
            BodyKind::UntilClose => State::UntilClose,
        };
        Self { state, overhead: 0 }
    }

    /// Whether the body is complete.
    pub fn is_end(&self) -> bool {
        self.state == State::End
    }

    /// The number of bytes that remain, if it is known.
    pub fn remaining(&self) -> Option<u64> {
        match self.state {
            State::Length(left) => Some(left),
            State::End => Some(0),
            _ => None,
        }
    }

    /// The next data at the beginning of `buffer`. Framing that follows it in the buffer is read too, so that the end
    /// is known with the last data.
    ///
    /// # Errors
    /// [`Malformed::Chunk`] and [`Malformed::Overhead`].
    pub fn decode(&mut self, buffer: &mut BytesMut) -> Result<Decoded, Malformed> {
        self.skip_framing(buffer)?;
        let left = match self.state {
            State::End => return Ok(Decoded::End),
            State::UntilClose => u64::MAX,
            State::Length(left) | State::Chunk(left) => left,
            _ => return Ok(Decoded::Incomplete),
        };
        let length = usize::try_from(left).map_or(buffer.len(), |left| left.min(buffer.len()));
        if length == 0 {
            return Ok(Decoded::Incomplete);
        }
        let data = buffer.split_to(length).freeze();
        let left = left - length as u64;
        self.state = match (self.state, left) {
            (State::Length(_), 0) => State::End,
            (State::Length(_), left) => State::Length(left),
            (State::Chunk(_), 0) => State::ChunkEnd(false),
            (State::Chunk(_), left) => State::Chunk(left),
            (state, _) => state,
        };
        self.skip_framing(buffer)?;
        Ok(Decoded::Data(data))
    }

    /// Call this when the connection has ended and everything before was decoded.
    ///
    /// # Errors
    /// [`Malformed::Incomplete`].
    pub fn closed(&mut self) -> Result<(), Malformed> {
        match self.state {
            State::End | State::UntilClose => {
                self.state = State::End;
                Ok(())
            }
            _ => Err(Malformed::Incomplete),
        }
    }

    /// Reads framing up to the next data, the end of the body, or the end of the buffer.
    fn skip_framing(&mut self, buffer: &mut BytesMut) -> Result<(), Malformed> {
        let mut read = 0;
        while !matches!(
            self.state,
            State::Length(_) | State::UntilClose | State::Chunk(_) | State::End
        ) {
            let Some(byte) = buffer.get(read) else {
                break;
            };
            read += 1;
            self.state = self.after(*byte)?;
        }
        buffer.advance(read);
        Ok(())
    }

    /// The state after a byte of framing.
    fn after(&mut self, byte: u8) -> Result<State, Malformed> {
        match (self.state, byte) {
            (State::Size(size, digits), byte) if byte.is_ascii_hexdigit() => {
                let value = (byte as char).to_digit(16).map_or(0, u64::from);
                match digits < SIZE_DIGITS_MAX {
                    true => Ok(State::Size(size << 4 | value, digits + 1)),
                    false => Err(Malformed::Chunk),
                }
            }
            (State::Size(_, 0), _) => Err(Malformed::Chunk),
            (State::Size(size, _) | State::Blank(size) | State::Extension(size), b'\r') => {
                Ok(State::SizeEnd(size))
            }
            (State::Size(size, _) | State::Blank(size), b' ' | b'\t') => {
                self.skip().map(|()| State::Blank(size))
            }
            (State::Size(size, _) | State::Blank(size), b';') => {
                self.skip().map(|()| State::Extension(size))
            }
            (State::Extension(size), byte) if byte != b'\n' => {
                self.skip().map(|()| State::Extension(size))
            }
            (State::SizeEnd(0), b'\n') => Ok(State::Trailer),
            (State::SizeEnd(size), b'\n') => Ok(State::Chunk(size)),
            (State::ChunkEnd(false), b'\r') => Ok(State::ChunkEnd(true)),
            (State::ChunkEnd(true), b'\n') => Ok(State::Size(0, 0)),
            (State::Trailer, b'\r') => Ok(State::LastEnd),
            (State::LastEnd, b'\n') => Ok(State::End),
            (State::Trailer | State::TrailerName, byte) if is_token(byte) => {
                self.skip().map(|()| State::TrailerName)
            }
            (State::TrailerName, b':') => self.skip().map(|()| State::TrailerValue),
            (State::TrailerValue, b'\r') => self.skip().map(|()| State::TrailerEnd),
            (State::TrailerValue, b'\t' | b' '..=b'~' | 0x80..) => {
                self.skip().map(|()| State::TrailerValue)
            }
            (State::TrailerEnd, b'\n') => self.skip().map(|()| State::Trailer),
            _ => Err(Malformed::Chunk),
        }
    }

    /// Counts a skipped byte.
    fn skip(&mut self) -> Result<(), Malformed> {
        self.overhead += 1;
        match self.overhead > OVERHEAD_BYTES_MAX {
            true => Err(Malformed::Overhead),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Decodes these bytes in pieces of this size. Returns the data and the remaining bytes.
    fn decoded(
        kind: BodyKind,
        bytes: &[u8],
        piece: usize,
    ) -> Result<(Vec<u8>, Vec<u8>), Malformed> {
        let mut decoder = Decoder::new(kind);
        let mut buffer = BytesMut::new();
        let mut data = Vec::new();
        let mut pieces = bytes.chunks(piece);
        loop {
            match decoder.decode(&mut buffer)? {
                Decoded::Data(next) => data.extend_from_slice(&next),
                Decoded::End => {
                    buffer.extend(pieces.flatten());
                    return Ok((data, buffer.to_vec()));
                }
                Decoded::Incomplete => match pieces.next() {
                    Some(piece) => buffer.extend_from_slice(piece),
                    None => {
                        decoder.closed()?;
                        assert!(decoder.is_end());
                    }
                },
            }
        }
    }

    #[test]
    fn a_body_is_the_same_in_any_division_into_pieces() {
        use BodyKind::{Chunked, Length, UntilClose};
        use Malformed::{Chunk, Incomplete};
        type Expected = Result<(&'static str, &'static str), Malformed>;
        let cases: &[(BodyKind, &str, Expected)] = &[
            (Length(0), "", Ok(("", ""))),
            (Length(0), "HTTP/1.1", Ok(("", "HTTP/1.1"))),
            (Length(3), "abc", Ok(("abc", ""))),
            (Length(3), "abcd", Ok(("abc", "d"))),
            (Length(4), "abc", Err(Incomplete)),
            (Length(u64::MAX), "abc", Err(Incomplete)),
            (UntilClose, "", Ok(("", ""))),
            (UntilClose, "abc", Ok(("abc", ""))),
            (Chunked, "0\r\n\r\n", Ok(("", ""))),
            (Chunked, "3\r\nabc\r\n0\r\n\r\n", Ok(("abc", ""))),
            (
                Chunked,
                "1\r\na\r\n2\r\nbc\r\n0\r\n\r\nHTTP",
                Ok(("abc", "HTTP")),
            ),
            (Chunked, "0003\r\nabc\r\n00\r\n\r\n", Ok(("abc", ""))),
            (
                Chunked,
                "A\r\n0123456789\r\n0\r\n\r\n",
                Ok(("0123456789", "")),
            ),
            (Chunked, "3;a=b\r\nabc\r\n0;c\r\n\r\n", Ok(("abc", ""))),
            (Chunked, "3 \t\r\nabc\r\n0\r\n\r\n", Ok(("abc", ""))),
            (Chunked, "3 ;a\r\nabc\r\n0\r\n\r\n", Ok(("abc", ""))),
            (
                Chunked,
                "0\r\nDate: x\r\nEtag: y\r\n\r\nrest",
                Ok(("", "rest")),
            ),
            (Chunked, "3\r\nab", Err(Incomplete)),
            (Chunked, "3\r\nabc", Err(Incomplete)),
            (Chunked, "3\r\nabc\r\n", Err(Incomplete)),
            (Chunked, "3\r\nabc\r\n0\r\n", Err(Incomplete)),
            (Chunked, "3\r\nabc\r\n0\r\nDate: x\r\n", Err(Incomplete)),
            (Chunked, "", Err(Incomplete)),
            (Chunked, "\r\n", Err(Chunk)),
            (Chunked, " 3\r\nabc\r\n", Err(Chunk)),
            (Chunked, "-1\r\n", Err(Chunk)),
            (Chunked, "+3\r\nabc\r\n", Err(Chunk)),
            (Chunked, "0x3\r\nabc\r\n", Err(Chunk)),
            (Chunked, "3\nabc\n0\n\n", Err(Chunk)),
            (Chunked, "3;a\nabc\r\n", Err(Chunk)),
            (Chunked, "3;a\rb\r\nabc\r\n", Err(Chunk)),
            (Chunked, "3 a\r\nabc\r\n", Err(Chunk)),
            (Chunked, "3\r\nabcd\r\n", Err(Chunk)),
            (Chunked, "3\r\nabc\n0\r\n\r\n", Err(Chunk)),
            (Chunked, "3\r\nabc\rx", Err(Chunk)),
            (Chunked, "10000000000000000\r\n", Err(Chunk)),
            (Chunked, "00000000000000003\r\nabc", Err(Chunk)),
            (Chunked, "0\r\n\n", Err(Chunk)),
            (Chunked, "0\r\nno field\r\n\r\n", Err(Chunk)),
            (Chunked, "0\r\n3\r\nabc\r\n0\r\n\r\n", Err(Chunk)),
            (Chunked, "0\r\nA : b\r\n\r\n", Err(Chunk)),
            (Chunked, "0\r\n A: b\r\n\r\n", Err(Chunk)),
            (Chunked, "0\r\nA: b\n\r\n", Err(Chunk)),
            (Chunked, "0\r\nA: \0\r\n\r\n", Err(Chunk)),
            (Chunked, "0\r\n\rx", Err(Chunk)),
        ];
        for (kind, bytes, expected) in cases {
            for piece in 1..=bytes.len().max(1) {
                let got = decoded(*kind, bytes.as_bytes(), piece);
                let expected = expected.map(|(data, rest)| (data.into(), rest.into()));
                assert_eq!(got, expected, "{bytes:?} in pieces of {piece}");
            }
        }
    }

    #[test]
    fn skipped_bytes_have_a_limit() {
        let at_most = "x".repeat(OVERHEAD_BYTES_MAX as usize - 2);
        for (bytes, expected) in [
            (format!("0;{at_most}\r\n\r\n"), true),
            (format!("0;{at_most}xx\r\n\r\n"), false),
            (format!("0\r\na:{}\r\n\r\n", &at_most[2..]), true),
            (format!("0\r\na:{}\r\n\r\n", &at_most[1..]), false),
            ("1;\r\na\r\n".repeat(OVERHEAD_BYTES_MAX as usize + 1), false),
        ] {
            let got = decoded(BodyKind::Chunked, bytes.as_bytes(), 4096);
            match expected {
                true => assert!(got.is_ok()),
                false => assert_eq!(got, Err(Malformed::Overhead)),
            }
        }
    }

    #[test]
    fn the_end_is_known_with_the_last_data() {
        for (kind, bytes) in [
            (BodyKind::Length(3), "abc"),
            (BodyKind::Chunked, "3\r\nabc\r\n0\r\n\r\n"),
        ] {
            let mut decoder = Decoder::new(kind);
            let mut buffer = BytesMut::from(bytes);
            let data = decoder.decode(&mut buffer);
            assert_eq!(data, Ok(Decoded::Data(Bytes::from_static(b"abc"))));
            assert!(decoder.is_end());
        }
    }
}
