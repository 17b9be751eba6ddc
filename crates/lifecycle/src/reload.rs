//! One reload: reads and prepares everything, then commits it. Whatever fails leaves the active generation serving.

use std::{path::Path, sync::Arc, time::SystemTime};

use admin::{ConfigurationStatus, ReloadOutcome, ReloadResult};
use config::{ChangeDetection, Colour, Config, ConfigReport};
use proxy::Generation;
use rustls_pki_types::UnixTime;
use state::{Foundation, stamps::Stamps};
use telemetry::{Alarm, CountedReload};
use tokio::runtime::Handle;
use trust_keeper::{
    certificates::{self, refused_replacements},
    lockout,
};

use crate::{
    commit::{Commit, CommitError, Opened, Previous},
    materials::{
        files::{self, ConfigFiles, FoundMaterials},
        units::{self, Unit},
        unrequested_changes,
    },
    pending_changes::{AtStart, FilesOnDisk},
    prepare::{Prepared, agents_copy, fingerprint, prepare},
    replace_file_error::ReplaceFileError,
    shared_state::{App, Committer},
    stored_state,
};

/// What a reload reads again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Input {
    /// The configuration file and the materials that it names, because an operator requests it.
    Everything,
    /// The materials of the active configuration, because they have changed on disk. No operator has checked the change.
    Materials,
}

/// The result of reading materials that have changed.
pub(crate) enum Refreshed {
    /// They are active.
    Applied,
    /// They have changed again while they were read.
    Changing,
    /// Some of them are refused, and their previous versions stay active. The others are active.
    Refused(String),
}

/// An applied change.
struct Applied {
    /// What has changed, for the operator.
    report: String,
    /// Why some of the changed materials are not active.
    refused: Option<String>,
}

/// The result of building with some of the changed materials.
enum Built {
    Unchanged(Box<ConfigFiles>),
    Changed(Box<Prepared>),
}

/// Why nothing was committed.
enum Stopped {
    Unchanged,
    /// The process is stopping.
    Stopping,
    /// Files have changed while they were read.
    Changing,
    Refused(Refusal),
}

/// Why a change is not applied.
struct Refusal {
    report: String,
    at_start: AtStart,
}

impl Refusal {
    fn new(report: impl Into<String>, at_start: AtStart) -> Self {
        Self {
            report: report.into(),
            at_start,
        }
    }
}

impl App {
    /// Reads the configuration and its materials again and applies them, or reports why it does not.
    ///
    /// If the program on disk is another build, that program takes over and loads the configuration. A reload continues when
    /// its caller disconnects. A hand-over is then cancelled, unless the new process already owns the sockets.
    pub async fn reload(
        self: &Arc<Self>,
        asked_by: &str,
        caller_left: impl Future<Output = ()>,
    ) -> ReloadOutcome {
        if let Some(outcome) = self.hand_over_if_changed(asked_by, caller_left).await {
            return outcome;
        }
        let Some(writer) = self.committer_while_serving().await else {
            return self.stopping();
        };
        // Read before anything else, so that a change meanwhile is noticed.
        let stamps = self.stamps_on_disk().await;
        let (outcome, metric) = match writer.apply(Input::Everything, true).await {
            Ok(applied) => (
                self.outcome(ReloadResult::Applied, applied.report),
                CountedReload::Applied,
            ),
            Err(Stopped::Stopping | Stopped::Changing) => return self.stopping(),
            Err(Stopped::Unchanged) => {
                let report = match writer.reopen_access_logs() {
                    Ok(paths) if paths.is_empty() => "nothing has changed".to_owned(),
                    Ok(_) => "nothing has changed; reopened the access log".to_owned(),
                    Err(error) => format!("nothing has changed; {error}"),
                };
                (
                    self.outcome(ReloadResult::Unchanged, report),
                    CountedReload::Unchanged,
                )
            }
            Err(Stopped::Refused(Refusal { report, at_start })) => {
                tracing::error!(
                    asked_by,
                    generation = self.generation().number,
                    "reload refused, the previous configuration stays active: {}",
                    one_line(&report)
                );
                self.note_refused_reload(Some(stamps), at_start, &one_line(&report));
                (
                    self.outcome(ReloadResult::Refused, report),
                    CountedReload::Refused,
                )
            }
        };
        match outcome.result {
            ReloadResult::Refused => {}
            _ => {
                self.clear_refused_reload();
                self.clear_refused_materials();
                // Only an operator's reload ends these states, because an operator has to check their causes. A change of
                // materials does not.
                self.shared.renewal.permit();
                self.lasting
                    .metrics
                    .alarms
                    .clear(Alarm::CertnameOfTwoCas, "");
                tracing::info!(asked_by, generation = outcome.generation, result = %outcome.result, "reloaded: {}", first_line(&outcome.report));
                self.hand_over.former.reopen_logs().await;
            }
        }
        self.state().last_reload = Some((SystemTime::now(), outcome.clone()));
        self.assess_pending_settings().await;
        self.trust.store_unstored_crls().await;
        // Counted last, so that a reader of the metric finds everything else updated.
        self.lasting.metrics.reloaded(metric);
        self.reloaded.notify_one();
        self.trust.reloaded();
        self.sharing.reloaded();
        self.membership.reloaded();
        outcome
    }

