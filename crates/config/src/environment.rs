//! What the command line and the machine provide beside the file.

use std::{path::PathBuf, time::SystemTime};

/// What the command line says over the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overrides {
    /// `--ssldir`.
    pub ssldir: Option<PathBuf>,
    /// `--certname`.
    pub certname: Option<String>,
}

/// What the machine says where file and command line are silent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Environment {
    /// Those of [`Environment::SSLDIRS`] that exist, in that order.
    pub ssldirs: Vec<PathBuf>,
    /// The machine's full name.
    pub hostname: Option<String>,
    /// Cores this process may use: the default of `workers`.
    pub cores: usize,
    /// The account this process runs as, for the commands in reports.
    pub user: String,
    /// The directory that a service manager has made for what outlasts a restart.
    pub state_directory: Option<PathBuf>,
    /// The time, for the age of the agent's own CRL.
    pub now: Option<SystemTime>,
}

impl Environment {
    /// Where a Puppet agent keeps its certificates: Puppet's own packages, then Debian's.
    pub const SSLDIRS: [&str; 2] = ["/etc/puppetlabs/puppet/ssl", "/var/lib/puppet/ssl"];
    /// Where what outlasts a restart is stored by default.
    pub const STATE_DIRECTORY: &str = "/var/lib/proscenium";
}

impl Default for Environment {
    fn default() -> Self {
        Self {
            ssldirs: Vec::new(),
            hostname: None,
            cores: 1,
            user: "proscenium".into(),
            state_directory: None,
            now: None,
        }
    }
}
