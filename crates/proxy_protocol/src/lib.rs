//! The header of the PROXY protocol, versions 1 and 2: read from bytes, and written to bytes.
//!
//! A load balancer sends it before the first byte of a connection, to name the client's address. It proves nothing: who
//! may send one is for the caller to decide.

mod read;
mod write;

pub use read::{Header, HeaderError, parse};
pub use write::{ConnectionAddresses, Tlv, Version, local, write};

/// Maximum bytes of a header. A header of version 1 has at most 107; one of version 2 may carry a certificate.
pub const HEADER_BYTES_MAX: usize = 8 << 10;

/// Maximum bytes of a header of version 1, its end of line included.
const V1_BYTES_MAX: usize = 107;

/// How a header of version 1 begins.
const V1_BEGIN: &[u8] = b"PROXY ";

/// How a header of version 2 begins.
const V2_BEGIN: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";

/// Bytes of version 2 before the addresses.
const V2_FIXED_BYTES: usize = 16;

/// Command `LOCAL` in the low half of byte 13: the load balancer speaks for itself.
const LOCAL: u8 = 0;
/// Command `PROXY`: it speaks for a client.
const PROXY: u8 = 1;

/// Address families in the high half of byte 14.
const UNSPECIFIED: u8 = 0;
const INET: u8 = 1;
const INET6: u8 = 2;
const UNIX: u8 = 3;

/// Transport `STREAM` in the low half of byte 14.
const STREAM: u8 = 1;

/// Bytes of the addresses and ports of each family.
const INET_BYTES: usize = 12;
const INET6_BYTES: usize = 36;
const UNIX_BYTES: usize = 216;
