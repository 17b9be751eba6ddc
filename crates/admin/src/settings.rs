//! Settings of the control plane.

use std::path::PathBuf;

/// `[admin]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdminSettings {
    /// Unix socket of the control plane, mode 0600. Default `/run/proscenium/admin.sock`.
    pub socket: PathBuf,
}

impl Default for AdminSettings {
    fn default() -> Self {
        Self {
            socket: PathBuf::from("/run/proscenium/admin.sock"),
        }
    }
}
