//! One thread's proxy, and the few things that all threads share.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeSet,
    fmt::{self, Write},
    hash::{BuildHasher, Hasher},
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, SystemTime},
};

use arc_swap::ArcSwap;
use balancing::{Change, Health, MoveLimiter, Work};
use bytes::Bytes;
use http::{HeaderName, HeaderValue};
use pki::PersistenceKey;
use routing::Class;
use telemetry::{
    AccessLogHandle, Agents, Alarm, ListenerMetrics, Metrics, RecentRefusals, RequestMetrics,
};
use tokio::sync::watch;
use tokio::time::Instant;
use upstream::{Connections, Crew};

use crate::{
    clock_offsets::LoggedClocks, copying::PIECE_BYTES_MAX, edge::Edge, enrolment::Strangers,
    forged::ForgedHeaders, generation::Generation, leaving::LeavingTunnels,
    long_requests::LongRequests, member_history::MemberHistory, old_agents::OldAgents,
    open_tunnels::OpenTunnels, queue_alarm::FullQueues, renewal::Renewal, share::Shares,
};

/// Where the process is in its life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Phase {
    /// Takes connections and requests.
    #[default]
    Serving,
    /// Finishes what runs and takes no more.
    Draining,
    /// Ends what is left.
    Cutting,
}

/// What connections must hear of at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Signals {
    /// Where the process is in its life.
    pub phase: Phase,
    /// Generation of the trust store in force.
    pub trust_generation: u64,
    /// When what is left will be cut, while the process is draining.
    pub cut_at: Option<Instant>,
}

/// What all workers share; nothing else is.
#[derive(Debug)]
pub struct Shared {
    /// The generation in force: the one cell.
    pub current: Arc<ArcSwap<Generation>>,
    /// Metric families.
    pub metrics: Arc<Metrics>,
    /// Access records.
    pub sink: AccessLogHandle,
    /// Who was seen.
    pub agents: Agents,
    /// Clients that were refused recently.
    pub refusals: RecentRefusals,
    /// Told to every connection.
    pub signals: watch::Sender<Signals>,
    /// Workers' calls to close idle member connections.
    pub crew: Arc<Crew>,
    /// When the process began: the zero of the balancer's clock.
    pub started: Instant,
    /// Copies of the CA's documents.
    pub edge: Edge,
    /// Whether renewals are passed on.
    pub renewal: Renewal,
    /// What was last seen of members, for the status.
    pub members: MemberHistory,
    pub(crate) full_queues: FullQueues,
    /// Tunnels, by member.
    pub tunnels: OpenTunnels,
    /// Requests that members have not answered for some seconds.
    pub long_requests: Arc<LongRequests>,
    pub(crate) leaving: LeavingTunnels,
    /// What persistence cookies are made with.
    pub persistence: PersistenceKey,
    pub(crate) persistence_events: MoveLimiter,
    pub(crate) strangers: Strangers,
    pub(crate) shares: Shares,
    pub(crate) forged: ForgedHeaders,
    pub(crate) clocks: LoggedClocks,
    pub(crate) old_agents: OldAgents,
    pacer: AtomicU64,
}

impl Shared {
    /// What the workers of one process share.
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
                phase: Phase::Serving,
                trust_generation,
                cut_at: None,
            }),
            crew: Arc::default(),
            started: Instant::now(),
            edge: Edge::default(),
            members: MemberHistory::default(),
            full_queues: FullQueues::default(),
            tunnels: OpenTunnels::default(),
            long_requests: Arc::default(),
            leaving: LeavingTunnels::default(),
            persistence: PersistenceKey::random(),
            persistence_events: MoveLimiter::default(),
            strangers: Strangers::new(seed()),
            shares: Shares::default(),
            forged: ForgedHeaders::default(),
            clocks: LoggedClocks::default(),
            old_agents: OldAgents::default(),
            pacer: AtomicU64::new(0),
        }
    }

    /// Time since the process began.
    pub fn now(&self) -> Duration {
        self.started.elapsed()
    }

    /// Whether the process ends what is left.
    pub(crate) fn is_cutting(&self) -> bool {
        self.signals.borrow().phase == Phase::Cutting
    }

    /// Bytes of request bodies that are buffered now, over all workers.
    pub fn body_buffer_bytes(&self) -> u64 {
        self.shares.body_buffer_bytes()
    }

    /// When the next connection may be closed for revocation or re-judged, at `rate` a second over all workers.
    pub(crate) fn turn(&self, rate: u32) -> Duration {
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

    /// Tells of a member whose health has changed.
    pub fn health_changed(&self, pool: &str, member: &str, change: &Change) {
        let (from, to, cause) = (change.from, change.to, change.cause);
        self.members.changed(pool, member, cause, SystemTime::now());
        // Good news wakes nobody: a start would warn of every member.
        match to {
            Health::Up => {
                tracing::info!(pool, member, ?from, ?to, ?cause, "member health changed");
            }
            _ => tracing::warn!(pool, member, ?from, ?to, ?cause, "member health changed"),
        }
        self.assess_pool(pool);
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
                    pool,
                    "ejections ended: fewer members are available than panic_threshold"
                );
            }
            found.admission.members_changed();
        }
        self.metrics
            .alarms
            .assess(Alarm::PoolUnavailable, pool, SystemTime::now(), || {
                found.filter(|known| known.pool.available() == 0).map(|_| {
                    format!(
                        "no member of pool {pool} is available, and requests to it get 503; proscenium status shows why"
                    )
                })
            });
    }

    /// Clears the alarms about queues that are no longer full. To be called from time to time.
    pub fn assess_queues(&self) {
        self.full_queues.assess(&self.metrics.alarms, self.now());
    }

    /// As [`assess_pool`](Self::assess_pool), for every pool of the active generation and of those before.
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
}

