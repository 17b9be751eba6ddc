//! Opens a transport to a member: resolves the name, connects and makes the handshake, within one deadline.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use balancing::{MemberAddress, host_and_port};
use identity::Reason;
use pki::MemberError;
use proxy_protocol::local;
use rustls::ClientConfig;
use tokio::{
    io::AsyncWriteExt as _,
    net::{TcpStream, UnixStream, lookup_host},
    time::{Instant, error::Elapsed, timeout_at},
};
use tokio_rustls::TlsConnector;

use crate::{
    cause::cause,
    connector::Connector,
    host_limit::HostLimit,
    io::{MemberIo, MemberTransport},
    keep_alive::KeepAlive,
    settings::Plaintext,
};

/// Maximum number of addresses of one name that are tried one after the other.
const ADDRESSES_MAX: usize = 8;

/// The stage at which a dial failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DialStage {
    /// Resolving the name.
    Resolve,
    /// Connecting.
    Connect,
    /// The TLS handshake.
    Handshake,
}

/// A member that could not be reached.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    /// The name has no address.
    #[error("{address}: the name does not resolve: {}", cause(source))]
    Resolve {
        /// The member.
        address: Arc<str>,
        /// The error of the resolver.
        source: io::Error,
    },
    /// The connection failed.
    #[error("{address}: cannot connect: {}", cause(source))]
    Connect {
        /// The member.
        address: Arc<str>,
        /// The error of the system for the last address.
        source: io::Error,
    },
    /// Plain HTTP would leave this host.
    #[error(
        "{address}: plain HTTP to {resolved}, which is not loopback: use scheme = \"https\", or plaintext = \"trusted-network\""
    )]
    Plaintext {
        /// The member.
        address: Arc<str>,
        /// The resolved address.
        resolved: SocketAddr,
    },
    /// The address is on the host of a member with identity headers. A passed-through connection would bypass the checks of
    /// that member's pool.
    #[error(
        "{address} is on the host of a member that gets identity headers, so no connection is passed through to it"
    )]
    Guarded {
        /// The member.
        address: Arc<str>,
    },
    /// The TLS handshake failed.
    #[error("{address}: TLS: {}", cause(source))]
    Handshake {
        /// The member.
        address: Arc<str>,
        /// The error. It contains the name in the certificate, if a certificate is the cause.
        source: io::Error,
    },
    /// The deadline has passed.
    #[error("{address}: no connection within {limit:?} (connect_timeout)")]
    Late {
        /// The member.
        address: Arc<str>,
        /// The stage of the dial that was not complete.
        stage: DialStage,
        /// The limit.
        limit: Duration,
    },
}

/// On which side of the dates of a certificate, a CA or a CRL the proxy's clock is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DateFault {
    /// Before they begin: a clock that is behind may be the cause.
    NotYetValid,
    /// After they end: a clock that is ahead may be the cause.
    Expired,
}

impl DateFault {
    fn of(reason: Reason) -> Option<Self> {
        match reason {
            Reason::NotYetValid | Reason::CaNotYetValid => Some(Self::NotYetValid),
            Reason::Expired | Reason::CaExpired | Reason::CrlExpired => Some(Self::Expired),
            _ => None,
        }
    }

    /// Whether a clock that is off in this direction may be the cause. `correction`: seconds to add to the clock.
    pub fn may_end_with(self, correction: i64) -> bool {
        match self {
            Self::NotYetValid => correction > 0,
            Self::Expired => correction < 0,
        }
    }
}

impl DialError {
    /// The stage at which the dial failed.
    pub fn stage(&self) -> DialStage {
        match self {
            Self::Resolve { .. } => DialStage::Resolve,
            Self::Connect { .. } | Self::Plaintext { .. } | Self::Guarded { .. } => {
                DialStage::Connect
            }
            Self::Handshake { .. } => DialStage::Handshake,
            Self::Late { stage, .. } => *stage,
        }
    }

