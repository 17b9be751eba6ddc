//! `cargo xtask bench instructions` and `bench syscalls`: the instructions, cache misses and system calls of one request of
//! W1. Other work on the machine does not change these counts.
//!
//! Each proxy runs twice, the second time with three times as many requests. The difference excludes the start and the
//! handshakes. The C library and the cryptography of TLS choose their code by the processor. The instructions and cache
//! misses outside them are compared with a baseline for the same kind of processor.

use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;

use super::{
    callgrind, cores::Cores, load::Load, locked, members::Members, peers::Peer, pki::Pki,
    requests::Mix,
};
use crate::workspace;

/// The number of requests, and what to do with the result.
#[derive(Args)]
pub(crate) struct Options {
    /// Requests of the first run; the second has three times as many
    #[arg(long, default_value_t = 2_000)]
    requests: u64,
    /// Kept connections
    #[arg(long, default_value_t = 8)]
    connections: usize,
    /// Measure nginx as well
    #[arg(long)]
    nginx: bool,
    /// Compare with bench/baseline.tsv and exit 1 if instructions or system calls are more than 3 % above it, or cache misses
    /// more than 5 %
    #[arg(long)]
    check: bool,
    /// Keep the files of callgrind in this folder, for callgrind_annotate: `few.*` and `many.*` of each proxy, and
    /// `caches-few.*` and `caches-many.*` with cache misses
    #[arg(long)]
    keep: Option<PathBuf>,
}

/// Instructions and system calls may exceed their baseline by at most 3 %.
const EXCESS_MAX: f64 = 0.03;

/// Simulated cache misses may exceed their baseline by at most 5 %, because a build that only moves code also changes
/// them.
const MISSES_EXCESS_MAX: f64 = 0.05;

/// The file with a baseline for each kind of processor.
const BASELINE: &str = "bench/baseline.tsv";

/// Runs each proxy twice under `valgrind --tool=callgrind`, and twice with simulated caches, which make it slower.
pub(super) fn instructions(options: &Options) -> Result<()> {
    need("valgrind")?;
    let (own, own_misses) = compare(options, |peer, setting| {
        let (total, own) = instructions_of(setting, peer)?;
        println!(
            "{:<14} {total:9.0} user instructions a request; {own:9.0} of them neither cryptography nor C library",
            peer.name()
        );
        let addresses = if options.check {
            &[]
        } else {
            callgrind::ADDRESSES
        };
        let footprint = footprint_of(setting, peer, addresses)?;
        footprint.print(peer.name());
        Ok((own, footprint.own_misses))
    })?;
    check(options, "instructions", own, EXCESS_MAX)?;
    check(options, "l1-misses", own_misses, MISSES_EXCESS_MAX)
}

/// Runs each proxy twice under `strace -c -f`.
pub(super) fn syscalls(options: &Options) -> Result<()> {
    need("strace")?;
    let ours = compare(options, |peer, setting| {
        let each = syscalls_of(setting, peer)?;
        println!("{:<12} {each:9.2} system calls a request", peer.name());
        Ok(each)
    })?;
    check(options, "syscalls", ours, EXCESS_MAX)
}

/// User instructions per request: in total, and outside cryptography and the C library.
pub(super) fn instructions_of(setting: &Setting<'_>, peer: &Peer) -> Result<(f64, f64)> {
    let more = more_requests(setting, peer, &[])?;
    let each = |more: u64| more as f64 / setting.extra();
    Ok((each(more.total), each(more.own)))
}

/// The use of the first-level caches by one request, as callgrind simulates them.
#[derive(Clone, Copy)]
pub(super) struct Footprint {
    pub(super) instruction_misses: f64,
    pub(super) data_misses: f64,
    /// Misses of both kinds outside cryptography and the C library.
    own_misses: f64,
    /// Cache lines of code that requests execute; `None` without the addresses of instructions.
    hot_lines: Option<usize>,
    /// Instructions that lock memory; `None` also on a processor whose instruction set this program cannot decode.
    locked: Option<f64>,
}

impl Footprint {
    /// The cache lines of code that requests execute, in KiB.
    pub(super) fn hot_kib(&self) -> Option<f64> {
        let lines = self.hot_lines?;
        Some(lines as f64 * callgrind::LINE_BYTES as f64 / 1024.0)
    }

