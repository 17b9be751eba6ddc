//! Listening sockets: one per worker and endpoint with `SO_REUSEPORT`.

use std::{fmt, io, net::SocketAddr, time::Duration};

use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};
use tokio::net::TcpStream;

use crate::address::ListenAddress;

/// Connections that may wait in a socket's queue before they are accepted.
const BACKLOG: i32 = 1024;

/// Bytes that a connection accepts before the network has taken them. The system's own limit is megabytes: a client that
/// reads slowly would then seem to stall for minutes, until a third of them has been sent.
const UNSENT_BYTES_MAX: u32 = 64 << 10;

/// One address of a listener, with everything that decides how it is bound.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ListenEndpoint {
    /// The address as configured.
    pub address: ListenAddress,
    /// Whether `[::]` leaves IPv4 to other addresses.
    pub only_v6: bool,
    /// The network interface that connections must come in by, if not any.
    pub interface: Option<String>,
}

impl ListenEndpoint {
    /// Whether the system refuses to listen on both: the same, or one accepts the connections of the other as well.
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

    /// The port; 0 is any that is free.
    pub fn port(&self) -> Option<u16> {
        self.address.ip().map(|address| address.port())
    }
}

fn covers((wide, only_v6): (SocketAddr, bool), other: SocketAddr) -> bool {
    let is_v4 = other.ip().to_canonical().is_ipv4();
    let family = match wide.is_ipv6() {
        true => !(only_v6 && is_v4),
        false => is_v4,
    };
    wide.ip().is_unspecified() && family
}

impl<A: Into<SocketAddr>> From<A> for ListenEndpoint {
    /// An address by itself.
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

/// An address that could not be listened on.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {endpoint}: {source}{}", hint(.endpoint, .source))]
pub struct BindError {
    /// The address.
    pub endpoint: ListenEndpoint,
    /// What the system said.
    #[source]
    pub source: io::Error,
}

impl BindError {
    /// What to do, where the cause is a known one.
    pub fn help(&self) -> Option<&'static str> {
        help(&self.endpoint, &self.source)
    }

    /// Whether the system refused the interface, and not the address.
    pub fn is_interface(&self) -> bool {
        is_interface(&self.source)
    }
}

/// An interface that sockets cannot be bound to.
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

/// Tests whether a start could bind this address of IP: binds it without listening, and closes it again.
///
/// # Errors
/// [`BindError`], as [`bind`] would return it. An address on which this or another process listens is in use.
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

/// Binds `count` sockets to one address of IP; the kernel spreads new connections over them.
///
/// The first is bound without `SO_REUSEPORT` and closed again: that shows another program on the port,
/// which `SO_REUSEPORT` of the same user would hide. Skipped where the address is ours already (`kept`).
///
/// # Errors
/// [`BindError`] names the address and what to do.
pub fn bind(
    endpoint: &ListenEndpoint,
    count: usize,
    kept: bool,
) -> Result<Vec<std::net::TcpListener>, BindError> {
    let fail = |source| BindError {
        endpoint: endpoint.clone(),
        source,
    };
    let Some(address) = endpoint.address.ip() else {
        return Err(fail(io::ErrorKind::Unsupported.into()));
    };
    if !kept && address.port() != 0 {
        open(endpoint, address, false).map_err(fail)?;
    }
    let first = open(endpoint, address, true).map_err(fail)?;
    // Port 0 is settled by the first socket; the others join it.
    let settled = first.local_addr().map_err(fail)?;
    let mut sockets = vec![first];
    for _ in 1..count {
        sockets.push(open(endpoint, settled, true).map_err(fail)?);
    }
    Ok(sockets)
}

/// `address` is that of the endpoint, with the port that it has got.
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
    // Small answers must not wait for the peer's acknowledgement. Linux hands it on to what is accepted.
    socket.set_tcp_nodelay(true)?;
    socket.set_tcp_notsent_lowat(UNSENT_BYTES_MAX)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    if share {
        socket.listen(BACKLOG)?;
    }
    Ok(socket.into())
}

/// Time without a byte after which the system asks whether the peer is still there, and between two such probes.
const KEEPALIVE_TIME: Duration = Duration::from_secs(120);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(30);

/// Has the system look after a connection that may be silent for long: a peer that has gone without a word is noticed, and
/// firewalls on the way do not forget the connection.
pub fn keep_alive(stream: &TcpStream) {
    let keepalive = TcpKeepalive::new()
        .with_time(KEEPALIVE_TIME)
        .with_interval(KEEPALIVE_INTERVAL);
    // A socket that has ended meanwhile refuses it.
    let _ = SockRef::from(stream).set_tcp_keepalive(&keepalive);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_accepted_sends_small_answers_at_once() {
        let sockets = bind(&ListenEndpoint::from(([127, 0, 0, 1], 0)), 1, false).expect("a port");
        let address = sockets[0].local_addr().expect("its address");
        let _client = std::net::TcpStream::connect(address).expect("a place in the queue");
        sockets[0]
            .set_nonblocking(false)
            .expect("a socket takes it");
        let (accepted, _) = sockets[0].accept().expect("who has connected");
        assert!(accepted.nodelay().expect("a socket"));
        let unsent_max = SockRef::from(&accepted).tcp_notsent_lowat();
        assert_eq!(unsent_max.expect("a socket"), UNSENT_BYTES_MAX);
    }
}
