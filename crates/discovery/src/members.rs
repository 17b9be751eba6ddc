//! From an answer to members: which answers a pool accepts, and how its configuration turns them into members.

use std::net::IpAddr;

use balancing::{
    MemberAddress, host_and_port,
    settings::{AddressExpansion, MemberSettings},
};

use crate::{
    answer::{DnsAnswer, DnsQuestion, RECORDS_MAX, ServiceTarget},
    names::{is_covered, is_host_name},
};

/// The rules of a pool for answers.
#[derive(Clone, Copy, Debug)]
pub struct AnswerRules<'a> {
    /// Names that targets of a service may have. `None`: any name, because the name does not affect whose certificate
    /// is accepted.
    pub server_names: Option<&'a [String]>,
    /// Whether every address must be a loopback address.
    pub is_loopback_only: bool,
}

/// A member from an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiscoveredMember {
    /// The settings that it would have in a configuration.
    pub settings: MemberSettings,
    /// Its addresses. Empty: its host is resolved on each connect.
    pub addresses: Vec<IpAddr>,
}

/// Why an answer is not used.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum InvalidAnswer {
    /// The answer has no record.
    #[error("the answer contains no record")]
    Empty,
    /// The answer has more than [`RECORDS_MAX`] records.
    #[error("the answer contains {0} records, and at most {RECORDS_MAX} are accepted")]
    TooMany(usize),
    /// A target with an invalid name or port.
    #[error("the answer names \"{host}:{port}\", which is not a valid host name and port")]
    Target {
        /// The host.
        host: String,
        /// The port.
        port: u16,
    },
    /// No target has an address.
    #[error("no target of the answer has an address")]
    Unresolved,
    /// A target whose name the pool does not allow.
    #[error("the answer names \"{0}\", which `server_names` of the pool does not allow")]
    ServerName(String),
    /// An address that a host cannot have.
    #[error("the answer contains {0}, which is not the address of a host")]
    Address(IpAddr),
    /// Plain HTTP would leave this machine.
    #[error(
        "the answer contains {0}, which is not a loopback address: use scheme = \"https\", or plaintext = \"trusted-network\""
    )]
    Plaintext(IpAddr),
}

/// The DNS question for an entry of `members`. `None` if the entry needs no DNS.
pub fn question(member: &MemberSettings) -> Option<DnsQuestion> {
    if let Some(service) = member.service() {
        let name = service.strip_suffix('.').unwrap_or(service);
        return Some(DnsQuestion::Service(name.to_lowercase()));
    }
    let Ok(MemberAddress::Tcp { host, .. }) = MemberAddress::parse(&member.address) else {
        return None;
    };
    // `localhost` is this machine whatever DNS answers (RFC 6761).
    let is_fixed = host.parse::<IpAddr>().is_ok() || host.eq_ignore_ascii_case("localhost");
    (!is_fixed).then(|| DnsQuestion::Host(host.to_lowercase()))
}

impl AnswerRules<'_> {
    /// Checks whether an answer may be used.
    ///
    /// # Errors
    /// The first rule that the answer breaks.
    pub fn check(&self, answer: &DnsAnswer) -> Result<(), InvalidAnswer> {
        match answer {
            DnsAnswer::Host(addresses) => {
                count(addresses.len())?;
                self.check_addresses(addresses)
            }
            DnsAnswer::Service(targets) => {
                count(targets.len())?;
                targets.iter().try_for_each(|target| self.target(target))?;
                // Some DNS servers give such an answer while they load a zone. Members without an address must not
                // replace members that work.
                let mut targets = targets.iter();
                targets
                    .any(|target| !target.addresses.is_empty())
                    .then_some(())
                    .ok_or(InvalidAnswer::Unresolved)
            }
        }
    }

    fn target(&self, target: &ServiceTarget) -> Result<(), InvalidAnswer> {
        if target.port == 0 || !is_host_name(&target.host) {
            return Err(InvalidAnswer::Target {
                host: target.host.escape_debug().to_string(),
                port: target.port,
            });
        }
        let is_allowed = |names: &[String]| names.iter().any(|name| is_covered(&target.host, name));
        if !self.server_names.is_none_or(is_allowed) {
            return Err(InvalidAnswer::ServerName(target.host.clone()));
        }
        self.check_addresses(&target.addresses)
    }

    fn check_addresses<'a>(
        &self,
        addresses: impl IntoIterator<Item = &'a IpAddr>,
    ) -> Result<(), InvalidAnswer> {
        addresses.into_iter().try_for_each(|address| {
            if !is_host(address.to_canonical()) {
                return Err(InvalidAnswer::Address(*address));
            }
            (!self.is_loopback_only || address.to_canonical().is_loopback())
                .then_some(())
                .ok_or(InvalidAnswer::Plaintext(*address))
        })
    }
}

