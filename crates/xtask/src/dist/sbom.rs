//! Writes the software bill of materials (SBOM) of the program in the CycloneDX format.

use std::{collections::BTreeSet, fs, path::Path};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::tools::{self, output};
use crate::workspace;

/// The name of the file that cargo-cyclonedx writes in the directory of each crate.
const NAME: &str = "proscenium.cdx";

/// Writes the SBOM of the release binary.
pub(super) fn write(to: &Path) -> Result<()> {
    let made = output(
        tools::cargo("cargo-cyclonedx")?
            .args(["--manifest-path", "crates/proscenium/Cargo.toml"])
            .args(["--format", "json", "--spec-version", "1.5", "--quiet"])
            .args(["--override-filename", NAME]),
    );
    let text = collect();
    made?;
    // Local paths have no meaning on other machines.
    let root = fs::canonicalize(workspace::root())?;
    let text = text?.replace(&root.display().to_string(), "");
    let mut list: Value = serde_json::from_str(&text).context("cargo-cyclonedx writes JSON")?;
    let left_out = leave_out_what_is_not_built(&mut list)?;
    fs::write(to, serde_json::to_string_pretty(&list)?)?;
    let count = list["components"].as_array().map_or(0, Vec::len);
    println!("  the SBOM has {count} components; not built, so left out: {left_out:?}");
    Ok(())
}

/// Generates the SBOM of the program, and removes the files of the single crates.
fn collect() -> Result<String> {
    let mut text = None;
    for folder in fs::read_dir(workspace::root().join("crates"))? {
        let folder = folder?;
        let file = folder.path().join(format!("{NAME}.json"));
        if folder.file_name() == "proscenium" {
            text = Some(fs::read_to_string(&file));
        }
        let _ = fs::remove_file(file);
    }
    text.context("there is no crate proscenium")?
        .context("cargo-cyclonedx wrote no list")
}

/// Removes optional dependencies that are not enabled. cargo-cyclonedx lists them too, so the dependencies in use are
/// read from cargo.
fn leave_out_what_is_not_built(list: &mut Value) -> Result<Vec<String>> {
    let tree = output(workspace::cargo().args([
        "tree",
        "--locked",
        "--package",
        "proscenium",
        "--edges",
        "normal,build",
        "--prefix",
        "none",
        "--format",
        "{p}",
    ]))?;
    let built: BTreeSet<_> = tree.lines().filter_map(name_and_version).collect();
    let components = list["components"].as_array_mut();
    let components = components.context("the list has components")?;
    let of = |component: &Value| {
        let text = |key: &str| component[key].as_str().unwrap_or_default().to_owned();
        (text("name"), text("version"))
    };
    let listed: BTreeSet<_> = components.iter().map(of).collect();
    let own = |(name, version): &(String, String)| name == "proscenium" && !version.is_empty();
    if let Some(missing) = built.iter().find(|one| !listed.contains(*one) && !own(one)) {
        bail!("the SBOM lacks {missing:?}");
    }
    let mut gone = BTreeSet::new();
    let mut names = Vec::new();
    components.retain(|component| {
        let (name, version) = of(component);
        let stays = built.contains(&(name.clone(), version.clone()));
        if !stays {
            gone.insert(component["bom-ref"].as_str().unwrap_or_default().to_owned());
            names.push(format!("{name} {version}"));
        }
        stays
    });
    let is_gone = |reference: &Value| reference.as_str().is_some_and(|it| gone.contains(it));
    if let Some(dependencies) = list["dependencies"].as_array_mut() {
        dependencies.retain(|dependency| !is_gone(&dependency["ref"]));
        for dependency in dependencies {
            if let Some(on) = dependency["dependsOn"].as_array_mut() {
                on.retain(|reference| !is_gone(reference));
            }
        }
    }
    Ok(names)
}

/// Parses a line such as `serde v1.0.2 (proc-macro)`.
fn name_and_version(line: &str) -> Option<(String, String)> {
    let mut words = line.split_whitespace();
    let name = words.next()?.to_owned();
    let version = words.next()?.strip_prefix('v')?.to_owned();
    Some((name, version))
}
