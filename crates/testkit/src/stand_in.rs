//! A stand-in Puppet server: it records the raw bytes of every request, and answers as Puppet does or as a test
//! instructs.

mod answer;
mod manner;
mod puppet;
mod renewal;
mod tunnel;

use std::{
    collections::{BTreeMap, HashMap},
    io::{self, Read, Write},
    net::{SocketAddr, TcpListener},
    os::unix::net::UnixListener,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use rustix::net::Shutdown;
use rustls::{
    RootCertStore, ServerConfig, ServerConnection, SignatureScheme, StreamOwned,
    server::{ClientCertVerifierBuilder, WebPkiClientVerifier, danger::ClientCertVerifier},
    sign::SingleCertAndKey,
    version::TLS12,
};

pub use self::{manner::Manner, renewal::Renewing, tunnel::Tunnel};

use self::answer::{After, Transport, give};
use crate::{
    ca::{Ca, TestCredential, pem_blocks},
    client::small_key,
    crypto::{certificates, private_key},
    enrolment::RequestError,
    message::{Body, Headers, MessageReader, request_framing, request_head},
    port::HeldPort,
    reply::{Reply, ReplyGate},
    socket::Socket,
    wait::wait_until,
};

/// A request as received by a stand-in.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// Name of the stand-in.
    pub member: String,
    /// Number of the connection, from 0. Equal numbers mean a reused connection.
    pub connection: u64,
    /// Method.
    pub method: String,
    /// Request target as sent.
    pub target: String,
    /// `HTTP/1.1` or `HTTP/1.0`.
    pub version: String,
    /// Fields in order.
    pub headers: Headers,
    /// Body; empty until `complete`.
    pub body: Body,
    /// Whether the whole body has arrived.
    pub complete: bool,
    /// Bytes of the whole request as received. A long body is cut after the first MiB.
    pub raw: Vec<u8>,
    /// Certificates of the peer, DER, leaf first.
    pub peer_certificates: Vec<Vec<u8>>,
}

impl Recorded {
    /// Path without the query.
    pub fn path(&self) -> &str {
        self.target.split('?').next().unwrap_or_default()
    }

    /// Value of a field that must be present exactly once.
    #[track_caller]
    pub fn only(&self, name: &str) -> &str {
        self.headers.only(name)
    }

    /// The raw bytes as text.
    pub fn raw_text(&self) -> String {
        String::from_utf8_lossy(&self.raw).into_owned()
    }

    /// Body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body.kept).into_owned()
    }

    /// Whether this is a health probe.
    pub fn is_probe(&self) -> bool {
        self.path().starts_with(PROBE_PATH)
            || self.path() == LEGACY_PROBE_PATH
            || self.path() == JRUBY_PATH
    }

    /// Whether this is the request with which the proxy finds out the kind of its CA. It carries no identity.
    pub fn is_kind_question(&self) -> bool {
        self.path() == "/puppet-ca/v1/certificate/ca"
            && self.headers.all("accept") == ["*/*"]
            && self.headers.all("x-forwarded-for").is_empty()
    }

    /// Whether this is the proxy's request for JRuby counts.
    pub fn is_jruby_reading(&self) -> bool {
        self.path() == JRUBY_PATH
    }
}

