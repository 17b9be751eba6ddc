//! Automation: tests, lab, benchmarks, soak, generated pages, demonstration. `cargo xtask help` lists the commands.
#![expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program for the terminal, which starts programs and writes files"
)]

mod acceptance;
mod bench;
mod book;
mod debian;
mod demo;
mod deny;
mod dist;
mod fleet;
mod fresh;
mod fuzz;
mod herd;
mod lab;
mod matrix;
mod openapi;
mod packages;
mod page;
mod pgo;
mod pinned_programs;
mod reference;
mod simulate;
mod size;
mod soak;
mod test;
mod workspace;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let outcome = match Command::parse() {
        Command::Test(options) => test::run(&options),
        Command::Packages(options) => packages::run(&options),
        Command::Tidy => test::tidy(),
        Command::Lab { arguments } => lab::run(&arguments),
        Command::Bench(bench) => bench::run(&bench),
        Command::Reference { check } => reference::run(check),
        Command::Matrix(options) => matrix::run(&options),
        Command::Demo(options) => demo::run(&options),
        Command::Pgo(options) => pgo::run(&options),
        Command::Soak(options) => soak::run(&options),
        Command::Herd(options) => herd::run(&options),
        Command::Fleet(options) => fleet::run(&options),
        Command::Simulate(options) => simulate::run(&options),
        Command::Size(options) => size::run(&options),
        Command::Fresh(options) => fresh::run(&options),
        Command::Acceptance(options) => acceptance::run(&options),
        Command::Deny => deny::run(),
        Command::Fuzz(options) => fuzz::run(&options),
        Command::Dist(options) => dist::run(&options),
        Command::Systemd(options) => dist::systemd(&options),
        Command::Incidents(options) => dist::incidents(&options),
        Command::Openapi(options) => openapi::run(&options),
        Command::Book(options) => book::run(&options),
        Command::Page(options) => page::run(&options),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Commands for developers of this project.
#[derive(Parser)]
#[command(name = "cargo xtask", about)]
enum Command {
    /// Run every test: the workspace's, then the lab with real Puppet servers; on Debian, install what they need first
    Test(test::Options),
    /// List the Debian packages that the tests, the lab and .ci/run need, or install them
    Packages(packages::Options),
    /// Check the rules of the tree: layers, names, imports, words
    Tidy,
    /// Run the lab with real Puppet servers and agents, with `PUPPET=7` or 8: up, test, agent, ca, curl, down, ci; without an
    /// argument all promises
    #[command(trailing_var_arg = true, disable_help_flag = true)]
    Lab {
        /// Arguments of `tests/lab/lab`
        #[arg(allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Measure the cost of the program on this machine
    #[command(subcommand)]
    Bench(bench::Bench),
    /// Write docs/configuration.md, docs/metrics.md, manual pages and completions from the declarations in the code
    Reference {
        /// Write nothing; fail if a file is outdated
        #[arg(long)]
        check: bool,
    },
    /// Check row by row what happens to identities; exits 1 if a row is wrong
    Matrix(matrix::Options),
    /// Show the proxy at work; needs no Puppet
    Demo(demo::Options),
    /// Send generated requests to the admin API, by its own description (schemathesis)
    Openapi(openapi::Options),
    /// Check every link of the documentation, and build docs/ as a book in target/book
    Book(book::Options),
    /// Test the page of `proscenium ui` in a headless Chromium, with axe-core
    Page(page::Options),
    /// Build the program with a profile of its own work, which saves a fifth of the instructions per request; in target/pgo
    Pgo(pgo::Options),
    /// Run a small estate while members fail and restart, and CRLs, certificates and the configuration change; exits 1 if a request
    /// is lost, counters do not add up or memory grows
    Soak(soak::Options),
    /// Run a rolling restart under 200 agents and a herd of 900, with stand-in compilers; exits 1 if a run fails
    Herd(herd::Options),
    /// Measure after what time a command on one of 20 proxies applies to all, with etcd healthy and with its faults, and what a
    /// fleet costs a proxy; exits 1 if a goal is missed
    Fleet(fleet::Options),
    /// Simulate 100,000 agents in virtual time with this balancing and with others; exits 1 if a goal is missed
    Simulate(simulate::Options),
    /// Count lines of product, tools and tests and the crates of the program, and build it for its size and build time
    Size(size::Options),
    /// Run the demonstration and all tests in minimal Debian roots, from an empty clone; needs root
    Fresh(fresh::Options),
    /// Run the heavy checks one after the other: fresh roots, module, page, packages, lab, soak; exits 1 if one fails
    Acceptance(acceptance::Options),
    /// Check licences, sources and bans of all dependencies on every platform with cargo-deny
    Deny,
    /// Run every fuzz target for some minutes; exits 1 if one finds an input that breaks a promise
    Fuzz(fuzz::Options),
    /// Build packages for Debian and rpm, with checksums and an SBOM, in target/dist
    Dist(dist::Options),
    /// Boot a Debian root and play the life of the packaged service there: reload, upgrade, stop, restart, crash, reboot; exits 1 if
    /// a request is cut; needs root
    Systemd(dist::SystemdOptions),
    /// Boot a Debian root and play twelve incidents on the packaged service there, such as a full disk; print what an operator sees
    /// first. Exits 1 if the status, the page or the alerts do not name the cause first; needs root
    Incidents(dist::IncidentOptions),
}
