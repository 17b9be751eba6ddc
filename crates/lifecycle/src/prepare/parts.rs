//! The parts of a generation, each built from the configuration and its materials. All problems are collected in one report.

use std::sync::Arc;

use config::{Config, ConfigReport, CredentialFiles};
use listener::{ActiveListener, ListenerTls};
use pki::{
    ClientVerifier, ListenerCredentials, ListenerPolicy, Named, PkiProblem, Protocols, TrustStore,
};
use proxy::{Generation, PoolRuntime};
use state::{Credentials, PreparedTls, indicates_name, passthrough, tls_of};
use upstream::Scheme;

use super::lasting::Lasting;

/// Builds the parts and collects their problems.
pub(super) struct Problems<'a>(pub(super) &'a mut ConfigReport);

impl Problems<'_> {
    fn one<T>(&mut self, key: &str, result: Result<T, PkiProblem>) -> Option<T> {
        self.all(key, result.map_err(|problem| vec![problem]))
    }

    fn all<T>(&mut self, key: &str, result: Result<T, Vec<PkiProblem>>) -> Option<T> {
        self.each(|_| key, result)
    }

    /// Reports each problem under the key that it belongs to.
    pub(super) fn each<'k, T>(
        &mut self,
        key: impl Fn(&PkiProblem) -> &'k str,
        result: Result<T, Vec<PkiProblem>>,
    ) -> Option<T> {
        let fail = |problem: PkiProblem| self.0.fail(key(&problem), &problem, &[]);
        result
            .map_err(|problems| problems.into_iter().for_each(fail))
            .ok()
    }

    /// The credentials of all listeners, each once.
    pub(super) fn credentials(
        &mut self,
        config: &Config,
        materials: &Materials<'_>,
    ) -> Credentials {
        let mut credentials = Credentials::new();
        for listener in &config.listeners {
            for (key, files) in config.certificates_of(&listener.name) {
                if credentials.contains_key(files) {
                    continue;
                }
                let read = self.one(&key, materials.credential(files));
                credentials.extend(read.map(|credential| (files.clone(), credential)));
            }
        }
        credentials
    }

    /// The credentials of one listener. `None` if one of them is invalid, which is reported already.
    fn shown(
        &mut self,
        config: &Config,
        settings: &listener::ListenerSettings,
        credentials: &Credentials,
    ) -> Option<Arc<ListenerCredentials>> {
        let named = config.certificates_of(&settings.name);
        let read: Option<Vec<_>> = named.map(|(_, files)| credentials.get(files)).collect();
        let key = format!("listeners.{}", settings.name);
        let shown = self.one(&key, ListenerCredentials::new(read?))?;
        if settings.sni_strict && shown.have_no_names() {
            let unusable = PkiProblem::Tls(
                "with `sni_strict`, the proxy serves only names in certificates, but no certificate has a subjectAltName, so it could serve no client"
                    .into(),
            );
            return self.one(&key, Err(unusable));
        }
        Some(Arc::new(shown))
    }

    /// TLS towards the members of all pools, once for each combination of settings. The values of `previous` are used again if
    /// nothing that they depend on has changed.
    pub(super) fn member_tls(
        &mut self,
        config: &Config,
        materials: &Materials<'_>,
        previous: &[PreparedTls],
    ) -> Vec<PreparedTls> {
        let mut member_tls: Vec<PreparedTls> = Vec::new();
        let pools = config.pools.iter().filter_map(|pool| {
            let key = format!("pools.{}.tls", pool.pool.name);
            Some((key, pool.tls.as_ref()?, indicates_name(pool)))
        });
        let fleet = config.fleet.iter();
        let fleet = fleet.map(|fleet| ("fleet".to_owned(), &fleet.tls, true));
        for (key, settings, indication) in pools.chain(fleet) {
            let fits = |known: &&PreparedTls| {
                known.settings == *settings && known.indication == indication
            };
            if member_tls.iter().any(|known| fits(&known)) {
                continue;
            }
            let known = previous.iter().find(fits);
            let Some(credential) = self.one(&key, materials.credential(&settings.credential))
            else {
                continue;
            };
            let previous_trust = known.map(|known| &*known.trust);
            let crls = CrlFiles {
                all: &settings.crl,
                copy: None,
            };
            let trust = materials.trust(config, &settings.ca, crls, previous_trust);
            let Some(trust) = self.all(&key, trust) else {
                continue;
            };
            let rests_on = (credential.fingerprint(), trust.generation());
            if let Some(known) = known.filter(|known| known.rests_on() == rests_on) {
                member_tls.push(known.clone());
                continue;
            }
            let trust = Arc::new(trust);
            let tls = PreparedTls::new(settings.clone(), indication, credential, trust);
            member_tls.extend(self.one(&key, tls));
        }
        member_tls
    }

    pub(super) fn pools(
        &mut self,
        config: &Config,
        lasting: &Lasting,
        member_tls: &[PreparedTls],
        previous: Option<(&Config, &Generation)>,
    ) -> Vec<Arc<PoolRuntime>> {
        let mut pools = Vec::new();
        for settings in &config.pools {
            let name = &settings.pool.name;
            let tls = tls_of(settings, member_tls);
            if settings.upstream.scheme == Scheme::Https && tls.is_none() {
                continue; // Its problem is reported already.
            }
            let kept = previous.and_then(|(old, generation)| {
                let index = old.pools.iter().position(|pool| pool.pool.name == *name)?;
                // Members that an operator has changed take precedence over those that DNS named before.
                let is_same = old.pools[index].pool.members == settings.pool.members;
                Some((&generation.pools[index], is_same))
            });
            let (before, is_same) = match kept {
                Some((before, is_same)) => (Some(&**before), is_same),
                None => (None, false),
            };
            match lasting.members.pool(settings, tls, before, is_same) {
                Ok(runtime) => pools.push(Arc::new(runtime)),
                Err((member, error)) => self.0.fail(&member_key(settings, &member), &error, &[]),
            }
        }
        // A conflict that only DNS has caused is an alarm. It must not prevent the use of a new CRL.
        if previous.is_none_or(|(old, _)| old.pools != config.pools) {
            self.passthrough(config, &pools);
        }
        pools
    }

    /// Reports members of passthrough pools that are on the host of a member that gets identity headers.
    fn passthrough(&mut self, config: &Config, pools: &[Arc<PoolRuntime>]) {
        for conflict in passthrough::conflicts(pools.iter().map(|pool| &**pool)) {
            let mut settings = config.pools.iter();
            let settings = settings.find(|settings| settings.pool.name == conflict.pool);
            let Some(settings) = settings else { continue };
            let key = member_key(settings, &conflict.member);
            let help = [
                "a client could send identity headers of its own through a connection that is passed through".to_owned(),
                "if the service at another port of that host does not read them, set trusted_headers_off = true in this pool".to_owned(),
            ];
            self.0.fail(&key, &conflict.message, &help);
        }
    }

    pub(super) fn routes(
        &mut self,
        config: &Config,
        names: &[Arc<str>],
    ) -> Option<routing::RouteTable> {
        if names.len() < config.pools.len() {
            return None;
        }
        routing::RouteTable::new(&config.routes, names)
            .map_err(|problems| {
                problems
                    .iter()
                    .for_each(|problem| self.0.fail("routes", problem, &[]))
            })
            .ok()
    }

    pub(super) fn listeners(
        &mut self,
        config: &Config,
        credentials: &Credentials,
        trust: &Arc<TrustStore>,
        lasting: &Lasting,
    ) -> foldhash::HashMap<Arc<str>, Arc<ActiveListener>> {
        let mut listeners = foldhash::HashMap::default();
        for settings in &config.listeners {
            let policy = ListenerPolicy {
                client_cert: match settings.client_cert {
                    listener::ClientCertPolicy::Optional => pki::ClientCert::Optional,
                    listener::ClientCertPolicy::Required => pki::ClientCert::Required,
                    listener::ClientCertPolicy::None => pki::ClientCert::None,
                },
                on_invalid: match settings.on_invalid {
                    listener::InvalidCertPolicy::Abort => pki::OnInvalid::Abort,
                    listener::InvalidCertPolicy::Explain | listener::InvalidCertPolicy::Forward => {
                        pki::OnInvalid::Defer
                    }
                },
            };
            // Handshakes are verified against the active trust store. Before the first commit there is none, so `trust` is
            // used, which that commit activates.
            let (cell, first) = (Arc::clone(&lasting.cell), Arc::clone(trust));
            let hints = Arc::clone(trust);
            let verifier = ClientVerifier::new(
                policy,
                Arc::new(move || {
                    cell.get()
                        .map_or_else(|| Arc::clone(&first), |cell| Arc::clone(&cell.load().trust))
                }),
            )
            .hinting(&hints);
            if !settings.terminates_tls() {
                let active = ActiveListener {
                    settings: settings.clone(),
                    tls: None,
                };
                listeners.insert(Arc::from(settings.name.as_str()), Arc::new(active));
                continue;
            }
            let Some(credentials) = self.shown(config, settings, credentials) else {
                continue;
            };
            let protocols = if settings.http2 {
                Protocols::Http2
            } else {
                Protocols::Http1
            };
            let (name, tickets) = (&settings.name, &lasting.tickets);
            let (verifier, lifetime) = (Arc::new(verifier), config.session_lifetime);
            let tls =
                pki::server_config(name, verifier, &credentials, tickets, lifetime, protocols);
            if let Some(tls) = self.one(&format!("listeners.{name}"), tls) {
                listeners.insert(
                    Arc::from(settings.name.as_str()),
                    Arc::new(ActiveListener {
                        settings: settings.clone(),
                        tls: Some(ListenerTls {
                            config: tls,
                            credentials,
                        }),
                    }),
                );
            }
        }
        listeners
    }
}

