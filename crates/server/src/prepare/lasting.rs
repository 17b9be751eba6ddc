//! What lives as long as the process, over all generations.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, OnceLock, PoisonError},
};

use arc_swap::ArcSwap;
use balancing::Registry;
use config::Config;
use pki::TicketKeys;
use proxy::Generation;
use rustls_pki_types::UnixTime;
use telemetry::Metrics;
use upstream::{MemberCheck, Slots};

use crate::dns::Answers;

/// What lives as long as the process, over all generations.
#[derive(Default)]
pub(crate) struct Lasting {
    pub(crate) registry: Registry,
    pub(crate) metrics: Arc<Metrics>,
    pub(super) tickets: TicketKeys,
    /// The slots for connections to members, by pool and address.
    slots: Mutex<BTreeMap<(String, String), Arc<Slots>>>,
    /// The answers of DNS about members.
    pub(crate) answers: Answers,
    /// The cell with the active generation, which requests and handshakes read. A start sets it before the first commit.
    pub(crate) cell: Arc<OnceLock<Arc<ArcSwap<Generation>>>>,
}

impl Lasting {
    pub(super) fn slots(&self, pool: &str, address: &str) -> Arc<Slots> {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(
            slots
                .entry((pool.to_owned(), address.to_owned()))
                .or_default(),
        )
    }

    /// Refuses members whose certificate the active CRLs revoke or the operator blocks. The trust store of a pool does not have
    /// the CRLs that were fetched.
    pub(super) fn member_check(&self) -> MemberCheck {
        let (cell, same) = (Arc::clone(&self.cell), Arc::clone(&self.cell));
        MemberCheck::new(
            move || cell.get().map_or(0, |cell| cell.load().trust.generation()),
            move |own| match same.get() {
                Some(cell) => cell.load().trust.check_member(own, UnixTime::now()),
                None => Ok(()),
            },
        )
    }

    /// Connections that are open to a member, over all workers and generations.
    pub(crate) fn connections(&self, pool: &str, address: &str) -> u32 {
        self.slots(pool, address).open()
    }

    /// Forgets members and pools that the active generation does not name, with their metrics. The counts of a member stay
    /// while a connection is open to it.
    pub(crate) fn forget(&self, active: &Generation) {
        let pools = &active.pools;
        let named = |pool: &str, address: &str| active.names_member(pool, address);
        self.registry.retain(named);
        let names_pool = |pool: &str| pools.iter().any(|named| **named.pool.name() == *pool);
        self.metrics.retain_pools(|pool, member| match member {
            Some(address) => named(pool, address),
            None => names_pool(pool),
        });
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        slots.retain(|(pool, address), slots| named(pool, address) || slots.open() > 0);
    }

    /// Forgets the ticket keys of listeners that are not configured.
    pub(crate) fn forget_listeners(&self, named: &Config) {
        let listeners = &named.listeners;
        self.tickets
            .retain(|name| listeners.iter().any(|listener| listener.name == name));
    }
}
