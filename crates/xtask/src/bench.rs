//! `cargo xtask bench`: what the program costs, measured on the machine at hand.

mod abuse;
mod callgrind;
mod cores;
mod counts;
mod cpu;
mod growth;
mod h2;
mod kept;
mod load;
mod members;
mod memory;
mod overview;
mod peers;
mod pki;
mod promises;
mod requests;
mod resume;
mod schedule;
mod shape;
mod storm;
mod table;
mod tunnel;
mod w1;

use anyhow::Result;
use clap::Subcommand;

use crate::workspace;

/// What to measure.
#[derive(Subcommand)]
pub(crate) enum Bench {
    /// What we promise to cost, row by row, beside nginx or HAProxy and with the mark of each promise
    Table(overview::Options),
    /// CPU time of a small request beside nginx's, in interleaved rounds of one run
    W1(w1::Options),
    /// User instructions of a small request, counted by valgrind
    Instructions(counts::Options),
    /// System calls of a small request, counted by strace
    Syscalls(counts::Options),
    /// User instructions of a small request with many connections, members, routes, CRL entries and certnames; exits 1 where they grow by over 10 %
    Growth(growth::Options),
    /// CPU time of a resumed connection beside nginx's, over TLS 1.3 and 1.2, in interleaved rounds of one run
    Resume(resume::Options),
    /// Latency of one agent's requests while another attacks; exits 1 when the member did not answer one of them
    Abuse(abuse::Options),
    /// Memory that large bodies take on their way through, with slow readers; exits 1 when it is over the bound
    Memory(memory::Options),
    /// Bytes of passed-through connections for each second of CPU time beside nginx's stream module and HAProxy, and memory of idle ones; exits 1 when over the bound
    Tunnel(tunnel::Options),
    /// Memory of the revocation index and time of a verdict, from no entry to a million; exits 1 when over a bound
    Verdict,
    /// Instructions of the choice of a member among 10 and 100, counted by valgrind; exits 1 when over a bound
    Pick,
}

/// Measures and prints.
pub(crate) fn run(bench: &Bench) -> Result<()> {
    match bench {
        Bench::Table(options) => overview::run(options),
        Bench::W1(options) => w1::run(options),
        Bench::Instructions(options) => counts::instructions(options),
        Bench::Syscalls(options) => counts::syscalls(options),
        Bench::Growth(options) => growth::run(options),
        Bench::Resume(options) => resume::run(options),
        Bench::Abuse(options) => abuse::run(options),
        Bench::Memory(options) => memory::run(options),
        Bench::Tunnel(options) => tunnel::run(options),
        // With the crate that it measures: only there may signatures be checked bare.
        Bench::Verdict => bench_of("pki", "verdict"),
        Bench::Pick => bench_of("balancing", "pick"),
    }
}

fn bench_of(package: &str, bench: &str) -> Result<()> {
    let arguments = ["bench", "--quiet", "--package", package, "--bench", bench];
    workspace::run(workspace::cargo().args(arguments))
}
