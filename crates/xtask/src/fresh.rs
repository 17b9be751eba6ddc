//! `cargo xtask fresh`: the commands of the README in minimal roots of Debian 12 and 13, from an empty clone.

mod counts;
mod root;

use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use testkit::Tool;

use self::{counts::Counts, root::FreshRoot};
use crate::packages;

/// What to run.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Releases of Debian
    #[arg(value_name = "RELEASE", default_values = RELEASES)]
    releases: Vec<String>,
    /// Run only what needs no packages: the demonstration, and the tests without optional programs
    #[arg(long)]
    without_packages: bool,
}

const RELEASES: [&str; 2] = ["bookworm", "trixie"];

/// Runs the commands in each root, and prints the time and the counts of each. The first failure stops the run.
pub(crate) fn run(options: &Options) -> Result<()> {
    ensure!(
        packages::is_root(),
        "a root directory needs root: mounts and chroot"
    );
    for (number, release) in options.releases.iter().enumerate() {
        let begun = Instant::now();
        let root = FreshRoot::make(release)?;
        println!("{release}: made in {} s", begun.elapsed().as_secs());
        step(&root, "demo")?;
        // Without optional programs, all releases run the same tests, so one release is sufficient.
        if number == 0 {
            let counts = step(&root, "test --no-install")?;
            check_skips(&root, &counts)?;
        }
        if !options.without_packages {
            let counts = step(&root, "test")?;
            // Debian 13 has Puppet 8 instead of 7, and so no agent of version 7.
            let mut skipped = counts.skipped.iter();
            ensure!(
                skipped.all(|line| line
                    .contains(": this machine has no Puppet agent of Debian 12")
                    || line.contains("because this machine has Puppet Server 8")),
                "{release}: tests were skipped although their packages were installed"
            );
        }
    }
    Ok(())
}

/// Runs `cargo xtask COMMAND` in the clone.
fn step(root: &FreshRoot, command: &str) -> Result<Counts> {
    let begun = Instant::now();
    let (outcome, output) = root.run(&format!("cargo xtask {command}"))?;
    let counts = Counts::read(&output);
    println!(
        "{}: cargo xtask {command}: {} s{counts}",
        root.release(),
        begun.elapsed().as_secs()
    );
    outcome.with_context(|| {
        let last: Vec<_> = output.lines().rev().take(40).collect();
        last.into_iter().rev().collect::<Vec<_>>().join("\n")
    })?;
    Ok(counts)
}

/// Asserts that a line reports each program that the root lacks, and the lab.
fn check_skips(root: &FreshRoot, counts: &Counts) -> Result<()> {
    let is_there = |tool: &Tool| {
        ["usr/bin", "usr/sbin"]
            .iter()
            .any(|folder| root.path().join(folder).join(tool.program()).is_file())
    };
    for tool in Tool::ALL.iter().filter(|tool| !is_there(tool)) {
        let packages = format!("(Debian: {})", tool.packages().join(" "));
        ensure!(
            counts.skipped.iter().any(|line| line.ends_with(&packages)),
            "no test was skipped without {}",
            tool.program()
        );
    }
    ensure!(
        counts.skipped.iter().any(|line| line.contains("the lab")),
        "the lab was not skipped"
    );
    Ok(())
}
