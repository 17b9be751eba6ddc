//! `cargo xtask packages`: the Debian packages that the tests, the lab and `.ci/run` need.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    os::unix::fs::MetadataExt as _,
    path::Path,
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result, bail, ensure};
use testkit::Tool;

use crate::{lab, workspace};

/// Options of `cargo xtask packages`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Install those that are missing, without starting their services
    #[arg(long)]
    install: bool,
}

/// The packages that `.ci/run` needs in addition to those of the tests and the lab: a compiler and `make`, and those
/// for the checks of the Puppet module, for counted instructions and system calls, for the manual pages, and for tools
/// from PyPI.
const CHECKS: &[&str] = &[
    "ca-certificates",
    "gcc",
    "groff-base",
    "libc6-dev",
    "make",
    "metadata-json-lint",
    "nginx-light",
    "procps",
    "puppet-lint",
    "python3-venv",
    "ruby-rspec",
    "ruby-rspec-puppet",
    "util-linux",
    "valgrind",
];

/// Prints the list, or installs what is missing from it.
pub(crate) fn run(options: &Options) -> Result<()> {
    let packages = packages();
    if options.install {
        return install(&missing(packages.keys().copied())?);
    }
    for (package, purposes) in packages {
        let purposes: Vec<_> = purposes.into_iter().collect();
        println!("{package:<20} {}", purposes.join(", "));
    }
    Ok(())
}

/// Installs what the tests lack, and the lab if it is wanted.
pub(crate) fn install_for_tests(lab: bool) -> Result<()> {
    let tools = Tool::ALL.iter().filter(|tool| !tool.is_installed());
    let mut wanted: BTreeSet<_> = tools.flat_map(|tool| tool.packages()).copied().collect();
    let cannot_run = |version: &&str| lab::missing(version).is_some();
    if lab && lab::VERSIONS.iter().any(cannot_run) {
        wanted.extend(lab::PACKAGES.split(' '));
    }
    if wanted.is_empty() {
        return Ok(());
    }
    install(&missing(wanted)?)
}

/// Whether this account is root, or becomes root without a password.
pub(crate) fn can_become_root() -> bool {
    let mut sudo = Command::new("sudo");
    let sudo = sudo
        .args(["--non-interactive", "true"])
        .stderr(Stdio::null());
    is_root() || sudo.status().is_ok_and(|status| status.success())
}

/// Every package, and the parts that need it.
fn packages() -> BTreeMap<&'static str, BTreeSet<&'static str>> {
    let mut packages: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
    for tool in Tool::ALL {
        for package in tool.packages() {
            packages.entry(*package).or_default().insert("tests");
        }
    }
    for package in lab::PACKAGES.split(' ') {
        packages.entry(package).or_default().insert("lab");
    }
    for package in CHECKS {
        packages.entry(package).or_default().insert(".ci/run");
    }
    packages
}

/// The packages that are not installed.
fn missing(packages: impl IntoIterator<Item = &'static str>) -> Result<Vec<&'static str>> {
    ensure!(
        Path::new("/etc/debian_version").exists(),
        "this machine does not run Debian"
    );
    let wanted: Vec<_> = packages.into_iter().collect();
    // dpkg-query exits with 1 if it does not know one of the packages.
    let known = Command::new("dpkg-query")
        .args(["--show", "--showformat", "${Package} ${db:Status-Status}\n"])
        .args(&wanted)
        .stderr(Stdio::null())
        .output()
        .context("dpkg-query does not start")?;
    let known = String::from_utf8_lossy(&known.stdout);
    let is_missing = |package: &&str| {
        let installed = format!("{package} installed");
        known.lines().all(|line| line != installed)
    };
    Ok(wanted.into_iter().filter(is_missing).collect())
}

/// Installs packages. If this release of Debian lacks a package, the others are installed before the error.
fn install(packages: &[&str]) -> Result<()> {
    if packages.is_empty() {
        return Ok(());
    }
    println!("Installing Debian packages: {}", packages.join(" "));
    ensure!(
        can_become_root(),
        "this needs root, or sudo without a password"
    );
    workspace::run(as_root("apt-get").args([
        "-q",
        "-o",
        "Acquire::Retries=3",
        "-o",
        LOCK,
        "update",
    ]))?;
    // apt-get needs a second to find out about one package or about all.
    let (available, unavailable): (Vec<&str>, Vec<&str>) = if are_available(packages) {
        (packages.to_vec(), Vec::new())
    } else {
        let packages = packages.iter();
        packages.partition(|package| are_available(&[package]))
    };
    workspace::run(
        as_root("sh")
            .args(["-c", WITHOUT_SERVICES, "sh", "/usr/sbin/policy-rc.d"])
            .args([
                "apt-get",
                "-q",
                "-o",
                "Acquire::Retries=3",
                "-o",
                LOCK,
                "install",
            ])
            .args(["--yes", "--no-install-recommends"])
            .args(available),
    )?;
    if !unavailable.is_empty() {
        bail!("apt-get cannot install {}", unavailable.join(" "));
    }
    Ok(())
}

/// Waits for another apt-get, such as that of unattended upgrades.
const LOCK: &str = "DPkg::Lock::Timeout=300";

/// Runs a command while Debian's packages start no service. A policy that this machine already has stays unchanged.
const WITHOUT_SERVICES: &str = r#"
    set -e
    export DEBIAN_FRONTEND=noninteractive
    policy=$1
    shift
    if [ ! -e "$policy" ]; then
      trap 'rm -f "$policy"' EXIT
      trap 'exit 1' HUP INT TERM
      printf '#!/bin/sh\nexit 101\n' >"$policy"
      chmod 755 "$policy"
    fi
    "$@""#;

fn are_available(packages: &[&str]) -> bool {
    let mut simulated = Command::new("apt-get");
    simulated.args(["--simulate", "--no-install-recommends", "install"]);
    let output = simulated.args(packages).output();
    output.is_ok_and(|output| output.status.success())
}

fn as_root(program: &str) -> Command {
    if is_root() {
        return Command::new(program);
    }
    let mut sudo = Command::new("sudo");
    sudo.args(["--non-interactive", program]);
    sudo
}

/// Whether this account is root.
pub(crate) fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_package_names_what_needs_it() {
        let packages = packages();
        let purposes = |package: &str| packages[package].iter().copied().collect::<Vec<_>>();
        assert_eq!(purposes("knot"), ["tests"]);
        assert_eq!(purposes("openssl"), ["lab", "tests"]);
        assert_eq!(purposes("gcc"), [".ci/run"]);
    }

    #[test]
    fn services_are_not_started_during_an_installation_and_the_policy_does_not_stay() {
        let directory = tempfile::tempdir().expect("a directory");
        let policy = directory.path().join("policy-rc.d");
        let install = |script: &str| {
            let mut sh = Command::new("sh");
            sh.args(["-c", WITHOUT_SERVICES, "sh"]).arg(&policy);
            sh.args(["sh", "-c", script, "sh"]).arg(&policy);
            sh.status().expect("sh starts").code()
        };
        assert_eq!(install("\"$1\""), Some(101), "the policy refuses");
        assert!(!policy.exists());
        assert_eq!(install("kill -TERM $PPID; exit 0"), Some(1));
        assert!(!policy.exists());
        fs::write(&policy, "a policy of the machine").expect("a file");
        assert_eq!(install("true"), Some(0));
        let left = fs::read_to_string(&policy).expect("it is left");
        assert_eq!(left, "a policy of the machine");
    }
}
