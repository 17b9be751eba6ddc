//! Headers of both versions: complete, incomplete and malformed.

use super::*;

fn client(text: &str) -> Option<SocketAddr> {
    Some(text.parse().expect("an address"))
}

/// A header of version 2 with this command, family and rest.
fn v2(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
    let length = u16::try_from(rest.len()).expect("a length").to_be_bytes();
    [&V2_BEGIN[..], &[command, family], &length, rest].concat()
}

const INET_REST: &[u8] = &[192, 0, 2, 1, 198, 51, 100, 1, 0x9c, 0x40, 0x1f, 0xce];

/// Asserts that every beginning of a header is incomplete, and that the whole of it, also with more bytes behind, is
/// parsed.
fn assert_read(bytes: &[u8], expected: Option<SocketAddr>) {
    for cut in 0..bytes.len() {
        assert_eq!(parse(&bytes[..cut]), Ok(None), "{cut} of {bytes:?}");
    }
    let header = Header {
        length: bytes.len(),
        client: expected,
    };
    assert_eq!(parse(bytes), Ok(Some(header)), "{bytes:?}");
    let more = [bytes, b"\x16\x03\x01\r\nPROXY "].concat();
    assert_eq!(parse(&more), Ok(Some(header)));
}

#[test]
fn version_1_names_the_client() {
    for (line, expected) in [
        (
            "PROXY TCP4 192.0.2.1 198.51.100.1 40000 8142\r\n",
            client("192.0.2.1:40000"),
        ),
        (
            "PROXY TCP4 255.255.255.255 255.255.255.255 65535 0\r\n",
            client("255.255.255.255:65535"),
        ),
        (
            "PROXY TCP6 2001:db8::1 ::1 1 2\r\n",
            client("[2001:db8::1]:1"),
        ),
        (
            "PROXY TCP6 ::ffff:192.0.2.1 ::1 1 2\r\n",
            client("[::ffff:192.0.2.1]:1"),
        ),
        ("PROXY UNKNOWN\r\n", None),
        ("PROXY UNKNOWN ffff::1 ffff::2 1 2\r\n", None),
        ("PROXY UNKNOWN anything at all\r\n", None),
    ] {
        assert_read(line.as_bytes(), expected);
    }
}

#[test]
fn a_malformed_line_is_refused() {
    for line in [
        "PROXY TCP4 192.0.2.1 198.51.100.1 40000 8142\n",
        "PROXY TCP4 192.0.2.1 198.51.100.1 40000\r\n",
        "PROXY TCP4 192.0.2.1 198.51.100.1 40000 8142 1\r\n",
        "PROXY TCP4  192.0.2.1 198.51.100.1 40000 8142\r\n",
        "PROXY TCP4 192.0.2.1 198.51.100.1 40000 8142 \r\n",
        "PROXY TCP4 192.0.2.01 198.51.100.1 40000 8142\r\n",
        "PROXY TCP4 192.0.2.1 198.51.100.1 +40000 8142\r\n",
        "PROXY TCP4 192.0.2.1 198.51.100.1 040000 8142\r\n",
        "PROXY TCP4 192.0.2.1 198.51.100.1 70000 8142\r\n",
        "PROXY TCP4 2001:db8::1 ::1 1 2\r\n",
        "PROXY TCP6 192.0.2.1 198.51.100.1 1 2\r\n",
        "PROXY tcp4 192.0.2.1 198.51.100.1 1 2\r\n",
        "PROXY TCP4\t192.0.2.1 198.51.100.1 1 2\r\n",
        "PROXY UDP4 192.0.2.1 198.51.100.1 1 2\r\n",
        "PROXY \r\n",
        "PROXY UNKNOWNX\r\n",
    ] {
        assert_eq!(
            parse(line.as_bytes()),
            Err(HeaderError::BadLine),
            "{line:?}"
        );
    }
    assert_eq!(parse(b"PROXY \xff\r\n"), Err(HeaderError::BadLine));
}

