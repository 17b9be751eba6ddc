//! What the tasks of the running process share.

use std::{
    os::unix::{fs::PermissionsExt, net::UnixListener},
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::SystemTime,
};

use admin::ChangeLocks;
use config::ChangeDetection;
use membership::Membership;
use proxy::{Generation, Shared};
use state::{
    Active, AuditLog, Foundation, GenerationWriter, OperatorRecords, StateDirectory,
    stored_history::HistoryFile,
};
use telemetry::{AccessLogs, Events};
use tokio::sync::{Notify, Semaphore};
use trust_keeper::{TrustKeeper, stored_crls::RestoredCrls};

use crate::{
    Options,
    hand_over::{HandOverState, RunningProgram},
    listening::Listeners,
    metrics_endpoint::MetricsEndpoint,
    pending_changes::PendingChanges,
    prepare::Lasting,
    process::ControlOf,
    sharing::state::Sharing,
    socket_mode::socket_mode,
    worker_threads::WorkerThreads,
};

/// How many reads of the stored configurations may use a thread that blocks at a time.
const TEXT_READS_MAX: usize = 1;
/// How many dry runs may use a thread that blocks at a time.
const DRY_RUNS_MAX: usize = 1;

/// The running process as its tasks see it.
pub struct App {
    pub(crate) options: Options,
    pub(crate) events: Arc<Events>,
    /// Creates the [`Control`](admin::Control) that answers operators.
    pub(crate) control: ControlOf,
    pub(crate) lasting: Lasting,
    /// What is active, and the right to replace it.
    pub(crate) active: Arc<Active>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) workers: WorkerThreads,
    pub(crate) state_directory: Arc<StateDirectory>,
    /// The path at which the admin socket was bound. A later configuration may name another file.
    pub(crate) admin_socket: PathBuf,
    pub(crate) hand_over: HandOverState,
    /// The state at the start, and the last refused reload, for comparison with the files on disk.
    pub(crate) pending: PendingChanges,
    pub(crate) membership: Arc<Membership>,
    pub(crate) trust: Arc<TrustKeeper>,
    /// The records of operators' acts.
    pub(crate) records: Arc<OperatorRecords>,
    pub(crate) audit: AuditLog,
    /// The stored events of the last day.
    pub(crate) history_file: Mutex<HistoryFile>,
    /// The fleet, if this proxy is part of one.
    pub(crate) sharing: Sharing,
    /// Notified after each reload, because the configuration may name other materials.
    pub(crate) reloaded: Notify,
    /// Locked while an operator's change is compared with the state that the operator has seen, and then made.
    pub(crate) locks: ChangeLocks,
    /// The slot of dry runs.
    pub(crate) dry_runs: Arc<Semaphore>,
    /// A turn for each read of the stored configurations.
    pub(crate) text_reads: Arc<Semaphore>,
    /// Locked while the active configuration text is written to the state directory.
    pub(crate) storing_text: tokio::sync::Mutex<()>,
    state: Mutex<ActiveState>,
}

/// What changes with a commit, in addition to the generation that requests read.
pub(crate) struct ActiveState {
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
}

/// The parts of an [`App`] before anything is active.
pub(crate) struct AppParts {
    pub(crate) options: Options,
    pub(crate) events: Arc<Events>,
    pub(crate) control: ControlOf,
    pub(crate) lasting: Lasting,
    pub(crate) shared: Arc<Shared>,
    pub(crate) workers: WorkerThreads,
    pub(crate) state_directory: Arc<StateDirectory>,
    pub(crate) crls: RestoredCrls,
    pub(crate) records: Arc<OperatorRecords>,
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
            control,
            lasting,
            shared,
            workers,
            state_directory,
            crls,
            records,
            access_logs,
            foundation,
            program,
        } = parts;
        let socket = foundation.config.admin.socket.clone();
        let pending = PendingChanges::new(&foundation.config);
        let active = Arc::new(Active::new(Arc::clone(&shared), foundation));
        let membership = Membership::new(
            Arc::clone(&active),
            Arc::clone(&lasting.members),
            Arc::clone(&state_directory),
            Arc::clone(&records),
        );
        let trust = TrustKeeper::new(
            Arc::clone(&active),
            Arc::clone(&state_directory),
            Arc::clone(&records),
            &crls,
        );
        let audit = AuditLog::new(
            Arc::clone(&active),
            Arc::clone(&state_directory),
            Arc::clone(&events),
        );
        Self {
            admin_socket: socket,
            audit,
            history_file: Mutex::new(HistoryFile::new(Arc::clone(&state_directory))),
            hand_over: HandOverState::new(program),
            pending,
            active,
            options,
            events,
            control,
            lasting,
            shared,
            workers,
            state_directory,
            membership: Arc::new(membership),
            trust: Arc::new(trust),
            records,
            sharing: Sharing::default(),
            reloaded: Notify::new(),
            locks: ChangeLocks::default(),
            dry_runs: Arc::new(Semaphore::new(DRY_RUNS_MAX)),
            text_reads: Arc::new(Semaphore::new(TEXT_READS_MAX)),
            storing_text: tokio::sync::Mutex::default(),
            state: Mutex::new(ActiveState {
                listeners: Listeners::default(),
                last_reload: None,
                metrics: None,
                admin: None,
                watched_by: ChangeDetection::Off,
                refused_materials: None,
                access_logs: Some(access_logs),
            }),
        }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, ActiveState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn generation(&self) -> Arc<Generation> {
        self.active.generation()
    }

    pub(crate) fn foundation(&self) -> Arc<Foundation> {
        self.active.foundation()
    }

    /// Whether the process serves: no stop has been requested.
    pub(crate) fn is_serving(&self) -> bool {
        self.active.is_serving()
    }

    /// Gives the files of Unix listeners the permissions that the configuration asks for.
    pub(crate) fn set_listener_access(&self) {
        let (state, foundation) = (self.state(), self.foundation());
        for settings in &foundation.config.listeners {
            for endpoint in settings.endpoints() {
                state.listeners.set_access(settings, &endpoint);
            }
        }
    }

    /// Gives the admin socket the permissions that the configuration asks for.
    pub(crate) fn set_socket_mode(&self) {
        let settings = self.foundation().config.admin.clone();
        let mode = std::fs::Permissions::from_mode(socket_mode(&settings));
        if let Err(error) = std::fs::set_permissions(&self.admin_socket, mode) {
            let path = self.admin_socket.display();
            tracing::error!(%error, %path, "cannot set the permissions of the admin socket");
        }
    }

    /// Waits for the right to replace what is active.
    pub(crate) async fn committer(self: &Arc<Self>) -> Committer<'_> {
        Committer {
            app: self,
            writer: self.active.writer().await,
        }
    }

    /// Waits for the right to replace what is active. `None` if the process is stopping by then.
    pub(crate) async fn committer_while_serving(self: &Arc<Self>) -> Option<Committer<'_>> {
        let committer = self.committer().await;
        self.is_serving().then_some(committer)
    }
}

/// The right to replace what is active in this process, with its listeners and logs.
pub(crate) struct Committer<'a> {
    pub(crate) app: &'a Arc<App>,
    pub(crate) writer: GenerationWriter<'a>,
}
