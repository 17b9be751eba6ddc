//! The latency of connected agents while other agents connect: small requests on a fixed schedule, without and with
//! many full handshakes at the same time.

use std::{net::SocketAddr, thread};

use anyhow::{Context, Result, anyhow};
use rustls::version;
use thread_priority::{NormalThreadSchedulePolicy, ThreadPriority, ThreadSchedulePolicy};
use tokio::{runtime, task::JoinSet};

use super::{
    cores::Cores,
    load::{AgentTls, Errand, Load},
    peers::Peer,
    pki::Pki,
    requests::Mix,
    resume::{self, Series},
    schedule, table,
};

/// The 99th percentile of the latency of the connected agents' requests during the handshakes, divided by that of the
/// same proxy shortly before, without handshakes.
pub(super) fn measure(peer: &Peer, pki: &Pki, cores: &Cores) -> Result<f64> {
    let proxy = peer.start(cores)?;
    let mix = Mix::small();
    let mut load = Load::connect(proxy.address(), pki, &pki.agents, CONNECTIONS)?;
    load.run(&mix, WARM_UP)?;
    let mut latency = || {
        let answers = load.run_at(RATE, &mix, SECONDS * u64::from(RATE))?;
        answers.ensure_good(peer.name())?;
        anyhow::Ok(table::percentile(&answers.times, 99).as_secs_f64() * 1e6)
    };
    let undisturbed = latency()?;
    let clients = resume::clients(pki, CLIENTS, &Series::full(&version::TLS13))?;
    let address = proxy.address();
    let storm = thread::spawn(move || {
        // A client computes signatures for as long as the proxy does, and must not delay the requests that are
        // measured.
        let idle = ThreadSchedulePolicy::Normal(NormalThreadSchedulePolicy::Idle);
        let this = thread_priority::unix::thread_native_id();
        thread_priority::set_thread_priority_and_policy(this, ThreadPriority::Min, idle)
            .map_err(|error| anyhow!("the system refuses the class SCHED_IDLE: {error}"))?;
        storm(address, clients)
    });
    let disturbed = latency()?;
    let storm = storm.join().map_err(|_| anyhow!("the storm panicked"))?;
    storm.with_context(|| format!("new connections to {}", peer.name()))?;
    eprintln!(
        "{}: p99 {undisturbed:.0} us, {disturbed:.0} us with the handshakes",
        peer.name()
    );
    Ok(disturbed / undisturbed)
}

/// Opens new connections on a fixed schedule, each with a full handshake and one request.
fn storm(address: SocketAddr, clients: Vec<AgentTls>) -> Result<()> {
    let runtime = runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let mut tasks = JoinSet::new();
        let count = SECONDS * u64::from(HANDSHAKE_RATE);
        let turns = schedule::start(HANDSHAKE_RATE, count, clients.len());
        for (client, mut turns) in clients.into_iter().zip(turns) {
            tasks.spawn(async move {
                while turns.next().await.is_some() {
                    client.connect_once(address, Errand::Ask).await?;
                }
                anyhow::Ok(())
            });
        }
        while let Some(done) = tasks.join_next().await {
            done.context("a client's task")??;
        }
        Ok(())
    })
}

/// Number of connected agents.
const CONNECTIONS: usize = 16;
const WARM_UP: u64 = 1_600;
/// Requests per second of the connected agents, in total.
const RATE: u32 = 1_000;
/// Number of clients that connect repeatedly.
const CLIENTS: usize = 8;
/// New connections per second of these clients, in total.
const HANDSHAKE_RATE: u32 = 100;
const SECONDS: u64 = 10;
