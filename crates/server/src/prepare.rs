//! From a loaded configuration to everything a generation is made of; nothing in force is touched.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Arc, Mutex, OnceLock, PoisonError},
};

use arc_swap::ArcSwap;
use balancing::{Pool, Registry};
use config::{Config, Credential, Draft, Loaded, MemberTls, Report};
use listener::ListenerTls;
use pki::{
    ClientVerifier, Fingerprint, ListenerPolicy, MemberNames, Named, PkiProblem, Protocols,
    ShownCredentials, TicketKeys, TrustStore,
};
use proxy::{Generation, PoolRuntime, RuleRuntime};
use rustls_pki_types::UnixTime;

use telemetry::Metrics;
use upstream::{Connector, ConnectorSpec, MemberCheck, Scheme, Slots};

use crate::{files::Read, stamps::Stamps};

/// What lives as long as the process and outlasts every generation.
#[derive(Default)]
pub(crate) struct Lasting {
    pub(crate) registry: Registry,
    pub(crate) metrics: Arc<Metrics>,
    tickets: TicketKeys,
    /// Connections to members, by pool and address.
    slots: Mutex<BTreeMap<(String, String), Arc<Slots>>>,
    /// The cell that requests and handshakes read; set at the first commit.
    pub(crate) cell: Arc<OnceLock<Arc<ArcSwap<Generation>>>>,
}

/// A generation ready to be committed.
pub(crate) struct Prepared {
    pub(crate) generation: Generation,
    pub(crate) config: Config,
    pub(crate) fingerprint: Fingerprint,
    /// What listeners show, each once.
    pub(crate) credentials: Credentials,
    pub(crate) draft: Draft,
    stamps: Stamps,
    /// When the agent's own CRL was last written, where that is what is judged by.
    pub(crate) agents_copy: Option<std::time::SystemTime>,
    pub(crate) report: Report,
    pub(crate) member_tls: Vec<PreparedTls>,
}

/// TLS towards members, kept from one generation to the next while nothing it rests on has changed.
#[derive(Clone)]
pub(crate) struct PreparedTls {
    pub(crate) settings: MemberTls,
    pub(crate) indication: bool,
    rests_on: (Fingerprint, u64),
    pub(crate) credential: pki::Credential,
    pub(crate) trust: Arc<TrustStore>,
    config: Arc<pki::MemberTlsConfig>,
}

impl Lasting {
    fn slots(&self, pool: &str, address: &str) -> Arc<Slots> {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(
            slots
                .entry((pool.to_owned(), address.to_owned()))
                .or_default(),
        )
    }

    /// Whom the lists in force revoke, or the operator blocks, is no member either: those that were fetched are in no file.
    fn member_check(&self) -> MemberCheck {
        let (cell, same) = (Arc::clone(&self.cell), Arc::clone(&self.cell));
        MemberCheck::new(
            move || cell.get().map_or(0, |cell| cell.load().trust.generation()),
            move |own| match same.get() {
                Some(cell) => cell.load().trust.check_member(own, UnixTime::now()),
                None => Ok(()),
            },
        )
    }

    /// Connections open to a member, over all workers and generations.
    pub(crate) fn connections(&self, pool: &str, address: &str) -> u32 {
        self.slots(pool, address).open()
    }

    /// Forgets counts of members that no configuration names and that have no connection left.
    pub(crate) fn forget(&self, named: &Config) {
        let listeners = &named.listeners;
        let named = |pool: &str, address: &str| {
            named
                .pools
                .iter()
                .any(|p| p.pool.name == pool && p.pool.members.iter().any(|m| m.address == address))
        };
        self.registry.retain(named);
        self.tickets
            .retain(|name| listeners.iter().any(|listener| listener.name == name));
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        slots.retain(|(pool, address), slots| named(pool, address) || slots.open() > 0);
    }
}

