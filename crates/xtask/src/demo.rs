//! `cargo xtask demo`: the proxy at work on loopback, each step told by what the far end saw. No Puppet is needed,
//! except with `--real`.

mod acts;
mod estate;
mod keep;
mod real;
mod story;

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
};

use anyhow::{Result, anyhow};
use clap::{Args, ValueEnum};

use self::{estate::DemoEstate, story::Story};
use crate::workspace;

/// How the demonstration is to run.
#[derive(Args)]
pub(crate) struct Options {
    /// Leave everything running, with lines to try
    #[arg(long)]
    keep: bool,
    /// With Debian's Puppet Server and agent in place of stand-ins; wants root or sudo
    #[arg(long)]
    real: bool,
    /// Make one expectation false, to see that it is noticed
    #[arg(long, hide = true, value_name = "ACT")]
    plant: Option<Plant>,
}

/// What is made to go wrong, in the world and not in the telling.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Plant {
    /// The CA signs nothing
    Enrolment,
    /// One compiler is stopped before the runs
    Runs,
    /// The forged request goes past the proxy
    Forgery,
    /// Nobody is revoked by the new CRL
    Revocation,
    /// Both compilers die
    Death,
}

/// Builds the program and plays every act; an expectation that was not seen is an error.
pub(crate) fn run(options: &Options) -> Result<()> {
    if options.real {
        return real::run(options);
    }
    println!("Building proscenium (the first time takes some minutes)");
    let binary = workspace::build_proscenium(false)?;
    // The stand-ins and the raw client panic where a test would fail; their words are on the terminal then.
    catch_unwind(AssertUnwindSafe(|| play(&binary, options)))
        .unwrap_or_else(|_| Err(anyhow!("the demonstration broke off")))
}

fn play(binary: &Path, options: &Options) -> Result<()> {
    let mut story = Story::for_terminal();
    let estate = DemoEstate::start(binary);
    acts::introduction(&estate, &mut story);
    acts::all(&estate, &mut story, options.plant)?;
    story.end()?;
    if options.keep {
        keep::until_interrupted(&estate)?;
    }
    Ok(())
}
