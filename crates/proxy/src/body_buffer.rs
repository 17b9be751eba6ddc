//! The part of a request body that was read before a member is used. It takes about as much memory as it has bytes.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};

/// Pieces smaller than this are copied into one buffer. A piece keeps alive the whole buffer that it was read into, and a TLS
/// record or an HTTP/2 frame of up to 16 KiB leaves most of a larger buffer unused. Without the copy, the client would be
/// charged for only a fraction of the memory that its body takes.
const PIECE_BYTES_MIN: usize = 32 << 10;

/// Bytes in the order in which they arrived.
#[derive(Debug, Default)]
pub(crate) struct BodyBuffer {
    large: VecDeque<Bytes>,
    /// Small pieces that arrived after all of `large`.
    small: BytesMut,
}

impl BodyBuffer {
    pub(crate) fn push(&mut self, piece: Bytes) {
        if piece.len() < PIECE_BYTES_MIN {
            self.small.extend_from_slice(&piece);
        } else {
            self.large.extend(take(&mut self.small));
            self.large.push_back(piece);
        }
    }

    pub(crate) fn pop(&mut self) -> Option<Bytes> {
        self.large.pop_front().or_else(|| take(&mut self.small))
    }

    pub(crate) fn len(&self) -> usize {
        self.large.iter().map(Bytes::len).sum::<usize>() + self.small.len()
    }

    pub(crate) fn gathered(&self) -> Vec<u8> {
        let mut all = self.large.iter().fold(Vec::new(), |mut all, piece| {
            all.extend_from_slice(piece);
            all
        });
        all.extend_from_slice(&self.small);
        all
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

fn take(small: &mut BytesMut) -> Option<Bytes> {
    (!small.is_empty()).then(|| small.split().freeze())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_of_any_size_come_out_in_order_and_small_ones_together() {
        let mut peeked = BodyBuffer::default();
        let large = Bytes::from(vec![b'x'; PIECE_BYTES_MIN]);
        for piece in [
            &Bytes::from_static(b"a"),
            &Bytes::from_static(b"b"),
            &large,
            &Bytes::from_static(b"c"),
            &Bytes::from_static(b"d"),
        ] {
            peeked.push(piece.clone());
        }
        assert_eq!(peeked.len(), PIECE_BYTES_MIN + 4);
        let all = [b"ab", &large[..], b"cd"].concat();
        assert_eq!(peeked.gathered(), all);
        let out: Vec<Bytes> = std::iter::from_fn(|| peeked.pop()).collect();
        assert_eq!(
            out,
            [Bytes::from_static(b"ab"), large, Bytes::from_static(b"cd")]
        );
        assert!(peeked.is_empty());
    }
    #[test]
    fn a_small_piece_does_not_keep_the_large_buffer_that_it_was_read_into() {
        let read = Bytes::from(vec![b'x'; 8 << 10]);
        let mut peeked = BodyBuffer::default();
        peeked.push(read.slice(..2 << 10));
        assert!(read.is_unique(), "the piece was copied");
        assert_eq!(peeked.gathered(), read[..2 << 10]);
    }
}
