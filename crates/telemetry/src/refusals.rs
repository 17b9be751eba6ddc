//! Clients that were refused recently: their claimed names, addresses and reasons. Their number is bounded, and they are in
//! memory only.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use balancing::counted_as;

/// Clients refused since the start. Repeated refusals of one client for the same reason share an entry.
#[derive(Debug, Default)]
pub struct RecentRefusals(Mutex<Entries>);

/// A client, and why it was refused.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RefusedClient {
    /// Its address.
    pub client: IpAddr,
    /// The listener that it connected to.
    pub listener: Arc<str>,
    /// The name in its certificate. None if the client presented no certificate with a certname, or if the name is not known.
    pub certname: Option<Arc<str>>,
    /// Whether a trusted certificate proves that name.
    pub is_verified: bool,
    /// Why the client was refused: the reason of the verdict on its certificate, or that of the access record.
    pub reason: &'static str,
}

/// One entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusalEntry {
    /// The client, and why it was refused.
    pub refused: RefusedClient,
    /// When the first of these refusals occurred.
    pub first_at: SystemTime,
    /// When the latest of these refusals occurred.
    pub last_at: SystemTime,
    /// The number of these refusals.
    pub count: u64,
}

#[derive(Debug, Default)]
struct Entries {
    by_client: HashMap<RefusedClient, Times>,
    forgotten: u64,
}

#[derive(Clone, Copy, Debug)]
struct Times {
    first_at: SystemTime,
    last_at: SystemTime,
    count: u64,
}

impl RecentRefusals {
    /// Maximum number of entries. Beyond it, the address (IPv6: the /64 network) with the most entries loses its oldest entry,
    /// so that one client with invented names cannot remove the entries of all others. At about 400 bytes each, the entries
    /// need at most 400 KB.
    pub const REFUSALS_MAX: usize = 1024;

    /// Counts a refusal.
    pub fn note(&self, refused: RefusedClient, at: SystemTime) {
        let mut entries = self.entries();
        if let Some(known) = entries.by_client.get_mut(&refused) {
            known.last_at = at;
            known.count += 1;
            return;
        }
        if entries.by_client.len() == Self::REFUSALS_MAX {
            entries.forget_oldest();
        }
        let times = Times {
            first_at: at,
            last_at: at,
            count: 1,
        };
        entries.by_client.insert(refused, times);
    }

    /// All entries that match `wanted`, those with the latest refusals first.
    pub fn latest_first(&self, wanted: impl Fn(&RefusedClient) -> bool) -> Vec<RefusalEntry> {
        let entries = self.entries();
        let found = entries.by_client.iter();
        let found = found.filter(|(refused, _)| wanted(refused));
        let mut found: Vec<_> = found
            .map(|(refused, times)| RefusalEntry {
                refused: refused.clone(),
                first_at: times.first_at,
                last_at: times.last_at,
                count: times.count,
            })
            .collect();
        drop(entries);
        found.sort_unstable_by_key(|entry| std::cmp::Reverse(entry.last_at));
        found
    }

    /// The number of entries that were removed to make room.
    pub fn forgotten(&self) -> u64 {
        self.entries().forgotten
    }

    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entries {
    fn forget_oldest(&mut self) {
        let mut of_address: HashMap<IpAddr, usize> = HashMap::new();
        for refused in self.by_client.keys() {
            *of_address.entry(counted_as(refused.client)).or_default() += 1;
        }
        let most = of_address.values().copied().max();
        let is_of_most =
            |refused: &RefusedClient| of_address.get(&counted_as(refused.client)).copied() == most;
        let entries = self.by_client.iter();
        let entries = entries.filter(|(refused, _)| is_of_most(refused));
        let oldest = entries.min_by_key(|(_, times)| times.last_at);
        if let Some(oldest) = oldest.map(|(refused, _)| refused.clone()) {
            self.by_client.remove(&oldest);
            self.forgotten += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::time::Duration;

    use super::*;

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
    }

    fn client(certname: &str, reason: &'static str) -> RefusedClient {
        RefusedClient {
            client: Ipv4Addr::LOCALHOST.into(),
            listener: "agents".into(),
            certname: Some(certname.into()),
            is_verified: false,
            reason,
        }
    }

    #[test]
    fn repeated_refusals_are_one_entry_and_the_latest_comes_first() {
        let refusals = RecentRefusals::default();
        refusals.note(client("web01", "revoked"), at(1));
        refusals.note(client("web02", "expired"), at(2));
        refusals.note(client("web01", "revoked"), at(3));
        refusals.note(client("web01", "blocked"), at(4));
        let all = refusals.latest_first(|_| true);
        let entries: Vec<_> = all
            .iter()
            .map(|entry| {
                let name = entry.refused.certname.as_deref().unwrap_or("-");
                (name, entry.refused.reason, entry.count)
            })
            .collect();
        assert_eq!(
            entries,
            [
                ("web01", "blocked", 1),
                ("web01", "revoked", 2),
                ("web02", "expired", 1)
            ]
        );
        assert_eq!((all[1].first_at, all[1].last_at), (at(1), at(3)));
        let expired = refusals.latest_first(|refused| refused.reason == "expired");
        assert_eq!(expired.len(), 1);
    }

    #[test]
    fn at_the_maximum_the_entry_refused_longest_ago_is_removed_and_counted() {
        let refusals = RecentRefusals::default();
        for number in 0..RecentRefusals::REFUSALS_MAX {
            refusals.note(client(&format!("web{number}"), "revoked"), at(10));
        }
        refusals.note(client("web0", "revoked"), at(5));
        refusals.note(client("web1", "revoked"), at(11));
        refusals.note(client("another", "revoked"), at(12));
        let all = refusals.latest_first(|_| true);
        assert_eq!(all.len(), RecentRefusals::REFUSALS_MAX);
        assert_eq!(refusals.forgotten(), 1);
        let knows = |name: &str| {
            let named = |entry: &RefusalEntry| entry.refused.certname.as_deref() == Some(name);
            all.iter().any(named)
        };
        assert!(!knows("web0") && knows("web1") && knows("another"));
    }

    #[test]
    fn invented_names_from_one_network_remove_no_entry_of_another_address() {
        let refusals = RecentRefusals::default();
        refusals.note(client("web01", "revoked"), at(1));
        for number in 0..RecentRefusals::REFUSALS_MAX {
            let mut invented = client(&format!("invented{number}"), "unknown-issuer");
            let host = u128::try_from(number).unwrap();
            invented.client = std::net::Ipv6Addr::from_bits(0x2001_0db8 << 96 | host).into();
            refusals.note(invented, at(2));
        }
        let revoked = refusals.latest_first(|refused| refused.reason == "revoked");
        assert_eq!(revoked.len(), 1);
        let all = refusals.latest_first(|_| true);
        assert_eq!(all.len(), RecentRefusals::REFUSALS_MAX);
    }
}
