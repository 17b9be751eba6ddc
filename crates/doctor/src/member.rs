//! A member as doctor examines it: its address and pool, the ways to reach it, and queries.

use std::{net::IpAddr, sync::Arc, time::Duration};

use balancing::settings::{CheckKind, CheckSettings};
use config::PoolConfig;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use identity::{CertFormat, HeaderForm};
use lifecycle::PreparedStart;
use pki::{Credential, MemberNames, TrustStore};
use proxy::settings::PoolRules;
use routing::pool_names;
use upstream::{Connector, ConnectorSpec, MemberQuery, QueryError, QueryResponse, Scheme};

use crate::{
    Check, DoctorOptions,
    claimed_identity::{self, ProxyIdentity},
};

/// Maximum time for a request.
const QUESTION_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum bytes of a response that are read.
const ANSWER_BYTES_MAX: usize = 64 << 10;
/// Maximum bytes of the list of environments: each takes about 300 bytes.
const ENVIRONMENTS_BYTES_MAX: usize = 4 << 20;
/// Maximum time for CRLs, which may be long.
const CRLS_TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum bytes of CRLs that are read: a CRL with a million entries has 40 MB.
const CRLS_BYTES_MAX: usize = 128 << 20;

/// A member, and everything that is needed to query it.
#[derive(Clone)]
pub(crate) struct Member {
    /// The address and the pool, as findings name the member.
    pub(crate) about: String,
    pub(crate) role: Role,
    /// Whether the pool has a built-in name. If not, its servers may be of another kind with the same status service.
    pub(crate) by_name: bool,
    pub(crate) check: CheckSettings,
    pub(crate) connector: Arc<Connector>,
    /// A connector for the same address with the other protocol: plain HTTP if the pool uses TLS, and TLS otherwise.
    pub(crate) otherwise: Option<Arc<Connector>>,
    /// How clients other than a proxy would connect.
    pub(crate) access_paths: Vec<AccessPath>,
    pub(crate) rules: PoolRules,
    pub(crate) proxy_identity: Option<ProxyIdentity>,
    /// The trust store that clients are verified against.
    pub(crate) trust: Arc<TrustStore>,
    /// Whether a running proxy would fetch CRLs from the CA.
    pub(crate) fetches: bool,
}

/// The purpose of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Ca,
    Compiler,
    /// The kind is unknown: doctor contacts the member and tests nothing else.
    Other,
}

/// A way to connect to a member that only a proxy should have.
#[derive(Clone)]
pub(crate) struct AccessPath {
    pub(crate) check: Check,
    /// A description, such as `without a certificate`.
    pub(crate) how: String,
    pub(crate) connector: Arc<Connector>,
    /// Whether the port is known to be the member's. On other ports of its host, any program may answer.
    pub(crate) is_members: bool,
}

impl AccessPath {
    /// An access path that the proxy opens to every client.
    pub(crate) fn passthrough(how: &str, connector: Arc<Connector>) -> Self {
        Self {
            check: Check::Passthrough,
            how: how.to_owned(),
            connector,
            is_members: false,
        }
    }
}

/// The data from which the access paths to a member are built.
pub(crate) struct MemberContext<'a> {
    pub(crate) examination: &'a DoctorOptions,
    pub(crate) prepared: &'a PreparedStart,
    pub(crate) pool: &'a PoolConfig,
    /// The member's IP addresses. If there are none, they are resolved on each connect.
    pub(crate) addresses: &'a [IpAddr],
    pub(crate) server_name: Option<&'a str>,
    pub(crate) agent: Option<&'a Credential>,
    pub(crate) about: &'a str,
}

impl MemberContext<'_> {
    /// A connector for the same address with the protocol that the pool does not use, without a certificate.
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

    /// A connector for the same member with another credential, or with none.
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
        // Only the proxy's own name is sent on this connection, which is not a secret.
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

/// The role of a pool, by its name, by the routes that lead to it, and by its check: if the check requests a Puppet
/// Server's status, the members are Puppet Servers.
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

