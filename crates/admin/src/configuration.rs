//! The running configuration, and what a reload would change.

use serde::{Deserialize, Serialize};
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
