//! Every member, all at the same time: reached, with the right certificate, and behaving as its pool needs.

use std::{net::IpAddr, sync::Arc, time::Duration};

use balancing::settings::{CheckKind, CheckSettings};
use config::PoolConfig;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use identity::{CertFormat, HeaderForm};
use pki::{Credential, MemberError, MemberNames, TrustStore};
use proxy::settings::PoolRules;
use routing::pool_names;
use rustls_pki_types::UnixTime;
use tokio::{sync::Semaphore, task::JoinSet};
use upstream::{Connector, ConnectorSpec, MemberQuery, QueryError, QueryResponse, Scheme};

use super::{
    Check, Examination, Grade, Proof,
    claim::{self, Ourselves},
    clock, dates, forged, head_room,
    outside::{self, Door},
    passthrough, service, unreached,
};
use crate::prepare::Prepared;

/// Members that are asked at the same time.
const MEMBERS_AT_ONCE_MAX: usize = 32;
/// Time for one question.
const QUESTION_TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes of an answer that are read.
const ANSWER_BYTES_MAX: usize = 64 << 10;
/// Time for revocation lists, which may be long.
const LISTS_TIMEOUT: Duration = Duration::from_secs(60);
/// Bytes of revocation lists that are read: a list of a million entries has 40 MB.
const LISTS_BYTES_MAX: usize = 128 << 20;

/// A member, and all that is needed to ask it.
#[derive(Clone)]
pub(super) struct Member {
    /// Address and pool, as findings name them.
    pub(super) about: String,
    pub(super) role: Role,
    /// Whether the pool's name says so; else its servers may be others that have the same status service.
    pub(super) by_name: bool,
    pub(super) check: CheckSettings,
    pub(super) connector: Arc<Connector>,
    /// The same address in plain HTTP where the pool speaks TLS, and the other way round.
    pub(super) otherwise: Option<Arc<Connector>>,
    /// How whoever is no proxy would come.
    pub(super) doors: Vec<Door>,
    pub(super) rules: PoolRules,
    pub(super) ourselves: Option<Ourselves>,
    /// What clients are judged by.
    pub(super) trust: Arc<TrustStore>,
    /// Whether a running proxy would ask the CA for its lists by itself.
    pub(super) fetches: bool,
}

/// What a pool is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Ca,
    Compiler,
    /// Nothing that is known here: it is reached, and no more is asked of it.
    Other,
}

pub(super) async fn examine(
    examination: &Examination,
    prepared: &Prepared,
    ourselves: Option<Ourselves>,
    agent: Option<Credential>,
    proof: &mut Proof,
) {
    let places = Arc::new(Semaphore::new(MEMBERS_AT_ONCE_MAX));
    let mut examined = JoinSet::new();
    let pools = prepared
        .config
        .pools
        .iter()
        .zip(&*prepared.generation.pools);
    for (pool, runtime) in pools {
        for (entry, connector) in runtime.pool.entries().iter().zip(runtime.connectors()) {
            let about = format!("{} in pool {}", connector.address, pool.pool.name);
            let asked = Asked {
                examination,
                prepared,
                pool,
                addresses: connector.addresses(),
                server_name: entry.server_name.as_deref(),
                agent: agent.as_ref(),
                about: &about,
            };
            let member = Member {
                role: role(pool, prepared),
                by_name: matches!(&*pool.pool.name, pool_names::CA | pool_names::COMPILERS),
                check: pool.pool.check.clone(),
                connector: Arc::clone(connector),
                otherwise: asked.otherwise(&connector.address),
                doors: outside::doors(&asked, connector, proof),
                rules: pool.rules.clone(),
                ourselves: ourselves.clone(),
                trust: Arc::clone(&prepared.generation.trust),
                fetches: prepared.config.trust.fetch.is_some(),
                about: about.clone(),
            };
            let places = Arc::clone(&places);
            if pool.rules.passthrough.is_used {
                for form in passthrough::forms(prepared) {
                    let member = passthrough::member(&asked, member.clone(), connector, form);
                    let places = Arc::clone(&places);
                    examined.spawn(async move {
                        let _place = places.acquire().await;
                        passthrough::examine(member).await
                    });
                }
                continue;
            }
            examined.spawn(async move {
                let _place = places.acquire().await;
                member.examine().await
            });
        }
    }
    while let Some(examined) = examined.join_next().await {
        match examined {
            Ok(examined) => proof.append(examined),
            // What it would have found is missing: nothing is called good for that.
            Err(error) => service::unclear(
                Check::MemberReached,
                "a member",
                format!("its examination failed: {error}"),
                proof,
            ),
        }
    }
}

