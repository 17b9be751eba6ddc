//! One reload: prepared whole, committed in one store; whatever fails leaves the old generation serving.

use std::{
    io,
    sync::Arc,
    time::{Duration, SystemTime},
};

use admin::{ReloadOutcome, ReloadResult};
use config::{Colour, Config, Report, Watch};
use listener::{ListenEndpoint, Listener, ListeningSocket};
use pki::TrustStore;
use proxy::{Generation, LifecyclePhase};
use rustls_pki_types::UnixTime;
use telemetry::Alarm;
use tokio::{runtime::Handle, time::timeout};

use crate::{
    app::{App, Bound, State, adopt},
    certificates::refused_replacements,
    listening, lockout, log_outputs,
    materials::{
        files::{self, Found},
        stamps::Stamps,
        units::{self, Unit},
        unrequested_changes,
    },
    members::{
        passthrough,
        probes::{self, Probes},
    },
    prepare::{Foundation, Prepared, agents_copy, fingerprint, inherit_states, prepare},
    trust::stored_crls,
};

/// Time that a reload waits for first answers of members, whatever their pools allow them: blocks and fetched lists wait
/// for it.
const FIRST_PROBES_MAX: Duration = Duration::from_secs(5);

/// Sockets of an endpoint that a reload opens, with the name of their listener.
type NewSockets = (String, (listening::Bound, Vec<ListeningSocket>));

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
    /// Some of them are not right, and the previous ones of these stay; the others are active.
    Refused(String),
}

/// What was applied.
struct Applied {
    /// What has changed, for people.
    report: String,
    /// Why some of the changed materials are not active.
    refused: Option<String>,
}