/// Whether a host can have this address. Some DNS servers block names with an unspecified address, and a connection to
/// it would reach this machine.
fn is_host(address: IpAddr) -> bool {
    let is_broadcast = matches!(address, IpAddr::V4(four) if four.is_broadcast());
    !address.is_unspecified() && !address.is_multicast() && !is_broadcast
}

fn count(records: usize) -> Result<(), InvalidAnswer> {
    match records {
        0 => Err(InvalidAnswer::Empty),
        1..=RECORDS_MAX => Ok(()),
        _ => Err(InvalidAnswer::TooMany(records)),
    }
}

/// The members of an entry of `members`. Without an answer a service has none, and a host is one member that is
/// resolved on each connect.
pub fn discovered(member: &MemberSettings, answer: Option<&DnsAnswer>) -> Vec<DiscoveredMember> {
    match answer {
        Some(DnsAnswer::Service(targets)) => targets
            .iter()
            .map(|target| of_target(member, target))
            .collect(),
        Some(DnsAnswer::Host(addresses)) => of_host(member, addresses.iter().copied().collect()),
        None if member.service().is_some() => Vec::new(),
        None => of_host(member, Vec::new()),
    }
}

fn of_target(member: &MemberSettings, target: &ServiceTarget) -> DiscoveredMember {
    DiscoveredMember {
        settings: MemberSettings {
            address: host_and_port(&target.host, target.port),
            // RFC 2782: a target of weight 0 has a small chance of selection.
            weight: u32::from(target.weight()).max(1),
            priority: target.priority,
            ..member.clone()
        },
        addresses: target.addresses.iter().copied().collect(),
    }
}