/// What the doors of a member are made of.
pub(super) struct Asked<'a> {
    pub(super) examination: &'a Examination,
    pub(super) prepared: &'a Prepared,
    pub(super) pool: &'a PoolConfig,
    /// The member's IP addresses; empty: looked up on each connect.
    pub(super) addresses: &'a [IpAddr],
    pub(super) server_name: Option<&'a str>,
    pub(super) agent: Option<&'a Credential>,
    pub(super) about: &'a str,
}

impl Asked<'_> {
    /// A way to the same address by the protocol that the pool does not speak, without a certificate.
    fn otherwise(&self, address: &str) -> Option<Arc<Connector>> {
        let trust = &self.prepared.generation.trust;
        let names = MemberNames {
            indicated: false,
            from_cn: true,
        };
        let tls = match self.pool.upstream.scheme {
            Scheme::Https => None,
            Scheme::Http => Some((trust, None, names)),
        };
        self.connector(address, self.server_name, tls)
    }

    /// A way to the same member with another credential, or none.
    pub(super) fn connector(
        &self,
        address: &str,
        server_name: Option<&str>,
        tls: Option<(&Arc<TrustStore>, Option<&Credential>, MemberNames)>,
    ) -> Option<Arc<Connector>> {
        let tls = match tls {
            None => None,
            Some((trust, credential, names)) => {
                Some(pki::client_config(trust, credential, names).ok()?)
            }
        };
        let mut settings = self.pool.upstream;
        // What is sent there says nothing but our own name, which is no secret.
        settings.plaintext = upstream::Plaintext::TrustedNetwork;
        let spec = ConnectorSpec {
            address,
            addresses: self.addresses,
            server_name,
            tls,
            check: None,
            settings,
            slots: Arc::default(),
        };
        Connector::new(spec).ok().map(Arc::new)
    }
}

/// By its name, by what routes send there, and by what its check asks: a pool that is asked for a Puppet server's status
/// is one of Puppet servers.
pub(super) fn role(pool: &PoolConfig, prepared: &Prepared) -> Role {
    let check = &pool.pool.check;
    let name = &*pool.pool.name;
    match name {
        pool_names::CA => Role::Ca,
        pool_names::COMPILERS => Role::Compiler,
        _ if is_asked(prepared, name, CA_CERTIFICATE) && !is_asked(prepared, name, OWN_NODE) => {
            Role::Ca
        }
        _ if check.kind == CheckKind::Legacy => Role::Compiler,
        _ if check.kind == CheckKind::Http && is_puppet_status(check) => Role::Compiler,
        _ => Role::Other,
    }
}

/// Whether probes request a Puppet server's status.
fn is_puppet_status(check: &CheckSettings) -> bool {
    upstream::HttpCheck::of(check).is_some_and(|inquiry| inquiry.is_puppet_status())
}

/// Whether a configured route would send this path to the pool, for some client.
fn is_asked(prepared: &Prepared, pool: &str, path: &str) -> bool {
    let pools = &prepared.generation.pools;
    let mut routes = prepared.generation.routes.routes();
    routes.any(|route| {
        let to = pools.get(route.pool).map(|pool| &**pool.pool.name());
        !route.builtin && !route.unguarded && to == Some(pool) && route.takes(path)
    })
}

impl Member {
    async fn examine(mut self) -> Proof {
        let mut proof = Proof::default();
        let now = UnixTime::now();
        let answer = match self.reach(&mut proof).await {
            Ok(answer) => answer,
            Err(error) => {
                // At the same time: nobody waits for one that is down longer than for one that answers.
                let mut doors = Proof::default();
                tokio::join!(
                    unreached::told(&self, &error, &mut proof),
                    outside::examine_unreached(&self, &mut doors)
                );
                proof.append(doors);
                return proof;
            }
        };
        if !self.by_name && !self.has_nodes().await {
            self.role = Role::Other;
        }
        clock::examine(&self.about, &answer.headers, now, &mut proof);
        self.certificate(&answer, now, &mut proof);
        service::status(&self, &answer, &mut proof).await;
        match self.role {
            Role::Ca => {
                let is_ca = service::ca(&self, &mut proof).await;
                forged::ca(&self, is_ca, &mut proof).await;
            }
            Role::Compiler => {
                service::compiler(&self, &mut proof).await;
                service::jrubies(&self, &mut proof).await;
                forged::compiler(&self, &answer, &mut proof).await;
                head_room::examine(&self, &answer, &mut proof).await;
            }
            Role::Other => {}
        }
        if self.role != Role::Other {
            outside::examine(&self, &mut proof).await;
        }
        proof
    }

    /// Whether it knows nodes: PuppetDB has a status service, and nothing else of a Puppet Server.
    async fn has_nodes(&self) -> bool {
        let path = self.node(claim::NOBODYS_NAME);
        let answer = self.ask_inside(&path, claim::nobody(self.form())).await;
        // One that does not answer may be anything: it is asked on, and what it leaves open is told.
        answer.map_or(true, |answer| answer.status != StatusCode::NOT_FOUND)
    }

