//! How one member is reached: where, by which protocol, under which name, within which limits.

use std::{
    fmt, io,
    net::IpAddr,
    path::PathBuf,
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
};

use http::HeaderValue;
use rustls::{
    ClientConfig,
    pki_types::{CertificateDer, ServerName},
};
use tokio::sync::Notify;

use crate::{dial::authority, io::MemberStream, settings::UpstreamSettings};

/// Tells connectors apart, so that a connection is reused only by the connector that opened it.
static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// Where a member listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemberAddress {
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
pub enum MemberAddressError {
    /// Neither `host:port` nor `unix:/path`.
    #[error("`{0}` is neither `host:port` nor `unix:/path`")]
    Shape(String),
    /// A name that no certificate can carry.
    #[error("`{0}` is no name that a certificate can carry")]
    Name(String),
}

impl MemberAddress {
    /// Reads `host:port`, `[v6]:port` or `unix:/path`; `host:port@address` is one address of a host.
    ///
    /// # Errors
    /// [`MemberAddressError::Shape`].
    pub fn parse(address: &str) -> Result<Self, MemberAddressError> {
        let shape = || MemberAddressError::Shape(address.to_owned());
        if let Some(path) = address.strip_prefix("unix:") {
            return if path.starts_with('/') {
                Ok(Self::Unix(path.into()))
            } else {
                Err(shape())
            };
        }
        let named = address.rsplit_once('@');
        let named = named.filter(|(_, one)| one.parse::<IpAddr>().is_ok());
        let address = named.map_or(address, |(named, _)| named);
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

/// Counts the connections that are open to one member, over all workers and generations.
///
/// The pool's admission lets no more requests run at a member than connections may be open. A request that cannot open one
/// therefore waits for an idle connection of another worker to be closed, and never for another request.
#[derive(Debug, Default)]
pub struct Slots {
    open: AtomicU32,
    /// Requests that wait for an idle connection to be closed.
    waiting: AtomicU32,
    closed: Notify,
}

impl Slots {
    /// Connections open now.
    pub fn open(&self) -> u32 {
        self.open.load(Ordering::Relaxed)
    }

    pub(crate) fn try_open(self: &Arc<Self>, max: u32) -> Option<OpenSlot> {
        let below = |open| (open < max).then_some(open + 1);
        self.open
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, below)
            .ok()?;
        Some(OpenSlot(Arc::clone(self)))
    }

    /// Waits until a connection may be opened. `close_idle` asks all workers to close idle ones.
    pub(crate) async fn wait(self: &Arc<Self>, max: u32, close_idle: impl Fn()) -> OpenSlot {
        let _waiting = Waiting::new(self);
        loop {
            let mut closed = pin!(self.closed.notified());
            // Before the look: a connection that is closed after it wakes this request.
            closed.as_mut().enable();
            if let Some(slot) = self.try_open(max) {
                return slot;
            }
            close_idle();
            closed.await;
        }
    }

    /// Requests that wait for an idle connection to be closed.
    pub(crate) fn waiting(&self) -> u32 {
        self.waiting.load(Ordering::SeqCst)
    }
}

/// Counts a request among those that wait, until it is dropped.
struct Waiting<'a>(&'a Slots);

impl<'a> Waiting<'a> {
    fn new(slots: &'a Slots) -> Self {
        slots.waiting.fetch_add(1, Ordering::SeqCst);
        Self(slots)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}

/// One open connection, counted until it is dropped.
#[derive(Debug)]
pub(crate) struct OpenSlot(Arc<Slots>);

impl Drop for OpenSlot {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::SeqCst);
        self.0.closed.notify_one();
    }
}

/// Judges a member's certificate after each handshake, a resumed one too, where no verifier is asked, and on a kept
/// connection once what it is judged by has changed.
#[derive(Clone)]
pub struct MemberCheck {
    generation: Arc<dyn Fn() -> u64 + Send + Sync>,
    verify: Arc<Verify>,
}

