//! The frames that a client sends, inspected before h2 turns them into requests. The proxy notes incomplete heads, frames that
//! carry neither a head nor data, malformed trailers, and paths with a fragment.

use crate::{
    frame_head::{CONTINUATION, DATA, HEAD_BYTES, HEADERS, number},
    header_blocks::HeaderBlocks,
};
use tokio::time::Instant;

/// The connection preface, which begins with `PRI * HTTP/2.0` (RFC 9113, 3.4).
const PREFACE_BYTES: usize = 24;
const END_HEADERS: u8 = 4;
const PADDED: u8 = 8;
const PRIORITY: u8 = 0x20;
const PRIORITY_BYTES: usize = 5;

/// A property of a client's frames that h2 does not report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FrameEvent {
    /// A frame carries neither a head nor data.
    Bare,
    /// The trailers of this stream begin with a pseudo-header field.
    PseudoInTrailers(u32),
    /// The path in the head of this stream has a fragment.
    Fragment(u32),
}

/// The parser of a client's frames. It stores its position in the bytes read so far.
#[derive(Debug)]
pub(crate) struct ClientFrames {
    head: [u8; HEAD_BYTES],
    filled: usize,
    /// Number of bytes to skip, in the preface or in a payload.
    passing: usize,
    /// Whether a head, or the preface with the first frame, is incomplete.
    open: bool,
    /// Whether the head is complete once the skipped bytes have passed.
    ends: bool,
    since: Option<Instant>,
    blocks: HeaderBlocks,
    /// The parts of the current frame around its header block fragment. `None` in frames without such a fragment.
    envelope: Option<Envelope>,
    /// The stream, if the current block is its trailers. `None` once they were found to be malformed.
    trailers: Option<u32>,
    /// The stream, if the current block is its head. `None` once a fragment was found in its path.
    head_of: Option<u32>,
    /// The highest stream number for which a head has arrived.
    last_stream: u32,
}

/// The parts of a frame around its header block fragment.
#[derive(Clone, Copy, Debug, Default)]
struct Envelope {
    /// Whether the next byte is the pad length.
    padded: bool,
    /// Number of bytes of the priority fields that have not arrived.
    priority: usize,
    padding: usize,
}

impl ClientFrames {
    pub(crate) fn new() -> Self {
        Self {
            head: [0; HEAD_BYTES],
            filled: 0,
            passing: PREFACE_BYTES,
            open: true,
            ends: false,
            since: None,
            blocks: HeaderBlocks::new(),
            envelope: None,
            trailers: None,
            head_of: None,
            last_stream: 0,
        }
    }

    /// Reads the next bytes. CONTINUATION and DATA frames without content are not reported, because h2 itself limits them.
    pub(crate) fn read(&mut self, mut bytes: &[u8], mut event: impl FnMut(FrameEvent)) {
        loop {
            let passed = self.passing.min(bytes.len());
            if let Some(found) = self.read_block(&bytes[..passed]) {
                event(found);
            }
            self.passing -= passed;
            bytes = &bytes[passed..];
            if self.passing > 0 {
                return;
            }
            if std::mem::take(&mut self.ends) {
                self.open = false;
                self.since = None;
            }
            let taken = (HEAD_BYTES - self.filled).min(bytes.len());
            self.head[self.filled..self.filled + taken].copy_from_slice(&bytes[..taken]);
            self.filled += taken;
            bytes = &bytes[taken..];
            if self.filled < HEAD_BYTES {
                return;
            }
            self.filled = 0;
            self.passing = number(&self.head[..3]) as usize;
            let [_, _, _, kind, flags, ..] = self.head;
            self.begin_payload(kind, flags);
            if matches!(kind, HEADERS | CONTINUATION) {
                self.open = true;
                self.ends = flags & END_HEADERS != 0;
            } else {
                self.ends = true;
                if kind != DATA {
                    event(FrameEvent::Bare);
                }
            }
        }
    }

    /// Notes the layout of the payload whose frame head has been read.
    fn begin_payload(&mut self, kind: u8, flags: u8) {
        self.envelope = match kind {
            HEADERS => {
                let stream = number(&self.head[5..]) & 0x7fff_ffff;
                self.blocks.begin();
                // Stream numbers increase, so a second head on a known stream is its trailers.
                self.trailers = (stream <= self.last_stream).then_some(stream);
                self.head_of = (stream > self.last_stream).then_some(stream);
                self.last_stream = self.last_stream.max(stream);
                Some(Envelope {
                    padded: flags & PADDED != 0,
                    priority: if flags & PRIORITY != 0 {
                        PRIORITY_BYTES
                    } else {
                        0
                    },
                    padding: 0,
                })
            }
            CONTINUATION => Some(Envelope::default()),
            _ => None,
        };
    }

