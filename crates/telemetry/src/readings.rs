//! Gauges that nobody keeps up to date: they are read where the truth stands when somebody asks.

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
    /// Every member of every pool.
    pub members: Vec<MemberReading>,
    /// Every CRL in force.
    pub crls: Vec<CrlReading>,
    /// Every CA of the bundle.
    pub cas: Vec<CaReading>,
    /// Age of the agent's own copy of the CRL, while that is the one in force.
    pub crl_agent_copy_age: Option<Duration>,
    /// Verified chains that are remembered.
    pub chains: ChainReading,
    /// What is wrong with CAs and CRLs and stops nothing.
    pub trust_alarms: usize,
    /// Agents seen, by the time their certificates have left (`agents::ENDS`).
    pub agents: [u64; ENDS.len()],
    /// Agents that were forgotten to make room for others.
    pub agents_forgotten: u64,
    /// Blocks of the operator in force.
    pub blocks: usize,
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
}

/// One listener.
#[derive(Clone, Debug)]
pub struct ListenerReading {
    /// Its name.
    pub listener: String,
    /// Handshakes in flight.
    pub handshakes: u32,
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
    /// Attempts in flight.
    pub in_flight: u32,
    /// Connections open.
    pub connections: u32,
}

/// One CRL.
#[derive(Clone, Debug)]
pub struct CrlReading {
    /// Its issuer (RFC 2253).
    pub issuer: String,
    /// The file it came from.
    pub source: String,
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
    pub judged_by_until: Option<SystemTime>,
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

impl Readings {
    /// A registry of this moment; it is encoded once and thrown away.
    pub(crate) fn registry(&self) -> Registry {
        let mut registry = Registry::with_prefix(crate::metrics::PREFIX);
        self.register_listeners(&mut registry);
        self.register_members(&mut registry);
        self.register_crls(&mut registry);
        self.register_crl_fetch(&mut registry);
        self.register_cas(&mut registry);
        self.register_chains(&mut registry);
        registry
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
    }

