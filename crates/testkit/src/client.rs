//! A raw HTTP client over TLS, with the certificates, protocol versions and source addresses that a test needs.

use std::{
    fmt,
    io::{self, ErrorKind},
    net::{IpAddr, SocketAddr, TcpStream},
    os::unix::net::UnixStream,
    path::Path,
    sync::{Arc, atomic::AtomicUsize},
    time::{Duration, Instant, SystemTime},
};

use rustls::{
    ClientConfig, ClientConnection, RootCertStore, SignatureScheme, StreamOwned,
    SupportedProtocolVersion,
    client::{ResolvesClientCert, Resumption, Tls12Resumption, WebPkiServerVerifier},
    crypto::CryptoProvider,
    sign::CertifiedKey,
    time_provider::TimeProvider,
    version::{TLS12, TLS13},
};
use rustls_pki_types::{ServerName, UnixTime};

use crate::{
    ca::TestCredential,
    client_error::ClientError,
    connection::{TestConnection, ignore_broken_pipe},
    crypto::{certificates, private_key, provider},
    http2::Session,
    message::{MessageReader, Response},
    offering::Offering,
    sessions::Nameless,
    small_rsa::SmallRsa,
    socket::Socket,
    transport::{Forgiving, Io, Trickle},
};

/// Long enough for a busy machine, and short enough that a test that hangs reports it.
const READ_TIMEOUT: Duration = Duration::from_secs(20);

/// The protocol that the client speaks to the proxy under test.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.1.
    #[default]
    Http1,
    /// HTTP/2, selected by ALPN.
    Http2,
}

/// A client's address, certificate and protocol. Its connections share one session store, so a later one may be
/// resumed.
#[derive(Clone)]
pub struct Client {
    address: Target,
    server_name: String,
    roots: Arc<RootCertStore>,
    key: Option<Arc<CertifiedKey>>,
    versions: Vec<&'static SupportedProtocolVersion>,
    provider: Arc<CryptoProvider>,
    /// Signature schemes that the client offers; if empty, all that the provider supports.
    schemes: Vec<SignatureScheme>,
    tls12_resumption: Tls12Resumption,
    nameless: bool,
    eager: bool,
    ahead: Duration,
    tls: Option<Arc<ClientConfig>>,
    timeout: Duration,
    receive_buffer: Option<usize>,
    source: Option<IpAddr>,
    trickle: Option<Trickle>,
    answers: Arc<AtomicUsize>,
    protocol: Protocol,
}

#[derive(Clone)]
enum Target {
    Tcp(SocketAddr),
    Unix(std::path::PathBuf),
}

impl Client {
    /// A TLS client that trusts `bundle_pem` and presents `credential`, if any.
    ///
    /// # Panics
    /// The TLS library cannot use the credential's key; see `try_new`.
    pub fn new(address: SocketAddr, bundle_pem: &str, credential: Option<&TestCredential>) -> Self {
        Self::try_new(address, bundle_pem, credential)
            .unwrap_or_else(|error| panic!("unusable credential: {error}"))
    }

    /// Like `new`.
    ///
    /// # Errors
    /// The TLS library rejects the key (RSA below 2048 bits).
    pub fn try_new(
        address: SocketAddr,
        bundle_pem: &str,
        credential: Option<&TestCredential>,
    ) -> Result<Self, rustls::Error> {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(certificates(bundle_pem));
        let key = credential.map(certified_key).transpose()?;
        let client = Self {
            roots: Arc::new(roots),
            key,
            versions: vec![&TLS13, &TLS12],
            ..Self::plain(address)
        };
        Ok(client.configured())
    }

    /// A client with an RSA key of 1024 bits, which signs with PKCS #1 only, so it cannot authenticate in TLS 1.3.
    pub fn small(address: SocketAddr, bundle_pem: &str, credential: &TestCredential) -> Self {
        let mut client = Self::new(address, bundle_pem, None);
        // TLS 1.3 accepts only the second scheme.
        let schemes = &[
            SignatureScheme::RSA_PKCS1_SHA256,
            SignatureScheme::RSA_PSS_SHA256,
        ];
        client.key = Some(small_key(credential, schemes));
        client.configured()
    }

