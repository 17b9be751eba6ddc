//! Prepares a generation from a loaded configuration. Nothing that is active changes: [`Prepared::bind`], which a commit calls,
//! is the first step that adds something to the running process.

mod lasting;
mod parts;

use std::{
    collections::BTreeSet,
    sync::{Arc, OnceLock},
};

use config::{Config, ConfigReport, Draft, LoadedConfig};
use listener::ClientCertPolicy;
use pki::{CertificatePurpose, Fingerprint, PkiProblem, TrustStore};
use proxy::{Generation, RuleRuntime};
use routing::{AccessRule, RouteTable};
use rustls_pki_types::UnixTime;
use state::{Credentials, Foundation, PreparedTls, stamps::Stamps};
use trust_keeper::{
    certificates::{self, OwnCertificate},
    stored_crls::RestoredCrls,
};

use crate::materials::files::ConfigFiles;

pub(crate) use lasting::Lasting;

use parts::{CrlFiles, Materials, Problems};

/// A generation ready to be committed.
pub(crate) struct Prepared {
    pub(crate) generation: Generation,
    pub(crate) config: Config,
    pub(crate) fingerprint: Fingerprint,
    /// The credentials of listeners, each once.
    pub(crate) credentials: Credentials,
    pub(crate) draft: Draft,
    pub(crate) stamps: Stamps,
    materials: Arc<config::Materials>,
    /// When the agent's copy of the CRL was last written, if clients are verified against it.
    pub(crate) agents_copy: Option<std::time::SystemTime>,
    pub(crate) report: ConfigReport,
    pub(crate) member_tls: Vec<PreparedTls>,
    /// The stored CRLs that were restored because the bundle has other CAs than before.
    pub(crate) restored_crls: Option<RestoredCrls>,
}

/// The fingerprint of all settings and all bytes of the materials, each prefixed with its length. Another build of the program
/// computes the same fingerprint from the same settings and materials.
pub(crate) fn fingerprint(loaded: &LoadedConfig) -> Fingerprint {
    let config = loaded.config.show(true);
    let blobs = loaded
        .materials
        .values()
        .flatten()
        .flat_map(|material| &material.blobs);
    Fingerprint::of(
        std::iter::once(config.as_bytes())
            .chain(blobs.flat_map(|blob| [blob.name.as_bytes(), &blob.bytes])),
    )
}

/// When the agent's copy of the CRL was last written, if clients are verified against it.
pub(crate) fn agents_copy(
    config: &Config,
    materials: &config::Materials,
) -> Option<std::time::SystemTime> {
    let copy = config.agents_copy()?;
    materials.get(&copy)?.as_ref().ok()?.modified
}

/// Builds everything of the next generation. The members, metrics and ticket keys of `lasting` get what the generation needs.
///
/// # Errors
/// The report with every problem. Warnings are in `Prepared::report`.
pub(crate) fn prepare(
    read: ConfigFiles,
    number: u64,
    lasting: &Lasting,
    previous: Option<(&Foundation, &Generation)>,
) -> Result<Prepared, ConfigReport> {
    let ConfigFiles {
        loaded,
        draft,
        stamps,
    } = read;
    let fingerprint = fingerprint(&loaded);
    let LoadedConfig {
        config,
        materials,
        mut report,
    } = loaded;
    let bytes = Arc::new(materials);
    let materials = Materials(&bytes);
    let mut problems = Problems(&mut report);

    let previous_trust = previous.map(|(_, generation)| &generation.trust);
    let trust = problems.each(
        config::trust_key,
        trust(&config, &materials, previous_trust),
    );
    let credentials = problems.credentials(&config, &materials);
    let known = previous.map_or(&[][..], |(foundation, _)| &foundation.member_tls);
    let member_tls = problems.member_tls(&config, &materials, known);
    let pools = problems.pools(
        &config,
        lasting,
        &member_tls,
        previous.map(|(p, g)| (&p.config, g)),
    );
    let names: Vec<_> = pools
        .iter()
        .map(|pool| Arc::clone(pool.pool.name()))
        .collect();
    let routes = problems.routes(&config, &names);
    let listeners = match &trust {
        Some(trust) => problems.listeners(&config, &credentials, trust, lasting),
        None => foldhash::HashMap::default(),
    };
    let (Some(trust), Some(routes), false) = (trust, routes, report.has_errors()) else {
        return Err(report);
    };
    let of_credentials = credentials.values().flat_map(|c| c.warnings());
    for warning in trust.warnings().iter().chain(of_credentials) {
        report.warn("trust", warning);
    }
    let position = |pool: &str| names.iter().position(|name| **name == *pool);
    let generation = Generation {
        number,
        status_pool: position(routing::pool_names::COMPILERS),
        rules: rules(&routes, lasting),
        ca_pool: position(routing::pool_names::CA),
        routes: Arc::new(routes),
        own_names: config.own_names(),
        pools: pools.into(),
        trust,
        listeners,
        settings: config.exchange,
        csr: Arc::new(pki::CsrPolicy::new(config.csr.clone())),
        ca: config.ca,
        revoked_close_rate: config.trust.revoked_close_rate,
    };
    let mut prepared = Prepared {
        generation,
        agents_copy: agents_copy(&config, &bytes),
        config,
        fingerprint,
        credentials,
        draft,
        stamps,
        materials: bytes,
        report,
        member_tls,
        restored_crls: None,
    };
    prepared.warn_of_unverified_certificates(UnixTime::now());
    prepared.warn_of_unknown_cas();
    prepared.warn_of_unknown_issuers();
    Ok(prepared)
}

