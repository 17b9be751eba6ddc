//! The lab beside the tests: it mostly waits for Puppet servers that start, so that together they take hardly longer than
//! one of them alone.

use std::{fs::File, io, path::PathBuf, process::Child, time::Instant};

use anyhow::{Context, Result, bail, ensure};

use super::skipped::Skipped;
use crate::{lab, packages, workspace};

/// A running lab. Its output is in a file until it ends.
pub(super) struct LabLane {
    lab: Child,
    output: PathBuf,
    begun: Instant,
}

impl LabLane {
    /// Starts the lab; `None` if this machine cannot run it, which is recorded as skipped.
    ///
    /// # Errors
    /// The lab is `required` and cannot run.
    pub(super) fn start(required: bool, skipped: &mut Skipped) -> Result<Option<Self>> {
        if let Some(why) = missing() {
            ensure!(!required, "the lab is required and cannot run: {why}");
            skipped.lab(format!("{why} (Debian: {})", lab::PACKAGES));
            return Ok(None);
        }
        let output = workspace::target().join("lab.log");
        let file = File::create(&output).with_context(|| output.display().to_string())?;
        let program = workspace::target().join("debug/proscenium");
        let lab = lab::command(&program, &[])
            .stdout(file.try_clone()?)
            .stderr(file)
            .spawn()
            .context("the lab does not start")?;
        println!(
            "The lab runs beside the tests; its output is in {}.",
            output.display()
        );
        Ok(Some(Self {
            lab,
            output,
            begun: Instant::now(),
        }))
    }

    /// Waits for the lab and prints its output.
    pub(super) fn finish(mut self) -> Result<()> {
        let status = self.lab.wait()?;
        io::copy(&mut File::open(&self.output)?, &mut io::stdout())?;
        println!("The lab took {} s.", self.begun.elapsed().as_secs());
        if !status.success() {
            bail!("the lab failed: {status}");
        }
        Ok(())
    }
}

/// Why the lab cannot run here.
fn missing() -> Option<&'static str> {
    let not_root = "it needs root, or sudo without a password";
    lab::missing().or_else(|| (!packages::can_become_root()).then_some(not_root))
}
