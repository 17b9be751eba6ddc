//! DNS questions and answers. Answers are sets: the order of records does not matter.

use std::{collections::BTreeSet, fmt, net::IpAddr};

/// Maximum records of one name.
pub const RECORDS_MAX: usize = 256;

/// A question for DNS.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DnsQuestion {
    /// The addresses of a host.
    Host(String),
    /// The SRV records of a service, and the addresses of their targets.
    Service(String),
}

impl DnsQuestion {
    /// Parses the output of [`Display`](fmt::Display).
    pub fn parse(text: &str) -> Self {
        match text.strip_prefix("srv:") {
            Some(name) => Self::Service(name.to_owned()),
            None => Self::Host(text.to_owned()),
        }
    }
}

impl fmt::Display for DnsQuestion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host(name) => f.write_str(name),
            Self::Service(name) => write!(f, "srv:{name}"),
        }
    }
}

/// The answer to a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DnsAnswer {
    /// The addresses of a host.
    Host(BTreeSet<IpAddr>),
    /// The targets of a service, sorted.
    Service(Vec<ServiceTarget>),
}

/// One SRV record with the addresses of its target. Targets are sorted by priority, then by descending weight, then by
/// name and port.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ServiceTarget {
    /// Lower priorities are used first.
    pub priority: u16,
    /// [`u16::MAX`] minus the weight, so that the derived order puts larger weights first.
    lightness: u16,
    /// Host name in lower case, without a trailing dot.
    pub host: String,
    /// Port.
    pub port: u16,
    /// Addresses of the host. Empty if it does not resolve.
    pub addresses: BTreeSet<IpAddr>,
}

impl ServiceTarget {
    /// A target as DNS spells it.
    pub fn new(priority: u16, weight: u16, host: &str, port: u16) -> Self {
        Self {
            priority,
            lightness: u16::MAX - weight,
            host: host.strip_suffix('.').unwrap_or(host).to_lowercase(),
            port,
            addresses: BTreeSet::new(),
        }
    }

    /// Share of the load among targets of the same priority.
    pub fn weight(&self) -> u16 {
        u16::MAX - self.lightness
    }
}

impl DnsAnswer {
    /// The sorted answer for a service. A target with several records counts once, by the first of them.
    pub fn service(mut targets: Vec<ServiceTarget>) -> Self {
        targets.sort();
        let mut seen = BTreeSet::new();
        targets.retain(|target| seen.insert((target.host.clone(), target.port)));
        Self::Service(targets)
    }

    /// Replaces the addresses of each target whose host is `doubtful` by those of the same host in an earlier answer.
    /// Returns these hosts.
    pub fn keep_addresses(
        &mut self,
        before: &Self,
        doubtful: impl Fn(&str) -> bool,
    ) -> BTreeSet<String> {
        let mut reused = BTreeSet::new();
        let (Self::Service(targets), Self::Service(before)) = (self, before) else {
            return reused;
        };
        for target in targets.iter_mut().filter(|target| doubtful(&target.host)) {
            let mut known = before.iter().filter(|known| !known.addresses.is_empty());
            if let Some(known) = known.find(|known| known.host == target.host) {
                target.addresses.clone_from(&known.addresses);
                reused.insert(target.host.clone());
            }
        }
        reused
    }

    /// Whether the answer has an address of this host.
    pub fn has_address_of(&self, host: &str) -> bool {
        match self {
            Self::Host(addresses) => !addresses.is_empty(),
            Self::Service(targets) => targets
                .iter()
                .any(|target| target.host == host && !target.addresses.is_empty()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(answer: &DnsAnswer) -> Vec<&str> {
        match answer {
            DnsAnswer::Service(targets) => targets.iter().map(|t| t.host.as_str()).collect(),
            DnsAnswer::Host(_) => Vec::new(),
        }
    }

    #[test]
    fn targets_are_sorted_by_priority_then_weight_then_name() {
        let answer = DnsAnswer::service(vec![
            ServiceTarget::new(1, 5, "site-b.example.com.", 8140),
            ServiceTarget::new(0, 25, "small.example.com", 8140),
            ServiceTarget::new(0, 75, "BIG.example.com", 8140),
            ServiceTarget::new(0, 25, "equal.example.com", 8140),
        ]);
        let sorted = [
            "big.example.com",
            "equal.example.com",
            "small.example.com",
            "site-b.example.com",
        ];
        assert_eq!(hosts(&answer), sorted);
    }

    #[test]
    fn the_order_of_records_does_not_matter() {
        let (a, b) = (
            ServiceTarget::new(0, 1, "a.example.com", 8140),
            ServiceTarget::new(0, 1, "b.example.com", 8140),
        );
        let rotated = DnsAnswer::service(vec![b.clone(), a.clone()]);
        assert_eq!(DnsAnswer::service(vec![a, b]), rotated);
        let addresses = |texts: [&str; 2]| {
            DnsAnswer::Host(texts.iter().filter_map(|text| text.parse().ok()).collect())
        };
        let rotated = addresses(["192.0.2.2", "192.0.2.1"]);
        assert_eq!(addresses(["192.0.2.1", "192.0.2.2"]), rotated);
    }

    #[test]
    fn a_doubtful_host_keeps_the_addresses_that_it_had() {
        let with = |host: &str, address: Option<[u8; 4]>| {
            let mut target = ServiceTarget::new(0, 1, host, 8140);
            target.addresses = address.into_iter().map(IpAddr::from).collect();
            target
        };
        let before = DnsAnswer::service(vec![
            with("a.example.com", Some([192, 0, 2, 1])),
            with("b.example.com", Some([192, 0, 2, 2])),
            with("c.example.com", None),
        ]);
        let mut answer = DnsAnswer::service(vec![
            with("a.example.com", Some([192, 0, 2, 11])),
            with("b.example.com", None),
            with("c.example.com", None),
        ]);
        let reused = answer.keep_addresses(&before, |host| host != "a.example.com");
        assert_eq!(reused, ["b.example.com".to_owned()].into());
        let expected = DnsAnswer::service(vec![
            with("a.example.com", Some([192, 0, 2, 11])),
            with("b.example.com", Some([192, 0, 2, 2])),
            with("c.example.com", None),
        ]);
        assert_eq!(answer, expected);
        assert!(answer.has_address_of("b.example.com") && !answer.has_address_of("c.example.com"));
    }

    #[test]
    fn a_target_with_two_records_counts_once_by_the_first() {
        let answer = DnsAnswer::service(vec![
            ServiceTarget::new(2, 9, "a.example.com", 8140),
            ServiceTarget::new(1, 3, "A.example.com.", 8140),
            ServiceTarget::new(1, 3, "a.example.com", 8141),
        ]);
        let DnsAnswer::Service(targets) = answer else {
            panic!("a service")
        };
        let shown = targets.iter().map(|t| (t.priority, t.weight(), t.port));
        assert_eq!(shown.collect::<Vec<_>>(), [(1, 3, 8140), (1, 3, 8141)]);
    }
}
