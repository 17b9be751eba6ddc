//! Writes headers for members.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use crate::{HEADER_BYTES_MAX, INET, INET6, LOCAL, PROXY, STREAM, V2_BEGIN, V2_FIXED_BYTES};

/// The version of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// One line of ASCII.
    V1,
    /// Binary, with TLVs.
    V2,
}

/// The two addresses of a client's connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionAddresses {
    /// The client's address.
    pub client: SocketAddr,
    /// The proxy's address, to which the client connected.
    pub proxy: SocketAddr,
}

/// Further data in a header of version 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tlv<'a> {
    /// `PP2_TYPE_AUTHORITY`: the server name that the client requested (SNI).
    Authority(&'a str),
    /// `PP2_TYPE_UNIQUE_ID`: the `id` of the access record.
    UniqueId(&'a [u8]),
}

impl Tlv<'_> {
    fn parts(&self) -> (u8, &[u8]) {
        match self {
            Self::Authority(name) => (0x02, name.as_bytes()),
            Self::UniqueId(id) => (0x05, id),
        }
    }
}

/// A header for a client's connection. Version 1 has no TLVs. A TLV that would exceed [`HEADER_BYTES_MAX`] is left out.
pub fn write(version: Version, addresses: ConnectionAddresses, tlvs: &[Tlv<'_>]) -> Vec<u8> {
    let (client, proxy) = same_family(addresses);
    match version {
        Version::V1 => {
            let family = if client.is_ipv4() { "TCP4" } else { "TCP6" };
            let (from, to) = (client.ip(), proxy.ip());
            let line = format!(
                "PROXY {family} {from} {to} {} {}\r\n",
                client.port(),
                proxy.port()
            );
            line.into_bytes()
        }
        Version::V2 => {
            let mut rest = Vec::new();
            for address in [client, proxy] {
                match address.ip() {
                    IpAddr::V4(ip) => rest.extend_from_slice(&ip.octets()),
                    IpAddr::V6(ip) => rest.extend_from_slice(&ip.octets()),
                }
            }
            rest.extend_from_slice(&client.port().to_be_bytes());
            rest.extend_from_slice(&proxy.port().to_be_bytes());
            for (kind, value) in tlvs.iter().map(Tlv::parts) {
                push_tlv(&mut rest, kind, value);
            }
            let family = if client.is_ipv4() { INET } else { INET6 };
            v2(PROXY, family << 4 | STREAM, &rest)
        }
    }
}

/// A header for a connection of the proxy itself, such as a probe.
pub fn local(version: Version) -> Vec<u8> {
    match version {
        Version::V1 => b"PROXY UNKNOWN\r\n".to_vec(),
        Version::V2 => v2(LOCAL, 0, &[]),
    }
}

fn v2(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
    let mut header = Vec::with_capacity(V2_FIXED_BYTES + rest.len());
    header.extend_from_slice(V2_BEGIN);
    header.extend_from_slice(&[2 << 4 | command, family]);
    let length = u16::try_from(rest.len()).expect("HEADER_BYTES_MAX bounds it");
    header.extend_from_slice(&length.to_be_bytes());
    header.extend_from_slice(rest);
    header
}

fn push_tlv(rest: &mut Vec<u8>, kind: u8, value: &[u8]) {
    const HEAD_BYTES: usize = 3;
    if V2_FIXED_BYTES + rest.len() + HEAD_BYTES + value.len() > HEADER_BYTES_MAX {
        return;
    }
    let length = u16::try_from(value.len()).expect("HEADER_BYTES_MAX bounds it");
    rest.push(kind);
    rest.extend_from_slice(&length.to_be_bytes());
    rest.extend_from_slice(value);
}

/// Both addresses as IPv4, or both as IPv6, because a header has one family.
fn same_family(addresses: ConnectionAddresses) -> (SocketAddr, SocketAddr) {
    let canonical =
        |address: SocketAddr| SocketAddr::new(address.ip().to_canonical(), address.port());
    let (client, proxy) = (canonical(addresses.client), canonical(addresses.proxy));
    if client.is_ipv4() == proxy.is_ipv4() {
        return (client, proxy);
    }
    let mapped = |address: SocketAddr| {
        let ip: Ipv6Addr = match address.ip() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        SocketAddr::new(ip.into(), address.port())
    };
    (mapped(client), mapped(proxy))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse;

    fn address(text: &str) -> SocketAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn a_written_header_is_parsed_to_the_same_client() {
        for (client, proxy, read) in [
            ("192.0.2.1:40000", "198.51.100.1:8142", "192.0.2.1:40000"),
            ("[2001:db8::1]:1", "[2001:db8::2]:65535", "[2001:db8::1]:1"),
            (
                "[::ffff:192.0.2.1]:7",
                "[::ffff:192.0.2.2]:8",
                "192.0.2.1:7",
            ),
            ("[2001:db8::1]:1", "192.0.2.2:2", "[2001:db8::1]:1"),
            ("192.0.2.1:1", "[2001:db8::2]:2", "[::ffff:192.0.2.1]:1"),
        ] {
            let addresses = ConnectionAddresses {
                client: address(client),
                proxy: address(proxy),
            };
            let tlvs = [Tlv::Authority("pcp.example.com"), Tlv::UniqueId(b"0123")];
            for version in [Version::V1, Version::V2] {
                let mut bytes = write(version, addresses, &tlvs);
                let length = bytes.len();
                bytes.extend_from_slice(b"\x16\x03\x01");
                let header = parse(&bytes).expect("a header").expect("a whole one");
                assert_eq!(header.client, Some(address(read)), "{version:?} {client}");
                assert_eq!(header.length, length);
            }
        }
    }

    #[test]
    fn the_header_of_a_probe_names_no_client() {
        for version in [Version::V1, Version::V2] {
            let bytes = local(version);
            let header = parse(&bytes).expect("a header").expect("a whole one");
            assert_eq!((header.client, header.length), (None, bytes.len()));
        }
    }

    #[test]
    fn version_2_carries_the_server_name_and_the_id() {
        let addresses = ConnectionAddresses {
            client: address("192.0.2.1:1"),
            proxy: address("192.0.2.2:2"),
        };
        let bytes = write(
            Version::V2,
            addresses,
            &[Tlv::Authority("a.b"), Tlv::UniqueId(b"77")],
        );
        assert_eq!(bytes[16 + 12..], *b"\x02\0\x03a.b\x05\0\x0277");
        let long = "x".repeat(HEADER_BYTES_MAX);
        let without = write(Version::V2, addresses, &[Tlv::Authority(&long)]);
        assert_eq!(without.len(), 16 + 12, "a TLV without room is left out");
    }
}
