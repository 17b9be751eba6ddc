//! Every metric family, with handles that are resolved once, so that a request costs only a few relaxed additions.
//!
//! Labels are names of the configuration and words of this program, never text that a client controls.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use balancing::Work;
use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::encoding::{EncodeLabelSet, EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

use crate::alarms::Alarms;
use crate::exposition::Exposition;
use crate::gauges::Gauges;
use crate::latency::Latency;

mod counts;
mod members;

pub use counts::TrafficCounts;
pub use members::{
    ATTEMPT_DURATION_MEMBERS_MAX, MemberCounts, MemberMetrics, MemberWindow, ResponseFailure,
};
use members::{AttemptDurations, ResponseLabels};

/// All families; created once, shared by all workers and generations.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    /// Conditions that need an operator.
    pub alarms: Arc<Alarms>,
    connections_open: Family<ListenerLabels, Gauge>,
    handshakes: Family<HandshakeLabels, Counter>,
    limits_hit: Family<LimitLabels, Counter>,
    requests: Requests,
    request_duration: Family<WorkLabels, Latency>,
    refusals: Family<RefusalLabels, Counter>,
    certificate_refusals: Family<RefusalLabels, Counter>,
    csr_observed: Family<RefusalLabels, Counter>,
    edge_answers: Family<EdgeLabels, Counter>,
    access_rules: Family<RuleLabels, Counter>,
    failures: [Counter; FailureKind::ALL.len()],
    attempts: Family<AttemptLabels, Counter>,
    attempt_duration: AttemptDurations,
    failed_responses: Family<ResponseLabels, Counter>,
    tunnels_open: Family<PoolLabels, Gauge>,
    passthrough_connections: Family<MemberLabels, Counter>,
    passthrough_open: Family<MemberLabels, Gauge>,
    passthrough_bytes: Family<DirectionLabels, Counter>,
    certificates_omitted: Family<PoolLabels, Counter>,
    persistence_moves: Family<PoolLabels, Counter>,
    queue_refusals: Family<QueueLabels, Counter>,
    retries: Family<PoolLabels, Counter>,
    /// Pools and members that have series. A family cannot list its labels, so they are recorded here.
    named: Mutex<Named>,
    reloads: Family<ReloadLabels, Counter>,
    crl_fetches: Family<ReloadLabels, Counter>,
    generation: Gauge,
    /// Identity headers removed from requests. They are an attack, or a proxy in front of this one sets them by mistake.
    pub identity_headers_scrubbed: Counter,
    /// Requests in the URL layout of Puppet 0.25 to 3 that were refused because `legacy_routes` is off.
    pub legacy_requests_refused: Counter,
    /// Live connections closed because the client's certificate is no longer accepted.
    pub connections_revoked: Counter,
    /// Access records dropped because the sink could not keep up.
    pub access_records_dropped: Counter,
    /// Writes of access records that failed.
    pub access_log_errors: Counter,
    /// Events dropped because the socket of the log daemon was full.
    pub events_dropped: Counter,
    /// Checks of the materials on disk.
    pub materials_checks: Counter,
}

/// Pools and members, whose series are removed when the configuration no longer names them.
#[derive(Debug, Default)]
struct Named {
    pools: BTreeSet<String>,
    members: BTreeSet<(String, String)>,
    /// The series of listeners and reasons are never removed.
    listeners: BTreeSet<String>,
    refusal_reasons: BTreeSet<&'static str>,
    verdict_reasons: BTreeSet<&'static str>,
}

/// Counters of one listener.
#[derive(Clone, Debug)]
pub struct ListenerMetrics {
    connections_open: Gauge,
    handshakes: [Counter; HandshakeResult::ALL.len()],
    limits: [Counter; Limit::ALL.len()],
}

/// Label values that the crates above know before the first event occurs.
#[derive(Clone, Copy, Debug)]
pub struct KnownLabels<'a> {
    /// Reasons of verdicts that refuse a certificate.
    pub verdict_reasons: &'a [&'static str],
    /// Reasons for which a certificate request is refused.
    pub csr_reasons: &'a [&'static str],
    /// Other reasons for a response of the proxy itself.
    pub refusal_reasons: &'a [&'static str],
    /// Results of a CRL fetch.
    pub crl_fetch_results: &'a [&'static str],
    /// Documents of the CA that can be answered from a copy.
    pub documents: &'a [&'static str],
}

