//! Configurations that were applied before, and `rollback`, which applies one of them again.

use std::{sync::Arc, time::SystemTime};

use admin::{
    AppliedConfiguration, AppliedConfigurations, ConfigurationText, ReloadResult, RollbackError,
    RollbackOutcome,
};
use state::{
    applied_texts::{self, AppliedText},
    supervise::blocking,
};
use telemetry::CountedReload;

use crate::{
    reload::{Applied, Input, Refusal, Stopped, one_line},
    shared_state::App,
};

impl App {
    /// Stores the active configuration text for a rollback. A failure is an alarm of the state directory.
    pub(crate) async fn store_applied_text(self: &Arc<Self>) {
        let _one_at_a_time = self.storing_text.lock().await;
        let app = Arc::clone(self);
        let store = move || {
            let text = app.foundation().draft.text().to_owned();
            applied_texts::add(&app.state_directory, &text, SystemTime::now());
        };
        blocking("store-configuration", store).await;
    }

    /// Stores the active text again if it could not be stored.
    pub(crate) async fn store_missing_text(self: &Arc<Self>) {
        if self.state_directory.lacks(applied_texts::FILE) {
            self.store_applied_text().await;
        }
    }

    /// The configurations that were applied last, the newest first.
    ///
    /// # Errors
    /// They cannot be read.
    pub async fn applied_configurations(
        self: &Arc<Self>,
    ) -> Result<AppliedConfigurations, RollbackError> {
        let texts = self.applied_texts().await?;
        let configurations = texts.iter().map(|text| self.described(text));
        Ok(AppliedConfigurations {
            configurations: configurations.collect(),
        })
    }

    /// The text of an applied configuration. It may have secrets.
    ///
    /// # Errors
    /// No configuration has this identifier, or it cannot be read.
    pub async fn configuration_text(
        self: &Arc<Self>,
        id: &str,
    ) -> Result<ConfigurationText, RollbackError> {
        let AppliedText { id, text, .. } = self.found_text(Some(id)).await?;
        Ok(ConfigurationText { id, text })
    }

    /// What a rollback would do. `to`: the configuration to apply, by default the last one before the active one.
    ///
    /// # Errors
    /// There is no such configuration, or it cannot be read.
    pub async fn try_roll_back(
        self: &Arc<Self>,
        to: Option<&str>,
    ) -> Result<RollbackOutcome, RollbackError> {
        let found = self.found_text(to).await?;
        let configuration = self.described(&found);
        let reload = match self.is_serving() {
            true => self.try_input(Input::Text(found.text)).await,
            false => self.stopping(),
        };
        Ok(RollbackOutcome {
            configuration,
            reload,
        })
    }

    /// Applies the text of an applied configuration again, and leaves the file as it is.
    ///
    /// # Errors
    /// There is no such configuration, or it cannot be read.
    pub async fn roll_back(
        self: &Arc<Self>,
        to: Option<&str>,
        asked_by: &str,
    ) -> Result<RollbackOutcome, RollbackError> {
        let found = self.found_text(to).await?;
        let mut configuration = self.described(&found);
        let Some(writer) = self.committer_while_serving().await else {
            return Ok(RollbackOutcome {
                configuration,
                reload: self.stopping(),
            });
        };
        let (result, metric, report) = match writer.apply(Input::Text(found.text), true).await {
            Ok(Applied { report, .. }) => (ReloadResult::Applied, CountedReload::Applied, report),
            Err(Stopped::Unchanged) => {
                let report = "nothing has changed".to_owned();
                (ReloadResult::Unchanged, CountedReload::Unchanged, report)
            }
            Err(Stopped::Refused(Refusal { report, .. })) => {
                tracing::error!(
                    history.kind = "reload",
                    history.subject = "configuration",
                    asked_by,
                    configuration = found.id,
                    "rollback refused, the active configuration stays active: {}",
                    one_line(&report)
                );
                (ReloadResult::Refused, CountedReload::Refused, report)
            }
            Err(Stopped::Stopping | Stopped::Changing) => {
                return Ok(RollbackOutcome {
                    configuration,
                    reload: self.stopping(),
                });
            }
        };
        let reload = self.outcome(result, report);
        self.follow_request(asked_by, &reload, metric).await;
        drop(writer);
        if result != ReloadResult::Refused {
            self.store_applied_text().await;
            configuration.is_active = true;
            self.note_rollback().await;
        }
        Ok(RollbackOutcome {
            configuration,
            reload,
        })
    }

    async fn applied_texts(self: &Arc<Self>) -> Result<Vec<AppliedText>, RollbackError> {
        // The work holds its turn, because it continues if its client disconnects.
        let turn = Arc::clone(&self.text_reads).acquire_owned().await;
        let app = Arc::clone(self);
        let read = move || {
            let _turn = turn;
            applied_texts::read(&app.state_directory)
        };
        let texts = blocking("read-configurations", read).await;
        let texts = texts.ok_or(RollbackError::Internal)?;
        texts.map_err(|error| RollbackError::Unreadable(error.to_string()))
    }

    /// The text with this identifier, or with the only one that begins so. `None`: the newest text that is not active.
    async fn found_text(self: &Arc<Self>, to: Option<&str>) -> Result<AppliedText, RollbackError> {
        let texts = self.applied_texts().await?;
        let Some(wanted) = to else {
            let mut others = texts.into_iter();
            let other = others.find(|text| !self.described(text).is_active);
            return other.ok_or(RollbackError::NoOther);
        };
        let mut found = texts
            .into_iter()
            .filter(|text| !wanted.is_empty() && text.id.starts_with(wanted));
        match (found.next(), found.next()) {
            (Some(text), None) => Ok(text),
            _ => Err(RollbackError::Unknown(wanted.to_owned())),
        }
    }

    fn described(&self, stored: &AppliedText) -> AppliedConfiguration {
        AppliedConfiguration {
            id: stored.id.clone(),
            applied_at: stored.applied_at.clone(),
            bytes: stored.text.len() as u64,
            is_active: self.foundation().draft.text() == stored.text,
        }
    }
}