    /// Whether the name does not exist, or no process listens on the port. Only these errors take a member down at once.
    pub fn refused(&self) -> bool {
        matches!(self, Self::Resolve { .. } if self.host_limit().is_none())
            || matches!(self, Self::Connect { source, .. } if matches!(source.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound))
    }

    /// Whether the failure is the fault of the member, of its name or of the network to it. A setting of the proxy and a limit
    /// of this host are not the member's fault: clients that open many connections use up descriptors and ports.
    pub fn is_members_fault(&self) -> bool {
        match self {
            Self::Plaintext { .. } => false,
            Self::Connect { source, .. } => matches!(
                source.kind(),
                io::ErrorKind::ConnectionRefused
                    | io::ErrorKind::ConnectionReset
                    | io::ErrorKind::ConnectionAborted
                    | io::ErrorKind::HostUnreachable
                    | io::ErrorKind::NetworkUnreachable
                    | io::ErrorKind::TimedOut
                    | io::ErrorKind::NotFound
            ),
            Self::Resolve { .. } => self.host_limit().is_none(),
            Self::Guarded { .. } | Self::Handshake { .. } | Self::Late { .. } => true,
        }
    }

    /// The limit of this host that made the dial fail. Such a failure shows nothing about the member.
    pub fn host_limit(&self) -> Option<HostLimit> {
        match self {
            Self::Resolve { source, .. } | Self::Connect { source, .. } => HostLimit::of(source),
            _ => None,
        }
    }

    /// The date because of which the proxy has refused a certificate of the member, if that was the reason. A wrong clock may be
    /// the cause.
    pub fn date_fault(&self) -> Option<DateFault> {
        let Self::Handshake { source, .. } = self else {
            return None;
        };
        let error = source.get_ref()?.downcast_ref()?;
        match MemberError::find(error)? {
            MemberError::Certificate { reason, .. } => DateFault::of(*reason),
            _ => None,
        }
    }

    /// Every label of [`reason`](Self::reason).
    pub const REASONS: [&str; 7] = [
        "name-unresolved",
        "connect-refused",
        "connect-failed",
        "plaintext-refused",
        "guarded-address",
        "member-tls-failed",
        "connect-timeout",
    ];

    /// A short label for records and metrics.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Resolve { .. } => "name-unresolved",
            Self::Connect { .. } if self.refused() => "connect-refused",
            Self::Connect { .. } => "connect-failed",
            Self::Plaintext { .. } => "plaintext-refused",
            Self::Guarded { .. } => "guarded-address",
            Self::Handshake { .. } => "member-tls-failed",
            Self::Late { .. } => "connect-timeout",
        }
    }
}

impl Connector {
    /// The error for an address on the host of a member with identity headers.
    pub fn guarded(&self) -> DialError {
        let address = Arc::clone(&self.address);
        DialError::Guarded { address }
    }

    /// The error for a dial that exceeded `connect_timeout`.
    pub(crate) fn late(&self, stage: DialStage) -> DialError {
        DialError::Late {
            address: Arc::clone(&self.address),
            stage,
            limit: self.settings.connect_timeout,
        }
    }
}

pub(crate) async fn dial(connector: &Connector) -> Result<MemberTransport, DialError> {
    dial_tls(connector, None).await
}

/// Opens a transport to a member. With another port of its host, the transport uses the member's TLS and server name.
pub(crate) async fn dial_tls(
    connector: &Connector,
    port: Option<u16>,
) -> Result<MemberTransport, DialError> {
    let header = match port {
        None => connector.settings.send_proxy.version().map(local),
        Some(_) => None,
    };
    dial_with(connector, port, connector.tls.as_ref(), header).await
}

impl Connector {
    /// Opens a connection for a protocol other than HTTP/1. The connection does not count as one of the member's connections.
    ///
    /// # Errors
    /// The peer cannot be reached, or its certificate is refused.
    pub async fn open(&self) -> Result<MemberIo, DialError> {
        Ok(MemberIo::new(dial(self).await?, None))
    }
}

