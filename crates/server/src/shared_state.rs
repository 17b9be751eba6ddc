//! What the tasks of the running process share, and [`GenerationWriter`], the right to replace what is active.

use std::{
    os::unix::{fs::PermissionsExt, net::UnixListener},
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime},
};

use admin::ChangeLocks;
use config::{ChangeDetection, Fetch};
use pki::TrustStore;
use proxy::{Generation, LifecyclePhase, Shared};
use rustls_pki_types::UnixTime;
use telemetry::{AccessLogs, Alarm, Events};
use tokio::{sync::Notify, time::Instant};

use crate::{
    Options,
    agent_certificates::expiring_agents,
    alarms,
    certificates::ca_options,
    date_evidence,
    hand_over::{HandOverState, RunningProgram},
    listening::Listeners,
    members::{StateChanges, passthrough, probes::Probes},
    metrics_endpoint::MetricsEndpoint,
    operator_records::OperatorRecords,
    operators,
    own_renewal::OwnRenewals,
    pending_changes::PendingChanges,
    prepare::{Foundation, Lasting},
    sharing::state::Sharing,
    state_directory::StateDirectory,
    trust::TrustKeeping,
    worker_threads::WorkerThreads,
};

/// The running process as its tasks see it.
pub(crate) struct App {
    pub(crate) options: Options,
    pub(crate) events: Arc<Events>,
    pub(crate) lasting: Lasting,
    pub(crate) shared: Arc<Shared>,
    pub(crate) workers: WorkerThreads,
    pub(crate) state_directory: Arc<StateDirectory>,
    /// The path at which the admin socket was bound. A later configuration may name another file.
    pub(crate) admin_socket: PathBuf,
    pub(crate) hand_over: HandOverState,
    /// What a start and a reload have left to compare with the files on disk.
    pub(crate) pending: PendingChanges,
    /// When the process started, on the monotonic clock and on the clock of the host at that time.
    pub(crate) started: (Instant, UnixTime),
    /// Changes of the administrative states of members.
    pub(crate) member_states: StateChanges,
    /// Blocks, CRLs and copies of the CA's documents.
    pub(crate) trust: TrustKeeping,
    /// The records of operators' acts.
    pub(crate) records: OperatorRecords,
    /// The fleet, if this proxy is part of one.
    pub(crate) sharing: Sharing,
    /// Renewals of the proxy's own certificates.
    pub(crate) own_renewals: OwnRenewals,
    /// Notified after each reload, because the configuration may name other materials.
    pub(crate) reloaded: Notify,
    /// Locked while a change is compared with the state that its operator has seen, and made.
    pub(crate) locks: ChangeLocks,
    state: Mutex<ActiveState>,
    /// Locked by [`GenerationWriter`] alone.
    writing: tokio::sync::Mutex<()>,
}

/// What changes with a commit, in addition to the generation that requests read.
pub(crate) struct ActiveState {
    pub(crate) foundation: Foundation,
    pub(crate) loaded_at: SystemTime,
    pub(crate) listeners: Listeners,
    /// The last reload that an operator has requested. Materials that change by themselves have an alarm of their own, and
    /// say nothing about the configuration on disk.
    pub(crate) last_reload: Option<(SystemTime, admin::ReloadOutcome)>,
    /// The listener for metrics.
    pub(crate) metrics: Option<MetricsEndpoint>,
    /// A copy of the admin socket, for a hand-over. `None` once the process accepts nothing on it.
    pub(crate) admin: Option<UnixListener>,
    /// How the proxy notices changes of materials.
    pub(crate) watched_by: ChangeDetection,
    /// Since when changed materials are refused, and why.
    pub(crate) refused_materials: Option<(SystemTime, String)>,
    /// `None` once a stop has closed them.
    pub(crate) access_logs: Option<AccessLogs>,
    pub(crate) probes: Probes,
}

/// What an [`App`] is made of before anything is active.
pub(crate) struct AppParts {
    pub(crate) options: Options,
    pub(crate) events: Arc<Events>,
    pub(crate) lasting: Lasting,
    pub(crate) shared: Arc<Shared>,
    pub(crate) workers: WorkerThreads,
    pub(crate) state_directory: Arc<StateDirectory>,
    pub(crate) trust: TrustKeeping,
    pub(crate) records: OperatorRecords,
    pub(crate) access_logs: AccessLogs,
    pub(crate) foundation: Foundation,
    pub(crate) program: RunningProgram,
}

