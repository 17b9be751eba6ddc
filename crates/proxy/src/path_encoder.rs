//! Encodes raw bytes in the query of `:path` before h2 reads them.
//!
//! RFC 3986 allows `"`, `<` and `>` only percent-encoded. h2 resets a stream that has them raw in its path. But curl sends them
//! raw, and over HTTP/1.1 the proxy encodes and forwards them. The encoder changes only a field that does not enter the dynamic
//! table of HPACK (RFC 7541, 6.2.2 and 6.2.3), because the tables of the client and of h2 must stay equal. curl and other
//! clients with nghttp2 send paths in such fields.

use tokio::io::ReadBuf;

use crate::{
    frame_head::{HEAD_BYTES, HEADERS, number},
    huffman::Huffman,
};

/// The connection preface (RFC 9113, 3.4).
const PREFACE_BYTES: usize = 24;
const PADDED: u8 = 8;
const PRIORITY: u8 = 0x20;
const PRIORITY_BYTES: usize = 5;
/// Maximum payload of a frame that is changed: the maximum that h2 announces. Larger frames pass unchanged, and h2 refuses
/// them.
const PAYLOAD_BYTES_MAX: usize = 16_384;
/// Entries of the static table with the name `:path`.
const STATIC_PATH: std::ops::RangeInclusive<usize> = 4..=5;
const PATH: &[u8] = b":path";

/// The bytes of one connection on their way to h2.
#[derive(Debug)]
pub(crate) struct PathEncoder {
    /// Number of following bytes that pass unchanged: those of the preface, or of a frame.
    passing: usize,
    /// A frame whose head, or whose HEADERS payload, is incomplete. At most one such frame.
    held: Vec<u8>,
    /// Bytes that h2 had no room for.
    ready: Vec<u8>,
}

/// The frame at the beginning of some bytes.
enum Frame {
    /// A complete HEADERS frame of this many bytes.
    Headers(usize),
    /// Another frame of this many bytes, complete or not.
    Other(usize),
    Incomplete,
}

impl PathEncoder {
    pub(crate) fn new() -> Self {
        Self {
            passing: PREFACE_BYTES,
            held: Vec::new(),
            ready: Vec::new(),
        }
    }

    /// Changes the bytes after `before`, which were just read. If they are held back, the buffer has no new bytes afterwards.
    pub(crate) fn filter(&mut self, buffer: &mut ReadBuf<'_>, before: usize) {
        let kept = self.take(&buffer.filled()[before..]);
        buffer.set_filled(before + kept);
        self.deliver(buffer);
    }

    /// Gives h2 the bytes that it had no room for. Returns whether there were any.
    pub(crate) fn deliver(&mut self, buffer: &mut ReadBuf<'_>) -> bool {
        let length = buffer.remaining().min(self.ready.len());
        buffer.put_slice(&self.ready[..length]);
        self.ready.drain(..length);
        length > 0
    }

    /// Called when the client has closed its direction: no bytes follow those that are held back.
    pub(crate) fn end(&mut self) {
        self.ready.append(&mut self.held);
    }

    /// Takes the next bytes. Returns how many of them, from the beginning, pass unchanged. What h2 gets for the other bytes is
    /// in `ready`, except for an incomplete frame.
    fn take(&mut self, bytes: &[u8]) -> usize {
        if !self.held.is_empty() {
            self.held.extend_from_slice(bytes);
            self.drain();
            return 0;
        }
        let mut kept = 0;
        loop {
            let passed = self.passing.min(bytes.len() - kept);
            self.passing -= passed;
            kept += passed;
            let rest = &bytes[kept..];
            if rest.is_empty() {
                return kept;
            }
            match frame(rest) {
                Frame::Other(length) => self.passing = length,
                Frame::Headers(length) => match encoded(&rest[..length]) {
                    None => self.passing = length,
                    Some(encoded) => {
                        self.ready.extend(encoded);
                        self.held.extend_from_slice(&rest[length..]);
                        self.drain();
                        return kept;
                    }
                },
                Frame::Incomplete => {
                    self.held.extend_from_slice(rest);
                    return kept;
                }
            }
        }
    }

