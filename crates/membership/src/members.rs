//! The members over all generations: their states, their connections, and the DNS answers about them.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, OnceLock, PoisonError},
};

use arc_swap::ArcSwap;
use balancing::{Instruction, Registry};
use config::Config;
use discovery::DnsQuestion;
use proxy::Generation;
use rustls_pki_types::UnixTime;
use state::StateDirectory;
use telemetry::Metrics;
use upstream::{MemberCheck, Slots};

use crate::dns::{Answers, Lookup, StoredAnswers};

/// The members, for the life of the process.
pub struct Members {
    pub(crate) registry: Registry,
    pub(crate) metrics: Arc<Metrics>,
    /// The slots for connections to members, by pool and address.
    slots: Mutex<BTreeMap<(String, String), Arc<Slots>>>,
    /// The DNS answers about members.
    pub(crate) answers: Answers,
    /// The cell with the active generation, which requests read.
    cell: Arc<OnceLock<Arc<ArcSwap<Generation>>>>,
}

impl Members {
    /// Creates an empty set of members. A start sets `cell` to the active generation before the first commit.
    pub fn new(metrics: Arc<Metrics>, cell: Arc<OnceLock<Arc<ArcSwap<Generation>>>>) -> Self {
        Self {
            registry: Registry::default(),
            metrics,
            slots: Mutex::default(),
            answers: Answers::default(),
            cell,
        }
    }

    /// Members for a preparation that may not become active: they start with the same DNS answers, and leave these
    /// members, the metrics and the alarms of the process as they are.
    #[must_use]
    pub fn for_preparation(&self) -> Self {
        Self {
            answers: self.answers.copy(),
            ..Self::new(Arc::default(), Arc::clone(&self.cell))
        }
    }

    /// Restores the DNS answers that an earlier process stored. Pools are built from these answers, so this must be called
    /// first.
    ///
    /// # Errors
    /// Why the answers cannot be read.
    pub fn restore_answers(&self, directory: &StateDirectory) -> Result<(), String> {
        self.answers.restore(StoredAnswers::read(directory)?);
        Ok(())
    }

    /// Looks up the `wanted` names of a configuration for which a pool has no answer, within a limit. Members that are not
    /// known by then join their pools later. [`learn`](Self::learn) makes pools use the results.
    pub async fn look_up_new(
        &self,
        config: &Config,
        wanted: impl Fn(&DnsQuestion) -> bool,
    ) -> Vec<Lookup> {
        self.answers.look_up_new(config, wanted).await
    }

    /// Accepts or refuses the results of lookups, by the rules of each pool. Answers that cannot be used are alarms.
    pub fn learn(&self, config: &Config, lookups: &[Lookup]) {
        let alarms = Some(&*self.metrics.alarms);
        self.answers.learn(config, lookups, alarms);
    }

    /// As [`learn`](Self::learn), without alarms, for a preparation.
    pub fn assume(&self, config: &Config, lookups: &[Lookup]) {
        self.answers.learn(config, lookups, None);
    }

    /// The metrics of these members, with the alarms about their answers.
    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    /// The DNS answers about members.
    pub fn answers(&self) -> &Answers {
        &self.answers
    }

    /// The administrative state that an operator has set for a member.
    pub fn instruction(&self, pool: &str, address: &str) -> Option<Instruction> {
        self.registry.instruction(pool, address)
    }

    pub(crate) fn slots(&self, pool: &str, address: &str) -> Arc<Slots> {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(
            slots
                .entry((pool.to_owned(), address.to_owned()))
                .or_default(),
        )
    }

    /// Refuses members whose certificate the active CRLs revoke or the operator blocks. The trust store of a pool does not have
    /// the CRLs that were fetched.
    pub(crate) fn member_check(&self) -> MemberCheck {
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
    pub fn connections(&self, pool: &str, address: &str) -> u32 {
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
}
