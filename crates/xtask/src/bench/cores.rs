//! Assigns processes to cores.

use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use super::shape::Division;
use crate::workspace;

/// The cores of this machine. The last one is for the proxy.
pub(super) struct Cores {
    pub(super) last: usize,
}

impl Cores {
    pub(super) fn here() -> Result<Self> {
        let count = std::thread::available_parallelism()
            .context("how many cores?")?
            .get();
        if count < 2 {
            bail!("the benchmark needs two cores: one is the proxy's alone");
        }
        Ok(Self { last: count - 1 })
    }

    /// Moves all threads of this process to the other cores.
    pub(super) fn keep_us_off_the_last(&self) -> Result<()> {
        move_to(&format!("0-{}", self.last - 1), std::process::id())
    }

    /// Assigns cores to a proxy: moves this process accordingly, and returns the proxy's cores in the syntax of
    /// `taskset`.
    pub(super) fn divide(&self, division: Division) -> Result<String> {
        match division {
            Division::Apart => {
                self.keep_us_off_the_last()?;
                Ok(self.last.to_string())
            }
            Division::Shared => {
                move_to(&format!("0-{}", self.last), std::process::id())?;
                Ok(format!("{}-{}", self.last - 1, self.last))
            }
        }
    }
}

fn move_to(cores: &str, process: u32) -> Result<()> {
    let mut taskset = Command::new("taskset");
    taskset.args(["-acp", cores, &process.to_string()]);
    workspace::run(taskset.stdout(Stdio::null()))
}