    /// Reads the next bytes of a payload. Returns the event that its header block causes, if any.
    fn read_block(&mut self, mut piece: &[u8]) -> Option<FrameEvent> {
        let envelope = self.envelope.as_mut()?;
        let mut left = self.passing;
        if envelope.padded
            && let Some((&padding, rest)) = piece.split_first()
        {
            envelope.padded = false;
            envelope.padding = padding.into();
            piece = rest;
            left -= 1;
        }
        let priority = envelope.priority.min(piece.len());
        envelope.priority -= priority;
        let fragment = (left - priority)
            .saturating_sub(envelope.padding)
            .min(piece.len() - priority);
        self.blocks.read(&piece[priority..priority + fragment]);
        if self.blocks.has_fragment()
            && let Some(stream) = self.head_of.take()
        {
            return Some(FrameEvent::Fragment(stream));
        }
        if self.blocks.begins_with_pseudo() {
            self.trailers.take().map(FrameEvent::PseudoInTrailers)
        } else {
            None
        }
    }

    /// When a head, or the preface with the first frame, became incomplete. Call this when all bytes that have arrived were
    /// read.
    pub(crate) fn open_since(&mut self, now: impl FnOnce() -> Instant) -> Option<Instant> {
        if self.open && self.since.is_none() {
            self.since = Some(now());
        }
        self.since
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTINGS: &[u8] = &[0, 0, 0, 4, 0, 0, 0, 0, 0];

    fn begun() -> ClientFrames {
        let mut reader = ClientFrames::new();
        reader.read(&[0; PREFACE_BYTES], |_| {});
        reader.read(SETTINGS, |_| {});
        reader
    }

    #[test]
    fn a_head_is_incomplete_until_its_last_byte() {
        for (frames, open) in [
            (&[0, 0, 2, HEADERS, 4, 0, 0, 0, 1, 7, 7][..], false),
            (&[0, 0, 2, HEADERS, 4, 0, 0, 0, 1, 7], true),
            (&[0, 0, 2, HEADERS, 0, 0, 0, 0, 1, 7, 7], true),
            (
                &[
                    0,
                    0,
                    0,
                    HEADERS,
                    0,
                    0,
                    0,
                    0,
                    1,
                    0,
                    0,
                    0,
                    CONTINUATION,
                    4,
                    0,
                    0,
                    0,
                    1,
                ],
                false,
            ),
            (
                &[
                    0,
                    0,
                    0,
                    HEADERS,
                    0,
                    0,
                    0,
                    0,
                    1,
                    0,
                    0,
                    0,
                    CONTINUATION,
                    0,
                    0,
                    0,
                    0,
                    1,
                ],
                true,
            ),
            (&[0, 0, 3, DATA, 0, 0, 0, 0, 1, 7], false),
            (&[0, 0, 8, 6, 0, 0, 0, 0, 0, 7], false),
        ] {
            for piece in 1..=frames.len() {
                let mut reader = begun();
                frames
                    .chunks(piece)
                    .for_each(|bytes| reader.read(bytes, |_| {}));
                let since = reader.open_since(Instant::now);
                assert_eq!(since.is_some(), open, "{frames:?} in pieces of {piece}");
            }
        }
    }

    #[test]
    fn the_preface_ends_with_the_first_frame() {
        let mut reader = ClientFrames::new();
        for byte in [&[0; PREFACE_BYTES], SETTINGS].concat() {
            assert!(reader.open_since(Instant::now).is_some());
            reader.read(&[byte], |_| {});
        }
        assert_eq!(reader.open_since(Instant::now), None);
    }

    #[test]
    fn a_head_after_another_has_its_own_time() {
        let mut reader = begun();
        let half = [0, 0, 1, HEADERS, 4, 0, 0, 0, 1];
        let start = Instant::now();
        let later = start + std::time::Duration::from_secs(1);
        reader.read(&half, |_| {});
        assert_eq!(reader.open_since(|| start), Some(start));
        reader.read(&[&[7], &half[..]].concat(), |_| {});
        assert_eq!(reader.open_since(|| later), Some(later));
    }

    #[test]
    fn frames_without_content_are_counted_in_pieces_of_any_size() {
        let frames = [
            &[0, 0, 8, 6, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8][..],
            &[0, 0, 2, HEADERS, 4, 0, 0, 0, 1, 7, 7],
            &[0, 0, 3, DATA, 1, 0, 0, 0, 1, 1, 3, 3],
            SETTINGS,
            &[0, 0, 4, 3, 0, 0, 0, 0, 3, 0, 0, 0, 1],
            &[0, 0, 1, 200, 0, 0, 0, 0, 3, 9],
        ]
        .concat();
        for piece in 1..=frames.len() {
            let (mut reader, mut count) = (begun(), 0);
            frames.chunks(piece).for_each(|bytes| {
                reader.read(bytes, |event| {
                    count += usize::from(event == FrameEvent::Bare)
                })
            });
            assert_eq!(count, 4, "in pieces of {piece}");
        }
    }

    #[test]
    fn trailers_that_begin_with_a_pseudo_field_are_found_in_pieces_of_any_size() {
        const GET: &[u8] = &[0, 0, 1, HEADERS, 4, 0, 0, 0, 1, 0x82];
        const PLAIN: &[u8] = b"\x00\x00\x05\x01\x05\x00\x00\x00\x01\x00\x01x\x01y";
        const PSEUDO: &[u8] = &[0, 0, 1, HEADERS, 5, 0, 0, 0, 1, 0x82];
        // Three bytes of padding, and priority fields. Both look like fields.
        const PADDED: &[u8] = &[
            0, 0, 10, HEADERS, 0x2d, 0, 0, 0, 1, 3, 0x8f, 0x8f, 0x8f, 0x8f, 0x8f, 0x82, 0x8f, 0x8f,
            0x8f,
        ];
        const PADDING_ALONE: &[u8] = &[0, 0, 4, HEADERS, 0x0d, 0, 0, 0, 1, 3, 0x82, 0x82, 0x82];
        const CONTINUED: &[u8] = &[
            0,
            0,
            1,
            HEADERS,
            1,
            0,
            0,
            0,
            1,
            0x44,
            0,
            0,
            2,
            CONTINUATION,
            4,
            0,
            0,
            0,
            1,
            1,
            b'/',
        ];
        const ANOTHER: &[u8] = &[0, 0, 1, HEADERS, 5, 0, 0, 0, 3, 0x82];
        for (frames, expected) in [
            (&[GET, ANOTHER][..], &[][..]),
            (&[GET, PLAIN], &[]),
            (&[GET, PADDING_ALONE], &[]),
            (&[GET, PSEUDO], &[1]),
            (&[GET, PADDED], &[1]),
            (&[GET, CONTINUED], &[1]),
            (&[GET, ANOTHER, SETTINGS, PSEUDO], &[1]),
        ] {
            let frames = frames.concat();
            for piece in 1..=frames.len() {
                let (mut reader, mut found) = (begun(), Vec::new());
                for bytes in frames.chunks(piece) {
                    reader.read(bytes, |event| match event {
                        FrameEvent::PseudoInTrailers(stream) => found.push(stream),
                        FrameEvent::Bare | FrameEvent::Fragment(_) => {}
                    });
                }
                assert_eq!(found, expected, "{frames:x?} in pieces of {piece}");
            }
        }
    }

    #[test]
    fn a_fragment_in_a_path_is_found_once_in_pieces_of_any_size() {
        const HEAD: &[u8] = b"\x00\x00\x06\x01\x04\x00\x00\x00\x01\x44\x04/a#b";
        const AGAIN: &[u8] = b"\x00\x00\x01\x01\x05\x00\x00\x00\x03\xbe";
        const OTHER: &[u8] = b"\x00\x00\x01\x01\x05\x00\x00\x00\x05\x84";
        const CONTINUED: &[u8] =
            b"\x00\x00\x04\x01\x01\x00\x00\x00\x07\x04\x04/a\x00\x00\x02\x09\x04\x00\x00\x00\x07#b";
        let frames = [HEAD, AGAIN, OTHER, CONTINUED].concat();
        for piece in 1..=frames.len() {
            let (mut reader, mut found) = (begun(), Vec::new());
            for bytes in frames.chunks(piece) {
                reader.read(bytes, |event| {
                    if let FrameEvent::Fragment(stream) = event {
                        found.push(stream);
                    }
                });
            }
            assert_eq!(found, [1, 3, 7], "in pieces of {piece}");
        }
    }
}
