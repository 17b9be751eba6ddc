//! One reload: reads and prepares everything, then commits it. Whatever fails leaves the active generation serving.

use std::{mem, path::Path, sync::Arc, time::SystemTime};

use admin::{ConfigurationStatus, ReloadOutcome, ReloadResult};
use config::{ChangeDetection, Colour, Config, ConfigReport};
use membership::Lookup;
use proxy::Generation;
use rustls_pki_types::UnixTime;
use state::{ActiveSnapshot, stamps::Stamps, supervise::blocking};
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
    prepare::{Lasting, Prepared, agents_copy, fingerprint, prepare},
    replace_file_error::ReplaceFileError,
    shared_state::{App, Committer},
    stored_state,
};

/// What a reload reads again.
#[derive(Clone, Debug)]
pub(crate) enum Input {
    /// The configuration file and the materials that it names, because an operator requests it.
    Everything,
    /// A text that was applied before, and the materials that it names, because an operator requests it.
    Text(String),
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
pub(crate) struct Applied {
    /// What has changed, for the operator.
    pub(crate) report: String,
    /// Why some of the changed materials are not active.
    refused: Option<String>,
}

/// A prepared change. Nothing of the running process has changed yet.
enum Prepare {
    /// The same bytes as the active ones.
    Unchanged(Box<ConfigFiles>),
    Changed(Box<Prepared>),
}

/// What a preparation has found.
struct Preparation {
    prepared: Prepare,
    /// Why some of the changed materials are not part of it.
    refused: Option<String>,
    /// Lookups of names that the active configuration does not have.
    lookups: Vec<Lookup>,
}

/// Why nothing was committed.
pub(crate) enum Stopped {
    Unchanged,
    /// The process is stopping.
    Stopping,
    /// Files have changed while they were read.
    Changing,
    Refused(Refusal),
}

/// Why a change is not applied.
pub(crate) struct Refusal {
    pub(crate) report: String,
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
                    history.kind = "reload",
                    history.subject = "configuration",
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
        if outcome.result != ReloadResult::Refused {
            self.clear_refused_reload();
            self.clear_rollback();
        }
        self.follow_request(asked_by, &outcome, metric).await;
        drop(writer);
        if outcome.result != ReloadResult::Refused {
            self.store_applied_text().await;
        }
        outcome
    }

