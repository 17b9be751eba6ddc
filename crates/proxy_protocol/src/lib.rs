//! Reads and writes headers of the PROXY protocol, versions 1 and 2.
//!
//! A load balancer sends the header before the first byte of a connection, to name the client's address. The header is
//! not authenticated. The caller must decide which peers may send one.

mod read;
mod write;

pub use read::{Header, HeaderError, parse};
pub use write::{ConnectionAddresses, Tlv, Version, local, write};

/// Maximum bytes of a header. A header of version 1 has at most 107, and one of version 2 may carry a certificate.
pub const HEADER_BYTES_MAX: usize = 8 << 10;

/// Maximum bytes of a header of version 1, including its end of line.
const V1_BYTES_MAX: usize = 107;

/// The first bytes of a header of version 1.
const V1_BEGIN: &[u8] = b"PROXY ";

/// The first bytes of a header of version 2.
const V2_BEGIN: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";

/// Bytes of a header of version 2 before the addresses.
const V2_FIXED_BYTES: usize = 16;

/// The command `LOCAL` in the low half of byte 13: the connection belongs to the load balancer itself.
const LOCAL: u8 = 0;
/// The command `PROXY`: the connection belongs to a client.
const PROXY: u8 = 1;

/// Address families in the high half of byte 14.
const UNSPECIFIED: u8 = 0;
const INET: u8 = 1;
const INET6: u8 = 2;
const UNIX: u8 = 3;

/// The transport `STREAM` in the low half of byte 14.
const STREAM: u8 = 1;

/// Bytes of both addresses and ports in each family.
const INET_BYTES: usize = 12;
const INET6_BYTES: usize = 36;
const UNIX_BYTES: usize = 216;