    /// Moves complete frames from `held` to `ready`.
    fn drain(&mut self) {
        loop {
            let passed = self.passing.min(self.held.len());
            self.ready.extend(self.held.drain(..passed));
            self.passing -= passed;
            match frame(&self.held) {
                Frame::Other(length) => self.passing = length,
                Frame::Headers(length) => match encoded(&self.held[..length]) {
                    None => self.passing = length,
                    Some(encoded) => {
                        self.ready.extend(encoded);
                        self.held.drain(..length);
                    }
                },
                Frame::Incomplete => return,
            }
        }
    }
}

fn frame(bytes: &[u8]) -> Frame {
    let Some(head) = bytes.first_chunk::<HEAD_BYTES>() else {
        return Frame::Incomplete;
    };
    let payload = number(&head[..3]) as usize;
    let length = HEAD_BYTES + payload;
    match head[3] {
        HEADERS if payload <= PAYLOAD_BYTES_MAX && bytes.len() < length => Frame::Incomplete,
        HEADERS if payload <= PAYLOAD_BYTES_MAX => Frame::Headers(length),
        _ => Frame::Other(length),
    }
}

/// A complete HEADERS frame with its path encoded. `None`: the frame needs no change, or cannot be changed.
fn encoded(frame: &[u8]) -> Option<Vec<u8>> {
    let flags = frame[4];
    let (mut start, mut end) = (HEAD_BYTES, frame.len());
    if flags & PADDED != 0 {
        end = end.checked_sub((*frame.get(start)?).into())?;
        start += 1;
    }
    if flags & PRIORITY != 0 {
        start += PRIORITY_BYTES;
    }
    let (value, path) = raw_path(frame.get(start..end)?)?;
    let mut changed = frame[..start + value.start].to_vec();
    put_length(&mut changed, path.len());
    changed.extend(path);
    changed.extend_from_slice(&frame[start + value.end..]);
    let payload = changed.len() - HEAD_BYTES;
    if payload > PAYLOAD_BYTES_MAX {
        return None;
    }
    let [_, length @ ..] = u32::try_from(payload).ok()?.to_be_bytes();
    changed[..3].copy_from_slice(&length);
    Some(changed)
}

/// Finds a path with raw bytes in its query. Returns the range of its value with the length before it, and the encoded value.
fn raw_path(block: &[u8]) -> Option<(std::ops::Range<usize>, Vec<u8>)> {
    let mut at = 0;
    while at < block.len() {
        let first = block[at];
        let (bits, is_literal) = match first {
            0x80.. => (7, false),
            0x40.. => (6, true),
            0x20.. => (5, false),
            _ => (4, true),
        };
        let (name, next) = integer(block, at, bits)?;
        at = next;
        if !is_literal {
            continue;
        }
        let mut is_path = STATIC_PATH.contains(&name);
        if name == 0 {
            let (text, next) = string(block, at)?;
            is_path = text.as_deref() == Some(PATH);
            at = next;
        }
        let begin = at;
        let (value, next) = string(block, at)?;
        at = next;
        if is_path {
            let inserts = first & 0x40 != 0;
            let encoded = encode_query(&value?).filter(|_| !inserts);
            return encoded.map(|encoded| (begin..next, encoded));
        }
    }
    None
}

/// The number that starts in the low `bits` of the byte at this position, and the position after it (RFC 7541, 5.1).
fn integer(block: &[u8], at: usize, bits: u32) -> Option<(usize, usize)> {
    let most = (1 << bits) - 1;
    let mut value = usize::from(*block.get(at)?) & most;
    let mut at = at + 1;
    if value < most {
        return Some((value, at));
    }
    for shift in [0, 7, 14, 21] {
        let byte = *block.get(at)?;
        at += 1;
        value += usize::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some((value, at));
        }
    }
    None
}

