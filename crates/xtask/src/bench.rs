//! `cargo xtask bench`: what the program costs, measured on the machine at hand.

mod cpu;
mod load;
mod members;
mod peers;
mod w1;

use anyhow::Result;
use clap::Subcommand;

/// What to measure.
#[derive(Subcommand)]
pub(crate) enum Bench {
    /// CPU time of a small request beside nginx's, in interleaved rounds of one run
    W1(w1::Options),
}

/// Measures and prints.
pub(crate) fn run(bench: &Bench) -> Result<()> {
    match bench {
        Bench::W1(options) => w1::run(options),
    }
}
