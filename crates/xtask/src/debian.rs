//! Root directories and packages of Debian releases, from the mirror in this machine's own package sources.

use std::{fs, path::Path, process::Command};

use anyhow::{Context, Result};

use crate::workspace::{is_installed, output, run};

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

/// Fetches packages of a release with all their dependencies, and unpacks them into a root directory. They are not
/// installed: their scripts do not run, and the package manager of this machine does not record them.
///
/// # Errors
/// There is no mirror, or it does not have the release or a package.
pub(crate) fn unpack(release: &str, packages: &[&str], root: &Path) -> Result<()> {
    let apt = tempfile::tempdir().context("no folder for the lists of packages")?;
    let path = |name: &str| apt.path().join(name);
    for folder in ["lists/partial", "archives/partial"] {
        fs::create_dir_all(path(folder))?;
    }
    let source = format!("deb [signed-by={KEYRING}] {} {release} main\n", mirror()?);
    fs::write(path("sources.list"), source)?;
    fs::write(path("status"), "")?;
    let get = |arguments: &[&str]| {
        let mut command = Command::new("apt-get");
        command.args(["--quiet", "--yes", "-o", "Acquire::Retries=3"]);
        for (option, value) in [
            ("Dir::Etc::sourcelist", path("sources.list")),
            ("Dir::Etc::sourceparts", path("none")),
            ("Dir::State::lists", path("lists")),
            ("Dir::State::status", path("status")),
            ("Dir::Cache", path("")),
            ("Dir::Cache::archives", path("archives")),
        ] {
            command.args(["-o", &format!("{option}={}", value.display())]);
        }
        // The account of apt's sandbox cannot write to a directory of this account.
        command.args(["-o", "APT::Sandbox::User=root", "-o", "Debug::NoLocking=1"]);
        output(command.args(arguments))
    };
    get(&["update"])?;
    let install = ["--no-install-recommends", "--download-only", "install"];
    get(&[&install, packages].concat())?;
    // Files of an earlier version must not stay.
    if root.exists() {
        fs::remove_dir_all(root).with_context(|| root.display().to_string())?;
    }
    fs::create_dir_all(root).with_context(|| root.display().to_string())?;
    for archive in fs::read_dir(path("archives"))? {
        let archive = archive?.path();
        if archive
            .extension()
            .is_some_and(|extension| extension == "deb")
        {
            run(Command::new("dpkg-deb").arg("-x").arg(archive).arg(root))?;
        }
    }
    Ok(())
}

/// The keys of Debian's archives.
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

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