/// The string at this position, and the position after it (RFC 7541, 5.2). The string is `None` if it has characters that a URL
/// cannot have.
fn string(block: &[u8], at: usize) -> Option<(Option<Vec<u8>>, usize)> {
    let is_coded = block.get(at)? & 0x80 != 0;
    let (length, at) = integer(block, at, 7)?;
    let end = at.checked_add(length)?;
    let bytes = block.get(at..end)?;
    let text = if is_coded {
        Huffman::decode(bytes)
    } else {
        Some(bytes.to_vec())
    };
    Some((text, end))
}

fn put_length(out: &mut Vec<u8>, length: usize) {
    const MOST: usize = 0x7f;
    if length < MOST {
        out.push(length as u8);
        return;
    }
    out.push(MOST as u8);
    let mut left = length - MOST;
    while left > 0x7f {
        out.push(left as u8 | 0x80);
        left >>= 7;
    }
    out.push(left as u8);
}

/// A path with the raw bytes of its query encoded. `None`: the query has no raw bytes.
fn encode_query(path: &[u8]) -> Option<Vec<u8>> {
    let is_raw = |byte: &u8| matches!(byte, b'"' | b'<' | b'>');
    let query = path.iter().position(|byte| *byte == b'?')?;
    if !path[query..].iter().any(is_raw) {
        return None;
    }
    let mut encoded = path[..query].to_vec();
    for byte in &path[query..] {
        if is_raw(byte) {
            encoded.extend(format!("%{byte:02X}").bytes());
        } else {
            encoded.push(*byte);
        }
    }
    Some(encoded)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame_of(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
        let [_, length @ ..] = (payload.len() as u32).to_be_bytes();
        [&length[..], &[kind, flags, 0, 0, 0, 1], payload].concat()
    }

    fn literal(begin: &[u8], value: &[u8]) -> Vec<u8> {
        let mut field = begin.to_vec();
        put_length(&mut field, value.len());
        field.extend_from_slice(value);
        field
    }

    /// What h2 gets from a connection, in pieces of this size and with this room in each read.
    fn filtered(bytes: &[u8], piece: usize, room: usize) -> Vec<u8> {
        let mut encoder = PathEncoder::new();
        let mut got = Vec::new();
        for bytes in bytes.chunks(piece.min(room)) {
            let mut space = vec![0; room];
            let mut buffer = ReadBuf::new(&mut space);
            buffer.put_slice(bytes);
            encoder.filter(&mut buffer, 0);
            got.extend_from_slice(buffer.filled());
            loop {
                let mut space = vec![0; room];
                let mut buffer = ReadBuf::new(&mut space);
                if !encoder.deliver(&mut buffer) {
                    break;
                }
                got.extend_from_slice(buffer.filled());
            }
            assert!(encoder.held.len() <= HEAD_BYTES + PAYLOAD_BYTES_MAX);
        }
        encoder.end();
        got.append(&mut encoder.ready);
        got
    }

    #[test]
    fn paths_are_encoded_in_pieces_of_any_size_and_other_bytes_pass() {
        const RAW: &[u8] = b"/a?b=\"<c>\"";
        const ENCODED: &[u8] = b"/a?b=%22%3Cc%3E%22";
        let long = [b"/a?".to_vec(), vec![b'"'; 200]].concat();
        let long_encoded = [b"/a?".to_vec(), b"%22".repeat(200)].concat();
        let mut in_huffman = literal(&[0x04], &crate::huffman::coded(RAW));
        in_huffman[1] |= 0x80;
        let same = |payload: Vec<u8>| (payload.clone(), payload);
        let cases = [
            (literal(&[0x04], RAW), literal(&[0x04], ENCODED)),
            (literal(&[0x15], RAW), literal(&[0x15], ENCODED)),
            (in_huffman, literal(&[0x04], ENCODED)),
            (
                literal(b"\x00\x05:path", RAW),
                literal(b"\x00\x05:path", ENCODED),
            ),
            (
                literal(&[0x00, 0x84, 0xb9, 0x58, 0xd3, 0x3f], RAW),
                literal(&[0x00, 0x84, 0xb9, 0x58, 0xd3, 0x3f], ENCODED),
            ),
            (literal(&[0x04], &long), literal(&[0x04], &long_encoded)),
            (
                [
                    &[0x82, 0x3f, 0xe1, 0x1f][..],
                    &literal(&[0x04], RAW),
                    &literal(&[0x40, 1, b'x'], b"?\""),
                ]
                .concat(),
                [
                    &[0x82, 0x3f, 0xe1, 0x1f][..],
                    &literal(&[0x04], ENCODED),
                    &literal(&[0x40, 1, b'x'], b"?\""),
                ]
                .concat(),
            ),
            // Fields that are inserted into the dynamic table; raw bytes in the path before the query, or in another field; and
            // truncated fields.
            same(literal(&[0x44], RAW)),
            same(literal(&[0x04], b"/a\"<>")),
            same(literal(&[0x04], b"/a?b")),
            same(literal(&[0x0f, 0x24], RAW)),
            same(literal(&[0x04], RAW)[..5].to_vec()),
            same(vec![0x04, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f]),
            same(Vec::new()),
        ];
        let data = frame_of(0, 0, b"?\"<>");
        for (payload, expected) in cases {
            let priority = [0; PRIORITY_BYTES];
            let padded = |block: &[u8]| [&[3][..], &priority, block, &[0; 3]].concat();
            let frames = |block: &[u8]| {
                let frames = [
                    frame_of(4, 0, &[]),
                    frame_of(HEADERS, 4, block),
                    data.clone(),
                    frame_of(HEADERS, 4 | PADDED | PRIORITY, &padded(block)),
                    frame_of(9, 4, block),
                ];
                [vec![b'P'; PREFACE_BYTES], frames.concat()].concat()
            };
            // A CONTINUATION frame is not changed.
            let mut wanted = frames(&expected);
            let end = wanted.len() - expected.len() - HEAD_BYTES;
            wanted.truncate(end);
            wanted.extend(frame_of(9, 4, &payload));
            let sent = frames(&payload);
            for (piece, room) in [
                (1, 1),
                (2, 7),
                (5, 64),
                (9, 9),
                (100, 100),
                (1 << 20, 1 << 20),
            ] {
                assert_eq!(
                    filtered(&sent, piece, room),
                    wanted,
                    "{payload:x?} in pieces of {piece} with room for {room}"
                );
            }
        }
    }

    #[test]
    fn a_frame_that_would_be_too_large_passes_as_it_is() {
        for (count, is_encoded) in [(5_000, true), (6_000, false)] {
            let path = [b"/a?".to_vec(), vec![b'"'; count]].concat();
            let block = literal(&[0x04], &path);
            let sent = [vec![0; PREFACE_BYTES], frame_of(HEADERS, 4, &block)].concat();
            let got = filtered(&sent, 1 << 20, 1 << 20);
            assert_eq!(got != sent, is_encoded, "{count}");
        }
        let large = frame_of(HEADERS, 4, &vec![0; PAYLOAD_BYTES_MAX + 1]);
        let sent = [vec![0; PREFACE_BYTES], large].concat();
        assert_eq!(filtered(&sent, 1000, 1000), sent);
    }

    #[test]
    fn any_bytes_are_read_without_a_panic() {
        let mut state = 7_u64;
        let mut next = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 33) as u8
        };
        for round in 0..5_000 {
            let block: Vec<u8> = (0..40)
                .map(|_| if next() & 3 == 0 { 0x04 } else { next() })
                .collect();
            let sent = [vec![0; PREFACE_BYTES], frame_of(HEADERS, next(), &block)].concat();
            let got = filtered(&sent, 1 + round % 70, 64);
            assert!(got.len() >= sent.len(), "{block:x?}");
        }
    }
}
