//! A relay for TCP connections that delays everything that it forwards, as a slow network does.

use std::{
    io::{self, Read, Write},
    net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

/// The relay. Its threads run until the test's process ends.
#[derive(Debug)]
pub struct DelayingRelay {
    address: SocketAddr,
    delay: Arc<AtomicU64>,
}

impl DelayingRelay {
    /// Starts a relay to this address that delays everything by this time, in each direction.
    ///
    /// # Panics
    /// The system provides no socket.
    pub fn start(target: SocketAddr, delay: Duration) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let address = listener.local_addr().expect("an address");
        let milliseconds = Arc::new(AtomicU64::new(0));
        let relay = Self {
            address,
            delay: Arc::clone(&milliseconds),
        };
        relay.set_delay(delay);
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let _ = pass_on(client, target, &milliseconds);
            }
        });
        relay
    }

    /// The address at which the relay listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Delays bytes that arrive from now on by another time.
    pub fn set_delay(&self, delay: Duration) {
        let milliseconds = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX);
        self.delay.store(milliseconds, Ordering::Relaxed);
    }
}

fn pass_on(client: TcpStream, target: SocketAddr, delay: &Arc<AtomicU64>) -> io::Result<()> {
    let server = TcpStream::connect(target)?;
    for (from, to) in [(client.try_clone()?, server.try_clone()?), (server, client)] {
        let delay = Arc::clone(delay);
        thread::spawn(move || copy(from, to, &delay));
    }
    Ok(())
}

fn copy(mut from: TcpStream, mut to: TcpStream, delay: &AtomicU64) {
    let mut buffer = [0; 16 << 10];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        thread::sleep(Duration::from_millis(delay.load(Ordering::Relaxed)));
        if to.write_all(&buffer[..count]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
    let _ = from.shutdown(Shutdown::Read);
}
