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

/// Builds once, then runs the lab at the same time as the tests of the workspace. A failed part does not stop the
/// others. The last lines count what was skipped.
pub(crate) fn run(options: &Options) -> Result<()> {
    let required = are_tools_required()?;
    if !options.no_install
        && let Err(error) = packages::install_for_tests(!options.no_lab)
    {
        println!("Packages are missing: {error:#}. Tests that need them are skipped.");
    }
    let binaries = ["--lib", "--bins", "--tests"];
    workspace::run(tests()?.args(binaries).arg("--no-run"))?;
    let skipped = Skipped::new()?;
    let (mut tests, mut over_http2) = (tests()?, over_http2::tests(options.all)?);
    let lab = if options.no_lab {
        None
    } else {
        Some(LabLane::start(required)?)
    };
    let mut failed = Vec::new();
    if workspace::run(skipped.record(tests.args(binaries).arg("--no-fail-fast"))).is_err() {
        failed.push("the tests of the workspace".to_owned());
    }
    if workspace::run(skipped.record(&mut over_http2)).is_err() {
        failed.push("the end-to-end tests over HTTP/2".to_owned());
    }
    let mut summary = skipped.summary()?;
    match lab.map(LabLane::finish) {
        None => {}
        Some(Ok(skipped)) => summary.push_str(&skipped.concat()),
        Some(Err(error)) => failed.push(format!("the lab ({error:#})")),
    }
    print!("{summary}");
    ensure!(failed.is_empty(), "failed: {}", failed.join(", "));
    Ok(())
}

/// Whether a test fails if its program is missing, instead of being skipped.
pub(crate) fn are_tools_required() -> Result<bool> {
    match env::var("PROSCENIUM_TOOLS").as_deref() {
        Err(env::VarError::NotPresent) => Ok(false),
        Ok("required") => Ok(true),
        other => bail!("PROSCENIUM_TOOLS is {other:?}; its only value is \"required\""),
    }
}

/// `cargo test` for the binaries that are named. Documentation tests are left out: there is only one, in testkit, and
/// looking for others takes as long as the tests of a crate.
fn tests() -> Result<Command> {
    let mut tests = workspace::cargo();
    tests.args(["test", "--workspace"]);
    // The commands under test would build the program again. They run in other directories, so the path is absolute.
    let target = std::path::absolute(workspace::target())?;
    tests.env("PROSCENIUM", target.join("debug/proscenium"));
    if env::var_os("RUST_TEST_THREADS").is_none() {
        tests.env("RUST_TEST_THREADS", threads().to_string());
    }
    Ok(tests)
}

/// End-to-end tests mostly wait for sockets and child processes. With one thread per core, as is the default, the cores
/// are idle for half of the time.
fn threads() -> usize {
    TEST_THREADS_PER_CORE * thread::available_parallelism().map_or(1, usize::from)
}

/// With three threads per core, the end-to-end tests take half of the time on two cores.
const TEST_THREADS_PER_CORE: usize = 3;

/// Tests only the rules of the tree: layers, names, imports, words.
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
