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

use arc_swap::{ArcSwap, Cache};
use balancing::{Health, HealthChange, MoveLimiter, Work};
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
    client_shares::Shares,
    clock_offsets::LoggedClocks,
    closing_tunnels::ClosingTunnels,
    connection::Conn,
    copying::PIECE_BYTES_MAX,
    edge::Edge,
    enrolment::Strangers,
    forged_headers::ForgedHeaders,
    generation::{Generation, LocalGeneration},
    long_requests::LongRequests,
    member_history::MemberHistory,
    old_agents::OldAgents,
    open_tunnels::OpenTunnels,
    queue_alarm::FullQueues,
    renewal::Renewal,
    signals::{LifecyclePhase, Signals, WorkerSignals},
    warm_connections::WarmConnections,
};

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
    pub(crate) leaving: ClosingTunnels,
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
                phase: LifecyclePhase::Serving,
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
            leaving: ClosingTunnels::default(),
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
        self.signals.borrow().phase == LifecyclePhase::Cutting
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
    pub fn health_changed(&self, pool: &str, member: &str, change: &HealthChange) {
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
    counters: foldhash::HashMap<(usize, Class, Work), Rc<RequestMetrics>>,
}

/// Buffers that are used for one request after the other.
#[derive(Debug, Default)]
pub(crate) struct SpareTexts(RefCell<Vec<Vec<u8>>>);

impl SpareTexts {
    /// Maximum number of buffers: about as many requests as a worker has under way.
    const BUFFERS_MAX: usize = 64;
    /// Maximum size of a buffer that is kept. Few requests need more.
    const BYTES_MAX: usize = 1 << 10;

    /// An empty buffer, or one that may be overwritten.
    pub(crate) fn take(&self) -> Vec<u8> {
        self.0.borrow_mut().pop().unwrap_or_default()
    }

    /// Keeps a buffer for another request.
    pub(crate) fn put(&self, buffer: Vec<u8>) {
        let mut spare = self.0.borrow_mut();
        if buffer.capacity() <= Self::BYTES_MAX && spare.len() < Self::BUFFERS_MAX {
            spare.push(buffer);
        }
    }
}

/// The active generation as a thread last saw it, so that its requests share it without a locked instruction each.
#[derive(Debug)]
struct Current {
    cell: Cache<Arc<ArcSwap<Generation>>, Arc<Generation>>,
    seen: LocalGeneration,
}

/// One thread's proxy.
#[derive(Debug)]
pub struct Worker {
    pub(crate) shared: Arc<Shared>,
    current: RefCell<Current>,
    pub(crate) connections: Rc<Connections>,
    pub(crate) signals: Rc<WorkerSignals>,
    pub(crate) warm: WarmConnections<Conn>,
    listener_metrics: RefCell<foldhash::HashMap<Arc<str>, ListenerMetrics>>,
    request_metrics: RefCell<GenerationMetrics>,
    pub(crate) sink: AccessLogHandle,
    random: Cell<u64>,
    /// For what records keep of requests.
    pub(crate) texts: SpareTexts,
    /// What all tunnels of this thread read into; empty until there is one.
    piece: RefCell<Vec<u8>>,
}

impl Worker {
    /// A worker of this thread, and the task that looks after its member connections and passes signals on.
    pub fn new(shared: &Arc<Shared>) -> (Rc<Self>, impl Future<Output = ()> + use<>) {
        let (connections, sweeping) = Connections::new(&shared.crew);
        let worker = Rc::new(Self {
            shared: Arc::clone(shared),
            current: RefCell::new(Current {
                cell: Cache::new(Arc::clone(&shared.current)),
                seen: LocalGeneration::new(shared.current.load_full()),
            }),
            connections,
            signals: WorkerSignals::new(&shared.signals),
            warm: WarmConnections::default(),
            listener_metrics: RefCell::default(),
            request_metrics: RefCell::default(),
            sink: shared.sink.another(),
            random: Cell::new(seed()),
            texts: SpareTexts::default(),
            piece: RefCell::default(),
        });
        let weak = Rc::downgrade(&worker);
        // Even a thread without requests lets go of a generation that was replaced.
        let passing = worker
            .signals
            .pass_on(move || _ = weak.upgrade().map(|worker| worker.current()));
        let chores = async move {
            // A task of its own: signals do not wait for a sweep, and outlive a failure of it.
            tokio::task::spawn_local(passing);
            sweeping.await;
        };
        (worker, chores)
    }

    pub(crate) fn current(&self) -> LocalGeneration {
        let current = &mut *self.current.borrow_mut();
        let now = current.cell.load();
        if !current.seen.is(now) {
            current.seen = LocalGeneration::new(Arc::clone(now));
        }
        current.seen.clone()
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
    ) -> Rc<RequestMetrics> {
        let mut cache = self.request_metrics.borrow_mut();
        if cache.generation != generation {
            *cache = GenerationMetrics {
                generation,
                counters: foldhash::HashMap::default(),
            };
        }
        let key = (Arc::as_ptr(route).cast::<u8>() as usize, class, work);
        let counters = cache.counters.entry(key).or_insert_with(|| {
            let metrics = &self.shared.metrics;
            Rc::new(metrics.request(route, pool, class.as_str(), Some(work)))
        });
        Rc::clone(counters)
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

    /// For tests: how many idle connections may hold buffers, or do.
    pub fn warm_connections(&self) -> usize {
        self.warm.count()
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

/// The value of `X-Request-Id`: 32 hexadecimal digits.
#[derive(Clone, Debug)]
pub(crate) struct RequestId([u8; 32]);

impl RequestId {
    /// The header that carries it, to members and to clients.
    pub(crate) const HEADER: HeaderName = HeaderName::from_static("x-request-id");

    fn new(high: u64, low: u64) -> Self {
        let mut digits = [0_u8; 32];
        let quarters = [high >> 32, high, low >> 32, low];
        for (eight, quarter) in digits.as_chunks_mut().0.iter_mut().zip(quarters) {
            *eight = hex_digits(quarter as u32);
        }
        Self(digits)
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    pub(crate) fn to_value(&self) -> HeaderValue {
        HeaderValue::from_bytes(&self.0).expect("hexadecimal digits")
    }
}

/// Eight hexadecimal digits, the highest first, all at once: a digit at a time, they cost as much as the rest of an id.
fn hex_digits(number: u32) -> [u8; 8] {
    const EACH: u64 = 0x0101_0101_0101_0101;
    // Four bits to each byte.
    let mut spread = u64::from(number);
    spread = (spread | spread << 16) & 0x0000_ffff_0000_ffff;
    spread = (spread | spread << 8) & 0x00ff_00ff_00ff_00ff;
    spread = (spread | spread << 4) & 0x0f0f_0f0f_0f0f_0f0f;
    // One in each byte that is a letter: 10 and more reach 16 with 6 more.
    let letters = (spread + 6 * EACH) >> 4 & EACH;
    let digits = spread + u64::from(b'0') * EACH + letters * u64::from(b'a' - b'0' - 10);
    digits.to_be_bytes()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_id_is_both_numbers_in_hexadecimal() {
        for (high, low) in [
            (0, 0),
            (1, 2),
            (u64::MAX, 0x0123_4567_89ab_cdef),
            (0xa09f << 40, 0xf0),
        ] {
            let id = RequestId::new(high, low).to_string();
            assert_eq!(id, format!("{high:016x}{low:016x}"));
        }
    }
}
