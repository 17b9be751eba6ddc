//! One thread's proxy: its connections to members, its caches and its spare buffers.

use std::{
    cell::{Cell, RefCell},
    panic::resume_unwind,
    rc::Rc,
    sync::Arc,
};

use arc_swap::{ArcSwap, Cache};
use balancing::Work;
use listener::{HandshakeHelper, Handshakes};
use routing::Class;
use telemetry::{AccessLogHandle, ListenerMetrics, RequestMetrics};
use tokio::task::spawn_local;
use upstream::Connections;

use crate::{
    connection::Conn,
    copying::PIECE_BYTES_MAX,
    date::ResponseDate,
    generation::{Generation, LocalGeneration},
    request_id::RequestId,
    shared::{Shared, seed},
    signals::WorkerSignals,
    warm_connections::WarmConnections,
};

/// Counters by route (the address of its name), class and kind of work. They are looked up by name once per generation.
#[derive(Debug, Default)]
struct GenerationMetrics {
    generation: u64,
    counters: foldhash::HashMap<(usize, Class, Work), Rc<RequestMetrics>>,
}

/// Buffers that are reused for one request after the other.
#[derive(Debug, Default)]
pub(crate) struct SpareBuffers(RefCell<Vec<Vec<u8>>>);

impl SpareBuffers {
    /// Maximum number of buffers: about the number of requests that a worker handles at once.
    const BUFFERS_MAX: usize = 64;
    /// Maximum size of a stored buffer. Few requests need more.
    const BYTES_MAX: usize = 1 << 10;

    /// An empty buffer, or a used one that may be overwritten.
    pub(crate) fn take(&self) -> Vec<u8> {
        self.0.borrow_mut().pop().unwrap_or_default()
    }

    pub(crate) fn put(&self, buffer: Vec<u8>) {
        let mut spare = self.0.borrow_mut();
        if buffer.capacity() <= Self::BYTES_MAX && spare.len() < Self::BUFFERS_MAX {
            spare.push(buffer);
        }
    }
}

/// The active generation as this thread last loaded it. Requests share it, so that they need no atomic instruction each.
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
    listener_metrics: RefCell<foldhash::HashMap<Arc<str>, Rc<ListenerMetrics>>>,
    request_metrics: RefCell<GenerationMetrics>,
    pub(crate) sink: AccessLogHandle,
    pub(crate) date: ResponseDate,
    random: Cell<u64>,
    /// Buffers for the request fields of records.
    pub(crate) spare_buffers: SpareBuffers,
    /// The buffer that all tunnels of this thread read into. Empty until the first tunnel.
    piece: RefCell<Vec<u8>>,
    pub(crate) handshakes: Handshakes,
}

impl Worker {
    /// A worker for this thread, and the task that closes its unused member connections, passes signals on and distributes
    /// handshakes. Without a helper the worker computes its handshakes itself.
    pub fn new(
        shared: &Arc<Shared>,
        helper: Option<HandshakeHelper>,
    ) -> (Rc<Self>, impl Future<Output = ()> + use<>) {
        let (connections, sweeping) = Connections::new(&shared.crew);
        let (handshakes, distributing) = Handshakes::new(helper);
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
            date: ResponseDate::default(),
            random: Cell::new(seed()),
            spare_buffers: SpareBuffers::default(),
            piece: RefCell::default(),
            handshakes,
        });
        let weak = Rc::downgrade(&worker);
        // A thread without requests must also release a replaced generation.
        let passing = worker
            .signals
            .pass_on(move || _ = weak.upgrade().map(|worker| worker.current()));
        let chores = async move {
            // Separate tasks: none waits for another one, and the others continue if one panics.
            let ended = tokio::try_join!(
                spawn_local(passing),
                spawn_local(distributing),
                spawn_local(sweeping)
            );
            // The caller must notice the panic.
            if let Some(panic) = ended.err().and_then(|error| error.try_into_panic().ok()) {
                resume_unwind(panic);
            }
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

    pub(crate) fn listener_metrics(&self, listener: &str) -> Rc<ListenerMetrics> {
        if let Some(metrics) = self.listener_metrics.borrow().get(listener) {
            return Rc::clone(metrics);
        }
        let metrics = Rc::new(self.shared.metrics.listener(listener));
        self.listener_metrics
            .borrow_mut()
            .insert(Arc::from(listener), Rc::clone(&metrics));
        metrics
    }

    /// The counters of a route, class and kind of work. They are looked up by name once per generation.
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

    /// Lends the buffer that all tunnels read into.
    pub(crate) fn with_piece<T>(&self, read: impl FnOnce(&mut [u8]) -> T) -> T {
        let mut piece = self.piece.borrow_mut();
        piece.resize(PIECE_BYTES_MAX, 0);
        read(&mut piece)
    }

    pub(crate) fn request_id(&self) -> RequestId {
        RequestId::new(self.random(), self.random())
    }

    /// For tests: how many idle connections hold buffers.
    pub fn warm_connections(&self) -> usize {
        self.warm.count()
    }

    /// A pseudorandom number (splitmix64). It is good enough for request ids and for spreading times, but not for secrets.
    pub(crate) fn random(&self) -> u64 {
        let state = self.random.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
        self.random.set(state);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}
