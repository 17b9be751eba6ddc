//! `cargo xtask demo`: shows the proxy at work on loopback. Each step is compared with the requests that the servers
//! behind the proxy recorded. Puppet is not needed.

mod acts;
mod estate;
mod keep;
mod servers;
mod story;

use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::{Args, ValueEnum};

use self::{estate::DemoEstate, story::Story};
use crate::workspace;

/// Options of the demonstration.
#[derive(Args)]
pub(crate) struct Options {
    /// Leave everything running and print commands to try
    #[arg(long)]
    keep: bool,
    /// Start only a CA server and two compilers, with certificates and addresses in DIR, for a proxy of your own (docs/tutorial.md)
    #[arg(long, value_name = "DIR", conflicts_with_all = ["keep", "plant"])]
    servers: Option<PathBuf>,
    /// Make one expectation fail, to show that the demonstration notices
    #[arg(long, hide = true, value_name = "ACT")]
    plant: Option<Plant>,
}

/// A failure to inject. It changes what the servers and clients do, not what the demonstration prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Plant {
    /// The CA signs nothing
    Enrolment,
    /// One compiler is stopped before the runs
    Runs,
    /// The forged request bypasses the proxy
    Forgery,
    /// The new CRL revokes no certificate
    Revocation,
    /// Both compilers are killed
    Death,
}

/// Builds the program and runs every act. Fails if an expectation was not seen.
pub(crate) fn run(options: &Options) -> Result<()> {
    if let Some(directory) = &options.servers {
        return servers::until_killed(directory);
    }
    println!("Building proscenium (the first time takes some minutes)");
    let binary = workspace::build_proscenium(false)?;
    workspace::without_panic(|| play(&binary, options))
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
