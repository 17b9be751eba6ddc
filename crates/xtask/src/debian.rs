//! Root directories of Debian releases, from the mirror in this machine's own package sources.

use std::{path::Path, process::Command};

use anyhow::{Context, Result};

use crate::workspace::{is_installed, output};

/// A command that makes a minimal root of a release with these packages, separated by commas.
///
/// # Errors
/// There is no program that makes one, or no mirror.
pub(crate) fn bootstrap(release: &str, packages: &str, root: &Path) -> Result<Command> {
    let program = ["mmdebstrap", "debootstrap"]
        .into_iter()
        .find(|program| is_installed(program))
        .context("this needs the Debian package mmdebstrap or debootstrap")?;
    let mut command = Command::new(program);
    command
        .args(["--variant=minbase", &format!("--include={packages}")])
        .arg(release)
        .arg(root)
        .arg(mirror()?);
    Ok(command)
}

/// The Debian mirror of this machine.
fn mirror() -> Result<String> {
    let mut sources = Command::new("apt-get");
    sources.args(["indextargets", "--format", "$(REPO_URI)"]);
    let filters = ["Created-By: Packages", "Origin: Debian", "Label: Debian"];
    let uris = output(sources.args(filters))?;
    let first = uris.lines().next().map(str::to_owned);
    first.context(
        "this machine's package sources name no Debian mirror, or `apt-get update` has not read it",
    )
}