fn of_host(member: &MemberSettings, addresses: Vec<IpAddr>) -> Vec<DiscoveredMember> {
    let are_members = match member.addresses {
        AddressExpansion::Auto => {
            let four = addresses.iter().filter(|address| address.is_ipv4()).count();
            // One address of each family belongs to one host.
            four > 1 || addresses.len() - four > 1
        }
        AddressExpansion::All => addresses.len() > 1,
        AddressExpansion::First => false,
    };
    if !are_members {
        let settings = member.clone();
        return vec![DiscoveredMember {
            settings,
            addresses,
        }];
    }
    let one = |address: IpAddr| DiscoveredMember {
        settings: MemberSettings {
            address: format!("{}@{address}", member.address),
            ..member.clone()
        },
        addresses: vec![address],
    };
    addresses.into_iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(texts: &[&str]) -> DnsAnswer {
        DnsAnswer::Host(
            texts
                .iter()
                .map(|text| text.parse().expect("an address"))
                .collect(),
        )
    }

    fn shown(member: &MemberSettings, answer: &DnsAnswer) -> Vec<String> {
        let members = discovered(member, Some(answer)).into_iter();
        members.map(|member| member.settings.address).collect()
    }

    #[test]
    fn only_names_are_resolved() {
        let of = |address: &str| question(&MemberSettings::new(address));
        let host = |name: &str| Some(DnsQuestion::Host(name.to_owned()));
        assert_eq!(of("C1.example.com:8140"), host("c1.example.com"));
        let service = DnsQuestion::Service("_x-puppet._tcp.example.com".to_owned());
        assert_eq!(of("srv:_x-puppet._tcp.Example.com."), Some(service));
        for address in [
            "127.0.0.1:8140",
            "[::1]:8140",
            "unix:/run/p",
            "localhost:8140",
        ] {
            assert_eq!(of(address), None, "{address}");
        }
    }

    #[test]
    fn several_addresses_of_one_family_are_several_members() {
        let mut member = MemberSettings::new("c.example.com:8140");
        let (one, several) = (["192.0.2.1", "2001:db8::1"], ["192.0.2.1", "192.0.2.2"]);
        let (one, several) = (addresses(&one), addresses(&several));
        let each = [
            "c.example.com:8140@192.0.2.1",
            "c.example.com:8140@192.0.2.2",
        ];
        assert_eq!(shown(&member, &one), ["c.example.com:8140"]);
        assert_eq!(shown(&member, &several), each);
        member.addresses = AddressExpansion::All;
        assert_eq!(shown(&member, &one).len(), 2);
        member.addresses = AddressExpansion::First;
        assert_eq!(shown(&member, &several), ["c.example.com:8140"]);
    }

    #[test]
    fn without_an_answer_a_host_is_one_member_and_a_service_has_none() {
        let host = MemberSettings::new("c.example.com:8140");
        assert_eq!(discovered(&host, None).len(), 1);
        let service = MemberSettings::new("srv:_x-puppet._tcp.example.com");
        assert_eq!(discovered(&service, None), []);
    }

    #[test]
    fn a_target_has_the_priority_and_weight_of_its_record() {
        let service = MemberSettings {
            in_flight_max: Some(4),
            ..MemberSettings::new("srv:_x-puppet._tcp.example.com")
        };
        let answer = DnsAnswer::service(vec![
            ServiceTarget::new(1, 0, "b.example.com", 8140),
            ServiceTarget::new(0, 75, "a.example.com", 8141),
        ]);
        let members = discovered(&service, Some(&answer));
        let shown = members.iter().map(|member| {
            let settings = &member.settings;
            (
                settings.address.as_str(),
                settings.priority,
                settings.weight,
            )
        });
        let expected = [("a.example.com:8141", 0, 75), ("b.example.com:8140", 1, 1)];
        assert_eq!(shown.collect::<Vec<_>>(), expected);
        assert!(members.iter().all(|m| m.settings.in_flight_max == Some(4)));
    }

    #[test]
    fn answers_that_break_a_rule_are_not_used() {
        let names = ["*.example.com".to_owned()];
        let rules = AnswerRules {
            server_names: Some(&names),
            is_loopback_only: false,
        };
        let service = |host: &str, port| {
            let mut target = ServiceTarget::new(0, 1, host, port);
            target.addresses.insert([192, 0, 2, 1].into());
            DnsAnswer::service(vec![target])
        };
        assert_eq!(rules.check(&service("c1.example.com", 8140)), Ok(()));
        let unresolved = DnsAnswer::service(vec![ServiceTarget::new(0, 1, "c1.example.com", 8140)]);
        assert_eq!(rules.check(&unresolved), Err(InvalidAnswer::Unresolved));
        let evil = InvalidAnswer::ServerName("agent.example.org".to_owned());
        assert_eq!(rules.check(&service("agent.example.org", 8140)), Err(evil));
        for (host, port) in [
            ("", 8140),
            ("a b.example.com", 8140),
            ("c1.example.com", 0),
            ("192.0.2.1", 1),
        ] {
            let refused = rules.check(&service(host, port));
            assert!(
                matches!(refused, Err(InvalidAnswer::Target { .. })),
                "{host}:{port}"
            );
        }
        assert_eq!(
            rules.check(&DnsAnswer::Service(Vec::new())),
            Err(InvalidAnswer::Empty)
        );
        let many = (0..=255)
            .map(|n| format!("192.0.2.{n}"))
            .chain(["192.0.3.0".to_owned()]);
        let many: Vec<_> = many.collect();
        let many = addresses(&many.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(rules.check(&many), Err(InvalidAnswer::TooMany(257)));
    }

    #[test]
    fn an_answer_with_an_address_that_a_host_cannot_have_is_not_used() {
        let rules = AnswerRules {
            server_names: None,
            is_loopback_only: false,
        };
        for text in [
            "0.0.0.0",
            "::",
            "::ffff:0.0.0.0",
            "224.0.0.1",
            "ff02::1",
            "255.255.255.255",
        ] {
            let wrong = text.parse().expect("an address");
            let refused = rules.check(&addresses(&["192.0.2.1", text]));
            assert_eq!(refused, Err(InvalidAnswer::Address(wrong)));
        }
        // This is often the name of the machine itself, where the proxy and a compiler share one machine.
        assert_eq!(rules.check(&addresses(&["127.0.1.1", "10.0.0.1"])), Ok(()));
    }

    #[test]
    fn plain_http_goes_to_loopback_addresses_only() {
        let rules = AnswerRules {
            server_names: None,
            is_loopback_only: true,
        };
        let remote: IpAddr = "192.0.2.1".parse().expect("an address");
        let mut target = ServiceTarget::new(0, 1, "c1.example.com", 8140);
        target.addresses = ["127.0.0.2", "::1", "::ffff:127.0.0.1"]
            .map(|text| text.parse().expect("an address"))
            .into();
        assert_eq!(
            rules.check(&DnsAnswer::service(vec![target.clone()])),
            Ok(())
        );
        target.addresses.insert(remote);
        let refused = rules.check(&DnsAnswer::service(vec![target]));
        assert_eq!(refused, Err(InvalidAnswer::Plaintext(remote)));
    }
}
