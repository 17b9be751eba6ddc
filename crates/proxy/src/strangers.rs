//! Limits for clients without a verified certificate at the CA: on their rate, and on their requests in flight. One address may
//! hold at most as many slots as remain free, so that it cannot block other addresses.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use balancing::{RateExceeded, RateLimiter, RateScope, Rates, counted_as};

/// Limits for clients without a verified certificate at the CA, for all workers and generations.
#[derive(Debug)]
pub(crate) struct Strangers {
    rates: RateLimiter,
    slots: Arc<StrangerSlots>,
}

impl Strangers {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            rates: RateLimiter::new(seed),
            slots: Arc::default(),
        }
    }

    /// Counts a request. `now`: time since start.
    ///
    /// # Errors
    /// The client's address, or all such clients together, send too many requests.
    pub(crate) fn count(
        &self,
        rates: &Rates,
        client: IpAddr,
        now: Duration,
        random: u64,
    ) -> Result<(), RateExceeded> {
        self.rates.count(rates, client, now, random)
    }

    /// Takes a slot of the CA. All such clients together may hold `max` slots.
    ///
    /// # Errors
    /// All slots, or all that one address may hold, are in use.
    pub(crate) fn take_slot(&self, client: IpAddr, max: u32) -> Result<StrangerSlot, SlotsFull> {
        self.slots.take(client, max)
    }
}

/// The slots in use, of all workers and generations.
#[derive(Debug, Default)]
pub(crate) struct StrangerSlots(Mutex<UsedSlots>);

#[derive(Debug, Default)]
struct UsedSlots {
    all: u32,
    /// The number of slots by address. There are no more entries than slots.
    by_source: HashMap<IpAddr, u32>,
}

/// A slot at the CA. Dropping this value releases the slot.
#[derive(Debug)]
pub(crate) struct StrangerSlot {
    slots: Arc<StrangerSlots>,
    source: IpAddr,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlotsFull {
    /// Whether all slots are in use, or all that one address may hold.
    pub(crate) of: RateScope,
    pub(crate) max: u32,
}

impl StrangerSlots {
    /// Takes one of `max` slots for a client with this address.
    pub(crate) fn take(
        self: &Arc<Self>,
        client: IpAddr,
        max: u32,
    ) -> Result<StrangerSlot, SlotsFull> {
        let source = counted_as(client);
        let mut used = self.used();
        let held_by_address = used.by_source.get(&source).copied().unwrap_or(0);
        let free = max.saturating_sub(used.all);
        if free == 0 {
            return Err(SlotsFull {
                of: RateScope::Total,
                max,
            });
        }
        // The first address can get half of the slots, the second address half of the rest, and so on.
        if held_by_address >= free {
            return Err(SlotsFull {
                of: RateScope::Address,
                max: held_by_address,
            });
        }
        used.all += 1;
        used.by_source.insert(source, held_by_address + 1);
        drop(used);
        Ok(StrangerSlot {
            slots: Arc::clone(self),
            source,
        })
    }

    /// A panic in another thread leaves valid numbers.
    fn used(&self) -> MutexGuard<'_, UsedSlots> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for StrangerSlot {
    fn drop(&mut self) {
        let mut used = self.slots.used();
        used.all -= 1;
        if let Some(held_by_address) = used.by_source.get_mut(&self.source) {
            *held_by_address -= 1;
            if *held_by_address == 0 {
                used.by_source.remove(&self.source);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn one_address_has_half_and_a_network_of_ipv6_is_one_address() {
        let slots = Arc::new(StrangerSlots::default());
        let take = |text| slots.take(address(text), 6);
        let full = |of, max| Some(SlotsFull { of, max });
        let mut held: Vec<_> = ["2001:db8::1", "2001:db8::2", "2001:db8::ffff:3"]
            .map(|text| take(text).expect("a slot"))
            .into();
        assert_eq!(take("2001:db8::4").err(), full(RateScope::Address, 3));
        held.push(take("192.0.2.1").expect("a slot"));
        held.push(take("::ffff:192.0.2.1").expect("a slot"));
        assert_eq!(take("192.0.2.1").err(), full(RateScope::Address, 2));
        held.push(take("198.51.100.1").expect("the last slot"));
        assert_eq!(take("203.0.113.1").err(), full(RateScope::Total, 6));
        held.remove(0);
        held.push(take("203.0.113.1").expect("a slot that was released"));
        held.clear();
        assert!(slots.used().by_source.is_empty());
        assert_eq!(slots.used().all, 0);
    }

    #[test]
    fn each_further_address_has_half_of_what_is_left() {
        let slots = Arc::new(StrangerSlots::default());
        let mut held = Vec::new();
        let had = [1u8, 2, 3, 4, 5, 6, 7].map(|n| {
            let before = held.len();
            while let Ok(slot) = slots.take([192, 0, 2, n].into(), 64) {
                held.push(slot);
            }
            held.len() - before
        });
        assert_eq!(had, [32, 16, 8, 4, 2, 1, 1]);
        held.drain(..40);
        let first = [192, 0, 2, 1].into();
        assert!(slots.take(first, 64).is_ok(), "a released slot counts");
    }

    #[test]
    fn any_client_may_hold_a_single_slot() {
        let slots = Arc::new(StrangerSlots::default());
        let held = slots.take(address("192.0.2.1"), 1).expect("a slot");
        assert!(slots.take(address("192.0.2.2"), 1).is_err());
        drop(held);
        assert!(slots.take(address("192.0.2.2"), 1).is_ok());
    }
}