impl App {
    /// A process with nothing active: no listener, no probe. The first commit follows.
    pub(crate) fn new(parts: AppParts) -> Self {
        let AppParts {
            options,
            events,
            lasting,
            shared,
            workers,
            state_directory,
            trust,
            records,
            access_logs,
            foundation,
            program,
        } = parts;
        Self {
            admin_socket: foundation.config.admin.socket.clone(),
            hand_over: HandOverState::new(program),
            options,
            events,
            lasting,
            shared,
            workers,
            state_directory,
            pending: PendingChanges::new(&foundation.config),
            started: (Instant::now(), UnixTime::now()),
            member_states: StateChanges::default(),
            trust,
            records,
            sharing: Sharing::default(),
            own_renewals: OwnRenewals::default(),
            reloaded: Notify::new(),
            locks: ChangeLocks::default(),
            state: Mutex::new(ActiveState {
                foundation,
                loaded_at: SystemTime::now(),
                listeners: Listeners::default(),
                last_reload: None,
                metrics: None,
                admin: None,
                watched_by: ChangeDetection::Off,
                refused_materials: None,
                access_logs: Some(access_logs),
                probes: Probes::default(),
            }),
            writing: tokio::sync::Mutex::default(),
        }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, ActiveState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn generation(&self) -> Arc<Generation> {
        self.shared.current.load_full()
    }

    /// Whether the process serves: no stop has been requested.
    pub(crate) fn is_serving(&self) -> bool {
        self.shared.signals.borrow().phase == LifecyclePhase::Serving
    }

    /// Whether this process owns the state directory: no other one has taken over. Only its owner writes to the directory and
    /// changes blocks and CRLs on request.
    pub(crate) fn owns_state(&self) -> bool {
        self.hand_over.successor.borrow().is_none()
    }

    /// Gives the files of Unix listeners the permissions that the configuration asks for.
    pub(crate) fn set_listener_access(&self) {
        let state = self.state();
        for settings in &state.foundation.config.listeners {
            for endpoint in settings.endpoints() {
                state.listeners.set_access(settings, &endpoint);
            }
        }
    }

    /// Gives the admin socket the permissions that the configuration asks for.
    pub(crate) fn set_socket_mode(&self) {
        let settings = self.state().foundation.config.admin.clone();
        let mode = std::fs::Permissions::from_mode(operators::socket_mode(&settings));
        if let Err(error) = std::fs::set_permissions(&self.admin_socket, mode) {
            let path = self.admin_socket.display();
            tracing::error!(%error, %path, "cannot set the permissions of the admin socket");
        }
    }

    /// How CRLs are fetched, if they are.
    pub(crate) fn fetch_settings(&self) -> Option<Fetch> {
        self.state().foundation.config.trust.fetch
    }

    /// Compares the alarms about the trust store with its dates now.
    pub(crate) fn update_trust_alarms(&self) {
        let times = self.times();
        alarms::update_trust(
            &self.lasting.metrics.alarms,
            &self.generation().trust,
            times,
        );
    }

    /// Compares the alarms about fetched CRLs and about dropped revocations with the state now.
    pub(crate) fn update_crl_alarms(&self) {
        let (alarms, trust) = (&self.lasting.metrics.alarms, &self.generation().trust);
        let fetches = self.fetch_settings().is_some();
        alarms::update_crls(alarms, &self.trust.crl_fetch, trust, fetches);
    }

    /// Compares the alarms about the proxy's own certificates with their dates and the active CRLs.
    pub(crate) fn update_certificate_alarms(&self) {
        // Locked to the end, so that a reload meanwhile does not leave the alarms of the old certificates.
        let state = self.state();
        let alarms = &self.lasting.metrics.alarms;
        let failures = self.own_renewals.failures();
        let generation = self.generation();
        let stores = state.foundation.stores(&generation.trust);
        let ca = ca_options(&generation);
        let own = &state.foundation.certificates;
        alarms::update_certificates(alarms, own, &stores, &failures, &ca, self.times());
    }

    /// The times at which alarms about dates are compared.
    fn times(&self) -> alarms::Times {
        alarms::Times::now(self.shared.clock_correction())
    }

    /// Compares the clock with the dates of certificates and CRLs.
    pub(crate) fn assess_dates(&self) {
        let now = UnixTime::now();
        let generation = self.generation();
        let evidence = {
            let state = self.state();
            let stores = state.foundation.stores(&generation.trust);
            date_evidence::of_files(&state.foundation.certificates, &stores, now)
        };
        let evidence =
            date_evidence::with_agents(evidence, &self.shared.refusals, SystemTime::now());
        self.shared.note_dates(evidence);
    }

    /// Compares the alarms about certificates of agents with their dates and their last requests.
    pub(crate) fn update_agent_alarms(&self) {
        let generation = self.generation();
        let now = SystemTime::now();
        self.shared
            .renewal
            .assess_refused(generation.ca.renewal, now);
        let alarms = &self.lasting.metrics.alarms;
        match expiring_agents(&self.shared.agents, &generation.trust, now) {
            (0, _) => alarms.clear(Alarm::AgentsExpiring, ""),
            (count, first) => {
                let first = first.as_deref().unwrap_or("-").escape_default().to_string();
                let message = format!(
                    "the certificates of {count} agents that were seen in the last day expire within 14 days, that of {first} first: `proscenium certificates` lists them. Let agents of Puppet 8 renew them (`[ca] renewal`), or request new ones (operating/ca.md)"
                );
                alarms.raise(Alarm::AgentsExpiring, "", message, now);
                let right = self.times().corrected.map(|right| {
                    let right = SystemTime::UNIX_EPOCH + Duration::from_secs(right.as_secs());
                    expiring_agents(&self.shared.agents, &generation.trust, right).0
                });
                alarms.note_clock(Alarm::AgentsExpiring, |_| right == Some(0));
            }
        }
    }

    /// Waits for the right to replace what is active.
    pub(crate) async fn writer(self: &Arc<Self>) -> GenerationWriter<'_> {
        GenerationWriter {
            app: self,
            _only_one: self.writing.lock().await,
        }
    }

