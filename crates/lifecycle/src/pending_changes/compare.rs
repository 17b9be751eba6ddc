//! Compares the files on disk with what runs.

use std::{collections::BTreeSet, fs, sync::Arc, time::SystemTime};

use state::{applied_texts, stamps::Stamps, supervise::blocking};
use telemetry::{Alarm, FoundAlarm};
use tokio::time::sleep;

use super::{AtStart, FilesOnDisk, RefusedReload};
use crate::{hand_over::ChangedProgram, materials::files, shared_state::App};

/// Subjects of the alarms about a pending restart.
const SETTINGS: &str = "settings";
const PROGRAM: &str = "program";
const CONFIGURATION: &str = "configuration";

/// Compares the files on disk with what runs, until this future is dropped.
pub(crate) async fn compare_at_intervals(app: Arc<App>) {
    let mut seen = None;
    loop {
        let interval = app.foundation().config.materials.interval;
        sleep(interval).await;
        app.assess_refused_reload().await;
        app.assess_pending_settings().await;
        app.assess_rollback().await;
        app.assess_program(&mut seen).await;
    }
}

impl App {
    /// The stamps now of the configuration file and of the active materials.
    pub(crate) async fn stamps_on_disk(self: &Arc<Self>) -> Stamps {
        let app = Arc::clone(self);
        let stamps = blocking("read-stamps", move || {
            let draft = app.foundation().draft.clone();
            Stamps::of(&draft).with(&app.options.config)
        });
        stamps.await.unwrap_or_default()
    }

    /// Raises the alarm about a refused reload. `stamps` are those of the refused files. `None` if another program has failed
    /// to take over.
    pub(crate) fn note_refused_reload(
        &self,
        stamps: Option<Stamps>,
        at_start: AtStart,
        error: &str,
    ) {
        // A start may read another configuration from a stream, such as a pipe, so the alarm would say nothing about it.
        let is_stream = |found: fs::Metadata| !found.is_file() && !found.is_dir();
        if fs::metadata(&self.options.config).is_ok_and(is_stream) {
            return;
        }
        self.pending.set_refused(Some(RefusedReload { stamps }));
        self.raise_refused_reload(&at_start.message(error), at_start.stops_a_start());
    }

    /// Clears the alarm about a refused reload.
    pub(crate) fn clear_refused_reload(&self) {
        self.pending.set_refused(None);
        self.lasting.metrics.alarms.clear(Alarm::ReloadRefused, "");
    }

    fn raise_refused_reload(&self, state: &str, is_critical: bool) {
        let message = format!(
            "the last reload was refused, so the previous configuration stays active: {state}"
        );
        let alarms = &self.lasting.metrics.alarms;
        let found = FoundAlarm::new(Alarm::ReloadRefused, "", message).critical_if(is_critical);
        alarms.raise_found(found, SystemTime::now());
    }

    /// Compares the alarm about a refused reload with the files, if they have changed since.
    async fn assess_refused_reload(self: &Arc<Self>) {
        let Some(refused) = self.pending.refused() else {
            return;
        };
        let stamps = self.stamps_on_disk().await;
        let is_unchanged = match &refused.stamps {
            Some(known) => *known == stamps,
            // Only the other program knows what it accepts, and a reload starts it.
            None => self.changed_program().await.is_some(),
        };
        if is_unchanged {
            return;
        }
        let found = self.files_on_disk().await;
        let Some(_no_reload) = self.committer_while_serving().await else {
            return;
        };
        // A reload may have ended meanwhile.
        if self.pending.refused().as_ref() != Some(&refused) {
            return;
        }
        let stamps = Some(stamps);
        match found {
            FilesOnDisk::Active => self.clear_refused_reload(),
            FilesOnDisk::Refused(at_start, error) => {
                self.note_refused_reload(stamps, at_start, &error);
            }
            FilesOnDisk::Valid => {
                self.pending.set_refused(Some(RefusedReload { stamps }));
                self.raise_refused_reload(
                    "the files on disk have changed since and are valid now; run `proscenium reload` to apply them",
                    false,
                );
            }
            FilesOnDisk::Unknown => {}
        }
    }

