//! The status of the running proxy: `GET /v1/status` as plain structs, which the server fills.

use std::{borrow::Cow, collections::BTreeMap, fmt, time::SystemTime};

use serde::{Deserialize, Serialize};
use telemetry::Urgency;
use time::{OffsetDateTime, format_description::well_known::Rfc3339};
use utoipa::ToSchema;

use crate::FleetStatus;

/// Answer to `GET /v1/status`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Status {
    /// Version of the program.
    pub version: String,
    /// The phase of the process.
    pub phase: ProcessPhase,
    /// The active configuration.
    pub generation: GenerationStatus,
    /// The last requested reload; none since the start.
    pub last_reload: Option<LastReload>,
    /// The process that prepares to take over; none: no hand-over is in progress.
    #[serde(default)]
    pub hand_over: Option<HandOverStatus>,
    /// Processes that have handed over and finish their requests, the oldest first. Their requests are counted at the members.
    #[serde(default)]
    pub former_processes: Vec<FormerProcessStatus>,
    /// Why handshakes compete with requests for CPU time: the system refused the class `SCHED_IDLE`. None: they use only
    /// CPU time that is idle, unless the machine has none.
    #[serde(default)]
    pub handshake_priority: Option<String>,
    /// Listeners.
    pub listeners: Vec<ListenerStatus>,
    /// The address on which metrics are served. `None` without `[metrics] address`.
    #[serde(default)]
    pub metrics_address: Option<String>,
    /// Pools in the order of the configuration.
    pub pools: Vec<PoolStatus>,
    /// DNS names that provide members.
    pub dns: Vec<NameStatus>,
    /// What client certificates are verified with.
    pub trust: ActiveTrust,
    /// Whether the files on disk are active.
    pub materials: MaterialsStatus,
    /// What survives a restart.
    pub state: StateStatus,
    /// Whether agents renew their certificates through the proxy.
    pub renewal: RenewalStatus,
    /// Active alarms: what needs an operator. Each cause is followed by the alarms that follow from it; otherwise critical
    /// alarms come before warnings, and older ones before newer ones.
    pub alarms: Vec<AlarmStatus>,
    /// Active limits by the names that metrics and settings give them (`discard_bytes_max`).
    pub limits: BTreeMap<String, u64>,
    /// What the program is built from.
    #[serde(default)]
    pub build: BuildStatus,
    /// What the kernel reports about the process.
    #[serde(default)]
    pub process: ProcessStatus,
    /// Every certificate that the proxy presents, once for each use.
    #[serde(default)]
    pub certificates: Vec<ProxyCertificateStatus>,
    /// Agents that were seen since the start.
    #[serde(default)]
    pub agents: AgentCounts,
    /// How many blocks of the operator are active.
    #[serde(default)]
    pub blocks: u64,
    /// Bytes of request bodies in buffers.
    #[serde(default)]
    pub body_buffer_bytes: u64,
    /// Requests and failures of the last minute.
    #[serde(default)]
    pub rates: crate::RecentRates,
    /// Documents of the CA that the proxy answers from a copy: seconds since the CA last confirmed each copy.
    #[serde(default)]
    pub edge_copies: BTreeMap<String, u64>,
    /// The proxies that share drains and blocks with this one; none without `[fleet]`.
    #[serde(default)]
    pub fleet: Option<FleetStatus>,
}

/// A process that prepares to take over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HandOverStatus {
    /// The number of the process.
    pub pid: u32,
    /// When it was started.
    pub since: Timestamp,
    /// Version of its program; none until it has connected to this process.
    pub version: Option<String>,
}

/// A process that has handed over and finishes its requests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FormerProcessStatus {
    /// The number of the process.
    pub pid: u32,
    /// Its connections with clients.
    pub connections: u64,
    /// Its requests to members.
    pub in_flight: u64,
}

/// What the running program is built from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BuildStatus {
    /// Version of the program.
    #[schema(value_type = String)]
    pub version: Cow<'static, str>,
    /// Commit of its sources, with `-dirty` if they differ from it; `unknown` without a repository.
    #[schema(value_type = String)]
    pub commit: Cow<'static, str>,
    /// Version of the compiler.
    #[schema(value_type = String)]
    pub rustc: Cow<'static, str>,
    /// TLS library and cryptographic library, with their versions.
    #[schema(value_type = String)]
    pub tls: Cow<'static, str>,
}