    /// A client without TLS.
    pub fn plain(address: SocketAddr) -> Self {
        Self {
            address: Target::Tcp(address),
            server_name: "puppet".to_owned(),
            roots: Arc::new(RootCertStore::empty()),
            key: None,
            versions: Vec::new(),
            provider: provider(),
            schemes: Vec::new(),
            tls12_resumption: Tls12Resumption::SessionIdOrTickets,
            nameless: false,
            eager: false,
            ahead: Duration::ZERO,
            tls: None,
            timeout: READ_TIMEOUT,
            receive_buffer: None,
            source: None,
            trickle: None,
            answers: Arc::default(),
            protocol: Protocol::Http1,
        }
    }

    /// A client without TLS on a Unix socket.
    pub fn unix(path: &Path) -> Self {
        Self {
            address: Target::Unix(path.to_owned()),
            ..Self::plain(SocketAddr::from(([127, 0, 0, 1], 0)))
        }
    }

    /// TLS 1.2 only.
    pub fn tls12(mut self) -> Self {
        self.versions = vec![&TLS12];
        self.configured()
    }

    /// TLS 1.3 only.
    pub fn tls13(mut self) -> Self {
        self.versions = vec![&TLS13];
        self.configured()
    }

    /// TLS 1.2 with RSA certificates only, as used by clients without elliptic curves.
    pub fn rsa_alone(mut self) -> Self {
        let mut provider = (*provider()).clone();
        provider.cipher_suites.retain(|suite| {
            suite
                .suite()
                .as_str()
                .is_some_and(|name| name.contains("ECDHE_RSA"))
        });
        self.provider = Arc::new(provider);
        self.tls12()
    }

    /// Offers only these signature schemes.
    pub fn checking(mut self, schemes: &[SignatureScheme]) -> Self {
        self.schemes = schemes.to_vec();
        self.configured()
    }

    /// Resumes TLS 1.2 sessions by session id, as clients without ticket support do.
    pub fn without_tickets(mut self) -> Self {
        self.tls12_resumption = Tls12Resumption::SessionIdOnly;
        self.tls12()
    }

    /// Offers its sessions under any server name, which no correct client does.
    pub fn regardless_of_names(mut self) -> Self {
        self.nameless = true;
        self.configured()
    }

    /// Sends early data (0-RTT) if the server accepts it.
    pub fn eager(mut self) -> Self {
        self.eager = true;
        self.configured()
    }

    /// Uses a clock that is ahead by this duration.
    pub fn clock_ahead(mut self, by: Duration) -> Self {
        self.ahead = by;
        self.configured()
    }

    /// Uses another address, with the same sessions.
    pub fn at(mut self, address: SocketAddr) -> Self {
        self.address = Target::Tcp(address);
        self
    }

    /// Sets the server name for SNI, Host and verification. Default `puppet`.
    pub fn server_name(mut self, name: &str) -> Self {
        name.clone_into(&mut self.server_name);
        self
    }