    /// What a reload would do. Nothing is committed, and no address is bound.
    pub async fn dry_run(self: &Arc<Self>) -> ReloadOutcome {
        let Some(writer) = self.committer_while_serving().await else {
            return self.stopping();
        };
        match writer.try_reload().await {
            Ok(report) => self.outcome(ReloadResult::Applied, report),
            Err(Stopped::Unchanged) => {
                self.outcome(ReloadResult::Unchanged, "nothing has changed".to_owned())
            }
            Err(Stopped::Refused(Refusal { report, .. })) => {
                self.outcome(ReloadResult::Refused, report)
            }
            Err(Stopped::Stopping | Stopped::Changing) => self.stopping(),
        }
    }

    /// The active configuration, and what a reload would do.
    pub async fn configuration(self: &Arc<Self>) -> ConfigurationStatus {
        let reload = self.dry_run().await;
        ConfigurationStatus {
            generation: self.generation().number,
            loaded_at: self.active.loaded_at().into(),
            file: self.options.config.display().to_string(),
            active: self.foundation().config.show(false),
            reload,
        }
    }

    /// Reads the materials again because they have changed on disk. Each is applied or refused by itself, because a
    /// revocation must not wait for another file. Files that change while they are read are left for the next time, unless
    /// the caller insists.
    pub(crate) async fn refresh(self: &Arc<Self>, insist: bool) -> Refreshed {
        // A process that drains applies them too: its connections are verified against the new CRLs.
        let writer = self.committer().await;
        let before = self.generation();
        match writer.apply(Input::Materials, insist).await {
            Ok(Applied { report, refused }) => {
                if self.generation().trust.issuers() != before.trust.issuers() {
                    self.trust.fetch_soon();
                }
                let outcome = self.outcome(ReloadResult::Applied, report);
                tracing::info!(
                    asked_by = "materials",
                    generation = outcome.generation,
                    "reloaded: {}",
                    first_line(&outcome.report)
                );
                self.sharing.reloaded();
                let metrics = &self.lasting.metrics;
                metrics.reloaded(CountedReload::Applied);
                // Cleared before the CRLs are stored, so that the alarm does not wait for the disk.
                if refused.is_none() {
                    self.clear_refused_materials();
                }
                self.trust.store_unstored_crls().await;
                if let Some(report) = refused {
                    return Refreshed::Refused(report);
                }
            }
            Err(Stopped::Unchanged) => self.clear_refused_materials(),
            Err(Stopped::Stopping) => {}
            Err(Stopped::Changing) => return Refreshed::Changing,
            Err(Stopped::Refused(Refusal { report, .. })) => return Refreshed::Refused(report),
        }
        Refreshed::Applied
    }

    /// Raises the alarm about refused materials. A repeated refusal with the same report changes nothing.
    pub(crate) fn refuse_materials(&self, report: String) {
        let mut state = self.state();
        let since = match &state.refused_materials {
            Some((_, known)) if *known == report => return,
            Some((since, _)) => *since,
            None => SystemTime::now(),
        };
        let message = format!(
            "changed materials are refused, and the previous materials stay active, but a restart reads those on disk: {}",
            one_line(&report)
        );
        let alarms = &self.lasting.metrics.alarms;
        alarms.raise(Alarm::MaterialsRefused, "", message, since);
        state.refused_materials = Some((since, report));
        let metrics = &self.lasting.metrics;
        metrics.reloaded(CountedReload::Refused);
    }

    /// Clears the alarm about refused materials: those on disk are active.
    pub(crate) fn clear_refused_materials(&self) {
        self.state().refused_materials = None;
        let alarms = &self.lasting.metrics.alarms;
        alarms.clear(Alarm::MaterialsRefused, "");
    }