/// The configuration key of a member, or of the list of members if DNS has named the member.
fn member_key(pool: &config::PoolConfig, address: &str) -> String {
    let name = &pool.pool.name;
    let mut members = pool.pool.members.iter();
    match members.position(|member| member.address == address) {
        Some(index) => format!("pools.{name}.members[{index}]"),
        None => format!("pools.{name}.members"),
    }
}

/// The files with CRLs of a trust store.
#[derive(Clone, Copy)]
pub(super) struct CrlFiles<'a> {
    pub(super) all: &'a [std::path::PathBuf],
    /// The path of the agent's copy. That CRL is compared with the active CRL like a fetched CRL.
    pub(super) copy: Option<&'a std::path::PathBuf>,
}

/// The bytes of all materials by path.
pub(super) struct Materials<'a>(pub(super) &'a config::Materials);

impl Materials<'_> {
    fn named(&self, paths: &[std::path::PathBuf]) -> Vec<Named<Vec<u8>>> {
        paths
            .iter()
            .filter_map(|path| self.0.get(path)?.as_ref().ok())
            .flat_map(|material| &material.blobs)
            .map(|blob| Named {
                name: blob.name.clone(),
                value: blob.bytes.clone(),
            })
            .collect()
    }

    /// `copy`: the path among `crl` of a CRL that another program fetches.
    pub(super) fn trust(
        &self,
        config: &Config,
        ca: &[std::path::PathBuf],
        crls: CrlFiles<'_>,
        previous: Option<&TrustStore>,
    ) -> Result<TrustStore, Vec<PkiProblem>> {
        let (copied, files): (Vec<_>, Vec<_>) = crls
            .all
            .iter()
            .cloned()
            .partition(|path| crls.copy == Some(path));
        let material = pki::TrustMaterial {
            bundle: self.named(ca),
            crls: self.named(&files),
            copied_crls: self.named(&copied),
        };
        TrustStore::build(
            &material,
            &config.trust.settings,
            &config.identity,
            previous,
        )
    }

    fn credential(&self, files: &CredentialFiles) -> Result<pki::Credential, PkiProblem> {
        let one = |path: &std::path::PathBuf| {
            let name = path.display().to_string();
            self.named(std::slice::from_ref(path))
                .pop()
                .unwrap_or(Named {
                    name,
                    value: Vec::new(),
                })
        };
        pki::Credential::parse(&one(&files.chain), &one(&files.key))
    }
}