    fn register_members(&self, registry: &mut Registry) {
        let up = gauges();
        let in_flight = gauges();
        let connections = gauges();
        for reading in &self.members {
            let labels = MemberLabels {
                pool: reading.pool.clone(),
                member: reading.member.clone(),
            };
            set(&up, &labels, f64::from(u8::from(reading.up)));
            set(&in_flight, &labels, f64::from(reading.in_flight));
            set(&connections, &labels, f64::from(reading.connections));
        }
        registry.register("member_up", "Whether a member is up (1) or not (0)", up);
        registry.register(
            "member_in_flight",
            "Attempts in flight at a member",
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
        let judged_by_until = gauges();
        for reading in &self.crls {
            let labels = CrlLabels {
                issuer: reading.issuer.clone(),
                source: reading.source.clone(),
            };
            set(&age, &labels, reading.age.as_secs_f64());
            set(&entries, &labels, reading.entries as f64);
            set(&expired, &labels, f64::from(u8::from(reading.expired)));
            if let Some(end) = reading.judged_by_until {
                set(&judged_by_until, &labels, unix(end));
            }
            if let Some(next) = reading.next_update {
                set(&next_update, &labels, unix(next));
            }
            if let Some(value) = reading.number {
                set(&number, &labels, value as f64);
            }
        }
        registry.register_with_unit("crl_age", "Time since a CRL was made", Unit::Seconds, age);
        let help = "When the next CRL is due, in Unix time";
        registry.register_with_unit("crl_next_update", help, Unit::Seconds, next_update);
        registry.register("crl_entries", "Serials on a CRL", entries);
        registry.register("crl_number", "Number of a CRL", number);
        let help = "Whether the next CRL is overdue (1) or not (0)";
        registry.register("crl_expired", help, expired);
        let help = "Until when a CRL is judged by, in Unix time, where the policy sets an end";
        registry.register_with_unit("crl_judged_by_until", help, Unit::Seconds, judged_by_until);
    }

    fn register_crl_fetch(&self, registry: &mut Registry) {
        let Some(reading) = &self.crl_fetch else {
            return;
        };
        if let Some(answered) = reading.answered {
            let gauge = Gauge::<f64, AtomicU64>::default();
            gauge.set(unix(answered));
            let help =
                "When the CA last answered with a CRL, or that there is no other, in Unix time";
            registry.register_with_unit("crl_fetched", help, Unit::Seconds, gauge);
        }
        let failing = Gauge::<i64>::default();
        failing.set(i64::from(reading.failing));
        let help = "Whether the last fetch of CRLs brought nothing of use (1) or went well (0)";
        registry.register("crl_fetch_failing", help, failing);
        let lacking = gauges();
        for (issuer, count) in &reading.refused {
            let labels = IssuerLabels {
                issuer: issuer.clone(),
            };
            set(&lacking, &labels, *count as f64);
        }
        let help =
            "Of each fetched CRL that is refused, how many revoked certificates it does not name";
        registry.register("crl_refused_lacking", help, lacking);
    }

    fn register_cas(&self, registry: &mut Registry) {
        let not_after = gauges();
        for reading in &self.cas {
            let labels = CaLabels {
                subject: reading.subject.clone(),
            };
            set(&not_after, &labels, unix(reading.not_after));
        }
        let help = "When a CA certificate ends, in Unix time";
        registry.register_with_unit("ca_not_after", help, Unit::Seconds, not_after);
        let alarms = Gauge::<i64>::default();
        alarms.set(i64::try_from(self.trust_alarms).unwrap_or(i64::MAX));
        let help = "Alarms about CAs and CRLs; the status lists them";
        registry.register("trust_alarms", help, alarms);
        let agents = gauges();
        for (ends, count) in ENDS.into_iter().zip(self.agents) {
            set(&agents, &EndLabels { ends }, count as f64);
        }
        let help = "Agents seen since the start, by the time that their certificates have left";
        registry.register("agents", help, agents);
        let forgotten = Gauge::<i64>::default();
        forgotten.set(i64::try_from(self.agents_forgotten).unwrap_or(i64::MAX));
        let help = "Agents seen and forgotten, to make room for others";
        registry.register("agents_forgotten", help, forgotten);
        let blocks = Gauge::<i64>::default();
        blocks.set(i64::try_from(self.blocks).unwrap_or(i64::MAX));
        let help = "Blocks of the operator in force; proscenium blocks lists them";
        registry.register("blocks", help, blocks);
        let refused = Gauge::<i64>::default();
        refused.set(i64::from(self.materials_refused));
        let help = "Whether materials on disk are refused (1) and the ones before stay in force, or not (0)";
        registry.register("materials_refused", help, refused);
        let copies = gauges();
        for (document, age) in &self.edge_copies {
            set(&copies, &DocumentLabels { document }, age.as_secs_f64());
        }
        let help = "Time since the CA said that a copy is what it has";
        registry.register_with_unit("edge_copy_age", help, Unit::Seconds, copies);
        let off = Gauge::<i64>::default();
        off.set(i64::from(self.renewal_off));
        let help = "Whether renewals are not passed on until a reload (1), since the CA has answered one with what is not the client's, or are as configured (0)";
        registry.register("renewal_off", help, off);
        let unusable = Gauge::<i64>::default();
        unusable.set(i64::from(self.state_unusable));
        let help = "Whether the state directory cannot be used (1), so that what is learned or told now does not outlast a restart, or can (0)";
        registry.register("state_unusable", help, unusable);
        if let Some(age) = self.crl_agent_copy_age {
            let gauge = Gauge::<f64, AtomicU64>::default();
            gauge.set(age.as_secs_f64());
            let help = "Age of the agent's own copy of the CRL, while that is the one in force";
            registry.register_with_unit("crl_agent_copy_age", help, Unit::Seconds, gauge);
        }
    }

    fn register_chains(&self, registry: &mut Registry) {
        let remembered = Gauge::<f64, AtomicU64>::default();
        remembered.set(self.chains.remembered as f64);
        let help = "Verified chains of certificates that are remembered";
        registry.register("chains_remembered", help, remembered);
        let lookups = Family::<LookupLabels, Counter>::default();
        for (result, count) in [("hit", self.chains.hits), ("miss", self.chains.misses)] {
            let result = result.to_owned();
            lookups
                .get_or_create(&LookupLabels { result })
                .inc_by(count);
        }
        let help = "Verdicts on certificates, by whether their chain was remembered";
        registry.register("chain_lookups", help, lookups);
    }
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
struct MemberLabels {
    pool: String,
    member: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CrlLabels {
    issuer: String,
    source: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DocumentLabels {
    document: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct EndLabels {
    ends: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct IssuerLabels {
    issuer: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CaLabels {
    subject: String,
}

fn gauges<L: Clone + Eq + Hash>() -> Family<L, Gauge<f64, AtomicU64>> {
    Family::default()
}

fn set<L: Clone + Eq + Hash>(values: &Family<L, Gauge<f64, AtomicU64>>, labels: &L, value: f64) {
    values.get_or_create(labels).set(value);
}

fn unix(time: SystemTime) -> f64 {
    match time.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(after) => after.as_secs_f64(),
        Err(before) => -before.duration().as_secs_f64(),
    }
}