type Handler = Arc<dyn Fn(&Recorded) -> Option<Reply> + Send + Sync>;
type TunnelHandler = Arc<dyn Fn(&mut Tunnel<'_>) + Send + Sync>;
type Pace = Option<Arc<dyn Fn(usize) + Send + Sync>>;

/// A running stand-in, which is killed on drop.
pub struct StandIn {
    shared: Arc<Shared>,
    address: Address,
    acceptor: Mutex<Option<Acceptor>>,
}

#[derive(Debug)]
enum Address {
    Tcp(HeldPort),
    Unix(PathBuf),
}

/// Accepts connections until its listener is shut down.
struct Acceptor {
    listener: Arc<Listener>,
    thread: JoinHandle<()>,
}

/// A stand-in's settings, created by `StandIn::builder`.
pub struct StandInBuilder {
    name: String,
    ca: Option<Ca>,
    tls: Option<Arc<ServerConfig>>,
    unix: Option<PathBuf>,
}

struct Shared {
    name: String,
    ca: Option<Ca>,
    tls: Option<Arc<ServerConfig>>,
    next_connection: AtomicU64,
    open: AtomicUsize,
    live: Mutex<HashMap<u64, Socket>>,
    recorded: Mutex<Vec<Recorded>>,
    bytes: Mutex<BTreeMap<u64, Vec<u8>>>,
    errors: Mutex<Vec<String>>,
    handler: Mutex<Handler>,
    head_handler: Mutex<Handler>,
    tunnel_handler: Mutex<TunnelHandler>,
    pace: Mutex<Pace>,
    gate: ReplyGate,
    autosign: AtomicBool,
    renewing: Mutex<Renewing>,
    published: Mutex<HashMap<String, String>>,
    requested: Mutex<HashMap<String, Vec<u8>>>,
    bucket: Mutex<HashMap<String, Vec<u8>>>,
    manner: Mutex<Option<Manner>>,
}

impl StandIn {
    /// Starts a plain HTTP stand-in with this name.
    pub fn start(name: &str) -> Self {
        Self::builder(name).start()
    }

    /// A builder for a stand-in with TLS, the answers of a CA, or a Unix socket.
    pub fn builder(name: &str) -> StandInBuilder {
        StandInBuilder {
            name: name.to_owned(),
            ca: None,
            tls: None,
            unix: None,
        }
    }

    /// `127.0.0.1:PORT` or `unix:/path`, as `members` spells it.
    pub fn address(&self) -> String {
        match &self.address {
            Address::Tcp(port) => port.address().to_string(),
            Address::Unix(path) => format!("unix:{}", path.display()),
        }
    }

    /// The TCP address.
    ///
    /// # Panics
    /// The stand-in listens on a Unix socket.
    pub fn socket_address(&self) -> SocketAddr {
        match &self.address {
            Address::Tcp(port) => port.address(),
            Address::Unix(path) => panic!("{} has no TCP address", path.display()),
        }
    }

    /// The stand-in's name, which `X-Puppet-Compiler-Name` contains.
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// Makes `handler` answer complete requests from now on. If it returns `None`, the Puppet defaults apply.
    pub fn answer(&self, handler: impl Fn(&Recorded) -> Option<Reply> + Send + Sync + 'static) {
        *lock(&self.shared.handler) = Arc::new(handler);
    }

    /// Makes the stand-in call `handler` at the end of each head from now on. If the handler answers, the body is not
    /// read.
    pub fn answer_early(
        &self,
        handler: impl Fn(&Recorded) -> Option<Reply> + Send + Sync + 'static,
    ) {
        *lock(&self.shared.head_handler) = Arc::new(handler);
    }

    /// Passes the connection to `handler` after a 101 from now on. Without a handler the stand-in echoes.
    pub fn tunnel(&self, handler: impl Fn(&mut Tunnel<'_>) + Send + Sync + 'static) {
        *lock(&self.shared.tunnel_handler) = Arc::new(handler);
    }

    /// Calls `rest` between reads from now on, with the number of bytes that the last read returned. With it, a member
    /// can read bodies slowly.
    pub fn read_at(&self, rest: impl Fn(usize) + Send + Sync + 'static) {
        *lock(&self.shared.pace) = Some(Arc::new(rest));
    }

    /// Restores the Puppet defaults.
    pub fn answer_as_puppet(&self) {
        self.answer(|_| None);
        self.answer_early(|_| None);
    }

    /// Makes the stand-in identify and refuse clients as a real Puppet Server does.
    pub fn behave(&self, manner: Manner) {
        *lock(&self.shared.manner) = Some(manner);
    }

    /// Holds every response except those to probes until `release`.
    pub fn hold(&self) {
        self.shared.gate.hold();
    }

    /// Releases held responses.
    pub fn release(&self) {
        self.shared.gate.release();
    }

    /// Signs an agent's request: `certificate/NAME` answers with this certificate from now on.
    pub fn publish(&self, credential: &TestCredential) {
        self.shared.publish(credential);
    }

    /// Signs the pending request with this name, as `puppetserver ca sign` does: `certificate/NAME` answers from now on.
    ///
    /// # Errors
    /// There is no request, or it cannot be signed.
    pub fn sign(&self, certname: &str) -> Result<TestCredential, RequestError> {
        self.shared.sign(certname)
    }

    /// Makes the CA sign every request at once, as with Puppet's `autosign = true`.
    pub fn autosign(&self) {
        self.shared.autosign.store(true, Ordering::SeqCst);
    }

    /// Makes the CA renew certificates in this way. By default it has no renewal.
    pub fn renew(&self, renewing: Renewing) {
        *lock(&self.shared.renewing) = renewing;
    }

    /// The requests in the order of their heads, without probes and without the proxy's questions for the kind of the
    /// CA.
    pub fn requests(&self) -> Vec<Recorded> {
        lock(&self.shared.recorded)
            .iter()
            .filter(|request| !request.is_probe() && !request.is_kind_question())
            .cloned()
            .collect()
    }

    /// Requests for JRuby counts in order.
    pub fn jruby_readings(&self) -> Vec<Recorded> {
        lock(&self.shared.recorded)
            .iter()
            .filter(|request| request.is_jruby_reading())
            .cloned()
            .collect()
    }

    /// Probes in order, without requests for JRuby counts.
    pub fn probes(&self) -> Vec<Recorded> {
        lock(&self.shared.recorded)
            .iter()
            .filter(|request| request.is_probe() && !request.is_jruby_reading())
            .cloned()
            .collect()
    }

    /// The latest request that is not a probe.
    ///
    /// # Panics
    /// There is no such request.
    #[track_caller]
    pub fn last(&self) -> Recorded {
        self.requests()
            .pop()
            .unwrap_or_else(|| panic!("{} saw no request", self.name()))
    }

    /// Discards the recorded requests.
    pub fn forget(&self) {
        lock(&self.shared.recorded).clear();
        lock(&self.shared.bytes).clear();
    }

    /// Waits until `n` complete requests have arrived.
    ///
    /// # Panics
    /// The requests do not arrive within `limit`.
    #[track_caller]
    pub fn wait_for_request(&self, n: usize, limit: Duration) -> Vec<Recorded> {
        self.wait_for(limit, |requests| {
            requests.iter().filter(|r| r.complete).count() >= n
        })
    }

    /// Waits until the heads of `n` requests have arrived.
    ///
    /// # Panics
    /// The requests do not arrive within `limit`.
    #[track_caller]
    pub fn wait_for_head(&self, n: usize, limit: Duration) -> Vec<Recorded> {
        self.wait_for(limit, |requests| requests.len() >= n)
    }

    /// Waits until the requests match `met`.
    ///
    /// # Panics
    /// The requests do not match within `limit`.
    #[track_caller]
    pub fn wait_for(&self, limit: Duration, met: impl Fn(&[Recorded]) -> bool) -> Vec<Recorded> {
        let seen = wait_until(limit, || {
            Some(self.requests()).filter(|requests| met(requests))
        });
        seen.unwrap_or_else(|| {
            let lines: Vec<_> = self
                .requests()
                .iter()
                .map(|r| format!("{} {}", r.method, r.target))
                .collect();
            panic!(
                "{} did not see what was expected within {limit:?}: {lines:?}",
                self.name()
            )
        })
    }

    /// Every byte received on each connection (at most the first 4 MiB), by the connection's number.
    pub fn raw_connections(&self) -> Vec<Vec<u8>> {
        lock(&self.shared.bytes).values().cloned().collect()
    }

    /// Connections that are open now.
    pub fn connections_open(&self) -> usize {
        self.shared.open.load(Ordering::SeqCst)
    }

    /// Connections accepted so far.
    pub fn connections_accepted(&self) -> u64 {
        self.shared.next_connection.load(Ordering::SeqCst)
    }

    /// Errors on connections: malformed requests, failed handshakes.
    pub fn errors(&self) -> Vec<String> {
        lock(&self.shared.errors).clone()
    }

    /// Stops accepting connections: connects are refused. Open connections continue.
    pub fn stop(&self) {
        let Some(acceptor) = lock(&self.acceptor).take() else {
            return;
        };
        acceptor.listener.shut_down();
        // A panic in the thread has been printed already.
        let _ = acceptor.thread.join();
        if let Address::Unix(path) = &self.address {
            let _ = std::fs::remove_file(path);
        }
    }

    /// Stops, and resets every open connection.
    pub fn kill(&self) {
        self.stop();
        for socket in lock(&self.shared.live).values() {
            socket.reset();
        }
        self.shared.gate.release();
    }

    /// Closes every open connection and continues to accept.
    pub fn close_connections(&self) {
        for socket in lock(&self.shared.live).values() {
            socket.close();
        }
    }

    /// Listens on the same address again, after `stop` or `kill`.
    pub fn restart(&self) {
        self.stop();
        let listener = Listener::bind(&self.address).unwrap_or_else(|error| {
            panic!(
                "{} cannot take {} again: {error}",
                self.name(),
                self.address()
            )
        });
        *lock(&self.acceptor) = Some(Shared::accept(Arc::clone(&self.shared), listener));
    }
}

impl Drop for StandIn {
    fn drop(&mut self) {
        self.kill();
    }
}

impl StandInBuilder {
    /// Answers `/puppet-ca` with this CA's certificates and CRLs.
    pub fn ca(mut self, ca: &Ca) -> Self {
        self.ca = Some(ca.clone());
        self
    }

    /// Uses TLS with this credential, and requires a client certificate of `ca` (Jetty's `client-auth: need`).
    pub fn tls(self, ca: &Ca, credential: &TestCredential) -> Self {
        let verifier = client_verifier(ca).build().expect("a CA has certificates");
        self.tls_with(verifier, credential)
    }

    /// Like `tls`, with the CA and the CRL from two PEM files, as Jetty reads them from `ssl-ca-cert` and
    /// `ssl-crl-path`.
    pub fn tls_by_files(self, ca_pem: &str, crl_pem: &str, credential: &TestCredential) -> Self {
        let crls = pem_blocks(crl_pem, "X509 CRL");
        let verifier = verifier_by(ca_pem)
            .with_crls(crls.into_iter().map(Into::into))
            .build()
            .expect("CA and CRL are PEM");
        self.tls_with(verifier, credential)
    }

    /// Like `tls`, but also accepts clients without a certificate (`client-auth: want`).
    pub fn tls_wanting(self, ca: &Ca, credential: &TestCredential) -> Self {
        let verifier = client_verifier(ca)
            .allow_unauthenticated()
            .build()
            .expect("a CA has certificates");
        self.tls_with(verifier, credential)
    }

    fn tls_with(
        mut self,
        verifier: Arc<dyn ClientCertVerifier>,
        credential: &TestCredential,
    ) -> Self {
        let config = ServerConfig::builder_with_provider(crate::crypto::provider())
            .with_safe_default_protocol_versions()
            .expect("the provider has TLS 1.2 and 1.3")
            .with_client_cert_verifier(verifier)
            .with_single_cert(
                certificates(&credential.chain_pem()),
                private_key(&credential.key_pem),
            )
            .expect("certificate and key belong together");
        self.tls = Some(Arc::new(config));
        self
    }

    /// Uses TLS 1.2 with an RSA key of 1024 bits, without a client certificate.
    pub fn small_tls(mut self, credential: &TestCredential) -> Self {
        // As a server, rustls would prefer PSS to the first scheme in the ClientHello.
        let schemes = &[SignatureScheme::RSA_PKCS1_SHA256];
        let key = SingleCertAndKey::from((*small_key(credential, schemes)).clone());
        let config = ServerConfig::builder_with_provider(crate::crypto::provider())
            .with_protocol_versions(&[&TLS12])
            .expect("the provider has TLS 1.2")
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(key));
        self.tls = Some(Arc::new(config));
        self
    }

    /// Listens on this Unix socket.
    pub fn unix(mut self, path: &Path) -> Self {
        self.unix = Some(path.to_owned());
        self
    }

    /// Starts the stand-in.
    pub fn start(self) -> StandIn {
        let address = match self.unix {
            Some(path) => Address::Unix(path),
            None => Address::Tcp(HeldPort::take()),
        };
        let listener =
            Listener::bind(&address).expect("a port or a path of the test's own is free");
        let nothing: Handler = Arc::new(|_| None);
        let shared = Arc::new(Shared {
            name: self.name,
            ca: self.ca,
            tls: self.tls,
            next_connection: AtomicU64::new(0),
            open: AtomicUsize::new(0),
            live: Mutex::default(),
            recorded: Mutex::default(),
            bytes: Mutex::default(),
            errors: Mutex::default(),
            handler: Mutex::new(Arc::clone(&nothing)),
            head_handler: Mutex::new(nothing),
            tunnel_handler: Mutex::new(Arc::new(|tunnel: &mut Tunnel<'_>| tunnel.echo())),
            pace: Mutex::default(),
            gate: ReplyGate::open(),
            autosign: AtomicBool::new(false),
            renewing: Mutex::new(Renewing::Unknown),
            published: Mutex::default(),
            requested: Mutex::default(),
            bucket: Mutex::default(),
            manner: Mutex::default(),
        });
        let acceptor = Shared::accept(Arc::clone(&shared), listener);
        StandIn {
            shared,
            address,
            acceptor: Mutex::new(Some(acceptor)),
        }
    }
}

fn client_verifier(ca: &Ca) -> ClientCertVerifierBuilder {
    verifier_by(&ca.bundle_pem())
}

fn verifier_by(ca_pem: &str) -> ClientCertVerifierBuilder {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(certificates(ca_pem));
    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), crate::crypto::provider())
}

impl Shared {
    fn accept(shared: Arc<Self>, listener: Listener) -> Acceptor {
        let listener = Arc::new(listener);
        let accepting = Arc::clone(&listener);
        let thread = thread::spawn(move || {
            while let Ok(socket) = accepting.accept() {
                // The connection is counted and listed before the next accept, so that `kill` misses none.
                let number = shared.opened(&socket);
                let shared = Arc::clone(&shared);
                // The thread ends with the socket, which `kill` closes.
                thread::spawn(move || {
                    let served = shared.serve(number, socket);
                    shared.closed(number, served);
                });
            }
        });
        Acceptor { listener, thread }
    }

    fn opened(&self, socket: &Socket) -> u64 {
        let number = self.next_connection.fetch_add(1, Ordering::SeqCst);
        self.open.fetch_add(1, Ordering::SeqCst);
        if let Ok(twin) = socket.try_clone() {
            lock(&self.live).insert(number, twin);
        }
        number
    }

    fn closed(&self, number: u64, served: io::Result<()>) {
        if let Err(error) = served {
            lock(&self.errors).push(format!("connection {number}: {error}"));
        }
        lock(&self.live).remove(&number);
        self.open.fetch_sub(1, Ordering::SeqCst);
    }

    fn serve(&self, number: u64, socket: Socket) -> io::Result<()> {
        let raw = socket.try_clone()?;
        let Some(config) = &self.tls else {
            return self.exchanges(
                number,
                Tap {
                    io: socket,
                    shared: self,
                    number,
                },
                &raw,
                Vec::new(),
            );
        };
        let mut io = socket;
        let mut tls = ServerConnection::new(Arc::clone(config)).map_err(io::Error::other)?;
        while tls.is_handshaking() {
            tls.complete_io(&mut io)?;
        }
        let shown = tls.peer_certificates().unwrap_or_default();
        let shown = shown
            .iter()
            .map(|certificate| certificate.to_vec())
            .collect();
        self.exchanges(
            number,
            Tap {
                io: StreamOwned::new(tls, io),
                shared: self,
                number,
            },
            &raw,
            shown,
        )
    }

    /// Serves the requests of one connection until either side closes it.
    fn exchanges(
        &self,
        number: u64,
        mut io: impl Transport,
        socket: &Socket,
        shown: Vec<Vec<u8>>,
    ) -> io::Result<()> {
        let mut reader = MessageReader::new();
        loop {
            let Some(raw_head) = reader.head(&mut io)? else {
                return Ok(());
            };
            let head = request_head(&raw_head)?;
            let framing = request_framing(&head.headers)?;
            let mut request = Recorded {
                member: self.name.clone(),
                connection: number,
                method: head.method,
                target: head.target,
                version: head.version,
                headers: head.headers,
                body: Body::default(),
                complete: false,
                raw: raw_head,
                peer_certificates: shown.clone(),
            };
            let index = self.record(&request);
            let early = lock(&self.head_handler).clone();
            if let Some(reply) = early(&request) {
                give(&mut io, socket, &request, &reply)?;
                return self.discard(&mut io);
            }
            if request
                .headers
                .get("expect")
                .is_some_and(|value| value.eq_ignore_ascii_case("100-continue"))
            {
                io.write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
                io.flush()?;
            }
            request.body = reader.body(&mut io, framing)?;
            request.raw = reader.take_raw();
            request.complete = true;
            self.amend(index, &request);
            let reply = self.reply(&request);
            if !request.is_probe() {
                self.gate.pass();
            }
            let last = request
                .headers
                .get("connection")
                .is_some_and(|value| value.eq_ignore_ascii_case("close"));
            match give(&mut io, socket, &request, &reply)? {
                After::Tunnel => {
                    let handler = lock(&self.tunnel_handler).clone();
                    handler(&mut Tunnel::new(reader, &mut io, socket));
                    return Ok(());
                }
                After::Keep if !last => {}
                After::Keep | After::Close => return Ok(()),
            }
        }
    }

    /// Drops received bytes after an early response and sends nothing more, so that a reset does not destroy the
    /// response.
    fn discard(&self, io: &mut impl Transport) -> io::Result<()> {
        io.finish();
        let mut piece = [0; 16 << 10];
        while io.read(&mut piece)? > 0 {}
        Ok(())
    }

    fn record(&self, request: &Recorded) -> Option<usize> {
        let mut recorded = lock(&self.recorded);
        recorded.push(request.clone());
        Some(recorded.len() - 1)
    }

    /// Updates a recorded request. A request that a test has discarded meanwhile stays discarded.
    fn amend(&self, index: Option<usize>, request: &Recorded) {
        let mut recorded = lock(&self.recorded);
        let place = index.and_then(|index| recorded.get_mut(index));
        if let Some(place) =
            place.filter(|place| place.connection == request.connection && !place.complete)
        {
            *place = request.clone();
        }
    }

    fn reply(&self, request: &Recorded) -> Reply {
        let handler = lock(&self.handler).clone();
        if let Some(reply) = handler(request) {
            return reply;
        }
        let Some(manner) = lock(&self.manner).clone() else {
            return self.puppet(request);
        };
        let refusal = manner.refusal(request);
        manner.dated(refusal.unwrap_or_else(|| self.puppet(request)))
    }
}

/// Copies all bytes that are read into the connection's record.
struct Tap<'a, S> {
    io: S,
    shared: &'a Shared,
    number: u64,
}