/// What the kernel reports about the process; a value that cannot be read is absent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ProcessStatus {
    /// The number of the process.
    pub pid: u32,
    /// User and system CPU time consumed, in milliseconds.
    pub cpu_milliseconds: Option<u64>,
    /// Resident memory in bytes.
    pub resident_bytes: Option<u64>,
    /// Virtual memory in bytes.
    pub virtual_bytes: Option<u64>,
    /// Open file descriptors.
    pub open_fds: Option<u64>,
    /// Maximum number of open file descriptors (soft limit).
    pub max_fds: Option<u64>,
    /// When the process started.
    pub started: Option<Timestamp>,
}

/// A certificate that the proxy presents.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ProxyCertificateStatus {
    /// `listener` or `pool`.
    pub role: String,
    /// Name of the listener or of the pool.
    pub name: String,
    /// File of its chain.
    pub file: String,
    /// Subject as RFC 2253 spells it.
    pub subject: String,
    /// When it can no longer be verified: when it expires, or the first CA above it.
    pub not_after: Timestamp,
}

/// How many agents the proxy has seen.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AgentCounts {
    /// Agents by the time until their certificates expire, in the words of `proscenium_agents`.
    pub by_expiry: BTreeMap<String, u64>,
    /// Agents seen in the last day whose certificates expire within 14 days, or within the second half of a life that is
    /// shorter than 28 days.
    #[serde(default)]
    pub expiring: u64,
    /// Agents whose certificates are neither expired nor refused, by the CA of the bundle that issued them (RFC 2253); `other`:
    /// by a CA that is not in the bundle, or that exceeds [`AGENT_ISSUERS_MAX`].
    #[serde(default)]
    pub by_issuer: BTreeMap<String, u64>,
    /// Agents removed from memory to make room for other agents.
    pub evicted: u64,
}

/// Maximum number of CAs by which agents are counted.
pub const AGENT_ISSUERS_MAX: usize = 32;

/// Where the packages install the documentation. Pages of alarms are below it.
pub const DOCUMENTATION: &str = "/usr/share/doc/proscenium";

/// A condition that needs an operator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AlarmStatus {
    /// The kind of alarm, as in `proscenium_alarms`, and which of several: `pool-unavailable:compilers`.
    pub key: String,
    /// How urgent it is. An alarm is at least as urgent as those that follow from it.
    #[serde(default)]
    pub severity: AlarmSeverity,
    /// When it was raised.
    pub since: Timestamp,
    /// One sentence.
    pub message: String,
    /// What agents notice.
    #[serde(default)]
    pub effect: String,
    /// The first step of an operator: an action, or a command to run.
    #[serde(default)]
    pub first_step: String,
    /// The page to read: a path below the installed documentation (`/usr/share/doc/proscenium`), with its heading.
    #[serde(default)]
    pub runbook: String,
    /// The key of the active alarm that is the cause of this one. It comes earlier in the list.
    #[serde(default)]
    pub caused_by: Option<String>,
}

/// How urgent an alarm is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum AlarmSeverity {
    /// Agents fail now, or will within days or at the next restart.
    Critical,
    /// Anything else that needs an operator.
    #[default]
    Warning,
}

impl From<Urgency> for AlarmSeverity {
    fn from(urgency: Urgency) -> Self {
        match urgency {
            Urgency::Critical => Self::Critical,
            Urgency::Warning => Self::Warning,
        }
    }
}

/// A DNS name that provides members.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NameStatus {
    /// `srv:` and the name of SRV records, or a host name.
    pub name: String,
    /// Pools that have members of this name.
    pub pools: Vec<String>,
    /// DNS servers of the last query; empty: no query yet, or /etc/resolv.conf cannot be read.
    pub servers: Vec<String>,
    /// When the last answer arrived, valid or not.
    pub answered_at: Option<Timestamp>,
    /// Time to live of that answer.
    pub ttl_seconds: Option<u64>,
    /// When the proxy queries DNS again.
    pub next_lookup: Option<Timestamp>,
    /// What is wrong with the last lookup.
    pub failure: Option<String>,
    /// Whether the members were stored before the last start.
    pub is_stored: bool,
}

/// The phase of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ProcessPhase {
    /// Preparing the first generation.
    Starting,
    /// Accepting connections.
    Serving,
    /// Stopping: finishes running requests and accepts no more.
    Draining,
}

