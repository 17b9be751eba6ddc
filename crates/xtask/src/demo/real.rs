//! `cargo xtask demo --real`: the same acts with Debian's Puppet Server and agent, checked against their own logs.

mod acts;
mod facts;
mod stack;

use std::{env, process::Command};
use std::{fs, os::unix::fs::MetadataExt as _, os::unix::process::CommandExt as _, path::Path};

use anyhow::{Context as _, Result, bail};

use self::stack::Stack;
use super::{Options, story::Story};
use crate::{lab, workspace};

/// Starts a CA and two compilers in a separate directory, runs every act, and stops what it started.
pub(super) fn run(options: &Options) -> Result<()> {
    if let Some(missing) = lab::missing("7") {
        bail!(
            "{missing}; on Debian: sudo apt-get install {}",
            lab::PACKAGES
        );
    }
    let binary = workspace::build_proscenium(false)?;
    if fs::metadata("/proc/self")?.uid() != 0 {
        return as_root(&binary, options);
    }
    let stack = Stack::start(&binary)?;
    let mut story = Story::for_terminal();
    let result = acts::all(&stack, &mut story, options.plant).and_then(|()| story.end());
    if result.is_ok() && options.keep {
        stack.keep()?;
    }
    stack.end()?;
    result
}

/// Restarts the demonstration with sudo. Puppet Server changes file owners, and the lab's host names need a mount
/// namespace; both need root.
fn as_root(binary: &Path, options: &Options) -> Result<()> {
    println!(
        "Restarting with sudo: Puppet Server changes file owners, and the host names of the lab need a mount namespace"
    );
    let mut command = Command::new("sudo");
    command
        .arg("env")
        .arg(format!("PROSCENIUM={}", binary.display()))
        .arg(format!(
            "CARGO_TARGET_DIR={}",
            workspace::target().display()
        ))
        .arg(env::current_exe().context("cannot find the path of this program")?)
        .args(["demo", "--real"])
        .args(options.keep.then_some("--keep"));
    if let Some(plant) = options.plant {
        command.args(["--plant", &format!("{plant:?}").to_lowercase()]);
    }
    Err(command.exec()).context("sudo does not start")
}
