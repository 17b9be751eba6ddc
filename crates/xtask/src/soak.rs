//! `cargo xtask soak`: a small estate at work for twenty minutes while everything is renewed around it.
//!
//! Agents run on both protocols, and tunnels stand; every ten seconds one of them is revoked and enrols anew, the CRL and the served certificates
//! are replaced on disk, and nobody asks for a reload. It ends well if no request was lost, and if memory, descriptors
//! and threads at the end are where they were when the proxy was warm.

mod agent;
mod answer;
mod chat;
mod course;
mod estate;
mod materials;
mod process;
mod report;
mod standing;
mod tally;

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use clap::{Args, ValueEnum};
use testkit::wait_until;

use self::{
    agent::Agent, chat::Chat, course::Course, estate::Estate, materials::Materials,
    process::Sample, report::Report, tally::Tally,
};
use crate::workspace;

/// How long, how many, how often.
#[derive(Args, Clone)]
pub(crate) struct Options {
    /// How long agents work
    #[arg(long, default_value_t = 20.0)]
    minutes: f64,
    /// Agents; every third of them speaks HTTP/2
    #[arg(long, default_value_t = 24)]
    agents: usize,
    /// Clients that each keep a tunnel open
    #[arg(long, default_value_t = 4)]
    tunnels: usize,
    /// Seconds from one CRL to the next; each revokes one agent, which enrols anew
    #[arg(long, default_value_t = 10.0)]
    crl_every: f64,
    /// Seconds from one served certificate to the next
    #[arg(long, default_value_t = 60.0)]
    certificate_every: f64,
    /// Seconds after which the proxy counts as warm
    #[arg(long, default_value_t = 150.0)]
    warm_up: f64,
    /// Seconds within which what was written is in force, and whoever was revoked refused
    #[arg(long, default_value_t = 5.0)]
    patience: f64,
    /// KiB by which resident memory may have grown since the proxy was warm
    #[arg(long, default_value_t = 4096)]
    growth_kib_max: u64,
    /// Take the debug build, which is there after `cargo test`; its memory means little
    #[arg(long)]
    debug: bool,
    /// Make one expectation false, to see that it is noticed
    #[arg(long, hide = true, value_name = "FAULT")]
    plant: Option<Plant>,
}

/// What is made to go wrong, in the world and not in the telling.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Plant {
    /// A member answers one request as if another agent had asked
    Identity,
    /// Nobody is revoked by the CRLs
    Revocation,
    /// The proxy is told to stop
    Stop,
}

/// Builds the program and lets the estate work; whatever was missed is an error.
pub(crate) fn run(options: &Options) -> Result<()> {
    ensure!(options.agents > 0, "without agents nothing is shown");
    let binary = workspace::build_proscenium(!options.debug)?;
    let estate = Estate::start(&binary, options.plant);
    let (tally, mut report) = (Tally::default(), Report::new(&estate, options));
    // The stand-ins and the raw client panic where a test would fail; their words are on the terminal then.
    let worked = catch_unwind(AssertUnwindSafe(|| {
        work(&estate, options, &tally, &mut report)
    }));
    match worked {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tally.miss(format!("{error:#}")),
        Err(_) => tally.miss("the soak broke off".to_owned()),
    }
    report.end(&tally)
}

/// Has everybody work, and measures what the proxy holds when it is warm and at the end.
fn work(estate: &Estate, options: &Options, tally: &Tally, report: &mut Report<'_>) -> Result<()> {
    let course = Course::default();
    let agents: Vec<_> = (0..options.agents)
        .map(|number| Agent::new(number, estate, options.patience()))
        .collect();
    let chats: Vec<_> = (0..options.tunnels)
        .map(|number| Chat::new(number, estate, options.patience()))
        .collect();
    // In a short run too a tunnel is cut and an agent refused.
    let standings = chats.iter().map(Chat::standing);
    let (first, others) = (standings.clone().take(1), standings.skip(1));
    let of_agents = agents.iter().map(Agent::standing);
    let standings = first.chain(of_agents).chain(others).collect();
    let mut materials = Materials::new(estate, standings, options);
    let course = &course;
    thread::scope(|scope| {
        let _ending = course.ending();
        for chat in chats {
            scope.spawn(move || chat.live(estate, course, tally));
        }
        for agent in agents {
            let working = course.working();
            scope.spawn(move || agent.live(estate, course, tally, working));
        }
        let begun = Instant::now();
        let mut until = |end: Duration, report: &mut Report<'_>| {
            while begun.elapsed() < end {
                ensure!(estate.proxy.is_running(), "the proxy has gone");
                materials.renew_what_is_due(tally);
                estate.forget();
                report.progress(begun.elapsed(), tally);
                thread::sleep(LOOK_INTERVAL);
            }
            materials.wait_for_all_enrolled(tally);
            still(estate, course, options.tunnels)
        };
        let warm = until(options.warm_up(), report)?;
        course.go();
        let end = until(options.length(), report)?;
        report.measured(warm, end);
        Ok(())
    })
}

/// What the proxy holds while tunnels alone stand, and idle connections to members have run out.
fn still(estate: &Estate, course: &Course, tunnels: usize) -> Result<Sample> {
    ensure!(
        course.hold_still(STILL_WITHIN),
        "agents are not done within {STILL_WITHIN:?}"
    );
    let open = || estate.proxy.metrics().sum("proscenium_tunnels_open", &[]);
    ensure!(
        wait_until(STILL_WITHIN, || (open() == tunnels as f64).then_some(())).is_some(),
        "{} tunnels are open, and not {tunnels}",
        open()
    );
    let begun = Instant::now();
    let mut least = Sample::of(&estate.proxy)?;
    while begun.elapsed() < STILL_FOR {
        thread::sleep(LOOK_INTERVAL);
        // Probes come and go: what is there all the time counts.
        least = least.least(&Sample::of(&estate.proxy).context("the proxy has gone")?);
    }
    Ok(least)
}

impl Options {
    fn length(&self) -> Duration {
        Duration::from_secs_f64(self.minutes * 60.0)
    }

    /// A short run is warm sooner.
    fn warm_up(&self) -> Duration {
        Duration::from_secs_f64(self.warm_up).min(self.length() / 3)
    }

    fn patience(&self) -> Duration {
        Duration::from_secs_f64(self.patience)
    }
}

const LOOK_INTERVAL: Duration = Duration::from_millis(50);
/// An agent ends its run first, and every answer has come by then or is lost.
const STILL_WITHIN: Duration = Duration::from_secs(60);
/// Longer than the estate's `keepalive` towards members.
const STILL_FOR: Duration = Duration::from_secs(3);
