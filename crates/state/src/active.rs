//! What is active, and [`GenerationWriter`], the right to replace it.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::SystemTime,
};

use pki::TrustStore;
use proxy::{Generation, LifecyclePhase, Shared};
use rustls_pki_types::UnixTime;
use telemetry::Alarms;
use tokio::{
    sync::watch,
    time::{Duration, Instant},
};

use crate::{
    foundation::Foundation,
    passthrough,
    trust_alarms::{self, AlarmTimes},
};

/// The active generation with its foundation, and whether this process may change them.
pub struct Active {
    shared: Arc<Shared>,
    committed: Mutex<Committed>,
    /// Locked by [`GenerationWriter`] alone.
    writing: tokio::sync::Mutex<()>,
    /// The process that has taken over.
    successor: watch::Sender<Option<u32>>,
    /// When the process started, on the monotonic clock and on the clock of the host at that time.
    started: (Instant, UnixTime),
}

/// What is active at one moment: a generation and the foundation of the same commit.
pub struct ActiveSnapshot {
    /// The active generation.
    pub generation: Arc<Generation>,
    /// What the next preparation needs of it.
    pub foundation: Arc<Foundation>,
    /// When something was last made active.
    pub loaded_at: SystemTime,
}

/// What the last commit has left, in addition to the generation that requests read. It is locked while a commit replaces both.
struct Committed {
    foundation: Arc<Foundation>,
    loaded_at: SystemTime,
}

impl Active {
    /// Creates the state of a process from the generation in `shared`. The first commit follows.
    pub fn new(shared: Arc<Shared>, foundation: Foundation) -> Self {
        Self {
            shared,
            committed: Mutex::new(Committed {
                foundation: Arc::new(foundation),
                loaded_at: SystemTime::now(),
            }),
            writing: tokio::sync::Mutex::default(),
            successor: watch::Sender::new(None),
            started: (Instant::now(), UnixTime::now()),
        }
    }

    /// What the workers share.
    pub fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// The alarms of the process.
    pub fn alarms(&self) -> &Arc<Alarms> {
        &self.shared.metrics.alarms
    }

    /// The active generation.
    pub fn generation(&self) -> Arc<Generation> {
        self.shared.current.load_full()
    }

    /// The active trust store.
    pub fn trust(&self) -> Arc<TrustStore> {
        Arc::clone(&self.shared.current.load().trust)
    }

    /// What the next preparation needs of the active generation.
    pub fn foundation(&self) -> Arc<Foundation> {
        Arc::clone(&self.committed().foundation)
    }

    /// The active generation with its foundation. A preparation starts from them, and does not wait for a change that runs.
    pub fn snapshot(&self) -> ActiveSnapshot {
        let committed = self.committed();
        ActiveSnapshot {
            generation: self.generation(),
            foundation: Arc::clone(&committed.foundation),
            loaded_at: committed.loaded_at,
        }
    }

    /// When something was last made active.
    pub fn loaded_at(&self) -> SystemTime {
        self.committed().loaded_at
    }

    /// When the process started, on the monotonic clock and on the clock of the host at that time.
    pub fn started(&self) -> (Instant, UnixTime) {
        self.started
    }

    /// How long the process has run.
    pub fn uptime(&self) -> Duration {
        self.started.0.elapsed()
    }

    /// Whether the process serves: no stop has been requested.
    pub fn is_serving(&self) -> bool {
        self.shared.signals.borrow().phase == LifecyclePhase::Serving
    }

    /// Whether this process owns the state directory: no other one has taken over. Only its owner writes to the directory and
    /// changes blocks and CRLs on request.
    pub fn owns_state(&self) -> bool {
        self.successor.borrow().is_none()
    }

    /// The process that has taken over.
    pub fn successor(&self) -> watch::Receiver<Option<u32>> {
        self.successor.subscribe()
    }

    /// Notes the process that has taken over.
    pub fn hand_over_to(&self, pid: u32) {
        self.successor.send_replace(Some(pid));
    }

    /// The times at which alarms about dates are compared.
    pub fn times(&self) -> AlarmTimes {
        AlarmTimes::now(self.shared.clock_correction())
    }

    /// Compares the alarms about the trust store with its dates now.
    pub fn update_trust_alarms(&self) {
        trust_alarms::update(self.alarms(), &self.trust(), self.times());
    }

    /// Waits for the right to replace what is active.
    pub async fn writer(&self) -> GenerationWriter<'_> {
        GenerationWriter {
            active: self,
            _only_one: self.writing.lock().await,
        }
    }

    /// Waits for the right to replace what is active. `None` if another process has taken over by then. A process that
    /// stops still applies changes, because they concern the connections that it finishes.
    pub async fn writer_of_owner(&self) -> Option<GenerationWriter<'_>> {
        let writer = self.writer().await;
        self.owns_state().then_some(writer)
    }

    fn committed(&self) -> MutexGuard<'_, Committed> {
        self.committed
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// The right to replace what is active: the generation, its trust store, pools and blocks, and the outputs of the logs.
///
/// One task has it at a time. A change that is prepared from the active generation can therefore not undo another one.
/// Functions that replace something active are methods of this type, or borrow it.
pub struct GenerationWriter<'a> {
    active: &'a Active,
    _only_one: tokio::sync::MutexGuard<'a, ()>,
}

impl GenerationWriter<'_> {
    /// Replaces the trust store of the active generation.
    pub fn replace_trust(&self, trust: TrustStore) {
        let generation = Arc::new(self.active.generation().with_trust(Arc::new(trust)));
        {
            let mut committed = self.active.committed();
            self.store(&generation);
            committed.loaded_at = SystemTime::now();
        }
        self.activated(&generation);
    }

    /// Makes a generation with its foundation the active one, and makes open connections verify their clients against its
    /// trust store.
    pub fn activate(&self, generation: &Arc<Generation>, foundation: Arc<Foundation>) {
        {
            let mut committed = self.active.committed();
            self.store(generation);
            *committed = Committed {
                foundation,
                loaded_at: SystemTime::now(),
            };
        }
        self.activated(generation);
    }

    /// Makes requests use this generation from now on. Its trust store is the active one.
    pub fn store(&self, generation: &Arc<Generation>) {
        self.active.shared.current.store(Arc::clone(generation));
    }

    /// Notes that the active materials were read again, with the same bytes.
    pub fn note_same_materials(&self, update: impl FnOnce(&mut Foundation)) {
        update(Arc::make_mut(&mut self.active.committed().foundation));
    }

    /// Follows the replacement of the generation.
    fn activated(&self, generation: &Generation) {
        let shared = &self.active.shared;
        shared.metrics.generation(generation.number);
        shared
            .signals
            .send_modify(|signals| signals.trust_generation = generation.trust.generation());
        passthrough::assess(self.active.alarms(), generation);
        self.active.update_trust_alarms();
    }
}