/// What comes of some of the changed materials.
enum Built {
    Unchanged(Box<files::Read>),
    Changed(Box<Prepared>),
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
            Ok(applied) => (
                self.outcome(ReloadResult::Applied, applied.report),
                telemetry::CountedReload::Applied,
            ),
            Err(Stopped::Stopping | Stopped::Moving) => return self.stopping(),
            Err(Stopped::Unchanged) => {
                let report = match self.reopen_access_log() {
                    Ok(paths) if paths.is_empty() => "nothing has changed".to_owned(),
                    Ok(_) => "nothing has changed; reopened the access log".to_owned(),
                    Err(error) => format!("nothing has changed; {error}"),
                };
                (
                    self.outcome(ReloadResult::Unchanged, report),
                    telemetry::CountedReload::Unchanged,
                )
            }
            Err(Stopped::Refused(report)) => (
                self.outcome(ReloadResult::Refused, report),
                telemetry::CountedReload::Refused,
            ),
        };
        match outcome.result {
            ReloadResult::Refused => tracing::error!(
                asked_by,
                generation = outcome.generation,
                "reload refused, the previous configuration stays active: {}",
                one_line(&outcome.report)
            ),
            _ => {
                self.materials_are_good();
                // Materials that change by themselves do not end what an operator has to look at.
                self.shared.renewal.permit();
                tracing::info!(asked_by, generation = outcome.generation, result = ?outcome.result, "reloaded: {}", first_line(&outcome.report))
            }
        }
        self.state().last_reload = Some((SystemTime::now(), outcome.clone()));
        // Last, so that whoever sees it counted finds the rest told.
        self.lasting.metrics.reloaded(metric);
        self.reloaded.notify_one();
        self.fetching.reloaded.notify_one();
        self.lasting.answers.configured.notify_one();
        outcome
    }

    /// Reads the materials again because they have changed on disk. Each is applied or refused by itself: a revocation does
    /// not wait for another file. Files that change while they are read are left for the next time, unless the caller does
    /// `insist`.
    pub(crate) async fn refresh(self: &Arc<Self>, insist: bool) -> Refreshed {
        let _one_at_a_time = self.reloading.lock().await;
        if !self.is_serving() {
            return Refreshed::Taken;
        }
        let before = self.generation();
        match self.apply(Input::Materials, insist).await {
            Ok(Applied { report, refused }) => {
                if self.generation().trust.issuers() != before.trust.issuers() {
                    self.fetching.reloaded.notify_one();
                }
                let outcome = self.outcome(ReloadResult::Applied, report);
                tracing::info!(
                    asked_by = "materials",
                    generation = outcome.generation,
                    "reloaded: {}",
                    first_line(&outcome.report)
                );
                let metrics = &self.lasting.metrics;
                metrics.reloaded(telemetry::CountedReload::Applied);
                match refused {
                    Some(report) => return Refreshed::Refused(report),
                    None => self.materials_are_good(),
                }
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
        let message = format!(
            "changed materials are refused, and the previous materials stay active: {}",
            one_line(&report)
        );
        let alarms = &self.lasting.metrics.alarms;
        alarms.raise(Alarm::MaterialsRefused, "", message, since);
        state.refused_materials = Some((since, report));
        let metrics = &self.lasting.metrics;
        metrics.reloaded(telemetry::CountedReload::Refused);
    }

    /// Ends that alarm: what is on disk is in force.
    pub(crate) fn materials_are_good(&self) {
        self.state().refused_materials = None;
        let alarms = &self.lasting.metrics.alarms;
        alarms.clear(Alarm::MaterialsRefused, "");
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
        passthrough::assess(&self.lasting.metrics.alarms, generation);
        self.update_trust_alarms();
    }

    async fn apply(self: &Arc<Self>, input: Input, insist: bool) -> Result<Applied, Stopped> {
        // Parsing a large CRL takes its time; requests and the operator do not wait for it.
        let app = Arc::clone(self);
        let prepared = tokio::task::spawn_blocking(move || app.prepare(input, insist)).await;
        let (prepared, refused) =
            prepared.unwrap_or_else(|_| Err(Stopped::Refused("the reload failed".to_owned())))?;
        let report = self.commit(*prepared, input).await?;
        Ok(Applied { report, refused })
    }

    pub(crate) fn is_serving(&self) -> bool {
        self.shared.signals.borrow().phase == LifecyclePhase::Serving
    }

    fn stopping(&self) -> ReloadOutcome {
        self.outcome(
            ReloadResult::Stopping,
            "the process is stopping and does not reload".to_owned(),
        )
    }

    fn outcome(&self, result: ReloadResult, report: String) -> ReloadOutcome {
        ReloadOutcome {
            result,
            generation: self.generation().number,
            report,
        }
    }

    /// What is to be committed, and why some of the changed materials are left out of it.
    fn prepare(
        &self,
        input: Input,
        insist: bool,
    ) -> Result<(Box<Prepared>, Option<String>), Stopped> {
        // The state is changed by reloads only, and this is the one that runs.
        let foundation = self.state().foundation.clone();
        let before = Stamps::of(&foundation.draft);
        // Before anything is said of them: what is wrong may be that they were half there.
        let is_moving = || !insist && Stamps::of(&foundation.draft) != before;
        match input {
            Input::Everything => {
                let read = files::load_again(&self.options);
                if is_moving() {
                    return Err(Stopped::Moving);
                }
                let read = read.map_err(|report| Stopped::Refused(rendered(&report)))?;
                if fingerprint(&read.loaded) == foundation.fingerprint {
                    self.note_unchanged(read);
                    return Err(Stopped::Unchanged);
                }
                let config = &read.loaded.config;
                Handle::current().block_on(self.lasting.answers.ask_new(
                    config,
                    |_| true,
                    &self.lasting.metrics.alarms,
                ));
                let prepared = self.build(read, input, &foundation);
                Ok((Box::new(prepared.map_err(Stopped::Refused)?), None))
            }
            Input::Materials => {
                let found = files::found_materials(&foundation.draft);
                if is_moving() {
                    return Err(Stopped::Moving);
                }
                self.prepare_changed(&found, &foundation)
            }
        }
    }

    /// Prepares as much of the changed materials as is right, unit by unit.
    fn prepare_changed(
        &self,
        found: &Found,
        foundation: &Foundation,
    ) -> Result<(Box<Prepared>, Option<String>), Stopped> {
        let active = &foundation.materials;
        let wanted = found.draft.wanted();
        let changed = units::changed(wanted, &foundation.config, active, &found.materials);
        let selection = units::select(&changed, |accepted: &[&Unit]| {
            let materials = units::with(active, &found.materials, accepted);
            let read = found.with(materials).map_err(|report| rendered(&report))?;
            match fingerprint(&read.loaded) == foundation.fingerprint {
                true => Ok(Built::Unchanged(Box::new(read))),
                false => {
                    let prepared = self.build(read, Input::Materials, foundation)?;
                    Ok(Built::Changed(Box::new(prepared)))
                }
            }
        });
        let paths = selection.refused.iter().flat_map(|(unit, _)| unit.paths());
        let mut reports: Vec<_> = selection
            .refused
            .iter()
            .map(|(_, why)| why.trim_end())
            .collect();
        reports.dedup();
        let refused = (!reports.is_empty()).then(|| reports.join("\n"));
        match (selection.built, refused) {
            (Some(Built::Changed(mut prepared)), refused) => {
                prepared.stamps = prepared.stamps.without(paths);
                Ok((prepared, refused))
            }
            (Some(Built::Unchanged(mut read)), refused) => {
                read.stamps = read.stamps.without(paths);
                self.note_unchanged(*read);
                Err(refused.map_or(Stopped::Unchanged, Stopped::Refused))
            }
            (None, refused) => Err(Stopped::Refused(refused.unwrap_or_default())),
        }
    }

    /// The same bytes as before, read again.
    fn note_unchanged(&self, read: files::Read) {
        let mut state = self.state();
        // Fetched again by an agent's run and the same as before: it is young again.
        state.foundation.agents_copy = agents_copy(&read.loaded.config, &read.loaded.materials);
        state.foundation.materials = Arc::new(read.loaded.materials);
        state.foundation.draft = read.draft;
        state.foundation.stamps = read.stamps;
    }

    /// Builds a generation on the active one, or says why it must not be active.
    fn build(
        &self,
        read: files::Read,
        input: Input,
        foundation: &Foundation,
    ) -> Result<Prepared, String> {
        let current = self.generation();
        let previous = Some((foundation, &*current));
        let mut prepared = prepare(read, current.number + 1, &self.lasting, previous)
            .map_err(|report| rendered(&report))?;
        let certificates = prepared.own_certificates();
        let refused =
            refused_replacements(&foundation.certificates, &certificates, UnixTime::now());
        if !refused.is_empty() {
            return Err(refused.join("; "));
        }
        self.restore_lists(&mut prepared, &current);
        let mut lost = prepared.crls_lost(foundation, &current);
        if input == Input::Everything {
            // An operator who names other CRL files, or other CAs whose old signatures are accepted, means what follows.
            // Otherwise no operator means to refuse all agents of a CA.
            let (active, next) = (&foundation.config.trust, &prepared.config.trust);
            let said = active.crl != next.crl
                || active.settings.legacy_signatures != next.settings.legacy_signatures;
            lost.retain(|issuer| !said && prepared.generation.trust.needs_crl(issuer));
        }
        if !lost.is_empty() {
            return Err(without_crls(&lost, input));
        }
        let fault = match input {
            Input::Everything => None,
            Input::Materials => {
                unrequested_changes::fault(&prepared, foundation, &current, UnixTime::now())
            }
        };
        let fault = fault.or_else(|| locks_out(&prepared, &current));
        fault.map_or(Ok(prepared), Err)
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
        let restored = stored_crls::restore(trust, &self.state_directory, fetch.body_bytes_max);
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
    async fn commit(self: &Arc<Self>, prepared: Prepared, input: Input) -> Result<String, Stopped> {
        let (generation, foundation, report) = prepared.split();
        let kept: Vec<_> = self
            .state()
            .bound
            .iter()
            .flat_map(|bound| {
                let endpoints = bound.endpoints.iter();
                endpoints.map(|at| (at.endpoint.clone(), Arc::clone(&bound.listener.name)))
            })
            .collect();
        // Before the sockets: one that is closed again takes along who has connected to it meanwhile.
        let open_logs = || -> io::Result<_> {
            let config = &foundation.config;
            let others = log_outputs::open_others(config)?.into_iter();
            let others: Vec<_> = others.map(|(_, output)| output).collect();
            Ok((log_outputs::open(&config.access_log.output)?, others))
        };
        let logs = match input {
            Input::Everything => {
                Some(open_logs().map_err(|error| Stopped::Refused(error.to_string()))?)
            }
            // A revocation does not wait for a log.
            Input::Materials => None,
        };
        let moved = self.state().foundation.config.events != foundation.config.events;
        let events = match moved {
            true => Some(
                log_outputs::open_events(&foundation.config.events)
                    .map_err(|error| Stopped::Refused(error.to_string()))?,
            ),
            false => None,
        };
        let new = self.sockets(&foundation.config, &kept)?;
        let generation = Arc::new(generation);
        let changes = {
            let state = self.state();
            changes(
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
        let are_states_moved = inherit_states(&self.lasting.registry, &generation);
        adopt(&generation, &self.shared, &answered);
        self.put_in_force(&generation);

        for (name, sockets) in new {
            if !self.is_serving() {
                break;
            }
            // Known before it listens: a stop that comes just now closes it too.
            let (at, sockets) = sockets;
            let endpoint = at.endpoint.clone();
            let listener = self.state().add(&name, at);
            self.workers.listen(&listener, &endpoint, sockets).await;
        }
        for (endpoint, name) in kept {
            let mut listeners = foundation.config.listeners.iter();
            let stays = listeners
                .find(|l| *l.name == *name && l.endpoints().any(|stays| stays == endpoint));
            match stays {
                Some(settings) => self.state().set_access(settings, &endpoint),
                None => {
                    self.workers.close(&name, Some(&endpoint)).await;
                    self.state().retire(&endpoint, &name);
                }
            }
        }
        if are_states_moved {
            self.store_member_states().await;
        }
        let mut state = self.state();
        for bound in &state.bound {
            // Whoever waits at a limit looks at the new one.
            bound.listener.connections.limit_changed();
            bound.listener.handshakes.limit_changed();
        }
        if let (Some(sink), Some((first, others))) = (&state.sink, logs) {
            let first = (&foundation.config.access_log.settings, first);
            let others = foundation.config.other_access_logs.iter().zip(others);
            let others = others
                .map(|(log, output)| (&log.settings, output))
                .collect();
            if let Err(error) = sink.reopen(first, others) {
                tracing::error!(%error, "cannot start a thread for an access log");
            }
        }
        if let Some(events) = events {
            self.events.redirect(events, &self.lasting.metrics);
        }
        self.shared.assess_pools();
        self.lasting.forget_listeners(&foundation.config);
        self.forget_members(&generation);
        self.assess_writes(&generation, &foundation);
        state.foundation = foundation;
        state.loaded_at = SystemTime::now();
        state.probes = Probes::start(&generation, &self.shared, &answered);
        drop(state);
        self.update_fetch_alarms();
        self.update_certificate_alarms();
        let warnings = if report.problems.is_empty() {
            String::new()
        } else {
            report.render(Colour::Never)
        };
        Ok(format!("{changes}{warnings}").trim_end().to_owned())
    }

    /// Forgets what is known of members that are not in use any more.
    pub(crate) fn forget_members(&self, generation: &Generation) {
        self.lasting.forget(generation);
        let named = |pool: &str, address: &str| generation.names_member(pool, address);
        self.shared.members.retain(named);
        self.shared.assess_clocks();
    }

    /// Binds the endpoints of listeners that are not among those kept.
    fn sockets(
        &self,
        config: &Config,
        kept: &[(ListenEndpoint, Arc<str>)],
    ) -> Result<Vec<NewSockets>, Stopped> {
        let mut new = Vec::new();
        let listeners = config.listeners.iter();
        let endpoints = listeners.flat_map(|settings| {
            settings
                .endpoints()
                .map(move |endpoint| (settings, endpoint))
        });
        for (settings, endpoint) in endpoints {
            let name = &settings.name;
            if kept
                .iter()
                .any(|(at, of)| *at == endpoint && **of == **name)
            {
                continue;
            }
            // Or an address that takes this one's connections too: the port is ours either way.
            let ours = kept.iter().any(|(at, _)| at.port() == endpoint.port());
            let sockets = listening::bind(settings, &endpoint, self.workers.count(), ours)
                .map_err(|error| Stopped::Refused(error.to_string()))?;
            new.push((name.clone(), sockets));
        }
        Ok(new)
    }
}

impl State {
    /// Adds an endpoint to a listener, which is a new one if none has this name.
    fn add(&mut self, name: &str, endpoint: listening::Bound) -> Arc<Listener> {
        let known = self
            .bound
            .iter_mut()
            .find(|bound| *bound.listener.name == *name);
        if let Some(bound) = known {
            bound.endpoints.push(endpoint);
            return Arc::clone(&bound.listener);
        }
        let listener = Arc::new(Listener::new(name));
        self.bound.push(Bound {
            listener: Arc::clone(&listener),
            endpoints: vec![endpoint],
        });
        listener
    }

    /// Gives the file of a Unix socket that is kept the permissions that are configured now.
    fn set_access(&self, settings: &listener::ListenerSettings, endpoint: &ListenEndpoint) {
        let endpoints = self.bound.iter().flat_map(|bound| &bound.endpoints);
        let kept = endpoints.filter(|at| at.endpoint == *endpoint);
        for file in kept.filter_map(|at| at.file.as_ref()) {
            let set = listening::group(settings)
                .and_then(|group| file.set_access(settings.socket_mode.0, group));
            if let Err(error) = set {
                tracing::error!(%endpoint, %error, "cannot change the permissions of a socket");
            }
        }
    }

    /// Lets go of an endpoint, and of its listener if it was the last; the connections of a listener are still waited for
    /// when the process stops.
    fn retire(&mut self, endpoint: &ListenEndpoint, name: &str) {
        for bound in self
            .bound
            .iter_mut()
            .filter(|bound| *bound.listener.name == *name)
        {
            bound.endpoints.retain(|at| at.endpoint != *endpoint);
        }
        self.retired.extend(
            self.bound
                .extract_if(.., |bound| bound.endpoints.is_empty())
                .map(|bound| bound.listener),
        );
        self.retired
            .retain(|listener| listener.connections.inside() > 0);
    }
}

/// What an event shows of the report of an applied reload: what has changed. Warnings follow it in the report.
fn first_line(report: &str) -> &str {
    report.lines().next().unwrap_or_default()
}

/// What an event shows of the report of a refusal: the first error, and the last line, which counts the problems.
fn one_line(report: &str) -> String {
    let lines = || {
        report
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty())
    };
    let error = lines().find(|line| line.starts_with("error"));
    let first = error.or_else(|| lines().next()).unwrap_or_default();
    match lines().next_back() {
        Some(last) if last != first => {
            format!("{first} ({last}); run `proscenium check` to see every problem")
        }
        _ => first.to_owned(),
    }
}

fn rendered(report: &Report) -> String {
    report.render(Colour::Never)
}

/// What is said where files went away, or lost their end: whose CRL that was would be refused altogether, or worse, go
/// unchecked. That the latter is meant is said by a reload, and `unchecked`.
fn without_crls(lost: &[String], input: Input) -> String {
    let remedy = match input {
        Input::Materials => "or run `proscenium reload` to accept its removal",
        Input::Everything => {
            "remove the CA from the bundle, or name it in `unchecked`; otherwise the proxy would refuse all certificates of this CA"
        }
    };
    format!(
        "no file of [trust] crl or of a pool's `crl` contains a CRL of {} any longer; the active CRL stays in use. Restore the file, {remedy}",
        lost.join(", ")
    )
}

/// Why no agent would be accepted any more, where agents are accepted now: the same rule by which `check` refuses it.
fn locks_out(prepared: &Prepared, current: &Generation) -> Option<String> {
    let now = UnixTime::now();
    if current.trust.lockout(None, now).is_some() {
        return None;
    }
    let trust = &prepared.generation.trust;
    let fetches = prepared.config.trust.fetch.is_some();
    let fault = lockout::of_agents(trust, fetches, Some(&current.trust), now)?;
    Some(format!(
        "{}; the active CAs and CRLs stay in use: {}",
        fault.message, fault.help
    ))
}

/// What a reload changes: each setting by its key path, and the trust store.
fn changes(old: &Config, new: &Config, was: &Generation, is: &Generation) -> String {
    let mut changes: Vec<_> = old.changes(new).iter().map(ToString::to_string).collect();
    if was.trust.generation() != is.trust.generation() {
        changes.push(format!(
            "trust store (generation {})",
            is.trust.generation()
        ));
    }
    match changes.is_empty() {
        // The same settings, other bytes: a certificate renewed under its name.
        true => "changed: materials\n".to_owned(),
        false => format!("changed: {}\n", changes.join(", ")),
    }
}
