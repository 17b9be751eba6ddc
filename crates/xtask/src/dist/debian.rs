//! Minimal roots of Debian releases, from the mirror in the machine's own package sources.

use std::{fs, path::PathBuf, process::Command};

use anyhow::{Context, Result};

use super::tools::{output, require};
use crate::pinned_programs;

/// The releases, oldest first. Debian 11 has glibc 2.31 and systemd 247.
pub(super) const RELEASES: [&str; 3] = ["bullseye", "bookworm", "trixie"];
/// The release in which systemd is started.
pub(super) const BOOTED: &str = "bookworm";
/// What the packages need, and what the checks run.
const PACKAGES: &str = "systemd-sysv,logrotate,acl,rpm";

/// The root of a release in the cache; it is made if it is not there.
pub(super) fn root(release: &str) -> Result<PathBuf> {
    let root = pinned_programs::cache().join("roots").join(release);
    if root.is_dir() {
        return Ok(fs::canonicalize(root)?);
    }
    require(&["mmdebstrap"])?;
    let mirror = mirror()?;
    println!("Making a root of Debian {release} from {mirror} (a minute, once)");
    let made = root.with_extension("part");
    if made.exists() {
        fs::remove_dir_all(&made)?;
    }
    fs::create_dir_all(root.parent().unwrap_or(&root))?;
    let include = format!("--include={PACKAGES}");
    let mut command = Command::new("mmdebstrap");
    command.args([
        "--quiet",
        "--variant=minbase",
        "--format=directory",
        &include,
        release,
    ]);
    output(command.arg(&made).arg(mirror))?;
    fs::rename(&made, &root)?;
    Ok(fs::canonicalize(root)?)
}

/// The Debian mirror of this machine.
fn mirror() -> Result<String> {
    let sources = output(Command::new("apt-get").args([
        "indextargets",
        "--format",
        "$(ORIGIN) $(COMPONENT) $(CODENAME) $(REPO_URI)",
        "Created-By: Packages",
    ]))?;
    let mut words = sources
        .lines()
        .map(|line| line.split(' ').collect::<Vec<_>>());
    words
        .find_map(|words| match words.as_slice() {
            // Suites for updates have other names.
            ["Debian", "main", release, uri] if !release.contains('-') => Some((*uri).to_owned()),
            _ => None,
        })
        .context("this machine's package sources name no Debian mirror, or `apt-get update` has not read it")
}
