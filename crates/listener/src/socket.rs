//! Listening sockets: one per worker and endpoint with `SO_REUSEPORT`.

use std::{fmt, io, net::SocketAddr, time::Duration};

use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};
use tokio::net::TcpStream;

use crate::address::ListenAddress;

/// Maximum connections in the queue of a socket.
const BACKLOG: i32 = 1024;

/// Maximum bytes that a socket buffers before the network has sent them. The system's own limit is megabytes. With it, a slow
/// client would seem to stall for minutes, until a third of the buffered bytes is sent.
const UNSENT_BYTES_MAX: u32 = 64 << 10;

/// One address of a listener, with everything that affects how it is bound.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ListenEndpoint {
    /// The address as configured.
    pub address: ListenAddress,
    /// Whether `[::]` leaves IPv4 to other addresses.
    pub only_v6: bool,
    /// The network interface on which connections must arrive. `None`: any.
    pub interface: Option<String>,
}

impl ListenEndpoint {
    /// Whether the system refuses to listen on both endpoints, because they are the same or one also accepts the connections of
    /// the other.
    pub fn overlaps(&self, other: &Self) -> bool {
        let (Some(one), Some(two)) = (self.address.ip(), other.address.ip()) else {
            return self.address == other.address;
        };
        let are_apart = match (&self.interface, &other.interface) {
            (Some(one), Some(two)) => one != two,
            _ => false,
        };
        !are_apart
            && one.port() == two.port()
            && (one.ip().to_canonical() == two.ip().to_canonical()
                || covers((one, self.only_v6), two)
                || covers((two, other.only_v6), one))
    }

    /// The port; 0 for any free port.
    pub fn port(&self) -> Option<u16> {
        self.address.ip().map(|address| address.port())
    }
}

fn covers((wide, only_v6): (SocketAddr, bool), other: SocketAddr) -> bool {
    let is_v4 = other.ip().to_canonical().is_ipv4();
    let family = if wide.is_ipv6() {
        !(only_v6 && is_v4)
    } else {
        is_v4
    };
    wide.ip().is_unspecified() && family
}

impl<A: Into<SocketAddr>> From<A> for ListenEndpoint {
    /// An endpoint without further options.
    fn from(address: A) -> Self {
        Self {
            address: ListenAddress::Ip(address.into()),
            only_v6: false,
            interface: None,
        }
    }
}

impl fmt::Display for ListenEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.address.fmt(f)
    }
}

/// An address that cannot be bound.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {endpoint}: {source}{}", hint(.endpoint, .source))]
pub struct BindError {
    /// The address.
    pub endpoint: ListenEndpoint,
    /// The error of the system.
    #[source]
    pub source: io::Error,
}

impl BindError {
    /// Advice for the operator, if the cause is known.
    pub fn help(&self) -> Option<&'static str> {
        help(&self.endpoint, &self.source)
    }

    /// Whether the system refused the interface, not the address.
    pub fn is_interface(&self) -> bool {
        is_interface(&self.source)
    }
}

/// An interface that a socket cannot be bound to.
#[derive(Debug, thiserror::Error)]
#[error("interface {name}: {source}")]
struct InterfaceError {
    name: String,
    #[source]
    source: io::Error,
}

fn is_interface(source: &io::Error) -> bool {
    source
        .get_ref()
        .is_some_and(|source| source.is::<InterfaceError>())
}

fn help(endpoint: &ListenEndpoint, source: &io::Error) -> Option<&'static str> {
    let is_unix = endpoint.address.path().is_some();
    match source.kind() {
        io::ErrorKind::AddrInUse if is_unix => Some("`ss -xlp` shows which process listens there"),
        io::ErrorKind::PermissionDenied if is_unix => Some(
            "give the account of the service write access to the directory (`RuntimeDirectory=` in the service unit)",
        ),
        _ if is_unix => None,
        io::ErrorKind::PermissionDenied if is_interface(source) => {
            Some("before Linux 5.7, `interface` needs CAP_NET_RAW")
        }
        _ if is_interface(source) => Some("`ip link` shows the interfaces of this host"),
        io::ErrorKind::AddrInUse => Some("another program listens there (`ss -ltnp` shows which)"),
        io::ErrorKind::PermissionDenied => Some(
            "ports below 1024 need CAP_NET_BIND_SERVICE (`AmbientCapabilities=` in the service unit) or root",
        ),
        io::ErrorKind::AddrNotAvailable => Some("no interface of this host has that address"),
        _ => None,
    }
}