    /// Whether the active materials were read from files with these stamps.
    pub(crate) fn is_active(&self, stamps: &Stamps) -> bool {
        self.foundation().stamps == *stamps
    }

    /// Notes how changes of materials are noticed.
    pub(crate) fn watched_by(&self, watch: ChangeDetection) {
        self.state().watched_by = watch;
    }

    pub(crate) fn stopping(&self) -> ReloadOutcome {
        self.outcome(
            ReloadResult::Stopping,
            "the process is stopping and does not reload".to_owned(),
        )
    }

    pub(crate) fn outcome(&self, result: ReloadResult, report: String) -> ReloadOutcome {
        ReloadOutcome {
            result,
            generation: self.generation().number,
            report,
        }
    }

    /// The generation to commit, and why some of the changed materials are not part of it.
    fn prepare(
        &self,
        input: Input,
        insist: bool,
    ) -> Result<(Box<Prepared>, Option<String>), Stopped> {
        // Only a holder of the writer changes this state, and the reload that called this function holds the writer.
        let foundation = self.foundation();
        let before = Stamps::of(&foundation.draft);
        // Checked before any fault is reported, because a fault may only mean that a file was half written.
        let is_changing = || !insist && Stamps::of(&foundation.draft) != before;
        match input {
            Input::Everything => {
                let read = files::load_again(&self.options);
                if is_changing() {
                    return Err(Stopped::Changing);
                }
                let read = read.map_err(|report| {
                    Stopped::Refused(Refusal::new(rendered(&report), AtStart::Refused))
                })?;
                if fingerprint(&read.loaded) == foundation.fingerprint {
                    self.note_unchanged(read);
                    return Err(Stopped::Unchanged);
                }
                let config = &read.loaded.config;
                Handle::current().block_on(self.lasting.members.look_up_new(config, |_| true));
                let prepared = self.build(read, input, &foundation);
                Ok((Box::new(prepared.map_err(Stopped::Refused)?), None))
            }
            Input::Materials => {
                let found = files::found_materials(&foundation.draft);
                if is_changing() {
                    return Err(Stopped::Changing);
                }
                self.prepare_changed(&found, &foundation)
            }
        }
    }

    /// Prepares a generation with those of the changed materials that are valid, unit by unit.
    fn prepare_changed(
        &self,
        found: &FoundMaterials,
        foundation: &Foundation,
    ) -> Result<(Box<Prepared>, Option<String>), Stopped> {
        let active = &foundation.materials;
        let wanted = found.draft.wanted();
        let changed = units::changed(wanted, &foundation.config, active, &found.materials);
        let selection = units::select(&changed, |accepted: &[&Unit]| {
            let materials = units::with(active, &found.materials, accepted);
            let read = found.with(materials);
            let read = read.map_err(|report| rendered(&report))?;
            if fingerprint(&read.loaded) == foundation.fingerprint {
                return Ok(Built::Unchanged(Box::new(read)));
            }
            let prepared = self.build(read, Input::Materials, foundation);
            let prepared = prepared.map_err(|refusal| refusal.report)?;
            Ok(Built::Changed(Box::new(prepared)))
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
                Err(refused.map_or(Stopped::Unchanged, refused_to_run))
            }
            (None, refused) => Err(refused_to_run(refused.unwrap_or_default())),
        }
    }

    /// Prepares the active materials with the bytes of one file replaced, by the rules for materials that change on disk.
    /// Nothing is read, so the stamps are those of the active materials, and the next check finds the new file.
    fn prepare_with(&self, path: &Path, bytes: Vec<u8>) -> Result<Prepared, ReplaceFileError> {
        let refused = |report: &str| ReplaceFileError::Refused(one_line(report));
        let foundation = self.foundation();
        let mut materials = (*foundation.materials).clone();
        let file = materials.get_mut(path).and_then(|file| file.as_mut().ok());
        match file.map(|file| file.blobs.as_mut_slice()) {
            Some([blob]) => blob.bytes = bytes,
            _ => return Err(refused(&format!("{} is not one file", path.display()))),
        }
        let draft = foundation.draft.at(SystemTime::now());
        let read = ConfigFiles {
            loaded: draft
                .clone()
                .finish(materials)
                .map_err(|report| refused(&rendered(&report)))?,
            draft,
            stamps: foundation.stamps.clone(),
        };
        self.build(read, Input::Materials, &foundation)
            .map_err(|refusal| refused(&refusal.report))
    }

