//! Strict parsing of headers, so that no other bytes pass as one.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    str::FromStr,
};

use thiserror::Error;

use crate::{
    HEADER_BYTES_MAX, INET, INET_BYTES, INET6, INET6_BYTES, LOCAL, PROXY, STREAM, UNIX, UNIX_BYTES,
    UNSPECIFIED, V1_BEGIN, V1_BYTES_MAX, V2_BEGIN, V2_FIXED_BYTES,
};

/// A complete header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Bytes of the header. The bytes behind it belong to the connection.
    pub length: usize,
    /// The client's address and port. `None` if the connection belongs to the sender itself (`LOCAL`), or to a client
    /// without an IP address (`UNKNOWN`, a Unix socket). Then the peer's address is the client's.
    pub client: Option<SocketAddr>,
}

/// Why the bytes are not a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum HeaderError {
    /// The bytes do not begin like a header.
    #[error("the connection does not begin with a PROXY protocol header")]
    NotAHeader,
    /// The line of version 1 is too long.
    #[error("the PROXY protocol line is longer than 107 bytes")]
    LongLine,
    /// The line of version 1 is malformed.
    #[error("the PROXY protocol line is malformed")]
    BadLine,
    /// The version or the command is unknown.
    #[error("the PROXY protocol header has an unknown version or command (byte 13 is {0:#04x})")]
    BadCommand(u8),
    /// The address family or the transport is not that of a TCP connection.
    #[error(
        "the PROXY protocol header has an unsupported family or transport (byte 14 is {0:#04x})"
    )]
    BadFamily(u8),
    /// The length is shorter than the addresses.
    #[error("the PROXY protocol header is too short for its addresses")]
    Short,
    /// The header is longer than the proxy accepts.
    #[error("the PROXY protocol header has {0} bytes, more than the maximum of 8192")]
    Long(usize),
}

/// Parses the header at the beginning of the bytes. `None` if the header is incomplete.
///
/// # Errors
/// The bytes cannot become a header, whatever follows.
pub fn parse(bytes: &[u8]) -> Result<Option<Header>, HeaderError> {
    if begins(bytes, V2_BEGIN) {
        return version_2(bytes);
    }
    if begins(bytes, V1_BEGIN) {
        return version_1(bytes);
    }
    Err(HeaderError::NotAHeader)
}

/// Whether the bytes, as far as they go, begin with `with`.
fn begins(bytes: &[u8], with: &[u8]) -> bool {
    let length = bytes.len().min(with.len());
    bytes[..length] == with[..length]
}

fn version_1(bytes: &[u8]) -> Result<Option<Header>, HeaderError> {
    let within = &bytes[..bytes.len().min(V1_BYTES_MAX)];
    let Some(end) = within.iter().position(|byte| *byte == b'\n') else {
        return if within.len() < V1_BYTES_MAX {
            Ok(None)
        } else {
            Err(HeaderError::LongLine)
        };
    };
    let line = within[..end].strip_suffix(b"\r");
    let line = line.and_then(|line| std::str::from_utf8(line).ok());
    let words = line.and_then(|line| line.strip_prefix("PROXY "));
    Ok(Some(Header {
        length: end + 1,
        client: v1_client(words.ok_or(HeaderError::BadLine)?)?,
    }))
}

/// Parses what follows `PROXY `: the protocol, both addresses, both ports.
fn v1_client(words: &str) -> Result<Option<SocketAddr>, HeaderError> {
    let mut words = words.split(' ');
    let mut next = || words.next().ok_or(HeaderError::BadLine);
    let client = match next()? {
        // The rest of the line must be ignored.
        "UNKNOWN" => return Ok(None),
        "TCP4" => v1_addresses::<Ipv4Addr>(&mut next)?,
        "TCP6" => v1_addresses::<Ipv6Addr>(&mut next)?,
        _ => return Err(HeaderError::BadLine),
    };
    match words.next() {
        None => Ok(Some(client)),
        Some(_) => Err(HeaderError::BadLine),
    }
}

fn v1_addresses<'a, A: FromStr + Into<IpAddr>>(
    next: &mut impl FnMut() -> Result<&'a str, HeaderError>,
) -> Result<SocketAddr, HeaderError> {
    let address = |word: &str| word.parse::<A>().map_err(|_| HeaderError::BadLine);
    let client = address(next()?)?;
    address(next()?)?;
    let client_port = port(next()?)?;
    port(next()?)?;
    Ok(SocketAddr::new(client.into(), client_port))
}

/// Decimal digits without a sign and without leading zeros.
fn port(word: &str) -> Result<u16, HeaderError> {
    let digits = word.bytes().all(|byte| byte.is_ascii_digit());
    let leading = word.len() > 1 && word.starts_with('0');
    let port = word.parse().ok().filter(|_| digits && !leading);
    port.ok_or(HeaderError::BadLine)
}

fn version_2(bytes: &[u8]) -> Result<Option<Header>, HeaderError> {
    if let Some(command) = bytes.get(V2_BEGIN.len())
        && ![2 << 4 | LOCAL, 2 << 4 | PROXY].contains(command)
    {
        return Err(HeaderError::BadCommand(*command));
    }
    let Some(fixed) = bytes.get(..V2_FIXED_BYTES) else {
        return Ok(None);
    };
    let is_local = fixed[12] & 0xf == LOCAL;
    let behind = usize::from(u16::from_be_bytes([fixed[14], fixed[15]]));
    let length = V2_FIXED_BYTES + behind;
    let addresses = match (is_local, fixed[13] >> 4, fixed[13] & 0xf) {
        // The addresses of a `LOCAL` connection are skipped in any format.
        (true, _, _) | (false, UNSPECIFIED, _) => 0,
        (false, INET, STREAM) => INET_BYTES,
        (false, INET6, STREAM) => INET6_BYTES,
        (false, UNIX, STREAM) => UNIX_BYTES,
        _ => return Err(HeaderError::BadFamily(fixed[13])),
    };
    if behind < addresses {
        return Err(HeaderError::Short);
    }
    if length > HEADER_BYTES_MAX {
        return Err(HeaderError::Long(length));
    }
    let Some(rest) = bytes.get(V2_FIXED_BYTES..length) else {
        return Ok(None);
    };
    // TLVs follow the addresses. They are skipped, because the proxy cannot verify them.
    let client = match addresses {
        INET_BYTES => Some(client::<4>(rest)),
        INET6_BYTES => Some(client::<16>(rest)),
        _ => None,
    };
    Ok(Some(Header { length, client }))
}

/// The first of two addresses with `N` bytes, and the first of two ports behind both.
fn client<const N: usize>(addresses: &[u8]) -> SocketAddr
where
    [u8; N]: Into<IpAddr>,
{
    let mut address = [0; N];
    address.copy_from_slice(&addresses[..N]);
    let port = u16::from_be_bytes([addresses[2 * N], addresses[2 * N + 1]]);
    SocketAddr::new(address.into(), port)
}

#[cfg(test)]
mod tests;
