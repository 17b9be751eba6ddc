//! The files that `[tls]`, `[trust]`, `[upstream.tls]` and `[pools.NAME.tls]` name. The agent's files are the defaults.

use std::{ops::Range, path::PathBuf};

use pki::settings::TrustSettings;

use crate::{
    agent::Agent,
    binding::{Base, Bound},
    config::{CredentialFiles, Fetch, MemberTls, Trust},
    keys::{self, Root},
    materials::{MaterialKind, MaterialName},
    policies,
    report::Problem,
    schema::Key,
    section::Section,
    values::switch,
};

/// Collects the materials that the configuration names, and the problems of these settings.
pub(crate) struct Naming<'a> {
    pub(crate) agent: &'a Agent,
    pub(crate) problems: Vec<Problem>,
    pub(crate) wanted: Vec<MaterialName>,
    pub(crate) credentials: Vec<Named>,
}

/// A credential and the settings that name it.
#[derive(Clone, Debug)]
pub(crate) struct Named {
    pub(crate) credential: CredentialFiles,
    pub(crate) chain: Mention,
    pub(crate) key: Mention,
    /// Whether a pool presents it to its members.
    pub(crate) seen_by_members: bool,
}

/// The position of a setting in the file.
#[derive(Clone, Debug, Default)]
pub(crate) struct Mention {
    pub(crate) key_path: String,
    pub(crate) span: Option<Range<usize>>,
    from_agent: bool,
}