/// Counters of one route, pool and endpoint class.
#[derive(Clone, Debug)]
pub struct RequestMetrics {
    codes: Arc<CodeCounts>,
    duration: Latency,
}

/// Counters of one pool.
#[derive(Clone, Debug)]
pub struct PoolMetrics {
    /// Attempts after the first.
    pub retries: Counter,
    /// Requests sent without the client's certificate because it was too large.
    pub certificates_omitted: Counter,
    /// Requests of clients that left their persistent member.
    pub persistence_moves: Counter,
    tunnels_open: Gauge,
    queue_refusals: [Counter; QueueRefusal::ALL.len()],
}

/// Counters of one access rule.
#[derive(Clone, Debug)]
pub struct RuleMetrics {
    /// Requests that the rule refused.
    pub refused: Counter,
    /// Requests that the rule would have refused if it did not only observe.
    pub observed: Counter,
}

/// The result of a handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandshakeResult {
    /// Completed. A refused certificate shows in the access records of the requests.
    Ok,
    /// Ended by the proxy because of the certificate or its absence.
    Refused,
    /// No common parameters, or an invalid signature.
    Failed,
    /// Not completed in time.
    Timeout,
    /// Closed at a limit of the listener, because this handshake had waited longest for its client.
    Displaced,
    /// The client closed the connection.
    Closed,
    /// The client sent plain HTTP and was answered with status 400.
    PlainHttp,
    /// The client offered only TLS versions before 1.2.
    OldTls,
}

/// A limit that ended a connection, refused a request, or made a client wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// `connections_max` connections are open. The next client waits, or displaces a handshake that waits for its client.
    Connections,
    /// `handshakes_max` handshakes wait for their clients. The one that has waited longest is closed.
    Handshakes,
    /// One address has `connections_max_per_address` connections. A further connection is closed, or displaces a handshake that
    /// waits for its client.
    ConnectionsPerAddress,
    /// `handshakes_max_per_address` handshakes wait for clients at one address. The one that has waited longest is closed.
    HandshakesPerAddress,
    /// The process has no free file descriptor.
    Descriptors,
    /// One client has its share of a pool's connections, so its request waits. Or it has more than its fair share and reads the
    /// responses slowly while other requests wait, so one of its requests is ended.
    ClientShare,
    /// One client has `agent_max` requests that hold a JRuby, so its request waits.
    AgentMax,
    /// There is no room to buffer a body, so the body is streamed.
    BodyBuffers,
    /// A client sent its body too slowly.
    BodyRate,
    /// A client read a response too slowly.
    ReadRate,
    /// The request's head is too large.
    Head,
    /// The request's head took too long.
    HeadTimeout,
    /// No byte arrived within the idle time.
    IdleTimeout,
    /// The request's body is larger than its route allows.
    Body,
    /// A refused body was larger than the amount that the proxy reads and drops.
    Discard,
    /// The client's or the member's body stalled.
    BodyTimeout,
    /// The client read no byte of a response.
    WriteTimeout,
    /// An HTTP/2 client cancelled more requests than allowed before their responses.
    Resets,
    /// An HTTP/2 client sent too many frames without content.
    Frames,
    /// No byte passed through a tunnel in either direction.
    TunnelIdleTimeout,
}

/// Why a pool's queue refused a request. The words are also reasons in access records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueRefusal {
    /// The queue has reached its limit.
    Full,
    /// The queue was full, and the slot was needed for a request whose refusal would make an agent's run fail.
    MadeRoom,
    /// The request waited for the maximum time.
    Timeout,
    /// The client has its share of the pool, and the maximum number of its requests wait.
    ClientShare,
    /// The client has `agent_max` requests that hold a JRuby, and the maximum number of its requests wait.
    AgentMax,
}

/// The result of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttemptResult {
    /// The head of a response arrived.
    Ok,
    /// The member's name does not resolve to an address.
    Resolve,
    /// The connection failed.
    Connect,
    /// The TLS handshake failed.
    Handshake,
    /// The request could not be written completely.
    Send,
    /// The connection ended before the head of a response.
    Receive,
    /// The head of a response did not arrive in time.
    Timeout,
    /// The request moved to another member, because this one went down or into maintenance.
    Moved,
    /// The client closed the connection first, or its body was refused.
    Abandoned,
}

