//! The handshakes that wait for their client. Such a handshake holds its connection and nothing else that other clients need.
//! When a limit is hit, the handshake that has waited longest is closed.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, HashMap},
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use balancing::counted_as;
use tokio::{sync::Notify, time::Instant};

/// How long a client may take for its next message before the proxy closes its handshake to make room. An agent needs
/// a round trip and a few milliseconds, so handshakes of agents are not closed, however many begin at once.
pub(crate) const PATIENCE: Duration = Duration::from_secs(1);

/// The handshakes of one listener that wait for their client, over all workers.
#[derive(Debug, Default)]
pub struct WaitingHandshakes {
    all: Mutex<Addresses>,
}

#[derive(Debug, Default)]
struct Addresses {
    /// The handshakes of each address, in the order in which they began to wait. An address without handshakes has no entry.
    addresses: HashMap<IpAddr, BTreeMap<u64, Waiting>>,
    /// The handshakes that had not waited for [`PATIENCE`] when [`age`](Self::age) was last called.
    young: BTreeMap<u64, (Instant, IpAddr)>,
    /// The addresses whose longest-waiting handshake is not young. The last address in this order is the first to lose a
    /// handshake. The set exists because each new handshake at a limit needs that address, and tens of thousands of addresses
    /// may have waiting handshakes.
    late: BTreeSet<Rank>,
    count: usize,
    next_number: u64,
}

/// The number of an address's handshakes, since when the first of them has waited, and the address.
type Rank = (usize, Reverse<Instant>, IpAddr);

#[derive(Debug)]
struct Waiting {
    since: Instant,
    closed: Arc<Notify>,
}

/// How many handshakes may wait for their client.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WaitingLimits {
    pub(crate) max: u32,
    /// Limit for one address. `None` if the address has no limit.
    pub(crate) max_per_address: Option<u32>,
}

/// The limits that a waiting handshake has hit and for which another handshake was closed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct MadeRoom {
    pub(crate) at_max: bool,
    pub(crate) at_max_per_address: bool,
}

/// The handshake was closed to make room for another one.
#[derive(Debug, thiserror::Error)]
#[error(
    "the proxy closed the handshake at a limit of the listener, because it had waited longest for its client"
)]
pub(crate) struct Displaced;

impl WaitingHandshakes {
    /// How many handshakes wait now.
    pub fn count(&self) -> usize {
        self.all().count
    }

    /// Adds a handshake of this address (IPv6: of its /64 network). At a limit, closes the handshake that has waited longest.
    /// If no handshake has waited for [`PATIENCE`], the limit may be exceeded, up to the limits of connections.
    pub(crate) fn enter(
        &self,
        client: IpAddr,
        limits: WaitingLimits,
        now: Instant,
    ) -> (WaitingClient<'_>, MadeRoom) {
        let address = counted_as(client);
        let mut all = self.all();
        let mut made = MadeRoom::default();
        if let Some(max) = limits.max_per_address {
            while all.count_of(address) >= max as usize && all.is_late(address, now) {
                all.close_longest_of(address);
                made.at_max_per_address = true;
            }
        }
        while all.count >= limits.max as usize
            && let Some(busiest) = all.busiest_late(now)
        {
            all.close_longest_of(busiest);
            made.at_max = true;
        }
        let number = all.next_number;
        all.next_number += 1;
        drop(all);
        let client = WaitingClient {
            handshakes: self,
            address,
            number,
            since: now,
            closed: Arc::default(),
        };
        client.add();
        (client, made)
    }

    /// Closes the handshake of this address that has waited longest. `false` if no handshake waits.
    pub(crate) fn close_longest_of(&self, client: IpAddr) -> bool {
        self.all().close_longest_of(counted_as(client))
    }

