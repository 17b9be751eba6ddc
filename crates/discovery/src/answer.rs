//! Questions and answers, as sets: an answer in another order is the same answer.

use std::{collections::BTreeSet, fmt, net::IpAddr};

/// Records that one name may have.
pub const RECORDS_MAX: usize = 256;

/// What is asked of DNS.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Question {
    /// The addresses of a host.
    Host(String),
    /// The SRV records of a service, and the addresses of their targets.
    Service(String),
}

impl fmt::Display for Question {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host(name) => f.write_str(name),
            Self::Service(name) => write!(f, "srv:{name}"),
        }
    }
}

/// What DNS answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The addresses of a host.
    Host(BTreeSet<IpAddr>),
    /// The targets of a service, sorted.
    Service(Vec<Target>),
}

/// One SRV record with the addresses of its target. Sorted: by priority, then the heavier first, then by name and port.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Target {
    /// A lower one is used first.
    pub priority: u16,
    /// [`u16::MAX`] less the weight, so that the derived order puts the heavier first.
    lightness: u16,
    /// Host name in lower case, without a trailing dot.
    pub host: String,
    /// Port.
    pub port: u16,
    /// Addresses of the host; empty where it does not resolve.
    pub addresses: BTreeSet<IpAddr>,
}

impl Target {
    /// A record as DNS spells it.
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

impl Answer {
    /// The answer of a service, sorted. A target that several records name counts once, by the first of them.
    pub fn service(mut targets: Vec<Target>) -> Self {
        targets.sort();
        let mut seen = BTreeSet::new();
        targets.retain(|target| seen.insert((target.host.clone(), target.port)));
        Self::Service(targets)
    }

    /// Gives targets without an address the addresses that the same host had in the answer before.
    pub fn fill_addresses(&mut self, before: &Self) {
        let (Self::Service(targets), Self::Service(before)) = (self, before) else {
            return;
        };
        for target in targets.iter_mut().filter(|t| t.addresses.is_empty()) {
            if let Some(known) = before.iter().find(|known| known.host == target.host) {
                target.addresses.clone_from(&known.addresses);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(answer: &Answer) -> Vec<&str> {
        match answer {
            Answer::Service(targets) => targets.iter().map(|t| t.host.as_str()).collect(),
            Answer::Host(_) => Vec::new(),
        }
    }

    #[test]
    fn targets_are_sorted_by_priority_then_weight_then_name() {
        let answer = Answer::service(vec![
            Target::new(1, 5, "site-b.example.com.", 8140),
            Target::new(0, 25, "small.example.com", 8140),
            Target::new(0, 75, "BIG.example.com", 8140),
            Target::new(0, 25, "equal.example.com", 8140),
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
    fn another_order_is_the_same_answer() {
        let (a, b) = (
            Target::new(0, 1, "a.example.com", 8140),
            Target::new(0, 1, "b.example.com", 8140),
        );
        let rotated = Answer::service(vec![b.clone(), a.clone()]);
        assert_eq!(Answer::service(vec![a, b]), rotated);
        let addresses = |texts: [&str; 2]| {
            Answer::Host(texts.iter().filter_map(|text| text.parse().ok()).collect())
        };
        let rotated = addresses(["192.0.2.2", "192.0.2.1"]);
        assert_eq!(addresses(["192.0.2.1", "192.0.2.2"]), rotated);
    }

    #[test]
    fn a_target_named_twice_counts_once_by_its_first_record() {
        let answer = Answer::service(vec![
            Target::new(2, 9, "a.example.com", 8140),
            Target::new(1, 3, "A.example.com.", 8140),
            Target::new(1, 3, "a.example.com", 8141),
        ]);
        let Answer::Service(targets) = answer else {
            panic!("a service")
        };
        let shown = targets.iter().map(|t| (t.priority, t.weight(), t.port));
        assert_eq!(shown.collect::<Vec<_>>(), [(1, 3, 8140), (1, 3, 8141)]);
    }
}