/// Whether probes request a Puppet Server's status.
fn is_puppet_status(check: &CheckSettings) -> bool {
    upstream::HttpCheck::of(check).is_some_and(|inquiry| inquiry.is_puppet_status())
}

/// Whether a configured route sends this path to the pool, at least for some clients.
fn is_asked(prepared: &PreparedStart, pool: &str, path: &str) -> bool {
    let pools = prepared.pools();
    let mut routes = prepared.routes().routes();
    routes.any(|route| {
        let to = pools.get(route.pool).map(|pool| &**pool.pool.name());
        !route.builtin && !route.unguarded && to == Some(pool) && route.takes(path)
    })
}

impl Member {
    /// Sends a request through this connector, with these identity fields.
    pub(crate) async fn query(
        &self,
        connector: &Connector,
        path: &str,
        mut fields: HeaderMap,
    ) -> Result<QueryResponse, QueryError> {
        // Puppet's endpoints answer 400 if no format is named.
        fields.insert(header::ACCEPT, accepted(path));
        let (timeout, body_bytes_max) = match path {
            CRLS => (CRLS_TIMEOUT, CRLS_BYTES_MAX),
            ENVIRONMENTS => (QUESTION_TIMEOUT, ENVIRONMENTS_BYTES_MAX),
            _ => (QUESTION_TIMEOUT, ANSWER_BYTES_MAX),
        };
        let question = MemberQuery {
            method: Method::GET,
            path,
            port: None,
            headers: fields,
            timeout,
            body_bytes_max,
        };
        upstream::query(connector, &question).await
    }

    /// Sends a request with the proxy's credential, as the proxy forwards requests of agents.
    pub(crate) async fn query_as_proxy(
        &self,
        path: &str,
        fields: HeaderMap,
    ) -> Result<QueryResponse, QueryError> {
        self.query(&self.connector, path, fields).await
    }

    pub(crate) fn form(&self) -> &HeaderForm {
        &self.rules.form
    }

    /// The path of a certname's node document.
    pub(crate) fn node(&self, certname: &str) -> String {
        if self.is_legacy() {
            format!("/production/node/{certname}")
        } else {
            format!("/puppet/v3/node/{certname}?environment=production")
        }
    }

    /// Whether the member is a master of Puppet 0.25 to 3, or one that runs in Rack.
    pub(crate) fn is_legacy(&self) -> bool {
        self.check.kind == CheckKind::Legacy || self.form().cert_format == CertFormat::OneLine
    }

    /// A path that every client may request.
    pub(crate) fn open_path(&self) -> &'static str {
        if self.is_legacy() {
            LEGACY_STATUS
        } else {
            STATUS
        }
    }

    /// The certname whose documents are requested.
    pub(crate) fn own_name(&self) -> &str {
        let proxy_identity = self.proxy_identity.as_ref();
        proxy_identity.map_or(claimed_identity::UNKNOWN_NAME, ProxyIdentity::certname)
    }
}

/// Alerts that do not concern a certificate.
pub(crate) const NO_CERTIFICATES: [&str; 2] = ["ProtocolVersion", "InsufficientSecurity"];

/// Whether a server refused an unknown client.
pub(crate) fn is_refusal(status: StatusCode) -> bool {
    matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN)
}

/// Describes an error.
pub(crate) fn describe(error: &QueryError) -> String {
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
        CA_CERTIFICATE | CRLS => "text/plain",
        path if path.starts_with("/production/") => "pson, yaml",
        _ => "application/json",
    })
}

const OWN_NODE: &str = "/puppet/v3/node/proscenium-doctor.invalid";
pub(crate) const STATUS: &str = "/status/v1/simple";
pub(crate) const ENVIRONMENTS: &str = "/puppet/v3/environments";
pub(crate) const LEGACY_STATUS: &str = "/production/status/no_key";
pub(crate) const CA_CERTIFICATE: &str = "/puppet-ca/v1/certificate/ca";
pub(crate) const CRLS: &str = "/puppet-ca/v1/certificate_revocation_list/ca";
