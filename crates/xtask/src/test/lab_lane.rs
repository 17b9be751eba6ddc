//! The lab runs at the same time as the tests. It mostly waits for Puppet servers to start, so both together take
//! hardly longer than one of them.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    thread::{self, JoinHandle},
    time::Instant,
};

use anyhow::{Context, Result, anyhow};

use crate::{lab, packages, workspace};

/// A running lab. Its output goes to a file until it ends.
pub(super) struct LabLane {
    labs: JoinHandle<Result<Vec<String>>>,
    output: PathBuf,
}

impl LabLane {
    /// Starts the lab, with one version of Puppet after the other. Unless the lab is `required`, a version that cannot
    /// run here is skipped.
    pub(super) fn start(required: bool) -> Result<Self> {
        let output = workspace::target().join("lab.log");
        let log = File::create(&output).with_context(|| output.display().to_string())?;
        println!(
            "The lab runs beside the tests; its output is in {}.",
            output.display()
        );
        let labs = thread::spawn(move || run(required, &log));
        Ok(Self { labs, output })
    }

    /// Waits for the lab, prints its output, and returns a line for each part that was skipped.
    pub(super) fn finish(self) -> Result<Vec<String>> {
        let outcome = self.labs.join();
        io::copy(&mut File::open(&self.output)?, &mut io::stdout())?;
        let mut skipped = outcome.map_err(|_| anyhow!("the thread of the lab panicked"))??;
        let output = fs::read_to_string(&self.output)?;
        let agents = output
            .lines()
            .filter_map(|line| line.split_once("SKIPPED: "));
        skipped.extend(agents.map(|(_, why)| format!("skipped: a part of the lab: {why}\n")));
        Ok(skipped)
    }
}

fn run(required: bool, log: &File) -> Result<Vec<String>> {
    let program = &fs::canonicalize(workspace::target().join("debug/proscenium"))?;
    let mut skipped = Vec::new();
    let mut outcome = Ok(());
    thread::scope(|scope| {
        // The next version is prepared while the one before it runs.
        let missing = |version| scope.spawn(move || missing(version, program, log));
        let versions = lab::VERSIONS.map(|version| (version, missing(version)));
        for (version, missing) in versions {
            let why = missing
                .join()
                .unwrap_or_else(|_| Some("a thread panicked".to_owned()));
            if let Some(why) = why {
                let skip = format!("the lab with Puppet {version}, because {why}");
                if required {
                    outcome = Err(anyhow!("required: {skip}"))
                } else {
                    skipped.push(format!("skipped: {skip} (Debian: {})\n", lab::PACKAGES))
                }
                continue;
            }
            let begun = Instant::now();
            let tested = logged("ci", version, program, log);
            if tested.is_err() {
                outcome = tested;
            }
            println!(
                "The lab with Puppet {version} took {} s.",
                begun.elapsed().as_secs()
            );
        }
    });
    outcome.map(|()| skipped)
}

/// Why the lab with this version cannot run here. Whether a container may mount is found by trying.
fn missing(version: &str, program: &Path, log: &File) -> Option<String> {
    if let Some(why) = lab::missing(version) {
        return Some(why);
    }
    if !packages::can_become_root() {
        return Some("it needs root, or sudo without a password".to_owned());
    }
    let prepared = logged("prepare", version, program, log);
    let log = workspace::target().join("lab.log");
    prepared
        .err()
        .map(|_| format!("it cannot be prepared, see {}", log.display()))
}

fn logged(command: &str, version: &str, program: &Path, log: &File) -> Result<()> {
    let mut lab = lab::command(command, version, program);
    workspace::run(lab.stdout(log.try_clone()?).stderr(log.try_clone()?))
}
