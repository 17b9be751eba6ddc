//! What lives as long as the process, over all generations.

use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;
use config::Config;
use membership::Members;
use pki::TicketKeys;
use proxy::Generation;
use telemetry::Metrics;

/// Objects that live as long as the process, over all generations.
pub(crate) struct Lasting {
    pub(crate) members: Arc<Members>,
    pub(crate) metrics: Arc<Metrics>,
    pub(super) tickets: TicketKeys,
    /// The cell with the active generation, which requests and handshakes read. A start sets it before the first commit.
    pub(crate) cell: Arc<OnceLock<Arc<ArcSwap<Generation>>>>,
}

impl Default for Lasting {
    fn default() -> Self {
        let (metrics, cell) = (Arc::default(), Arc::default());
        Self {
            members: Arc::new(Members::new(Arc::clone(&metrics), Arc::clone(&cell))),
            metrics,
            tickets: TicketKeys::default(),
            cell,
        }
    }
}

impl Lasting {
    /// What a preparation uses in place of these objects, so that it leaves them as they are: members with the same DNS answers,
    /// other metrics and other ticket keys.
    pub(crate) fn for_preparation(&self) -> Self {
        let members = self.members.for_preparation();
        Self {
            metrics: Arc::clone(members.metrics()),
            members: Arc::new(members),
            tickets: TicketKeys::default(),
            cell: Arc::clone(&self.cell),
        }
    }

    /// Forgets the ticket keys of listeners that are not configured.
    pub(crate) fn forget_listeners(&self, named: &Config) {
        let listeners = &named.listeners;
        self.tickets
            .retain(|name| listeners.iter().any(|listener| listener.name == name));
    }
}
