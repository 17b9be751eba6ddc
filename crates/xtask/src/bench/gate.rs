//! `cargo xtask bench gate`: checks the instructions, cache misses and system calls of a request, unless the sources
//! are those of the last check. `bench/checked.tsv` has the tree hashes of that check, so that the comparison needs no
//! other commit.

use std::{
    env, fs,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result};
use cargo_metadata::{DependencyKind, MetadataCommand};

use super::counts;
use crate::workspace::{self, output};

/// The options of `cargo xtask bench gate`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Count even if the sources are those of the last check
    #[arg(long)]
    always: bool,
}

/// Counts, compares with `bench/baseline.tsv`, and records the sources.
pub(super) fn run(options: &Options) -> Result<()> {
    // Without git, everything counts as changed.
    let sources = sources().unwrap_or_default();
    let path = workspace::root().join(CHECKED);
    let checked = fs::read_to_string(&path).unwrap_or_default();
    if !options.always && !sources.is_empty() && sources == checked {
        println!("skipped: the sources are those of the last check ({CHECKED})");
        return Ok(());
    }
    println!(
        "changed since the last check: {}",
        changed(&sources, &checked).join(", ")
    );
    let program = build()?;
    check(&program, &["instructions", "--check"])?;
    // System calls are counted with one connection. With several, the number of events that arrive together depends on
    // the clock.
    check(&program, &["syscalls", "--check", "--connections", "1"])?;
    // If the kind of processor has no baseline for cache misses, the other two baselines are sufficient.
    let compared = ["instructions", "syscalls"].map(counts::baseline);
    let compared = compared
        .into_iter()
        .all(|known| matches!(known, Ok(Some(_))));
    if compared && !sources.is_empty() && !sources.contains(UNCOMMITTED) {
        fs::write(&path, &sources).context(CHECKED)?;
    }
    Ok(())
}

/// The hashes of the last check.
const CHECKED: &str = "bench/checked.tsv";
/// Follows the hash of a path with uncommitted changes.
const UNCOMMITTED: &str = " (not committed)";

/// The files outside the crates of the request path that influence the figures: the build, the load and the members.
const OTHERS: [&str; 9] = [
    ".cargo",
    "Cargo.lock",
    "Cargo.toml",
    "bench/baseline.tsv",
    "bench/proscenium.toml",
    "crates/proscenium/Cargo.toml",
    "crates/xtask/src/bench",
    "crates/xtask/src/bench.rs",
    "rust-toolchain.toml",
];

/// A line for each path: the path and the hash of its content, separated by a tab. The last line has a hash over all
/// other lines, so that merging two branches with different checks causes a conflict.
fn sources() -> Result<String> {
    let mut lines = String::new();
    for path in paths()? {
        let hash = git(&["rev-parse", &format!("HEAD:{path}")])?;
        let edited = git(&["status", "--porcelain", "--", &path])?;
        let note = if edited.is_empty() { "" } else { UNCOMMITTED };
        lines.push_str(&format!("{path}\t{hash}{note}\n"));
    }
    // DefaultHasher is stable within the pinned toolchain.
    let mut all = DefaultHasher::new();
    lines.hash(&mut all);
    Ok(format!("{lines}all\t{:016x}\n", all.finish()))
}

/// The crates that combine the others into a generation.
const CONNECTING: [&str; 4] = ["lifecycle", "membership", "state", "trust_keeper"];

/// The paths that influence the figures. A request passes through the proxy and the crates that it depends on;
/// [`CONNECTING`] combine them.
fn paths() -> Result<Vec<String>> {
    let metadata = MetadataCommand::new()
        .current_dir(workspace::root())
        .no_deps()
        .exec()?;
    let mut crates = vec!["proxy".to_owned()];
    let mut next = 0;
    while let Some(name) = crates.get(next) {
        let mut packages = metadata.workspace_packages().into_iter();
        let package = packages.find(|package| *package.name == *name);
        for dependency in package
            .context("a crate of the workspace")?
            .dependencies
            .iter()
        {
            let is_member = dependency.path.is_some() && dependency.kind == DependencyKind::Normal;
            if is_member && !crates.contains(&dependency.name) {
                crates.push(dependency.name.clone());
            }
        }
        next += 1;
    }
    crates.extend(CONNECTING.map(str::to_owned));
    let crates = crates.iter().map(|name| format!("crates/{name}"));
    let mut paths: Vec<_> = crates.chain(OTHERS.map(str::to_owned)).collect();
    paths.sort();
    Ok(paths)
}

/// The paths whose lines differ from those of the last check.
fn changed<'a>(sources: &'a str, checked: &str) -> Vec<&'a str> {
    let is_checked = |line: &str| checked.lines().any(|known| known == line);
    let changed = sources.lines().filter(|line| !is_checked(line));
    changed
        .map(|line| line.split('\t').next().unwrap_or(line))
        .collect()
}

/// Builds the program that is counted; returns its path.
fn build() -> Result<PathBuf> {
    workspace::run(workspace::cargo().args([
        "build",
        "--quiet",
        "--locked",
        "--profile",
        "counted",
        "--package",
        "proscenium",
    ]))?;
    Ok(workspace::target().join("counted/proscenium"))
}

/// Runs this program's own command for a count, with that build.
fn check(program: &Path, arguments: &[&str]) -> Result<()> {
    let mut count = Command::new(env::current_exe()?);
    count.arg("bench").args(arguments);
    workspace::run(count.env("PROSCENIUM", program))
}

fn git(arguments: &[&str]) -> Result<String> {
    let printed = output(
        Command::new("git")
            .args(arguments)
            .current_dir(workspace::root()),
    )?;
    Ok(printed.trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_checked_only_with_the_same_content() {
        let checked = "Cargo.lock\t1\ncrates/proxy\t2\n";
        let sources = "Cargo.lock\t1\ncrates/proxy\t3\ncrates/lifecycle\t4\n";
        assert_eq!(
            changed(sources, checked),
            ["crates/proxy", "crates/lifecycle"]
        );
        assert!(changed(checked, checked).is_empty());
        let edited = format!("Cargo.lock\t1{UNCOMMITTED}\n");
        assert_eq!(changed(&edited, checked), ["Cargo.lock"]);
        assert_eq!(
            changed(checked, "").len(),
            2,
            "without a record, everything is counted"
        );
    }

    #[test]
    fn the_request_path_is_the_proxy_with_its_dependencies_and_the_server() {
        let paths = paths().expect("cargo tree");
        for path in [
            "crates/proxy",
            "crates/http1",
            "crates/lifecycle",
            "Cargo.lock",
        ] {
            assert!(
                paths.iter().any(|its| its == path),
                "{path} is not in {paths:?}"
            );
        }
        assert!(
            !paths.iter().any(|path| path == "crates/doctor"),
            "{paths:?}"
        );
    }
}