/// What a client got in place of a complete response from a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// An error of the proxy itself, with status 500 or above: no member was available, its queue was full, or a member did not
    /// respond.
    Here,
    /// A member's response with status 500 or above.
    Member,
    /// A refusal by the proxy: a handshake that it ended because of the certificate, or a status below 500.
    Refused,
    /// A response that was cut short, by the member or by the proxy.
    Cut,
}

/// The result of a reload, as counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CountedReload {
    /// A new generation is active.
    Applied,
    /// Nothing changed.
    Unchanged,
    /// There were problems; the old generation stays active.
    Refused,
}

impl Default for Metrics {
    fn default() -> Self {
        let failures = Family::<FailureLabels, Counter>::default();
        let mut metrics = Self {
            registry: Registry::with_prefix(PREFIX),
            alarms: Arc::default(),
            connections_open: Family::default(),
            handshakes: Family::default(),
            limits_hit: Family::default(),
            requests: Requests::default(),
            request_duration: Family::default(),
            refusals: Family::default(),
            certificate_refusals: Family::default(),
            csr_observed: Family::default(),
            edge_answers: Family::default(),
            access_rules: Family::default(),
            failures: FailureKind::ALL.map(|kind| {
                failures.get_or_create_owned(&FailureLabels {
                    kind: kind.as_str(),
                })
            }),
            attempts: Family::default(),
            attempt_duration: AttemptDurations::default(),
            failed_responses: Family::default(),
            tunnels_open: Family::default(),
            passthrough_connections: Family::default(),
            passthrough_open: Family::default(),
            passthrough_bytes: Family::default(),
            certificates_omitted: Family::default(),
            persistence_moves: Family::default(),
            queue_refusals: Family::default(),
            retries: Family::default(),
            reloads: Family::default(),
            named: Mutex::default(),
            crl_fetches: Family::default(),
            generation: Gauge::default(),
            identity_headers_scrubbed: Counter::default(),
            legacy_requests_refused: Counter::default(),
            connections_revoked: Counter::default(),
            access_records_dropped: Counter::default(),
            access_log_errors: Counter::default(),
            events_dropped: Counter::default(),
            materials_checks: Counter::default(),
        };
        metrics.register_downstream();
        metrics.register_requests();
        metrics.register_process();
        let help = "Requests and handshakes that got no complete response of a member with a status below 500, by kind";
        metrics.registry.register("failures", help, failures);
        metrics
    }
}

impl Metrics {
    fn register_downstream(&mut self) {
        let registry = &mut self.registry;
        registry.register(
            "connections_open",
            "Connections open",
            self.connections_open.clone(),
        );
        registry.register(
            "handshakes",
            "TLS handshakes, by result",
            self.handshakes.clone(),
        );
        let help = "Connections closed or delayed and requests refused, by the limit that was hit";
        registry.register("limits_hit", help, self.limits_hit.clone());
        let help = "Connections closed because the client certificate is no longer accepted";
        registry.register(
            "connections_revoked",
            help,
            self.connections_revoked.clone(),
        );
    }

