//! The programs that build the packages: Debian's, and cargo tools and zig in pinned versions in the cache of `.ci/run`.

use std::{
    fs,
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

/// From PyPI: a linker for other processors and for older versions of the C library.
const PYTHON_TOOLS: [(&str, &str); 2] = [("cargo-zigbuild", "0.24.1"), ("ziglang", "0.17.1")];

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

/// The directory of tools that stay between runs.
pub(super) fn cache() -> PathBuf {
    workspace::root().join(".ci/cache")
}

/// The programs of cargo-zigbuild and zig, which are fetched if the cache does not have these versions.
pub(super) fn install_zig() -> Result<PathBuf> {
    let packages = PYTHON_TOOLS.map(|(name, version)| format!("{name}=={version}"));
    let folder = cache().join(packages.join("-").replace("==", "-"));
    let programs = folder.join("bin");
    if !programs.join("cargo-zigbuild").is_file() {
        println!("Fetching {}", packages.join(" "));
        output(Command::new("python3").args(["-m", "venv"]).arg(&folder))?;
        output(
            Command::new(programs.join("pip"))
                .args(["install", "--quiet"])
                .args(&packages),
        )?;
    }
    Ok(fs::canonicalize(programs)?)
}

/// Builds the cargo tools if the cache does not have these versions.
pub(super) fn install() -> Result<Tools> {
    let cache = cache();
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
    let noted = fs::read_to_string(cache.join(".crates.toml")).unwrap_or_default();
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

/// Prints in one line why a part is left out.
pub(super) fn skip(part: &str, why: &anyhow::Error) {
    let why = format!("{why:#}").replace('\n', " ");
    println!("skipped: {part}: {}", why.trim());
}

/// The Debian packages of all programs that `dist` runs with any option.
const PACKAGES: &str = "dpkg lintian rpm coreutils util-linux systemd logrotate musl-tools binutils tar python3-venv \
     mmdebstrap systemd-container qemu-user-static libc6-arm64-cross apt-utils createrepo-c gpg curl";
