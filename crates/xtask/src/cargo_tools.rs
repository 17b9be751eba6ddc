//! Programs from crates.io that this automation runs, in pinned versions, in the cache of `.ci/run`.

use std::{fs, path::PathBuf};

use anyhow::Result;

use crate::workspace;

/// The path of a program. Builds it first if the cache does not have this version, with these options of `cargo install`.
pub(crate) fn install(name: &str, version: &str, options: &[&str]) -> Result<PathBuf> {
    let cache = workspace::root().join(".ci/cache");
    let program = cache.join("bin").join(name);
    let installed = fs::read_to_string(cache.join(".crates.toml")).unwrap_or_default();
    if installed.contains(&format!("\"{name} {version} ")) && program.is_file() {
        return Ok(program);
    }
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
    Ok(program)
}
