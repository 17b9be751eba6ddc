//! A free port for a program that cannot be told to take port 0 and say which it got.

use std::{
    env,
    fs::{File, OpenOptions},
    net::{Ipv4Addr, SocketAddr, TcpListener},
};

/// Held from choosing a port until its owner has bound it: one starter at a time over all test processes.
#[derive(Debug)]
pub struct PortLock {
    _file: File,
}

/// A loopback port that was free a moment ago.
pub type Port = u16;

impl PortLock {
    /// Waits for the lock of this machine.
    pub fn take() -> Self {
        let path = env::temp_dir().join("proscenium-testkit-ports.lock");
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path)
            .unwrap_or_else(|error| panic!("cannot open {}: {error}", path.display()));
        file.lock().expect("a lock file can be locked");
        Self { _file: file }
    }

    /// A free loopback port. Stand-ins take port 0 themselves, so a race is left; starters try again.
    pub fn free(&self) -> Port {
        let listener = TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))
            .expect("loopback has a free port");
        listener
            .local_addr()
            .expect("a bound socket has an address")
            .port()
    }
}
