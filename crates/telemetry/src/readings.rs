//! Gauges that nobody keeps up to date: they are read where the truth stands when somebody asks.

use std::collections::BTreeMap;
use std::hash::Hash;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, SystemTime};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

use crate::agents::ENDS;

/// What the layers above have read for one scrape.
#[derive(Clone, Debug, Default)]
pub struct Readings {
    /// Every listener.
    pub listeners: Vec<ListenerReading>,
    /// Every pool.
    pub pools: Vec<PoolReading>,
    /// Every member of every pool.
    pub members: Vec<MemberReading>,
    /// Every CRL in force.
    pub crls: Vec<CrlReading>,
    /// Every CA of the bundle.
    pub cas: Vec<CaReading>,
    /// Every certificate that the proxy presents, once for each use.
    pub certificates: Vec<CertificateReading>,
    /// Age of the agent's own copy of the CRL, while that is the one in force.
    pub crl_agent_copy_age: Option<Duration>,
    /// Verified chains that are remembered.
    pub chains: ChainReading,
    /// What is wrong with CAs and CRLs and stops nothing.
    pub trust_alarms: usize,
    /// Agents seen, by the time their certificates have left (`agents::ENDS`).
    pub agents: [u64; ENDS.len()],
    /// Agents that were forgotten to make room for others.
    pub agents_evicted: u64,
    /// Blocks of the operator in force.
    pub blocks: usize,
    /// Bytes of request bodies that are buffered.
    pub body_buffer_bytes: u64,
    /// How lists are fetched; none: they are not.
    pub crl_fetch: Option<CrlFetchReading>,
    /// Whether materials on disk are not taken, since they are not right.
    pub materials_refused: bool,
    /// Time since the CA was asked for each document that is answered from a copy.
    pub edge_copies: Vec<(&'static str, Duration)>,
    /// Whether renewals are not passed on, since the CA has answered one with what is not the client's.
    pub renewal_off: bool,
    /// Whether what is learned or told now does not outlast a restart.
    pub state_unusable: bool,
    /// When the last reload ended, and whether it succeeded; none before the first.
    pub last_reload: Option<(SystemTime, bool)>,
    /// What the kernel reports about this process.
    pub process: ProcessReading,
    /// What the program is built from.
    pub build: BuildInfo,
}

/// What the running program is built from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct BuildInfo {
    /// Version of the program.
    pub version: &'static str,
    /// Commit of its sources, with `-dirty` if they differ from it; `unknown` without a repository.
    pub commit: &'static str,
    /// Version of the compiler.
    pub rustc: &'static str,
    /// TLS library and cryptographic library, with their versions.
    pub tls: &'static str,
}

/// What the kernel reports about this process; none where it cannot be read.
#[derive(Clone, Debug, Default)]
pub struct ProcessReading {
    /// User and system time consumed.
    pub cpu: Option<Duration>,
    /// Resident memory in bytes.
    pub resident_bytes: Option<u64>,
    /// Virtual memory in bytes.
    pub virtual_bytes: Option<u64>,
    /// Open file descriptors.
    pub open_fds: Option<u64>,
    /// Maximum number of open file descriptors (soft limit).
    pub max_fds: Option<u64>,
    /// When the process started.
    pub started: Option<SystemTime>,
}

impl ProcessReading {
    /// A registry without our prefix: these names are the same for every program that Prometheus scrapes.
    pub(crate) fn registry(&self) -> Registry {
        let mut registry = Registry::default();
        if let Some(cpu) = self.cpu {
            let counter = Counter::<f64, AtomicU64>::default();
            counter.inc_by(cpu.as_secs_f64());
            let help = "User and system CPU time consumed";
            registry.register_with_unit("process_cpu", help, Unit::Seconds, counter);
        }
        let mut gauge = |name: &str, help: &str, value: Option<f64>| {
            if let Some(value) = value {
                let gauge = Gauge::<f64, AtomicU64>::default();
                gauge.set(value);
                registry.register(name, help, gauge);
            }
        };
        let count = |value: Option<u64>| value.map(|value| value as f64);
        let help = "Resident memory";
        gauge(
            "process_resident_memory_bytes",
            help,
            count(self.resident_bytes),
        );
        let help = "Virtual memory";
        gauge(
            "process_virtual_memory_bytes",
            help,
            count(self.virtual_bytes),
        );
        let help = "Open file descriptors";
        gauge("process_open_fds", help, count(self.open_fds));
        let help = "Maximum number of open file descriptors";
        gauge("process_max_fds", help, count(self.max_fds));
        let help = "Start time of the process, in Unix time";
        gauge("process_start_time_seconds", help, self.started.map(unix));
        registry
    }
}

