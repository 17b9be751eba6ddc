//! `cargo xtask bench w1`: CPU time per request of Proscenium and nginx, in interleaved rounds of one run.
//!
//! The load is small GETs over 32 persistent mutual TLS connections with the certificates of four agents, checked
//! against a CRL. Only the proxy uses the last core; the load and the stand-in members share the others. Handshakes are
//! not counted. The output is the median over the rounds, and the ratio. Compare only the ratio between machines.

use anyhow::{Context, Result};
use clap::Args;

use super::{
    cores::Cores,
    kept::{self, Work},
    members::Members,
    peers::Peer,
    pki::Pki,
    table,
};
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
    let work = Work {
        requests: options.requests,
        connections: options.connections,
        ..kept::W1
    };
    let mut costs = vec![Vec::new(); peers.len()];
    for round in 1..=options.rounds {
        for (peer, costs) in peers.iter().zip(&mut costs) {
            let cost = work.measure(peer, &pki, &cores)?;
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

/// The size of the run.
#[derive(Args)]
pub(crate) struct Options {
    /// Rounds, each of which measures every proxy once
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Requests a round
    #[arg(long, default_value_t = 100_000)]
    requests: u64,
    /// Kept connections
    #[arg(long, default_value_t = 32)]
    connections: usize,
}
