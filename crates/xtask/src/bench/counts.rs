//! `cargo xtask bench instructions` and `bench syscalls`: what a request of W1 costs in counts, which no other work on the
//! machine moves.
//!
//! Each proxy is run twice, the second time with three times the requests: the difference is free of start and handshakes.
//! Instructions outside the C library and the cryptography of TLS, which choose their code by the processor, are held to a
//! baseline of the same kind of processor.

use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;

use super::{
    callgrind, cores::Cores, load::Load, members::Members, peers::Peer, pki::Pki, requests::Mix,
};
use crate::workspace;

/// How many requests, and what is done with the figure.
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
    /// Compare with bench/baseline.tsv and exit 1 if the figure is more than 3 % above it
    #[arg(long)]
    check: bool,
    /// Keep the files of callgrind in this folder, for callgrind_annotate: `few.*` and `many.*` of each proxy
    #[arg(long)]
    keep: Option<PathBuf>,
}

/// A figure may be so much above its baseline: 3 %.
const EXCESS_MAX: f64 = 0.03;

/// The baseline of each kind of processor.
const BASELINE: &str = "bench/baseline.tsv";

/// Two runs of each proxy under `valgrind --tool=callgrind`.
pub(super) fn instructions(options: &Options) -> Result<()> {
    need("valgrind")?;
    let ours = compare(options, |peer, setting| {
        let (total, own) = instructions_of(setting, peer)?;
        println!(
            "{:<12} {total:9.0} user instructions a request; {own:9.0} of them neither cryptography nor C library",
            peer.name()
        );
        Ok(own)
    })?;
    check(options, "instructions", ours)
}

/// Two runs of each proxy under `strace -c -f`.
pub(super) fn syscalls(options: &Options) -> Result<()> {
    need("strace")?;
    let ours = compare(options, |peer, setting| {
        let each = syscalls_of(setting, peer)?;
        println!("{:<12} {each:9.2} system calls a request", peer.name());
        Ok(each)
    })?;
    check(options, "syscalls", ours)
}

/// User instructions a request: all, and those that are neither cryptography nor the C library's.
pub(super) fn instructions_of(setting: &Setting<'_>, peer: &Peer) -> Result<(f64, f64)> {
    let few = callgrind_run(peer, setting, setting.requests)?;
    let many = callgrind_run(peer, setting, 3 * setting.requests)?;
    let each = |less: u64, more: u64| more.saturating_sub(less) as f64 / setting.extra();
    Ok((each(few.total, many.total), each(few.own, many.own)))
}

/// System calls a request.
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

/// What the runs of one command have in common.
pub(super) struct Setting<'a> {
    pub(super) folder: &'a Path,
    pub(super) pki: &'a Pki,
    pub(super) cores: &'a Cores,
    /// Requests of the first run; the second has three times as many.
    pub(super) requests: u64,
    pub(super) connections: usize,
    /// Where the files of callgrind are kept.
    pub(super) keep: Option<&'a Path>,
}

impl Setting<'_> {
    /// Requests that the second run has more than the first.
    fn extra(&self) -> f64 {
        (self.each(3 * self.requests) - self.each(self.requests)) as f64
    }

    /// Requests that are sent where so many are wanted: the same number on each connection.
    fn each(&self, requests: u64) -> u64 {
        let connections = self.connections as u64;
        requests / connections * connections
    }

    /// Runs the load on a proxy that has been started.
    fn load(&self, peer: &Peer, requests: u64) -> Result<()> {
        let agents = &self.pki.agents;
        let mut load = Load::connect(peer.address(), self.pki, agents, self.connections)?;
        let answers = load.run(&Mix::small(), requests)?;
        answers.ensure_good(peer.name())
    }
}

/// Measures ours and, where asked for, nginx; the figure of ours.
fn compare(options: &Options, measure: impl Fn(&Peer, &Setting<'_>) -> Result<f64>) -> Result<f64> {
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

fn callgrind_run(peer: &Peer, setting: &Setting<'_>, requests: u64) -> Result<callgrind::Sum> {
    let folder = setting.folder;
    let out = folder.join("callgrind");
    fs::create_dir_all(&out)?;
    // nginx's workers are another user, and write there too.
    fs::set_permissions(folder, Permissions::from_mode(0o711))?;
    fs::set_permissions(&out, Permissions::from_mode(0o777))?;
    let file = format!("--callgrind-out-file={}/%p", out.display());
    let tool = [
        "valgrind",
        "--quiet",
        "--tool=callgrind",
        "--trace-children=yes",
    ];
    let proxy = peer.start_under(&[&tool[..], &[&file]].concat(), setting.cores)?;
    setting.load(peer, requests)?;
    // They are written when the processes end.
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
            let name = format!("{run}.{}.{}", peer.name(), file.file_name().display());
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
    // % time, seconds, usecs/call (in newer versions), calls, errors if any.
    let calls = total.and_then(|line| {
        line.split_whitespace()
            .find_map(|word| word.parse::<u64>().ok().filter(|calls| *calls >= requests))
    });
    calls.with_context(|| format!("no total in what strace wrote:\n{text}"))
}

/// Compares a figure with the baseline of this kind of processor.
fn check(options: &Options, what: &str, figure: f64) -> Result<()> {
    if !options.check {
        return Ok(());
    }
    let kind = processor()?;
    let text = fs::read_to_string(workspace::root().join(BASELINE)).context(BASELINE)?;
    let known = text
        .lines()
        .find_map(|line| match *line.split('\t').collect::<Vec<_>>() {
            [of, on, value] if of == what && on == kind => value.parse::<f64>().ok(),
            _ => None,
        });
    let Some(known) = known else {
        println!(
            "{BASELINE} has no {what} of this kind of processor. To hold it from now on, add the line"
        );
        println!("{what}\t{kind}\t{figure:.2}");
        return Ok(());
    };
    let excess = figure / known - 1.0;
    println!(
        "{what}: {figure:.2}, the baseline is {known:.2} ({:+.1} %)",
        100.0 * excess
    );
    ensure!(
        excess <= EXCESS_MAX,
        "more than {:.0} % above the baseline. If it has to be, say why in CHANGELOG.md and write {figure:.2} into {BASELINE}",
        100.0 * EXCESS_MAX
    );
    Ok(())
}

/// What the C library and the cryptography choose their code by.
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
