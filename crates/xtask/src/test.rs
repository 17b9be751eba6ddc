//! `cargo xtask test`: set-up and all tests in one command.

use std::{collections::BTreeMap, env, fs, path::Path, thread};

use anyhow::{Result, anyhow, bail};

use crate::{lab, packages, workspace};

/// The options of `cargo xtask test`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Repeat every end-to-end module over HTTP/2, not only those whose promises depend on the protocol.
    #[arg(long)]
    all: bool,
    /// Install no packages. Tests without their programs are skipped.
    #[arg(long)]
    no_install: bool,
}

/// The workspace's tests, then the lab. The last lines count what was skipped.
pub(crate) fn run(options: &Options) -> Result<()> {
    let required = are_tools_required()?;
    if !options.no_install
        && let Err(error) = packages::install_for_tests()
    {
        println!("Packages are missing: {error:#}. Tests that need them are skipped.");
    }
    let skipped = tempfile::NamedTempFile::new()?;
    let tested = run_workspace(options, skipped.path());
    let lab_missing = lab_missing();
    let lab_tested = match lab_missing {
        None => lab::run(&[]),
        Some(what) if required => Err(anyhow!(
            "the lab is required (PROSCENIUM_TOOLS=required) and cannot run: {what}"
        )),
        Some(_) => Ok(()),
    };
    print!("{}", summary(&fs::read_to_string(skipped.path())?));
    if let Some(what) = lab_missing {
        println!(
            "skipped: the lab with real Puppet servers and agents, because {what} (Debian: {})",
            lab::PACKAGES
        );
    }
    tested.and(lab_tested)
}

/// Whether a missing program fails its test.
fn are_tools_required() -> Result<bool> {
    match env::var("PROSCENIUM_TOOLS").as_deref() {
        Err(env::VarError::NotPresent) => Ok(false),
        Ok("required") => Ok(true),
        other => bail!("PROSCENIUM_TOOLS is {other:?}; its only value is \"required\""),
    }
}

/// All tests of the workspace. Those that are skipped write to this file.
fn run_workspace(options: &Options, skipped: &Path) -> Result<()> {
    let mut tests = workspace::cargo();
    tests.args(["test", "--workspace", "--no-fail-fast"]);
    tests.env("PROSCENIUM_SKIPPED", skipped);
    if options.all {
        tests.args(["--features", "proscenium/every-module-over-http2"]);
    }
    if env::var_os("RUST_TEST_THREADS").is_none() {
        tests.env("RUST_TEST_THREADS", threads().to_string());
    }
    workspace::run(&mut tests)
}

/// Why the lab cannot run here.
fn lab_missing() -> Option<&'static str> {
    let not_root = "it needs root, or sudo without a password";
    lab::missing().or_else(|| (!packages::can_become_root()).then_some(not_root))
}

/// A line for each set of packages without which tests were skipped, from the packages of each skipped test.
fn summary(skipped: &str) -> String {
    let mut counts = BTreeMap::new();
    for packages in skipped.lines() {
        *counts.entry(packages).or_insert(0) += 1;
    }
    let lines = counts
        .iter()
        .map(|(packages, count)| format!("skipped: {count} tests (Debian: {packages})\n"));
    lines.collect()
}

/// End-to-end tests mostly wait for sockets and child processes. With one thread per core, as is the default, the cores
/// are idle for half of the time.
fn threads() -> usize {
    TEST_THREADS_PER_CORE * thread::available_parallelism().map_or(1, usize::from)
}

/// With three, the end-to-end tests take half of the time on two cores.
const TEST_THREADS_PER_CORE: usize = 3;

/// The rules of the tree only: layers, names, imports, words.
pub(crate) fn tidy() -> Result<()> {
    workspace::run(workspace::cargo().args([
        "test",
        "--package",
        "proscenium",
        "--test",
        "end_to_end",
        "tidy::",
    ]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skipped_tests_are_counted_by_their_packages() {
        assert_eq!(summary(""), "");
        assert_eq!(
            summary("knot\nruby puma\nknot\n"),
            "skipped: 2 tests (Debian: knot)\nskipped: 1 tests (Debian: ruby puma)\n"
        );
    }
}
