//! Automation: tests, the lab, the benchmark, the soak, the reference page, the demonstration. `cargo xtask help` lists them.
#![allow(
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program for the terminal, which starts programs and writes files"
)]

mod bench;
mod demo;
mod dist;
mod herd;
mod lab;
mod matrix;
mod pgo;
mod reference;
mod simulate;
mod soak;
mod test;
mod tunnel;
mod workspace;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let outcome = match Command::parse() {
        Command::Test(options) => test::run(&options),
        Command::Tidy => test::tidy(),
        Command::Lab { arguments } => lab::run(&arguments),
        Command::Bench(bench) => bench::run(&bench),
        Command::Reference { check } => reference::run(check),
        Command::Matrix(options) => matrix::run(&options),
        Command::Demo(options) => demo::run(&options),
        Command::Pgo(options) => pgo::run(&options),
        Command::Soak(options) => soak::run(&options),
        Command::Herd(options) => herd::run(&options),
        Command::Simulate(options) => simulate::run(&options),
        Command::Tunnel(options) => tunnel::run(&options),
        Command::Dist(options) => dist::run(&options),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// What can be asked of this project.
#[derive(Parser)]
#[command(name = "cargo xtask", about)]
enum Command {
    /// Every test: the workspace's, then the real lab where Puppet Server is installed
    Test(test::Options),
    /// The layer check and the other rules of the tree
    Tidy,
    /// The lab with real Puppet servers and agents: up, test, agent, ca, curl, down; all of it without a word
    #[command(trailing_var_arg = true, disable_help_flag = true)]
    Lab {
        /// Arguments of `tests/lab/lab`
        #[arg(allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// What the program costs on this machine
    #[command(subcommand)]
    Bench(bench::Bench),
    /// Write docs/configuration.md, manual pages and completions from the declarations in the code
    Reference {
        /// Write nothing; fail where a file is not fresh
        #[arg(long)]
        check: bool,
    },
    /// What becomes of identities, row by row, here and at other front ends; exits 1 when a row of ours is wrong
    Matrix(matrix::Options),
    /// The proxy at work before your eyes; no Puppet needed
    Demo(demo::Options),
    /// The program, built by a profile of its own work: some fifth fewer instructions for each request; in target/pgo
    Pgo(pgo::Options),
    /// A small estate at work while members fail and restart, and CRLs, certificates and the configuration change; exits 1
    /// when a request is lost, counters do not add up or memory grows
    Soak(soak::Options),
    /// A rolling restart under 200 agents and a herd of 900, with stand-in compilers; exits 1 when a run fails
    Herd(herd::Options),
    /// A fleet of 100,000 agents in virtual time, balanced by this code and by others; exits 1 when a goal is missed
    Simulate(simulate::Options),
    /// Passed-through connections that are silent for minutes; exits 1 when one is closed
    Tunnel(tunnel::Options),
    /// Packages for Debian and rpm, with checksums and an SBOM, in target/dist
    Dist(dist::Options),
}
