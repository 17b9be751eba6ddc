//! The validated configuration: every crate's settings, and the names of the materials that they need.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use crate::schema::join;

/// A configuration without errors. Equal values behave the same: a reload to an equal configuration changes nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The Puppet agent's ssldir, from which materials that the file does not name are loaded; `None` if the file names
    /// every material.
    pub ssldir: Option<PathBuf>,
    /// The certname whose certificate in `ssldir` is used.
    pub certname: Option<String>,
    /// Worker threads.
    pub workers: usize,
    /// Time that running exchanges have to finish after the process receives a signal to stop.
    pub drain_grace: Duration,
    /// Listeners, in the order of the file; at least one.
    pub listeners: Vec<listener::settings::ListenerSettings>,
    /// Credentials that clients see, at least one.
    pub certificates: Vec<CredentialFiles>,
    /// Credentials of listeners that have their own, by the listener's name.
    pub listener_certificates: BTreeMap<String, Vec<CredentialFiles>>,
    /// Whether the proxy renews the credentials in `certificates` at the Puppet CA, and when.
    pub own_renewal: OwnRenewal,
    /// How long after its full handshake a client may resume a session.
    pub session_lifetime: Duration,
    /// The CAs, CRLs and policies by which clients are verified.
    pub trust: Trust,
    /// How changes of materials on disk are noticed.
    pub materials: MaterialWatching,
    /// How a subject becomes an identity.
    pub identity: identity::settings::IdentitySettings,
    /// The header format in `[identity]`. Each pool has a format of its own, in which it overrides settings of this one.
    pub form: identity::HeaderForm,
    /// The settings in `[upstream]`. Each pool has settings of its own, in which it overrides some of these.
    pub upstream: upstream::settings::UpstreamSettings,
    /// How names of members are resolved.
    pub dns: discovery::settings::DnsSettings,
    /// Certnames that `agent_max` does not limit.
    pub agent_max_except: Vec<identity::CertnamePattern>,
    /// Pools, in the order of the file.
    pub pools: Vec<PoolConfig>,
    /// Configured routes, and whether the built-in ones follow.
    pub routes: routing::settings::RoutingSettings,
    /// Which certificate requests are passed on.
    pub csr: pki::CsrSettings,
    /// The CA requests that are allowed without a verified certificate.
    pub ca: proxy::CaSettings,
    /// Limits of an exchange.
    pub exchange: proxy::settings::ProxySettings,
    /// Where access records are written, and in which format.
    pub access_log: AccessLog,
    /// The other access logs, if there are several.
    pub other_access_logs: Vec<AccessLog>,
    /// Where events are written.
    pub events: EventOutput,
    /// The control plane's socket.
    pub admin: admin::settings::AdminSettings,
    /// The listener for metrics.
    pub metrics: admin::settings::MetricsSettings,
    /// Directory of the state that survives a restart.
    pub state_directory: PathBuf,
    /// The store through which several proxies share drains and blocks; `None` if they do not.
    pub fleet: Option<Fleet>,
}

impl Config {
    /// The credentials of a listener, with the key path of each: its own, or those of `[tls]`.
    pub fn certificates_of(
        &self,
        listener: &str,
    ) -> impl Iterator<Item = (String, &CredentialFiles)> {
        let (table, credentials) = match self.listener_certificates.get(listener) {
            Some(own) => (join("listeners", listener), own),
            None => ("tls".to_owned(), &self.certificates),
        };
        let numbered = credentials.iter().enumerate();
        numbered
            .map(move |(index, credential)| (format!("{table}.certificates[{index}]"), credential))
    }

    /// Names of identity headers, of every pool, and the headers that any route or pool keeps.
    #[must_use]
    pub fn own_names(&self) -> identity::OwnNames {
        let pools = self.pools.iter().map(|pool| &pool.rules);
        let forms = pools.clone().map(|rules| &rules.form);
        let routes = self.routes.routes.iter().map(|route| &route.headers);
        let rules = routes.chain(pools.map(|rules| &rules.headers));
        identity::OwnNames::of(std::iter::once(&self.form).chain(forms))
            .keeping(rules.flat_map(|rules| &rules.keep))
    }

    /// The name of this proxy in the records of operators' acts: `certname`, or the name of the host.
    #[must_use]
    pub fn proxy_name(&self) -> String {
        self.certname.clone().unwrap_or_else(|| "proxy".to_owned())
    }

    /// The agent's own copy of the CRL, if clients are verified against it.
    #[must_use]
    pub fn agents_copy(&self) -> Option<PathBuf> {
        let copy = self.ssldir.as_ref()?.join("crl.pem");
        self.trust.crl_is_agents_copy.then_some(copy)
    }
}

/// Files of a credential.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CredentialFiles {
    /// PEM file: the certificate, then its intermediates.
    pub chain: PathBuf,
    /// PEM file: the private key.
    pub key: PathBuf,
}