    async fn reach(&self, proof: &mut Proof) -> Result<QueryResponse, QueryError> {
        let about = &self.about;
        let nobody = claim::nobody(self.form());
        let answer = self.ask(&self.connector, STATUS, nobody).await?;
        proof.passed(Check::MemberReached, about);
        if answer.certificate.is_some() {
            proof.passed(Check::CredentialAccepted, about);
        }
        Ok(answer)
    }

    fn certificate(&self, answer: &QueryResponse, now: UnixTime, proof: &mut Proof) {
        if let Some(Err(error)) = answer
            .certificate
            .as_ref()
            .map(|own| self.trust.check_member(own, now))
        {
            let remedy = "the proxy does not send requests to it: issue another certificate for that server, or remove it from `members`";
            let found =
                MemberError::find(&error).map_or_else(|| error.to_string(), ToString::to_string);
            return proof.found(
                Check::MemberCertificate,
                Grade::Failure,
                &self.about,
                found,
                remedy,
            );
        }
        let facts = answer.certificate.as_deref().and_then(pki::facts_of);
        let Some(facts) = facts else { return };
        match dates::time(facts.not_before, facts.not_after, now) {
            None => proof.passed(Check::MemberCertificate, &self.about),
            Some((grade, found)) => proof.found(
                Check::MemberCertificate,
                grade,
                &self.about,
                format!("its certificate {}: {found}", facts.subject),
                "renew it on that server before the proxy refuses it",
            ),
        }
    }

    /// Asks by one way, with these identity fields.
    pub(super) async fn ask(
        &self,
        connector: &Connector,
        path: &str,
        mut fields: HeaderMap,
    ) -> Result<QueryResponse, QueryError> {
        // Puppet's endpoints answer 400 where none is named.
        fields.insert(header::ACCEPT, accepted(path));
        let (timeout, body_bytes_max) = match path == LISTS {
            true => (LISTS_TIMEOUT, LISTS_BYTES_MAX),
            false => (QUESTION_TIMEOUT, ANSWER_BYTES_MAX),
        };
        let question = MemberQuery {
            path,
            port: None,
            headers: fields,
            timeout,
            body_bytes_max,
        };
        upstream::query(connector, &question).await
    }

    /// Asks as requests of agents come: through our own credential.
    pub(super) async fn ask_inside(
        &self,
        path: &str,
        fields: HeaderMap,
    ) -> Result<QueryResponse, QueryError> {
        self.ask(&self.connector, path, fields).await
    }

    pub(super) fn form(&self) -> &HeaderForm {
        &self.rules.form
    }

    /// The documents of a certname.
    pub(super) fn node(&self, certname: &str) -> String {
        match self.is_legacy() {
            true => format!("/production/node/{certname}"),
            false => format!("/puppet/v3/node/{certname}?environment=production"),
        }
    }

    /// Whether it is a master of Puppet 0.25 to 3, or one below Rack.
    pub(super) fn is_legacy(&self) -> bool {
        self.check.kind == CheckKind::Legacy || self.form().cert_format == CertFormat::OneLine
    }

    /// What everybody may ask of it.
    pub(super) fn open_path(&self) -> &'static str {
        match self.is_legacy() {
            true => LEGACY_STATUS,
            false => STATUS,
        }
    }

    /// Whose documents are asked for.
    pub(super) fn own_name(&self) -> &str {
        let ourselves = self.ourselves.as_ref();
        ourselves.map_or(claim::NOBODYS_NAME, Ourselves::certname)
    }
}

/// What a server says to whom it does not know.
pub(super) fn is_refusal(status: StatusCode) -> bool {
    matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN)
}

/// An error in words.
pub(super) fn story(error: &QueryError) -> String {
    match error.alert() {
        // Alerts that end a handshake before anybody's certificate is looked at.
        Some(alert) if unreached::NO_CERTIFICATES.contains(&&*alert) => {
            format!("it aborted the handshake with the TLS alert {alert}")
        }
        Some(alert) => format!("it refused the proxy's certificate with the TLS alert {alert}"),
        None => error.to_string(),
    }
}

fn accepted(path: &str) -> HeaderValue {
    HeaderValue::from_static(match path {
        STATUS => "*/*",
        CA_CERTIFICATE | LISTS => "text/plain",
        path if path.starts_with("/production/") => "pson, yaml",
        _ => "application/json",
    })
}

const OWN_NODE: &str = "/puppet/v3/node/proscenium-doctor.invalid";
pub(super) const STATUS: &str = "/status/v1/simple";
pub(super) const LEGACY_STATUS: &str = "/production/status/no_key";
pub(super) const CA_CERTIFICATE: &str = "/puppet-ca/v1/certificate/ca";
pub(super) const LISTS: &str = "/puppet-ca/v1/certificate_revocation_list/ca";
