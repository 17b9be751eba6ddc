//! One worker's connections to members: reuse, the limit over all workers, and the sweep.

use std::{
    cell::RefCell,
    fmt,
    pin::pin,
    rc::Rc,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use http_body::Body;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use rustls::pki_types::CertificateDer;
use tokio::time::Instant;
use tokio::{
    sync::{Notify, oneshot},
    time::timeout,
};

use crate::{
    cause::{Peer, cause},
    connector::{Connector, MemberCheck, OpenSlot},
    dial::{DialError, DialStage, dial},
    io::{Counted, Intake},
};

/// How often idle connections are looked through.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);
/// Time for a farewell to a member whose connection nobody wants any more.
const FAREWELL_TIMEOUT: Duration = Duration::from_secs(1);
/// Most bytes of a member's response head.
const HEAD_BYTES_MAX: usize = 64 << 10;
/// Errors of a request body as hyper takes them.
type BodyError = Box<dyn std::error::Error + Send + Sync>;

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

/// One worker's connections to all members. `B` is the body that requests carry.
pub struct Connections<B> {
    idle: RefCell<foldhash::HashMap<u64, Vec<Idle<B>>>>,
    crew: Arc<Crew>,
    sweep: Arc<Notify>,
}

struct Idle<B> {
    sender: Sender<B>,
    since: Instant,
    connector: Arc<Connector>,
}

impl<B> fmt::Debug for Connections<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connections").finish_non_exhaustive()
    }
}

/// The sending end of a connection, and how much has come back on it.
pub(crate) struct Sender<B> {
    pub(crate) http: SendRequest<B>,
    intake: Arc<Intake>,
    /// The member's certificate, where it is judged again, and the generation of what judged it last.
    shown: Option<(CertificateDer<'static>, u64)>,
    /// Dropped with the sender, which tells the connection that nobody wants it any more.
    _wanted: oneshot::Sender<()>,
}

impl<B> Sender<B> {
    /// Whether the member's certificate is good still.
    fn stands(&mut self, connector: &Connector) -> bool {
        let (Some(check), Some((own, judged))) = (&connector.check, &mut self.shown) else {
            return true;
        };
        let generation = check.generation();
        if generation != *judged {
            if check.judge(own).is_err() {
                return false;
            }
            *judged = generation;
        }
        true
    }

    /// Bytes that came so far.
    pub(crate) fn received(&self) -> u64 {
        self.intake.received()
    }

