//! Minimal roots of Debian releases, from the mirror in the machine's own package sources.

use std::{fs, path::PathBuf};

use anyhow::Result;

use crate::{debian, pinned_programs, workspace::output};

/// The releases, oldest first. Debian 11 has glibc 2.31 and systemd 247.
pub(super) const RELEASES: [&str; 3] = [OLDEST, "bookworm", "trixie"];
/// The oldest release, which a mirror may no longer have.
pub(super) const OLDEST: &str = "bullseye";
/// The release in which systemd is started.
pub(super) const BOOTED: &str = "bookworm";
/// The packages that ours depend on, and that the checks run.
const PACKAGES: &str = "systemd-sysv,logrotate,acl,rpm";

/// The root of a release in the cache. It is created if it is not there.
pub(super) fn root(release: &str) -> Result<PathBuf> {
    let root = pinned_programs::cache().join("roots").join(release);
    if root.is_dir() {
        return Ok(fs::canonicalize(root)?);
    }
    println!("Making a root of Debian {release} (a minute, once)");
    let made = root.with_extension("part");
    if made.exists() {
        fs::remove_dir_all(&made)?;
    }
    fs::create_dir_all(root.parent().unwrap_or(&root))?;
    output(&mut debian::bootstrap(release, PACKAGES, &made)?)?;
    fs::rename(&made, &root)?;
    Ok(fs::canonicalize(root)?)
}