    /// Sets how long to wait for bytes. Default 20 s.
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.timeout = limit;
        self
    }

    /// Sets a small receive buffer, so that backpressure from a slow reader begins soon.
    pub fn receive_buffer(mut self, bytes: usize) -> Self {
        self.receive_buffer = Some(bytes);
        self
    }

    /// Moves at most `bytes` bytes at a time over TLS, in either direction, and pauses after each. If a pause took too
    /// long, the next ones are shorter, so that the rate is the same on a busy machine.
    pub fn trickle(mut self, bytes: usize, rest: Duration) -> Self {
        self.trickle = Some(Trickle {
            bytes: bytes.max(1),
            rest,
            until: Instant::now(),
        });
        self
    }

    /// Connects from this address of the machine, for example one in 127.0.0.0/8, instead of one that the kernel
    /// selects.
    pub fn source(mut self, source: IpAddr) -> Self {
        self.source = Some(source);
        self
    }

    /// Speaks this protocol.
    pub fn protocol(mut self, protocol: Protocol) -> Self {
        self.protocol = protocol;
        self.configured()
    }

    /// The same client with an empty session store, so its next handshake is a full one.
    pub fn forgetful(self) -> Self {
        self.configured()
    }

    /// Counts final responses in this counter, which the harness of the proxy under test reads.
    pub(crate) fn counted(mut self, answers: &Arc<AtomicUsize>) -> Self {
        self.answers = Arc::clone(answers);
        self
    }

    /// The value of the header Host.
    pub fn host(&self) -> String {
        match &self.address {
            Target::Tcp(address) => format!("{}:{}", self.server_name, address.port()),
            Target::Unix(_) => "localhost".to_owned(),
        }
    }

    /// Connects and completes the handshake. In TLS 1.3, a refusal by the server appears only on the first read.
    ///
    /// # Errors
    /// The connect or the handshake failed.
    pub fn connect(&self) -> Result<TestConnection, ClientError> {
        let mut connection = self.agree()?;
        if self.protocol == Protocol::Http2 {
            connection.session = Some(begin(&mut connection.io)?);
        }
        Ok(connection)
    }

    /// Connects and completes the handshake, but begins no HTTP/2 session: the test sends the bytes of the negotiated protocol.
    ///
    /// # Errors
    /// The connect or the handshake failed.
    pub fn agree(&self) -> Result<TestConnection, ClientError> {
        let socket = self.dial().map_err(ClientError::Connect)?;
        let mut may_be_early = false;
        let io = match &self.tls {
            None => Io::Plain(socket),
            Some(config) => {
                let name = ServerName::try_from(self.server_name.clone())
                    .expect("a server name in a test is valid");
                let mut tls =
                    ClientConnection::new(Arc::clone(config), name).map_err(ClientError::Tls)?;
                may_be_early = tls.early_data().is_some();
                let mut socket = Forgiving(socket, Vec::new(), self.trickle);
                while tls.is_handshaking() {
                    if let Err(error) = tls.complete_io(&mut socket) {
                        // Sends everything that TLS has buffered, because an alert may follow another record.
                        while tls.wants_write() && tls.write_tls(&mut socket).is_ok() {}
                        return Err(match error.kind() {
                            ErrorKind::UnexpectedEof => ClientError::Closed,
                            _ => ClientError::of(error),
                        });
                    }
                }
                Io::Tls(Box::new(StreamOwned::new(tls, socket)))
            }
        };
        Ok(TestConnection {
            io,
            session: None,
            reader: MessageReader::new(),
            host: self.host(),
            timeout: self.timeout,
            ended: false,
            may_be_early,
            answers: Arc::clone(&self.answers),
        })
    }

    /// Sends one GET on a new connection.
    ///
    /// # Panics
    /// There is no response.
    #[track_caller]
    pub fn get(&self, target: &str) -> Response {
        self.request("GET", target, &[], b"")
    }

    /// Sends one request on a new connection.
    ///
    /// # Panics
    /// There is no response.
    #[track_caller]
    pub fn request(
        &self,
        method: &str,
        target: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Response {
        let answer = self.try_request(method, target, headers, body);
        answer.unwrap_or_else(|error| panic!("{method} {target}: {error}"))
    }

    /// Sends one request on a new connection.
    ///
    /// # Errors
    /// The connect, the handshake or the response failed.
    pub fn try_request(
        &self,
        method: &str,
        target: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Result<Response, ClientError> {
        let mut connection = self.connect()?;
        connection
            .send(method, target, headers, body)
            .or_else(ignore_broken_pipe)?;
        connection.read_response_to(method)
    }

    fn dial(&self) -> io::Result<Socket> {
        let socket = match &self.address {
            Target::Unix(path) => Socket::Unix(UnixStream::connect(path)?),
            Target::Tcp(address) => Socket::Tcp(self.dial_tcp(*address)?),
        };
        socket.set_timeouts(self.timeout)?;
        Ok(socket)
    }

    fn dial_tcp(&self, address: SocketAddr) -> io::Result<TcpStream> {
        let socket = socket2::Socket::new(
            socket2::Domain::for_address(address),
            socket2::Type::STREAM,
            None,
        )?;
        if let Some(bytes) = self.receive_buffer {
            socket.set_recv_buffer_size(bytes)?;
        }
        if let Some(source) = self.source {
            socket.bind(&SocketAddr::new(source, 0).into())?;
        }
        socket.connect(&address.into())?;
        socket.set_tcp_nodelay(true)?;
        Ok(socket.into())
    }

    fn configured(mut self) -> Self {
        let builder = ClientConfig::builder_with_provider(Arc::clone(&self.provider))
            .with_protocol_versions(&self.versions)
            .expect("the provider has TLS 1.2 and 1.3");
        let roots = Arc::clone(&self.roots);
        let builder = if self.schemes.is_empty() {
            builder.with_root_certificates(roots)
        } else {
            builder
                .dangerous()
                .with_custom_certificate_verifier(self.offering(roots))
        };
        let mut config = match &self.key {
            Some(key) => builder.with_client_cert_resolver(Arc::new(Always(Arc::clone(key)))),
            None => builder.with_no_client_auth(),
        };
        let sessions = if self.nameless {
            Resumption::store(Arc::new(Nameless::new()))
        } else {
            Resumption::default()
        };
        config.resumption = sessions.tls12_resumption(self.tls12_resumption);
        config.enable_early_data = self.eager;
        config.time_provider = Arc::new(ClockAhead(self.ahead));
        if self.protocol == Protocol::Http2 {
            config.alpn_protocols = vec![b"h2".to_vec()];
        }
        self.tls = Some(Arc::new(config));
        self
    }

    fn offering(&self, roots: Arc<RootCertStore>) -> Arc<Offering> {
        let provider = Arc::clone(&self.provider);
        let verifier = WebPkiServerVerifier::builder_with_provider(roots, provider);
        Arc::new(Offering {
            verifier: verifier.build().expect("a bundle of a test has a CA"),
            schemes: self.schemes.clone(),
        })
    }
}

/// A clock that is ahead of the system's.
#[derive(Debug)]
struct ClockAhead(Duration);

impl TimeProvider for ClockAhead {
    fn current_time(&self) -> Option<UnixTime> {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        since
            .ok()
            .map(|since| UnixTime::since_unix_epoch(since + self.0))
    }
}

fn begin(io: &mut Io) -> Result<Session, ClientError> {
    if let Io::Tls(tls) = io {
        let agreed = tls.conn.alpn_protocol().map(<[u8]>::to_vec);
        assert_eq!(agreed.as_deref(), Some(&b"h2"[..]), "HTTP/2 is agreed on");
    }
    Session::begin(io).map_err(ClientError::of)
}

/// Presents one certificate, whichever certificates the server requests.
struct Always(Arc<CertifiedKey>);

impl fmt::Debug for Always {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Always")
    }
}