    /// Closes one handshake if one has waited for [`PATIENCE`]: of the address with the most waiting handshakes, the one that
    /// has waited longest. Returns when the next attempt may close one.
    pub(crate) fn close_longest(&self, now: Instant) -> Instant {
        let mut all = self.all();
        match all.busiest_late(now) {
            Some(busiest) => {
                all.close_longest_of(busiest);
                now + PATIENCE
            }
            // All handshakes are young.
            None => {
                let longest = all.young.values().next().map(|(since, _)| *since);
                longest.map_or(now, |since| since.max(now - PATIENCE)) + PATIENCE
            }
        }
    }

    /// A panic elsewhere leaves the entries intact.
    fn all(&self) -> MutexGuard<'_, Addresses> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Addresses {
    fn count_of(&self, address: IpAddr) -> usize {
        self.addresses.get(&address).map_or(0, BTreeMap::len)
    }

    /// Whether a handshake of this address has waited for [`PATIENCE`].
    fn is_late(&self, address: IpAddr, now: Instant) -> bool {
        let longest = self.addresses.get(&address).and_then(first);
        longest.is_some_and(|since| since + PATIENCE <= now)
    }

    /// The address with the most waiting handshakes, among those with a handshake that has waited for [`PATIENCE`].
    fn busiest_late(&mut self, now: Instant) -> Option<IpAddr> {
        self.age(now);
        self.late.last().map(|(_, _, address)| *address)
    }

    /// Moves the handshakes that have waited for [`PATIENCE`] out of `young`.
    fn age(&mut self, now: Instant) {
        while let Some((&number, &(since, address))) = self.young.first_key_value()
            && since + PATIENCE <= now
        {
            self.change(address, |all| _ = all.young.remove(&number));
        }
    }

    /// Changes the handshakes of an address, and updates its rank.
    fn change(&mut self, address: IpAddr, change: impl FnOnce(&mut Self)) {
        if let Some(rank) = self.rank(address) {
            self.late.remove(&rank);
        }
        change(self);
        self.late.extend(self.rank(address));
    }

    /// `None` if the address has no handshake, or its longest-waiting one is young.
    fn rank(&self, address: IpAddr) -> Option<Rank> {
        let waiting = self.addresses.get(&address)?;
        let (number, longest) = waiting.first_key_value()?;
        let is_late = !self.young.contains_key(number);
        is_late.then_some((waiting.len(), Reverse(longest.since), address))
    }

    fn close_longest_of(&mut self, address: IpAddr) -> bool {
        let Some(waiting) = self.addresses.get(&address) else {
            return false;
        };
        let Some((&number, longest)) = waiting.first_key_value() else {
            return false;
        };
        longest.closed.notify_one();
        self.remove(address, number);
        true
    }

    fn remove(&mut self, address: IpAddr, number: u64) {
        self.change(address, |all| {
            all.young.remove(&number);
            let Some(waiting) = all.addresses.get_mut(&address) else {
                return;
            };
            if waiting.remove(&number).is_some() {
                all.count -= 1;
            }
            if waiting.is_empty() {
                all.addresses.remove(&address);
            }
        });
    }
}

fn first(waiting: &BTreeMap<u64, Waiting>) -> Option<Instant> {
    waiting.values().next().map(|longest| longest.since)
}

/// A handshake that waits for its client, until it is dropped.
#[derive(Debug)]
pub(crate) struct WaitingClient<'a> {
    handshakes: &'a WaitingHandshakes,
    address: IpAddr,
    number: u64,
    since: Instant,
    closed: Arc<Notify>,
}

impl WaitingClient<'_> {
    /// Waits until the handshake must close.
    pub(crate) async fn closed(&self) {
        self.closed.notified().await;
    }

    /// Waits for work of the proxy itself. The handshake then waits for its client again. That wait counts from the same time
    /// as before, so a client gains nothing by sending single bytes.
    pub(crate) async fn except_during<T>(&self, work: impl Future<Output = T>) -> T {
        self.leave();
        let done = work.await;
        self.add();
        done
    }

    fn leave(&self) {
        self.handshakes.all().remove(self.address, self.number);
    }

    fn add(&self) {
        let (address, number, since) = (self.address, self.number, self.since);
        let waiting = Waiting {
            since,
            closed: Arc::clone(&self.closed),
        };
        let mut all = self.handshakes.all();
        all.count += 1;
        all.change(address, |all| {
            all.young.insert(number, (since, address));
            let of_address = all.addresses.entry(address).or_default();
            of_address.insert(number, waiting);
        });
    }
}