    fn register_requests(&mut self) {
        let registry = &mut self.registry;
        registry.register(
            "requests",
            "Requests answered, by status code",
            self.requests.clone(),
        );
        let help = "Time from the head of a request to the last byte of its response";
        registry.register_with_unit(
            "request_duration",
            help,
            Unit::Seconds,
            self.request_duration.clone(),
        );
        registry.register(
            "refusals",
            "Requests that the proxy answered with an error of its own, by reason",
            self.refusals.clone(),
        );
        let help = "Requests and handshakes refused because of the client certificate, by the reason of the verdict";
        registry.register(
            "certificate_refusals",
            help,
            self.certificate_refusals.clone(),
        );
        let help =
            "Certificate requests forwarded although a rule in observe mode matched, by reason";
        registry.register(
            "certificate_requests_observed",
            help,
            self.csr_observed.clone(),
        );
        let help = "Requests that matched a refusing access rule, by whether the rule refused or only observed them";
        registry.register("access_rule_refusals", help, self.access_rules.clone());
        let help = "Requests for CA documents answered from a copy, by result";
        registry.register("edge_answers", help, self.edge_answers.clone());
        let help =
            "Requests in the URL layout of Puppet 0.25 to 3 refused because legacy_routes is off";
        registry.register(
            "legacy_requests_refused",
            help,
            self.legacy_requests_refused.clone(),
        );
        let help = "Identity headers removed from requests of clients";
        registry.register(
            "identity_headers_scrubbed",
            help,
            self.identity_headers_scrubbed.clone(),
        );
        registry.register(
            "attempts",
            "Attempts on members, by result",
            self.attempts.clone(),
        );
        let help = "Time until a member responded to an attempt: from the last byte of the request to the head of the response; without responses of status 500 and above";
        registry.register_with_unit(
            "attempt_duration",
            help,
            Unit::Seconds,
            self.attempt_duration.clone(),
        );
        let help =
            "Responses of a member with status 500 or above (`5xx`), or that it broke off (`cut`)";
        registry.register(
            "member_failed_responses",
            help,
            self.failed_responses.clone(),
        );
        let help = "Tunnels open after an HTTP upgrade";
        registry.register("tunnels_open", help, self.tunnels_open.clone());
        let help = "Connections passed through to a member";
        registry.register(
            "member_passthrough_connections",
            help,
            self.passthrough_connections.clone(),
        );
        let help = "Connections passed through to a member that are open";
        registry.register(
            "member_passthrough_open",
            help,
            self.passthrough_open.clone(),
        );
        let help = "Bytes passed through, by the side that sent them";
        registry.register(
            "member_passthrough_bytes",
            help,
            self.passthrough_bytes.clone(),
        );
        let help = "Requests forwarded without the client certificate because it was too large";
        registry.register(
            "certificates_omitted",
            help,
            self.certificates_omitted.clone(),
        );
        let help = "Requests that another member got than the one that their client stays with, because that one was not available or at its limit";
        registry.register("persistence_moves", help, self.persistence_moves.clone());
        let help = "Requests that the queue of a pool refused, by reason";
        registry.register("pool_queue_refusals", help, self.queue_refusals.clone());
        registry.register(
            "retries",
            "Attempts after the first attempt of a request",
            self.retries.clone(),
        );
    }

    fn register_process(&mut self) {
        let registry = &mut self.registry;
        registry.register("reloads", "Reloads, by result", self.reloads.clone());
        registry.register(
            "crl_fetches",
            "CRL fetches from the CA, by result",
            self.crl_fetches.clone(),
        );
        registry.register(
            "generation",
            "Number of the active generation of the configuration",
            self.generation.clone(),
        );
        let help = "Access records dropped because they could not be written, or not fast enough";
        registry.register(
            "access_records_dropped",
            help,
            self.access_records_dropped.clone(),
        );
        let help = "Writes of access records that failed";
        registry.register("access_log_errors", help, self.access_log_errors.clone());
        let help = "Events dropped because the log daemon did not read them fast enough";
        registry.register("events_dropped", help, self.events_dropped.clone());
        let help = "Checks of certificates, keys, CA bundles and CRLs on disk for changes";
        registry.register("materials_checks", help, self.materials_checks.clone());
    }

    /// The handle of a listener; resolve it once, when the listener starts.
    pub fn listener(&self, name: &str) -> ListenerMetrics {
        let listener = || name.to_owned();
        self.named().listeners.insert(listener());
        let labels = ListenerLabels {
            listener: listener(),
        };
        ListenerMetrics {
            connections_open: self.connections_open.get_or_create_owned(&labels),
            handshakes: HandshakeResult::ALL.map(|result| {
                self.handshakes.get_or_create_owned(&HandshakeLabels {
                    listener: listener(),
                    result: result.as_str(),
                })
            }),
            limits: Limit::ALL.map(|limit| {
                self.limits_hit.get_or_create_owned(&LimitLabels {
                    listener: listener(),
                    limit: limit.as_str(),
                })
            }),
        }
    }

    /// The handle of a route, pool, class and kind of work (`-` if there is none); resolve it once per generation.
    pub fn request(
        &self,
        route: &str,
        pool: &str,
        class: &'static str,
        work: Option<Work>,
    ) -> RequestMetrics {
        // Requests without a pool are counted under the pool name `-`, which is never removed.
        if pool != "-" {
            self.named().pools.insert(pool.to_owned());
        }
        RequestMetrics {
            codes: self.requests.codes(route, pool, class),
            duration: self.request_duration.get_or_create_owned(&WorkLabels {
                pool: pool.to_owned(),
                work: work.map_or("-", Work::as_str),
            }),
        }
    }

