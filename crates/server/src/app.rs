//! The process from start to stop.

use std::{
    io,
    os::unix::net::UnixListener,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime},
};

use arc_swap::ArcSwap;
use config::{Config, Report, Watch};
use listener::{BindError, Listener};
use pki::{DenyList, TrustStore};
use proxy::{Generation, LifecyclePhase, Shared};
use rustls_pki_types::UnixTime;
use telemetry::{AccessLogs, Events};
use tokio::{
    runtime,
    sync::{Notify, watch},
    time::{Instant, interval, sleep_until, timeout},
};

use crate::{
    Options, alarms,
    control::Operator,
    dns,
    host_checks::{self, Running},
    listening, log_outputs,
    materials::{files, refresh},
    members::{
        administrative::{self, MemberStates},
        passthrough, persistence_key,
        probes::{self, Probes},
    },
    prepare::{Foundation, Lasting, inherit_states, prepare},
    service_manager::ServiceManager,
    signals::{EarlySignals, Signals, Stop},
    socket_file::SocketFile,
    state_directory::StateDirectory,
    state_retry,
    trust::{
        blocks, cas_seen, crl_fetch,
        crl_fetch_state::Fetching,
        document_copies::Copies,
        stored_crls::{self, Restored},
    },
    worker_threads::WorkerThreads,
};

/// Time that a start waits for its members' first answers.
const FIRST_PROBES_MAX: Duration = Duration::from_secs(1);
/// How often a stopping process looks whether a connection is left.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);
/// Time for connections to end once they are cut, and for records to be written.
const CUT_GRACE: Duration = Duration::from_secs(2);

/// Why the process did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The configuration or its materials.
    #[error("{}", .0.summary())]
    Config(Report),
    /// The host: addresses, log files, the admin socket, the deny list.
    #[error("{}", .report.summary())]
    Host {
        /// Everything found.
        report: Report,
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
        /// What the system said.
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

/// A listener that is accepted on.
pub(crate) struct Bound {
    pub(crate) listener: Arc<Listener>,
    /// Where it is accepted on.
    pub(crate) endpoints: Vec<listening::Bound>,
}

/// The running process, as reload and operator see it.
pub(crate) struct App {
    pub(crate) options: Options,
    pub(crate) events: Arc<Events>,
    pub(crate) lasting: Lasting,
    pub(crate) shared: Arc<Shared>,
    pub(crate) workers: WorkerThreads,
    pub(crate) state: Mutex<State>,
    /// What outlasts a restart.
    pub(crate) state_directory: Arc<StateDirectory>,
    /// One reload at a time.
    pub(crate) reloading: tokio::sync::Mutex<()>,
    /// When this process began, and what its clock said then.
    pub(crate) started: (Instant, UnixTime),
    /// Held by who writes the deny list down.
    pub(crate) keeping_blocks: tokio::sync::Mutex<()>,
    /// Told after each change of the deny list: another block may be the next to end.
    pub(crate) blocks_changed: Notify,
    /// Changes of the administrative state of members.
    pub(crate) member_states: MemberStates,
    /// Lists from the CA.
    pub(crate) fetching: Fetching,
    pub(crate) copies: Copies,
    /// Told after each reload: other materials may be named now.
    pub(crate) reloaded: Notify,
}

/// What changes with a reload, beside the cell.
pub(crate) struct State {
    pub(crate) foundation: Foundation,
    pub(crate) loaded_at: SystemTime,
    pub(crate) bound: Vec<Bound>,
    /// Listeners that a reload removed while connections were open on them.
    pub(crate) retired: Vec<Arc<Listener>>,
    /// The last reload that somebody requested. Materials that change by themselves have an alarm of their own, and say
    /// nothing about the configuration on disk.
    pub(crate) last_reload: Option<(SystemTime, admin::ReloadOutcome)>,
    /// Who notices changes of materials.
    pub(crate) watched_by: Watch,
    /// Since when materials on disk are refused, and why.
    pub(crate) refused_materials: Option<(SystemTime, String)>,
    pub(crate) sink: Option<AccessLogs>,
    pub(crate) probes: Probes,
}

impl App {
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn generation(&self) -> Arc<Generation> {
        self.shared.current.load_full()
    }

    fn connections(&self) -> u32 {
        let state = self.state();
        let listeners = state
            .bound
            .iter()
            .map(|bound| &bound.listener)
            .chain(&state.retired);
        listeners
            .map(|listener| listener.connections.inside())
            .sum()
    }
}

/// Starts, serves until told to stop, and drains. `events` are sent where the configuration says.
///
/// # Errors
/// Whatever keeps it from starting; once it serves it ends well.
pub fn run(options: &Options, events: &Arc<Events>) -> Result<(), StartError> {
    // Files written by us (access log, socket) are nobody else's to read.
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o027));
    let runtime = runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(8)
        .build()?;
    runtime.block_on(async {
        let signals = EarlySignals::new()?;
        let (app, admin, signals) = start(options, events, signals).await?;
        serve(&app, admin, signals).await;
        Ok(())
    })
}