/// One listener.
#[derive(Clone, Debug)]
pub struct ListenerReading {
    /// Its name.
    pub listener: String,
    /// Handshakes in flight.
    pub handshakes: u32,
}

/// What is read of a pool.
#[derive(Clone, Debug)]
pub struct PoolReading {
    /// Its name in the configuration.
    pub pool: String,
    /// Members that are up and ready.
    pub available: usize,
    /// Requests that wait for a member.
    pub waiting: u32,
    /// How long the one that came first has waited; zero if none waits.
    pub longest_wait: Duration,
}

/// One member.
#[derive(Clone, Debug)]
pub struct MemberReading {
    /// Its pool.
    pub pool: String,
    /// Its address.
    pub member: String,
    /// Whether it is up.
    pub up: bool,
    /// Its administrative state: one of [`ADMINISTRATIVE_STATES`].
    pub administrative_state: &'static str,
    /// Attempts in flight.
    pub in_flight: u32,
    /// Connections open.
    pub connections: u32,
    /// JRubies that it shows, and how many of them are idle; none: unknown.
    pub jrubies: Option<(u32, u32)>,
    /// How often it has been ejected.
    pub ejections: u64,
    /// Whether it is ejected now.
    pub ejected: bool,
    /// Whether it has more requests than it can take.
    pub overloaded: bool,
    /// Whether it was restarted and is not warm yet.
    pub warming: bool,
    /// How often its agent check brought no readable answer; none: it has none.
    pub agent_check_failures: Option<u64>,
}

/// One CRL.
#[derive(Clone, Debug)]
pub struct CrlReading {
    /// Its issuer (RFC 2253).
    pub issuer: String,
    /// Time since its `this_update`.
    pub age: Duration,
    /// When the next is due, if it says so.
    pub next_update: Option<SystemTime>,
    /// Serials on it.
    pub entries: u64,
    /// Its number, if it has one that fits.
    pub number: Option<u64>,
    /// Whether the next is overdue.
    pub expired: bool,
    /// Until when it is judged by, if the policy sets an end.
    pub accepted_until: Option<SystemTime>,
}

/// The memory of verified chains.
#[derive(Clone, Copy, Debug, Default)]
pub struct ChainReading {
    /// Chains in it.
    pub remembered: u64,
    /// Verdicts that found theirs there.
    pub hits: u64,
    /// Verdicts for which signatures were checked.
    pub misses: u64,
}

/// How CRLs are fetched from the CA.
#[derive(Clone, Debug, Default)]
pub struct CrlFetchReading {
    /// When the CA last answered with a list, or that there is no other.
    pub answered: Option<SystemTime>,
    /// Whether there is no answer to be used since.
    pub failing: bool,
    /// Issuers of lists that are refused, and how many revoked certificates each does not name.
    pub refused: Vec<(String, u64)>,
}

/// One CA certificate.
#[derive(Clone, Debug)]
pub struct CaReading {
    /// Its subject (RFC 2253).
    pub subject: String,
    /// When it ends.
    pub not_after: SystemTime,
}

/// A certificate that the proxy presents.
#[derive(Clone, Debug)]
pub struct CertificateReading {
    /// `listener` or `pool`.
    pub role: &'static str,
    /// Name of the listener or of the pool.
    pub name: String,
    /// File of its chain.
    pub file: String,
    /// Its subject (RFC 2253).
    pub subject: String,
    /// When it expires.
    pub not_after: SystemTime,
}

impl Readings {
    /// A registry of this moment; it is encoded once and thrown away.
    pub(crate) fn registry(&self) -> Registry {
        let mut registry = Registry::with_prefix(crate::metrics::PREFIX);
        self.register_listeners(&mut registry);
        self.register_members(&mut registry);
        self.register_crls(&mut registry);
        self.register_crl_fetch(&mut registry);
        self.register_cas(&mut registry);
        self.register_certificates(&mut registry);
        self.register_chains(&mut registry);
        self.register_reload(&mut registry);
        registry
    }

    fn register_reload(&self, registry: &mut Registry) {
        if let Some((at, success)) = self.last_reload {
            let ended = Gauge::<f64, AtomicU64>::default();
            ended.set(unix(at));
            let help = "Time of the last requested reload, in Unix time";
            registry.register_with_unit("last_reload_timestamp", help, Unit::Seconds, ended);
            let succeeded = Gauge::<i64>::default();
            succeeded.set(i64::from(success));
            let help = "Whether the last requested reload succeeded (1) or was refused (0)";
            registry.register("last_reload_success", help, succeeded);
        }
        let build = gauges();
        set(&build, &self.build, 1.0);
        let help = "Version, commit, compiler and TLS library of the running program; the value is always 1";
        registry.register("build_info", help, build);
    }

