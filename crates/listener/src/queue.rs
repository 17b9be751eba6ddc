//! The queue of connections to accept, of a TCP port or a Unix socket.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    os::{fd::OwnedFd, unix},
};

use tokio::net::{TcpListener, TcpStream, UnixListener};

/// The address recorded for clients of a Unix socket, which are on this host.
const LOCAL: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// A listening socket that is not registered with a runtime yet.
#[derive(Debug)]
pub enum ListeningSocket {
    /// A TCP port.
    Tcp(std::net::TcpListener),
    /// A Unix socket, which all workers share.
    Unix(unix::net::UnixListener),
}

impl ListeningSocket {
    /// Another descriptor of the same socket.
    ///
    /// # Errors
    /// No descriptor is free.
    pub fn try_clone(&self) -> io::Result<Self> {
        match self {
            Self::Tcp(socket) => socket.try_clone().map(Self::Tcp),
            Self::Unix(socket) => socket.try_clone().map(Self::Unix),
        }
    }

    pub(crate) fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        match self {
            Self::Tcp(socket) => {
                let (stream, client) = socket.accept()?;
                stream.set_nonblocking(true)?;
                Ok((TcpStream::from_std(stream)?, client))
            }
            Self::Unix(socket) => Ok((from_unix(socket.accept()?.0)?, LOCAL)),
        }
    }
}

impl From<ListeningSocket> for OwnedFd {
    fn from(socket: ListeningSocket) -> Self {
        match socket {
            ListeningSocket::Tcp(socket) => socket.into(),
            ListeningSocket::Unix(socket) => socket.into(),
        }
    }
}

/// The queue of a listening socket, for the runtime of one worker.
#[derive(Debug)]
pub enum AcceptQueue {
    /// A TCP port.
    Tcp(TcpListener),
    /// A Unix socket.
    Unix(UnixListener),
}

impl AcceptQueue {
    /// Registers a socket with the runtime of this thread.
    ///
    /// # Errors
    /// The system refuses.
    pub fn new(socket: ListeningSocket) -> io::Result<Self> {
        match socket {
            ListeningSocket::Tcp(socket) => TcpListener::from_std(socket).map(Self::Tcp),
            ListeningSocket::Unix(socket) => UnixListener::from_std(socket).map(Self::Unix),
        }
    }

    /// The port; 0 for a Unix socket.
    pub(crate) fn port(&self) -> u16 {
        match self {
            Self::Tcp(socket) => socket.local_addr().map_or(0, |local| local.port()),
            Self::Unix(_) => 0,
        }
    }

    pub(crate) async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        match self {
            Self::Tcp(socket) => socket.accept().await,
            Self::Unix(socket) => {
                let (stream, _) = socket.accept().await?;
                Ok((from_unix(stream.into_std()?)?, LOCAL))
            }
        }
    }

    pub(crate) fn into_socket(self) -> io::Result<ListeningSocket> {
        match self {
            Self::Tcp(socket) => socket.into_std().map(ListeningSocket::Tcp),
            Self::Unix(socket) => socket.into_std().map(ListeningSocket::Unix),
        }
    }
}

/// Wraps a Unix connection in the type of a TCP connection, so that TCP connections need no second variant to check on
/// each read. The system calls for read, write, peek and close are the same. Only TCP options fail, and the proxy does
/// not request the addresses.
fn from_unix(stream: unix::net::UnixStream) -> io::Result<TcpStream> {
    stream.set_nonblocking(true)?;
    TcpStream::from_std(std::net::TcpStream::from(OwnedFd::from(stream)))
}
