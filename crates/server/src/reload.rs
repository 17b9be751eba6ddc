//! One reload: prepared whole, committed in one store; whatever fails leaves the old generation serving.

use std::{
    net::{SocketAddr, TcpListener},
    sync::Arc,
    time::{Duration, SystemTime},
};

use admin::{ReloadOutcome, ReloadResult};
use config::{Colour, Config, Report, Watch};
use listener::Listener;
use pki::TrustStore;
use proxy::{Generation, Phase};
use tokio::time::timeout;

use crate::{
    app::{App, Bound, State, adopt, is_file},
    files, lists, outputs,
    prepare::{Prepared, agents_copy, fingerprint, prepare},
    probes,
    stamps::Stamps,
};

/// Time that a reload waits for first answers of members, whatever their pools allow them: blocks and fetched lists wait
/// for it.
const FIRST_PROBES_MAX: Duration = Duration::from_secs(5);

/// What is read again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Input {
    /// The text of the configuration and the materials it names, because somebody asks.
    Everything,
    /// The materials that the text in force names, because they have changed. Nobody has looked at them.
    Materials,
}

/// What came of reading materials that have changed.
pub(crate) enum Refreshed {
    /// They are in force.
    Taken,
    /// They have changed while they were read.
    Moving,
    /// They are not right; those before stay.
    Refused(String),
}

/// Why nothing is committed.
enum Stopped {
    Unchanged,
    /// The process stops.
    Stopping,
    /// Files changed while they were read.
    Moving,
    Refused(String),
}

impl App {
    /// Reads text and materials again and applies them, or says why not. One at a time.
    pub(crate) async fn reload(self: &Arc<Self>, asked_by: &str) -> ReloadOutcome {
        let _one_at_a_time = self.reloading.lock().await;
        if !self.is_serving() {
            return self.stopping();
        }
        let (outcome, metric) = match self.apply(Input::Everything, true).await {
            Ok(report) => (
                self.outcome(ReloadResult::Applied, report),
                telemetry::ReloadResult::Applied,
            ),
            Err(Stopped::Stopping | Stopped::Moving) => return self.stopping(),
            Err(Stopped::Unchanged) => {
                let report = format!("nothing has changed{}", self.reopen_access_log());
                (
                    self.outcome(ReloadResult::Unchanged, report),
                    telemetry::ReloadResult::Unchanged,
                )
            }
            Err(Stopped::Refused(report)) => (
                self.outcome(ReloadResult::Refused, report),
                telemetry::ReloadResult::Refused,
            ),
        };
        match outcome.result {
            ReloadResult::Refused => tracing::error!(
                asked_by,
                generation = outcome.generation,
                "reload refused, the generation before serves on:\n{}",
                outcome.report
            ),
            _ => {
                self.materials_are_good();
                // Materials that change by themselves do not end what an operator has to look at.
                self.shared.renewal.permit();
                tracing::info!(asked_by, generation = outcome.generation, result = ?outcome.result, "reloaded: {}", outcome.report)
            }
        }
        self.state().last_reload = Some((SystemTime::now(), outcome.clone()));
        // Last, so that whoever sees it counted finds the rest told.
        self.lasting.metrics.reloaded(metric);
        self.reloaded.notify_one();
        self.fetching.reloaded.notify_one();
        outcome
    }

    /// Reads the materials in force again, since they have changed on disk, and applies them or says why not. Files that
    /// change while they are read are left for the next time, unless the caller does `insist`.
    pub(crate) async fn refresh(self: &Arc<Self>, insist: bool) -> Refreshed {
        let _one_at_a_time = self.reloading.lock().await;
        if !self.is_serving() {
            return Refreshed::Taken;
        }
        let before = self.generation();
        match self.apply(Input::Materials, insist).await {
            Ok(report) => {
                if self.generation().trust.issuers() != before.trust.issuers() {
                    self.fetching.reloaded.notify_one();
                }
                let outcome = self.outcome(ReloadResult::Applied, report);
                tracing::info!(
                    asked_by = "materials",
                    generation = outcome.generation,
                    "reloaded: {}",
                    outcome.report
                );
                self.materials_are_good();
                self.state().last_reload = Some((SystemTime::now(), outcome));
                let metrics = &self.lasting.metrics;
                metrics.reloaded(telemetry::ReloadResult::Applied);
            }
            Err(Stopped::Unchanged) => self.materials_are_good(),
            Err(Stopped::Stopping) => {}
            Err(Stopped::Moving) => return Refreshed::Moving,
            Err(Stopped::Refused(report)) => return Refreshed::Refused(report),
        }
        Refreshed::Taken
    }

