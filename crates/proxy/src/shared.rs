//! State that all worker threads share.

use std::{
    collections::BTreeSet,
    hash::{BuildHasher, Hasher},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, SystemTime},
};

use arc_swap::ArcSwap;
use balancing::{Availability, EligibleMembers, Health, HealthChange, MoveLimiter};
use pki::PersistenceKey;
use routing::pool_names;
use telemetry::{AccessLogHandle, Agents, Alarm, Metrics, RecentRefusals, SlowestRequests};
use tokio::{
    sync::{Notify, watch},
    time::Instant,
};
use upstream::Crew;

use crate::{
    client_shares::Shares,
    clock_offsets::{Clocks, DateEvidence},
    closing_tunnels::ClosingTunnels,
    descriptors::Descriptors,
    edge::Edge,
    forged_headers::ForgedHeaders,
    generation::Generation,
    long_requests::LongRequests,
    member_history::MemberHistory,
    old_agents::OldAgents,
    open_tunnels::OpenTunnels,
    queue_alarm::FullQueues,
    renewal_switch::Renewal,
    settings::OnDown,
    signals::{LifecyclePhase, Signals},
    slow_readers::SlowReaders,
    strangers::Strangers,
};

/// The state that all workers share.
#[derive(Debug)]
pub struct Shared {
    /// The active generation. No other cell holds it.
    pub current: Arc<ArcSwap<Generation>>,
    /// Metric families.
    pub metrics: Arc<Metrics>,
    /// The access log.
    pub sink: AccessLogHandle,
    /// Agents that connected.
    pub agents: Agents,
    /// Clients that were refused recently.
    pub refusals: RecentRefusals,
    /// Signals to every connection.
    pub signals: watch::Sender<Signals>,
    /// Workers' requests to each other to close idle member connections.
    pub crew: Arc<Crew>,
    /// When the process started: the zero of the balancer's clock.
    pub started: Instant,
    /// Copies of the CA's documents.
    pub edge: Edge,
    /// Whether renewals are passed on.
    pub renewal: Renewal,
    /// What was last observed about members, for the status.
    pub members: MemberHistory,
    /// Notified when a member goes down.
    pub member_down: Notify,
    /// Notified when the pool `ca` has an available member again.
    pub ca_recovered: Notify,
    pub(crate) full_queues: FullQueues,
    /// The descriptors of the process.
    pub descriptors: Descriptors,
    /// Open tunnels, by member.
    pub tunnels: OpenTunnels,
    /// Requests that have waited several seconds for a member.
    pub long_requests: Arc<LongRequests>,
    /// The slowest requests of the last hours.
    pub slowest: SlowestRequests,
    pub(crate) leaving: ClosingTunnels,
    /// The key of persistence cookies.
    pub persistence: PersistenceKey,
    pub(crate) persistence_events: MoveLimiter,
    pub(crate) strangers: Strangers,
    pub(crate) shares: Shares,
    pub(crate) slow_readers: Arc<SlowReaders>,
    pub(crate) forged: ForgedHeaders,
    pub(crate) clocks: Clocks,
    pub(crate) old_agents: OldAgents,
    pacer: AtomicU64,
}

impl Shared {
    /// The shared state of a process that starts now.
    pub fn new(
        current: Arc<ArcSwap<Generation>>,
        metrics: Arc<Metrics>,
        sink: AccessLogHandle,
    ) -> Self {
        let trust_generation = current.load().trust.generation();
        Self {
            current,
            renewal: Renewal::new(&metrics.alarms),
            metrics,
            sink,
            agents: Agents::default(),
            refusals: RecentRefusals::default(),
            signals: watch::Sender::new(Signals {
                phase: LifecyclePhase::Serving,
                trust_generation,
                cut_at: None,
            }),
            crew: Arc::default(),
            started: Instant::now(),
            edge: Edge::default(),
            members: MemberHistory::default(),
            member_down: Notify::new(),
            ca_recovered: Notify::new(),
            full_queues: FullQueues::default(),
            descriptors: Descriptors::default(),
            tunnels: OpenTunnels::default(),
            long_requests: Arc::default(),
            slowest: SlowestRequests::default(),
            leaving: ClosingTunnels::default(),
            persistence: PersistenceKey::random(),
            persistence_events: MoveLimiter::default(),
            strangers: Strangers::new(seed()),
            shares: Shares::default(),
            slow_readers: Arc::default(),
            forged: ForgedHeaders::default(),
            clocks: Clocks::default(),
            old_agents: OldAgents::default(),
            pacer: AtomicU64::new(0),
        }
    }

    /// Time since the process started.
    pub fn now(&self) -> Duration {
        self.started.elapsed()
    }

    /// Whether the process is cutting off the remaining connections.
    pub(crate) fn is_cutting(&self) -> bool {
        self.signals.borrow().phase == LifecyclePhase::Cutting
    }

    /// Bytes of request bodies that are buffered now, over all workers.
    pub fn body_buffer_bytes(&self) -> u64 {
        self.shares.body_buffer_bytes()
    }

