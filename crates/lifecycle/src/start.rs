//! The start of the process: reads and restores everything, then commits the first generation, before which nothing is
//! active.

use std::{
    io,
    os::unix::net::UnixListener,
    path::{Path, PathBuf},
    sync::Arc,
    thread,
};

use arc_swap::ArcSwap;
use config::ConfigReport;
use listener::BindError;
use membership::persistence_key;
use pki::PersistenceKey;
use proxy::Shared;
use state::{OperatorRecords, StateDirectory, state_directory::StateError, stored_history};
use telemetry::{AccessLogs, Events, HistoryEntry};

use crate::{
    Options,
    commit::{Commit, CommitError, Opened},
    descriptors,
    drain::drain,
    facts::facts,
    hand_over::{RunningProgram, TakeOver, TakeOverError, TakenSockets},
    host_checks::{self, HostFault, RunningProxy},
    known_labels, log_outputs,
    materials::files::{self, ConfigFiles},
    prepare::{Lasting, Prepared, prepare},
    process::ControlOf,
    running_socket,
    shared_state::{App, AppParts},
    signals::{EarlySignals, Signals},
    socket_file::SocketFile,
    stored_state::{self, RestoredState},
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
    /// The hand-over from the serving process.
    #[error(transparent)]
    HandOver(#[from] TakeOverError),
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
    pub(crate) admin_socket: AdminSocket,
    pub(crate) signals: Signals,
}

/// The socket of the control plane.
pub(crate) struct AdminSocket {
    /// `None` if its file cannot be examined.
    pub(crate) file: Option<SocketFile>,
    /// The file with its path in the runtime directory, if there is one.
    pub(crate) path: Option<SocketFile>,
    pub(crate) listener: UnixListener,
}

/// Starts the process, or takes over from the one that serves. Whatever can fail comes before the first connection is
/// accepted.
pub(crate) async fn start(
    options: &Options,
    (events, control): (&Arc<Events>, ControlOf),
    signals: EarlySignals,
) -> Result<Started, StartError> {
    let program = RunningProgram::of_this_process();
    let read = files::load(options).map_err(StartError::Config)?;
    let directory = &read.loaded.config.state_directory;
    let serving = if options.hand_over {
        TakeOver::connect(directory, &options.build.version)?
    } else {
        None
    };
    let Some((take_over, sockets)) = serving else {
        if options.hand_over {
            tracing::info!("no process serves with this state directory, so this is a start");
        }
        let start = Start {
            options,
            events,
            control,
            program,
            take_over: None,
        };
        let sockets = TakenSockets::of_service_manager();
        return start.run(read, sockets, signals).await;
    };
    let start = Start {
        options,
        events,
        control,
        program,
        take_over: Some(&take_over),
    };
    let started = start.run(read, sockets, signals).await;
    match &started {
        Ok(started) => {
            let shared = Arc::clone(&started.app.shared);
            let former = Arc::clone(&started.app.hand_over.former);
            // A thread and not a task, because the process would wait at its end for a task that blocks.
            let follows = thread::Builder::new().name("former-process".to_owned());
            let follows = follows.spawn(move || take_over.follow_former(&shared, &former));
            if let Err(error) = follows {
                tracing::error!(%error, "cannot follow the requests of the former process");
                started.app.hand_over.former.end();
            }
        }
        Err(error) => take_over.failed(error.to_string()),
    }
    started
}

/// What a start begins with.
struct Start<'a> {
    options: &'a Options,
    events: &'a Arc<Events>,
    control: ControlOf,
    program: RunningProgram,
    /// `None` if no process hands over.
    take_over: Option<&'a TakeOver>,
}

