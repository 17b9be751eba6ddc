//! CPU time of new connections: with a full handshake and one request, or resumed.
//!
//! Each client makes one full handshake, which is not counted. All its further connections are of the kind that is
//! measured. The run fails if a session is not resumed. The key exchange is X25519, as with the OpenSSL of agents. A
//! hybrid group that only one proxy supports would make the results incomparable.

use std::net::SocketAddr;

use anyhow::{Context, Result, ensure};
use rustls::SupportedProtocolVersion;
use tokio::{runtime, task::JoinSet};

use super::{
    cores::Cores,
    cpu,
    load::{self, AgentTls, Errand},
    peers::Peer,
    pki::Pki,
};

/// Microseconds of CPU per connection of this kind.
pub(super) fn measure(peer: &Peer, pki: &Pki, series: &Series, cores: &Cores) -> Result<f64> {
    let proxy = peer.start(cores)?;
    let runtime = runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let clients = clients(pki, CLIENTS, series)?;
    let each = series.connections / CLIENTS as u64;
    let connect = |each, errand| {
        let all = connect_all(proxy.address(), &clients, each, errand);
        runtime.block_on(all)
    };
    // Makes the full handshakes, and enough requests to open the connections to members.
    connect(1, Errand::Ask)?;
    connect(4, Errand::Ask)?;
    let before = cpu::run_time(proxy.id());
    let resumed = connect(each, series.errand)?;
    let spent = cpu::run_time(proxy.id()).saturating_sub(before);
    let connections = each * CLIENTS as u64;
    let expected = if series.resumed { connections } else { 0 };
    ensure!(
        resumed == expected,
        "{}: {resumed} of {connections} connections were resumed, not {expected}",
        peer.name()
    );
    Ok(spent.as_secs_f64() * 1e6 / connections as f64)
}

/// The clients. They use the agents' certificates in turn.
pub(super) fn clients(pki: &Pki, count: usize, series: &Series) -> Result<Vec<AgentTls>> {
    let agents = pki.agents.iter().cycle().take(count);
    agents
        .map(|agent| {
            let client = load::client_config(pki, agent, &[series.version])?;
            Ok(if series.resumed {
                client
            } else {
                client.without_resumption()
            })
        })
        .collect()
}

/// Opens the connections of each client one after the other, with all clients at the same time. Returns how many were
/// resumed.
async fn connect_all(
    address: SocketAddr,
    clients: &[AgentTls],
    each: u64,
    errand: Errand,
) -> Result<u64> {
    let mut tasks = JoinSet::new();
    for client in clients {
        let client = client.clone();
        tasks.spawn(async move {
            let mut resumed = 0;
            for _ in 0..each {
                resumed += u64::from(client.connect_once(address, errand).await?);
            }
            anyhow::Ok(resumed)
        });
    }
    let mut resumed = 0;
    while let Some(done) = tasks.join_next().await {
        resumed += done.context("a client's task")??;
    }
    Ok(resumed)
}

/// A kind of connection, and how many are measured.
pub(super) struct Series {
    version: &'static SupportedProtocolVersion,
    errand: Errand,
    resumed: bool,
    connections: u64,
}

impl Series {
    /// Connections that resume a session and send nothing.
    pub(super) const fn resumed(version: &'static SupportedProtocolVersion) -> Self {
        Self {
            version,
            errand: Errand::Connect,
            resumed: true,
            connections: 3_000,
        }
    }

    /// Full handshakes of clients that do not resume sessions.
    pub(super) const fn full(version: &'static SupportedProtocolVersion) -> Self {
        Self {
            version,
            errand: Errand::Ask,
            resumed: false,
            connections: 800,
        }
    }
}

/// Clients that connect at the same time.
const CLIENTS: usize = 8;
