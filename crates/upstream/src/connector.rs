//! How the proxy connects to one member: address, protocol, server name and limits.

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

/// The id of the next connector. Ids ensure that a connection is reused only by the connector that opened it.
static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// Why a connector cannot be created.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ConnectorError {
    /// The address is malformed.
    #[error(transparent)]
    Address(#[from] MemberAddressError),
    /// The name is not one that a certificate can contain.
    #[error("`{0}` is not a name that a certificate can contain")]
    Name(String),
}

/// The properties of a connector.
#[derive(Clone, Debug)]
pub struct ConnectorSpec<'a> {
    /// The address as configured.
    pub address: &'a str,
    /// Its IP addresses, tried one after the other. Empty: the host in `address` is resolved on each connect.
    pub addresses: &'a [IpAddr],
    /// The name that the member's certificate must contain. `None`: the host of `address`.
    pub server_name: Option<&'a str>,
    /// The TLS configuration. `None`: plain HTTP.
    pub tls: Option<Arc<ClientConfig>>,
    /// An additional check of the member's certificate. `None`: TLS verification is enough. Comparisons of two specs ignore it.
    pub check: Option<MemberCheck>,
    /// Limits.
    pub settings: UpstreamSettings,
    /// The count of connections to this member over all workers.
    pub slots: Arc<Slots>,
}

/// A function that opens an in-memory transport instead of a socket.
type Connect = dyn Fn() -> Pin<Box<dyn Future<Output = io::Result<Box<dyn MemberStream>>> + Send>>
    + Send
    + Sync;

/// The source of a member's transports in tests.
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

/// Connects to one member.
#[derive(Debug)]
pub struct Connector {
    pub(crate) id: u64,
    /// The address as configured, for messages.
    pub address: Arc<str>,
    /// Where the member listens.
    pub target: MemberAddress,
    /// Its IP addresses. Empty: its host is resolved on each connect.
    pub(crate) addresses: Box<[IpAddr]>,
    /// The Host field for probes, and for requests with `host = "member"`.
    pub host: HeaderValue,
    pub(crate) server_name: ServerName<'static>,
    pub(crate) tls: Option<Arc<ClientConfig>>,
    pub(crate) check: Option<MemberCheck>,
    /// Limits.
    pub settings: UpstreamSettings,
    /// The count of connections to this member over all workers.
    pub slots: Arc<Slots>,
    pub(crate) in_memory: Option<InMemory>,
}

impl Connector {
    /// Creates a connector after checking the address and the server name.
    ///
    /// # Errors
    /// [`ConnectorError`] quotes the invalid value.
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

    /// A connector to the same member with another TLS configuration, for a query that presents another certificate.
    #[must_use]
    pub fn with_tls(&self, tls: Arc<ClientConfig>) -> Self {
        Self {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            address: Arc::clone(&self.address),
            target: self.target.clone(),
            addresses: self.addresses.clone(),
            host: self.host.clone(),
            server_name: self.server_name.clone(),
            tls: Some(tls),
            check: self.check.clone(),
            settings: self.settings,
            slots: Arc::clone(&self.slots),
            in_memory: self.in_memory.clone(),
        }
    }

    /// For tests: a connector to a member without a socket. Each dial calls `connect`, within `connect_timeout`. There is no
    /// TLS.
    ///
    /// # Errors
    /// The same as for [`Connector::new`].
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

    /// The Host field for another port of the member's host. `None`: the member's own port.
    pub(crate) fn host_at(&self, port: Option<u16>) -> HeaderValue {
        let name = self.server_name.to_str();
        let other = port.and_then(|port| HeaderValue::from_str(&host_and_port(&name, port)).ok());
        other.unwrap_or_else(|| self.host.clone())
    }

    /// Its IP addresses. Empty: its host is resolved on each connect.
    pub fn addresses(&self) -> &[IpAddr] {
        &self.addresses
    }

    /// Whether connections use TLS.
    pub fn is_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// Whether the member's certificate must contain this name.
    pub fn has_name(&self, name: &str) -> bool {
        self.server_name.to_str() == name
    }

    /// Whether `spec` would create an equal connector, so that this connector's connections can be reused.
    pub fn is(&self, spec: &ConnectorSpec<'_>) -> bool {
        let same_tls = match (&self.tls, &spec.tls) {
            (None, None) => true,
            (Some(own), Some(other)) => Arc::ptr_eq(own, other),
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