    /// The handle of a pool; resolve it once per generation.
    pub fn pool(&self, name: &str) -> PoolMetrics {
        let pool = || name.to_owned();
        self.named().pools.insert(pool());
        PoolMetrics {
            retries: self
                .retries
                .get_or_create_owned(&PoolLabels { pool: pool() }),
            certificates_omitted: self
                .certificates_omitted
                .get_or_create_owned(&PoolLabels { pool: pool() }),
            persistence_moves: self
                .persistence_moves
                .get_or_create_owned(&PoolLabels { pool: pool() }),
            tunnels_open: self
                .tunnels_open
                .get_or_create_owned(&PoolLabels { pool: pool() }),
            queue_refusals: QueueRefusal::ALL.map(|reason| {
                self.queue_refusals.get_or_create_owned(&QueueLabels {
                    pool: pool(),
                    reason: reason.as_str(),
                })
            }),
        }
    }

    /// The handle of a passthrough member; resolve it once per generation.
    pub fn passthrough(&self, pool: &str, member: &str) -> PassthroughMetrics {
        let labels = MemberLabels {
            pool: pool.to_owned(),
            member: member.to_owned(),
        };
        let bytes = |from| {
            let labels = DirectionLabels {
                pool: pool.to_owned(),
                member: member.to_owned(),
                from,
            };
            self.passthrough_bytes.get_or_create_owned(&labels)
        };
        PassthroughMetrics {
            connections: self.passthrough_connections.get_or_create_owned(&labels),
            open: self.passthrough_open.get_or_create_owned(&labels),
            from_client: bytes(FROM_CLIENT),
            from_member: bytes(FROM_MEMBER),
        }
    }

    /// Removes the series of pools and members that no longer exist. `is_kept` is also called for a pool alone, without a
    /// member.
    pub fn retain_pools(&self, is_kept: impl Fn(&str, Option<&str>) -> bool) {
        let mut named = self.named();
        let gone = named
            .members
            .extract_if(.., |(pool, member)| !is_kept(pool, Some(member)));
        for (pool, member) in gone {
            for from in [FROM_CLIENT, FROM_MEMBER] {
                self.passthrough_bytes.remove(&DirectionLabels {
                    pool: pool.clone(),
                    member: member.clone(),
                    from,
                });
            }
            let labels = MemberLabels {
                pool: pool.clone(),
                member: member.clone(),
            };
            self.passthrough_connections.remove(&labels);
            self.passthrough_open.remove(&labels);
            for result in AttemptResult::ALL.map(AttemptResult::as_str) {
                self.attempts.remove(&AttemptLabels {
                    pool: pool.clone(),
                    member: member.clone(),
                    result,
                });
            }
            for failure in ResponseFailure::ALL.map(ResponseFailure::as_str) {
                self.failed_responses.remove(&ResponseLabels {
                    pool: pool.clone(),
                    member: member.clone(),
                    failure,
                });
            }
            self.attempt_duration.forget(&(pool, member));
        }
        for pool in named.pools.extract_if(.., |pool| !is_kept(pool, None)) {
            self.requests.forget(&pool);
            for reason in QueueRefusal::ALL.map(QueueRefusal::as_str) {
                self.queue_refusals.remove(&QueueLabels {
                    pool: pool.clone(),
                    reason,
                });
            }
            for work in Work::ALL.map(Work::as_str) {
                let pool = pool.clone();
                self.request_duration.remove(&WorkLabels { pool, work });
            }
            let labels = PoolLabels { pool };
            self.retries.remove(&labels);
            self.certificates_omitted.remove(&labels);
            self.persistence_moves.remove(&labels);
            self.tunnels_open.remove(&labels);
        }
    }

    fn named(&self) -> MutexGuard<'_, Named> {
        self.named.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a request that reached no member. `reason` is that of the access record.
    pub fn refused(&self, reason: &'static str) {
        self.refusals.get_or_create(&RefusalLabels { reason }).inc();
    }

    /// Counts what a client got in place of a complete response from a member.
    pub fn failed(&self, kind: FailureKind) {
        self.failures[kind as usize].inc();
    }

    /// Counts a request or handshake refused because of the client's certificate. `reason` is that of the verdict.
    pub fn certificate_refused(&self, reason: &'static str) {
        self.certificate_refusals
            .get_or_create(&RefusalLabels { reason })
            .inc();
    }

