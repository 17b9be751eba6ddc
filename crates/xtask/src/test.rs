//! `cargo xtask test`: set-up and all tests in one command.

use std::{env, thread};

use anyhow::{Result, bail};

use crate::{lab, workspace};

/// The options of `cargo xtask test`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Repeat every end-to-end module over HTTP/2, not only those whose promises depend on the protocol.
    #[arg(long)]
    all: bool,
}

/// The workspace's tests, then the lab.
pub(crate) fn run(options: &Options) -> Result<()> {
    let mut tests = workspace::cargo();
    tests.args(["test", "--workspace"]);
    if options.all {
        tests.args(["--features", "proscenium/every-module-over-http2"]);
    }
    if env::var_os("RUST_TEST_THREADS").is_none() {
        tests.env("RUST_TEST_THREADS", threads().to_string());
    }
    workspace::run(&mut tests)?;
    match lab::missing() {
        None => lab::run(&[]),
        Some(what) if env::var("PROSCENIUM_LAB").as_deref() == Ok("required") => {
            bail!("the lab is required (PROSCENIUM_LAB=required) and cannot run: {what}")
        }
        Some(what) => {
            eprintln!(
                "\n*** SKIPPED: tests/lab, the run with a real Puppet CA, compilers and agents ***"
            );
            eprintln!(
                "*** {what}; on Debian: apt-get install {} ***\n",
                lab::PACKAGES
            );
            Ok(())
        }
    }
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
