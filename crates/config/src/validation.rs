//! Validation of materials: missing and unreadable files, keys that everyone can read, keys that match no certificate.

use std::{
    collections::BTreeSet,
    io::ErrorKind,
    path::Path,
    time::{Duration, SystemTime},
};

use crate::{
    config::Config,
    draft::Draft,
    materials::{LoadedMaterial, MaterialKind, MaterialName, MaterialReadError, Materials},
    report::Problem,
    trust::{Mention, Named},
};

const SWAPPED: &str =
    "`chain` and `key` may be swapped: `chain` names the certificate, `key` its private key";

/// Permission bits of the group.
const GROUP: u32 = 0o070;
/// Permission bits of accounts other than owner and group.
const OTHERS: u32 = 0o007;

impl Draft {
    pub(crate) fn validate(&mut self, materials: &Materials) {
        let mut found = Vec::new();
        let mut absent = BTreeSet::new();
        for wanted in &self.wanted {
            match materials.get(&wanted.path) {
                Some(Ok(material)) => found.extend(self.check_mode(wanted, material)),
                Some(Err(error)) if wanted.optional && error.kind == ErrorKind::NotFound => {
                    absent.insert(wanted.path.clone());
                }
                Some(Err(error)) => found.extend(self.unreadable(wanted, error, materials)),
                None => found
                    .push(self.problem(wanted, format!("{} was not read", wanted.path.display()))),
            }
        }
        for named in &self.credentials {
            found.extend(self.check_credential(named, materials));
        }
        if let Some(config) = &mut self.config {
            remove_absent(config, &absent);
        }
        found.extend(self.agents_copy(materials));
        self.problems.extend(found);
    }

    fn check_mode(&self, wanted: &MaterialName, material: &LoadedMaterial) -> Option<Problem> {
        let path = wanted.path.display();
        if wanted.kind == MaterialKind::Key && holds_certificate_alone(material) {
            let message = format!("{path} holds a certificate and no private key");
            return Some(self.problem(wanted, message).help(SWAPPED));
        }
        if material.blobs.is_empty() {
            return Some(self.problem(wanted, format!("{path} is an empty directory")));
        }
        if wanted.kind == MaterialKind::FleetKeys {
            return self.check_fleet_keys(wanted, material);
        }
        if wanted.kind != MaterialKind::Key || material.mode & OTHERS == 0 {
            return None;
        }
        let problem = self.problem(
            wanted,
            format!(
                "{path} is open to everyone on this machine (mode {:04o})",
                material.mode
            ),
        );
        Some(
            problem
                .expected("a private key that only its owner and group can read")
                .help(format!("run `chmod o= {path}`")),
        )
    }

    /// An account that can read the keys of a fleet can drain and block on all its proxies.
    fn check_fleet_keys(
        &self,
        wanted: &MaterialName,
        material: &LoadedMaterial,
    ) -> Option<Problem> {
        let path = wanted.path.display();
        if material.mode & (OTHERS | GROUP) != 0 {
            let message = format!(
                "{path} is open to other accounts (mode {:04o})",
                material.mode
            );
            let problem = self.problem(wanted, message);
            return Some(
                problem
                    .expected("a file that only its owner can read")
                    .help(format!("run `chmod 0600 {path}`")),
            );
        }
        let text = String::from_utf8_lossy(&material.blobs.first()?.bytes).into_owned();
        let fault = pki::FleetKeys::parse(&text).err()?;
        Some(self.problem(wanted, format!("{path}: {fault}")))
    }

