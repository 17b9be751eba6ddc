//! `cargo xtask fleet`: the time until an operator's command on one of 20 proxies applies to all of them, with a
//! healthy etcd and with faults of etcd, and the cost of a fleet for a proxy.
//!
//! The proxies and the three members of etcd are processes on this machine, and use mutual TLS. The time of a command
//! begins when its process starts. It ends when the last proxy has written the line of its audit log, which a proxy
//! does after it has applied the change and written it to the state directory. The logs are polled every 0.2 ms.

mod cost;
mod delays;
mod estate;

use anyhow::Result;
use clap::Args;

use self::{delays::Delays, estate::FleetEstate};
use crate::workspace;

/// The size of the fleet, and how often commands run.
#[derive(Args)]
pub(crate) struct Options {
    /// Proxies
    #[arg(long, default_value_t = 20)]
    proxies: usize,
    /// Commands of each kind
    #[arg(long, default_value_t = 100)]
    rounds: usize,
    /// How often a member of etcd is frozen, and how often the leader is killed
    #[arg(long, default_value_t = 10)]
    faults: usize,
    /// Seconds for which the CPU time of idle proxies is measured
    #[arg(long, default_value_t = 60)]
    idle_seconds: u64,
    /// Use the debug build of `cargo test`
    #[arg(long)]
    debug: bool,
}

/// Measures and prints. Fails if a proxy does not apply a command, or if a goal is missed.
pub(crate) fn run(options: &Options) -> Result<()> {
    let binary = workspace::build_proscenium(!options.debug)?;
    workspace::without_panic(|| {
        let estate = FleetEstate::start(&binary, options.proxies)?;
        println!(
            "{} proxies, {}, load average {}",
            options.proxies,
            estate.store_version(),
            estate::load_average()
        );
        Delays::print_head();
        let mut missed = Vec::new();
        for delays in [
            delays::healthy(&estate, options.rounds)?,
            delays::frozen(&estate, options.faults, options.rounds / 4)?,
            delays::leader_killed(&estate, options.faults)?,
            delays::restarted(&estate)?,
        ]
        .into_iter()
        .flatten()
        {
            missed.extend(delays.missed_goal());
        }
        estate.wait_until_equal()?;
        println!("All proxies have the same records.");
        cost::with_fleet(&estate, options)?;
        drop(estate);
        cost::without_fleet(&binary, options)?;
        anyhow::ensure!(missed.is_empty(), "goals missed: {}", missed.join(", "));
        Ok(())
    })
}
