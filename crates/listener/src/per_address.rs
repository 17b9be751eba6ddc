//! Limits per client address, so that one address cannot use up a listener.

use std::{
    collections::HashMap,
    net::IpAddr,
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use balancing::counted_as;
use tokio::sync::Notify;

/// A count per address over all workers. Only addresses with a counted or waiting client have an entry.
#[derive(Debug, Default)]
pub struct AddressGate {
    addresses: Mutex<HashMap<IpAddr, Entry>>,
}

/// The state of one address.
#[derive(Debug, Default)]
struct Entry {
    inside: u32,
    waiting: u32,
    /// Wakes one waiting client at a time. A freed slot must not wake every client behind one address.
    freed: Arc<Notify>,
}

impl AddressGate {
    /// Takes a slot for this address (IPv6: for its /64 network). `None` if the address has `max` already.
    pub fn try_enter(self: &Arc<Self>, client: IpAddr, max: u32) -> Option<AddressPermit> {
        let address = counted_as(client);
        let mut addresses = self.addresses();
        let inside = addresses.get(&address).map_or(0, |entry| entry.inside);
        if inside >= max {
            return None;
        }
        addresses.entry(address).or_default().inside += 1;
        Some(AddressPermit {
            gate: Arc::clone(self),
            address,
        })
    }

    /// Takes a slot for this address, after a wait while the address has `max()` of them.
    pub async fn enter(self: &Arc<Self>, client: IpAddr, max: impl Fn() -> u32) -> AddressPermit {
        if let Some(permit) = self.try_enter(client, max()) {
            return permit;
        }
        let waiter = self.wait_as(counted_as(client));
        loop {
            // Registered before the attempt, so that a slot that is freed in between is not missed.
            let mut freed = pin!(waiter.freed.notified());
            freed.as_mut().enable();
            if let Some(permit) = self.try_enter(client, max()) {
                return permit;
            }
            freed.await;
        }
    }

    fn wait_as(self: &Arc<Self>, address: IpAddr) -> Waiter<'_> {
        let mut addresses = self.addresses();
        let entry = addresses.entry(address).or_default();
        entry.waiting += 1;
        Waiter {
            gate: self,
            address,
            freed: Arc::clone(&entry.freed),
        }
    }

    /// Decrements a count of this address, and wakes its next client.
    fn leave(&self, address: IpAddr, count: impl FnOnce(&mut Entry) -> &mut u32) {
        let mut addresses = self.addresses();
        let Some(entry) = addresses.get_mut(&address) else {
            return;
        };
        *count(entry) -= 1;
        if entry.waiting > 0 {
            entry.freed.notify_one();
        } else if entry.inside == 0 {
            addresses.remove(&address);
        }
    }

    /// A panic elsewhere leaves the counts intact.
    fn addresses(&self) -> MutexGuard<'_, HashMap<IpAddr, Entry>> {
        self.addresses
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// A slot of an address, freed on drop.
#[derive(Debug)]
pub struct AddressPermit {
    gate: Arc<AddressGate>,
    address: IpAddr,
}

impl Drop for AddressPermit {
    fn drop(&mut self) {
        self.gate.leave(self.address, |entry| &mut entry.inside);
    }
}

/// A client that waits for a slot of its address. When it stops waiting, the next one tries, because a reload may have
/// raised the limit by more than one.
struct Waiter<'a> {
    gate: &'a AddressGate,
    address: IpAddr,
    freed: Arc<Notify>,
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        self.gate.leave(self.address, |entry| &mut entry.waiting);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use tokio::sync::mpsc;

    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn each_ipv4_address_and_each_ipv6_network_has_its_own_count() {
        let gate = Arc::new(AddressGate::default());
        let enter = |text| gate.try_enter(address(text), 2);
        let held = [enter("2001:db8::1"), enter("2001:db8::2")];
        assert!(held.iter().all(Option::is_some));
        assert!(enter("2001:db8::3").is_none());
        let other = [enter("192.0.2.1"), enter("::ffff:192.0.2.1")];
        assert!(other.iter().all(Option::is_some));
        assert!(enter("192.0.2.1").is_none());
        drop(held);
        assert!(enter("2001:db8::3").is_some());
        drop(other);
        assert!(gate.addresses().is_empty());
    }

    #[tokio::test]
    async fn a_client_beyond_the_limit_waits_for_its_own_address() {
        let gate = Arc::new(AddressGate::default());
        let held = gate.try_enter(address("192.0.2.1"), 1);
        let mut waiting = Box::pin(gate.enter(address("192.0.2.1"), || 1));
        let polled = std::future::poll_fn(|cx| {
            std::task::Poll::Ready(waiting.as_mut().poll(cx).is_pending())
        });
        assert!(polled.await);
        drop(held);
        drop(waiting.await);
        assert!(gate.addresses().is_empty());
    }

    /// Waiting clients of several addresses, the limit, and how often they read it.
    struct Herd {
        gate: Arc<AddressGate>,
        max: Arc<AtomicU32>,
        tries: Arc<AtomicU32>,
        entered: mpsc::Receiver<AddressPermit>,
    }

    impl Herd {
        fn of(gate: &Arc<AddressGate>, addresses: &[&str]) -> Self {
            let (max, tries) = (Arc::new(AtomicU32::new(1)), Arc::default());
            let (enters, entered) = mpsc::channel(8);
            for text in addresses {
                let (gate, client, enters) = (Arc::clone(gate), address(text), enters.clone());
                let (max, tries) = (Arc::clone(&max), Arc::<AtomicU32>::clone(&tries));
                tokio::spawn(async move {
                    let limit = || {
                        tries.fetch_add(1, Ordering::Relaxed);
                        max.load(Ordering::Relaxed)
                    };
                    let _ = enters.send(gate.enter(client, limit).await).await;
                });
            }
            Self {
                gate: Arc::clone(gate),
                max,
                tries,
                entered,
            }
        }

        /// Lets every client that was woken try. Returns how often they tried.
        async fn tries(&self) -> u32 {
            for _ in 0..20 {
                tokio::task::yield_now().await;
            }
            self.tries.swap(0, Ordering::Relaxed)
        }
    }

    #[tokio::test]
    async fn a_freed_slot_wakes_one_client_of_its_address() {
        let gate = Arc::new(AddressGate::default());
        let [first, second] =
            ["192.0.2.1", "192.0.2.2"].map(|text| gate.try_enter(address(text), 1));
        let waiting = [&["192.0.2.1"; 8][..], &["192.0.2.2"]].concat();
        let mut herd = Herd::of(&gate, &waiting);
        herd.tries().await;
        drop(first);
        // The client that enters wakes the next one, whose attempt fails.
        assert_eq!(herd.tries().await, 2);
        let entered = herd.entered.try_recv().expect("there is a place");
        // The raised limit has room for all waiting clients of that address, and each wakes the next.
        herd.max.store(3, Ordering::Relaxed);
        drop(entered);
        assert_eq!(herd.tries().await, 4);
        let entered = [(); 3].map(|()| herd.entered.try_recv());
        assert!(entered.iter().all(Result::is_ok));
        drop((entered, second));
        for _ in 0..5 {
            herd.tries().await;
            drop(herd.entered.try_recv().expect("each has had a place"));
        }
        assert!(herd.gate.addresses().is_empty());
    }
}
