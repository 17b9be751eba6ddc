//! Decodes the body of a message from its framing.

use bytes::{Buf, Bytes, BytesMut};

use crate::{
    chunks::{Chunks, Grammar},
    malformed::Malformed,
    response::BodyKind,
};

/// Takes the data of one body from the bytes of a connection.
#[derive(Debug)]
pub struct Decoder(State);

/// The next part of a body.
#[derive(Debug, PartialEq, Eq)]
pub enum Decoded {
    /// Data, never empty.
    Data(Bytes),
    /// More bytes must be read.
    Incomplete,
    /// The body is complete. Bytes left in the buffer belong to another message.
    End,
}

#[derive(Debug)]
enum State {
    /// The number of bytes that remain.
    Length(u64),
    UntilClose,
    Chunks(Chunks),
    End,
}

impl Decoder {
    /// A decoder for the body of a client's request, by the strict grammar of RFC 9112, 7.1. The end of the connection never
    /// ends the body of a request.
    pub fn of_request(kind: BodyKind) -> Self {
        match kind {
            BodyKind::UntilClose => Self(State::End),
            kind => Self::new(kind, Grammar::Strict),
        }
    }

    /// A decoder for the body of a member's response. Blanks after a chunk size and all extensions are skipped.
    pub fn of_response(kind: BodyKind) -> Self {
        Self::new(kind, Grammar::Lenient)
    }

    fn new(kind: BodyKind, grammar: Grammar) -> Self {
        Self(match kind {
            BodyKind::Length(0) => State::End,
            BodyKind::Length(length) => State::Length(length),
            BodyKind::Chunked => State::Chunks(Chunks::new(grammar)),
            BodyKind::UntilClose => State::UntilClose,
        })
    }

    /// Whether the body is complete.
    pub fn is_end(&self) -> bool {
        matches!(self.0, State::End)
    }

    /// The number of bytes that remain, if it is known.
    pub fn remaining(&self) -> Option<u64> {
        match self.0 {
            State::Length(left) => Some(left),
            State::End => Some(0),
            State::UntilClose | State::Chunks(_) => None,
        }
    }

    /// The next data at the beginning of `buffer`. Framing that follows the data in the buffer is read too, so that the end of
    /// the body is known together with the last data.
    ///
    /// # Errors
    /// [`Malformed::Chunk`] and [`Malformed::Overhead`], after all data that precedes the fault was returned.
    pub fn decode(&mut self, buffer: &mut BytesMut) -> Result<Decoded, Malformed> {
        self.skip_framing(buffer)?;
        let left = match &self.0 {
            State::Length(left) => *left,
            State::Chunks(chunks) => chunks.data_left(),
            State::UntilClose => u64::MAX,
            State::End => return Ok(Decoded::End),
        };
        let length = usize::try_from(left).map_or(buffer.len(), |left| left.min(buffer.len()));
        if length == 0 {
            return Ok(Decoded::Incomplete);
        }
        let data = buffer.split_to(length).freeze();
        match &mut self.0 {
            State::Length(left) if *left == length as u64 => self.0 = State::End,
            State::Length(left) => *left -= length as u64,
            State::Chunks(chunks) => chunks.took(length as u64),
            State::UntilClose | State::End => {}
        }
        // A fault in this framing becomes an error at the next call, after this data.
        let _ = self.skip_framing(buffer);
        Ok(Decoded::Data(data))
    }

    /// Call this when the connection has ended and all bytes before its end were decoded.
    ///
    /// # Errors
    /// [`Malformed::Incomplete`].
    pub fn closed(&mut self) -> Result<(), Malformed> {
        match self.0 {
            State::End | State::UntilClose => {
                self.0 = State::End;
                Ok(())
            }
            State::Length(_) | State::Chunks(_) => Err(Malformed::Incomplete),
        }
    }