impl MemberIo {
    /// Opens a connection for a client's bytes, and sends `header` first. If the bytes are TLS, it is the client's TLS.
    ///
    /// # Errors
    /// The member cannot be reached, or its name resolves to an address for which `is_refused` returns true.
    pub async fn open_raw(
        connector: &Connector,
        header: Option<Vec<u8>>,
        is_refused: impl Fn(IpAddr) -> bool,
    ) -> Result<Self, DialError> {
        let io = dial_with(connector, None, None, header).await?;
        let peer = match &io {
            MemberTransport::Tcp(stream) => stream.peer_addr().ok(),
            _ => None,
        };
        match peer {
            // No byte of the client has been sent yet.
            Some(resolved) if is_refused(resolved.ip().to_canonical()) => Err(connector.guarded()),
            _ => Ok(Self::new(io, connector.slots.try_open(u32::MAX))),
        }
    }
}

async fn dial_with(
    connector: &Connector,
    port: Option<u16>,
    tls: Option<&Arc<ClientConfig>>,
    header: Option<Vec<u8>>,
) -> Result<MemberTransport, DialError> {
    let deadline = Instant::now() + connector.settings.connect_timeout;
    if let Some(memory) = &connector.in_memory {
        let opened = timeout_at(deadline, memory.connect()).await;
        return connected(
            connector,
            opened.map(|opened| opened.map(MemberTransport::Memory)),
        );
    }
    let (host, port) = match (&connector.target, port) {
        (target, Some(port)) => (target.host(), port),
        (MemberAddress::Unix(path), None) => {
            let opened = timeout_at(deadline, UnixStream::connect(path)).await;
            return connected(
                connector,
                opened.map(|opened| opened.map(MemberTransport::Unix)),
            );
        }
        (MemberAddress::Tcp { host, port }, None) => (host.as_str(), *port),
    };
    let mut stream = open(connector, &connector.address, (host, port), deadline).await?;
    if let Some(header) = header {
        // A new socket always has room for the header.
        connected(
            connector,
            timeout_at(deadline, stream.write_all(&header)).await,
        )?;
    }
    let Some(tls) = tls else {
        return Ok(MemberTransport::Tcp(stream));
    };
    let handshake =
        TlsConnector::from(Arc::clone(tls)).connect(connector.server_name.clone(), stream);
    let failed = |source| DialError::Handshake {
        address: Arc::clone(&connector.address),
        source,
    };
    let io = match timeout_at(deadline, handshake).await {
        Ok(Ok(stream)) => MemberTransport::Tls(Box::new(stream)),
        Ok(Err(source)) => return Err(failed(source)),
        Err(_) => return Err(connector.late(DialStage::Handshake)),
    };
    if let (Some(check), Some(own)) = (&connector.check, io.presented()) {
        check
            .verify(&own)
            .map_err(|error| failed(io::Error::other(error)))?;
    }
    Ok(io)
}

fn connected<T>(
    connector: &Connector,
    opened: Result<io::Result<T>, Elapsed>,
) -> Result<T, DialError> {
    match opened {
        Ok(Ok(opened)) => Ok(opened),
        Ok(Err(source)) => Err(DialError::Connect {
            address: Arc::clone(&connector.address),
            source,
        }),
        Err(_) => Err(connector.late(DialStage::Connect)),
    }
}

/// Opens a connection without TLS to another port of a member's host, for a check.
pub(crate) async fn dial_port(connector: &Connector, port: u16) -> Result<TcpStream, DialError> {
    let host = connector.target.host();
    let deadline = Instant::now() + connector.settings.connect_timeout;
    open(
        connector,
        &host_and_port(host, port).into(),
        (host, port),
        deadline,
    )
    .await
}

