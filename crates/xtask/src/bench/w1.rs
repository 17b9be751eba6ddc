//! `cargo xtask bench w1`: CPU time a request, ours and nginx's, in interleaved rounds of one run.
//!
//! Small GETs over 32 kept mutual TLS connections, one CRL-checked certificate each of four. The proxy has the last
//! core to itself, the load and the stand-in members share the others; handshakes are not counted. What is printed is
//! the median over the rounds, and the ratio, which alone is worth comparing between machines.

use std::{fs, path::Path, process::Command};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use testkit::{Ca, Credential};

use super::{cpu, load::Load, members::Members, peers::Peer};
use crate::workspace;

/// Runs the rounds and prints the table.
pub(super) fn run(options: &Options) -> Result<()> {
    if cfg!(debug_assertions) {
        return run_optimised();
    }
    let folder = tempfile::tempdir().context("no folder to work in")?;
    let pki = Pki::make(folder.path())?;
    let members = Members::start()?;
    let peers = peers(folder.path(), &members)?;
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
    print_table(&peers, &costs);
    Ok(())
}

/// The same by a release build of ourselves: load that is made without optimisation cannot keep a proxy busy, and what
/// would be measured is the waking of one for each request.
fn run_optimised() -> Result<()> {
    let mut command = workspace::cargo();
    command.args(["run", "--quiet", "--release", "--package", "xtask", "--"]);
    workspace::run(command.args(std::env::args_os().skip(1)))
}

/// How much of it.
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

/// Microseconds of CPU for each good answer.
fn measure(peer: &Peer, pki: &Pki, cores: &Cores, options: &Options) -> Result<f64> {
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

fn peers(folder: &Path, members: &Members) -> Result<Vec<Peer>> {
    let proscenium = workspace::build_proscenium(true)?;
    let mut peers = vec![Peer::proscenium(folder, members, &proscenium)?];
    if workspace::is_installed("nginx") {
        peers.push(Peer::nginx(folder, members)?);
    } else {
        eprintln!("*** nginx is not installed: there is nothing to compare with ***");
    }
    Ok(peers)
}

fn print_table(peers: &[Peer], costs: &[Vec<f64>]) {
    let ours = median(&costs[0]);
    println!(
        "\n{:<12} {:>12} {:>14}",
        "w1", "us/request", "ours : theirs"
    );
    for (peer, costs) in peers.iter().zip(costs) {
        let cost = median(costs);
        println!("{:<12} {cost:>12.2} {:>14.2}", peer.name(), ours / cost);
    }
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

/// The cores: the last is the proxy's.
struct Cores {
    last: usize,
}

impl Cores {
    fn here() -> Result<Self> {
        let count = std::thread::available_parallelism()
            .context("how many cores?")?
            .get();
        if count < 2 {
            bail!("the benchmark needs two cores: one is the proxy's alone");
        }
        Ok(Self { last: count - 1 })
    }

    /// Moves this process, all threads, to the other cores.
    fn keep_us_off_the_last(&self) -> Result<()> {
        let others = format!("0-{}", self.last - 1);
        let mut taskset = Command::new("taskset");
        taskset.args(["-acp", &others, &std::process::id().to_string()]);
        workspace::run(taskset.stdout(std::process::Stdio::null()))
    }
}

/// One PKI for all: written as files for the proxies, kept as values for the load.
pub(super) struct Pki {
    pub(super) ca: Ca,
    pub(super) agents: Vec<Credential>,
}

impl Pki {
    fn make(folder: &Path) -> Result<Self> {
        let ca = Ca::new();
        let server = ca.server("puppet.example.com");
        let agents = (0..4)
            .map(|n| ca.agent(&format!("agent{n}.example.com")))
            .collect();
        ca.revoke(&ca.agent("revoked.example.com"));
        write_private(&folder.join("ca.pem"), &ca.bundle_pem())?;
        write_private(&folder.join("crl.pem"), &ca.crl_pem())?;
        write_private(&folder.join("puppet.pem"), &server.chain_pem())?;
        write_private(&folder.join("key.pem"), &server.key_pem)?;
        Ok(Self { ca, agents })
    }
}

/// A file for the owner only: a key that others may read is refused.
fn write_private(path: &Path, text: &str) -> Result<()> {
    use std::{io::Write, os::unix::fs::OpenOptionsExt};
    fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .with_context(|| path.display().to_string())
}