    /// Waits for the right to replace what is active. `None` if another process has taken over by then. A process that
    /// stops still applies changes, because they concern the connections that it finishes.
    pub(crate) async fn writer_of_owner(self: &Arc<Self>) -> Option<GenerationWriter<'_>> {
        let writer = self.writer().await;
        self.owns_state().then_some(writer)
    }

    /// Waits for the right to replace what is active. `None` if the process is stopping by then.
    pub(crate) async fn writer_while_serving(self: &Arc<Self>) -> Option<GenerationWriter<'_>> {
        let writer = self.writer().await;
        self.is_serving().then_some(writer)
    }
}

/// The right to replace what is active: the generation, its trust store, pools and blocks, and the outputs of the logs.
///
/// One task has it at a time. A change that is prepared from the active generation can therefore not undo another one.
/// Functions that replace something active are methods of this type.
pub(crate) struct GenerationWriter<'a> {
    pub(crate) app: &'a Arc<App>,
    _only_one: tokio::sync::MutexGuard<'a, ()>,
}

impl GenerationWriter<'_> {
    /// Replaces the trust store of the active generation.
    pub(crate) fn replace_trust(&self, trust: TrustStore) {
        let generation = Arc::new(self.app.generation().with_trust(Arc::new(trust)));
        self.activate(&generation);
        self.app.state().loaded_at = SystemTime::now();
    }

    /// Makes a generation the active one, and has open connections verified by its trust store.
    pub(crate) fn activate(&self, generation: &Arc<Generation>) {
        let app = self.app;
        self.store(generation);
        app.lasting.metrics.generation(generation.number);
        app.shared
            .signals
            .send_modify(|signals| signals.trust_generation = generation.trust.generation());
        passthrough::assess(&app.lasting.metrics.alarms, generation);
        app.update_trust_alarms();
    }

    /// Has requests read this generation from now on. Its trust store is the active one.
    pub(crate) fn store(&self, generation: &Arc<Generation>) {
        self.app.shared.current.store(Arc::clone(generation));
    }
}
