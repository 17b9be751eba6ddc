//! Limits per client address, so that one address cannot use up a listener.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use balancing::counted_as;

/// A count per address, for all workers. Only addresses with a counted client have an entry.
#[derive(Debug, Default)]
pub struct AddressGate {
    addresses: Mutex<HashMap<IpAddr, u32>>,
}

impl AddressGate {
    /// Takes a slot for this address (IPv6: for its /64 network). `None` if the address already has `max` slots.
    pub fn try_enter(self: &Arc<Self>, client: IpAddr, max: u32) -> Option<AddressPermit> {
        let address = counted_as(client);
        let mut addresses = self.addresses();
        if addresses.get(&address).copied().unwrap_or_default() >= max {
            return None;
        }
        *addresses.entry(address).or_default() += 1;
        Some(AddressPermit {
            gate: Arc::clone(self),
            address,
        })
    }

    fn leave(&self, address: IpAddr) {
        let mut addresses = self.addresses();
        let Some(inside) = addresses.get_mut(&address) else {
            return;
        };
        *inside -= 1;
        if *inside == 0 {
            addresses.remove(&address);
        }
    }

    /// A panic elsewhere leaves the counts intact.
    fn addresses(&self) -> MutexGuard<'_, HashMap<IpAddr, u32>> {
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
        self.gate.leave(self.address);
    }
}

#[cfg(test)]
mod tests {
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
}