    /// Reports once that an agent has no certificate, not once for each of its files.
    fn unreadable(
        &self,
        wanted: &MaterialName,
        error: &MaterialReadError,
        materials: &Materials,
    ) -> Option<Problem> {
        let path = wanted.path.display();
        let agents = self.agent.credential().filter(|_| wanted.from_agent);
        let missing = |path: &Path| matches!(materials.get(path), Some(Err(error)) if error.kind == ErrorKind::NotFound);
        let no_certificate = agents
            .as_ref()
            .filter(|credential| missing(&credential.chain));
        match (error.kind, no_certificate) {
            (ErrorKind::NotFound, Some(credential)) => (wanted.kind == MaterialKind::Chain)
                .then(|| self.agent.without_certificate(credential)),
            (ErrorKind::PermissionDenied, _) if wanted.kind == MaterialKind::Key => {
                let user = self.agent.user();
                let problem = self.problem(
                    wanted,
                    format!("{user} may not read the private key {path}"),
                );
                let closed = error.closed.as_deref();
                Some(problem.help(self.agent.open_key(&wanted.path, closed)))
            }
            (ErrorKind::PermissionDenied, _) => {
                let user = self.agent.user();
                let problem = self.problem(wanted, format!("{user} may not read {path}"));
                let closed = error.closed.as_deref();
                Some(problem.help(self.agent.open_material(&wanted.path, closed)))
            }
            (kind, _) => {
                let problem =
                    self.problem(wanted, format!("{path} cannot be read: {}", error.message));
                let is_fetched = wanted.from_agent
                    && matches!(wanted.kind, MaterialKind::Ca | MaterialKind::Crl);
                Some(match kind {
                    ErrorKind::NotFound if is_fetched => problem.help(self.agent.fetch_again()),
                    ErrorKind::IsADirectory => {
                        problem.help("name one of the files in this directory")
                    }
                    _ => problem,
                })
            }
        }
    }

    fn check_credential(&self, named: &Named, materials: &Materials) -> Vec<Problem> {
        let material = |path: &Path| materials.get(path)?.as_ref().ok()?.blobs.first();
        let (chain, key) = (
            material(&named.credential.chain),
            material(&named.credential.key),
        );
        let (Some(chain), Some(key)) = (chain, key) else {
            return Vec::new();
        };
        let chain = pki::Named::new(&chain.name, chain.bytes.clone());
        let key = pki::Named::new(&key.name, key.bytes.clone());
        let swapped = pki::holds_key(&chain.value) && !pki::holds_certificate(&chain.value);
        let credential = match pki::Credential::parse(&chain, &key) {
            Ok(credential) => credential,
            Err(error @ pki::PkiProblem::Empty { .. }) if swapped => {
                return vec![self.unusable(named, &error).help(SWAPPED)];
            }
            Err(error) => return vec![self.unusable(named, &error)],
        };
        let mut found = Vec::new();
        if let Some(now) = self
            .now
            .and_then(|now| now.duration_since(SystemTime::UNIX_EPOCH).ok())
        {
            let path = named.credential.chain.display();
            if now.as_secs() > credential.not_after().as_secs() {
                found.push(self.mentioned(
                    &named.chain,
                    Problem::warning("", format!("{path} has expired")),
                ));
            }
            if now.as_secs() < credential.not_before().as_secs() {
                found.push(self.mentioned(
                    &named.chain,
                    Problem::warning("", format!("{path} is not valid yet")),
                ));
            }
        }
        let odd = credential.warnings().iter();
        found
            .extend(odd.map(|warning| self.mentioned(&named.chain, Problem::warning("", warning))));
        if !credential.authorization_extensions().is_empty() {
            found.push(self.authorised(named, &credential));
        }
        found
    }

    fn unusable(&self, named: &Named, error: &pki::PkiProblem) -> Problem {
        let mention = match error {
            pki::PkiProblem::KeyMismatch { .. } | pki::PkiProblem::UnusableKey { .. } => &named.key,
            pki::PkiProblem::NotPem { what: "key", .. }
            | pki::PkiProblem::Empty { what: "key", .. } => &named.key,
            _ => &named.chain,
        };
        let problem = self.mentioned(mention, Problem::error("", error.to_string()));
        match error {
            pki::PkiProblem::KeyMismatch { .. } => problem.help(
                "restore the key that this certificate was requested with, or provide the certificate for this key",
            ),
            _ => problem,
        }
    }

