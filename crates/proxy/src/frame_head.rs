//! The head of an HTTP/2 frame (RFC 9113, 4.1): three bytes for the length, one for the type, one for the flags, and four for
//! the stream number.

pub(crate) const HEAD_BYTES: usize = 9;

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const CONTINUATION: u8 = 9;

/// A number in network byte order.
pub(crate) fn number(bytes: &[u8]) -> u32 {
    bytes
        .iter()
        .fold(0, |number, byte| number << 8 | u32::from(*byte))
}
