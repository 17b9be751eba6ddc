//! Servers and clients that exchange raw bytes: a broker behind the proxy, a load balancer in front of it.

use std::{
    io::{Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use testkit::Proxy;

use super::LIMIT;

/// A server on loopback that serves each connection on its own thread.
pub(crate) struct Broker {
    address: SocketAddr,
    /// The bytes of each connection, in the order in which they were opened.
    received: Arc<Mutex<Vec<Vec<u8>>>>,
    open: Arc<AtomicUsize>,
}

impl Broker {
    /// A server that echoes, and closes when its peer does.
    pub(crate) fn echo() -> Self {
        Self::start(|stream, keep| {
            let mut piece = vec![0; 64 << 10];
            while let Ok(length @ 1..) = stream.read(&mut piece) {
                keep(&piece[..length]);
                if stream.write_all(&piece[..length]).is_err() {
                    return;
                }
            }
            let _ = stream.shutdown(Shutdown::Write);
        })
    }

    /// Starts a server that calls `serve` for each connection; the second argument records bytes.
    pub(crate) fn start(
        serve: impl Fn(&mut TcpStream, &mut dyn FnMut(&[u8])) + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let received = Arc::<Mutex<Vec<Vec<u8>>>>::default();
        let open = Arc::<AtomicUsize>::default();
        let serve = Arc::new(serve);
        let (all, count) = (Arc::clone(&received), Arc::clone(&open));
        thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(mut stream) = stream else { return };
                let (all, count, serve) =
                    (Arc::clone(&all), Arc::clone(&count), Arc::clone(&serve));
                count.fetch_add(1, Ordering::SeqCst);
                thread::spawn(move || {
                    let index = {
                        let mut all = lock(&all);
                        all.push(Vec::new());
                        all.len() - 1
                    };
                    serve(&mut stream, &mut |bytes| {
                        lock(&all)[index].extend_from_slice(bytes);
                    });
                    count.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        Self {
            address,
            received,
            open,
        }
    }

    pub(crate) fn address(&self) -> String {
        self.address.to_string()
    }

    /// The bytes of each connection. Connections without a byte were probes, and are left out.
    pub(crate) fn received(&self) -> Vec<Vec<u8>> {
        let all = lock(&self.received).clone();
        all.into_iter().filter(|bytes| !bytes.is_empty()).collect()
    }

    /// Open connections.
    pub(crate) fn open(&self) -> usize {
        self.open.load(Ordering::SeqCst)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a load balancer does with the first bytes of a client.
type First = dyn Fn(Vec<u8>) -> Vec<Vec<u8>> + Send + Sync;

/// A load balancer in front of the proxy: it sends a header, and then the client's first bytes in pieces.
pub(crate) struct LoadBalancer(SocketAddr);

impl LoadBalancer {
    /// Sends `header` before each connection to `to`.
    pub(crate) fn start(to: SocketAddr, header: &[u8]) -> Self {
        Self::cutting(to, header, |first| vec![first])
    }

    /// Sends the client's first bytes as these pieces, each in a segment of its own.
    pub(crate) fn cutting(
        to: SocketAddr,
        header: &[u8],
        first: impl Fn(Vec<u8>) -> Vec<Vec<u8>> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let header = header.to_vec();
        let first: Arc<First> = Arc::new(first);
        thread::spawn(move || {
            for client in listener.incoming() {
                let Ok(client) = client else { return };
                let (header, first) = (header.clone(), Arc::clone(&first));
                thread::spawn(move || relay(client, to, &header, &*first));
            }
        });
        Self(address)
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.0
    }
}

fn relay(mut client: TcpStream, to: SocketAddr, header: &[u8], first: &First) -> Option<()> {
    let mut proxy = TcpStream::connect(to).ok()?;
    proxy.set_nodelay(true).ok()?;
    proxy.write_all(header).ok()?;
    let mut piece = vec![0; 64 << 10];
    let length = client.read(&mut piece).ok()?;
    for piece in first(piece[..length].to_vec()) {
        proxy.write_all(&piece).ok()?;
        // Without this pause the pieces could leave in one segment. No assertion depends on the pause.
        thread::yield_now();
    }
    let (mut back, mut answers) = (client.try_clone().ok()?, proxy.try_clone().ok()?);
    thread::spawn(move || {
        let _ = std::io::copy(&mut answers, &mut back);
        let _ = back.shutdown(Shutdown::Write);
    });
    let _ = std::io::copy(&mut client, &mut proxy);
    let _ = proxy.shutdown(Shutdown::Write);
    Some(())
}

/// The address on which a listener of the proxy accepts connections.
pub(crate) fn listener_address(proxy: &Proxy, name: &str) -> SocketAddr {
    let status = proxy.status();
    let listeners = status["listeners"].as_array().expect("listeners");
    let listener = listeners.iter().find(|listener| listener["name"] == name);
    let address = listener.expect("a listener of this name")["address"].as_str();
    address
        .and_then(|text| text.parse().ok())
        .expect("an address")
}

/// A connection whose reads time out after the limit.
pub(crate) fn connect(to: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(to).expect("connects");
    stream.set_read_timeout(Some(LIMIT)).expect("a socket");
    stream.set_nodelay(true).expect("a socket");
    stream
}

/// Sends bytes and reads as many back.
#[track_caller]
pub(crate) fn assert_echo(stream: &mut TcpStream, bytes: &[u8]) {
    stream.write_all(bytes).expect("sends");
    let mut back = vec![0; bytes.len()];
    stream.read_exact(&mut back).expect("an echo");
    assert_eq!(back, bytes);
}

/// Reads everything up to the end, which must be a clean close.
#[track_caller]
pub(crate) fn read_to_end(stream: &mut TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).expect("an end in order");
    bytes
}

/// Longer than a broker needs to react.
pub(crate) const MOMENT: Duration = Duration::from_millis(50);
