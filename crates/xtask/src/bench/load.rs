//! Kept mutual TLS connections that ask for small things as fast as they are answered.

use std::{net::SocketAddr, sync::Arc};

use anyhow::{Context, Result, bail};
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
};
use testkit::Credential;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    runtime::{self, Runtime},
    task::JoinSet,
};
use tokio_rustls::{TlsConnector, client::TlsStream};

use super::w1::Pki;

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
            .map(|agent| client_config(pki, agent))
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

fn client_config(pki: &Pki, agent: &Credential) -> Result<Arc<ClientConfig>> {
    let mut roots = RootCertStore::empty();
    // The intermediate too: the proxies send only their leaf.
    for certificate in CertificateDer::pem_slice_iter(pki.ca.bundle_pem().as_bytes()) {
        roots.add(certificate?)?;
    }
    let chain =
        CertificateDer::pem_slice_iter(agent.cert_pem.as_bytes()).collect::<Result<Vec<_>, _>>()?;
    let key = PrivateKeyDer::from_pem_slice(agent.key_pem.as_bytes())?;
    Ok(Arc::new(
        ClientConfig::builder()
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