    /// Raises the alarm about materials on disk; the same one is raised once.
    pub(crate) fn refuse_materials(&self, report: String) {
        let mut state = self.state();
        let since = match &state.refused_materials {
            Some((_, told)) if *told == report => return,
            Some((since, _)) => *since,
            None => SystemTime::now(),
        };
        tracing::error!(
            "materials have changed on disk and are refused, the ones before stay in force:\n{report}"
        );
        let outcome = self.outcome(ReloadResult::Refused, report.clone());
        state.last_reload = Some((SystemTime::now(), outcome));
        state.refused_materials = Some((since, report));
        let metrics = &self.lasting.metrics;
        metrics.reloaded(telemetry::ReloadResult::Refused);
    }

    /// Ends that alarm: what is on disk is in force.
    pub(crate) fn materials_are_good(&self) {
        if self.state().refused_materials.take().is_some() {
            tracing::info!("the materials on disk are in force again");
        }
    }

    /// Whether this is what the materials in force were when they were read.
    pub(crate) fn is_in_force(&self, stamps: &Stamps) -> bool {
        self.state().foundation.stamps == *stamps
    }

    /// Notes who notices changes of materials.
    pub(crate) fn watched_by(&self, watch: Watch) {
        self.state().watched_by = watch;
    }

    /// Puts another trust store in force, whatever stands in files now. The caller holds `reloading`: a preparation that
    /// runs meanwhile would undo it.
    pub(crate) fn swap_trust(&self, trust: TrustStore) {
        let generation = Arc::new(self.generation().with_trust(Arc::new(trust)));
        self.put_in_force(&generation);
        self.state().loaded_at = SystemTime::now();
    }

    fn put_in_force(&self, generation: &Arc<Generation>) {
        self.shared.current.store(Arc::clone(generation));
        self.lasting.metrics.generation(generation.number);
        self.shared
            .signals
            .send_modify(|signals| signals.trust_generation = generation.trust.generation());
    }

    async fn apply(self: &Arc<Self>, input: Input, insist: bool) -> Result<String, Stopped> {
        // Parsing a large CRL takes its time; requests and the operator do not wait for it.
        let app = Arc::clone(self);
        let prepared = tokio::task::spawn_blocking(move || app.prepare(input, insist)).await;
        let prepared = prepared
            .unwrap_or_else(|_| Err(Stopped::Refused("the reload broke off".to_owned())))?;
        self.commit(*prepared, input).await
    }

    pub(crate) fn is_serving(&self) -> bool {
        self.shared.signals.borrow().phase == Phase::Serving
    }

    fn stopping(&self) -> ReloadOutcome {
        self.outcome(
            ReloadResult::Stopping,
            "the process is stopping and reloads no more".to_owned(),
        )
    }

    fn outcome(&self, result: ReloadResult, report: String) -> ReloadOutcome {
        ReloadOutcome {
            result,
            generation: self.generation().number,
            report,
        }
    }

    fn prepare(&self, input: Input, insist: bool) -> Result<Box<Prepared>, Stopped> {
        let refused = |report: Report| Stopped::Refused(report.render(Colour::Never));
        // The state is changed by reloads only, and this is the one that runs.
        let foundation = self.state().foundation.clone();
        let before = Stamps::of(&foundation.draft);
        let read = match input {
            Input::Everything => files::load_again(&self.options),
            Input::Materials => files::load_materials(&foundation.draft),
        };
        // Before anything is said of them: what is wrong may be that they were half there.
        if !insist && Stamps::of(&foundation.draft) != before {
            return Err(Stopped::Moving);
        }
        let read = read.map_err(refused)?;
        if fingerprint(&read.loaded) == foundation.fingerprint {
            let mut state = self.state();
            // Fetched again by an agent's run and the same as before: it is young again.
            state.foundation.agents_copy = agents_copy(&read.loaded.config, &read.loaded.materials);
            state.foundation.draft = read.draft;
            state.foundation.stamps = read.stamps;
            return Err(Stopped::Unchanged);
        }
        let current = self.generation();
        let previous = Some((&foundation, &*current));
        let mut prepared =
            prepare(read, current.number + 1, &self.lasting, previous).map_err(refused)?;
        self.restore_lists(&mut prepared, &current);
        let mut lost = prepared.crls_lost(&foundation, &current);
        if input == Input::Everything {
            // Whoever changes the words about trust means what follows. Where only files have changed, nobody means to
            // refuse all agents of a CA.
            let said = foundation.config.trust != prepared.config.trust;
            lost.retain(|issuer| !said && prepared.generation.trust.needs_crl(issuer));
        }
        match lost.is_empty() {
            true => Ok(Box::new(prepared)),
            false => Err(Stopped::Refused(without_crls(&lost, input))),
        }
    }

