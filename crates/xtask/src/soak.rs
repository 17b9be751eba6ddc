//! `cargo xtask soak`: a small estate at work for twenty minutes while everything changes and fails around it.
//!
//! Agents run over both protocols and upload reports of all sizes, some over slow connections, and tunnels stay open.
//! Every ten seconds the soak revokes one client, which enrols again. It replaces the CRL and the served certificate on
//! disk, reloads a changed configuration, and restarts compilers. The compilers spoil some of their answers: they hang
//! up, close kept-alive connections, reset within an answer, send malformed heads and chunks, answer 503, or are slow
//! (`faults`).
//!
//! The soak passes if all of this holds:
//! - A complete answer is, byte for byte, the right one to that request of that agent, and a
//!   truncated answer is recognisable as such (`outcome`).
//! - An injected fault explains every failure of a request (`ledger`, `explanation`). Any other failure is a lost
//!   request.
//! - Requests, access records, attempts and retries add up, and gauges are 0 at rest (`counters`).
//! - Memory, descriptors and threads at the end have not grown since the proxy was warm, within the limits (`process`).
//!
//! `PROSCENIUM_SEED` repeats the choices of a run: which requests are spoilt, which clients are slow, what is uploaded.
//! When each of them happens depends on the machine.

mod agent;
mod answer;
mod chat;
mod counters;
mod course;
mod enrolled_client;
mod estate;
mod explanation;
mod faults;
mod ledger;
mod materials;
mod outcome;
mod process;
mod reloads;
mod report;
mod request_plan;
mod restarts;
mod tally;

use std::{
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use clap::{ArgAction, Args, ValueEnum};
use testkit::{Seed, wait_until};

use self::{
    agent::Agent, chat::Chat, course::Course, estate::SoakEstate, materials::Materials,
    process::Sample, reloads::Reloads, report::Report, restarts::Restarts, tally::Tally,
};
use crate::workspace;

/// Options of the soak.
#[derive(Args, Clone)]
pub(crate) struct Options {
    /// How long agents work
    #[arg(long, default_value_t = 20.0)]
    minutes: f64,
    /// Agents; every third of them speaks HTTP/2
    #[arg(long, default_value_t = 24)]
    agents: usize,
    /// Clients that each hold a tunnel open
    #[arg(long, default_value_t = 4)]
    tunnels: usize,
    /// Seconds from one CRL to the next; each revokes one agent, which enrols again
    #[arg(long, default_value_t = 10.0)]
    crl_every: f64,
    /// Seconds from one served certificate to the next
    #[arg(long, default_value_t = 60.0)]
    certificate_every: f64,
    /// Whether compilers spoil answers and restart, and the proxy reloads changed configurations
    #[arg(long, default_value_t = true, action = ArgAction::Set, value_name = "BOOL")]
    faults: bool,
    /// Requests of a compiler from one spoilt answer to the next, on average. In turn the compiler hangs up, closes a
    /// kept connection, resets within the answer, sends a malformed head or chunk, answers 503 with Retry-After, or is
    /// slow
    #[arg(long, default_value_t = 100, value_name = "REQUESTS")]
    fault_every: usize,
    /// Seconds from one restart of a compiler to the next, on average; every other one resets its connections
    #[arg(long, default_value_t = 20.0, value_name = "SECONDS")]
    restart_every: f64,
    /// Seconds from one reload (SIGHUP) to the next; the buffer limit for request bodies alternates
    #[arg(long, default_value_t = 15.0, value_name = "SECONDS")]
    reload_every: f64,
    /// One of so many connections of agents is slow: it moves few bytes at a time, above the proxy's minimum rates; 0:
    /// none
    #[arg(long, default_value_t = 8, value_name = "CONNECTIONS")]
    slow_one_in: usize,
    /// Seconds after which the proxy counts as warm
    #[arg(long, default_value_t = 150.0)]
    warm_up: f64,
    /// Seconds within which a new file must be active and a revoked client refused
    #[arg(long, default_value_t = 5.0)]
    patience: f64,
    /// KiB by which resident memory may have grown since the proxy was warm
    #[arg(long, default_value_t = 4096)]
    growth_kib_max: u64,
    /// Use the debug build, which exists after `cargo test`; its memory use means little
    #[arg(long)]
    debug: bool,
    /// Make one expectation fail, to show that the soak notices
    #[arg(long, hide = true, value_name = "FAULT")]
    plant: Option<Plant>,
}

/// A failure to inject. It changes what the servers and the proxy do, not what the soak reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Plant {
    /// A member answers one request as if another agent had sent it
    Identity,
    /// A member breaks off in the head of one answer, which is not in the ledger of faults
    Failure,
    /// The CRLs revoke no client
    Revocation,
    /// The soak stops the proxy
    Stop,
}

