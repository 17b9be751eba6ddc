//! One worker's connections to members: their reuse, the limit over all workers, and the regular sweep.

use std::{
    cell::RefCell,
    fmt,
    rc::Rc,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use rustls::pki_types::CertificateDer;
use tokio::{
    sync::Notify,
    time::{Instant, timeout},
};

use crate::{
    connector::Connector,
    dial::{DialError, DialStage, dial},
    io::MemberIo,
    member_check::MemberCheck,
    slots::OpenSlot,
    wire::{Wire, WireBuffers},
};

/// How often idle connections are checked.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum number of buffers that a worker stores for connections: about as many as it has requests in flight.
const SPARE_MAX: usize = 64;

/// Wakes workers. A worker that has hit a member's limit requests that the others close an idle connection.
#[derive(Debug, Default)]
pub struct Crew {
    sweeps: Mutex<Vec<Arc<Notify>>>,
    /// The number of workers. It is read each time a connection is put back.
    size: AtomicU32,
}

impl Crew {
    fn join(&self) -> Arc<Notify> {
        let sweep = Arc::new(Notify::new());
        self.sweeps
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .push(Arc::clone(&sweep));
        self.size.fetch_add(1, Ordering::Relaxed);
        sweep
    }

    fn wake_all(&self) {
        for sweep in self
            .sweeps
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .iter()
        {
            sweep.notify_one();
        }
    }

    fn size(&self) -> u32 {
        self.size.load(Ordering::Relaxed)
    }
}

/// One worker's connections to all members.
pub struct Connections {
    idle: RefCell<foldhash::HashMap<u64, Vec<Idle>>>,
    crew: Arc<Crew>,
    sweep: Arc<Notify>,
    /// Empty buffers with capacity. Idle connections hold no buffers.
    buffers: RefCell<Vec<WireBuffers>>,
}

struct Idle {
    open: Box<Open>,
    since: Instant,
    connector: Arc<Connector>,
}

impl fmt::Debug for Connections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connections").finish_non_exhaustive()
    }
}

#[derive(Debug)]
pub(crate) struct Open {
    pub(crate) wire: Wire,
    /// The member's certificate, and the generation of the trust that last checked it. `None` if certificates are not checked
    /// again.
    presented: Option<(CertificateDer<'static>, u64)>,
}

impl Open {
    /// Whether the member's certificate is still valid.
    fn is_trusted(&mut self, connector: &Connector) -> bool {
        let (Some(check), Some((own, checked))) = (&connector.check, &mut self.presented) else {
            return true;
        };
        let generation = check.generation();
        if generation != *checked {
            if check.verify(own).is_err() {
                return false;
            }
            *checked = generation;
        }
        true
    }
}

/// A connection for a request, and how long opening it took. `None`: it was used before.
pub(crate) struct Held {
    pub(crate) open: Box<Open>,
    pub(crate) connect: Option<Duration>,
}

impl Connections {
    /// A worker without connections, and the task that closes idle ones. Spawn that task on the same thread.
    pub fn new(crew: &Arc<Crew>) -> (Rc<Self>, impl Future<Output = ()> + use<>) {
        let connections = Rc::new(Self {
            idle: RefCell::default(),
            crew: Arc::clone(crew),
            sweep: crew.join(),
            buffers: RefCell::default(),
        });
        let weak = Rc::downgrade(&connections);
        let sweep = Arc::clone(&connections.sweep);
        let sweeping = async move {
            loop {
                // One sweep handles all reasons for waking up.
                let _ = timeout(SWEEP_INTERVAL, sweep.notified()).await;
                let Some(connections) = weak.upgrade() else {
                    return;
                };
                connections.sweep();
            }
        };
        (connections, sweeping)
    }

    /// Returns an idle connection to the member, or else opens a new one.
    pub(crate) async fn take(
        &self,
        connector: &Arc<Connector>,
        fresh: bool,
        now: Instant,
    ) -> Result<Held, DialError> {
        if !fresh && let Some(open) = self.ready(connector, now) {
            return Ok(Held {
                open,
                connect: None,
            });
        }
        // Boxed, because the state of a dial is kilobytes, and most requests find an idle connection.
        Box::pin(self.open_or_wait(connector)).await
    }