/// The access rules with their metrics.
fn rules(routes: &RouteTable, lasting: &Lasting) -> Arc<[RuleRuntime]> {
    let with_metrics =
        |rule: &AccessRule| RuleRuntime::new(lasting.metrics.access_rule(&rule.name));
    routes.rules().iter().map(with_metrics).collect()
}

/// The trust store for clients. If nothing differs, it is the previous one, so that connections need not be verified again.
fn trust(
    config: &Config,
    materials: &Materials<'_>,
    previous: Option<&Arc<TrustStore>>,
) -> Result<Arc<TrustStore>, Vec<PkiProblem>> {
    let settings = &config.trust;
    let before = previous.map(|trust| &**trust);
    let trust = if settings.ca.is_empty() {
        // No listener requests certificates, and no pool is verified against this bundle.
        TrustStore::without_cas(&settings.settings, &config.identity, before)
    } else {
        // If the proxy fetches CRLs itself, the agent's copy is compared with the active CRL like a fetched one.
        let copy = config.agents_copy().filter(|_| settings.fetch.is_some());
        let crls = CrlFiles {
            all: &settings.crl,
            copy: copy.as_ref(),
        };
        materials.trust(config, &settings.ca, crls, before)?
    };
    let same = previous.filter(|previous| {
        previous.generation() == trust.generation() && previous.warnings() == trust.warnings()
    });
    Ok(same.map_or_else(|| Arc::new(trust), Arc::clone))
}

impl Prepared {
    /// Connects a generation that was prepared without the running process to its members, metrics and ticket keys. A commit
    /// calls this when nothing else can refuse the generation.
    ///
    /// # Errors
    /// The report, if DNS has meanwhile named a member that cannot be reached as configured.
    pub(crate) fn bind(
        &mut self,
        lasting: &Lasting,
        (foundation, current): (&Foundation, &Generation),
    ) -> Result<(), ConfigReport> {
        let mut problems = Problems(&mut self.report);
        let previous = Some((&foundation.config, current));
        let pools = problems.pools(&self.config, lasting, &self.member_tls, previous);
        let generation = &mut self.generation;
        let trust = &generation.trust;
        let listeners = problems.listeners(&self.config, &self.credentials, trust, lasting);
        if self.report.has_errors() {
            return Err(self.report.clone());
        }
        generation.pools = pools.into();
        generation.listeners = listeners;
        generation.rules = rules(&generation.routes, lasting);
        Ok(())
    }

    /// Logs what was found when stored CRLs were restored.
    pub(crate) fn log_restored_crls(&self) {
        let restored = self.restored_crls.iter();
        for unusable in restored.clone().flat_map(|restored| &restored.unusable) {
            tracing::error!("{unusable}");
        }
        for overruled in restored.flat_map(|restored| &restored.overruled) {
            tracing::warn!("{overruled}");
        }
    }

    /// TLS towards the members of a pool.
    pub(crate) fn tls_of(&self, pool: &config::PoolConfig) -> Option<&PreparedTls> {
        state::tls_of(pool, &self.member_tls)
    }

    /// The certificates that the proxy presents, once for each use.
    pub(crate) fn own_certificates(&self) -> Vec<OwnCertificate> {
        certificates::own(&self.config, &self.credentials, &self.member_tls)
    }

