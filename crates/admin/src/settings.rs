//! Settings of the control plane.

use std::{net::SocketAddr, path::PathBuf};

/// `[admin]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdminSettings {
    /// Unix socket of the control plane. Default `/run/proscenium/admin.sock`.
    pub socket: PathBuf,
    /// Group whose members may read the status. Default none.
    pub read_group: Option<String>,
    /// Group whose members may also change the running proxy. Default none.
    pub operate_group: Option<String>,
    /// File that gets a line for each change of an operator. Default `audit.log` in the state directory.
    pub audit_log: Option<PathBuf>,
}

impl Default for AdminSettings {
    fn default() -> Self {
        Self {
            socket: PathBuf::from("/run/proscenium/admin.sock"),
            read_group: None,
            operate_group: None,
            audit_log: None,
        }
    }
}

/// `[metrics]`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MetricsSettings {
    /// Address on which metrics and readiness are served over plain HTTP. Default none.
    pub address: Option<SocketAddr>,
}
