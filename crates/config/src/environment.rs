//! Settings from the command line and facts about the machine.

use std::{path::PathBuf, time::SystemTime};

/// Settings on the command line, which override the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overrides {
    /// `--ssldir`.
    pub ssldir: Option<PathBuf>,
    /// `--certname`.
    pub certname: Option<String>,
}

/// Facts about the machine, used for settings that the file and the command line leave out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Environment {
    /// The directories of [`Environment::SSLDIRS`] that exist, in that order.
    pub ssldirs: Vec<PathBuf>,
    /// `server` in the puppet.conf of this machine's agent, which may be this proxy: the name that agents connect to.
    pub agents_server: Option<String>,
    /// The fully qualified name of the machine.
    pub hostname: Option<String>,
    /// Number of cores that this process may use: the default of `workers`.
    pub cores: usize,
    /// The account of this process, for the commands in reports.
    pub user: String,
    /// Whether the program `setfacl` is not installed.
    pub lacks_setfacl: bool,
    /// The state directory that the service manager created.
    pub state_directory: Option<PathBuf>,
    /// The current time, for the age of the agent's CRL.
    pub now: Option<SystemTime>,
}

impl Environment {
    /// Where a Puppet agent stores its certificates: with Puppet's own packages, then with Debian's.
    pub const SSLDIRS: [&str; 2] = ["/etc/puppetlabs/puppet/ssl", "/var/lib/puppet/ssl"];
    /// Where a Puppet agent has its puppet.conf: with Puppet's own packages, then with Debian's.
    pub const CONFDIRS: [&str; 2] = ["/etc/puppetlabs/puppet", "/etc/puppet"];
    /// Default directory of the state that survives a restart.
    pub const STATE_DIRECTORY: &str = "/var/lib/proscenium";
}

impl Default for Environment {
    fn default() -> Self {
        Self {
            ssldirs: Vec::new(),
            agents_server: None,
            hostname: None,
            cores: 1,
            user: "proscenium".into(),
            lacks_setfacl: false,
            state_directory: None,
            now: None,
        }
    }
}
