//! The running configuration, and what a reload would change.

use serde::{Deserialize, Serialize};
use thiserror::Error;
use utoipa::ToSchema;

use crate::{ReloadOutcome, Timestamp};

/// Answer to `GET /v1/configuration`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ConfigurationStatus {
    /// Number of the active generation.
    pub generation: u64,
    /// When it became active.
    pub loaded_at: Timestamp,
    /// Path of the configuration file.
    pub file: String,
    /// The active configuration as TOML, without values that are defaults.
    pub active: String,
    /// Settings that the last reload accepted and that the process uses after a restart. `active` has the values that it uses
    /// now.
    pub restart_pending: Vec<String>,
    /// What a reload would do: `unchanged` if the files are those that are active.
    pub reload: ReloadOutcome,
}

/// Answer to `GET /v1/configurations`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AppliedConfigurations {
    /// The configurations that were applied last, the newest first.
    pub configurations: Vec<AppliedConfiguration>,
}

/// A configuration that was applied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AppliedConfiguration {
    /// A digest of its text. It stays the same over restarts.
    pub id: String,
    /// When it was applied last, after another one.
    pub applied_at: Timestamp,
    /// Size of its text.
    pub bytes: u64,
    /// Whether it is active.
    pub is_active: bool,
}

/// Answer to `GET /v1/configurations/{id}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ConfigurationText {
    /// The digest of the text.
    pub id: String,
    /// The text, which may have secrets.
    pub text: String,
}

/// Body of `POST /v1/rollback` and of its dry run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RollbackRequest {
    /// The configuration to apply, by its digest or the beginning of it. By default the last one before the active one.
    #[serde(default)]
    pub to: Option<String>,
}

/// The result of a rollback.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RollbackOutcome {
    /// The configuration.
    pub configuration: AppliedConfiguration,
    /// The result, as that of a reload.
    pub reload: ReloadOutcome,
}

/// Why there is no configuration to apply.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RollbackError {
    /// Only the active configuration is stored.
    #[error("no other configuration was applied before")]
    NoOther,
    /// No stored configuration has this identifier.
    #[error(
        "no stored configuration, or more than one, begins with `{0}`: `proscenium rollback --list` shows them"
    )]
    Unknown(String),
    /// The account may not read texts.
    #[error(
        "only root and the account of the proxy may read a configuration text, because it may have secrets"
    )]
    Forbidden,
    /// The file in the state directory cannot be read.
    #[error("the stored configurations cannot be read: {0}")]
    Unreadable(String),
    /// The proxy failed while it worked on the request.
    #[error("the request failed because of an internal error; the events of the proxy show it")]
    Internal,
}