    /// Opens a new connection. If all slots are taken, returns an idle connection of this worker, or opens a new one after
    /// another worker has closed an idle one.
    async fn open_or_wait(&self, connector: &Arc<Connector>) -> Result<Held, DialError> {
        let (slots, settings) = (&connector.slots, &connector.settings);
        let max = settings.connections_max;
        let slot = match slots.try_open(max) {
            Some(slot) => slot,
            None => {
                // An idle connection is better than waiting, even for a request that should have a new one.
                if let Some(open) = self.ready(connector, Instant::now()) {
                    return Ok(Held {
                        open,
                        connect: None,
                    });
                }
                let closed = slots.wait(max, || self.crew.wake_all());
                timeout(settings.connect_timeout, closed)
                    .await
                    .map_err(|_| connector.late(DialStage::Connect))?
            }
        };
        let began = Instant::now();
        let open = self.open(connector, slot).await?;
        Ok(Held {
            open,
            connect: Some(began.elapsed()),
        })
    }

    /// Stores a connection whose exchange is complete. Closes it instead if requests of other workers wait for a slot, or if
    /// this worker already has its share of idle connections.
    pub(crate) fn put(&self, connector: &Arc<Connector>, mut open: Box<Open>, now: Instant) {
        if connector.slots.waiting() > 0 || !open.is_trusted(connector) {
            return;
        }
        let share = (connector.settings.connections_max / self.crew.size().max(1)).max(1) as usize;
        let mut idle = self.idle.borrow_mut();
        let idle = idle.entry(connector.id).or_default();
        if idle.len() < share {
            let buffers = open.wire.take_buffers();
            let mut spare = self.buffers.borrow_mut();
            if buffers.are_small() && spare.len() < SPARE_MAX {
                spare.push(buffers);
            }
            idle.push(Idle {
                open,
                since: now,
                connector: Arc::clone(connector),
            });
        }
    }

    /// Returns the connection that was used last. The member is least likely to be closing that one.
    fn ready(&self, connector: &Connector, now: Instant) -> Option<Box<Open>> {
        let mut idle = self.idle.borrow_mut();
        let idle = idle.get_mut(&connector.id)?;
        // Only the connections that are taken here are checked. The sweep checks the remaining ones.
        while let Some(mut stored) = idle.pop() {
            let is_young =
                now.saturating_duration_since(stored.since) < connector.settings.keepalive;
            if is_young && stored.open.wire.is_silent() {
                let buffers = self.buffers.borrow_mut().pop();
                stored.open.wire.put_buffers(buffers.unwrap_or_default());
                return Some(stored.open);
            }
        }
        None
    }

    async fn open(&self, connector: &Connector, slot: OpenSlot) -> Result<Box<Open>, DialError> {
        // The generation is read before the check, so that a change of trust in between is noticed later.
        let checked = connector.check.as_ref().map(MemberCheck::generation);
        let io = dial(connector).await?;
        let presented = checked.and_then(|generation| Some((io.presented()?, generation)));
        let wire = Wire::new(MemberIo::new(io, Some(slot)));
        Ok(Box::new(Open { wire, presented }))
    }

    /// Closes connections that the member has closed, that are too old, or whose certificate is no longer valid. If requests of
    /// other workers wait, closes as many idle connections as they need.
    fn sweep(&self) {
        self.idle.borrow_mut().retain(|_, idle| {
            idle.retain_mut(|stored| {
                stored.since.elapsed() < stored.connector.settings.keepalive
                    && stored.open.wire.is_silent()
                    && stored.open.is_trusted(&stored.connector)
            });
            let waiting = |oldest: &Idle| oldest.connector.slots.waiting() as usize;
            let wanted = idle.first().map_or(0, waiting);
            idle.drain(..wanted.min(idle.len()));
            !idle.is_empty()
        });
    }
}