/// `[fleet]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fleet {
    /// The members of the etcd cluster, as host and port.
    pub etcd: Vec<EtcdEndpoint>,
    /// The name of this fleet in the cluster.
    pub site: String,
    /// File with the keys that seal records.
    pub key_file: PathBuf,
    /// The certificate that the proxy presents to etcd, and what etcd's certificates are verified against.
    pub tls: MemberTls,
    /// The beginning of all keys.
    pub prefix: String,
    /// Maximum time to connect to a member of the cluster.
    pub connect_timeout: Duration,
    /// Maximum time of one call.
    pub request_timeout: Duration,
    /// Time between two pings on an idle connection.
    pub keepalive: Duration,
    /// How long after its last sign of life a proxy counts as part of the fleet.
    pub lease: Duration,
    /// How long after the start `/ready` waits for the first list of records.
    pub ready_after: Duration,
}

impl Fleet {
    /// The prefix of all keys of this site, with a slash at its end.
    #[must_use]
    pub fn site_prefix(&self) -> String {
        format!("{}/{}/", self.prefix.trim_end_matches('/'), self.site)
    }
}

/// A member of an etcd cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct EtcdEndpoint(String);

impl EtcdEndpoint {
    /// Host and port.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.0
    }
}

impl std::str::FromStr for EtcdEndpoint {
    type Err = ();

    /// `https://HOST:PORT`.
    fn from_str(text: &str) -> Result<Self, ()> {
        let address = text.strip_prefix("https://").ok_or(())?;
        let address = address.strip_suffix('/').unwrap_or(address);
        match balancing::MemberAddress::parse(address) {
            Ok(balancing::MemberAddress::Tcp { .. }) => Ok(Self(address.to_owned())),
            _ => Err(()),
        }
    }
}

impl std::fmt::Display for EtcdEndpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "https://{}", self.0)
    }
}

/// `[tls] renew` and `renew_before`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnRenewal {
    /// Whether the proxy renews its certificates at the Puppet CA.
    pub enabled: bool,
    /// How long before its expiry a certificate is renewed, but never before its last third.
    pub before: Duration,
}

/// `[trust]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trust {
    /// Verification policy.
    pub settings: pki::settings::TrustSettings,
    /// CA bundles: files or directories.
    pub ca: Vec<PathBuf>,
    /// CRLs: files or directories; empty only if `unchecked` allows it.
    pub crl: Vec<PathBuf>,
    /// Whether a CRL is the agent's copy, which is not refreshed while no agent runs.
    pub crl_is_agents_copy: bool,
    /// Maximum number of connections of revoked clients that are closed in one second after a change of trust.
    pub revoked_close_rate: u32,
    /// How CRLs are fetched from the CA; `None` if they are not fetched.
    pub fetch: Option<Fetch>,
}

/// `[trust.fetch]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fetch {
    /// Maximum time between two fetches.
    pub interval: Duration,
    /// Maximum random reduction of the interval; never more than half of it.
    pub jitter: Duration,
    /// Time for one fetch from one member.
    pub timeout: Duration,
    /// Time after which a CRL is fetched in full even if it seems unchanged.
    pub full_interval: Duration,
    /// Maximum size of a response, in bytes.
    pub body_bytes_max: u64,
}

/// `[materials]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MaterialWatching {
    /// How changes are detected.
    pub watch: ChangeDetection,
    /// Time between two periodic checks.
    pub interval: Duration,
    /// How long changed files must stay unchanged before they are read.
    pub settle: Duration,
    /// Maximum time to wait until changed files stay unchanged.
    pub settle_max: Duration,
}

/// How a change of a material is detected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeDetection {
    /// The kernel notifies the proxy, and a periodic check finds changes that the kernel cannot report.
    Notify,
    /// Only the periodic check.
    Poll,
    /// No detection: only a reload reads materials.
    Off,
}

/// `[pools.NAME]`, with each part in the type of the crate that uses it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolConfig {
    /// Name, members, algorithm and health check.
    pub pool: balancing::settings::PoolSettings,
    /// Connections to members; from `[upstream]` if the pool does not override it.
    pub upstream: upstream::settings::UpstreamSettings,
    /// How requests to this pool are handled.
    pub rules: proxy::settings::PoolRules,
    /// Certnames that `agent_max` does not limit; from `[upstream]` if the pool does not override it.
    pub agent_max_except: Vec<identity::CertnamePattern>,
    /// Materials for TLS to members; `None` for `scheme = "http"`.
    pub tls: Option<MemberTls>,
    /// Host names that targets of SRV records may have.
    pub server_names: Vec<String>,
}

/// Materials for TLS to the members of a pool, with every default filled in.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MemberTls {
    /// The credential that members see.
    pub credential: CredentialFiles,
    /// CA bundles that members' certificates are verified against.
    pub ca: Vec<PathBuf>,
    /// CRLs that members' certificates are verified against.
    pub crl: Vec<PathBuf>,
    /// Whether a certificate without a subjectAltName is valid for the name in its CN.
    pub name_from_cn: bool,
}

/// `[access_log]`, or one of several `[[access_log]]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessLog {
    /// Where records are written.
    pub output: AccessLogOutput,
    /// Format and queue.
    pub settings: telemetry::settings::AccessLogSettings,
}

/// `[events]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventOutput {
    /// Standard error.
    Stderr,
    /// A log daemon of this machine.
    Daemon(telemetry::DaemonSettings),
}

/// Where access records are written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccessLogOutput {
    /// Standard output.
    Stdout,
    /// A file, opened for appending and reopened on each reload.
    File(PathBuf),
    /// A log daemon of this machine.
    Daemon(telemetry::DaemonSettings),
}
