//! The Puppet agent on this machine: where its certificate, key, CA bundle and CRL are, and how to get them.

use std::path::{Path, PathBuf};

use routing::pool_names;

use crate::{
    CaOptions,
    config::CredentialFiles,
    environment::{Environment, Overrides},
    keys,
    materials::MaterialReader,
    report::Problem,
    section::{Entry, Section},
};

/// The agent's files that were found.
#[derive(Clone, Debug, Default)]
pub(crate) struct Agent {
    pub(crate) ssldir: Option<PathBuf>,
    pub(crate) certname: Option<String>,
    /// Whether `ssldir` is a directory.
    exists: bool,
    /// Names that have a certificate and a key in `ssldir`.
    candidates: Vec<String>,
    /// `server` in its puppet.conf.
    server: Option<String>,
    ca: CaOptions,
    /// The account that must be able to read the key.
    user: String,
    lacks_setfacl: bool,
}

impl Agent {
    /// The command line overrides the file, and the file overrides what is found on the machine.
    pub(crate) fn find(
        root: &Section<'_>,
        overrides: &Overrides,
        environment: &Environment,
        files: &dyn MaterialReader,
    ) -> Self {
        let first_default = || environment.ssldirs.first().cloned();
        let ssldir = overrides
            .ssldir
            .clone()
            .or_else(|| root.path(keys::Root::ssldir))
            .or_else(first_default);
        let candidates = ssldir
            .as_ref()
            .map(|ssldir| files.certnames(ssldir))
            .unwrap_or_default();
        let only = || match candidates.as_slice() {
            [only] => Some(only.clone()),
            _ => environment
                .hostname
                .clone()
                .map(|hostname| hostname.to_lowercase()),
        };
        Self {
            exists: ssldir
                .as_ref()
                .is_some_and(|ssldir| files.is_directory(ssldir)),
            certname: overrides
                .certname
                .clone()
                .or_else(|| root.text(keys::Root::certname))
                .or_else(only),
            ssldir,
            candidates,
            server: environment.agents_server.clone(),
            ca: ca_options(root),
            user: environment.user.clone(),
            lacks_setfacl: environment.lacks_setfacl,
        }
    }

    pub(crate) fn credential(&self) -> Option<CredentialFiles> {
        let (ssldir, certname) = (self.ssldir.as_ref()?, self.certname.as_ref()?);
        Some(CredentialFiles {
            chain: ssldir.join("certs").join(format!("{certname}.pem")),
            key: ssldir.join("private_keys").join(format!("{certname}.pem")),
        })
    }

    pub(crate) fn ca(&self) -> Option<PathBuf> {
        Some(self.ssldir.as_ref()?.join("certs").join("ca.pem"))
    }

    pub(crate) fn crl(&self) -> Option<PathBuf> {
        Some(self.ssldir.as_ref()?.join("crl.pem"))
    }

    /// The problem to report if a setting defaults to the agent's files and there is no agent.
    pub(crate) fn missing(&self) -> Problem {
        match self.ssldir {
            None => Problem::error("ssldir", "this machine has no Puppet agent's ssldir")
                .expected(format!("{} to exist, or `ssldir` to name it", Environment::SSLDIRS.join(" or ")))
                .help(format!("for a certificate of the Puppet CA run `{}`", self.bootstrap()))
                .help("or configure other files: `[tls] certificates`, `[trust] ca` and `crl`, `[upstream.tls]`"),
            Some(_) => Problem::error("certname", "no certificate selected")
                .expected("`certname`, or one certificate with a key in `ssldir`"),
        }
    }