    /// Creates the series whose labels are known in advance, so that they start at zero and `rate` counts the first event.
    pub fn start_at_zero(&self, known: &KnownLabels<'_>) {
        for result in CountedReload::ALL.map(CountedReload::as_str) {
            drop(self.reloads.get_or_create(&ReloadLabels { result }));
        }
        for &result in known.crl_fetch_results {
            drop(self.crl_fetches.get_or_create(&ReloadLabels { result }));
        }
        let mut named = self.named();
        named.verdict_reasons.extend(known.verdict_reasons);
        named.refusal_reasons.extend(known.refusal_reasons);
        named.refusal_reasons.extend(known.csr_reasons);
        drop(named);
        for &reason in known.verdict_reasons {
            let labels = RefusalLabels { reason };
            drop(self.certificate_refusals.get_or_create(&labels));
        }
        for &reason in known.csr_reasons {
            let labels = RefusalLabels { reason };
            drop(self.csr_observed.get_or_create(&labels));
            drop(self.refusals.get_or_create(&labels));
        }
        for &reason in known.refusal_reasons {
            drop(self.refusals.get_or_create(&RefusalLabels { reason }));
        }
        for &document in known.documents {
            for result in EDGE_RESULTS {
                let labels = EdgeLabels { document, result };
                drop(self.edge_answers.get_or_create(&labels));
            }
        }
    }

    /// Counts a certificate request that passed because the rules only observe. `reason` is what an access record would contain
    /// if the rules refused it.
    pub fn csr_observed(&self, reason: &'static str) {
        self.csr_observed
            .get_or_create(&RefusalLabels { reason })
            .inc();
    }

    /// The handle of an access rule; resolve it once per generation.
    pub fn access_rule(&self, name: &str) -> RuleMetrics {
        let counter = |result| {
            let rule = name.to_owned();
            self.access_rules
                .get_or_create_owned(&RuleLabels { rule, result })
        };
        RuleMetrics {
            refused: counter("refused"),
            observed: counter("observed"),
        }
    }

    /// Counts a document of the CA that was answered from a copy. `unchanged`: whether the client already had the document.
    pub fn edge_answered(&self, document: &'static str, unchanged: bool) {
        let result = EDGE_RESULTS[usize::from(unchanged)];
        let labels = EdgeLabels { document, result };
        self.edge_answers.get_or_create(&labels).inc();
    }

    /// Counts a reload.
    pub fn reloaded(&self, result: CountedReload) {
        let labels = ReloadLabels {
            result: result.as_str(),
        };
        self.reloads.get_or_create(&labels).inc();
    }

    /// Counts a fetch of CRLs by its result.
    pub fn crls_fetched(&self, result: &'static str) {
        let labels = ReloadLabels { result };
        self.crl_fetches.get_or_create(&labels).inc();
    }

    /// Sets the number of the active generation.
    pub fn generation(&self, number: u64) {
        self.generation
            .set(i64::try_from(number).unwrap_or(i64::MAX));
    }

    /// All families in this format, including the gauges that were read for this scrape.
    pub fn encode(&self, gauges: impl IntoIterator<Item = Gauges>, format: Exposition) -> String {
        let mut alarms = Gauges::of_proscenium();
        self.alarms.register(&mut alarms.0);
        let read = [alarms].into_iter().chain(gauges);
        let mut text = String::new();
        let encoded = encode_registry(&mut text, &self.registry)
            .and_then(|()| {
                read.map(|gauges| gauges.0)
                    .try_for_each(|read| encode_registry(&mut text, &read))
            })
            .and_then(|()| encode_eof(&mut text));
        encoded.expect("writing to a String cannot fail");
        format.of_openmetrics(text)
    }
}

impl ListenerMetrics {
    /// Counts a handshake that has ended.
    pub fn handshake(&self, result: HandshakeResult) {
        self.handshakes[result as usize].inc();
    }

    /// Counts a limit that was reached.
    pub fn limit(&self, limit: Limit) {
        self.limits[limit as usize].inc();
    }
}

impl RequestMetrics {
    /// Counts an exchange that has ended.
    pub fn finished(&self, code: u16, total: Duration) {
        self.codes.count(code);
        self.duration.observe(total);
    }
}

/// An open tunnel. It is counted until it is dropped.
#[derive(Debug)]
pub struct OpenTunnel(Gauge);

