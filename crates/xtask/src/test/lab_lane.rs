//! The lab beside the tests: it mostly waits for Puppet servers that start, so that together they take hardly longer than
//! one of them alone.

use std::{
    fs::File,
    io,
    path::{Path, PathBuf},
    thread::{self, JoinHandle},
    time::Instant,
};

use anyhow::{Context, Result, anyhow, ensure};

use super::skipped::Skipped;
use crate::{lab, packages, workspace};

/// A running lab. Its output is in a file until it ends.
pub(super) struct LabLane {
    labs: JoinHandle<Result<()>>,
    output: PathBuf,
}

impl LabLane {
    /// Starts what this machine can run, one version of Puppet after the other. The others are recorded as skipped.
    ///
    /// # Errors
    /// Every version is `required`, and one cannot run.
    pub(super) fn start(required: bool, skipped: &mut Skipped) -> Result<Self> {
        let mut versions = Vec::new();
        for version in lab::VERSIONS {
            match missing(version) {
                None => versions.push(version),
                Some(why) => {
                    ensure!(!required, "the lab with Puppet {version} cannot run: {why}");
                    skipped.lab(version, &why);
                }
            }
        }
        let output = workspace::target().join("lab.log");
        let log = File::create(&output).with_context(|| output.display().to_string())?;
        if !versions.is_empty() {
            let output = output.display();
            println!("The lab runs beside the tests; its output is in {output}.");
        }
        let labs = thread::spawn(move || run(&versions, &log));
        Ok(Self { labs, output })
    }

    /// Waits for the lab and prints its output.
    pub(super) fn finish(self) -> Result<()> {
        let outcome = self.labs.join();
        io::copy(&mut File::open(&self.output)?, &mut io::stdout())?;
        outcome.map_err(|_| anyhow!("the thread of the lab panicked"))?
    }
}

fn run(versions: &[&str], log: &File) -> Result<()> {
    let program = workspace::target().join("debug/proscenium");
    let mut outcome = Ok(());
    for version in versions {
        let begun = Instant::now();
        let mut lab = lab::ci(version, Path::new(&program));
        let ended = workspace::run(lab.stdout(log.try_clone()?).stderr(log.try_clone()?));
        let seconds = begun.elapsed().as_secs();
        println!("The lab with Puppet {version} took {seconds} s.");
        outcome = outcome.and(ended);
    }
    outcome
}

/// Why the lab with this version cannot run here.
fn missing(version: &str) -> Option<String> {
    let not_root = || "it needs root, or sudo without a password".to_owned();
    lab::missing(version).or_else(|| (!packages::can_become_root()).then(not_root))
}
