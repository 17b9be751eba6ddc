//! A configuration on its way: text read and judged, materials still to come.

use std::{path::PathBuf, time::SystemTime};

use crate::{
    materials::{Files, Loaded, Materials, Wanted},
    report::{Problem, Report},
};

/// The text of a configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Source {
    /// The file's path, as shown to people.
    pub name: String,
    /// Its contents.
    pub text: String,
}

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
    /// The time, for the age of the agent's own CRL.
    pub now: Option<SystemTime>,
}

/// A configuration whose text is read and judged.
#[derive(Clone, Debug)]
pub struct Draft {
    source: Source,
    problems: Vec<Problem>,
    wanted: Vec<Wanted>,
}

impl Environment {
    /// Where a Puppet agent keeps its certificates: Puppet's own packages, then Debian's.
    pub const SSLDIRS: [&str; 2] = ["/etc/puppetlabs/puppet/ssl", "/var/lib/puppet/ssl"];
}

impl Default for Environment {
    fn default() -> Self {
        Self {
            ssldirs: Vec::new(),
            hostname: None,
            cores: 1,
            user: "proscenium".into(),
            now: None,
        }
    }
}

impl Draft {
    /// Parses a text and holds it against the schema, then checks what one part of it says of another.
    #[must_use]
    pub fn read(source: &Source, _overrides: &Overrides, _environment: &Environment, _files: &dyn Files) -> Self {
        Self { source: source.clone(), problems: Vec::new(), wanted: Vec::new() }
    }

    /// The materials it names, each path once.
    #[must_use]
    pub fn wanted(&self) -> &[Wanted] {
        &self.wanted
    }

    /// Judges the materials.
    ///
    /// # Errors
    /// Everything wrong with text and materials.
    pub fn finish(self, _materials: Materials) -> Result<Loaded, Report> {
        Err(self.into_report())
    }

    /// What was found in the text alone.
    #[must_use]
    pub fn into_report(self) -> Report {
        Report::new(&self.source, self.problems)
    }
}
