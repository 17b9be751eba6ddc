//! `cargo xtask test`: set-up and all tests, one command.

use std::{env, path::Path};

use anyhow::{Result, bail};

use crate::{lab, workspace};

/// The workspace's tests, then the lab.
pub(crate) fn run() -> Result<()> {
    workspace::run(workspace::cargo().args(["test", "--workspace"]))?;
    match Lab::here() {
        Lab::Runs => lab::run(&[]),
        Lab::Missing(what) if env::var("PROSCENIUM_LAB").as_deref() == Ok("required") => {
            bail!("the lab is required (PROSCENIUM_LAB=required) and cannot run: {what}")
        }
        Lab::Missing(what) => {
            eprintln!(
                "\n*** SKIPPED: tests/lab, the run with a real Puppet CA, compilers and agents ***"
            );
            eprintln!(
                "*** {what}; on Debian: apt-get install puppetserver puppet-agent curl openssl ***\n"
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

/// Whether the lab can run on this machine.
enum Lab {
    Runs,
    Missing(&'static str),
}

impl Lab {
    fn here() -> Self {
        if !Path::new("/usr/share/puppetserver/puppetserver.jar").exists() {
            Self::Missing("Puppet Server is not installed")
        } else if !workspace::is_installed("puppet") {
            Self::Missing("the Puppet agent is not installed")
        } else {
            Self::Runs
        }
    }
}