/// Starts the access logs, each with an open output.
fn start_access_logs(config: &Config, lasting: &Lasting) -> io::Result<AccessLogs> {
    let (first, others) = (&config.access_log, log_outputs::open_others(config)?);
    let output = log_outputs::open(&first.output)?;
    let logs = AccessLogs::start(&first.settings, output, &lasting.metrics)?;
    logs.set_others(others)?;
    Ok(logs)
}

/// Everything up to the first accepted connection. What can fail comes before it.
async fn start(
    options: &Options,
    events: &Arc<Events>,
    signals: EarlySignals,
) -> Result<(Arc<App>, (SocketFile, UnixListener), Signals), StartError> {
    let lasting = Lasting::default();
    let read = files::load(options).map_err(StartError::Config)?;
    let config = &read.loaded.config;
    let stored = StateDirectory::for_reading(&config.state_directory);
    let unreadable = lasting.answers.restore(&stored).err();
    lasting
        .answers
        .ask_new(config, |_| true, &lasting.metrics.alarms)
        .await;
    let prepared = prepare(read, 1, &lasting, None).map_err(StartError::Config)?;
    let facts = crate::check::facts(&prepared);
    let (mut generation, foundation, mut report) = prepared.split();
    let config = &foundation.config;
    let mut faults = host_checks::faults(config, &Running::default());
    let state_directory = Arc::new(StateDirectory::open(
        &config.state_directory,
        &lasting.metrics.alarms,
    ));
    cas_seen::restore(&state_directory, &generation.trust);
    let deny = blocks::kept(&state_directory).unwrap_or_else(|error| {
        faults.push(host_checks::unreadable_blocks(&error));
        DenyList::default()
    });
    let found = host_checks::add(faults, &mut report);
    if let Some(may_pass) = found {
        return Err(StartError::Host { report, may_pass });
    }
    events.redirect(log_outputs::open_events(&config.events)?, &lasting.metrics);
    tell(&report, &facts, &generation.trust);
    if let Some(why) = unreadable {
        tracing::warn!("cannot read the stored answers of DNS, starting without them: {why}");
    }
    administrative::restore(&state_directory, &lasting.registry, &lasting.metrics.alarms);
    inherit_states(&lasting.registry, &generation);
    if !deny.is_empty() {
        tracing::info!(
            blocks = deny.blocks().len(),
            "restored blocks from the state directory"
        );
        generation.trust = Arc::new(generation.trust.with_deny_list(deny));
    }

    let restored = match config.trust.fetch {
        Some(fetch) => {
            stored_crls::restore(&generation.trust, &state_directory, fetch.body_bytes_max)
        }
        None => Restored::default(),
    };
    let fetching = Fetching::restored(&restored);
    if let Some(trust) = restored.trust {
        tracing::info!("restored fetched CRLs from the state directory");
        generation.trust = Arc::new(trust);
    }

    let sink = start_access_logs(config, &lasting).map_err(StartError::AccessLog)?;
    // A signal that comes from here on is obeyed as soon as the process serves.
    let signals = signals.all()?;
    let mut sockets = Vec::new();
    for settings in &config.listeners {
        let bind = |endpoint| listening::bind(settings, &endpoint, config.workers, false);
        let bound: Vec<_> = settings.endpoints().map(bind).collect::<Result<_, _>>()?;
        sockets.push((settings, bound));
    }
    let socket = &config.admin.socket;
    let admin = SocketFile::bind_private(socket).map_err(|source| StartError::Admin {
        path: socket.clone(),
        source,
    })?;
    let cell = Arc::new(ArcSwap::from_pointee(generation));
    let _ = lasting.cell.set(Arc::clone(&cell));
    let mut shared = Shared::new(
        Arc::clone(&cell),
        Arc::clone(&lasting.metrics),
        sink.handle(),
    );
    shared.persistence = persistence_key::restore(&state_directory);
    let shared = Arc::new(shared);
    let generation = cell.load_full();
    // Sockets stand, nobody is accepted yet: who connects now waits in the queue until members are known.
    let mut answered = Vec::new();
    let first = probes::first(&generation, &generation, &mut answered);
    let _ = timeout(FIRST_PROBES_MAX, first).await;
    adopt(&generation, &shared, &answered);
    shared.assess_pools();
    passthrough::assess(&lasting.metrics.alarms, &generation);
    crate::known_labels::start_at_zero(&lasting.metrics);
    lasting.metrics.generation(generation.number);
    let workers = WorkerThreads::start(config.workers, &shared)?;
    let mut bound = Vec::new();
    for (settings, sockets) in sockets {
        let listener = Arc::new(Listener::new(&settings.name));
        let mut endpoints = Vec::new();
        for (at, sockets) in sockets {
            let address = &at.address;
            tracing::info!(listener = %settings.name, %address, "listening");
            workers.listen(&listener, &at.endpoint, sockets).await;
            endpoints.push(at);
        }
        bound.push(Bound {
            listener,
            endpoints,
        });
    }
    let state = State {
        loaded_at: SystemTime::now(),
        bound,
        retired: Vec::new(),
        last_reload: None,
        watched_by: Watch::Off,
        refused_materials: None,
        sink: Some(sink),
        probes: Probes::start(&generation, &shared, &answered),
        foundation,
    };
    let app = App {
        options: options.clone(),
        events: Arc::clone(events),
        lasting,
        shared,
        workers,
        state: Mutex::new(state),
        state_directory,
        reloading: tokio::sync::Mutex::default(),
        started: (Instant::now(), UnixTime::now()),
        keeping_blocks: tokio::sync::Mutex::default(),
        blocks_changed: Notify::new(),
        member_states: MemberStates::default(),
        fetching,
        copies: Copies::default(),
        reloaded: Notify::new(),
    };
    app.update_trust_alarms();
    app.update_fetch_alarms();
    app.update_certificate_alarms();
    let foundation = app.state().foundation.clone();
    app.assess_writes(&generation, &foundation);
    Ok((Arc::new(app), admin, signals))
}

