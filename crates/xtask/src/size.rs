//! `cargo xtask size`: how large the project is, for a comparison before and after a change.

use std::collections::{BTreeMap, BTreeSet};
use std::{fs, path::Path, process::Command, time::Instant};

use anyhow::{Context as _, Result};
use clap::Args;

use crate::workspace;

/// What to measure.
#[derive(Args)]
pub(crate) struct Options {
    /// Do not build the program, which takes minutes; print only lines and crates
    #[arg(long)]
    no_build: bool,
}

/// Prints lines of source code, foreign crates, seconds of a build from nothing, and the size of the binary.
pub(crate) fn run(options: &Options) -> Result<()> {
    let (own, foreign) = crates()?;
    for (purpose, count) in lines(&own)? {
        println!("lines of {purpose:<8} {count:>9}");
    }
    println!("foreign crates    {foreign:>9}");
    if !options.no_build {
        let (seconds, bytes) = build()?;
        println!("build seconds     {seconds:>9}\nbinary bytes      {bytes:>9}");
    }
    Ok(())
}

/// The crates of the workspace that are in the program, and the number of other crates in it. Each version of a crate
/// counts. Crates that only build scripts use are not in the program.
fn crates() -> Result<(BTreeSet<String>, usize)> {
    let arguments =
        "tree --locked --package proscenium --edges normal --prefix none --no-dedupe --format {p}";
    let tree = workspace::output(workspace::cargo().args(arguments.split(' ')))?;
    let all: BTreeSet<_> = tree.lines().filter(|line| !line.is_empty()).collect();
    // Only crates of the workspace have a path.
    let (own, foreign): (Vec<&str>, Vec<&str>) = all.iter().partition(|line| line.contains("(/"));
    let names = own.iter().filter_map(|line| line.split(' ').next());
    Ok((names.map(str::to_owned).collect(), foreign.len()))
}

/// Lines of the tracked Rust files and scripts, with comments and empty lines.
fn lines(own: &BTreeSet<String>) -> Result<BTreeMap<&'static str, usize>> {
    let mut git = Command::new("git");
    let listed = workspace::output(git.current_dir(workspace::root()).args(["ls-files", "-z"]))?;
    let mut lines = BTreeMap::new();
    for name in listed.split('\0').filter(|name| !name.is_empty()) {
        let path = workspace::root().join(name);
        // Git lists a deleted file until the deletion is in the index. A fuzz corpus is not text.
        let text = fs::read_to_string(path).unwrap_or_default();
        let extension = Path::new(name).extension().and_then(|it| it.to_str());
        if matches!(extension, Some("rs" | "bash")) || text.starts_with("#!") {
            let (total, purpose) = (text.lines().count(), purpose(name, own));
            let tests = test_lines(&text);
            *lines.entry("tests").or_default() += tests;
            *lines.entry(purpose).or_default() += total - tests;
        }
    }
    Ok(lines)
}

/// The purpose of the code in a file outside its `#[cfg(test)]` items. Crates that are not in the program are tools.
fn purpose(name: &str, own: &BTreeSet<String>) -> &'static str {
    let mut parts = name.split('/');
    if parts.any(|part| matches!(part, "tests" | "tests.rs") || part.starts_with("test_")) {
        return "tests";
    }
    let owner = name
        .strip_prefix("crates/")
        .and_then(|it| it.split_once('/'));
    match owner {
        Some((owner, _)) if own.contains(owner) => "product",
        _ => "tools",
    }
}

/// Lines of `#[cfg(test)]` items in a file that rustfmt has formatted. A module of tests extends to the end of the file,
/// and any other item to a line at its own indentation.
fn test_lines(text: &str) -> usize {
    let (mut count, mut lines) = (0, text.lines());
    while let Some(attribute) = lines.next() {
        if attribute.trim_start() != "#[cfg(test)]" {
            continue;
        }
        let depth = attribute.len() - attribute.trim_start().len();
        count += 1;
        while let Some(line) = lines.next() {
            count += 1;
            let text = line.trim_start();
            // Strings in tests may have lines that look like the end of the module.
            if line.starts_with("mod ") && line.ends_with('{') {
                return count + lines.count();
            }
            let is_own_line = !text.is_empty() && line.len() - text.len() == depth;
            if is_own_line && !text.starts_with("//") && text.ends_with([';', ',', '}']) {
                break;
            }
        }
    }
    count
}

/// Builds the program in an empty directory with the release profile; returns the seconds and the binary's bytes.
fn build() -> Result<(u64, u64)> {
    let place = tempfile::tempdir_in(workspace::target()).context("no directory for the build")?;
    let mut cargo = workspace::cargo();
    cargo.env("CARGO_TARGET_DIR", place.path());
    let begun = Instant::now();
    workspace::run(cargo.args(["build", "--release", "--locked", "--package=proscenium"]))?;
    let seconds = begun.elapsed().as_secs();
    let binary = place.path().join("release/proscenium");
    Ok((seconds, fs::metadata(binary)?.len()))
}
