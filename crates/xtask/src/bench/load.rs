//! The agents' TLS connections: persistent ones that send the requests of a mix, and ones that are opened for one
//! request.

use std::{
    future::poll_fn,
    io,
    net::SocketAddr,
    pin::pin,
    sync::Arc,
    task::Poll,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use rustls::{
    ClientConfig, HandshakeKind, ProtocolVersion, RootCertStore, SupportedProtocolVersion,
    client::Resumption,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
};
use testkit::TestCredential;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf},
    net::TcpStream,
    runtime::{self, Runtime},
    task::JoinSet,
};
use tokio_rustls::{TlsConnector, client::TlsStream};

use super::{
    pki::Pki,
    requests::{self, Mix},
    schedule::{self, Turns},
};

/// Open connections and the runtime that they use.
pub(super) struct Load {
    runtime: Runtime,
    connections: Vec<TlsStream<TcpStream>>,
}

/// The responses to a series of requests.
#[derive(Default)]
pub(super) struct Answers {
    pub(super) good: u64,
    pub(super) bad: u64,
    /// Latency of each request: from the time at which it was due to the last byte of its response.
    pub(super) times: Vec<Duration>,
}

impl Answers {
    fn add(&mut self, more: Self) {
        self.good += more.good;
        self.bad += more.bad;
        self.times.extend(more.times);
    }

    /// Fails if a response is not successful. Members answer 403 if a proxy does not forward the identity.
    pub(super) fn ensure_good(&self, name: &str) -> Result<()> {
        let all = self.good + self.bad;
        ensure!(
            self.bad == 0,
            "{name}: {} of {all} answers were not 200: it skips its work",
            self.bad
        );
        Ok(())
    }
}

impl Load {
    /// Opens the connections. They use the agents' certificates in turn.
    pub(super) fn connect(
        address: SocketAddr,
        pki: &Pki,
        agents: &[TestCredential],
        count: usize,
    ) -> Result<Self> {
        let runtime = runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let configs = agents
            .iter()
            .map(|agent| client_config(pki, agent, rustls::ALL_VERSIONS))
            .collect::<Result<Vec<_>>>()?;
        let connections = runtime.block_on(async {
            let mut connections = Vec::with_capacity(count);
            for n in 0..count {
                let client = &configs[n % configs.len()];
                connections.push(client.connect(address).await?);
            }
            anyhow::Ok(connections)
        })?;
        Ok(Self {
            runtime,
            connections,
        })
    }

    /// Sends this number of requests, the same number on each connection and each after the previous response.
    pub(super) fn run(&mut self, mix: &Mix, requests: u64) -> Result<Answers> {
        let each = requests / self.connections.len() as u64;
        let turns = self.connections.iter().map(|_| Turns::AtOnce(each));
        self.run_by(mix, turns.collect())
    }

    /// Sends requests until this time, on each connection one after the previous response.
    pub(super) fn run_until(&mut self, end: Instant, mix: &Mix) -> Result<Answers> {
        let turns = self.connections.iter().map(|_| Turns::Until(end));
        self.run_by(mix, turns.collect())
    }

    /// Sends this number of requests on a fixed schedule, on the connections in turn.
    pub(super) fn run_at(&mut self, rate: u32, mix: &Mix, requests: u64) -> Result<Answers> {
        let turns = schedule::start(rate, requests, self.connections.len());
        self.run_by(mix, turns)
    }

    fn run_by(&mut self, mix: &Mix, turns: Vec<Turns>) -> Result<Answers> {
        let connections = std::mem::take(&mut self.connections);
        let count = connections.len();
        let (connections, answers) = self.runtime.block_on(async {
            let mut tasks = JoinSet::new();
            for (n, (connection, turns)) in connections.into_iter().zip(turns).enumerate() {
                // Each connection starts at a different request of the mix.
                let first = n * mix.len() / count;
                tasks.spawn(ask(connection, mix.clone(), first, turns));
            }
            let (mut connections, mut total) = (Vec::with_capacity(count), Answers::default());
            while let Some(done) = tasks.join_next().await {
                let (connection, answers) = done.context("a connection's task")??;
                connections.push(connection);
                total.add(answers);
            }
            anyhow::Ok((connections, total))
        })?;
        self.connections = connections;
        Ok(answers)
    }
}

/// One agent with its own TLS sessions.
#[derive(Clone)]
pub(super) struct AgentTls {
    config: Arc<ClientConfig>,
    server_name: ServerName<'static>,
}