    /// Where the bundle has other CAs than before: a list that was fetched left with its CA, and comes back with it.
    fn restore_lists(&self, prepared: &mut Prepared, current: &Generation) {
        let trust = &prepared.generation.trust;
        let Some(fetch) = prepared.config.trust.fetch else {
            return;
        };
        if trust.issuers() == current.trust.issuers() {
            return;
        }
        let restored = lists::restore(trust, &self.state_directory, fetch.body_bytes_max);
        for unusable in &restored.unusable {
            tracing::error!("{unusable}");
        }
        for overruled in &restored.overruled {
            tracing::warn!("{overruled}");
        }
        if let Some(trust) = restored.trust {
            prepared.generation.trust = Arc::new(trust);
        }
    }

    /// New before old: log and sockets first, then the one store, then what is no longer needed goes.
    async fn commit(&self, prepared: Prepared, input: Input) -> Result<String, Stopped> {
        let (generation, foundation, report) = prepared.split();
        let kept: Vec<_> = self
            .state()
            .bound
            .iter()
            .map(|bound| (bound.configured, Arc::clone(&bound.listener.name)))
            .collect();
        // Before the sockets: one that is closed again takes along who has connected to it meanwhile.
        let log = match input {
            Input::Everything => Some(
                outputs::open(&foundation.config.access_log.output)
                    .map_err(|error| Stopped::Refused(error.to_string()))?,
            ),
            // A revocation does not wait for a log.
            Input::Materials => None,
        };
        let moved = self.state().foundation.config.events != foundation.config.events;
        let events = match moved {
            true => Some(
                outputs::open_events(&foundation.config.events)
                    .map_err(|error| Stopped::Refused(error.to_string()))?,
            ),
            false => None,
        };
        let new = self.sockets(&foundation.config, &kept)?;
        let generation = Arc::new(generation);
        let changes = {
            let state = self.state();
            Changes::between(
                &state.foundation.config,
                &foundation.config,
                &self.generation(),
                &generation,
            )
        };
        let mut answered = Vec::new();
        let before = self.generation();
        let first = probes::first(&generation, &before, &mut answered);
        let _ = timeout(FIRST_PROBES_MAX, first).await;
        // The stop may have come meanwhile: it closes what listens now, and nobody is to be let in after that.
        if !self.is_serving() {
            return Err(Stopped::Stopping);
        }
        adopt(&generation, &self.shared, &answered);
        self.put_in_force(&generation);

        for (settings, sockets) in new {
            if !self.is_serving() {
                break;
            }
            let listener = Arc::new(Listener::new(&settings.name));
            let address = sockets
                .first()
                .and_then(|socket| socket.local_addr().ok())
                .unwrap_or(settings.address);
            // Known before it listens: a stop that comes just now closes it too.
            self.state().bound.push(Bound {
                listener: Arc::clone(&listener),
                configured: settings.address,
                address,
            });
            self.workers.listen(&listener, sockets).await;
        }
        for (address, name) in kept {
            let stays = foundation
                .config
                .listeners
                .iter()
                .any(|l| l.address == address && *l.name == *name);
            if !stays {
                let named = foundation.config.listeners.iter().any(|l| *l.name == *name);
                if !named {
                    self.workers.close(&name).await;
                }
                self.state().retire(address, &name);
            }
        }
        let mut state = self.state();
        for bound in &state.bound {
            // Whoever waits at a limit looks at the new one.
            bound.listener.connections.limit_changed();
            bound.listener.handshakes.limit_changed();
        }
        if let (Some(sink), Some(log)) = (&state.sink, log) {
            sink.reopen(log, foundation.config.access_log.settings.format);
        }
        if let Some(events) = events {
            self.events.redirect(events, &self.lasting.metrics);
        }
        self.lasting.forget(&foundation.config);
        state.foundation = foundation;
        state.loaded_at = SystemTime::now();
        state.probes = probes::start(&generation, &self.shared, &answered);
        let warnings = if report.problems.is_empty() {
            String::new()
        } else {
            report.render(Colour::Never)
        };
        Ok(format!("{changes}{warnings}").trim_end().to_owned())
    }

