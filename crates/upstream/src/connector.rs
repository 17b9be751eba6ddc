//! How one member is reached: where, by which protocol, under which name, within which limits.

use std::{
    fmt, io,
    net::IpAddr,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use balancing::{MemberAddress, MemberAddressError, host_and_port};
use http::HeaderValue;
use rustls::{ClientConfig, pki_types::ServerName};

use crate::{
    io::MemberStream, member_check::MemberCheck, settings::UpstreamSettings, slots::Slots,
};

/// Tells connectors apart, so that a connection is reused only by the connector that opened it.
static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// Why a connector cannot be made.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ConnectorError {
    /// The address is malformed.
    #[error(transparent)]
    Address(#[from] MemberAddressError),
    /// No certificate can contain the name.
    #[error("`{0}` is not a name that a certificate can contain")]
    Name(String),
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
    /// [`ConnectorError`] quotes what is wrong.
    pub fn new(spec: ConnectorSpec<'_>) -> Result<Self, ConnectorError> {
        let target = MemberAddress::parse(spec.address)?;
        let name = spec.server_name.unwrap_or_else(|| target.host());
        let server_name = ServerName::try_from(name.to_owned())
            .map_err(|_| ConnectorError::Name(name.to_owned()))?;
        let host = match &target {
            MemberAddress::Tcp { port, .. } => host_and_port(name, *port),
            MemberAddress::Unix(_) => name.to_owned(),
        };
        Ok(Self {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            address: Arc::from(spec.address),
            host: HeaderValue::from_str(&host)
                .map_err(|_| ConnectorError::Name(name.to_owned()))?,
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
    ) -> Result<Self, ConnectorError>
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
        let other = port.and_then(|port| HeaderValue::from_str(&host_and_port(&name, port)).ok());
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
