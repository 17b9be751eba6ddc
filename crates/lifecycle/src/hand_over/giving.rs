//! The serving process's side of a hand-over.

use std::{
    io,
    os::fd::OwnedFd,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant, SystemTime},
};

use state::supervise::{PANICKED, blocking};
use tokio::{
    net::{UnixListener, UnixStream},
    runtime::Handle,
    sync::watch,
    time::{sleep, timeout},
};

use super::{
    AGENTS_PER_MESSAGE, ANSWER_MAX, DESCRIPTORS_MAX, EndpointName, PREPARE_MAX, PassedSocket,
    RunningProgram, SOCKET, START_MAX, STORE_MAX, ToNew, ToServing, VERSION,
    agents::PassedAgent,
    channel::Channel,
    former::{self, FormerProcesses},
    launcher::{Launcher, parent},
    program::is_on_disk,
};
use crate::{service_manager::ServiceManager, shared_state::App, socket_file::SocketFile};

/// What the process knows about hand-overs.
#[derive(Debug)]
pub(crate) struct HandOverState {
    pub(crate) program: RunningProgram,
    /// Why the last hand-over failed.
    failure: Mutex<Option<String>>,
    /// The connection of the running hand-over, which a stop closes.
    running: Mutex<Option<std::os::unix::net::UnixStream>>,
    /// Held while the program that this process has started prepares to take over.
    pub(super) starting: tokio::sync::Mutex<()>,
    /// The launcher of that program.
    launcher: Mutex<Option<Launcher>>,
    preparing: Mutex<Option<PreparingProcess>>,
    /// The processes that handed over to this one and have not ended.
    pub(crate) former: Arc<FormerProcesses>,
    /// Whether this process has handed over and finished its requests.
    pub(crate) finished: watch::Sender<bool>,
    /// The stored states of members that this process applies after it has handed over.
    followed_states: Mutex<Option<String>>,
}

/// A process that prepares to take over.
#[derive(Clone, Debug)]
pub(crate) struct PreparingProcess {
    pub(crate) pid: u32,
    pub(crate) since: SystemTime,
    /// `None` until it has connected.
    pub(crate) version: Option<String>,
}

impl HandOverState {
    pub(crate) fn new(program: RunningProgram) -> Self {
        Self {
            program,
            failure: Mutex::default(),
            running: Mutex::default(),
            starting: tokio::sync::Mutex::default(),
            launcher: Mutex::default(),
            preparing: Mutex::default(),
            former: Arc::default(),
            finished: watch::Sender::new(false),
            followed_states: Mutex::default(),
        }
    }

    /// The stored states of members that this process applies after it has handed over.
    pub(super) fn followed_states(&self) -> MutexGuard<'_, Option<String>> {
        let states = self.followed_states.lock();
        states.unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn preparing(&self) -> Option<PreparingProcess> {
        self.preparing_process().clone()
    }

    /// Notes that a process prepares to take over, and its version as soon as it is known.
    pub(super) fn prepares(&self, pid: u32, version: Option<String>) {
        let mut preparing = self.preparing_process();
        let known = preparing.take().filter(|known| known.pid == pid);
        *preparing = Some(PreparingProcess {
            pid,
            since: known
                .as_ref()
                .map_or_else(SystemTime::now, |known| known.since),
            version: version.or_else(|| known?.version),
        });
    }

    /// Notes that no process prepares to take over any longer.
    pub(super) fn prepares_no_more(&self) {
        *self.preparing_process() = None;
    }

    fn preparing_process(&self) -> MutexGuard<'_, Option<PreparingProcess>> {
        self.preparing
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// The launcher of the program that this process has started.
    pub(super) fn launcher(&self) -> MutexGuard<'_, Option<Launcher>> {
        self.launcher.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a process that wants to take over runs the program that is on disk.
    fn is_on_disk(&self, pid: u32) -> bool {
        let launcher = self.launcher();
        let started = launcher
            .as_ref()
            .filter(|launcher| launcher.has_started(pid));
        let started = started.map(|launcher| &launcher.program);
        // A process that an operator has started may run a program that this process cannot read.
        is_on_disk(pid, started).unwrap_or_else(|_| started.is_none())
    }

    /// Allows a process to own the sockets. From now on, that process continues even if the command that requested it
    /// disconnects. Returns false if the process was ended before.
    fn let_own(&self, pid: u32) -> bool {
        let mut launcher = self.launcher();
        let launcher = launcher
            .as_mut()
            .filter(|launcher| launcher.has_started(pid));
        launcher.is_none_or(Launcher::let_own)
    }

    /// Makes the process that has taken over a child of the service manager.
    fn release(&self) {
        let launcher = self.launcher().take_if(|launcher| launcher.owns());
        if let Some(Err(error)) = launcher.map(Launcher::release) {
            tracing::error!(%error, "the launcher of the new process does not end: a stop of the service may not wait for the new process");
        }
    }

    /// Ends a running hand-over, because this process stops. The other process ends too, unless it serves already.
    pub(crate) fn cancel(&self) {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(stream) = &*running {
            let _ = stream.shutdown(std::net::Shutdown::Both);
        }
    }

