//! A port for one test: the kernel assigns it to no other program, and refuses connects while no program listens on it.

use std::{
    fmt, io,
    net::{Ipv4Addr, SocketAddr},
};

use socket2::{Domain, Socket, Type};

/// A loopback port, reserved by a socket that is bound and never listens.
///
/// The kernel does not assign the port to a program that requests any port, or to a client; a port that was just closed
/// may be assigned a moment later. A program that knows the number can listen on the port, because both sockets share
/// the address.
#[derive(Debug)]
pub struct HeldPort {
    _socket: Socket,
    address: SocketAddr,
}

impl HeldPort {
    /// Reserves any free port.
    ///
    /// # Panics
    /// The system provides no socket.
    pub fn take() -> Self {
        let socket = bound((Ipv4Addr::LOCALHOST, 0).into()).expect("loopback has a free port");
        let address = socket.local_addr().expect("a bound socket has an address");
        Self {
            _socket: socket,
            address: address.as_socket().expect("and one of IPv4"),
        }
    }

    /// The address with this port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Whether a program listens on the port. This does not connect to it.
    pub fn is_listened_on(&self) -> bool {
        bound(self.address).is_err()
    }
}

/// A socket that shares its address with all other sockets except listening ones.
fn bound(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    Ok(socket)
}

/// Prints the number only, as in a configuration.
impl fmt::Display for HeldPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.address.port().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn a_held_port_refuses_before_and_after_a_program_listens_on_it() {
        let held = HeldPort::take();
        let refused = || TcpStream::connect(held.address()).is_err();
        assert!(refused());
        for _ in 0..2 {
            let listener = TcpListener::bind(held.address()).expect("ours to listen on");
            assert!(!refused());
            assert!(held.is_listened_on(), "and no other program may");
            // The socket is shut down, because closing is not sufficient: a program that is being started may have a
            // copy of the descriptor for a moment.
            rustix::net::shutdown(&listener, rustix::net::Shutdown::Both).expect("it listens");
            drop(listener);
            assert!(refused());
            assert!(!held.is_listened_on());
        }
    }

    #[test]
    fn a_held_port_is_assigned_to_no_other_program() {
        let held = HeldPort::take();
        let others: Vec<_> = (0..200)
            .map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port"))
            .collect();
        for other in others {
            assert_ne!(other.local_addr().expect("is bound"), held.address());
        }
    }
}
