//! `cargo xtask test`: set-up and all tests, one command.

use std::env;

use anyhow::{Result, bail};

use crate::{lab, workspace};

/// The workspace's tests, then the lab.
pub(crate) fn run() -> Result<()> {
    workspace::run(workspace::cargo().args(["test", "--workspace"]))?;
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

/// The rules of the tree alone: layers, folder names, module docs.
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
