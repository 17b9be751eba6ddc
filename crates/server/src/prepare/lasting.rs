//! What outlasts every generation.

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

/// What lives as long as the process and outlasts every generation.
#[derive(Default)]
pub(crate) struct Lasting {
    pub(crate) registry: Registry,
    pub(crate) metrics: Arc<Metrics>,
    pub(super) tickets: TicketKeys,
    /// Connections to members, by pool and address.
    slots: Mutex<BTreeMap<(String, String), Arc<Slots>>>,
    /// What DNS answered about members.
    pub(crate) answers: Answers,
    /// The cell that requests and handshakes read; set at the first commit.
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

    /// Whom the lists in force revoke, or the operator blocks, is no member either: those that were fetched are in no file.
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

    /// Connections open to a member, over all workers and generations.
    pub(crate) fn connections(&self, pool: &str, address: &str) -> u32 {
        self.slots(pool, address).open()
    }

    /// Forgets counts of members that the active generation does not name and that have no connection left, and their
    /// metrics and those of its pools.
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

    /// Forgets the keys of tickets of listeners that no configuration names.
    pub(crate) fn forget_listeners(&self, named: &Config) {
        let listeners = &named.listeners;
        self.tickets
            .retain(|name| listeners.iter().any(|listener| listener.name == name));
    }
}