/// Builds the program and runs the estate. Fails if anything was missed.
pub(crate) fn run(options: &Options) -> Result<()> {
    ensure!(options.agents > 0, "at least one agent is needed");
    let binary = workspace::build_proscenium(!options.debug)?;
    let seed = Seed::from_env_or_random().value();
    println!("PROSCENIUM_SEED={seed} repeats the choices of this run");
    let fault_every = if options.faults {
        options.fault_every
    } else {
        0
    };
    let estate = SoakEstate::start(&binary, options.plant, seed, fault_every);
    let (tally, mut report) = (Tally::default(), Report::new(&estate, options));
    if let Err(error) = workspace::without_panic(|| work(&estate, options, &tally, &mut report)) {
        tally.miss(format!("{error:#}"));
    }
    report.end(&tally)
}

/// Runs all agents and tunnels, and measures the proxy's resources when it is warm and at the end.
fn work(
    estate: &SoakEstate,
    options: &Options,
    tally: &Tally,
    report: &mut Report<'_>,
) -> Result<()> {
    let course = Course::default();
    let agents: Vec<_> = (0..options.agents)
        .map(|number| Agent::new(number, estate, options.patience(), options.slow_one_in))
        .collect();
    let chats: Vec<_> = (0..options.tunnels)
        .map(|number| Chat::new(number, estate, options.patience()))
        .collect();
    // A tunnel comes first and an agent second, so that even a short run revokes both.
    let clients = chats.iter().map(Chat::enrolled_client);
    let (first, remaining) = (clients.clone().take(1), clients.skip(1));
    let of_agents = agents.iter().map(Agent::enrolled_client);
    let clients = first.chain(of_agents).chain(remaining).collect();
    let mut materials = Materials::new(estate, clients, options);
    let mut reloads = Reloads::new(estate, Duration::from_secs_f64(options.reload_every));
    let course = &course;
    thread::scope(|scope| {
        let _end_on_drop = course.end_on_drop();
        for chat in chats {
            scope.spawn(move || chat.live(estate, course, tally));
        }
        for agent in agents {
            let working = course.working();
            scope.spawn(move || agent.live(estate, course, tally, working));
        }
        if options.faults {
            let interval = Duration::from_secs_f64(options.restart_every);
            let (restarts, working) = (Restarts::new(interval, estate.seed), course.working());
            scope.spawn(move || restarts.live(estate, course, tally, working));
        }
        let begun = Instant::now();
        let mut work_for = |time: Duration, report: &mut Report<'_>| {
            // The time at rest does not count. Otherwise little of a short run would remain on a machine under load.
            let phase = Instant::now();
            while phase.elapsed() < time {
                ensure!(estate.proxy.is_running(), "the proxy has gone");
                materials.renew_what_is_due(tally);
                if options.faults {
                    reloads.reload_when_due(tally);
                }
                estate.forget();
                report.progress(begun.elapsed(), tally);
                thread::sleep(LOOK_INTERVAL);
            }
            materials.wait_for_all_enrolled(tally);
            still(estate, course, options.tunnels)
        };
        let warm = work_for(options.warm_up(), report)?;
        course.go();
        let end = work_for(options.length() - options.warm_up(), report)?;
        report.measured(warm, end);
        Ok(())
    })
}

/// Measures the proxy while only tunnels are open and idle connections to members have expired.
fn still(estate: &SoakEstate, course: &Course, tunnels: usize) -> Result<Sample> {
    ensure!(
        course.hold_still(STILL_WITHIN),
        "agents did not finish within {STILL_WITHIN:?}"
    );
    let open = || estate.proxy.metrics().sum("proscenium_tunnels_open", &[]);
    ensure!(
        wait_until(STILL_WITHIN, || (open() == tunnels as f64).then_some(())).is_some(),
        "{} tunnels are open instead of {tunnels}",
        open()
    );
    let begun = Instant::now();
    let mut least = Sample::of(&estate.proxy)?;
    while begun.elapsed() < STILL_FOR {
        thread::sleep(LOOK_INTERVAL);
        // Probes come and go, so the minimum over the time counts.
        least = least.least(&Sample::of(&estate.proxy).context("the proxy has gone")?);
    }
    Ok(least)
}

impl Options {
    fn length(&self) -> Duration {
        Duration::from_secs_f64(self.minutes * 60.0)
    }

    /// The warm-up time; shorter in a short run.
    fn warm_up(&self) -> Duration {
        Duration::from_secs_f64(self.warm_up).min(self.length() / 3)
    }

    fn patience(&self) -> Duration {
        Duration::from_secs_f64(self.patience)
    }
}

const LOOK_INTERVAL: Duration = Duration::from_millis(50);
/// Enough for an agent to finish its run. An answer that has not arrived by then is lost.
const STILL_WITHIN: Duration = Duration::from_secs(60);
/// Longer than the estate's `keepalive` towards members.
const STILL_FOR: Duration = Duration::from_secs(3);
