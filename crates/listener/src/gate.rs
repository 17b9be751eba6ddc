//! A limit over all workers, whose maximum may change with the configuration.

use std::{
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

use tokio::sync::Notify;

use crate::per_address::AddressPermit;

/// Counts permits. [`enter`](Self::enter) waits while the count is at the limit.
#[derive(Debug, Default)]
pub struct Gate {
    inside: AtomicU32,
    freed: Notify,
}

impl Gate {
    /// Takes a slot. `None` if all `max` are taken.
    pub fn try_enter(self: &Arc<Self>, max: u32) -> Option<Permit> {
        self.inside
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |inside| {
                (inside < max).then_some(inside + 1)
            })
            .ok()
            .map(|_| Permit {
                gate: Arc::clone(self),
                clients: None,
                address: None,
            })
    }

    /// Takes a slot, after a wait if all are taken. `limit` is read again each time a slot is freed.
    pub async fn enter(self: &Arc<Self>, limit: impl Fn() -> u32) -> Permit {
        loop {
            // Registered before the attempt, so that a slot that is freed in between is noticed. Otherwise two slots that are
            // freed at once could wake only one of two callers.
            let mut freed = pin!(self.freed.notified());
            freed.as_mut().enable();
            if let Some(permit) = self.try_enter(limit()) {
                return permit;
            }
            freed.await;
        }
    }

    /// How many slots are taken.
    pub fn inside(&self) -> u32 {
        self.inside.load(Ordering::Relaxed)
    }

    /// Wakes all waiting callers, so that they read a changed limit.
    pub fn limit_changed(&self) {
        self.freed.notify_waiters();
    }
}

/// Slots for the clients of all listeners. Each client may need two descriptors: its own, and one of a member.
#[derive(Debug)]
pub struct ClientSlots {
    gate: Arc<Gate>,
    max: AtomicU32,
}

impl Default for ClientSlots {
    fn default() -> Self {
        Self {
            gate: Arc::default(),
            max: AtomicU32::new(u32::MAX),
        }
    }
}

impl ClientSlots {
    /// Maximum number of clients. No maximum by default.
    pub fn max(&self) -> u32 {
        self.max.load(Ordering::Relaxed)
    }

    /// Sets the maximum. Clients above it stay.
    pub fn set_max(&self, max: u32) {
        self.max.store(max, Ordering::Relaxed);
        self.gate.limit_changed();
    }

    /// How many clients are connected.
    pub fn inside(&self) -> u32 {
        self.gate.inside()
    }

    pub(crate) fn gate(&self) -> &Arc<Gate> {
        &self.gate
    }
}

/// A slot of a [`Gate`], freed on drop.
#[derive(Debug)]
pub struct Permit {
    gate: Arc<Gate>,
    /// The slot among the clients of all listeners, freed together with this one.
    clients: Option<Box<Self>>,
    /// The slot of the client's address, freed together with this one.
    address: Option<AddressPermit>,
}

impl Permit {
    /// Adds a slot among all clients, to be freed together with this one.
    pub(crate) fn among_clients(mut self, slot: Self) -> Self {
        self.clients = Some(Box::new(slot));
        self
    }

    /// Adds the slot of the client's address, to be freed together with this one.
    pub(crate) fn at(mut self, address: Option<AddressPermit>) -> Self {
        self.address = address;
        self
    }

    pub(crate) fn set_address(&mut self, address: Option<AddressPermit>) {
        self.address = address;
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.gate.inside.fetch_sub(1, Ordering::AcqRel);
        self.gate.freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_gate_admits_no_connection_until_a_permit_is_dropped() {
        let gate = Arc::new(Gate::default());
        let first = gate.try_enter(1).expect("an empty gate has room");
        assert!(gate.try_enter(1).is_none());
        drop(first);
        assert!(gate.try_enter(1).is_some());
        assert_eq!(gate.inside(), 0);
    }
}
