//! `cargo xtask test`: set-up and all tests in one command.

mod lab_lane;
mod over_http2;
mod skipped;

use std::{env, process::Command, thread};

use anyhow::{Result, bail, ensure};

use self::{lab_lane::LabLane, skipped::Skipped};
use crate::{packages, workspace};

/// The options of `cargo xtask test`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Repeat every end-to-end module over HTTP/2 that can be, not only those in which the transport decides
    #[arg(long)]
    all: bool,
    /// Install no packages. Tests without their programs are skipped
    #[arg(long)]
    no_install: bool,
    /// Leave out the lab with real Puppet servers and agents
    #[arg(long)]
    no_lab: bool,
}

/// Builds once, then runs the lab beside the tests of the workspace. A failed part does not stop the others. The last
/// lines count what was skipped.
pub(crate) fn run(options: &Options) -> Result<()> {
    let required = are_tools_required()?;
    if !options.no_install
        && let Err(error) = packages::install_for_tests()
    {
        println!("Packages are missing: {error:#}. Tests that need them are skipped.");
    }
    workspace::run(tests().arg("--no-run"))?;
    let mut skipped = Skipped::new()?;
    let lab = match options.no_lab {
        true => None,
        false => Some(LabLane::start(required, &mut skipped)?),
    };
    let mut failed = Vec::new();
    if workspace::run(skipped.record(tests().arg("--no-fail-fast"))).is_err() {
        failed.push("the tests of the workspace");
    }
    if workspace::run(skipped.record(&mut over_http2::tests(options.all)?)).is_err() {
        failed.push("the end-to-end tests over HTTP/2");
    }
    if lab.is_some_and(|lab| lab.finish().is_err()) {
        failed.push("the lab");
    }
    print!("{}", skipped.summary()?);
    ensure!(failed.is_empty(), "failed: {}", failed.join(", "));
    Ok(())
}

/// Whether a missing program fails its test.
fn are_tools_required() -> Result<bool> {
    match env::var("PROSCENIUM_TOOLS").as_deref() {
        Err(env::VarError::NotPresent) => Ok(false),
        Ok("required") => Ok(true),
        other => bail!("PROSCENIUM_TOOLS is {other:?}; its only value is \"required\""),
    }
}

/// `cargo test` with every test binary. Documentation has no tests, and looking for them takes as long as a crate's tests.
fn tests() -> Command {
    let mut tests = workspace::cargo();
    tests.args(["test", "--workspace", "--lib", "--bins", "--tests"]);
    // The commands under test would build it again with other features.
    tests.env("PROSCENIUM", workspace::target().join("debug/proscenium"));
    if env::var_os("RUST_TEST_THREADS").is_none() {
        tests.env("RUST_TEST_THREADS", threads().to_string());
    }
    tests
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