impl Naming<'_> {
    /// The credentials in `[tls] certificates`, or else the agent's credential if one is needed.
    pub(crate) fn certificates(
        &mut self,
        root: &Section<'_>,
        is_needed: bool,
    ) -> Vec<CredentialFiles> {
        let written = self.written_credentials(&root.table(Root::tls), keys::Tls::certificates);
        match written {
            Some(written) => written,
            None if is_needed => self.agents_credential().into_iter().collect(),
            None => Vec::new(),
        }
    }

    /// The credentials in a table's `certificates`, if the key is set.
    pub(crate) fn written_credentials(
        &mut self,
        table: &Section<'_>,
        key: &Key,
    ) -> Option<Vec<CredentialFiles>> {
        if !table.is_set(key) {
            return None;
        }
        if table.is_empty_list(key) {
            let problem = table.error(key, "an empty list");
            self.problems
                .push(problem.expected("at least one certificate"));
        }
        let sections = table.tables(key);
        let credentials = sections.iter().filter_map(|section| {
            self.written_credential(section, keys::Credential::chain, keys::Credential::key)
        });
        Some(credentials.collect())
    }

    /// Reads `[trust]`, with the agent's CA bundle and CRL as defaults if they are needed.
    pub(crate) fn trust(&mut self, root: &Section<'_>, trust: &mut Trust, is_needed: bool) {
        let section = root.table(Root::trust);
        policies::trust(&section, &mut trust.settings, &mut self.problems);
        if !is_needed && !section.is_set(keys::Trust::ca) && !section.is_set(keys::Trust::crl) {
            return;
        }
        trust.ca = self
            .bundle(&section, keys::Trust::ca, MaterialKind::Ca, false)
            .unwrap_or_else(|| self.agents_file(MaterialKind::Ca, false));
        trust.crl = self.crls(&section, &trust.settings);
        let agents_copy = self.agent.crl();
        trust.crl_is_agents_copy = agents_copy.is_some_and(|copy| trust.crl.contains(&copy));
        trust.fetch = self.fetch(root, &section);
    }

    /// Reads `[trust.fetch]`. If the file does not name CRLs, they are fetched from the CA.
    fn fetch(&mut self, root: &Section<'_>, trust: &Section<'_>) -> Option<Fetch> {
        let section = trust.table(keys::Trust::fetch);
        let written: Option<bool> = section.value(keys::Fetch::enabled, &switch());
        let pools = root.named(Root::pools);
        let has_pool = pools.iter().any(|(name, _)| *name == CA_POOL);
        if written == Some(true) && !has_pool {
            let problem = section.error(
                keys::Fetch::enabled,
                format!("there is no pool `{CA_POOL}` to fetch from"),
            );
            self.problems
                .push(problem.help(format!("define [pools.{CA_POOL}]")));
        }
        let enabled = written.unwrap_or_else(|| !trust.is_set(keys::Trust::crl));
        (enabled && has_pool).then(|| {
            let mut fetch = Fetch::base();
            keys::Fetch::read(&section, &mut fetch);
            fetch
        })
    }

    /// Reads `[upstream.tls]` or `[pools.NAME.tls]`. Settings that the table leaves out come from `above`.
    pub(crate) fn member_tls(&mut self, section: &Section<'_>, above: &MemberTls) -> MemberTls {
        let mut tls = above.clone();
        keys::MemberTls::read(section, &mut tls);
        let names = [
            keys::MemberTls::chain,
            keys::MemberTls::key,
            keys::MemberTls::ca,
        ];
        self.tls(section, names, Some(keys::MemberTls::crl), &mut tls);
        tls
    }

    /// Reads the files of a table about TLS: the keys for a certificate, its key, the CAs and the CRLs.
    pub(crate) fn tls(
        &mut self,
        section: &Section<'_>,
        [chain, key, ca]: [&'static Key; 3],
        crl: Option<&'static Key>,
        tls: &mut MemberTls,
    ) {
        match (section.is_set(chain), section.is_set(key)) {
            (false, false) => {}
            (true, true) => {
                if let Some(credential) = self.written_credential(section, chain, key) {
                    tls.credential = credential;
                }
            }
            (has_chain, _) => {
                let (there, lacking) = if has_chain {
                    (chain, key)
                } else {
                    (key, chain)
                };
                let message = format!("`{}` is missing", lacking.name);
                let problem = section.error(there, message);
                let both = format!("`{}` and `{}` together", chain.name, key.name);
                self.problems.push(problem.expected(both));
            }
        }
        if let Some(bundle) = self.bundle(section, ca, MaterialKind::Ca, false) {
            tls.ca = bundle;
        }
        if let Some(lists) = crl.and_then(|crl| self.bundle(section, crl, MaterialKind::Crl, false))
        {
            tls.crl = lists;
        }
    }

    /// The key file of `[fleet]`.
    pub(crate) fn fleet_keys(&mut self, section: &Section<'_>) {
        let key = keys::Fleet::key_file;
        let Some(path) = section.path(key) else {
            return;
        };
        let mention = Mention {
            key_path: section.key_path(key),
            span: section.span(key),
            from_agent: false,
        };
        self.want(path, MaterialKind::FleetKeys, false, mention);
    }

    /// Records that a pool presents a credential to its members.
    pub(crate) fn seen_by_members(&mut self, credential: &CredentialFiles) {
        let shown = self
            .credentials
            .iter_mut()
            .filter(|named| named.credential == *credential);
        shown.for_each(|named| named.seen_by_members = true);
    }

    /// The CRLs in `[trust]`. The agent's CRL is the default only if the file names no CA bundle either, because a CRL belongs
    /// to its CA.
    fn crls(&mut self, section: &Section<'_>, settings: &TrustSettings) -> Vec<PathBuf> {
        let unchecked = settings.leaves_unchecked();
        if let Some(crl) = self.bundle(section, keys::Trust::crl, MaterialKind::Crl, false) {
            if section.is_empty_list(keys::Trust::crl) && !unchecked {
                self.problems.push(without_crls(
                    section.error(keys::Trust::crl, "an empty list"),
                ));
            }
            return crl;
        }
        if !section.is_set(keys::Trust::ca) {
            return self.agents_file(MaterialKind::Crl, unchecked);
        }
        if !unchecked {
            let problem = section.error(keys::Trust::ca, "no CRL is configured for this bundle");
            self.problems.push(without_crls(problem).help(
                "to fetch CRLs, the proxy needs a first one: name a copy of the CA server's ca_crl.pem in `crl`, and \
                 set `enabled = true` in [trust.fetch]",
            ));
        }
        Vec::new()
    }

    fn bundle(
        &mut self,
        section: &Section<'_>,
        key: &Key,
        kind: MaterialKind,
        optional: bool,
    ) -> Option<Vec<PathBuf>> {
        if !section.is_set(key) {
            return None;
        }
        let texts = section.spanned_texts(key);
        if section.is_empty_list(key) && kind == MaterialKind::Ca {
            self.problems.push(
                section
                    .error(key, "an empty list")
                    .expected("at least one CA bundle"),
            );
        }
        for (path, span) in &texts {
            let mention = Mention {
                key_path: section.key_path(key),
                span: Some(span.clone()),
                from_agent: false,
            };
            self.want(PathBuf::from(path), kind, optional, mention);
        }
        Some(
            texts
                .into_iter()
                .map(|(path, _)| PathBuf::from(path))
                .collect(),
        )
    }

    fn agents_file(&mut self, kind: MaterialKind, optional: bool) -> Vec<PathBuf> {
        let (path, key_path) = match kind {
            MaterialKind::Crl => (self.agent.crl(), "trust.crl"),
            _ => (self.agent.ca(), "trust.ca"),
        };
        let Some(path) = path else {
            if !optional {
                self.report_missing_agent();
            }
            return Vec::new();
        };
        let mention = Mention {
            key_path: key_path.into(),
            span: None,
            from_agent: true,
        };
        self.want(path.clone(), kind, optional, mention);
        vec![path]
    }

    fn agents_credential(&mut self) -> Option<CredentialFiles> {
        let Some(credential) = self.agent.credential() else {
            self.report_missing_agent();
            return None;
        };
        let mention = Mention {
            key_path: "certname".into(),
            span: None,
            from_agent: true,
        };
        self.want_credential(credential.clone(), mention.clone(), mention);
        Some(credential)
    }

    fn written_credential(
        &mut self,
        section: &Section<'_>,
        chain: &Key,
        key: &Key,
    ) -> Option<CredentialFiles> {
        let credential = CredentialFiles {
            chain: section.path(chain)?,
            key: section.path(key)?,
        };
        let mention = |key: &Key| Mention {
            key_path: section.key_path(key),
            span: section.span(key),
            from_agent: false,
        };
        self.want_credential(credential.clone(), mention(chain), mention(key));
        Some(credential)
    }

    fn want_credential(&mut self, credential: CredentialFiles, chain: Mention, key: Mention) {
        self.want(
            credential.chain.clone(),
            MaterialKind::Chain,
            false,
            chain.clone(),
        );
        self.want(
            credential.key.clone(),
            MaterialKind::Key,
            false,
            key.clone(),
        );
        if !self
            .credentials
            .iter()
            .any(|named| named.credential == credential)
        {
            self.credentials.push(Named {
                credential,
                chain,
                key,
                seen_by_members: false,
            });
        }
    }

    /// Adds each path once. A file that one setting requires is required, even if it is optional for another setting. A
    /// file that also contains a key is validated as a key.
    fn want(&mut self, path: PathBuf, kind: MaterialKind, optional: bool, mention: Mention) {
        if let Some(known) = self.wanted.iter_mut().find(|wanted| wanted.path == path) {
            known.optional &= optional;
            if kind == MaterialKind::Key && known.kind != MaterialKind::Key {
                known.kind = kind;
                known.key_path = mention.key_path;
                known.span = mention.span;
            }
            return;
        }
        self.wanted.push(MaterialName {
            path,
            kind,
            key_path: mention.key_path,
            from_agent: mention.from_agent,
            optional,
            span: mention.span,
        });
    }

    fn report_missing_agent(&mut self) {
        let problem = self.agent.missing();
        if !self.problems.contains(&problem) {
            self.problems.push(problem);
        }
    }
}

fn without_crls(problem: Problem) -> Problem {
    problem
        .expected("`crl`, or `unchecked` to accept certificates without a CRL")
        .help("to accept revoked certificates too, set unchecked = [\"*\"]")
}

/// The name under which the built-in routes know the pool of the CA server.
const CA_POOL: &str = routing::pool_names::CA;
