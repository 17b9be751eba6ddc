//! A commit: makes a prepared generation the active one. A start commits its first generation the same way as a reload, with
//! nothing active before it.
//!
//! New things come first: log outputs and sockets are opened, then the generation is stored, then what is no longer
//! configured is closed.

use std::{io, net::TcpListener, sync::Arc, time::Duration};

use config::Config;
use listener::BindError;
use membership::{AnsweredProbe, first_probes};
use proxy::Generation;
use state::{Foundation, supervise::supervise_detached};
use telemetry::{AccessLogs, Alarm, Daemon, Metrics};
use tokio::{sync::watch, time::timeout};

use crate::{
    descriptors,
    hand_over::TakenSockets,
    listening::{self, BoundSockets, NamedEndpoint},
    log_outputs::{self, OpenedAccessLogs},
    metrics_endpoint::{self, MetricsBindError, MetricsChange, MetricsEndpoint},
    shared_state::{App, Committer},
};

/// How long the first commit waits for the first answers from members.
const START_PROBES_MAX: Duration = Duration::from_secs(1);
/// How long a reload waits for the first answers of members, even if their pools allow more, because blocks and fetched CRLs
/// wait for the reload.
const RELOAD_PROBES_MAX: Duration = Duration::from_secs(5);

/// Everything that a commit activates.
pub(crate) struct Commit {
    pub(crate) generation: Arc<Generation>,
    pub(crate) foundation: Foundation,
    /// `None` for the first commit of a process.
    pub(crate) previous: Option<Previous>,
    pub(crate) opened: Opened,
}

/// What is active before a commit.
pub(crate) struct Previous {
    pub(crate) generation: Arc<Generation>,
    pub(crate) config: Config,
    endpoints: Vec<NamedEndpoint>,
}

/// What a commit opens before it changes anything, so that a failure leaves everything as it is.
pub(crate) struct Opened {
    /// `None` if the logs stay as they are.
    access_logs: Option<OpenedAccessLogs>,
    /// The new destination of events: a log daemon, or `Some(None)` for standard error. `None` if the destination does not
    /// change.
    events: Option<Option<Daemon>>,
    sockets: Vec<BoundSockets>,
    metrics: MetricsChange,
}

