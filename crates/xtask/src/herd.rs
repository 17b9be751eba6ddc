//! `cargo xtask herd`: the built program in front of stand-in compilers that have JRubies, a queue and warm-up.
//!
//! Four compilers are drained and restarted in turn while 200 agents run in a loop; then 900 agents run at once. All durations
//! are about 1/20 of those in a real installation. Agents fail their run on any 503, as agents of Puppet 7.23 do.

mod agent;
mod compiler;

use std::{
    path::Path,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Result, bail, ensure};
use clap::{Args, ValueEnum};
use testkit::{Ca, Client, Proxy, wait_until};

use self::{agent::Tally, compiler::Compiler};
use crate::workspace;

/// Numbers of agents.
#[derive(Args)]
pub(crate) struct Options {
    /// Agents that run in a loop during the rolling restart
    #[arg(long, default_value_t = 200)]
    agents: usize,
    /// Agents that run at once
    #[arg(long, default_value_t = 900)]
    herd: usize,
    /// Use the debug build of `cargo test`
    #[arg(long)]
    debug: bool,
    /// Inject an error, to test that it is detected
    #[arg(long, hide = true, value_name = "FAULT")]
    plant: Option<Plant>,
}

/// The injected error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Plant {
    /// The proxy's queue has no room for the herd
    SmallQueue,
}

/// Builds the program and runs both parts. A failed run is an error.
pub(crate) fn run(options: &Options) -> Result<()> {
    let binary = workspace::build_proscenium(!options.debug)?;
    workspace::without_panic(|| play(&binary, options))
}

fn play(binary: &Path, options: &Options) -> Result<()> {
    let estate = HerdEstate::start(binary, options);
    let restarted = estate.rolling_restart(options)?;
    let herd = estate.herd(options.herd);
    let failed = restarted.failed() + herd.failed();
    for error in restarted
        .errors
        .iter()
        .chain(&herd.errors)
        .take(ERRORS_SHOWN)
    {
        println!("  failed: {error}");
    }
    if failed > 0 {
        bail!("{failed} runs failed");
    }
    println!("No run failed.");
    Ok(())
}

struct HerdEstate {
    proxy: Proxy,
    ca: Ca,
    compilers: Vec<Compiler>,
}

impl HerdEstate {
    fn start(binary: &Path, options: &Options) -> Self {
        let ca = Ca::named("herd");
        let compilers: Vec<_> = (1..=COMPILERS)
            .map(|number| Compiler::start(&format!("c{number}"), JRUBIES))
            .collect();
        let member = |compiler: &Compiler| format!("{:?}", compiler.address());
        let queue = match options.plant {
            Some(Plant::SmallQueue) => "queue_max = 20\n",
            None => "",
        };
        let members: Vec<_> = compilers.iter().map(member).collect();
        let proxy = Proxy::new(&ca, binary)
            .with(&format!(
                "[pools.ca]\nscheme = \"http\"\nmembers = [{first:?}]\n\
                 [pools.compilers]\nscheme = \"http\"\nmembers = [{members}]\n{queue}\
                 [pools.compilers.check]\ninterval = \"1s\"\n",
                first = compilers[0].address(),
                members = members.join(", "),
            ))
            .start();
        proxy.wait_for_members(&["compilers"]);
        // The JRubies are the only limit of a compiler.
        proxy.wait_for_status("the JRubies of all compilers", |status| {
            let pools = status["pools"].as_array().expect("pools").iter();
            let mut pools = pools.filter(|pool| pool["name"] == "compilers");
            let members = pools.next().expect("a pool")["members"].as_array();
            let mut members = members.expect("members").iter();
            members.all(|member| member["jrubies"]["count"] == JRUBIES)
        });
        Self {
            proxy,
            ca,
            compilers,
        }
    }