    fn set_running(&self, stream: Option<std::os::unix::net::UnixStream>) {
        *self.running.lock().unwrap_or_else(PoisonError::into_inner) = stream;
    }

    /// Takes the reason why the last hand-over failed.
    pub(crate) fn take_failure(&self) -> Option<String> {
        self.failure().take()
    }

    fn failure(&self) -> MutexGuard<'_, Option<String>> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The connection of a former process to the one that has taken over.
pub(crate) struct HandOverConnection {
    _open: Channel,
}

#[derive(Debug, thiserror::Error)]
enum HandOverError {
    #[error("the new process has failed: {0}")]
    Failed(String),
    #[error("{0}")]
    Refused(String),
    #[error("no valid message from the new process: {0}")]
    Channel(#[from] io::Error),
}

/// Whether the process that has taken over still runs.
pub(crate) fn successor_runs(app: &App) -> bool {
    let pid = *app.active.successor().borrow();
    pid.is_some_and(|pid| parent(pid).is_ok())
}

/// Accepts hand-overs, one at a time, until one succeeds or this future is dropped. After a success, it reports to the new
/// process until this one has finished its requests. When the returned connection is closed, the new process assumes that this
/// process has ended.
pub(crate) async fn accept_hand_overs(app: Arc<App>) -> Option<HandOverConnection> {
    let path = app.state_directory.path().join(SOCKET);
    let bound = SocketFile::bind_private(&path).and_then(|(file, listener)| {
        listener.set_nonblocking(true)?;
        Ok((file, UnixListener::from_std(listener)?))
    });
    let (file, listener) = match bound {
        Ok(bound) => bound,
        Err(error) => {
            let path = path.display();
            tracing::warn!(%error, %path, "no other process can take over, because its socket cannot be bound");
            return None;
        }
    };
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "cannot accept a hand-over");
                sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let giving = Arc::clone(&app);
        let given = blocking("hand-over", move || give(&giving, stream)).await;
        match given.unwrap_or_else(|| Err(HandOverError::Failed(PANICKED.to_owned()))) {
            Ok((channel, pid)) => {
                // The new process binds this path next.
                drop((listener, file));
                let finished = blocking("former-process", move || {
                    finish(&app, &channel, pid);
                    HandOverConnection { _open: channel }
                });
                return finished.await;
            }
            Err(error) => {
                tracing::error!(
                    history.kind = "process",
                    "no hand-over, this process continues to serve: {error}"
                );
                *app.hand_over.failure() = Some(error.to_string());
            }
        }
    }
}

/// Passes the sockets and the state directory. From then on, the other process serves.
fn give(app: &Arc<App>, stream: UnixStream) -> Result<(Channel, u32), HandOverError> {
    let stream = stream.into_std()?;
    app.hand_over.set_running(Some(stream.try_clone()?));
    let channel = Channel::new(stream)?;
    let given = give_on(app, &channel);
    app.hand_over.set_running(None);
    app.hand_over.prepares_no_more();
    given.map(|pid| (channel, pid))
}

fn give_on(app: &Arc<App>, channel: &Channel) -> Result<u32, HandOverError> {
    let pid = channel.peer()?;
    let (ToServing::Hello { version, build }, _) = channel.receive(ANSWER_MAX)? else {
        return Err(io::Error::from(io::ErrorKind::InvalidData).into());
    };
    let refuse = |why: &str| {
        let why = why.to_owned();
        let _ = channel.send(&ToNew::Refused { why: why.clone() });
        Err(HandOverError::Refused(why))
    };
    if version != VERSION {
        return refuse(&format!(
            "the new process has version {version} of the hand-over, and this one {VERSION}: stop this one and start the new one"
        ));
    }
    tracing::info!(
        history.kind = "process",
        pid,
        build,
        "another process is preparing to take over"
    );
    app.hand_over.prepares(pid, Some(build));
    if ServiceManager::is_named() && !is_of_our_service(pid) {
        return refuse(
            "the new process is not part of this process's service; run `systemctl reload` in place of `proscenium run --hand-over`",
        );
    }
    send_sockets(app, channel)?;
    expect_prepared(channel.receive(PREPARE_MAX)?.0)?;

    let runtime = Handle::current();
    // Nothing changes the state until the other process serves or has failed.
    let Ok(writer) = runtime.block_on(timeout(STORE_MAX, app.active.writer())) else {
        return refuse("a reload is running; try again");
    };
    if !app.is_serving() {
        return refuse("the process is stopping");
    }
    app.trust.store_cas_seen();
    // Changes are stored after they are applied, so some may not be stored yet.
    runtime.block_on(async {
        app.trust.store().await;
        app.membership.store_states().await;
    });
    app.store_history();
    if let Some(why) = app.state_directory.trouble() {
        return refuse(&format!(
            "the state cannot be passed, because it cannot be stored: {why}"
        ));
    }
    // An operator may have restored the old program before this moment.
    if !app.hand_over.is_on_disk(pid) {
        return refuse(
            "the program of the new process is no longer the one on disk; run `proscenium reload` again",
        );
    }
    if !app.hand_over.let_own(pid) {
        return refuse("the new process was ended");
    }
    app.state_directory.unlock();
    let serving = channel
        .send(&ToNew::Unlocked)
        .and_then(|()| channel.receive(START_MAX))
        .map_err(HandOverError::from)
        .and_then(|(message, _)| expect_serving(message));
    // The other process cannot know whether this one still runs, so it continues to serve unless it gets a refusal.
    let serving = serving.and_then(|()| match app.is_serving() {
        true => Ok(()),
        false => Err(HandOverError::Refused("the process is stopping".to_owned())),
    });
    if let Err(error) = serving {
        let why = error.to_string();
        let _ = channel.send(&ToNew::Refused { why });
        channel.close();
        lock_again(app);
        return Err(error);
    }
    app.hand_over.release();
    if let Some(manager) = ServiceManager::from_environment() {
        manager.main_process(pid);
    }
    app.active.hand_over_to(pid);
    drop(writer);
    Ok(pid)
}

