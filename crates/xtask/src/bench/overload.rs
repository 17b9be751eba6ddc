//! Latency on kept connections, and the number of new connections, while the proxy, the load and the members fully use
//! two cores. The time that the proxy spends on handshakes is not available for requests on kept connections.

use std::{
    net::SocketAddr,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, anyhow};
use rustls::version;
use tokio::{runtime, task::JoinSet, time};

use super::{
    comparison::{Cost, Costs},
    cores::Cores,
    load::{AgentTls, Errand, Load},
    peers::Peer,
    pki::Pki,
    requests::Mix,
    resume::{self, Series},
    table,
};

/// The new connections in one measurement, each with a full handshake and one request.
#[derive(Clone, Copy)]
pub(super) struct NewConnections {
    pub(super) served: u64,
    /// New connections that failed, or were not served in time.
    pub(super) failed: u64,
}

/// The 99th percentile of the latency of requests on kept connections, in milliseconds, and the number of new
/// connections.
pub(super) fn measure(peer: &Peer, pki: &Pki, cores: &Cores) -> Result<Cost> {
    let proxy = peer.start(cores)?;
    let mix = Mix::small();
    let mut load = Load::connect(proxy.address(), pki, &pki.agents, CONNECTIONS)?;
    load.run(&mix, WARM_UP)?;
    let clients = resume::clients(pki, CLIENTS, &Series::full(&version::TLS13))?;
    let address = proxy.address();
    let end = Instant::now() + DURATION;
    let connecting = thread::spawn(move || connect_until(end, address, clients));
    let answers = load.run_until(end, &mix)?;
    let connecting = connecting
        .join()
        .map_err(|_| anyhow!("the clients panicked"))?;
    let new_connections = connecting?;
    answers.ensure_good(peer.name())?;
    eprintln!(
        "{}: {} requests on kept connections, {} new connections, {} failed",
        peer.name(),
        answers.good,
        new_connections.served,
        new_connections.failed
    );
    Ok(Cost {
        figure: table::percentile(&answers.times, 99).as_secs_f64() * 1e3,
        new_connections: Some(new_connections),
    })
}

/// Opens the connections of all clients at the same time, those of each client one after the other.
fn connect_until(
    end: Instant,
    address: SocketAddr,
    clients: Vec<AgentTls>,
) -> Result<NewConnections> {
    let runtime = runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let mut tasks = JoinSet::new();
        for client in clients {
            tasks.spawn(connect_one_by_one(end, address, client));
        }
        let mut all = NewConnections {
            served: 0,
            failed: 0,
        };
        while let Some(done) = tasks.join_next().await {
            let done = done.context("a client's task")?;
            all.served += done.served;
            all.failed += done.failed;
        }
        Ok(all)
    })
}

/// Opens the connections of one client. A connection that is still open at the end does not count.
async fn connect_one_by_one(end: Instant, address: SocketAddr, client: AgentTls) -> NewConnections {
    let (mut served, mut failed) = (0, 0);
    loop {
        let start = Instant::now();
        if start >= end {
            return NewConnections { served, failed };
        }
        let deadline = end.min(start + TIMEOUT);
        let connected =
            time::timeout_at(deadline.into(), client.connect_once(address, Errand::Ask));
        match connected.await {
            Ok(Ok(_)) => served += 1,
            Ok(Err(_)) => failed += 1,
            Err(_) if deadline == end => {}
            Err(_) => failed += 1,
        }
    }
}

/// Whether Proscenium served enough new connections compared with the peer, and none failed; with a description of
/// both. `None` in a row without new connections.
pub(super) fn remark(ours: &Costs, best: &Costs) -> Option<(bool, String)> {
    let served = |costs: &Costs| {
        let served = costs.rounds.iter().map(|cost| cost.new_connections);
        let served: Option<Vec<_>> = served.map(|new| Some(new?.served as f64)).collect();
        Some(table::median(&served?))
    };
    let share = served(ours)? / served(best)?;
    let failed: u64 = ours
        .rounds
        .iter()
        .filter_map(|cost| Some(cost.new_connections?.failed))
        .sum();
    let is_enough = share >= NEW_CONNECTIONS_MIN && failed == 0;
    let failed = match failed {
        0 => "none".to_owned(),
        failed => failed.to_string(),
    };
    let words = format!(
        "new connections {share:.2} of {}'s, {failed} failed",
        best.name
    );
    Some((is_enough, words))
}

/// Number of kept connections.
const CONNECTIONS: usize = 256;
const WARM_UP: u64 = 2_560;
/// Number of clients that connect again and again.
const CLIENTS: usize = 32;
const DURATION: Duration = Duration::from_secs(8);
/// A new connection fails if it is not served within half of the run.
const TIMEOUT: Duration = Duration::from_secs(4);
/// New connections that Proscenium must serve for each one of the best peer.
const NEW_CONNECTIONS_MIN: f64 = 0.7;