fn hint(endpoint: &ListenEndpoint, source: &io::Error) -> String {
    help(endpoint, source).map_or_else(String::new, |help| format!("; {help}"))
}

/// Tests whether this IP address can be bound. Binds it without listening, and closes it again.
///
/// # Errors
/// The [`BindError`] that [`bind`] would return. An address on which this or another process listens is in use.
pub fn try_bind(endpoint: &ListenEndpoint) -> Result<(), BindError> {
    let Some(address) = endpoint.address.ip() else {
        return Ok(());
    };
    match open(endpoint, address, false) {
        Ok(_) => Ok(()),
        Err(source) => Err(BindError {
            endpoint: endpoint.clone(),
            source,
        }),
    }
}

/// Binds `count` sockets to one IP address. The kernel distributes new connections among them.
///
/// A first socket is bound without `SO_REUSEPORT` and closed again. That detects another program on the port, which
/// `SO_REUSEPORT` would hide if the program runs as the same user. The check is skipped if this process already listens on the
/// address (`is_bound`).
///
/// # Errors
/// [`BindError`] with the address and advice for the operator.
pub fn bind(
    endpoint: &ListenEndpoint,
    count: usize,
    is_bound: bool,
) -> Result<Vec<std::net::TcpListener>, BindError> {
    let fail = |source| BindError {
        endpoint: endpoint.clone(),
        source,
    };
    let Some(address) = endpoint.address.ip() else {
        return Err(fail(io::ErrorKind::Unsupported.into()));
    };
    if !is_bound && address.port() != 0 {
        open(endpoint, address, false).map_err(fail)?;
    }
    let first = open(endpoint, address, true).map_err(fail)?;
    // The first socket determines the port if the configured port is 0. The other sockets use the same port.
    let settled = first.local_addr().map_err(fail)?;
    let mut sockets = vec![first];
    for _ in 1..count {
        sockets.push(open(endpoint, settled, true).map_err(fail)?);
    }
    Ok(sockets)
}

/// Opens a socket. `address` is the endpoint's address with its final port.
fn open(
    endpoint: &ListenEndpoint,
    address: SocketAddr,
    share: bool,
) -> io::Result<std::net::TcpListener> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
    if let Some(name) = &endpoint.interface {
        socket
            .bind_device(Some(name.as_bytes()))
            .map_err(|source| {
                let name = name.clone();
                io::Error::new(source.kind(), InterfaceError { name, source })
            })?;
    }
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(endpoint.only_v6)?;
    }
    if share {
        socket.set_reuse_port(true)?;
    }
    // Small responses must not wait for the peer's acknowledgement. On Linux, accepted sockets inherit the option.
    socket.set_tcp_nodelay(true)?;
    socket.set_tcp_notsent_lowat(UNSENT_BYTES_MAX)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    if share {
        socket.listen(BACKLOG)?;
    }
    Ok(socket.into())
}

/// How long a connection is silent before the system probes the peer, and the interval between two probes.
const KEEPALIVE_TIME: Duration = Duration::from_secs(120);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(30);

/// Enables TCP keepalive for a connection that may be silent for long. The system then detects a peer that has gone,
/// and firewalls on the path do not drop the connection.
pub fn keep_alive(stream: &TcpStream) {
    let keepalive = TcpKeepalive::new()
        .with_time(KEEPALIVE_TIME)
        .with_interval(KEEPALIVE_INTERVAL);
    // A socket that has ended meanwhile refuses the option.
    let _ = SockRef::from(stream).set_tcp_keepalive(&keepalive);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepted_sockets_send_small_responses_at_once() {
        let sockets = bind(&ListenEndpoint::from(([127, 0, 0, 1], 0)), 1, false).expect("a port");
        let address = sockets[0].local_addr().expect("its address");
        let _client = std::net::TcpStream::connect(address).expect("a slot in the queue");
        sockets[0]
            .set_nonblocking(false)
            .expect("a socket accepts the option");
        let (accepted, _) = sockets[0].accept().expect("a connection");
        assert!(accepted.nodelay().expect("a socket"));
        let unsent_max = SockRef::from(&accepted).tcp_notsent_lowat();
        assert_eq!(unsent_max.expect("a socket"), UNSENT_BYTES_MAX);
    }
}
