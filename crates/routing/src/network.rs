//! A network of client addresses.

use std::{fmt, net::IpAddr};

use ipnet::IpNet;

use crate::problem::valid;

/// A network. A client with an IPv4 address on an IPv6 socket (`::ffff:192.0.2.1`) counts as that IPv4 address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network(IpNet);

/// An invalid network.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NetworkProblem {
    /// The text is neither an address nor a network.
    #[error("{0:?} is neither an IP address nor a network")]
    Shape(String),
    /// The prefix has more bits than the address.
    #[error("{text:?} has a prefix longer than {most} bits")]
    Prefix {
        /// The text.
        text: String,
        /// The number of bits in such an address.
        most: u8,
    },
    /// Bits are set beyond the prefix. Either the text is an address and not a network, or the prefix is too short.
    #[error("{text:?} has bits beyond its prefix; the network is {network}")]
    HostBits {
        /// The text.
        text: String,
        /// The network that contains the address.
        network: String,
    },
    /// An IPv4 network in IPv6 form, which would match no client.
    #[error("{0:?} is an IPv4 network in IPv6 form; write it in IPv4 form")]
    Mapped(String),
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Network {
    /// Reads the networks of `source`, and reports invalid ones.
    pub(crate) fn all(
        texts: &[String],
        report: &mut impl FnMut(&'static str, String),
    ) -> Vec<Self> {
        valid(texts.iter().map(|text| Self::parse(text)), "source", report)
    }

    /// Reads `10.0.0.0/8`, `2001:db8::/32`, or a single address.
    ///
    /// # Errors
    /// [`NetworkProblem`].
    pub fn parse(text: &str) -> Result<Self, NetworkProblem> {
        let shape = || NetworkProblem::Shape(text.to_owned());
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| shape())?;
        let most = match address {
            IpAddr::V4(_) => 32,
            IpAddr::V6(_) => 128,
        };
        let prefix = match prefix {
            None => most,
            Some(digits) if !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) => {
                digits.parse().unwrap_or(u8::MAX)
            }
            Some(_) => return Err(shape()),
        };
        let network = IpNet::new(address, prefix).map_err(|_| NetworkProblem::Prefix {
            text: text.to_owned(),
            most,
        })?;
        if network != network.trunc() {
            return Err(NetworkProblem::HostBits {
                text: text.to_owned(),
                network: network.trunc().to_string(),
            });
        }
        match address {
            IpAddr::V6(address) if prefix >= 96 && address.to_ipv4_mapped().is_some() => {
                Err(NetworkProblem::Mapped(text.to_owned()))
            }
            _ => Ok(Self(network)),
        }
    }

    /// Whether the network contains this client address.
    pub fn contains(&self, client: IpAddr) -> bool {
        self.0.contains(&client.to_canonical())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_holds_the_addresses_of_its_prefix() {
        for (network, client, holds) in [
            ("10.0.0.0/8", "10.255.0.1", true),
            ("10.0.0.0/8", "11.0.0.1", false),
            ("10.0.0.0/8", "::ffff:10.1.2.3", true),
            ("192.0.2.7", "192.0.2.7", true),
            ("192.0.2.7", "192.0.2.6", false),
            ("192.0.2.6/31", "192.0.2.7", true),
            ("0.0.0.0/0", "203.0.113.9", true),
            ("0.0.0.0/0", "::1", false),
            ("::/0", "2001:db8::1", true),
            ("::/0", "203.0.113.9", false),
            ("::/0", "::ffff:203.0.113.9", false),
            ("2001:db8::/32", "2001:db8:ffff::1", true),
            ("2001:db8::/32", "2001:db9::1", false),
            ("::1", "::1", true),
            ("::1", "127.0.0.1", false),
        ] {
            let parsed = Network::parse(network).expect(network);
            let client = client.parse().expect("an address");
            assert_eq!(parsed.contains(client), holds, "{network} {client}");
        }
    }

    #[test]
    fn an_invalid_network_is_reported_with_a_hint() {
        for (text, hint) in [
            ("10.0.0.1/8", "10.0.0.0/8"),
            ("2001:db8::1/32", "2001:db8::/32"),
            ("10.0.0.0/33", "32 bits"),
            ("::/129", "128 bits"),
            ("10.0.0.0/256", "32 bits"),
            ("10.0.0.0/", "neither"),
            ("10.0.0.0/+8", "neither"),
            ("10.0.0/8", "neither"),
            ("example.com", "neither"),
            ("", "neither"),
            ("::ffff:10.0.0.0/104", "IPv6 form"),
        ] {
            let problem = Network::parse(text).expect_err(text).to_string();
            assert!(problem.contains(hint), "{text}: {problem}");
        }
    }
}
