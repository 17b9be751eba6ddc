//! The address of a member as configurations spell it.

use std::{net::IpAddr, path::PathBuf};

/// Where a member listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemberAddress {
    /// A host and port.
    Tcp {
        /// Host name or IP address, without brackets.
        host: String,
        /// Port.
        port: u16,
    },
    /// A Unix socket.
    Unix(PathBuf),
}

/// A string that is not the address of a member.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("`{0}` is neither `host:port` nor `unix:/path`")]
pub struct MemberAddressError(String);

impl MemberAddress {
    /// Parses `host:port`, `[v6]:port`, `unix:/path`, or `host:port@ip`. The last form names a member that is one of several IP
    /// addresses of a host; that IP address is not part of the result.
    ///
    /// # Errors
    /// [`MemberAddressError`] quotes a string of any other form.
    pub fn parse(address: &str) -> Result<Self, MemberAddressError> {
        let invalid = || MemberAddressError(address.to_owned());
        if let Some(path) = address.strip_prefix("unix:") {
            return if path.starts_with('/') {
                Ok(Self::Unix(path.into()))
            } else {
                Err(invalid())
            };
        }
        let (host, port) = without_ip(address).rsplit_once(':').ok_or_else(invalid)?;
        let host = host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'))
            .unwrap_or(host);
        if host.is_empty() || (host.contains(':') && host.parse::<IpAddr>().is_err()) {
            return Err(invalid());
        }
        match port.parse() {
            Ok(port) if port > 0 => Ok(Self::Tcp {
                host: host.to_owned(),
                port,
            }),
            _ => Err(invalid()),
        }
    }

    /// The host; `localhost` for a Unix socket.
    pub fn host(&self) -> &str {
        match self {
            Self::Tcp { host, .. } => host,
            Self::Unix(_) => "localhost",
        }
    }
}

/// The address as configured, without the IP address at the end of the name of a member that is one of several addresses of a
/// host.
pub fn without_ip(address: &str) -> &str {
    match address.rsplit_once('@') {
        Some((configured, ip)) if ip.parse::<IpAddr>().is_ok() => configured,
        _ => address,
    }
}

/// Host and port as in a URL and a `Host` field, with an IPv6 address in brackets.
pub fn host_and_port(host: &str, port: u16) -> String {
    if host.contains(':') {
        format!("[{host}]:{port}")
    } else {
        format!("{host}:{port}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_parsed_as_operators_write_them() {
        let tcp = |host: &str, port| {
            Ok(MemberAddress::Tcp {
                host: host.to_owned(),
                port,
            })
        };
        let invalid = |address: &str| Err(MemberAddressError(address.to_owned()));
        for (address, expected) in [
            ("c1.example.com:8140", tcp("c1.example.com", 8140)),
            ("127.0.0.1:80", tcp("127.0.0.1", 80)),
            ("[::1]:8140", tcp("::1", 8140)),
            ("c1.example.com:8140@192.0.2.1", tcp("c1.example.com", 8140)),
            (
                "c1.example.com:8140@2001:db8::1",
                tcp("c1.example.com", 8140),
            ),
            (
                "unix:/run/p.sock",
                Ok(MemberAddress::Unix("/run/p.sock".into())),
            ),
            ("c1", invalid("c1")),
            ("c1:0", invalid("c1:0")),
            (":8140", invalid(":8140")),
            ("a:b:8140", invalid("a:b:8140")),
            ("unix:p.sock", invalid("unix:p.sock")),
        ] {
            assert_eq!(MemberAddress::parse(address), expected, "{address}");
        }
    }

    #[test]
    fn the_ip_address_of_a_member_is_not_part_of_the_configured_address() {
        for (address, expected) in [
            ("c1.example.com:8140", "c1.example.com:8140"),
            ("c1.example.com:8140@192.0.2.1", "c1.example.com:8140"),
            ("c1.example.com:8140@2001:db8::1", "c1.example.com:8140"),
            ("unix:/run/a@b", "unix:/run/a@b"),
        ] {
            assert_eq!(without_ip(address), expected);
        }
    }

    #[test]
    fn an_ipv6_address_has_brackets_before_a_port() {
        assert_eq!(host_and_port("::1", 8140), "[::1]:8140");
        assert_eq!(host_and_port("c1.example.com", 80), "c1.example.com:80");
    }
}
