//! Which members the pools have, and in which state they are: probes, agent checks, JRubies, administrative states, and
//! members from DNS.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "it reads the clock and stores states for the next start"
)]

mod administrative;
mod agent_checks;
mod ca_writer;
mod discovery;
mod dns;
pub mod jrubies;
mod members;
pub mod persistence_key;
mod pool_members;
mod pools;
mod probed_member;
mod probes;
mod slow_members;
mod status;
mod traffic;

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use balancing::MemberName;
use proxy::Generation;
use state::{
    Active, Foundation, OperatorRecords, StateDirectory, stored_states, supervise::blocking,
};
use tokio::sync::Notify;

pub use administrative::{ChangedStates, Selected, in_pool};
pub use dns::{Answers, Lookup, questions};
pub use members::Members;
use probes::Probes;
pub use probes::{AnsweredProbe, first as first_probes};
pub use status::{REQUESTS_NAMED_MAX, TUNNELS_NAMED_MAX};
use traffic::TrafficWindows;

/// The members of the running process.
pub struct Membership {
    active: Arc<Active>,
    members: Arc<Members>,
    directory: Arc<StateDirectory>,
    records: Arc<OperatorRecords>,
    changes: StateChanges,
    probes: Mutex<Probes>,
    traffic: TrafficWindows,
    /// Members that another proxy has drained, and that are the last available ones here.
    withheld: Mutex<BTreeSet<MemberName>>,
}

/// What concurrent changes of administrative states share.
#[derive(Debug, Default)]
struct StateChanges {
    /// Changes run one after the other: of two concurrent drains, the second must see that the first left one member.
    changing: Mutex<()>,
    /// Locked while the states are written to the state directory.
    storing: tokio::sync::Mutex<()>,
    /// Notified after each change, because another member may be the next to become ready.
    changed: Notify,
}

impl Membership {
    /// Nothing is probed before the first commit.
    pub fn new(
        active: Arc<Active>,
        members: Arc<Members>,
        directory: Arc<StateDirectory>,
        records: Arc<OperatorRecords>,
    ) -> Self {
        Self {
            active,
            members,
            directory,
            records,
            changes: StateChanges::default(),
            probes: Mutex::default(),
            traffic: TrafficWindows::default(),
            withheld: Mutex::default(),
        }
    }

    /// Gives the members of a generation that is about to serve the states that they had. Members in `answered` start with one
    /// passed probe. Returns whether instructions have moved to other members.
    pub fn adopt(&self, generation: &Generation, answered: &[AnsweredProbe]) -> bool {
        let are_states_moved = self.members.inherit_states(generation);
        probes::adopt(generation, self.active.shared(), answered);
        are_states_moved
    }

    /// Follows a commit: probes the members of its generation, and forgets all others.
    pub fn committed(
        &self,
        generation: &Generation,
        foundation: &Foundation,
        answered: &[AnsweredProbe],
    ) {
        self.forget_removed(generation);
        self.assess_ca_writer(generation, foundation);
        *self.probes() = Probes::start(generation, self.active.shared(), answered);
    }

    /// Notes that a reload is finished, because the configuration may name other members.
    pub fn reloaded(&self) {
        self.members.answers().configured.notify_one();
    }

    /// Forgets what is known about members that the active generation does not name.
    pub fn forget_removed(&self, generation: &Generation) {
        self.members.forget(generation);
        let named = |pool: &str, address: &str| generation.names_member(pool, address);
        let shared = self.active.shared();
        shared.members.retain(named);
        self.traffic.follow(generation, shared);
        shared.assess_clocks();
    }

    /// Stores again what could not be written to the state directory.
    pub async fn store_missing(&self) {
        let lacks = |name| self.directory.lacks(name);
        if lacks(stored_states::FILE) {
            self.store_states().await;
        }
        if lacks(dns::FILE) {
            self.store_answers().await;
        }
        if lacks(persistence_key::FILE) {
            let directory = Arc::clone(&self.directory);
            let shared = Arc::clone(self.active.shared());
            let write = move || persistence_key::write(&directory, &shared.persistence);
            blocking("store-persistence-key", write).await;
        }
    }

    fn probes(&self) -> MutexGuard<'_, Probes> {
        self.probes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl StateChanges {
    /// Waits for the change that runs, and excludes others until the guard is dropped.
    fn lock(&self) -> MutexGuard<'_, ()> {
        self.changing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