    /// Binds the listeners that are not among those kept.
    fn sockets(
        &self,
        config: &Config,
        kept: &[(SocketAddr, Arc<str>)],
    ) -> Result<Vec<(listener::Settings, Vec<TcpListener>)>, Stopped> {
        let mut new = Vec::new();
        for settings in &config.listeners {
            let is_kept = |(address, name): &(SocketAddr, Arc<str>)| {
                *address == settings.address && **name == *settings.name
            };
            if kept.iter().any(is_kept) {
                continue;
            }
            // Or an address that takes this one's connections too: the port is ours either way.
            let ours = kept
                .iter()
                .any(|(address, _)| address.port() == settings.address.port());
            let sockets = listener::bind(settings.address, self.workers.count(), ours)
                .map_err(|error| Stopped::Refused(error.to_string()))?;
            new.push((settings.clone(), sockets));
        }
        Ok(new)
    }

    /// Lets go of a file that was rotated away, and says so.
    fn reopen_access_log(&self) -> String {
        let state = self.state();
        let log = &state.foundation.config.access_log;
        let (true, Some(sink)) = (is_file(&log.output), &state.sink) else {
            return String::new();
        };
        match outputs::open(&log.output) {
            Ok(output) => {
                sink.reopen(output, log.settings.format);
                "; the access log was opened anew".to_owned()
            }
            Err(error) => {
                tracing::error!(%error, "the access log is written where it was");
                format!("; the access log is written where it was: {error}")
            }
        }
    }
}

impl State {
    /// Lets go of a listener; its connections are still waited for when the process stops.
    fn retire(&mut self, address: SocketAddr, name: &str) {
        let goes = |bound: &Bound| bound.configured == address && *bound.listener.name == *name;
        self.retired.extend(
            self.bound
                .extract_if(.., |bound| goes(bound))
                .map(|bound| bound.listener),
        );
        self.retired
            .retain(|listener| listener.connections.inside() > 0);
    }
}

/// What is said where files went away, or lost their end: whose CRL that was would be refused altogether, or worse, go
/// unchecked. That the latter is meant is said by a reload, and `unchecked`.
fn without_crls(lost: &[String], input: Input) -> String {
    let remedy = match input {
        Input::Materials => "or run `proscenium reload` if it is meant to go",
        Input::Everything => {
            "take the CA out of the bundle, or name it in `unchecked`: all that it issued would be refused"
        }
    };
    format!(
        "no file of [trust] crl or of a pool's `crl` holds a CRL of {} any more; the one in force stays. Put it back, \
         {remedy}",
        lost.join(", ")
    )
}

/// What a reload changes, for people.
struct Changes(Vec<String>);

impl Changes {
    fn between(old: &Config, new: &Config, was: &Generation, is: &Generation) -> Self {
        let mut changes = Vec::new();
        let mut note = |changed: bool, what: String| {
            if changed {
                changes.push(what);
            }
        };
        note(old.listeners != new.listeners, "listeners".to_owned());
        note(
            (&old.certificates, &old.listener_certificates)
                != (&new.certificates, &new.listener_certificates),
            "certificates named".to_owned(),
        );
        note(
            was.trust.generation() != is.trust.generation(),
            format!("trust (generation {})", is.trust.generation()),
        );
        for pool in &new.pools {
            let before = old
                .pools
                .iter()
                .find(|before| before.pool.name == pool.pool.name);
            note(before != Some(pool), format!("pool {}", pool.pool.name));
        }
        for pool in &old.pools {
            let gone = !new
                .pools
                .iter()
                .any(|after| after.pool.name == pool.pool.name);
            note(gone, format!("pool {} removed", pool.pool.name));
        }
        note(old.routes != new.routes, "routes".to_owned());
        note(
            old.materials != new.materials,
            "how materials are watched".to_owned(),
        );
        note(old.identity != new.identity, "identity".to_owned());
        note(old.exchange != new.exchange, "upstream limits".to_owned());
        note(
            old.trust.revoked_close_rate != new.trust.revoked_close_rate,
            "trust.revoked_close_rate".to_owned(),
        );
        note(old.drain_grace != new.drain_grace, "drain_grace".to_owned());
        note(old.access_log != new.access_log, "access log".to_owned());
        note(old.events != new.events, "events".to_owned());
        note(
            old.workers != new.workers,
            "workers (in force after a restart)".to_owned(),
        );
        note(
            old.admin != new.admin,
            "admin socket (in force after a restart)".to_owned(),
        );
        note(
            old.state_directory != new.state_directory,
            "state directory (in force after a restart)".to_owned(),
        );
        note(
            old.access_log.settings.queue_max != new.access_log.settings.queue_max,
            "access_log.queue_max (in force after a restart)".to_owned(),
        );
        Self(changes)
    }
}

impl std::fmt::Display for Changes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.0.is_empty() {
            // Same settings, other bytes: a certificate renewed under its name.
            return f.write_str("changed: materials\n");
        }
        writeln!(f, "changed: {}", self.0.join(", "))
    }
}
