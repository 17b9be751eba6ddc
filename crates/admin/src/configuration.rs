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
    /// What a reload would do: `unchanged` if the files are those that are active.
    pub reload: ReloadOutcome,
}