/// A prepared generation on a host that can serve it, with the state of the previous process.
struct Checked {
    prepared: Prepared,
    /// Facts about the configuration, as sentences.
    facts: Vec<String>,
    /// Whether the stored DNS answers could be read.
    answers: Result<(), String>,
    /// The events of earlier processes.
    earlier: Result<Vec<HistoryEntry>, StateError>,
    state_directory: StateDirectory,
    restored: RestoredState,
    /// `None` if no process hands over: then it is opened after the state is restored.
    opened: Option<Opened>,
}

impl Start<'_> {
    async fn run(
        self,
        read: ConfigFiles,
        mut sockets: TakenSockets,
        signals: EarlySignals,
    ) -> Result<Started, StartError> {
        let lasting = Lasting::default();
        let mut checked = self.check(read, &lasting, &mut sockets).await?;
        let opened = checked.opened.take();
        let config = &checked.prepared.config;
        let events = log_outputs::open_events(&config.events)?;
        self.events.redirect(events, &lasting.metrics);
        if let Ok(earlier) = &mut checked.earlier {
            self.events.history.restore(std::mem::take(earlier));
        }
        checked.log();
        let mut opened = match opened {
            Some(opened) => opened,
            None => Opened::open_first(config, &mut sockets)?,
        };
        sockets.log_unused();
        // A stop signal from here on takes effect as soon as the process serves.
        let mut signals = signals.all()?;
        let (mut socket_file, admin_listener) = admin_socket(&config.admin.socket, &mut sockets)?;
        let access_logs = opened.start_access_logs(config, &lasting.metrics)?;
        let take_over = self.take_over;
        let (app, first) = self.build(checked, lasting, access_logs, opened)?;
        app.committer().await.commit(first).await?;
        if let Some(take_over) = take_over {
            if let Err(error) = take_over.serving(&app.hand_over.former) {
                // The other process still serves, and this one has accepted connections.
                app.state_directory.unlock();
                drain(&app, signals.stop.recv()).await;
                return Err(error.into());
            }
            app.state().listeners.own_socket_files();
            app.set_listener_access();
            sockets.remove_unused_files();
            let path = &app.admin_socket;
            socket_file = socket_file.or_else(|| SocketFile::of(path).ok());
        }
        app.set_socket_mode();
        let path = running_socket::leave(&app.options.config, &app.admin_socket);
        Ok(Started {
            app,
            admin_socket: AdminSocket {
                file: socket_file,
                path,
                listener: admin_listener,
            },
            signals,
        })
    }

    /// Prepares the first generation and restores the state, unless the configuration or the host has a fault.
    async fn check(
        &self,
        read: ConfigFiles,
        lasting: &Lasting,
        sockets: &mut TakenSockets,
    ) -> Result<Checked, StartError> {
        let alarms = &lasting.metrics.alarms;
        let config = &read.loaded.config;
        let stored = StateDirectory::for_reading(&config.state_directory);
        let answers = lasting.members.restore_answers(&stored);
        let lookups = lasting.members.look_up_new(config, |_| true).await;
        lasting.members.learn(config, &lookups);
        let number = self.take_over.map_or(1, |serving| serving.generation + 1);
        let mut prepared = prepare(read, number, lasting, None).map_err(StartError::Config)?;
        let facts = facts(&prepared);
        if let Some((key, warning)) = descriptors::warning(&prepared.config, &prepared.generation) {
            prepared.report.warn(&key, &warning);
        }
        let mut faults = host_checks::faults(&prepared.config, &RunningProxy::of_sockets(sockets));
        // Bound before the serving process stores its state, so that a start that cannot succeed does not disturb that process.
        let mut opened = None;
        if let Some(take_over) = self.take_over {
            refuse(&mut faults, &mut prepared.report)?;
            opened = Some(Opened::open_first(&prepared.config, sockets)?);
            take_over.prepared()?;
        }
        let state_directory = StateDirectory::open(&prepared.config.state_directory, alarms);
        faults.extend(host_checks::locked(&state_directory));
        let restored = stored_state::restore(&mut prepared, &state_directory);
        if let Err(error) = &restored.blocks {
            faults.push(host_checks::unreadable_blocks(error));
        }
        refuse(&mut faults, &mut prepared.report)?;
        let earlier = stored_history::read(&state_directory);
        Ok(Checked {
            prepared,
            facts,
            answers,
            earlier,
            state_directory,
            restored,
            opened,
        })
    }

    /// The process with its workers, and its first commit.
    fn build(
        self,
        checked: Checked,
        lasting: Lasting,
        access_logs: AccessLogs,
        opened: Opened,
    ) -> Result<(Arc<App>, Commit), StartError> {
        let Checked {
            prepared,
            state_directory,
            restored,
            ..
        } = checked;
        let (generation, foundation, _) = prepared.split();
        let mut records = restored.blocks.unwrap_or_default();
        for record in restored
            .member_states
            .iter()
            .flat_map(|stored| &stored.records)
        {
            // At the time 0 no record has ended, so all records are merged.
            let _ = records.merge(record.clone(), 0);
        }
        lasting
            .members
            .restore_states(restored.member_states, &state_directory);
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
        let app = Arc::new(App::new(AppParts {
            options: self.options.clone(),
            events: Arc::clone(self.events),
            control: self.control,
            lasting,
            workers: WorkerThreads::start(foundation.config.workers, &shared)?,
            shared,
            state_directory: Arc::new(state_directory),
            crls: restored.crls,
            records: Arc::new(OperatorRecords::new(
                foundation.config.proxy_name(),
                records,
            )),
            access_logs,
            foundation: foundation.clone(),
            program: self.program,
        }));
        if self.take_over.is_some() {
            app.sharing.succeed();
        }
        let first = Commit {
            generation: cell.load_full(),
            foundation,
            previous: None,
            opened,
        };
        Ok((app, first))
    }
}