    /// Follows a reload that an operator has requested, whatever its result.
    pub(crate) async fn follow_request(
        self: &Arc<Self>,
        asked_by: &str,
        outcome: &ReloadOutcome,
        metric: CountedReload,
    ) {
        if outcome.result != ReloadResult::Refused {
            self.clear_refused_materials();
            // Only an operator's reload ends these states, because an operator has to check their causes. A change of
            // materials does not.
            self.shared.renewal.permit();
            self.lasting
                .metrics
                .alarms
                .clear(Alarm::CertnameOfTwoCas, "");
            tracing::info!(
                history.kind = "reload",
                history.subject = "configuration",
                asked_by, generation = outcome.generation, result = %outcome.result,
                "reloaded: {}", first_line(&outcome.report)
            );
            self.hand_over.former.reopen_logs().await;
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
    }

    /// What a reload would do. The running process is only read, so it does not wait for a reload that runs.
    pub async fn dry_run(self: &Arc<Self>) -> ReloadOutcome {
        if !self.is_serving() {
            return self.stopping();
        }
        self.try_input(Input::Everything).await
    }

    /// What applying this would do.
    pub(crate) async fn try_input(self: &Arc<Self>, input: Input) -> ReloadOutcome {
        match self.try_reload(input).await {
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

    /// What a reload would change, or why it would not. Nothing is committed, and no address is bound.
    async fn try_reload(self: &Arc<Self>, input: Input) -> Result<String, Stopped> {
        // They run one after the other, so that readers cannot use all threads that block.
        let turn = Arc::clone(&self.dry_runs).acquire_owned().await;
        let app = Arc::clone(self);
        let prepared = blocking("prepare", move || {
            let _turn = turn;
            let active = app.active.snapshot();
            match app.prepare(&input, true, &active)?.prepared {
                Prepare::Unchanged(_) => Err(Stopped::Unchanged),
                Prepare::Changed(prepared) => {
                    let (generation, foundation, report) = prepared.split();
                    let changes = changes(
                        (&active.foundation.config, &active.generation),
                        (&foundation.config, &generation),
                    );
                    Ok(with_warnings(&changes, &report))
                }
            }
        });
        let prepared = prepared.await;
        prepared.unwrap_or_else(|| Err(refused_to_run("the preparation failed".to_owned())))
    }

    /// Compares the files on disk with the active ones after a reload has refused them.
    pub(crate) async fn files_on_disk(self: &Arc<Self>) -> FilesOnDisk {
        match self.try_reload(Input::Everything).await {
            Ok(_) => FilesOnDisk::Valid,
            Err(Stopped::Unchanged) => FilesOnDisk::Active,
            Err(Stopped::Refused(Refusal { report, at_start })) => {
                FilesOnDisk::Refused(at_start, one_line(&report))
            }
            Err(Stopped::Stopping | Stopped::Changing) => FilesOnDisk::Unknown,
        }
    }

    /// The active configuration, and what a reload would do.
    pub async fn configuration(self: &Arc<Self>) -> ConfigurationStatus {
        let reload = self.dry_run().await;
        let active = self.active.snapshot();
        let (started, accepted) = (self.pending.started(), &active.foundation.config);
        ConfigurationStatus {
            generation: active.generation.number,
            loaded_at: active.loaded_at.into(),
            file: self.options.config.display().to_string(),
            active: accepted.running_since(started).show(false),
            restart_pending: started.after_restart(accepted).into_iter().collect(),
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
                    history.kind = "reload",
                    history.subject = "materials",
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

    /// Prepares the next generation from what is on disk, on the active one. It changes nothing of the running process.
    fn prepare(
        &self,
        input: &Input,
        insist: bool,
        active: &ActiveSnapshot,
    ) -> Result<Preparation, Stopped> {
        let foundation = &active.foundation;
        let before = Stamps::of(&foundation.draft);
        // Checked before any fault is reported, because a fault may only mean that a file was half written.
        let is_changing = || !insist && Stamps::of(&foundation.draft) != before;
        match input {
            Input::Everything | Input::Text(_) => {
                let read = match input {
                    Input::Text(text) => files::load_text(&self.options, text.clone()),
                    _ => files::load_again(&self.options),
                };
                if is_changing() {
                    return Err(Stopped::Changing);
                }
                let read = read.map_err(|report| {
                    Stopped::Refused(Refusal::new(rendered(&report), AtStart::Refused))
                })?;
                self.prepare_read(read, active)
            }
            Input::Materials => {
                let found = files::found_materials(&foundation.draft);
                if is_changing() {
                    return Err(Stopped::Changing);
                }
                self.prepare_changed(&found, active)
            }
        }
    }

    /// Prepares a generation from a configuration that an operator requests.
    fn prepare_read(
        &self,
        read: ConfigFiles,
        active: &ActiveSnapshot,
    ) -> Result<Preparation, Stopped> {
        if fingerprint(&read.loaded) == active.foundation.fingerprint {
            return Ok(Preparation {
                prepared: Prepare::Unchanged(Box::new(read)),
                refused: None,
                lookups: Vec::new(),
            });
        }
        let lasting = self.lasting.for_preparation();
        let config = &read.loaded.config;
        let new_names = lasting.members.look_up_new(config, |_| true);
        let lookups = Handle::current().block_on(new_names);
        lasting.members.assume(config, &lookups);
        let prepared = self.build(read, &Input::Everything, active, &lasting);
        Ok(Preparation {
            prepared: Prepare::Changed(Box::new(prepared.map_err(Stopped::Refused)?)),
            refused: None,
            lookups,
        })
    }

    /// Prepares a generation with those of the changed materials that are valid, unit by unit.
    fn prepare_changed(
        &self,
        found: &FoundMaterials,
        active: &ActiveSnapshot,
    ) -> Result<Preparation, Stopped> {
        let foundation = &active.foundation;
        let materials = &foundation.materials;
        let wanted = found.draft.wanted();
        let changed = units::changed(wanted, &foundation.config, materials, &found.materials);
        let lasting = self.lasting.for_preparation();
        let selection = units::select(&changed, |accepted: &[&Unit]| {
            let materials = units::with(materials, &found.materials, accepted);
            let read = found.with(materials);
            let read = read.map_err(|report| rendered(&report))?;
            if fingerprint(&read.loaded) == foundation.fingerprint {
                return Ok(Prepare::Unchanged(Box::new(read)));
            }
            let prepared = self.build(read, &Input::Materials, active, &lasting);
            let prepared = prepared.map_err(|refusal| refusal.report)?;
            Ok(Prepare::Changed(Box::new(prepared)))
        });
        let paths = selection.refused.iter().flat_map(|(unit, _)| unit.paths());
        let mut reports: Vec<_> = selection
            .refused
            .iter()
            .map(|(_, why)| why.trim_end())
            .collect();
        reports.dedup();
        let refused = (!reports.is_empty()).then(|| reports.join("\n"));
        let Some(mut prepared) = selection.built else {
            return Err(refused_to_run(refused.unwrap_or_default()));
        };
        let stamps = match &mut prepared {
            Prepare::Unchanged(read) => &mut read.stamps,
            Prepare::Changed(prepared) => &mut prepared.stamps,
        };
        *stamps = mem::take(stamps).without(paths);
        Ok(Preparation {
            prepared,
            refused,
            lookups: Vec::new(),
        })
    }

    /// Prepares the active materials with the bytes of one file replaced, by the rules for materials that change on disk.
    /// Nothing is read, so the stamps are those of the active materials, and the next check finds the new file.
    fn prepare_with(&self, path: &Path, bytes: Vec<u8>) -> Result<Prepared, ReplaceFileError> {
        let refused = |report: &str| ReplaceFileError::Refused(one_line(report));
        let active = self.active.snapshot();
        let foundation = &active.foundation;
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
        let lasting = self.lasting.for_preparation();
        self.build(read, &Input::Materials, &active, &lasting)
            .map_err(|refusal| refused(&refusal.report))
    }

    /// Builds a generation on the active one.
    ///
    /// # Errors
    /// Why it must not become active.
    fn build(
        &self,
        read: ConfigFiles,
        input: &Input,
        active: &ActiveSnapshot,
        lasting: &Lasting,
    ) -> Result<Prepared, Refusal> {
        let served = |report: String| Refusal::new(report, AtStart::Used);
        let (current, foundation) = (&*active.generation, &*active.foundation);
        let previous = Some((foundation, current));
        let mut prepared = prepare(read, current.number + 1, lasting, previous)
            .map_err(|report| Refusal::new(rendered(&report), AtStart::Refused))?;
        let certificates = prepared.own_certificates();
        let served_now = certificates::of(foundation);
        let refused = refused_replacements(&served_now, &certificates, UnixTime::now());
        if !refused.is_empty() {
            return Err(served(refused.join("; ")));
        }
        // A fetched CRL leaves the trust store with its CA, and is restored when the CA returns.
        if prepared.generation.trust.issuers() != current.trust.issuers() {
            let restored = stored_state::restore_crls(&mut prepared, &self.state_directory);
            prepared.restored_crls = Some(restored);
        }
        let mut lost = prepared.crls_lost(foundation, current);
        let is_requested = !matches!(input, Input::Materials);
        if is_requested {
            // An operator who configures other CRL files, or other CAs with outdated signatures, accepts the loss of a CRL.
            // Otherwise a reload must not refuse all agents of a CA.
            let (active, next) = (&foundation.config.trust, &prepared.config.trust);
            let is_accepted = active.crl != next.crl
                || active.settings.legacy_signatures != next.settings.legacy_signatures;
            lost.retain(|issuer| !is_accepted && prepared.generation.trust.needs_crl(issuer));
        }
        if !lost.is_empty() {
            return Err(served(without_crls(&lost, is_requested)));
        }
        let fault = match is_requested {
            true => None,
            false => unrequested_changes::fault(&prepared, foundation, current, UnixTime::now()),
        };
        let fault = fault.or_else(|| locks_out(&prepared, current));
        fault.map_or(Ok(prepared), |fault| Err(served(fault)))
    }
}

impl Committer<'_> {
    /// Prepares a generation from what is on disk, and commits it.
    pub(crate) async fn apply(&self, input: Input, insist: bool) -> Result<Applied, Stopped> {
        // Parsing a large CRL takes time, so it runs on a thread of its own. Requests and the operator do not wait for it.
        let app = Arc::clone(self.app);
        let read = input.clone();
        let prepare = move || app.prepare(&read, insist, &app.active.snapshot());
        let preparation = blocking("prepare", prepare).await;
        let Preparation {
            prepared,
            refused,
            lookups,
        } = preparation.unwrap_or_else(|| Err(refused_to_run("the reload failed".to_owned())))?;
        match prepared {
            Prepare::Unchanged(read) => {
                self.note_unchanged(*read);
                Err(refused.map_or(Stopped::Unchanged, refused_to_run))
            }
            Prepare::Changed(prepared) => {
                let report = self.commit_prepared(*prepared, &lookups, &input).await?;
                Ok(Applied { report, refused })
            }
        }
    }

    /// Notes that the same bytes as before were read again.
    fn note_unchanged(&self, read: ConfigFiles) {
        self.writer.note_same_materials(|foundation| {
            // The agent has fetched the same CRL again, so its copy is as old as that run.
            foundation.agents_copy = agents_copy(&read.loaded.config, &read.loaded.materials);
            foundation.materials = Arc::new(read.loaded.materials);
            foundation.draft = read.draft;
            foundation.stamps = read.stamps;
        });
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
        let prepared = blocking("prepare", move || {
            let prepared = app.prepare_with(&path, bytes)?;
            store().map(|()| prepared)
        });
        let prepared = prepared.await;
        let prepared = prepared.unwrap_or_else(|| Err(ReplaceFileError::Internal.into()))?;
        let committed = self.commit_prepared(prepared, &[], &Input::Materials).await;
        committed.map(drop).map_err(|stopped| {
            E::from(match stopped {
                Stopped::Refused(refusal) => ReplaceFileError::Refused(one_line(&refusal.report)),
                _ => ReplaceFileError::Stopping,
            })
        })
    }

    /// Commits a prepared change, which is the first step that changes the running process. Returns what has changed, for the
    /// operator.
    async fn commit_prepared(
        &self,
        mut prepared: Prepared,
        lookups: &[Lookup],
        input: &Input,
    ) -> Result<String, Stopped> {
        let app = self.app;
        let previous = Previous::of(app);
        let (config, workers) = (&prepared.config, app.workers.count());
        let opened = match input {
            Input::Everything | Input::Text(_) => Opened::open(config, Some(&previous), workers)?,
            Input::Materials => Opened::open_without_logs(config, Some(&previous), workers)?,
        };
        app.lasting.members.learn(config, lookups);
        prepared.log_restored_crls();
        {
            // Not held during the commit, which forgets the members that only the former generation has.
            let active = app.active.snapshot();
            let before = (&*active.foundation, &*active.generation);
            if let Err(report) = prepared.bind(&app.lasting, before) {
                // What the binding has added for this generation is not part of the active one.
                app.membership.forget_removed(&active.generation);
                app.lasting.forget_listeners(&active.foundation.config);
                return Err(refused_to_run(rendered(&report)));
            }
        }
        let (generation, foundation, report) = prepared.split();
        let changes = changes(
            (&previous.config, &previous.generation),
            (&foundation.config, &generation),
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
pub(crate) fn one_line(report: &str) -> String {
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
fn without_crls(lost: &[String], is_requested: bool) -> String {
    let remedy = match is_requested {
        false => "or run `proscenium reload` to accept its removal",
        true => {
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
fn changes((old, was): (&Config, &Generation), (new, is): (&Config, &Generation)) -> String {
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