/// Why nothing was committed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CommitError {
    #[error(transparent)]
    AccessLog(io::Error),
    #[error(transparent)]
    Events(io::Error),
    #[error(transparent)]
    Bind(#[from] BindError),
    #[error(transparent)]
    Metrics(#[from] MetricsBindError),
    #[error("the process is stopping")]
    Stopping,
}

impl Previous {
    pub(crate) fn of(app: &App) -> Self {
        let state = app.state();
        Self {
            generation: app.generation(),
            config: app.foundation().config.clone(),
            endpoints: state.listeners.endpoints(),
        }
    }
}

impl Opened {
    /// Whether nothing was opened: no log, no socket.
    fn is_empty(&self) -> bool {
        self.access_logs.is_none()
            && self.events.is_none()
            && self.sockets.is_empty()
            && matches!(self.metrics, MetricsChange::None)
    }

    /// Opens everything for the first commit of a process, which may have sockets of another process.
    ///
    /// # Errors
    /// As for [`open`](Self::open).
    pub(crate) fn open_first(
        config: &Config,
        taken: &mut TakenSockets,
    ) -> Result<Self, CommitError> {
        Self::open_all(config, None, config.workers, taken)
    }

    /// Opens the access logs, and whatever else differs from `previous`.
    ///
    /// # Errors
    /// A log or an address cannot be opened. Everything that was opened is closed again.
    pub(crate) fn open(
        config: &Config,
        previous: Option<&Previous>,
        workers: usize,
    ) -> Result<Self, CommitError> {
        Self::open_all(config, previous, workers, &mut TakenSockets::default())
    }

    fn open_all(
        config: &Config,
        previous: Option<&Previous>,
        workers: usize,
        taken: &mut TakenSockets,
    ) -> Result<Self, CommitError> {
        // Logs are opened before sockets, because closing a socket again would reset clients that have connected meanwhile.
        let access_logs = OpenedAccessLogs::open(config).map_err(CommitError::AccessLog)?;
        Ok(Self {
            access_logs: Some(access_logs),
            ..Self::open_others(config, previous, workers, taken)?
        })
    }

    /// As [`open`](Self::open), but leaves the access logs as they are, because a revocation must not wait for a log.
    ///
    /// # Errors
    /// As for [`open`](Self::open).
    pub(crate) fn open_without_logs(
        config: &Config,
        previous: Option<&Previous>,
        workers: usize,
    ) -> Result<Self, CommitError> {
        Self::open_others(config, previous, workers, &mut TakenSockets::default())
    }

    fn open_others(
        config: &Config,
        previous: Option<&Previous>,
        workers: usize,
        taken: &mut TakenSockets,
    ) -> Result<Self, CommitError> {
        // A start has redirected its events already.
        let is_moved = previous.is_some_and(|previous| previous.config.events != config.events);
        let events = is_moved.then(|| log_outputs::open_events(&config.events));
        Ok(Self {
            access_logs: None,
            events: events.transpose().map_err(CommitError::Events)?,
            metrics: metrics_endpoint::bind(
                &config.metrics,
                previous.map(|previous| &previous.config.metrics),
                taken,
            )?,
            sockets: new_sockets(config, previous, workers, taken)?,
        })
    }

    /// Starts the access logs of the process with the opened outputs.
    ///
    /// # Errors
    /// The operating system provides no thread.
    pub(crate) fn start_access_logs(
        &mut self,
        config: &Config,
        metrics: &Arc<Metrics>,
    ) -> Result<AccessLogs, CommitError> {
        let opened = match self.access_logs.take() {
            Some(opened) => Ok(opened),
            None => OpenedAccessLogs::open(config),
        };
        let started = opened.and_then(|opened| opened.start(metrics));
        started.map_err(CommitError::AccessLog)
    }
}

/// Binds the configured endpoints that are not open yet, or takes their sockets from the process that serves.
fn new_sockets(
    config: &Config,
    previous: Option<&Previous>,
    workers: usize,
    taken: &mut TakenSockets,
) -> Result<Vec<BoundSockets>, BindError> {
    let open = previous.map_or(&[][..], |previous| &previous.endpoints);
    let mut new = Vec::new();
    for settings in &config.listeners {
        for endpoint in settings.endpoints() {
            let is_open = |open: &NamedEndpoint| {
                open.endpoint == endpoint && *open.listener == *settings.name
            };
            if open.iter().any(is_open) {
                continue;
            }
            if let Some(sockets) = taken.take(&endpoint) {
                new.push(listening::adopt(settings, &endpoint, sockets, workers)?);
                continue;
            }
            // Another address may cover this one, so any socket of the process at this port counts.
            let is_port_ours = open
                .iter()
                .any(|open| open.endpoint.port() == endpoint.port())
                || taken.has_port(endpoint.port());
            new.push(listening::bind(settings, &endpoint, workers, is_port_ours)?);
        }
    }
    Ok(new)
}

/// Serves metrics on a bound address.
fn serve_metrics(app: &Arc<App>, listener: TcpListener) -> Option<MetricsEndpoint> {
    let address = listener.local_addr().ok()?;
    let socket = listener.try_clone().ok()?;
    let (stop, stopped) = watch::channel(false);
    let serving = {
        let app = Arc::clone(app);
        move || {
            let (listener, stopped) = (listener.try_clone(), stopped.clone());
            let control = (app.control)(Arc::clone(&app));
            async move { admin::serve_metrics(listener?, control, stopped).await }
        }
    };
    let alarms = Arc::clone(&app.lasting.metrics.alarms);
    // The task ends by itself when the endpoint is dropped, after the requests that run.
    supervise_detached(alarms, "metrics", serving);
    tracing::info!(%address, "serving metrics");
    Some(MetricsEndpoint {
        address,
        socket,
        _stop: stop,
    })
}

impl Committer<'_> {
    /// Makes a generation the active one.
    ///
    /// # Errors
    /// [`CommitError::Stopping`]: a stop was requested meanwhile. Nothing has changed.
    pub(crate) async fn commit(&self, commit: Commit) -> Result<(), CommitError> {
        let Commit {
            generation,
            foundation,
            previous,
            opened,
        } = commit;
        let app = self.app;
        let foundation = Arc::new(foundation);
        let is_first = previous.is_none();
        let answered = probed_first(&generation, previous.as_ref()).await;
        // A stop has closed the listeners. Changed materials still apply to the connections that are open.
        if !app.is_serving() && !opened.is_empty() {
            return Err(CommitError::Stopping);
        }
        let are_states_moved = app.membership.adopt(&generation, &answered);
        self.writer.activate(&generation, Arc::clone(&foundation));
        descriptors::apply(&app.shared, &foundation.config, &generation);
        self.listen(opened.sockets, previous.is_none()).await;
        if let Some(previous) = previous {
            self.close_removed(&previous.endpoints, &foundation.config)
                .await;
        }
        if are_states_moved {
            app.membership.store_states().await;
        }
        {
            let state = app.state();
            for open in &state.listeners.open {
                // Connections that wait because of a limit check the new limit.
                open.listener.connections.limit_changed();
            }
            if let (Some(logs), Some(opened)) = (&state.access_logs, opened.access_logs) {
                if let Err(error) = opened.reopen(logs) {
                    tracing::error!(%error, "cannot start a thread for an access log");
                }
                app.shared.metrics.alarms.clear(Alarm::AccessLog, "");
            }
            if let Some(events) = opened.events {
                app.events.redirect(events, &app.lasting.metrics);
            }
            app.shared.assess_pools();
            app.lasting.forget_listeners(&foundation.config);
            app.membership
                .committed(&generation, &foundation, &answered);
        }
        app.trust.update_crl_alarms();
        app.trust.update_certificate_alarms();
        // At a start, the socket may still belong to the process that hands over. Later, it may belong to the process that took
        // over.
        if !is_first && app.active.owns_state() {
            app.set_socket_mode();
        }
        if let MetricsChange::Replace(listener) = opened.metrics {
            let endpoint = listener.and_then(|listener| serve_metrics(app, listener));
            app.state().metrics = endpoint;
        }
        Ok(())
    }

    /// Accepts connections on new sockets.
    async fn listen(&self, sockets: Vec<BoundSockets>, is_first: bool) {
        let app = self.app;
        let clients = &app.shared.descriptors.clients;
        for BoundSockets {
            listener: name,
            endpoint: bound,
            sockets,
        } in sockets
        {
            if !app.is_serving() {
                break;
            }
            let endpoint = bound.endpoint.clone();
            if is_first {
                let address = &bound.address;
                tracing::info!(listener = %name, %address, "listening");
            }
            // Added before it listens, so that a stop at this moment closes it too.
            let listener = app.state().listeners.add(&name, bound, clients);
            app.workers.listen(&listener, &endpoint, sockets).await;
        }
    }

    /// Closes the endpoints that are no longer configured. The others get the configured permissions.
    async fn close_removed(&self, open: &[NamedEndpoint], config: &Config) {
        let app = self.app;
        for open in open {
            let mut listeners = config.listeners.iter();
            let configured = listeners.find(|settings| {
                *settings.name == *open.listener
                    && settings.endpoints().any(|stays| stays == open.endpoint)
            });
            match configured {
                Some(settings) => app.state().listeners.set_access(settings, &open.endpoint),
                None => {
                    app.workers
                        .close(&open.listener, Some(&open.endpoint))
                        .await;
                    app.state().listeners.remove(open);
                }
            }
        }
    }
}

/// Probes the members of pools that would otherwise start without a member that is known to be up.
async fn probed_first(next: &Generation, previous: Option<&Previous>) -> Vec<AnsweredProbe> {
    let (current, wait) = match previous {
        Some(previous) => (Some(&*previous.generation), RELOAD_PROBES_MAX),
        None => (None, START_PROBES_MAX),
    };
    let mut answered = Vec::new();
    let _ = timeout(wait, first_probes(next, current, &mut answered)).await;
    answered
}
