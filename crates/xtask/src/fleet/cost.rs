//! The cost of a fleet for a proxy: memory and CPU time with many records, and the time for many blocks.

use std::{
    fmt::Write as _,
    fs,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Result, bail, ensure};
use tempfile::NamedTempFile;
use testkit::{Ca, Proxy};

use crate::bench::run_time;

use super::{
    Options,
    delays::{self, Delays, NOT_SENT},
    estate::{FleetEstate, HOST, MEMBERS, STORE_MEMBERS, proxy},
};

/// Number of blocks in a large fleet.
const BLOCKS: usize = 1_000;
/// Arguments that drain all members of a host.
const DRAIN: &[&str] = &["--host", HOST, "--why", "measured"];

/// Creates many records in the fleet, and measures an idle proxy and the store.
pub(super) fn with_fleet(estate: &FleetEstate, options: &Options) -> Result<()> {
    println!("{MEMBERS} states of members and {BLOCKS} blocks, with [fleet]");
    let file = blocks()?;
    let path = file.path().display().to_string();
    let block = ["block", "--file", &path, "--why", "measured"];
    measure(estate, &block, BLOCKS)?;
    measure(estate, &[&["drain"], DRAIN].concat(), MEMBERS)?;
    estate.wait_until_equal()?;
    let idle = Duration::from_secs(options.idle_seconds);
    let proxies = estate.proxies.iter().map(Proxy::pid);
    let members = (0..STORE_MEMBERS).filter_map(|member| estate.store.pid(member));
    let processes: Vec<_> = proxies.chain(members).collect();
    let used = idle_shares(&processes, idle);
    let (proxies, members) = used.split_at(estate.proxies.len());
    let mean = |used: &[f64]| used.iter().sum::<f64>() / used.len() as f64;
    print_idle("a proxy", processes[0], mean(proxies));
    print_idle("a member of etcd", processes[proxies.len()], mean(members));
    let used = || -> Duration {
        estate
            .proxies
            .iter()
            .map(|proxy| run_time(proxy.pid()))
            .sum()
    };
    let before = used();
    // All proxies share one machine here, which does the work for each change 20 times. The goal does not apply to that
    // case.
    let changes: usize = delays::healthy(estate, options.rounds / 2)?
        .iter()
        .map(Delays::count)
        .sum();
    let each = used().saturating_sub(before) / u32::try_from(changes * estate.proxies.len())?;
    println!("  a proxy, CPU time for a change, with all reports: {each:.2?}");
    Ok(())
}

/// Prints the time until the last proxy has all changes of a command. With all proxies on one machine, that may be
/// longer than the command waits.
fn measure(estate: &FleetEstate, words: &[&str], changes: usize) -> Result<()> {
    let (took, outcome) = estate.measure(0, &words[..1], &words[1..], changes)?;
    let note = match outcome.code {
        Some(0) => "",
        Some(NOT_SENT) => ", longer than the command waits",
        _ => bail!("{}", outcome.stderr),
    };
    let what = words[..2].join(" ");
    println!("  {what}, until the last proxy has all: {took:.2?}{note}");
    Ok(())
}

/// Measures one proxy without a fleet, with the same records.
pub(super) fn without_fleet(binary: &Path, options: &Options) -> Result<()> {
    println!("{MEMBERS} states of members and {BLOCKS} blocks, without [fleet]");
    let ca = Ca::named("alone");
    let alone = || proxy(&ca, binary, "p1").start();
    let run = |proxy: &Proxy, words: &[&str], arguments: &[&str]| {
        let began = Instant::now();
        let outcome = proxy.command(words, arguments);
        ensure!(outcome.code == Some(0), "{}", outcome.stderr);
        Ok(began.elapsed())
    };
    let single = alone();
    let began = Instant::now();
    for number in 0..BLOCKS {
        run(
            &single,
            &["block"],
            &[&certname(number), "--why", "measured"],
        )?;
    }
    println!("  {BLOCKS} commands block: {:.2?}", began.elapsed());
    drop(single);
    let proxy = alone();
    let file = blocks()?;
    let path = file.path().display().to_string();
    let took = run(&proxy, &["block"], &["--file", &path, "--why", "x"])?;
    println!("  block --file: {took:.2?}");
    let took = run(&proxy, &["drain"], DRAIN)?;
    println!("  drain --host: {took:.2?}");
    let idle = Duration::from_secs(options.idle_seconds);
    let used = idle_shares(&[proxy.pid()], idle);
    print_idle("a proxy", proxy.pid(), used[0]);
    Ok(())
}

fn certname(number: usize) -> String {
    format!("blocked{number}.example.com")
}

/// A file with a certname on each line.
fn blocks() -> Result<NamedTempFile> {
    let mut text = String::new();
    for number in 0..BLOCKS {
        writeln!(text, "{}", certname(number))?;
    }
    let file = NamedTempFile::new()?;
    fs::write(file.path(), text)?;
    Ok(file)
}

fn print_idle(what: &str, process: u32, share: f64) {
    let kib = |name| memory_kib(process, name);
    println!(
        "  {what}, idle: {:.2} % of a core, {} KiB resident, {} KiB proportional (PSS)",
        share * 100.0,
        kib("Rss:"),
        kib("Pss:")
    );
}

/// The share of a core that each process uses.
fn idle_shares(processes: &[u32], time: Duration) -> Vec<f64> {
    let used = || -> Vec<_> { processes.iter().map(|process| run_time(*process)).collect() };
    let before = used();
    thread::sleep(time);
    let differences = used()
        .into_iter()
        .zip(before)
        .map(|(after, before)| after.saturating_sub(before));
    differences
        .map(|used| used.as_secs_f64() / time.as_secs_f64())
        .collect()
}

/// A memory figure of a process, in KiB.
fn memory_kib(process: u32, name: &str) -> u64 {
    let text = fs::read_to_string(format!("/proc/{process}/smaps_rollup")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok())
        .unwrap_or_default()
}
