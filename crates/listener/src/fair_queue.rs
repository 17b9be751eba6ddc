//! A queue in which client addresses take turns, so that an address with many entries does not delay the other addresses.

use std::{
    collections::{BTreeMap, HashMap},
    net::IpAddr,
};

use balancing::counted_as;
use tokio::time::Instant;

/// The entries of each address (IPv6: of its /64 network), first come first. The limit of open connections also bounds the
/// queue: a handshake has at most one entry, and removes it when it ends.
#[derive(Debug)]
pub(crate) struct FairQueue<T> {
    addresses: HashMap<IpAddr, Line<T>>,
    /// The addresses with entries, in the order of their next turns.
    order: BTreeMap<u64, IpAddr>,
    /// When each entry arrived, and its address, in the order of arrival.
    arrivals: BTreeMap<u64, (Instant, IpAddr)>,
    next_number: u64,
}

/// The entries of one address. There is always at least one.
#[derive(Debug)]
struct Line<T> {
    /// Its key in `order`.
    turn: u64,
    entries: BTreeMap<u64, T>,
}

impl<T> Default for FairQueue<T> {
    fn default() -> Self {
        Self {
            addresses: HashMap::new(),
            order: BTreeMap::new(),
            arrivals: BTreeMap::new(),
            next_number: 0,
        }
    }
}

impl<T> FairQueue<T> {
    /// Adds an entry. Returns the number by which it can be removed.
    pub(crate) fn push(&mut self, client: IpAddr, now: Instant, entry: T) -> u64 {
        let (address, number) = (counted_as(client), self.number());
        self.arrivals.insert(number, (now, address));
        let line = self.addresses.entry(address).or_insert_with(|| {
            self.order.insert(number, address);
            Line {
                turn: number,
                entries: BTreeMap::new(),
            }
        });
        line.entries.insert(number, entry);
        number
    }

    /// Takes the next entry: the first one of the address whose turn has been due longest.
    pub(crate) fn next(&mut self) -> Option<T> {
        let (_, address) = self.order.pop_first()?;
        let line = self.addresses.get_mut(&address)?;
        let (number, entry) = line.entries.pop_first()?;
        self.arrivals.remove(&number);
        if line.entries.is_empty() {
            self.addresses.remove(&address);
        } else {
            line.turn = self.next_number;
            self.order.insert(line.turn, address);
            self.next_number += 1;
        }
        Some(entry)
    }

    /// Removes an entry that has had no turn yet.
    pub(crate) fn remove(&mut self, number: u64) {
        let Some((_, address)) = self.arrivals.remove(&number) else {
            return;
        };
        let Some(line) = self.addresses.get_mut(&address) else {
            return;
        };
        line.entries.remove(&number);
        if line.entries.is_empty() {
            self.order.remove(&line.turn);
            self.addresses.remove(&address);
        }
    }

    /// When the entry that has waited longest arrived.
    pub(crate) fn oldest(&self) -> Option<Instant> {
        self.arrivals.values().next().map(|(arrived, _)| *arrived)
    }

    fn number(&mut self) -> u64 {
        let number = self.next_number;
        self.next_number += 1;
        number
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn address(host: u8) -> IpAddr {
        [192, 0, 2, host].into()
    }

    fn is_empty<T>(queue: &FairQueue<T>) -> bool {
        queue.addresses.is_empty() && queue.order.is_empty() && queue.arrivals.is_empty()
    }

    #[test]
    fn addresses_take_turns_and_each_is_served_in_the_order_of_arrival() {
        let mut queue = FairQueue::default();
        let now = Instant::now();
        for (host, entry) in [(1, 'a'), (1, 'b'), (2, 'c'), (1, 'd'), (3, 'e'), (2, 'f')] {
            queue.push(address(host), now, entry);
        }
        let served: String = std::iter::from_fn(|| queue.next()).collect();
        assert_eq!(served, "acebfd");
        assert!(is_empty(&queue));
    }

    #[test]
    fn one_ipv6_network_is_one_address() {
        let mut queue = FairQueue::default();
        for (client, entry) in [
            ("2001:db8::1", 'a'),
            ("2001:db8::2", 'b'),
            ("2001:db8:0:1::1", 'c'),
        ] {
            queue.push(client.parse().expect("an address"), Instant::now(), entry);
        }
        let served: String = std::iter::from_fn(|| queue.next()).collect();
        assert_eq!(served, "acb");
    }

    /// Tests every order of a few pushes, turns and removals, and compares the result with a list that is searched.
    #[test]
    fn what_is_removed_gets_no_turn_and_the_oldest_is_known() {
        let start = Instant::now();
        for seed in 0..2_000_u64 {
            let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
            let mut queue = FairQueue::default();
            let mut live: Vec<(u64, u64)> = Vec::new();
            for step in 0..40 {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                match random % 4 {
                    0 | 1 => {
                        let arrived = start + Duration::from_millis(step);
                        let host = (random >> 8) as u8 % 3;
                        let number = queue.push(address(host), arrived, step);
                        live.push((number, step));
                    }
                    2 => {
                        let served = queue.next();
                        assert_eq!(served.is_some(), !live.is_empty(), "seed {seed}");
                        live.retain(|(_, entry)| Some(*entry) != served);
                    }
                    _ if !live.is_empty() => {
                        let (number, _) = live.remove((random >> 8) as usize % live.len());
                        queue.remove(number);
                        queue.remove(number);
                    }
                    _ => {}
                }
                let oldest = live.iter().map(|(_, step)| *step).min();
                let expected = oldest.map(|step| start + Duration::from_millis(step));
                assert_eq!(queue.oldest(), expected, "seed {seed}");
                assert_eq!(is_empty(&queue), live.is_empty(), "seed {seed}");
            }
        }
    }
}