impl Drop for OpenTunnel {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// Counters of a passthrough member.
#[derive(Clone, Debug)]
pub struct PassthroughMetrics {
    connections: Counter,
    open: Gauge,
    from_client: Counter,
    from_member: Counter,
}

/// A client's connection. It is counted as open until it is dropped.
#[derive(Debug)]
pub struct CountedConnection(Gauge);

impl ListenerMetrics {
    /// Counts a new connection.
    pub fn opens(&self) -> CountedConnection {
        self.connections_open.inc();
        CountedConnection(self.connections_open.clone())
    }
}

impl Drop for CountedConnection {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// A passed-through connection. It is counted as open until it is dropped.
#[derive(Debug)]
pub struct OpenPassthrough {
    open: Gauge,
    from_client: Counter,
    from_member: Counter,
}

impl PassthroughMetrics {
    /// Counts a new connection.
    pub fn opens(&self) -> OpenPassthrough {
        self.connections.inc();
        self.open.inc();
        OpenPassthrough {
            open: self.open.clone(),
            from_client: self.from_client.clone(),
            from_member: self.from_member.clone(),
        }
    }
}

impl OpenPassthrough {
    /// Counts bytes sent to the member and to the client.
    pub fn moved(&self, from_client: u64, from_member: u64) {
        self.from_client.inc_by(from_client);
        self.from_member.inc_by(from_member);
    }
}

impl Drop for OpenPassthrough {
    fn drop(&mut self) {
        self.open.dec();
    }
}

/// The values of the label `from`.
const FROM_CLIENT: &str = "client";
const FROM_MEMBER: &str = "member";

impl PoolMetrics {
    /// The number of open tunnels.
    pub fn tunnels_open(&self) -> i64 {
        self.tunnels_open.get()
    }

    /// Counts a new tunnel.
    pub fn tunnel(&self) -> OpenTunnel {
        self.tunnels_open.inc();
        OpenTunnel(self.tunnels_open.clone())
    }
}

impl PoolMetrics {
    /// Counts a request that the queue refused.
    pub fn queue_refused(&self, reason: QueueRefusal) {
        self.queue_refusals[reason as usize].inc();
    }

    /// How many requests the queue has refused since the start, by reason.
    pub fn queue_refusals(&self) -> impl Iterator<Item = (QueueRefusal, u64)> {
        QueueRefusal::ALL
            .map(|reason| (reason, self.queue_refusals[reason as usize].get()))
            .into_iter()
    }
}

impl AttemptResult {
    /// Whether the attempt failed, and not because of its client or of a member that went out of service.
    const fn is_failure(self) -> bool {
        !matches!(self, Self::Ok | Self::Moved | Self::Abandoned)
    }
}

macro_rules! words {
    ($enum:ident { $($variant:ident => $word:literal),* $(,)? }) => {
        impl $enum {
            /// All variants, in the order of declaration.
            pub const ALL: [Self; [$(Self::$variant),*].len()] = [$(Self::$variant),*];

            /// The word in metrics and records.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $word),*
                }
            }
        }
    };
}

words!(HandshakeResult {
    Ok => "ok",
    Refused => "refused",
    Failed => "failed",
    Timeout => "timeout",
    Displaced => "displaced",
    Closed => "closed",
    PlainHttp => "plain-http",
    OldTls => "old-tls",
});
words!(Limit {
    Connections => "connections_max",
    Handshakes => "handshakes_max",
    ConnectionsPerAddress => "connections_max_per_address",
    HandshakesPerAddress => "handshakes_max_per_address",
    Descriptors => "descriptors",
    ClientShare => "client_share",
    AgentMax => "agent_max",
    BodyBuffers => "body_buffers_max",
    BodyRate => "body_rate_min",
    ReadRate => "read_rate_min",
    Head => "head",
    HeadTimeout => "head_timeout",
    IdleTimeout => "idle_timeout",
    Body => "body",
    Discard => "discard",
    BodyTimeout => "body_timeout",
    WriteTimeout => "write_timeout",
    Resets => "resets",
    Frames => "frames",
    TunnelIdleTimeout => "tunnel_idle_timeout",
});
words!(QueueRefusal {
    Full => "queue-full",
    MadeRoom => "queue-made-room",
    Timeout => "queue-timeout",
    ClientShare => "client-share",
    AgentMax => "agent-max",
});
words!(AttemptResult {
    Ok => "ok",
    Resolve => "resolve",
    Connect => "connect",
    Handshake => "handshake",
    Send => "send",
    Receive => "receive",
    Timeout => "timeout",
    Moved => "moved",
    Abandoned => "abandoned",
});
words!(ResponseFailure {
    ServerError => "5xx",
    Cut => "cut",
});
words!(FailureKind {
    Here => "here",
    Member => "member",
    Refused => "refused",
    Cut => "cut",
});
words!(CountedReload {
    Applied => "applied",
    Unchanged => "unchanged",
    Refused => "refused",
});

