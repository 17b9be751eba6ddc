//! The programs that build the packages: those of Debian, and pinned ones from crates.io and PyPI.

use std::{path::PathBuf, process::Command};

use anyhow::{Context, Result, bail};

pub(super) use crate::workspace::output;
use crate::{pinned_programs, workspace};

const CARGO_TOOLS: [(&str, &str); 3] = [
    ("cargo-deb", "3.8.0"),
    ("cargo-generate-rpm", "0.21.1"),
    ("cargo-cyclonedx", "0.5.9"),
];

/// From PyPI: a linker for other processors and for older versions of the C library.
const PYTHON_TOOLS: [(&str, &str); 2] = [("cargo-zigbuild", "0.24.1"), ("ziglang", "0.17.1")];

/// A cargo subcommand, to be run at the root of the workspace.
pub(super) fn cargo(name: &str) -> Result<Command> {
    let tool = CARGO_TOOLS.iter().find(|(tool, _)| *tool == name);
    let (_, version) = tool.with_context(|| format!("no version of {name} is pinned"))?;
    let mut command = Command::new(pinned_programs::cargo(name, version, &[])?);
    command.current_dir(workspace::root());
    command.arg(name.trim_start_matches("cargo-"));
    Ok(command)
}

/// The folder with the programs of cargo-zigbuild and zig.
pub(super) fn zig() -> Result<PathBuf> {
    pinned_programs::python(&PYTHON_TOOLS)
}

/// Fails if one of these programs is missing, and names the packages to install.
pub(super) fn require(programs: &[&str]) -> Result<()> {
    let missing: Vec<_> = programs
        .iter()
        .filter(|program| !workspace::is_installed(program))
        .copied()
        .collect();
    if !missing.is_empty() {
        bail!(
            "not installed: {}; on Debian: apt-get install {PACKAGES}",
            missing.join(", ")
        );
    }
    Ok(())
}

/// Prints one line that says why a part is skipped.
pub(super) fn skip(part: &str, why: &anyhow::Error) {
    let why = format!("{why:#}").replace('\n', " ");
    println!("skipped: {part}: {}", why.trim());
}

/// The Debian packages of all programs that `dist` runs with any option.
const PACKAGES: &str = "dpkg lintian rpm coreutils util-linux systemd logrotate musl-tools binutils tar python3-venv \
     mmdebstrap systemd-container iproute2 qemu-user-static libc6-arm64-cross apt-utils createrepo-c gpg curl";