    fn register_listeners(&self, registry: &mut Registry) {
        let handshakes = gauges();
        for reading in &self.listeners {
            let labels = ListenerLabels {
                listener: reading.listener.clone(),
            };
            set(&handshakes, &labels, f64::from(reading.handshakes));
        }
        registry.register(
            "handshakes_in_flight",
            "TLS handshakes in flight",
            handshakes,
        );
        let buffered = Gauge::<f64, AtomicU64>::default();
        buffered.set(self.body_buffer_bytes as f64);
        let help = "Bytes of request bodies in buffers";
        registry.register_with_unit("body_buffer", help, Unit::Bytes, buffered);
    }

    fn register_members(&self, registry: &mut Registry) {
        let up = gauges();
        let administrative = gauges();
        let in_flight = gauges();
        let connections = gauges();
        let (jrubies, jrubies_free) = (gauges(), gauges());
        let ejections = Family::<MemberLabels, Counter>::default();
        let (ejected, warming, overloaded) = (gauges(), gauges(), gauges());
        let agent_failures = Family::<MemberLabels, Counter>::default();
        for reading in &self.members {
            let labels = MemberLabels {
                pool: reading.pool.clone(),
                member: reading.member.clone(),
            };
            set(&up, &labels, f64::from(u8::from(reading.up)));
            set(&in_flight, &labels, f64::from(reading.in_flight));
            set(&connections, &labels, f64::from(reading.connections));
            set(&ejected, &labels, f64::from(u8::from(reading.ejected)));
            set(
                &overloaded,
                &labels,
                f64::from(u8::from(reading.overloaded)),
            );
            set(&warming, &labels, f64::from(u8::from(reading.warming)));
            ejections.get_or_create(&labels).inc_by(reading.ejections);
            if let Some(failures) = reading.agent_check_failures {
                agent_failures.get_or_create(&labels).inc_by(failures);
            }
            if let Some((count, free)) = reading.jrubies {
                set(&jrubies, &labels, f64::from(count));
                set(&jrubies_free, &labels, f64::from(free));
            }
            for state in ADMINISTRATIVE_STATES {
                let labels = AdministrativeLabels {
                    pool: reading.pool.clone(),
                    member: reading.member.clone(),
                    state,
                };
                let holds = state == reading.administrative_state;
                set(&administrative, &labels, f64::from(u8::from(holds)));
            }
        }
        let available = gauges();
        let (waiting, longest) = (gauges(), gauges());
        for reading in &self.pools {
            let labels = PoolLabels {
                pool: reading.pool.clone(),
            };
            set(&available, &labels, reading.available as f64);
            set(&waiting, &labels, f64::from(reading.waiting));
            set(&longest, &labels, reading.longest_wait.as_secs_f64());
        }
        let help = "Requests that wait for a member of a pool";
        registry.register("pool_queue_length", help, waiting);
        let help = "How long the request that came first has waited for a member of a pool";
        registry.register_with_unit("pool_queue_longest_wait", help, Unit::Seconds, longest);
        let help = "Members of a pool that are up and ready";
        registry.register("pool_members_available", help, available);
        let help = "Times that a member was left out because attempts at it failed";
        registry.register("member_ejections", help, ejections);
        let help = "Whether a member is left out because attempts at it failed (1) or not (0)";
        registry.register("member_ejected", help, ejected);
        let help = "Whether a member has more requests than it can take (1) or not (0)";
        registry.register("member_overloaded", help, overloaded);
        let help = "Whether a member was restarted and is not warm yet (1) or not (0)";
        registry.register("member_warming", help, warming);
        let help = "Agent checks of a member without a readable answer";
        registry.register("member_agent_check_failures", help, agent_failures);
        let help = "JRubies of a member, as it shows them itself; no series while that is unknown";
        registry.register("member_jrubies", help, jrubies);
        let help = "JRubies of a member that are idle, as it shows them itself";
        registry.register("member_jrubies_free", help, jrubies_free);
        let help = "Whether a member is in this administrative state (1) or not (0): the stricter one of the operator's and the agent check's";
        registry.register("member_administrative_state", help, administrative);
        registry.register(
            "member_up",
            "Whether a member is up (1) or down or not yet probed (0)",
            up,
        );
        registry.register(
            "member_in_flight",
            "Attempts in flight on a member",
            in_flight,
        );
        registry.register(
            "member_connections",
            "Connections open to a member",
            connections,
        );
    }