/// Requests by route, pool, class and status code. They have a family of their own, because one handle counts many codes, and
/// only codes that have occurred are exported.
#[derive(Clone, Debug, Default)]
struct Requests(Arc<Mutex<BTreeMap<RouteKey, Arc<CodeCounts>>>>);

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct RouteKey {
    route: String,
    pool: String,
    class: &'static str,
}

impl Requests {
    fn codes(&self, route: &str, pool: &str, class: &'static str) -> Arc<CodeCounts> {
        let key = RouteKey {
            route: route.to_owned(),
            pool: pool.to_owned(),
            class,
        };
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(counts.entry(key).or_default())
    }

    /// Requests by the first digit of their status code (`2xx`), or `other`.
    fn by_hundred(&self) -> BTreeMap<String, u64> {
        let routes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut sums = BTreeMap::new();
        for (code, count) in routes.values().flat_map(|counts| counts.seen()) {
            let hundred = match code.starts_with(|first: char| first.is_ascii_digit()) {
                true => format!("{}xx", &code[..1]),
                false => code.to_owned(),
            };
            *sums.entry(hundred).or_default() += count;
        }
        sums
    }

    fn forget(&self, pool: &str) {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        counts.retain(|key, _| key.pool != pool);
    }
}

impl EncodeMetric for Requests {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), fmt::Error> {
        let routes = self
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        for (key, counts) in routes {
            for (code, count) in counts.seen() {
                let labels = RequestLabels {
                    route: key.route.clone(),
                    pool: key.pool.clone(),
                    class: key.class,
                    code,
                };
                encoder
                    .encode_family(&labels)?
                    .encode_counter::<NoLabelSet, _, u64>(&count, None)?;
            }
        }
        Ok(())
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Counter
    }
}

/// A count for each status code of interest, and a count for the other codes of each hundred (`2xx`, `3xx` and so on).
#[derive(Debug, Default)]
struct CodeCounts {
    exact: [AtomicU64; CODES.len()],
    hundreds: [AtomicU64; HUNDREDS.len()],
}

impl CodeCounts {
    fn count(&self, code: u16) {
        let count = match CODES.binary_search_by_key(&code, |(code, _)| *code) {
            Ok(index) => &self.exact[index],
            Err(_) => &self.hundreds[usize::from(code / 100).min(HUNDREDS.len() - 1)],
        };
        count.fetch_add(1, Ordering::Relaxed);
    }

    fn seen(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let exact = CODES.iter().map(|(_, word)| *word).zip(&self.exact);
        let hundreds = HUNDREDS.into_iter().zip(&self.hundreds);
        exact
            .chain(hundreds)
            .map(|(word, count)| (word, count.load(Ordering::Relaxed)))
            .filter(|(_, count)| *count > 0)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ListenerLabels {
    listener: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct HandshakeLabels {
    listener: String,
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LimitLabels {
    listener: String,
    limit: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    route: String,
    pool: String,
    class: &'static str,
    code: &'static str,
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
struct DirectionLabels {
    pool: String,
    member: String,
    from: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WorkLabels {
    pool: String,
    work: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct QueueLabels {
    pool: String,
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AttemptLabels {
    pool: String,
    member: String,
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct EdgeLabels {
    document: &'static str,
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct FailureLabels {
    kind: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RefusalLabels {
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RuleLabels {
    rule: String,
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReloadLabels {
    result: &'static str,
}

/// Results of a response from a copy: the document itself, or "not modified" because the client has it already.
const EDGE_RESULTS: [&str; 2] = ["full", "not-modified"];
pub(crate) const PREFIX: &str = "proscenium";

/// Status codes with a count of their own, sorted. 499 means that the client closed the connection.
const CODES: [(u16, &str); 22] = [
    (101, "101"),
    (200, "200"),
    (201, "201"),
    (204, "204"),
    (206, "206"),
    (301, "301"),
    (302, "302"),
    (304, "304"),
    (400, "400"),
    (401, "401"),
    (403, "403"),
    (404, "404"),
    (405, "405"),
    (408, "408"),
    (413, "413"),
    (429, "429"),
    (431, "431"),
    (499, "499"),
    (500, "500"),
    (502, "502"),
    (503, "503"),
    (504, "504"),
];
const HUNDREDS: [&str; 7] = ["0xx", "1xx", "2xx", "3xx", "4xx", "5xx", "other"];

#[cfg(test)]
mod tests;
