//! Paths of the tree, and functions that run programs.

use std::{
    env,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, anyhow, bail};

/// The root of the repository.
pub(crate) fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// The target directory of cargo.
pub(crate) fn target() -> PathBuf {
    env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// A cargo command that runs at the root of the workspace.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    command
}

/// Builds the program, optimised if `release`, and returns its path; `PROSCENIUM` names one that is already built.
pub(crate) fn build_proscenium(release: bool) -> Result<PathBuf> {
    if let Some(built) = env::var_os("PROSCENIUM") {
        return Ok(built.into());
    }
    let mut command = cargo();
    if release {
        command.args(["build", "--release", "--package", "proscenium"]);
    } else {
        // The build reuses the libraries of the tests and of this program, which are already built.
        command.args(["build", "--workspace", "--bin", "proscenium"]);
    }
    run(&mut command)?;
    Ok(target()
        .join(if release { "release" } else { "debug" })
        .join("proscenium"))
}

/// Runs the same command with an optimized build of xtask. Load from an unoptimized program cannot keep a proxy busy,
/// so it would measure how the proxy is woken for each request. Link-time optimization takes minutes and would make the
/// load little faster.
pub(crate) fn run_optimised() -> Result<()> {
    let mut command = cargo();
    command.args([
        "run",
        "--quiet",
        "--profile",
        "counted",
        "--package",
        "xtask",
        "--",
    ]);
    run(command.args(env::args_os().skip(1)))
}

/// Runs a command of this program, and turns a panic into an error. The stand-ins and the raw client panic where a test
/// would fail, and print the message on the terminal.
pub(crate) fn without_panic<T>(run: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(run))
        .unwrap_or_else(|_| Err(anyhow!("it broke off; the reason is above")))
}

/// Runs a program and waits for it; an exit status other than 0 is an error.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let status = command
        .status()
        .with_context(|| format!("{} does not start", command.get_program().display()))?;
    if !status.success() {
        bail!("{} failed: {status}", command.get_program().display());
    }
    Ok(())
}

/// Runs a program that must succeed; returns its standard output.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let name = command.get_program().display().to_string();
    let output = command
        .output()
        .with_context(|| format!("{name} does not start"))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if !output.status.success() {
        let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
        bail!("{name} failed: {}\n{stdout}{stderr}", output.status);
    }
    Ok(text(&output.stdout))
}

/// Whether `PATH` has a program of this name.
pub(crate) fn is_installed(program: &str) -> bool {
    testkit::find_program(program).is_some()
}
