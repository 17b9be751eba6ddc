//! StrangerSlots at the CA for requests of clients without a verified certificate: so many in all, and for one address no more
//! than are left to the others, so that who keeps all that it may have keeps them from nobody elsewhere.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use balancing::{RateExceeded, RateLimiter, RateScope, Rates, counted_as};

/// Limits for clients without a verified certificate at the CA, over all workers and generations.
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

    /// Takes a slot of the CA, of which all such clients together may hold `max`.
    ///
    /// # Errors
    /// All of them, or all that one address may hold, are in use.
    pub(crate) fn take_slot(&self, client: IpAddr, max: u32) -> Result<StrangerSlot, SlotsFull> {
        self.slots.take(client, max)
    }
}

/// Who has how many, over all workers and generations.
#[derive(Debug, Default)]
pub(crate) struct StrangerSlots(Mutex<Taken>);

#[derive(Debug, Default)]
struct Taken {
    all: u32,
    /// Of each address that has any: no more entries than places.
    by_source: HashMap<IpAddr, u32>,
}

/// A place; dropping it gives it back.
#[derive(Debug)]
pub(crate) struct StrangerSlot {
    places: Arc<StrangerSlots>,
    source: IpAddr,
}

/// There is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlotsFull {
    /// Whose places are all taken.
    pub(crate) of: RateScope,
    /// How many those are.
    pub(crate) max: u32,
}

impl StrangerSlots {
    /// Takes one for a client of this address, of so many in all.
    pub(crate) fn take(
        self: &Arc<Self>,
        client: IpAddr,
        max: u32,
    ) -> Result<StrangerSlot, SlotsFull> {
        let source = counted_as(client);
        let mut taken = self.taken();
        let its = taken.by_source.get(&source).copied().unwrap_or(0);
        let free = max.saturating_sub(taken.all);
        if free == 0 {
            return Err(SlotsFull {
                of: RateScope::Total,
                max,
            });
        }
        // By itself an address comes to half of them, a second one to half of what is left, and so on.
        if its >= free {
            return Err(SlotsFull {
                of: RateScope::Address,
                max: its,
            });
        }
        taken.all += 1;
        taken.by_source.insert(source, its + 1);
        drop(taken);
        Ok(StrangerSlot {
            places: Arc::clone(self),
            source,
        })
    }

    /// A panic elsewhere leaves whole numbers behind.
    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for StrangerSlot {
    fn drop(&mut self) {
        let mut taken = self.places.taken();
        taken.all -= 1;
        if let Some(its) = taken.by_source.get_mut(&self.source) {
            *its -= 1;
            if *its == 0 {
                taken.by_source.remove(&self.source);
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
        let places = Arc::new(StrangerSlots::default());
        let take = |text| places.take(address(text), 6);
        let full = |of, max| Some(SlotsFull { of, max });
        let mut held: Vec<_> = ["2001:db8::1", "2001:db8::2", "2001:db8::ffff:3"]
            .map(|text| take(text).expect("a place"))
            .into();
        assert_eq!(take("2001:db8::4").err(), full(RateScope::Address, 3));
        held.push(take("192.0.2.1").expect("a place"));
        held.push(take("::ffff:192.0.2.1").expect("a place"));
        assert_eq!(take("192.0.2.1").err(), full(RateScope::Address, 2));
        held.push(take("198.51.100.1").expect("the last place"));
        assert_eq!(take("203.0.113.1").err(), full(RateScope::Total, 6));
        held.remove(0);
        held.push(take("203.0.113.1").expect("a place that was given back"));
        held.clear();
        assert!(places.taken().by_source.is_empty());
        assert_eq!(places.taken().all, 0);
    }

    #[test]
    fn each_further_address_has_half_of_what_is_left() {
        let places = Arc::new(StrangerSlots::default());
        let mut held = Vec::new();
        let had = [1u8, 2, 3, 4, 5, 6, 7].map(|n| {
            let before = held.len();
            while let Ok(place) = places.take([192, 0, 2, n].into(), 64) {
                held.push(place);
            }
            held.len() - before
        });
        assert_eq!(had, [32, 16, 8, 4, 2, 1, 1]);
        held.drain(..40);
        let first = [192, 0, 2, 1].into();
        assert!(places.take(first, 64).is_ok(), "what is given back counts");
    }

    #[test]
    fn of_a_single_place_anybody_may_have_it() {
        let places = Arc::new(StrangerSlots::default());
        let held = places.take(address("192.0.2.1"), 1).expect("a place");
        assert!(places.take(address("192.0.2.2"), 1).is_err());
        drop(held);
        assert!(places.take(address("192.0.2.2"), 1).is_ok());
    }
}