    fn register_crls(&self, registry: &mut Registry) {
        let age = gauges();
        let next_update = gauges();
        let entries = gauges();
        let number = gauges();
        let expired = gauges();
        let accepted_until = gauges();
        // After a renewal with another key two CAs have one name, and one series.
        for reading in first_to_end(&self.crls, |crl| &crl.issuer, |crl| crl.next_update) {
            let labels = IssuerLabels {
                issuer: reading.issuer.clone(),
            };
            set(&age, &labels, reading.age.as_secs_f64());
            set(&entries, &labels, reading.entries as f64);
            set(&expired, &labels, f64::from(u8::from(reading.expired)));
            if let Some(end) = reading.accepted_until {
                set(&accepted_until, &labels, unix(end));
            }
            if let Some(next) = reading.next_update {
                set(&next_update, &labels, unix(next));
            }
            if let Some(value) = reading.number {
                set(&number, &labels, value as f64);
            }
        }
        registry.register_with_unit(
            "crl_age",
            "Time since the CRL of an issuer was created",
            Unit::Seconds,
            age,
        );
        let help = "Time by which the next CRL of an issuer is due, in Unix time";
        registry.register_with_unit(
            "crl_next_update_timestamp",
            help,
            Unit::Seconds,
            next_update,
        );
        registry.register(
            "crl_entries",
            "Revoked certificates in the CRL of an issuer",
            entries,
        );
        registry.register("crl_number", "CRL number of the CRL of an issuer", number);
        let help = "Whether the CRL of an issuer has expired (1) or not (0)";
        registry.register("crl_expired", help, expired);
        let help =
            "Time until which an expired CRL is accepted, in Unix time, if the policy sets a limit";
        registry.register_with_unit(
            "crl_accepted_until_timestamp",
            help,
            Unit::Seconds,
            accepted_until,
        );
    }

    fn register_crl_fetch(&self, registry: &mut Registry) {
        let Some(reading) = &self.crl_fetch else {
            return;
        };
        if let Some(answered) = reading.answered {
            let gauge = Gauge::<f64, AtomicU64>::default();
            gauge.set(unix(answered));
            let help = "Time of the last successful CRL fetch from the CA, in Unix time";
            registry.register_with_unit("crl_last_fetch_timestamp", help, Unit::Seconds, gauge);
        }
        let failing = Gauge::<i64>::default();
        failing.set(i64::from(reading.failing));
        let help = "Whether the last CRL fetch failed (1) or succeeded (0)";
        registry.register("crl_fetch_failing", help, failing);
        let lacking = gauges();
        for (issuer, count) in &reading.refused {
            let labels = IssuerLabels {
                issuer: issuer.clone(),
            };
            set(&lacking, &labels, *count as f64);
        }
        let help = "Revocations that are missing from a fetched CRL that was refused";
        registry.register("crl_refused_missing_revocations", help, lacking);
    }