/// Of the configuration and of every byte of its materials: equal input is recognised by it.
pub(crate) fn fingerprint(loaded: &Loaded) -> Fingerprint {
    let config = format!("{:?}", loaded.config);
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

/// When the agent's own copy of the CRL was last written, where it is judged by.
pub(crate) fn agents_copy(
    config: &Config,
    materials: &config::Materials,
) -> Option<std::time::SystemTime> {
    let copy = config.agents_copy()?;
    materials.get(&copy)?.as_ref().ok()?.modified
}

/// Builds everything of the next generation.
///
/// # Errors
/// The report of all that is wrong; warnings stand in `Prepared::report`.
pub(crate) fn prepare(
    read: Read,
    number: u64,
    lasting: &Lasting,
    previous: Option<(&Foundation, &Generation)>,
) -> Result<Prepared, Report> {
    let Read {
        loaded,
        draft,
        stamps,
    } = read;
    let fingerprint = fingerprint(&loaded);
    let Loaded {
        config,
        materials,
        mut report,
    } = loaded;
    let materials = Materials(&materials);
    let mut problems = Problems(&mut report);

    let trust = materials.trust(
        &config,
        &config.trust.ca,
        &config.trust.crl,
        previous.map(|(_, g)| &*g.trust),
    );
    let trust = problems.each(config::trust_key, trust);
    let credentials = problems.credentials(&config, &materials);
    let known = previous.map_or(&[][..], |(foundation, _)| &foundation.member_tls);
    let member_tls = problems.member_tls(&config, &materials, known);
    let pools = problems.pools(
        &config,
        lasting,
        &member_tls,
        previous.map(|(p, g)| (&p.config, g)),
    );
    let names: Vec<Arc<str>> = pools
        .iter()
        .map(|pool| Arc::clone(pool.pool.name()))
        .collect();
    let routes = problems.routes(&config, &names);
    let trust = trust.map(|trust| match previous {
        // The same store, so that connections need not be judged anew.
        Some((_, generation)) if generation.trust.generation() == trust.generation() => {
            Arc::clone(&generation.trust)
        }
        _ => Arc::new(trust),
    });
    let listeners = match &trust {
        Some(trust) => problems.listeners(&config, &credentials, trust, lasting),
        None => HashMap::new(),
    };
    let (Some(trust), Some(routes), false) = (trust, routes, report.has_errors()) else {
        return Err(report);
    };
    for warning in trust
        .warnings()
        .iter()
        .chain(credentials.values().flat_map(|c| c.warnings()))
    {
        report.warn("trust", warning);
    }
    let agents_copy = agents_copy(&config, materials.0);
    let generation = Generation {
        number,
        status_pool: names.iter().position(|name| &**name == "compilers"),
        rules: routes
            .rules()
            .iter()
            .map(|rule| RuleRuntime::new(lasting.metrics.access_rule(&rule.name)))
            .collect(),
        ca_pool: names.iter().position(|name| &**name == "ca"),
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
        config,
        fingerprint,
        credentials,
        draft,
        stamps,
        agents_copy,
        report,
        member_tls,
    };
    prepared.warn_of_strange_cas();
    prepared.warn_of_strange_issuers();
    Ok(prepared)
}

/// What of a committed generation the next preparation builds on.
#[derive(Clone)]
pub(crate) struct Foundation {
    pub(crate) config: Config,
    pub(crate) fingerprint: Fingerprint,
    /// The text it was made of.
    pub(crate) draft: Draft,
    /// Of the materials in force.
    pub(crate) stamps: Stamps,
    pub(crate) agents_copy: Option<std::time::SystemTime>,
    member_tls: Vec<PreparedTls>,
}

impl Prepared {
    /// TLS towards the members of a pool.
    pub(crate) fn tls_of(&self, pool: &config::PoolConfig) -> Option<&PreparedTls> {
        let (settings, indication) = (pool.tls.as_ref()?, indicates_name(pool));
        let fits =
            |known: &&PreparedTls| known.settings == *settings && known.indication == indication;
        self.member_tls.iter().find(fits)
    }

    /// CAs whose signatures of another time are admitted, and of whom.
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

    /// Names in `issuer` of rules that no CA of the bundle has: such a rule is about nobody.
    fn warn_of_strange_issuers(&mut self) {
        let rules = self.config.routes.access.iter();
        let named: BTreeSet<_> = rules.flat_map(|rule| &rule.issuer).collect();
        if named.is_empty() {
            return;
        }
        let known = self.generation.trust.status(UnixTime::now()).cas;
        for name in named {
            if !known.iter().any(|ca| ca.subject == *name) {
                let message = format!(
                    "`issuer` \"{name}\" is not the subject of a CA of the bundle, as RFC 2253 spells it: no client has it"
                );
                self.report.warn("access", &message);
            }
        }
    }

    /// Names in `legacy_signatures` that no bundle has: most likely spelled otherwise there.
    fn warn_of_strange_cas(&mut self) {
        let known = self.legacy_cas();
        for name in &self.config.trust.settings.legacy_signatures {
            if !known.iter().any(|(ca, _)| ca == name) {
                let message = format!(
                    "\"{name}\" is not the subject of a CA of a bundle, as RFC 2253 spells it"
                );
                self.report.warn("trust.legacy_signatures", &message);
            }
        }
    }

    /// CAs, towards clients or members, whose CRL is in force and would be no more.
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

    /// Parts the generation from what the next preparation needs of it.
    pub(crate) fn split(self) -> (Generation, Foundation, Report) {
        let Self {
            generation,
            config,
            fingerprint,
            credentials: _,
            draft,
            stamps,
            agents_copy,
            report,
            member_tls,
        } = self;
        (
            generation,
            Foundation {
                config,
                fingerprint,
                draft,
                stamps,
                agents_copy,
                member_tls,
            },
            report,
        )
    }
}

/// Whether members are told in the handshake which name is wanted. Only where Host names the member too: Jetty answers
/// 400 where the two disagree (docs/decisions/host-towards-tls-members.md).
fn indicates_name(pool: &config::PoolConfig) -> bool {
    pool.rules.host == proxy::HostRule::Member
}

/// The bytes of all materials by path.
struct Materials<'a>(&'a config::Materials);

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

    fn trust(
        &self,
        config: &Config,
        ca: &[std::path::PathBuf],
        crl: &[std::path::PathBuf],
        previous: Option<&TrustStore>,
    ) -> Result<TrustStore, Vec<PkiProblem>> {
        let material = pki::Material {
            bundle: self.named(ca),
            crls: self.named(crl),
        };
        TrustStore::build(
            &material,
            &config.trust.settings,
            &config.identity,
            previous,
        )
    }

    fn credential(&self, files: &Credential) -> Result<pki::Credential, PkiProblem> {
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

/// Credentials by the files that they were read from.
pub(crate) type Credentials = BTreeMap<Credential, pki::Credential>;

/// Where problems of building are gathered.
struct Problems<'a>(&'a mut Report);