    /// Restarts each compiler while agents run, as in the runbook.
    fn rolling_restart(&self, options: &Options) -> Result<Tally> {
        println!(
            "Rolling restart of {COMPILERS} compilers with {JRUBIES} JRubies each, under {} agents",
            options.agents
        );
        let clients = self.clients(options.agents);
        let apart = agent::PAUSE / u32::try_from(clients.len().max(1))?;
        let stop = AtomicBool::new(false);
        let tally = Mutex::new(Tally::default());
        thread::scope(|scope| {
            let _stop = StopAtEnd(&stop);
            for (number, client) in clients.iter().enumerate() {
                let (stop, tally) = (&stop, &tally);
                let phase = apart.mul_f64(number as f64);
                scope.spawn(move || {
                    // The runs are spread over the interval, as those of real agents are.
                    thread::sleep(phase);
                    while !stop.load(Ordering::Relaxed) {
                        let ended = agent::run(client, number);
                        add(tally, ended);
                        thread::sleep(agent::PAUSE);
                    }
                });
            }
            for compiler in &self.compilers {
                self.restart(compiler)?;
            }
            Ok::<_, anyhow::Error>(())
        })?;
        let tally = tally.into_inner().unwrap_or_else(PoisonError::into_inner);
        self.report(&tally);
        Ok(tally)
    }

    fn restart(&self, compiler: &Compiler) -> Result<()> {
        let began = Instant::now();
        let address = compiler.address();
        let administer = |words: &[&str]| {
            let outcome = self.proxy.command(words, &[]);
            ensure!(outcome.code == Some(0), "{words:?}: {}", outcome.stderr);
            Ok(())
        };
        administer(&[
            "drain",
            "compilers",
            &address,
            "--wait",
            "--why",
            "rolling restart",
        ])?;
        let drained = began.elapsed();
        compiler.restart();
        administer(&["ready", "compilers", &address])?;
        self.proxy.wait_for_health("compilers", &address, "up");
        let before = compiler.seen().served;
        let works = || (compiler.seen().served >= before + WORKS_AGAIN).then_some(());
        ensure!(
            wait_until(READ_TIMEOUT, works).is_some(),
            "{} gets no requests after its restart",
            compiler.name()
        );
        println!(
            "  {}: drained in {:.1} s, restarted and at work after {:.1} s",
            compiler.name(),
            drained.as_secs_f64(),
            began.elapsed().as_secs_f64()
        );
        Ok(())
    }

    /// Makes this number of runs that begin together.
    fn herd(&self, agents: usize) -> Tally {
        println!("Herd of {agents} agents on {COMPILERS} compilers");
        let clients = self.clients(agents);
        let tally = Mutex::new(Tally::default());
        let start = std::sync::Barrier::new(agents);
        thread::scope(|scope| {
            for (number, client) in clients.iter().enumerate() {
                let (start, tally) = (&start, &tally);
                scope.spawn(move || {
                    start.wait();
                    add(tally, agent::run(client, number));
                });
            }
        });
        let tally = tally.into_inner().unwrap_or_else(PoisonError::into_inner);
        self.report(&tally);
        tally
    }

    fn clients(&self, agents: usize) -> Vec<Client> {
        let client = |number| {
            let credential = self.ca.agent(&format!("agent{number:03}"));
            self.proxy.client(Some(&credential)).timeout(READ_TIMEOUT)
        };
        (0..agents).map(client).collect()
    }

    fn report(&self, tally: &Tally) {
        println!(
            "  {} runs, {} failed; time to catalog: median {:.2} s, 99th percentile {:.2} s",
            tally.runs(),
            tally.failed(),
            tally.percentile(0.5).as_secs_f64(),
            tally.percentile(0.99).as_secs_f64(),
        );
        for compiler in &self.compilers {
            let seen = compiler.seen();
            println!(
                "  {}: {} requests, at most {} in its queue, {} refused",
                compiler.name(),
                seen.served,
                seen.longest_queue,
                seen.refused
            );
            compiler.forget();
        }
    }
}

struct StopAtEnd<'a>(&'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn add(tally: &Mutex<Tally>, ended: Result<Duration, String>) {
    tally
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .add(ended);
}

const COMPILERS: usize = 4;
const JRUBIES: usize = 4;
/// An agent waits 10 minutes, which no run here needs.
const READ_TIMEOUT: Duration = Duration::from_secs(120);
/// Number of requests that a restarted compiler must answer before the next one is drained.
const WORKS_AGAIN: usize = 12;
const ERRORS_SHOWN: usize = 10;