    fn print(&self, name: &str) {
        let (code, data) = (self.instruction_misses, self.data_misses);
        println!(
            "{name:<14} {:9.0} simulated L1 misses, {code:.0} of instructions and {data:.0} of data; {:.0} of them neither in \
             cryptography nor C library",
            code + data,
            self.own_misses
        );
        if let (Some(lines), Some(kib)) = (self.hot_lines, self.hot_kib()) {
            println!("{name:<14} {lines:9} hot lines of code of 64 bytes ({kib:.0} KiB)");
        }
        if let Some(locked) = self.locked {
            println!("{name:<14} {locked:9.0} locked instructions");
        }
    }
}

/// The footprint of a request, with hot lines and locked instructions if callgrind writes the addresses of instructions.
pub(super) fn footprint_of(
    setting: &Setting<'_>,
    peer: &Peer,
    addresses: &[&str],
) -> Result<Footprint> {
    let more = more_requests(setting, peer, &[callgrind::CACHES, addresses].concat())?;
    let requests = setting.extra();
    let each = |more: u64| more as f64 / requests;
    let has_addresses = !addresses.is_empty();
    Ok(Footprint {
        instruction_misses: each(more.instruction_misses),
        data_misses: each(more.data_misses),
        own_misses: each(more.own_misses),
        hot_lines: has_addresses.then(|| callgrind::hot_lines(&more.executed, requests)),
        locked: if has_addresses {
            locked::count(&more.executed)?.map(each)
        } else {
            None
        },
    })
}

/// The costs of the requests by which the second run exceeds the first, as callgrind counts them.
fn more_requests(setting: &Setting<'_>, peer: &Peer, details: &[&str]) -> Result<callgrind::Sum> {
    let few = callgrind_run(peer, setting, setting.requests, details)?;
    let many = callgrind_run(peer, setting, 3 * setting.requests, details)?;
    Ok(many.beyond(&few))
}

/// System calls per request.
pub(super) fn syscalls_of(setting: &Setting<'_>, peer: &Peer) -> Result<f64> {
    let few = strace_run(peer, setting, setting.requests)?;
    let many = strace_run(peer, setting, 3 * setting.requests)?;
    Ok(many.saturating_sub(few) as f64 / setting.extra())
}

fn need(tool: &str) -> Result<()> {
    if workspace::is_installed(tool) {
        return Ok(());
    }
    bail!("{tool} is not installed: apt install {tool}")
}

/// The settings that the runs of one command share.
pub(super) struct Setting<'a> {
    pub(super) folder: &'a Path,
    pub(super) pki: &'a Pki,
    pub(super) cores: &'a Cores,
    /// Requests of the first run; the second has three times as many.
    pub(super) requests: u64,
    pub(super) connections: usize,
    /// Folder to keep callgrind's files in.
    pub(super) keep: Option<&'a Path>,
}

impl Setting<'_> {
    /// The number of requests by which the second run exceeds the first.
    fn extra(&self) -> f64 {
        (self.each(3 * self.requests) - self.each(self.requests)) as f64
    }

    /// The number of requests that are sent when this number is requested: each connection sends the same number.
    fn each(&self, requests: u64) -> u64 {
        let connections = self.connections as u64;
        requests / connections * connections
    }

    /// Runs the load on a started proxy.
    fn load(&self, peer: &Peer, requests: u64) -> Result<()> {
        let agents = &self.pki.agents;
        let mut load = Load::connect(peer.address(), self.pki, agents, self.connections)?;
        let answers = load.run(&Mix::small(), requests)?;
        answers.ensure_good(peer.name())
    }
}

