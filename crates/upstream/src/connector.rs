//! How one member is reached: where, by which protocol, under which name, within which limits.

use std::{
    collections::VecDeque,
    fmt, io,
    net::IpAddr,
    path::PathBuf,
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
};

use http::HeaderValue;
use rustls::{
    ClientConfig,
    pki_types::{CertificateDer, ServerName},
};
use tokio::sync::Notify;

use crate::{dial::authority, io::Transport, settings::Settings};

/// Tells connectors apart, so that a connection is reused only by the connector that opened it.
static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// Where a member listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A host and port.
    Tcp {
        /// Name or address.
        host: String,
        /// Port.
        port: u16,
    },
    /// A Unix socket.
    Unix(PathBuf),
}

/// An address that is no target.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum TargetError {
    /// Neither `host:port` nor `unix:/path`.
    #[error("`{0}` is neither `host:port` nor `unix:/path`")]
    Shape(String),
    /// A name that no certificate can carry.
    #[error("`{0}` is no name that a certificate can carry")]
    Name(String),
}

impl Target {
    /// Reads `host:port`, `[v6]:port` or `unix:/path`.
    ///
    /// # Errors
    /// [`TargetError::Shape`].
    pub fn parse(address: &str) -> Result<Self, TargetError> {
        let shape = || TargetError::Shape(address.to_owned());
        if let Some(path) = address.strip_prefix("unix:") {
            return if path.starts_with('/') {
                Ok(Self::Unix(path.into()))
            } else {
                Err(shape())
            };
        }
        let (host, port) = address.rsplit_once(':').ok_or_else(shape)?;
        let host = host
            .strip_prefix('[')
            .and_then(|h| h.strip_suffix(']'))
            .unwrap_or(host);
        if host.is_empty() || (host.contains(':') && host.parse::<IpAddr>().is_err()) {
            return Err(shape());
        }
        match port.parse() {
            Ok(port) if port > 0 => Ok(Self::Tcp {
                host: host.to_owned(),
                port,
            }),
            _ => Err(shape()),
        }
    }

    /// The host, as far as there is one.
    pub fn host(&self) -> &str {
        match self {
            Self::Tcp { host, .. } => host,
            Self::Unix(_) => "localhost",
        }
    }
}

/// Connections to one member over all workers and generations, and who waits for one.
#[derive(Debug, Default)]
pub struct Slots {
    open: AtomicU32,
    /// Length of the queue, to be looked at without its lock.
    waiting: AtomicU32,
    queue: Mutex<Queue>,
}

/// First come, first served: at the limit a place that is given up goes to whoever has waited longest, on whichever
/// worker, and never to a newcomer.
#[derive(Debug, Default)]
struct Queue {
    tickets: VecDeque<Arc<Notify>>,
    /// Connections that are still to be closed for those who wait.
    wanted: u32,
}

impl Slots {
    /// Connections open now.
    pub fn open(&self) -> u32 {
        self.open.load(Ordering::Relaxed)
    }

    pub(crate) fn try_open(self: &Arc<Self>, max: u32) -> Option<OpenSlot> {
        let queue = self.queue();
        (queue.tickets.is_empty() && self.open() < max).then(|| self.opened())
    }

    /// A place in the queue, and the wish that somebody closes a connection: several, where a lowered limit leaves more
    /// open than there may be.
    pub(crate) fn wait(self: &Arc<Self>, max: u32) -> Ticket {
        let called = Arc::new(Notify::new());
        let mut queue = self.queue();
        queue.tickets.push_back(Arc::clone(&called));
        queue.wanted += 1;
        self.counted(&mut queue);
        queue.wanted = queue.wanted.max(self.open().saturating_sub(max) + 1);
        Ticket {
            slots: Arc::clone(self),
            called,
        }
    }

    /// Takes one of the wishes for a closed connection; true: the caller closes one.
    pub(crate) fn grant(&self) -> bool {
        if self.waiting.load(Ordering::Acquire) == 0 {
            return false;
        }
        let mut queue = self.queue();
        let wanted = queue.wanted > 0;
        queue.wanted -= u32::from(wanted);
        wanted
    }

    /// To be called with the queue locked.
    fn opened(self: &Arc<Self>) -> OpenSlot {
        self.open.fetch_add(1, Ordering::AcqRel);
        OpenSlot(Arc::clone(self))
    }