    /// Reads framing up to the next data, the end of the body, the end of the buffer or a fault.
    fn skip_framing(&mut self, buffer: &mut BytesMut) -> Result<(), Malformed> {
        let State::Chunks(chunks) = &mut self.0 else {
            return Ok(());
        };
        let (read, skipped) = chunks.skip_framing(buffer);
        buffer.advance(read);
        if chunks.is_end() {
            self.0 = State::End;
        }
        skipped
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chunks::OVERHEAD_BYTES_MAX;

    /// Decodes a body that arrives in pieces of this size. Returns the data, how many bytes were consumed, and how decoding
    /// ended.
    fn decoded(
        decoder: &mut Decoder,
        bytes: &[u8],
        piece: usize,
    ) -> (String, usize, Result<bool, Malformed>) {
        let (mut buffer, mut data) = (BytesMut::new(), Vec::new());
        let mut pieces = bytes.chunks(piece);
        let end = loop {
            match decoder.decode(&mut buffer) {
                Ok(Decoded::Data(next)) => {
                    assert!(!next.is_empty());
                    data.extend_from_slice(&next);
                }
                Ok(Decoded::End) => break Ok(true),
                Err(malformed) => break Err(malformed),
                Ok(Decoded::Incomplete) => match pieces.next() {
                    Some(piece) => buffer.extend_from_slice(piece),
                    None => break Ok(false),
                },
            }
            assert_eq!(decoder.is_end(), decoder.remaining() == Some(0));
        };
        assert_eq!(decoder.is_end(), end == Ok(true));
        let left = buffer.len() + pieces.flatten().count();
        let data = String::from_utf8(data).expect("text");
        (data, bytes.len() - left, end)
    }

    #[test]
    fn a_response_body_is_the_same_in_any_division_into_pieces() {
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
                let mut decoder = Decoder::of_response(*kind);
                let (data, taken, end) = decoded(&mut decoder, bytes.as_bytes(), piece);
                let got = match end {
                    Ok(false) => decoder.closed(),
                    end => end.map(drop),
                };
                let got = got.map(|()| (data.as_str(), &bytes[taken..]));
                assert_eq!(got, *expected, "{bytes:?} in pieces of {piece}");
                assert_eq!(decoder.is_end(), got.is_ok());
            }
        }
    }

    #[test]
    fn a_request_body_with_a_length_has_as_many_bytes() {
        for (length, bytes, data, end) in [
            (0, "", "", true),
            (0, "GET", "", true),
            (3, "", "", false),
            (3, "ab", "ab", false),
            (3, "abc", "abc", true),
            (3, "abcGET", "abc", true),
            (u64::MAX, "abc", "abc", false),
        ] {
            for piece in 1..=bytes.len().max(1) {
                let mut decoder = Decoder::of_request(BodyKind::Length(length));
                let got = decoded(&mut decoder, bytes.as_bytes(), piece);
                assert_eq!(
                    got,
                    (data.to_owned(), data.len(), Ok(end)),
                    "{bytes:?} by {piece}"
                );
            }
        }
    }

    #[test]
    fn only_chunks_of_requests_by_the_grammar_are_decoded_and_data_before_a_fault_is_delivered() {
        // The data, how many bytes are consumed, and whether they are a complete body, a part of one or malformed.
        let (whole, part, bad) = (Ok(true), Ok(false), Err(Malformed::Chunk));
        for (bytes, data, taken, expected) in [
            ("0\r\n\r\n", "", 5, whole),
            ("3\r\nabc\r\n0\r\n\r\nGET /", "abc", 13, whole),
            ("1\r\na\r\n2\r\nbc\r\n0\r\n\r\n", "abc", 18, whole),
            ("0A\r\n0123456789\r\n000\r\n\r\n", "0123456789", 23, whole),
            ("1;a;b=c;d=\"e;\\\" f\"\r\nx\r\n0;z\r\n\r\n", "x", 30, whole),
            ("0\r\nA: b\r\nC:\r\n\r\n", "", 15, whole),
            ("3\r\nab", "ab", 5, part),
            ("3\r\nabc\r\n0\r\n", "abc", 11, part),
            ("ffffffffffffffff\r\nab", "ab", 20, part),
            ("", "", 0, part),
            ("1;a;b=c;d=\"e;\\\"\r\"\r\n", "", 15, bad),
            ("\r\n", "", 0, bad),
            (" 1\r\n", "", 0, bad),
            ("1 \r\nx", "", 1, bad),
            ("1\t;a\r\nx", "", 1, bad),
            ("1;\r\nx", "", 2, bad),
            ("1; a\r\nx", "", 2, bad),
            ("1;a =b\r\nx", "", 3, bad),
            ("1;a=\r\nx", "", 4, bad),
            ("1;a=b c\r\nx", "", 5, bad),
            ("1;a=\"b\"c\r\nx", "", 7, bad),
            ("1\nx\n0\n\n", "", 1, bad),
            ("1;a\nx", "", 3, bad),
            ("1\rx", "", 2, bad),
            ("0x1\r\n", "", 1, bad),
            ("+1\r\n", "", 0, bad),
            ("1\r\nxy\r\n", "x", 4, bad),
            ("1\r\nx\n0\r\n\r\n", "x", 4, bad),
            ("1\r\nx\r\n1\r\ny\r\n \r\n", "xy", 12, bad),
            ("00000000000000001\r\nx", "", 16, bad),
            ("0\r\nA : b\r\n\r\n", "", 4, bad),
            ("0\r\nA: b\n\r\n", "", 7, bad),
            ("0\r\nA: \0\r\n\r\n", "", 6, bad),
            ("0\r\n A: b\r\n\r\n", "", 3, bad),
            ("0\r\n\n", "", 3, bad),
            ("0\r\n\rx", "", 4, bad),
        ] {
            for piece in 1..=bytes.len().max(1) {
                let mut decoder = Decoder::of_request(BodyKind::Chunked);
                let got = decoded(&mut decoder, bytes.as_bytes(), piece);
                let expected = (data.to_owned(), taken, expected);
                assert_eq!(got, expected, "{bytes:?} by {piece}");
            }
        }
    }

    #[test]
    fn a_fault_stays_a_fault() {
        for new in [Decoder::of_request, Decoder::of_response] {
            let mut decoder = new(BodyKind::Chunked);
            let mut buffer = BytesMut::from("1\r\nx\r\nz");
            assert!(matches!(decoder.decode(&mut buffer), Ok(Decoded::Data(_))));
            for _ in 0..3 {
                assert_eq!(decoder.decode(&mut buffer), Err(Malformed::Chunk));
            }
        }
    }

    #[test]
    fn extensions_and_trailers_of_a_body_have_a_limit() {
        let most = "x".repeat(OVERHEAD_BYTES_MAX);
        for (bytes, is_read) in [
            (format!("0;{}\r\n\r\n", &most[1..]), true),
            (format!("0;{most}\r\n\r\n"), false),
            (format!("0;a=\"\\\"\";{}\r\n\r\n", &most[8..]), true),
            (format!("0;a=\"\\\"\";{}\r\n\r\n", &most[7..]), false),
            (format!("0\r\na:{}\r\n\r\n", &most[3..]), true),
            (format!("0\r\na:{}\r\n\r\n", &most[2..]), false),
            ("1;x\r\na\r\n".repeat(OVERHEAD_BYTES_MAX / 2 + 1), false),
            (format!("1;x\r\na\r\n0\r\na:{}\r\n\r\n", &most[5..]), true),
            (format!("1;x\r\na\r\n0\r\na:{}\r\n\r\n", &most[4..]), false),
            (format!("1\r\na\r\n0;{most}"), false),
        ] {
            for piece in [1, 1000, 4096, bytes.len()] {
                for new in [Decoder::of_request, Decoder::of_response] {
                    let (_, _, end) = decoded(&mut new(BodyKind::Chunked), bytes.as_bytes(), piece);
                    let expected = if is_read {
                        Ok(true)
                    } else {
                        Err(Malformed::Overhead)
                    };
                    assert_eq!(end, expected, "{} bytes by {piece}", bytes.len());
                }
            }
        }
    }

    #[test]
    fn the_end_is_known_with_the_last_data() {
        for (kind, bytes) in [
            (BodyKind::Length(3), "abcGET"),
            (BodyKind::Chunked, "3\r\nabc\r\n0\r\nA: b\r\n\r\nGET"),
        ] {
            for new in [Decoder::of_request, Decoder::of_response] {
                let mut decoder = new(kind);
                let mut buffer = BytesMut::from(bytes);
                let data = decoder.decode(&mut buffer);
                assert_eq!(data, Ok(Decoded::Data("abc".into())));
                assert!(decoder.is_end());
                assert_eq!(buffer, "GET");
            }
        }
        assert!(Decoder::of_request(BodyKind::Length(0)).is_end());
    }
}