#[test]
fn a_line_is_at_most_107_bytes() {
    let line = |filler: usize| format!("PROXY UNKNOWN {}\r\n", "x".repeat(filler));
    let fits = line(107 - 16);
    assert_eq!(fits.len(), 107);
    assert_read(fits.as_bytes(), None);
    assert_eq!(parse(line(107 - 15).as_bytes()), Err(HeaderError::LongLine));
    assert_eq!(
        parse(&[&b"PROXY "[..], &[b'x'; 101]].concat()),
        Err(HeaderError::LongLine)
    );
}

#[test]
fn version_2_names_the_client() {
    let inet6 = [
        &Ipv6Addr::from_bits(1).octets()[..],
        &Ipv6Addr::from_bits(2).octets(),
        &[0, 80, 1, 0],
    ]
    .concat();
    let with_tlvs = [INET_REST, b"\x02\0\x01a\xff\xff"].concat();
    for (command, family, rest, expected) in [
        (0x21, 0x11, INET_REST, client("192.0.2.1:40000")),
        (0x21, 0x11, &with_tlvs, client("192.0.2.1:40000")),
        (0x21, 0x21, &inet6, client("[::1]:80")),
        (0x21, 0x31, &[0; 216], None),
        (0x21, 0x00, &[], None),
        (0x21, 0x00, INET_REST, None),
        (0x20, 0x00, &[], None),
        // LOCAL skips any addresses.
        (0x20, 0x11, INET_REST, None),
        (0x20, 0xff, b"x", None),
    ] {
        assert_read(&v2(command, family, rest), expected);
    }
}

#[test]
fn unknown_kinds_of_version_2_are_refused() {
    for (bytes, error) in [
        (v2(0x11, 0x11, INET_REST), HeaderError::BadCommand(0x11)),
        (v2(0x22, 0x11, INET_REST), HeaderError::BadCommand(0x22)),
        (v2(0x21, 0x12, INET_REST), HeaderError::BadFamily(0x12)),
        (v2(0x21, 0x10, INET_REST), HeaderError::BadFamily(0x10)),
        (v2(0x21, 0x41, INET_REST), HeaderError::BadFamily(0x41)),
        (v2(0x21, 0x11, &INET_REST[1..]), HeaderError::Short),
        (v2(0x21, 0x21, INET_REST), HeaderError::Short),
        (v2(0x21, 0x31, &[0; 215]), HeaderError::Short),
    ] {
        assert_eq!(parse(&bytes), Err(error), "{bytes:?}");
        // Refused as soon as the fixed part has arrived.
        assert_eq!(parse(&bytes[..16]), Err(error));
    }
}

#[test]
fn a_header_of_version_2_that_is_too_long_is_refused_before_it_has_arrived() {
    let rest = |length: usize| [INET_REST, &vec![0; length - INET_REST.len()]].concat();
    assert_read(
        &v2(0x21, 0x11, &rest(HEADER_BYTES_MAX - 16)),
        client("192.0.2.1:40000"),
    );
    let long = v2(0x21, 0x11, &rest(HEADER_BYTES_MAX - 15));
    assert_eq!(
        parse(&long[..16]),
        Err(HeaderError::Long(HEADER_BYTES_MAX + 1))
    );
    let longest = v2(0x20, 0, &vec![0; 65_535]);
    assert_eq!(parse(&longest[..16]), Err(HeaderError::Long(65_551)));
}

#[test]
fn other_bytes_are_not_a_header() {
    for bytes in [
        &b"\x16\x03\x01"[..],
        b"GET / HTTP/1.1\r\n",
        b"P ",
        b"PROXX",
        b"proxy TCP4",
        b"\r\n\r\n\0\r\nQUIT ",
        b"\r\n\r\n\r",
        b"\0",
        b" PROXY",
    ] {
        assert_eq!(parse(bytes), Err(HeaderError::NotAHeader), "{bytes:?}");
    }
    assert_eq!(parse(b""), Ok(None));
}
