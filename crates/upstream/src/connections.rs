//! One worker's connections to members: reuse, the limit over all workers, and the sweep.

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

use http::HeaderMap;
use rustls::pki_types::CertificateDer;
use tokio::{
    sync::Notify,
    time::{Instant, timeout},
};

use crate::{
    connector::Connector,
    dial::{DialError, DialStage, dial},
    head::Scrubbed,
    io::MemberIo,
    member_check::MemberCheck,
    slots::OpenSlot,
    wire::Wire,
};

/// How often idle connections are looked through.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum capacity of a header map that is kept for another response, in fields.
const SPARE_FIELDS_MAX: usize = 64;
/// Maximum number of header maps that a worker keeps: about as many requests as it has under way.
const SPARE_MAPS_MAX: usize = 64;

/// The workers' wake-up calls: a worker at a member's limit asks the others to close an idle connection.
#[derive(Debug, Default)]
pub struct Crew {
    sweeps: Mutex<Vec<Arc<Notify>>>,
    /// How many there are: asked with each connection that is put back.
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

    fn ask_all(&self) {
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
    /// Empty header maps with capacity, for the fields of responses.
    spare: RefCell<Vec<HeaderMap>>,
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

/// An open connection.
#[derive(Debug)]
pub(crate) struct Open {
    pub(crate) wire: Wire,
    /// The member's certificate, where it is judged again, and the generation of what judged it last.
    shown: Option<(CertificateDer<'static>, u64)>,
}

impl Open {
    /// Whether the member's certificate is good still.
    fn stands(&mut self, connector: &Connector) -> bool {
        let (Some(check), Some((own, judged))) = (&connector.check, &mut self.shown) else {
            return true;
        };
        let generation = check.generation();
        if generation != *judged {
            if check.verify(own).is_err() {
                return false;
            }
            *judged = generation;
        }
        true
    }
}

/// A connection in hand, and how long it took to open; none: it was used before.
pub(crate) struct Held {
    pub(crate) open: Box<Open>,
    pub(crate) connect: Option<Duration>,
}

impl Connections {
    /// A worker without connections, and the task that sweeps them: it must be spawned on the same thread.
    pub fn new(crew: &Arc<Crew>) -> (Rc<Self>, impl Future<Output = ()> + use<>) {
        let connections = Rc::new(Self {
            idle: RefCell::default(),
            crew: Arc::clone(crew),
            sweep: crew.join(),
            spare: RefCell::default(),
        });
        let weak = Rc::downgrade(&connections);
        let sweep = Arc::clone(&connections.sweep);
        let sweeping = async move {
            loop {
                // Whatever woke us, one pass serves it.
                let _ = timeout(SWEEP_INTERVAL, sweep.notified()).await;
                let Some(connections) = weak.upgrade() else {
                    return;
                };
                connections.sweep();
            }
        };
        (connections, sweeping)
    }

    /// Keeps the room of a request's fields, which has ended, for those of an answer.
    pub fn recycle(&self, scrubbed: Scrubbed) {
        let mut fields = scrubbed.into_headers();
        fields.clear();
        let mut spare = self.spare.borrow_mut();
        if fields.capacity() <= SPARE_FIELDS_MAX && spare.len() < SPARE_MAPS_MAX {
            spare.push(fields);
        }
    }

    /// An empty header map for the fields of a response.
    pub(crate) fn spare(&self) -> HeaderMap {
        self.spare.borrow_mut().pop().unwrap_or_default()
    }

    /// A connection to the member: one that stands ready, else a new one.
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
        // Boxed: kilobytes for a dial, which a request that finds a connection need not have room for.
        Box::pin(self.open_or_wait(connector)).await
    }

    /// A new connection. While all are open, one that is idle on this worker, or a new one once another worker has closed
    /// an idle one.
    async fn open_or_wait(&self, connector: &Arc<Connector>) -> Result<Held, DialError> {
        let (slots, settings) = (&connector.slots, &connector.settings);
        let max = settings.connections_max;
        let slot = match slots.try_open(max) {
            Some(slot) => slot,
            None => {
                // Better than none, even for a request that should have a new one.
                if let Some(open) = self.ready(connector, Instant::now()) {
                    return Ok(Held {
                        open,
                        connect: None,
                    });
                }
                let closed = slots.wait(max, || self.crew.ask_all());
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

    /// Puts a connection back whose exchange is over. It is closed instead while requests of other workers wait for that, or
    /// where this worker keeps its share already.
    pub(crate) fn put(&self, connector: &Arc<Connector>, mut open: Box<Open>, now: Instant) {
        if connector.slots.waiting() > 0 || !open.stands(connector) {
            return;
        }
        let share = (connector.settings.connections_max / self.crew.size().max(1)).max(1) as usize;
        let mut idle = self.idle.borrow_mut();
        let idle = idle.entry(connector.id).or_default();
        if idle.len() < share {
            open.wire.rest();
            idle.push(Idle {
                open,
                since: now,
                connector: Arc::clone(connector),
            });
        }
    }

    /// The connection used last is the least likely to be closed by the member just now.
    fn ready(&self, connector: &Connector, now: Instant) -> Option<Box<Open>> {
        let mut idle = self.idle.borrow_mut();
        let idle = idle.get_mut(&connector.id)?;
        // Only what is taken is looked at: the sweep sees to the rest.
        while let Some(mut kept) = idle.pop() {
            let is_young = now.saturating_duration_since(kept.since) < connector.settings.keepalive;
            if is_young && kept.open.wire.is_silent() {
                return Some(kept.open);
            }
        }
        None
    }

    async fn open(&self, connector: &Connector, slot: OpenSlot) -> Result<Box<Open>, DialError> {
        // Before it is judged: what changes meanwhile is looked at again.
        let judged = connector.check.as_ref().map(MemberCheck::generation);
        let io = dial(connector).await?;
        let shown = judged.and_then(|generation| Some((io.shown()?, generation)));
        let wire = Wire::new(MemberIo::new(io, Some(slot)));
        Ok(Box::new(Open { wire, shown }))
    }

    /// Closes what is closed by the member, too old or good no more, and as many as requests of other workers wait for.
    fn sweep(&self) {
        self.idle.borrow_mut().retain(|_, idle| {
            idle.retain_mut(|kept| {
                kept.since.elapsed() < kept.connector.settings.keepalive
                    && kept.open.wire.is_silent()
                    && kept.open.stands(&kept.connector)
            });
            let waiting = |oldest: &Idle| oldest.connector.slots.waiting() as usize;
            let asked = idle.first().map_or(0, waiting);
            idle.drain(..asked.min(idle.len()));
            !idle.is_empty()
        });
    }
}
