//! `cargo xtask bench w1`: CPU time a request, ours and nginx's, in interleaved rounds of one run.
//!
//! Small GETs over 32 kept mutual TLS connections, one CRL-checked certificate each of four. The proxy has the last
//! core to itself, the load and the stand-in members share the others; handshakes are not counted. What is printed is
//! the median over the rounds, and the ratio, which alone is worth comparing between machines.

use anyhow::{Context, Result, ensure};
use clap::Args;

use super::{cores::Cores, cpu, load::Load, members::Members, peers::Peer, pki::Pki, table};
use crate::workspace;

/// Runs the rounds and prints the table.
pub(super) fn run(options: &Options) -> Result<()> {
    if cfg!(debug_assertions) {
        return workspace::run_optimised();
    }
    let folder = tempfile::tempdir().context("no folder to work in")?;
    let pki = Pki::make(folder.path())?;
    let members = Members::start()?;
    let peers = Peer::all(folder.path(), &members)?;
    let cores = Cores::here()?;
    cores.keep_us_off_the_last()?;

    let mut costs = vec![Vec::new(); peers.len()];
    for round in 1..=options.rounds {
        for (peer, costs) in peers.iter().zip(&mut costs) {
            let cost = measure(peer, &pki, &cores, options)?;
            println!(
                "round {round}: {:<12} {cost:7.2} us of CPU a request",
                peer.name()
            );
            costs.push(cost);
        }
    }
    table::print("w1", "us/request", &peers, &costs);
    Ok(())
}

/// How much of it.
#[derive(Args)]
pub(crate) struct Options {
    /// Rounds, each of which measures every proxy once
    #[arg(long, default_value_t = 5)]
    pub(super) rounds: usize,
    /// Requests a round
    #[arg(long, default_value_t = 100_000)]
    pub(super) requests: u64,
    /// Kept connections
    #[arg(long, default_value_t = 32)]
    pub(super) connections: usize,
}

/// Microseconds of CPU for each good answer.
pub(super) fn measure(peer: &Peer, pki: &Pki, cores: &Cores, options: &Options) -> Result<f64> {
    let proxy = peer.start(cores.last)?;
    let warm_up = (options.requests / 20).max(options.connections as u64);
    let mut load = Load::connect(proxy.address(), pki, options.connections)?;
    let _ = load.run(warm_up)?;
    let before = cpu::run_time(proxy.id());
    let answers = load.run(options.requests)?;
    let spent = cpu::run_time(proxy.id()).saturating_sub(before);
    ensure!(
        answers.bad == 0,
        "{}: {} of {} answers were not 200: it skips its work",
        peer.name(),
        answers.bad,
        options.requests
    );
    Ok(spent.as_secs_f64() * 1e6 / answers.good as f64)
}
