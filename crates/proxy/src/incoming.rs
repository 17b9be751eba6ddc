//! The frames that a client sends, before h2 makes requests of them: whether a head is half-way, and which frames carry
//! nothing.

use std::time::Instant;

use crate::frame_head::{CONTINUATION, DATA, HEAD_BYTES, HEADERS, number};

/// What a connection begins with: `PRI * HTTP/2.0` and so on (RFC 9113, 3.4).
const PREFACE_BYTES: usize = 24;
const END_HEADERS: u8 = 4;

/// Where we are in what is read.
#[derive(Debug)]
pub(crate) struct Incoming {
    head: [u8; HEAD_BYTES],
    filled: usize,
    /// Bytes that are not looked at: the preface, what frames carry.
    passing: usize,
    /// The client is within a head, or its first words, preface and one frame, are not all here.
    open: bool,
    /// It is not when what is passed has passed.
    ends: bool,
    since: Option<Instant>,
}

impl Incoming {
    pub(crate) fn new() -> Self {
        Self {
            head: [0; HEAD_BYTES],
            filled: 0,
            passing: PREFACE_BYTES,
            open: true,
            ends: false,
            since: None,
        }
    }

    /// Looks at what was read next. `bare` is called for each frame that carries neither a head nor data; h2 itself bounds
    /// CONTINUATION and DATA frames without any.
    pub(crate) fn read(&mut self, mut bytes: &[u8], mut bare: impl FnMut()) {
        loop {
            let passed = self.passing.min(bytes.len());
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
            if matches!(kind, HEADERS | CONTINUATION) {
                self.open = true;
                self.ends = flags & END_HEADERS != 0;
            } else {
                self.ends = true;
                if kind != DATA {
                    bare();
                }
            }
        }
    }

    /// Since when a head, or the first words, have been half-way, as it was seen at the end of what was read.
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

    fn begun() -> Incoming {
        let mut incoming = Incoming::new();
        incoming.read(&[0; PREFACE_BYTES], || {});
        incoming.read(SETTINGS, || {});
        incoming
    }

    #[test]
    fn a_head_is_half_way_until_its_last_byte() {
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
                let mut incoming = begun();
                frames
                    .chunks(piece)
                    .for_each(|bytes| incoming.read(bytes, || {}));
                let since = incoming.open_since(Instant::now);
                assert_eq!(since.is_some(), open, "{frames:?} in pieces of {piece}");
            }
        }
    }

    #[test]
    fn the_first_words_end_with_the_first_frame() {
        let mut incoming = Incoming::new();
        for byte in [&[0; PREFACE_BYTES], SETTINGS].concat() {
            assert!(incoming.open_since(Instant::now).is_some());
            incoming.read(&[byte], || {});
        }
        assert_eq!(incoming.open_since(Instant::now), None);
    }

    #[test]
    fn a_head_after_another_has_its_own_time() {
        let mut incoming = begun();
        let half = [0, 0, 1, HEADERS, 4, 0, 0, 0, 1];
        let start = Instant::now();
        let later = start + std::time::Duration::from_secs(1);
        incoming.read(&half, || {});
        assert_eq!(incoming.open_since(|| start), Some(start));
        incoming.read(&[&[7], &half[..]].concat(), || {});
        assert_eq!(incoming.open_since(|| later), Some(later));
    }

    #[test]
    fn frames_without_head_or_data_are_told_however_they_are_cut() {
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
            let (mut incoming, mut told) = (begun(), 0);
            frames
                .chunks(piece)
                .for_each(|bytes| incoming.read(bytes, || told += 1));
            assert_eq!(told, 4, "in pieces of {piece}");
        }
    }
}
