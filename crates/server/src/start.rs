//! The start of the process: reads and restores everything, then commits the first generation, before which nothing is
//! active.

use std::{io, os::unix::net::UnixListener, path::PathBuf, sync::Arc};

use arc_swap::ArcSwap;
use config::ConfigReport;
use listener::BindError;
use pki::{PersistenceKey, TrustStore};
use proxy::Shared;
use telemetry::Events;

use crate::{
    Options,
    commit::{Commit, CommitError, Opened},
    facts::facts,
    host_checks::{self, RunningProxy},
    known_labels, log_outputs,
    materials::files,
    members::{administrative, persistence_key},
    prepare::{Lasting, prepare},
    shared_state::{App, AppParts},
    signals::{EarlySignals, Signals},
    socket_file::SocketFile,
    state_directory::StateDirectory,
    stored_state::{self, RestoredState},
    trust::TrustKeeping,
    worker_threads::WorkerThreads,
};

/// Why the process did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The configuration or its materials.
    #[error("{}", .0.summary())]
    Config(ConfigReport),
    /// The host: addresses, log files, the admin socket, the deny list.
    #[error("{}", .report.summary())]
    Host {
        /// Everything found.
        report: ConfigReport,
        /// Whether the same configuration may start later without any change: another program may free an address.
        may_pass: bool,
    },
    /// An address.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The control plane's socket.
    #[error("admin socket {}: {source}; to use another path, set [admin] socket", path.display())]
    Admin {
        /// Its path.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The access log.
    #[error("{0}")]
    AccessLog(io::Error),
    /// Threads, randomness, signals.
    #[error(
        "the operating system cannot provide what a start needs (threads, random data, signal handlers): {0}"
    )]
    System(#[from] io::Error),
}

/// A process whose first generation is active.
pub(crate) struct Started {
    pub(crate) app: Arc<App>,
    pub(crate) admin_socket: (SocketFile, UnixListener),
    pub(crate) signals: Signals,
}

/// Starts the process. Whatever can fail comes before the first connection is accepted.
pub(crate) async fn start(
    options: &Options,
    events: &Arc<Events>,
    signals: EarlySignals,
) -> Result<Started, StartError> {
    let lasting = Lasting::default();
    let alarms = &lasting.metrics.alarms;
    let read = files::load(options).map_err(StartError::Config)?;
    let config = &read.loaded.config;
    let stored = StateDirectory::for_reading(&config.state_directory);
    let answers = stored_state::restore_answers(&lasting, &stored);
    lasting.answers.look_up_new(config, |_| true, alarms).await;
    let mut prepared = prepare(read, 1, &lasting, None).map_err(StartError::Config)?;
    let facts = facts(&prepared);
    let mut faults = host_checks::faults(&prepared.config, &RunningProxy::default());
    let state_directory = StateDirectory::open(&prepared.config.state_directory, alarms);
    let restored = stored_state::restore(&mut prepared, &state_directory);
    if let Err(error) = &restored.blocks {
        faults.push(host_checks::unreadable_blocks(error));
    }
    let (generation, foundation, mut report) = prepared.split();
    if let Some(may_pass) = host_checks::add(faults, &mut report) {
        return Err(StartError::Host { report, may_pass });
    }
    let config = &foundation.config;
    events.redirect(log_outputs::open_events(&config.events)?, &lasting.metrics);
    log_report(&report, &facts, &generation.trust);
    log_restored(&restored, answers);
    administrative::restore(
        restored.member_states,
        &state_directory,
        &lasting.registry,
        alarms,
    );

    let mut opened = Opened::open(config, None, config.workers)?;
    // A stop signal from here on takes effect as soon as the process serves.
    let signals = signals.all()?;
    let admin_path = &config.admin.socket;
    let admin_socket =
        SocketFile::bind_private(admin_path).map_err(|source| StartError::Admin {
            path: admin_path.clone(),
            source,
        })?;
    let access_logs = opened.start_access_logs(config, &lasting.metrics)?;
    let cell = Arc::new(ArcSwap::from_pointee(generation));
    let _ = lasting.cell.set(Arc::clone(&cell));
    let mut shared = Shared::new(
        Arc::clone(&cell),
        Arc::clone(&lasting.metrics),
        access_logs.handle(),
    );
    shared.persistence = persistence_key(restored.persistence_key, &state_directory);
    let shared = Arc::new(shared);
    known_labels::start_at_zero(&lasting.metrics);
    let workers = WorkerThreads::start(config.workers, &shared)?;
    let app = Arc::new(App::new(AppParts {
        options: options.clone(),
        events: Arc::clone(events),
        lasting,
        shared,
        workers,
        state_directory: Arc::new(state_directory),
        trust: TrustKeeping::new(&restored.crls),
        access_logs,
        foundation: foundation.clone(),
    }));
    let first = Commit {
        generation: cell.load_full(),
        foundation,
        previous: None,
        opened,
    };
    app.writer().await.commit(first).await?;
    Ok(Started {
        app,
        admin_socket,
        signals,
    })
}

/// Logs the report of a start. Warnings of the trust store are alarms, and are logged as such.
fn log_report(report: &ConfigReport, facts: &[String], trust: &TrustStore) {
    let is_alarm = |message: &String| trust.warnings().contains(message);
    let problems = report.problems.iter();
    for problem in problems.filter(|problem| !is_alarm(&problem.message)) {
        tracing::warn!(key = %problem.key, "{}", problem.message);
    }
    for fact in facts {
        tracing::info!("{fact}");
    }
}

/// Logs what was restored from the state directory, and what could not be read.
fn log_restored(restored: &RestoredState, answers: Result<(), String>) {
    if let Err(why) = &restored.cas_seen {
        tracing::warn!("cannot read which CAs agents used in the last day: {why}");
    }
    if let Err(why) = answers {
        tracing::warn!("cannot read the stored answers of DNS, starting without them: {why}");
    }
    if let Ok(blocks @ 1..) = restored.blocks {
        tracing::info!(blocks, "restored blocks from the state directory");
    }
    if restored.crls.is_applied {
        tracing::info!("restored fetched CRLs from the state directory");
    }
}

/// The stored key of persistence cookies, or a new one. With a new key, clients get new cookies and may move to other members.
fn persistence_key(
    stored: Result<Option<PersistenceKey>, String>,
    directory: &StateDirectory,
) -> PersistenceKey {
    let stored = stored.unwrap_or_else(|why| {
        tracing::warn!("cannot read the key of persistence cookies, using a new key: {why}");
        None
    });
    stored.unwrap_or_else(|| {
        let key = PersistenceKey::random();
        persistence_key::write(directory, &key);
        key
    })
}

impl From<CommitError> for StartError {
    fn from(error: CommitError) -> Self {
        match error {
            CommitError::AccessLog(error) => Self::AccessLog(error),
            CommitError::Events(error) => Self::System(error),
            CommitError::Bind(error) => Self::Bind(error),
            CommitError::Metrics(error) => Self::System(io::Error::other(error)),
            CommitError::Stopping => Self::System(io::ErrorKind::Interrupted.into()),
        }
    }
}