/// Measures Proscenium and, if requested, nginx. Returns the result for Proscenium.
fn compare<T>(options: &Options, measure: impl Fn(&Peer, &Setting<'_>) -> Result<T>) -> Result<T> {
    let folder = tempfile::tempdir().context("no folder to work in")?;
    let pki = Pki::make(folder.path())?;
    let members = Members::start()?;
    let peers = Peer::all(folder.path(), &members)?;
    let cores = Cores::here()?;
    let setting = Setting {
        folder: folder.path(),
        pki: &pki,
        cores: &cores,
        requests: options.requests,
        connections: options.connections,
        keep: options.keep.as_deref(),
    };
    let ours = measure(&peers[0], &setting)?;
    if options.nginx {
        for peer in &peers[1..] {
            measure(peer, &setting)?;
        }
    }
    Ok(ours)
}

fn callgrind_run(
    peer: &Peer,
    setting: &Setting<'_>,
    requests: u64,
    details: &[&str],
) -> Result<callgrind::Sum> {
    let folder = setting.folder;
    let out = folder.join("callgrind");
    fs::create_dir_all(&out)?;
    // nginx's workers run as another user and must be able to write here.
    fs::set_permissions(folder, Permissions::from_mode(0o711))?;
    fs::set_permissions(&out, Permissions::from_mode(0o777))?;
    let file = format!("--callgrind-out-file={}/%p", out.display());
    let tool = [
        "valgrind",
        "--quiet",
        "--tool=callgrind",
        "--trace-children=yes",
    ];
    let tool = [&tool[..], details, &[&file]].concat();
    let proxy = peer.start_under(&tool, setting.cores)?;
    setting.load(peer, requests)?;
    // The files are written when the processes end.
    drop(proxy);
    let mut sum = callgrind::Sum::default();
    for file in fs::read_dir(&out)? {
        let file = file?;
        sum.read(&fs::read_to_string(file.path())?);
        if let Some(keep) = setting.keep {
            let run = if requests == setting.requests {
                "few"
            } else {
                "many"
            };
            let caches = if details.is_empty() { "" } else { "caches-" };
            let name = format!(
                "{caches}{run}.{}.{}",
                peer.name(),
                file.file_name().display()
            );
            fs::create_dir_all(keep)?;
            fs::copy(file.path(), keep.join(name))?;
        }
    }
    fs::remove_dir_all(&out)?;
    ensure!(
        sum.total > 0,
        "valgrind wrote no figures of {}",
        peer.name()
    );
    Ok(sum)
}

fn strace_run(peer: &Peer, setting: &Setting<'_>, requests: u64) -> Result<u64> {
    let out = setting.folder.join("strace");
    let file = out.display().to_string();
    let proxy = peer.start_under(&["strace", "-q", "-f", "-c", "-o", &file], setting.cores)?;
    setting.load(peer, requests)?;
    drop(proxy);
    let text = fs::read_to_string(&out).context("strace wrote no figures")?;
    let total = text.lines().rev().find(|line| line.ends_with("total"));
    // The columns: % time, seconds, usecs/call (in newer versions), calls, errors if any.
    let calls = total.and_then(|line| {
        line.split_whitespace()
            .find_map(|word| word.parse::<u64>().ok().filter(|calls| *calls >= requests))
    });
    calls.with_context(|| format!("no total in what strace wrote:\n{text}"))
}

/// The figure for this kind of processor.
pub(super) fn baseline(what: &str) -> Result<Option<f64>> {
    let kind = processor()?;
    let text = fs::read_to_string(workspace::root().join(BASELINE)).context(BASELINE)?;
    let mut lines = text.lines();
    Ok(
        lines.find_map(|line| match *line.split('\t').collect::<Vec<_>>() {
            [of, on, value] if of == what && on == kind => value.parse().ok(),
            _ => None,
        }),
    )
}

/// Compares a figure with the baseline for this kind of processor.
fn check(options: &Options, what: &str, figure: f64, excess_max: f64) -> Result<()> {
    if !options.check {
        return Ok(());
    }
    let Some(known) = baseline(what)? else {
        println!(
            "{BASELINE} has no {what} of this kind of processor. To hold it from now on, add the line"
        );
        println!("{what}\t{}\t{figure:.2}", processor()?);
        return Ok(());
    };
    let excess = figure / known - 1.0;
    println!(
        "{what}: {figure:.2}, the baseline is {known:.2} ({:+.1} %)",
        100.0 * excess
    );
    ensure!(
        excess <= excess_max,
        "more than {:.0} % above the baseline. If it has to be, say why in CHANGELOG.md and write {figure:.2} into {BASELINE}",
        100.0 * excess_max
    );
    Ok(())
}

/// The processor properties by which the C library and the cryptography choose their code.
fn processor() -> Result<String> {
    let known = fs::read_to_string("/proc/cpuinfo").context("/proc/cpuinfo")?;
    let flags = known.lines().find(|line| line.starts_with("flags"));
    let flags: Vec<_> = flags.unwrap_or_default().split_whitespace().collect();
    let chosen = [
        "avx2",
        "avx512vl",
        "vaes",
        "vpclmulqdq",
        "sha_ni",
        "erms",
        "fsrm",
    ];
    let present = chosen.into_iter().filter(|flag| flags.contains(flag));
    let machine = Command::new("uname").arg("-m").output()?.stdout;
    let machine = String::from_utf8_lossy(&machine).trim().to_owned();
    Ok([machine]
        .into_iter()
        .chain(present.map(str::to_owned))
        .collect::<Vec<_>>()
        .join(" "))
}