/// Whether a process is in the control group of this one.
fn is_of_our_service(pid: u32) -> bool {
    let group = |process: &str| std::fs::read_to_string(format!("/proc/{process}/cgroup")).ok();
    group("self") == group(&pid.to_string())
}

/// Notifies the other process that this one drains, and of its requests until it has finished them.
fn finish(app: &Arc<App>, channel: &Channel, pid: u32) {
    tracing::info!(pid, "handed over; this process finishes its requests");
    let report = former::report(app);
    // Sent first, so that the new process knows the requests before it answers operators.
    let sent = former::send(channel, &report)
        .and_then(|()| channel.send(&ToNew::Draining))
        .and_then(|()| {
            let mut agents = app.shared.agents.all().map(PassedAgent::from).peekable();
            while agents.peek().is_some() {
                let some = agents.by_ref().take(AGENTS_PER_MESSAGE).collect();
                channel.send(&ToNew::Agents(some))?;
            }
            former::keep_reporting(app, channel, report)
        });
    if let Err(error) = sent {
        tracing::warn!(%error, "the new process does not know the requests of this one, or the agents that it has seen");
    }
}

/// Sends copies of all sockets. The last message may have none.
fn send_sockets(app: &App, channel: &Channel) -> io::Result<()> {
    let (sockets, descriptors): (Vec<_>, Vec<_>) = passed_sockets(app).into_iter().unzip();
    let generation = app.generation().number;
    let parts = sockets.chunks(DESCRIPTORS_MAX);
    for (sockets, descriptors) in parts.zip(descriptors.chunks(DESCRIPTORS_MAX)) {
        let sockets = sockets.to_vec();
        let is_last = false;
        let message = ToNew::Sockets {
            sockets,
            is_last,
            generation,
        };
        channel.send_with(&message, descriptors)?;
    }
    channel.send(&ToNew::Sockets {
        sockets: Vec::new(),
        is_last: true,
        generation,
    })
}

fn passed_sockets(app: &App) -> Vec<(PassedSocket, OwnedFd)> {
    let shared = Handle::current().block_on(app.workers.shared_sockets());
    let mut passed: Vec<_> = shared
        .into_iter()
        .map(|shared| {
            let name = EndpointName::of(&shared.endpoint);
            (PassedSocket::Listener(name), shared.socket)
        })
        .collect();
    let state = app.state();
    if let Some(admin) = state.admin.as_ref().and_then(|one| one.try_clone().ok()) {
        let path = app.admin_socket.clone();
        passed.push((PassedSocket::Admin(path), admin.into()));
    }
    let metrics = state.metrics.as_ref();
    if let Some((metrics, address)) = metrics.zip(app.foundation().config.metrics.address)
        && let Ok(copy) = metrics.socket.try_clone()
    {
        passed.push((PassedSocket::Metrics(address), copy.into()));
    }
    passed
}

fn expect_prepared(message: ToServing) -> Result<(), HandOverError> {
    match message {
        ToServing::Prepared => Ok(()),
        other => Err(unexpected(other)),
    }
}

fn expect_serving(message: ToServing) -> Result<(), HandOverError> {
    match message {
        ToServing::Serving => Ok(()),
        other => Err(unexpected(other)),
    }
}

fn unexpected(message: ToServing) -> HandOverError {
    match message {
        ToServing::Failed { why } => HandOverError::Failed(why),
        other => HandOverError::Failed(format!("it sent {other:?} out of turn")),
    }
}

/// Locks the state directory again after a failed hand-over, as soon as the other process has ended.
fn lock_again(app: &App) {
    app.history_file().forget_content();
    let began = Instant::now();
    while let Err(error) = app.state_directory.lock() {
        if began.elapsed() > ANSWER_MAX {
            tracing::error!("after a failed hand-over: {error}");
            app.state_directory.lost();
            return;
        }
        std::thread::sleep(LOCK_INTERVAL);
    }
}

/// Pause after an accept error, so that repeated errors do not use up the processor.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How often the lock is tried again.
const LOCK_INTERVAL: Duration = Duration::from_millis(20);
