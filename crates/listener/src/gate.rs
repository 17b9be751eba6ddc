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
                address: None,
            })
    }

    /// Takes a slot, after a wait if all are taken. `limit` is read again each time a slot is freed.
    pub async fn enter(self: &Arc<Self>, limit: impl Fn() -> u32) -> Permit {
        loop {
            // Registered before the attempt, so that a slot that is freed in between is not missed. Otherwise two slots
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

/// A slot of a [`Gate`], freed on drop.
#[derive(Debug)]
pub struct Permit {
    gate: Arc<Gate>,
    /// The slot of the client's address, freed together with this one.
    address: Option<AddressPermit>,
}

impl Permit {
    /// Adds the slot of the client's address, to be freed together with this one.
    pub(crate) fn at(mut self, address: Option<AddressPermit>) -> Self {
        self.address = address;
        self
    }

    /// Sets the slot of the client's address.
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