impl Problems<'_> {
    fn one<T>(&mut self, key: &str, result: Result<T, PkiProblem>) -> Option<T> {
        self.all(key, result.map_err(|problem| vec![problem]))
    }

    fn all<T>(&mut self, key: &str, result: Result<T, Vec<PkiProblem>>) -> Option<T> {
        self.each(|_| key, result)
    }

    /// Each problem under the key that it belongs to.
    fn each<'k, T>(
        &mut self,
        key: impl Fn(&PkiProblem) -> &'k str,
        result: Result<T, Vec<PkiProblem>>,
    ) -> Option<T> {
        let tell = |problem: PkiProblem| self.0.fail(key(&problem), &problem, &[]);
        result
            .map_err(|problems| problems.into_iter().for_each(tell))
            .ok()
    }

    /// What listeners show to clients, each once.
    fn credentials(&mut self, config: &Config, materials: &Materials<'_>) -> Credentials {
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

    /// The credentials of one listener; none where one of them is not right, which has been told.
    fn shown(
        &mut self,
        config: &Config,
        settings: &listener::Settings,
        credentials: &Credentials,
    ) -> Option<Arc<ShownCredentials>> {
        let named = config.certificates_of(&settings.name);
        let read: Option<Vec<_>> = named.map(|(_, files)| credentials.get(files)).collect();
        let key = format!("listeners.{}", settings.name);
        let shown = self.one(&key, ShownCredentials::new(read?))?;
        if settings.sni_strict && shown.are_nameless() {
            let nobody = PkiProblem::Tls(
                "`sni_strict` serves by name alone, and no certificate has a subjectAltName: nobody would be served"
                    .into(),
            );
            return self.one(&key, Err(nobody));
        }
        Some(Arc::new(shown))
    }

    /// TLS towards the members of all pools, each kind once; that of `previous` where nothing it rests on has changed.
    fn member_tls(
        &mut self,
        config: &Config,
        materials: &Materials<'_>,
        previous: &[PreparedTls],
    ) -> Vec<PreparedTls> {
        let mut member_tls: Vec<PreparedTls> = Vec::new();
        for pool in &config.pools {
            let Some(settings) = &pool.tls else { continue };
            let indication = indicates_name(pool);
            let fits = |known: &&PreparedTls| {
                known.settings == *settings && known.indication == indication
            };
            if member_tls.iter().any(|known| fits(&known)) {
                continue;
            }
            let key = format!("pools.{}.tls", pool.pool.name);
            let known = previous.iter().find(fits);
            let Some(credential) = self.one(&key, materials.credential(&settings.credential))
            else {
                continue;
            };
            let previous_trust = known.map(|known| &*known.trust);
            let Some(trust) = self.all(
                &key,
                materials.trust(config, &settings.ca, &settings.crl, previous_trust),
            ) else {
                continue;
            };
            let rests_on = (credential.fingerprint(), trust.generation());
            if let Some(known) = known.filter(|known| known.rests_on == rests_on) {
                member_tls.push(known.clone());
                continue;
            }
            let trust = Arc::new(trust);
            let names = MemberNames {
                indicated: indication,
                from_cn: settings.name_from_cn,
            };
            if let Some(config) =
                self.one(&key, pki::client_config(&trust, Some(&credential), names))
            {
                member_tls.push(PreparedTls {
                    settings: settings.clone(),
                    indication,
                    rests_on,
                    credential,
                    trust,
                    config,
                });
            }
        }
        member_tls
    }

    fn pools(
        &mut self,
        config: &Config,
        lasting: &Lasting,
        member_tls: &[PreparedTls],
        previous: Option<(&Config, &Generation)>,
    ) -> Vec<PoolRuntime> {
        let mut pools = Vec::new();
        for settings in &config.pools {
            let name = &settings.pool.name;
            let tls = settings.tls.as_ref().and_then(|tls| {
                member_tls.iter().find(|known| {
                    known.settings == *tls && known.indication == indicates_name(settings)
                })
            });
            if settings.upstream.scheme == Scheme::Https && tls.is_none() {
                continue; // Its problem has been told.
            }
            let kept = previous.and_then(|(old, generation)| {
                let index = old.pools.iter().position(|pool| pool.pool.name == *name)?;
                (old.pools[index].upstream == settings.upstream).then_some(&generation.pools[index])
            });
            let mut connectors = Vec::new();
            for (index, member) in settings.pool.members.iter().enumerate() {
                let spec = ConnectorSpec {
                    address: &member.address,
                    server_name: member.server_name.as_deref(),
                    tls: tls.map(|tls| Arc::clone(&tls.config)),
                    check: tls.map(|_| lasting.member_check()),
                    settings: settings.upstream,
                    slots: lasting.slots(name, &member.address),
                };
                // A connector that has not changed keeps its idle connections.
                let same = kept
                    .and_then(|kept| kept.connectors.iter().find(|connector| connector.is(&spec)));
                match same.map_or_else(
                    || Connector::new(spec).map(Arc::new),
                    |same| Ok(Arc::clone(same)),
                ) {
                    Ok(connector) => connectors.push(connector),
                    Err(error) => {
                        self.0
                            .fail(&format!("pools.{name}.members[{index}]"), &error, &[])
                    }
                }
            }
            pools.push(PoolRuntime {
                pool: Pool::new(&settings.pool, &lasting.registry),
                connectors,
                rules: settings.rules.clone(),
                settings: settings.upstream,
                metrics: lasting.metrics.pool(name),
            });
        }
        pools
    }

    fn routes(&mut self, config: &Config, names: &[Arc<str>]) -> Option<routing::RouteTable> {
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

    fn listeners(
        &mut self,
        config: &Config,
        credentials: &Credentials,
        trust: &Arc<TrustStore>,
        lasting: &Lasting,
    ) -> HashMap<Arc<str>, Arc<ListenerTls>> {
        let mut listeners = HashMap::new();
        for settings in &config.listeners {
            let policy = ListenerPolicy {
                client_cert: match settings.client_cert {
                    listener::ClientCert::Optional => pki::ClientCert::Optional,
                    listener::ClientCert::Required => pki::ClientCert::Required,
                },
                on_invalid: match settings.on_invalid {
                    listener::OnInvalid::Abort => pki::OnInvalid::Abort,
                    listener::OnInvalid::Explain | listener::OnInvalid::Forward => {
                        pki::OnInvalid::Defer
                    }
                },
            };
            // The cell when there is one; before the first commit the store that is about to be in force.
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
            let Some(credentials) = self.shown(config, settings, credentials) else {
                continue;
            };
            let protocols = match settings.http2 {
                true => Protocols::Http2,
                false => Protocols::Http1,
            };
            let (name, tickets) = (&settings.name, &lasting.tickets);
            let (verifier, lifetime) = (Arc::new(verifier), config.session_lifetime);
            let tls =
                pki::server_config(name, verifier, &credentials, tickets, lifetime, protocols);
            if let Some(tls) = self.one(&format!("listeners.{name}"), tls) {
                listeners.insert(
                    Arc::from(settings.name.as_str()),
                    Arc::new(ListenerTls {
                        settings: settings.clone(),
                        tls,
                        credentials,
                    }),
                );
            }
        }
        listeners
    }
}
