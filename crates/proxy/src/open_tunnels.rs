//! The open tunnels. The status shows them, because a drain waits for them, and an operator must know whose they are.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::SystemTime,
};

/// The tunnels by pool and member, and by an increasing number. The limits on connections bound the size.
#[derive(Debug, Default)]
pub struct OpenTunnels(Mutex<Numbered>);

#[derive(Debug, Default)]
struct Numbered {
    next: u64,
    tunnels: BTreeMap<(Arc<str>, Arc<str>), BTreeMap<u64, TunnelClient>>,
}

/// The client's side of a tunnel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TunnelClient {
    /// The client's verified certname, or its address.
    pub client: Arc<str>,
    /// When the tunnel was opened.
    pub since: SystemTime,
}

/// A tunnel in the list of open tunnels. Dropping this value removes it.
#[derive(Debug)]
pub(crate) struct TunnelEntry<'a> {
    all: &'a OpenTunnels,
    to: (Arc<str>, Arc<str>),
    number: u64,
}

impl OpenTunnels {
    pub(crate) fn open(
        &self,
        pool: &Arc<str>,
        member: &Arc<str>,
        client: TunnelClient,
    ) -> TunnelEntry<'_> {
        let to = (Arc::clone(pool), Arc::clone(member));
        let mut open = self.lock();
        let number = open.next;
        open.next += 1;
        let tunnels = open.tunnels.entry(to.clone()).or_default();
        tunnels.insert(number, client);
        TunnelEntry {
            all: self,
            to,
            number,
        }
    }

    /// How many tunnels are open to a member, and the oldest of them, at most `max`.
    pub fn to(&self, pool: &Arc<str>, member: &Arc<str>, max: usize) -> (usize, Vec<TunnelClient>) {
        let to = (Arc::clone(pool), Arc::clone(member));
        match self.lock().tunnels.get(&to) {
            Some(tunnels) => (tunnels.len(), tunnels.values().take(max).cloned().collect()),
            None => (0, Vec::new()),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Numbered> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TunnelEntry<'_> {
    /// The number of the tunnel. It is larger than that of every earlier tunnel.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }
}

impl Drop for TunnelEntry<'_> {
    fn drop(&mut self) {
        let mut open = self.all.lock();
        if let Some(tunnels) = open.tunnels.get_mut(&self.to) {
            tunnels.remove(&self.number);
            if tunnels.is_empty() {
                open.tunnels.remove(&self.to);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tunnels_are_counted_by_member_and_the_oldest_are_named() {
        let all = OpenTunnels::default();
        let (pool, one, other) = ("pcp".into(), "c1:8142".into(), "c2:8142".into());
        let client = |name: &str| TunnelClient {
            client: name.into(),
            since: SystemTime::UNIX_EPOCH,
        };
        let first = all.open(&pool, &one, client("a"));
        let second = all.open(&pool, &one, client("b"));
        let third = all.open(&pool, &one, client("c"));
        assert_eq!(all.to(&pool, &one, 2), (3, vec![client("a"), client("b")]));
        assert_eq!(all.to(&pool, &other, 2), (0, Vec::new()));
        drop(first);
        assert_eq!(all.to(&pool, &one, 9), (2, vec![client("b"), client("c")]));
        drop((second, third));
        assert!(all.lock().tunnels.is_empty());
    }
}
