//! `cargo xtask bench`: the cost of the program, measured on this machine.

mod callgrind;
mod comparison;
mod cores;
mod counts;
mod cpu;
mod gate;
mod growth;
mod h2;
mod kept;
mod l4;
mod load;
mod locked;
mod members;
mod memory;
mod overload;
mod overview;
mod peers;
mod pki;
mod programs;
mod promises;
mod requests;
mod resume;
mod schedule;
mod shape;
mod signature;
mod storm;
mod table;

use anyhow::Result;
use clap::Subcommand;

pub(crate) use cpu::run_time;

use crate::workspace;

/// What to measure.
#[derive(Subcommand)]
pub(crate) enum Bench {
    /// Every promise about cost, row by row, compared with the best of several nginx and HAProxy, and whether it is met
    Table(overview::Options),
    /// Fetch nginx and HAProxy of another Debian release, and unpack them for `bench table --peers`
    Peers(programs::Options),
    /// User instructions, cache misses and hot code of a small request, counted by valgrind
    Instructions(counts::Options),
    /// System calls of a small request, counted by strace
    Syscalls(counts::Options),
    /// Check instructions, cache misses and system calls against bench/baseline.tsv, unless the sources are those of the last check
    Gate(gate::Options),
    /// User instructions of a small request with many connections, members, routes, CRL entries and certnames; exits 1 if they grow by over 10 %
    Growth(growth::Options),
    /// Memory for large bodies with slow readers; exits 1 if it is over the limit
    Memory(memory::Options),
    /// Memory of the revocation index and time of a verdict, from no entry to a million; exits 1 if over a limit
    Verdict,
    /// Instructions to pick one of 10 and 100 members, counted by valgrind; exits 1 if over a limit
    Pick,
}

/// Measures and prints.
pub(crate) fn run(bench: &Bench) -> Result<()> {
    match bench {
        Bench::Table(options) => overview::run(options),
        Bench::Peers(options) => programs::run(options),
        Bench::Instructions(options) => counts::instructions(options),
        Bench::Syscalls(options) => counts::syscalls(options),
        Bench::Gate(options) => gate::run(options),
        Bench::Growth(options) => growth::run(options),
        Bench::Memory(options) => memory::run(options),
        // The benchmark is in the crate that it measures, because only that crate can verify a signature separately.
        Bench::Verdict => bench_of("pki", "verdict"),
        Bench::Pick => bench_of("balancing", "pick"),
    }
}

fn bench_of(package: &str, bench: &str) -> Result<()> {
    let arguments = ["bench", "--quiet", "--package", package, "--bench", bench];
    workspace::run(workspace::cargo().args(arguments))
}
