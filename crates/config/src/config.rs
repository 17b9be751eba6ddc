//! The validated whole: every crate's settings, and the names of the materials they need.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use crate::schema::join;

/// A configuration that has no errors. Equal values serve alike: a reload to an equal one changes nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The Puppet agent's ssldir that unnamed materials come from; none where every material is named.
    pub ssldir: Option<PathBuf>,
    /// The certname whose certificate in `ssldir` is used.
    pub certname: Option<String>,
    /// Worker threads.
    pub workers: usize,
    /// Time that running exchanges have to finish after the process receives a signal to stop.
    pub drain_grace: Duration,
    /// Listeners, in the order of the file; at least one.
    pub listeners: Vec<listener::settings::ListenerSettings>,
    /// Credentials shown to clients, at least one.
    pub certificates: Vec<CredentialFiles>,
    /// Those of listeners that have their own, by the listener's name.
    pub listener_certificates: BTreeMap<String, Vec<CredentialFiles>>,
    /// How long after its full handshake a client may resume a session.
    pub session_lifetime: Duration,
    /// Whose certificates are believed.
    pub trust: Trust,
    /// How changes of materials on disk are noticed.
    pub materials: MaterialWatching,
    /// How a subject becomes an identity.
    pub identity: identity::settings::IdentitySettings,
    /// What `[identity]` says of the trusted headers; each pool holds its own result.
    pub form: identity::HeaderForm,
    /// What `[upstream]` says; each pool holds its own result.
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
    /// What of the CA is for clients without a verified certificate.
    pub ca: proxy::CaSettings,
    /// Limits of an exchange.
    pub exchange: proxy::settings::ProxySettings,
    /// Where records go, and in which form.
    pub access_log: AccessLog,
    /// The other access logs, where there are several.
    pub other_access_logs: Vec<AccessLog>,
    /// Where events go.
    pub events: EventOutput,
    /// The control plane's socket.
    pub admin: admin::settings::AdminSettings,
    /// Directory of what outlasts a restart.
    pub state_directory: PathBuf,
}

impl Config {
    /// The credentials of a listener with the key path of each: its own, else those of `[tls]`.
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

    /// Names of identity headers, of every pool.
    #[must_use]
    pub fn own_names(&self) -> identity::OwnNames {
        let pools = self.pools.iter().map(|pool| &pool.rules.form);
        identity::OwnNames::of(std::iter::once(&self.form).chain(pools))
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

/// `[trust]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trust {
    /// Policy.
    pub settings: pki::settings::TrustSettings,
    /// CA bundles: files or directories.
    pub ca: Vec<PathBuf>,
    /// Revocation lists: files or directories; empty only where `unchecked` says so.
    pub crl: Vec<PathBuf>,
    /// Whether a list is the agent's own copy, which nothing refreshes while no agent runs.
    pub crl_is_agents_copy: bool,
    /// Most connections of revoked clients closed in one second after a change of trust.
    pub revoked_close_rate: u32,
    /// How lists are fetched from the CA; none: they are not.
    pub fetch: Option<Fetch>,
}

/// `[trust.fetch]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fetch {
    /// Longest time between two fetches.
    pub interval: Duration,
    /// Most time by which it is cut short at random, and never by more than half.
    pub jitter: Duration,
    /// Time for one fetch from one member.
    pub timeout: Duration,
    /// Time after which a list is asked for whole although nothing seems to have changed.
    pub full_interval: Duration,
    /// Most bytes of an answer.
    pub body_bytes_max: u64,
}

/// `[materials]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MaterialWatching {
    /// Who notices.
    pub watch: ChangeDetection,
    /// Time between two looks.
    pub interval: Duration,
    /// Time that changed files have to stand still before they are read.
    pub settle: Duration,
    /// Most time that a change is waited for.
    pub settle_max: Duration,
}

/// Who notices that a material has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeDetection {
    /// The kernel notifies the proxy, and a periodic check finds changes that the kernel cannot report.
    Notify,
    /// Only the periodic check.
    Poll,
    /// No detection: only a reload reads materials.
    Off,
}

/// `[pools.NAME]`, each part for the crate that obeys it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolConfig {
    /// Name, members, algorithm, check.
    pub pool: balancing::settings::PoolSettings,
    /// Connections to members; `[upstream]` where the pool says nothing.
    pub upstream: upstream::settings::UpstreamSettings,
    /// What a request looks like.
    pub rules: proxy::settings::PoolRules,
    /// Materials for TLS to members; none for `scheme = "http"`.
    pub tls: Option<MemberTls>,
    /// Names that targets of SRV records may have.
    pub server_names: Vec<String>,
}

/// Materials for TLS to the members of a pool, with every default filled in.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MemberTls {
    /// The credential that members see.
    pub credential: CredentialFiles,
    /// CA bundles that members' certificates are verified against.
    pub ca: Vec<PathBuf>,
    /// Revocation lists for members' certificates.
    pub crl: Vec<PathBuf>,
    /// Whether a certificate without any subjectAltName is good for its CN.
    pub name_from_cn: bool,
}

/// `[access_log]`, or one of several `[[access_log]]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessLog {
    /// Where lines go.
    pub output: AccessLogOutput,
    /// Form and queue.
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

/// Where lines go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccessLogOutput {
    /// Standard output.
    Stdout,
    /// A file, opened for appending and again on each reload.
    File(PathBuf),
    /// A log daemon of this machine.
    Daemon(telemetry::DaemonSettings),
}
