//! Compares the PROXY protocol parser with a regular expression for version 1 and a slice pattern for version 2.
//!
//! Input: the first bytes of a connection.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::LazyLock;

use proxy_protocol::{ConnectionAddresses, HEADER_BYTES_MAX, Header, Version, parse, write};
use regex::bytes::Regex;

pub(crate) fn check(input: &[u8]) {
    let read = parse(input);
    assert_eq!(read.ok(), independent(input), "{input:?}");
    match read {
        Ok(Some(header)) => check_header(input, header),
        // A malformed header stays malformed when more bytes follow.
        Err(_) => assert!(parse(&[input, b"\r\n"].concat()).is_err(), "{input:?}"),
        Ok(None) => assert!(input.len() < HEADER_BYTES_MAX),
    }
}

/// Asserts that the header has the length that the parser reports, that a truncated header is incomplete, and that the
/// client's address survives writing and parsing.
fn check_header(input: &[u8], header: Header) {
    let (own, _) = input.split_at(header.length);
    assert_eq!(parse(own), Ok(Some(header)));
    for cut in [0, own.len() / 2, own.len() - 1] {
        assert_eq!(parse(&own[..cut]), Ok(None), "{cut} of {own:?}");
    }
    let Some(client) = header.client else { return };
    let proxy = SocketAddr::from(([127, 0, 0, 1], 8140));
    for version in [Version::V1, Version::V2] {
        let written = write(version, ConnectionAddresses { client, proxy }, &[]);
        let again = parse(&written)
            .ok()
            .flatten()
            .and_then(|header| header.client);
        let canonical = |address: SocketAddr| (address.ip().to_canonical(), address.port());
        assert_eq!(again.map(canonical), Some(canonical(client)));
    }
}

/// A second implementation of the specification. `None` means that the input is not a valid header; `Some(None)` means
/// that more bytes are needed.
fn independent(input: &[u8]) -> Option<Option<Header>> {
    static V1: LazyLock<Regex> = LazyLock::new(|| {
        let port = "(0|[1-9][0-9]{0,4})";
        let line = format!(
            r"^(?s-u)PROXY (?:UNKNOWN(?: [^\n]*)?|TCP([46]) ([0-9a-fA-F:.]+) ([0-9a-fA-F:.]+) {port} {port})\r\n"
        );
        Regex::new(&line).expect("a pattern")
    });
    const V2: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";
    let begins = |with: &[u8]| input.iter().zip(with).all(|(one, other)| one == other);
    if !begins(V2) {
        if !begins(b"PROXY ") {
            return None;
        }
        let line = &input[..input.len().min(107)];
        if !line.contains(&b'\n') {
            return (line.len() < 107).then_some(None);
        }
        let found = V1.captures(line)?;
        let text = |index: usize| {
            let bytes = found.get(index).map(|part| part.as_bytes());
            bytes.and_then(|bytes| std::str::from_utf8(bytes).ok())
        };
        // The rest of an UNKNOWN line must also be UTF-8.
        std::str::from_utf8(found[0].as_ref()).ok()?;
        let client = match text(1) {
            None => None,
            Some(family) => {
                let ip = |index| {
                    let text = text(index)?;
                    match family {
                        "4" => text.parse::<Ipv4Addr>().ok().map(IpAddr::from),
                        _ => text.parse::<Ipv6Addr>().ok().map(IpAddr::from),
                    }
                };
                let port = |index| text(index)?.parse::<u16>().ok();
                let (client, _, port, _) = (ip(2)?, ip(3)?, port(4)?, port(5)?);
                Some(SocketAddr::new(client, port))
            }
        };
        let length = found[0].len();
        return Some(Some(Header { length, client }));
    }
    let [command, family, high, low, rest @ ..] = input.get(12..).unwrap_or_default() else {
        return matches!(input.get(12), None | Some(0x20 | 0x21)).then_some(None);
    };
    let length = usize::from(*high) * 256 + usize::from(*low);
    let least = match (command, family) {
        (0x20, _) | (0x21, 0x00..=0x0f) => 0,
        (0x21, 0x11) => 12,
        (0x21, 0x21) => 36,
        (0x21, 0x31) => 216,
        _ => return None,
    };
    if length < least || length + 16 > 8192 {
        return None;
    }
    let Some(rest) = rest.get(..length) else {
        return Some(None);
    };
    let port = |at: usize| u16::from(rest[at]) * 256 + u16::from(rest[at + 1]);
    let client = match least {
        12 => Some(SocketAddr::from((
            [rest[0], rest[1], rest[2], rest[3]],
            port(8),
        ))),
        36 => {
            let bits = rest[..16]
                .iter()
                .fold(0_u128, |bits, byte| bits << 8 | u128::from(*byte));
            Some(SocketAddr::from((Ipv6Addr::from_bits(bits), port(32))))
        }
        _ => None,
    };
    Some(Some(Header {
        length: 16 + length,
        client,
    }))
}

pub(crate) const WORDS: &[&[u8]] = &[
    b"PROXY ",
    b"PROXY TCP4 192.0.2.1 198.51.100.1 40000 8140\r\n",
    b"PROXY TCP6 2001:db8::1 ::1 1 2\r\n",
    b"PROXY UNKNOWN\r\n",
    b"UNKNOWN ",
    b"TCP4 ",
    b"TCP6 ",
    b"\r\n",
    b"\n",
    b" ",
    b"0",
    b"65535",
    b"::ffff:192.0.2.1",
    b"\r\n\r\n\0\r\nQUIT\n",
    b"\r\n\r\n\0\r\nQUIT\n\x21\x11\x00\x0c\x7f\0\0\x01\x7f\0\0\x02\x9c\x40\x1f\xcc",
    b"\r\n\r\n\0\r\nQUIT\n\x20\x00\x00\x00",
    b"\x21\x11",
    b"\x21\x21\x00\x24",
    b"\x21\x31\x00\xd8",
    b"\x00\x0c",
    b"\xff\xff",
    b"\x20\x00\x05\x01",
];
