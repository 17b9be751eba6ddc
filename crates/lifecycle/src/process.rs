//! The running process as its operators see and control it.

use std::sync::Arc;

use admin::{
    BuildStatus, ChangeLocks, Control, DistrustedStatus, FormerProcessStatus, HandOverStatus,
    LastReload, ListenerStatus, MaterialsStatus, MemberStatus, ProcessPhase, RefusedMaterials,
};
use membership::{Members, Membership};
use proxy::{Generation, LifecyclePhase, PoolRuntime};
use state::{Active, AuditLog, OperatorRecords, StateDirectory};
use telemetry::Events;
use trust_keeper::TrustKeeper;

use crate::{
    listening::Listeners,
    shared_state::{ActiveState, App},
};

/// Creates the [`Control`] that answers operators.
pub type ControlOf = fn(Arc<App>) -> Arc<dyn Control>;

/// The part of the status that is about the process itself.
pub struct LifecycleStatus {
    /// Whether it serves.
    pub phase: ProcessPhase,
    /// The last reload that an operator has requested.
    pub last_reload: Option<LastReload>,
    /// The process that prepares to take over.
    pub hand_over: Option<HandOverStatus>,
    /// Processes that handed over and have not ended.
    pub former_processes: Vec<FormerProcessStatus>,
    /// Why handshakes are computed with the priority of other work.
    pub handshake_priority: Option<String>,
    /// The listeners.
    pub listeners: Vec<ListenerStatus>,
    /// The address of the listener for metrics.
    pub metrics_address: Option<String>,
    /// How changes of materials are noticed, and which are refused.
    pub materials: MaterialsStatus,
}

impl App {
    /// What is active.
    pub fn active(&self) -> &Active {
        &self.active
    }

    /// The members over all generations.
    pub fn members(&self) -> &Members {
        &self.lasting.members
    }

    /// Members while the process runs.
    pub fn membership(&self) -> &Membership {
        &self.membership
    }

    /// The keeper of the trust store, which loads new CRLs, blocks and certificates.
    pub fn trust(&self) -> &Arc<TrustKeeper> {
        &self.trust
    }

    /// The records of operators' acts.
    pub fn records(&self) -> &OperatorRecords {
        &self.records
    }

    /// The audit log.
    pub fn audit(&self) -> &AuditLog {
        &self.audit
    }

    /// The state directory.
    pub fn directory(&self) -> &StateDirectory {
        &self.state_directory
    }

    /// Locked while an operator's change is compared with the state that the operator has seen, and then made.
    pub fn locks(&self) -> &ChangeLocks {
        &self.locks
    }

    /// Where events are sent.
    pub fn events(&self) -> &Events {
        &self.events
    }

    /// Version, commit and features of the program.
    pub fn build_status(&self) -> &BuildStatus {
        &self.options.build
    }

    /// Waits until former processes apply the stored states of members, for a limited time.
    pub async fn follow_states(&self) {
        let directory = self.state_directory.path();
        self.hand_over.former.follow(directory).await;
    }

    /// Requests of former processes.
    pub fn former_in_flight(&self) -> u64 {
        self.hand_over.former.in_flight()
    }

    /// The part of the status that is about the process itself.
    pub fn status(&self) -> LifecycleStatus {
        let (generation, state) = (self.generation(), self.state());
        LifecycleStatus {
            phase: self.phase(),
            last_reload: state.last_reload.as_ref().map(|(at, outcome)| LastReload {
                at: (*at).into(),
                outcome: outcome.clone(),
            }),
            hand_over: self.hand_over.preparing().map(|process| HandOverStatus {
                pid: process.pid,
                since: process.since.into(),
                version: process.version,
            }),
            former_processes: self.hand_over.former.status(),
            handshake_priority: self.workers.handshakes.refused().map(ToOwned::to_owned),
            listeners: listener_status(&state.listeners, &generation),
            metrics_address: state
                .metrics
                .as_ref()
                .map(|metrics| metrics.address.to_string()),
            materials: materials_status(&state),
        }
    }

    /// The phase of the process.
    fn phase(&self) -> ProcessPhase {
        match self.shared.signals.borrow().phase {
            LifecyclePhase::Serving => ProcessPhase::Serving,
            LifecyclePhase::Draining | LifecyclePhase::Cutting => ProcessPhase::Draining,
        }
    }

    /// Why a load balancer should send agents to another proxy. `None` if this proxy is ready.
    pub fn unready(&self) -> Option<&'static str> {
        let generation = self.generation();
        let pools = generation.pools.iter();
        let available = pools.map(|pool| (&**pool.pool.name(), pool.pool.available() as u64));
        admin::unready(self.phase(), available, self.waits_for_fleet())
    }

    /// The status of one member of a pool, with the requests of former processes.
    pub fn member_status(&self, runtime: &PoolRuntime, index: usize) -> MemberStatus {
        let mut status = self.membership.status_of(runtime, index);
        self.hand_over
            .former
            .add_to(runtime.pool.name(), &mut status);
        status
    }
}

fn listener_status(listeners: &Listeners, generation: &Generation) -> Vec<ListenerStatus> {
    let open = listeners.open.iter().filter_map(|open| {
        let settings = &generation.listeners.get(&open.listener.name)?.settings;
        let addresses = open.endpoints.iter();
        let addresses: Vec<_> = addresses.map(|at| at.address.to_string()).collect();
        let rejection = open.listener.certificate_rejections.last();
        Some(ListenerStatus {
            name: settings.name.clone(),
            address: addresses.first().cloned().unwrap_or_default(),
            addresses,
            connections: open.listener.connections.inside().into(),
            connections_max: settings.connections_max.into(),
            handshakes: open.listener.waiting.count() as u64,
            handshakes_max: settings.handshakes_max.into(),
            certificate_rejected: rejection.map(|rejection| DistrustedStatus {
                count: rejection.times,
                client: rejection.client.to_string(),
                at: rejection.at.into(),
                alert: rejection.alert.to_owned(),
            }),
        })
    });
    open.collect()
}

fn materials_status(state: &ActiveState) -> MaterialsStatus {
    let refused = state.refused_materials.as_ref();
    MaterialsStatus {
        watch: match state.watched_by {
            config::ChangeDetection::Notify => admin::MaterialsWatch::Notify,
            config::ChangeDetection::Poll => admin::MaterialsWatch::Poll,
            config::ChangeDetection::Off => admin::MaterialsWatch::Off,
        },
        refused: refused.map(|(since, report)| RefusedMaterials {
            since: (*since).into(),
            report: report.clone(),
        }),
    }
}
