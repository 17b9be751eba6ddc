//! `cargo xtask bench resume`: CPU time of a resumed connection, alone and with one request, for Proscenium and nginx.
//! The rounds of one run are interleaved, over TLS 1.3 and 1.2.
//!
//! The certificates are those of the Puppet CA that made `ssl-fixtures/`, with RSA 4096 keys. Each client makes one
//! full handshake, which is not counted. Each of its further connections resumes the previous session, and then closes
//! the connection or sends one small request first. The run fails if a session is not resumed. The key exchange is
//! X25519, as with the OpenSSL of agents. A hybrid group that only one proxy supports would make the results
//! incomparable.

use std::net::SocketAddr;

use anyhow::{Context, Result, ensure};
use clap::Args;
use rustls::{SupportedProtocolVersion, version};
use tokio::{runtime, task::JoinSet};

use super::{
    cores::Cores,
    cpu,
    load::{self, AgentTls, Errand},
    members::Members,
    peers::Peer,
    pki::Pki,
    table,
};
use crate::workspace;

/// The size of the run.
#[derive(Args)]
pub(crate) struct Options {
    /// Rounds, each of which measures every proxy once with each version of TLS
    #[arg(long, default_value_t = 5)]
    pub(super) rounds: usize,
    /// Connections a round
    #[arg(long, default_value_t = 4_000)]
    pub(super) connections: u64,
    /// Clients at once
    #[arg(long, default_value_t = 8)]
    pub(super) clients: usize,
}

/// Runs the rounds and prints a table for each version.
pub(super) fn run(options: &Options) -> Result<()> {
    if cfg!(debug_assertions) {
        return workspace::run_optimised();
    }
    let folder = tempfile::tempdir().context("no folder to work in")?;
    let pki = Pki::of_puppet(folder.path(), "server", "puppet")?;
    let members = Members::start()?;
    let peers = Peer::all(folder.path(), &members)?;
    let cores = Cores::here()?;

    let mut costs = SERIES.map(|_| vec![Vec::new(); peers.len()]);
    for round in 1..=options.rounds {
        for (series, costs) in SERIES.iter().zip(&mut costs) {
            for (peer, costs) in peers.iter().zip(costs) {
                let cost = measure(peer, &pki, series, &cores, options)?;
                println!(
                    "round {round}: {:<22} {:<12} {cost:7.2} us of CPU a resumed connection",
                    series.name,
                    peer.name()
                );
                costs.push(cost);
            }
        }
    }
    for (series, costs) in SERIES.iter().zip(&costs) {
        let what = format!("resume {}", series.name);
        table::print(&what, "us/connection", &peers, costs);
    }
    Ok(())
}

/// Microseconds of CPU per connection of this kind.
pub(super) fn measure(
    peer: &Peer,
    pki: &Pki,
    series: &Series,
    cores: &Cores,
    options: &Options,
) -> Result<f64> {
    let proxy = peer.start(cores)?;
    let runtime = runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let clients = clients(pki, options.clients, series)?;
    let each = options.connections / options.clients as u64;
    let connect = |each, errand| {
        let all = connect_all(proxy.address(), &clients, each, errand);
        runtime.block_on(all)
    };
    // Make the full handshakes, and enough requests to open the connections to members.
    connect(1, Errand::Ask)?;
    connect(4, Errand::Ask)?;
    let before = cpu::run_time(proxy.id());
    let resumed = connect(each, series.errand)?;
    let spent = cpu::run_time(proxy.id()).saturating_sub(before);
    let connections = each * options.clients as u64;
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
            Ok(match series.resumed {
                true => client,
                false => client.without_resumption(),
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

/// The settings of one table.
pub(super) struct Series {
    name: &'static str,
    version: &'static SupportedProtocolVersion,
    errand: Errand,
    resumed: bool,
}

impl Series {
    pub(super) const fn resumed(
        name: &'static str,
        version: &'static SupportedProtocolVersion,
        errand: Errand,
    ) -> Self {
        Self {
            name,
            version,
            errand,
            resumed: true,
        }
    }

    /// Full handshakes of clients that do not resume sessions.
    pub(super) const fn full(version: &'static SupportedProtocolVersion) -> Self {
        Self {
            name: "full",
            version,
            errand: Errand::Ask,
            resumed: false,
        }
    }

    pub(super) fn is_full(&self) -> bool {
        !self.resumed
    }
}

const SERIES: [Series; 4] = [
    Series::resumed("TLS 1.3", &version::TLS13, Errand::Connect),
    Series::resumed("TLS 1.3, one request", &version::TLS13, Errand::Ask),
    Series::resumed("TLS 1.2", &version::TLS12, Errand::Connect),
    Series::resumed("TLS 1.2, one request", &version::TLS12, Errand::Ask),
];