impl ResolvesClientCert for Always {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0))
    }

    fn has_certs(&self) -> bool {
        true
    }
}

/// A certificate and its key without any check, so that a stolen certificate and a malformed one can be presented too.
fn certified_key(credential: &TestCredential) -> Result<Arc<CertifiedKey>, rustls::Error> {
    let key = provider()
        .key_provider
        .load_private_key(private_key(&credential.key_pem))?;
    Ok(Arc::new(CertifiedKey::new(
        certificates(&credential.chain_pem()),
        key,
    )))
}

/// Like `certified_key`, with an RSA key of 1024 bits.
pub(crate) fn small_key(
    credential: &TestCredential,
    schemes: &'static [SignatureScheme],
) -> Arc<CertifiedKey> {
    let key = SmallRsa::new(&private_key(&credential.key_pem), schemes);
    Arc::new(CertifiedKey::new(
        certificates(&credential.chain_pem()),
        Arc::new(key),
    ))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn an_eager_client_tells_when_a_server_takes_early_data() {
        let ca = crate::Ca::new();
        let server = ca.server("puppet");
        let mut config = rustls::ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13])
            .expect("TLS 1.3")
            .with_no_client_auth()
            .with_single_cert(
                certificates(&server.chain_pem()),
                private_key(&server.key_pem),
            )
            .expect("a key that fits");
        config.max_early_data_size = 1024;
        let config = Arc::new(config);
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("its address");
        let serving = std::thread::spawn(move || {
            for _ in 0..2 {
                let (stream, _) = listener.accept().expect("a client");
                let tls = rustls::ServerConnection::new(Arc::clone(&config)).expect("TLS");
                let mut tls = StreamOwned::new(tls, stream);
                tls.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
                    .expect("taken");
            }
        });
        let client = Client::new(address, &ca.bundle_pem(), None).eager();
        let mut first = client.connect().expect("connects");
        assert!(!first.may_be_early());
        assert_eq!(first.read_response().expect("an answer").status, 200);
        let second = client.connect().expect("connects");
        assert!(second.resumed() && second.may_be_early());
        serving.join().expect("served");
    }
}