/// Refuses a start on a host with these faults.
fn refuse(faults: &mut Vec<HostFault>, report: &mut ConfigReport) -> Result<(), StartError> {
    match host_checks::add(std::mem::take(faults), report) {
        Some(may_pass) => Err(StartError::Host {
            report: report.clone(),
            may_pass,
        }),
        None => Ok(()),
    }
}

/// The admin socket, with its file unless that is still the file of the process that hands over.
fn admin_socket(
    path: &Path,
    sockets: &mut TakenSockets,
) -> Result<(Option<SocketFile>, UnixListener), StartError> {
    if let Some(taken) = sockets.take_admin(path) {
        return Ok((None, taken));
    }
    let bound = SocketFile::bind_private(path).map_err(|source| StartError::Admin {
        path: path.to_owned(),
        source,
    })?;
    Ok((Some(bound.0), bound.1))
}

impl Checked {
    /// Logs the report of a start, and what was restored from the state directory. Warnings of the trust store are alarms,
    /// and are logged as such.
    fn log(&self) {
        let Self {
            prepared, restored, ..
        } = self;
        let trust = &prepared.generation.trust;
        let is_alarm = |message: &String| trust.warnings().contains(message);
        let problems = prepared.report.problems.iter();
        for problem in problems.filter(|problem| !is_alarm(&problem.message)) {
            tracing::warn!(key = %problem.key, "{}", problem.message);
        }
        for fact in &self.facts {
            tracing::info!("{fact}");
        }
        if let Some(why) = &restored.cas_seen {
            tracing::warn!("cannot read which CAs agents used in the last day: {why}");
        }
        if let Err(why) = &self.answers {
            tracing::warn!("cannot read the stored answers of DNS, starting without them: {why}");
        }
        if let Err(why) = &self.earlier {
            tracing::warn!("cannot read the history of events, starting without it: {why}");
        }
        let blocks = trust.deny_list().blocks().len();
        if blocks > 0 {
            tracing::info!(blocks, "restored blocks from the state directory");
        }
        if restored.crls.is_applied {
            tracing::info!("restored revocations from the state directory");
        }
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