    /// Notes that the same bytes as before were read again.
    fn note_unchanged(&self, read: ConfigFiles) {
        self.active.note_same_materials(|foundation| {
            // The agent has fetched the same CRL again, so its copy is as old as that run.
            foundation.agents_copy = agents_copy(&read.loaded.config, &read.loaded.materials);
            foundation.materials = Arc::new(read.loaded.materials);
            foundation.draft = read.draft;
            foundation.stamps = read.stamps;
        });
    }

    /// Builds a generation on the active one.
    ///
    /// # Errors
    /// Why it must not become active.
    fn build(
        &self,
        read: ConfigFiles,
        input: Input,
        foundation: &Foundation,
    ) -> Result<Prepared, Refusal> {
        let served = |report: String| Refusal::new(report, AtStart::Used);
        let current = self.generation();
        let previous = Some((foundation, &*current));
        let mut prepared = prepare(read, current.number + 1, &self.lasting, previous)
            .map_err(|report| Refusal::new(rendered(&report), AtStart::Refused))?;
        let certificates = prepared.own_certificates();
        let active = certificates::of(foundation);
        let refused = refused_replacements(&active, &certificates, UnixTime::now());
        if !refused.is_empty() {
            return Err(served(refused.join("; ")));
        }
        // A fetched CRL leaves the trust store with its CA, and is restored when the CA returns.
        if prepared.generation.trust.issuers() != current.trust.issuers() {
            let restored = stored_state::restore_crls(&mut prepared, &self.state_directory);
            for unusable in &restored.unusable {
                tracing::error!("{unusable}");
            }
            for overruled in &restored.overruled {
                tracing::warn!("{overruled}");
            }
        }
        let mut lost = prepared.crls_lost(foundation, &current);
        if input == Input::Everything {
            // An operator who configures other CRL files, or other CAs with outdated signatures, accepts the loss of a CRL.
            // Otherwise a reload must not refuse all agents of a CA.
            let (active, next) = (&foundation.config.trust, &prepared.config.trust);
            let is_accepted = active.crl != next.crl
                || active.settings.legacy_signatures != next.settings.legacy_signatures;
            lost.retain(|issuer| !is_accepted && prepared.generation.trust.needs_crl(issuer));
        }
        if !lost.is_empty() {
            return Err(served(without_crls(&lost, input)));
        }
        let fault = match input {
            Input::Everything => None,
            Input::Materials => {
                unrequested_changes::fault(&prepared, foundation, &current, UnixTime::now())
            }
        };
        let fault = fault.or_else(|| locks_out(&prepared, &current));
        fault.map_or(Ok(prepared), |fault| Err(served(fault)))
    }
}

