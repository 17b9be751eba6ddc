//! Why a material with new bytes is not active.

/// Why a file with new bytes is not active.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReplaceFileError {
    /// The rules for changed materials, or the configuration.
    #[error("{0}")]
    Refused(String),
    #[error("the process is stopping")]
    Stopping,
    #[error("the preparation failed")]
    Internal,
}
