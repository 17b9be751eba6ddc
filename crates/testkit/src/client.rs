//! A raw HTTP/1.1 client over TLS: sends the bytes a test writes, and shows what came back; over HTTP/2 where asked to.

use std::{
    fmt,
    io::{self, ErrorKind, Read, Write},
    net::{IpAddr, SocketAddr, TcpStream},
    os::unix::net::UnixStream,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant, SystemTime},
};

use rustls::{
    AlertDescription, ClientConfig, ClientConnection, HandshakeKind, RootCertStore,
    SignatureScheme, StreamOwned, SupportedProtocolVersion,
    client::{ResolvesClientCert, Resumption, Tls12Resumption, WebPkiServerVerifier},
    crypto::CryptoProvider,
    sign::CertifiedKey,
    time_provider::TimeProvider,
    version::{TLS12, TLS13},
};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject};

use crate::{
    ca::Credential,
    hello,
    http2::{Outcome, Session, frame},
    message::{
        Body, Framing, Headers, Interim, MessageReader, Response, response_framing, response_head,
    },
    offering::Offering,
    sessions::Nameless,
    small_rsa::SmallRsa,
    socket::Socket,
};

/// Long enough for a loaded machine, short enough that a test that hangs says so.
const READ_TIMEOUT: Duration = Duration::from_secs(20);

/// How far a slow client may be behind its rate and still catch up.
const CATCH_UP_MAX: Duration = Duration::from_millis(100);

/// Why there was no connection or no answer.
#[derive(Debug)]
pub enum ClientError {
    /// TCP connect failed.
    Connect(io::Error),
    /// The peer ended TLS with this alert.
    Alert(AlertDescription),
    /// TLS failed on our side.
    Tls(rustls::Error),
    /// The connection ended before an answer began.
    Closed,
    /// Nothing came in time.
    Timeout,
    /// What came is no proper answer, or broke off within.
    Broken(io::Error),
    /// The stream was ended with this code (HTTP/2).
    Reset(u32),
}

impl ClientError {
    /// The peer's alert, if one came.
    pub fn alert(&self) -> Option<AlertDescription> {
        match self {
            Self::Alert(alert) => Some(*alert),
            _ => None,
        }
    }

    /// Whether the connection ended without an answer, in order or by a reset.
    pub fn is_closed(&self) -> bool {
        match self {
            Self::Closed => true,
            Self::Broken(error) => matches!(
                error.kind(),
                ErrorKind::ConnectionReset | ErrorKind::BrokenPipe
            ),
            _ => false,
        }
    }

    pub(crate) fn of(error: io::Error) -> Self {
        let tls = error
            .get_ref()
            .and_then(|inner| inner.downcast_ref::<rustls::Error>());
        match (tls, error.kind()) {
            (Some(rustls::Error::AlertReceived(alert)), _) => Self::Alert(*alert),
            (Some(tls), _) => Self::Tls(tls.clone()),
            (None, ErrorKind::WouldBlock | ErrorKind::TimedOut) => Self::Timeout,
            (None, _) => Self::Broken(error),
        }
    }
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connect(error) => write!(f, "connect: {error}"),
            Self::Alert(alert) => write!(f, "alert {alert:?}"),
            Self::Tls(error) => write!(f, "tls: {error}"),
            Self::Closed => f.write_str("closed before an answer"),
            Self::Timeout => f.write_str("nothing came in time"),
            Self::Broken(error) => write!(f, "broken: {error}"),
            Self::Reset(code) => write!(f, "the stream was reset with code {code}"),
        }
    }
}

impl std::error::Error for ClientError {}

/// What is spoken to the proxy under test.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.1.
    #[default]
    Http1,
    /// HTTP/2, agreed on in the handshake.
    Http2,
}