/// One applied configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GenerationStatus {
    /// 1 at start, one more with each applied reload.
    pub number: u64,
    /// When it became active.
    pub loaded_at: Timestamp,
    /// Fingerprint of the configuration text and all materials it names.
    pub fingerprint: String,
}

/// The last reload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LastReload {
    /// When it ended.
    pub at: Timestamp,
    /// Its result.
    #[serde(flatten)]
    pub outcome: crate::ReloadOutcome,
}

/// A running listener.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ListenerStatus {
    /// Its name in the configuration.
    pub name: String,
    /// The first of `addresses`.
    pub address: String,
    /// The addresses that it accepts connections on, with the ports that were bound.
    pub addresses: Vec<String>,
    /// Connections open now, over all workers.
    pub connections: u64,
    /// Maximum number of connections.
    pub connections_max: u64,
    /// Handshakes that wait for their client now, over all workers.
    pub handshakes: u64,
    /// How many may wait before the one that has waited longest is closed.
    pub handshakes_max: u64,
    /// Clients that rejected the proxy's certificate; none since the listener opened.
    pub certificate_rejected: Option<DistrustedStatus>,
}

/// Handshakes that a client ended because it rejected the dates or the name of the proxy's certificate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DistrustedStatus {
    /// How many since the listener opened.
    pub count: u64,
    /// Address of the last client.
    pub client: String,
    /// When it connected.
    pub at: Timestamp,
    /// `certificate_expired` or `bad_certificate`.
    pub alert: String,
}

/// A running pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PoolStatus {
    /// Its name in the configuration.
    pub name: String,
    /// The algorithm that picks a member.
    pub algorithm: String,
    /// Members that are available.
    pub available: u64,
    /// Requests that wait for a member.
    #[serde(default)]
    pub waiting: u64,
    /// How long the request that arrived first has waited.
    #[serde(default)]
    pub longest_wait_seconds: Option<u64>,
    /// The same in milliseconds.
    #[serde(default)]
    pub longest_wait_milliseconds: Option<u64>,
    /// Requests that the queue has refused since the start, by the reason in their access records.
    #[serde(default)]
    pub queue_refusals: BTreeMap<String, u64>,
    /// Its members in the order of the configuration.
    pub members: Vec<MemberStatus>,
}

/// A running member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MemberStatus {
    /// Its address as in the configuration; the argument of `drain`, `maintenance` and `ready`.
    pub address: String,
    /// Its health by probes and connects. `unknown` with the cause `drain-ended`: it is ready again after a drain and gets
    /// requests, but no probe has succeeded since, so that it does not count for another member's drain.
    pub health: MemberHealth,
    /// Since when it has that health; none before the first change.
    pub since: Option<Timestamp>,
    /// The cause: `probes-failed`, for example.
    pub why: Option<String>,
    /// The last probe; none before the first, or if it is not probed.
    pub last_probe: Option<ProbeStatus>,
    /// The last probes, at most 20, the oldest first.
    #[serde(default)]
    pub recent_probes: Vec<ProbeStatus>,
    /// Its clock minus the proxy's, from the `Date` of the last probe that had one; none without.
    #[serde(default)]
    pub clock_offset_seconds: Option<i64>,
    /// Its JRubies; none: the proxy does not read them, has no answer yet, or the member is not up.
    #[serde(default)]
    pub jrubies: Option<JrubyStatus>,
    /// The result of its agent check; none: its pool has none.
    #[serde(default)]
    pub agent_check: Option<AgentCheckStatus>,
    /// Its progress after a restart; none: it is warm.
    #[serde(default)]
    pub warming: Option<WarmingStatus>,
    /// Why it is overloaded; none: it is not.
    #[serde(default)]
    pub overloaded: Option<OverloadStatus>,
    /// Seconds for which it is still ejected because attempts failed there; none: it is not ejected.
    #[serde(default)]
    pub ejected_seconds: Option<u64>,
    /// How often it has been ejected since the start.
    #[serde(default)]
    pub ejections: u64,
    /// The state that the operator set.
    pub administrative_state: AdministrativeState,
    /// The account that took it out of service, since when and why; none: it is ready.
    #[serde(default)]
    pub administrative: Option<crate::AdministrativeStatus>,
    /// Leased attempts that have not finished, tunnels included; those of former processes too.
    pub in_flight: u64,
    /// The same by kind of work; kinds without any are left out.
    #[serde(default)]
    pub in_flight_by_work: BTreeMap<String, u64>,
    /// How many of these are tunnels.
    #[serde(default)]
    pub tunnels: u64,
    /// The oldest tunnels.
    #[serde(default)]
    pub oldest_tunnels: Vec<crate::TunnelStatus>,
    /// The oldest requests that it did not answer within the first seconds.
    #[serde(default)]
    pub oldest_requests: Vec<crate::RunningRequestStatus>,
    /// Connections open to it, over all workers.
    pub connections: u64,
    /// Its requests in the last minute; none for members that get connections passed through.
    #[serde(default)]
    pub traffic: Option<crate::MemberTraffic>,
    /// Share of the load within the pool.
    pub weight: u32,
    /// Members with a lower number are used first.
    #[serde(default)]
    pub priority: u16,
    /// Whether it is used only while no other member is available.
    #[serde(default)]
    pub backup: bool,
}