    /// Brings the counts in line with the queue.
    fn counted(&self, queue: &mut Queue) {
        let waiting = queue.tickets.len() as u32;
        queue.wanted = queue.wanted.min(waiting);
        self.waiting.store(waiting, Ordering::Release);
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Queue {
    fn call_first(&self) {
        if let Some(first) = self.tickets.front() {
            first.notify_one();
        }
    }
}

/// A place in the queue; dropped, it is given up.
#[derive(Debug)]
pub(crate) struct Ticket {
    slots: Arc<Slots>,
    called: Arc<Notify>,
}

impl Ticket {
    /// Waits until a connection may be opened.
    pub(crate) async fn slot(self, max: u32) -> OpenSlot {
        loop {
            if let Some(slot) = self.try_open(max) {
                return slot;
            }
            self.called.notified().await;
        }
    }

    fn try_open(&self, max: u32) -> Option<OpenSlot> {
        let slots = &self.slots;
        let queue = slots.queue();
        let first = queue
            .tickets
            .front()
            .is_some_and(|first| Arc::ptr_eq(first, &self.called));
        (first && slots.open() < max).then(|| slots.opened())
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut queue = self.slots.queue();
        queue
            .tickets
            .retain(|ticket| !Arc::ptr_eq(ticket, &self.called));
        self.slots.counted(&mut queue);
        // There may be another place, or this one was given up.
        queue.call_first();
    }
}

/// One open connection, counted until it is dropped.
#[derive(Debug)]
pub(crate) struct OpenSlot(Arc<Slots>);

impl Drop for OpenSlot {
    fn drop(&mut self) {
        let queue = self.0.queue();
        self.0.open.fetch_sub(1, Ordering::AcqRel);
        queue.call_first();
    }
}

/// Judges a member's certificate after each handshake, a resumed one too, where no verifier is asked, and on a kept
/// connection once what it is judged by has changed.
#[derive(Clone)]
pub struct MemberCheck {
    generation: Arc<dyn Fn() -> u64 + Send + Sync>,
    judge: Arc<Judge>,
}

type Judge = dyn Fn(&CertificateDer<'_>) -> Result<(), rustls::Error> + Send + Sync;

impl MemberCheck {
    /// By what `judge` says; `generation` is another number when that may have changed.
    pub fn new(
        generation: impl Fn() -> u64 + Send + Sync + 'static,
        judge: impl Fn(&CertificateDer<'_>) -> Result<(), rustls::Error> + Send + Sync + 'static,
    ) -> Self {
        Self {
            generation: Arc::new(generation),
            judge: Arc::new(judge),
        }
    }

    pub(crate) fn generation(&self) -> u64 {
        (self.generation)()
    }

    pub(crate) fn judge(&self, shown: &CertificateDer<'_>) -> Result<(), rustls::Error> {
        (self.judge)(shown)
    }
}

impl fmt::Debug for MemberCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MemberCheck")
    }
}

/// What a connector is made of.
#[derive(Clone, Debug)]
pub struct ConnectorSpec<'a> {
    /// Address as configured.
    pub address: &'a str,
    /// Name that the member's certificate must carry; none: the host of `address`.
    pub server_name: Option<&'a str>,
    /// TLS towards the member; none: plain HTTP.
    pub tls: Option<Arc<ClientConfig>>,
    /// What has to hold of its certificate besides; none: what TLS has verified is enough. Whether two specs are the
    /// same does not depend on it.
    pub check: Option<MemberCheck>,
    /// Limits.
    pub settings: Settings,
    /// Connections to this member over all workers.
    pub slots: Arc<Slots>,
}

/// Opens an in-memory transport in place of a socket.
type Connect =
    dyn Fn() -> Pin<Box<dyn Future<Output = io::Result<Box<dyn Transport>>> + Send>> + Send + Sync;

/// Where a member's transports come from in tests.
#[derive(Clone)]
pub(crate) struct InMemory(Arc<Connect>);

impl InMemory {
    pub(crate) async fn connect(&self) -> io::Result<Box<dyn Transport>> {
        (self.0)().await
    }
}

impl fmt::Debug for InMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("InMemory")
    }
}

/// How one member is reached.
#[derive(Debug)]
pub struct Connector {
    pub(crate) id: u64,
    /// Address as configured, for messages.
    pub address: Arc<str>,
    /// Where it listens.
    pub target: Target,
    /// What Host says where `host = "member"`, and in probes.
    pub host: HeaderValue,
    pub(crate) server_name: ServerName<'static>,
    pub(crate) tls: Option<Arc<ClientConfig>>,
    pub(crate) check: Option<MemberCheck>,
    /// Limits.
    pub settings: Settings,
    /// Connections to this member over all workers.
    pub slots: Arc<Slots>,
    pub(crate) in_memory: Option<InMemory>,
}

impl Connector {
    /// Checks the address and the name.
    ///
    /// # Errors
    /// [`TargetError`] quotes what is wrong.
    pub fn new(spec: ConnectorSpec<'_>) -> Result<Self, TargetError> {
        let target = Target::parse(spec.address)?;
        let name = spec.server_name.unwrap_or_else(|| target.host());
        let server_name = ServerName::try_from(name.to_owned())
            .map_err(|_| TargetError::Name(name.to_owned()))?;
        let host = match &target {
            Target::Tcp { port, .. } if name.contains(':') => format!("[{name}]:{port}"),
            Target::Tcp { port, .. } => format!("{name}:{port}"),
            Target::Unix(_) => name.to_owned(),
        };
        Ok(Self {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            address: Arc::from(spec.address),
            host: HeaderValue::from_str(&host).map_err(|_| TargetError::Name(name.to_owned()))?,
            target,
            server_name,
            tls: spec.tls,
            check: spec.check,
            settings: spec.settings,
            slots: spec.slots,
            in_memory: None,
        })
    }