    /// The problem to report if the agent has no certificate of that name.
    pub(crate) fn without_certificate(&self, credential: &CredentialFiles) -> Problem {
        let certname = self.certname.as_deref().unwrap_or_default();
        if let Some(ssldir) = self.ssldir.as_ref().filter(|_| !self.exists) {
            let message = format!("the ssldir {} does not exist", ssldir.display());
            return Problem::error("ssldir", message)
                .expected("the Puppet agent's ssldir")
                .help("`puppet config print ssldir`, run as root, prints it");
        }
        let problem = Problem::error(
            "certname",
            format!(
                "no certificate for {certname}: {} does not exist",
                credential.chain.display()
            ),
        )
        .help(format!("to get one run `{}`", self.bootstrap()))
        .help(format!(
            "and sign it on the CA server: `puppetserver ca sign --certname {certname}`"
        ));
        match self.candidates.as_slice() {
            [] => problem,
            names => problem.help(format!(
                "or set `certname` to one that exists: {}",
                names.join(", ")
            )),
        }
    }

    /// How to allow the service to read a private key. An account other than the service's must not get access to it.
    pub(crate) fn open_key(&self, key: &Path, closed: Option<&Path>) -> String {
        let user = &self.user;
        let command = self.open(key, closed.or_else(|| key.parent()), "r");
        format!(
            "if {user} is the account of the service, {command}; else look as that account (`sudo -u proscenium`) or as root"
        )
    }

    /// How to allow the service to read other materials.
    pub(crate) fn open_material(&self, path: &Path, closed: Option<&Path>) -> String {
        self.open(path, closed, "rX")
    }

    /// One command that opens the directories from `closed` on and the file. It sets ACLs, because the agent resets the
    /// owner, group and mode of its files on each run. An account cannot see the modes below a directory that is closed
    /// to it, so all directories below are opened too.
    fn open(&self, path: &Path, closed: Option<&Path>, rights: &str) -> String {
        let user = &self.user;
        let above = path.ancestors().skip(1);
        let mut directories: Vec<_> = above
            .filter(|above| closed.is_some_and(|closed| above.starts_with(closed)))
            .map(|directory| directory.display().to_string())
            .collect();
        directories.reverse();
        let search = if directories.is_empty() {
            String::new()
        } else {
            format!("setfacl -m u:{user}:x {} && ", directories.join(" "))
        };
        let install = if self.lacks_setfacl {
            " (first install setfacl: `apt-get install acl`)"
        } else {
            ""
        };
        format!(
            "run `{search}setfacl -m u:{user}:{rights} {}` as root{install}",
            path.display()
        )
    }

    pub(crate) fn user(&self) -> &str {
        &self.user
    }

    /// How to restore files that the agent fetches itself.
    pub(crate) fn fetch_again(&self) -> String {
        format!(
            "an agent fetches it again if it is missing: run `{}`",
            self.bootstrap()
        )
    }

    /// The command for another certificate of the Puppet CA.
    pub(crate) fn bootstrap_other(&self, certname: &str, ssldir: &str) -> String {
        let ca = &self.ca;
        format!("puppet ssl bootstrap --certname {certname} --ssldir {ssldir}{ca} --waitforcert 60")
    }

    fn bootstrap(&self) -> String {
        let certname = self.certname.as_deref().unwrap_or("NAME");
        let mut names = vec!["puppet", certname];
        // The name that agents connect to.
        names.extend(
            self.server
                .as_deref()
                .filter(|server| !names.contains(server)),
        );
        let ssldir = match &self.ssldir {
            Some(ssldir)
                if !Environment::SSLDIRS
                    .iter()
                    .any(|default| ssldir.as_os_str() == *default) =>
            {
                format!(" --ssldir {}", ssldir.display())
            }
            _ => String::new(),
        };
        format!(
            "puppet ssl bootstrap --certname {certname} --dns_alt_names {}{ssldir}{} --waitforcert 60",
            names.join(","),
            self.ca
        )
    }
}

/// The options that name the first member of `[pools.ca]`.
fn ca_options(root: &Section<'_>) -> CaOptions {
    let pools = root.named(keys::Root::pools).into_iter();
    let ca = pools.filter(|(name, _)| name == pool_names::CA);
    let mut members = ca.flat_map(|(_, pool)| pool.entries(keys::Pool::members));
    let first = members.next().and_then(|member| match member {
        Entry::Text { text, .. } => Some(text),
        Entry::Table(table) => table.text(keys::Member::address),
    });
    CaOptions::at(&first.unwrap_or_default())
}