    /// CAs whose outdated signatures are accepted, each with the kind of certificates.
    pub(crate) fn legacy_cas(&self) -> BTreeSet<(String, &'static str)> {
        let clients = self.generation.trust.legacy_cas();
        let members = self
            .member_tls
            .iter()
            .flat_map(|tls| tls.trust.legacy_cas());
        clients
            .map(|ca| (ca.to_owned(), "of clients"))
            .chain(members.map(|ca| (ca.to_owned(), "of members")))
            .collect()
    }

    /// Warns of `issuer` values that no CA of the bundle has. Such a rule matches no client.
    fn warn_of_unknown_issuers(&mut self) {
        let rules = self.config.routes.access.iter();
        let rules = rules.flat_map(|rule| rule.issuer.iter().map(|name| ("access", name)));
        let routes = self.config.routes.routes.iter();
        let routes = routes.flat_map(|route| route.issuer.iter().map(|name| ("routes", name)));
        let named: BTreeSet<_> = rules.chain(routes).collect();
        if named.is_empty() {
            return;
        }
        let known = self.generation.trust.status(UnixTime::now()).cas;
        for (table, name) in named {
            if !known.iter().any(|ca| ca.subject == *name) {
                let message = format!(
                    "no CA of the bundle has the subject \"{name}\" (write it as in RFC 2253), so `issuer` matches no client"
                );
                self.report.warn(table, &message);
            }
        }
    }

    /// Warns of certificates of listeners that no CA of the bundle verifies, because agents usually trust the same CAs.
    /// Certificates that are not valid now have an error of their own.
    fn warn_of_unverified_certificates(&mut self, now: UnixTime) {
        let trust = &self.generation.trust;
        // Agents present certificates, so they do not use the other listeners.
        let named = self.config.listeners.iter();
        let named = named.filter(|listener| listener.client_cert != ClientCertPolicy::None);
        let named = named.flat_map(|listener| self.config.certificates_of(&listener.name));
        let is_unverified = |credential: &pki::Credential| {
            let is_valid = credential.not_before() <= now && now <= credential.not_after();
            let purpose = CertificatePurpose::Server;
            is_valid && trust.cas_above(credential.chain(), purpose, now).is_none()
        };
        let unverified: BTreeSet<_> = named
            .filter_map(|(key, files)| {
                let credential = self.credentials.get(files)?;
                is_unverified(credential).then(|| {
                    let message = format!(
                        "no CA of [trust] ca verifies the certificate {} ({}): agents that trust the same CAs refuse it",
                        files.chain.display(),
                        credential.subject()
                    );
                    (key, message)
                })
            })
            .collect();
        for (key, message) in unverified {
            self.report.warn(&key, &message);
        }
    }

    /// Warns of names in `legacy_signatures` that no bundle has, which are most likely misspelled.
    fn warn_of_unknown_cas(&mut self) {
        let known = self.legacy_cas();
        for name in &self.config.trust.settings.legacy_signatures {
            if !known.iter().any(|(ca, _)| ca == name) {
                let message = format!(
                    "no CA of a bundle has the subject \"{name}\" (write it as in RFC 2253)"
                );
                self.report.warn("trust.legacy_signatures", &message);
            }
        }
    }

    /// CAs of clients or members whose CRL is active now and would be missing.
    pub(crate) fn crls_lost(&self, foundation: &Foundation, current: &Generation) -> Vec<String> {
        let mut lost = self.generation.trust.crls_lost(&current.trust);
        for tls in &self.member_tls {
            let before = foundation.member_tls.iter().find(|before| {
                before.settings == tls.settings && before.indication == tls.indication
            });
            lost.extend(
                before
                    .into_iter()
                    .flat_map(|b| tls.trust.crls_lost(&b.trust)),
            );
        }
        lost.sort();
        lost.dedup();
        lost
    }

    /// Separates the generation from what the next preparation needs.
    pub(crate) fn split(self) -> (Generation, Foundation, ConfigReport) {
        let Self {
            generation,
            config,
            fingerprint,
            credentials,
            draft,
            stamps,
            materials,
            agents_copy,
            report,
            member_tls,
            ..
        } = self;
        (
            generation,
            Foundation {
                config,
                fingerprint,
                draft,
                stamps,
                materials,
                agents_copy,
                credentials,
                member_tls,
                digests: OnceLock::new(),
            },
            report,
        )
    }
}
