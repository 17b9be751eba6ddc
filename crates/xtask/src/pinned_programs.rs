//! Programs from crates.io and PyPI that this automation runs. Their versions are pinned, and they are in the cache of
//! `.ci/run`.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::Result;

use crate::workspace;

/// The directory of tools that stay between runs.
pub(crate) fn cache() -> PathBuf {
    workspace::root().join(".ci/cache")
}

/// The path of a program from crates.io. If the cache does not have this version, it is built first, with these options
/// of `cargo install`.
pub(crate) fn cargo(name: &str, version: &str, options: &[&str]) -> Result<PathBuf> {
    let cache = cache();
    let program = cache.join("bin").join(name);
    let installed = fs::read_to_string(cache.join(".crates.toml")).unwrap_or_default();
    if !installed.contains(&format!("\"{name} {version} ")) || !program.is_file() {
        println!("Building {name} {version} (some minutes, once)");
        workspace::run(
            workspace::cargo()
                .args(["install", "--quiet", "--locked", name, "--version", version])
                .args(options)
                .arg("--root")
                .arg(&cache)
                .arg("--target-dir")
                .arg(cache.join("target")),
        )?;
    }
    Ok(program)
}

/// The directory with the programs of these PyPI packages, in a separate virtual environment. If the cache does not
/// have these versions, they are fetched first.
pub(crate) fn python(packages: &[(&str, &str)]) -> Result<PathBuf> {
    let packages: Vec<_> = packages
        .iter()
        .map(|(name, version)| format!("{name}=={version}"))
        .collect();
    let environment = cache().join(packages.join("-").replace("==", "-"));
    let programs = environment.join("bin");
    let complete = environment.join("complete");
    if !complete.is_file() {
        println!("Fetching {}", packages.join(" "));
        workspace::output(
            Command::new("python3")
                .args(["-m", "venv"])
                .arg(&environment),
        )?;
        let mut pip = Command::new(programs.join("pip"));
        workspace::output(pip.args(["install", "--quiet"]).args(&packages))?;
        fs::write(&complete, "")?;
    }
    Ok(fs::canonicalize::<&Path>(&programs)?)
}
