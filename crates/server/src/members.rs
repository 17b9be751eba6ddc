//! Members while the process runs: probes, administrative states, members from DNS, and rules about their hosts.

pub(crate) mod administrative;
pub(crate) mod agent_checks;
pub(crate) mod ca_writer;
pub(crate) mod discovery;
pub mod jrubies;
pub(crate) mod persistence_key;
pub(crate) mod probed_member;
pub(crate) mod probes;

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// What concurrent changes of administrative states share.
#[derive(Debug, Default)]
pub(crate) struct StateChanges {
    /// Changes run one after the other: of two concurrent drains, the second must see that the first left one member.
    changing: Mutex<()>,
    /// Locked while the states are written to the state directory.
    pub(crate) storing: tokio::sync::Mutex<()>,
    /// Notified after each change, because another member may be the next to become ready.
    pub(crate) changed: Notify,
}

impl StateChanges {
    /// Waits for the change that runs, and excludes others until the guard is dropped.
    pub(crate) fn lock(&self) -> MutexGuard<'_, ()> {
        self.changing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
