//! Settings of `[dns]`.

use std::{
    fmt,
    net::{AddrParseError, SocketAddr},
    str::FromStr,
    time::Duration,
};

/// Port of DNS servers.
const PORT: u16 = 53;

/// A DNS server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DnsServer(pub SocketAddr);

impl FromStr for DnsServer {
    type Err = AddrParseError;

    /// Parses `address:port`, or an address alone.
    fn from_str(text: &str) -> Result<Self, AddrParseError> {
        let alone = |error| match text.parse() {
            Ok(address) => Ok(SocketAddr::new(address, PORT)),
            Err(_) => Err(error),
        };
        text.parse().or_else(alone).map(Self)
    }
}

impl fmt::Display for DnsServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// How names of members are resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DnsSettings {
    /// DNS servers; empty: those of `/etc/resolv.conf`.
    pub servers: Vec<DnsServer>,
    /// Maximum time for one question, over all servers and retries. Default 2 s.
    pub timeout: Duration,
    /// Minimum time before a name is resolved again, also after a failure. Default 5 s.
    pub ttl_min: Duration,
    /// Maximum time before a name is resolved again. Default 1 h.
    pub ttl_max: Duration,
}

impl Default for DnsSettings {
    fn default() -> Self {
        Self {
            servers: Vec::new(),
            timeout: Duration::from_secs(2),
            ttl_min: Duration::from_secs(5),
            ttl_max: Duration::from_secs(3600),
        }
    }
}

impl DnsSettings {
    /// When to resolve again after an answer that is valid for `ttl`.
    #[must_use]
    pub fn refresh_after(&self, ttl: Duration) -> Duration {
        // The minimum takes precedence if an operator sets it above the maximum.
        ttl.min(self.ttl_max).max(self.ttl_min)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_port_of_a_server_is_optional() {
        for (text, shown) in [
            ("192.0.2.53", "192.0.2.53:53"),
            ("127.0.0.1:5353", "127.0.0.1:5353"),
            ("::1", "[::1]:53"),
            ("[::1]:5353", "[::1]:5353"),
        ] {
            let server = text.parse::<DnsServer>().map(|server| server.to_string());
            assert_eq!(server.as_deref(), Ok(shown));
        }
        assert!("dns.example.com".parse::<DnsServer>().is_err());
    }

    #[test]
    fn a_ttl_is_respected_within_bounds() {
        let settings = DnsSettings::default();
        for (ttl, expected) in [(0, 5), (4, 5), (60, 60), (3600, 3600), (86_400, 3600)] {
            let after = settings.refresh_after(Duration::from_secs(ttl));
            assert_eq!(after, Duration::from_secs(expected), "{ttl}");
        }
    }
}