/// The last probe of a member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ProbeStatus {
    /// When it ended.
    pub at: Timestamp,
    /// Why it failed; none if it succeeded.
    pub failure: Option<String>,
}

/// An overloaded member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OverloadStatus {
    /// `queue-full`: it refused a request of the proxy within the last half minute. From its status service: `queue-limit`, it
    /// refused requests; `borrow-timeout`, requests waited too long for a JRuby; `jruby-wait`, requests wait longer for a JRuby
    /// than they use it.
    pub why: String,
    /// Maximum number of requests that hold a JRuby, learned from its refusals; none: it has refused none.
    pub limit: Option<u32>,
}

/// A member that was restarted and is not warm yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WarmingStatus {
    /// Its progress.
    pub progress_percent: u32,
    /// Percent of the configured weight that slow start applies.
    pub weight_percent: u32,
}

/// The result of a member's agent check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AgentCheckStatus {
    /// The state that it requests.
    pub state: AdministrativeState,
    /// Whether it reported the member as down.
    pub down: bool,
    /// Percent of the configured weight that it requests.
    pub weight_percent: u32,
    /// When it was last queried.
    pub at: Timestamp,
    /// Its last readable answer.
    pub answer: Option<String>,
    /// Why the last answer could not be read, so that nothing changed. `None` if it could be read.
    pub failure: Option<String>,
    /// How many checks had no readable answer.
    #[serde(default)]
    pub failures: u64,
}

/// What a member reports about its JRubies.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct JrubyStatus {
    /// How many it has; none: unknown.
    pub count: Option<u32>,
    /// How many of them are idle.
    pub free: Option<u32>,
    /// Requests inside the member that wait for one.
    pub waiting: Option<u32>,
    /// Mean time for which a request holds one, in milliseconds.
    pub borrow_milliseconds: Option<u64>,
    /// Mean time for which a request waits for one, in milliseconds.
    pub wait_milliseconds: Option<u64>,
    /// When this was read.
    pub at: Option<Timestamp>,
    /// Why the counts are unknown, and what to do.
    pub problem: Option<String>,
}

/// The health of a member by probes and connects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum MemberHealth {
    /// Not probed yet, and not assumed up: not picked.
    Unknown,
    /// May be picked.
    Up,
    /// Not picked until its next successful probe.
    Down,
}

/// The state that the operator sets for a member. A later state is stricter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum AdministrativeState {
    /// It gets requests.
    Ready,
    /// It finishes its requests and gets no more.
    Drain,
    /// It gets no requests. To leave this state, it needs `rise` successful probes.
    Maintenance,
}

/// What client certificates are verified with.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ActiveTrust {
    /// Increases with every change of CA bundle, CRLs or policy; live connections compare it on each request.
    pub generation: u64,
    /// The CAs of the bundle.
    pub cas: Vec<ActiveCa>,
    /// The active CRLs. If an issuer has several, a certificate on any of them is revoked.
    pub crls: Vec<ActiveCrl>,
    /// CAs without a CRL, whose certificates are refused.
    pub crl_missing: Vec<String>,
    /// CAs without a CRL whose certificates are accepted because of `unchecked`.
    pub unchecked: Vec<String>,
    /// Alarms about CAs and CRLs, as sentences.
    pub alarms: Vec<String>,
    /// The state of fetching CRLs from the CA; none: the proxy does not fetch.
    pub fetch: Option<crate::CrlFetchStatus>,
    /// Age in seconds of the agent's copy of the CRL; none: the proxy does not use that copy.
    #[serde(default)]
    pub agent_copy_age_seconds: Option<u64>,
    /// The cache of verified chains.
    #[serde(default)]
    pub chain_cache: ChainCacheStatus,
}