impl Committer<'_> {
    /// Prepares a generation from what is on disk, and commits it.
    async fn apply(&self, input: Input, insist: bool) -> Result<Applied, Stopped> {
        // Parsing a large CRL takes time, so it runs on a thread of its own. Requests and the operator do not wait for it.
        let app = Arc::clone(self.app);
        let prepared = tokio::task::spawn_blocking(move || app.prepare(input, insist)).await;
        let (prepared, refused) =
            prepared.unwrap_or_else(|_| Err(refused_to_run("the reload failed".to_owned())))?;
        let report = self.commit_prepared(*prepared, input).await?;
        Ok(Applied { report, refused })
    }

    /// What a reload would change, or why it would not. Nothing is committed, and no address is bound.
    async fn try_reload(&self) -> Result<String, Stopped> {
        let app = Arc::clone(self.app);
        let prepared = tokio::task::spawn_blocking(move || {
            let (prepared, _) = app.prepare(Input::Everything, true)?;
            let (generation, foundation, report) = prepared.split();
            let (active, config) = (app.generation(), app.foundation().config.clone());
            let changes = changes(&config, &foundation.config, &active, &generation);
            Ok(with_warnings(&changes, &report))
        });
        let prepared = prepared.await;
        // A new member or listener that was prepared is not part of the active generation.
        let app = self.app;
        app.membership.forget_removed(&app.generation());
        let config = app.foundation().config.clone();
        app.lasting.forget_listeners(&config);
        prepared.unwrap_or_else(|_| Err(refused_to_run("the preparation failed".to_owned())))
    }

    /// Compares the files on disk with the active ones after a reload has refused them.
    pub(crate) async fn files_on_disk(&self) -> FilesOnDisk {
        match self.try_reload().await {
            Ok(_) => FilesOnDisk::Valid,
            Err(Stopped::Unchanged) => FilesOnDisk::Active,
            Err(Stopped::Refused(Refusal { report, at_start })) => {
                FilesOnDisk::Refused(at_start, one_line(&report))
            }
            Err(Stopped::Stopping | Stopped::Changing) => FilesOnDisk::Unknown,
        }
    }

    /// Activates the active materials with the bytes of one file replaced, if the rules for changed materials allow it. `store`
    /// writes the file before that.
    ///
    /// # Errors
    /// Why it is not active: the rules, or what `store` reports.
    pub(crate) async fn replace_file<E: From<ReplaceFileError> + Send + 'static>(
        &self,
        path: &Path,
        bytes: Vec<u8>,
        store: impl FnOnce() -> Result<(), E> + Send + 'static,
    ) -> Result<(), E> {
        let (app, path) = (Arc::clone(self.app), path.to_owned());
        let prepared = tokio::task::spawn_blocking(move || {
            let prepared = app.prepare_with(&path, bytes)?;
            store().map(|()| prepared)
        });
        let prepared = prepared.await;
        let prepared = prepared.unwrap_or_else(|_| Err(ReplaceFileError::Internal.into()))?;
        let committed = self.commit_prepared(prepared, Input::Materials).await;
        committed.map(drop).map_err(|stopped| {
            E::from(match stopped {
                Stopped::Refused(refusal) => ReplaceFileError::Refused(one_line(&refusal.report)),
                _ => ReplaceFileError::Stopping,
            })
        })
    }

    /// Returns what has changed, for the operator.
    async fn commit_prepared(&self, prepared: Prepared, input: Input) -> Result<String, Stopped> {
        let (generation, foundation, report) = prepared.split();
        let previous = Previous::of(self.app);
        let workers = self.app.workers.count();
        let opened = match input {
            Input::Everything => Opened::open(&foundation.config, Some(&previous), workers)?,
            Input::Materials => {
                Opened::open_without_logs(&foundation.config, Some(&previous), workers)?
            }
        };
        let changes = changes(
            &previous.config,
            &foundation.config,
            &previous.generation,
            &generation,
        );
        let commit = Commit {
            generation: Arc::new(generation),
            foundation,
            previous: Some(previous),
            opened,
        };
        self.commit(commit).await?;
        Ok(with_warnings(&changes, &report))
    }
}

impl From<CommitError> for Stopped {
    fn from(error: CommitError) -> Self {
        match error {
            CommitError::Stopping => Self::Stopping,
            error => Self::Refused(Refusal::new(error.to_string(), AtStart::Fails)),
        }
    }
}

/// A refusal by the running process of files that a start would accept.
fn refused_to_run(report: String) -> Stopped {
    Stopped::Refused(Refusal::new(report, AtStart::Used))
}

/// The line of the report of an applied reload that its event shows: the changes. Warnings follow in the report.
fn first_line(report: &str) -> &str {
    report.lines().next().unwrap_or_default()
}

/// The lines of the report of a refusal that its event shows: the first error with its location, and the last line, which
/// counts the problems.
fn one_line(report: &str) -> String {
    let lines = || {
        report
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty())
    };
    let error = lines().find(|line| line.starts_with("error"));
    let first = error.or_else(|| lines().next()).unwrap_or_default();
    let place = lines()
        .skip_while(|line| *line != first)
        .find_map(|line| line.strip_prefix("--> "));
    let place = place.map_or_else(String::new, |place| format!(" at {place}"));
    match lines().next_back() {
        Some(last) if last != first => {
            format!("{first}{place} ({last}); run `proscenium check` to see every problem")
        }
        _ => first.to_owned(),
    }
}

fn with_warnings(changes: &str, report: &ConfigReport) -> String {
    let warnings = if report.problems.is_empty() {
        String::new()
    } else {
        report.render(Colour::Never)
    };
    format!("{changes}{warnings}").trim_end().to_owned()
}

fn rendered(report: &ConfigReport) -> String {
    report.render(Colour::Never)
}

/// The report about a change that would remove CRLs. Without its CRL, all certificates of a CA would be refused, or would not
/// be checked for revocation. An operator accepts the latter with a reload and `unchecked`.
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

/// The reason if this reload would refuse every agent that is accepted now. `check` applies the same rule.
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
    if changes.is_empty() {
        // The settings are the same and the bytes differ: a certificate was renewed in its file.
        changes.push("materials".to_owned());
    }
    format!("changed: {}\n", changes.join(", "))
}