impl Drop for WaitingClient<'_> {
    fn drop(&mut self) {
        self.leave();
    }
}

#[cfg(test)]
mod tests {
    use std::{pin::pin, task::Context, task::Poll, task::Waker};

    use super::*;

    const NO_LIMIT: WaitingLimits = WaitingLimits {
        max: u32::MAX,
        max_per_address: None,
    };

    fn address(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    fn is_closed(client: &WaitingClient<'_>) -> bool {
        let closed = pin!(client.closed());
        let polled = closed.poll(&mut Context::from_waker(Waker::noop()));
        matches!(polled, Poll::Ready(()))
    }

    /// Adds handshakes that begin to wait at these milliseconds. Returns the positions of those that `close` closes.
    fn closed_of<'a>(
        handshakes: &'a WaitingHandshakes,
        begun: &[(&str, u64)],
        close: impl FnOnce(&'a WaitingHandshakes, Instant),
    ) -> Vec<usize> {
        let start = Instant::now();
        let waiting: Vec<_> = begun
            .iter()
            .map(|(client, at)| {
                let at = start + Duration::from_millis(*at);
                handshakes.enter(address(client), NO_LIMIT, at).0
            })
            .collect();
        close(handshakes, start);
        let closed = (0..waiting.len()).filter(|i| is_closed(&waiting[*i]));
        closed.collect()
    }

    #[test]
    fn a_limit_closes_the_longest_waiting_handshake_of_the_address_with_the_most() {
        let (a, b) = ("192.0.2.1", "192.0.2.2");
        // The addresses of the waiting handshakes and when each began to wait, in ms; the two limits; then when `b` adds a
        // handshake, and the positions of the handshakes that it closes.
        type Row<'a> = (&'a [(&'a str, u64)], u32, Option<u32>, u64, &'a [usize]);
        let rows: [Row<'_>; 10] = [
            // Below the limit no handshake is closed, however long it has waited.
            (&[(a, 0), (a, 1)], 3, None, 9_000, &[]),
            (&[(b, 0), (a, 1), (a, 2)], 3, None, 9_000, &[1]),
            // With equal counts, the handshake that has waited longest is closed.
            (&[(a, 0), (b, 1)], 2, None, 9_000, &[0]),
            (&[(b, 0), (a, 1)], 2, None, 9_000, &[0]),
            // Agents that begin at once exceed the limit.
            (&[(a, 0), (a, 1), (b, 2)], 2, None, 999, &[]),
            // The overall limit closes no handshake of an address whose handshakes are all young.
            (&[(b, 0), (a, 900), (a, 901)], 3, None, 1_000, &[0]),
            // A limit that was exceeded is enforced as soon as handshakes have waited long enough.
            (
                &[(a, 0), (a, 1), (a, 2), (b, 3)],
                2,
                None,
                2_000,
                &[0, 1, 2],
            ),
            // The limit of an address closes only handshakes of that address.
            (&[(a, 0), (a, 1), (b, 2)], 9, Some(1), 9_000, &[2]),
            (&[(a, 0), (a, 1), (b, 2)], 9, Some(2), 9_000, &[]),
            (&[(b, 0), (b, 1)], 9, Some(1), 1_000, &[0]),
        ];
        for (begun, max, max_per_address, at, expected) in rows {
            let handshakes = WaitingHandshakes::default();
            let limits = WaitingLimits {
                max,
                max_per_address,
            };
            let mut made = MadeRoom::default();
            let closed = closed_of(&handshakes, begun, |handshakes, start| {
                let now = start + Duration::from_millis(at);
                made = handshakes.enter(address(b), limits, now).1;
            });
            assert_eq!(closed, expected, "{begun:?} {limits:?}");
            let by_address = max_per_address.is_some() && !closed.is_empty();
            assert_eq!(made.at_max_per_address, by_address, "{begun:?} {limits:?}");
            assert_eq!(made.at_max, !by_address && !closed.is_empty());
            assert_eq!(handshakes.count(), 0);
            assert!(handshakes.all().addresses.is_empty());
        }
    }

    #[test]
    fn a_connection_at_its_limit_waits_for_the_next_handshake_that_may_be_closed() {
        let (a, b) = ("192.0.2.1", "192.0.2.2");
        for (begun, at, closed, next) in [
            (&[][..], 500, &[][..], 1_500),
            (&[(a, 0), (b, 100)], 500, &[], 1_000),
            (&[(a, 0), (b, 100)], 1_000, &[0], 2_000),
            (&[(a, 0), (b, 100), (b, 200)], 5_000, &[1], 6_000),
        ] {
            let handshakes = WaitingHandshakes::default();
            let is = closed_of(&handshakes, begun, |handshakes, start| {
                let now = start + Duration::from_millis(at);
                let expected = start + Duration::from_millis(next);
                assert_eq!(handshakes.close_longest(now), expected, "{begun:?} {at}");
            });
            assert_eq!(is, closed, "{begun:?} {at}");
        }
    }

    #[test]
    fn each_ipv4_address_and_each_ipv6_network_has_its_own_handshakes() {
        let begun = [
            ("2001:db8::1", 0),
            ("::ffff:192.0.2.1", 0),
            ("2001:db8::2", 0),
            ("192.0.2.1", 0),
        ];
        for (client, expected) in [
            ("2001:db8::3", Some(0)),
            ("192.0.2.1", Some(1)),
            ("192.0.2.2", None),
        ] {
            let handshakes = WaitingHandshakes::default();
            let closed = closed_of(&handshakes, &begun, |handshakes, _| {
                let is_closed = handshakes.close_longest_of(address(client));
                assert_eq!(is_closed, expected.is_some(), "{client}");
            });
            assert_eq!(closed.first().copied(), expected, "{client}");
        }
    }

    /// The index finds the same handshake as a search through all addresses.
    #[test]
    fn the_index_agrees_with_a_search_of_all_addresses() {
        let handshakes = WaitingHandshakes::default();
        let (mut waiting, mut now) = (Vec::<WaitingClient<'_>>::new(), Instant::now());
        let mut state: u64 = 1;
        let mut below = |max: u64| {
            // Knuth's constants; the low bits of such a sequence repeat soon.
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 33) % max
        };
        for step in 0..5_000 {
            now += Duration::from_millis(below(40));
            match below(10) {
                7..9 if !waiting.is_empty() => {
                    let index = below(waiting.len() as u64) as usize;
                    waiting[index].leave();
                    now += Duration::from_millis(below(400));
                    waiting[index].add();
                }
                0..4 => {
                    let client = address(&format!("192.0.2.{}", below(9)));
                    waiting.push(handshakes.enter(client, NO_LIMIT, now).0);
                }
                4..7 if !waiting.is_empty() => {
                    let index = below(waiting.len() as u64) as usize;
                    drop(waiting.swap_remove(index));
                }
                _ => _ = handshakes.close_longest(now),
            }
            let mut all = handshakes.all();
            let late = all.addresses.iter().filter_map(|(address, waiting)| {
                let since = first(waiting).filter(|since| *since + PATIENCE <= now)?;
                Some((waiting.len(), Reverse(since), *address))
            });
            let searched = late.max().map(|(_, _, address)| address);
            assert_eq!(all.busiest_late(now), searched, "step {step}");
        }
        drop(waiting);
        let all = handshakes.all();
        assert!(all.young.is_empty() && all.late.is_empty() && all.addresses.is_empty());
        assert_eq!(all.count, 0);
    }
}