pub(super) fn client_config(
    pki: &Pki,
    agent: &TestCredential,
    versions: &[&'static SupportedProtocolVersion],
) -> Result<AgentTls> {
    let mut roots = RootCertStore::empty();
    // The intermediate CA is a trust anchor too, because the proxies send only their leaf certificate.
    for certificate in CertificateDer::pem_slice_iter(pki.bundle.as_bytes()) {
        roots.add(certificate?)?;
    }
    let chain =
        CertificateDer::pem_slice_iter(agent.cert_pem.as_bytes()).collect::<Result<Vec<_>, _>>()?;
    let key = PrivateKeyDer::from_pem_slice(agent.key_pem.as_bytes())?;
    let mut provider = aws_lc_rs::default_provider();
    // The first group that OpenSSL 3.0 of agents offers. Every proxy supports it.
    provider.kx_groups = vec![aws_lc_rs::kx_group::X25519];
    let config = ClientConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(versions)?
        .with_root_certificates(roots)
        .with_client_auth_cert(chain, key)?;
    Ok(AgentTls {
        config: Arc::new(config),
        server_name: ServerName::try_from(pki.server_name.clone()).context("a name")?,
    })
}

impl AgentTls {
    /// The same agent, making a full handshake for each connection.
    pub(super) fn without_resumption(self) -> Self {
        let mut config = Arc::unwrap_or_clone(self.config);
        config.resumption = Resumption::disabled();
        Self {
            config: Arc::new(config),
            ..self
        }
    }

    async fn connect(&self, address: SocketAddr) -> Result<TlsStream<TcpStream>> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        TlsConnector::from(self.config.clone())
            .connect(self.server_name.clone(), stream)
            .await
            .context("handshake with the proxy")
    }

    /// Opens a connection, uses it, and closes it cleanly. Returns whether the session was resumed.
    pub(super) async fn connect_once(&self, address: SocketAddr, errand: Errand) -> Result<bool> {
        let mut connection = self.connect(address).await?;
        match errand {
            Errand::Connect => take_ticket(&mut connection).await?,
            Errand::Ask => {
                send(&mut connection, &requests::metadata()).await?;
                let mut buffer = Vec::with_capacity(BUFFER_BYTES);
                match read_answer(&mut connection, &mut buffer).await? {
                    200 => {}
                    status => bail!("the answer was {status}: the proxy skips its work"),
                }
            }
        }
        let kind = connection.get_ref().1.handshake_kind();
        // The proxy may have closed the connection first.
        let _ = connection.shutdown().await;
        Ok(kind == Some(HandshakeKind::Resumed))
    }
}

/// The errand of a client on a connection.
#[derive(Clone, Copy)]
pub(super) enum Errand {
    /// Nothing: the client waits for a session ticket and closes the connection.
    Connect,
    /// Sends one small request.
    Ask,
}

/// Waits for the session ticket. In TLS 1.3 it arrives after the handshake (RFC 8446, 4.6.1).
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

/// Sends the requests of one connection, starting with this request of the mix.
async fn ask(
    mut connection: TlsStream<TcpStream>,
    mix: Mix,
    first: usize,
    mut turns: Turns,
) -> Result<(TlsStream<TcpStream>, Answers)> {
    let mut answers = Answers::default();
    let mut buffer = Vec::with_capacity(BUFFER_BYTES);
    let mut number = first;
    while let Some(due) = turns.next().await {
        send(&mut connection, mix.request(number)).await?;
        match read_answer(&mut connection, &mut buffer).await? {
            200 => answers.good += 1,
            _ => answers.bad += 1,
        }
        answers.times.push(due.elapsed());
        number += 1;
    }
    Ok((connection, answers))
}

/// Sends a whole request. Without a flush, TLS keeps the last record if the task has used up its scheduling budget, as
/// after a large response, and then both sides wait.
async fn send(connection: &mut (impl AsyncWrite + Unpin), request: &[u8]) -> io::Result<()> {
    connection.write_all(request).await?;
    connection.flush().await
}

/// Reads a response of known length and returns its status.
async fn read_answer(connection: &mut TlsStream<TcpStream>, buffer: &mut Vec<u8>) -> Result<u16> {
    buffer.clear();
    let length = loop {
        read_more(connection, buffer).await?;
        if let Some(length) = answer_length(buffer)? {
            break length;
        }
    };
    let status = String::from_utf8_lossy(&buffer[9..12]).parse();
    let mut read = buffer.len();
    while read < length {
        buffer.clear();
        read += read_more(connection, buffer).await?;
    }
    status.context("a status")
}

async fn read_more(connection: &mut TlsStream<TcpStream>, buffer: &mut Vec<u8>) -> Result<usize> {
    match connection.read_buf(buffer).await? {
        0 => bail!("the proxy closed a connection"),
        length => Ok(length),
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

/// Maximum number of bytes that a client reads at once.
const BUFFER_BYTES: usize = 16 << 10;

#[cfg(test)]
mod tests {
    use tokio::io::BufWriter;

    use super::*;

    #[tokio::test]
    async fn a_request_is_sent_to_its_last_byte() {
        let (client, mut proxy) = tokio::io::duplex(1 << 10);
        // Keeps bytes until a flush, as TLS may.
        let mut client = BufWriter::new(client);
        send(&mut client, b"GET / HTTP/1.1\r\n\r\n")
            .await
            .expect("sent");
        let mut arrived = Vec::new();
        drop(client);
        proxy.read_to_end(&mut arrived).await.expect("the end");
        assert_eq!(arrived, b"GET / HTTP/1.1\r\n\r\n");
    }
}