type Verify = dyn Fn(&CertificateDer<'_>) -> Result<(), rustls::Error> + Send + Sync;

impl MemberCheck {
    /// By what `verify` says; `generation` is another number when that may have changed.
    pub fn new(
        generation: impl Fn() -> u64 + Send + Sync + 'static,
        verify: impl Fn(&CertificateDer<'_>) -> Result<(), rustls::Error> + Send + Sync + 'static,
    ) -> Self {
        Self {
            generation: Arc::new(generation),
            verify: Arc::new(verify),
        }
    }

    pub(crate) fn generation(&self) -> u64 {
        (self.generation)()
    }

    pub(crate) fn verify(&self, shown: &CertificateDer<'_>) -> Result<(), rustls::Error> {
        (self.verify)(shown)
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
    /// Its IP addresses, tried in turn; empty: the host of `address` is looked up on each connect.
    pub addresses: &'a [IpAddr],
    /// Name that the member's certificate must carry; none: the host of `address`.
    pub server_name: Option<&'a str>,
    /// TLS towards the member; none: plain HTTP.
    pub tls: Option<Arc<ClientConfig>>,
    /// What has to hold of its certificate besides; none: what TLS has verified is enough. Whether two specs are the
    /// same does not depend on it.
    pub check: Option<MemberCheck>,
    /// Limits.
    pub settings: UpstreamSettings,
    /// Connections to this member over all workers.
    pub slots: Arc<Slots>,
}

/// Opens an in-memory transport in place of a socket.
type Connect = dyn Fn() -> Pin<Box<dyn Future<Output = io::Result<Box<dyn MemberStream>>> + Send>>
    + Send
    + Sync;

/// Where a member's transports come from in tests.
#[derive(Clone)]
pub(crate) struct InMemory(Arc<Connect>);

impl InMemory {
    pub(crate) async fn connect(&self) -> io::Result<Box<dyn MemberStream>> {
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
    pub target: MemberAddress,
    /// Its IP addresses; empty: looked up on each connect.
    pub(crate) addresses: Box<[IpAddr]>,
    /// What Host says where `host = "member"`, and in probes.
    pub host: HeaderValue,
    pub(crate) server_name: ServerName<'static>,
    pub(crate) tls: Option<Arc<ClientConfig>>,
    pub(crate) check: Option<MemberCheck>,
    /// Limits.
    pub settings: UpstreamSettings,
    /// Connections to this member over all workers.
    pub slots: Arc<Slots>,
    pub(crate) in_memory: Option<InMemory>,
}

impl Connector {
    /// Checks the address and the name.
    ///
    /// # Errors
    /// [`MemberAddressError`] quotes what is wrong.
    pub fn new(spec: ConnectorSpec<'_>) -> Result<Self, MemberAddressError> {
        let target = MemberAddress::parse(spec.address)?;
        let name = spec.server_name.unwrap_or_else(|| target.host());
        let server_name = ServerName::try_from(name.to_owned())
            .map_err(|_| MemberAddressError::Name(name.to_owned()))?;
        let host = match &target {
            MemberAddress::Tcp { port, .. } if name.contains(':') => format!("[{name}]:{port}"),
            MemberAddress::Tcp { port, .. } => format!("{name}:{port}"),
            MemberAddress::Unix(_) => name.to_owned(),
        };
        Ok(Self {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            address: Arc::from(spec.address),
            host: HeaderValue::from_str(&host)
                .map_err(|_| MemberAddressError::Name(name.to_owned()))?,
            target,
            addresses: spec.addresses.into(),
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
    ) -> Result<Self, MemberAddressError>
    where
        F: Future<Output = io::Result<Box<dyn MemberStream>>> + Send + 'static,
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

    /// Its IP addresses; empty: looked up on each connect.
    pub fn addresses(&self) -> &[IpAddr] {
        &self.addresses
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
            && *self.addresses == *spec.addresses
            && ServerName::try_from(name).is_ok_and(|name| name == self.server_name)
            && self.settings == spec.settings
            && Arc::ptr_eq(&self.slots, &spec.slots)
    }
}

#[cfg(test)]
mod tests {
    use std::{
        cell::RefCell,
        task::{Context, Poll, Waker},
    };

    use super::*;

    fn poll_once<T>(mut future: impl Future<Output = T> + Unpin) -> Option<T> {
        let mut context = Context::from_waker(Waker::noop());
        match Pin::new(&mut future).poll(&mut context) {
            Poll::Ready(output) => Some(output),
            Poll::Pending => None,
        }
    }

    #[test]
    fn addresses_are_read_as_operators_write_them() {
        let tcp = |host: &str, port| {
            Ok(MemberAddress::Tcp {
                host: host.to_owned(),
                port,
            })
        };
        let wrong = |address: &str| Err(MemberAddressError::Shape(address.to_owned()));
        for (address, expected) in [
            ("c1.example.com:8140", tcp("c1.example.com", 8140)),
            ("127.0.0.1:80", tcp("127.0.0.1", 80)),
            ("[::1]:8140", tcp("::1", 8140)),
            ("c1.example.com:8140@192.0.2.1", tcp("c1.example.com", 8140)),
            (
                "c1.example.com:8140@2001:db8::1",
                tcp("c1.example.com", 8140),
            ),
            (
                "unix:/run/p.sock",
                Ok(MemberAddress::Unix("/run/p.sock".into())),
            ),
            ("c1", wrong("c1")),
            ("c1:0", wrong("c1:0")),
            (":8140", wrong(":8140")),
            ("a:b:8140", wrong("a:b:8140")),
            ("unix:p.sock", wrong("unix:p.sock")),
        ] {
            assert_eq!(MemberAddress::parse(address), expected, "{address}");
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

    #[tokio::test]
    async fn a_request_at_the_limit_asks_until_enough_idle_connections_are_closed() {
        let slots = Arc::new(Slots::default());
        let mut open: Vec<_> = (0..3).map_while(|_| slots.try_open(3)).collect();
        let open = RefCell::new(&mut open);
        // The limit was lowered meanwhile: three have to be closed, one for each time that the request asks.
        let slot = slots.wait(1, || {
            assert_eq!(slots.waiting(), 1);
            drop(open.borrow_mut().pop());
        });
        let _slot = slot.await;
        assert_eq!((slots.open(), slots.waiting()), (1, 0));
    }

    #[tokio::test]
    async fn each_connection_that_is_closed_wakes_a_request_that_waits() {
        let slots = Arc::new(Slots::default());
        let held = (slots.try_open(2), slots.try_open(2));
        let mut first = pin!(slots.wait(2, || ()));
        let mut second = pin!(slots.wait(2, || ()));
        assert!(poll_once(&mut first).is_none() && poll_once(&mut second).is_none());
        drop(held);
        let opened = (first.await, second.await);
        assert_eq!(slots.open(), 2);
        drop(opened);
    }

    #[tokio::test]
    async fn a_request_that_leaves_passes_its_turn_on() {
        let slots = Arc::new(Slots::default());
        let held = slots.try_open(1);
        let mut first = Box::pin(slots.wait(1, || ()));
        let mut second = pin!(slots.wait(1, || ()));
        assert!(poll_once(&mut first).is_none() && poll_once(&mut second).is_none());
        drop(held);
        drop(first);
        assert_eq!(slots.waiting(), 1);
        second.await;
    }
}