/// Resolves the name and connects. Error messages name `address`.
async fn open(
    connector: &Connector,
    address: &Arc<str>,
    (host, port): (&str, u16),
    deadline: Instant,
) -> Result<TcpStream, DialError> {
    let known = connector.addresses.iter().take(ADDRESSES_MAX);
    let known: Vec<_> = known.map(|ip| SocketAddr::new(*ip, port)).collect();
    if !known.is_empty() {
        return connect(connector, address, &known, deadline).await;
    }
    let addresses = timeout_at(deadline, resolve(host, port))
        .await
        .map_err(|_| DialError::Late {
            address: Arc::clone(address),
            stage: DialStage::Resolve,
            limit: connector.settings.connect_timeout,
        })?
        .map_err(|source| DialError::Resolve {
            address: Arc::clone(address),
            source,
        })?;
    connect(connector, address, &addresses, deadline).await
}

async fn resolve(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    if let Ok(ip) = host.parse() {
        return Ok(vec![SocketAddr::new(ip, port)]);
    }
    let addresses: Vec<_> = lookup_host((host, port))
        .await?
        .take(ADDRESSES_MAX)
        .collect();
    if addresses.is_empty() {
        Err(io::Error::new(io::ErrorKind::NotFound, "no address"))
    } else {
        Ok(addresses)
    }
}

/// Tries the addresses one after the other. Each gets an equal share of the remaining time.
async fn connect(
    connector: &Connector,
    address: &Arc<str>,
    addresses: &[SocketAddr],
    deadline: Instant,
) -> Result<TcpStream, DialError> {
    let address = || Arc::clone(address);
    let mut last = DialError::Late {
        address: address(),
        stage: DialStage::Connect,
        limit: connector.settings.connect_timeout,
    };
    for (tried, resolved) in addresses.iter().enumerate() {
        if connector.tls.is_none()
            && connector.settings.plaintext == Plaintext::Loopback
            && !is_loopback(resolved)
        {
            last = DialError::Plaintext {
                address: address(),
                resolved: *resolved,
            };
            continue;
        }
        let left =
            deadline.saturating_duration_since(Instant::now()) / (addresses.len() - tried) as u32;
        match timeout_at(Instant::now() + left, TcpStream::connect(resolved)).await {
            Ok(Ok(stream)) => {
                let _ = stream.set_nodelay(true);
                KeepAlive::within(connector.settings.down_wait).enable(&stream);
                return Ok(stream);
            }
            // A name may have an address that this host cannot use, such as ::1 without IPv6. The error for another address
            // shows the state of the member better.
            Ok(Err(source)) if tried > 0 && HostLimit::of(&source).is_some() => {}
            Ok(Err(source)) => {
                last = DialError::Connect {
                    address: address(),
                    source,
                }
            }
            Err(_) => {}
        }
    }
    Err(last)
}

fn is_loopback(address: &SocketAddr) -> bool {
    address.ip().to_canonical().is_loopback()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// EMFILE, ENFILE, ENOMEM, ENOBUFS and EADDRNOTAVAIL.
    const HOST_LIMITS: [i32; 5] = [24, 23, 12, 105, 99];

    #[test]
    fn a_limit_of_this_host_is_not_a_members_fault() {
        let connect = |source: io::Error| DialError::Connect {
            address: "c1:8140".into(),
            source,
        };
        let refused = connect(io::ErrorKind::ConnectionRefused.into());
        assert!(refused.is_members_fault());
        for number in HOST_LIMITS {
            let limited = connect(io::Error::from_raw_os_error(number));
            assert!(!limited.is_members_fault(), "{limited}");
            assert!(limited.host_limit().is_some(), "{limited}");
            let unresolved = DialError::Resolve {
                address: "c1:8140".into(),
                source: io::Error::from_raw_os_error(number),
            };
            assert!(!unresolved.is_members_fault(), "{unresolved}");
            assert!(!unresolved.refused(), "{unresolved}");
        }
        // EHOSTUNREACH, ENETUNREACH, ETIMEDOUT and EACCES. With a dead or misconfigured member, probes fail with these errors.
        for number in [113, 101, 110, 13] {
            let failed = connect(io::Error::from_raw_os_error(number));
            assert_eq!(failed.host_limit(), None, "{failed}");
        }
    }
}