    fn register_cas(&self, registry: &mut Registry) {
        let not_after = gauges();
        for reading in first_to_end(&self.cas, |ca| &ca.subject, |ca| Some(ca.not_after)) {
            let labels = CaLabels {
                subject: reading.subject.clone(),
            };
            set(&not_after, &labels, unix(reading.not_after));
        }
        let help = "Time at which a CA certificate expires, in Unix time";
        registry.register_with_unit("ca_not_after_timestamp", help, Unit::Seconds, not_after);
        let alarms = Gauge::<i64>::default();
        alarms.set(i64::try_from(self.trust_alarms).unwrap_or(i64::MAX));
        let help = "Active alarms about CAs and CRLs; proscenium status lists them";
        registry.register("trust_alarms", help, alarms);
        let agents = gauges();
        for (expires, count) in ENDS.into_iter().zip(self.agents) {
            set(&agents, &ExpiryLabels { expires }, count as f64);
        }
        let help = "Agents seen since the start, by the time until their certificates expire";
        registry.register("agents", help, agents);
        let forgotten = Counter::<u64>::default();
        forgotten.inc_by(self.agents_evicted);
        let help = "Agents removed from memory to make room for other agents";
        registry.register("agents_evicted", help, forgotten);
        let blocks = Gauge::<i64>::default();
        blocks.set(i64::try_from(self.blocks).unwrap_or(i64::MAX));
        let help = "Active blocks; proscenium blocks lists them";
        registry.register("blocks", help, blocks);
        let refused = Gauge::<i64>::default();
        refused.set(i64::from(self.materials_refused));
        let help = "Whether certificates, keys, CA bundles or CRLs on disk are refused and the previous ones stay active (1) or not (0)";
        registry.register("materials_refused", help, refused);
        let copies = gauges();
        for (document, age) in &self.edge_copies {
            set(&copies, &DocumentLabels { document }, age.as_secs_f64());
        }
        let help = "Time since the CA last confirmed a copy of a document";
        registry.register_with_unit("edge_copy_age", help, Unit::Seconds, copies);
        let off = Gauge::<i64>::default();
        off.set(i64::from(self.renewal_off));
        let help = "Whether the proxy refuses renewals until a reload because the CA renewed the wrong certificate (1) or not (0)";
        registry.register("renewal_disabled", help, off);
        let unusable = Gauge::<i64>::default();
        unusable.set(i64::from(self.state_unusable));
        let help = "Whether the state directory is unusable, so that changes are lost at a restart (1) or not (0)";
        registry.register("state_directory_unusable", help, unusable);
        if let Some(age) = self.crl_agent_copy_age {
            let gauge = Gauge::<f64, AtomicU64>::default();
            gauge.set(age.as_secs_f64());
            let help = "Age of the agent's copy of the CRL while the proxy uses that copy";
            registry.register_with_unit("crl_agent_copy_age", help, Unit::Seconds, gauge);
        }
    }

    fn register_certificates(&self, registry: &mut Registry) {
        let not_after = gauges();
        for reading in &self.certificates {
            let labels = CertificateLabels {
                role: reading.role,
                name: reading.name.clone(),
                file: reading.file.clone(),
                subject: reading.subject.clone(),
            };
            set(&not_after, &labels, unix(reading.not_after));
        }
        let help = "Time at which a certificate of the proxy expires, in Unix time";
        let name = "certificate_not_after_timestamp";
        registry.register_with_unit(name, help, Unit::Seconds, not_after);
    }

    fn register_chains(&self, registry: &mut Registry) {
        let remembered = Gauge::<f64, AtomicU64>::default();
        remembered.set(self.chains.remembered as f64);
        let help = "Verified certificate chains in the cache";
        registry.register("chain_cache_entries", help, remembered);
        let lookups = Family::<LookupLabels, Counter>::default();
        for (result, count) in [("hit", self.chains.hits), ("miss", self.chains.misses)] {
            let result = result.to_owned();
            lookups
                .get_or_create(&LookupLabels { result })
                .inc_by(count);
        }
        let help = "Lookups of certificate chains in the cache, by result";
        registry.register("chain_cache_lookups", help, lookups);
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CertificateLabels {
    role: &'static str,
    name: String,
    file: String,
    subject: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LookupLabels {
    result: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ListenerLabels {
    listener: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PoolLabels {
    pool: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct MemberLabels {
    pool: String,
    member: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DocumentLabels {
    document: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ExpiryLabels {
    expires: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct IssuerLabels {
    issuer: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CaLabels {
    subject: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AdministrativeLabels {
    pool: String,
    member: String,
    state: &'static str,
}

/// The administrative states of a member, as `balancing` names them.
pub const ADMINISTRATIVE_STATES: [&str; 3] = ["ready", "drain", "maintenance"];

fn gauges<L: Clone + Eq + Hash>() -> Family<L, Gauge<f64, AtomicU64>> {
    Family::default()
}

fn set<L: Clone + Eq + Hash>(values: &Family<L, Gauge<f64, AtomicU64>>, labels: &L, value: f64) {
    values.get_or_create(labels).set(value);
}

/// Of the readings with one name, the one that ends first: an alert must not miss it because of the other.
fn first_to_end<'r, T>(
    readings: &'r [T],
    name: impl Fn(&'r T) -> &'r String,
    end: impl Fn(&T) -> Option<SystemTime>,
) -> impl Iterator<Item = &'r T> {
    let mut first: BTreeMap<&String, &T> = BTreeMap::new();
    for reading in readings {
        let of_name = first.entry(name(reading)).or_insert(reading);
        // None is no end.
        let ends = |reading: &T| end(reading).map_or((true, None), |end| (false, Some(end)));
        if ends(reading) < ends(of_name) {
            *of_name = reading;
        }
    }
    first.into_values()
}

fn unix(time: SystemTime) -> f64 {
    match time.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(after) => after.as_secs_f64(),
        Err(before) => -before.duration().as_secs_f64(),
    }
}
