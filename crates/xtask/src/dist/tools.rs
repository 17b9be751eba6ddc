//! The programs that build the packages: Debian's, and cargo tools in pinned versions in the cache of `.ci/run`.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Result, bail};

use crate::workspace;
pub(super) use crate::workspace::output;

const CARGO_TOOLS: [(&str, &str); 3] = [
    ("cargo-deb", "3.8.0"),
    ("cargo-generate-rpm", "0.21.1"),
    ("cargo-cyclonedx", "0.5.9"),
];

/// The folder with the cargo tools.
pub(super) struct Tools {
    folder: PathBuf,
}

impl Tools {
    /// A cargo subcommand, to be run at the root of the workspace.
    pub(super) fn command(&self, name: &str) -> Command {
        let mut command = Command::new(self.folder.join(name));
        command.current_dir(workspace::root());
        command.arg(name.trim_start_matches("cargo-"));
        command
    }
}

/// Builds the cargo tools if the cache does not have these versions.
pub(super) fn install() -> Result<Tools> {
    let cache = workspace::root().join(".ci/cache");
    let tools = Tools {
        folder: cache.join("bin"),
    };
    for (name, version) in CARGO_TOOLS {
        if is_installed(&cache, name, version) {
            continue;
        }
        println!("Building {name} {version} (some minutes, once)");
        workspace::run(
            workspace::cargo()
                .args(["install", "--quiet", "--locked", name, "--version", version])
                .arg("--root")
                .arg(&cache)
                .arg("--target-dir")
                .arg(cache.join("target")),
        )?;
    }
    Ok(tools)
}

/// Whether cargo has recorded this version as installed in the cache.
fn is_installed(cache: &Path, name: &str, version: &str) -> bool {
    let noted = std::fs::read_to_string(cache.join(".crates.toml")).unwrap_or_default();
    noted.contains(&format!("\"{name} {version} ")) && cache.join("bin").join(name).is_file()
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

/// The Debian packages of all programs that `dist`, `dist --static` and `dist --check` run.
const PACKAGES: &str =
    "dpkg lintian rpm coreutils util-linux systemd logrotate musl-tools binutils tar";
