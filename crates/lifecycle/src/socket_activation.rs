//! Sockets that the service manager has bound (sd_listen_fds(3)). Agents that connect before the proxy serves wait in
//! their queue, also during a restart.

use std::{io, net::TcpListener};

use listener::ListenAddress;
use listenfd::ListenFd;
use rustix::io::{FdFlags, fcntl_setfd};

/// The TCP sockets of the service manager, each with its address. Other sockets are logged and left unused.
pub(crate) fn from_environment() -> Vec<(ListenAddress, TcpListener)> {
    let mut passed = ListenFd::from_env();
    let mut sockets = Vec::new();
    for index in 0..passed.len() {
        match prepared(passed.take_tcp_listener(index)) {
            Ok(Some(socket)) => sockets.push(socket),
            Ok(None) => {}
            Err(error) => tracing::warn!(
                index, %error,
                "a socket of the service manager cannot be used; a listener needs ListenStream= with its address"
            ),
        }
    }
    sockets
}

fn prepared(
    taken: io::Result<Option<TcpListener>>,
) -> io::Result<Option<(ListenAddress, TcpListener)>> {
    let Some(socket) = taken? else {
        return Ok(None);
    };
    // A program that this process starts must not inherit the socket.
    fcntl_setfd(&socket, FdFlags::CLOEXEC)?;
    Ok(Some((socket.local_addr()?.into(), socket)))
}