/// The cache of verified certificate chains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ChainCacheStatus {
    /// Chains in it.
    pub entries: u64,
    /// Verifications that found their chain in it.
    pub hits: u64,
    /// Verifications that checked signatures.
    pub misses: u64,
}

/// The files that the configuration names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MaterialsStatus {
    /// How changes are noticed.
    pub watch: MaterialsWatch,
    /// The files on disk were refused; none: they are active, as far as the proxy has noticed.
    pub refused: Option<RefusedMaterials>,
}

/// The state directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StateStatus {
    /// Its path.
    pub directory: String,
    /// Why changes do not survive a restart; none: they do.
    pub unusable: Option<String>,
}

/// Whether agents renew their certificates through the proxy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RenewalStatus {
    /// Whether the configuration enables it.
    pub configured: bool,
    /// Why renewals are refused until a reload; none: they are not.
    pub off: Option<RenewalDisabled>,
}

/// The CA renewed another certificate than the client's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RenewalDisabled {
    /// Since when.
    pub since: Timestamp,
    /// What the CA sent.
    pub why: String,
}

/// How changes of materials are noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum MaterialsWatch {
    /// By events of the kernel, and a check at intervals for what these miss.
    Notify,
    /// By a check at intervals only.
    Poll,
    /// Not at all: only a reload reads materials.
    Off,
}

/// Materials on disk that were refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RefusedMaterials {
    /// Since when the active materials differ from those on disk.
    pub since: Timestamp,
    /// The reason, for people.
    pub report: String,
}

/// A CA of the bundle.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ActiveCa {
    /// Subject as RFC 2253 spells it.
    pub subject: String,
    /// When it expires.
    pub not_after: Timestamp,
    /// Whether the bundle has another certificate of the same CA, with the same key, that expires later.
    #[serde(default)]
    pub is_superseded: bool,
    /// File that it was read from.
    pub source: String,
}

/// An active CRL.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ActiveCrl {
    /// Issuer as RFC 2253 spells it.
    pub issuer: String,
    /// CRL number.
    pub number: String,
    /// Number of revoked certificates.
    pub entries: u64,
    /// When the issuer created it; none in the answer of an older proxy.
    #[serde(default)]
    pub this_update: Option<Timestamp>,
    /// When the next CRL is due; none: the CRL does not say.
    pub next_update: Option<Timestamp>,
    /// Whether it has expired.
    pub expired: bool,
    /// Until when the CRL is used, expired or not; none: the policy sets no end.
    pub accepted_until: Option<Timestamp>,
    /// File that it was read from.
    pub source: String,
    /// Age of the file in seconds if it is the agent's copy, which only agent runs refresh.
    pub agent_copy_age_seconds: Option<u64>,
    /// Whether it is the newest of its issuer key, whose dates apply.
    #[serde(default = "yes")]
    pub is_newest: bool,
}

/// The default for the status of an older proxy, which has only one CRL of each issuer key.
fn yes() -> bool {
    true
}

/// An instant as RFC 3339 spells it, in UTC, to the second.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(transparent)]
#[schema(value_type = String, format = DateTime)]
pub struct Timestamp(String);

impl Timestamp {
    /// An instant given as seconds since 1970, as certificates and CRLs are compared.
    pub fn from_unix_seconds(seconds: i64) -> Self {
        // RFC 3339 ends with the year 9999, which X.509 uses for "no end"; later times are shown as 1970.
        let instant =
            OffsetDateTime::from_unix_timestamp(seconds).unwrap_or(OffsetDateTime::UNIX_EPOCH);
        Self(instant.format(&Rfc3339).unwrap_or_default())
    }
}

