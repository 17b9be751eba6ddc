//! `cargo xtask demo`: the proxy at work, each step told by what the far end saw.

use anyhow::{Result, bail};
use clap::Args;

/// How the demonstration is to run.
#[derive(Args)]
pub(crate) struct Options {
    /// Leave everything running, with lines to try
    #[arg(long)]
    keep: bool,
}

/// Runs the demonstration.
pub(crate) fn run(options: &Options) -> Result<()> {
    let _ = options.keep;
    bail!("the demonstration is not here yet")
}
