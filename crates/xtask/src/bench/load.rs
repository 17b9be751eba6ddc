//! Kept mutual TLS connections that ask for small things as fast as they are answered.

use std::{future::poll_fn, net::SocketAddr, pin::pin, sync::Arc, task::Poll};

use anyhow::{Context, Result, bail};
use rustls::{
    ClientConfig, HandshakeKind, ProtocolVersion, RootCertStore, SupportedProtocolVersion,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
};
use testkit::Credential;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWriteExt, ReadBuf},
    net::TcpStream,
    runtime::{self, Runtime},
    task::JoinSet,
};
use tokio_rustls::{TlsConnector, client::TlsStream};

use super::pki::Pki;

/// Connections that stand, and the runtime they live on.
pub(super) struct Load {
    runtime: Runtime,
    connections: Vec<TlsStream<TcpStream>>,
}

/// How requests were answered.
#[derive(Clone, Copy, Default)]
pub(super) struct Answers {
    pub(super) good: u64,
    pub(super) bad: u64,
}

impl Load {
    /// Opens the connections, the agents' certificates in turn.
    pub(super) fn connect(address: SocketAddr, pki: &Pki, count: usize) -> Result<Self> {
        let runtime = runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let configs = pki
            .agents
            .iter()
            .map(|agent| client_config(pki, agent, rustls::ALL_VERSIONS))
            .collect::<Result<Vec<_>>>()?;
        let connections = runtime.block_on(async {
            let mut connections = Vec::with_capacity(count);
            for n in 0..count {
                connections.push(connect(address, &configs[n % configs.len()]).await?);
            }
            anyhow::Ok(connections)
        })?;
        Ok(Self {
            runtime,
            connections,
        })
    }

    /// Sends this many requests, shared by all connections.
    pub(super) fn run(&mut self, requests: u64) -> Result<Answers> {
        let each = requests / self.connections.len() as u64;
        let mut connections = std::mem::take(&mut self.connections);
        let answers = self.runtime.block_on(async {
            let mut tasks = JoinSet::new();
            for connection in connections.drain(..) {
                tasks.spawn(ask(connection, each));
            }
            let mut total = Answers::default();
            while let Some(done) = tasks.join_next().await {
                let (connection, answers) = done.context("a connection's task")??;
                connections.push(connection);
                total.good += answers.good;
                total.bad += answers.bad;
            }
            anyhow::Ok(total)
        })?;
        self.connections = connections;
        Ok(answers)
    }
}

/// One agent, with sessions of its own.
pub(super) fn client_config(
    pki: &Pki,
    agent: &Credential,
    versions: &[&'static SupportedProtocolVersion],
) -> Result<Arc<ClientConfig>> {
    let mut roots = RootCertStore::empty();
    // The intermediate too: the proxies send only their leaf.
    for certificate in CertificateDer::pem_slice_iter(pki.bundle.as_bytes()) {
        roots.add(certificate?)?;
    }
    let chain =
        CertificateDer::pem_slice_iter(agent.cert_pem.as_bytes()).collect::<Result<Vec<_>, _>>()?;
    let key = PrivateKeyDer::from_pem_slice(agent.key_pem.as_bytes())?;
    let mut provider = aws_lc_rs::default_provider();
    // What agents' OpenSSL 3.0 offers first, and every proxy knows.
    provider.kx_groups = vec![aws_lc_rs::kx_group::X25519];
    Ok(Arc::new(
        ClientConfig::builder_with_provider(Arc::new(provider))
            .with_protocol_versions(versions)?
            .with_root_certificates(roots)
            .with_client_auth_cert(chain, key)?,
    ))
}

async fn connect(address: SocketAddr, config: &Arc<ClientConfig>) -> Result<TlsStream<TcpStream>> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let name = ServerName::try_from("puppet").context("a name")?;
    TlsConnector::from(config.clone())
        .connect(name, stream)
        .await
        .context("handshake with the proxy")
}

/// What a client does with a connection.
#[derive(Clone, Copy)]
pub(super) enum Errand {
    /// Nothing: it takes the ticket that it is given, and goes.
    Connect,
    /// One small request.
    Ask,
}

