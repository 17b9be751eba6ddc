//! One member as doctor examines it: its address and pool, the ways to reach it, and queries.

use std::{net::IpAddr, sync::Arc, time::Duration};

use balancing::settings::{CheckKind, CheckSettings};
use config::PoolConfig;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use identity::{CertFormat, HeaderForm};
use pki::{Credential, MemberNames, TrustStore};
use proxy::settings::PoolRules;
use routing::pool_names;
use server::PreparedStart;
use upstream::{Connector, ConnectorSpec, MemberQuery, QueryError, QueryResponse, Scheme};

use crate::{
    Check, DoctorOptions,
    claimed_identity::{self, Ourselves},
};

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
pub(crate) struct Member {
    /// Address and pool, as findings name them.
    pub(crate) about: String,
    pub(crate) role: Role,
    /// Whether the pool's name says so; else its servers may be others that have the same status service.
    pub(crate) by_name: bool,
    pub(crate) check: CheckSettings,
    pub(crate) connector: Arc<Connector>,
    /// The same address in plain HTTP where the pool speaks TLS, and the other way round.
    pub(crate) otherwise: Option<Arc<Connector>>,
    /// How a client other than a proxy would connect.
    pub(crate) doors: Vec<Door>,
    pub(crate) rules: PoolRules,
    pub(crate) ourselves: Option<Ourselves>,
    /// What clients are verified with.
    pub(crate) trust: Arc<TrustStore>,
    /// Whether a running proxy would ask the CA for its lists by itself.
    pub(crate) fetches: bool,
}

/// What a pool is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Ca,
    Compiler,
    /// Nothing that is known here: it is reached, and no more is asked of it.
    Other,
}

/// A way in that only a proxy should have.
#[derive(Clone)]
pub(crate) struct Door {
    pub(crate) check: Check,
    /// What it is, for people: `without a certificate`.
    pub(crate) how: String,
    pub(crate) connector: Arc<Connector>,
    /// Whether it is known to be the member's; on other ports of its host any program may answer.
    pub(crate) is_members: bool,
}

impl Door {
    /// One that the proxy opens to every client.
    pub(crate) fn passthrough(how: &str, connector: Arc<Connector>) -> Self {
        Self {
            check: Check::Passthrough,
            how: how.to_owned(),
            connector,
            is_members: false,
        }
    }
}

/// What the doors of a member are made of.
pub(crate) struct MemberContext<'a> {
    pub(crate) examination: &'a DoctorOptions,
    pub(crate) prepared: &'a PreparedStart,
    pub(crate) pool: &'a PoolConfig,
    /// The member's IP addresses; empty: looked up on each connect.
    pub(crate) addresses: &'a [IpAddr],
    pub(crate) server_name: Option<&'a str>,
    pub(crate) agent: Option<&'a Credential>,
    pub(crate) about: &'a str,
}

impl MemberContext<'_> {
    /// A way to the same address by the protocol that the pool does not speak, without a certificate.
    pub(crate) fn otherwise(&self, address: &str) -> Option<Arc<Connector>> {
        let trust = self.prepared.trust();
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
    pub(crate) fn connector(
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
        // Only the proxy's own name is sent there, which is not a secret.
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
pub(crate) fn role(pool: &PoolConfig, prepared: &PreparedStart) -> Role {
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
fn is_asked(prepared: &PreparedStart, pool: &str, path: &str) -> bool {
    let pools = prepared.pools();
    let mut routes = prepared.routes().routes();
    routes.any(|route| {
        let to = pools.get(route.pool).map(|pool| &**pool.pool.name());
        !route.builtin && !route.unguarded && to == Some(pool) && route.takes(path)
    })
}

impl Member {
    /// Asks by one way, with these identity fields.
    pub(crate) async fn ask(
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
    pub(crate) async fn ask_inside(
        &self,
        path: &str,
        fields: HeaderMap,
    ) -> Result<QueryResponse, QueryError> {
        self.ask(&self.connector, path, fields).await
    }

    pub(crate) fn form(&self) -> &HeaderForm {
        &self.rules.form
    }

    /// The documents of a certname.
    pub(crate) fn node(&self, certname: &str) -> String {
        match self.is_legacy() {
            true => format!("/production/node/{certname}"),
            false => format!("/puppet/v3/node/{certname}?environment=production"),
        }
    }

    /// Whether it is a master of Puppet 0.25 to 3, or one below Rack.
    pub(crate) fn is_legacy(&self) -> bool {
        self.check.kind == CheckKind::Legacy || self.form().cert_format == CertFormat::OneLine
    }

    /// What everybody may ask of it.
    pub(crate) fn open_path(&self) -> &'static str {
        match self.is_legacy() {
            true => LEGACY_STATUS,
            false => STATUS,
        }
    }

    /// Whose documents are asked for.
    pub(crate) fn own_name(&self) -> &str {
        let ourselves = self.ourselves.as_ref();
        ourselves.map_or(claimed_identity::UNKNOWN_NAME, Ourselves::certname)
    }
}

/// Alerts that are about no certificate.
pub(crate) const NO_CERTIFICATES: [&str; 2] = ["ProtocolVersion", "InsufficientSecurity"];

/// What a server says to whom it does not know.
pub(crate) fn is_refusal(status: StatusCode) -> bool {
    matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN)
}

/// An error in words.
pub(crate) fn story(error: &QueryError) -> String {
    match error.alert() {
        // Alerts that end a handshake before any certificate is verified.
        Some(alert) if NO_CERTIFICATES.contains(&&*alert) => {
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
pub(crate) const STATUS: &str = "/status/v1/simple";
pub(crate) const LEGACY_STATUS: &str = "/production/status/no_key";
pub(crate) const CA_CERTIFICATE: &str = "/puppet-ca/v1/certificate/ca";
pub(crate) const LISTS: &str = "/puppet-ca/v1/certificate_revocation_list/ca";
