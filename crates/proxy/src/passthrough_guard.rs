//! Protects members that trust identity headers from connections that are passed through.
//!
//! A passed-through connection carries the client's own TLS, so its member reads any headers that the client sends.

use std::{borrow::Cow, net::IpAddr};

use upstream::{Connector, MemberAddress};

use crate::pool_runtime::PoolRuntime;

/// A member of a pool with identity headers that `target` could reach, if there is one. Such a member is on the same host. It
/// is out of reach only if the ports differ and the pool of `target` declares that its own port ignores such headers
/// (`trusted_headers_off`).
///
/// `addresses` are the known addresses of the host of `target`. All loopback addresses count as one host.
pub fn guarded_by<'a>(
    mut pools: impl Iterator<Item = &'a PoolRuntime>,
    target: &MemberAddress,
    addresses: &[IpAddr],
    trusted_headers_off: bool,
) -> Option<(&'a PoolRuntime, &'a Connector)> {
    pools.find_map(|pool| {
        if pool.rules.passthrough.is_used {
            return None;
        }
        let mut members = pool.connectors();
        let member = members.find(|member| {
            let known = (&member.target, member.addresses());
            is_guarded(known, (target, addresses), trusted_headers_off)
        })?;
        Some((pool, &**member))
    })
}

/// Whether a connection that is passed through to `target` could reach `member`, which trusts identity headers. Both come with
/// the known addresses of their host.
pub fn is_guarded(
    (member, member_addresses): (&MemberAddress, &[IpAddr]),
    (target, addresses): (&MemberAddress, &[IpAddr]),
    trusted_headers_off: bool,
) -> bool {
    match (member, target) {
        (MemberAddress::Unix(member), MemberAddress::Unix(target)) => member == target,
        (
            MemberAddress::Tcp {
                host: member,
                port: member_port,
            },
            MemberAddress::Tcp { host, port },
        ) => {
            let same_host = without_dot(member).eq_ignore_ascii_case(without_dot(host))
                || hosts(member, member_addresses)
                    .iter()
                    .any(|one| hosts(host, addresses).contains(one));
            same_host && !(trusted_headers_off && member_port != port)
        }
        _ => false,
    }
}

/// The name of a host without a trailing dot, which does not change the name.
fn without_dot(host: &str) -> &str {
    host.strip_suffix('.').unwrap_or(host)
}

/// The addresses of a host. All loopback addresses become one, and so does the unspecified address, which also reaches
/// loopback.
fn hosts<'a>(host: &str, addresses: &'a [IpAddr]) -> Cow<'a, [IpAddr]> {
    const LOOPBACK: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
    let literal = if without_dot(host).eq_ignore_ascii_case("localhost") {
        Some(LOOPBACK)
    } else {
        host.parse().ok()
    };
    let all = literal.into_iter().chain(addresses.iter().copied());
    all.map(|ip: IpAddr| match ip.to_canonical() {
        ip if ip.is_loopback() || ip.is_unspecified() => LOOPBACK,
        ip => ip,
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn same(member: (&str, &str), target: (&str, &str), off: bool) -> bool {
        let read = |(address, resolved): (&str, &str)| {
            let addresses: Vec<IpAddr> = resolved
                .split_whitespace()
                .map(|ip| ip.parse().expect("an address"))
                .collect();
            (MemberAddress::parse(address).expect("a target"), addresses)
        };
        let (member, target) = (read(member), read(target));
        is_guarded((&member.0, &member.1), (&target.0, &target.1), off)
    }

    #[test]
    fn a_host_is_recognized_by_name_by_address_and_by_the_addresses_of_its_name() {
        let compiler = ("c1.example.com:8140", "192.0.2.1 2001:db8::1");
        for (target, is_same_host) in [
            (("c1.example.com:8142", ""), true),
            (("C1.Example.COM:8142", ""), true),
            (("c1.example.com.:8142", ""), true),
            (("192.0.2.1:8142", ""), true),
            (("[::ffff:192.0.2.1]:8142", ""), true),
            (("broker.example.com:8142", "192.0.2.9 2001:db8::1"), true),
            (("broker.example.com:8142", "192.0.2.9"), false),
            (("broker.example.com:8142", ""), false),
            (("192.0.2.10:8142", ""), false),
        ] {
            assert_eq!(same(compiler, target, false), is_same_host, "{target:?}");
            assert!(
                !same(compiler, target, true),
                "another port, said to be safe"
            );
        }
        let same_port = ("broker.example.com:8140", "192.0.2.1");
        assert!(same(compiler, same_port, true), "its own port never is");
    }

    #[test]
    fn all_of_loopback_is_one_host_and_a_socket_is_its_path() {
        for target in [
            "127.0.0.2:8142",
            "[::1]:8142",
            "localhost:8142",
            "localhost.:8142",
            "0.0.0.0:8142",
            "[::]:8142",
        ] {
            assert!(
                same(("127.0.0.1:8140", ""), (target, ""), false),
                "{target}"
            );
        }
        assert!(!same(("127.0.0.1:8140", ""), ("192.0.2.1:8142", ""), false));
        assert!(same(("unix:/run/a", ""), ("unix:/run/a", ""), true));
        assert!(!same(("unix:/run/a", ""), ("unix:/run/b", ""), false));
        assert!(!same(("unix:/run/a", ""), ("127.0.0.1:1", ""), false));
    }
}