    /// Raises or clears the alarm about settings that a reload has accepted and that apply after a restart.
    pub(crate) async fn assess_pending_settings(self: &Arc<Self>) {
        let app = Arc::clone(self);
        let pending = blocking("compare-settings", move || app.pending_settings()).await;
        let pending = Vec::from_iter(pending.unwrap_or_default());
        let alarms = &self.lasting.metrics.alarms;
        if pending.is_empty() {
            alarms.clear(Alarm::RestartPending, SETTINGS);
            return;
        }
        let message = format!(
            "the last reload accepted settings that apply after a restart: {}; run `systemctl restart proscenium`, or restore the values in {}",
            pending.join(", "),
            self.options.config.display()
        );
        alarms.raise(Alarm::RestartPending, SETTINGS, message, SystemTime::now());
    }

    /// Notes that `rollback` has applied the active text.
    pub(crate) async fn note_rollback(self: &Arc<Self>) {
        *self.pending.is_rolled_back() = true;
        self.assess_rollback().await;
    }

    /// Clears the alarm about a configuration that `rollback` has applied: the file is active.
    pub(crate) fn clear_rollback(&self) {
        let mut is_rolled_back = self.pending.is_rolled_back();
        *is_rolled_back = false;
        let alarms = &self.lasting.metrics.alarms;
        alarms.clear(Alarm::RestartPending, CONFIGURATION);
    }

    /// Raises the alarm about a configuration that `rollback` has applied, until the file has the same text.
    async fn assess_rollback(self: &Arc<Self>) {
        if !*self.pending.is_rolled_back() {
            return;
        }
        let app = Arc::clone(self);
        let in_file = blocking("compare-configuration", move || {
            let foundation = app.foundation();
            let text = foundation.draft.text();
            (
                files::has_text(&app.options, text),
                applied_texts::id_of(text),
            )
        });
        let (id, file) = match in_file.await {
            Some((true, _)) => return self.clear_rollback(),
            Some((false, id)) => (id, self.options.config.display()),
            None => return,
        };
        let message = format!(
            "`proscenium rollback` has applied configuration {id}, which differs from {file}: a reload or a restart would apply the file; correct the file, or run `proscenium rollback --to {id} --write` to replace its text"
        );
        let is_rolled_back = self.pending.is_rolled_back();
        // A reload may have applied the file meanwhile.
        if *is_rolled_back {
            let alarms = &self.lasting.metrics.alarms;
            let (kind, now) = (Alarm::RestartPending, SystemTime::now());
            alarms.raise(kind, CONFIGURATION, message, now);
        }
    }

    /// The settings of the active configuration that a restart would change, without those that the file on disk sets back.
    fn pending_settings(&self) -> BTreeSet<String> {
        let foundation = self.foundation();
        let started = &self.pending.started;
        if foundation.config == *started {
            return BTreeSet::new();
        }
        let pending = started.after_restart(&foundation.config);
        if pending.is_empty() || files::has_text(&self.options, foundation.draft.text()) {
            return pending;
        }
        match files::load_again(&self.options) {
            Ok(read) => {
                let on_disk = started.after_restart(&read.loaded.config);
                pending.intersection(&on_disk).cloned().collect()
            }
            Err(_) => pending,
        }
    }

    /// Raises or clears the alarm about another build on disk. `seen` is the build that the previous comparison found: the
    /// installation of a package starts a hand-over a moment later, so the alarm waits for a second comparison.
    async fn assess_program(self: &Arc<Self>, seen: &mut Option<ChangedProgram>) {
        let changed = self.changed_program().await;
        let alarms = &self.lasting.metrics.alarms;
        let stays = changed.is_some() && changed == *seen && self.hand_over.preparing().is_none();
        match &changed {
            None => alarms.clear(Alarm::RestartPending, PROGRAM),
            Some(program) if stays => {
                let message = format!(
                    "the program {} is another build than the running one, version {}; run `proscenium check` and then `systemctl reload proscenium`, which hands over to it",
                    program.path().display(),
                    self.options.build.version
                );
                alarms.raise(Alarm::RestartPending, PROGRAM, message, SystemTime::now());
            }
            Some(_) => {}
        }
        *seen = changed;
    }
}