/// Puts the pools of a committed generation in force; of members in `answered` (pool, place in it) a good probe of
/// their new check is known already.
pub(crate) fn adopt(generation: &Generation, shared: &Shared, answered: &[(usize, usize)]) {
    for (index, runtime) in generation.pools.iter().enumerate() {
        let pool = &runtime.pool;
        let mut changes = pool.adopt();
        runtime.adopt_queue(shared.started);
        for (_, member) in answered.iter().filter(|(of, _)| *of == index) {
            let change = pool.entries()[*member].member.probe_succeeded(pool.check());
            changes.extend(change.map(|change| (*member, change)));
        }
        for (member, change) in changes {
            shared.health_changed(
                pool.name(),
                &runtime.members[member].connector.address,
                &change,
            );
        }
    }
}

/// Logs the report of a start; what the trust warns of is an alarm, and logged as such.
fn tell(report: &Report, facts: &[String], trust: &TrustStore) {
    let is_alarm = |message: &String| trust.warnings().contains(message);
    let problems = report.problems.iter();
    for problem in problems.filter(|problem| !is_alarm(&problem.message)) {
        tracing::warn!(key = %problem.key, "{}", problem.message);
    }
    for fact in facts {
        tracing::info!("{fact}");
    }
}

/// Serves until told to stop, and drains.
async fn serve(app: &Arc<App>, (socket, listener): (SocketFile, UnixListener), signals: Signals) {
    let Signals {
        mut hangup,
        mut reopen,
        mut stop,
    } = signals;
    let (stop_admin, stopped) = watch::channel(false);
    let admin = tokio::spawn(admin::serve(
        listener,
        Arc::new(Operator(Arc::clone(app))),
        stopped,
    ));
    tracing::info!(generation = 1, workers = app.workers.count(), "serving");
    let manager = ServiceManager::from_environment().map(Arc::new);
    if let Some(manager) = &manager {
        manager.ready();
        let (manager, app) = (Arc::clone(manager), Arc::clone(app));
        // It ends with the process: a drain that hangs must be noticed too.
        tokio::spawn(async move { manager.keep_pinging(&app.workers).await });
    }
    // One after the other: however many hang-ups come during a reload, they ask for one more.
    let reloads = tokio::spawn({
        let app = Arc::clone(app);
        async move {
            while hangup.recv().await.is_some() {
                app.reload("SIGHUP").await;
            }
        }
    });
    let reopening = tokio::spawn({
        let app = Arc::clone(app);
        async move {
            while reopen.recv().await.is_some() {
                // What went wrong is logged there.
                let _ = app.reopen_logs().await;
            }
        }
    });
    let freshness = tokio::spawn(refresh::keep(Arc::clone(app)));
    let blocks = tokio::spawn(blocks::end_in_time(Arc::clone(app)));
    let member_states = tokio::spawn(administrative::end_in_time(Arc::clone(app)));
    let alarms = tokio::spawn(alarms::keep(Arc::clone(app)));
    let fetching = tokio::spawn(crl_fetch::keep(Arc::clone(app)));
    let dns = tokio::spawn(dns::keep(Arc::clone(app)));
    let unkept = tokio::spawn(state_retry::keep(Arc::clone(app)));
    let cas_seen = tokio::spawn(cas_seen::keep(Arc::clone(app)));
    stop.recv().await;
    if let Some(manager) = &manager {
        manager.stopping();
    }
    dns.abort();
    fetching.abort();
    freshness.abort();
    blocks.abort();
    member_states.abort();
    alarms.abort();
    unkept.abort();
    cas_seen.abort();
    drain(app, &mut stop).await;
    reloads.abort();
    reopening.abort();
    cas_seen::store(app);
    let _ = stop_admin.send(true);
    let _ = timeout(CUT_GRACE, admin).await;
    drop(socket);
    if let Some(sink) = app.state().sink.take()
        && let Err(unwritten) = sink.close(CUT_GRACE)
    {
        tracing::error!("{unwritten}");
    }
}