    /// For tests: a member without a socket. Each dial calls `connect`, within `connect_timeout`; TLS is not spoken.
    ///
    /// # Errors
    /// As [`Connector::new`].
    pub fn in_memory<F>(
        spec: ConnectorSpec<'_>,
        connect: impl Fn() -> F + Send + Sync + 'static,
    ) -> Result<Self, TargetError>
    where
        F: Future<Output = io::Result<Box<dyn Transport>>> + Send + 'static,
    {
        let mut connector = Self::new(spec)?;
        connector.in_memory = Some(InMemory(Arc::new(move || Box::pin(connect()))));
        Ok(connector)
    }

    /// What Host says at this port of its host; none: at its own.
    pub(crate) fn host_at(&self, port: Option<u16>) -> HeaderValue {
        let name = self.server_name.to_str();
        let other = port.and_then(|port| HeaderValue::from_str(&authority(&name, port)).ok());
        other.unwrap_or_else(|| self.host.clone())
    }

    /// Whether TLS is spoken there.
    pub fn is_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// Whether this is the name that its certificate must carry.
    pub fn has_name(&self, name: &str) -> bool {
        self.server_name.to_str() == name
    }

    /// Whether it is what `spec` asks for, so that its connections may go on.
    pub fn is(&self, spec: &ConnectorSpec<'_>) -> bool {
        let same_tls = match (&self.tls, &spec.tls) {
            (None, None) => true,
            (Some(mine), Some(theirs)) => Arc::ptr_eq(mine, theirs),
            _ => false,
        };
        let name = spec.server_name.unwrap_or_else(|| self.target.host());
        same_tls
            && *self.address == *spec.address
            && ServerName::try_from(name).is_ok_and(|name| name == self.server_name)
            && self.settings == spec.settings
            && Arc::ptr_eq(&self.slots, &spec.slots)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_operators_write_them() {
        let tcp = |host: &str, port| {
            Ok(Target::Tcp {
                host: host.to_owned(),
                port,
            })
        };
        let wrong = |address: &str| Err(TargetError::Shape(address.to_owned()));
        for (address, expected) in [
            ("c1.example.com:8140", tcp("c1.example.com", 8140)),
            ("127.0.0.1:80", tcp("127.0.0.1", 80)),
            ("[::1]:8140", tcp("::1", 8140)),
            ("unix:/run/p.sock", Ok(Target::Unix("/run/p.sock".into()))),
            ("c1", wrong("c1")),
            ("c1:0", wrong("c1:0")),
            (":8140", wrong(":8140")),
            ("a:b:8140", wrong("a:b:8140")),
            ("unix:p.sock", wrong("unix:p.sock")),
        ] {
            assert_eq!(Target::parse(address), expected, "{address}");
        }
    }

    #[test]
    fn a_member_is_never_given_more_connections_than_its_limit() {
        let slots = Arc::new(Slots::default());
        let first = slots.try_open(1);
        assert!(first.is_some() && slots.try_open(1).is_none());
        drop(first);
        assert_eq!(slots.open(), 0);
    }

    #[test]
    fn a_place_goes_to_whoever_waited_longest_and_to_no_newcomer() {
        let slots = Arc::new(Slots::default());
        let held = slots.try_open(1);
        let (first, second) = (slots.wait(1), slots.wait(1));
        assert!(
            slots.grant() && slots.grant() && !slots.grant(),
            "a wish each"
        );
        drop(held);
        assert!(slots.try_open(1).is_none() && second.try_open(1).is_none());
        let slot = first.try_open(1);
        assert!(slot.is_some());
        drop((first, slot));
        assert!(second.try_open(1).is_some());
    }

    #[test]
    fn whoever_waits_at_a_lowered_limit_wishes_all_that_is_too_much_closed() {
        let slots = Arc::new(Slots::default());
        let open: Vec<_> = (0..3).map_while(|_| slots.try_open(3)).collect();
        let ticket = slots.wait(1);
        assert_eq!((0..9).filter(|_| slots.grant()).count(), 3);
        drop(open);
        assert!(ticket.try_open(1).is_some());
    }

    #[test]
    fn who_gives_up_waiting_takes_the_wish_along() {
        let slots = Arc::new(Slots::default());
        let _held = slots.try_open(1);
        drop(slots.wait(1));
        assert!(!slots.grant());
    }
}
