//! Materials by name: `[tls]`, `[trust]`, `[upstream.tls]` and `[pools.NAME.tls]`, with the agent's own as defaults.

use std::{ops::Range, path::PathBuf};

use pki::settings::TrustSettings;

use crate::{
    agent::Agent,
    config::{Credential, Fetch, MemberTls, Trust},
    materials::{Kind, Wanted},
    policies,
    report::Problem,
    section::Section,
};

/// What the configuration names, and what is wrong with the naming.
pub(crate) struct Naming<'a> {
    pub(crate) agent: &'a Agent,
    pub(crate) problems: Vec<Problem>,
    pub(crate) wanted: Vec<Wanted>,
    pub(crate) credentials: Vec<Named>,
}

/// A credential and who names it.
#[derive(Clone, Debug)]
pub(crate) struct Named {
    pub(crate) credential: Credential,
    pub(crate) chain: Mention,
    pub(crate) key: Mention,
    /// Whether a pool shows it to its members.
    pub(crate) seen_by_members: bool,
}

/// Where a name stands in the file.
#[derive(Clone, Debug, Default)]
pub(crate) struct Mention {
    pub(crate) key_path: String,
    pub(crate) span: Option<Range<usize>>,
    from_agent: bool,
}

impl Naming<'_> {
    /// `[tls] certificates`, else the agent's.
    pub(crate) fn certificates(&mut self, root: &Section<'_>) -> Vec<Credential> {
        self.written_credentials(&root.table("tls"))
            .unwrap_or_else(|| self.agents_credential().into_iter().collect())
    }

    /// `certificates` of a table, if it has any.
    pub(crate) fn written_credentials(&mut self, table: &Section<'_>) -> Option<Vec<Credential>> {
        if !table.is_set("certificates") {
            return None;
        }
        if table.is_empty_list("certificates") {
            self.problems.push(
                table
                    .error("certificates", "an empty list")
                    .expected("at least one certificate"),
            );
        }
        let sections = table.tables("certificates");
        let credentials = sections
            .iter()
            .filter_map(|section| self.written_credential(section));
        Some(credentials.collect())
    }

    /// `[trust]`, with the agent's bundle and list as defaults.
    pub(crate) fn trust(&mut self, root: &Section<'_>) -> Trust {
        let section = root.table("trust");
        let settings = policies::trust(&section, &mut self.problems);
        let ca = self
            .bundle(&section, "ca", Kind::Ca, false)
            .unwrap_or_else(|| self.agents_file(Kind::Ca, false));
        let crl = self.lists(&section, &settings);
        let agents_copy = self.agent.crl();
        Trust {
            crl_is_agents_copy: agents_copy.is_some_and(|copy| crl.contains(&copy)),
            revoked_close_rate: section.count("revoked_close_rate").unwrap_or_default(),
            settings,
            ca,
            crl,
            fetch: self.fetch(root, &section),
        }
    }

    /// `[trust.fetch]`: without lists by name, the CA is asked for its own.
    fn fetch(&mut self, root: &Section<'_>, trust: &Section<'_>) -> Option<Fetch> {
        let section = trust.table("fetch");
        let is_written = section.is_set("enabled");
        let has_pool = root.named("pools").iter().any(|(name, _)| *name == CA_POOL);
        if section.switch("enabled") && !has_pool {
            let problem = section.error("enabled", format!("there is no pool `{CA_POOL}` to ask"));
            self.problems
                .push(problem.help(format!("define [pools.{CA_POOL}]")));
        }
        let enabled = match is_written {
            true => section.switch("enabled"),
            false => !trust.is_set("crl"),
        };
        (enabled && has_pool).then(|| Fetch {
            interval: section.duration("interval").unwrap_or_default(),
            jitter: section.duration("jitter").unwrap_or_default(),
            timeout: section.duration("timeout").unwrap_or_default(),
            whole_interval: section.duration("whole_interval").unwrap_or_default(),
            body_bytes_max: section.size("body_max").unwrap_or_default(),
        })
    }

    /// `[upstream.tls]` or `[pools.NAME.tls]`, the rest from what stands above it.
    pub(crate) fn member_tls(&mut self, section: &Section<'_>, above: &MemberTls) -> MemberTls {
        let credential = match (section.is_set("chain"), section.is_set("key")) {
            (false, false) => None,
            (true, true) => self.written_credential(section),
            (chain, _) => {
                let (there, lacking) = if chain {
                    ("chain", "key")
                } else {
                    ("key", "chain")
                };
                let problem = section.error(there, format!("`{lacking}` is missing beside it"));
                self.problems
                    .push(problem.expected("`chain` and `key` together"));
                None
            }
        };
        MemberTls {
            credential: credential.unwrap_or_else(|| above.credential.clone()),
            ca: self
                .bundle(section, "ca", Kind::Ca, false)
                .unwrap_or_else(|| above.ca.clone()),
            crl: self
                .bundle(section, "crl", Kind::Crl, false)
                .unwrap_or_else(|| above.crl.clone()),
            name_from_cn: match section.is_set("name_from_cn") {
                true => section.switch("name_from_cn"),
                false => above.name_from_cn,
            },
        }
    }

    /// Notes that a pool shows a credential to its members.
    pub(crate) fn seen_by_members(&mut self, credential: &Credential) {
        let shown = self
            .credentials
            .iter_mut()
            .filter(|named| named.credential == *credential);
        shown.for_each(|named| named.seen_by_members = true);
    }

    /// The lists in `[trust]`, else the agent's where the bundle is the agent's too: a list belongs to its CA.
    fn lists(&mut self, section: &Section<'_>, settings: &TrustSettings) -> Vec<PathBuf> {
        let unchecked = settings.leaves_unchecked();
        if let Some(crl) = self.bundle(section, "crl", Kind::Crl, false) {
            if section.is_empty_list("crl") && !unchecked {
                self.problems
                    .push(without_lists(section.error("crl", "an empty list")));
            }
            return crl;
        }
        if !section.is_set("ca") {
            return self.agents_file(Kind::Crl, unchecked);
        }
        if !unchecked {
            let problem = section.error("ca", "no revocation list belongs to this bundle");
            self.problems.push(without_lists(problem).help(
                "lists that are fetched need one to begin with: name a copy of the CA server's ca_crl.pem in `crl`, and \
                 say `enabled = true` in [trust.fetch] beside it",
            ));
        }
        Vec::new()
    }

    fn bundle(
        &mut self,
        section: &Section<'_>,
        key: &str,
        kind: Kind,
        optional: bool,
    ) -> Option<Vec<PathBuf>> {
        if !section.is_set(key) {
            return None;
        }
        let texts = section.spanned_texts(key);
        if section.is_empty_list(key) && kind == Kind::Ca {
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

    fn agents_file(&mut self, kind: Kind, optional: bool) -> Vec<PathBuf> {
        let (path, key_path) = match kind {
            Kind::Crl => (self.agent.crl(), "trust.crl"),
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

    fn agents_credential(&mut self) -> Option<Credential> {
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

    fn written_credential(&mut self, section: &Section<'_>) -> Option<Credential> {
        let credential = Credential {
            chain: section.path("chain")?,
            key: section.path("key")?,
        };
        let mention = |key: &str| Mention {
            key_path: section.key_path(key),
            span: section.span(key),
            from_agent: false,
        };
        self.want_credential(credential.clone(), mention("chain"), mention("key"));
        Some(credential)
    }

    fn want_credential(&mut self, credential: Credential, chain: Mention, key: Mention) {
        self.want(credential.chain.clone(), Kind::Chain, false, chain.clone());
        self.want(credential.key.clone(), Kind::Key, false, key.clone());
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

    /// Each path once; what one place needs is not optional for the others, and a file that holds a key among other
    /// things is judged as a key.
    fn want(&mut self, path: PathBuf, kind: Kind, optional: bool, mention: Mention) {
        if let Some(known) = self.wanted.iter_mut().find(|wanted| wanted.path == path) {
            known.optional &= optional;
            if kind == Kind::Key && known.kind != Kind::Key {
                known.kind = kind;
                known.key_path = mention.key_path;
                known.span = mention.span;
            }
            return;
        }
        self.wanted.push(Wanted {
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

fn without_lists(problem: Problem) -> Problem {
    problem
        .expected("`crl`, or `unchecked` to say whose certificates are accepted without a list")
        .help("a revoked certificate would be accepted; to have that say unchecked = [\"*\"]")
}

/// The pool of the CA server, by the name that the built-in routes know it by.
const CA_POOL: &str = "ca";