impl Timestamp {
    /// Reads RFC 3339, or a date alone, which is its first second in UTC.
    pub fn parse(text: &str) -> Option<Self> {
        let whole = format!("{text}T00:00:00Z");
        let instant = OffsetDateTime::parse(text, &Rfc3339)
            .or_else(|_| OffsetDateTime::parse(&whole, &Rfc3339))
            .ok()?;
        Some(Self::from_unix_seconds(instant.unix_timestamp()))
    }

    /// The same as [`SystemTime`]; none if a peer sent something else.
    pub fn instant(&self) -> Option<SystemTime> {
        Some(OffsetDateTime::parse(&self.0, &Rfc3339).ok()?.into())
    }

    /// Seconds since 1970; none where a peer sent something that is not a time.
    pub fn unix_seconds(&self) -> Option<i64> {
        let instant = OffsetDateTime::parse(&self.0, &Rfc3339).ok()?;
        Some(instant.unix_timestamp())
    }
}

impl From<SystemTime> for Timestamp {
    fn from(instant: SystemTime) -> Self {
        let seconds = match instant.duration_since(SystemTime::UNIX_EPOCH) {
            Ok(after) => i64::try_from(after.as_secs()).unwrap_or(i64::MAX),
            Err(before) => {
                i64::try_from(before.duration().as_secs()).map_or(i64::MIN, |seconds| -seconds)
            }
        };
        Self::from_unix_seconds(seconds)
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for ProcessPhase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Starting => "starting",
            Self::Serving => "serving",
            Self::Draining => "draining",
        })
    }
}

impl fmt::Display for MemberHealth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Unknown => "unknown",
            Self::Up => "up",
            Self::Down => "down",
        })
    }
}

impl fmt::Display for MaterialsWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Notify => "notify",
            Self::Poll => "poll",
            Self::Off => "off",
        })
    }
}

impl AdministrativeState {
    pub(crate) const ALL: [Self; 3] = [Self::Ready, Self::Drain, Self::Maintenance];
}

impl fmt::Display for AdministrativeState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Ready => "ready",
            Self::Drain => "drain",
            Self::Maintenance => "maintenance",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_are_spelled_in_utc_to_the_second() {
        for (seconds, expected) in [
            (0, "1970-01-01T00:00:00Z"),
            (1_700_000_000, "2023-11-14T22:13:20Z"),
            (-1, "1969-12-31T23:59:59Z"),
            (i64::MAX, "1970-01-01T00:00:00Z"),
        ] {
            assert_eq!(Timestamp::from_unix_seconds(seconds).to_string(), expected);
        }
        let late = SystemTime::UNIX_EPOCH + std::time::Duration::from_millis(1_700_000_000_900);
        assert_eq!(Timestamp::from(late).to_string(), "2023-11-14T22:13:20Z");
    }

    #[test]
    fn an_instant_is_read_as_a_time_or_a_date() {
        let read = |text| Timestamp::parse(text).map(|read| read.to_string());
        let second = Some("2023-11-14T22:13:20Z".to_owned());
        assert_eq!(read("2023-11-14T22:13:20Z"), second);
        assert_eq!(read("2023-11-14T23:13:20+01:00"), second);
        assert_eq!(read("2023-11-14"), Some("2023-11-14T00:00:00Z".to_owned()));
        for text in ["", "now", "2023-13-01", "14.11.2023"] {
            assert_eq!(read(text), None, "{text}");
        }
        assert_eq!(Timestamp::from_unix_seconds(7).unix_seconds(), Some(7));
    }

    #[test]
    fn words_are_the_same_in_json_and_in_text() {
        fn check<T: Serialize + fmt::Display>(values: &[T]) {
            for value in values {
                assert_eq!(serde_json::to_value(value).unwrap(), value.to_string());
            }
        }
        check(&[
            ProcessPhase::Starting,
            ProcessPhase::Serving,
            ProcessPhase::Draining,
        ]);
        check(&[MemberHealth::Unknown, MemberHealth::Up, MemberHealth::Down]);
        check(&[
            AdministrativeState::Ready,
            AdministrativeState::Drain,
            AdministrativeState::Maintenance,
        ]);
        check(&[
            MaterialsWatch::Notify,
            MaterialsWatch::Poll,
            MaterialsWatch::Off,
        ]);
        use crate::ReloadResult::{Applied, Failed, HandedOver, Refused, Stopping, Unchanged};
        check(&[Applied, Unchanged, Refused, Stopping, HandedOver, Failed]);
    }
}