/// Counters by route (its name's address) and class, looked up by name once a generation.
#[derive(Debug, Default)]
struct GenerationMetrics {
    generation: u64,
    counters: foldhash::HashMap<(usize, Class, Work), RequestMetrics>,
}

/// One thread's proxy.
#[derive(Debug)]
pub struct Worker {
    pub(crate) shared: Arc<Shared>,
    pub(crate) connections: Rc<Connections>,
    listener_metrics: RefCell<foldhash::HashMap<Arc<str>, ListenerMetrics>>,
    request_metrics: RefCell<GenerationMetrics>,
    pub(crate) sink: AccessLogHandle,
    random: Cell<u64>,
    /// What all tunnels of this thread read into; empty until there is one.
    piece: RefCell<Vec<u8>>,
}

impl Worker {
    /// A worker of this thread, and the task that looks after its member connections.
    pub fn new(shared: &Arc<Shared>) -> (Rc<Self>, impl Future<Output = ()> + use<>) {
        let (connections, sweeping) = Connections::new(&shared.crew);
        let worker = Rc::new(Self {
            shared: Arc::clone(shared),
            connections,
            listener_metrics: RefCell::default(),
            request_metrics: RefCell::default(),
            sink: shared.sink.another(),
            random: Cell::new(seed()),
            piece: RefCell::default(),
        });
        (worker, sweeping)
    }

    pub(crate) fn current(&self) -> Arc<Generation> {
        self.shared.current.load_full()
    }

    pub(crate) fn listener_metrics(&self, listener: &str) -> ListenerMetrics {
        if let Some(metrics) = self.listener_metrics.borrow().get(listener) {
            return metrics.clone();
        }
        let metrics = self.shared.metrics.listener(listener);
        self.listener_metrics
            .borrow_mut()
            .insert(Arc::from(listener), metrics.clone());
        metrics
    }

    /// The counters of a route, class and kind of work, looked up by name once a generation.
    pub(crate) fn request_metrics(
        &self,
        generation: u64,
        route: &Arc<str>,
        pool: &str,
        class: Class,
        work: Work,
    ) -> RequestMetrics {
        let mut cache = self.request_metrics.borrow_mut();
        if cache.generation != generation {
            *cache = GenerationMetrics {
                generation,
                counters: foldhash::HashMap::default(),
            };
        }
        cache
            .counters
            .entry((Arc::as_ptr(route).cast::<u8>() as usize, class, work))
            .or_insert_with(|| {
                let metrics = &self.shared.metrics;
                metrics.request(route, pool, class.as_str(), Some(work))
            })
            .clone()
    }

    /// The room that all tunnels read into, for a moment.
    pub(crate) fn with_piece<T>(&self, read: impl FnOnce(&mut [u8]) -> T) -> T {
        let mut piece = self.piece.borrow_mut();
        piece.resize(PIECE_BYTES_MAX, 0);
        read(&mut piece)
    }

    /// A request's name in the member's log and in ours.
    pub(crate) fn request_id(&self) -> RequestId {
        RequestId::new(self.random(), self.random())
    }

    /// A number that no client can foresee well enough to matter: request ids and spreads, no secrets (splitmix64).
    pub(crate) fn random(&self) -> u64 {
        let state = self.random.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
        self.random.set(state);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

/// The value of `X-Request-Id`: 32 hexadecimal digits. Made once for each request; all its headers share the bytes.
#[derive(Clone, Debug)]
pub(crate) struct RequestId(HeaderValue);

impl RequestId {
    /// The header that carries it, to members and to clients.
    pub(crate) const HEADER: HeaderName = HeaderName::from_static("x-request-id");

    fn new(high: u64, low: u64) -> Self {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut digits = [0_u8; 32];
        // By bytes: a shift of all 128 bits for each digit costs more than all else here.
        let (high, low) = (high.to_be_bytes(), low.to_be_bytes());
        for (pair, byte) in digits.chunks_exact_mut(2).zip(high.into_iter().chain(low)) {
            pair[0] = DIGITS[usize::from(byte >> 4)];
            pair[1] = DIGITS[usize::from(byte & 15)];
        }
        let value = HeaderValue::from_maybe_shared(Bytes::from_owner(digits));
        Self(value.expect("hexadecimal digits"))
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }

    pub(crate) fn to_value(&self) -> HeaderValue {
        self.0.clone()
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_bytes()
            .iter()
            .try_for_each(|digit| f.write_char((*digit).into()))
    }
}

/// The standard library's per-process randomness, one draw.
fn seed() -> u64 {
    std::hash::RandomState::new().build_hasher().finish()
}