/// Finishes what runs, takes no more, and says what came of it. A second signal cuts the grace short.
async fn drain(app: &App, stop: &mut Stop) {
    let began = Instant::now();
    let grace = app.state().foundation.config.drain_grace;
    let open = app.connections();
    tracing::info!(connections = open, ?grace, "draining");
    app.shared.signals.send_modify(|signals| {
        signals.phase = LifecyclePhase::Draining;
        signals.cut_at = Some(began + grace);
    });
    let names: Vec<_> = app
        .state()
        .bound
        .iter()
        .map(|bound| Arc::clone(&bound.listener.name))
        .collect();
    // New clients find no socket; those that wait in its queue are served.
    for bound in &mut app.state().bound {
        for endpoint in &mut bound.endpoints {
            endpoint.file = None;
        }
    }
    for name in &names {
        app.workers.close(name, None).await;
    }
    // Those that waited in the queues count too.
    let open = app.connections().max(open);
    tokio::select! {
        () = no_connection_left(app) => {}
        () = sleep_until(began + grace) => {}
        () = stop.recv() => {}
    }
    let cut = app.connections();
    if cut > 0 {
        app.shared
            .signals
            .send_modify(|signals| signals.phase = LifecyclePhase::Cutting);
        let _ = timeout(CUT_GRACE, no_connection_left(app)).await;
    }
    tracing::info!(finished = open.saturating_sub(cut), cut, took = ?began.elapsed(), "drained");
}

async fn no_connection_left(app: &App) {
    let mut look = interval(LOOK_INTERVAL);
    loop {
        look.tick().await;
        if app.connections() == 0 {
            return;
        }
    }
}