    /// Bounds what may come before the head of an answer, until that has come.
    pub(crate) fn expect_head(&self, expected: bool) {
        match expected {
            true => self.intake.expect_head(),
            false => self.intake.head_came(),
        }
    }
}

/// A connection in hand, and how long it took to open; none: it was used before.
pub(crate) struct Held<B> {
    pub(crate) sender: Sender<B>,
    pub(crate) connect: Option<Duration>,
}

impl<B> Connections<B>
where
    B: Body<Data = Bytes> + 'static,
    B::Error: Into<BodyError>,
{
    /// A worker without connections, and the task that sweeps them: it must be spawned on the same thread.
    pub fn new(crew: &Arc<Crew>) -> (Rc<Self>, impl Future<Output = ()> + use<B>) {
        let connections = Rc::new(Self {
            idle: RefCell::default(),
            crew: Arc::clone(crew),
            sweep: crew.join(),
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

    /// A connection to the member: one that stands ready, else a new one.
    pub(crate) async fn take(
        &self,
        connector: &Arc<Connector>,
        fresh: bool,
        now: Instant,
    ) -> Result<Held<B>, DialError> {
        if !fresh && let Some(sender) = self.ready(connector, now) {
            return Ok(Held {
                sender,
                connect: None,
            });
        }
        // Boxed: kilobytes for a dial, which a request that finds a connection need not have room for.
        Box::pin(self.open_or_wait(connector)).await
    }

    /// A new connection. While all are open, one that is idle on this worker, or a new one once another worker has closed
    /// an idle one.
    async fn open_or_wait(&self, connector: &Arc<Connector>) -> Result<Held<B>, DialError> {
        let (slots, settings) = (&connector.slots, &connector.settings);
        let max = settings.connections_max;
        let slot = match slots.try_open(max) {
            Some(slot) => slot,
            None => {
                // Better than none, even for a request that should have a new one.
                if let Some(sender) = self.ready(connector, Instant::now()) {
                    return Ok(Held {
                        sender,
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
        let sender = self.open(connector, slot).await?;
        Ok(Held {
            sender,
            connect: Some(began.elapsed()),
        })
    }

    /// Puts a connection back whose exchange is over. It is closed instead while requests of other workers wait for that, or
    /// where this worker keeps its share already.
    pub(crate) fn put(&self, connector: &Arc<Connector>, mut sender: Sender<B>, now: Instant) {
        if sender.http.is_closed() || connector.slots.waiting() > 0 || !sender.stands(connector) {
            return;
        }
        let share = (connector.settings.connections_max / self.crew.size().max(1)).max(1) as usize;
        let mut idle = self.idle.borrow_mut();
        let idle = idle.entry(connector.id).or_default();
        if idle.len() < share {
            idle.push(Idle {
                sender,
                since: now,
                connector: Arc::clone(connector),
            });
        }
    }

    /// The connection used last is the least likely to be closed by the member just now.
    fn ready(&self, connector: &Connector, now: Instant) -> Option<Sender<B>> {
        let mut idle = self.idle.borrow_mut();
        let idle = idle.get_mut(&connector.id)?;
        // Only what is taken is looked at: the sweep sees to the rest.
        while let Some(last) = idle.iter().rposition(|kept| kept.sender.http.is_ready()) {
            let kept = idle.swap_remove(last);
            if now.saturating_duration_since(kept.since) < connector.settings.keepalive {
                return Some(kept.sender);
            }
        }
        None
    }

    async fn open(&self, connector: &Connector, slot: OpenSlot) -> Result<Sender<B>, DialError> {
        let intake = Arc::new(Intake::new());
        // Before it is judged: what changes meanwhile is looked at again.
        let judged = connector.check.as_ref().map(MemberCheck::generation);
        let io = dial(connector).await?;
        let shown = judged.and_then(|generation| Some((io.shown()?, generation)));
        let io = TokioIo::new(Counted::new(io, Arc::clone(&intake), Some(slot)));
        // hyper's limit of 100 fields stays as it is: with any that is set, every head costs two large allocations.
        let (http, connection) = http1::Builder::new()
            .max_header_size(HEAD_BYTES_MAX)
            .handshake(io)
            .await
            .map_err(|error| DialError::Connect {
                address: Arc::clone(&connector.address),
                source: std::io::Error::other(error),
            })?;
        let (wanted, unwanted) = oneshot::channel();
        // Owned by its sender: it ends when the sender is dropped or the member closes.
        tokio::task::spawn_local(async move {
            let mut connection = pin!(connection.with_upgrades());
            let ended = tokio::select! {
                biased;
                ended = connection.as_mut() => ended,
                // hyper would go on with what is left of a body for as long as the member takes nothing.
                _ = unwanted => timeout(FAREWELL_TIMEOUT, connection).await.unwrap_or(Ok(())),
            };
            if let Err(error) = ended {
                let cause = cause(&error, Peer::Member);
                tracing::debug!(%cause, "a connection to a member ended with an error");
            }
        });
        Ok(Sender {
            http,
            intake,
            shown,
            _wanted: wanted,
        })
    }

    /// Closes what is closed by the member, too old or good no more, and as many as requests of other workers wait for.
    fn sweep(&self) {
        self.idle.borrow_mut().retain(|_, idle| {
            idle.retain_mut(|kept| {
                !kept.sender.http.is_closed()
                    && kept.since.elapsed() < kept.connector.settings.keepalive
                    && kept.sender.stands(&kept.connector)
            });
            let waiting = |oldest: &Idle<B>| oldest.connector.slots.waiting() as usize;
            let asked = idle.first().map_or(0, waiting);
            idle.drain(..asked.min(idle.len()));
            !idle.is_empty()
        });
    }
}