/// A connection for one errand, ended in order; whether it was resumed.
pub(super) async fn connect_once(
    address: SocketAddr,
    config: &Arc<ClientConfig>,
    errand: Errand,
) -> Result<bool> {
    let mut connection = connect(address, config).await?;
    match errand {
        Errand::Connect => take_ticket(&mut connection).await?,
        Errand::Ask => {
            connection.write_all(METADATA.as_bytes()).await?;
            let mut buffer = Vec::with_capacity(2 << 10);
            match read_answer(&mut connection, &mut buffer).await? {
                200 => {}
                status => bail!("the answer was {status}: the proxy skips its work"),
            }
        }
    }
    let kind = connection.get_ref().1.handshake_kind();
    // The other end may have closed first.
    let _ = connection.shutdown().await;
    Ok(kind == Some(HandshakeKind::Resumed))
}

/// Waits for the next session's ticket, which in TLS 1.3 comes after the handshake (RFC 8446, 4.6.1).
async fn take_ticket(connection: &mut TlsStream<TcpStream>) -> Result<()> {
    if connection.get_ref().1.protocol_version() != Some(ProtocolVersion::TLSv1_3) {
        return Ok(());
    }
    poll_fn(|cx| {
        let mut byte = [0];
        let polled = pin!(&mut *connection).poll_read(cx, &mut ReadBuf::new(&mut byte));
        if connection.get_ref().1.tls13_tickets_received() > 0 {
            return Poll::Ready(Ok(()));
        }
        polled.map(|_| bail!("the proxy gave no ticket"))
    })
    .await
}

/// One connection's requests: nine for a file to one for the CRL, as in a quiet run.
async fn ask(
    mut connection: TlsStream<TcpStream>,
    requests: u64,
) -> Result<(TlsStream<TcpStream>, Answers)> {
    let mut answers = Answers::default();
    let mut buffer = Vec::with_capacity(16 << 10);
    for n in 0..requests {
        let request = if n % 10 == 9 { CRL } else { METADATA };
        connection.write_all(request.as_bytes()).await?;
        match read_answer(&mut connection, &mut buffer).await? {
            200 => answers.good += 1,
            _ => answers.bad += 1,
        }
    }
    Ok((connection, answers))
}

/// Reads one answer of known length and gives its status.
async fn read_answer(connection: &mut TlsStream<TcpStream>, buffer: &mut Vec<u8>) -> Result<u16> {
    buffer.clear();
    let mut wanted = None;
    loop {
        if connection.read_buf(buffer).await? == 0 {
            bail!("the proxy closed a connection");
        }
        if wanted.is_none() {
            wanted = answer_length(buffer)?;
        }
        if wanted.is_some_and(|length| buffer.len() >= length) {
            return String::from_utf8_lossy(&buffer[9..12])
                .parse()
                .context("a status");
        }
    }
}

fn answer_length(bytes: &[u8]) -> Result<Option<usize>> {
    let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else {
        return Ok(None);
    };
    let head = String::from_utf8_lossy(&bytes[..end]).to_ascii_lowercase();
    let length = head
        .split("\r\n")
        .find_map(|line| line.strip_prefix("content-length:"))
        .context("an answer without a length")?;
    Ok(Some(end + 4 + length.trim().parse::<usize>()?))
}

const METADATA: &str = "GET /puppet/v3/file_metadata/modules/ntp/ntp.conf?environment=production&links=manage&checksum_type=sha256 HTTP/1.1\r\n\
    Host: puppet:8140\r\nAccept: application/json\r\nUser-Agent: Puppet/8.0.0 Ruby/3.2\r\nX-Puppet-Version: 8.0.0\r\n\r\n";
const CRL: &str = "GET /puppet-ca/v1/certificate_revocation_list/ca HTTP/1.1\r\n\
    Host: puppet:8140\r\nAccept: text/plain\r\nUser-Agent: Puppet/8.0.0 Ruby/3.2\r\nX-Puppet-Version: 8.0.0\r\n\r\n";
