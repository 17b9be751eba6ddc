//! What a frame of HTTP/2 begins with (RFC 9113, 4.1): three bytes of its length, its kind, its flags, four of its stream.

pub(crate) const HEAD_BYTES: usize = 9;

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const CONTINUATION: u8 = 9;

/// A number as it stands on the wire.
pub(crate) fn number(bytes: &[u8]) -> u32 {
    bytes
        .iter()
        .fold(0, |number, byte| number << 8 | u32::from(*byte))
}
