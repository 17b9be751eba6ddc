//! A counted limit shared by all workers whose maximum may change with the configuration.

use std::{
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

use tokio::sync::Notify;

use crate::per_address::AddressPermit;

/// Counts what is inside; `enter` waits while the count is at the limit.
#[derive(Debug, Default)]
pub struct Gate {
    inside: AtomicU32,
    freed: Notify,
}

impl Gate {
    /// Takes a place, or says that all `max` are taken.
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

    /// Takes a place, waiting for one where all are taken. `limit` is asked again each time a place is freed.
    pub async fn enter(self: &Arc<Self>, limit: impl Fn() -> u32) -> Permit {
        loop {
            // Registered before the attempt, so that a place freed in between is not missed: without that, two freed at
            // once would leave one call for two that are about to wait.
            let mut freed = pin!(self.freed.notified());
            freed.as_mut().enable();
            if let Some(permit) = self.try_enter(limit()) {
                return permit;
            }
            freed.await;
        }
    }

    /// How many places are taken.
    pub fn inside(&self) -> u32 {
        self.inside.load(Ordering::Relaxed)
    }

    /// Wakes those that wait, so that they see a changed limit.
    pub fn limit_changed(&self) {
        self.freed.notify_waiters();
    }
}

/// A place in a [`Gate`], given back on drop.
#[derive(Debug)]
pub struct Permit {
    gate: Arc<Gate>,
    /// Held, never read.
    address: Option<AddressPermit>,
}

impl Permit {
    /// The same with the place that the client's address has, to be given back with it.
    pub(crate) fn at(mut self, address: Option<AddressPermit>) -> Self {
        self.address = address;
        self
    }

    /// Adds the place that the client's address has.
    pub(crate) fn place(&mut self, address: Option<AddressPermit>) {
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
    fn a_full_gate_admits_nobody_until_a_permit_is_dropped() {
        let gate = Arc::new(Gate::default());
        let first = gate.try_enter(1).expect("an empty gate has room");
        assert!(gate.try_enter(1).is_none());
        drop(first);
        assert!(gate.try_enter(1).is_some());
        assert_eq!(gate.inside(), 0);
    }
}