    /// The problem of a certificate with authorization extensions. A member that sees the certificate would grant the rights of
    /// these extensions to every client of the proxy.
    fn authorised(&self, named: &Named, credential: &pki::Credential) -> Problem {
        let extensions = credential.authorization_extensions().join(", ");
        let path = named.credential.chain.display();
        let message = format!("{path} carries an authorization extension: {extensions}");
        if !named.seen_by_members {
            return self
                .mentioned(&named.chain, Problem::warning("", message))
                .help("only clients see it; no member does");
        }
        let own = format!(
            "proscenium.{}",
            self.agent.certname.as_deref().unwrap_or("example.com")
        );
        self.mentioned(&named.chain, Problem::error("", message))
            .expected("a certificate for the proxy alone, without rights on the members that see it")
            .help("the members could grant the rights of this certificate to every client of this proxy")
            .help(format!("run `{}`", self.agent.bootstrap_other(&own, "/etc/proscenium/ssl")))
            .help(format!(
                "and set [upstream.tls] chain = \"/etc/proscenium/ssl/certs/{own}.pem\", \
                 key = \"/etc/proscenium/ssl/private_keys/{own}.pem\""
            ))
    }

    fn mentioned(&self, mention: &Mention, problem: Problem) -> Problem {
        let problem = Problem {
            key: mention.key_path.clone(),
            ..problem
        };
        match &mention.span {
            Some(span) => problem.at(&self.source.text, span.clone()),
            None => problem,
        }
    }

    /// Warns about the agent's copy of the CRL: if no agent runs, the copy is not refreshed, and nothing reports that.
    fn agents_copy(&self, materials: &Materials) -> Option<Problem> {
        let copy = self.agent.crl()?;
        let trust = &self.config.as_ref()?.trust;
        if !trust.crl_is_agents_copy || trust.fetch.is_some() {
            return None;
        }
        let material = materials.get(&copy)?.as_ref().ok()?;
        let age = age(material.modified, self.now);
        let problem = Problem::warning(
            "trust.crl",
            format!(
                "the active CRL, {}, is the agent's own copy{age}",
                copy.display()
            ),
        );
        Some(problem.help("it goes stale without an agent on this machine: name a CRL that is refreshed, enable [trust.fetch], or run an agent here"))
    }

    fn problem(&self, wanted: &MaterialName, message: String) -> Problem {
        let problem = Problem::error(&wanted.key_path, message);
        match &wanted.span {
            Some(span) => problem.at(&self.source.text, span.clone()),
            None => problem,
        }
    }
}

/// Whether a key file contains only a certificate. Its mode may then be that of a certificate.
fn holds_certificate_alone(material: &LoadedMaterial) -> bool {
    let Some(blob) = material.blobs.first() else {
        return false;
    };
    pki::holds_certificate(&blob.bytes) && !pki::holds_key(&blob.bytes)
}

/// Removes optional files that do not exist.
fn remove_absent(config: &mut Config, absent: &BTreeSet<std::path::PathBuf>) {
    config.trust.crl.retain(|path| !absent.contains(path));
    config.trust.crl_is_agents_copy &= !config.trust.crl.is_empty();
    for tls in config.pools.iter_mut().filter_map(|pool| pool.tls.as_mut()) {
        tls.crl.retain(|path| !absent.contains(path));
    }
}

fn age(modified: Option<SystemTime>, now: Option<SystemTime>) -> String {
    let Some(age) = modified
        .zip(now)
        .and_then(|(modified, now)| now.duration_since(modified).ok())
    else {
        return String::new();
    };
    match age {
        age if age < Duration::from_secs(2 * 3600) => {
            format!(", written {} minutes ago", age.as_secs() / 60)
        }
        age if age < Duration::from_secs(2 * 86_400) => {
            format!(", written {} hours ago", age.as_secs() / 3600)
        }
        age => format!(", written {} days ago", age.as_secs() / 86_400),
    }
}