/// Who connects, where, and how. Its connections share one session store, so the second may be resumed.
#[derive(Clone)]
pub struct Client {
    address: Target,
    server_name: String,
    roots: Arc<RootCertStore>,
    key: Option<Arc<CertifiedKey>>,
    versions: Vec<&'static SupportedProtocolVersion>,
    provider: Arc<CryptoProvider>,
    /// Signatures it says it can check; none: all that the provider can.
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

/// How a slow client moves bytes: so many at most, then a rest.
#[derive(Clone, Copy)]
struct Trickle {
    bytes: usize,
    rest: Duration,
    /// When the present rest ends.
    until: Instant,
}

#[derive(Clone)]
enum Target {
    Tcp(SocketAddr),
    Unix(std::path::PathBuf),
}

impl Client {
    /// A TLS client that trusts `bundle_pem` and shows `credential`, if any.
    ///
    /// # Panics
    /// If the credential's key cannot be used by the TLS library; see `try_new`.
    pub fn new(address: SocketAddr, bundle_pem: &str, credential: Option<&Credential>) -> Self {
        Self::try_new(address, bundle_pem, credential)
            .unwrap_or_else(|error| panic!("unusable credential: {error}"))
    }

    /// As `new`.
    ///
    /// # Errors
    /// If the TLS library takes no such key (RSA below 2048 bits).
    pub fn try_new(
        address: SocketAddr,
        bundle_pem: &str,
        credential: Option<&Credential>,
    ) -> Result<Self, rustls::Error> {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(certificates(bundle_pem));
        let key = credential.map(certified_key).transpose()?;
        let client = Self {
            address: Target::Tcp(address),
            server_name: "puppet".to_owned(),
            roots: Arc::new(roots),
            key,
            versions: vec![&TLS13, &TLS12],
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
        };
        Ok(client.configured())
    }

    /// A client with an RSA key of 1024 bits, which signs by PKCS #1: in TLS 1.3 it can prove nothing.
    pub fn small(address: SocketAddr, bundle_pem: &str, credential: &Credential) -> Self {
        let mut client = Self::new(address, bundle_pem, None);
        // TLS 1.3 takes the second alone.
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

    /// TLS 1.2 alone.
    pub fn tls12(mut self) -> Self {
        self.versions = vec![&TLS12];
        self.configured()
    }

    /// TLS 1.3 alone.
    pub fn tls13(mut self) -> Self {
        self.versions = vec![&TLS13];
        self.configured()
    }

    /// TLS 1.2 with RSA certificates alone, as clients speak it that know no elliptic curves in certificates.
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

    /// Says that it can check these signatures alone.
    pub fn checking(mut self, schemes: &[SignatureScheme]) -> Self {
        self.schemes = schemes.to_vec();
        self.configured()
    }

    /// Resumes TLS 1.2 sessions by their id, as clients that take no tickets do.
    pub fn without_tickets(mut self) -> Self {
        self.tls12_resumption = Tls12Resumption::SessionIdOnly;
        self.tls12()
    }

    /// Offers its sessions whatever name they were made under, as no proper client does.
    pub fn regardless_of_names(mut self) -> Self {
        self.nameless = true;
        self.configured()
    }

    /// Would send early data (0-RTT) where the server says that it takes some.
    pub fn eager(mut self) -> Self {
        self.eager = true;
        self.configured()
    }

    /// With a clock that is so much ahead.
    pub fn clock_ahead(mut self, by: Duration) -> Self {
        self.ahead = by;
        self.configured()
    }

    /// At another address, with the same sessions.
    pub fn at(mut self, address: SocketAddr) -> Self {
        self.address = Target::Tcp(address);
        self
    }

    /// Another server name in SNI, Host and verification. Default `puppet`.
    pub fn server_name(mut self, name: &str) -> Self {
        name.clone_into(&mut self.server_name);
        self
    }

    /// Another limit on waiting for bytes. Default 20 s.
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.timeout = limit;
        self
    }

    /// A small receive buffer, so that a slow reader pushes back soon.
    pub fn receive_buffer(mut self, bytes: usize) -> Self {
        self.receive_buffer = Some(bytes);
        self
    }

    /// Moves at most `bytes` bytes at a time over TLS, in either direction, and rests after each. A rest that took too long
    /// shortens the next ones: the rate is the same on a loaded machine.
    pub fn trickle(mut self, bytes: usize, rest: Duration) -> Self {
        self.trickle = Some(Trickle {
            bytes: bytes.max(1),
            rest,
            until: Instant::now(),
        });
        self
    }

    /// From this address of the machine, such as one of 127.0.0.0/8, in place of the one that the system chooses.
    pub fn source(mut self, source: IpAddr) -> Self {
        self.source = Some(source);
        self
    }