    /// How long to wait before the next connection may be closed or re-verified for revocation, at `rate` per second over all
    /// workers.
    pub(crate) fn revocation_turn(&self, rate: u32) -> Duration {
        let gap = 1_000_000 / u64::from(rate.max(1));
        let now = self.now().as_micros() as u64;
        let turn = self
            .pacer
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |next| {
                Some(next.max(now) + gap)
            })
            .unwrap_or_else(|next| next);
        Duration::from_micros(turn.max(now) - now)
    }

    /// Logs a change of a member's health, and notes it for the status.
    pub fn health_changed(&self, pool: &str, member: &str, change: &HealthChange) {
        let (from, to, cause) = (change.from, change.to, change.cause);
        self.members.changed(pool, member, cause, SystemTime::now());
        // A member that comes up is not a warning, because every start would then warn about every member.
        match to {
            Health::Up => {
                tracing::info!(history.kind = "member", pool, member, %from, %to, %cause, "member health changed");
            }
            _ => {
                tracing::warn!(history.kind = "member", pool, member, %from, %to, %cause, "member health changed");
            }
        }
        if to == Health::Down {
            self.member_down.notify_waiters();
        }
        self.assess_pool(pool);
        let generation = self.current.load();
        if generation
            .pool(pool)
            .is_some_and(|pool| pool.rules.tunnels.on_down == OnDown::Cut)
        {
            // The member's tunnels must check whether they have to close.
            self.signals.send_modify(|_| ());
        }
    }

    /// Raises or clears the alarm about a pool, whose members may have changed.
    pub fn assess_pool(&self, pool: &str) {
        let generation = self.current.load();
        let mut pools = generation.pools.iter();
        let found = pools.find(|known| &**known.pool.name() == pool);
        if let Some(found) = found {
            let settings = &found.rules.guards.ejection;
            if found.pool.end_ejections_in_panic(settings, self.now()) {
                tracing::warn!(
                    history.kind = "member",
                    pool,
                    "ejections ended: fewer members are available than panic_threshold"
                );
            }
            found.admission.members_changed();
        }
        let alarms = &self.metrics.alarms;
        let is_raised = || alarms.get(Alarm::PoolUnavailable, pool).is_some();
        let was_unavailable = pool == pool_names::CA && is_raised();
        alarms.assess(Alarm::PoolUnavailable, pool, SystemTime::now(), || {
                found.filter(|known| known.pool.available() == 0).map(|known| {
                    let effect = if known.rules.passthrough.is_used {
                        "connections to it are closed"
                    } else {
                        "requests to it wait or get 503"
                    };
                    format!("no member of pool {pool} is available, and {effect}; proscenium status shows why")
                })
            });
        if was_unavailable && !is_raised() {
            self.ca_recovered.notify_one();
        }
        self.note_causes(pool);
    }

    /// Notes which other alarms explain that no member of a pool is available.
    pub fn note_causes(&self, pool: &str) {
        let generation = self.current.load();
        let Some(found) = generation.pool(pool) else {
            return;
        };
        let is_empty = found.members.is_empty();
        // One member with another cause is enough to doubt that the pool would be available with a right clock.
        let correction = self.clock_correction();
        let is_refused = |address: &str| {
            let fault = self.members.of(pool, address).date_fault;
            fault
                .zip(correction)
                .is_some_and(|(fault, correction)| fault.may_end_with(correction))
        };
        let by_date = found.connectors().all(|member| is_refused(&member.address));
        let alarms = &self.metrics.alarms;
        for (cause, about, follows) in [
            (Alarm::ClockOffset, "", !is_empty && by_date),
            (Alarm::DnsAnswer, &*format!("{pool}: "), is_empty),
        ] {
            alarms.note_cause_of((Alarm::PoolUnavailable, pool), (cause, about), follows);
        }
    }

    /// Whether requests may be waiting for a member of this pool to return, because none is available.
    pub fn awaits_return(&self, pool: &str) -> bool {
        let generation = self.current.load();
        generation.pool(pool).is_some_and(|known| {
            let wait_max = known.settings.unavailable_wait_max;
            let any = EligibleMembers::Any;
            let availability = known.pool.availability(any, wait_max, self.now());
            matches!(availability, Availability::Returning { .. })
        })
    }

    /// Clears the alarms about queues that are no longer full, and about limits of this host that are no longer hit. Call this
    /// from time to time.
    pub fn assess_limits(&self) {
        self.full_queues.assess(&self.metrics.alarms, self.now());
        self.descriptors.assess(&self.metrics.alarms, self.now());
    }

    /// The same as [`assess_pool`](Self::assess_pool), for every pool of the active generation and every pool with an alarm.
    pub fn assess_pools(&self) {
        let generation = self.current.load_full();
        let named = generation.pools.iter();
        let named = named.map(|runtime| runtime.pool.name().to_string());
        let raised = self.metrics.alarms.active().into_iter();
        let raised = raised.filter(|active| active.alarm == Alarm::PoolUnavailable);
        let pools: BTreeSet<_> = named.chain(raised.map(|active| active.about)).collect();
        for pool in pools {
            self.assess_pool(&pool);
        }
    }

    /// Raises or clears the alarm about the proxy's clock, and logs each member whose clock differs from the others.
    pub fn assess_clocks(&self) {
        let has_changed = self.clocks.assess(&self.metrics.alarms, || {
            self.members.clock_offsets(&self.current.load().pools)
        });
        if has_changed {
            // Wakes the task that compares dates, because it decides which alarms follow from the clock.
            self.signals.send_modify(|_| ());
            let generation = self.current.load();
            let pools = generation.pools.iter().map(|runtime| runtime.pool.name());
            pools.for_each(|pool| self.note_causes(pool));
        }
    }

    /// Notes the dates of certificates and CRLs, which may show that the clock is wrong.
    pub fn note_dates(&self, dates: DateEvidence) {
        self.clocks.note_dates(dates);
        self.assess_clocks();
    }

    /// Seconds to add to the proxy's clock while it is in doubt.
    pub fn clock_correction(&self) -> Option<i64> {
        self.clocks.correction()
    }
}

/// A random value, from the randomness that the standard library has for each process.
pub(crate) fn seed() -> u64 {
    std::hash::RandomState::new().build_hasher().finish()
}