impl<S: Read> Read for Tap<'_, S> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let n = self.io.read(into)?;
        let mut bytes = lock(&self.shared.bytes);
        let record = bytes.entry(self.number).or_default();
        if record.len() < RAW_KEPT_MAX {
            record.extend_from_slice(&into[..n]);
        }
        drop(bytes);
        let pace = lock(&self.shared.pace).clone();
        if let Some(rest) = pace {
            rest(n);
        }
        Ok(n)
    }
}

impl<S: Write> Write for Tap<'_, S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.io.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.io.flush()
    }
}

impl<S: Transport> Transport for Tap<'_, S> {
    fn finish(&mut self) {
        self.io.finish();
    }
}

enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Listener {
    fn bind(address: &Address) -> io::Result<Self> {
        match address {
            Address::Tcp(port) => Ok(Self::Tcp(TcpListener::bind(port.address())?)),
            Address::Unix(path) => Ok(Self::Unix(UnixListener::bind(path)?)),
        }
    }

    /// Stops the listener at once, and with it the accept that waits in it. Closing alone would not suffice: a program
    /// that another test is starting has a copy of the descriptor until its exec, and would queue connections.
    fn shut_down(&self) {
        let ended = match self {
            Self::Tcp(listener) => rustix::net::shutdown(listener, Shutdown::Both),
            Self::Unix(listener) => rustix::net::shutdown(listener, Shutdown::Both),
        };
        ended.expect("a listening socket can be shut down");
    }

    fn accept(&self) -> io::Result<Socket> {
        match self {
            Self::Tcp(listener) => {
                let (stream, _) = listener.accept()?;
                stream.set_nodelay(true)?;
                Ok(Socket::Tcp(stream))
            }
            Self::Unix(listener) => Ok(Socket::Unix(listener.accept()?.0)),
        }
    }
}

fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The paths of health checks.
const PROBE_PATH: &str = "/status/v1/simple";
const JRUBY_PATH: &str = "/status/v1/services/jruby-metrics";
const LEGACY_PROBE_PATH: &str = "/production/status/no_key";
/// Maximum bytes of a connection that are stored.
const RAW_KEPT_MAX: usize = 4 << 20;

#[cfg(test)]
mod tests;