    /// Speaks this.
    pub fn protocol(mut self, protocol: Protocol) -> Self {
        self.protocol = protocol;
        self.configured()
    }

    /// The same client with an empty session store: its next handshake is a full one.
    pub fn forgetful(self) -> Self {
        self.configured()
    }

    /// Counts final answers here; the proxy under test asks how many there were.
    pub(crate) fn counted(mut self, answers: &Arc<AtomicUsize>) -> Self {
        self.answers = Arc::clone(answers);
        self
    }

    /// Value of Host.
    pub fn host(&self) -> String {
        match &self.address {
            Target::Tcp(address) => format!("{}:{}", self.server_name, address.port()),
            Target::Unix(_) => "localhost".to_owned(),
        }
    }

    /// Connects and shakes hands. In TLS 1.3 a server that refuses the client says so only on the first read.
    ///
    /// # Errors
    /// As the connect or the handshake fails.
    pub fn connect(&self) -> Result<Connection, ClientError> {
        let mut connection = self.agree()?;
        if self.protocol == Protocol::Http2 {
            connection.session = Some(begin(&mut connection.io)?);
        }
        Ok(connection)
    }

    /// Connects and shakes hands, and says nothing of the protocol that was agreed on there: what is sent then is up to
    /// the test, byte by byte.
    ///
    /// # Errors
    /// As the connect or the handshake fails.
    pub fn agree(&self) -> Result<Connection, ClientError> {
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
                        // The peer is told why, whole: an alert may stand behind another record.
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
        Ok(Connection {
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

    /// One GET on a connection of its own.
    ///
    /// # Panics
    /// If there is no answer.
    #[track_caller]
    pub fn get(&self, target: &str) -> Response {
        self.request("GET", target, &[], b"")
    }

    /// One request on a connection of its own.
    ///
    /// # Panics
    /// If there is no answer.
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

    /// One request on a connection of its own.
    ///
    /// # Errors
    /// As connect, handshake or answer fail.
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
        let builder = match self.schemes.is_empty() {
            true => builder.with_root_certificates(roots),
            false => builder
                .dangerous()
                .with_custom_certificate_verifier(self.offering(roots)),
        };
        let mut config = match &self.key {
            Some(key) => builder.with_client_cert_resolver(Arc::new(Always(Arc::clone(key)))),
            None => builder.with_no_client_auth(),
        };
        let sessions = match self.nameless {
            true => Resumption::store(Arc::new(Nameless::new())),
            false => Resumption::default(),
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

/// A clock that is wrong.
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

/// An open connection.
pub struct Connection {
    io: Io,
    session: Option<Session>,
    reader: MessageReader,
    host: String,
    timeout: Duration,
    ended: bool,
    may_be_early: bool,
    answers: Arc<AtomicUsize>,
}

impl Connection {
    /// Sends a request: Host, an agent's fields, Content-Length where there is a body, then `headers` as they are.
    ///
    /// # Errors
    /// If the peer does not take it.
    pub fn send(
        &mut self,
        method: &str,
        target: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Result<(), ClientError> {
        let mut bytes = self.head(
            method,
            target,
            headers,
            Some(body.len()).filter(|n| *n > 0 || method == "POST"),
        );
        bytes.extend_from_slice(body);
        self.send_raw(&bytes)
    }

    /// Sends a request in chunks, one for each piece.
    ///
    /// # Errors
    /// If the peer does not take it.
    pub fn send_chunked(
        &mut self,
        method: &str,
        target: &str,
        headers: &[(&str, &str)],
        pieces: &[&[u8]],
    ) -> Result<(), ClientError> {
        let mut fields = headers.to_vec();
        fields.push(("Transfer-Encoding", "chunked"));
        let mut bytes = self.head(method, target, &fields, None);
        for piece in pieces.iter().filter(|piece| !piece.is_empty()) {
            bytes.extend_from_slice(format!("{:x}\r\n", piece.len()).as_bytes());
            bytes.extend_from_slice(piece);
            bytes.extend_from_slice(b"\r\n");
        }
        bytes.extend_from_slice(b"0\r\n\r\n");
        self.send_raw(&bytes)
    }

    /// A head as `send` makes it.
    pub fn head(
        &self,
        method: &str,
        target: &str,
        headers: &[(&str, &str)],
        length: Option<usize>,
    ) -> Vec<u8> {
        let mut head = format!("{method} {target} HTTP/1.1\r\n");
        let given = |name: &str| headers.iter().any(|(n, _)| n.eq_ignore_ascii_case(name));
        for (name, value) in [
            ("Host", self.host.as_str()),
            ("Accept", "*/*"),
            ("X-Puppet-Version", "8.10.0"),
        ] {
            if !given(name) {
                head.push_str(&format!("{name}: {value}\r\n"));
            }
        }
        if let Some(length) = length.filter(|_| !given("content-length")) {
            head.push_str(&format!("Content-Length: {length}\r\n"));
        }
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str("\r\n");
        head.into_bytes()
    }

    /// Sends these bytes. Over TLS a peer that has gone is told by the next read, with its alert.
    ///
    /// # Errors
    /// If the peer does not take them.
    pub fn send_raw(&mut self, bytes: &[u8]) -> Result<(), ClientError> {
        if let Some(session) = &mut self.session {
            return session.say(&mut self.io, bytes).map_err(ClientError::of);
        }
        self.send_bytes(bytes)
    }

    /// Sends these bytes as they are, over HTTP/2 too.
    ///
    /// # Errors
    /// If the peer does not take them.
    pub fn send_bytes(&mut self, bytes: &[u8]) -> Result<(), ClientError> {
        self.io
            .write_all(bytes)
            .and_then(|()| self.io.flush())
            .map_err(ClientError::of)
    }

    /// The next answer, to a request that is no HEAD.
    ///
    /// # Errors
    /// As it fails to come.
    #[track_caller]
    pub fn read_response(&mut self) -> Result<Response, ClientError> {
        self.read_response_to("GET")
    }

    /// The next answer, to a request with this method; 1xx answers are collected.
    ///
    /// # Errors
    /// As it fails to come.
    ///
    /// # Panics
    /// If a trusted header has leaked down.
    #[track_caller]
    pub fn read_response_to(&mut self, method: &str) -> Result<Response, ClientError> {
        let mut interim = Vec::new();
        loop {
            let answer = self.read_head_to(method, std::mem::take(&mut interim))?;
            if (100..=199).contains(&answer.status) && answer.status != 101 {
                interim = answer.interim;
                interim.push(Interim {
                    status: answer.status,
                    headers: answer.headers,
                });
                continue;
            }
            return self.read_body_of(answer);
        }
    }

    /// The next head alone, 1xx too; its body is read by `read_body_of`.
    ///
    /// # Errors
    /// As it fails to come.
    #[track_caller]
    pub fn read_head(&mut self) -> Result<Response, ClientError> {
        self.read_head_to("GET", Vec::new())
    }

    /// The body of a head that `read_head` yielded.
    ///
    /// # Errors
    /// If it breaks off.
    pub fn read_body_of(&mut self, mut response: Response) -> Result<Response, ClientError> {
        self.read_body_into(&mut response)?;
        Ok(response)
    }

    /// The body of a head that `read_head` yielded. If it breaks off, the response holds the bytes that came.
    ///
    /// # Errors
    /// If it breaks off.
    pub fn read_body_into(&mut self, response: &mut Response) -> Result<(), ClientError> {
        self.answers.fetch_add(1, Ordering::SeqCst);
        if let (Some(session), Some(stream)) = (&mut self.session, response.stream) {
            session.body_into(&mut self.io, stream, &mut response.body)?;
            if let Framing::Length(length) = response.framing
                && length != response.body.length
            {
                let what = format!("{length} bytes were said, {} came", response.body.length);
                return Err(ClientError::Broken(io::Error::other(what)));
            }
            session.settle(&mut self.io)?;
            response.last = session.is_last();
            return Ok(());
        }
        self.reader
            .body_into(&mut self.io, response.framing, &mut response.body)
            .map_err(ClientError::of)
    }

    #[track_caller]
    fn read_head_to(
        &mut self,
        method: &str,
        interim: Vec<Interim>,
    ) -> Result<Response, ClientError> {
        if self.session.is_some() {
            return self.read_stream_head(method, interim);
        }
        let raw = match self.reader.head(&mut self.io) {
            Ok(raw) => raw.ok_or(ClientError::Closed)?,
            // An end without close_notify before the first byte is an end all the same.
            Err(error)
                if error.kind() == ErrorKind::UnexpectedEof && self.reader.pending().is_empty() =>
            {
                return Err(ClientError::Closed);
            }
            Err(error) => return Err(ClientError::of(error)),
        };
        let (version, status, reason, headers) =
            response_head(&raw).map_err(ClientError::Broken)?;
        assert_nothing_trusted(&headers);
        let framing = response_framing(method, status, &headers).map_err(ClientError::Broken)?;
        let body = Body::default();
        Ok(Response {
            status,
            version,
            reason,
            headers,
            framing,
            body,
            interim,
            raw_head: raw,
            stream: None,
            last: false,
        })
    }

    #[track_caller]
    fn read_stream_head(
        &mut self,
        method: &str,
        interim: Vec<Interim>,
    ) -> Result<Response, ClientError> {
        let session = self.session.as_mut().expect("it speaks HTTP/2");
        let head = session.head(&mut self.io)?;
        assert_nothing_trusted(&head.headers);
        let framing = response_framing(method, head.status, &head.headers);
        let framing = match framing.map_err(ClientError::Broken)? {
            // The end of a stream's data is told as that of chunks is: by itself.
            Framing::ToClose if head.bodiless => Framing::None,
            Framing::ToClose => Framing::Chunked,
            framing => framing,
        };
        let lines = head.headers.0.iter();
        let raw_head: String = lines
            .map(|(name, value)| format!("{name}: {value}\r\n"))
            .collect();
        Ok(Response {
            status: head.status,
            version: "HTTP/2".to_owned(),
            reason: String::new(),
            headers: head.headers,
            framing,
            body: Body::default(),
            interim,
            raw_head: raw_head.into_bytes(),
            stream: Some(head.stream),
            last: false,
        })
    }

    /// Opens a stream with these fields, byte for byte and in this order.
    ///
    /// # Errors
    /// If the peer does not take it.
    ///
    /// # Panics
    /// If HTTP/1.1 is spoken.
    pub fn open(
        &mut self,
        fields: &[(impl AsRef<[u8]>, impl AsRef<[u8]>)],
        end: bool,
    ) -> Result<u32, ClientError> {
        let session = self.session.as_mut().expect("it speaks HTTP/2");
        session
            .open(&mut self.io, fields, end)
            .map_err(ClientError::of)
    }

    pub(crate) fn is_http2(&self) -> bool {
        self.session.is_some()
    }

    /// The number of a new stream whose frames the test makes itself.
    ///
    /// # Panics
    /// If HTTP/1.1 is spoken.
    pub fn reserve_stream(&mut self) -> u32 {
        self.session.as_mut().expect("it speaks HTTP/2").reserve()
    }

    /// Sends one frame as it is.
    ///
    /// # Errors
    /// If the peer does not take it.
    pub fn send_frame(
        &mut self,
        kind: u8,
        flags: u8,
        stream: u32,
        payload: &[u8],
    ) -> Result<(), ClientError> {
        self.send_bytes(&frame(kind, flags, stream, payload))
    }

    /// Sends data of a stream as far as the peer has given room for it by now: how many bytes.
    ///
    /// # Errors
    /// If the peer does not take it.
    ///
    /// # Panics
    /// If HTTP/1.1 is spoken.
    pub fn send_ahead(&mut self, stream: u32) -> Result<usize, ClientError> {
        let session = self.session.as_mut().expect("it speaks HTTP/2");
        session
            .data_ahead(&mut self.io, stream)
            .map_err(ClientError::of)
    }

    /// What the peer's settings say of this one, as far as they have been read.
    pub fn announced(&self, setting: u16) -> Option<u32> {
        let session = self.session.as_ref().expect("it speaks HTTP/2");
        session.announced(setting)
    }

    /// What became of a stream.
    ///
    /// # Panics
    /// If HTTP/1.1 is spoken, or nothing becomes of it.
    #[track_caller]
    pub fn outcome(&mut self, stream: u32) -> Outcome {
        let session = self.session.as_mut().expect("it speaks HTTP/2");
        session.outcome(&mut self.io, stream)
    }

    /// Waits until the peer has read all that was sent.
    ///
    /// # Errors
    /// As the connection fails.
    ///
    /// # Panics
    /// If HTTP/1.1 is spoken.
    pub fn settle(&mut self) -> Result<(), ClientError> {
        let session = self.session.as_mut().expect("it speaks HTTP/2");
        session.settle(&mut self.io)
    }

    /// Whether the peer said that it takes no more requests on this connection, or ended it.
    pub fn is_last(&self) -> bool {
        self.session.as_ref().is_some_and(Session::is_last)
    }

    /// One GET on this connection.
    ///
    /// # Panics
    /// If there is no answer.
    #[track_caller]
    pub fn get(&mut self, target: &str) -> Response {
        self.request("GET", target, &[], b"")
    }

    /// One request on this connection.
    ///
    /// # Panics
    /// If there is no answer.
    #[track_caller]
    pub fn request(
        &mut self,
        method: &str,
        target: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Response {
        self.try_request(method, target, headers, body)
            .unwrap_or_else(|error| panic!("{method} {target}: {error}"))
    }

    /// One request on this connection.
    ///
    /// # Errors
    /// As the answer fails to come.
    #[track_caller]
    pub fn try_request(
        &mut self,
        method: &str,
        target: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Result<Response, ClientError> {
        self.send(method, target, headers, body)
            .or_else(ignore_broken_pipe)?;
        self.read_response_to(method)
    }

    /// Everything up to the end of the connection, however it ends; an alert too is an end.
    pub fn read_to_close(&mut self) -> Vec<u8> {
        if let Some(session) = &mut self.session {
            let before = session.received();
            while session.pump(&mut self.io).unwrap_or(false) {}
            self.ended = true;
            return vec![0; session.received() - before];
        }
        while self.reader.fill(&mut self.io).is_ok_and(|n| n > 0) {}
        self.ended = true;
        self.reader.pending().to_vec()
    }

    /// The next `n` bytes of a tunnel, or as many as come before its end; that is an error unless it is in order.
    ///
    /// # Errors
    /// As the connection fails.
    pub fn read_bytes(&mut self, n: usize) -> Result<Vec<u8>, ClientError> {
        let bytes = self
            .reader
            .bytes(&mut self.io, n)
            .map_err(ClientError::of)?;
        self.ended = bytes.len() < n;
        Ok(bytes)
    }

    /// Some bytes of a body, as they come; 0 at its end. For readers that are slow on purpose.
    ///
    /// # Errors
    /// As the connection fails.
    pub fn read_some(&mut self, into: &mut [u8]) -> Result<usize, ClientError> {
        assert!(
            self.session.is_none(),
            "what a stream brings is read by `read_piece`"
        );
        self.io.read(into).map_err(ClientError::of)
    }

    /// Whether the peer ends the connection within `limit` without sending anything first.
    pub fn is_closed_within(&mut self, limit: Duration) -> bool {
        self.closed_after(limit).is_some()
    }

    /// How long it took the peer to end the connection; `None` if it sent bytes or did not within `limit`.
    pub fn closed_after(&mut self, limit: Duration) -> Option<Duration> {
        let start = Instant::now();
        if self.session.is_some() {
            return self.stream_closed_after(start, limit);
        }
        if self.ended || !self.reader.pending().is_empty() {
            return self.ended.then_some(Duration::ZERO);
        }
        self.io
            .socket()
            .set_timeouts(limit.max(Duration::from_millis(1)))
            .ok()?;
        let end = self.reader.fill(&mut self.io);
        // The socket may be gone; its time limit with it.
        let _ = self.io.socket().set_timeouts(self.timeout);
        self.ended = match end {
            Ok(n) => n == 0,
            Err(error) => !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
        };
        self.ended.then(|| start.elapsed())
    }

    fn stream_closed_after(&mut self, start: Instant, limit: Duration) -> Option<Duration> {
        let session = self.session.as_mut()?;
        while start.elapsed() < limit {
            let left = limit.saturating_sub(start.elapsed());
            self.io
                .socket()
                .set_timeouts(left.max(Duration::from_millis(1)))
                .ok()?;
            let silent = session.is_silent_to_end(&mut self.io);
            let _ = self.io.socket().set_timeouts(self.timeout);
            match silent {
                Ok(true) => self.ended = true,
                Ok(false) => return None,
                Err(error) => {
                    self.ended =
                        !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut);
                }
            }
            if self.ended {
                return Some(start.elapsed());
            }
        }
        None
    }

    /// Tells the peer that nothing more will be sent; answers may still come.
    pub fn half_close(&mut self) {
        if let Io::Tls(tls) = &mut self.io {
            tls.conn.send_close_notify();
            let _ = tls.flush();
        }
        self.io.socket().finish();
    }

    /// Sends these bytes below TLS, where the peer expects its records.
    ///
    /// # Errors
    /// If the peer does not take them.
    pub fn send_below_tls(&mut self, bytes: &[u8]) -> Result<(), ClientError> {
        let Io::Tls(tls) = &mut self.io else {
            panic!("a plain connection has nothing below it");
        };
        tls.sock.write_all(bytes).map_err(ClientError::of)
    }

    /// Ends TLS in our direction and, where `leaves`, the connection in the same segment; gives what the peer sends
    /// after that until it closes, as it is on the wire.
    ///
    /// # Errors
    /// The peer does not close in time, or not in order.
    pub fn last_words(mut self, leaves: bool) -> Result<Vec<u8>, ClientError> {
        let Io::Tls(tls) = &mut self.io else {
            panic!("a plain connection has no end of TLS");
        };
        tls.conn.send_close_notify();
        if leaves {
            tls.sock.0.hold_back();
        }
        let _ = tls.flush();
        if leaves {
            tls.sock.0.finish();
        }
        self.as_on_the_wire()
    }

    /// Ends the connection in our direction without a word of TLS; gives what the peer sends after that until it
    /// closes, as it is on the wire.
    ///
    /// # Errors
    /// The peer does not close in time, or not in order.
    pub fn words_to_who_ends_without(mut self) -> Result<Vec<u8>, ClientError> {
        self.io.socket().finish();
        self.as_on_the_wire()
    }

    fn as_on_the_wire(&mut self) -> Result<Vec<u8>, ClientError> {
        let Io::Tls(tls) = &mut self.io else {
            panic!("a plain connection has no end of TLS");
        };
        let mut words = Vec::new();
        tls.sock.read_to_end(&mut words).map_err(ClientError::of)?;
        Ok(words)
    }

    /// Ends the connection with a reset.
    pub fn reset(self) {
        self.io.socket().reset();
    }

    /// Whether this TLS session was resumed.
    pub fn resumed(&self) -> bool {
        matches!(&self.io, Io::Tls(tls) if tls.conn.handshake_kind() == Some(HandshakeKind::Resumed))
    }

    /// The ticket that the hello offered, as it went over the wire: its first 16 bytes name the server's key.
    pub fn offered_ticket(&self) -> Option<Vec<u8>> {
        match &self.io {
            Io::Tls(tls) => hello::ticket(&tls.sock.1),
            Io::Plain(_) => None,
        }
    }

    /// Whether the session that was offered came with leave to send early data.
    pub fn may_be_early(&self) -> bool {
        self.may_be_early
    }

    /// Certificates the server showed, DER, leaf first.
    pub fn peer_certificates(&self) -> Vec<Vec<u8>> {
        match &self.io {
            Io::Tls(tls) => tls
                .conn
                .peer_certificates()
                .unwrap_or_default()
                .iter()
                .map(|c| c.to_vec())
                .collect(),
            Io::Plain(_) => Vec::new(),
        }
    }
}

/// What must hold of every answer: nothing that only members may be told comes down.
#[track_caller]
fn assert_nothing_trusted(headers: &Headers) {
    for (name, value) in &headers.0 {
        let name = name.to_ascii_lowercase().replace(['_', '.'], "-");
        let trusted = TRUSTED_PREFIXES
            .iter()
            .any(|prefix| name.starts_with(prefix));
        assert!(
            !trusted,
            "a trusted header leaked to the client: {name}: {value}"
        );
    }
}

/// Beginnings of names that are meant for members alone.
const TRUSTED_PREFIXES: &[&str] = &[
    "x-client-",
    "x-ssl-",
    "ssl-client-",
    "x-forwarded-",
    "x-real-ip",
    "client-cert",
    "x-authentication",
];

/// A server that answers early may have stopped reading: its answer counts, not our failed write.
fn ignore_broken_pipe(error: ClientError) -> Result<(), ClientError> {
    match error {
        ClientError::Broken(cause) if is_gone(&cause) => Ok(()),
        error => Err(error),
    }
}

/// Shows one certificate whatever the server asks for.
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

/// Certificate and key as they are: neither is checked, so that a thief's and a broken one can be shown too.
fn certified_key(credential: &Credential) -> Result<Arc<CertifiedKey>, rustls::Error> {
    let key = provider()
        .key_provider
        .load_private_key(private_key(&credential.key_pem))?;
    Ok(Arc::new(CertifiedKey::new(
        certificates(&credential.chain_pem()),
        key,
    )))
}

/// The same over an RSA key of 1024 bits.
pub(crate) fn small_key(
    credential: &Credential,
    schemes: &'static [SignatureScheme],
) -> Arc<CertifiedKey> {
    let key = SmallRsa::new(&private_key(&credential.key_pem), schemes);
    Arc::new(CertifiedKey::new(
        certificates(&credential.chain_pem()),
        Arc::new(key),
    ))
}

pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

pub(crate) fn certificates(pem: &str) -> Vec<CertificateDer<'static>> {
    CertificateDer::pem_slice_iter(pem.as_bytes())
        .filter_map(Result::ok)
        .collect()
}

pub(crate) fn private_key(pem: &str) -> PrivateKeyDer<'static> {
    PrivateKeyDer::from_pem_slice(pem.as_bytes()).expect("a credential has a PEM key")
}

enum Io {
    Plain(Socket),
    Tls(Box<StreamOwned<ClientConnection, Forgiving>>),
}

impl Io {
    fn socket(&self) -> &Socket {
        match self {
            Self::Plain(socket) => socket,
            Self::Tls(tls) => &tls.sock.0,
        }
    }
}

impl Read for Io {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.read(into),
            Self::Tls(tls) => tls.read(into),
        }
    }
}

impl Write for Io {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.write(bytes),
            Self::Tls(tls) => tls.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(socket) => socket.flush(),
            Self::Tls(tls) => tls.flush(),
        }
    }
}

/// A socket whose failed writes are told by the next read: TLS would give up at them, and the peer's alert, which
/// lies there to be read, would be lost. What was written first, the hello, is kept.
struct Forgiving(Socket, Vec<u8>, Option<Trickle>);

impl Read for Forgiving {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match &mut self.2 {
            None => self.0.read(into),
            Some(trickle) => {
                trickle.rest();
                let length = into.len().min(trickle.bytes);
                self.0.read(&mut into[..length])
            }
        }
    }
}

impl Trickle {
    fn rest(&mut self) {
        let now = Instant::now();
        // Slowness is what the test asked for.
        std::thread::sleep(self.until.saturating_duration_since(now));
        let earliest = now.checked_sub(CATCH_UP_MAX).unwrap_or(now);
        self.until = self.until.max(earliest) + self.rest;
    }
}

impl Write for Forgiving {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.1.is_empty() {
            self.1.extend_from_slice(bytes);
        }
        let mut piece = bytes;
        if let Some(trickle) = &mut self.2 {
            trickle.rest();
            piece = &bytes[..bytes.len().min(trickle.bytes)];
        }
        match self.0.write(piece) {
            Err(error) if is_gone(&error) => Ok(bytes.len()),
            written => written,
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

fn is_gone(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::BrokenPipe | ErrorKind::ConnectionReset | ErrorKind::ConnectionAborted
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Framing;

    #[test]
    #[should_panic(expected = "leaked")]
    fn a_trusted_header_in_an_answer_fails_the_test() {
        assert_nothing_trusted(&Headers(vec![(
            "X_Client.DN".to_owned(),
            "CN=x".to_owned(),
        )]));
    }

    #[test]
    fn framing_none_reads_nothing() {
        let mut reader = MessageReader::new();
        let body = reader
            .body(&mut &b"rest"[..], Framing::None)
            .expect("nothing to read");
        assert_eq!(body.length, 0);
    }

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
